//! From a trace to the code of a fragment.

mod repeated;
mod transfer;
mod words;

use super::super::asm::OutOfReach;
use super::super::duty::Duty;
use super::super::layout::{MAX_RECORD_QWORDS, state};
use super::super::room::Room;
use super::super::runtime::Runtime;
use super::super::state::{Ip, Spare, State};
use super::super::trace::{End, Item, Source, Step, Trace};
use super::super::values::{Holder, Values};
use super::changing;
use super::checked;
use super::close::{self, Record};
use super::count;
use super::{
    Changing, Dynamic, ExitKind, Exits, Fragment, FragmentCode, FragmentId, LoggedAccess, Patch,
    States, Stretch, Tables,
};
use crate::arch::{self, Flow, Gpr, GprSet, RepCondition, Shape};
use iced_x86::{Code, Instruction, Register};

/// Registers to leave alone, least used by compilers first. Never rsp; never rcx, which
/// the decision at the end and indirect transfers use.
const SPARE_CANDIDATES: [Gpr; 14] = [
    Gpr::R11,
    Gpr::R10,
    Gpr::R15,
    Gpr::R14,
    Gpr::R9,
    Gpr::R13,
    Gpr::R8,
    Gpr::R12,
    Gpr::Rbp,
    Gpr::Rbx,
    Gpr::Rdi,
    Gpr::Rsi,
    Gpr::Rdx,
    Gpr::Rax,
];

/// Words after which a trace is cut: leaves room for one more instruction of any kind.
const CUT_WORDS: usize = MAX_RECORD_QWORDS - 24;

/// The order in which registers are tried: those first that fewest instructions around name (`usage`), and
/// among these the one that it is in already, `before`.
pub fn spare_candidates(before: Option<Gpr>, usage: &[u16; 16]) -> [Gpr; 14] {
    let mut candidates = SPARE_CANDIDATES;
    candidates.sort_by_key(|&gpr| (usage[gpr as usize], before != Some(gpr)));
    candidates
}

/// What a fragment is to be like.
pub struct Wanted<'a> {
    /// Registers to leave alone, in order of preference.
    pub spares: &'a [Gpr],
    /// Whether it is the target of an indirect transfer.
    pub targeted: bool,
    /// What the program does not need at an address.
    pub room: &'a mut dyn FnMut(u64) -> Room,
}

/// Translates `trace` as fragment `id` for addresses `hot` and `cold`. The first of the registers
/// wanted that the trace leaves alone is used for ours.
///
/// # Errors
/// [`OutOfReach`] when not even its first instruction can be placed there.
pub fn translate(
    trace: Trace,
    id: FragmentId,
    (hot, cold): (u64, u64),
    wanted: Wanted,
    runtime: &Runtime,
    tables: &mut Tables,
) -> Result<(Fragment, FragmentCode), OutOfReach> {
    let Wanted {
        spares,
        targeted,
        room,
    } = wanted;
    let whole = trace.items.len();
    let (trace, spare) = choose_spare(trace, spares);
    let starved = trace.items.len() < whole;
    let tail = tail(&trace, room);
    let mut builder = Builder {
        spare,
        hot: Stretch::new(hot, trace.ip, runtime.duty),
        cold: Stretch::new(cold, trace.ip, runtime.duty),
        values: Values::new(),
        words: 1,
        accesses: Vec::new(),
        first_access: vec![0],
        returns: Vec::new(),
        exits: Exits {
            id,
            runtime,
            tables,
            numbers: Vec::new(),
        },
    };
    let in_front = targeted && checked::can_be_in_front(trace.ip, runtime);
    let entry = builder.entry(trace.ip);
    let (checked, elsewhere) = match in_front {
        true => Some(builder.checked_entry(trace.ip)).unzip(),
        false => (None, None),
    };
    let warm_entry = builder.hot.asm.here();
    let skips_exit = builder.compare(trace.ip, &trace.source)?;
    let comparison = warm_entry..builder.hot.asm.here();
    builder.pops_flags(&trace);
    let (items, end) = builder.items(&trace, tail, room)?;
    let indirect = matches!(end, End::Indirect);
    builder.end(&trace.items[..items], tail, end, room)?;
    // A trace stays within 1 GiB of its head.
    let from_head = |item: &Item| item.instruction.ip().wrapping_sub(trace.ip) as i32;
    let mut fragment = Fragment {
        ip: trace.ip,
        hot,
        entry,
        cold,
        warm_entry,
        spare,
        starved,
        indirect,
        targeted: false,
        checked,
        elsewhere,
        changing: skips_exit.map(|skips| {
            Box::new(Changing {
                compared: trace.source.ranges(),
                comparison,
                skips_exit: Some(skips),
            })
        }),
        items: trace.items[..items].iter().map(from_head).collect(),
        accesses: builder.accesses.into(),
        first_access: builder.first_access.into(),
        returns: builder.returns.into(),
        exits: builder.exits.numbers,
        hot_states: States::of(&builder.hot.states),
        cold_states: States::of(&builder.cold.states),
    };
    fragment.exits.shrink_to_fit();
    let code = FragmentCode {
        hot: builder.hot.asm.into_bytes(),
        cold: builder.cold.asm.into_bytes(),
    };
    Ok((fragment, code))
}

/// Writes the code of side exit `exit` (its number) of `fragment` for addresses `hot` and `cold`, above all its other
/// code. Returns the displacement field of the branch to it, and the code.
pub fn side(
    fragment: &mut Fragment,
    id: FragmentId,
    exit: u32,
    (hot, cold): (u64, u64),
    room: &mut dyn FnMut(u64) -> Room,
    runtime: &Runtime,
    tables: &mut Tables,
) -> Option<(u64, FragmentCode)> {
    let ExitKind::Side {
        done,
        words,
        target,
        field,
    } = tables.exit(exit)?.kind
    else {
        return None;
    };
    if field == 0 {
        return None;
    }
    let done = usize::from(done);
    let mut exits = Exits {
        id,
        runtime,
        tables,
        numbers: Vec::new(),
    };
    let mut out = Stretch::new(hot, fragment.ip, runtime.duty);
    let mut rare = Stretch::new(cold, fragment.ip, runtime.duty);
    let record = Record {
        spare: fragment.spare,
        accesses: &fragment.accesses[..usize::from(fragment.first_access[done])],
        done,
        words: usize::from(words),
        room: target.map_or(Room::NONE, room),
        held: &[],
    };
    let closing = match target {
        Some(target) => {
            let ips: Vec<u64> = fragment.item_ips().take(done).collect();
            let back = count::goes_back(&ips, target);
            let closing = Closing::begin(&mut out, &record, Ip::At(target), runtime, back);
            let jump = out.asm.jump(out.asm.here());
            let (pad, number) = exits.direct(&mut rare, fragment.spare, target);
            out.asm.patch(jump, pad);
            exits.set_warm_field(number, jump);
            closing
        }
        None => {
            let mut closing = Closing::begin(&mut out, &record, Ip::InTarget, runtime, true);
            transfer::by_table(&mut out, fragment.spare);
            closing.behind(&mut out);
            closing
        }
    };
    for (from, to) in closing.end(&mut rare, &record, &mut exits) {
        out.asm.patch(from, to);
    }
    fragment.exits.extend(exits.numbers);
    fragment.hot_states.append(fragment.hot, &out.states);
    fragment.cold_states.append(fragment.cold, &rare.states);
    let code = FragmentCode {
        hot: out.asm.into_bytes(),
        cold: rare.asm.into_bytes(),
    };
    Some((field, code))
}

/// Finds the first register of `spares` that no item uses, cutting the trace where there is none.
fn choose_spare(mut trace: Trace, spares: &[Gpr]) -> (Trace, Gpr) {
    let mut union = GprSet::EMPTY;
    let mut spare = spares[0];
    for i in 0..trace.items.len() {
        let (read, written) = trace.items[i].gprs;
        union = union.union(read).union(written);
        match spares.iter().find(|gpr| !union.contains(**gpr)) {
            Some(&free) => spare = free,
            None => {
                trace.end = End::Fall(trace.items[i].instruction.ip());
                trace.items.truncate(i);
                break;
            }
        }
    }
    (trace, spare)
}

/// Items moved behind the record's end at the most.
const TAIL: usize = 3;

/// Where the record of a trace ends. Before a branch flags are needed, which are nearly always made just before: the instructions
/// that make them come after the decision where they access nothing.
fn tail(trace: &Trace, room: &mut dyn FnMut(u64) -> Room) -> usize {
    let length = trace.items.len();
    let last = length.saturating_sub(1);
    if !matches!(trace.end, End::Branch(..)) {
        return length;
    }
    let moves = |item: &&Item| {
        let instruction = &item.instruction;
        item.step == Step::Next
            && item.accesses.is_empty()
            && instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
            && !instruction.is_ip_rel_memory_operand()
    };
    let before = trace.items[..last].iter().rev();
    before
        .take(TAIL)
        .take_while(moves)
        .zip(1..)
        .find(|(item, _)| room(item.instruction.ip()).flags)
        .map_or(last, |(_, moved)| last - moved)
}

/// The end of a record whose part that is seldom run is still to be written.
enum Closing {
    Decide(Option<close::Pending>),
    Count(Option<count::Pending>),
}

impl Closing {
    /// `back`: the program goes back in its code on this way.
    fn begin(out: &mut Stretch, record: &Record, ip: Ip, runtime: &Runtime, back: bool) -> Closing {
        match runtime.duty {
            Duty::Observe { fast } => Closing::Decide(close::close(out, record, ip, fast)),
            Duty::Count => Closing::Count(count::close(out, record, ip, back, runtime.fast)),
        }
    }

    /// Writes what of it has to lie behind an indirect jump.
    fn behind(&mut self, out: &mut Stretch) {
        match self {
            Closing::Decide(Some(pending)) => pending.behind(out),
            Closing::Count(Some(pending)) => pending.behind(out),
            _ => {}
        }
    }

    /// Writes it; gives what is to be patched.
    fn end(
        self,
        out: &mut Stretch,
        record: &Record,
        exits: &mut Exits,
    ) -> impl Iterator<Item = Patch> {
        let patches = match self {
            Closing::Decide(None) | Closing::Count(None) => [None; 2],
            Closing::Decide(Some(pending)) => close::keep(out, record, pending, exits),
            Closing::Count(Some(pending)) => {
                [Some(count::leave(out, record, &pending, exits)), None]
            }
        };
        patches.into_iter().flatten()
    }
}

struct Builder<'a> {
    spare: Gpr,
    hot: Stretch,
    cold: Stretch,
    values: Values,
    /// Words of the record so far, header included.
    words: usize,
    accesses: Vec<LoggedAccess>,
    first_access: Vec<u16>,
    returns: Vec<u16>,
    exits: Exits<'a>,
}

impl Builder<'_> {
    /// Inside the trace, `done` items executed.
    fn inside(&self, ip: u64, done: usize) -> State {
        self.hot.inside(self.spare, Ip::At(ip), Some(done))
    }

    /// Code that compares the program's with what the fragment is made of: nothing where that cannot change.
    fn compare(&mut self, ip: u64, source: &Source) -> Result<Option<u64>, OutOfReach> {
        let (hot, cold) = (&mut self.hot, &mut self.cold);
        changing::compare((hot, cold), self.spare, ip, source, &mut self.exits)
    }

    /// Where the first item pops flags that would hinder the code of ours, leaves for the monitor before it. All others are overwritten by it.
    fn pops_flags(&mut self, trace: &Trace) {
        let first = trace.items.first().map(|item| &item.instruction);
        if !first.is_some_and(|first| arch::classify(first) == Flow::PopFlags) {
            return;
        }
        let mut state = self.inside(trace.ip, 0);
        state.open = None;
        let kind = ExitKind::Declined("flags popped that trap, or go downwards");
        let cold = &mut self.cold;
        let (pad, _) = self
            .exits
            .pad(cold, self.spare, state, Some(trace.ip), kind);
        self.hot.asm.test_top(arch::HINDERING_FLAGS);
        self.hot.asm.branch(Code::Jne_rel32_64, pad);
    }

    /// Emits the way in for canonical registers, which leads to that with the spare register in use, right behind it; gives its address.
    fn entry(&mut self, ip: u64) -> u64 {
        let entry = self.hot.asm.here();
        self.hot.mark(State {
            ip: Ip::At(ip),
            spilled: GprSet::EMPTY,
            spare: Spare::Unused,
            open: None,
            counted: false,
            cut: false,
        });
        self.hot.asm.spill(self.spare);
        let what = match self.hot.duty {
            Duty::Observe { .. } => state::SELF,
            Duty::Count => state::LOG,
        };
        self.hot.asm.load(self.spare, what);
        self.hot.mark(self.inside(ip, 0));
        entry
    }

    /// Emits the way in by the table of jumps, between the two others; gives its address, and where it leads those who are bound elsewhere.
    fn checked_entry(&mut self, ip: u64) -> (u64, u64) {
        let past = self.hot.asm.jump(self.hot.asm.here());
        let (hot, runtime) = (&mut self.hot, self.exits.runtime);
        let checked = checked::in_front(hot, ip, self.spare, runtime);
        let warm = hot.asm.here();
        hot.asm.patch(past, warm);
        checked
    }

    /// Where a word lies that code of this fragment reads.
    fn literal(&mut self, word: u64) -> u64 {
        self.cold.asm.align(8);
        let at = self.cold.asm.here();
        self.cold.asm.raw(&word.to_le_bytes());
        at
    }

    /// Emits the items up to the `tail`; returns how many fitted, and the end they lead to.
    fn items(
        &mut self,
        trace: &Trace,
        tail: usize,
        room: &mut dyn FnMut(u64) -> Room,
    ) -> Result<(usize, End), OutOfReach> {
        // A branch or indirect transfer that ends the trace is emitted with the end.
        let last_is_end = matches!(
            trace.end,
            End::Branch(..) | End::Counted(..) | End::Indirect
        );
        let straight = tail.min(trace.items.len() - usize::from(last_is_end));
        for (i, item) in trace.items.iter().enumerate() {
            let ip = item.instruction.ip();
            if self.words > CUT_WORDS {
                return Ok((i, End::Fall(ip)));
            }
            self.hot.mark(self.inside(ip, i));
            let in_parts = i < straight && self.begin_part(i, item);
            self.log_accesses(i, item);
            if i < straight {
                match self.copy(i, item, room) {
                    Ok(()) if in_parts => self.end_part(i, item),
                    Ok(()) => {}
                    // Nothing of this item has run yet: a fragment of its own begins here. (String instructions are never out of reach.)
                    Err(OutOfReach) if i > 0 => {
                        self.accesses.truncate(usize::from(self.first_access[i]));
                        return Ok((i, End::Fall(ip)));
                    }
                    Err(OutOfReach) => return Err(OutOfReach),
                }
                self.values.execute(&item.instruction, item.gprs.1);
            }
            self.first_access.push(self.accesses.len() as u16);
        }
        Ok((trace.items.len(), trace.end.clone()))
    }

    /// Emits the copy of an item.
    fn copy(
        &mut self,
        i: usize,
        item: &Item,
        room: &mut dyn FnMut(u64) -> Room,
    ) -> Result<(), OutOfReach> {
        match item.step {
            Step::Elided => {}
            Step::Call => {
                self.push_return(item.instruction.next_ip())?;
            }
            Step::Side { exit, negate } => {
                let mut branch = item.instruction;
                branch.as_near_branch();
                if negate {
                    branch.negate_condition_code();
                }
                let (pad, number) = self.side(exit, i + 1);
                let field = self.hot.asm.branch(branch.code(), pad);
                self.exits.set_side_field(number, field);
            }
            Step::Return { to } => self.follow_return(i, item, to, room(to))?,
            Step::Next if self.exits.runtime.duty == Duty::Count => {
                count::iterations(&mut self.hot, self.spare, &item.accesses);
                self.hot.asm.put(&item.instruction)?;
            }
            Step::Next => {
                self.hot.asm.put(&item.instruction)?;
                let conditional = item.accesses.iter().any(|a| {
                    matches!(a.shape, Shape::Rep { condition, .. } if condition != RepCondition::None)
                });
                if conditional {
                    self.hot
                        .mark(self.inside(item.instruction.next_ip(), i + 1));
                    let word = self.words as u8;
                    self.hot.asm.log(self.words, Gpr::Rcx);
                    self.words += 1;
                    for access in &mut self.accesses[usize::from(self.first_access[i])..] {
                        if let Some(Dynamic::Rep { after, .. }) = access.dynamic.as_deref_mut() {
                            *after = word;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A pad for a side exit to `target` behind `done` items; gives its address and the exit's number.
    fn side(&mut self, target: u64, done: usize) -> (u64, u32) {
        let kind = ExitKind::Side {
            done: done as u16,
            words: self.words as u16,
            target: Some(target),
            field: 0,
        };
        let state = self.inside(target, done);
        let cold = &mut self.cold;
        self.exits.pad(cold, self.spare, state, Some(target), kind)
    }

    /// Decides whether the record of the first `done` items is kept; the registers are as before, but for those in `room`. `back`: the
    /// program goes back in its code.
    fn close(&mut self, ip: Ip, done: usize, back: bool, room: Room) {
        let held: Vec<Holder> = self
            .values
            .holders()
            // There is the target.
            .filter(|holder| ip != Ip::InTarget || holder.gpr != Gpr::Rcx)
            .collect();
        let record = Record {
            spare: self.spare,
            accesses: &self.accesses[..usize::from(self.first_access[done])],
            done,
            words: self.words,
            room,
            held: &held,
        };
        let mut closing = Closing::begin(&mut self.hot, &record, ip, self.exits.runtime, back);
        if ip == Ip::InTarget {
            transfer::by_table(&mut self.hot, self.spare);
            closing.behind(&mut self.hot);
        }
        for (from, to) in closing.end(&mut self.cold, &record, &mut self.exits) {
            self.hot.asm.patch(from, to);
        }
    }

    /// Emits the end of the trace, and the items from `tail` on.
    fn end(
        &mut self,
        items: &[Item],
        tail: usize,
        end: End,
        room: &mut dyn FnMut(u64) -> Room,
    ) -> Result<(), OutOfReach> {
        let done = items.len();
        let ips: Vec<u64> = items.iter().map(|item| item.instruction.ip()).collect();
        match end {
            End::Fall(target) => {
                let back = count::goes_back(&ips, target);
                self.close(Ip::At(target), done, back, room(target));
                self.jump_direct(target);
            }
            End::Branch(taken, next) => {
                let branch = &items[done - 1].instruction;
                let (back, at) = (count::goes_back(&ips, taken), ips[tail]);
                // What is left accesses nothing: of the record all is done.
                self.close(Ip::At(at), done, back, room(at));
                for item in &items[tail..done - 1] {
                    let ip = Ip::At(item.instruction.ip());
                    self.hot.mark(self.hot.inside(self.spare, ip, None));
                    self.hot.asm.put(&item.instruction)?;
                }
                let at_branch = Ip::At(branch.ip());
                self.hot.mark(self.hot.inside(self.spare, at_branch, None));
                let mut near = *branch;
                near.as_near_branch();
                let (pad, exit) = self.exits.direct(&mut self.cold, self.spare, taken);
                let field = self.hot.asm.branch(near.code(), pad);
                self.exits.set_warm_field(exit, field);
                self.jump_direct(next);
            }
            End::Counted(taken, next) => {
                let branch = &items[done - 1].instruction;
                let back = count::goes_back(&ips, taken);
                self.close(Ip::At(branch.ip()), done, back, Room::NONE);
                // Taken skips the 5-byte jump to the other direction.
                let near = self.hot.asm.here() + 16;
                let again =
                    Instruction::with_branch(branch.code(), near).map_err(|_| OutOfReach)?;
                self.hot.asm.put(&again)?;
                self.hot.asm.patch_byte(self.hot.asm.here() - 1, 5);
                let target = self.hot.asm.here() + 5;
                self.hot
                    .mark(self.hot.inside(self.spare, Ip::At(next), None));
                self.jump_direct(next);
                debug_assert_eq!(self.hot.asm.here(), target);
                self.hot
                    .mark(self.hot.inside(self.spare, Ip::At(taken), None));
                self.jump_direct(taken);
            }
            End::Indirect => self.indirect(&items[done - 1], done)?,
            End::Syscall(ip) => self.leave(ip, done, ExitKind::Syscall),
            End::Declined(ip, reason) => self.leave(ip, done, ExitKind::Declined(reason)),
        }
        Ok(())
    }

    fn jump_direct(&mut self, target: u64) {
        let (pad, exit) = self.exits.direct(&mut self.cold, self.spare, target);
        let field = self.hot.asm.jump(pad);
        self.exits.set_warm_field(exit, field);
    }

    fn leave(&mut self, ip: u64, done: usize, kind: ExitKind) {
        self.close(Ip::At(ip), done, false, Room::NONE);
        let state = self.hot.inside(self.spare, Ip::At(ip), None);
        let (pad, _) = self
            .exits
            .pad(&mut self.cold, self.spare, state, Some(ip), kind);
        self.hot.asm.jump(pad);
    }
}

//! A translated trace: its code, the records it logs and the ways out of it.
//!
//! Layout: the hot part holds copies of the program's instructions with stores of register values
//! in between; the cold part holds what is rarely run (side exits, ways back to the monitor, literals).

use super::asm::{Asm, OutOfReach};
use super::layout::{self, MAX_RECORD_QWORDS, state};
use super::runtime::Runtime;
use super::state::{Ip, Log, State, StateMap};
use super::trace::{self, End, Item, Step, Trace};
use super::values::{Term, Values};
use crate::arch::{self, Gpr, GprSet, Kind, Mask, RepCondition, STATUS_FLAGS, Shape};
use iced_x86::{
    Code, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpKind, Register,
    RflagsBits,
};

/// Index of a fragment.
pub type FragmentId = u32;

/// Registers tried for the log pointer, least used by compilers first. Never rsp; never rcx, which
/// the flagless check and indirect transfers use.
const LOG_CANDIDATES: [Gpr; 14] = [
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

/// How the number or address of an access depends on more than base and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// One access.
    No,
    /// As many as the counter says: its term before, and the word of its value after where a
    /// condition may have stopped it early (0: it cannot).
    Rep {
        /// Counter before.
        count: Term,
        /// Word of the counter after.
        after: u8,
        /// Whether only ecx counts.
        counter32: bool,
        /// Bytes between elements.
        step: u8,
    },
    /// One per active lane.
    Gather {
        /// First word of the index vector.
        index: u8,
        /// Lanes.
        lanes: u8,
        /// Bytes of an index element.
        index_bytes: u8,
        /// Bytes of a data element.
        element_bytes: u8,
        /// Factor of the index.
        scale: u8,
        /// First word of the mask.
        mask: u8,
        /// Whether the mask is a vector of signs, not a bit mask.
        vector_mask: bool,
    },
    /// Moved by a bit offset.
    Bit {
        /// The offset register.
        offset: Term,
        /// Bytes of the operand.
        operand_bytes: u8,
    },
    /// Moved by al.
    Xlat {
        /// rax.
        rax: Term,
    },
}

/// One access of a trace, with the words of the record that give its address:
/// `word[base] + word[index]*scale + disp`, truncated to 32 bits if `addr32`, plus fs if `fs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedAccess {
    /// Constant part.
    pub disp: u64,
    /// Bytes.
    pub size: u32,
    /// Item of the trace.
    pub item: u16,
    /// Word of the base, 0 for none.
    pub base: u8,
    /// Word of the index, 0 for none.
    pub index: u8,
    /// Factor of the index.
    pub scale: u8,
    /// Whether the fs base is added.
    pub fs: bool,
    /// Whether the sum is truncated.
    pub addr32: bool,
    /// Direction.
    pub kind: Kind,
    /// What else there is to it.
    pub dynamic: Dynamic,
}

/// Why a fragment leaves the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// To a direct target without a fragment yet.
    Direct {
        /// Original address.
        target: u64,
        /// Displacement field to point at the target's warm entry (same log register).
        warm_field: u64,
        /// Displacement field to point at the target's cold entry.
        cold_field: u64,
    },
    /// The log is full; go on at `resume` in the cache with the record still open.
    Full {
        /// Items done.
        item: u16,
        /// Cache address to go on at.
        resume: u64,
    },
    /// At a `syscall` instruction.
    Syscall,
    /// At something that must run natively.
    Declined(&'static str),
}

/// One way out, known by its number.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The fragment it belongs to.
    pub fragment: FragmentId,
    /// Why.
    pub kind: ExitKind,
}

/// What a record in the log stands for: the first `items` items of a fragment.
#[derive(Clone, Copy, Debug)]
pub struct RecordShape {
    /// The fragment.
    pub fragment: FragmentId,
    /// Items executed.
    pub items: u16,
    /// Length in 8-byte words, header included.
    pub words: u16,
}

/// Numbers given out across all fragments.
#[derive(Debug, Default)]
pub struct Tables {
    /// Ways out, by exit number minus one.
    pub exits: Vec<Exit>,
    /// Record shapes, by record number.
    pub records: Vec<RecordShape>,
}

impl Tables {
    /// The exit with number `id`; `None` for [`super::runtime::EXIT_INDIRECT`].
    pub fn exit(&self, id: u32) -> Option<&Exit> {
        self.exits.get((id as usize).checked_sub(1)?)
    }
}

/// A translated trace.
#[derive(Debug)]
pub struct Fragment {
    /// Original address of its head.
    pub ip: u64,
    /// Address of its hot code, which begins with the entry for canonical registers.
    pub hot: u64,
    /// Address of its cold code.
    pub cold: u64,
    /// Entry with the log pointer already in [`Fragment::log`].
    pub warm_entry: u64,
    /// Register of the log pointer.
    pub log: Gpr,
    /// Whether it ends in an indirect transfer.
    pub indirect: bool,
    /// Original address of each item.
    pub item_ips: Vec<u64>,
    /// Accesses in program order.
    pub accesses: Vec<LoggedAccess>,
    /// For each item, and one past the last, the index of its first access.
    pub first_access: Vec<u16>,
    /// Numbers of its exits.
    pub exits: Vec<u32>,
    /// Meaning of registers in the hot code.
    pub hot_states: StateMap,
    /// Meaning of registers in the cold code.
    pub cold_states: StateMap,
}

/// Code of a fragment, to be put at its addresses.
#[derive(Debug)]
pub struct FragmentCode {
    /// For [`Fragment::hot`].
    pub hot: Vec<u8>,
    /// For [`Fragment::cold`].
    pub cold: Vec<u8>,
}

/// Translates `trace` as fragment `id` for addresses `hot` and `cold`.
///
/// # Errors
/// [`OutOfReach`] when not even its first instruction can be placed there.
pub fn translate(
    trace: Trace,
    id: FragmentId,
    (hot, cold): (u64, u64),
    runtime: &Runtime,
    tables: &mut Tables,
    factory: &mut InstructionInfoFactory,
) -> Result<(Fragment, FragmentCode), OutOfReach> {
    let (trace, log) = choose_log(trace, factory);
    let mut builder = Builder {
        id,
        log,
        hot: Asm::new(hot),
        cold: Asm::new(cold),
        hot_states: StateMap::default(),
        cold_states: StateMap::default(),
        values: Values::new(),
        words: 1,
        accesses: Vec::new(),
        first_access: vec![0],
        exits: Vec::new(),
        runtime,
        tables,
        factory,
    };
    let warm_entry = builder.entry(trace.ip);
    let (items, end) = builder.items(&trace)?;
    let indirect = matches!(end, End::Indirect);
    builder.end(&trace.items[..items], end)?;
    let mut fragment = Fragment {
        ip: trace.ip,
        hot,
        cold,
        warm_entry,
        log,
        indirect,
        item_ips: trace.items[..items]
            .iter()
            .map(|i| i.instruction.ip())
            .collect(),
        accesses: builder.accesses,
        first_access: builder.first_access,
        exits: builder.exits,
        hot_states: builder.hot_states,
        cold_states: builder.cold_states,
    };
    fragment.accesses.shrink_to_fit();
    fragment.hot_states.shrink();
    fragment.cold_states.shrink();
    let code = FragmentCode {
        hot: builder.hot.into_bytes(),
        cold: builder.cold.into_bytes(),
    };
    Ok((fragment, code))
}

/// Finds a register that no item uses, cutting the trace where there is none.
fn choose_log(mut trace: Trace, factory: &mut InstructionInfoFactory) -> (Trace, Gpr) {
    let used = trace::registers_used(&trace.items, factory);
    let mut union = GprSet::EMPTY;
    let mut log = LOG_CANDIDATES[0];
    for (i, set) in used.into_iter().enumerate() {
        union = union.union(set);
        match LOG_CANDIDATES.into_iter().find(|gpr| !union.contains(*gpr)) {
            Some(free) => log = free,
            None => {
                trace.end = End::Fall(trace.items[i].instruction.ip());
                trace.items.truncate(i);
                break;
            }
        }
    }
    (trace, log)
}

struct Builder<'a> {
    id: FragmentId,
    log: Gpr,
    hot: Asm,
    cold: Asm,
    hot_states: StateMap,
    cold_states: StateMap,
    values: Values,
    /// Words of the record so far, header included.
    words: usize,
    accesses: Vec<LoggedAccess>,
    first_access: Vec<u16>,
    exits: Vec<u32>,
    runtime: &'a Runtime,
    tables: &'a mut Tables,
    factory: &'a mut InstructionInfoFactory,
}

impl Builder<'_> {
    fn spilled(&self) -> GprSet {
        [self.log].into_iter().collect()
    }

    /// Inside the trace: the log pointer in its register, `done` items executed.
    fn inside(&self, ip: u64, done: usize) -> State {
        State {
            ip: Ip::At(ip),
            spilled: self.spilled(),
            log: Log::Register(self.log),
            open: Some(done as u16),
        }
    }

    fn mark_hot(&mut self, state: State) {
        self.hot_states.mark(self.hot.here(), state);
    }

    fn mark_cold(&mut self, state: State) {
        self.cold_states.mark(self.cold.here(), state);
    }

    fn entry(&mut self, ip: u64) -> u64 {
        let canonical = State {
            ip: Ip::At(ip),
            spilled: GprSet::EMPTY,
            log: Log::Slot,
            open: None,
        };
        self.mark_hot(canonical);
        self.hot.spill(self.log);
        self.hot.load(self.log, state::LOG);
        self.mark_hot(self.inside(ip, 0));
        self.hot.here()
    }

    /// Emits the items; returns how many fitted, and the end they lead to.
    fn items(&mut self, trace: &Trace) -> Result<(usize, End), OutOfReach> {
        // A branch or indirect transfer that ends the trace is emitted with the end.
        let last_is_end = matches!(
            trace.end,
            End::Branch(..) | End::Counted(..) | End::Indirect
        );
        let straight = trace.items.len() - usize::from(last_is_end);
        let dead = flags_dead_at(&trace.items);
        let first_dead = dead.iter().position(|d| *d);
        // Every way through the fragment must check, or a loop of such ways would never: the check
        // comes at the first item before which flags are dead, but no later than a way out.
        let mut checked = false;
        if first_dead.is_none() && !trace.items.is_empty() {
            self.check_without_flags(trace.ip, 0);
            checked = true;
        }
        for (i, item) in trace.items.iter().enumerate() {
            let ip = item.instruction.ip();
            if self.words > CUT_WORDS {
                if !checked {
                    self.check_without_flags(ip, i);
                }
                return Ok((i, End::Fall(ip)));
            }
            self.mark_hot(self.inside(ip, i));
            if !checked && first_dead == Some(i) {
                self.check(ip, i);
                checked = true;
            } else if !checked && matches!(item.step, Step::Side { .. }) {
                self.check_without_flags(ip, i);
                checked = true;
            }
            self.log_accesses(i, item);
            if i < straight {
                match self.copy(i, item) {
                    Ok(()) => {}
                    // Nothing of this item has run yet: a fragment of its own begins here.
                    Err(OutOfReach) if i > 0 => {
                        self.accesses.truncate(usize::from(self.first_access[i]));
                        if !checked {
                            self.check_without_flags(ip, i);
                        }
                        return Ok((i, End::Fall(ip)));
                    }
                    Err(OutOfReach) => return Err(OutOfReach),
                }
                self.values.execute(&item.instruction, self.factory);
            }
            self.first_access.push(self.accesses.len() as u16);
        }
        Ok((trace.items.len(), trace.end.clone()))
    }

    /// Leaves the cache when the log is full, at a point where no flag is needed.
    fn check(&mut self, ip: u64, done: usize) {
        self.hot.test32(self.log);
        let pad = self.cold.here();
        let field = self.hot.branch(Code::Jns_rel32_64, pad);
        let resume = field + 4;
        self.full_pad(ip, done, resume);
    }

    /// The same where every flag may be needed: the byte of the log pointer that changes at the end
    /// of the log goes through rcx.
    fn check_without_flags(&mut self, ip: u64, done: usize) {
        let inside = self.inside(ip, done);
        let mut borrowed = inside;
        borrowed.spilled.insert(Gpr::Rcx);
        self.mark_hot(inside);
        self.hot.save(state::SCRATCH, self.log);
        self.hot.spill(Gpr::Rcx);
        self.hot.load_byte(Gpr::Rcx, state::SCRATCH + 3);
        self.mark_hot(borrowed);
        self.hot.jrcxz(0);
        let short = self.hot.here() - 1;
        self.hot.unspill(Gpr::Rcx);
        self.mark_hot(inside);
        let over = self.hot.jump(self.hot.here());
        let full = self.hot.here();
        self.hot.patch_byte(short, (full - (short + 1)) as u8);
        self.mark_hot(borrowed);
        self.hot.unspill(Gpr::Rcx);
        self.mark_hot(inside);
        let pad = self.cold.here();
        self.hot.jump(pad);
        let resume = self.hot.here();
        self.hot.patch(over, resume);
        self.full_pad(ip, done, resume);
    }

    fn full_pad(&mut self, ip: u64, done: usize, resume: u64) {
        let kind = ExitKind::Full {
            item: done as u16,
            resume,
        };
        self.pad(ip, Some(done as u16), kind);
    }

    /// Cold code that puts the registers back, tells why and leaves; returns its address. A direct
    /// exit can be patched twice: to skip all of it, or after the registers are back.
    fn pad(&mut self, target: u64, open: Option<u16>, kind: ExitKind) -> (u64, u32) {
        let start = self.cold.here();
        let mut state = self.inside(target, 0);
        state.open = open;
        self.mark_cold(state);
        self.cold.save(state::LOG, self.log);
        self.cold.unspill(self.log);
        state.spilled = GprSet::EMPTY;
        state.log = Log::Slot;
        self.mark_cold(state);
        let cold_field = self.cold.here() + 1;
        if matches!(kind, ExitKind::Direct { .. }) {
            self.cold.jump(cold_field + 4);
        }
        self.cold.spill(Gpr::Rax);
        self.cold.constant(Gpr::Rax, target);
        state.spilled.insert(Gpr::Rax);
        self.mark_cold(state);
        self.cold.save(state::TARGET, Gpr::Rax);
        self.tables.exits.push(Exit {
            fragment: self.id,
            kind,
        });
        let id = self.tables.exits.len() as u32;
        self.cold.constant32(Gpr::Rax, id);
        self.cold.save(state::EXIT, Gpr::Rax);
        self.cold.jump(self.runtime.exit);
        self.exits.push(id);
        if let ExitKind::Direct {
            cold_field: field, ..
        } = &mut self.tables.exits[id as usize - 1].kind
        {
            *field = cold_field;
        }
        (start, id)
    }

    /// A pad for a direct target, its warm field filled in once the jump to it is placed.
    fn direct_pad(&mut self, target: u64) -> (u64, u32) {
        self.pad(
            target,
            None,
            ExitKind::Direct {
                target,
                warm_field: 0,
                cold_field: 0,
            },
        )
    }

    fn set_warm_field(&mut self, exit: u32, at: u64) {
        if let ExitKind::Direct { warm_field, .. } = &mut self.tables.exits[exit as usize - 1].kind
        {
            *warm_field = at;
        }
    }

    /// Header of the record that says: the first `items` items ran.
    fn record(&mut self, items: usize) -> u32 {
        let words = self.words as u16;
        let shape = RecordShape {
            fragment: self.id,
            items: items as u16,
            words,
        };
        self.tables.records.push(shape);
        let number = self.tables.records.len() as u32 - 1;
        layout::header(number, words).expect("the cache is flushed long before numbers run out")
    }

    /// Emits the stores that the accesses of an item need.
    fn log_accesses(&mut self, i: usize, item: &Item) {
        for access in &item.accesses {
            let zero = Term { slot: 0, add: 0 };
            let base = access.address.base.map_or(zero, |gpr| self.term(gpr));
            let index = access.address.index.map_or(zero, |gpr| self.term(gpr));
            let scale = access.address.scale;
            let dynamic = self.dynamic(&access.shape, &item.instruction);
            let disp = (access.address.disp as u64)
                .wrapping_add(base.add)
                .wrapping_add(index.add.wrapping_mul(u64::from(scale)));
            self.accesses.push(LoggedAccess {
                disp,
                size: access.size,
                item: i as u16,
                base: base.slot,
                index: index.slot,
                scale,
                fs: access.address.fs,
                addr32: access.address.addr32,
                kind: access.kind,
                dynamic,
            });
        }
    }

    fn term(&mut self, gpr: Gpr) -> Term {
        let (hot, log, words) = (&mut self.hot, self.log, &mut self.words);
        self.values.term(gpr, |gpr| {
            hot.log(log, *words, gpr);
            *words += 1;
            (*words - 1) as u8
        })
    }

    fn vector(&mut self, number: u8, bytes: usize, evex: bool) -> u8 {
        let word = self.words;
        self.hot.log_vector(self.log, word, number, bytes, evex);
        self.words += bytes / 8;
        word as u8
    }

    fn dynamic(&mut self, shape: &Shape, instruction: &Instruction) -> Dynamic {
        match *shape {
            Shape::Plain | Shape::MaskMov => Dynamic::No,
            Shape::Rep {
                counter32,
                condition,
                step,
            } => {
                let count = self.term(Gpr::Rcx);
                // Where a condition may stop it, `copy` logs the counter behind it too.
                let after = u8::from(condition != RepCondition::None);
                Dynamic::Rep {
                    count,
                    after,
                    counter32,
                    step,
                }
            }
            Shape::Gather {
                index,
                lanes,
                index_bytes,
                element_bytes,
                scale,
                mask,
                ..
            } => {
                let evex = matches!(mask, Mask::K(_));
                let bytes = |element: u8| {
                    (usize::from(lanes) * usize::from(element))
                        .next_power_of_two()
                        .max(16)
                };
                let index = self.vector(index, bytes(index_bytes), evex);
                let (mask, vector_mask) = match mask {
                    Mask::Vector(n) => (self.vector(n, bytes(element_bytes), evex), true),
                    Mask::K(n) => {
                        self.hot.log_mask(self.log, self.words, n);
                        self.words += 1;
                        ((self.words - 1) as u8, false)
                    }
                };
                debug_assert!(instruction.is_vsib());
                Dynamic::Gather {
                    index,
                    lanes,
                    index_bytes,
                    element_bytes,
                    scale,
                    mask,
                    vector_mask,
                }
            }
            Shape::BitOffset {
                offset,
                operand_bytes,
            } => Dynamic::Bit {
                offset: self.term(offset),
                operand_bytes,
            },
            Shape::Xlat => Dynamic::Xlat {
                rax: self.term(Gpr::Rax),
            },
        }
    }

    /// Emits the copy of an item.
    fn copy(&mut self, i: usize, item: &Item) -> Result<(), OutOfReach> {
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
                let stub = self.cold.here();
                self.hot.branch(branch.code(), stub);
                self.side_exit(exit, i + 1);
            }
            Step::Next => {
                self.hot.put(&item.instruction)?;
                let conditional = item.accesses.iter().any(|a| {
                    matches!(a.shape, Shape::Rep { condition, .. } if condition != RepCondition::None)
                });
                if conditional {
                    self.mark_hot(self.inside(item.instruction.next_ip(), i + 1));
                    let word = self.words as u8;
                    self.hot.log(self.log, self.words, Gpr::Rcx);
                    self.words += 1;
                    for access in &mut self.accesses[usize::from(self.first_access[i])..] {
                        if let Dynamic::Rep { after, .. } = &mut access.dynamic {
                            *after = word;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn push_return(&mut self, address: u64) -> Result<(), OutOfReach> {
        self.cold.align(8);
        let literal = self.cold.here();
        self.cold.raw(&address.to_le_bytes());
        self.hot.push_word_at(literal)
    }

    /// Cold code of a side exit: completes the record and goes to the exit's target.
    fn side_exit(&mut self, target: u64, done: usize) {
        self.mark_cold(self.inside(target, done));
        let id = self.record(done);
        self.cold.log_header(self.log, id);
        self.cold.lea(self.log, self.log, 8 * self.words as i64);
        let mut closed = self.inside(target, done);
        closed.open = None;
        self.mark_cold(closed);
        let field = self.cold.jump(self.cold.here() + 5);
        let (_, exit) = self.direct_pad(target);
        self.set_warm_field(exit, field);
    }

    /// Completes the record in the hot code; flags are not touched.
    fn close(&mut self, ip: Ip, spilled: GprSet, done: usize) {
        let id = self.record(done);
        self.hot.log_header(self.log, id);
        self.hot.lea(self.log, self.log, 8 * self.words as i64);
        self.mark_hot(State {
            ip,
            spilled,
            log: Log::Register(self.log),
            open: None,
        });
    }

    fn end(&mut self, items: &[Item], end: End) -> Result<(), OutOfReach> {
        let done = items.len();
        let at = |ip: u64| Ip::At(ip);
        let spilled = self.spilled();
        match end {
            End::Fall(target) => {
                self.mark_hot(self.inside(target, done));
                self.close(at(target), spilled, done);
                self.jump_direct(target);
            }
            End::Branch(taken, next) => {
                let branch = &items[done - 1].instruction;
                self.close(at(branch.ip()), spilled, done);
                let mut near = *branch;
                near.as_near_branch();
                let (pad, exit) = self.direct_pad(taken);
                let field = self.hot.branch(near.code(), pad);
                self.set_warm_field(exit, field);
                self.jump_direct(next);
            }
            End::Counted(taken, next) => {
                let branch = &items[done - 1].instruction;
                self.close(at(branch.ip()), spilled, done);
                // Taken skips the 5-byte jump to the other direction.
                let near = self.hot.here() + 16;
                let again =
                    Instruction::with_branch(branch.code(), near).map_err(|_| OutOfReach)?;
                self.hot.put(&again)?;
                self.hot.patch_byte(self.hot.here() - 1, 5);
                let target = self.hot.here() + 5;
                let closed = |ip| State {
                    ip: Ip::At(ip),
                    spilled,
                    log: Log::Register(self.log),
                    open: None,
                };
                let (closed_next, closed_taken) = (closed(next), closed(taken));
                self.mark_hot(closed_next);
                self.jump_direct(next);
                debug_assert_eq!(self.hot.here(), target);
                self.mark_hot(closed_taken);
                self.jump_direct(taken);
            }
            End::Indirect => self.indirect(&items[done - 1].instruction, done)?,
            End::Syscall(ip) => self.leave(ip, done, ExitKind::Syscall),
            End::Declined(ip, reason) => self.leave(ip, done, ExitKind::Declined(reason)),
        }
        Ok(())
    }

    fn jump_direct(&mut self, target: u64) {
        let (pad, exit) = self.direct_pad(target);
        let field = self.hot.jump(pad);
        self.set_warm_field(exit, field);
    }

    fn leave(&mut self, ip: u64, done: usize, kind: ExitKind) {
        self.mark_hot(self.inside(ip, done));
        if done > 0 {
            self.close(Ip::At(ip), self.spilled(), done);
        }
        let (pad, _) = self.pad(ip, None, kind);
        self.hot.jump(pad);
    }

    /// Emits an indirect transfer: its target goes to rcx and on to the shared lookup.
    fn indirect(&mut self, instruction: &Instruction, done: usize) -> Result<(), OutOfReach> {
        let ip = instruction.ip();
        let mut state = self.inside(ip, done - 1);
        self.mark_hot(state);
        self.hot.spill(Gpr::Rcx);
        state.spilled.insert(Gpr::Rcx);
        match arch::classify(instruction) {
            arch::Flow::Ret { pop } => {
                if pop == 0 {
                    let pop = Instruction::with1(Code::Pop_r64, Register::RCX);
                    self.hot.put(&pop.map_err(|_| OutOfReach)?)?;
                } else {
                    // Target first, then both moves of the stack pointer at once: at every
                    // instruction in between, the return has either not happened or happened.
                    let top = MemoryOperand::with_base(Register::RSP);
                    let load = Instruction::with2(Code::Mov_r64_rm64, Register::RCX, top);
                    self.hot.put(&load.map_err(|_| OutOfReach)?)?;
                    self.mark_hot(state);
                    self.hot.lea(Gpr::Rsp, Gpr::Rsp, 8 + i64::from(pop));
                }
                state.ip = Ip::InRcx;
                state.open = Some(done as u16);
                self.mark_hot(state);
            }
            flow => {
                self.load_target(instruction)?;
                self.mark_hot(state);
                if flow == arch::Flow::IndirectCall {
                    self.push_return(instruction.next_ip())?;
                }
                state.ip = Ip::InRcx;
                state.open = Some(done as u16);
                self.mark_hot(state);
            }
        }
        let both = state.spilled;
        self.close(Ip::InRcx, both, done);
        self.hot.save(state::LOG, self.log);
        self.hot.unspill(self.log);
        let only_rcx = [Gpr::Rcx].into_iter().collect();
        self.mark_hot(State {
            ip: Ip::InRcx,
            spilled: only_rcx,
            log: Log::Slot,
            open: None,
        });
        self.hot.jump(self.runtime.indirect);
        Ok(())
    }

    /// `mov rcx, operand` with the operand of an indirect jump or call.
    fn load_target(&mut self, instruction: &Instruction) -> Result<(), OutOfReach> {
        let mut load = *instruction;
        load.set_code(Code::Mov_r64_rm64);
        let (kind, register) = (instruction.op0_kind(), instruction.op0_register());
        load.set_op0_kind(OpKind::Register);
        load.set_op0_register(Register::RCX);
        load.set_op1_kind(kind);
        if kind == OpKind::Register {
            load.set_op1_register(register);
        }
        self.hot.put(&load)
    }
}

/// For each item, whether every arithmetic flag is dead just before it.
fn flags_dead_at(items: &[Item]) -> Vec<bool> {
    let mut live = STATUS_FLAGS;
    let mut dead = vec![false; items.len()];
    for (i, item) in items.iter().enumerate().rev() {
        let instruction = &item.instruction;
        if matches!(item.step, Step::Side { .. }) {
            live = STATUS_FLAGS;
        }
        let mut killed = arch::flags_killed(instruction);
        // The manuals call AF undefined after these; the processors at hand overwrite it
        // (the differential tests would tell).
        if matches!(
            instruction.mnemonic(),
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test
        ) {
            killed |= RflagsBits::AF;
        }
        live = live & !killed | arch::flags_read(instruction);
        dead[i] = live & STATUS_FLAGS == 0;
    }
    dead
}

//! The end of a trace: is its record kept?
//!
//! Every group of accesses is looked up in the filter of watched lines. A record none of whose
//! groups can touch one is not kept: only its accesses are counted, and the next record is written
//! over it, so that the log stays in the first-level cache. While [`state::COUNT`] is not negative (a sample is
//! about to be taken, or was just now) every record is kept; a little later ([`state::END`]) the log is read, as it is
//! when it is full. Where the program carries flags from one trace into the next ([`Room::flags`]) none is touched, at the price
//! of some instructions and of a jump that is taken.

use super::super::group::{self, Group};
use super::super::layout::{self, FILTER, MAX_RECORD_ACCESSES, NOT_DUE, UNCOUNTED, state};
use super::super::room::Room;
use super::super::state::{Ip, State};
use super::super::values::Holder;
use super::scratch::Scratch;
use super::{Adds, Dynamic, Exits, JUMP_BYTES, LoggedAccess, Patch, RecordShape, Stretch, inside};
use crate::arch::{Gpr, GprSet};
use iced_x86::Code;

/// What is closed: the first `done` items of a fragment.
pub(super) struct Record<'a> {
    pub(super) log: Gpr,
    /// Accesses of those items.
    pub(super) accesses: &'a [LoggedAccess],
    /// Items.
    pub(super) done: usize,
    /// Words of the record.
    pub(super) words: usize,
    /// What the program does not need where it goes on.
    pub(super) room: Room,
    /// Registers that still hold words of the record.
    pub(super) held: &'a [Holder],
}

/// How a record is decided on.
struct Plan {
    /// Groups to look up; `None`: always kept.
    groups: Option<Vec<Group>>,
    adds: Adds,
}

/// The decision is written, the code for "kept" is still to come.
pub(super) struct Pending {
    /// Displacement field of the jump to that code.
    field: u64,
    /// The same where the accesses were counted before it was seen that a sample is due.
    counted: Option<u64>,
    /// Where it returns to.
    back: u64,
    /// Where a thread goes on after the log was emptied.
    resume: u64,
    /// Meaning of the registers at its beginning.
    state: State,
    scratch: Scratch,
    adds: Adds,
    /// What was looked up; nothing where no place of the filter is for drawn lines.
    looked_up: Vec<LookUp>,
}

fn plan(record: &Record) -> Plan {
    let mut adds = Adds::Fixed(record.accesses.len() as u16);
    for access in record.accesses {
        let counted = match access.dynamic {
            Dynamic::Gather { .. } => None,
            Dynamic::Rep {
                count,
                after,
                counter32,
                ..
            } => (after == 0 && !counter32 && i32::try_from(count.add as i64).is_ok())
                .then_some(Adds::Expanded),
            _ => continue,
        };
        match counted {
            Some(counted) => adds = counted,
            None => {
                return Plan {
                    groups: None,
                    adds: Adds::Nothing,
                };
            }
        }
    }
    let plain = record.accesses.iter().all(group::groupable);
    let groups = plain.then(|| group::groups(record.accesses));
    let simple = |g: &Group| !(g.fs && g.index != 0);
    Plan {
        groups: groups.filter(|groups| groups.iter().all(simple)),
        adds,
    }
}

/// Writes the decision. Expects the program's registers but for the log pointer's and, with
/// [`Ip::InTarget`], rcx; they are the same behind it, but for those that [`Record::room`] gives away. `wide`: for a fast `pext`.
/// `None` when there is nothing to decide: a record without accesses is never kept.
pub(super) fn close(out: &mut Stretch, record: &Record, ip: Ip, wide: bool) -> Option<Pending> {
    if record.accesses.is_empty() {
        out.mark(open(record, ip, None));
        return None;
    }
    debug_assert!(record.accesses.len() as u64 <= MAX_RECORD_ACCESSES);
    let plan = plan(record);
    let entry = open(record, ip, Some(record.done));
    out.mark(entry);
    let lookups: Vec<LookUp> = plan
        .groups
        .iter()
        .flatten()
        .map(|group| LookUp::new(group, record.held))
        .collect();
    let flags = record.room.flags;
    let named = lookups
        .iter()
        .fold(GprSet::EMPTY, |all, look| all.union(look.registers()));
    let mut scratch = Scratch::new(record.log, record.room, entry.spilled, named);
    if plan.groups.is_none() {
        let field = out.asm.jump(out.asm.here());
        out.mark(open(record, ip, None));
        return Some(Pending {
            field,
            counted: None,
            back: out.asm.here(),
            resume: out.asm.here(),
            state: entry,
            scratch,
            adds: plan.adds,
            looked_up: Vec::new(),
        });
    }
    // Sums without flags end in rcx, which the instruction for it asks for.
    let sum = match flags {
        true if lookups.len() == 1 => None,
        true => Some(scratch.take(out, entry)),
        false => Some(scratch.take_this(out, entry, Gpr::Rcx)),
    };
    let address = scratch.take(out, entry);
    let mask = match lookups.len() {
        _ if !wide => None,
        0..=1 => None,
        // To put a register away and bring it back takes as long as to read the mask twice or thrice.
        2..=4 => scratch.take_free(named),
        _ => Some(scratch.take(out, entry)),
    };
    // With all others taken: a look-up may have lost a register to them.
    let given = scratch.taken();
    let mut left = lookups.iter().map(|look| look.without(given));
    let needs_third = left.any(|look| look.needs_third());
    let third = needs_third.then(|| scratch.take(out, entry));
    if let Some(mask) = mask {
        out.asm.load(mask, state::MASK);
    }
    let given = scratch.taken();
    for (i, look) in lookups.iter().enumerate() {
        let look = look.without(given);
        let place = Place {
            address,
            third: third.unwrap_or(address),
            mask,
            wide,
        };
        let place = look.place(out, record.log, &place, flags);
        match (sum, flags) {
            (None, _) => out.asm.is_byte_zero(place, FILTER),
            (Some(sum), _) if i == 0 => out.asm.load_byte_indexed(sum, place, FILTER),
            (Some(sum), true) => out.asm.or_byte_indexed(sum, place, FILTER),
            (Some(sum), false) => {
                out.asm.load_byte_indexed(address, place, FILTER);
                out.asm.lea_sum(sum, sum, address);
            }
        }
    }
    let accesses = record.accesses.len() as i32;
    let mut counted = None;
    let mut opened = entry;
    opened.spilled = scratch.spilled();
    out.mark(opened);
    let mut closed = opened;
    closed.open = None;
    let field = if flags {
        let field = out.asm.branch(Code::Jne_rel32_64, out.asm.here());
        out.asm.add_to(state::COUNT, accesses);
        out.mark(State {
            counted: true,
            ..opened
        });
        counted = Some(out.asm.branch(Code::Jns_rel32_64, out.asm.here()));
        field
    } else {
        // Four times the sum, less what is missing to 255: 0, or 255, or with `UNCOUNTED` 191 or 190, which no four divide.
        out.asm.load_byte(address, state::DUE);
        let due = -i64::from(NOT_DUE);
        out.asm
            .lea_address(Gpr::Rcx, Some(address), Some((Gpr::Rcx, 4)), due)
            .expect("a small displacement");
        out.asm.jrcxz(JUMP_BYTES);
        let field = out.asm.jump(out.asm.here());
        out.asm.load(address, state::COUNT);
        out.asm.lea(address, address, i64::from(accesses));
        out.asm.save(state::COUNT, address);
        field
    };
    out.mark(closed);
    let back = out.asm.here();
    scratch.give_back(out, closed);
    Some(Pending {
        field,
        counted,
        back,
        resume: out.asm.here(),
        state: opened,
        scratch,
        adds: plan.adds,
        looked_up: if wide { lookups } else { Vec::new() },
    })
}

/// Registers as the trace has them at its end.
pub(super) fn open(record: &Record, ip: Ip, done: Option<usize>) -> State {
    let mut state = inside(record.log, ip, done);
    if ip == Ip::InTarget {
        state.spilled.insert(Gpr::Rcx);
    }
    state
}

/// Where a part of an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A register holds the logged word, less a constant: both.
    Held(Gpr, u8, i64),
    /// This word of the record.
    Logged(u8),
    /// The base of the `fs` segment.
    Fs,
}

impl Source {
    /// Where a word comes from; rsp cannot be an index.
    fn of(word: u8, held: &[Holder], index: bool) -> Source {
        let holds = |holder: &&Holder| holder.slot == word && !(index && holder.gpr == Gpr::Rsp);
        match held.iter().find(holds) {
            Some(holder) => Source::Held(holder.gpr, word, holder.add),
            None => Source::Logged(word),
        }
    }
}

/// The look-up of one group: `base + index*scale + low`.
#[derive(Clone, Copy, Debug)]
struct LookUp {
    base: Option<Source>,
    index: Option<(Source, u8)>,
    low: u64,
}

/// Registers for it.
struct Place {
    address: Gpr,
    third: Gpr,
    /// Holds the filter's mask.
    mask: Option<Gpr>,
    wide: bool,
}

impl LookUp {
    fn new(group: &Group, held: &[Holder]) -> LookUp {
        let of = |word, index| (word != 0).then(|| Source::of(word, held, index));
        // With fs there is no index.
        let fs = group.fs.then_some((Source::Fs, 1));
        let index = of(group.index, true).map(|source| (source, group.scale));
        LookUp {
            base: of(group.base, false),
            index: index.or(fs),
            low: group.low,
        }
    }

    /// Registers of the program's that it uses.
    fn registers(&self) -> GprSet {
        let sources = self.base.into_iter().chain(self.index.map(|(s, _)| s));
        sources
            .filter_map(|source| match source {
                Source::Held(gpr, ..) => Some(gpr),
                _ => None,
            })
            .collect()
    }

    /// The same where registers `gone` hold something else.
    fn without(self, gone: GprSet) -> LookUp {
        let logged = |source| match source {
            Source::Held(gpr, word, _) if gone.contains(gpr) => Source::Logged(word),
            source => source,
        };
        LookUp {
            base: self.base.map(logged),
            index: self.index.map(|(source, scale)| (logged(source), scale)),
            low: self.low,
        }
    }

    /// Constant part, what registers differ from words by included.
    fn constant(&self) -> i64 {
        let add = |source: Option<Source>| match source {
            Some(Source::Held(_, _, add)) => add,
            _ => 0,
        };
        let (index, scale) = self.index.map_or((None, 0), |(s, scale)| (Some(s), scale));
        (self.low as i64)
            .wrapping_add(add(self.base))
            .wrapping_add(add(index).wrapping_mul(i64::from(scale)))
    }

    /// Whether it takes another register besides that of the address.
    fn needs_third(&self) -> bool {
        let sources = self.base.into_iter().chain(self.index.map(|(s, _)| s));
        let (mut registers, mut loads) = (0, 0);
        for source in sources {
            registers += 1;
            loads += usize::from(!matches!(source, Source::Held(..)));
        }
        loads == 2 || registers > 0 && i32::try_from(self.constant()).is_err()
    }

    /// Writes code that finds the filter's place; returns the register it is in.
    fn place(&self, out: &mut Stretch, log: Gpr, to: &Place, flags: bool) -> Gpr {
        let asm = &mut out.asm;
        let mut low = self.constant();
        let mut load = |source: Source, gpr: Gpr| match source {
            Source::Held(held, ..) => held,
            Source::Logged(word) => {
                asm.load_logged(gpr, log, usize::from(word));
                gpr
            }
            Source::Fs => {
                asm.load(gpr, state::FS);
                gpr
            }
        };
        let mut base = self.base.map(|source| load(source, to.address));
        let free = match base {
            Some(base) if base == to.address => to.third,
            _ => to.address,
        };
        let mut index = self
            .index
            .map(|(source, scale)| (load(source, free), scale));
        let mut from = to.address;
        if base.is_none() && index.is_none() {
            match u32::try_from(low) {
                Ok(low) => asm.constant32(to.address, low),
                Err(_) => asm.constant(to.address, low as u64),
            }
        } else {
            if i32::try_from(low).is_err() {
                if index.is_some() {
                    asm.lea_address(to.address, base, index, 0)
                        .expect("no displacement");
                    base = Some(to.address);
                }
                asm.constant(to.third, low as u64);
                (index, low) = (Some((to.third, 1)), 0);
            }
            match base {
                Some(base) if index.is_none() && low == 0 && to.wide => from = base,
                _ => asm
                    .lea_address(to.address, base, index, low)
                    .expect("the displacement was made to fit"),
            }
        }
        match to.mask {
            Some(mask) => asm.extract_by(to.address, from, mask),
            None if to.wide => asm.extract(to.address, from, state::MASK),
            None if flags => {
                // Bits 8 to 23 of the address.
                asm.shift_right(to.address, 8);
                asm.low_word(to.address, to.address);
            }
            None => {
                // The same by a store and a load at an offset.
                asm.save(state::SCRATCH, to.address);
                asm.load_word16(to.address, state::SCRATCH + 1);
            }
        }
        to.address
    }
}

/// Writes the code that keeps the record and goes back, or leaves when the log is full. Returns what is to be patched to
/// lead there.
pub(super) fn keep(
    out: &mut Stretch,
    record: &Record,
    pending: Pending,
    exits: &mut Exits,
) -> [Option<Patch>; 2] {
    let counted = pending.counted.map(|field| {
        // Taken back: the header says how many there were before.
        let start = out.asm.here();
        out.mark(State {
            counted: true,
            ..pending.state
        });
        let accesses = record.accesses.len() as i32;
        out.asm.add_to(state::COUNT, -accesses);
        (field, start)
    });
    let start = out.asm.here();
    let mut state = pending.state;
    out.mark(state);
    let mut scratch = pending.scratch.again();
    let rcx = scratch.take_this(out, state, Gpr::Rcx);
    let count = scratch.take(out, state);
    state.spilled = scratch.spilled();
    let given = pending.scratch.taken().union(scratch.taken());
    spend(out, record.log, &pending.looked_up, given, [rcx, count]);
    exits.tables.records.push(RecordShape {
        fragment: exits.id,
        items: record.done as u16,
        words: record.words as u16,
        adds: pending.adds,
    });
    let number = exits.tables.records.len() as u32 - 1;
    let header = layout::header(number, record.words as u16)
        .expect("the cache is flushed long before numbers run out");
    out.asm.load(count, state::COUNT);
    out.asm.log_header(record.log, header, count);
    add(out, record, pending.adds, count);
    out.asm.lea(record.log, record.log, 8 * record.words as i64);
    state.open = None;
    out.mark(state);
    out.asm.save(state::COUNT, count);
    if pending.adds == Adds::Nothing {
        out.asm.set_byte(state::DUE, UNCOUNTED);
    }
    // The highest byte of count minus end is zero behind the end only.
    out.asm.load(rcx, state::END);
    out.asm.lea_sum(rcx, rcx, count);
    out.asm.save(state::SCRATCH, rcx);
    out.asm.load_byte(rcx, state::SCRATCH + 7);
    out.asm.jrcxz(0);
    let behind_end = out.asm.here();
    // Byte 3 of the log pointer turns zero at the end of the log.
    out.asm.save(state::SCRATCH, record.log);
    out.asm.load_byte(rcx, state::SCRATCH + 3);
    out.asm.jrcxz(0);
    let at_end = out.asm.here();
    scratch.give_back_but(out, state, &pending.scratch);
    out.asm.jump(pending.back);
    let full = out.asm.here();
    for jump in [behind_end, at_end] {
        out.asm.patch_byte(jump - 1, (full - jump) as u8);
    }
    out.mark(state);
    scratch.give_back(out, state);
    state.spilled = scratch.outside();
    if state.spilled.contains(Gpr::Rcx) {
        out.asm.unspill(Gpr::Rcx);
        state.spilled.remove(Gpr::Rcx);
    }
    exits.full(out, record.log, state, pending.resume);
    [Some((pending.field, start)), counted]
}

/// Writes the code by which a record that is kept for its own sake takes back that drawn lines are looked for where it was looked up. `given`
/// have not the program's values, `scratch` (rcx first) are free. No flag is touched.
fn spend(out: &mut Stretch, log: Gpr, looked_up: &[LookUp], given: GprSet, scratch: [Gpr; 2]) {
    if looked_up.is_empty() {
        return;
    }
    let [rcx, byte] = scratch;
    // While every record is kept, the reader of the log does it.
    out.asm.load_byte(rcx, state::DUE);
    out.asm.lea(rcx, rcx, -i64::from(NOT_DUE));
    out.asm.jrcxz(JUMP_BYTES);
    let over = out.asm.jump(out.asm.here());
    let to = Place {
        address: rcx,
        third: byte,
        mask: None,
        wide: true,
    };
    for look in looked_up {
        let place = look.without(given).place(out, log, &to, false);
        out.asm.load_byte_indexed(byte, place, FILTER);
        out.asm.extract(byte, byte, state::WATCHED);
        out.asm.store_byte_indexed(place, FILTER, byte);
    }
    out.asm.patch(over, out.asm.here());
}

/// Adds the record's accesses to `count`.
fn add(out: &mut Stretch, record: &Record, adds: Adds, count: Gpr) {
    let is_rep = |a: &&LoggedAccess| matches!(a.dynamic, Dynamic::Rep { .. });
    let fixed = record.accesses.len() - record.accesses.iter().filter(is_rep).count();
    if adds == Adds::Nothing {
        return;
    }
    out.asm.lea(count, count, fixed as i64);
    for access in record.accesses {
        let Dynamic::Rep { count: term, .. } = access.dynamic else {
            continue;
        };
        let times = (term.slot != 0).then(|| {
            out.asm
                .load_logged(Gpr::Rcx, record.log, usize::from(term.slot));
            (Gpr::Rcx, 1)
        });
        out.asm
            .lea_address(count, Some(count), times, term.add as i64)
            .expect("checked when this was planned");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_from_registers_that_can_be_where_they_are_needed() {
        let holder = |gpr, add| Holder { slot: 2, gpr, add };
        let held = [holder(Gpr::Rsp, 16), holder(Gpr::Rdi, 0)];
        assert_eq!(Source::of(2, &held, false), Source::Held(Gpr::Rsp, 2, 16));
        assert_eq!(Source::of(2, &held, true), Source::Held(Gpr::Rdi, 2, 0));
        assert_eq!(Source::of(2, &held[..1], true), Source::Logged(2));
        assert_eq!(Source::of(1, &held, false), Source::Logged(1));
    }

    #[test]
    fn what_is_not_held_any_more_takes_registers() {
        let held = |gpr| Source::Held(gpr, 1, 0);
        let look = LookUp {
            base: Some(held(Gpr::R8)),
            index: Some((held(Gpr::Rdi), 8)),
            low: 0,
        };
        let gone = |gprs: &[Gpr]| look.without(gprs.iter().copied().collect());
        assert!(!gone(&[]).needs_third());
        assert!(!gone(&[Gpr::Rdi]).needs_third());
        assert!(gone(&[Gpr::Rdi, Gpr::R8]).needs_third());
        // Far from what holds it.
        let far = LookUp {
            base: Some(Source::Held(Gpr::R8, 1, 1 << 40)),
            index: None,
            low: 0,
        };
        assert!(far.needs_third());
        assert!(!far.without([Gpr::R8].into_iter().collect()).needs_third());
    }
}

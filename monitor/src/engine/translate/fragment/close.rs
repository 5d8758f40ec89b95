//! The end of a trace: is its record kept?
//!
//! Every group of accesses is looked up in the filter of watched lines. A record none of whose
//! groups can touch one is not kept: only its accesses are counted, and the next record is written
//! over it in the state block. What is kept is copied to the log. While [`state::COUNT`] is not negative (a sample is
//! about to be taken, or was just now) every record is kept; a little later ([`state::END`]) the log is read, as it is
//! when it is full. Where the program carries flags from one trace into the next ([`Room::flags`]) none is touched, at the price
//! of some instructions and of a jump that is taken.

use super::super::group::{self, Group};
use super::super::layout::{self, FILTER, MAX_RECORD_ACCESSES, NOT_DUE, UNCOUNTED, state};
use super::super::room::Room;
use super::super::state::{Ip, State};
use super::super::values::Holder;
use super::lookup::{LookUp, Place, spend};
use super::scratch::Scratch;
use super::seldom::Seldom;
use super::{Adds, Dynamic, Exits, LoggedAccess, Patch, RecordShape, Stretch};
use crate::arch::{Fast, Gpr, GprSet};
use iced_x86::Code;

/// What is closed: the first `done` items of a fragment.
pub(super) struct Record<'a> {
    pub(super) spare: Gpr,
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
    /// The jump to that code.
    jump: Seldom,
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
    /// What was looked up; nothing where records are always kept, and on processors without a fast `pext`.
    looked_up: Vec<LookUp>,
}

fn plan(record: &Record) -> Plan {
    let mut adds = Adds::Fixed(record.accesses.len() as u16);
    for access in record.accesses {
        let counted = match access.dynamic.as_deref() {
            Some(Dynamic::Gather { .. }) => None,
            Some(&Dynamic::Rep {
                count,
                after,
                counter32,
                ..
            }) => (after == 0 && !counter32 && i32::try_from(count.add as i64).is_ok())
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

/// Writes the decision. Expects the program's registers but for the spare one and, with
/// [`Ip::InTarget`], rcx; they are the same behind it, but for those that [`Record::room`] gives away.
/// `None` when there is nothing to decide: a record without accesses is never kept.
pub(super) fn close(out: &mut Stretch, record: &Record, ip: Ip, fast: Fast) -> Option<Pending> {
    if record.accesses.is_empty() {
        let opened = open(out, record, ip, None);
        out.mark(opened);
        return None;
    }
    debug_assert!(record.accesses.len() as u64 <= MAX_RECORD_ACCESSES);
    let plan = plan(record);
    let entry = open(out, record, ip, Some(record.done));
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
    let mut scratch = Scratch::new(record.spare, record.room, entry.spilled, named);
    if plan.groups.is_none() {
        let field = out.asm.jump(out.asm.here());
        let opened = open(out, record, ip, None);
        out.mark(opened);
        return Some(Pending {
            jump: Seldom::Skipped(field),
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
        _ if !fast.pext => None,
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
            wide: fast.pext,
        };
        let place = look.place(out, &place, flags);
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
    let jump = if flags {
        let field = out.asm.branch(Code::Jne_rel32_64, out.asm.here());
        out.asm.add_to(state::COUNT, accesses);
        out.mark(State {
            counted: true,
            ..opened
        });
        counted = Some(out.asm.branch(Code::Jns_rel32_64, out.asm.here()));
        Seldom::Skipped(field)
    } else {
        // Four times the sum, less what is missing to 255: 0, or 255, or with `UNCOUNTED` 191 or 190, which no four divide. One more for `loop`.
        out.asm.load_byte(address, state::DUE);
        let behind = fast.looping && ip == Ip::InTarget;
        let due = -i64::from(NOT_DUE) + i64::from(behind);
        out.asm
            .lea_address(Gpr::Rcx, Some(address), Some((Gpr::Rcx, 4)), due)
            .expect("a small displacement");
        let jump = Seldom::unless_zero(out, behind);
        out.asm.load(address, state::COUNT);
        out.asm.lea(address, address, i64::from(accesses));
        out.asm.save(state::COUNT, address);
        jump
    };
    out.mark(closed);
    let back = out.asm.here();
    scratch.give_back(out, closed);
    Some(Pending {
        jump,
        counted,
        back,
        resume: out.asm.here(),
        state: opened,
        scratch,
        adds: plan.adds,
        looked_up: if fast.pext { lookups } else { Vec::new() },
    })
}

impl Pending {
    /// Writes what of it lies behind an indirect jump.
    pub(super) fn behind(&mut self, out: &mut Stretch) {
        self.jump.write_behind(out, self.state);
    }
}

/// Registers as the trace has them at its end.
pub(super) fn open(out: &Stretch, record: &Record, ip: Ip, done: Option<usize>) -> State {
    let mut state = out.inside(record.spare, ip, done);
    if ip == Ip::InTarget {
        state.spilled.insert(Gpr::Rcx);
    }
    state
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
    if !pending.looked_up.is_empty() {
        let sum = scratch.take(out, state);
        state.spilled = scratch.spilled();
        let given = pending.scratch.taken().union(scratch.taken());
        let looked_up = &pending.looked_up;
        let kept = spend(out, looked_up, given, [rcx, count, sum]);
        out.asm.load(count, state::COUNT);
        out.asm.lea(count, count, record.accesses.len() as i64);
        out.asm.save(state::COUNT, count);
        let passed = State {
            open: None,
            ..state
        };
        out.mark(passed);
        scratch.give_back_but(out, passed, &pending.scratch);
        out.asm.jump(pending.back);
        for jump in kept {
            out.asm.patch(jump, out.asm.here());
        }
        out.mark(state);
    }
    exits.tables.records.push(RecordShape {
        fragment: exits.id,
        items: record.done as u16,
        words: record.words as u16,
        adds: pending.adds,
    });
    let number = exits.tables.records.len() as u32 - 1;
    let header = layout::header(number, record.words as u16)
        .expect("the cache is flushed long before numbers run out");
    let log = scratch.take(out, state);
    state.spilled = scratch.spilled();
    out.mark(state);
    out.asm.load(log, state::LOG);
    out.asm.load(count, state::COUNT);
    out.asm.log_header(log, header, count);
    add(out, record, pending.adds, count);
    for word in 1..record.words {
        out.asm.load_logged(rcx, word);
        out.asm.store(log, word, rcx);
    }
    out.asm.lea(log, log, 8 * record.words as i64);
    out.asm.save(state::LOG, log);
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
    out.asm.load_byte(rcx, state::LOG + 3);
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
    exits.full(out, record.spare, state, pending.resume);
    [Some((pending.jump.field(), start)), counted]
}

/// Adds the record's accesses to `count`.
fn add(out: &mut Stretch, record: &Record, adds: Adds, count: Gpr) {
    let is_rep = |a: &&LoggedAccess| matches!(a.dynamic.as_deref(), Some(Dynamic::Rep { .. }));
    let fixed = record.accesses.len() - record.accesses.iter().filter(is_rep).count();
    if adds == Adds::Nothing {
        return;
    }
    out.asm.lea(count, count, fixed as i64);
    for access in record.accesses {
        let Some(Dynamic::Rep { count: term, .. }) = access.dynamic.as_deref() else {
            continue;
        };
        let times = (term.slot != 0).then(|| {
            out.asm.load_logged(Gpr::Rcx, usize::from(term.slot));
            (Gpr::Rcx, 1)
        });
        out.asm
            .lea_address(count, Some(count), times, term.add as i64)
            .expect("checked when this was planned");
    }
}

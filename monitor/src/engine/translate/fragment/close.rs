//! The end of a trace: is its record kept?
//!
//! Every group of accesses is looked up in the filter of watched lines. A record none of whose
//! groups can touch one is not kept: only its accesses are counted, and the next record is written
//! over it, so that the log stays in the first-level cache. While [`state::DUE`] is set (a sample is
//! about to be taken, or was just now) every record is kept; a little later ([`state::END`]) the log is read, as it is
//! when it is full. No flag is touched: programs carry
//! flags from one trace into the next.

use super::super::group::{self, Group};
use super::super::layout::{self, FILTER, MAX_RECORD_ACCESSES, UNCOUNTED, state};
use super::super::state::{Ip, State};
use super::{Adds, Dynamic, Exits, JUMP_BYTES, LoggedAccess, RecordShape, Stretch, inside};
use crate::arch::Gpr;

/// What is closed: the first `done` items of a fragment.
pub(super) struct Record<'a> {
    pub(super) log: Gpr,
    /// Accesses of those items.
    pub(super) accesses: &'a [LoggedAccess],
    /// Items.
    pub(super) done: usize,
    /// Words of the record.
    pub(super) words: usize,
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
    /// Where it returns to.
    back: u64,
    /// Where a thread goes on after the log was emptied.
    resume: u64,
    scratch: Gpr,
    /// Meaning of the registers at its beginning.
    state: State,
    adds: Adds,
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
/// [`Ip::InTarget`], rcx; they are the same behind it. `wide`: for a fast `pext`. `None` when there is nothing to decide:
/// a record without accesses is never kept.
pub(super) fn close(out: &mut Stretch, record: &Record, ip: Ip, wide: bool) -> Option<Pending> {
    if record.accesses.is_empty() {
        out.mark(open(record, ip, None));
        return None;
    }
    debug_assert!(record.accesses.len() as u64 <= MAX_RECORD_ACCESSES);
    let plan = plan(record);
    let mut free = [Gpr::Rdx, Gpr::Rax, Gpr::Rsi]
        .into_iter()
        .filter(|gpr| *gpr != record.log);
    let (scratch, third) = (free.next()?, free.next()?);
    let keeps_rcx = ip != Ip::InTarget;
    let mut state = open(record, ip, Some(record.done));
    out.mark(state);
    if keeps_rcx {
        out.asm.spill(Gpr::Rcx);
    }
    out.asm.spill(scratch);
    state.spilled.insert(Gpr::Rcx);
    state.spilled.insert(scratch);
    out.mark(state);
    let field = match &plan.groups {
        None => out.asm.jump(out.asm.here()),
        Some(groups) => {
            let needs_third = groups.iter().any(needs_third);
            if needs_third {
                out.asm.spill(third);
                let mut more = state;
                more.spilled.insert(third);
                out.mark(more);
            }
            for (i, group) in groups.iter().enumerate() {
                look_up(out, record, group, (scratch, third), (i == 0, wide));
            }
            if needs_third {
                out.asm.unspill(third);
                out.mark(state);
            }
            out.asm.load_byte(scratch, state::DUE);
            out.asm.lea_sum(Gpr::Rcx, Gpr::Rcx, scratch);
            out.asm.jrcxz(JUMP_BYTES);
            let field = out.asm.jump(out.asm.here());
            out.asm.load(scratch, state::COUNT);
            out.asm.lea(scratch, scratch, record.accesses.len() as i64);
            out.asm.save(state::COUNT, scratch);
            field
        }
    };
    let mut closed = state;
    closed.open = None;
    out.mark(closed);
    let back = out.asm.here();
    out.asm.unspill(scratch);
    closed.spilled.remove(scratch);
    out.mark(closed);
    if keeps_rcx {
        out.asm.unspill(Gpr::Rcx);
        closed.spilled.remove(Gpr::Rcx);
        out.mark(closed);
    }
    Some(Pending {
        field,
        back,
        resume: out.asm.here(),
        scratch,
        state,
        adds: plan.adds,
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

fn needs_third(group: &Group) -> bool {
    let far = i32::try_from(group.low as i64).is_err();
    let registers = [group.base != 0, group.index != 0, group.fs];
    match registers.iter().filter(|r| **r).count() {
        0 => false,
        1 => far,
        _ => true,
    }
}

/// Adds the filter's byte for a group to rcx (puts it there if `first`), found by `pext` if `wide`.
fn look_up(
    out: &mut Stretch,
    record: &Record,
    group: &Group,
    (scratch, third): (Gpr, Gpr),
    (first, wide): (bool, bool),
) {
    let asm = &mut out.asm;
    let word = |word: u8| usize::from(word);
    let mut low = group.low as i64;
    let mut sum = None;
    let mut scaled = None;
    if group.base != 0 {
        asm.load_logged(scratch, record.log, word(group.base));
        sum = Some(scratch);
    }
    if group.fs {
        let to = if sum.is_some() { third } else { scratch };
        asm.load(to, state::FS);
        if sum.is_some() {
            scaled = Some((third, 1));
        } else {
            sum = Some(scratch);
        }
    }
    if group.index != 0 {
        let to = if sum.is_some() { third } else { scratch };
        asm.load_logged(to, record.log, word(group.index));
        scaled = Some((to, group.scale));
    }
    match (sum, scaled) {
        (None, None) => asm.constant(scratch, low as u64),
        _ => {
            if i32::try_from(low).is_err() {
                if sum.is_some() && scaled.is_some() || scaled.is_some_and(|s| s.1 != 1) {
                    asm.lea_address(scratch, sum, scaled, 0)
                        .expect("no displacement");
                }
                asm.constant(third, low as u64);
                (sum, scaled, low) = (Some(scratch), Some((third, 1)), 0);
            }
            if scaled.is_some() || low != 0 {
                asm.lea_address(scratch, sum, scaled, low)
                    .expect("the displacement was made to fit");
            }
        }
    }
    if wide {
        asm.extract(scratch, state::MASK);
    } else {
        // Bits 8 to 23 of the address, by a store and a load at an offset.
        asm.save(state::SCRATCH, scratch);
        asm.load_word16(scratch, state::SCRATCH + 1);
    }
    if first {
        asm.load_byte_indexed(Gpr::Rcx, scratch, FILTER);
    } else {
        asm.load_byte_indexed(scratch, scratch, FILTER);
        asm.lea_sum(Gpr::Rcx, Gpr::Rcx, scratch);
    }
}

/// Bytes of the check whether the log is full.
const FULL_CHECK_BYTES: i8 = 20;

/// Writes the code that keeps the record and goes back, or leaves when the log is full. Returns the
/// field of the jump to it and its address.
pub(super) fn keep(
    out: &mut Stretch,
    record: &Record,
    pending: &Pending,
    exits: &mut Exits,
) -> (u64, u64) {
    let start = out.asm.here();
    let (scratch, mut state) = (pending.scratch, pending.state);
    out.mark(state);
    exits.tables.records.push(RecordShape {
        fragment: exits.id,
        items: record.done as u16,
        words: record.words as u16,
        adds: pending.adds,
    });
    let number = exits.tables.records.len() as u32 - 1;
    let header = layout::header(number, record.words as u16)
        .expect("the cache is flushed long before numbers run out");
    out.asm.load(scratch, state::COUNT);
    out.asm.log_header(record.log, header, scratch);
    add(out, record, pending.adds, scratch);
    out.asm.lea(record.log, record.log, 8 * record.words as i64);
    state.open = None;
    out.mark(state);
    out.asm.save(state::COUNT, scratch);
    if pending.adds == Adds::Nothing {
        out.asm.set_byte(state::DUE, UNCOUNTED);
    }
    // The highest byte of count minus end is zero behind the end only.
    out.asm.load(Gpr::Rcx, state::END);
    out.asm.lea_sum(Gpr::Rcx, Gpr::Rcx, scratch);
    out.asm.save(state::SCRATCH, Gpr::Rcx);
    out.asm.load_byte(Gpr::Rcx, state::SCRATCH + 7);
    out.asm.jrcxz(FULL_CHECK_BYTES + JUMP_BYTES);
    // Byte 3 of the log pointer turns zero at the end of the log.
    let check = out.asm.here();
    out.asm.save(state::SCRATCH, record.log);
    out.asm.load_byte(Gpr::Rcx, state::SCRATCH + 3);
    out.asm.jrcxz(JUMP_BYTES);
    debug_assert_eq!(out.asm.here() - check, FULL_CHECK_BYTES as u64);
    out.asm.jump(pending.back);
    out.asm.unspill(scratch);
    state.spilled.remove(scratch);
    out.mark(state);
    out.asm.unspill(Gpr::Rcx);
    state.spilled.remove(Gpr::Rcx);
    exits.full(out, record.log, state, pending.resume);
    (pending.field, start)
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

//! The end of a trace that only counts: the spare register goes up by one for each access, and a thread
//! leaves where the count reaches [`COUNT_END`](super::super::layout::COUNT_END). No flag is touched that the program needs.
//!
//! That is looked at where the program has gone back in its code, or through an indirect transfer, since the last look: it
//! cannot run for long without. Elsewhere one instruction is all that is added.
//!
//! Of `rep` instructions each iteration counts, where the counter says how many there will be, and one where a condition may
//! end it (of a part that a signal or a fault cuts all count, and those that are left again); of a gather all lanes do, whether or not they are active.

use super::super::layout::state;
use super::super::state::{Ip, State};
use super::close::{self, Record};
use super::seldom::Seldom;
use super::{Exits, LoggedAccess, Patch, Space, Stretch};
use crate::arch::{Access, Fast, Gpr, RepCondition, Shape};
use iced_x86::Code;

/// What is to be counted of an access of item `item`.
pub(super) fn counted(access: &Access, item: u8) -> impl Iterator<Item = LoggedAccess> {
    let times = match access.shape {
        // By an instruction of its own.
        Shape::Rep { .. } if repeats(access) => 0,
        Shape::Gather { lanes, .. } => usize::from(lanes),
        _ => 1,
    };
    let one = LoggedAccess {
        disp: 0,
        dynamic: None,
        size: access.size as u16,
        item,
        base: 0,
        index: 0,
        scale: 1,
        space: Space::Flat,
        kind: access.kind,
    };
    std::iter::repeat_n(one, times)
}

/// Counts the iterations of a `rep` instruction with these accesses: as many as the counter says.
pub(super) fn iterations(out: &mut Stretch, spare: Gpr, accesses: &[Access]) {
    for _ in accesses.iter().filter(|a| repeats(a)) {
        out.asm.lea_sum(spare, spare, Gpr::Rcx);
    }
}

/// Whether rcx says how many there are.
pub(super) fn repeats(access: &Access) -> bool {
    matches!(
        access.shape,
        Shape::Rep {
            counter32: false,
            condition: RepCondition::None,
            ..
        }
    )
}

/// Whether a way through a trace, past the instructions at `ips` and on to `target`, goes back anywhere.
pub(super) fn goes_back(ips: &[u64], target: u64) -> bool {
    let back = |pair: &[u64]| pair[1] <= pair[0];
    ips.windows(2).any(back) || ips.last().is_some_and(|last| target <= *last)
}

/// Byte 3 of the count, which is zero up to [`COUNT_END`](super::super::layout::COUNT_END).
const ENDED: u32 = 0xff00_0000;

/// A check whose way out is still to be written.
pub(super) struct Pending {
    /// The jump to it.
    jump: Seldom,
    /// Where a thread goes on that has left by it.
    resume: u64,
    state: State,
}

/// Counts the accesses of a record, and leaves at the end of the count where that is to be looked at. Registers as for
/// [`close::close`].
pub(super) fn close(
    out: &mut Stretch,
    record: &Record,
    ip: Ip,
    looks: bool,
    fast: Fast,
) -> Option<Pending> {
    let mut state = close::open(out, record, ip, Some(record.done));
    out.mark(state);
    if !record.accesses.is_empty() {
        out.asm
            .lea(record.spare, record.spare, record.accesses.len() as i64);
    }
    state.open = None;
    out.mark(state);
    if !looks {
        return None;
    }
    if record.room.flags {
        out.asm.test(record.spare, ENDED);
        let field = out.asm.branch(Code::Jne_rel32_64, out.asm.here());
        return Some(Pending {
            jump: Seldom::Skipped(field),
            resume: out.asm.here(),
            state,
        });
    }
    let keeps_rcx = ip != Ip::InTarget;
    if keeps_rcx {
        out.asm.spill(Gpr::Rcx);
        state.spilled.insert(Gpr::Rcx);
        out.mark(state);
    }
    out.asm.save(state::SCRATCH, record.spare);
    out.asm.load_byte(Gpr::Rcx, state::SCRATCH + 3);
    let behind = fast.looping && ip == Ip::InTarget;
    if behind {
        out.asm.lea(Gpr::Rcx, Gpr::Rcx, 1);
    }
    let jump = Seldom::unless_zero(out, behind);
    let checking = state;
    if keeps_rcx {
        out.asm.unspill(Gpr::Rcx);
        state.spilled.remove(Gpr::Rcx);
        out.mark(state);
    }
    Some(Pending {
        jump,
        resume: out.asm.here(),
        state: checking,
    })
}

impl Pending {
    /// Writes what of it lies behind an indirect jump.
    pub(super) fn behind(&mut self, out: &mut Stretch) {
        self.jump.write_behind(out, self.state);
    }
}

/// Writes the way out. Returns the field of the jump to it and its address.
pub(super) fn leave(
    out: &mut Stretch,
    record: &Record,
    pending: &Pending,
    exits: &mut Exits,
) -> Patch {
    let start = out.asm.here();
    let mut state = pending.state;
    out.mark(state);
    if state.spilled.contains(Gpr::Rcx) {
        out.asm.unspill(Gpr::Rcx);
        state.spilled.remove(Gpr::Rcx);
    }
    exits.full(out, record.spare, state, pending.resume);
    (pending.jump.field(), start)
}

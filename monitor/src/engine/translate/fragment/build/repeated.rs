//! `rep` instructions whose counter says how often they repeat are executed in parts: one that copies a hundred megabytes would come to
//! its end however short the window is that it begins in, and none would begin in the midst of it.
//!
//! A part is what an interrupt leaves of such an instruction (Intel SDM vol. 2, REP): the registers say what is left, and the program is
//! at it still. What is not of the part is in [`state::REST`] meanwhile; behind it the counter is zero, so that adding is loading.

use super::super::super::layout::state;
use super::super::super::state::State;
use super::super::super::trace::{Item, Step};
use super::super::{JUMP_BYTES, count};
use super::Builder;
use crate::arch::Gpr;

/// log2 of the iterations of a part. (`rep movsb` makes up to 16 a nanosecond: some microseconds.)
const PART_BITS: i32 = 16;
const PART: u32 = 1 << PART_BITS;
/// Where in the counter that is looked at which tells of more, without touching a flag: 32 bits, as far as an address of user space goes.
const HIGH: i32 = PART_BITS / 8;

impl Builder<'_> {
    /// Leaves no more than a part to do for item `i`, if it is such an instruction and may have more; tells whether.
    pub(super) fn begin_part(&mut self, i: usize, item: &Item) -> bool {
        let known = self.values.constant(Gpr::Rcx);
        let few = known.is_some_and(|times| times <= u64::from(PART));
        if item.step != Step::Next || few || !item.accesses.iter().any(count::repeats) {
            return false;
        }
        let whole = self.inside(item.instruction.ip(), i);
        let part = State { cut: true, ..whole };
        let mut saved = whole;
        saved.spilled.insert(Gpr::Rcx);

        let (hot, cold) = (&mut self.hot, &mut self.cold);
        hot.asm.spill(Gpr::Rcx);
        hot.mark(saved);
        hot.asm.load_word32(Gpr::Rcx, state::slot(Gpr::Rcx) + HIGH);
        hot.asm.jrcxz(JUMP_BYTES);
        let many = hot.asm.jump(hot.asm.here());
        hot.asm.save(state::REST, Gpr::Rcx);
        hot.asm.unspill(Gpr::Rcx);
        hot.mark(part);

        hot.asm.patch(many, cold.asm.here());
        cold.mark(saved);
        cold.asm.unspill(Gpr::Rcx);
        cold.asm.lea(Gpr::Rcx, Gpr::Rcx, -i64::from(PART));
        cold.asm.save(state::REST, Gpr::Rcx);
        cold.asm.constant32(Gpr::Rcx, PART);
        cold.mark(part);
        cold.asm.jump(hot.asm.here());
        // What is logged of it is what is left to do now.
        self.values.forget(Gpr::Rcx);
        true
    }

    /// Behind the part: on in the trace if that was all, or else to the instruction again.
    pub(super) fn end_part(&mut self, i: usize, item: &Item) {
        let (ip, done) = (item.instruction.ip(), i + 1);
        let whole = self.inside(ip, done);
        self.hot.mark(State { cut: true, ..whole });
        self.hot.asm.load(Gpr::Rcx, state::REST);
        self.hot.mark(whole);
        self.hot.asm.jrcxz(JUMP_BYTES);
        let (pad, number) = self.side(ip, done);
        let field = self.hot.asm.jump(pad);
        self.exits.set_side_field(number, field);
    }
}

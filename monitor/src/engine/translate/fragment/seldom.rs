//! A jump that is seldom taken, where no flag may be touched.

use super::super::state::State;
use super::{JUMP_BYTES, Stretch};

/// It, with the place it leads to still to be told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seldom {
    /// Displacement field of it, skipped by `jrcxz` as a rule.
    Skipped(u64),
    /// It is to lie where no thread comes by otherwise, and `loop` leads there: nothing is taken as a rule, which leaves more of
    /// what processors guess others by. Address of the byte of that distance.
    Behind(u64),
}

impl Seldom {
    /// Writes what jumps unless rcx is zero, or one where [`Seldom::write_behind`] follows.
    pub(super) fn unless_zero(out: &mut Stretch, behind: bool) -> Seldom {
        if behind {
            out.asm.loop_by(0);
            return Seldom::Behind(out.asm.here() - 1);
        }
        out.asm.jrcxz(JUMP_BYTES);
        Seldom::Skipped(out.asm.jump(out.asm.here()))
    }

    /// Writes the jump itself, if it is to lie here, behind an indirect one that is no more than a hundred bytes from
    /// [`Seldom::unless_zero`]; `state` is what registers meant there.
    pub(super) fn write_behind(&mut self, out: &mut Stretch, state: State) {
        if let Seldom::Behind(short) = *self {
            out.mark(state);
            let distance = i8::try_from(out.asm.here() - (short + 1)).expect("near");
            out.asm.patch_byte(short, distance as u8);
            *self = Seldom::Skipped(out.asm.jump(out.asm.here()));
        }
    }

    /// Its displacement field.
    pub(super) fn field(self) -> u64 {
        match self {
            Seldom::Skipped(field) => field,
            Seldom::Behind(_) => unreachable!("written behind the jump that ends the trace"),
        }
    }
}

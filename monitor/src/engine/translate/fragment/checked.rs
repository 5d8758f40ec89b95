//! The entry of a fragment by the table of jumps, which goes by the low 16 bits of a target: is it this one?

use super::super::duty::Duty;
use super::super::layout::state;
use super::super::runtime::Runtime;
use super::super::state::{CARRIER, Ip, Spare, State};
use super::{Fragment, Stretch};
use crate::arch::{Gpr, GprSet};

/// Bytes of a jump with a displacement of 8 bits.
const SHORT_JUMP_BYTES: i8 = 2;

/// Writes that entry in front of the one with the spare register in use, which it falls into, for a processor with a fast `pext`. No
/// flag is touched: who is bound elsewhere may need them. The low 16 bits are right; of an address that the program may execute the others,
/// less those of the fragment's, fit a displacement. Returns its address, and the displacement field of [`Fragment::elsewhere`].
pub(super) fn in_front(out: &mut Stretch, ip: u64, spare: Gpr, runtime: &Runtime) -> (u64, u64) {
    out.mark(State::bound(runtime.duty));
    // Where no thread comes by: a jump that is taken leaves a trace in what processors guess others by, whether or not it is always.
    let elsewhere = out.asm.here();
    let field = out.asm.jump(runtime.lookup);
    let entry = out.asm.here();
    out.asm.load(Gpr::Rcx, state::TARGET);
    out.asm.extract(Gpr::Rcx, Gpr::Rcx, state::HIGH);
    let high = (ip >> 16) as i64;
    let back = |out: &Stretch| {
        let behind = out.asm.here() + SHORT_JUMP_BYTES as u64;
        i8::try_from(elsewhere.wrapping_sub(behind) as i64).expect("just behind it")
    };
    if runtime.fast.looping {
        out.asm.lea(Gpr::Rcx, Gpr::Rcx, 1 - high);
        let distance = back(out);
        out.asm.loop_by(distance);
    } else {
        out.asm.lea(Gpr::Rcx, Gpr::Rcx, -high);
        out.asm.jrcxz(SHORT_JUMP_BYTES);
        let distance = back(out);
        out.asm.short_jump(distance);
    }
    arrived(out, ip, spare, runtime.duty);
    (entry, field)
}

/// Writes what follows where a thread has come to the right place: its registers as in the trace.
fn arrived(out: &mut Stretch, ip: u64, spare: Gpr, duty: Duty) {
    out.asm.unspill(Gpr::Rcx);
    let mut state = State {
        ip: Ip::At(ip),
        spilled: [CARRIER].into_iter().collect::<GprSet>(),
        ..State::bound(duty)
    };
    out.mark(state);
    if spare != CARRIER {
        out.asm.spill(spare);
        out.asm.copy(spare, CARRIER);
        state.spilled.insert(spare);
        state.spare = Spare::of(duty, spare);
        out.mark(state);
        out.asm.unspill(CARRIER);
    }
    let inside = out.inside(spare, Ip::At(ip), Some(0));
    out.mark(inside);
}

/// Whether a fragment of `ip` may have that entry.
pub(super) fn can_be_in_front(ip: u64, runtime: &Runtime) -> bool {
    runtime.fast.pext && ip < 1 << 47
}

/// Writes that entry for address `at`, above all other hot code of the fragment. Expects registers as in [`State::bound`]; another target than the
/// fragment's is looked for elsewhere. No flag is touched.
pub fn checked(fragment: &mut Fragment, at: u64, runtime: &Runtime) -> Vec<u8> {
    let (ip, spare) = (fragment.ip, fragment.spare);
    let mut out = Stretch::new(at, ip, runtime.duty);
    let (entry, elsewhere) = match can_be_in_front(ip, runtime) {
        true => in_front(&mut out, ip, spare, runtime),
        false => compared(&mut out, ip, spare, runtime),
    };
    out.asm.jump(fragment.warm_entry);
    (fragment.checked, fragment.elsewhere) = (Some(entry), Some(elsewhere));
    fragment.hot_states.append(fragment.hot, &out.states);
    out.asm.into_bytes()
}

/// Writes a jump to the entry by the table of jumps of another fragment, at `to`, for address `at`, above all other hot code of the one whose entry
/// leads there.
pub fn lead_far(fragment: &mut Fragment, at: u64, to: u64, runtime: &Runtime) -> Vec<u8> {
    let mut out = Stretch::new(at, fragment.ip, runtime.duty);
    out.mark(State::bound(runtime.duty));
    out.asm.jump_far(to);
    fragment.hot_states.append(fragment.hot, &out.states);
    out.asm.into_bytes()
}

/// As [`in_front`] by all bits of the target.
fn compared(out: &mut Stretch, ip: u64, spare: Gpr, runtime: &Runtime) -> (u64, u64) {
    let scratch = if spare == CARRIER { Gpr::Rdx } else { spare };
    let entry = out.asm.here();
    let bound = State::bound(runtime.duty);
    out.mark(bound);
    out.asm.spill(scratch);
    let mut comparing = bound;
    comparing.spilled.insert(scratch);
    out.mark(comparing);
    out.asm.constant(scratch, ip.wrapping_neg());
    out.asm.load(Gpr::Rcx, state::TARGET);
    out.asm.lea_sum(Gpr::Rcx, Gpr::Rcx, scratch);
    out.asm.unspill(scratch);
    out.mark(bound);
    out.asm.jrcxz(super::JUMP_BYTES);
    let elsewhere = out.asm.jump(runtime.lookup);
    arrived(out, ip, spare, runtime.duty);
    (entry, elsewhere)
}

//! The entry of a fragment by the table of jumps, which goes by the low 16 bits of a target: is it this one?

use super::super::layout::state;
use super::super::runtime::Runtime;
use super::super::state::{Ip, Log, State};
use super::{Fragment, JUMP_BYTES, Stretch, inside};
use crate::arch::{Gpr, GprSet};

/// Registers as the table of jumps leaves them, but for `spilled`.
fn slot(ip: Ip, spilled: &[Gpr]) -> State {
    State {
        ip,
        spilled: spilled.iter().copied().collect::<GprSet>(),
        log: Log::Slot,
        open: None,
        counted: false,
    }
}

/// Writes that entry in front of the one for canonical registers, which it falls into, for a processor with a fast `pext`. No flag is
/// touched: who is bound elsewhere may need them. The low 16 bits are right; of an address that the program may execute the others, less those of the
/// fragment's, fit a displacement.
pub(super) fn in_front(out: &mut Stretch, ip: u64, runtime: &Runtime) {
    out.mark(slot(Ip::InTarget, &[Gpr::Rcx]));
    out.asm.load(Gpr::Rcx, state::TARGET);
    out.asm.extract(Gpr::Rcx, Gpr::Rcx, state::HIGH);
    out.asm.lea(Gpr::Rcx, Gpr::Rcx, -((ip >> 16) as i64));
    out.asm.jrcxz(JUMP_BYTES);
    out.asm.jump(runtime.lookup);
    out.asm.unspill(Gpr::Rcx);
    out.mark(slot(Ip::At(ip), &[]));
}

/// Whether a fragment of `ip` may have that entry.
pub(super) fn can_be_in_front(ip: u64, runtime: &Runtime) -> bool {
    runtime.wide && ip < 1 << 47
}

/// Writes that entry for address `at`, above all other hot code of the fragment. Expects rcx spilled, `TARGET` set, and the log
/// pointer in its slot; another target than the fragment's is looked for elsewhere. No flag is touched.
pub fn checked(fragment: &mut Fragment, at: u64, runtime: &Runtime) -> Vec<u8> {
    let (ip, log) = (fragment.ip, fragment.log);
    let mut out = Stretch::new(at, ip);
    if can_be_in_front(ip, runtime) {
        in_front(&mut out, ip, runtime);
        out.asm.jump(fragment.entry);
        fragment.checked = Some(at);
        fragment.hot_states.append(&out.states);
        return out.asm.into_bytes();
    }
    let arriving = slot(Ip::InTarget, &[Gpr::Rcx]);
    let comparing = slot(Ip::InTarget, &[Gpr::Rcx, log]);
    out.mark(arriving);
    out.asm.spill(log);
    out.mark(comparing);
    out.asm.constant(log, ip.wrapping_neg());
    out.asm.load(Gpr::Rcx, state::TARGET);
    out.asm.lea_sum(Gpr::Rcx, Gpr::Rcx, log);
    out.asm.jrcxz(0);
    let skipped = out.asm.here();
    out.asm.unspill(log);
    out.mark(arriving);
    out.asm.jump(runtime.lookup);
    let same = out.asm.here();
    out.asm.patch_byte(skipped - 1, (same - skipped) as u8);
    out.mark(comparing);
    out.asm.unspill(Gpr::Rcx);
    out.mark(slot(Ip::At(ip), &[log]));
    out.asm.load(log, state::LOG);
    out.mark(inside(log, Ip::At(ip), Some(0)));
    out.asm.jump(fragment.warm_entry);
    fragment.checked = Some(at);
    fragment.hot_states.append(&out.states);
    out.asm.into_bytes()
}

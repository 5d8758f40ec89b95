//! The entry of a fragment by the table of jumps, which goes by the low 16 bits of a target: is it this one?

use super::super::layout::state;
use super::super::runtime::Runtime;
use super::super::state::{Ip, Log, State};
use super::{Fragment, Stretch, inside};
use crate::arch::{Gpr, GprSet};

/// Writes that entry for address `at`, above all other hot code of the fragment. Expects rcx spilled, `TARGET` set, and the log
/// pointer in its slot; another target than the fragment's is looked for elsewhere. No flag is touched.
pub fn checked(fragment: &mut Fragment, at: u64, runtime: &Runtime) -> Vec<u8> {
    let (ip, log) = (fragment.ip, fragment.log);
    let slot = |ip, spilled: &[Gpr]| State {
        ip,
        spilled: spilled.iter().copied().collect::<GprSet>(),
        log: Log::Slot,
        open: None,
    };
    let arriving = slot(Ip::InTarget, &[Gpr::Rcx]);
    let comparing = slot(Ip::InTarget, &[Gpr::Rcx, log]);
    let mut out = Stretch::new(at, ip);
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

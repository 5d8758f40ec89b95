//! How fast the program makes accesses when it runs natively.
//!
//! A window knows how many accesses lie between two executions of an instruction; a hardware
//! breakpoint counts its executions natively, for a few milliseconds after the window, without a
//! stop (perf_event_open(2), `PERF_TYPE_BREAKPOINT`). Each hit costs a debug exception, whose time is
//! measured once on this host and taken off.

use nix::unistd::Pid;
use perf_event::events::Breakpoint;
use perf_event::{Builder, Counter};
use std::time::Instant;

/// An instruction and how often the window executed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its address.
    pub ip: u64,
    /// Executions in the window.
    pub executions: u64,
}

/// Hits of one unit aimed at in one measurement: enough to average over, few enough to disturb little.
pub const HITS: f64 = 30.0;
/// Counts units natively.
pub struct RateProbe {
    hit_cost_s: f64,
}

/// A count in progress.
///
/// Never more than one: a processor may report the address match of a disabled breakpoint register too
/// (Intel SDM vol. 3, 18.2.3, "B0 through B3"), which the kernel, finding no event behind it, passes to
/// the program as a SIGTRAP. With one event the first register alone is ever used, and its old address
/// is overwritten.
pub struct Counting {
    counter: Counter,
    /// Executions per access in the window, and how many those were.
    per_access: f64,
    executions: f64,
    hit_cost_s: f64,
}

impl RateProbe {
    /// A probe, if this host lets us count breakpoints.
    pub fn new() -> Option<RateProbe> {
        let target: fn() = probe_target;
        let _traps = OwnTraps::take();
        let mut counter = breakpoint(target as usize as u64).build().ok()?;
        counter.enable().ok()?;
        const HITS: u32 = 100;
        let start = Instant::now();
        for _ in 0..HITS {
            std::hint::black_box(target)();
        }
        let elapsed = start.elapsed().as_secs_f64();
        let counted = counter.read().ok()?;
        (counted > 0).then(|| RateProbe {
            hit_cost_s: elapsed / f64::from(HITS),
        })
    }

    /// Begins to count `unit` of a window with `accesses` accesses, in thread `tid`.
    pub fn start(&self, tid: Pid, unit: &Unit, accesses: u64) -> Option<Counting> {
        if unit.executions == 0 || accesses == 0 {
            return None;
        }
        let mut builder = breakpoint(unit.ip);
        builder.observe_pid(tid.as_raw());
        let mut counter = builder.build().ok()?;
        counter.enable().ok()?;
        Some(Counting {
            counter,
            per_access: unit.executions as f64 / accesses as f64,
            executions: unit.executions as f64,
            hit_cost_s: self.hit_cost_s,
        })
    }
}

/// While it lives, a SIGTRAP does nothing to this process. A breakpoint of our own whose cause the
/// hypervisor lost ([`is_breakpoint`](crate::tracee::stops::is_breakpoint)) would kill us otherwise; to ignore the signal is not enough, as
/// one that the kernel forces kills then too.
struct OwnTraps {
    before: libc::sigaction,
}

impl OwnTraps {
    fn take() -> Option<OwnTraps> {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: sigaction is plain data, for which zero is a value; both pointers are to live
        // locals; the handler does nothing, so it may run anywhere.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESTART;
            let rc = libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before);
            (rc == 0).then_some(OwnTraps { before })
        }
    }
}

impl Drop for OwnTraps {
    fn drop(&mut self) {
        // SAFETY: puts back what `take` was given.
        unsafe { libc::sigaction(libc::SIGTRAP, &raw const self.before, std::ptr::null_mut()) };
    }
}

impl Counting {
    /// Ends the count after `cpu_s` CPU seconds of the thread. Returns accesses per second, its
    /// relative standard error, and the seconds that the hits cost.
    pub fn finish(mut self, cpu_s: f64) -> Option<(f64, f64, f64)> {
        let hits = self.counter.read().ok()?;
        let cost = hits as f64 * self.hit_cost_s;
        // The cost is itself uncertain: where it is most of the time, nothing is known.
        let native_s = cpu_s - cost;
        if hits < 4 || native_s < 0.25 * cpu_s {
            return None;
        }
        let rate = hits as f64 / self.per_access / native_s;
        let error = (1.0 / hits as f64 + 1.0 / self.executions).sqrt();
        Some((rate, error, cost))
    }
}

fn breakpoint(address: u64) -> Builder<'static> {
    let mut builder = Builder::new(Breakpoint::execute(address));
    builder.exclude_kernel(true).exclude_hv(true);
    builder
}

#[inline(never)]
fn probe_target() {
    std::hint::black_box(());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_trap_while_measuring_does_no_harm() {
        let traps = OwnTraps::take();
        assert!(traps.is_some());
        // SAFETY: the handler in place does nothing.
        assert_eq!(unsafe { libc::raise(libc::SIGTRAP) }, 0);
    }
}

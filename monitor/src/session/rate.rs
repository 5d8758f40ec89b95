//! How fast the program makes accesses when it runs natively.
//!
//! Windows know how many accesses lie between two executions of an instruction; a hardware
//! breakpoint counts its executions natively, for a few milliseconds after a window, without a
//! stop (perf_event_open(2), `PERF_TYPE_BREAKPOINT`). Each hit costs a debug exception, whose time is
//! measured once on this host and taken off.

use nix::unistd::Pid;
use perf_event::events::Breakpoint;
use perf_event::{Builder, Counter};
use std::time::Instant;

/// Executions of an instruction natively.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// How many.
    pub hits: f64,
    /// CPU seconds of the thread, without what counting cost.
    pub native_s: f64,
    /// CPU seconds that counting cost.
    pub cost_s: f64,
}

/// Counts executions natively.
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

    /// CPU seconds that counting one execution costs.
    pub fn hit_cost_s(&self) -> f64 {
        self.hit_cost_s
    }

    /// Begins to count executions of the instruction at `ip` in thread `tid`.
    pub fn start(&self, tid: Pid, ip: u64) -> Option<Counting> {
        let mut builder = breakpoint(ip);
        builder.observe_pid(tid.as_raw());
        let mut counter = builder.build().ok()?;
        counter.enable().ok()?;
        Some(Counting {
            counter,
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
    /// Ends the count; `None` where counting was nearly all that happened.
    pub fn finish(mut self) -> Option<Count> {
        // By the kernel's account of this counter: that of a running thread is as old as the last tick.
        let read = self.counter.read_count_and_time().ok()?;
        let (hits, cpu_s) = (read.count as f64, read.time_running as f64 * 1e-9);
        let cost_s = hits * self.hit_cost_s;
        let native_s = cpu_s - cost_s;
        // The cost is itself uncertain: where it is most of the time, nothing is known.
        (native_s > 0.25 * cpu_s).then_some(Count {
            hits,
            native_s,
            cost_s,
        })
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

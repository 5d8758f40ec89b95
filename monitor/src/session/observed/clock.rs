//! The native clock of a process: its CPU time outside of windows, less what its system calls take of it.
//!
//! Windows tell how fast the program's own code makes accesses. A server may spend a tenth of its time in that and the rest in the kernel, which makes
//! none of them; how much that is the kernel counts by ticks (proc(5), `stat`). Time of page faults is left in: they come
//! where code is timed, too, and are part of its rate.

use crate::tracee::procinfo::Counts;
use std::collections::VecDeque;

/// CPU seconds of native stretches that the share of calls is taken of: a hundred ticks or so.
const ENOUGH_S: f64 = 0.5;
/// Fewer tell nothing.
const LEAST_S: f64 = 0.05;
/// CPU seconds of a page fault. (Of 4 KiB: 2.2 us on a virtual machine in another; less elsewhere, and then there is less to leave in.)
const FAULT_S: f64 = 2e-6;
/// And of a system call, at the most. (3, 5 and 6 us on the mean in three servers.)
const MOST_CALL_S: f64 = 20e-6;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct NativeClock {
    /// What the kernel had counted when threads went on natively; `None` in windows.
    since: Option<Counts>,
    /// What it counted in the last native stretches, the newest last.
    recent: VecDeque<Counts>,
    /// CPU seconds outside of windows as last told, and the clock then.
    told_s: f64,
    own_s: f64,
}

impl NativeClock {
    /// A clock of a process that runs natively since the kernel had counted this.
    pub fn new(since: Counts) -> NativeClock {
        NativeClock {
            since: Some(since),
            ..NativeClock::default()
        }
    }

    /// Threads do not run natively any more.
    pub fn pause(&mut self, now: Option<Counts>) {
        let (Some(since), Some(now)) = (self.since.take(), now) else {
            return;
        };
        let stretch = now - since;
        // Where it could not be told, it is as it was before.
        if stretch.user_s + stretch.system_s <= 0.0 {
            return;
        }
        self.recent.push_back(stretch);
        let mut newer_s = 0.0;
        let kept = self.recent.iter().rev().take_while(|stretch| {
            let is_wanted = newer_s < ENOUGH_S;
            newer_s += stretch.user_s + stretch.system_s;
            is_wanted
        });
        let kept = kept.count();
        self.recent.drain(..self.recent.len() - kept);
    }

    /// They do again.
    pub fn go_on(&mut self, now: Option<Counts>) {
        self.since = now;
    }

    /// What it was seen to do is not what it does from here on.
    pub fn forget(&mut self) {
        self.recent.clear();
    }

    /// The clock, the process having used `cpu_s` CPU seconds outside of windows, and its own code making so many calls a
    /// second at the most.
    pub fn advance(&mut self, cpu_s: f64, calls: f64) -> f64 {
        let calls_s = calls * MOST_CALL_S;
        let share = self.calls().min(calls_s / (1.0 + calls_s));
        self.own_s += (cpu_s - self.told_s) * (1.0 - share);
        self.told_s = cpu_s;
        self.own_s
    }

    /// Share of native CPU time that is spent in calls.
    fn calls(&self) -> f64 {
        let sum = |of: fn(&Counts) -> f64| self.recent.iter().map(of).sum::<f64>();
        let (user_s, system_s) = (sum(|c| c.user_s), sum(|c| c.system_s));
        let all_s = user_s + system_s;
        if all_s < LEAST_S {
            return 0.0;
        }
        (system_s - FAULT_S * sum(|c| c.faults)).max(0.0) / all_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(user_s: f64, system_s: f64, faults: f64) -> Counts {
        Counts {
            user_s,
            system_s,
            faults,
        }
    }

    #[test]
    fn time_of_calls_is_no_time_of_the_programs() {
        let mut clock = NativeClock::new(Counts::default());
        // A quarter of it is the program's own.
        clock.pause(Some(counts(0.25, 0.75, 0.0)));
        assert!((clock.advance(1.0, f64::INFINITY) - 0.25).abs() < 1e-9);
        // A window does not count, whatever is counted in it.
        clock.go_on(Some(counts(0.3, 7.0, 0.0)));
        clock.pause(Some(counts(1.3, 7.0, 0.0)));
        assert!((clock.advance(2.0, f64::INFINITY) - 1.25).abs() < 1e-9);
    }

    #[test]
    fn faults_are_part_of_what_code_takes() {
        let mut clock = NativeClock::new(Counts::default());
        clock.pause(Some(counts(0.5, 0.5, 1e6)));
        assert!((clock.advance(1.0, f64::INFINITY) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_makes_few_calls_spends_little_in_them() {
        let mut clock = NativeClock::new(Counts::default());
        // In pages of 2 MiB, say.
        clock.pause(Some(counts(0.5, 0.5, 100.0)));
        assert!(clock.advance(1.0, 100.0) > 0.98);
    }

    #[test]
    fn a_few_ticks_tell_nothing() {
        let mut clock = NativeClock::new(Counts::default());
        clock.pause(Some(counts(0.01, 0.02, 0.0)));
        assert_eq!(clock.advance(0.03, f64::INFINITY), 0.03);
    }
}

//! Whether others want the processor that a program and its tracer share.
//!
//! A tracer that gives way at every stop ([`super::near`]) has nearly all of such a processor together with the program: Linux 6.18 was seen to leave a busy loop
//! 7 % of it where half is its due, for as long as that went on. The kernel tells nobody who waits where (`/proc/schedstat` is seldom there, and
//! proc_pid_schedstat(5) only when the wait is over), so that the states of all threads are read, now and then.

use super::{procinfo, status};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Shortest time between two looks, and the same as a multiple of what the last one took: hosts of many threads answer slowly.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_COSTS: u32 = 50;

/// What looks have shown.
#[derive(Debug)]
pub struct Rivals {
    /// Threads that could run there when last looked.
    ready: BTreeSet<i32>,
    next: Instant,
}

impl Rivals {
    /// Nobody has been seen.
    pub fn new() -> Rivals {
        Rivals {
            ready: BTreeSet::new(),
            next: Instant::now(),
        }
    }

    /// Looks, if it is time to, and says whether somebody was ready to run on the processor of one of our threads this time and the last: neither one of our process nor
    /// of that of `program`.
    pub fn look(&mut self, ours: Pid, program: Pid) -> Option<bool> {
        let begun = Instant::now();
        if begun < self.next {
            return None;
        }
        let us = Pid::this();
        let program = status::family(program).map_or(program, |(process, _)| process);
        let ready: BTreeSet<i32> = match procinfo::processor(us, ours) {
            Some(processor) => procinfo::ready_on(processor, &[us, program]).collect(),
            None => BTreeSet::new(),
        };
        let stay = !self.ready.is_disjoint(&ready);
        self.ready = ready;
        self.next = begun + LOOK.max(LOOK_COSTS * begun.elapsed());
        Some(stay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_runs_on_our_processor_is_seen() {
        // Beside us on one processor, and another one that sleeps.
        let script = "while :; do :; done";
        let start = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).spawn().expect("a shell")
        };
        let (mut busy, mut asleep) = (start(script), start("sleep 60"));
        let found = |child: &std::process::Child, at: usize| {
            procinfo::ready_on(at, &[Pid::this()]).any(|tid| tid == child.id() as i32)
        };
        let pid = Pid::from_raw(busy.id() as i32);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut seen = false;
        while !seen && Instant::now() < deadline {
            seen = procinfo::processor(pid, pid).is_some_and(|at| found(&busy, at));
        }
        let idle = Pid::from_raw(asleep.id() as i32);
        let at = procinfo::processor(idle, idle).expect("it lives");
        std::thread::sleep(Duration::from_millis(100));
        assert!(seen && !found(&asleep, at));
        let _ = (busy.kill(), asleep.kill());
        let _ = (busy.wait(), asleep.wait());
    }
}

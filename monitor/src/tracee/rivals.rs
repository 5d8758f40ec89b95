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
/// Looks are no further apart than this; after so long nothing is known.
const MOST: Duration = Duration::from_secs(4);
const OLD: Duration = Duration::from_secs(5);

/// What looks have shown.
#[derive(Debug)]
pub struct Rivals {
    /// Threads that could run there when last looked.
    ready: BTreeSet<i32>,
    last: Instant,
    next: Instant,
}

impl Rivals {
    /// Nobody has been seen.
    pub fn new() -> Rivals {
        Rivals {
            ready: BTreeSet::new(),
            last: Instant::now(),
            next: Instant::now(),
        }
    }

    /// Whether what the last look has shown says nothing any more.
    pub fn is_old(&self) -> bool {
        self.last.elapsed() > OLD
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
            Some(processor) => procinfo::ready_on(processor, &[us, program])
                .into_iter()
                .collect(),
            None => BTreeSet::new(),
        };
        let stay = !self.is_old() && !self.ready.is_disjoint(&ready);
        self.ready = ready;
        self.last = Instant::now();
        self.next = begun + LOOK.max(LOOK_COSTS * begun.elapsed()).min(MOST);
        Some(stay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::process::{Child, Command};

    /// Ended with the test, whatever becomes of that.
    struct Shell(Child);

    impl Shell {
        fn new(script: &str) -> Shell {
            let mut shell = Command::new("sh");
            Shell(shell.args(["-c", script]).spawn().expect("a shell"))
        }

        fn pid(&self) -> Pid {
            Pid::from_raw(self.0.id() as i32)
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = (self.0.kill(), self.0.wait());
        }
    }

    fn looked(rivals: &mut Rivals, program: Pid) -> bool {
        loop {
            if let Some(found) = rivals.look(nix::unistd::gettid(), program) {
                return found;
            }
            std::thread::sleep(LOOK / 10);
        }
    }

    #[test]
    fn who_runs_on_our_processor_is_seen() {
        // On a thread of its own: what it may run on is narrowed.
        let test = || {
            let ours = Pid::from_raw(0);
            let allowed = sched_getaffinity(ours).expect("ours");
            let mut one = CpuSet::new();
            let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true));
            one.set(first.expect("a processor")).expect("one there is");
            sched_setaffinity(ours, &one).expect("one of ours");
            let sleeper = Shell::new("exec sleep 60");
            let busy = Shell::new("while :; do :; done");
            let mut rivals = Rivals::new();
            assert!(!looked(&mut rivals, Pid::this()), "once is not enough");
            // It may have been about to begin.
            assert!((0..20).any(|_| looked(&mut rivals, Pid::this())));
            // The program itself is none. (Another test's may be.)
            let _ = looked(&mut rivals, busy.pid());
            let _ = looked(&mut rivals, busy.pid());
            let seen = |shell: &Shell| rivals.ready.contains(&(shell.0.id() as i32));
            assert!(!seen(&busy) && !seen(&sleeper));
        };
        std::thread::spawn(test).join().expect("as said");
    }
}

//! Which thread gets the next window: one of those that run at a random moment.
//!
//! Windows open at random moments (but for those that are sought: `seek`), and one of the threads that run then is taken, each with the same
//! chance. So threads get windows in proportion to the CPU time they use, and no account of each
//! one's time is needed: with a thousand threads, reading it would cost more than a window.

use crate::tracee::{hub, procinfo};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustc_hash::FxHashMap;

/// Threads looked at for one window, at most: a look costs microseconds.
const MOST_LOOKS: usize = 400;

/// Draws threads.
#[derive(Debug)]
pub struct Chooser {
    random: SmallRng,
    /// CPU seconds of each process when it was last looked at.
    used: FxHashMap<u32, f64>,
}

impl Chooser {
    /// A chooser with random choices of its own.
    pub fn new(seed: u64) -> Chooser {
        Chooser {
            random: SmallRng::seed_from_u64(seed ^ 0xc400),
            used: FxHashMap::default(),
        }
    }

    /// A thread that runs now, of a process that may be observed.
    pub fn pick(&mut self, may: impl Fn(&hub::Process) -> bool) -> Option<Pid> {
        let mut candidates: Vec<(Pid, Pid)> = Vec::new();
        let mut used = FxHashMap::default();
        for process in hub::processes() {
            // A process whose time stands still has no thread that runs: its clock costs one call.
            let now = procinfo::process_clock_s(process.pid).unwrap_or(0.0);
            let moved = self
                .used
                .get(&process.id)
                .is_none_or(|&before| now > before);
            used.insert(process.id, now);
            let may_be = !process.borrows_memory && !hub::may_be_traced(&process);
            if moved && may_be && may(&process) {
                candidates.extend(process.threads.iter().map(|&tid| (process.pid, tid)));
            }
        }
        self.used = used;
        for looked in 0..candidates.len().min(MOST_LOOKS) {
            let at = self.random.random_range(looked..candidates.len());
            candidates.swap(looked, at);
            let (pid, tid) = candidates[looked];
            if procinfo::is_running(pid, tid) {
                return Some(tid);
            }
        }
        None
    }
}

//! A signal that ends a process and dumps its memory, while another of its threads is in the code cache: the dump would
//! show that thread at registers that are ours. So the signal waits until the thread is out of there, which takes
//! microseconds; only its last stretch of the way is ours to delay, and it is delivered whatever the thread does.

use super::super::{Resume, StopReason, Stopped, status};
use super::{Hub, with};
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Signals that dump core where nobody catches them (signal(7), "Standard signals").
const DUMPING: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

/// How long it may take a thread to get to a signal that it was resumed with, on a busy machine. A handler that stands for
/// one signal only (sigaction(2), `SA_RESETHAND`) looks like none behind it: no longer than this.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

thread_local! {
    /// The last signal that a thread was resumed with of those above, whose it was, and when.
    static PASSED: Cell<Option<(Pid, i32, Instant)>> = const { Cell::new(None) };
}

/// A thread goes on with a signal: where that ends its process, no other thread is to get into the cache before it has.
pub(super) fn passed(tid: Pid, signal: i32) {
    if DUMPING.contains(&signal) {
        PASSED.set(Some((tid, signal, Instant::now())));
    }
}

/// A thread has something to tell: if it was resumed with a signal, it has survived that.
pub(super) fn survived(tid: Pid) {
    if PASSED.get().is_some_and(|(of, ..)| of == tid) {
        PASSED.set(None);
    }
}

/// Says which thread runs in the code cache from now on; `None`: none does, whatever it is about to do is done at its
/// own registers.
pub fn set_in_cache(tid: Option<Pid>) {
    with(|hub| {
        hub.in_cache = tid;
        if tid.is_none() {
            for (stopped, signal) in std::mem::take(&mut hub.dying) {
                // One that was killed meanwhile is gone.
                let _ = stopped.resume(Resume::Continue, signal);
            }
        }
    });
}

/// Whether thread `tid`, in a window, is to leave the code cache or not to enter it, because another one is about to end
/// their process, or is held while it may be there only alone ([`super::set_alone`]).
pub fn is_wanted_out(tid: Pid) -> bool {
    with(|hub| hub.is_wanted_out(tid)).unwrap_or(false)
}

impl Hub {
    fn is_wanted_out(&mut self, tid: Pid) -> bool {
        if !self.dying.is_empty() || self.alone == Some(tid) && !self.held.is_empty() {
            return true;
        }
        let Some((of, signal, since)) = PASSED.get() else {
            return false;
        };
        let pid = |tid: Pid| self.threads.get(&tid.as_raw()).map(|thread| thread.pid);
        if of == tid {
            return false;
        }
        if since.elapsed() > ON_ITS_WAY || pid(of) == pid(tid) && is_caught_or_ignored(of, signal) {
            PASSED.set(None);
            return false;
        }
        pid(of) == pid(tid)
    }

    /// Keeps a thread back that is about to dump the memory of a process with a thread in the cache, and asks that one to
    /// stop.
    pub(super) fn wait_to_die(&mut self, stopped: Stopped) -> Option<Stopped> {
        let tid = stopped.tid();
        let StopReason::Signal(signal) = stopped.reason else {
            return Some(stopped);
        };
        if !DUMPING.contains(&signal) {
            return Some(stopped);
        }
        let Some(inside) = self.in_cache.filter(|&inside| inside != tid) else {
            return Some(stopped);
        };
        let pid = |tid: Pid| self.threads.get(&tid.as_raw()).map(|thread| thread.pid);
        if pid(inside) != pid(tid)
            || is_caught_or_ignored(tid, signal)
            || !self.interrupt_inside(inside)
        {
            return Some(stopped);
        }
        self.dying.push((stopped, signal));
        None
    }

    /// A thread is held: one that may be in the cache only while there is no other is to stop.
    pub(super) fn end_alone(&mut self) {
        if let Some(inside) = self.in_cache
            && self.alone == Some(inside)
        {
            self.interrupt_inside(inside);
        }
    }

    fn interrupt_inside(&mut self, inside: Pid) -> bool {
        let asked = ptrace::interrupt(inside).is_ok();
        if let Some(thread) = self.threads.get_mut(&inside.as_raw()) {
            thread.interrupted |= asked;
        }
        asked
    }
}

fn is_caught_or_ignored(tid: Pid, signal: i32) -> bool {
    status::signal_sets(tid).is_none_or(|sets| sets.catches(signal) || sets.ignores(signal))
}

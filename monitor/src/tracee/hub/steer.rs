//! Signals that are sent to a process: the kernel gives them to its first thread where that would have them, asleep or not (linux/kernel/signal.c,
//! `complete_signal`), and to another one where it is stopped or about to stop, as it may be only by us. The call in which the first thread waits for the
//! signal would go on then, for good perhaps, and the handler be another thread's.
//!
//! So one that comes to another thread is sent on to the first, with what is known of its sender. Signals whose sender may have meant
//! the thread that they came to are left alone: those that instructions or calls of its own, timers and descriptors cause, and queued ones.
//!
//! Unsafe invariant: tgkill(2) takes numbers.

use super::super::{Resume, StopReason, Stopped, is_fault, procinfo};
use super::Hub;
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Sent to the thread that makes the call, whose time it is, or that a descriptor names (pipe(7), setrlimit(2), setitimer(2), fcntl(2), `F_SETOWN_EX`).
const OWN: [i32; 7] = [
    libc::SIGPIPE,
    libc::SIGXFSZ,
    libc::SIGXCPU,
    libc::SIGPROF,
    libc::SIGVTALRM,
    libc::SIGIO,
    libc::SIGURG,
];

/// How long a signal may be on its way: a blocked one, or one that was waited for, need not come.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

thread_local! {
    /// How threads were resumed.
    static RESUMED: RefCell<FxHashMap<i32, Resume>> = RefCell::default();
}

/// A thread goes on in this way.
pub(super) fn resumed(tid: Pid, how: Resume) {
    RESUMED.with_borrow_mut(|resumed| resumed.insert(tid.as_raw(), how));
}

/// A thread is gone.
pub(super) fn forget(tid: Pid) {
    RESUMED.with_borrow_mut(|resumed| resumed.remove(&tid.as_raw()));
}

/// A signal that was sent on.
pub(super) struct Steered {
    to: Pid,
    info: libc::siginfo_t,
    since: Instant,
}

impl std::fmt::Debug for Steered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "signal {} to {}", self.info.si_signo, self.to)
    }
}

impl Hub {
    /// Whether the signal that a thread is about to get was sent on to the first thread of its process instead, and the thread goes on.
    pub(super) fn steer(&mut self, tid: Pid, signal: i32) -> bool {
        let stopped = Stopped::of(tid, StopReason::Signal(signal));
        let first = self.threads.get(&tid.as_raw()).map(|thread| thread.pid);
        match first {
            Some(first) if first == tid => {
                self.arrives(&stopped, signal);
                false
            }
            Some(first) if !is_fault(signal) && !OWN.contains(&signal) => {
                self.send_on(stopped, signal, first).is_some()
            }
            _ => false,
        }
    }

    /// One that was sent on is about to be delivered: by whom it was sent first is what its handler is told.
    fn arrives(&mut self, stopped: &Stopped, signal: i32) {
        if self.steered.is_empty() {
            return;
        }
        self.steered.retain(|s| s.since.elapsed() < ON_ITS_WAY);
        let is_this = |s: &Steered| s.to == stopped.tid() && s.info.si_signo == signal;
        let Some(at) = self.steered.iter().position(is_this) else {
            return;
        };
        if stopped
            .siginfo()
            .is_ok_and(|info| info.si_code == libc::SI_TKILL)
        {
            let steered = self.steered.remove(at);
            // One that was killed meanwhile is gone.
            let _ = stopped.set_siginfo(&steered.info);
        }
    }

    fn send_on(&mut self, stopped: Stopped, signal: i32, first: Pid) -> Option<()> {
        let tid = stopped.tid();
        let how = RESUMED.with_borrow(|resumed| resumed.get(&tid.as_raw()).copied())?;
        let is_there = |thread: &super::Thread| !thread.exiting;
        self.threads.get(&first.as_raw()).filter(|t| is_there(t))?;
        let info = stopped.siginfo().ok()?;
        // By kill(2), the kernel or a child's end (sigaction(2), `si_code`).
        let to_all = match info.si_code {
            libc::SI_USER | libc::SI_KERNEL => true,
            code => signal == libc::SIGCHLD && code > 0,
        };
        let sets = procinfo::signal_sets(first).filter(|_| to_all)?;
        if !sets.catches(signal) || sets.blocks(signal) || procinfo::has_ended(first) {
            return None;
        }
        // First this: were we killed in between it would come twice, not never.
        // SAFETY: numbers.
        let sent =
            unsafe { libc::syscall(libc::SYS_tgkill, first.as_raw(), first.as_raw(), signal) };
        if sent != 0 {
            return None;
        }
        self.steered.push(Steered {
            to: first,
            info,
            since: Instant::now(),
        });
        let in_cache = self.in_cache == Some(tid);
        let thread = self.threads.get_mut(&tid.as_raw())?;
        // To the thread it is as if we had stopped it, and a stop that was asked for is used up.
        let (asked, in_call) = (thread.interrupted, thread.in_call);
        thread.interrupted = true;
        thread.note_call_at(&Stopped::of(tid, StopReason::Interrupt), in_cache);
        thread.in_call |= in_call;
        // One that was killed meanwhile is gone.
        let resumed = stopped.resume(how, 0);
        if asked && resumed.is_ok() {
            thread.interrupted = ptrace::interrupt(tid).is_ok();
        }
        Some(())
    }
}

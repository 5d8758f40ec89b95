//! Signals that are sent to a process: the kernel offers them to one of its threads first, asleep or not (linux/kernel/signal.c, `complete_signal`), the one
//! that forked where a child has ended (linux/kernel/signal.c, `do_notify_parent`), else the first; and gives them to another one where that is stopped or about
//! to stop, as it may be only by us. The call in which it waits for the signal would go on then, for good perhaps, and the handler be another thread's.
//!
//! So one that comes to another thread is sent on to the one that is meant, with what is known of its sender. Signals that may have been meant for
//! the thread that they came to are left alone: those that instructions or calls of its own and timers cause, and queued ones. (One that a thread
//! sends to its own id by kill(2) cannot be told from others.)
//!
//! Unsafe invariant: kill(2) takes numbers, and rt_tgsigqueueinfo(2) reads a live `siginfo_t`; those here come from the kernel, which fills all of it
//! (ptrace(2), `PTRACE_GETSIGINFO`).

use super::super::{Resume, StopReason, Stopped, is_fault, procinfo, status};
use super::Hub;
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Sent to the thread that makes the call, or whose time it is (pipe(7), setrlimit(2), setitimer(2)), but by another process's kill(2).
const OWN: [i32; 5] = [
    libc::SIGPIPE,
    libc::SIGXFSZ,
    libc::SIGXCPU,
    libc::SIGPROF,
    libc::SIGVTALRM,
];

/// Those that stop processes or have them go on: each takes others back wherever it is sent (linux/kernel/signal.c, `prepare_signal`).
const JOB_CONTROL: [i32; 4] = [libc::SIGCONT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Signals on their way at most: one that is blocked meanwhile, or waited for, need not come.
const MOST: usize = 256;
/// Children whose forker is known, at most.
const MOST_FORKED: usize = 1 << 14;

/// How long ago a thread was stopped that was passed over for it, at the most: the one that has the signal in its place may have to wait for a processor, or
/// for us. (With 10 ms 4 of 240 alarms came to another thread.)
const LATELY: Duration = Duration::from_millis(200);

thread_local! {
    /// How threads were resumed, and when.
    static RESUMED: RefCell<FxHashMap<i32, (Resume, Instant)>> = RefCell::default();
    /// Whether threads are held where they come by.
    static HOLD: Cell<bool> = const { Cell::new(false) };
}

/// From now on threads are held, or no more.
pub(super) fn set_hold(hold: bool) {
    HOLD.set(hold);
}

/// A thread goes on in this way.
pub(super) fn resumed(tid: Pid, how: Resume) {
    RESUMED.with_borrow_mut(|resumed| resumed.insert(tid.as_raw(), (how, Instant::now())));
}

/// Whether a thread may be stopped, or was a moment ago.
fn is_disturbed(tid: Pid) -> bool {
    if HOLD.get() {
        return true;
    }
    let since = RESUMED.with_borrow(|resumed| Some(resumed.get(&tid.as_raw())?.1));
    since.is_some_and(|since| since.elapsed() < LATELY) || procinfo::is_traced_stopped(tid)
}

/// A thread is gone.
pub(super) fn forget(tid: Pid) {
    RESUMED.with_borrow_mut(|resumed| resumed.remove(&tid.as_raw()));
}

/// Signals that were sent on, and what tells whom they are meant for.
#[derive(Default)]
pub(super) struct Steering {
    on_their_way: Vec<Steered>,
    /// Numbers them.
    next: u64,
    /// By child, the thread that forked it.
    forkers: FxHashMap<i32, Pid>,
}

/// A signal that was sent on.
struct Steered {
    to: Pid,
    info: libc::siginfo_t,
    number: u64,
}

impl std::fmt::Debug for Steering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} signals on their way", self.on_their_way.len())
    }
}

impl Steering {
    /// A thread has forked.
    pub fn forks(&mut self, tid: Pid) {
        if self.forkers.len() >= MOST_FORKED {
            self.forkers.clear();
        }
        if let Ok(child) = ptrace::getevent(tid) {
            self.forkers.insert(child as i32, tid);
        }
    }
}

impl Hub {
    /// Whether the signal that a thread is about to get was sent on to the one of its process that is meant, and the thread goes on.
    pub(super) fn steer(&mut self, tid: Pid, signal: i32) -> bool {
        if JOB_CONTROL.contains(&signal) {
            return false;
        }
        let Some(thread) = self.threads.get(&tid.as_raw()) else {
            return false;
        };
        if thread.pid == tid && signal != libc::SIGCHLD {
            return false;
        }
        self.send_on(Stopped::of(tid, StopReason::Signal(signal)), signal)
            .is_some()
    }

    /// Whether the signal that a thread is about to get is one that was sent on. By whom it was sent first is what its handler is told.
    pub(super) fn arrives(&mut self, tid: Pid, signal: i32) -> bool {
        let on_their_way = &mut self.steering.on_their_way;
        if on_their_way.is_empty() {
            return false;
        }
        let stopped = Stopped::of(tid, StopReason::Signal(signal));
        let Ok(info) = stopped.siginfo() else {
            return false;
        };
        let is_this = |s: &Steered| {
            let same = s.to == tid && s.info.si_signo == signal;
            same && info.si_code == libc::SI_QUEUE && value(&info) == s.number
        };
        let Some(at) = on_their_way.iter().position(is_this) else {
            return false;
        };
        let steered = on_their_way.remove(at);
        // One that was killed meanwhile is gone.
        let _ = stopped.set_siginfo(&steered.info);
        true
    }

    /// A thread ends, and with it what it has not been told yet: that is for the others of its process.
    pub(super) fn leaves_signals(&mut self, tid: Pid) {
        let Some(pid) = self.threads.get(&tid.as_raw()).map(|thread| thread.pid) else {
            return;
        };
        for left in self.steering.on_their_way.extract_if(.., |s| s.to == tid) {
            // SAFETY: numbers.
            unsafe { libc::kill(pid.as_raw(), left.info.si_signo) };
        }
    }

    /// The thread for which a signal is meant that came to another one, where that is certain and it would have it.
    fn meant(&self, tid: Pid, signal: i32, info: &libc::siginfo_t) -> Option<Pid> {
        let pid = self.threads.get(&tid.as_raw())?.pid;
        // By kill(2), the kernel, or a child's end (sigaction(2), `si_code`).
        let to = match (signal, info.si_code) {
            // SAFETY: a child's end says whose.
            (libc::SIGCHLD, 1..) => *self.steering.forkers.get(&unsafe { info.si_pid() })?,
            (libc::SIGCHLD, _) => return None,
            // SAFETY: it says by whom it was sent.
            (_, libc::SI_USER) if is_own(signal) && is_of(pid, unsafe { info.si_pid() }) => {
                return None;
            }
            (_, libc::SI_KERNEL) if is_own(signal) => return None,
            (_, libc::SI_USER | libc::SI_KERNEL) => pid,
            _ => return None,
        };
        let thread = self.threads.get(&to.as_raw())?;
        let is_there = to != tid && thread.pid == pid && !thread.exiting;
        (is_there && would_have(to, signal)).then_some(to)
    }

    fn send_on(&mut self, stopped: Stopped, signal: i32) -> Option<()> {
        let tid = stopped.tid();
        let how = RESUMED.with_borrow(|resumed| Some(resumed.get(&tid.as_raw())?.0))?;
        let info = stopped.siginfo().ok()?;
        let to = self.meant(tid, signal, &info)?;
        let pid = self.threads.get(&to.as_raw())?.pid;
        self.steering.next += 1;
        let number = self.steering.next;
        // First this: were we killed in between it would come twice, not never.
        if !queue(pid, to, signal, number, &info) {
            return None;
        }
        let on_their_way = &mut self.steering.on_their_way;
        if on_their_way.len() >= MOST {
            on_their_way.remove(0);
        }
        on_their_way.push(Steered { to, info, number });
        self.note_call(&stopped);
        let in_cache = self.in_cache == Some(tid);
        let thread = self.threads.get_mut(&tid.as_raw())?;
        // To the thread it is as if we had stopped it, and a stop that was asked for is used up.
        let (asked, in_call) = (thread.interrupted, thread.in_call);
        thread.interrupted = true;
        thread.note_call_at(&Stopped::of(tid, StopReason::Interrupt), in_cache);
        thread.in_call |= in_call;
        if asked {
            thread.interrupted = ptrace::interrupt(tid).is_ok();
        }
        // What is left of a call is gone on with at its end.
        let how = match how {
            Resume::Continue if thread.in_call => Resume::Syscall,
            how => how,
        };
        // One that was killed meanwhile is gone.
        let _ = stopped.resume(how, 0);
        Some(())
    }
}

/// Whether a signal that was sent to the process of thread `tid` is sure to be sent on to its first one, `first`, if it was by kill(2) or the kernel.
pub(super) fn is_anothers(tid: Pid, first: Pid, signal: i32) -> bool {
    let may_stay = signal == libc::SIGCHLD || JOB_CONTROL.contains(&signal) || is_own(signal);
    tid != first && !may_stay && would_have(first, signal)
}

/// Whether it may be of what a thread itself does.
fn is_own(signal: i32) -> bool {
    is_fault(signal) || OWN.contains(&signal)
}

/// Whether a process has sent it to itself, as the kernel says in its name, too. Its id there is that of its own namespace.
fn is_of(pid: Pid, sender: i32) -> bool {
    status::identity(pid).is_none_or(|(own, _)| own == sender)
}

/// Whether a thread would have a signal, but for us. (One that waits there already would be one with it.)
fn would_have(tid: Pid, signal: i32) -> bool {
    if !is_disturbed(tid) {
        return false;
    }
    let sets = status::signal_sets(tid);
    let would =
        sets.is_some_and(|s| s.catches(signal) && !s.blocks(signal) && !s.waits_for(signal));
    would && !procinfo::has_ended(tid)
}

/// Sends a signal to a thread, with a number by which it is known again, and, should nobody be there to put it right, with the process and user that
/// sent it first. Whether it could be sent.
fn queue(pid: Pid, to: Pid, signal: i32, number: u64, first: &libc::siginfo_t) -> bool {
    let mut info = *first;
    info.si_code = libc::SI_QUEUE;
    // SAFETY: of a queued signal the word 24 bytes into siginfo_t, behind process and user, is its value (rt_sigqueueinfo(2)).
    unsafe { (&raw mut info).cast::<u64>().add(3).write(number) };
    // SAFETY: `info` is live and initialised.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid.as_raw(),
            to.as_raw(),
            signal,
            &raw const info,
        )
    };
    sent == 0
}

/// The value of a queued signal.
fn value(info: &libc::siginfo_t) -> u64 {
    // SAFETY: as in `queue`.
    unsafe { std::ptr::from_ref(info).cast::<u64>().add(3).read() }
}

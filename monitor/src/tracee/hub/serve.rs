//! Waiting for all threads at once, and letting those go on that nobody waits for.
//!
//! Unsafe invariant: the kernel writes only to a live local of the type it expects; a `siginfo_t`
//! is zeroed before, so that all of it can be read where nothing was written.

use super::super::near;
use super::super::{Event, Result, Resume, StopReason, Stopped, TraceError, decode_status};
use super::{Follow, Hub, Pending, TOLD, leave_kernel};
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Longest time for which the events of others wait while one thread stops again and again.
const LOOK_AROUND: Duration = Duration::from_micros(500);
/// Longest time for which signals are passed on one after the other before anything else is done.
const STORM: Duration = Duration::from_millis(20);

/// Stops after which we look where the thread runs, if they come more often than this.
const LOOK_EVERY: u32 = 24;
const OFTEN: Duration = Duration::from_micros(500);

thread_local! {
    /// Threads that are about to get a signal, which have been looked at only, and not been resumed.
    static PEEKED: RefCell<FxHashSet<i32>> = RefCell::default();
}

/// Nothing has been looked at yet.
pub(super) fn begin() {
    PEEKED.with_borrow_mut(FxHashSet::clear);
}

/// A thread goes on, or has something else to tell.
pub(super) fn resumed(tid: Pid) {
    PEEKED.with_borrow_mut(|peeked| peeked.remove(&tid.as_raw()));
}

/// What came of looking for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetched {
    /// There is none, or nobody is left.
    Nothing,
    /// It has been queued or dealt with.
    Some,
    /// It has been queued for whoever waits, and must not be looked past.
    Awaited,
}

/// Looks at one event and leaves it where it is: the thread, and the signal if one other than
/// SIGTRAP is about to be delivered to it. No thread: the wait was interrupted.
fn peek(block: bool) -> Result<Option<(Option<Pid>, Option<i32>)>> {
    let flags = libc::__WALL
        | libc::__WNOTHREAD
        | libc::WEXITED
        | libc::WSTOPPED
        | libc::WNOWAIT
        | if block { 0 } else { libc::WNOHANG };
    // SAFETY: plain integers and pointers; all zero is valid, and what waitid leaves when there is nothing.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a live siginfo_t; waitid(2) writes nothing else.
    let rc = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    if rc != 0 {
        return match nix::Error::last() {
            nix::Error::EINTR => Ok(Some((None, None))),
            nix::Error::ECHILD => Ok(None),
            errno => Err(failed("waitid", Pid::from_raw(-1), errno)),
        };
    }
    // SAFETY: waitid fills the child member (waitid(2)).
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let signal = status & 0x7f;
    // What lies above is the event, or the mark of a system call stop (ptrace(2), PTRACE_O_TRACESYSGOOD).
    let plain = info.si_code == libc::CLD_TRAPPED && status == signal && signal != libc::SIGTRAP;
    Ok(Some((Some(Pid::from_raw(pid)), plain.then_some(signal))))
}

/// Takes the event of a thread that [`peek`] has seen. `None` when it is gone: a kill may come between.
fn take(tid: Pid) -> Result<Option<i32>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: `status` is a live i32; waitpid(2) writes nothing else.
    match unsafe { libc::waitpid(tid.as_raw(), &raw mut status, flags) } {
        0 => Ok(None),
        -1 => match nix::Error::last() {
            nix::Error::EINTR | nix::Error::ECHILD => Ok(None),
            errno => Err(failed("waitpid", tid, errno)),
        },
        _ => Ok(Some(status)),
    }
}

fn failed(operation: &'static str, tid: Pid, errno: nix::Error) -> TraceError {
    TraceError::Os {
        operation,
        tid,
        source: errno.into(),
    }
}

impl Hub {
    pub(super) fn wait(&mut self, tid: Pid, block: bool) -> Result<Option<Event>> {
        self.awaited = Some(tid);
        let event = self.await_event(tid, block);
        self.awaited = None;
        event
    }

    fn await_event(&mut self, tid: Pid, block: bool) -> Result<Option<Event>> {
        if !block || self.looked_around.elapsed() > LOOK_AROUND {
            self.fetch_all()?;
        }
        loop {
            let mine = self
                .queue
                .iter()
                .position(|p| p.tid == tid || p.former == tid);
            let mine = mine.and_then(|at| self.queue.remove(at));
            self.act_on_queue();
            if let Some(mine) = mine {
                return Ok(Some(mine.event));
            }
            if !self.threads.contains_key(&tid.as_raw()) {
                return Err(TraceError::Gone(tid));
            }
            if !block {
                return Ok(None);
            }
            if self.fetch(true, false)? == Fetched::Nothing {
                return Err(TraceError::Gone(tid));
            }
        }
    }

    pub(super) fn serve_all(&mut self) -> Result<()> {
        self.fetch_all()?;
        self.act_on_queue();
        Ok(())
    }

    /// Takes every event there is before any thread is resumed: so that none that stops often can
    /// keep the others waiting. (One that goes on at once, as those that get a signal do, may be back before the others are through: from then on
    /// its signals are queued, too.)
    fn fetch_all(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.looked_around = begun;
        while self.fetch(false, begun.elapsed() > STORM)? == Fetched::Some {}
        Ok(())
    }

    /// Takes one event.
    ///
    /// A signal that is about to be delivered is looked at without being taken: were we killed
    /// between the wait and the resume, the kernel would forget a signal that has been waited for, but
    /// delivers one that has not. So such a thread goes on at once, or whoever waits for it has it
    /// now. (Of `SIGTRAP` nothing of the kind is wanted: it may be our own doing, and would kill.)
    ///
    /// `all`: such a thread is queued as any other is.
    fn fetch(&mut self, block: bool, all: bool) -> Result<Fetched> {
        let Some((tid, signal)) = peek(block)? else {
            return Ok(Fetched::Nothing);
        };
        // Interrupted: somebody may want something else of us, but there may be more.
        let Some(tid) = tid else {
            return Ok(Fetched::Some);
        };
        let known = PEEKED.with_borrow(|peeked| peeked.contains(&tid.as_raw()));
        if let (Some(signal), false) = (signal, known) {
            let arrives = self.arrives(tid, signal);
            if !arrives && !all && self.steer(tid, signal) {
                return Ok(Fetched::Some);
            }
        }
        if let (Some(signal), false) = (signal, known || all) {
            PEEKED.with_borrow_mut(|peeked| peeked.insert(tid.as_raw()));
            let event = Event::Stopped(Stopped::of(tid, StopReason::Signal(signal)));
            let former = self.note(tid, &event);
            let awaited = self.awaited == Some(tid);
            match event {
                Event::Stopped(stopped) if !awaited => self.act(stopped),
                event => self.queue.push_back(Pending { event, tid, former }),
            }
            return Ok(if awaited {
                Fetched::Awaited
            } else {
                Fetched::Some
            });
        }
        let Some(status) = take(tid)? else {
            return Ok(Fetched::Some);
        };
        let event = decode_status(tid, status);
        // Whoever holds this stop has let others go first.
        let again =
            matches!(&event, Event::Stopped(s) if matches!(s.reason, StopReason::Signal(_)));
        if known && again {
            return Ok(Fetched::Some);
        }
        resumed(tid);
        let former = self.note(tid, &event);
        self.queue.push_back(Pending { event, tid, former });
        Ok(Fetched::Some)
    }

    pub(super) fn act_on_queue(&mut self) {
        while let Some(pending) = self.queue.pop_front() {
            if let Event::Stopped(stopped) = pending.event {
                self.act(stopped);
            }
        }
    }

    /// A stop costs microseconds on the processor where the thread runs, and tens of them from another:
    /// where stops come thick, we go there, and keep it there.
    fn draw_near(&mut self, tid: Pid) {
        let (stops, since) = &mut self.stops;
        *stops += 1;
        if *stops < LOOK_EVERY {
            return;
        }
        let often = since.elapsed() < LOOK_EVERY * OFTEN;
        self.stops = (0, Instant::now());
        self.thick = often;
        if often {
            near::go_to(tid);
        }
    }

    /// Lets a thread go on that nobody waits for. That it was killed meanwhile is no error.
    pub(super) fn act(&mut self, stopped: Stopped) {
        let tid = stopped.tid();
        self.draw_near(tid);
        if self.follow == Follow::Threads && self.is_foreign(tid) {
            let signal = match stopped.reason {
                StopReason::Signal(signal) => signal,
                _ => 0,
            };
            self.let_newborn_go(stopped, signal);
            return;
        }
        let Some(stopped) = self.look_who_is_traced(stopped) else {
            return;
        };
        let Some(stopped) = self.wait_to_die(stopped) else {
            return;
        };
        let comes_of_call = self.is_in_call(tid) && stopped.has_left_call();
        if comes_of_call {
            self.set_in_call(tid, false);
        }
        self.set_rests(tid, false);
        if stopped.reason == StopReason::Exiting {
            self.let_end(stopped);
            return;
        }
        if self.hold && self.may_hold(tid) {
            let is_held = self.hold_or_resume(stopped);
            self.set_rests(tid, is_held && comes_of_call);
            return;
        }
        let (how, signal) = match stopped.reason {
            StopReason::Signal(signal) if self.is_in_call(tid) => (Resume::Syscall, signal),
            StopReason::Signal(signal) => (Resume::Continue, signal),
            StopReason::Group => (Resume::Listen, 0),
            // What a stop at its entry has spent may cut the call.
            _ if self.is_in_call(tid) || self.is_cut_short(tid) => (Resume::Syscall, 0),
            _ => (Resume::Continue, 0),
        };
        let _ = match self.thick {
            true => stopped.resume_here(how, signal),
            false => stopped.resume(how, signal),
        };
    }

    /// Lets a thread come to its end. It is not traced until then where that can be told already: what has ended is there for us first, as a zombie, while
    /// its pidfd can be read and others still count it.
    fn let_end(&mut self, stopped: Stopped) {
        let tid = stopped.tid();
        let thread = self.threads.get(&tid.as_raw());
        let process = thread.and_then(|thread| self.processes.get(&thread.pid.as_raw()));
        // The end of a first thread is told when all others are gone, and that of the first process to who has started it.
        let is_told = process.is_none_or(|process| {
            tid == process.pid && (process.id == 0 || process.threads.len() > 1)
        });
        let status = ptrace::getevent(tid);
        if is_told || status.is_err() || process.is_none() {
            let _ = stopped.resume(Resume::Continue, 0);
            return;
        }
        let status = status.map_or(0, |status| status as i32);
        // One that was killed meanwhile has yet to tell of that.
        if stopped.detach_newborn(0).is_ok() {
            match decode_status(tid, status) {
                Event::Exited(status) => self.gone(tid, status),
                Event::Killed(signal) => self.gone(tid, 128 + signal),
                Event::Stopped(_) => self.gone(tid, 0),
            }
        }
    }

    fn is_cut_short(&self, tid: Pid) -> bool {
        self.threads.get(&tid.as_raw()).is_some_and(|t| t.spent)
    }

    /// Lets the held threads of some processes go on natively.
    pub(super) fn let_go(&mut self, whose: impl Fn(Pid) -> bool) {
        self.let_gone += 1;
        for stopped in std::mem::take(&mut self.held) {
            let pid = self
                .threads
                .get(&stopped.tid().as_raw())
                .map(|thread| thread.pid);
            if self.hold && !pid.is_some_and(&whose) {
                self.held.push_back(stopped);
            } else {
                let how = if self.hold {
                    Resume::Syscall
                } else {
                    Resume::Continue
                };
                let _ = stopped.resume(how, 0);
            }
        }
    }

    /// A thread in borrowed memory goes on until it executes a program: its parent waits for that.
    fn may_hold(&self, tid: Pid) -> bool {
        let thread = self.threads.get(&tid.as_raw());
        let spared = thread.and_then(|thread| thread.spared);
        if spared.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let process = thread.and_then(|thread| self.processes.get(&thread.pid.as_raw()));
        process.is_some_and(|process| !process.borrows_memory)
    }

    /// Holds a thread that is at its own registers; true if it is.
    fn hold_or_resume(&mut self, stopped: Stopped) -> bool {
        let clean = match stopped.reason {
            StopReason::Syscall => stopped.leaves_call(),
            StopReason::Interrupt => leave_kernel(&stopped),
            _ => false,
        };
        if clean {
            self.held.push_back(stopped);
            self.end_alone();
            return true;
        }
        let (how, signal) = match stopped.reason {
            StopReason::Signal(signal) => (Resume::Syscall, signal),
            StopReason::Group => (Resume::Listen, 0),
            _ => (Resume::Syscall, 0),
        };
        let _ = stopped.resume(how, signal);
        false
    }

    /// Looks at the first calls of a child of a program that may trace it. One that asks for it, or stops itself so that its parent can come, is left to
    /// that: `None`, as where it goes on to its next call.
    fn look_who_is_traced(&mut self, stopped: Stopped) -> Option<Stopped> {
        let tid = stopped.tid();
        let Some(thread) = self.threads.get_mut(&tid.as_raw()) else {
            return Some(stopped);
        };
        let process = self.processes.get(&thread.pid.as_raw());
        if process.is_none_or(|process| process.born.elapsed() > TOLD) {
            // It may be observed by now, and what is ours in it must not stay.
            thread.untold = 0;
        }
        if thread.untold == 0 {
            return Some(stopped);
        }
        match stopped.reason {
            // Another program now, or none.
            StopReason::Exec | StopReason::Exiting => thread.untold = 1,
            StopReason::Signal(libc::SIGSTOP) => {
                self.leave_to_tracer(stopped, libc::SIGSTOP);
                return None;
            }
            StopReason::Syscall if stopped.calls(libc::SYS_ptrace) => {
                self.leave_to_tracer(stopped, 0);
                return None;
            }
            _ => {}
        }
        thread.untold -= 1;
        let signal = match stopped.reason {
            _ if thread.untold == 0 => return Some(stopped),
            StopReason::Group => return Some(stopped),
            StopReason::Signal(signal) => signal,
            _ => 0,
        };
        let _ = stopped.resume(Resume::Syscall, signal);
        None
    }

    /// Lets a process go that somebody else is about to trace.
    fn leave_to_tracer(&mut self, stopped: Stopped, signal: i32) {
        self.left_alone += 1;
        self.let_newborn_go(stopped, signal);
    }

    /// Traces a process no more that is not known to anybody yet.
    fn let_newborn_go(&mut self, stopped: Stopped, signal: i32) {
        let tid = stopped.tid();
        let _ = stopped.detach_newborn(signal);
        self.gone(tid, 0);
        self.ended.retain(|p| p.pid != tid);
    }

    /// A process of its own, not the first.
    fn is_foreign(&self, tid: Pid) -> bool {
        self.processes.get(&tid.as_raw()).is_some_and(|p| p.id > 0)
    }
}

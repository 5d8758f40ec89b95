//! Signals and dispatched calls of a thread in its window, delivered to the shim's handlers and waited for.
//!
//! Unsafe invariant: a `siginfo_t` has 128 bytes, all of which `PTRACE_GETSIGINFO` fills whatever
//! the signal; what is read of it is taken for an integer, and no address in it is followed.

use super::{
    BIRTH_OR_END, Before, END_OF_PROCESS, ENDING, FILTERED, Live, Met, Result, SYS_USER_DISPATCH,
    SYSCALL_CODE, Stop, TRAP_FLAG, USER, WAITS, add, is_step,
};
use crate::engine::translate::window::{Control, Waited, WindowEnd};
use crate::observe::Access;
use crate::tracee::remote::restart_pending;
use crate::tracee::{Event, Resume, Running, StopReason, Stopped, near, status};

impl<C: Control> Live<'_, C> {
    /// Delivers a signal to the shim's handler and stops the thread when that has returned.
    pub(super) fn through(&mut self, stopped: Stopped, signal: i32) -> Result<Stopped> {
        let (mut inside, mut leaving) = (false, false);
        let mut stopped = self.go(stopped, Resume::Syscall, signal)?;
        loop {
            let mut again = 0;
            match stopped.reason {
                StopReason::Syscall if inside && leaving => return Ok(stopped),
                StopReason::Syscall if inside => inside = false,
                StopReason::Syscall => {
                    inside = true;
                    leaving = stopped.regs()?.orig_rax == libc::SYS_rt_sigreturn as u64;
                }
                StopReason::Signal(signal) => again = signal,
                _ => {}
            }
            stopped = self.go(stopped, Resume::Syscall, again)?;
        }
    }

    /// Delivers any signal, and lets the shim step the access that it may have been raised by. True where that was executed.
    pub(super) fn deliver(&mut self, stopped: Stopped, signal: i32) -> Result<bool> {
        const DEFAULT_STOPS: [i32; 4] =
            [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let sets = status::signal_sets(self.tid).unwrap_or_default();
        if !sets.catches(signal) {
            if sets.ignores(signal) {
                self.thread = Some(stopped);
                return Ok(false);
            }
            if !DEFAULT_STOPS.contains(&signal) {
                return Err(Stop::End(WindowEnd::Fatal(stopped, signal)));
            }
            // Stopped, and continued some time: with a stop of ours right behind it.
            let mut running = stopped.resume(Resume::Continue, signal)?;
            running.interrupt()?;
            self.thread = loop {
                running = match running.wait()? {
                    // That stop itself comes first.
                    Event::Stopped(stopped) if stopped.reason == StopReason::Group => {
                        stopped.resume(Resume::Listen, 0)?
                    }
                    Event::Stopped(stopped) => break Some(stopped),
                    event => return Err(Stop::End(WindowEnd::Gone(event))),
                };
            };
            return Err(Stop::Close("a stopping signal"));
        }
        if signal == libc::SIGSYS
            && let Some(reason) = self.ends_here(&stopped)?
        {
            self.thread = Some(stopped);
            return Err(Stop::Close(reason));
        }
        let before = match signal {
            libc::SIGSEGV => self.note_fault(&stopped)?,
            _ => None,
        };
        let mut stopped = self.through(stopped, signal)?;
        let mut ran = false;
        while signal == libc::SIGSEGV && stopped.regs()?.eflags & TRAP_FLAG != 0 {
            // The instruction runs now; it may meet a second page.
            stopped = self.go(stopped, Resume::Continue, 0)?;
            let StopReason::Signal(next) = stopped.reason else {
                continue;
            };
            ran = next == libc::SIGTRAP;
            stopped = self.through(stopped, next)?;
        }
        self.thread = Some(stopped);
        self.collect(before.as_deref());
        if signal == libc::SIGSYS {
            self.leave_stub()?;
        }
        Ok(ran)
    }

    /// Before a dispatched call of [`ENDING`]: puts the thread back before it, with nothing delivered.
    pub(super) fn ends_here(&self, stopped: &Stopped) -> Result<Option<&'static str>> {
        /// Offset of `si_syscall` in `siginfo_t`.
        const NUMBER: usize = 24;
        let info = stopped.siginfo()?;
        // SAFETY: a siginfo_t has 128 bytes, all of which are initialised by the kernel.
        let number = unsafe {
            (&raw const info)
                .cast::<u8>()
                .add(NUMBER)
                .cast::<i32>()
                .read()
        };
        const PR_SET_SECCOMP: u64 = libc::PR_SET_SECCOMP as u64;
        let number = i64::from(number);
        let mut regs = stopped.regs()?;
        let filters =
            number == libc::SYS_seccomp || number == libc::SYS_prctl && regs.rdi == PR_SET_SECCOMP;
        let ends = info.si_code == SYS_USER_DISPATCH && (filters || ENDING.contains(&number));
        if ends {
            regs.rip -= SYSCALL_CODE.len() as u64;
            regs.rax = number as u64;
            regs.orig_rax = u64::MAX;
            stopped.set_regs(&regs)?;
        }
        let reason = match number {
            libc::SYS_exit_group => END_OF_PROCESS,
            _ if filters => FILTERED,
            _ => BIRTH_OR_END,
        };
        Ok(ends.then_some(reason))
    }

    /// What the faulting instruction is about to do, if its page may be watched.
    pub(super) fn note_fault(&mut self, stopped: &Stopped) -> Result<Option<Before>> {
        const SEGV_ACCERR: i32 = 2;
        let info = stopped.siginfo()?;
        if info.si_code != SEGV_ACCERR {
            return Ok(None);
        }
        // SAFETY: SIGSEGV fills the fault member (sigaction(2), "si_addr").
        let address = unsafe { info.si_addr() } as u64;
        self.faults.push(address & !0xfff);
        self.accesses_of(stopped)
    }

    /// What the shim has reported, with the place of the reference that did it.
    pub(super) fn collect(&mut self, before: Option<&[Access]>) {
        for event in self.shim.events() {
            let mut at = self.mark;
            if event.tid == self.tid.as_raw() {
                for access in before.unwrap_or(&[]) {
                    let touches = access.address <= event.address
                        && event.address - access.address < u64::from(access.size.max(1));
                    if touches {
                        break;
                    }
                    add(&mut at.refs, access);
                }
            }
            self.met.push(Met { event, at });
        }
    }

    pub(super) fn add(&mut self, access: &Access) {
        add(&mut self.mark.refs, access);
        self.accesses += 1;
    }

    /// Runs the stub of a system call, which the thread is at, to its end.
    pub(super) fn leave_stub(&mut self) -> Result<()> {
        loop {
            let regs = self.regs()?;
            if !self.image.iter().any(|part| part.contains(&regs.rip)) {
                return Ok(());
            }
            let stopped = self.take();
            let mut code = [0; 2];
            stopped.read(regs.rip, &mut code)?;
            // To be made, or made again.
            if code == SYSCALL_CODE || restart_pending(&regs) {
                let stopped = self.go(stopped, Resume::Syscall, 0)?;
                if stopped.reason != StopReason::Syscall {
                    self.signalled(stopped)?;
                    continue;
                }
                let running = stopped.resume(Resume::Syscall, 0)?;
                self.sleep(running)?;
                continue;
            }
            let stopped = self.go(stopped, Resume::IntoHandler, 0)?;
            match stopped.reason {
                StopReason::Signal(libc::SIGTRAP) if is_step(&stopped)? => {
                    self.thread = Some(stopped);
                }
                StopReason::Signal(libc::SIGTRAP) => {
                    let stopped = self.through(stopped, libc::SIGTRAP)?;
                    self.thread = Some(stopped);
                }
                _ => self.signalled(stopped)?,
            }
        }
    }

    pub(super) fn signalled(&mut self, stopped: Stopped) -> Result<()> {
        match stopped.reason {
            StopReason::Signal(signal) => {
                self.deliver(stopped, signal)?;
            }
            _ => self.thread = Some(stopped),
        }
        Ok(())
    }

    /// Lets the thread run its own code until it stops for a signal or is to be stopped; false behind the latter.
    pub(super) fn meanwhile(&mut self) -> Result<(Stopped, bool)> {
        let mut running = self.take().resume(Resume::Continue, 0)?;
        let mut more = true;
        loop {
            self.stops += 1;
            let waited = match more {
                true => self.control.wait(running)?,
                false => Waited::Event(running.wait()?),
            };
            let stopped = match waited {
                Waited::Event(Event::Stopped(stopped)) => stopped,
                Waited::Event(event) => return Err(Stop::End(WindowEnd::Gone(event))),
                Waited::User(still) | Waited::Leave(still) => {
                    still.interrupt()?;
                    (running, more) = (still, false);
                    continue;
                }
            };
            running = match stopped.reason {
                StopReason::Signal(_) => {
                    // There is more than one stop to each, and the next may come soon.
                    near::go_to(self.tid);
                    return Ok((stopped, more));
                }
                StopReason::Exiting => return Err(Stop::End(WindowEnd::Exiting(stopped))),
                StopReason::Exec => return Err(Stop::End(WindowEnd::Exec(stopped))),
                _ if !more => return Ok((stopped, more)),
                StopReason::Group => stopped.resume(Resume::Listen, 0)?,
                _ => stopped.resume(Resume::Continue, 0)?,
            };
        }
    }

    /// Waits for a thread in a system call of its own.
    pub(super) fn sleep(&mut self, running: Running) -> Result<()> {
        let (running, why) = match self.control.wait(running)? {
            Waited::Event(Event::Stopped(stopped)) => match stopped.reason {
                StopReason::Exiting => return Err(Stop::End(WindowEnd::Exiting(stopped))),
                StopReason::Exec => return Err(Stop::End(WindowEnd::Exec(stopped))),
                StopReason::Group => {
                    let running = stopped.resume(Resume::Listen, 0)?;
                    return self.sleep(running);
                }
                StopReason::Interrupt | StopReason::Other(_) => {
                    let running = stopped.resume(Resume::Syscall, 0)?;
                    return self.sleep(running);
                }
                _ => return self.signalled(stopped),
            },
            Waited::Event(event) => return Err(Stop::End(WindowEnd::Gone(event))),
            Waited::User(running) => (running, USER),
            Waited::Leave(running) => (running, WAITS),
        };
        running.interrupt()?;
        match running.wait()? {
            Event::Stopped(stopped) => match stopped.reason {
                StopReason::Exiting => return Err(Stop::End(WindowEnd::Exiting(stopped))),
                StopReason::Signal(_) => self.signalled(stopped)?,
                _ => self.thread = Some(stopped),
            },
            event => return Err(Stop::End(WindowEnd::Gone(event))),
        }
        Err(Stop::Close(why))
    }
}

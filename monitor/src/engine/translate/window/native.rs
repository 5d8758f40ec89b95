//! The thread at its own registers during a window: system calls, handlers, restartable sequences.

use super::super::trace::SYSCALL_LENGTH;
use super::signal::stopped_by_signal;
use super::{At, Control, Next, SPACE_LIMITED, Translate, Waited, WindowEnd};
use crate::observe::Observer;
use crate::tracee::remote::is_at_call;
use crate::tracee::sequence;
use crate::tracee::stops::leave_kernel;
use crate::tracee::{Event, Regs, Result, Resume, Running, StopReason, Stopped, hub, procinfo};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// How long a thread that is asked to stop natively is waited for.
const UNINTERRUPTED: Duration = Duration::from_millis(500);

impl Translate {
    /// Waits for a thread outside of the cache. Only one in a system call may be left there: any other
    /// has a stop to come that nobody else could tell from the program's own doing. One that goes on from a signal that
    /// it ignores, or from a stop that was taken back, need not come to any for as long as it makes no call: it is stopped.
    pub(super) fn wait_natively(
        &mut self,
        control: &mut impl Control,
        mut running: Running,
        in_call: bool,
        handler: bool,
    ) -> Result<Waited> {
        loop {
            match control.wait(running)? {
                Waited::Leave(same) if !in_call => {
                    if !handler && procinfo::is_ready(same.tid()) {
                        same.interrupt()?;
                    }
                    running = same;
                }
                waited => return Ok(waited),
            }
        }
    }

    /// Whether the thread is inside a restartable sequence (rseq(2)), which must not be moved. Notes
    /// where it would announce one.
    pub(super) fn in_restartable_sequence(&mut self, stopped: &Stopped, regs: &Regs) -> bool {
        let Some(word) = sequence::word(stopped.tid()) else {
            return false;
        };
        self.code
            .set_rseq(Some(word.wrapping_sub(regs.fs_base) as i64));
        // It may be about to, with what names the sequence in a register by now.
        let gprs = [
            regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp, regs.r8, regs.r9,
            regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
        ];
        for value in gprs {
            self.code.note_description(value, regs.rip);
        }
        sequence::abort_of(stopped, regs).is_some()
    }

    /// The user ended the window while the thread was at its own registers. `handler`: it was to step into one.
    pub(super) fn finish_native(
        &mut self,
        stopped: Stopped,
        handler: bool,
        observer: &mut Observer,
    ) -> Result<Next> {
        self.drain(self.log_pointer(), None, observer);
        let end = match stopped.reason {
            StopReason::Exec => WindowEnd::Exec(stopped),
            StopReason::Exiting => WindowEnd::Exiting(stopped),
            // The step has come to its end: no signal of the program's.
            StopReason::Signal(libc::SIGTRAP) if handler => {
                WindowEnd::Closed(Stopped::of(stopped.tid(), StopReason::Other(0)))
            }
            StopReason::Signal(signal) => stopped_by_signal(stopped, signal),
            StopReason::Group => return stopped_with_its_process(stopped),
            _ => WindowEnd::Closed(stopped),
        };
        Ok(Next::End(end))
    }

    /// Asks a thread outside of the cache to stop, as the user has ended the window: its end there. One that does not come to a stop in time, as in a
    /// call that is not interrupted, is left in it.
    pub(super) fn end_natively(
        &mut self,
        mut running: Running,
        handler: bool,
        observer: &mut Observer,
    ) -> Result<Next> {
        let begun = Instant::now();
        running.interrupt()?;
        loop {
            running = match running.poll()? {
                Ok(Event::Stopped(stopped)) => {
                    return self.finish_native(stopped, handler, observer);
                }
                Ok(gone) => return Ok(Next::End(WindowEnd::Gone(gone))),
                Err(running) if !handler && begun.elapsed() > UNINTERRUPTED => {
                    self.drain(self.log_pointer(), None, observer);
                    hub::left_in_call(running.tid());
                    return Ok(Next::End(WindowEnd::Left(running)));
                }
                Err(running) => running,
            };
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The thread is at a `syscall` instruction of its own, with `regs` of its own.
    pub(super) fn program_syscall(
        &mut self,
        stopped: Stopped,
        mut regs: Regs,
        observer: &mut Observer,
    ) -> Result<Next> {
        const ENOSYS: i64 = 38;
        if !self.by_syscall {
            // The call that leaves is skipped, whatever its number: the thread makes its own next.
            regs.orig_rax = u64::MAX;
            stopped.set_regs(&regs)?;
            let running = stopped.resume_here(Resume::Syscall, 0)?;
            return Ok(Next::Go(At::Native {
                running,
                syscall: None,
                handler: false,
            }));
        }
        // The call that leaves becomes the program's: registers as the processor and the kernel leave
        // them at the entry of a system call made at the original address.
        let number = regs.rax;
        regs.rip += SYSCALL_LENGTH;
        regs.rcx = regs.rip;
        regs.r11 = regs.eflags;
        regs.orig_rax = number;
        regs.rax = (-ENOSYS) as u64;
        stopped.set_regs(&regs)?;
        self.syscall_entry(stopped, regs, observer)
    }

    /// The thread is stopped at the entry of its own system call.
    pub(super) fn syscall_entry(
        &mut self,
        stopped: Stopped,
        regs: Regs,
        observer: &mut Observer,
    ) -> Result<Next> {
        let number = regs.orig_rax as i64;
        if number == libc::SYS_exit || number == libc::SYS_exit_group {
            self.drain(self.log_pointer(), None, observer);
            return Ok(Next::End(WindowEnd::Exiting(stopped)));
        }
        if number == libc::SYS_execve || number == libc::SYS_execveat {
            self.drain(self.log_pointer(), None, observer);
        }
        let running = stopped.resume_here(Resume::Syscall, 0)?;
        Ok(Next::Go(At::Native {
            running,
            syscall: Some((regs.orig_rax, regs)),
            handler: false,
        }))
    }

    /// What a finished system call means for translated code.
    pub(super) fn after_syscall(&mut self, tid: Pid, number: u64, args: &Regs, accesses: u64) {
        let (address, length) = (args.rdi, args.rsi);
        let ours = match number as i64 {
            libc::SYS_mremap => self.is_ours(address, length) || self.is_ours(args.r8, args.rdx),
            libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                self.is_ours(address, length)
            }
            _ => false,
        };
        if ours {
            self.code.set_stale();
        }
        match number as i64 {
            libc::SYS_mmap
                if args.rdx & libc::PROT_EXEC as u64 != 0
                    && args.r10 & libc::MAP_FIXED as u64 != 0
                    && self.code.holds_stable_code(address, length) =>
            {
                self.code.set_replaced();
            }
            libc::SYS_mmap if args.rdx & libc::PROT_EXEC as u64 != 0 => self.code.set_stale(),
            // What is written there, by and by, shows where the file is code.
            libc::SYS_mmap
                if args.r10 & libc::MAP_SHARED as u64 != 0 && self.code.is_of(tid, args.r8) =>
            {
                self.code.set_stale();
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect
                if args.rdx & libc::PROT_WRITE as u64 != 0
                    && self.code.shows_code(address, length) =>
            {
                self.code.set_stale();
            }
            libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_mremap
            | libc::SYS_pkey_mprotect
                if self.code.holds_code(address, length) =>
            {
                self.code.set_stale();
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect
                if args.rdx & libc::PROT_EXEC as u64 != 0 =>
            {
                self.code.set_stale();
            }
            libc::SYS_mremap if self.code.holds_code(args.r8, args.rdx) => self.code.set_stale(),
            libc::SYS_shmat | libc::SYS_shmdt | libc::SYS_remap_file_pages => {
                self.code.set_stale();
            }
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendfile
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
                if self.code.is_of(tid, address) =>
            {
                self.code.set_replaced();
            }
            libc::SYS_copy_file_range | libc::SYS_splice if self.code.is_of(tid, args.rdx) => {
                self.code.set_replaced();
            }
            libc::SYS_truncate | libc::SYS_creat | libc::SYS_openat2 => self.code.set_unseen(),
            libc::SYS_open if args.rsi & libc::O_TRUNC as u64 != 0 => self.code.set_unseen(),
            libc::SYS_openat if args.rdx & libc::O_TRUNC as u64 != 0 => self.code.set_unseen(),
            libc::SYS_rt_sigreturn => self.storm.goes_on(accesses),
            _ => {}
        }
    }

    pub(super) fn stopped_natively(
        &mut self,
        stopped: Stopped,
        syscall: Option<(u64, Regs)>,
        (handler, late): (bool, bool),
        observer: &mut Observer,
    ) -> Result<Next> {
        self.follow_thread(stopped.tid());
        let go = |running, syscall| {
            Ok(Next::Go(At::Native {
                running,
                syscall,
                handler: false,
            }))
        };
        match stopped.reason {
            StopReason::Syscall => {
                let regs = stopped.regs()?;
                match syscall {
                    // The exit of a skipped call.
                    None if regs.orig_rax == u64::MAX => {
                        go(stopped.resume_here(Resume::Syscall, 0)?, None)
                    }
                    None => self.syscall_entry(stopped, regs, observer),
                    Some((number, args)) => {
                        self.after_syscall(stopped.tid(), number, &args, observer.accesses());
                        if limits_space(number, &args) && hub::take_space(stopped.tid(), 0).is_err()
                        {
                            self.drain(self.log_pointer(), None, observer);
                            return Ok(Next::End(WindowEnd::Declined(stopped, SPACE_LIMITED)));
                        }
                        if sets_filter(number, &args) {
                            // It may have put one on other threads too (seccomp(2), SECCOMP_FILTER_FLAG_TSYNC).
                            self.filtered.clear();
                            if let Some(reason) = self.look_at_filters(&stopped) {
                                self.drain(self.log_pointer(), None, observer);
                                return Ok(Next::End(WindowEnd::Declined(stopped, reason)));
                            }
                        }
                        if let Some(reason) = stopped.must_leave_after(number, &args) {
                            self.drain(self.log_pointer(), None, observer);
                            return Ok(Next::End(WindowEnd::Declined(stopped, reason)));
                        }
                        if will_restart(&regs) {
                            return go(stopped.resume_here(Resume::Syscall, 0)?, None);
                        }
                        // Its call is over, and nothing of it is to be stepped over.
                        let stopped = stopped.without_call();
                        if late {
                            self.drain(self.log_pointer(), None, observer);
                            return Ok(Next::End(WindowEnd::Closed(stopped)));
                        }
                        self.enter(stopped, regs, observer, Resume::Syscall)
                    }
                }
            }
            StopReason::Signal(libc::SIGTRAP) if handler => {
                let regs = stopped.regs()?;
                self.enter(stopped, regs, observer, Resume::SyscallEmulated)
            }
            StopReason::Signal(signal) => {
                self.stats.signals += 1;
                self.deliver(stopped, signal, observer)
            }
            StopReason::Exiting => {
                self.drain(self.log_pointer(), None, observer);
                Ok(Next::End(WindowEnd::Exiting(stopped)))
            }
            StopReason::Exec => Ok(Next::End(WindowEnd::Exec(stopped))),
            StopReason::Group => {
                self.drain(self.log_pointer(), None, observer);
                stopped_with_its_process(stopped)
            }
            // About to make the call it was let go for. A filtered thread would be let go for it again from the cache, and so on.
            StopReason::Interrupt
                if syscall.is_none()
                    && !handler
                    && self.is_filtered(stopped.tid())
                    && is_at_call(&stopped) =>
            {
                go(stopped.resume_here(Resume::Syscall, 0)?, None)
            }
            // By `wait_natively`: on its way in its own code. It may be about to make the call it was let go for, which becomes its own then: were
            // that refused again it might never come to make it.
            StopReason::Interrupt if syscall.is_none() && !handler && leave_kernel(&stopped) => {
                let regs = stopped.regs()?;
                if self.in_restartable_sequence(&stopped, &regs) {
                    return self.decline(stopped, regs, observer, "a restartable sequence");
                }
                self.enter(stopped, regs, observer, Resume::Syscall)
            }
            _ => go(stopped.resume_here(Resume::Syscall, 0)?, syscall),
        }
    }
}

/// Leaves a thread at its own registers that was stopped like all of its process: who is to let it go on may be among those
/// that wait for their turn.
pub(super) fn stopped_with_its_process(stopped: Stopped) -> Result<Next> {
    Ok(Next::End(WindowEnd::Left(
        stopped.resume(Resume::Listen, 0)?,
    )))
}

/// Whether a system call puts a filter on system calls (seccomp(2)).
fn sets_filter(number: u64, args: &Regs) -> bool {
    match number as i64 {
        libc::SYS_seccomp => true,
        libc::SYS_prctl => args.rdi == libc::PR_SET_SECCOMP as u64,
        _ => false,
    }
}

/// Whether a system call sets the limit of the address space (setrlimit(2)): of this process, most likely.
fn limits_space(number: u64, args: &Regs) -> bool {
    let space = u64::from(libc::RLIMIT_AS);
    match number as i64 {
        libc::SYS_setrlimit => args.rdi == space,
        libc::SYS_prlimit64 => args.rsi == space && args.rdx != 0,
        _ => false,
    }
}

/// Whether the system call of this number may change what is mapped or may be, or how calls are filtered.
pub(super) fn may_remap(number: u64) -> bool {
    matches!(
        number as i64,
        libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_mremap
            | libc::SYS_pkey_mprotect
            | libc::SYS_shmat
            | libc::SYS_shmdt
            | libc::SYS_remap_file_pages
            | libc::SYS_setrlimit
            | libc::SYS_prlimit64
            | libc::SYS_seccomp
            | libc::SYS_prctl
    )
}

/// Whether the thread is at the end of a system call that has woken one that slept: futex(2) says so.
pub(super) fn has_woken(stopped: &Stopped, syscall: Option<(u64, Regs)>) -> Result<bool> {
    let Some((number, args)) = syscall else {
        return Ok(false);
    };
    // futex_wake and futex_requeue (linux/futex.h, since 6.7).
    const FUTEX_WAKE: i64 = 454;
    const FUTEX_REQUEUE: i64 = 456;
    // From which result on: who gives a lock to the one that waits for it is not told whether there was one.
    let least = match number as i64 {
        libc::SYS_futex => match args.rsi as i32 & libc::FUTEX_CMD_MASK {
            libc::FUTEX_WAKE
            | libc::FUTEX_WAKE_BITSET
            | libc::FUTEX_WAKE_OP
            | libc::FUTEX_REQUEUE
            | libc::FUTEX_CMP_REQUEUE => 1,
            libc::FUTEX_UNLOCK_PI => 0,
            _ => return Ok(false),
        },
        FUTEX_WAKE | FUTEX_REQUEUE => 1,
        _ => return Ok(false),
    };
    Ok(stopped.reason == StopReason::Syscall && stopped.regs()?.rax as i64 >= least)
}

/// Whether the kernel will make the call again, or let a handler decide (`ERESTART*`, 512 to 516).
pub(super) fn will_restart(regs: &Regs) -> bool {
    (512..=516).contains(&(-(regs.rax as i64)))
}

//! System calls in a window: run without stepping, as a step would leave the trap flag in r11.

use super::signals::{SIGTRAP_BIT, deliver};
use super::{After, End, Limits, Turn};
use crate::tracee::{Event, Regs, Result, Resume, Running, StopReason, Stopped};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Results by which the kernel remembers that an interrupted call may start over. Source: linux/errno.h.
const RESTARTS: RangeInclusive<i64> = -516..=-512;
/// `ERESTART_RESTARTBLOCK`: starts over as `restart_syscall`.
const RESTART_BLOCK: i64 = -516;

/// Whether the thread is stopped in the return from a call that a signal interrupted, and that starts over unless a
/// handler runs.
pub fn restart_pending(regs: &Regs) -> bool {
    regs.orig_rax as i64 >= 0 && RESTARTS.contains(&(regs.rax as i64))
}

/// Registers as the kernel would set them to start the call over: at the `syscall` instruction. Where nothing is
/// to be started over, the same registers. Either way `orig_rax` says that the thread is in no system call.
pub fn restarted(regs: &Regs) -> Regs {
    let mut regs = *regs;
    if restart_pending(&regs) {
        let restart_block = regs.rax as i64 == RESTART_BLOCK;
        regs.rip -= 2;
        regs.rax = if restart_block {
            libc::SYS_restart_syscall as u64
        } else {
            regs.orig_rax
        };
    }
    regs.orig_rax = u64::MAX;
    regs
}

/// Whether the system call that the thread is about to make must not be made inside of a window: it would have another
/// process or image step on, or change what becomes of SIGTRAP or of injected calls.
pub fn ends_window(stopped: &Stopped, regs: &Regs) -> bool {
    const PR_SET_SECCOMP: u64 = 22;
    match regs.rax as i64 {
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_exit
        | libc::SYS_exit_group
        | libc::SYS_ptrace
        | libc::SYS_seccomp => true,
        libc::SYS_prctl => regs.rdi == PR_SET_SECCOMP,
        libc::SYS_rt_sigaction => regs.rdi == libc::SIGTRAP as u64,
        libc::SYS_rt_sigprocmask => {
            let mut set = [0; 8];
            let unblocks = regs.rdi == libc::SIG_UNBLOCK as u64;
            regs.rsi != 0
                && !unblocks
                && stopped.read(regs.rsi, &mut set).is_ok()
                && u64::from_le_bytes(set) & SIGTRAP_BIT != 0
        }
        _ => false,
    }
}

/// Whether the call may have changed the signal mask, or where restartable sequences are announced.
pub fn may_unmask(number: u64) -> bool {
    [libc::SYS_rt_sigreturn, libc::SYS_rseq].contains(&(number as i64))
}

/// Runs the system call that the thread is about to make or to start over.
pub fn run(stopped: Stopped, limits: &Limits<'_>) -> Result<Turn> {
    let mut entered = false;
    let mut running = stopped.resume(Resume::Syscall, 0)?;
    loop {
        let stopped = match wait(running, limits)? {
            Event::Stopped(stopped) => stopped,
            Event::Exited(status) => return Ok(Turn::Over(After::Exited(status))),
            Event::Killed(signal) => return Ok(Turn::Over(After::Killed(signal))),
        };
        match stopped.reason {
            StopReason::Syscall if entered => return Ok(Turn::Go(stopped)),
            StopReason::Syscall => {
                entered = true;
                running = stopped.resume(Resume::Syscall, 0)?;
            }
            StopReason::Signal(signal) => return Ok(deliver(stopped, signal)?.turn()),
            StopReason::Interrupt => return Ok(Turn::Interrupted(stopped)),
            StopReason::Group => running = stopped.resume(Resume::Listen, 0)?,
            StopReason::Exiting => {
                return Ok(Turn::Over(After::Stopped(stopped, End::Exiting)));
            }
            StopReason::Exec | StopReason::Other(_) => {
                running = stopped.resume(Resume::Syscall, 0)?;
            }
        }
    }
}

/// Waits for a thread in a system call, which may last; interrupts it when the window is to stop.
fn wait(mut running: Running, limits: &Limits<'_>) -> Result<Event> {
    /// Longest pause between two looks: guessed, small against a user's patience.
    const LONGEST: Duration = Duration::from_millis(5);
    if limits.stop.is_none() {
        return running.wait();
    }
    let mut pause = Duration::from_micros(5);
    let mut interrupted = false;
    loop {
        running = match running.poll()? {
            Ok(event) => return Ok(event),
            Err(running) => running,
        };
        if limits.stop_asked() && !interrupted {
            running.interrupt()?;
            interrupted = true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
}

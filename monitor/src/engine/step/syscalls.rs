//! System calls in a window: run without stepping, as a step would leave the trap flag in r11.

use super::signals::{SIGTRAP_BIT, deliver};
use super::{After, End, Limits, Turn};
pub use crate::tracee::remote::{restart_pending, restarted};
use crate::tracee::{Event, Regs, Result, Resume, Running, StopReason, Stopped};
use std::time::Duration;

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

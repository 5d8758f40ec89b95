//! Signals in a window: a step's own trap, and everybody else's, which go to the program at once.

use super::flags::may_be_stepped_into_handler;
use super::{After, End, Turn};
use crate::tracee::{Event, Result, Resume, StopReason, Stopped, status};
use nix::unistd::Pid;

/// `si_code` of the trap after a single step.
pub const TRAP_TRACE: i32 = 2;
/// What some virtual machines make of it after a store to a page that was fetched from: the exception comes without the
/// reason "single step". An `int3` has another code (`SI_KERNEL`), and `int1` is not stepped.
pub const TRAP_BRKPT: i32 = 1;
/// Bit of SIGTRAP in a signal set.
pub const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// What became of a signal.
pub enum Delivered {
    /// The thread is stopped at the first instruction of its handler.
    InHandler(Stopped),
    /// Nothing will run because of it; the thread is stopped where it was.
    NotHandled(Stopped),
    /// The window is over.
    Over(After),
}

impl Delivered {
    /// What the window's loop does next.
    pub fn turn(self) -> Turn {
        match self {
            Delivered::InHandler(stopped) => unless_blocked(stopped),
            Delivered::NotHandled(stopped) if stopped.reason == StopReason::Interrupt => {
                Turn::Interrupted(stopped)
            }
            Delivered::NotHandled(stopped) => Turn::Go(stopped),
            Delivered::Over(after) => Turn::Over(after),
        }
    }
}

/// Whether a SIGTRAP stop is the end of a single step, not a trap of the program's or somebody's signal.
pub fn is_step(stopped: &Stopped) -> Result<bool> {
    let code = stopped.siginfo()?.si_code;
    Ok(code == TRAP_TRACE || code == TRAP_BRKPT)
}

/// Delivers the signal that `stopped` stopped for.
///
/// Where a handler runs, the thread is stopped at its start: the kernel has done by then whatever the signal meant
/// for an interrupted system call. Ignored signals are dropped, which is what ignoring them does; stopping ones stop the thread
/// until it is continued; any other ends it.
pub fn deliver(stopped: Stopped, signal: i32) -> Result<Delivered> {
    const DEFAULT_STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let sets = status::signal_sets(stopped.tid()).unwrap_or_default();
    // A SIGTRAP that is not a step's is the program's own, and its handler is ours: it must not get there.
    if signal == libc::SIGTRAP {
        return Ok(Delivered::Over(After::Stopped(stopped, End::Trap)));
    }
    let handled = sets.catches(signal);
    if sets.ignores(signal) {
        return Ok(Delivered::NotHandled(stopped));
    }
    let mut running = if handled || DEFAULT_STOPS.contains(&signal) {
        let how = match may_be_stepped_into_handler(&stopped, signal)? {
            true => Resume::IntoHandler,
            false => Resume::Syscall,
        };
        stopped.resume(how, signal)?
    } else {
        stopped.resume(Resume::Continue, signal)?
    };
    loop {
        let stopped = match running.wait()? {
            Event::Stopped(stopped) => stopped,
            Event::Exited(status) => return Ok(Delivered::Over(After::Exited(status))),
            Event::Killed(signal) => return Ok(Delivered::Over(After::Killed(signal))),
        };
        match stopped.reason {
            StopReason::Signal(libc::SIGTRAP) if handled => {
                return Ok(Delivered::InHandler(stopped));
            }
            StopReason::Group => running = stopped.resume(Resume::Listen, 0)?,
            StopReason::Exiting => {
                return Ok(Delivered::Over(After::Stopped(stopped, End::Exiting)));
            }
            StopReason::Interrupt => return Ok(Delivered::NotHandled(stopped)),
            _ => {
                return Ok(Delivered::Over(After::Stopped(
                    stopped,
                    End::Declined("signal with an unforeseen effect"),
                )));
            }
        }
    }
}

/// Whether a SIGTRAP is waiting to be delivered to the thread.
pub fn trap_queued(tid: Pid) -> bool {
    status::signal_sets(tid).is_some_and(|sets| sets.waits_for(libc::SIGTRAP))
}

/// Goes on if SIGTRAP is not blocked.
pub fn unless_blocked(stopped: Stopped) -> Turn {
    let sets = status::signal_sets(stopped.tid()).unwrap_or_default();
    if sets.blocked & SIGTRAP_BIT == 0 {
        Turn::Go(stopped)
    } else {
        Turn::Over(After::Stopped(
            stopped,
            End::Declined("the program blocks SIGTRAP"),
        ))
    }
}

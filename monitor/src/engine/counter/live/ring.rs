//! A stopped thread put into the shim, to serve the request in the block, and back to where it was.
//!
//! No signal is used: each is the program's (`preload/src/requests/rung.rs` says what goes wrong). Its registers are changed while it is
//! stopped; what it does in the shim it does with all signals blocked, and from there it goes home by itself, should we be
//! gone. Where it slept in a system call the kernel is left to decide what becomes of that, with a signal that has come meanwhile or
//! without: made again, gone on with, or failed with `EINTR`.
//!
//! Source: ptrace(2); signal(7), "Interruption of system calls and library functions by signal handlers".

use crate::engine::counter::shim::{HOME, Shim};
use crate::tracee::remote::{restart_pending, restarted};
use crate::tracee::{Event, Regs, Result, Resume, StopReason, Stopped, hub};

/// What came of it.
#[derive(Debug)]
pub enum Rung {
    /// It has served the request, and is stopped at its own registers.
    Served(Stopped),
    /// It is about to get a signal, at its own registers, and has not served the request.
    Signal(Stopped, i32),
    /// It is gone, or on its way out, or another program's.
    Gone(Event),
}

fn to_home(regs: &Regs) -> [u64; HOME] {
    [
        regs.r8,
        regs.r9,
        regs.r10,
        regs.r11,
        regs.r12,
        regs.r13,
        regs.r14,
        regs.r15,
        regs.rdi,
        regs.rsi,
        regs.rbp,
        regs.rbx,
        regs.rdx,
        regs.rax,
        regs.rcx,
        regs.rsp,
        regs.rip,
        regs.eflags,
    ]
}

fn from_home(home: [u64; HOME], regs: Regs) -> Regs {
    let [r8, r9, r10, r11, r12, r13, r14, r15, rest @ ..] = home;
    let [rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags] = rest;
    Regs {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        eflags,
        orig_rax: u64::MAX,
        ..regs
    }
}

/// Whether a thread with these registers can be put into the shim: not where it is there already, in a handler.
pub fn is_free(regs: &Regs, shim: &Shim, image: &[std::ops::Range<u64>]) -> bool {
    shim.stubs().contains(&regs.rip) || !image.iter().any(|part| part.contains(&regs.rip))
}

/// Has `stopped` serve the request that has been left in the block.
///
/// # Errors
/// What ptrace refuses.
pub fn ring(stopped: Stopped, shim: &Shim) -> Result<Rung> {
    let asleep = stopped.regs()?;
    let sleeps = restart_pending(&asleep);
    let start = restarted(&asleep);
    shim.set_home(
        &to_home(&start),
        sleeps.then(|| hub::call_of(stopped.tid(), asleep.orig_rax)),
    );
    // As the kernel left it, wherever it goes on: it is told that the call was interrupted, not that it is to be made.
    let home = || {
        let home = from_home(shim.home(), start);
        match sleeps {
            true => Regs {
                rip: home.rip + 2,
                rax: asleep.rax,
                orig_rax: asleep.orig_rax,
                ..home
            },
            false => home,
        }
    };
    let [code, stack, end] = shim.ring();
    stopped.set_regs(&Regs {
        rip: code,
        rsp: stack,
        ..start
    })?;
    let (mut stopped, mut how, mut inside) = (stopped, Resume::Syscall, false);
    loop {
        stopped = match stopped.resume_near(how, 0)?.wait_near()? {
            Event::Stopped(stopped) if !stopped.is_replaced() => stopped,
            event => return Ok(Rung::Gone(event)),
        };
        how = Resume::Syscall;
        match stopped.reason {
            StopReason::Syscall => {
                inside = !inside;
                if !inside && stopped.regs()?.rip == end {
                    break;
                }
            }
            // All are blocked from its first system call on.
            StopReason::Signal(signal) => {
                stopped.set_regs(&home())?;
                return Ok(Rung::Signal(stopped, signal));
            }
            StopReason::Group => how = Resume::Listen,
            _ => {}
        }
    }
    if !sleeps {
        stopped.set_regs(&home())?;
        return Ok(Rung::Served(stopped));
    }
    // The kernel looks at the registers of an interrupted call where it looks for signals: another stop brings the thread there,
    // before its next instruction.
    stopped.set_regs(&from_home(shim.home(), start))?;
    stopped.interrupt()?;
    match stopped.resume_near(Resume::Continue, 0)?.wait_near()? {
        Event::Stopped(stopped) if !stopped.is_replaced() => {
            stopped.set_regs(&home())?;
            Ok(Rung::Served(stopped))
        }
        event => Ok(Rung::Gone(event)),
    }
}

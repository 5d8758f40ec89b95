//! A stopped thread put into the shim, to serve the request in the block, and back to where it was.
//!
//! No signal is used: each is the program's (`preload/src/watchpoints/requests/rung.rs` says what goes wrong). Its registers are changed while it is
//! stopped; what it does in the shim it does with all signals blocked, and from there it goes home by itself, should we be
//! gone. Where it slept in a system call the kernel is left to decide what becomes of that, with a signal that has come meanwhile or
//! without: made again, gone on with, or failed with `EINTR`. The same where it was about to make one again for the shim.
//!
//! Source: ptrace(2); signal(7), "Interruption of system calls and library functions by signal handlers".

use super::SYSCALL_CODE;
use crate::engine::counter::shim::{HOME, Shim};
use crate::tracee::remote::{RESTART_BLOCK, is_made_again, restart_pending, restarted};
use crate::tracee::stops::ERESTARTNOHAND;
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

/// Code and stack segment of 64-bit code.
const SEGMENTS: (u64, u64) = (0x33, 0x2b);
/// TF, DF, NT, AC: code of ours would trap, copy backwards, or fault at a word that is not aligned.
const NOT_OURS: u64 = 0x100 | 0x400 | 0x4000 | 0x4_0000;

/// Whether a thread with these registers can be put into the shim: not where it is there already, in a handler, and not out of
/// 32-bit code, whose system calls have other numbers.
pub fn is_free(regs: &Regs, shim: &Shim, image: &[std::ops::Range<u64>]) -> bool {
    let here = |part: &std::ops::Range<u64>| part.contains(&regs.rip);
    regs.cs == SEGMENTS.0 && (shim.stubs().contains(&regs.rip) || !image.iter().any(here))
}

/// What the kernel finds in the registers of a thread that it is to take for interrupted in a system call.
struct Interrupted {
    number: u64,
    /// One of the errors by which the call is made again, or not.
    error: u64,
}

/// The call that `stopped` slept in, if it did. Where the kernel has already seen to it that a sleep goes on, and another stop came before
/// its `restart_syscall`, that is taken back: made by a handler's way home, the shim's too, it fails with `EINTR` (signal(7)).
fn interrupted(stopped: &Stopped, found: &Regs) -> Result<Option<Interrupted>> {
    if restart_pending(found) {
        return Ok(Some(Interrupted {
            number: found.orig_rax,
            error: found.rax,
        }));
    }
    let goes_on = found.rax == libc::SYS_restart_syscall as u64 && is_made_again(stopped, found);
    let known = found.orig_rax as i64 >= 0;
    Ok(goes_on.then_some(Interrupted {
        number: if known { found.orig_rax } else { found.rax },
        error: RESTART_BLOCK as u64,
    }))
}

/// Has `stopped` serve the request that has been left in the block.
///
/// # Errors
/// What ptrace refuses.
pub fn ring(stopped: Stopped, shim: &Shim) -> Result<Rung> {
    let found = stopped.regs()?;
    let asleep = interrupted(&stopped, &found)?;
    let start = restarted(&found);
    let call = asleep
        .as_ref()
        .map(|call| hub::call_of(stopped.tid(), call.number));
    shim.set_home(&to_home(&start), call);
    // Where it is in a call, as the kernel leaves it: that is told that the call was interrupted, not that it is to be made.
    let home = |call: &Option<Interrupted>| {
        let home = from_home(shim.home(), start);
        match call {
            Some(call) => Regs {
                rip: home.rip.wrapping_add(SYSCALL_CODE.len() as u64),
                rax: call.error,
                orig_rax: call.number,
                ..home
            },
            None => home,
        }
    };
    let [code, stack, end] = shim.ring();
    stopped.set_regs(&Regs {
        rip: code,
        rsp: stack,
        cs: SEGMENTS.0,
        ss: SEGMENTS.1,
        eflags: start.eflags & !NOT_OURS,
        ..start
    })?;
    let (mut stopped, mut how, mut signal) = (stopped, Resume::Syscall, 0);
    let (mut inside, mut blocks) = (false, false);
    loop {
        stopped = match stopped.resume_near(how, signal)?.wait_near()? {
            Event::Stopped(stopped) if !stopped.is_replaced() => stopped,
            event => return Ok(Rung::Gone(event)),
        };
        (how, signal) = (Resume::Syscall, 0);
        match stopped.reason {
            StopReason::Syscall => {
                // The first one blocks all signals.
                blocks = true;
                inside = !inside;
                if !inside && stopped.regs()?.rip == end {
                    break;
                }
            }
            StopReason::Signal(signal) if !blocks => {
                stopped.set_regs(&home(&asleep))?;
                return Ok(Rung::Signal(stopped, signal));
            }
            // SIGSTOP, which cannot be blocked: it goes on with the request when it is continued. (Or a fault of ours, its end.)
            StopReason::Signal(unblocked) => signal = unblocked,
            StopReason::Group => how = Resume::Listen,
            _ => {}
        }
    }
    let again = || {
        shim.home_call().map(|number| Interrupted {
            number,
            error: -ERESTARTNOHAND as u64,
        })
    };
    let call = asleep.or_else(again);
    stopped.set_regs(&home(&None))?;
    if call.is_none() {
        return Ok(Rung::Served(stopped));
    }
    // The kernel looks at the registers of an interrupted call where it looks for signals: another stop brings the thread there,
    // before its next instruction.
    stopped.interrupt()?;
    match stopped.resume_near(Resume::Continue, 0)?.wait_near()? {
        Event::Stopped(stopped) if !stopped.is_replaced() => {
            stopped.set_regs(&home(&call))?;
            Ok(Rung::Served(stopped))
        }
        event => Ok(Rung::Gone(event)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::{launch, procinfo};

    /// A sleep as a stop finds it, and as the next stop does where the kernel has seen to it that it goes on: it is the same sleep, and
    /// goes on as one.
    #[test]
    fn a_sleep_that_is_about_to_go_on_is_one_still() {
        let words = [c"sleep".into(), c"0.6".into()];
        let (_, running, _) = launch::launch(&c"/bin/sleep".into(), &words).expect("launched");
        let mut at = running.wait_to_stop();
        while at.reason != StopReason::Exec {
            at = at
                .resume(Resume::Continue, 0)
                .expect("resumed")
                .wait_to_stop();
        }
        let tid = at.tid();
        let asleep = || {
            procinfo::sleeps_in(tid).is_some_and(|(number, ..)| number == libc::SYS_clock_nanosleep)
        };
        let running = at.resume(Resume::Continue, 0).expect("resumed");
        while !asleep() {
            std::thread::yield_now();
        }
        running.interrupt().expect("asked");
        let at = running.wait_to_stop();
        let found = at.regs().expect("read");
        let told = interrupted(&at, &found).expect("read").expect("asleep");
        let number = libc::SYS_clock_nanosleep as u64;
        assert_eq!((told.number, told.error as i64), (number, RESTART_BLOCK));
        for orig_rax in [number, u64::MAX] {
            let goes_on = Regs {
                orig_rax,
                ..restarted(&found)
            };
            at.set_regs(&goes_on).expect("set");
            let told = interrupted(&at, &goes_on)
                .expect("read")
                .expect("asleep still");
            let known = if orig_rax == number {
                number
            } else {
                goes_on.rax
            };
            assert_eq!((told.number, told.error as i64), (known, RESTART_BLOCK));
            // Elsewhere it is a number in a register.
            let elsewhere = Regs {
                rip: goes_on.rip + 1,
                ..goes_on
            };
            assert!(interrupted(&at, &elsewhere).expect("read").is_none());
        }
        // As the ring leaves it.
        at.set_regs(&found).expect("set");
        let at = at
            .resume(Resume::Syscall, 0)
            .expect("resumed")
            .wait_to_stop();
        assert_eq!(
            at.regs().expect("read").orig_rax,
            libc::SYS_restart_syscall as u64
        );
        let at = at
            .resume(Resume::Syscall, 0)
            .expect("resumed")
            .wait_to_stop();
        assert_eq!(at.regs().expect("read").rax, 0);
        let end = at
            .resume(Resume::Continue, 0)
            .expect("resumed")
            .wait_to_stop();
        assert_eq!(end.reason, StopReason::Exiting);
        let end = end.resume(Resume::Continue, 0).expect("resumed").wait();
        assert!(matches!(end, Ok(Event::Exited(0))), "{end:?}");
    }
}

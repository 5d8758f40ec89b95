//! The `step` engine: a window of one thread, executed one instruction at a time.
//!
//! Slow (10 to 60 us an instruction) and exact: every instruction is decoded where it stands and its accesses
//! evaluated with the registers it is about to use. It is the oracle that the other engines must agree with. What
//! becomes of the accesses is the caller's business, as is when to open a window and what runs natively between two.
//!
//! Invariants:
//! * The program's own state is the only state: nothing is held back, so a window can end at any instruction.
//! * No thread is stepped without a SIGTRAP handler of ours behind it (`guard`): a step outlives the tracer that
//!   asked for it, and its trap would kill the program. Where the program handles or blocks SIGTRAP, or may be killed for
//!   an unexpected system call (seccomp), the window is declined; it ends before a system call that would change that.
//! * The trap flag never shows: `pushf` and `popf` are carried out by the monitor, `syscall` (which copies the flags to r11) is run
//!   without stepping.
//! * An instruction counts when it has completed, not when it faults. Each iteration of a `rep` is one step.
//! * Instructions of the vDSO are stepped but not reported (the definition of an access leaves them out).
//!
//! Source: ptrace(2); Intel SDM volume 3, 17.3.1.4 (single-step exception).

mod ahead;
pub(crate) mod decode;
pub mod flags;
mod guard;
pub(crate) mod registers;
mod signals;
mod syscalls;

use crate::arch::{Flow, Kind, evaluate};
use crate::observe::Access;
use crate::tracee::maps::Maps;
use crate::tracee::{Event, Regs, Result, Resume, StopReason, Stopped, TraceError, near};
use decode::Decoder;
use guard::Guard;
use registers::View;
use std::ops::Range;

/// Steps between two looks at which processor the thread runs on.
const STEPS_PER_MOVE: u64 = 1024;

/// When a window ends at the latest. Looked at between instructions (and iterations of a `rep`).
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Reported accesses.
    pub accesses: u64,
    /// Steps taken.
    pub steps: u64,
    /// Ends before a system call with this number.
    pub before_syscall: Option<u64>,
    /// Ends soon after this says so, even while the program waits in a system call.
    pub stop: Option<&'a dyn Fn() -> bool>,
}

impl Limits<'_> {
    /// No limit: until the program does what no window survives.
    pub const NONE: Limits<'static> = Limits {
        accesses: u64::MAX,
        steps: u64::MAX,
        before_syscall: None,
        stop: None,
    };

    fn stop_asked(&self) -> bool {
        self.stop.is_some_and(|stop| stop())
    }
}

/// Why a window ended with the thread alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A limit was reached.
    Limit,
    /// The next instruction is this system call, which must run natively or is the limit.
    Syscall(u64),
    /// The program cannot be stepped here; the next instruction must run natively.
    Declined(&'static str),
    /// [`Limits::stop`] was set, or the thread was continued after a stopping signal.
    Interrupted,
    /// A SIGTRAP of the program's own came; it is pending again and will be met at the next resume.
    Trap,
    /// The thread is about to exit.
    Exiting,
}

/// Where the thread is after a window.
#[derive(Debug)]
pub enum After {
    /// Stopped, at its own registers, free of anything of ours.
    Stopped(Stopped, End),
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
}

/// What a window saw.
#[derive(Debug)]
pub struct Window {
    /// Where the thread is now.
    pub after: After,
    /// Instructions executed, iterations of a `rep` one by one.
    pub steps: u64,
    /// Accesses reported.
    pub accesses: u64,
}

/// Steps windows of one process. Keeps what outlasts a window: decoded instructions, and where the guard lies.
pub struct Stepper {
    decoder: Decoder,
    guard: Guard,
    uncounted: Vec<Range<u64>>,
}

/// One turn of the loop.
enum Turn {
    /// The thread is stopped before its next instruction.
    Go(Stopped),
    /// As `Go`, and somebody asked it to stop.
    Interrupted(Stopped),
    /// The window is over.
    Over(After),
}

impl Stepper {
    /// A stepper for a process that has not been stepped since its last `execve`.
    pub fn new() -> Stepper {
        Stepper {
            decoder: Decoder::new(),
            guard: Guard::new(),
            uncounted: Vec::new(),
        }
    }

    /// Executes a window of `stopped`, whose process has no other thread running, and hands every access to `sink` in
    /// program order.
    ///
    /// The thread must be in user mode: stopped by a signal that is not to be delivered, by an interrupt, or at the exit
    /// of a system call (not at an entry, and not at the exec event).
    ///
    /// # Errors
    /// What ptrace or the injected calls refuse. A thread that is gone is no error where waiting tells its end.
    pub fn window(
        &mut self,
        stopped: Stopped,
        limits: &Limits<'_>,
        mut sink: impl FnMut(Access),
    ) -> Result<Window> {
        let mut window = Window {
            after: After::Exited(0),
            steps: 0,
            accesses: 0,
        };
        let tid = stopped.tid();
        let maps = read_maps(&stopped)?;
        self.uncounted = maps.uncounted();
        let mut turn = self.guard.install(stopped, &maps)?;
        let mut interrupted = false;
        let stopped = loop {
            let stopped = match turn {
                Turn::Go(stopped) => stopped,
                Turn::Interrupted(stopped) => {
                    interrupted = true;
                    stopped
                }
                Turn::Over(after) => break after,
            };
            if window.steps.is_multiple_of(STEPS_PER_MOVE) {
                near::go_to(tid);
            }
            let regs = stopped.regs()?;
            if syscalls::restart_pending(&regs) && !interrupted {
                turn = syscalls::run(stopped, limits)?;
                continue;
            }
            let end = if interrupted || limits.stop_asked() {
                Some(End::Interrupted)
            } else if window.accesses >= limits.accesses || window.steps >= limits.steps {
                Some(End::Limit)
            } else {
                None
            };
            if let Some(end) = end {
                break After::Stopped(stopped, end);
            }
            turn = self.instruction(stopped, &regs, limits, &mut window, &mut sink)?;
        };
        window.after = match stopped {
            After::Stopped(stopped, end) if end != End::Exiting => {
                self.guard.remove(stopped, end)?
            }
            after => after,
        };
        Ok(window)
    }

    /// Executes the instruction at `regs.rip`.
    fn instruction(
        &mut self,
        stopped: Stopped,
        regs: &Regs,
        limits: &Limits<'_>,
        window: &mut Window,
        sink: &mut impl FnMut(Access),
    ) -> Result<Turn> {
        let declined =
            |stopped, reason| Ok(Turn::Over(After::Stopped(stopped, End::Declined(reason))));
        let decoded = match self.decoder.at(&stopped, regs.rip) {
            Ok(decoded) => decoded,
            Err(reason) => return declined(stopped, reason),
        };
        if let Flow::Syscall = decoded.flow {
            let number = regs.rax;
            if limits.before_syscall == Some(number) || syscalls::ends_window(&stopped, regs) {
                return Ok(Turn::Over(After::Stopped(stopped, End::Syscall(number))));
            }
            window.steps += 1;
            let turn = syscalls::run(stopped, limits)?;
            return Ok(match turn {
                Turn::Go(stopped) if syscalls::may_unmask(number) => {
                    self.guard.forget_critical_section();
                    signals::unless_blocked(stopped)
                }
                turn => turn,
            });
        }
        let reported = !self.uncounted.iter().any(|code| code.contains(&regs.rip));
        let mut touched = Vec::with_capacity(2);
        let view = View::new(&stopped, regs);
        for access in &decoded.accesses {
            for (address, size) in evaluate(access, &view) {
                touched.push(Access {
                    ip: regs.rip,
                    address,
                    size,
                    load: access.kind != Kind::Store,
                    store: access.kind != Kind::Load,
                });
            }
        }
        view.result()?;
        if touched
            .iter()
            .any(|access| access.store && self.guard.starts_critical_section(&stopped, access))
        {
            return declined(stopped, "restartable sequence");
        }
        let mut report = || {
            window.steps += 1;
            if reported {
                window.accesses += touched.len() as u64;
                touched.iter().copied().for_each(&mut *sink);
            }
        };
        if let Some(word) = decoded.flags_word {
            if !word.carry_out(&stopped, regs, decoded.len)? {
                return declined(stopped, "flags word out of reach");
            }
            report();
            return Ok(Turn::Go(stopped));
        }
        let revealing = ahead::revealing(&mut self.decoder, &decoded, &stopped, regs);
        self.guard.announce(&stopped, revealing)?;
        // `IntoHandler` is the plain single step where no signal comes with it.
        let mut running = stopped.resume(Resume::IntoHandler, 0)?;
        let mut interrupted = false;
        loop {
            let stopped = match running.wait()? {
                Event::Stopped(stopped) => stopped,
                Event::Exited(status) => return Ok(Turn::Over(After::Exited(status))),
                Event::Killed(signal) => return Ok(Turn::Over(After::Killed(signal))),
            };
            match stopped.reason {
                StopReason::Signal(libc::SIGTRAP) if signals::is_step(&stopped)? => {
                    report();
                    return Ok(if interrupted {
                        Turn::Interrupted(stopped)
                    } else {
                        Turn::Go(stopped)
                    });
                }
                StopReason::Signal(signal) => {
                    return Ok(match signals::deliver(stopped, signal)?.turn() {
                        Turn::Go(stopped) if interrupted => Turn::Interrupted(stopped),
                        turn => turn,
                    });
                }
                // The step's own trap may be queued behind a stop that came first; it is due at once then.
                StopReason::Interrupt if signals::trap_queued(stopped.tid()) => {
                    interrupted = true;
                    running = stopped.resume(Resume::Continue, 0)?;
                }
                StopReason::Interrupt => return Ok(Turn::Interrupted(stopped)),
                StopReason::Group => running = stopped.resume(Resume::Listen, 0)?,
                StopReason::Exiting => {
                    return Ok(Turn::Over(After::Stopped(stopped, End::Exiting)));
                }
                _ => return Ok(Turn::Go(stopped)),
            }
        }
    }

    /// Unmaps what the stepper left in the process; to be called before letting it go for good, not when it is about to
    /// exit. The thread must be in user mode, as for [`Stepper::window`].
    ///
    /// # Errors
    /// As [`Stepper::window`].
    pub fn release(&mut self, stopped: Stopped) -> Result<After> {
        let maps = read_maps(&stopped)?;
        self.guard.unmap(stopped, &maps)
    }
}

impl Default for Stepper {
    fn default() -> Self {
        Self::new()
    }
}

fn read_maps(stopped: &Stopped) -> Result<Maps> {
    let tid = stopped.tid();
    Maps::read(tid).map_err(|error| TraceError::Unsuitable {
        tid,
        reason: format!("its memory map cannot be read: {error}"),
    })
}

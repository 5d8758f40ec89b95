//! A stopped thread as a [`Machine`](super::sampler::Machine): run until the counter stops it, stepped, with the shim's watchpoints in its way.
//!
//! The shim's handlers are the thread's own code, so a signal that one of them is to answer is delivered and the
//! thread waited for at the handler's return; what it executes there counts for nothing. A watched page is met as a SIGSEGV stop: the
//! count is known there, the shim lets the access happen and says which watches it touched. A dispatched system call
//! goes through the shim's stub. Nothing is held back: at any stop the thread's own state is all there is, and a
//! monitor that dies leaves a thread that runs on under the shim.
//!
//! [`signals`] delivers and waits, [`execute`] steps one instruction, [`ask`] talks to the shim, by putting a thread into it as [`ring`] does, [`others`] has all other threads come and go, [`machine`] is the whole as
//! the sampler sees it.
//!
//! Source: ptrace(2); `preload/src/watchpoints/mod.rs`.

mod ask;
mod execute;
mod machine;
mod others;
mod ring;

mod signals;

pub use others::let_go;

use super::overflow::Overflow;
use super::shim::Shim;
use crate::engine::step::decode::Decoder;
use crate::engine::translate::window::{Control, WindowEnd};
use crate::observe::{Access, LINE_SHIFTS};
use crate::tracee::remote::SYSCALL_CODE;
use crate::tracee::sequence;
use crate::tracee::{Event, Regs, Resume, Running, StopReason, Stopped, TraceError};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rustc_hash::FxHashSet;
use statcache_abi::Event as Touched;
use std::collections::VecDeque;
use std::ops::Range;

/// Why a window goes no further.
#[derive(Debug)]
pub enum Stop {
    /// The thread is past all windows.
    End(WindowEnd),
    /// The thread, kept by [`Live`], can be let go.
    Close(&'static str),
    /// Tracing failed, or the thread is gone.
    Trace(TraceError),
}

impl From<TraceError> for Stop {
    fn from(error: TraceError) -> Stop {
        Stop::Trace(error)
    }
}

type Result<T> = std::result::Result<T, Stop>;

/// What counts instructions and stops the thread.
pub enum Counting {
    /// A counter of the processor.
    Hardware(Overflow),
    /// Single steps, and a random number more: a test aid.
    Simulated {
        /// Of the skid.
        random: SmallRng,
        /// Largest skid, in instructions.
        skid: u64,
        /// Memory instructions are counted too.
        memory: bool,
        /// What counts behind a window, where that is not stepped.
        clock: Option<Overflow>,
    },
}

/// How far a thread has come in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Instructions executed on the way to a draw, or those of them that access memory, where these are counted. That the shim has stepped some of them makes no difference: those are the ones with
    /// accesses, and what is left without them would have another ratio.
    pub native: u64,
    /// References of all others, which the monitor has stepped, at each line size.
    pub refs: [u64; 5],
}

/// A watch that has been touched.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// What the shim says.
    pub event: Touched,
    /// Where the thread was, at the reference that touched it; as near as can be told for another thread's.
    pub at: Mark,
}

/// References of an instruction before it touches the line.
type Before = Vec<Access>;

/// A thread in its window.
pub struct Live<'a, C> {
    thread: Option<Stopped>,
    tid: Pid,
    shim: &'a Shim,
    image: &'a [Range<u64>],
    vdso: Range<u64>,
    control: &'a mut C,
    counting: &'a mut Counting,
    decoder: &'a mut Decoder,
    /// How far it has come.
    pub mark: Mark,
    /// Accesses among `mark.refs`.
    pub accesses: u64,
    /// Touched watches, and ended ones.
    pub met: Vec<Met>,
    /// Faults on watched pages, by page.
    pub faults: Vec<u64>,
    /// Accesses and references of the last instructions stepped, up to the next to run.
    pub recent: VecDeque<(u64, [u64; 5])>,
    /// Stops.
    pub stops: u64,
    /// The instruction executed last accesses memory.
    accessed: bool,
    /// Threads that have come under the shim.
    brought: FxHashSet<i32>,
}

/// Why a window is closed though nothing is wrong: somebody wants it, the thread sleeps, or it makes a call before which a
/// window ends.
pub const USER: &str = "the user";
/// See [`USER`].
pub const WAITS: &str = "a call that waits";
/// See [`USER`].
pub const BIRTH_OR_END: &str = "a call that makes or ends a thread";
/// See [`USER`].
pub const END_OF_PROCESS: &str = "the end of the process";

/// See [`USER`].
pub const FILTERED: &str = "a seccomp filter of the program's own";

/// A thread that the shim has let be, because it slept when the last watch went ("dormant", in the shim): it is under it until its
/// call is over.
pub const DORMANT: &str = "a system call that an earlier window began";

/// System calls before which a window ends: they make or end threads and processes.
const ENDING: [i64; 8] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
const SYS_USER_DISPATCH: i32 = 2;
const TRAP_FLAG: u64 = 0x100;
/// Iterations of a string instruction up to which all of its accesses are known beforehand.
const MOST_ITERATIONS: u64 = 64;
/// Signals at a time that come before a request can be served.
const DELIVERIES: u32 = 64;

impl<'a, C: Control> Live<'a, C> {
    /// `stopped` is in user mode, at its own registers.
    pub fn new(
        stopped: Stopped,
        shim: &'a Shim,
        image: &'a [Range<u64>],
        vdso: Range<u64>,
        control: &'a mut C,
        counting: &'a mut Counting,
        decoder: &'a mut Decoder,
    ) -> Self {
        Live {
            tid: stopped.tid(),
            thread: Some(stopped),
            shim,
            image,
            vdso,
            control,
            counting,
            decoder,
            mark: Mark::default(),
            accesses: 0,
            met: Vec::new(),
            faults: Vec::new(),
            recent: VecDeque::new(),
            stops: 0,
            accessed: false,
            brought: FxHashSet::default(),
        }
    }

    fn take(&mut self) -> Stopped {
        self.thread
            .take()
            .expect("the thread is ours between two operations")
    }

    fn regs(&self) -> Result<Regs> {
        match &self.thread {
            Some(stopped) => Ok(stopped.regs()?),
            None => Err(Stop::Trace(TraceError::Gone(self.tid))),
        }
    }

    /// Whether [`Mark::native`] counts instructions that access memory, and no others.
    pub fn counts_memory(&self) -> bool {
        match &*self.counting {
            Counting::Hardware(counter) => counter.counts_memory(),
            Counting::Simulated { memory, .. } => *memory,
        }
    }

    /// The thread's id.
    pub fn tid(&self) -> Pid {
        self.tid
    }

    /// The thread, when all is done.
    pub fn into_thread(mut self) -> Option<Stopped> {
        self.thread.take()
    }

    /// How windows are paced.
    pub fn control(&mut self) -> &mut C {
        self.control
    }

    /// Waits for the next stop that is not a mere passing one.
    fn wait(&mut self, mut running: Running, how: Resume) -> Result<Stopped> {
        loop {
            self.stops += 1;
            let stopped = match running.wait()? {
                Event::Stopped(stopped) => stopped,
                event => return Err(Stop::End(WindowEnd::Gone(event))),
            };
            running = match stopped.reason {
                StopReason::Exiting => return Err(Stop::End(WindowEnd::Exiting(stopped))),
                StopReason::Exec => return Err(Stop::End(WindowEnd::Exec(stopped))),
                StopReason::Group => stopped.resume(Resume::Listen, 0)?,
                StopReason::Interrupt | StopReason::Other(_) => stopped.resume(how, 0)?,
                StopReason::Signal(_) | StopReason::Syscall => return Ok(stopped),
            };
        }
    }

    fn go(&mut self, stopped: Stopped, how: Resume, signal: i32) -> Result<Stopped> {
        let running = stopped.resume(how, signal)?;
        self.wait(running, how)
    }
}

/// Whether a SIGTRAP stop is the end of a single step. Some virtual machines lose the reason, see `step::signals`.
fn is_step(stopped: &Stopped) -> Result<bool> {
    const TRAP_BRKPT: i32 = 1;
    const TRAP_TRACE: i32 = 2;
    Ok(matches!(
        stopped.siginfo()?.si_code,
        TRAP_TRACE | TRAP_BRKPT
    ))
}

/// Whether a stopped thread is in, or about to be in, a restartable sequence.
fn in_critical_section(stopped: &Stopped) -> bool {
    // The word alone does not tell: some leave it set behind each (tcmalloc).
    stopped
        .regs()
        .is_ok_and(|regs| sequence::is_near(stopped, &regs))
}

fn add(refs: &mut [u64; 5], access: &Access) {
    let last = access.address + u64::from(access.size.max(1)) - 1;
    for (refs, shift) in refs.iter_mut().zip(LINE_SHIFTS) {
        *refs += (last >> shift) - (access.address >> shift) + 1;
    }
}

//! A stopped thread as a [`Machine`]: run until the counter stops it, stepped, with the shim's watchpoints in its way.
//!
//! The shim's handlers are the thread's own code, so a signal that one of them is to answer is delivered and the
//! thread waited for at the handler's return; what it executes there counts for nothing. A watched page is met as a SIGSEGV stop: the
//! count is known there, the shim lets the access happen and says which watches it touched. A dispatched system call
//! goes through the shim's stub. Nothing is held back: at any stop the thread's own state is all there is, and a
//! monitor that dies leaves a thread that runs on under the shim.
//!
//! Source: ptrace(2); `preload/src/lib.rs`.

use super::overflow::Overflow;
use super::sampler::{Machine, Ran, SKID_MARGIN};
use super::shim::Shim;
use crate::arch::{Kind, Shape, evaluate};
use crate::engine::step::decode::Decoder;
use crate::engine::step::registers::View;
use crate::engine::translate::window::{Control, Waited, WindowEnd};
use crate::observe::{Access, LINE_SHIFTS};
use crate::tracee::remote::{self, CallSite, restarted};
use crate::tracee::{
    Event, Regs, Resume, Running, StopReason, Stopped, TraceError, maps::Maps, procinfo,
};
use nix::unistd::Pid;
use rand::Rng;
use rand::rngs::SmallRng;
use statcache_abi::{Block, DOORBELL, Event as Touched, Request};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

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
    },
}

/// How far a thread has come in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Instructions executed on the way to a draw. That the shim has stepped some of them makes no difference: those are the ones with
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
const SYSCALL_CODE: [u8; 2] = [0x0f, 0x05];
/// Iterations of a string instruction up to which all of its accesses are known beforehand.
const MOST_ITERATIONS: u64 = 64;
/// Signals at a time between a doorbell and its answer.
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

    /// Delivers a signal to the shim's handler and stops the thread when that has returned.
    fn through(&mut self, stopped: Stopped, signal: i32) -> Result<Stopped> {
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
    fn deliver(&mut self, stopped: Stopped, signal: i32) -> Result<bool> {
        const DEFAULT_IGNORED: [i32; 4] =
            [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        const DEFAULT_STOPS: [i32; 4] =
            [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let sets = procinfo::signal_sets(self.tid).unwrap_or_default();
        let bit = 1u64 << (signal - 1);
        if sets.caught & bit == 0 {
            if sets.ignored & bit != 0 || DEFAULT_IGNORED.contains(&signal) {
                self.thread = Some(stopped);
                return Ok(false);
            }
            if !DEFAULT_STOPS.contains(&signal) {
                return Err(Stop::End(WindowEnd::Fatal(stopped, signal)));
            }
            // Stopped, and continued some time: with a stop of ours right behind it.
            let running = stopped.resume(Resume::Continue, signal)?;
            running.interrupt()?;
            let stopped = match running.wait()? {
                Event::Stopped(stopped) => stopped,
                event => return Err(Stop::End(WindowEnd::Gone(event))),
            };
            self.thread = Some(stopped);
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
    fn ends_here(&self, stopped: &Stopped) -> Result<Option<&'static str>> {
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
        let number = i64::from(number);
        let ends = info.si_code == SYS_USER_DISPATCH && ENDING.contains(&number);
        if ends {
            let mut regs = stopped.regs()?;
            regs.rip -= SYSCALL_CODE.len() as u64;
            regs.rax = number as u64;
            regs.orig_rax = u64::MAX;
            stopped.set_regs(&regs)?;
        }
        let over = number == libc::SYS_exit_group;
        Ok(ends.then_some(if over { END_OF_PROCESS } else { BIRTH_OR_END }))
    }

    /// What the faulting instruction is about to do, if its page may be watched.
    fn note_fault(&mut self, stopped: &Stopped) -> Result<Option<Before>> {
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
    fn collect(&mut self, before: Option<&[Access]>) {
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

    fn add(&mut self, access: &Access) {
        add(&mut self.mark.refs, access);
        self.accesses += 1;
    }

    /// Runs the stub of a system call, which the thread is at, to its end.
    fn leave_stub(&mut self) -> Result<()> {
        loop {
            let regs = self.regs()?;
            if !self.image.iter().any(|part| part.contains(&regs.rip)) {
                return Ok(());
            }
            let stopped = self.take();
            let mut code = [0; 2];
            stopped.read(regs.rip, &mut code)?;
            if code == SYSCALL_CODE {
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

    fn signalled(&mut self, stopped: Stopped) -> Result<()> {
        match stopped.reason {
            StopReason::Signal(signal) => {
                self.deliver(stopped, signal)?;
            }
            _ => self.thread = Some(stopped),
        }
        Ok(())
    }

    /// Waits for a thread in a system call of its own.
    fn sleep(&mut self, running: Running) -> Result<()> {
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

    /// The accesses of the instruction about to run; `None` where they cannot be told.
    fn accesses_of(&mut self, stopped: &Stopped) -> Result<Option<Vec<Access>>> {
        let regs = stopped.regs()?;
        if self.vdso.contains(&regs.rip) {
            return Ok(Some(Vec::new()));
        }
        let Ok(decoded) = self.decoder.at(stopped, regs.rip) else {
            return Ok(None);
        };
        let view = View::new(stopped, &regs);
        let mut list = Vec::new();
        let repeated = |shape: &Shape| matches!(shape, Shape::Rep { .. });
        let mut iterations = 1;
        if let Some(Shape::Rep {
            counter32,
            condition,
            ..
        }) = decoded
            .accesses
            .iter()
            .map(|access| &access.shape)
            .find(|shape| repeated(shape))
        {
            let left = match counter32 {
                true => regs.rcx & 0xffff_ffff,
                false => regs.rcx,
            };
            let conditional = *condition != crate::arch::RepCondition::None;
            if left > MOST_ITERATIONS || (conditional && left > 1) {
                return Ok(None);
            }
            iterations = left;
        }
        for iteration in 0..iterations {
            for access in &decoded.accesses {
                for (address, size) in evaluate(access, &view) {
                    let moved = match access.shape {
                        Shape::Rep { step, .. } => {
                            const DIRECTION: u64 = 0x400;
                            let by = iteration * u64::from(step);
                            match regs.eflags & DIRECTION {
                                0 => address.wrapping_add(by),
                                _ => address.wrapping_sub(by),
                            }
                        }
                        _ => address,
                    };
                    list.push(Access {
                        ip: regs.rip,
                        address: moved,
                        size,
                        load: access.kind != Kind::Store,
                        store: access.kind != Kind::Load,
                    });
                }
            }
        }
        view.result()?;
        Ok(Some(list))
    }

    /// Executes one instruction of the program.
    fn execute(&mut self) -> Result<()> {
        self.leave_stub()?;
        let regs = self.regs()?;
        loop {
            let stopped = self.take();
            let decoded = match self.decoder.at(&stopped, regs.rip) {
                Ok(decoded) => decoded,
                Err(reason) => {
                    self.thread = Some(stopped);
                    return Err(Stop::Close(reason));
                }
            };
            if let Some(word) = &decoded.flags_word {
                let done = word.carry_out(&stopped, &regs, decoded.len)?;
                self.thread = Some(stopped);
                return match done {
                    true => Ok(()),
                    false => Err(Stop::Close("flags word out of reach")),
                };
            }
            let stopped = self.go(stopped, Resume::IntoHandler, 0)?;
            let repeats = decoded
                .accesses
                .iter()
                .any(|access| matches!(access.shape, Shape::Rep { .. }));
            let ran = match stopped.reason {
                StopReason::Signal(libc::SIGTRAP) if is_step(&stopped)? => {
                    self.thread = Some(stopped);
                    true
                }
                StopReason::Signal(signal) => {
                    let dispatched = signal == libc::SIGSYS;
                    self.deliver(stopped, signal)? || dispatched
                }
                _ => {
                    self.thread = Some(stopped);
                    true
                }
            };
            let now = self.regs()?.rip;
            if now != regs.rip || (ran && !repeats) {
                return Ok(());
            }
        }
    }

    /// Asks the shim for something; its answer.
    pub fn call(&mut self, request: Request) -> Result<i32> {
        self.shim.ask(request);
        self.ring()?;
        for _ in 0..DELIVERIES {
            let stopped = self.take();
            let stopped = self.go(stopped, Resume::Syscall, 0)?;
            match stopped.reason {
                StopReason::Signal(libc::SIGURG) => {
                    let stopped = self.through(stopped, libc::SIGURG)?;
                    self.thread = Some(stopped);
                    if let Some(answer) = self.shim.answer() {
                        self.collect(None);
                        return Ok(answer);
                    }
                }
                StopReason::Signal(signal) => {
                    self.deliver(stopped, signal)?;
                }
                _ => self.thread = Some(stopped),
            }
        }
        Err(Stop::Close("the shim does not answer"))
    }

    fn ring(&self) -> Result<()> {
        const SI_QUEUE: i32 = -1;
        // `siginfo_t`: number, errno, code; the value behind sender and user.
        let mut info = [0u64; 16];
        info[0] = libc::SIGURG as u64;
        info[1] = u64::from(SI_QUEUE as u32);
        info[3] = DOORBELL;
        let pid = procinfo::family(self.tid).map_or(self.tid, |(pid, _)| pid);
        // SAFETY: `info` is live and as large as a siginfo_t.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                pid.as_raw(),
                self.tid.as_raw(),
                libc::SIGURG,
                info.as_ptr(),
            )
        };
        match sent {
            0 => Ok(()),
            _ => Err(Stop::Trace(TraceError::Os {
                operation: "rt_tgsigqueueinfo",
                tid: self.tid,
                source: std::io::Error::last_os_error(),
            })),
        }
    }

    /// Makes the shim answer the first doorbell.
    pub fn knock(&mut self, maps: &Maps) -> Result<()> {
        let stopped = self.take();
        let block = self.shim.block();
        let base = block.base.load(Ordering::Relaxed);
        let at = |offset: usize| base + offset as u64;
        let args = [
            libc::SIGURG as u64,
            at(std::mem::offset_of!(Block, knock)),
            at(std::mem::offset_of!(Block, before)),
            8,
            0,
            0,
        ];
        let Some(slack) = remote::find_slack(&stopped, maps) else {
            self.thread = Some(stopped);
            return Err(Stop::Close("no place for an injected call"));
        };
        let site = CallSite::open(&stopped, slack, restarted(&stopped.regs()?))?;
        let mut caller = site.caller(stopped);
        let called = caller.call("rt_sigaction", libc::SYS_rt_sigaction, args);
        let stopped = caller
            .done()
            .ok_or(Stop::Trace(TraceError::Gone(self.tid)))?;
        let signal = match stopped.reason {
            StopReason::Signal(signal) => Some(signal),
            _ => None,
        };
        site.close(&stopped)?;
        match (called, signal) {
            (Ok(_), _) => {
                self.thread = Some(stopped);
                Ok(())
            }
            (Err(_), Some(signal)) => {
                self.deliver(stopped, signal)?;
                Err(Stop::Close("a signal came first"))
            }
            (Err(error), None) => {
                self.thread = Some(stopped);
                Err(Stop::Trace(error))
            }
        }
    }

    /// Whether the thread is in, or about to be in, a restartable sequence, which is aborted at every step.
    pub fn in_critical_section(&self) -> bool {
        let (Some(area), Some(stopped)) = (procinfo::rseq_area(self.tid), &self.thread) else {
            return false;
        };
        let mut word = [0; 8];
        stopped.read(area + 8, &mut word).is_ok() && word != [0; 8]
    }

    fn counter(&mut self) -> Option<&mut Overflow> {
        match &mut *self.counting {
            Counting::Hardware(counter) => Some(counter),
            Counting::Simulated { .. } => None,
        }
    }

    /// Lets it run until the counter stops it; handlers of the shim are not counted, what they let through is.
    fn run_hardware(&mut self, instructions: u64) -> Result<Ran> {
        let tid = self.tid;
        let os = |source| {
            Stop::Trace(TraceError::Os {
                operation: "performance counter",
                tid,
                source,
            })
        };
        let none = || Stop::Close("no counter");
        let mut beside = 0;
        self.counter()
            .ok_or_else(none)?
            .arm(instructions)
            .map_err(os)?;
        loop {
            let stopped = self.take();
            let stopped = self.go(stopped, Resume::Continue, 0)?;
            let StopReason::Signal(signal) = stopped.reason else {
                self.thread = Some(stopped);
                continue;
            };
            let info = stopped.siginfo()?;
            let counter = self.counter().ok_or_else(none)?;
            let so_far = counter.count().map_err(os)?;
            let due = counter.caused(&info);
            if due {
                self.thread = Some(stopped);
                self.mark.native += so_far + beside;
                return Ok(Ran::Stopped(so_far + beside));
            }
            // Watches met on the way are told where the thread is now.
            let now = so_far + beside;
            self.mark.native += now;
            let delivered = self.deliver(stopped, signal);
            if let Ok(true) = delivered {
                beside += 1;
            }
            delivered?;
            self.mark.native -= now;
            self.counter().ok_or_else(none)?.pause(false).map_err(os)?;
        }
    }

    /// Executes one instruction without looking at what it accesses.
    fn pass(&mut self) -> Result<()> {
        self.execute()?;
        self.mark.native += 1;
        Ok(())
    }
}

impl<C: Control> Machine for Live<'_, C> {
    type Error = Stop;

    fn run(&mut self, instructions: u64) -> Result<Ran> {
        self.recent.clear();
        let skid = match &mut *self.counting {
            Counting::Hardware(_) => return self.run_hardware(instructions),
            Counting::Simulated { random, skid } => random.random_range(0..=*skid),
        };
        for _ in 0..instructions + skid {
            self.pass()?;
        }
        Ok(Ran::Stopped(instructions + skid))
    }

    fn step(&mut self) -> Result<bool> {
        let Some(accesses) = self.upcoming()? else {
            self.pass()?;
            return Ok(true);
        };
        self.execute()?;
        let mut refs = [0; 5];
        for access in &accesses {
            add(&mut refs, access);
            self.add(access);
        }
        self.recent.push_back((accesses.len() as u64, refs));
        if self.recent.len() as u64 > SKID_MARGIN {
            self.recent.pop_front();
        }
        Ok(true)
    }

    fn upcoming(&mut self) -> Result<Option<Vec<Access>>> {
        self.leave_stub()?;
        let stopped = self.take();
        let accesses = self.accesses_of(&stopped);
        self.thread = Some(stopped);
        accesses
    }

    fn references(&self) -> u64 {
        self.mark.refs[crate::observe::DEFAULT_LINE]
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

fn add(refs: &mut [u64; 5], access: &Access) {
    let last = access.address + u64::from(access.size.max(1)) - 1;
    for (refs, shift) in refs.iter_mut().zip(LINE_SHIFTS) {
        *refs += (last >> shift) - (access.address >> shift) + 1;
    }
}

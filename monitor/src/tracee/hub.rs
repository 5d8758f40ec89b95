//! Every thread that this OS thread traces, and the one wait for all of them.
//!
//! While a hub is open, [`Running::wait`] and [`Running::poll`] go through it: whoever waits for one
//! thread has the events of all others served meanwhile, in the order in which they came. Signals
//! are passed on, group stops listened out, births and deaths booked. What a thread does in a window
//! is not known here. Source of every rule: ptrace(2).

mod borrowed;
mod calls;
mod dying;
mod mapped;
mod serve;
mod steer;

use super::completion::Completion;
use super::procinfo::Counts;
use super::remote::restart_pending;
use super::space::Space;
pub use super::stops::{leave_kernel, mend};
use super::tracers::Tracers;
use super::{Event, Result, Resume, Running, StopReason, Stopped, procinfo, status};
use borrowed::borrows_memory;
pub use dying::{is_wanted_out, set_in_cache};
pub use mapped::{give_space_back, take_space};
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use steer::Steering;

/// A process that is followed, or was.
#[derive(Clone, Debug)]
pub struct Process {
    /// Serial number: process ids come back, these do not.
    pub id: u32,
    /// Process id.
    pub pid: Pid,
    /// Process id of the parent.
    pub ppid: Pid,
    /// Program images so far: 0 until its first `execve` under trace.
    pub image: u32,
    /// Whether it was there before us.
    pub found: bool,
    /// Whether its program may trace others itself.
    pub traces: bool,
    /// Whether it runs in the memory of its parent (`vfork`, until it executes a program).
    pub borrows_memory: bool,
    /// Threads that are traced.
    pub threads: Vec<Pid>,
    /// When it was first seen.
    pub born: Instant,
    /// CPU seconds it had used by then.
    pub cpu_before_s: f64,
    /// What the kernel had counted by then, and as of the last exit of a thread that is its first or its last.
    pub counts_before: Counts,
    /// See [`Process::counts_before`].
    pub counts: Counts,
    /// CPU seconds of all its threads, as of the last exit of one of them.
    pub cpu_s: f64,
    /// Peak memory in bytes, as of the same moment.
    pub footprint_bytes: u64,
    /// Its shell status, once it has ended.
    pub status: Option<i32>,
    /// When that was.
    pub ended: Option<Instant>,
}

/// Stops at calls of a newborn that are looked at: two a call, and who asks to be traced does so among the first.
const UNTOLD: u32 = 100;
/// After so long a newborn that has made few calls may be observed, and is left to nobody.
const TOLD: Duration = Duration::from_millis(100);

/// What `/proc` tells of CPU time in, in seconds (proc(5): hundredths, for every host there is).
const TICK_S: f64 = 0.01;

/// Which newborn processes are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// All.
    Children,
    /// None: only threads.
    Threads,
}

#[derive(Debug)]
struct Thread {
    /// Process id of its process.
    pid: Pid,
    /// We have asked it to stop, and it has not yet.
    interrupted: bool,
    /// That request was used up by a stop at the entry of a call.
    spent: bool,
    /// It is on its way out.
    exiting: bool,
    /// Until when it is not to be held, if not for good.
    spared: Option<Instant>,
    /// The system call in which a stop has interrupted it last, of those that go on as `restart_syscall`.
    interrupted_call: Option<u64>,
    /// It is in a call, and stops at its end by itself.
    in_call: bool,
    /// It is held at the end of a call that it was left in.
    rests: bool,
    /// What is left of a call of its own that we have cut.
    completion: Option<Box<Completion>>,
    /// Of a child of a program that may trace it: stops at its first calls to come, which tell whether it is to be traced.
    untold: u32,
}

#[derive(Debug)]
struct Pending {
    event: Event,
    tid: Pid,
    /// The thread id it had before it executed a program.
    former: Pid,
}

/// The registry; one for each tracing OS thread.
struct Hub {
    follow: Follow,
    threads: FxHashMap<i32, Thread>,
    processes: FxHashMap<i32, Process>,
    /// What we have mapped into processes, where there is something.
    spaces: FxHashMap<i32, Space>,
    tracers: Tracers,
    /// Processes left to a parent that traces.
    left_alone: u64,
    ended: Vec<Process>,
    queue: VecDeque<Pending>,
    /// The thread that somebody waits for.
    awaited: Option<Pid>,
    next_id: u32,
    looked_around: Instant,
    /// Stops since we last looked where a thread runs, and when that was.
    stops: (u32, Instant),
    /// Whether they come thick.
    thick: bool,
    /// Whether threads are held where they could be observed, instead of going on natively.
    hold: bool,
    held: VecDeque<Stopped>,
    /// How often held threads have been let go on.
    let_gone: u64,
    /// The thread that runs code of ours, at registers that are not its own.
    in_cache: Option<Pid>,
    /// The thread that may be there until another one is held.
    alone: Option<Pid>,
    /// Threads that are about to end its process by a signal, and wait until it is out.
    dying: Vec<(Stopped, i32)>,
    steering: Steering,
    /// Whether somebody may ask which call a thread was in.
    notes_calls: bool,
    /// What is to be done at each new image of a process, before its first instruction.
    at_exec: Option<(Option<Pid>, AtExec)>,
}

/// See [`at_exec`].
type AtExec = Box<dyn Fn(&Stopped)>;

thread_local! {
    static HUB: RefCell<Option<Hub>> = const { RefCell::new(None) };
}

fn with<T>(what: impl FnOnce(&mut Hub) -> T) -> Option<T> {
    HUB.with(|cell| cell.borrow_mut().as_mut().map(what))
}

/// Keeps the hub of this OS thread open.
#[derive(Debug)]
pub struct Open(());

impl Drop for Open {
    fn drop(&mut self) {
        HUB.with(|cell| cell.borrow_mut().take());
    }
}

/// Opens the hub of this OS thread, which traces nothing it does not know yet.
pub fn open(follow: Follow) -> Open {
    let hub = Hub {
        follow,
        threads: FxHashMap::default(),
        processes: FxHashMap::default(),
        spaces: FxHashMap::default(),
        tracers: Tracers::default(),
        left_alone: 0,
        ended: Vec::new(),
        queue: VecDeque::new(),
        awaited: None,
        next_id: 0,
        looked_around: Instant::now(),
        stops: (0, Instant::now()),
        thick: false,
        hold: false,
        held: VecDeque::new(),
        let_gone: 0,
        alone: None,
        in_cache: None,
        dying: Vec::new(),
        steering: Steering::default(),
        at_exec: None,
        notes_calls: false,
    };
    serve::begin();
    HUB.with(|cell| cell.borrow_mut().replace(hub));
    Open(())
}

/// Makes a thread known that has just been seized.
pub fn add(tid: Pid) {
    with(|hub| hub.birth(tid));
}

/// Has `visit` called at each `execve` of process `pid`, or of any, from now on, with the thread before its first instruction. It must not
/// call this module.
pub fn at_exec(pid: Option<Pid>, visit: AtExec) {
    with(|hub| hub.at_exec = Some((pid, visit)));
}

/// Remembers from now on which calls threads were in when stops interrupted them, for [`call_of`].
pub fn note_calls() {
    with(|hub| hub.notes_calls = true);
}

/// Makes a thread known that ran before it was seized.
pub fn add_found(tid: Pid) {
    with(|hub| {
        hub.birth(tid);
        if let Some(process) = hub.processes.get_mut(&tid.as_raw()) {
            process.found = true;
            process.traces = hub.tracers.is_one(tid);
        }
    });
}

/// Serves every event there is, without waiting.
///
/// # Errors
/// The operating system's.
pub fn serve() -> Result<()> {
    with(Hub::serve_all).unwrap_or(Ok(()))
}

/// A live process by its id.
pub fn process(pid: Pid) -> Option<Process> {
    with(|hub| hub.processes.get(&pid.as_raw()).cloned()).flatten()
}

/// Whether a thread that was stopped a while ago is still the same: of a process that has executed this many
/// programs, and not on its way out. Another thread that executes a program ends it and may take its
/// id, but not before its end has been seen here.
pub fn is_same(tid: Pid, image: u32) -> bool {
    let same = |hub: &mut Hub| {
        let thread = hub.threads.get(&tid.as_raw())?;
        let process = hub.processes.get(&thread.pid.as_raw())?;
        Some(!thread.exiting && process.image == image)
    };
    with(same).flatten().unwrap_or(false)
}

/// All live processes.
pub fn processes() -> Vec<Process> {
    with(|hub| hub.processes.values().cloned().collect()).unwrap_or_default()
}

/// The live process that a thread belongs to.
pub fn process_of(tid: Pid) -> Option<Process> {
    with(|hub| {
        let pid = hub.threads.get(&tid.as_raw())?.pid;
        hub.processes.get(&pid.as_raw()).cloned()
    })
    .flatten()
}

/// Whether a thread is traced and alive.
pub fn knows(tid: Pid) -> bool {
    with(|hub| hub.threads.contains_key(&tid.as_raw())).unwrap_or(false)
}

/// Processes that have ended since the last call.
pub fn take_ended() -> Vec<Process> {
    with(|hub| std::mem::take(&mut hub.ended)).unwrap_or_default()
}

/// Whether a process was born just now to a program that may be about to trace it.
pub fn may_be_traced(process: &Process) -> bool {
    let untold = |hub: &mut Hub| Some(hub.threads.get(&process.pid.as_raw())?.untold > 0);
    process.born.elapsed() < TOLD && with(untold).flatten().unwrap_or(false)
}

/// Processes so far that were left to the program that started them, which traces them itself.
pub fn left_alone() -> u64 {
    with(|hub| hub.left_alone).unwrap_or(0)
}

/// Asks a running thread to stop; to be waited for. `None` when it is gone.
pub fn interrupt(tid: Pid) -> Option<Running> {
    let running = knows(tid).then(|| Running::new(tid))?;
    running.interrupt().ok().map(|()| running)
}

/// Notes that a thread was left in a system call of its own, at whose end it stops by itself.
pub fn left_in_call(tid: Pid) {
    with(|hub| hub.set_in_call(tid, true));
}

/// Whether a thread is in a call at whose end it stops by itself. To stop it there could have the call return early.
pub fn is_in_call(tid: Pid) -> bool {
    with(|hub| hub.is_in_call(tid)).unwrap_or(false)
}

/// Whether a thread that was left in a call is held at its end, and has executed nothing of its own since.
pub fn rests_since_call(tid: Pid) -> bool {
    with(|hub| hub.threads.get(&tid.as_raw()).is_some_and(|t| t.rests)).unwrap_or(false)
}

/// Asks a thread to stop, and waits so long at most for that or for any other stop or end of it, or as long as it waits for a processor; one that
/// comes later is served when it comes.
///
/// # Errors
/// What ptrace refuses.
pub fn stop_within(tid: Pid, patience: Duration) -> Result<Option<Event>> {
    let Some(mut running) = interrupt(tid) else {
        return Ok(None);
    };
    let begun = Instant::now();
    loop {
        match running.poll()? {
            Ok(event) => return Ok(Some(event)),
            Err(_) if begun.elapsed() > patience && !procinfo::is_ready(tid) => return Ok(None),
            Err(again) => running = again,
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Waits until no thread is left that was asked to stop and has not, for so long at most.
pub fn settle(patience: Duration) {
    let begun = Instant::now();
    let asked = || with(|hub| hub.threads.values().any(|t| t.interrupted)).unwrap_or(false);
    while serve().is_ok() && asked() && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// From now on holds every thread at its own registers, in user mode, wherever it comes by: at its
/// birth, in a new program, at the end of a system call. Without, lets all held threads go on.
pub fn set_hold(hold: bool) {
    steer::set_hold(hold);
    with(|hub| {
        hub.hold = hold;
        if !hold {
            hub.let_go(|_| true);
        }
    });
}

/// Does not hold this thread until then, wherever it comes by.
pub fn spare(tid: Pid, until: Instant) {
    with(|hub| {
        if let Some(thread) = hub.threads.get_mut(&tid.as_raw()) {
            thread.spared = Some(until);
        }
    });
}

/// Whether stops that nobody waits for come thick.
pub fn is_busy() -> bool {
    with(|hub| hub.thick).unwrap_or(false)
}

/// Takes the thread that has been held longest.
pub fn take_held() -> Option<Stopped> {
    with(|hub| hub.held.pop_front()).flatten()
}

/// Takes the threads of a process that are held.
pub fn take_held_of(pid: Pid) -> Vec<Stopped> {
    with(|hub| {
        let threads = &hub.threads;
        let of = |stopped: &Stopped| {
            threads
                .get(&stopped.tid().as_raw())
                .is_some_and(|t| t.pid == pid)
        };
        let (its, others) = std::mem::take(&mut hub.held).into_iter().partition(of);
        hub.held = others;
        its.into()
    })
    .unwrap_or_default()
}

/// Gives a thread back to be held, behind all others.
pub fn hold(stopped: Stopped) {
    with(|hub| hub.held.push_back(stopped));
}

/// Whether another thread than the one that is not held waits to be observed.
pub fn any_held() -> bool {
    with(|hub| !hub.held.is_empty()).unwrap_or(false)
}

/// How often held threads have been let go on for a while, because their process was stopped: they are where they were no more.
pub fn let_gone() -> u64 {
    with(|hub| hub.let_gone).unwrap_or(0)
}

/// Has this thread leave the code cache as soon as another one is held; `None`: none has to.
pub fn set_alone(tid: Option<Pid>) {
    with(|hub| hub.alone = tid);
}

/// Traced threads.
pub fn count() -> usize {
    with(|hub| hub.threads.len()).unwrap_or(0)
}

/// Lets a thread go on whatever it is stopped for, if it is: as if we were gone.
pub fn abandon(tid: Pid) {
    let _ = Stopped::of(tid, StopReason::Other(0)).resume(Resume::Continue, 0);
}

/// Lets a thread go on after an event that nobody waits for any more.
pub fn release(event: Event) {
    if let Event::Stopped(stopped) = event {
        with(|hub| hub.act(stopped));
    }
}

/// The call that a thread is in by its registers, where need be from before stops interrupted it. Known since [`note_calls`].
pub fn call_of(tid: Pid, number: u64) -> u64 {
    let first = || with(|hub| hub.threads.get(&tid.as_raw())?.interrupted_call).flatten();
    match number == libc::SYS_restart_syscall as u64 {
        true => first().unwrap_or(number),
        false => number,
    }
}

/// Notes that a stop was asked for; called by [`Running::interrupt`].
pub(super) fn interrupt_sent(tid: Pid) {
    with(|hub| {
        if let Some(thread) = hub.threads.get_mut(&tid.as_raw()) {
            thread.interrupted = true;
        }
    });
}

/// Notes that a thread goes on, with a signal or 0; called by [`Stopped::resume`] and [`Stopped::detach`].
pub(super) fn resumed(tid: Pid, how: Resume, signal: i32) {
    serve::resumed(tid);
    steer::resumed(tid, how);
    dying::passed(tid, signal);
}

/// A stopped thread is about to be traced no more: it has nothing of ours left to do.
pub(super) fn detaching(stopped: &Stopped) {
    with(|hub| {
        let thread = hub.threads.get_mut(&stopped.tid().as_raw());
        if let Some(completion) = thread.and_then(|thread| thread.completion.take()) {
            // One that is gone needs nothing.
            let _ = completion.give_up(stopped);
        }
    });
}

/// What happened to `tid`, with all others served; `None` without a hub.
pub(super) fn wait(tid: Pid, block: bool) -> Option<Result<Option<Event>>> {
    with(|hub| hub.wait(tid, block))
}

impl Hub {
    /// Books an event, whoever waits for it. Returns the id the thread had before.
    fn note(&mut self, tid: Pid, event: &Event) -> Pid {
        match event {
            Event::Stopped(stopped) => {
                if !self.threads.contains_key(&tid.as_raw()) {
                    self.birth(tid);
                }
                // Any stop uses up the request for one (linux/kernel/signal.c, `ptrace_stop`), and a call that was
                // interrupted by it is mended there and then.
                let in_cache = self.in_cache == Some(tid);
                if let Some(thread) = self.threads.get_mut(&tid.as_raw()) {
                    thread.note_call_at(stopped, in_cache);
                }
                if matches!(
                    stopped.reason,
                    StopReason::Interrupt | StopReason::Signal(_) | StopReason::Syscall
                ) {
                    self.note_call(stopped);
                }
                if stopped.reason != StopReason::Exiting {
                    dying::survived(tid);
                }
                match stopped.reason {
                    StopReason::Exec => {
                        let executed = self.executed(tid);
                        let wanted =
                            |(pid, _): &&(Option<Pid>, AtExec)| pid.is_none_or(|pid| pid == tid);
                        if let Some((_, visit)) = self.at_exec.as_ref().filter(wanted) {
                            visit(stopped);
                        }
                        return executed;
                    }
                    // A group stop is complete when every thread has joined it.
                    StopReason::Group if self.hold => {
                        let pid = self.threads.get(&tid.as_raw()).map(|thread| thread.pid);
                        self.let_go(|of| Some(of) == pid);
                    }
                    StopReason::Exiting => {
                        self.leaves_signals(tid);
                        self.exiting(tid);
                    }
                    StopReason::Other(libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) => {
                        self.steering.forks(tid);
                    }
                    _ => {}
                }
            }
            Event::Exited(status) => self.gone(tid, *status),
            Event::Killed(signal) => self.gone(tid, 128 + signal),
        }
        tid
    }

    fn set_in_call(&mut self, tid: Pid, is: bool) {
        if let Some(thread) = self.threads.get_mut(&tid.as_raw()) {
            thread.in_call = is;
        }
    }

    fn set_rests(&mut self, tid: Pid, rests: bool) {
        if let Some(thread) = self.threads.get_mut(&tid.as_raw()) {
            thread.rests = rests;
        }
    }

    fn is_in_call(&self, tid: Pid) -> bool {
        let thread = self.threads.get(&tid.as_raw());
        thread.is_some_and(|thread| thread.in_call)
    }

    /// Remembers which call a stop has interrupted: once it goes on nobody can tell. Only where somebody may ask, because this costs
    /// a system call at every stop.
    fn note_call(&mut self, stopped: &Stopped) {
        if !self.notes_calls {
            return;
        }
        if let Some(thread) = self.threads.get_mut(&stopped.tid().as_raw())
            && let Ok(regs) = stopped.regs()
            && restart_pending(&regs)
            && regs.orig_rax != libc::SYS_restart_syscall as u64
        {
            thread.interrupted_call = Some(regs.orig_rax);
        }
    }

    fn birth(&mut self, tid: Pid) {
        let (pid, ppid) = status::family(tid).unwrap_or((tid, Pid::from_raw(0)));
        let known = Thread {
            pid,
            interrupted: false,
            spent: false,
            exiting: false,
            spared: None,
            interrupted_call: None,
            in_call: false,
            rests: false,
            completion: None,
            untold: 0,
        };
        if self.threads.insert(tid.as_raw(), known).is_some() {
            return;
        }
        let parent = self.processes.get(&ppid.as_raw());
        let is_of_followed = parent.is_some();
        let of_tracer = parent.is_some_and(|parent| parent.traces);
        let (next_id, processes) = (&mut self.next_id, &mut self.processes);
        let process = processes.entry(pid.as_raw()).or_insert_with(|| {
            *next_id += 1;
            let cpu_before_s = procinfo::process_clock_s(pid).unwrap_or(0.0);
            // Of a newborn there is nothing to be read.
            let counts_before = match cpu_before_s > TICK_S {
                true => procinfo::counts(pid).unwrap_or_default(),
                false => Counts::default(),
            };
            Process {
                id: *next_id - 1,
                pid,
                ppid,
                image: 0,
                found: false,
                traces: false,
                borrows_memory: false,
                threads: Vec::new(),
                born: Instant::now(),
                cpu_before_s,
                counts_before,
                counts: counts_before,
                cpu_s: 0.0,
                footprint_bytes: 0,
                status: None,
                ended: None,
            }
        });
        if process.threads.is_empty() && process.id > 0 && of_tracer {
            let thread = self.threads.get_mut(&tid.as_raw());
            thread.into_iter().for_each(|thread| thread.untold = UNTOLD);
        }
        if process.threads.is_empty() {
            // One whose parent is not followed has its own as a rule: that may have ended meanwhile.
            process.borrows_memory = match is_of_followed {
                true => borrows_memory(ppid, tid),
                false => procinfo::share_memory(ppid, tid).unwrap_or(false),
            };
            // A fork copies the mappings and the limit.
            if let Some(space) = self.spaces.get(&ppid.as_raw()).cloned() {
                self.spaces.insert(pid.as_raw(), space);
            }
        }
        process.threads.push(tid);
    }

    /// A program was executed: all other threads of the process are gone, and if another than the
    /// first did it, its id is the first one's from now on, and nobody reports its old one's end.
    fn executed(&mut self, tid: Pid) -> Pid {
        let former = ptrace::getevent(tid).map_or(tid, |id| Pid::from_raw(id as i32));
        if former != tid {
            self.leaves_signals(tid);
            self.threads.remove(&former.as_raw());
            self.queue.retain(|p| p.tid != former && p.tid != tid);
            self.dying
                .retain(|(stopped, _)| stopped.tid() != former && stopped.tid() != tid);
        }
        if let Some(thread) = self.threads.get_mut(&tid.as_raw()) {
            thread.exiting = false;
        }
        if let Some(process) = self.processes.get_mut(&tid.as_raw()) {
            process.image += 1;
            process.traces = self.tracers.is_one(tid);
            if let Some(mut space) = self.spaces.remove(&tid.as_raw()) {
                space.give_all_back(tid);
            }
            process.borrows_memory = false;
            process.threads.retain(|&t| t != former);
            if !process.threads.contains(&tid) {
                process.threads.push(tid);
            }
        }
        former
    }

    fn exiting(&mut self, tid: Pid) {
        let Some(thread) = self.threads.get_mut(&tid.as_raw()) else {
            return;
        };
        thread.exiting = true;
        let Some(process) = self.processes.get_mut(&thread.pid.as_raw()) else {
            return;
        };
        process.cpu_s = procinfo::process_clock_s(process.pid)
            .unwrap_or(process.cpu_s)
            .max(process.cpu_s);
        // Dear to read: where a thousand threads end, at the first one's end and the last one's.
        if tid == process.pid || process.threads.len() == 1 {
            let bytes = status::footprint_bytes(process.pid).unwrap_or(0);
            process.footprint_bytes = process.footprint_bytes.max(bytes);
            process.counts = procinfo::counts(process.pid).unwrap_or(process.counts);
        }
    }

    fn gone(&mut self, tid: Pid, status: i32) {
        let Some(thread) = self.threads.remove(&tid.as_raw()) else {
            return;
        };
        steer::forget(tid);
        let pid = thread.pid.as_raw();
        if let Some(process) = self.processes.get_mut(&pid) {
            process.threads.retain(|&t| t != tid);
        }
        // The first thread's end is reported when all others are gone.
        if thread.pid == tid
            && let Some(mut process) = self.processes.remove(&pid)
        {
            for left in std::mem::take(&mut process.threads) {
                self.threads.remove(&left.as_raw());
            }
            process.status = Some(status);
            process.ended = Some(Instant::now());
            self.spaces.remove(&pid);
            self.ended.push(process);
        }
    }
}

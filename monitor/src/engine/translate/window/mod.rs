//! Driving a thread through one window: into the code cache, through system calls and signal
//! handlers at its own context, and out again.
//!
//! Invariants: outside of the cache the thread has its own registers and no trace of us; a signal is
//! delivered at the stop it came with, in the original context; at every stop in the cache the
//! stub it stopped in leads back to native code by itself, should nobody resume it.

mod enter;
mod kept;
mod native;
mod pieces;
mod signal;

pub use pieces::Piece;
pub use signal::STORM;

use super::cache::{CodeCache, Followed};
use super::code::TargetCode;
use super::duty::Duty;
use super::filter::TargetFilter;
use super::fragment::ExitKind;
use super::layout::state;
use super::log::LogReader;
use super::runtime::EXIT_INDIRECT;
use super::state::{StateBlock, get_mut};
use super::target::{self, Data};
use crate::arch::{Fast, Gpr};
use crate::observe::{Access, Observer};
use crate::tracee::filters::{self, Filters};
use crate::tracee::maps::Maps;
use crate::tracee::{Event, Regs, Result, Resume, Running, StopReason, Stopped, hub, near};
use native::{has_woken, may_remap, stopped_with_its_process};
use nix::unistd::Pid;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of log in use at a time: it should stay inside a second-level cache.
const LOG_IN_USE: u64 = 512 << 10;
/// Least bytes of log in use: a stop costs about as much as filling it.
const LOG_AT_LEAST: u64 = 4 << 10;
/// Accesses between two stops, at the least, where every record is kept and no other thread waits for its turn: a stop takes as long as some
/// thousands of them.
const END_AT_LEAST: u64 = 4096;
/// Bytes of log while only records that may touch a watched line are kept. The first of them lie where the lowest 12 bits of addresses are not
/// those of the state block, as processors guess by these whether a load is of what was just stored.
const LOG_QUIET: u64 = (64 << 10) + 2048;
/// Accesses kept behind the last sample of a cluster: most reuses are found among them. (Of 400, 1000, 2000 and 3000, CPU seconds of python 10.0, 10.0,
/// 10.0 and 10.1, of z3 8.4, 8.2, 8.3 and 8.4.)
const BURST: u64 = 1000;
/// Not worth a stop: with samples nearer to each other than this, every record is kept.
const QUIET_LEAST: u64 = 3_000;
/// Accesses counted between two stops at the most: gaps are told by their low 32 bits.
const QUIET_MOST: u64 = 1 << 30;
/// Logs with this many records that were kept on suspicion and touched nothing watched, after which the filter is
/// placed anew; and fewer of them are no matter, as a stop takes as long.
const REHASH_AFTER: u32 = 8;
const FALSE_LEAST: u64 = 256;
/// Most such logs that are borne where placing the filter anew has not helped: who uses the line before a watched one is always
/// suspected, and to place tens of thousands of drawn lines takes longer than some logs.
const MOST_PATIENCE: u32 = 1 << 12;
/// Numbers filters.
static NEXT_FILTER: AtomicU64 = AtomicU64::new(0);

/// What a wait outside of the cache gave.
#[derive(Debug)]
pub enum Waited {
    /// The thread has something to tell.
    Event(Event),
    /// The user wants the window to end.
    User(Running),
    /// It sleeps, and others have something to do: the window may end while it does.
    Leave(Running),
}

/// How a window is paced; given by the session.
pub trait Control {
    /// Waits for the thread while it runs its own code, for as long as that takes.
    ///
    /// # Errors
    /// As [`Running::wait`].
    fn wait(&mut self, running: Running) -> Result<Waited>;

    /// Waits for the thread while it is in the code cache. Gives it back where it sleeps there: in a page fault that another thread is to
    /// serve (userfaultfd(2)).
    ///
    /// # Errors
    /// As [`Running::wait`].
    fn wait_in_cache(&mut self, running: Running) -> Result<std::result::Result<Event, Running>> {
        running.wait_near().map(Ok)
    }

    /// The log has been read up to where the thread is. Returns the accesses that may still be
    /// observed; 0 closes the window.
    fn progress(&mut self, observer: &mut Observer, maps: &Maps) -> u64;

    /// A piece ends with the log that was read, and its time is known. Told before [`Control::progress`] is asked.
    fn piece_ended(&mut self, _: &Piece) {}

    /// Whether the window has lasted too long. Asked behind each system call: where a thread does little else the log is not
    /// full for seconds.
    fn is_late(&self) -> bool {
        false
    }

    /// A system call has woken another thread. Returns whether the window ends there.
    fn has_woken(&mut self) -> bool {
        false
    }

    /// Whether the window ends where the thread leaves the processor to others (sched_yield(2)), behind the call.
    fn ends_at_yields(&mut self) -> bool {
        false
    }
}

/// How a window ended. The thread is at its own registers.
#[derive(Debug)]
pub enum WindowEnd {
    /// As paced.
    Closed(Stopped),
    /// The thread came to something that must run natively.
    Declined(Stopped, &'static str),
    /// The thread is about to leave: stopped at `exit`, `exit_group`, or while dying.
    Exiting(Stopped),
    /// The thread sleeps in a system call of its own, or its process is stopped (signal(7), SIGSTOP); a stop at the end
    /// of that is still to come.
    Left(Running),
    /// This signal, to be delivered at the resume, will kill the process.
    Fatal(Stopped, i32),
    /// A new program image is in place.
    Exec(Stopped),
    /// The thread has exited or was killed without warning.
    Gone(Event),
}

/// Counts of what windows did, for the curious and the benchmarks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Stops in the cache of any kind.
    pub stops: u64,
    /// Stops because a target had no fragment.
    pub misses: u64,
    /// Stops because the log was full.
    pub full: u64,
    /// Records of accesses that were kept.
    pub records: u64,
    /// System calls made during windows.
    pub syscalls: u64,
    /// Signals that arrived during windows.
    pub signals: u64,
    /// Declined instructions.
    pub declined: u64,
}

/// How a window goes on with another turn.
#[derive(Clone, Copy, Debug)]
pub struct GoesOn {
    /// Whether what was executed is counted anew.
    pub anew: bool,
    /// Whether it is the turn of the thread whose speed is looked at.
    pub counting: bool,
    /// Whether no thread of the process has run since the last turn: what is mapped is what it was, but for calls that it was left in.
    pub rested: bool,
}

/// Takes every access, in order.
pub type Tap = Box<dyn FnMut(Access)>;

/// The engine, for one process.
pub struct Translate {
    cache: CodeCache,
    reader: LogReader,
    code: TargetCode,
    data: Data,
    /// First address of the log in use.
    log_start: u64,
    fs_base: u64,
    /// Log words per access, as seen so far.
    words_per_access: f64,
    duty: Duty,
    /// How far another engine's code was followed, and targets of indirect transfers to be learnt from it.
    followed: Followed,
    to_learn: VecDeque<u64>,
    /// Misses after which a window ends, and those before the present one.
    most_misses: u64,
    misses_before: u64,
    filter: TargetFilter,
    /// Tells this engine's filter from others that follow the same observer.
    filter_id: u64,
    /// The observer whose lines it holds.
    filter_of: Option<u64>,
    /// Accesses of the observer at which the window ends.
    limit: u64,
    /// Whether only records that may touch a watched line are kept, up to the next sample.
    quiet: bool,
    /// Every record is kept, always.
    exact: bool,
    /// Whether the last window did.
    looked_everywhere: bool,
    /// The next thread's turn belongs to the window before it; whether its speed is looked at.
    goes_on: Option<GoesOn>,
    /// Threads left in calls that may change what is mapped, or how calls are filtered, at any time.
    remapping: FxHashSet<i32>,
    /// Quiet logs in a row that held next to no touches of watched lines.
    false_logs: u32,
    /// How many are borne: more where it did not help to place the filter anew.
    patience: u32,
    /// Whether the thread entered the cache by `PTRACE_SYSCALL`, so that the call that
    /// ends its stay can be turned into one of the program's own.
    by_syscall: bool,
    /// Whether the next entry is one that the table of indirect targets should have held.
    learn: bool,
    /// Threads of the present window that were looked at for filters, and whether they have any. (All have those of a container that we are in, too.)
    filtered: FxHashMap<i32, bool>,
    pieces: pieces::Pieces,
    storm: signal::Storm,
    tap: Option<Tap>,
    /// What windows did.
    pub stats: Stats,
}

/// Where the thread is and how it was resumed.
#[expect(
    clippy::large_enum_variant,
    reason = "one value at a time, moved once a stop"
)]
enum At {
    Cache(Running),
    /// At its own registers; the system call it is in, and whether it is on its way into a handler.
    Native {
        running: Running,
        syscall: Option<(u64, Regs)>,
        handler: bool,
    },
}

#[expect(
    clippy::large_enum_variant,
    reason = "one value at a time, moved once a stop"
)]
enum Next {
    Go(At),
    End(WindowEnd),
}

/// Why windows end in a program that has limited its address space since we came, where that limit may not be raised.
pub const SPACE_LIMITED: &str = "the program has limited its address space (RLIMIT_AS)";
/// Why they end in one that makes room for itself wherever something is mapped, as loaders do that put another program in the place of their own.
pub const UNMAPPED: &str = "the program has unmapped or mapped over memory of ours";

impl Translate {
    /// Prepares process `pid`, stopped in user mode with its own registers, to be observed. The
    /// outer error means that it is gone; after the inner one it can go on natively.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn new(stopped: Stopped, pid: Pid) -> Result<(Stopped, Result<Translate>)> {
        Self::with_fast(stopped, pid, Fast::here())
    }

    /// As [`Translate::new`], saying what the processor is fast at.
    ///
    /// # Errors
    /// As [`Translate::new`].
    pub fn with_fast(
        stopped: Stopped,
        pid: Pid,
        fast: Fast,
    ) -> Result<(Stopped, Result<Translate>)> {
        Self::with_duty(stopped, pid, Duty::Observe { fast })
    }

    /// As [`Translate::new`]; its windows tell the observer how many accesses there were, and nothing of them.
    ///
    /// # Errors
    /// As [`Translate::new`].
    pub fn counting(stopped: Stopped, pid: Pid) -> Result<(Stopped, Result<Translate>)> {
        Self::with_duty(stopped, pid, Duty::Count)
    }

    fn with_duty(stopped: Stopped, pid: Pid, duty: Duty) -> Result<(Stopped, Result<Translate>)> {
        let code = match TargetCode::open(pid) {
            Ok(code) => code,
            Err(e) => return Ok((stopped, Err(e))),
        };
        let near: Vec<u64> = code
            .maps()
            .0
            .iter()
            .filter(|m| m.is_stable_code())
            .map(|m| m.start)
            .collect();
        let (stopped, mapped) = target::map_runtime(stopped, code.maps(), &near)?;
        let translate = mapped.map(|(mut data, arenas)| {
            let mut cache = CodeCache::new(duty);
            for arena in arenas {
                cache.add_arena(arena);
            }
            cache.clear_jumps(&mut data.memory, data.gs);
            let log_start = data.end;
            Translate {
                cache,
                reader: LogReader::default(),
                code,
                data,
                log_start,
                fs_base: 0,
                words_per_access: 0.5,
                most_misses: u64::MAX,
                misses_before: 0,
                duty,
                followed: Followed::default(),
                to_learn: VecDeque::new(),
                filter: TargetFilter::new(match duty {
                    Duty::Observe { fast } => fast.pext,
                    Duty::Count => false,
                }),
                filter_id: NEXT_FILTER.fetch_add(1, Ordering::Relaxed),
                filter_of: None,
                limit: 0,
                quiet: false,
                exact: false,
                looked_everywhere: false,
                goes_on: None,
                remapping: FxHashSet::default(),
                false_logs: 0,
                patience: REHASH_AFTER,
                by_syscall: false,
                learn: false,
                filtered: FxHashMap::default(),
                pieces: pieces::Pieces::default(),
                storm: signal::Storm::default(),
                tap: None,
                stats: Stats::default(),
            }
        });
        Ok((stopped, translate))
    }

    /// Whether filters are shown the thread's system calls, whoever's they are.
    fn is_filtered(&self, tid: Pid) -> bool {
        self.filtered.get(&tid.as_raw()) == Some(&true)
    }

    /// Looks at how the program filters the thread's system calls; why that leaves no room for windows, if so.
    fn look_at_filters(&mut self, stopped: &Stopped) -> Option<&'static str> {
        let is_filtered = match filters::of(stopped) {
            Filters::Against(reason) => return Some(reason),
            filters => filters != Filters::None,
        };
        self.filtered.insert(stopped.tid().as_raw(), is_filtered);
        None
    }

    /// Whether all that is mapped for this engine was there when the mappings were last read, as it was made.
    fn is_mapped(&self) -> bool {
        let maps = self.code.maps();
        self.data.memory.is_mapped(maps, false) && self.cache.is_mapped(maps)
    }

    /// Whether any of the range is mapped for this engine.
    fn is_ours(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let data = std::iter::once(self.data.memory.range());
        data.chain(self.cache.ranges())
            .any(|range| range.start < end && start < range.end)
    }

    /// The process's mappings as last read.
    pub fn maps(&self) -> &Maps {
        self.code.maps()
    }

    /// The code cache.
    pub fn cache(&self) -> &CodeCache {
        &self.cache
    }

    /// The next call of [`Translate::window`] goes on with the window before it, with another thread's turn or another
    /// turn.
    pub fn go_on(&mut self, how: GoesOn) {
        self.goes_on = Some(how);
    }

    /// Pieces of the last window.
    pub fn take_pieces(&mut self) -> Vec<Piece> {
        self.pieces.take()
    }

    /// Instructions executed for each of the program's own in the last window.
    pub fn expansion(&self) -> f64 {
        self.reader.expansion(&self.cache, !self.looked_everywhere)
    }

    /// The same in an engine that only counts, for what the last window executed.
    pub fn expansion_counting(&self) -> f64 {
        self.reader.expansion_counting(&self.cache)
    }

    /// Instructions that the last window executed in one go with one of `ips`, some of them several times over.
    pub fn executed_with(&self, ips: &FxHashSet<u64>) -> Vec<u64> {
        self.reader.executed_with(&self.cache, ips)
    }

    /// From now on hands every access to `tap` too, beside the observer: slow, for comparisons with
    /// other engines.
    pub fn set_tap(&mut self, tap: Tap) {
        self.exact = true;
        self.tap = Some(tap);
    }

    /// From now on looks at the address of every access, where else it would do so around samples and
    /// at watched lines only: slow, for comparisons.
    pub fn set_exact(&mut self) {
        self.exact = true;
    }

    /// Has what `other`, of the same process, has translated so far be translated ahead where this engine comes near it.
    pub fn follow(&mut self, other: &Translate) {
        let indirect = self.cache.follow(&other.cache, &mut self.followed);
        self.to_learn.extend(indirect);
    }

    /// Ends windows to come at this many targets that are not translated yet.
    pub fn limit_misses(&mut self, most: u64) {
        self.most_misses = most;
    }

    /// Runs one window with `stopped`, which must be stopped in user mode at its own registers, or as a window (of this
    /// engine or another) has left it at [`WindowEnd::Closed`].
    ///
    /// # Errors
    /// [`TraceError::Gone`] when the thread vanished; others are ours.
    pub fn window(
        &mut self,
        stopped: Stopped,
        observer: &mut Observer,
        control: &mut impl Control,
    ) -> Result<WindowEnd> {
        let goes_on = std::mem::take(&mut self.goes_on);
        let remapped = !self.remapping.is_empty();
        self.remapping.remove(&stopped.tid().as_raw());
        let rested = goes_on.is_some_and(|how| how.rested);
        if !rested || remapped {
            self.code.set_unseen();
            self.filtered.clear();
            if hub::take_space(stopped.tid(), 0).is_err() {
                return Ok(WindowEnd::Declined(stopped, SPACE_LIMITED));
            }
        }
        match goes_on {
            Some(how) if !how.anew => self.reader.count_records(how.counting),
            _ => {
                self.reader.reset();
                self.looked_everywhere = true;
                self.cache.begin_window();
            }
        }
        self.misses_before = self.stats.misses;
        self.storm.begins(observer.accesses());
        near::go_to(stopped.tid());
        self.pieces.begin(stopped.tid(), self.duty == Duty::Count);
        let left = control.progress(observer, self.code.maps());
        self.prepare(left, observer);
        let regs = stopped.regs()?;
        let tid = stopped.tid();
        if !self.filtered.contains_key(&tid.as_raw())
            && let Some(reason) = self.look_at_filters(&stopped)
        {
            return Ok(WindowEnd::Declined(stopped, reason));
        }
        if self.in_restartable_sequence(&stopped, &regs) {
            let reason = "a restartable sequence";
            return Ok(WindowEnd::Declined(stopped, reason));
        }
        // At the call that leaves, if at any: where a window before this one was closed.
        let stopped = stopped.without_call();
        let next = self.enter(stopped, regs, observer, Resume::SyscallEmulated);
        let end = next.and_then(|next| self.go_on_from(next, tid, observer, control));
        hub::set_in_cache(None);
        end
    }

    /// The window from its first entry on.
    fn go_on_from(
        &mut self,
        mut next: Next,
        tid: Pid,
        observer: &mut Observer,
        control: &mut impl Control,
    ) -> Result<WindowEnd> {
        loop {
            let in_cache = matches!(next, Next::Go(At::Cache(_)));
            hub::set_in_cache(in_cache.then_some(tid));
            next = match next {
                Next::End(end) => return Ok(end),
                Next::Go(At::Cache(running)) => {
                    let (event, slept) = match control.wait_in_cache(running)? {
                        Ok(event) => (event, false),
                        Err(running) => {
                            running.interrupt()?;
                            (running.wait()?, true)
                        }
                    };
                    match event {
                        Event::Stopped(stopped) => {
                            self.stopped_in_cache(stopped, slept, observer, control)?
                        }
                        gone => Next::End(WindowEnd::Gone(gone)),
                    }
                }
                Next::Go(At::Native {
                    running,
                    syscall,
                    handler,
                }) => match self.wait_natively(control, running, syscall.is_some(), handler)? {
                    Waited::Leave(running) => {
                        if syscall.is_some_and(|(number, _)| may_remap(number)) {
                            self.remapping.insert(tid.as_raw());
                        }
                        self.drain(self.log_pointer(), None, observer);
                        hub::left_in_call(tid);
                        Next::End(WindowEnd::Left(running))
                    }
                    Waited::Event(Event::Stopped(stopped)) => {
                        let woke = has_woken(&stopped, syscall)? && control.has_woken();
                        let yields = syscall
                            .is_some_and(|(number, _)| number as i64 == libc::SYS_sched_yield);
                        let late = woke
                            || yields && control.ends_at_yields()
                            || syscall.is_some() && control.is_late();
                        self.stopped_natively(stopped, syscall, (handler, late), observer)?
                    }
                    Waited::Event(gone) => Next::End(WindowEnd::Gone(gone)),
                    Waited::User(running) => self.end_natively(running, handler, observer)?,
                },
            };
        }
    }

    fn follow_thread(&mut self, tid: Pid) {
        self.stats.stops += 1;
        if self.stats.stops % near::follow_every() == 1 {
            near::go_to(tid);
        }
    }

    /// `slept`: it was asked to stop, as others may have to run before it can go on.
    fn stopped_in_cache(
        &mut self,
        stopped: Stopped,
        slept: bool,
        observer: &mut Observer,
        control: &mut impl Control,
    ) -> Result<Next> {
        self.follow_thread(stopped.tid());
        let mut regs = stopped.regs()?;
        match stopped.reason {
            StopReason::Syscall if self.cache.is_exit_stop(regs.rip) => {
                self.left_cache(stopped, regs, slept, observer, control)
            }
            StopReason::Signal(signal) => self.signal_in_cache(stopped, regs, signal, observer),
            StopReason::Exiting => {
                self.observe_interrupted(&regs, observer);
                Ok(Next::End(WindowEnd::Exiting(stopped)))
            }
            StopReason::Exec => Ok(Next::End(WindowEnd::Exec(stopped))),
            reason
                if reason != StopReason::Group && (slept || hub::is_wanted_out(stopped.tid())) =>
            {
                if let Some(context) = self.observe_interrupted(&regs, observer) {
                    regs = context.regs;
                }
                self.close(stopped, regs)
            }
            StopReason::Group => {
                if let Some(context) = self.observe_interrupted(&regs, observer) {
                    regs = context.regs;
                }
                regs.orig_rax = u64::MAX;
                stopped.set_regs(&regs)?;
                stopped_with_its_process(stopped)
            }
            _ => {
                let how = if self.by_syscall {
                    Resume::Syscall
                } else {
                    Resume::SyscallEmulated
                };
                Ok(Next::Go(At::Cache(stopped.resume_near(how, 0)?)))
            }
        }
    }

    /// The thread came out through the shared stub.
    fn left_cache(
        &mut self,
        stopped: Stopped,
        at_stop: Regs,
        slept: bool,
        observer: &mut Observer,
        control: &mut impl Control,
    ) -> Result<Next> {
        let block = self.block();
        let mut regs = at_stop;
        for gpr in [Gpr::Rax, Gpr::Rcx, Gpr::R11] {
            *get_mut(&mut regs, gpr) = block.word(state::slot(gpr));
        }
        regs.rip = block.word(state::TARGET);
        regs.gs_base = 0;
        let number = block.word(state::EXIT) as u32;
        let exit = self.cache.tables().exit(number);
        match exit.map(|e| (e.fragment, e.kind)) {
            None | Some((_, ExitKind::Direct { .. } | ExitKind::Side { .. }))
                if self.stats.misses - self.misses_before >= self.most_misses =>
            {
                let open = match exit.map(|e| (e.fragment, e.kind)) {
                    Some((fragment, ExitKind::Side { done, .. })) => Some((fragment, done, None)),
                    _ => None,
                };
                self.drain(self.log_pointer(), open, observer);
                self.close(stopped, regs)
            }
            None | Some((_, ExitKind::Direct { .. })) => {
                self.stats.misses += 1;
                self.learn = number == EXIT_INDIRECT;
                self.enter(stopped, regs, observer, Resume::SyscallEmulated)
            }
            Some((_, ExitKind::Changed { .. })) => {
                self.stats.misses += 1;
                if self.cache.replace(number) {
                    self.enter(stopped, regs, observer, Resume::SyscallEmulated)
                } else {
                    self.decline(
                        stopped,
                        regs,
                        observer,
                        "code that changes whenever it runs",
                    )
                }
            }
            Some((fragment, ExitKind::Side { done, target, .. })) => {
                self.learn = target.is_none();
                self.stats.misses += 1;
                self.drain(self.log_pointer(), Some((fragment, done, None)), observer);
                self.cache.build_side(number, &mut self.code);
                self.enter(stopped, regs, observer, Resume::SyscallEmulated)
            }
            Some((fragment, ExitKind::Full { resume })) => {
                self.stats.full += 1;
                self.log_full(stopped, regs, (fragment, resume), observer, control)
            }
            Some((_, ExitKind::Declined(reason))) => self.decline(stopped, regs, observer, reason),
            // It may have been asked to stop, which is not to come in the middle of its call.
            Some((_, ExitKind::Syscall)) if slept || hub::is_wanted_out(stopped.tid()) => {
                self.drain(self.log_pointer(), None, observer);
                self.close(stopped, regs)
            }
            Some((_, ExitKind::Syscall)) => {
                self.stats.syscalls += 1;
                self.program_syscall(stopped, regs, observer)
            }
        }
    }
}

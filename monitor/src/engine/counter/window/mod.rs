//! A sampling window of the `counter` engine: instructions drawn by a counter, their lines watched by the shim.
//!
//! What a window counts are instructions; references are instructions times references per instruction, where nobody
//! looked at them. That ratio comes from the instructions drawn, each as likely as any other of the window (the paper's
//! section 3.7, for any processor) and the few before each; stepped stretches are counted exactly. Where the processor counts memory
//! instructions (Intel's do), distances are those times references per memory instruction instead, which varies less. What a draw is, and why it is unbiased, is
//! `sampler`'s; how a thread is run and stopped is `live`'s. [`draw`] watches what was drawn, [`outcome`] books how watches end. Those still out when the window is over
//! are followed into the native gap behind it ([`beyond`]).
//!
//! A watch that ends for any other reason than the window's end is censored, and where that reason has to do with the
//! line (a page with too many false hits, memory that cannot be watched) it is counted
//! ([`Losses`]) and its sample marked: that censoring is not independent of the distance, so that intervals must hold
//! both extremes.
//!
//! Source: StatCache (Berg & Hagersten 2005) sections 3.4 to 3.7.

mod beyond;
mod draw;
mod mix;
mod outcome;

use super::live::{
    BIRTH_OR_END, Counting, DORMANT, END_OF_PROCESS, FILTERED, Live, Mark, Stop, USER, WAITS,
};
use super::overflow::{Overflow, Unit};
use super::sampler::{Draw, Sampler, SkidComp, calibrate};
use super::shim::Shim;
use crate::engine::step::decode::Decoder;
use crate::engine::translate::window::{Control, Stats, WindowEnd};
use crate::observe::{DEFAULT_LINE, Observer, Sample};
use crate::tracee::maps::{Backing, Maps};
use crate::tracee::{Result, Stopped, TraceError, hub, procinfo, status};
use mix::Mix;
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use statcache_abi::{Request, op, result};
use std::ops::Range;
use std::rc::Rc;

/// What the engine counts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The host's counter of retired instructions.
    Hardware,
    /// Single steps with a random skid: a test aid for hosts without a counter.
    Simulated(Simulation),
}

/// What single steps stand in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulation {
    /// A counter of instructions.
    Instructions,
    /// One of memory instructions beside it.
    Memory,
    /// One of instructions in windows; behind them the thread is not stepped, and each nanosecond of its CPU time is taken for an instruction.
    Clock,
}

impl Source {
    /// Whether it is [`Source::Simulated`].
    pub fn is_simulated(self) -> bool {
        matches!(self, Source::Simulated(_))
    }
}

/// Largest skid of the simulated counter, in instructions.
const SIMULATED_SKID: u64 = 12;
/// Overflows from which the skid is known, and instructions before each: on hardware, and simulated.
const TRIALS: [(u32, u64); 2] = [(200, 5_000), (12, 4)];
/// Instructions between two draws beyond what skid compensation needs, at the least.
const LEAST_MEAN: u64 = 8;
/// Samples followed at a time: the shim has 256 watches on 64 pages. More are not taken, whatever their address.
const MOST_WATCHED: usize = 24;
/// One sample in this many is followed at all line sizes, the others at 64 bytes. (Guessed.)
const ALL_SIZES_ONE_IN: u32 = 4;
/// Faults on its page after which a watch is given up. (Guessed: a false hit costs some 20 us untraced, so 5 ms.)
const MOST_FALSE_HITS: u32 = 256;

/// Watches that ended early for reasons that have to do with the line, and what else was not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Samples taken.
    pub samples: u64,
    /// Of these, with watches given up because of the heat of their page.
    pub hot: u64,
    /// With memory that cannot be watched, or not now.
    pub unwatchable: u64,
    /// Draws whose stop came beyond the skid compensation.
    pub beyond: u64,
    /// Draws whose accesses could not be told.
    pub untold: u64,
}

/// The engine, for one process.
pub struct Counter {
    shim: Rc<Shim>,
    source: Source,
    pid: Pid,
    maps: Maps,
    decoder: Decoder,
    random: SmallRng,
    skid: Option<SkidComp>,
    mix: Mix,
    /// Distances are counted in memory instructions, not in instructions; as the last window's counter could.
    by_memory: bool,
    /// A window that is over, but not for all of its watches.
    open: Option<Open>,
    /// What windows did.
    pub stats: Stats,
    /// What they lost.
    pub losses: Losses,
}

/// Where a watch ended, and by which instruction's touch and whether it wrote; without one it was cut off.
type End = (Mark, Option<(u64, bool)>);

/// A window and its counter.
struct Open {
    seen: Seen,
    counting: Counting,
    /// How far its thread has come.
    mark: Mark,
    /// Stops that it has taken.
    stops: u64,
}

/// How a stage of a window ended.
enum Stage {
    /// As it was to, with the thread still under the shim.
    Kept(Stopped),
    /// The thread has been let go: for this reason if any, or because the process is `over`; or it is gone.
    Over {
        end: std::result::Result<Option<&'static str>, Stop>,
        thread: Option<Stopped>,
        over: bool,
    },
}

/// What a window has seen so far.
struct Seen {
    following: Vec<Following>,
    /// Watches to be dropped.
    stale: Vec<u32>,
    /// Accesses and references that the observer knows of.
    told: (u64, [u64; 5]),
    /// 64-byte references before the window.
    first_ref: u64,
}

/// A sample on its way.
struct Following {
    sample: Sample,
    /// First byte of the sampled reference.
    byte: u64,
    /// Behind the sampled reference.
    from: Mark,
    /// Its end at each line size.
    until: [Option<End>; 5],
    /// Bit k: watched at line size k.
    open: u8,
    /// Bit k: followed at line size k.
    followed: u8,
    /// Faults on its page.
    faults: u32,
    /// Too many.
    given_up: bool,
}

impl Counter {
    /// The engine for process `pid`, which has the shim.
    pub fn new(shim: Rc<Shim>, source: Source, pid: Pid, seed: u64) -> Counter {
        Counter {
            shim,
            source,
            pid,
            maps: Maps::read(pid).unwrap_or_default(),
            decoder: Decoder::new(),
            random: SmallRng::seed_from_u64(seed ^ 0xc027),
            skid: None,
            mix: Mix::default(),
            by_memory: false,
            open: None,
            stats: Stats::default(),
            losses: Losses::default(),
        }
    }

    /// The process's mappings as last read.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// As [`Stopped::must_be_native`], which takes what the shim does for what the program does.
    pub fn must_be_native(&self, stopped: &Stopped) -> Option<&'static str> {
        let ours = |at| self.image().iter().any(|part| part.contains(&at));
        match stopped.dispatcher() {
            Some(at) if ours(at) => Some(DORMANT),
            _ => stopped.must_be_native(),
        }
    }

    /// What it counts with.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Accesses, and references at each line size, for each one of what [`Mark::native`] counts.
    fn ratio(&self) -> (f64, [f64; 5]) {
        self.mix.ratio(self.by_memory)
    }

    /// Runs one window.
    ///
    /// # Errors
    /// What ptrace refuses; the thread is gone.
    pub fn window<C: Control>(
        &mut self,
        stopped: Stopped,
        observer: &mut Observer,
        control: &mut C,
    ) -> Result<WindowEnd> {
        let tid = stopped.tid();
        self.open = None;
        if let Ok(maps) = Maps::read(self.pid) {
            self.maps = maps;
        }
        if !self.shim.is_in(self.pid) || !self.shim.is_mapped(&self.maps) {
            return Ok(WindowEnd::Declined(
                stopped,
                "a process that has not loaded the shim",
            ));
        }
        // All threads are brought under the shim, and a filter may kill any of them for a call of the shim's.
        let ours = status::seccomp_filters(Pid::this());
        let mut threads = procinfo::tasks(self.pid).unwrap_or_default().into_iter();
        if self.shim.sealed() || threads.any(|tid| status::seccomp_filters(tid) > ours) {
            return Ok(WindowEnd::Declined(stopped, FILTERED));
        }
        // Whoever else runs in this memory has no handler of the shim's.
        let borrows = |other: &hub::Process| {
            other.borrows_memory && procinfo::share_memory(other.pid, self.pid) != Some(false)
        };
        if hub::processes().iter().any(borrows) {
            return Ok(WindowEnd::Declined(
                stopped,
                "memory shared with another process",
            ));
        }
        let counting = match self.source {
            Source::Hardware => match Overflow::open(tid, Unit::Instructions) {
                Ok(counter) => Counting::Hardware(counter),
                Err(_) => return Ok(WindowEnd::Declined(stopped, "no performance counter")),
            },
            Source::Simulated(simulated) => Counting::Simulated {
                memory: simulated == Simulation::Memory,
                clock: (simulated == Simulation::Clock)
                    .then(|| Overflow::open(tid, Unit::CpuNanoseconds).ok())
                    .flatten(),
                random: SmallRng::seed_from_u64(self.random.random()),
                skid: SIMULATED_SKID,
            },
        };
        self.shim.events();
        self.mix.fade();
        let mut open = Open {
            seen: Seen::new(observer),
            counting,
            mark: Mark::default(),
            stops: 0,
        };
        let mut exact = 0;
        let before = self.stats.stops;
        let stage = self.stage(stopped, &mut open, control, |counter, live, seen| {
            counter.by_memory = live.counts_memory();
            let end = counter.observe(live, observer, seen);
            exact = live.accesses;
            // Those that are out are followed further. (Of several threads the others would stop at each watched page and call as well.)
            let keep = end.is_ok() && seen.watched() > 0 && counter.is_alone();
            (end, keep)
        });
        open.stops = self.stats.stops - before;
        self.tell(&mut open.seen, open.mark, exact, observer);
        if let Stage::Kept(thread) = stage {
            self.open = Some(open);
            return Ok(WindowEnd::Closed(thread));
        }
        self.ended(stage, open, tid, observer)
    }

    /// Whether the thread is the process's only one.
    fn is_alone(&self) -> bool {
        hub::process(self.pid).is_none_or(|process| process.threads.len() < 2)
    }

    /// Runs one stage of a window, with the thread let go behind it unless that says to keep it.
    fn stage<C: Control>(
        &mut self,
        stopped: Stopped,
        open: &mut Open,
        control: &mut C,
        what: impl FnOnce(
            &mut Counter,
            &mut Live<'_, C>,
            &mut Seen,
        ) -> (std::result::Result<(), Stop>, bool),
    ) -> Stage {
        let tid = stopped.tid();
        let shim = Rc::clone(&self.shim);
        let image = self.image();
        let vdso = self.maps.0.iter().find(|m| m.path == Backing::Vdso);
        let vdso = vdso.map_or(0..0, |m| m.start..m.end);
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new());
        let mut live = Live::new(
            stopped,
            &shim,
            &image,
            vdso,
            control,
            &mut open.counting,
            &mut decoder,
        );
        live.mark = open.mark;
        shim.set_stepping(true);
        let (end, keep) = what(self, &mut live, &mut open.seen);
        let over = matches!(&end, Err(Stop::Close(END_OF_PROCESS)));
        let end = match end {
            Ok(()) => Ok(None),
            Err(Stop::Close(reason)) => Ok(Some(reason)),
            Err(other) => Err(other),
        };
        // Whatever ended it, nothing of ours stays in a thread that goes on.
        let end = match end {
            Ok(reason) if !keep => live.end().map(|()| reason),
            end => end,
        };
        shim.set_stepping(false);
        self.stats.stops += live.stops;
        open.mark = live.mark;
        let met = std::mem::take(&mut live.met);
        self.settle(&mut open.seen, met, tid);
        let thread = live.into_thread();
        self.decoder = decoder;
        match (end, thread) {
            (Ok(None), Some(thread)) if keep => Stage::Kept(thread),
            (end, thread) => Stage::Over { end, thread, over },
        }
    }

    /// Hands over the samples of a window that is over.
    fn ended(
        &mut self,
        stage: Stage,
        open: Open,
        tid: Pid,
        observer: &mut Observer,
    ) -> Result<WindowEnd> {
        let (end, thread, over) = match stage {
            Stage::Kept(thread) => (Ok(None), Some(thread), false),
            Stage::Over { end, thread, over } => (end, thread, over),
        };
        self.deliver(open.seen, open.mark, over, observer);
        let gone = TraceError::Gone(tid);
        match end {
            Ok(None | Some(USER | END_OF_PROCESS | BIRTH_OR_END | WAITS)) => {
                Ok(WindowEnd::Closed(thread.ok_or(gone)?))
            }
            Ok(Some(reason)) => Ok(WindowEnd::Declined(thread.ok_or(gone)?, reason)),
            Err(Stop::End(end)) => Ok(end),
            Err(Stop::Close(reason)) => Ok(WindowEnd::Declined(thread.ok_or(gone)?, reason)),
            Err(Stop::Trace(error)) => Err(error),
        }
    }

    /// Where the shim's code lies.
    fn image(&self) -> Vec<Range<u64>> {
        let call = self
            .shim
            .block()
            .call
            .load(std::sync::atomic::Ordering::Relaxed);
        let path = self.maps.find(call).map(|mapping| mapping.path.clone());
        let parts = self
            .maps
            .0
            .iter()
            .filter(|m| Some(&m.path) == path.as_ref());
        parts.map(|m| m.start..m.end).collect()
    }

    /// Takes the thread and its process under the shim.
    fn begin<C: Control>(&mut self, live: &mut Live<'_, C>) -> std::result::Result<(), Stop> {
        if live.in_shim()? {
            return Err(Stop::Close("in the shim"));
        }
        if !live.is_free()? {
            return Err(Stop::Close("32-bit code"));
        }
        if live.in_critical_section() {
            return Err(Stop::Close("restartable sequence"));
        }
        live.note_rseq()?;
        match live.begin()? {
            result::OK => Ok(()),
            result::UNSUPPORTED => Err(Stop::Close("a kernel without Syscall User Dispatch")),
            result::ASYNCHRONOUS => Err(Stop::Close("io_uring, which would fail on watched pages")),
            result::SEALED => Err(Stop::Close(FILTERED)),
            result::BORROWED => Err(Stop::Close("memory shared with another process")),
            _ => Err(Stop::Close(
                "a thread that cannot be brought under the shim",
            )),
        }
    }

    /// Draws and follows until the window is over.
    fn observe<C: Control>(
        &mut self,
        live: &mut Live<'_, C>,
        observer: &mut Observer,
        seen: &mut Seen,
    ) -> std::result::Result<(), Stop> {
        self.begin(live)?;
        let skid = match self.skid {
            Some(skid) => skid,
            None => {
                let (trials, instructions) = TRIALS[usize::from(self.source.is_simulated())];
                let found = calibrate(live, trials, instructions)?;
                let skid = found.ok_or(Stop::Close("it ended during calibration"))?;
                tracing::debug!(?skid, "calibrated");
                *self.skid.insert(skid)
            }
        };
        loop {
            self.tell(seen, live.mark, live.accesses, observer);
            if live.control().progress(observer, &self.maps) == 0 {
                return Ok(());
            }
            let per_reference = 1.0 / self.mix.ratio(false).1[DEFAULT_LINE].max(0.01);
            let mean = (observer.period() as f64 * per_reference) as u64;
            let mean = mean.max(skid.0 + 1 + LEAST_MEAN);
            let random = SmallRng::seed_from_u64(self.random.random());
            let draw = Sampler::new(skid, mean, random).draw(live)?;
            if draw != Draw::SkidBeyond {
                self.learn(std::mem::take(&mut live.recent));
            }
            match draw {
                Draw::Samples(samples) => self.take(live, observer.window(), &samples, seen)?,
                Draw::NoAccess => self.mix.add(0, [0; 5]),
                Draw::SkidBeyond => self.losses.beyond += 1,
                Draw::Untold => self.losses.untold += 1,
                Draw::Ended => return Err(Stop::Close("it ended")),
            }
            self.keep_up(live, seen)?;
        }
    }

    /// Books what was met since the last time, and drops watches that have ended.
    fn keep_up<C: Control>(
        &mut self,
        live: &mut Live<'_, C>,
        seen: &mut Seen,
    ) -> std::result::Result<(), Stop> {
        let met = std::mem::take(&mut live.met);
        self.settle(seen, met, live.tid());
        self.cool(seen, std::mem::take(&mut live.faults));
        for id in std::mem::take(&mut seen.stale) {
            live.call(Request {
                op: op::DISARM,
                id,
                ..Request::default()
            })?;
        }
        Ok(())
    }
}

impl Seen {
    fn new(observer: &Observer) -> Seen {
        Seen {
            following: Vec::new(),
            stale: Vec::new(),
            told: (0, [0; 5]),
            first_ref: observer.refs()[DEFAULT_LINE],
        }
    }

    fn watched(&self) -> usize {
        self.following.iter().filter(|f| f.open != 0).count()
    }
}

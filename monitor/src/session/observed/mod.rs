//! One process of the run: its engine, what is seen of its threads, and its part of the profile.

mod books;
mod clock;
mod laps;
mod meanwhile;
mod prepare;
mod timing;
mod turns;
mod warming;
mod whereabouts;

use books::Began;
use clock::NativeClock;
pub use meanwhile::Meanwhile;
use timing::{Beside, Timing};
pub use turns::InTurn;
use whereabouts::{Place, Whereabouts};

use super::content::Content;
use super::cost::{Cost, Stops};
use super::engine::Engine;
use super::idle::Beginning;
use super::looks::Looks;
use super::output::Output;
use super::pace::{self, Numbers, Pace, Turn, Windows};
use super::rates::ANY_RATE;
use super::recorder::Recorder;
use super::remains::{self, Remains};
use super::schedule::Plan;
use super::seek::{self, Seek, Sought};
use super::signals::Signals;
use super::speeds::Speeds;
use super::spread::FULL_PERIOD;
use super::weights::Weights;
use crate::engine::translate::window::{GoesOn, WindowEnd};
use crate::observe::{Ended, Observer};
use crate::profile::ProfileError;
use crate::profile::types::{InstrId, ProcessRecord};
use crate::tracee::filters::{HARMFUL, UNREADABLE};
use crate::tracee::{Result, Stopped, hub, procinfo, status};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Samples at the beginning of a window that tell where it began.
const FIRST_SAMPLES: usize = 64;

/// What is seen of one thread, or of one thread after the other.
struct Lane {
    observer: Observer,
    windows: Windows,
}

/// A process with at least one window.
pub struct Observed {
    /// The process as last seen.
    pub process: hub::Process,
    /// The engine of its present image; `None` while it has none.
    pub engine: Option<Engine>,
    /// What times threads natively, once it was wanted; and whether it may be.
    timing: Option<Box<Timing>>,
    times: bool,
    /// What was timed behind the present window.
    beside: Beside,
    /// The code that the open window, or what was timed before it, began in, and its accesses a second where it begins in a stretch without.
    began_at: Option<u64>,
    idle: Option<f64>,
    /// CPU seconds of its thread when it began.
    began_s: f64,
    /// When the open window ends at the latest.
    ends: Option<Instant>,
    /// The image that the engine, or its refusal, is of.
    image: u32,
    /// When that was first seen.
    since: Instant,
    /// Why the present image is not observed.
    refused: Option<String>,
    /// All of its threads have filters that leave no room for windows of this image.
    sandboxed: bool,
    full: bool,
    seed: u64,
    start: Instant,
    numbers: Rc<Numbers>,
    lanes: BTreeMap<i32, Lane>,
    weights: Weights,
    looks: Looks,
    seek: Seek,
    /// Whether the open window is where one was sought.
    is_sought: bool,
    whereabouts: Whereabouts,
    /// Native clock up to which it was looked where threads are.
    looked_s: f64,
    recorder: Recorder,
    /// Estimated native seconds of what was observed.
    native_s: f64,
    /// CPU seconds spent natively by threads that were to be observed.
    missed_s: f64,
    /// CPU seconds of threads when they were let go natively for a while.
    paused: BTreeMap<i32, f64>,
    /// CPU seconds of its threads inside windows.
    in_windows_s: f64,
    native_clock: NativeClock,
    /// System calls in windows, and accesses.
    calls: (u64, u64),
    /// Those system calls when the open window began.
    calls_before: u64,
    /// Native clock when the present one was opened.
    opened_at_s: f64,
    /// Wall seconds of its windows.
    pub window_wall_s: f64,
    /// Samples and accesses of lanes that are no more.
    past: (u64, u64),
    declined: BTreeMap<&'static str, u64>,
    /// What the last window took.
    pub cost: Cost,
    /// Of that, and of its accesses, the part of the thread that it was opened for.
    first: (Cost, u64),
    /// What its stops cost.
    stops: Stops,
    in_turn: InTurn,
    /// What is known of its threads' speeds.
    speeds: Speeds,
    /// CPU seconds of threads that have not run since their last turn of the window.
    held: BTreeMap<i32, f64>,
    /// Threads whose last turn of the window ended in a call.
    left: BTreeSet<i32>,
    /// [`Engine::expansion`] as last asked, and the lane's accesses then.
    expansion: Option<(f64, u64)>,
    /// Whether all threads are observed in turn, in one lane.
    together: bool,
    /// The thread that had the last turn, in which it made no system call.
    calm: Option<Pid>,
    /// How often held threads had been let go on when that was last looked at.
    let_gone: u64,
    /// gs bases that an earlier monitor left here when it was killed.
    pub stale_gs: Vec<std::ops::Range<u64>>,
}

impl Observed {
    /// A process without a window yet.
    pub fn new(
        process: hub::Process,
        output: Output,
        seed: u64,
        full: bool,
        start: Instant,
    ) -> Self {
        let record = ProcessRecord {
            id: process.id,
            pid: process.pid.as_raw(),
            ppid: process.ppid.as_raw(),
            command: procinfo::command(process.pid),
        };
        Observed {
            native_clock: NativeClock::new(process.counts_before),
            calls: (0, 0),
            calls_before: 0,
            image: process.image,
            engine: None,
            timing: None,
            times: true,
            beside: Beside::default(),
            began_at: None,
            idle: None,
            began_s: f64::NAN,
            ends: None,
            since: Instant::now(),
            refused: None,
            sandboxed: false,
            full,
            seed,
            start,
            numbers: Rc::default(),
            lanes: BTreeMap::new(),
            weights: Weights::default(),
            looks: Looks::default(),
            seek: Seek::default(),
            is_sought: false,
            whereabouts: Whereabouts::default(),
            looked_s: 0.0,
            recorder: Recorder::new(output, record),
            native_s: 0.0,
            missed_s: 0.0,
            paused: BTreeMap::new(),
            in_windows_s: 0.0,
            opened_at_s: 0.0,
            window_wall_s: 0.0,
            past: (0, 0),
            declined: BTreeMap::new(),
            cost: Cost::default(),
            first: (Cost::default(), 0),
            stops: Stops::default(),
            process,
            in_turn: InTurn::default(),
            speeds: Speeds::default(),
            held: BTreeMap::new(),
            left: BTreeSet::new(),
            expansion: None,
            together: false,
            calm: None,
            let_gone: 0,
            stale_gs: Vec::new(),
        }
    }

    /// Whether a thread stopped a while ago is still one that the engine was made for.
    pub fn is_same(&self, stopped: &Stopped) -> bool {
        hub::is_same(stopped.tid(), self.image)
    }

    /// Whether windows of the present image have been given up.
    pub fn is_refused(&self, image: u32) -> bool {
        (self.refused.is_some() || self.sandboxed) && self.image == image
    }

    /// Ends and records every open window of a run that is observed as a whole.
    fn close_all(&mut self, how: Ended) -> std::result::Result<(), ProfileError> {
        let mut result = Ok(());
        self.together = false;
        for (_, mut lane) in std::mem::take(&mut self.lanes) {
            self.past.0 += lane.observer.samples();
            self.past.1 += lane.observer.accesses();
            if let (true, Some(engine)) = (self.full, &self.engine) {
                let (windows, observer) = (&lane.windows, &mut lane.observer);
                let record =
                    pace::end_window(windows, observer, how, &mut self.recorder, engine.maps());
                result = result.and(self.recorder.window(record));
            }
        }
        result
    }

    /// The thread has ended: so has its window, where all is observed.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn thread_ended(&mut self, tid: Pid) -> std::result::Result<(), ProfileError> {
        self.recorder.thread_ended(tid);
        if self.together {
            if let Some(lane) = self.lanes.get_mut(&0) {
                lane.observer.thread_ended(tid.as_raw());
            }
            return Ok(());
        }
        let others = self.lanes.split_off(&(tid.as_raw() + 1));
        let own = self.lanes.remove(&tid.as_raw());
        let before = std::mem::replace(
            &mut self.lanes,
            own.map(|l| (tid.as_raw(), l)).into_iter().collect(),
        );
        let result = self.close_all(Ended::Exit);
        self.lanes = before;
        self.lanes.extend(others);
        result
    }

    /// Opens a window of thread `tid`, `sought` if that is at a place where one was; where all is observed, goes on with the one that is open.
    ///
    /// # Errors
    /// When the window before it cannot be written.
    pub fn open(
        &mut self,
        tid: Pid,
        plan: Plan,
        sought: bool,
    ) -> std::result::Result<(), ProfileError> {
        if let Some(engine) = &mut self.engine {
            engine.limit_misses(plan.misses);
        }
        self.ends = Instant::now().checked_add(plan.time);
        let key = self.key(tid);
        let (seed, full) = (self.seed ^ u64::from(self.process.id) << 32, self.full);
        let lane = self.lanes.entry(key).or_insert_with(|| {
            let first = key == 0 || tid == self.process.pid;
            let seed = if first {
                seed
            } else {
                seed ^ tid.as_raw() as u64
            };
            Lane {
                // Sampled from the first window on only: `Windows::open` sets the period.
                observer: Observer::new(FULL_PERIOD, seed),
                windows: Windows::new(self.process.pid, tid, self.start, Rc::clone(&self.numbers)),
            }
        });
        self.held.clear();
        self.left.clear();
        self.calm = None;
        self.in_turn = InTurn::default();
        (self.cost, self.first) = (Cost::default(), (Cost::default(), 0));
        self.is_sought = sought;
        (self.began_s, self.calls_before) = (f64::NAN, self.calls.0);
        if full && lane.windows.any() {
            return Ok(());
        }
        lane.windows.tid = tid;
        lane.windows.open(&mut lane.observer, plan.period, false);
        lane.observer.limit_samples(plan.most_samples());
        if plan.looks_at_all {
            lane.observer.await_first_touches();
        }
        if full {
            lane.observer.draw_lines();
        }
        self.pause_native_clock();
        self.opened_at_s = self.native_clock_s();
        self.look(self.opened_at_s);
        match self.weights.open(self.opened_at_s, sought) {
            Some(before) if !full => self.recorder.window(before),
            _ => Ok(()),
        }
    }

    /// Notes where its threads have been since the last window, up to `until_s` of its native clock.
    fn look(&mut self, until_s: f64) {
        let from_s = std::mem::replace(&mut self.looked_s, until_s);
        for places in self.whereabouts.take() {
            // Of the clock that ticks, a period apart.
            let apart_s = (until_s - from_s).max(0.0) / places.len().max(1) as f64;
            for (n, place) in places.into_iter().enumerate() {
                let at_s = from_s + (n as f64 + 0.5) * apart_s;
                self.looks.look(at_s, place.ip, place.image);
                if place.image == self.image {
                    self.seek.look(place.image, place.ip);
                }
            }
        }
    }

    /// A window is over: from here on its threads run natively again, for `gap_s` on the mean.
    pub fn leave_alone(&mut self, gap_s: f64) {
        if !self.full {
            // Its image may be a new one, which has no engine yet.
            let (threads, image) = match hub::process(self.process.pid) {
                Some(process) => (process.threads, process.image),
                None => (Vec::new(), self.image),
            };
            self.whereabouts.follow(&threads, image, gap_s);
            self.looked_s = self.native_clock_s();
            self.native_clock.go_on(procinfo::counts(self.process.pid));
        }
    }

    /// Has some code translated that windows are likely to meet, while threads run natively, up to `most` fragments for either engine. False when
    /// there is none.
    pub fn translate_around(&mut self, most: usize) -> bool {
        let Some(Engine::Translate(engine)) = &mut self.engine else {
            return false;
        };
        let more = engine.translate_around(most);
        let timing = self.timing.as_mut();
        timing.is_some_and(|timing| timing.translate_around(engine, most)) || more
    }

    /// Takes the code that threads are in natively for code that was met. Returns where one was last.
    pub fn note_where_threads_are(&mut self) -> Option<Place> {
        let Some(Engine::Translate(engine)) = &mut self.engine else {
            return None;
        };
        let news = self.whereabouts.news();
        let of_image = news.iter().filter(|place| place.image == self.image);
        engine.note_met(of_image.map(|place| place.ip));
        news.last().copied()
    }

    /// Where a window of its only thread should be, if anywhere.
    pub fn sought(&self) -> Option<Sought> {
        let is_translated = matches!(self.engine, Some(Engine::Translate(_)));
        let sought = is_translated.then(|| self.seek.sought());
        sought.filter(|sought| !sought.is_empty())
    }

    /// These places were sought, and found or not.
    pub fn has_sought(&mut self, sought: &Sought, found: bool) {
        self.seek.tried(sought, found);
    }

    /// The next window is not timed.
    pub fn go_untimed(&mut self) {
        (self.beside, self.began_at) = (Beside::default(), None);
    }

    /// Whether the open window has lasted as long as it may.
    pub fn is_long(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
    }

    /// CPU seconds of the process outside of windows.
    fn outside_s(&self) -> f64 {
        let clock = procinfo::process_clock_s(self.process.pid);
        let clock = clock.unwrap_or(self.process.cpu_s).max(self.process.cpu_s);
        clock - self.process.cpu_before_s - self.in_windows_s
    }

    /// Its native clock in seconds.
    fn native_clock_s(&mut self) -> f64 {
        let calls = match (&self.engine, self.calls) {
            // One more than there were: that there was none says little.
            (Some(Engine::Translate(_)), (calls, accesses)) if accesses > 0 => {
                (calls + 1) as f64 / accesses as f64 * ANY_RATE
            }
            // The other engines do not count them.
            _ => f64::INFINITY,
        };
        self.native_clock.advance(self.outside_s(), calls)
    }

    /// Its threads are about to be held, or in our code.
    fn pause_native_clock(&mut self) {
        if !self.full {
            let now = procinfo::counts(self.process.pid);
            self.native_clock.pause(now.or(Some(self.process.counts)));
        }
    }

    /// Runs the open window of the thread, or its turn of `turn` accesses; books its time. Returns how it
    /// ended, its accesses, and the error if a part could not be written.
    ///
    /// # Errors
    /// As [`Engine::window`].
    pub fn window(
        &mut self,
        stopped: Stopped,
        accesses: Option<u64>,
        turn: Option<Turn>,
        signals: &mut Signals,
        until: Option<Instant>,
    ) -> Result<(WindowEnd, u64, Option<ProfileError>)> {
        let (tid, pid) = (stopped.tid(), self.process.pid);
        let key = self.key(tid);
        let rested = self.together && self.is_at_rest();
        let (Some(engine), Some(lane)) = (&mut self.engine, self.lanes.get_mut(&key)) else {
            return Ok((WindowEnd::Closed(stopped), 0, None));
        };
        self.left.remove(&tid.as_raw());
        let begun = Instant::now();
        let cpu = match self.held.remove(&tid.as_raw()) {
            Some(cpu) => cpu,
            None => procinfo::thread_cpu_s(pid, tid).unwrap_or(0.0),
        };
        if let Some(since) = self.paused.remove(&tid.as_raw()) {
            self.missed_s += (cpu - since).max(0.0);
        }
        let first = lane.windows.tid == tid;
        if first && self.began_s.is_nan() {
            self.began_s = cpu;
            let ip = || stopped.regs().ok().map(|regs| regs.rip);
            self.began_at = self.began_at.or_else(ip);
        }
        // Of which thread executions are counted: where all is observed, of one after the other.
        let clocked = self.full && self.together && self.speeds.is_due();
        let began = Began {
            tid,
            at: begun,
            cpu_s: cpu,
            accesses: lane.observer.accesses(),
            stats: engine.stats(),
            first,
            clocked,
            counts: clocked || first && !self.full,
        };
        let begins = clocked || first && self.first.1 == 0;
        if lane.observer.is_shared() {
            lane.observer
                .begin_turn(tid.as_raw(), self.speeds.pace(tid.as_raw()));
            let how = GoesOn {
                anew: begins,
                counting: began.counts,
                rested,
            };
            engine.go_on(how);
        }
        if let (false, Ok(regs)) = (self.recorder.knows_stack_of(tid), stopped.regs()) {
            let maps = engine.maps();
            self.recorder.runs_on(tid, regs.rsp, regs.fs_base, maps);
        }
        let mut pace = Pace {
            signals,
            windows: &mut lane.windows,
            recorder: &mut self.recorder,
            accesses,
            turn,
            before: began.accesses,
            whole: self.full,
            woke: false,
            yielded: false,
            error: None,
            begun,
            ends: if turn.is_some() { None } else { self.ends },
            until,
            slept: Duration::ZERO,
        };
        hub::set_alone(turn.and_then(|turn| turn.alone.then_some(tid)));
        let end = engine.window(stopped, &mut lane.observer, &mut pace);
        hub::set_alone(None);
        let error = pace.error;
        self.in_turn.woke |= pace.woke;
        self.in_turn.has_yielded(tid, pace.yielded);
        lane.observer.end_turn();
        let accesses = self.book(&began, &end);
        let end = end?;
        if let WindowEnd::Declined(_, UNREADABLE | HARMFUL) = end {
            self.note_sandbox();
        }
        Ok((self.leave_space(end)?, accesses, error))
    }

    /// Closes the window of a sampled run; it is recorded with the next one.
    pub fn close(&mut self, how: Ended) {
        let pieces = self.engine.as_mut().map(Engine::take_pieces);
        let pieces = pieces.unwrap_or_default();
        let began_at = self.began_at.take();
        self.idle = match self.beginning(&pieces) {
            Beginning::Idle(rate) if began_at.is_some() => Some(rate),
            _ => None,
        };
        let began_at = began_at.filter(|_| self.idle.is_some());
        if let Some(engine) = &self.engine {
            self.stops.learn(pieces, engine.expansion());
        }
        let inside = self.inside();
        let opened = self.opened_at_s;
        let (Some(engine), Some(lane)) = (&self.engine, self.lanes.get_mut(&0)) else {
            return;
        };
        let (windows, observer) = (&lane.windows, &mut lane.observer);
        let record = pace::end_window(windows, observer, how, &mut self.recorder, engine.maps());
        observer.end_share();
        self.together = false;
        let mut sampled: Vec<(u64, InstrId)> = record
            .samples
            .iter()
            .map(|taken| (taken.sample.position, taken.sample.ip))
            .collect();
        sampled.sort_unstable();
        let ips = sampled.iter();
        let ips: Vec<u64> = ips
            .filter_map(|&(_, ip)| self.recorder.address(ip))
            .collect();
        let first = ips[..ips.len().min(FIRST_SAMPLES)].to_vec();
        // One that soon left where it was sought is like any other.
        let (image, seek) = (self.image, &self.seek);
        let is_there = match began_at {
            Some(ip) => seek.is_mostly_new(image, &[ip]),
            None => seek.is_mostly_new(image, &ips),
        };
        let sought = std::mem::take(&mut self.is_sought) && is_there;
        let mut first = first;
        if sought {
            // Of other code that it came to it has more or less than one opened by chance.
            first.retain(|&ip| seek.is_mostly_new(image, &[ip]));
        }
        if let Some(Engine::Translate(engine)) = &self.engine {
            let began = first[..first.len().min(seek::BEGINNING)].iter().copied();
            let began = began.chain(began_at).collect();
            let others = engine.executed_with(&began);
            self.seek.saw(self.image, &began, others);
        }
        let (first, behind) = match began_at {
            Some(ip) => (vec![ip; FIRST_SAMPLES], Some(first)),
            None => (first, None),
        };
        match sought {
            true => self.looks.of_its_code(opened, self.image, first),
            false => self.looks.window(opened, self.image, first),
        }
        if let Some(behind) = behind {
            self.looks.of_its_code(opened, self.image, behind);
        }
        // On a clock that counts no window: what other threads did meanwhile was native.
        self.weights.close(record, opened, inside);
        self.weights.of(Content::new(self.image, &ips));
    }

    /// Writes the last window and gives away what is left, at the end of the process or of the
    /// profile (`cut`).
    pub fn finish(mut self, cut: bool) -> Remains {
        let mut result = self.close_all(if cut { Ended::Cut } else { Ended::Exit });
        self.pause_native_clock();
        let outside_s = self.outside_s();
        let native = self.native_clock_s();
        if let Some(last) = self.weights.finish(native) {
            result = result.and(self.recorder.window(last));
        }
        if !self.full && self.numbers.count() > 0 {
            self.look(native);
            let looks = &self.looks;
            let shares = |rates: &[f64], seen: &[bool]| looks.shares(native, rates, seen);
            let settled = self.weights.settle(shares);
            result = result.and(self.recorder.shares(settled.factors));
            if !settled.looks.is_empty() {
                let unmet = looks.unmet(native, |image, ip| !self.seek.is_met(image, ip));
                result = result.and(self.recorder.looks(settled.looks));
                result = result.and(self.recorder.unmet(unmet));
            }
            if let Some(engine) = &self.engine {
                let places = looks.places(self.image);
                result = result.and(self.recorder.between(places, engine.maps()));
            }
        }
        if let Some(engine) = &self.engine {
            tracing::debug!(pid = %self.process.pid, stats = ?engine.stats(), "engine");
        }
        let (samples, accesses) = self.past;
        let missed = self.missed_s / (self.missed_s + self.native_s).max(1e-9);
        let estimated = if self.full {
            remains::whole(accesses as f64, missed)
        } else {
            self.weights.total()
        };
        let mut warnings = remains::warnings(
            self.refused.as_deref(),
            self.numbers.count(),
            &self.declined,
        );
        if let Some(Engine::Counter(counter)) = &self.engine {
            tracing::debug!(losses = ?counter.losses, "counter");
            warnings.extend(remains::losses(&counter.losses));
        }
        let mut remains = Remains {
            refused: self.refused.is_some(),
            estimated,
            counts: (self.numbers.count(), samples, accesses),
            window_wall_s: self.window_wall_s,
            missed,
            warnings,
            error: result.err(),
            recorder: self.recorder,
            process: self.process,
        };
        let process = &mut remains.process;
        process.cpu_s = outside_s + self.in_windows_s;
        if process.status.is_none() {
            process.footprint_bytes = status::footprint_bytes(process.pid).unwrap_or(0);
        }
        remains
    }
}

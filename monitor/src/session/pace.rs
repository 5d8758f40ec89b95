//! How a window of the session is paced, and how a whole observed run is cut into model windows.

use super::recorder::Recorder;
use super::signals::{NAP, Signals, Wait};
use super::spread::Spread;
use crate::engine::translate::window::{Control, Waited};
use crate::observe::{Ended, Lane, Observer, Sample};
use crate::profile::ProfileError;
use crate::profile::types::{Estimate, FirstTouches, ThreadShare, WindowRecord};
use crate::tracee::maps::Maps;
use crate::tracee::{Event, Result, Running, hub, near, procinfo};
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// First model windows of an observed run, in accesses; later ones grow with the run, so that
/// their number stays in the hundreds.
const FIRST_CUT: u64 = 200_000;
/// A model window of an observed run is this fraction of the run before it.
const CUT_FRACTION: u64 = 150;
/// Most epochs of a model window, and least 64-byte references of an epoch but the window's end: drawn lines are looked for once an epoch.
const EPOCHS: u64 = 16;
const LEAST_EPOCH: u64 = 1 << 20;

/// Longest time for which a thread may sleep inside a window, in one piece or in many: of one of several
/// threads, and of the only one. What an idle thread does is too little to wait for.
pub const PATIENCE: Duration = Duration::from_millis(20);
pub const LONE_PATIENCE: Duration = Duration::from_millis(500);
/// How long one may sleep while others wait for their turn, where all of the run is observed.
const FULL_PATIENCE: Duration = Duration::from_micros(300);
/// How long one may sleep in its turn: others wait for theirs, and what it waits for is theirs to do.
const TURN_PATIENCE: Duration = Duration::from_micros(50);
/// Longest time between two looks whether there are others.
const LONGEST_LOOK: Duration = Duration::from_millis(200);
/// A thread that has not come out of the cache for so long, as a loop without accesses does not, makes room for others that wait.
const STUCK: Duration = Duration::from_millis(100);
/// The same in its turn among others, which is over in a fraction of that.
const STUCK_IN_TURN: Duration = Duration::from_millis(10);
/// The same for one that did so in its last turn: about as long as turns take.
pub const SPIN: Duration = Duration::from_micros(200);
/// After this time the next thread has its turn, where all of the run is observed.
const SLICE: Duration = Duration::from_millis(40);
/// The same among the threads of a round, for those that do little but make system calls: a turn of theirs takes thousands of stops,
/// another one's some hundred microseconds.
const TURN_SLICE: Duration = Duration::from_millis(3);

/// The numbers of a process's windows, given out to its threads.
#[derive(Debug, Default)]
pub struct Numbers {
    next: Cell<u32>,
    /// One past the window that was recorded last; 0 before the first.
    recorded: Cell<u32>,
}

impl Numbers {
    /// Windows so far.
    pub fn count(&self) -> u32 {
        self.next.get()
    }
}

/// Where windows begin, for all that is recorded about them.
#[derive(Debug)]
pub struct Windows {
    pid: Pid,
    /// The thread that is observed.
    pub tid: Pid,
    /// Start of the run.
    start: Instant,
    numbers: Rc<Numbers>,
    index: u32,
    /// One past the window that this one continues; 0 when it continues none.
    continues: u32,
    /// For each window that watches may be left of, the 64-byte references before it.
    first_refs: FxHashMap<u32, u64>,
    accesses: u64,
    refs: [u64; 5],
    /// What each of several threads had done before.
    lanes: Vec<Lane>,
    opened: Instant,
    cpu_s: f64,
    /// How long watches of the present window were followed behind it.
    pub followed: Duration,
    /// Units declined in the present window.
    pub declined: u32,
    /// What a run observed as a whole goes to again and again.
    spread: Spread,
}

impl Windows {
    /// No window yet of thread `tid` of process `pid`.
    pub fn new(pid: Pid, tid: Pid, start: Instant, numbers: Rc<Numbers>) -> Windows {
        Windows {
            pid,
            tid,
            start,
            numbers,
            index: 0,
            continues: 0,
            first_refs: FxHashMap::default(),
            accesses: 0,
            refs: [0; 5],
            lanes: Vec::new(),
            opened: start,
            cpu_s: 0.0,
            followed: Duration::ZERO,
            declined: 0,
            spread: Spread::default(),
        }
    }

    /// Whether a window was ever opened.
    pub fn any(&self) -> bool {
        !self.first_refs.is_empty()
    }

    /// Opens the next window; samples taken from now on are its own. Where it does not continue the
    /// one before it, all watches have ended.
    pub fn open(&mut self, observer: &mut Observer, period: u64, contiguous: bool) {
        self.continues = 0;
        if contiguous {
            self.continues = self.index + 1;
        } else {
            self.first_refs.clear();
        }
        self.index = self.numbers.next.get();
        self.numbers.next.set(self.index + 1);
        observer.set_window(self.index, period);
        self.refs = observer.refs();
        self.first_refs
            .insert(self.index, self.refs[crate::observe::DEFAULT_LINE]);
        self.accesses = observer.accesses();
        self.lanes = observer.lanes().to_vec();
        self.opened = Instant::now();
        self.cpu_s = procinfo::thread_cpu_s(self.pid, self.tid).unwrap_or(0.0);
        self.followed = Duration::ZERO;
        self.declined = 0;
    }

    /// Accesses observed in the open window.
    pub fn accesses(&self, observer: &Observer) -> u64 {
        observer.accesses() - self.accesses
    }

    /// What each of several threads did in the open window.
    fn shares(&self, observer: &Observer) -> Vec<ThreadShare> {
        let lanes = observer.lanes().iter().enumerate();
        let shares = lanes.map(|(at, lane)| {
            let (accesses, refs) = self.before(at, lane);
            ThreadShare {
                tid: lane.tid,
                accesses: lane.accesses - accesses,
                refs: std::array::from_fn(|k| lane.refs[k] - refs[k]),
            }
        });
        shares.filter(|share| share.accesses > 0).collect()
    }

    /// What lane `at` had done before the open window.
    fn before(&self, at: usize, lane: &Lane) -> (u64, [u64; 5]) {
        match self.lanes.get(at) {
            Some(before) => (before.accesses, before.refs),
            // The first lane began when the others joined it, perhaps in the middle of this window.
            None if at == 0 => (self.accesses.min(lane.accesses), self.refs_of_first(lane)),
            None => (0, [0; 5]),
        }
    }

    fn refs_of_first(&self, lane: &Lane) -> [u64; 5] {
        std::array::from_fn(|k| self.refs[k].min(lane.refs[k]))
    }

    /// References at 64-byte lines before the open window.
    fn begun(&self) -> u64 {
        self.refs[crate::observe::DEFAULT_LINE]
    }

    /// The open window as a record, with `samples` of this or earlier windows that ended in it.
    /// It stands for itself until something better is known.
    pub fn close(
        &self,
        observer: &Observer,
        samples: Vec<Sample>,
        recorder: &mut Recorder,
        maps: &Maps,
    ) -> WindowRecord {
        let mut refs = observer.refs();
        for (refs, before) in refs.iter_mut().zip(self.refs) {
            *refs -= before;
        }
        let accesses = self.accesses(observer);
        let first_ref = |window: u32| self.first_refs.get(&window).copied().unwrap_or(0);
        let recorded = self.numbers.recorded.replace(self.index + 1);
        let exact = accesses as f64;
        WindowRecord {
            index: self.index,
            start_s: self.opened.duration_since(self.start).as_secs_f64(),
            cpu_start_s: self.cpu_s,
            wall_s: (self.opened.elapsed() - self.followed).as_secs_f64(),
            contiguous_with_previous: self.continues > 0 && self.continues == recorded,
            tid: self.tid.as_raw(),
            accesses,
            refs,
            threads: self.shares(observer),
            stands_for: Estimate {
                value: exact,
                low: exact,
                high: exact,
            },
            samples: recorder.samples(samples, self.tid.as_raw(), &first_ref, maps),
            declined: self.declined,
            first_touches: None,
        }
    }
}

/// A thread's turn, where several are observed in turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Its accesses.
    pub accesses: u64,
    /// Whether the thread is alone: the turn ends when another is held.
    pub alone: bool,
    /// Whether it ends behind any system call, which may wake another, not just behind one that has.
    pub calm: bool,
    /// Whether it did not come out of the cache by itself in its last one, and made no access there.
    pub spins: bool,
}

/// Paces one window, or a thread's turn in it.
pub struct Pace<'a> {
    /// The monitor's signals.
    pub signals: &'a mut Signals,
    /// Where windows begin.
    pub windows: &'a mut Windows,
    /// Where they are recorded.
    pub recorder: &'a mut Recorder,
    /// Accesses after which the window closes; `None` to observe until the program ends, cut into
    /// model windows.
    pub accesses: Option<u64>,
    /// The thread's turn, where several are observed in turn.
    pub turn: Option<Turn>,
    /// Accesses of the observer when the turn began.
    pub before: u64,
    /// Whether all of the run is observed: turns end by the clock, too. (In sampled windows threads have turns of equal virtual time.)
    pub whole: bool,
    /// Set when the thread has woken another one.
    pub woke: bool,
    /// Set when its turn ended because it left the processor to others.
    pub yielded: bool,
    /// Set when a cut could not be written: the profile ends there.
    pub error: Option<ProfileError>,
    /// When the turn of the thread began.
    pub begun: Instant,
    /// When the window ends at the latest.
    pub ends: Option<Instant>,
    /// When the profile ends.
    pub until: Option<Instant>,
    /// How long the thread has slept in this window.
    pub slept: Duration,
}

/// Cuts an observed run where the present model window is long enough; between two rounds where several
/// threads are observed.
///
/// # Errors
/// When the part cannot be written.
pub fn cut(
    windows: &mut Windows,
    observer: &mut Observer,
    recorder: &mut Recorder,
    maps: &Maps,
) -> std::result::Result<(), ProfileError> {
    let total = observer.accesses();
    let length = FIRST_CUT.max(total / CUT_FRACTION);
    if windows.accesses(observer) < length {
        observer.begin_epoch(LEAST_EPOCH.max(length / EPOCHS));
        return Ok(());
    }
    let samples = observer.drain_finished();
    let mut record = windows.close(observer, samples, recorder, maps);
    record.first_touches = returns(windows, observer, recorder, maps);
    let sampled = record.samples.iter().map(|taken| taken.sample.ip);
    windows.spread.sampled(sampled);
    let written = recorder.window(record);
    let period = windows.spread.period(total);
    windows.open(observer, period, true);
    written
}

fn returns(
    windows: &Windows,
    observer: &mut Observer,
    recorder: &mut Recorder,
    maps: &Maps,
) -> Option<FirstTouches> {
    let found = observer.take_returns()?;
    Some(recorder.returns(&found, windows.tid.as_raw(), windows.begun(), maps))
}

impl Control for Pace<'_> {
    fn wait(&mut self, running: Running) -> Result<Waited> {
        // As found while the thread was in the cache; no later wait is told of it.
        if self.signals.end_wanted {
            return Ok(Waited::User(running));
        }
        let asleep = Instant::now();
        let mut running = running;
        let mut look = match self.turn {
            Some(_) => TURN_PATIENCE,
            None => FULL_PATIENCE,
        };
        loop {
            // Looked at again and again: the thread may have given birth just before it fell asleep.
            let leave = match self.accesses {
                _ if self.turn.is_some() => Some(asleep + TURN_PATIENCE),
                Some(_) if hub::count() > 1 => Some(asleep + PATIENCE.saturating_sub(self.slept)),
                Some(_) => Some(asleep + LONE_PATIENCE.saturating_sub(self.slept)),
                None if hub::count() > 1 => Some(asleep + FULL_PATIENCE),
                None => None,
            };
            let leave = leave.into_iter().chain(self.until).min();
            let next = Instant::now() + look;
            let deadline = leave.map_or(next, |leave| leave.min(next));
            running = match self.signals.wait(running, Some(deadline))? {
                Wait::Event(event) => {
                    self.slept += asleep.elapsed();
                    return Ok(Waited::Event(event));
                }
                Wait::End(running) => return Ok(Waited::User(running)),
                Wait::Timeout(running) if leave.is_some_and(|leave| leave <= Instant::now()) => {
                    return Ok(Waited::Leave(running));
                }
                Wait::Timeout(running) => running,
            };
            look = (4 * look).min(LONGEST_LOOK);
        }
    }

    fn wait_in_cache(&mut self, running: Running) -> Result<std::result::Result<Event, Running>> {
        let begun = Instant::now();
        let is_beside_others = self.turn.is_some_and(|turn| !turn.alone);
        let (nap, stays) = match self.turn {
            Some(turn) if turn.spins => {
                // It keeps the processor for as long as it is let.
                near::come_back();
                (SPIN, SPIN)
            }
            _ if is_beside_others => (NAP, STUCK_IN_TURN),
            _ => (NAP, STUCK),
        };
        let ends = self.ends.map(|ends| ends + self.slept + STUCK);
        let ends = ends.into_iter().chain(self.until).min();
        let late = || {
            let others_wait = || is_beside_others || hub::any_held();
            ends.is_some_and(|ends| Instant::now() >= ends)
                || begun.elapsed() >= stays && others_wait()
        };
        running.wait_near_or(|running| self.signals.wait_awake(running, nap, late))
    }

    fn progress(&mut self, observer: &mut Observer, maps: &Maps) -> u64 {
        if self.error.is_some() || self.has_ended() {
            return 0;
        }
        if let Some(turn) = self.turn {
            return turn
                .accesses
                .saturating_sub(observer.accesses() - self.before);
        }
        match self.accesses {
            Some(accesses) => accesses.saturating_sub(self.windows.accesses(observer)),
            None => {
                self.error = cut(self.windows, observer, self.recorder, maps).err();
                if self.has_had_its_turn() {
                    return 0;
                }
                u64::MAX
            }
        }
    }

    fn is_late(&self) -> bool {
        self.signals.end_wanted || self.is_over() || self.has_had_its_turn()
    }

    /// What the thread does from then on the other one does at the same time.
    fn has_woken(&mut self) -> bool {
        self.woke = true;
        self.turn.is_some()
    }

    /// It waits for one that has its turn next.
    fn ends_at_yields(&mut self) -> bool {
        self.yielded = match self.turn {
            Some(turn) => !turn.alone,
            None => self.accesses.is_none() && hub::any_held(),
        };
        self.yielded
    }
}

impl Pace<'_> {
    /// Whether the window, or the profile, has come to its end by the clock, or the user's wish.
    pub fn has_ended(&mut self) -> bool {
        self.is_over() || self.signals.poll_end()
    }

    /// Whether the window, or the profile, has come to its end by the clock.
    fn is_over(&self) -> bool {
        let now = Instant::now();
        self.until.is_some_and(|until| now >= until)
            || self.ends.is_some_and(|ends| now >= ends + self.slept)
    }

    /// Whether this thread of a run observed as a whole has had a slice, and others may be waiting; or is alone only if it makes
    /// no system calls, and has.
    fn has_had_its_turn(&self) -> bool {
        match (self.turn, self.accesses) {
            (Some(turn), _) if turn.calm => true,
            (None, None) => self.begun.elapsed() > SLICE && hub::any_held(),
            (Some(_), _) if self.whole => self.begun.elapsed() > TURN_SLICE,
            _ => false,
        }
    }
}

/// Ends every watch of the observer and closes the window.
pub fn end_window(
    windows: &Windows,
    observer: &mut Observer,
    how: Ended,
    recorder: &mut Recorder,
    maps: &Maps,
) -> WindowRecord {
    let samples = observer.end_all(how);
    let first = observer.end_first_touches();
    let returns = returns(windows, observer, recorder, maps);
    observer.end_drawn();
    let mut record = windows.close(observer, samples, recorder, maps);
    record.first_touches = first.map(|first| {
        let tid = windows.tid.as_raw();
        recorder.first_touches(first, tid, windows.begun(), maps)
    });
    record.first_touches = record.first_touches.or(returns);
    record
}

//! How fast the thread of a window is natively: before the window it is for a moment in a code cache that only counts,
//! which takes little beside the program's own work. (Not where a window was sought, which it might leave meanwhile.)
//!
//! Not behind it: a window, and what reads its log, leave little of what the program had in the caches. (A walk through 2 MiB in a
//! second level of that size took up to twice its time for the five milliseconds that it was timed there.)

use super::super::content::{Place, granule, is_near};
use super::super::engine::Engine;
use super::super::idle::{Beginning, Lead};
use super::super::pace::{LONE_PATIENCE, PATIENCE};
use super::super::rates::{ANY_RATE, Timed};
use super::super::schedule::Spent;
use super::Observed;
use super::warming::{Lap, Warming, clean};
use crate::engine::translate::window::{
    Control, SPACE_LIMITED, Translate, UNMAPPED, Waited, WindowEnd,
};
use crate::observe::Observer;
use crate::session::signals::{NAP, Signals, Wait};
use crate::tracee::maps::Maps;
use crate::tracee::remote::restart_pending;
use crate::tracee::{Event, Result, Running, Stopped, hub, procinfo};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};

/// Time of a lap: many times that of the stop at its end and of what this drives from the caches, and short, so that code met for the first time
/// spoils few.
const LAP: Duration = Duration::from_micros(500);
/// Laps behind the one that has settled their length, and warmed the caches.
const LAPS: usize = 4;
/// Laps behind those, where no more misses were met before.
const LAPS_MORE: usize = 3;
const FEW_MISSES: u64 = 10;
/// Laps of a long stay, which tells how code warms up; every so many-th is one, and has more misses.
const LAPS_LONG: usize = 17;
const LONG_ONE_IN: u32 = 4;
const MOST_MISSES_LONG: u64 = 250;
/// Fewest and most accesses of a lap. (Of 8 M, which a copy by one instruction makes in the time of one, the next would lead far into what follows.)
const LEAST: u64 = 2_000;
const MOST: u64 = 2_000_000;
/// Most of the first one: where the program has become a hundred times slower, more would lead it out of what it is doing. (Of rounds of 3 ms with
/// 10 M accesses and 17 ms with 100,000 no window began in the latter, with 400,000: 4 to 7 times as many accesses were estimated as were made.)
const MOST_FIRST: u64 = 10_000;
/// Most accesses between the last lap and the window; no more than the lap had, for rates are told apart where the program does one thing for longer.
const MOST_LEAD: u64 = 2_000_000;
/// Misses after which it is given up: so much new code costs more than it tells.
const MOST_MISSES: u64 = 150;
/// Laps of next to nothing in between, which tell what the stop at the end of one takes, and accesses of them.
const EMPTY_LAPS: usize = 3;
const EMPTY: u64 = 500;
/// Longest stay in the cache of a lap: a loop without accesses comes to no end of one.
const LONGEST: Duration = Duration::from_secs(1);
/// Windows before the first one that is timed: much of the code is new.
const UNTIMED: u32 = 2;

/// Most windows that are not timed because of one that was not to be had behind its timing.
const MOST_ALONE: u32 = 31;

/// What times the threads of a process.
pub struct Timing {
    engine: Translate,
    /// Counts for it.
    observer: Observer,
    stays: u32,
    warming: Warming,
    alone: Alone,
    random: SmallRng,
}

/// Windows that are not timed because threads turned to something else while they were.
#[derive(Debug, Default)]
struct Alone {
    /// Windows to come, and how many there were when that was last decided.
    left: u32,
    last: u32,
}

impl Alone {
    /// Whether the next window is one of them.
    fn next(&mut self) -> bool {
        let holds_off = self.left > 0;
        self.left = self.left.saturating_sub(1);
        holds_off
    }

    /// Behind a timing there was no window to be had.
    fn aborted(&mut self) {
        self.last = (2 * self.last + 1).min(MOST_ALONE);
        self.left = self.last;
    }

    /// There was one.
    fn timed(&mut self) {
        self.last = 0;
    }
}

/// What was timed before the present window.
#[derive(Debug, Default)]
pub struct Beside {
    /// As they would be of warm code.
    laps: Vec<Lap>,
    accesses: u64,
    /// CPU seconds that this took the thread.
    thread_s: f64,
    /// By what factor that may be off.
    spread: f64,
    /// How that began, if anything was timed.
    began: Option<Beginning>,
}

impl Beside {
    /// How that began, if anything was timed.
    pub(super) fn began(&self) -> Option<Beginning> {
        self.began
    }
}

/// Paces it.
struct Laps<'a> {
    signals: &'a mut Signals,
    until: Option<Instant>,
    /// Laps to come, empty ones likewise, whether none has begun, and whether this one is empty.
    left: usize,
    empty_left: usize,
    first: bool,
    empty: bool,
    /// Whether this one is the last, whatever it takes.
    once: bool,
    /// Whether they end when the thread wakes another, which may write code.
    alone: bool,
    /// Pieces that are over, and how many of these were there when their length was settled.
    over: usize,
    settled: Option<usize>,
    /// Accesses of one, and when it began.
    accesses: u64,
    begun: Instant,
    started: Instant,
}

impl Laps<'_> {
    /// Whether all laps were made, and there may be more.
    fn goes_on(&self, stopped: &Stopped) -> bool {
        self.left == 0 && !self.signals.end_wanted && !sleeps(stopped)
    }

    /// So many accesses more, however long they take.
    fn once(&mut self, accesses: u64) {
        self.accesses = accesses.max(LEAST);
        (self.first, self.once) = (true, true);
        self.started = Instant::now();
    }
}

/// Whether it is on its way out of a call that starts over.
fn sleeps(stopped: &Stopped) -> bool {
    stopped.regs().is_ok_and(|regs| restart_pending(&regs))
}

impl Control for Laps<'_> {
    fn wait(&mut self, running: Running) -> Result<Waited> {
        let patience = match hub::count() {
            0 | 1 => LONE_PATIENCE,
            _ => PATIENCE,
        };
        let leave = self.started + patience;
        let deadline = self.until.map_or(leave, |until| until.min(leave));
        Ok(match self.signals.wait(running, Some(deadline))? {
            Wait::Event(event) => Waited::Event(event),
            Wait::End(running) => Waited::User(running),
            Wait::Timeout(running) => Waited::Leave(running),
        })
    }

    fn wait_in_cache(&mut self, running: Running) -> Result<std::result::Result<Event, Running>> {
        let begun = Instant::now();
        let late = || begun.elapsed() > LONGEST;
        running.wait_near_or(|running| self.signals.wait_awake(running, NAP, late))
    }

    fn progress(&mut self, _: &mut Observer, _: &Maps) -> u64 {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        if late || self.signals.poll_end() {
            return 0;
        }
        let lap = self.begun.elapsed();
        self.begun = Instant::now();
        if std::mem::take(&mut self.first) {
            // How fast it is now is not known yet.
            return self.accesses;
        }
        self.over += 1;
        if self.once {
            return 0;
        }
        if !std::mem::take(&mut self.empty) {
            if lap < LAP / 2 && self.accesses < MOST {
                // Too fast to be timed.
                self.accesses = (4 * self.accesses).min(MOST);
                return self.accesses;
            }
            // This one was taken because it lasted long enough: it says of slow code more than of fast.
            self.settled.get_or_insert(self.over);
            if self.left == 0 {
                return 0;
            }
            if lap > 3 * LAP {
                let of_one = LAP.as_secs_f64() / lap.as_secs_f64();
                self.accesses = (self.accesses as f64 * of_one) as u64;
            }
            if self.empty_left > 0 {
                self.empty_left -= 1;
                self.empty = true;
                return EMPTY;
            }
        }
        self.left = self.left.saturating_sub(1);
        self.accesses = self.accesses.clamp(LEAST, MOST);
        self.accesses
    }

    fn has_woken(&mut self) -> bool {
        self.alone
    }
}

impl Timing {
    /// Has some of the code translated that `other`, the engine of windows, has. False when there is no more.
    pub fn translate_around(&mut self, other: &Translate, most: usize) -> bool {
        self.engine.follow(other);
        self.engine.translate_around(most)
    }
}

impl Observed {
    /// Makes what times threads, by the process's thread `stopped` in user mode at its own registers.
    ///
    /// # Errors
    /// As [`Translate::new`].
    pub(super) fn prepare_timing(&mut self, stopped: Stopped) -> Result<Stopped> {
        let (stopped, timing) = Translate::counting(stopped, self.process.pid)?;
        match timing {
            Ok(engine) => {
                self.timing = Some(Box::new(Timing {
                    engine,
                    observer: Observer::new(u64::MAX >> 1, 0),
                    stays: 0,
                    alone: Alone::default(),
                    warming: Warming::default(),
                    random: SmallRng::seed_from_u64(self.seed ^ 0x1ead),
                }));
            }
            // A signal came meanwhile.
            Err(_) if stopped.has_news() => {}
            Err(error) => {
                tracing::debug!(%error, "threads are not timed");
                self.times = false;
            }
        }
        Ok(stopped)
    }

    /// Times the thread, which is in user mode at its own registers and about to have a window; it still is where that ends with
    /// [`WindowEnd::Closed`].
    ///
    /// # Errors
    /// As [`Translate::window`].
    pub fn time(
        &mut self,
        stopped: Stopped,
        signals: &mut Signals,
        until: Option<Instant>,
    ) -> Result<WindowEnd> {
        let (tid, pid) = (stopped.tid(), self.process.pid);
        // As in the window before.
        let new_code = self.cost.misses > MOST_MISSES;
        let early = self.numbers.count() < UNTIMED;
        // One that sleeps must not miss that its call starts over.
        let not_now = early || new_code || signals.end_wanted || sleeps(&stopped);
        (self.beside, self.began_at) = (Beside::default(), None);
        // Threads that sleep before they are timed would never have a window.
        if not_now || self.timing.as_mut().is_none_or(|t| t.alone.next()) {
            return Ok(WindowEnd::Closed(stopped));
        }
        // Where it is in that cache tells nothing.
        self.pause_native_clock();
        let now_s = self.native_clock_s();
        self.look(now_s);
        let Some(timing) = &mut self.timing else {
            return Ok(WindowEnd::Closed(stopped));
        };
        timing.stays += 1;
        let long = timing.stays % LONG_ONE_IN == 1;
        let (warming, observer) = (&mut timing.warming, &mut timing.observer);
        let random = &mut timing.random;
        let timing = &mut timing.engine;
        timing.limit_misses(if long { MOST_MISSES_LONG } else { MOST_MISSES });
        let mut alone = false;
        if let Some(Engine::Translate(engine)) = &self.engine {
            let changes = engine.cache().compares() || timing.cache().compares();
            let runs = |other: &Pid| *other != tid && procinfo::is_running(pid, *other);
            if changes && self.process.threads.iter().any(runs) {
                // It may be writing code just now.
                return Ok(WindowEnd::Closed(stopped));
            }
            alone = changes && self.process.threads.len() > 1;
            timing.follow(engine);
        }
        let rate = self.weights.last_rate().unwrap_or(ANY_RATE);
        let accesses = (0.5 * LAP.as_secs_f64() * rate) as u64;
        let accesses = accesses.clamp(LEAST, MOST_FIRST);
        self.began_at = stopped.regs().ok().map(|regs| regs.rip);
        let mut laps = Laps {
            signals,
            until,
            left: if long { LAPS_LONG } else { LAPS },
            empty_left: EMPTY_LAPS,
            first: true,
            empty: false,
            once: false,
            alone,
            over: 0,
            settled: None,
            accesses,
            begun: Instant::now(),
            started: Instant::now(),
        };
        let begun_s = procinfo::thread_cpu_s(pid, tid);
        let cpu = begun_s.unwrap_or(0.0);
        let (stats, before) = (timing.stats, observer.accesses());
        let end = timing.window(stopped, observer, &mut laps);
        let more = !long && timing.stats.misses - stats.misses <= FEW_MISSES;
        let end = match end {
            // In code that is known, more laps cost little and are of a warm cache.
            Ok(WindowEnd::Closed(stopped)) if more && laps.goes_on(&stopped) => {
                (laps.left, laps.first) = (LAPS_MORE, true);
                timing.window(stopped, observer, &mut laps)
            }
            other => other,
        };
        let (timed, settled) = (timing.take_pieces(), laps.settled);
        let lead = Lead {
            begun_s: begun_s.unwrap_or(f64::NAN),
            stay_s: f64::NAN,
            accesses,
            misses: timing.stats.misses - stats.misses,
            calls: timing.stats.syscalls - stats.syscalls,
        };
        let began = lead.beginning(&timed);
        // Where laps end depends on how long they took, which is in slow code more often than it should be: some accesses later
        // it does less so.
        let end = match end {
            Ok(WindowEnd::Closed(stopped)) if laps.goes_on(&stopped) => {
                laps.once(random.random_range(0..=laps.accesses.min(MOST_LEAD)));
                timing.window(stopped, observer, &mut laps)
            }
            other => other,
        };
        timing.take_pieces();
        let accesses = observer.accesses() - before;
        let cpu_now = procinfo::thread_cpu_s(pid, tid).unwrap_or(cpu).max(cpu);
        self.in_windows_s += cpu_now - cpu;
        self.beside.thread_s += cpu_now - cpu;
        self.beside.accesses += accesses;
        tracing::debug!(
            laps = ?timed,
            accesses,
            cpu_s = cpu_now - cpu,
            stops = timing.stats.stops - stats.stops,
            misses = timing.stats.misses - stats.misses,
            stop_s = self.stops.seconds_timed(),
            of_window_s = self.stops.seconds(),
            ?began,
            "timed"
        );
        // Without the thread's clock nothing is told cold from warm.
        self.stops.learn_timed(&timed);
        let stop_s = self.stops.seconds_of_lap();
        // Where new code ended it before there is nothing better.
        let settled = settled.filter(|settled| *settled < timed.len());
        let laps = clean(
            &timed[settled.unwrap_or(0)..],
            begun_s.unwrap_or(f64::NAN),
            stop_s,
        );
        if long {
            warming.learn(&laps);
        }
        let (factor, spread) = warming.factor();
        tracing::debug!(factor, spread, "warming");
        self.beside
            .laps
            .extend(laps.iter().map(|lap| lap.warm(factor)));
        self.beside.spread = spread;
        self.beside.began = (!timed.is_empty()).then_some(began);
        self.whereabouts.take();
        let end = end?;
        if let WindowEnd::Declined(_, reason @ (SPACE_LIMITED | UNMAPPED)) = end {
            *self.declined.entry(reason).or_default() += 1;
        }
        self.leave_space(end)
    }

    /// Whether a thread that was timed, or might have been, may have a window now: it is awake, and nothing else has come to it.
    pub fn may_go_on(&mut self, stopped: &Stopped) -> bool {
        !stopped.has_news() && !sleeps(stopped) && self.is_free(stopped).unwrap_or(false)
    }

    /// There is no window after all, and for a while no timing if that was why. Returns what it has added to the run, `monitor_s` of it of the monitor.
    pub fn forget_timing(&mut self, monitor_s: f64) -> f64 {
        let beside = std::mem::take(&mut self.beside);
        if let Some(timing) = &mut self.timing
            && (beside.accesses > 0 || beside.thread_s > 0.0)
        {
            timing.alone.aborted();
        }
        self.weights.counted(beside.accesses);
        let rate = self.weights.last_rate().unwrap_or(ANY_RATE).max(1.0);
        let beside_s = beside.accesses as f64 / rate;
        self.native_s += beside_s;
        (beside.thread_s - beside_s).max(0.0) + monitor_s
    }

    /// The window is over, and so was the timing before it. Returns what they have added to the run: the window, of so many
    /// accesses by so many threads at once, took `inside_s` CPU seconds of the threads and the monitor, and all together
    /// took `monitor_s` of the monitor.
    pub fn end_timing(
        &mut self,
        accesses: u64,
        crowd: f64,
        inside_s: f64,
        monitor_s: f64,
    ) -> Spent {
        if let Some(timing) = &mut self.timing
            && self.beside.accesses > 0
        {
            timing.alone.timed();
        }
        let expansion = match &self.engine {
            Some(Engine::Translate(engine)) => engine.expansion_counting(),
            _ => 1.0,
        };
        let beside = std::mem::take(&mut self.beside);
        let timed = timed(&beside.laps, beside.began, expansion, beside.spread);
        self.weights.timed(timed, beside.accesses);
        if let Some(rate) = self.idle.take() {
            self.weights.idle(rate);
        }
        if let Some(timed) = timed {
            let places = places(&beside.laps, timed.native(), self.image);
            self.weights.of_places(places);
        }
        let rate = self.weights.last_rate().unwrap_or(ANY_RATE).max(1.0);
        tracing::debug!(?timed, rate, accesses = beside.accesses, "timing");
        let beside_s = beside.accesses as f64 / rate;
        self.native_s += beside_s;
        let native_s = accesses as f64 / rate / crowd;
        let all_s = self.cost.thread_s + beside.thread_s + monitor_s;
        Spent {
            accesses,
            inside_s: (inside_s - native_s).max(0.1 * inside_s),
            all_s: (all_s - native_s - beside_s).max(0.1 * all_s),
        }
    }
}

/// What laps say.
fn timed(laps: &[Lap], began: Option<Beginning>, expansion: f64, spread: f64) -> Option<Timed> {
    let accesses: f64 = laps.iter().map(|lap| lap.accesses).sum();
    let cpu_s: f64 = laps.iter().map(|lap| lap.cpu_s).sum();
    let paused_s = match began {
        Some(Beginning::Paused(seconds)) => seconds,
        _ => 0.0,
    };
    (accesses > 0.0).then(|| Timed {
        per_second: accesses / (cpu_s + paused_s),
        expansion,
        spread,
    })
}

/// What laps say of the code that they began and ended in, `native` accesses having been made natively for each there.
fn places(laps: &[Lap], native: f64, image: u32) -> Vec<Place> {
    let mean = laps.iter().map(|lap| lap.accesses).sum::<f64>() / laps.len() as f64;
    let of_lap = |lap: &Lap| {
        let ips = &lap.ips[..if lap.ran_on { 1 } else { 2 }];
        let part = lap.accesses / mean / ips.len() as f64;
        let access_s = lap.cpu_s / lap.accesses / native;
        let stays = is_near(granule(image, lap.ips[0]), granule(image, lap.ips[1]));
        let place = move |ip: &u64| Place {
            at: granule(image, *ip),
            part,
            access_s,
            stays,
        };
        ips.iter().map(place).collect::<Vec<_>>()
    };
    laps.iter().flat_map(of_lap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_sleep_while_they_are_timed_have_windows_alone() {
        let mut alone = Alone::default();
        let mut untimed = || {
            alone.aborted();
            (0..100).take_while(|_| alone.next()).count()
        };
        // Timings that end in sleep grow rare, and are never given up.
        assert_eq!([(); 7].map(|()| untimed()), [1, 3, 7, 15, 31, 31, 31]);
        alone.timed();
        assert!(!alone.next());
        alone.aborted();
        assert!(alone.next() && !alone.next());
    }
}

//! How fast the thread of a window is natively: before the window it is for a moment in a code cache that only counts,
//! which takes little beside the program's own work. (Not where a window was sought, which it might leave meanwhile.)
//!
//! Not behind it: a window, and what reads its log, leave little of what the program had in the caches. (A walk through 2 MiB in a
//! second level of that size took up to twice its time for the five milliseconds that it was timed there.)

use super::super::content::{Place, granule, is_near};
use super::super::engine::Engine;
use super::super::idle::{Beginning, Lead};
use super::super::rates::{ANY_RATE, Timed};
use super::super::schedule::Spent;
use super::Observed;
use super::laps::{LAPS, LAPS_LONG, Laps, Lengths, sleeps};
use super::warming::{Lap, Warming, clean};
use crate::engine::translate::window::{SPACE_LIMITED, Translate, UNMAPPED, WindowEnd};
use crate::observe::Observer;
use crate::session::signals::Signals;
use crate::tracee::{Result, Stopped, procinfo};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Instant;

/// Every so many-th stay is a long one, and has more misses.
const LONG_ONE_IN: u32 = 4;
/// Misses from which on no more laps are made than must be.
const FEW_MISSES: u64 = 10;
/// Most accesses between the last lap and the window; no more than the lap had, for rates are told apart where the program does one thing for longer.
const MOST_LEAD: u64 = 2_000_000;
/// Misses after which a stay is given up, or not begun where the window before had as many: so much new code costs more than it tells. What was
/// translated stays, so stays in much code come to an end after a few. (Chosen between 150 and 250, with which a chess program on one processor was seldom timed but at its
/// start, before it searches, and 1,200 and 1,500, which left it nine windows instead of eleven.)
const MOST_MISSES: u64 = 500;
const MOST_MISSES_LONG: u64 = 700;
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
        let most_misses = if long { MOST_MISSES_LONG } else { MOST_MISSES };
        timing.limit_misses(most_misses);
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
        let lengths = Lengths::new(if long { LAPS_LONG } else { LAPS }, rate);
        let accesses = lengths.accesses;
        self.began_at = stopped.regs().ok().map(|regs| regs.rip);
        let mut laps = Laps::new(signals, until, lengths, self.stops.seconds_of_lap());
        laps.alone = alone;
        let begun_s = procinfo::thread_cpu_s(pid, tid);
        let cpu = begun_s.unwrap_or(0.0);
        let (stats, before) = (timing.stats, observer.accesses());
        let end = timing.window(stopped, observer, &mut laps);
        let misses = timing.stats.misses - stats.misses;
        timing.limit_misses(most_misses.saturating_sub(misses).max(FEW_MISSES));
        let more = !long && misses <= FEW_MISSES;
        let end = match end {
            // In code that is known, more laps cost little and are of a warm cache.
            Ok(WindowEnd::Closed(stopped)) if more && laps.goes_on(&stopped) => {
                laps.lengths.more();
                timing.window(stopped, observer, &mut laps)
            }
            other => other,
        };
        let (timed, settled) = (timing.take_pieces(), laps.lengths.settled);
        let lead = Lead {
            begun_s: begun_s.unwrap_or(f64::NAN),
            stay_s: f64::NAN,
            accesses,
            // Those behind it took none of its time.
            misses: (timing.stats.misses - stats.misses)
                .saturating_sub(timed.iter().map(|piece| piece.misses).sum()),
            calls: timing.stats.syscalls - stats.syscalls,
        };
        let began = lead.beginning(&timed);
        // Where laps end depends on how long they took, which is in slow code more often than it should be: some accesses later
        // it does less so.
        let end = match end {
            Ok(WindowEnd::Closed(stopped)) if laps.goes_on(&stopped) => {
                laps.once(random.random_range(0..=laps.lengths.accesses.min(MOST_LEAD)));
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
        let before = timed[..settled.unwrap_or(0)].iter();
        let stops: u64 = before.map(|piece| piece.stops).sum();
        let laps = clean(
            &timed[settled.unwrap_or(0)..],
            // Stops for new code do not warm it.
            begun_s.unwrap_or(f64::NAN) + stops as f64 * stop_s,
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

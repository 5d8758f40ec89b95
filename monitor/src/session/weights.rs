//! What each window stands for: the native accesses of the CPU time around it.
//!
//! A window stands for its own accesses and for half of the native stretch before and after it, at
//! the native access rate measured beside it. The rate inside a window is no substitute: translated
//! code is slower by a factor that depends on the code.

use crate::profile::types::{Estimate, WindowRecord};

/// Relative error of a rate that its statistics do not show: the stretch it was measured on is not
/// all of the stretch it is applied to. (Guessed.)
const RATE_SPREAD: f64 = 0.15;
/// Added instructions that show in the time, as a share: some hide behind waits for memory, but the
/// caches are cold after a stop too. Low, best and high. (Guessed. On long inputs the estimate of the
/// whole run that rests on it was off by 15 to 98 %: a known weakness.)
const SHOWS: (f64, f64, f64) = (0.0, 1.0, 2.5);
/// Pairs of neighbouring windows, one of which looked at more than the other, that tell how much of it shows; and
/// how far off that may be. (Guessed.)
const ENOUGH_PAIRS: usize = 5;
const MOST_PAIRS: usize = 101;
const SHOWS_SPREAD: f64 = 0.5;
/// Natively, threads that take lines from each other wait for them, which those that have turns do not: a rate that was
/// not measured may be this many times too high. (Guessed; 1.9 times was seen where every fourth access is such.)
const CONTENTION: f64 = 3.0;
/// Native rate of a window that was nearly all stops, where there is no other to go by, and the highest; how far
/// off that of other windows may be. (Guessed from programs at large.)
const ANY_RATE: f64 = 5e8;
const HIGHEST_RATE: f64 = 4e9;
const OTHERS_SPREAD: f64 = 3.0;
/// Least difference of two expansions that tells anything.
const CONTRAST: f64 = 0.2;

/// Accesses per native CPU second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    value: f64,
    low: f64,
    high: f64,
}

/// How the thread ran inside a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inside {
    /// Accesses per CPU second of the thread.
    pub per_second: f64,
    /// Instructions executed for each of the program's own.
    pub expansion: f64,
    /// Whether every address was looked at.
    pub everywhere: bool,
    /// Whether several threads had turns in it.
    pub together: bool,
    /// Whether it was nearly all stops, so that its time says little.
    pub mostly_stops: bool,
}

impl Inside {
    /// Best guess of the native rate where none was ever measured.
    pub fn likely(self) -> f64 {
        self.native(SHOWS.1)
    }

    /// Native rate if this part of the added instructions shows in the time.
    fn native(self, shows: f64) -> f64 {
        self.per_second * (1.0 + shows * (self.expansion - 1.0))
    }
}

/// Windows on their way into the profile.
#[derive(Debug, Default)]
pub struct Weights {
    pending: Option<Pending>,
    /// CPU seconds at the end of the last window.
    last_end_s: f64,
    /// Measured native rates over those guessed from the same window: for windows that looked at few
    /// addresses, and at all.
    speedups: [Vec<f64>; 2],
    total: Estimate,
    first_done: bool,
    /// How the last window ran, and the parts of added instructions that showed, by pairs of windows.
    last: Option<Inside>,
    shown: Vec<f64>,
    /// Rates of windows that were not mostly stops.
    rates: Vec<f64>,
}

#[derive(Debug)]
struct Pending {
    record: WindowRecord,
    rate: Rate,
    /// Accesses per second in the code cache.
    inside: Inside,
    /// Native CPU seconds before it that it stands for.
    before_s: f64,
}

impl Weights {
    /// A window opens at `cpu_s` of the thread's CPU time: the one before it can be written.
    pub fn open(&mut self, cpu_s: f64) -> Option<WindowRecord> {
        let gap = (cpu_s - self.last_end_s).max(0.0);
        self.complete(0.5 * gap)
    }

    /// The window that opened at `cpu_start_s` has closed at `cpu_end_s`; in it the thread made
    /// `inside.per_second` accesses per CPU second.
    pub fn close(
        &mut self,
        record: WindowRecord,
        cpu_start_s: f64,
        cpu_end_s: f64,
        inside: Inside,
    ) {
        let gap = (cpu_start_s - self.last_end_s).max(0.0);
        let before_s = if self.first_done { 0.5 * gap } else { gap };
        self.first_done = true;
        self.last_end_s = cpu_end_s;
        if let Some(last) = self
            .last
            .replace(inside)
            .filter(|last| !last.mostly_stops && !inside.mostly_stops)
        {
            self.shown.extend(shown(last, inside));
            if self.shown.len() > MOST_PAIRS {
                self.shown.remove(0);
            }
        }
        let rate = self.guess(inside);
        if !inside.mostly_stops && self.rates.len() < MOST_PAIRS {
            self.rates.push(rate.value);
        }
        self.pending = Some(Pending {
            record,
            rate,
            inside,
            before_s,
        });
    }

    /// The native rate beside the window that closed last was measured as `rate` accesses per
    /// second with relative standard error `error`; hits cost `cost_s` CPU seconds.
    pub fn measured(&mut self, rate: f64, error: f64, cost_s: f64) {
        self.last_end_s += cost_s;
        if let Some(pending) = &mut self.pending {
            match pending.inside.mostly_stops {
                true => self.rates.push(rate),
                false => self.speedups[usize::from(pending.inside.everywhere)]
                    .push(rate / pending.inside.native(SHOWS.1).max(1.0)),
            }
            let spread = 2.0 * error + RATE_SPREAD;
            pending.rate = Rate {
                value: rate,
                low: rate / (1.0 + spread),
                high: rate * (1.0 + spread),
            };
        }
    }

    /// Best guess of the native rate of code that runs as `inside` says in a window.
    pub fn native_rate(&self, inside: Inside) -> f64 {
        self.guess(inside).value
    }

    /// The rate by which the cost of windows is reckoned: rather too high, so that windows are not taken for cheap.
    pub fn cost_rate(&self, inside: Inside) -> f64 {
        match self.typical(inside.everywhere) {
            Some(_) => self.native_rate(inside),
            None => self.native_rate(inside).max(inside.likely()),
        }
    }

    fn guess(&self, inside: Inside) -> Rate {
        let mut rate = self.guess_alone(inside);
        if inside.together {
            rate.low /= CONTENTION;
        }
        rate
    }

    fn guess_alone(&self, inside: Inside) -> Rate {
        if inside.mostly_stops {
            return self.guess_by_others(inside);
        }
        match self.typical(inside.everywhere) {
            Some((low, value, high)) => {
                let native = inside.native(SHOWS.1);
                Rate {
                    value: native * value,
                    low: native * low,
                    high: native * high,
                }
            }
            None => {
                let (low, value, high) = self.shows();
                Rate {
                    value: inside.native(value),
                    low: inside.native(low),
                    high: inside.native(high),
                }
            }
        }
    }

    /// As fast as other windows of the run, or as any program.
    fn guess_by_others(&self, inside: Inside) -> Rate {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied();
        let value = median.unwrap_or(ANY_RATE).max(inside.per_second);
        let (low, high) = match median {
            Some(_) => (value / OTHERS_SPREAD, value * OTHERS_SPREAD),
            None => (inside.per_second, HIGHEST_RATE.max(value)),
        };
        Rate { value, low, high }
    }

    /// The part of the added instructions that shows in the time: low, best and high.
    fn shows(&self) -> (f64, f64, f64) {
        if self.shown.len() < ENOUGH_PAIRS {
            return SHOWS;
        }
        let mut sorted = self.shown.clone();
        sorted.sort_by(f64::total_cmp);
        let best = sorted[sorted.len() / 2].clamp(SHOWS.0, SHOWS.2);
        (
            (best - SHOWS_SPREAD).max(SHOWS.0),
            best,
            best + SHOWS_SPREAD,
        )
    }

    /// Low, median and high of the measured speed-ups, once there are some.
    fn typical(&self, everywhere: bool) -> Option<(f64, f64, f64)> {
        let speedups = &self.speedups[usize::from(everywhere)];
        const ENOUGH: usize = 3;
        if speedups.len() < ENOUGH {
            return None;
        }
        let mut sorted = speedups.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| sorted[((sorted.len() as f64 - 1.0) * q).round() as usize];
        Some((at(0.1), at(0.5), at(0.9)))
    }

    /// The thread has ended at `cpu_s` of its CPU time: the last window, if it is still here.
    pub fn finish(&mut self, cpu_s: f64) -> Option<WindowRecord> {
        let gap = (cpu_s - self.last_end_s).max(0.0);
        self.complete(gap)
    }

    fn complete(&mut self, after_s: f64) -> Option<WindowRecord> {
        let Pending {
            mut record,
            rate,
            before_s,
            ..
        } = self.pending.take()?;
        let (own, native_s) = (record.accesses as f64, before_s + after_s);
        record.stands_for = Estimate {
            value: own + rate.value * native_s,
            low: own + rate.low * native_s,
            high: own + rate.high * native_s,
        };
        self.total.value += record.stands_for.value;
        self.total.low += record.stands_for.low;
        self.total.high += record.stands_for.high;
        Some(record)
    }

    /// Accesses of the run, as far as windows have been completed.
    pub fn total(&self) -> Estimate {
        self.total
    }
}

/// What part of the added instructions makes two windows of the same code equally fast natively; `None` where they
/// are too much alike to tell.
fn shown(one: Inside, other: Inside) -> Option<f64> {
    if (one.expansion - other.expansion).abs() < CONTRAST {
        return None;
    }
    let added = |inside: Inside| inside.per_second * (inside.expansion - 1.0);
    let part = (other.per_second - one.per_second) / (added(one) - added(other));
    part.is_finite().then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(accesses: u64) -> WindowRecord {
        WindowRecord {
            index: 0,
            start_s: 0.0,
            cpu_start_s: 0.0,
            wall_s: 0.01,
            contiguous_with_previous: false,
            tid: 1,
            accesses,
            refs: [accesses; 5],
            threads: Vec::new(),
            stands_for: Estimate::default(),
            samples: Vec::new(),
            declined: 0,
        }
    }

    fn inside(per_second: f64) -> Inside {
        Inside {
            per_second,
            expansion: 1.0,
            everywhere: true,
            together: false,
            mostly_stops: false,
        }
    }

    #[test]
    fn neighbours_tell_how_much_of_what_is_added_shows() {
        let mut weights = Weights::default();
        let window_at = |expansion: f64, everywhere| Inside {
            // A quarter of it shows; natively 1e9.
            per_second: 1e9 / (1.0 + 0.25 * (expansion - 1.0)),
            expansion,
            everywhere,
            together: false,
            mostly_stops: false,
        };
        let (dense, quiet) = (window_at(1.2, true), window_at(2.2, false));
        assert!((weights.native_rate(quiet) / quiet.native(1.0) - 1.0).abs() < 1e-9);
        for turn in 0..6 {
            let inside = if turn % 2 == 0 { dense } else { quiet };
            weights.close(window(1000), f64::from(turn), f64::from(turn), inside);
        }
        assert!((weights.native_rate(quiet) / 1e9 - 1.0).abs() < 1e-6);
        assert!((weights.native_rate(dense) / 1e9 - 1.0).abs() < 1e-6);
        // Alike, they say nothing.
        assert_eq!(shown(dense, window_at(1.3, true)), None);
    }

    #[test]
    fn a_window_of_stops_goes_by_the_others() {
        let swamped = Inside {
            mostly_stops: true,
            ..inside(1e7)
        };
        let mut weights = Weights::default();
        weights.close(window(1000), 1.0, 1.5, swamped);
        let unknown = weights.open(2.5).unwrap().stands_for;
        assert!(unknown.value > 3e8 && unknown.low < 2e7 && unknown.high > 2e9);
        for turn in 0..3 {
            weights.close(window(1000), f64::from(turn), f64::from(turn), inside(9e8));
        }
        weights.close(window(1000), 3.0, 3.0, swamped);
        let like_others = weights.open(4.0).unwrap().stands_for;
        assert!(
            (like_others.value / 9e8 - 1.0).abs() < 0.01,
            "{like_others:?}"
        );
    }

    #[test]
    fn the_whole_run_is_stood_for_once() {
        let mut weights = Weights::default();
        assert_eq!(weights.open(1.0), None);
        weights.close(window(1000), 1.0, 1.5, inside(5e5));
        weights.measured(1e6, 0.0, 0.0);
        let first = weights.open(3.5).unwrap();
        // One second before it, half of the two after it.
        assert!((first.stands_for.value - (1000.0 + 2e6)).abs() < 1.0);
        weights.close(window(500), 3.5, 3.6, inside(1e6));
        let last = weights.finish(4.6).unwrap();
        assert!(
            (last.stands_for.value - (500.0 + 2e6)).abs() < 1.0,
            "{last:?}"
        );
        assert!(last.stands_for.low <= last.stands_for.value);
        assert!((weights.total().value - (1500.0 + 4e6)).abs() < 1.0);
        assert_eq!(weights.finish(9.0), None);
    }
}

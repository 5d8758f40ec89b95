//! What each window stands for: the native accesses of the CPU time around it.
//!
//! A window stands for its own accesses and for the native stretch before it: how long that was had been drawn before
//! anything was known of the window, while the stretch after it is the longer the dearer the window was. The
//! last one stands for the rest too. The rate inside a window is no substitute for the native rate: translated code is
//! slower by a factor that depends on the code.

use super::unit::Speedup;
use crate::profile::types::{Estimate, WindowRecord};

/// Error of a rate that its statistics do not show: windows and native stretches differ. (Guessed.)
const RATE_SPREAD: f64 = 0.1;
/// Standard error of the logarithm of a native rate guessed from a window alone. (Guessed.)
const GUESS_ERROR: f64 = 0.5;
/// Added instructions that show in the time, as a share: some hide behind waits for memory, but they also keep waits from
/// overlapping, and the caches are cold after a stop. Low, best and high. (Guessed between what was seen where nothing was
/// counted: 0.1 on a walk through pointers, 1.2 on random accesses that overlap, 1.5 on sweeps.)
const SHOWS: (f64, f64, f64) = (0.0, 0.8, 2.5);
/// Windows whose rates are kept.
const MOST_RATES: usize = 101;
/// Natively, threads that take lines from each other wait for them, which those that have turns do not: a rate that was
/// not measured may be this many times too high. (Guessed; 1.9 times was seen where every fourth access is such.)
const CONTENTION: f64 = 3.0;
/// Native rate of a window that was nearly all stops, where there is no other to go by, and the highest; how far
/// off that of other windows may be. (Guessed from programs at large.)
const ANY_RATE: f64 = 5e8;
const HIGHEST_RATE: f64 = 4e9;
const OTHERS_SPREAD: f64 = 3.0;
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
    /// How much faster than guessed the program was measured to be.
    speedup: Option<Speedup>,
    total: Estimate,
    /// Rates of windows that were not mostly stops.
    rates: Vec<f64>,
}

#[derive(Debug)]
struct Pending {
    record: WindowRecord,
    rate: Rate,
    /// Native CPU seconds before it that it stands for.
    before_s: f64,
}

impl Weights {
    /// A window opens: the one before it can be written.
    pub fn open(&mut self) -> Option<WindowRecord> {
        self.complete(0.0)
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
        let before_s = (cpu_start_s - self.last_end_s).max(0.0);
        self.last_end_s = cpu_end_s;
        let rate = self.guess(inside);
        if !inside.mostly_stops && self.rates.len() < MOST_RATES {
            self.rates.push(rate.value);
        }
        self.pending = Some(Pending {
            record,
            rate,
            before_s,
        });
    }

    /// Counting beside the last window cost so many CPU seconds.
    pub fn counted(&mut self, cost_s: f64) {
        self.last_end_s += cost_s;
    }

    /// By all that was counted so far the program is so much faster than [`Inside::likely`] says.
    pub fn measured(&mut self, speedup: Option<Speedup>) {
        self.speedup = speedup;
    }

    /// Best guess of the native rate of code that runs as `inside` says in a window.
    pub fn native_rate(&self, inside: Inside) -> f64 {
        self.guess(inside).value
    }

    /// The rate by which the cost of windows is reckoned: rather too high, so that windows are not taken for cheap.
    pub fn cost_rate(&self, inside: Inside) -> f64 {
        match self.speedup {
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
        let (low, value, high) = SHOWS;
        let guess = Rate {
            value: inside.native(value),
            low: inside.native(low),
            high: inside.native(high),
        };
        let Some(speedup) = self.speedup else {
            return guess;
        };
        // Either by as much as its error is the smaller.
        let (one, other) = (speedup.error.powi(-2), GUESS_ERROR.powi(-2));
        let measured = (inside.likely() * speedup.value).max(1.0).ln();
        let value = (one * measured + other * guess.value.max(1.0).ln()) / (one + other);
        let spread = (2.0 * (one + other).powf(-0.5) + RATE_SPREAD).exp();
        let value = value.exp();
        Rate {
            value,
            low: value / spread,
            high: value * spread,
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
        tracing::debug!(
            own,
            before_s,
            after_s,
            rate = rate.value,
            low = rate.low,
            high = rate.high,
            "weight"
        );
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
    fn a_window_of_stops_goes_by_the_others() {
        let swamped = Inside {
            mostly_stops: true,
            ..inside(1e7)
        };
        let mut weights = Weights::default();
        weights.close(window(1000), 1.0, 1.5, swamped);
        let unknown = weights.open().unwrap().stands_for;
        assert!(unknown.value > 3e8 && unknown.low < 2e7 && unknown.high > 2e9);
        for turn in 0..3 {
            weights.close(window(1000), f64::from(turn), f64::from(turn), inside(9e8));
        }
        weights.close(window(1000), 3.0, 3.0, swamped);
        let like_others = weights.open().unwrap().stands_for;
        assert!(
            (like_others.value / 9e8 - 1.0).abs() < 0.01,
            "{like_others:?}"
        );
    }

    #[test]
    fn the_whole_run_is_stood_for_once() {
        let mut weights = Weights::default();
        assert_eq!(weights.open(), None);
        let twice = Speedup {
            value: 2.0,
            error: 1e-3,
        };
        weights.measured(Some(twice));
        weights.close(window(1000), 1.0, 1.5, inside(5e5));
        let first = weights.open().unwrap();
        // One second before it.
        assert!((first.stands_for.value / (1000.0 + 1e6) - 1.0).abs() < 1e-3);
        weights.close(window(500), 3.5, 3.6, inside(1e6));
        let last = weights.finish(4.6).unwrap();
        // Two before it, and the last.
        let expected = 500.0 + 6e6;
        assert!(
            (last.stands_for.value / expected - 1.0).abs() < 1e-3,
            "{last:?}"
        );
        assert!(last.stands_for.low <= last.stands_for.value);
        assert!((weights.total().value / (1500.0 + 7e6) - 1.0).abs() < 1e-3);
        assert_eq!(weights.finish(9.0), None);
    }
}

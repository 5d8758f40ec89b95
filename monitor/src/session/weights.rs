//! What each window stands for: the native accesses of the CPU time around it.
//!
//! A window stands for its own accesses and for half of the native stretches before and behind it, the last one for all
//! of what follows. When windows are opened does not depend on what they are to be ([`super::schedule`]). The rate
//! inside a window is no substitute for the native rate: translated code is slower by a factor that depends on the code.

use super::completed::{self, Completed, Known};
use super::content::{Content, Place};
use super::looks::Shares;
use super::recent::{keep, median};
use crate::profile::types::{Estimate, WindowRecord};
use std::collections::VecDeque;

/// Error of a rate that its statistics do not show: what was timed is not what the window stands for, and inner loops that
/// need every register are slower counted than others. (With all that is allowed for, estimates of 0.65 to 1.3 of the truth were seen, of 0.45 to 1.7 where most code was new.)
const RATE_SPREAD: (f64, f64) = (1.1, 1.5);
/// What added instructions cost, for each time the program's own number of them: seconds per access, and the share of
/// its time that they take at the most. Low, best and high. Beside waits for memory they cost little, otherwise about as
/// much as the program's own. (Fitted to 279 windows of seven programs on one host: a share of 0.1 to 0.3 up to 0.35e9
/// accesses a second in the window, of 0.6 to 1.3 above.)
const ADDED_S: (f64, f64, f64) = (0.0, 0.4e-9, 1.5e-9);
const SHOWS: (f64, f64, f64) = (0.0, 0.8, 2.5);
/// The beginning of a window is slow, as caches and predictors know nothing of the code cache, and nothing of the program since we had the
/// processor: it takes the native time of so many accesses more, and so many seconds at the most. (In 672 timed windows of 35 programs on one host
/// the native rate was 5 times what this left out said where windows had 0.1 M accesses, the fewest there were, 2.7 times with 0.2 to 1 M, 0.9 times
/// above; with it 1.0, 1.1 and 0.8 times, of each program by a factor of 1.5 to 1.6 off.)
const BEGINNING: (f64, f64) = (600e3, 0.5e-3);
/// No window was seen to be slowed down by more than this share.
const MOST_ADDED: f64 = 3.0;
/// The same of those that counting adds, once the code is warm, as a share. (Of programs kept in the counting cache for all of a run,
/// on one host: 0.9 to 1.0 on two interpreters and a solver, 1.2 on sweeps, less on a collector of garbage, 0.05 on a walk through
/// pointers; 2.1 on an interpreter of six accesses a nanosecond; 1.3 on three programs of another host. Later, on a busy host: 1.0 on random
/// accesses that overlap, 1.0 on a solver, 0.7 on an interpreter, 2 to 6 on a chess program. The ends are guessed.)
const SHOWS_COUNTING: (f64, f64, f64) = (0.0, 1.0, 3.0);
/// Seconds that an access takes longer for each instruction added beside one of the program's own, at the most: where the program waits for
/// memory they run meanwhile. (Chosen: with half of it the accesses of two programs that wait for memory were estimated 4 and 7 % too low, without
/// it 13 and 20 % too high, so 1 % too low and right; four runs each, on one host.)
const ADDED_COUNTING_S: f64 = 0.8e-9;
/// By what factor counting slows warm code down at the most. (Of 24 programs kept in the counting cache for all of a run, on one host: 0.6 to 2.0,
/// but 2.2, 2.5 and 2.6 of jq and interpreters of Scheme and Tcl. What the window beside executed may say more: its code is not quite what was timed.)
const MOST_COUNTING: f64 = 2.5;
/// Windows whose rates are kept.
const KEPT: usize = 101;
/// Where a window could not be timed it may differ from others by this factor. (Guessed from programs at large.)
pub const UNTIMED_SPREAD: f64 = 2.0;
/// What is believed of how far guesses were off: where the kernel takes most of the time, as in memory touched for the
/// first time, they are off by more, which says nothing of other windows.
const RATIOS: (f64, f64) = (0.7, 2.5);
/// Natively, threads that take lines from each other wait for them, which those that have turns do not: a rate that was
/// not timed may be this many times too high. (Guessed; 1.9 times was seen where every fourth access is such.)
const CONTENTION: f64 = 3.0;
/// Native rate of a window that was nearly all stops, where there is no other to go by, and the highest; how far
/// off that of other windows may be. (Fourteen programs made 0.4 to 6.2e9, half of them more than 2.1e9, on one host, and 22 others 0.8 to 4.4e9,
/// half of them more than 2.5e9; thirteen more, half of them interpreters and compilers of generated code, 2.0 to 6.4e9, half of them more than 4.2e9.)
pub const ANY_RATE: f64 = 2.8e9;
/// What a system call takes the program's own code, in seconds: entry and exit, and caches that the kernel has used. (Three servers, whose calls
/// were a thousand accesses apart: 0.5 to 0.8 us, on one host.)
const CALL_S: f64 = 0.6e-6;
/// See [`ANY_RATE`].
pub const HIGHEST_RATE: f64 = 8e9;
/// See [`ANY_RATE`].
pub const OTHERS_SPREAD: f64 = 3.0;
/// Windows that tell by how far they differ what others would have shown.
const ENOUGH_WINDOWS: f64 = 12.0;
/// Windows by whose rates one is guessed that says nothing of its own: one or two may be of unlike code, such as a
/// `rep stosb` over megabytes, which makes ten accesses where other code makes one.
pub const ENOUGH_OTHERS: usize = 3;

/// Accesses per native CPU second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Best value, and its bounds.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Rate {
    /// A rate that is off by this factor at the most.
    pub fn within(value: f64, factor: f64) -> Rate {
        Rate {
            value,
            low: value / factor,
            high: value * factor,
        }
    }

    /// As uncertain, about another value.
    pub fn about(self, value: f64) -> Rate {
        Rate {
            value,
            low: self.low / self.value * value,
            high: self.high / self.value * value,
        }
    }

    /// Accesses of so many seconds, beside so many that are known.
    pub fn stands_for(self, own: f64, native_s: f64) -> Estimate {
        Estimate {
            value: own + self.value * native_s,
            low: own + self.low * native_s,
            high: own + self.high * native_s,
        }
    }
}

/// How the thread ran inside a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inside {
    /// Accesses per CPU second of the thread.
    pub per_second: f64,
    /// So many accesses; infinitely many where the beginning was not slow or does not matter.
    pub accesses: f64,
    /// Instructions executed for each of the program's own.
    pub expansion: f64,
    /// System calls for each access.
    pub calls: f64,
    /// Whether several threads had turns in it.
    pub together: bool,
    /// Whether it was nearly all stops, so that its time says little.
    pub mostly_stops: bool,
    /// Whether it is of pieces of other windows, for that reason.
    pub of_others: bool,
}

impl Inside {
    /// Best guess of the native rate where none was ever measured.
    pub fn likely(self) -> f64 {
        possible(self.begun(self.native(ADDED_S.1, SHOWS.1)), self)
    }

    /// What a rate is without the beginning of the window.
    fn begun(self, rate: f64) -> f64 {
        if self.mostly_stops || self.of_others || !self.accesses.is_finite() {
            return rate;
        }
        let (accesses, most_s) = BEGINNING;
        let own = self.accesses.max(1.0);
        let all_s = own / rate;
        let beginning_s = (all_s * accesses / (own + accesses)).min(most_s);
        own / (all_s - beginning_s)
    }

    /// What is believed where none was ever measured.
    fn rate(self) -> Rate {
        let value = self.likely();
        let began = value / self.native(ADDED_S.1, SHOWS.1);
        let within = 1.0 + (OTHERS_SPREAD - 1.0) * (1.0 - 1.0 / began.max(1.0));
        Rate {
            value,
            low: self.native(ADDED_S.0, SHOWS.0),
            high: self.native(ADDED_S.2, SHOWS.2).max(value * within),
        }
    }

    /// Native rate if added instructions cost so many seconds an access, but no more than this share of its time.
    fn native(self, added_s: f64, shows: f64) -> f64 {
        let added = (self.expansion - 1.0).max(0.0);
        let access_s = 1.0 / self.per_second.max(1.0);
        let most = access_s / (1.0 + (shows * added).min(MOST_ADDED));
        1.0 / (access_s - added_s * added).max(most)
    }
}

/// How fast a thread ran beside a window, in a code cache that only counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Accesses per CPU second of the thread, without stops.
    pub per_second: f64,
    /// Instructions executed there for each of the program's own.
    pub expansion: f64,
    /// By what factor it may be off because the code was cold in part (at least 1).
    pub spread: f64,
}

impl Timed {
    /// Accesses that would have been made natively in the time of one.
    pub fn native(self) -> f64 {
        self.rate().value / self.per_second
    }

    /// The native rate that this tells.
    fn rate(self) -> Rate {
        let added = self.expansion - 1.0;
        let native = |shows: f64| self.per_second * (1.0 + shows * added);
        let (low, value, high) = SHOWS_COUNTING;
        let access_s = 1.0 / self.per_second.max(1.0);
        let hidden = 1.0 / (access_s - ADDED_COUNTING_S * added).max(0.1 * access_s);
        let most = (MOST_COUNTING * self.per_second).min(HIGHEST_RATE);
        let value = native(value).min(hidden).min(most);
        Rate {
            value,
            // One that is faster than threads can be (a `rep` over megabytes) would have it above.
            low: (native(low) / RATE_SPREAD.0 / self.spread).min(value),
            high: native(high) * RATE_SPREAD.1 * self.spread,
        }
    }
}

/// Windows on their way into the profile.
#[derive(Debug, Default)]
pub struct Weights {
    pending: Option<Pending>,
    /// CPU seconds at the end of the last window.
    last_end_s: f64,
    /// Native CPU seconds before the open window that it stands for.
    before_s: f64,
    total: Estimate,
    /// Accesses observed or counted.
    seen: f64,
    /// The last window's rate, and the variance of the total because windows fall where they fall.
    last_rate: Option<f64>,
    variance: f64,
    /// Rates of windows that were timed; of others that were not mostly stops.
    timed_rates: VecDeque<f64>,
    rates: VecDeque<f64>,
    /// Rates of windows that were timed, over those guessed from the windows themselves.
    ratios: VecDeque<f64>,
    /// The windows that were completed.
    completed: Vec<Completed>,
}

/// What is known of windows at the end of the run, by their numbers.
#[derive(Debug)]
pub struct Settled {
    /// By what factor they stand for more than they were said to.
    pub factors: Vec<(u32, Estimate)>,
    /// How many looks they stand for; empty where those do not tell.
    pub looks: Vec<(u32, f64)>,
}

#[derive(Debug)]
struct Pending {
    record: WindowRecord,
    inside: Inside,
    rate: Rate,
    known: Known,
    content: Content,
    places: Vec<Place>,
    /// Native CPU seconds before it that it stands for.
    before_s: f64,
    /// Accesses counted beside it.
    beside: u64,
}

impl Weights {
    /// A window opens at `cpu_s`: the one before it can be written.
    pub fn open(&mut self, cpu_s: f64) -> Option<WindowRecord> {
        let gap = (cpu_s - self.last_end_s).max(0.0);
        let behind = if self.pending.is_some() {
            0.5 * gap
        } else {
            0.0
        };
        self.before_s = gap - behind;
        self.complete(behind)
    }

    /// The window that was opened has closed at `cpu_s`; in it the thread made `inside.per_second` accesses per CPU
    /// second.
    pub fn close(&mut self, record: WindowRecord, cpu_s: f64, inside: Inside) {
        self.last_end_s = cpu_s;
        let rate = self.guess(inside);
        self.pending = Some(Pending {
            record,
            inside,
            rate,
            known: match inside.mostly_stops || inside.of_others {
                true => Known::Nothing,
                false => Known::Seen,
            },
            content: Content::default(),
            places: Vec::new(),
            before_s: self.before_s,
            beside: 0,
        });
    }

    /// What code the window that has closed is of.
    pub fn of(&mut self, content: Content) {
        if let Some(pending) = &mut self.pending {
            pending.content = content;
        }
    }

    /// What the code was that was timed beside it.
    pub fn of_places(&mut self, places: Vec<Place>) {
        if let Some(pending) = &mut self.pending {
            pending.places = places;
        }
    }

    /// Beside the last window its thread ran like this (`None`: too much happened there for that to be told), for so many
    /// accesses.
    pub fn timed(&mut self, timed: Option<Timed>, accesses: u64) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        pending.beside += accesses;
        let inside = pending.inside;
        if let Some(timed) = timed {
            pending.rate = timed.rate();
            pending.known = Known::Timed;
            if !inside.mostly_stops && inside.likely() > 0.0 {
                let ratio = pending.rate.value / inside.likely();
                keep(&mut self.ratios, KEPT, ratio.clamp(RATIOS.0, RATIOS.1));
            }
        }
        if timed.is_some() {
            keep(&mut self.timed_rates, KEPT, pending.rate.value);
        } else if !inside.mostly_stops {
            keep(&mut self.rates, KEPT, pending.rate.value);
        }
    }

    /// So many accesses were counted where no window came of it.
    pub fn counted(&mut self, accesses: u64) {
        if let Some(pending) = &mut self.pending {
            pending.beside += accesses;
        }
    }

    /// Native rate of the last window, as far as known.
    pub fn last_rate(&self) -> Option<f64> {
        self.pending.as_ref().map(|pending| pending.rate.value)
    }

    /// Best guess of the native rate of code that runs as `inside` says in a window.
    pub fn native_rate(&self, inside: Inside) -> f64 {
        self.guess(inside).value
    }

    /// By what is seen in a window alone, and how that compared where windows were timed.
    fn guess(&self, inside: Inside) -> Rate {
        let mut rate = match median(self.ratios.iter().copied()) {
            _ if inside.mostly_stops => self.guess_by_others(inside),
            Some(ratio) => {
                let value = possible(inside.likely() * ratio, inside);
                Rate::within(value, UNTIMED_SPREAD)
            }
            None => inside.rate(),
        };
        if inside.together && self.ratios.is_empty() {
            rate.low /= CONTENTION;
        }
        rate
    }

    /// As fast as other windows of the run, or as any program.
    fn guess_by_others(&self, inside: Inside) -> Rate {
        let of = |rates: &VecDeque<f64>| {
            median(rates.iter().copied()).filter(|_| rates.len() >= ENOUGH_OTHERS)
        };
        let median = of(&self.timed_rates).or(of(&self.rates));
        // Its own rate is what is left of its time when stops of a guessed length are taken off.
        let value = median.unwrap_or(1.0 / (1.0 / ANY_RATE + CALL_S * inside.calls));
        let (low, high) = match median {
            Some(_) => (value / OTHERS_SPREAD, value * OTHERS_SPREAD),
            None => (inside.per_second.min(value), HIGHEST_RATE),
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
            inside,
            rate,
            known,
            content,
            places,
            before_s,
            beside,
            ..
        } = self.pending.take()?;
        let own = (record.accesses + beside) as f64;
        let native_s = before_s + after_s;
        tracing::debug!(
            own,
            before_s,
            after_s,
            rate = rate.value,
            low = rate.low,
            high = rate.high,
            "weight"
        );
        record.stands_for = rate.stands_for(own, native_s);
        // By what neighbours differ.
        if let Some(last) = self.last_rate.replace(rate.value) {
            self.variance += 0.5 * (native_s * (rate.value - last)).powi(2);
        }
        self.completed.push(Completed {
            index: record.index,
            own,
            native_s,
            rate,
            known,
            said: record.stands_for,
            at_least: match inside.mostly_stops || inside.of_others {
                true => 0.0,
                false => inside.per_second,
            },
            far: completed::far(&record.samples),
            content,
            places,
        });
        self.seen += own;
        self.total.value += record.stands_for.value;
        self.total.low += record.stands_for.low;
        self.total.high += record.stands_for.high;
        Some(record)
    }

    /// Goes through what completed windows stand for, now that all are known; `shares` shares out the run's native time by
    /// their rates, where it can.
    pub fn settle(&mut self, shares: impl FnOnce(&[f64]) -> Option<Shares>) -> Settled {
        completed::reconsider(&mut self.completed);
        let rates: Vec<f64> = self.completed.iter().map(|c| c.rate.value).collect();
        let (mut of_looks, mut looks) = (0.0, Vec::new());
        if let Some(shares) = shares(&rates) {
            for (window, native_s) in self.completed.iter_mut().zip(shares.native_s) {
                window.native_s = native_s;
            }
            let numbers = self.completed.iter().map(|window| window.index);
            (of_looks, looks) = (shares.variance, numbers.zip(shares.looks).collect());
        }
        // By what neighbours differ, as while the run went on.
        let neighbours = self.completed.windows(2);
        let differ = |pair: &[Completed]| {
            0.5 * (pair[1].native_s * (pair[1].rate.value - pair[0].rate.value)).powi(2)
        };
        self.variance = of_looks + neighbours.map(differ).sum::<f64>();
        self.total = completed::sum(self.completed.iter().map(Completed::stands_for));
        for window in &self.completed {
            tracing::debug!(
                index = window.index,
                native_s = window.native_s,
                rate = window.rate.value,
                known = ?window.known,
                "settled"
            );
        }
        let factor = |new: f64, said: f64| new / said.max(1.0);
        let factors = |w: &Completed| {
            let new = w.stands_for();
            let factors = Estimate {
                value: factor(new.value, w.said.value),
                low: factor(new.low, w.said.low),
                high: factor(new.high, w.said.high),
            };
            (w.index, factors)
        };
        Settled {
            factors: self.completed.iter().map(factors).collect(),
            looks,
        }
    }

    /// Accesses of the run, as far as windows have been completed: with what is uncertain about each rate, which errs on the
    /// same side for all, and with what other windows would have shown.
    pub fn total(&self) -> Estimate {
        const DEVIATIONS: f64 = 2.0;
        let sampling = DEVIATIONS * self.variance.sqrt();
        let Estimate { value, low, high } = self.total;
        let (few, unseen) = (self.few(), (value - self.seen).max(0.0));
        let under = (value - low).hypot(unseen - unseen / few);
        let over = (high - value).hypot(unseen * few - unseen);
        Estimate {
            value,
            low: (value - sampling.hypot(under)).max(self.seen),
            high: value + sampling.hypot(over),
        }
    }

    /// By what factor what was not seen may be off because windows are too few to tell what there is besides.
    fn few(&self) -> f64 {
        let all_s: f64 = self.completed.iter().map(|w| w.native_s).sum();
        let shares = self.completed.iter().map(|w| w.native_s / all_s.max(1e-9));
        let lone: f64 = shares.map(|share| share * share).sum();
        let fewer = (1.0 - self.completed.len() as f64 / ENOUGH_WINDOWS).max(0.0);
        OTHERS_SPREAD.powf((fewer * lone).sqrt())
    }
}

/// The rate next to `guess` that a thread can have which ran like this in a window: natively it is no slower.
fn possible(guess: f64, inside: Inside) -> f64 {
    guess.min(HIGHEST_RATE).max(inside.per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;

    fn window(accesses: u64) -> WindowRecord {
        example::window(0, accesses, Estimate::default())
    }

    fn inside(per_second: f64) -> Inside {
        Inside {
            per_second,
            accesses: f64::INFINITY,
            expansion: 1.0,
            calls: 0.0,
            together: false,
            mostly_stops: false,
            of_others: false,
        }
    }

    fn like(per_second: f64) -> Option<Timed> {
        Some(Timed {
            per_second,
            expansion: 1.0,
            spread: 1.0,
        })
    }

    #[test]
    fn a_window_of_stops_goes_by_the_others() {
        let swamped = Inside {
            mostly_stops: true,
            ..inside(1e7)
        };
        let mut weights = Weights::default();
        weights.close(window(1000), 0.0, swamped);
        weights.timed(None, 0);
        let unknown = weights.open(2.0).unwrap().stands_for;
        assert!(unknown.value > 3e8 && unknown.low < 2e7 && unknown.high > 2e9);
        // Two that were filled by `rep stosb` say nothing of others.
        for (turn, rate) in [2e10, 2e10, 9e8, 9e8, 9e8].into_iter().enumerate() {
            let at = turn as f64 + 2.0;
            weights.close(window(1000), at, inside(rate));
            weights.timed(None, 0);
            if turn == 1 {
                assert_eq!(weights.guess(swamped).value, ANY_RATE);
            }
            weights.open(at + 1.0);
        }
        weights.close(window(1000), 7.0, swamped);
        weights.timed(None, 0);
        // Half a second before it and half a second behind.
        let like_others = weights.open(8.0).unwrap().stands_for;
        assert!(
            (like_others.value / 9e8 - 1.0).abs() < 0.01,
            "{like_others:?}"
        );
    }

    #[test]
    fn the_whole_run_is_stood_for_once() {
        let mut weights = Weights::default();
        assert_eq!(weights.open(1.0), None);
        weights.close(window(1000), 1.0, inside(5e5));
        weights.timed(like(1e6), 300);
        let first = weights.open(3.0).unwrap();
        // All of the second before it, half of the two behind it.
        assert!((first.stands_for.value / (1300.0 + 2e6) - 1.0).abs() < 1e-3);
        weights.close(window(500), 3.0, inside(1e6));
        weights.timed(like(2e6), 0);
        let last = weights.finish(4.0).unwrap();
        // The other half, and the last second.
        let expected = 500.0 + 4e6;
        assert!(
            (last.stands_for.value / expected - 1.0).abs() < 1e-3,
            "{last:?}"
        );
        assert!(last.stands_for.low <= last.stands_for.value);
        assert!((weights.total().value / (1800.0 + 6e6) - 1.0).abs() < 1e-3);
        assert_eq!(weights.finish(9.0), None);
    }

    #[test]
    fn the_total_is_less_certain_where_windows_differ() {
        let total = |windows: usize, rates: [f64; 2]| {
            let mut weights = Weights::default();
            for turn in 0..windows {
                let (at, rate) = (turn as f64 + 0.5, rates[turn % 2]);
                weights.open(at);
                weights.close(window(1000), at, inside(rate));
                weights.timed(like(rate), 0);
            }
            weights.finish(windows as f64);
            weights.total()
        };
        let width = |e: Estimate| (e.high - e.low) / e.value;
        let (even, uneven) = (total(24, [1e8; 2]), total(24, [1e8, 9e8]));
        assert!(
            (even.value / 24e8 - 1.0).abs() < 1e-3 && width(even) < 0.7,
            "{even:?}"
        );
        assert!(
            width(uneven) > width(even) + 0.3 && uneven.low >= 24_000.0,
            "{uneven:?}"
        );
        // Of two or one nothing is known of what lies between them.
        let (two, one) = (total(2, [1e8; 2]), total(1, [1e8; 2]));
        assert!(width(two) > width(even) + 0.5, "{two:?}");
        assert!(width(one) > width(two) + 0.5, "{one:?}");
    }

    #[test]
    fn added_instructions_cost_little_beside_waits() {
        let likely = |per_second: f64, expansion: f64| {
            let inside = Inside {
                expansion,
                ..inside(per_second)
            };
            inside.likely() / per_second
        };
        // An access every 10 ns, of which 0.8 are added; one every nanosecond, of which most is.
        assert!((likely(1e8, 3.0) - 10.0 / 9.2).abs() < 1e-9);
        assert!((likely(1e9, 3.0) - 2.6).abs() < 1e-9);
        assert!((likely(1e9, 30.0) - 1.0 - MOST_ADDED).abs() < 1e-9);
        assert!((likely(1e9, 1.0) - 1.0).abs() < 1e-9);
    }

    /// All is gone through at the end: what is known, and how much time.
    #[test]
    fn the_run_is_shared_out_anew_at_its_end() {
        let of_four_seconds = || {
            let mut weights = Weights::default();
            for turn in 0..4 {
                let at = f64::from(turn);
                weights.open(at);
                weights.close(window(1000), at, inside(1e6));
                weights.timed(like(1e6), 0);
            }
            weights.finish(4.0);
            weights
        };
        let mut weights = of_four_seconds();
        let shares = Shares {
            native_s: vec![0.5, 0.5, 0.5, 2.5],
            variance: 0.0,
            looks: vec![5.0, 5.0, 5.0, 25.0],
        };
        let Settled { factors, looks } = weights.settle(|_| Some(shares));
        assert_eq!((looks.len(), looks[3].1), (4, 25.0));
        let last = (1000.0 + 2.5e6) / (1000.0 + 1.5e6);
        assert!((factors[3].1.value - last).abs() < 1e-9, "{factors:?}");
        assert!((weights.total().value / 4.004e6 - 1.0).abs() < 1e-9);
        // Where looks do not tell, windows stand for what they were said to.
        let mut weights = of_four_seconds();
        let Settled { factors, looks } = weights.settle(|_| None);
        assert_eq!((factors.len(), looks.len()), (4, 0));
        for (_, factor) in &factors {
            for factor in [factor.low, factor.value, factor.high] {
                assert!((factor - 1.0).abs() < 1e-9, "{factors:?}");
            }
        }
    }

    #[test]
    fn a_rate_lies_within_its_bounds_however_fast() {
        for (per_second, expansion) in [
            (1e6, 1.0),
            (1e9, 6.0),
            (2e9, 3.0),
            (2.0 * HIGHEST_RATE, 1.0),
        ] {
            let timed = Timed {
                per_second,
                expansion,
                spread: 1.0,
            };
            let rate = timed.rate();
            assert!(
                rate.low <= rate.value && rate.value <= rate.high,
                "{rate:?}"
            );
            // Nor is it what no code is counted that much slower for.
            assert!(rate.value <= MOST_COUNTING * per_second, "{rate:?}");
        }
    }

    /// What a short window took says little of the program, and that is known.
    #[test]
    fn short_windows_were_slow_at_their_beginning() {
        let mut weights = Weights::default();
        let of = |weights: &Weights, accesses, per_second| {
            let seen = Inside {
                accesses,
                ..inside(per_second)
            };
            weights.guess(seen)
        };
        // 333 us, of which six parts of seven were the beginning.
        let short = of(&weights, 100e3, 3e8);
        assert!((short.value / 21e8 - 1.0).abs() < 1e-9, "{short:?}");
        assert!(short.low == 3e8 && short.high > 2.0 * short.value);
        let long = of(&weights, 100e6, 3e8);
        assert!(long.value < 3.1e8 && long.high < 3.2e8, "{long:?}");
        // It took longer than a beginning does; no thread is faster than threads can be; what other windows tell had no such beginning.
        let slow = of(&weights, 1e3, 1e6);
        assert!((slow.value / 2e6 - 1.0).abs() < 1e-9, "{slow:?}");
        assert_eq!(of(&weights, 100e3, 3e9).value, HIGHEST_RATE);
        let of_others = Inside {
            accesses: 100e3,
            of_others: true,
            ..inside(3e8)
        };
        assert!(weights.guess(of_others).value < 3.1e8);
        // Windows of code that waits for memory, where it hardly shows, are guessed as those that were timed.
        for _ in 0..5 {
            let seen = Inside {
                accesses: 100e3,
                ..inside(1.4e7)
            };
            weights.close(window(1), 0.0, seen);
            weights.timed(like(1.4e7), 0);
        }
        let waits = of(&weights, 100e3, 1.4e7);
        assert!((waits.value / 1.4e7 - 1.0).abs() < 1e-9, "{waits:?}");
    }

    /// What windows were timed says how far the guesses for others are off.
    #[test]
    fn windows_that_were_not_timed_are_guessed_as_the_others_were_off() {
        let mut weights = Weights::default();
        let before = weights.guess(inside(1e8));
        for _ in 0..5 {
            weights.close(window(1), 0.0, inside(1e8));
            weights.timed(like(2e8), 0);
        }
        let after = weights.guess(inside(2e8));
        assert!((after.value / 4e8 - 1.0).abs() < 1e-9 && (before.value / 1e8 - 1.0).abs() < 1e-9);
        assert!(after.low < after.value && after.value < after.high);
        // Whatever was added to it, no thread is faster than threads can be.
        let expanded = Inside {
            expansion: 17.0,
            ..inside(2e9)
        };
        assert_eq!(weights.guess(expanded).value, HIGHEST_RATE);
        // What counting adds is taken to show, but hardly where the program waits for memory.
        for (per_second, expansion, native) in [(2e9, 1.5, 3e9), (1e8, 2.0, 1e9 / 9.2)] {
            let dear = Timed {
                per_second,
                expansion,
                spread: 1.0,
            };
            weights.timed(Some(dear), 0);
            assert!((weights.last_rate().unwrap() / native - 1.0).abs() < 1e-9);
        }
    }
}

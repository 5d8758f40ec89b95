//! What each window stands for: the native accesses of the CPU time around it.
//!
//! A window stands for its own accesses and for half of the native stretches before and behind it, the last one for all
//! of what follows. When windows are opened does not depend on what they are to be ([`super::schedule`]), but for those that are sought
//! ([`super::seek`]), around which the time is their neighbours'. The rate
//! inside a window is no substitute for the native rate: translated code is slower by a factor that depends on the code.

use super::completed::{self, Completed, Known};
use super::content::{Content, Place};
use super::looks::Shares;
use super::rates::{ANY_RATE, HIGHEST_RATE, Inside, OTHERS_SPREAD, Rate, Timed, possible};
use super::recent::{keep, median};
use crate::profile::types::{Estimate, WindowRecord};
use std::collections::VecDeque;

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
/// In turns they are slow, by more than is allowed for where they are short: it may be this many times too low. (Of a ring of buffers it was half.)
const IN_TURNS: f64 = 3.0;
/// What a system call takes the program's own code, in seconds: entry and exit, and caches that the kernel has used. (Three servers, whose calls
/// were a thousand accesses apart: 0.5 to 0.8 us, on one host.)
const CALL_S: f64 = 0.6e-6;
/// Windows that tell by how far they differ what others would have shown.
const ENOUGH_WINDOWS: f64 = 12.0;
/// Windows by whose rates one is guessed that says nothing of its own: one or two may be of unlike code, such as a
/// `rep stosb` over megabytes, which makes ten accesses where other code makes one.
pub const ENOUGH_OTHERS: usize = 3;

/// Windows on their way into the profile.
#[derive(Debug, Default)]
pub struct Weights {
    pending: Option<Pending>,
    /// CPU seconds at the end of the last window.
    last_end_s: f64,
    /// Native CPU seconds before the open window that it stands for, and whether it was sought.
    before_s: f64,
    sought: bool,
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
    /// See [`Weights::open`].
    sought: bool,
    /// Accesses counted beside it.
    beside: u64,
    /// Where it began in a stretch without accesses, the rate of that.
    idle: Option<Rate>,
}

impl Weights {
    /// A window opens at `cpu_s`: the one before it can be written. `sought`: it is opened where one was, so that the time around it is of its
    /// neighbours.
    pub fn open(&mut self, cpu_s: f64, sought: bool) -> Option<WindowRecord> {
        let gap = (cpu_s - self.last_end_s).max(0.0);
        let behind = match &self.pending {
            None => 0.0,
            Some(last) if last.sought == sought => 0.5 * gap,
            Some(last) if last.sought => 0.0,
            Some(_) => gap,
        };
        (self.before_s, self.sought) = (gap - behind, sought);
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
            sought: self.sought,
            beside: 0,
            idle: None,
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
        // No other code is as fast as a copy, or as slow as a `rep stosb` over new memory.
        let rates = match timed {
            _ if inside.repeats() => return,
            Some(_) => &mut self.timed_rates,
            None if inside.mostly_stops => return,
            None => &mut self.rates,
        };
        keep(rates, KEPT, pending.rate.value);
    }

    /// The last window, with what was timed beside it, began in a stretch with this rate: the time around it is of that.
    pub fn idle(&mut self, rate: f64) {
        if let Some(pending) = &mut self.pending {
            pending.idle = Some(Rate::within(rate.max(1.0), UNTIMED_SPREAD));
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
            rate.high = rate.high.max(rate.value * IN_TURNS);
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
            sought,
            beside,
            idle,
        } = self.pending.take()?;
        let own = (record.accesses + beside) as f64;
        let native_s = before_s + after_s;
        let at_least = match inside.mostly_stops || inside.of_others {
            true => 0.0,
            false => inside.per_second,
        };
        let seen = Completed {
            index: record.index,
            own,
            native_s,
            rate,
            known,
            said: rate.stands_for(own, native_s),
            at_least,
            repeats: inside.repeats(),
            far: completed::far(&record.samples),
            content,
            places,
            sought,
        };
        let rate = idle.unwrap_or(rate);
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
        if sought {
            // That it is there is no chance.
        } else if let Some(last) = self.last_rate.replace(rate.value) {
            self.variance += 0.5 * (native_s * (rate.value - last)).powi(2);
        }
        match idle {
            Some(rate) => self.completed.extend(seen.behind(rate)),
            None => self.completed.push(seen),
        }
        self.seen += own;
        self.total.value += record.stands_for.value;
        self.total.low += record.stands_for.low;
        self.total.high += record.stands_for.high;
        Some(record)
    }

    /// Goes through what completed windows stand for, now that all are known; `shares` shares out the run's native time by
    /// their rates, where it can.
    pub fn settle(&mut self, shares: impl FnOnce(&[f64], &[bool]) -> Option<Shares>) -> Settled {
        completed::reconsider(&mut self.completed);
        let rates: Vec<f64> = self.completed.iter().map(|c| c.rate.value).collect();
        let seen = |w: &Completed| matches!(w.known, Known::Timed | Known::Seen | Known::Behind);
        let seen: Vec<bool> = self.completed.iter().map(seen).collect();
        let (mut of_looks, mut looks) = (0.0, Vec::new());
        if let Some(shares) = shares(&rates, &seen) {
            for (window, native_s) in self.completed.iter_mut().zip(shares.native_s) {
                window.native_s = native_s;
            }
            let told = self.completed.iter().zip(shares.looks);
            // What it saw is not of the looks at stretches without accesses.
            let told = told.filter(|(window, _)| window.known != Known::Idle);
            looks = told.map(|(window, looks)| (window.index, looks)).collect();
            of_looks = shares.variance;
        }
        // By what neighbours differ, as while the run went on.
        let began: Vec<&Completed> = self.began().collect();
        let differ = |pair: &[&Completed]| {
            0.5 * (pair[1].native_s * (pair[1].rate.value - pair[0].rate.value)).powi(2)
        };
        self.variance = of_looks + began.windows(2).map(differ).sum::<f64>();
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
        let factors = |parts: &[Completed]| {
            let new = completed::sum(parts.iter().map(Completed::stands_for));
            let said = completed::sum(parts.iter().map(|part| part.said));
            let factors = Estimate {
                value: factor(new.value, said.value),
                low: factor(new.low, said.low),
                high: factor(new.high, said.high),
            };
            (parts[0].index, factors)
        };
        let windows = self.completed.chunk_by(|_, b| b.known == Known::Behind);
        Settled {
            factors: windows.map(factors).collect(),
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

    /// Windows, of those that began where they did by chance.
    fn began(&self) -> impl Iterator<Item = &Completed> {
        let by_chance = |w: &&Completed| w.known != Known::Behind && !w.sought;
        self.completed.iter().filter(by_chance)
    }

    /// By what factor what was not seen may be off because windows are too few to tell what there is besides.
    fn few(&self) -> f64 {
        let all_s: f64 = self.completed.iter().map(|w| w.native_s).sum();
        let shares = self.completed.iter().map(|w| w.native_s / all_s.max(1e-9));
        let lone: f64 = shares.map(|share| share * share).sum();
        let fewer = (1.0 - self.began().count() as f64 / ENOUGH_WINDOWS).max(0.0);
        OTHERS_SPREAD.powf((fewer * lone).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::Begins;
    use super::*;
    use crate::profile::example;

    fn window(accesses: u64) -> WindowRecord {
        example::window(0, accesses, Estimate::default())
    }

    fn inside(per_second: f64) -> Inside {
        Inside::example(per_second)
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
        let unknown = weights.open(2.0, false).unwrap().stands_for;
        assert!(unknown.value > 3e8 && unknown.low < 2e7 && unknown.high > 2e9);
        // Two that were filled by `rep stosb` say nothing of others.
        for (turn, rate) in [2e10, 2e10, 9e8, 9e8, 9e8].into_iter().enumerate() {
            let at = turn as f64 + 2.0;
            weights.close(window(1000), at, inside(rate));
            weights.timed(None, 0);
            if turn == 1 {
                assert_eq!(weights.guess(swamped).value, ANY_RATE);
            }
            weights.open(at + 1.0, false);
        }
        weights.close(window(1000), 7.0, swamped);
        weights.timed(None, 0);
        // Half a second before it and half a second behind.
        let like_others = weights.open(8.0, false).unwrap().stands_for;
        assert!(
            (like_others.value / 9e8 - 1.0).abs() < 0.01,
            "{like_others:?}"
        );
    }

    /// A chess program clears its tables at the pace of page faults, and then makes fifty times as many accesses a second.
    #[test]
    fn windows_of_repeated_instructions_say_nothing_of_others() {
        let mut weights = Weights::default();
        let clears = Inside {
            expansion: 1.001,
            ..inside(5e7)
        };
        let timed = Timed {
            per_second: 5e7,
            expansion: 1.0,
            spread: 1.0,
        };
        let swamped = Inside {
            mostly_stops: true,
            ..inside(1e7)
        };
        for at in [0.0, 1.0, 2.0] {
            weights.close(window(1000), at, clears);
            weights.timed(Some(timed), 0);
            weights.open(at + 1.0, false);
        }
        assert_eq!(weights.guess(swamped).value, ANY_RATE);
        // As they would of their like.
        for at in [3.0, 4.0, 5.0] {
            weights.close(window(1000), at, inside(5e7));
            weights.timed(Some(timed), 0);
            weights.open(at + 1.0, false);
        }
        assert!(weights.guess(swamped).value < 2e8);
    }

    #[test]
    fn the_whole_run_is_stood_for_once() {
        let mut weights = Weights::default();
        assert_eq!(weights.open(1.0, false), None);
        weights.close(window(1000), 1.0, inside(5e5));
        weights.timed(like(1e6), 300);
        let first = weights.open(3.0, false).unwrap();
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

    /// Time without accesses is that of windows that began in it; what they saw is of the time in its code.
    #[test]
    fn windows_that_begin_in_idle_time_stand_for_that() {
        let mut weights = Weights::default();
        for turn in 0..10 {
            let at = f64::from(turn) + 1.0;
            if let Some(record) = weights.open(at, false) {
                assert_eq!(record.index, 0);
            }
            weights.close(window(1000), at, inside(1e9));
            weights.timed(like(1e9), 0);
            if turn % 10 != 4 {
                weights.idle(0.0);
            }
        }
        weights.finish(10.5);
        let numbers: Vec<Known> = weights.completed.iter().map(|w| w.known).collect();
        assert_eq!(numbers.len(), 19);
        // A tenth of the time is of the code that each has seen.
        let native_s = |w: &Known| match w {
            Known::Idle => 1.0,
            Known::Behind => 0.05,
            _ => 0.55,
        };
        let shares = |rates: &[f64], seen: &[bool]| {
            assert_eq!(seen.iter().filter(|seen| **seen).count(), 10);
            assert_eq!(rates.len(), 19);
            Some(Shares {
                native_s: numbers.iter().map(native_s).collect(),
                variance: 0.0,
                looks: vec![2.0; 19],
            })
        };
        let settled = weights.settle(shares);
        assert!((weights.total().value / 1e9 - 1.0).abs() < 0.01);
        // One each: of windows.
        assert_eq!((settled.looks.len(), settled.factors.len()), (10, 10));
    }

    /// A window that was sought takes no time from its neighbours, and says nothing of how these differ.
    #[test]
    fn windows_that_were_sought_stand_for_themselves_alone() {
        let total = |sought: &[f64]| {
            let mut weights = Weights::default();
            for turn in 0..20 {
                let at = f64::from(turn) + 0.5;
                weights.open(at, false);
                weights.close(window(1000), at, inside(1e7));
                weights.timed(like(1e7), 0);
                for &behind in sought.iter().filter(|_| turn % 2 == 0) {
                    weights.open(at + behind, true);
                    weights.close(window(1000), at + behind, inside(3e9));
                    weights.timed(None, 0);
                }
            }
            weights.finish(20.0);
            let before = weights.total();
            let settled = weights.settle(|_, _| None);
            assert_eq!(settled.factors.len(), 20 + 10 * sought.len());
            (before, weights.total())
        };
        let (before, alone) = total(&[]);
        assert!((alone.value / 2e8 - 1.0).abs() < 0.01 && before.value == alone.value);
        for (live, settled) in [total(&[0.3]), total(&[0.7])] {
            for told in [live, settled] {
                assert!((told.value / alone.value - 1.0).abs() < 1e-3, "{told:?}");
                assert!(
                    told.high < 1.1 * alone.high && told.low > 0.9 * alone.low,
                    "{told:?}"
                );
            }
        }
    }

    #[test]
    fn the_total_is_less_certain_where_windows_differ() {
        let total = |windows: usize, rates: [f64; 2]| {
            let mut weights = Weights::default();
            for turn in 0..windows {
                let (at, rate) = (turn as f64 + 0.5, rates[turn % 2]);
                weights.open(at, false);
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

    /// All is gone through at the end: what is known, and how much time.
    #[test]
    fn the_run_is_shared_out_anew_at_its_end() {
        let of_four_seconds = || {
            let mut weights = Weights::default();
            for turn in 0..4 {
                let at = f64::from(turn);
                weights.open(at, false);
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
        let Settled { factors, looks } = weights.settle(|_, _| Some(shares));
        assert_eq!((looks.len(), looks[3].1), (4, 25.0));
        let last = (1000.0 + 2.5e6) / (1000.0 + 1.5e6);
        assert!((factors[3].1.value - last).abs() < 1e-9, "{factors:?}");
        assert!((weights.total().value / 4.004e6 - 1.0).abs() < 1e-9);
        // Where looks do not tell, windows stand for what they were said to.
        let mut weights = of_four_seconds();
        let Settled { factors, looks } = weights.settle(|_, _| None);
        assert_eq!((factors.len(), looks.len()), (4, 0));
        for (_, factor) in &factors {
            for factor in [factor.low, factor.value, factor.high] {
                assert!((factor - 1.0).abs() < 1e-9, "{factors:?}");
            }
        }
    }

    /// What a short window took says little of the program, and that is known.
    #[test]
    fn short_windows_were_slow_at_their_beginning() {
        let mut weights = Weights::default();
        let of = |weights: &Weights, accesses, per_second| {
            let seen = Inside {
                begins: Begins::Once(accesses),
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
            begins: Begins::Once(100e3),
            of_others: true,
            ..inside(3e8)
        };
        assert!(weights.guess(of_others).value < 3.1e8);
        // Windows of code that waits for memory, where it hardly shows, are guessed as those that were timed.
        for _ in 0..5 {
            let seen = Inside {
                begins: Begins::Once(100e3),
                ..inside(1.4e7)
            };
            weights.close(window(1), 0.0, seen);
            weights.timed(like(1.4e7), 0);
        }
        let waits = of(&weights, 100e3, 1.4e7);
        assert!((waits.value / 1.4e7 - 1.0).abs() < 1e-9, "{waits:?}");
    }

    /// Others had their turns before each of its own.
    #[test]
    fn turns_are_slow_behind_each_stop() {
        let weights = Weights::default();
        let seen = |together| Inside {
            begins: Begins::Often(5e3),
            together,
            ..inside(5e8)
        };
        let rate = weights.guess(seen(true));
        // Five parts of ten were the stop's.
        assert!((rate.value / 1e9 - 1.0).abs() < 1e-9, "{rate:?}");
        assert!(
            rate.low < 5e8 && rate.high >= IN_TURNS * rate.value,
            "{rate:?}"
        );
        assert!(weights.guess(seen(false)).low > 4.9e8);
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
        for (per_second, expansion, native) in [(2e9, 1.5, 2.85e9), (1e8, 2.0, 1e9 / 9.0)] {
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

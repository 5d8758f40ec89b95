//! How fast the threads of a process run beside each other: whose accesses fall into the same time.

use super::rates::{Begins, Inside};
use super::recent::keep;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Pieces of a thread's time that are kept, and how many it takes to tell threads apart.
const KEPT: usize = 40;
const ENOUGH: usize = 5;
/// Fewest accesses that say something of a thread's speed.
const LEAST_ACCESSES: u64 = 2_000;
/// A thread is taken to be at most this many times slower than the fastest.
const SLOWEST: f64 = 20.0;
/// Rounds between two looks at speeds, where a run is observed as a whole, and looks at a thread before they are that rare.
const ROUNDS: u64 = 8;
const SOON: usize = 20;

/// Part of a thread's time in the code cache.
#[derive(Clone, Copy, Debug)]
pub struct Clocked {
    /// Its accesses.
    pub accesses: u64,
    /// CPU seconds without those of its stops: less than none where these took less than most do.
    pub cache_s: f64,
    /// Instructions executed for each of the program's own.
    pub expansion: f64,
}

/// What is known of a thread.
#[derive(Debug, Default)]
struct Thread {
    pieces: VecDeque<Clocked>,
    /// How often it was looked at; some looks say nothing.
    looks: usize,
}

/// Accesses per native CPU second of threads, as far as known.
#[derive(Debug, Default)]
pub struct Speeds {
    by_thread: FxHashMap<i32, Thread>,
    /// What the fastest thread of the present round does at least.
    fastest: f64,
    rounds: u64,
    due: bool,
}

impl Speeds {
    /// Begins a round of these threads.
    pub fn begin_round(&mut self, threads: impl Iterator<Item = i32>) {
        self.rounds += 1;
        (self.fastest, self.due) = (0.0, self.rounds % ROUNDS == 1);
        for tid in threads {
            let low = self.bounds(tid).map_or(0.0, |(low, _)| low);
            self.fastest = self.fastest.max(low);
            self.due |= self.by_thread.get(&tid).map_or(0, |known| known.looks) < SOON;
        }
    }

    /// Time of an access of the thread, in those of the fastest thread of the round: as far as their
    /// estimates differ for sure, because most threads that run side by side do the same.
    pub fn pace(&self, tid: i32) -> f64 {
        match self.bounds(tid) {
            Some((_, high)) => (self.fastest / high).clamp(1.0, SLOWEST),
            None => 1.0,
        }
    }

    /// Whether the speeds of the round's threads are to be looked at: once in some rounds, and in those of new threads.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// A thread has run like this.
    pub fn clocked(&mut self, tid: i32, clocked: Clocked) {
        let known = self.by_thread.entry(tid).or_default();
        known.looks += 1;
        if clocked.accesses >= LEAST_ACCESSES && clocked.cache_s.is_finite() {
            keep(&mut known.pieces, KEPT, clocked);
        }
    }

    /// A thread is no more.
    pub fn forget(&mut self, tid: i32) {
        self.by_thread.remove(&tid);
    }

    /// A thread's speed, a standard error (jackknife) less and more. All its pieces together tell it: of one alone the
    /// stops may be most.
    fn bounds(&self, tid: i32) -> Option<(f64, f64)> {
        let kept = &self.by_thread.get(&tid)?.pieces;
        if kept.len() < ENOUGH {
            return None;
        }
        let all = kept
            .iter()
            .fold(Sums::default(), |sums, piece| sums.plus(*piece, 1.0));
        let n = kept.len() as f64;
        let without: Option<Vec<f64>> = kept
            .iter()
            .map(|piece| all.plus(*piece, -1.0).speed().map(f64::ln))
            .collect();
        let (speed, without) = (all.speed()?, without?);
        let mean = without.iter().sum::<f64>() / n;
        let squares: f64 = without.iter().map(|log| (log - mean).powi(2)).sum();
        let error = ((n - 1.0) / n * squares).sqrt().exp();
        Some((speed / error, speed * error))
    }
}

/// Pieces together.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    accesses: f64,
    cache_s: f64,
    /// Expansions, by accesses.
    expanded: f64,
}

impl Sums {
    fn plus(self, piece: Clocked, sign: f64) -> Sums {
        let accesses = sign * piece.accesses as f64;
        Sums {
            accesses: self.accesses + accesses,
            cache_s: self.cache_s + sign * piece.cache_s,
            expanded: self.expanded + accesses * piece.expansion,
        }
    }

    /// The native rate that they tell, in accesses per second.
    fn speed(self) -> Option<f64> {
        if self.cache_s <= 0.0 || self.accesses <= 0.0 {
            return None;
        }
        let inside = Inside {
            per_second: self.accesses / self.cache_s,
            begins: Begins::Never,
            expansion: self.expanded / self.accesses,
            calls: 0.0,
            together: true,
            mostly_stops: false,
            of_others: false,
        };
        Some(inside.likely())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of a thread of so many accesses per second, in which stops took some microseconds more or less than is taken off.
    fn run(speeds: &mut Speeds, tid: i32, per_second: f64, pieces: u64) {
        for n in 0..pieces {
            let accesses = 5_000 + n * 7_000 % 40_000;
            let off_s = [-12e-6, 9e-6, -2e-6, 5e-6][n as usize % 4];
            let clocked = Clocked {
                accesses,
                cache_s: accesses as f64 / per_second + off_s,
                expansion: 1.0,
            };
            speeds.clocked(tid, clocked);
        }
    }

    #[test]
    fn looks_become_rare_even_if_they_say_nothing() {
        let mut speeds = Speeds::default();
        let mut due = 0;
        for _ in 0..20 * ROUNDS {
            speeds.begin_round([1].into_iter());
            if speeds.is_due() {
                due += 1;
                run(&mut speeds, 1, f64::NAN, 1);
            }
        }
        assert!((SOON..SOON + 20).contains(&due), "{due}");
        assert_eq!(speeds.bounds(1), None);
    }

    #[test]
    fn a_thread_that_is_slower_for_sure_takes_longer() {
        let mut speeds = Speeds::default();
        run(&mut speeds, 1, 1e9, 40);
        run(&mut speeds, 2, 0.4e9, 40);
        // By a tenth, which is not for sure; and in few pieces.
        run(&mut speeds, 3, 0.9e9, 12);
        run(&mut speeds, 4, 0.1e9, ENOUGH as u64 - 1);
        assert_eq!((speeds.pace(1), speeds.pace(2)), (1.0, 1.0), "no round yet");
        speeds.begin_round([1, 2, 3, 4].into_iter());
        assert_eq!([1, 3, 4].map(|tid| speeds.pace(tid)), [1.0; 3]);
        let pace = speeds.pace(2);
        assert!((1.8..2.5).contains(&pace), "{pace}");
        // Turns that find nothing to do say nothing.
        run(&mut speeds, 2, 0.4e9, 40);
        let nothing = Clocked {
            accesses: 30,
            cache_s: 1.0,
            expansion: 1.0,
        };
        for _ in 0..KEPT {
            speeds.clocked(2, nothing);
        }
        assert_eq!(speeds.pace(2), pace);
        speeds.forget(1);
        speeds.forget(3);
        speeds.begin_round([2, 4].into_iter());
        assert_eq!((speeds.pace(2), speeds.pace(4)), (1.0, 1.0));
    }
}

//! How fast the threads of a process run beside each other: whose accesses fall into the same time.

use super::weights::Inside;
use rustc_hash::FxHashMap;

/// Estimates of one thread that are kept, and how many it takes to tell threads apart.
const KEPT: usize = 15;
const ENOUGH: usize = 3;
/// Fewest accesses that say something of a thread's speed.
const LEAST_ACCESSES: u64 = 10_000;
/// A thread is taken to be at most this many times slower than the fastest.
const SLOWEST: f64 = 20.0;
/// Rounds between two looks at a speed, where a run is observed as a whole.
const ROUNDS: u64 = 8;

/// Accesses per native CPU second of threads, as far as known.
#[derive(Debug, Default)]
pub struct Speeds {
    by_thread: FxHashMap<i32, Vec<f64>>,
    /// Lower quartile of the fastest thread of the present round.
    fastest: f64,
    rounds: u64,
    looked: bool,
}

impl Speeds {
    /// Begins a round of these threads.
    pub fn begin_round(&mut self, threads: impl Iterator<Item = i32>) {
        let known = threads.filter_map(|tid| self.quartiles(tid));
        self.fastest = known.map(|(low, _)| low).fold(0.0, f64::max);
        self.rounds += 1;
        self.looked = self.rounds % ROUNDS != 1;
    }

    /// Time of an access of the thread, in those of the fastest thread of the round: as far as their
    /// estimates differ for sure, because most threads that run side by side do the same.
    pub fn pace(&self, tid: i32) -> f64 {
        match self.quartiles(tid) {
            Some((_, high)) => (self.fastest / high).clamp(1.0, SLOWEST),
            None => 1.0,
        }
    }

    /// Whether the speed of the thread whose turn comes is to be looked at: once in some rounds.
    pub fn is_due(&mut self) -> bool {
        !std::mem::replace(&mut self.looked, true)
    }

    /// A thread has run like this for so many accesses.
    pub fn clocked(&mut self, tid: i32, accesses: u64, inside: Inside) {
        let speed = inside.likely();
        if accesses < LEAST_ACCESSES || !speed.is_finite() || speed <= 0.0 {
            return;
        }
        let kept = self.by_thread.entry(tid).or_default();
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push(speed);
    }

    /// A thread is no more.
    pub fn forget(&mut self, tid: i32) {
        self.by_thread.remove(&tid);
    }

    /// Lower and upper quartile of a thread's estimates.
    fn quartiles(&self, tid: i32) -> Option<(f64, f64)> {
        let mut sorted = self.by_thread.get(&tid)?.clone();
        sorted.sort_by(f64::total_cmp);
        let quarter = sorted.len() / 4;
        (sorted.len() >= ENOUGH).then(|| (sorted[quarter], sorted[sorted.len() - 1 - quarter]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(per_second: f64) -> Inside {
        Inside {
            per_second,
            expansion: 1.0,
            together: false,
            mostly_stops: false,
            of_others: false,
        }
    }

    #[test]
    fn a_thread_that_is_slower_for_sure_takes_longer() {
        let mut speeds = Speeds::default();
        speeds.begin_round([1, 2].into_iter());
        assert_eq!((speeds.pace(1), speeds.pace(2)), (1.0, 1.0));
        for rate in [1.0e9, 1.1e9, 1.2e9, 9e12] {
            speeds.clocked(1, 50_000, inside(rate));
        }
        for rate in [1e6, 5.0e8, 5.2e8, 5.5e8] {
            speeds.clocked(2, 50_000, inside(rate));
            speeds.clocked(2, 100, inside(1e12));
        }
        for rate in [1e8, 1.1e9, 1.3e9, 1.4e9] {
            speeds.clocked(3, 50_000, inside(rate));
        }
        speeds.begin_round([1, 2, 3, 4].into_iter());
        assert_eq!(
            (speeds.pace(1), speeds.pace(3), speeds.pace(4)),
            (1.0, 1.0, 1.0)
        );
        assert!(
            (speeds.pace(2) - 1.1 / 0.52).abs() < 1e-9,
            "{}",
            speeds.pace(2)
        );
        speeds.forget(1);
        speeds.forget(3);
        speeds.begin_round([2, 4].into_iter());
        assert_eq!((speeds.pace(2), speeds.pace(4)), (1.0, 1.0));
    }
}

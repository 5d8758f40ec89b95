//! How long a run goes on as it does.
//!
//! A window with gaps around it stands for its stretch of the run, and a reuse longer than the window was exposed to
//! what the run did before it. A program that goes through the same round again and again did other things then: it
//! goes on as in the window for a while, and in between as the whole run does on the mean. How long that while is,
//! long windows tell: by how much their pieces are alike ([`crate::worth`]).
//!
//! Chosen: likeness is taken to fall off exponentially with distance, as of a process that
//! changes at random times.

use crate::Cache;
use crate::bins;
use crate::prepared::Prepared;
use crate::survival::{RunSize, Survival};

/// Intraclass correlation of pieces above which a run is taken to go on as it does.
const GOES_ON: f64 = 0.9;
/// Correlations below this are not told from none.
const NONE: f64 = 0.02;
/// Lengths looked for, accesses.
const LENGTHS: (f64, f64) = (1e2, 1e12);
/// Halvings of their logarithm: to 2 in a million.
const STEPS: usize = 24;

/// The while, and what is around it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// Line references over which the likeness falls by a factor of e.
    refs: f64,
    run: Prepared,
    /// `P(d >= lower edge)` of the run's distances, for each bin.
    at_edges: Vec<f64>,
}

impl Memory {
    /// Of a run with these distances. `None` where it goes on as it does for longer than anybody asks.
    pub fn new(refs: f64, pooled: &Survival, run: RunSize) -> Option<Self> {
        if !refs.is_finite() || refs <= 0.0 {
            return None;
        }
        let mut spread = pooled.clone();
        spread.spread_undecided(run);
        Some(Self {
            refs,
            run: Prepared::new(pooled.clone(), run),
            at_edges: spread.at_edges(),
        })
    }

    /// Line references, of the last so many, that were like the last one.
    pub fn near(&self, distance: f64) -> f64 {
        -self.refs * (-distance / self.refs).exp_m1()
    }

    /// Misses per reference of the others.
    pub fn far(&self, cache: &Cache) -> f64 {
        self.run.miss_ratio(cache)
    }

    /// `P(d >= lower edge)` of references at each age before one in a stretch with the distribution given.
    pub fn blend(&self, at_edges: &mut [f64]) {
        for (bin, (own, run)) in at_edges.iter_mut().zip(&self.at_edges).enumerate() {
            let like = (-bins::lower_edge(bin) / self.refs).exp();
            *own = like * *own + (1.0 - like) * run;
        }
    }
}

/// How much alike the means of two neighbouring pieces are that are so many lengths long.
fn means_alike(long: f64) -> f64 {
    if long < 1e-3 {
        return 1.0 - 2.0 / 3.0 * long;
    }
    let over = -(-long).exp_m1();
    over * over / (2.0 * (long - over))
}

/// Length over which the likeness falls by a factor of e, if the pieces of windows are alike with this correlation. `windows`: how many pieces
/// of which length.
pub(crate) fn length(correlation: f64, windows: &[(usize, f64)]) -> f64 {
    // Not a number where nothing is known.
    if correlation.is_nan() || correlation > GOES_ON || windows.iter().all(|w| w.0 < 2) {
        return f64::INFINITY;
    }
    let alike = |length: f64| {
        let (mut sum, mut count) = (0.0, 0.0);
        for &(pieces, piece) in windows.iter().filter(|w| w.0 > 1) {
            let next = means_alike(piece / length);
            // Of the pairs of a window, which counts by its pieces, as in the correlation.
            let (mut of_window, mut pairs) = (0.0, 0.0);
            for apart in 1..pieces {
                let so_many = (pieces - apart) as f64;
                of_window += so_many * next * (-((apart - 1) as f64) * piece / length).exp();
                pairs += so_many;
            }
            sum += pieces as f64 * of_window / pairs;
            count += pieces as f64;
        }
        sum / count
    };
    let (mut low, mut high) = LENGTHS;
    for _ in 0..STEPS {
        let middle = (low * high).sqrt();
        if alike(middle) < correlation.max(NONE) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Histogram, LineSize, Outcome, Policy, Weight};

    #[test]
    fn lengths_give_back_their_correlation() {
        // Two pieces each: the only pairs are neighbours.
        let alike = means_alike(2.0);
        let found = length(alike, &[(2, 5e5); 4]);
        assert!((found / 2.5e5 - 1.0).abs() < 1e-3, "{found}");
        // The same correlation of pieces further apart: it lasts longer.
        assert!(length(alike, &[(8, 5e5); 4]) > 2.0 * found);
        assert!(length(0.8, &[(2, 5e5); 4]) > found);
        assert!((means_alike(1.001e-3) - means_alike(0.999e-3)).abs() < 1e-5);
        assert!(means_alike(1e-3) > 0.999 && means_alike(100.0) < 0.01);
        for none in [f64::NAN, 0.95] {
            assert!(length(none, &[(2, 5e5); 4]).is_infinite());
        }
        assert!(length(0.5, &[(1, 5e5); 4]).is_infinite());
    }

    #[test]
    fn it_is_near_at_first_and_the_run_behind() {
        let mut histogram = Histogram::new(LineSize::B64);
        let outcome = |distance| Outcome::Reused {
            distance,
            trigger: Default::default(),
        };
        for (distance, times) in [(0, 3.0), (1_000_000, 1.0)] {
            histogram.add(&outcome(distance), Weight::new(times).unwrap());
        }
        let size = RunSize {
            refs: 1e9,
            lines: 1e6,
        };
        let memory = Memory::new(1e5, &histogram.survival(), size).unwrap();
        assert!((memory.near(10.0) / 10.0 - 1.0).abs() < 1e-3);
        assert!((memory.near(1e7) / 1e5 - 1.0).abs() < 1e-6);
        let cache = Cache::new(1 << 12, LineSize::B64, Policy::RANDOM).unwrap();
        assert!((memory.far(&cache) - 0.25).abs() < 0.01);
        // A stretch where nothing comes back: references far before it were the run's.
        let mut edges = vec![1.0; bins::BINS + 1];
        memory.blend(&mut edges);
        assert!(edges[bins::bin_of(100)] > 0.99);
        assert!((edges[bins::bin_of(900_000)] - 0.25).abs() < 0.01);
        assert!(Memory::new(f64::INFINITY, &histogram.survival(), size).is_none());
    }
}

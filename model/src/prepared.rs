//! One distribution of distances, prepared for many questions: the run, or a part of it, as if it were the same throughout.

use crate::equation::{hazard, largest_root};
use crate::stack::{StackDistance, miss_probability, shape};
use crate::survival::{RunSize, Survival};
use crate::{Cache, Policy};

/// One distribution ready to be solved at many sizes. Replicates by the hundred are kept, so no
/// more than both solvers need.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Distance and mass of the reuses.
    points: Vec<(f64, f64)>,
    never: f64,
    pub stack: StackDistance,
}

impl Prepared {
    pub fn new(mut survival: Survival, run: RunSize) -> Self {
        survival.spread_undecided(run);
        let points = survival
            .steps
            .iter()
            .map(|s| (s.distance, s.mass))
            .collect();
        Self {
            points,
            never: survival.never,
            stack: StackDistance::new(&survival),
        }
    }

    pub fn miss_ratio(&self, cache: &Cache) -> f64 {
        let lines = cache.lines().0;
        match cache.policy {
            Policy::Random { .. } => largest_root(&self.points, self.never, hazard(lines)),
            Policy::Lru { ways } => {
                let miss = |&(d, mass): &(f64, f64)| mass * self.stack.miss(d, lines, ways);
                (self.never + self.points.iter().map(miss).sum::<f64>()).clamp(0.0, 1.0)
            }
        }
    }

    /// Smallest distance whose miss probability exceeds one half.
    pub fn deadly_gap(&self, cache: &Cache) -> f64 {
        let lines = cache.lines().0;
        match cache.policy {
            Policy::Random { .. } => {
                let rate = hazard(lines) * self.miss_ratio(cache);
                std::f64::consts::LN_2 / rate.max(f64::MIN_POSITIVE)
            }
            Policy::Lru { ways } => {
                let (sets, in_set) = shape(lines, ways);
                let miss = |d: f64| miss_probability(self.stack.at(d), sets, in_set);
                (0..crate::bins::BINS)
                    .map(crate::bins::lower_edge)
                    .find(|&d| miss(d) > 0.5)
                    .unwrap_or(f64::INFINITY)
            }
        }
    }
}

//! What reuses miss of which only a least distance is known.
//!
//! With gaps between windows an access is seen in one of two ways. Either its line was touched before in the same
//! window: it ends a reuse of known distance. Or it was not: its line was touched last before the window began, if
//! ever, and the distance is at least the references of the window up to it. The same holds at the other side: a watch that the window's
//! end cuts is a reuse at least as far as it was followed. What such a reuse misses is the mean over the reuses that the model
//! places beyond that distance in its part of the run, cold touches (the first of a line in the run) among them.

use crate::placed::Group;
use crate::view::Solved;
use crate::{Cache, Policy};

/// Share of a segment's references that is lost to rounding.
const NOTHING: f64 = 1e-12;

/// A segment's reuses by distance.
#[derive(Debug)]
pub(crate) struct Beyond {
    /// Ascending; behind them cold touches.
    distances: Vec<f64>,
    /// Share of the segment's references from that distance on, and of those that miss; one more than distances.
    mass: Vec<f64>,
    misses: Vec<f64>,
}

impl Beyond {
    /// Of every segment of a group at a cache.
    pub fn of(group: &Group, cache: &Cache, solved: &Solved) -> Vec<Beyond> {
        let timeline = &group.timeline;
        let of_segment = |j: usize| {
            let reuses = match (&solved.solution, cache.policy) {
                (Some(solution), Policy::Random { .. }) => timeline.random_misses(solution, j),
                _ => timeline.lru_misses(cache, j),
            };
            Beyond::new(reuses, timeline.segments[j].cold)
        };
        (0..timeline.segments.len()).map(of_segment).collect()
    }

    /// From distance, share (of anything) and miss probability of reuses, and the share of cold touches.
    pub fn new(mut reuses: Vec<[f64; 3]>, cold: f64) -> Self {
        reuses.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
        let (mut mass, mut misses) = (vec![cold], vec![cold]);
        for [_, share, miss] in reuses.iter().rev() {
            mass.push(mass[mass.len() - 1] + share);
            misses.push(misses[misses.len() - 1] + share * miss);
        }
        mass.reverse();
        misses.reverse();
        Self {
            distances: reuses.iter().map(|reuse| reuse[0]).collect(),
            mass,
            misses,
        }
    }

    /// Share of the references that are reuses at a distance of at least `least` or cold, and of those that miss.
    pub fn sums(&self, least: f64) -> (f64, f64) {
        let from = self.distances.partition_point(|&d| d < least);
        (self.mass[from], self.misses[from])
    }

    /// Miss probability of a reuse at a distance of at least `least`; where the model has none so far, of the farthest it has.
    pub fn miss(&self, least: f64) -> f64 {
        let mut from = self.distances.partition_point(|&d| d < least);
        while from > 0 && self.mass[from] <= NOTHING {
            from -= 1;
        }
        match self.mass[from] {
            mass if mass > NOTHING => (self.misses[from] / mass).min(1.0),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_is_a_mean_with_cold_touches() {
        let beyond = Beyond::new(vec![[1000.0, 0.1, 0.5], [10.0, 0.8, 0.0]], 0.1);
        assert!((beyond.miss(0.0) - 0.15).abs() < 1e-12);
        assert!((beyond.miss(11.0) - 0.75).abs() < 1e-12);
        assert_eq!(beyond.miss(2000.0), 1.0);
        let without = Beyond::new(vec![[1000.0, 0.2, 0.5], [10.0, 0.8, 0.0]], 0.0);
        assert_eq!(without.miss(2000.0), 0.5);
        assert_eq!(Beyond::new(Vec::new(), 0.0).miss(5.0), 0.0);
    }
}

//! The distinct lines inside reuses, counted by the samples that lie there, and LRU misses by them.
//!
//! A reference is the last touch of its line before a time when its own next use lies beyond; a
//! reuse has as many distinct lines inside as such references. Each sample stands for its weight of
//! them. What the counts say of the model is in `texture`.

use crate::Cache;
use crate::fenwick::Fenwick;
use crate::placed::Placed;
use crate::stack::{miss_probability, shape};
use crate::texture::{Counted, Gamma};

/// Miss probability of a reuse `distance` apart with so many distinct lines in between.
pub(crate) fn lru_miss(lines: &Gamma, distance: f64, cache: &Cache) -> f64 {
    /// Normal scores of five equally likely parts.
    const PARTS: [f64; 5] = [-1.28, -0.52, 0.0, 0.52, 1.28];
    let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
    if sets <= 1.0 {
        // No more lines than references.
        return if distance < ways as f64 {
            0.0
        } else {
            lines.at_least(ways as f64)
        };
    }
    if lines.shape.is_infinite() {
        return miss_probability(lines.mean.min(distance), sets, ways);
    }
    let miss = |&z: &f64| miss_probability(lines.quantile(z).min(distance), sets, ways);
    PARTS.iter().map(miss).sum::<f64>() / PARTS.len() as f64
}

/// The lines inside each reuse as the samples inside count them: those not touched again before it ends.
pub(crate) fn distinct_lines(placed: &[Placed], expected: &[f64]) -> Vec<Counted> {
    let by_trigger = {
        let mut order: Vec<usize> = (0..placed.len()).collect();
        let to = |i: usize| placed[i].to.unwrap_or(f64::INFINITY);
        order.sort_by(|&a, &b| to(a).total_cmp(&to(b)));
        order
    };
    // Samples still waiting, by the order of their touches: weights and their squares.
    let mut waiting = [Fenwick::new(placed.len()), Fenwick::new(placed.len())];
    let add = |waiting: &mut [Fenwick; 2], at: usize, sign: f64| {
        let w = placed[at].weight;
        waiting[0].add(at, sign * w);
        waiting[1].add(at, sign * w * w);
    };
    let silent = |&expected: &f64| Counted {
        size: expected,
        expected,
        ..Counted::default()
    };
    let mut reuses: Vec<Counted> = expected.iter().map(silent).collect();
    let (mut armed, mut gone) = (0, 0);
    for &i in &by_trigger {
        let p = &placed[i];
        let Some(to) = p.to else { continue };
        // Times are whole numbers but for rounding; what happens at the trigger itself is not inside.
        let now = to - 0.5;
        while armed < placed.len() && placed[armed].from < now {
            add(&mut waiting, armed, 1.0);
            armed += 1;
        }
        while let Some(&other) = by_trigger.get(gone)
            && placed[other].to.is_some_and(|end| end < now + 1.0)
        {
            add(&mut waiting, other, -1.0);
            gone += 1;
        }
        let first = placed.partition_point(|other| other.from < p.from + 0.5);
        let inside = |sums: &Fenwick| (sums.sum(armed) - sums.sum(first)).max(0.0);
        // Closer together than samples are, the sampler's own pattern shows too.
        if expected[i] < p.weight {
            continue;
        }
        reuses[i] = Counted {
            size: expected[i],
            expected: expected[i],
            counted: inside(&waiting[0]),
            noise: inside(&waiting[1]),
            one: p.weight,
            weight: p.weight,
        };
    }
    reuses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::oracle::Trace;

    #[test]
    fn with_every_reference_sampled_the_count_is_the_stack_distance() {
        let mut rng = Rng::new(3);
        let trace = Trace::new((0..3_000).map(|_| rng.below(200) * rng.below(3)));
        let placed: Vec<Placed> = trace
            .distances()
            .iter()
            .enumerate()
            .map(|(at, d)| Placed {
                sample: at as u32,
                from: at as f64,
                to: d.map(|d| (at as u64 + d + 1) as f64),
                distance: d.unwrap_or(0) as f64,
                weight: 1.0,
                raw: 1.0,
                ..Placed::default()
            })
            .collect();
        let counted = distinct_lines(&placed, &vec![1.0; placed.len()]);
        let exact = trace.stack_distances();
        for (p, c) in placed.iter().zip(&counted) {
            if let Some(to) = p.to {
                assert_eq!(Some(c.counted as u64), exact[to as usize], "{p:?}");
            }
        }
    }
}

//! The distinct lines inside reuses, counted by the samples that lie there, and LRU misses by them.
//!
//! A reference is the last touch of its line before a time when its own next use lies beyond; a
//! reuse has as many distinct lines inside as such references. Each sample stands for its weight of
//! them. What the counts say of the model is in `texture`.

use std::ops::Range;

use crate::Cache;
use crate::fenwick::Fenwick;
use crate::pairs::Pairs;
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

/// Mean distances of samples from which on neighbours are not looked at as a pair: few of a cluster are as far from the next of it.
const APART: f64 = 2.0;
/// Neighbours on either side that are looked at, at the most.
const MATES: usize = 32;
/// Part of the noise of clusters that pairs do not show. (Of uniformly random accesses the counts of clusters varied by 1.0 to 1.25 times
/// what pairs show.)
const MISSED: f64 = 0.25;
/// Part of the noise of independent samples that there is in any case.
const LEAST_NOISE: f64 = 0.5;
/// Samples of a window that say something of their own, for their number to be corrected.
const ENOUGH: f64 = 8.0;

/// Samples still waiting to be touched again, by the order of their touches.
struct Waiting<'a> {
    placed: &'a [Placed],
    pairs: &'a Pairs,
    clusters: Vec<Range<u32>>,
    /// Of each sample.
    cluster: Vec<u32>,
    /// Of each sample, the end of its window, and how many samples that has.
    window: Vec<(u32, f64)>,
    waits: Vec<bool>,
    weights: Fenwick,
    /// Variance of what each cluster counts, where it begins.
    noise: Fenwick,
}

impl<'a> Waiting<'a> {
    fn new(placed: &'a [Placed], pairs: &'a Pairs) -> Self {
        let together =
            |a: &Placed, b: &Placed| a.window == b.window && b.from - a.from < APART * b.raw;
        let mut end = 0;
        let cluster = |of: &[Placed]| {
            let begin = end;
            end += of.len() as u32;
            begin..end
        };
        let clusters: Vec<Range<u32>> = placed.chunk_by(together).map(cluster).collect();
        let numbered = clusters.iter().zip(0..);
        let cluster = numbered.flat_map(|(c, number)| std::iter::repeat_n(number, c.len()));
        Self {
            placed,
            pairs,
            cluster: cluster.collect(),
            clusters,
            window: windows(placed),
            waits: vec![false; placed.len()],
            weights: Fenwick::new(placed.len()),
            noise: Fenwick::new(placed.len()),
        }
    }

    /// What a pair of samples counts beyond one.
    fn surplus(&self, at: usize, other: usize) -> f64 {
        let apart = (self.placed[other].from - self.placed[at].from).abs();
        self.pairs.surplus(at as u32, apart)
    }

    /// From now on the sample waits, or does not.
    fn set(&mut self, at: usize, waits: bool) {
        self.waits[at] = false;
        let cluster = self.clusters[self.cluster[at] as usize].clone();
        let mates = at.saturating_sub(MATES).max(cluster.start as usize)
            ..(at + MATES + 1).min(cluster.end as usize);
        // The more often two were sampled together than independent ones, the more they say the same.
        let shared: f64 = mates
            .filter(|&mate| self.waits[mate])
            .map(|mate| -self.surplus(at, mate) * self.placed[mate].weight)
            .sum();
        let w = self.placed[at].weight;
        let sign = if waits { 1.0 } else { -1.0 };
        self.weights.add(at, sign * w);
        self.noise
            .add(cluster.start as usize, sign * w * (w + 2.0 * shared));
        self.waits[at] = waits;
    }

    /// What those from `first` on count that were taken before `end`, to one who began with sample `at`, and the variance of that. Where samples come in
    /// clusters, each has more of them near itself than any other reference does.
    fn count(&self, at: usize, first: usize, end: usize) -> (f64, f64) {
        let inside = |sums: &Fenwick| sums.sum(end) - sums.sum(first);
        let (mut counted, mut noise) = (inside(&self.weights), inside(&self.noise));
        let (p, reach) = (&self.placed[at], self.pairs.reach(at as u32));
        let near = |mate: &usize| {
            let mate = &self.placed[*mate];
            mate.window == p.window && mate.from - p.from < reach
        };
        let beyond = first + (first..end).take_while(near).count();
        for mate in (first..beyond).filter(|&mate| self.waits[mate]) {
            let (w, surplus) = (self.placed[mate].weight, self.surplus(at, mate));
            counted += surplus * w;
            if self.cluster[mate] == self.cluster[at] {
                noise += (w * (1.0 + surplus)).powi(2);
            }
        }
        // In its own window: a sample that is there with those like it leaves so many fewer for the rest.
        let (window_end, samples) = self.window[at];
        let alike = self.pairs.alike(at as u32);
        let rest = end.min(window_end as usize).max(beyond);
        let far = self.weights.sum(rest) - self.weights.sum(beyond);
        let counted = (counted + far * left_out(samples, alike)).max(0.0);
        let missed = 1.0 + MISSED * (1.0 - 1.0 / alike);
        (
            counted,
            (noise * missed).max(LEAST_NOISE * p.weight * counted),
        )
    }
}

/// What a sample of a window counts beyond one to another there that is not near: one that is there leaves so many fewer for the rest. Windows of few have their
/// weights with others.
pub(crate) fn left_out(samples: f64, alike: f64) -> f64 {
    match samples >= ENOUGH * alike {
        true => alike / (samples - alike),
        false => 0.0,
    }
}

/// Of each sample, the end of its window, and how many were taken there.
pub(crate) fn windows(placed: &[Placed]) -> Vec<(u32, f64)> {
    let mut windows = Vec::with_capacity(placed.len());
    for window in placed.chunk_by(|a, b| a.window == b.window) {
        let end = (windows.len() + window.len()) as u32;
        let taken = window.iter().filter(|p| !p.imputed).count();
        windows.extend(std::iter::repeat_n((end, taken as f64), window.len()));
    }
    windows
}

/// The lines inside each reuse as the samples inside count them: those not touched again before it ends.
pub(crate) fn distinct_lines(placed: &[Placed], pairs: &Pairs, expected: &[f64]) -> Vec<Counted> {
    let by_trigger = {
        let mut order: Vec<usize> = (0..placed.len()).collect();
        let to = |i: usize| placed[i].to.unwrap_or(f64::INFINITY);
        order.sort_by(|&a, &b| to(a).total_cmp(&to(b)));
        order
    };
    let mut waiting = Waiting::new(placed, pairs);
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
            waiting.set(armed, true);
            armed += 1;
        }
        while let Some(&other) = by_trigger.get(gone)
            && placed[other].to.is_some_and(|end| end < now + 1.0)
        {
            waiting.set(other, false);
            gone += 1;
        }
        // Closer together than samples are, the sampler's own pattern shows too.
        if expected[i] < p.weight * pairs.alike(i as u32).sqrt() {
            continue;
        }
        let first = placed.partition_point(|other| other.from < p.from + 0.5);
        let (counted, noise) = waiting.count(i, first, armed);
        reuses[i] = Counted {
            size: expected[i],
            expected: expected[i],
            counted,
            noise,
            one: p.weight * pairs.alike(i as u32),
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
        let pairs = Pairs::measure(&[&placed], |p| p.from);
        let counted = distinct_lines(&placed, &pairs, &vec![50.0; placed.len()]);
        let exact = trace.stack_distances();
        for (p, c) in placed.iter().zip(&counted) {
            if let Some(to) = p.to {
                let exact = exact[to as usize].expect("one touched before") as f64;
                assert!(
                    (c.counted - exact).abs() < 0.5 + 0.01 * exact,
                    "{p:?} {c:?}"
                );
            }
        }
    }
}

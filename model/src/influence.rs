//! Gapless windows: the sampling error of the miss ratio, by the influence of each sample on it.
//!
//! Nothing is left to chance but which references were sampled. A sample moves the run's misses by
//! its own miss probability, times what one miss more adds later ([`Timeline::levers`]); by the first
//! touches it stands for, between its touch and its reuse; and, under LRU, by the lines it adds to
//! the stack distances of others. The variance is that of the influences within stretches of
//! neighbouring samples (infinitesimal jackknife; Efron 1982).

use crate::interval::{Z, probability};
use crate::placed::{Group, Placed};
use crate::timeline::Timeline;
use crate::view::Solved;
use crate::{Cache, Policy};

/// Samples scored for a gapless run's standard error: it is then known to some 3 %.
const SCORED: usize = 10_000;
/// Scores per stratum, and fewest clusters.
const STRATUM_SCORES: usize = 40;
const STRATUM_CLUSTERS: usize = 4;
/// Cache sizes to both sides of the one asked for, between which the share of stack distances at
/// its edge is measured: somewhat more than a bin of distances.
const EDGE: f64 = 0.08;

/// A sample scored at one cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored<'a> {
    pub placed: &'a Placed,
    /// Its miss probability.
    pub miss: f64,
}

/// Some [`SCORED`] samples, evenly over the run, in whole clusters.
pub(crate) struct Scores<'a> {
    scored: Vec<Scored<'a>>,
    /// Where each cluster ends in them.
    ends: Vec<usize>,
    /// How many samples each of them stands for.
    every: f64,
}

impl<'a> Scores<'a> {
    pub fn new(group: &'a Group, cache: &Cache, solved: &Solved) -> Self {
        let every = group.placed.len().div_ceil(SCORED).max(1);
        let score = |i: u32| Scored {
            placed: &group.placed[i as usize],
            miss: probability(group, cache, solved.solution.as_ref(), i as usize),
        };
        let (mut scored, mut ends) = (Vec::new(), Vec::new());
        for cluster in group.pairs().clusters().step_by(every) {
            scored.extend(cluster.map(score));
            ends.push(scored.len());
        }
        Self {
            scored,
            ends,
            every: every as f64,
        }
    }
}

/// What LRU's edge gives a sample beyond its own miss: references of others that it pushes out.
struct Edge {
    /// Per shape: misses added per line of stack distance, and the age at which lines are lost.
    of_shape: Vec<(f64, f64)>,
}

impl Edge {
    fn new(timeline: &Timeline, cache: &Cache) -> Self {
        let mut of_shape = vec![(0.0, 0.0); timeline.shapes.len()];
        let at = |factor: f64| {
            let bytes = (cache.size.0 as f64 * factor) as u64;
            let other = cache.resized(bytes);
            (other.lines().0 as f64, timeline.lru_ratios(&other))
        };
        let ((few, more_misses), (many, fewer_misses)) = (at(1.0 - EDGE), at(1.0 + EDGE));
        let mut refs = vec![0.0; of_shape.len()];
        for (j, segment) in timeline.segments.iter().enumerate() {
            let n = timeline.bounds[j + 1] - timeline.bounds[j];
            refs[segment.shape] += n;
            of_shape[segment.shape].0 += n * (more_misses[j] - fewer_misses[j]).max(0.0);
        }
        let lines = cache.lines().0 as f64;
        for ((slope, age), (shape, refs)) in
            of_shape.iter_mut().zip(timeline.shapes.iter().zip(refs))
        {
            *slope /= (many - few).max(1.0) * f64::max(refs, 1.0);
            *age = shape.age_of(lines);
        }
        Self { of_shape }
    }

    fn of(&self, timeline: &Timeline, p: &Placed) -> f64 {
        let shape = timeline.segments[p.from_segment as usize].shape;
        let (slope, age) = self.of_shape[shape];
        slope * p.distance.min(age)
    }
}

/// Standard error of a gapless run's miss ratio.
pub(crate) fn standard_error(
    group: &Group,
    cache: &Cache,
    solved: &Solved,
    levers: &[f64],
    scores: &Scores,
) -> f64 {
    let timeline = &group.timeline;
    let edge = matches!(cache.policy, Policy::Lru { .. }).then(|| Edge::new(timeline, cache));
    // Mean miss probability of the reuses of the segments that are scaled together.
    let mut sums = vec![(0.0, 0.0); timeline.blocks()];
    for (j, (s, r)) in timeline.segments.iter().zip(&solved.ratios).enumerate() {
        let (n, sum) = (timeline.refs(j), &mut sums[timeline.block_of[j]]);
        sum.0 += n * (r - s.cold);
        sum.1 += n * (1.0 - s.cold);
    }
    let mean = |j: usize| {
        let (misses, reuses) = sums[timeline.block_of[j]];
        (misses / f64::max(reuses, 1e-9)).clamp(0.0, 1.0)
    };
    let reuses: Vec<f64> = (0..timeline.segments.len()).map(mean).collect();
    let influence = |x: &Scored| {
        let p = x.placed;
        let from = p.from_segment as usize;
        let mut own = if timeline.fills {
            levers[from] * (1.0 - reuses[from])
        } else {
            0.0
        };
        match p.to {
            Some(_) => {
                let t = p.segment as usize;
                own += levers[t] * (x.miss - reuses[t]);
                if timeline.fills {
                    own -= levers[t] * (1.0 - reuses[t]);
                }
            }
            None if !timeline.fills => own += levers[from] * (x.miss - reuses[from]),
            None => {}
        }
        p.weight * (own + edge.as_ref().map_or(0.0, |e| e.of(timeline, p)))
    };
    let influences: Vec<f64> = scores.scored.iter().map(influence).collect();
    let clusters = scores.ends.len();
    let strata = (influences.len() / STRATUM_SCORES).min(clusters / STRATUM_CLUSTERS);
    let strata = strata.max(1);
    let (mut variance, mut fourth) = (0.0, 0.0);
    let mut begin = 0;
    for k in 0..strata {
        let ends = &scores.ends[k * clusters / strata..(k + 1) * clusters / strata];
        let end = ends.last().copied().unwrap_or(begin);
        let mean = influences[begin..end].iter().sum::<f64>() / (end - begin).max(1) as f64;
        let n = ends.len() as f64;
        let mut squares = 0.0;
        for &end in ends {
            let off: f64 = influences[begin..end].iter().map(|x| x - mean).sum();
            squares += off.powi(2);
            fourth += off.powi(4);
            begin = end;
        }
        variance += squares * n / (n - 1.0).max(1.0);
    }
    // Few large influences: as the score interval of a count k widens by sqrt(k + z^2/4), and as
    // Student's point for k degrees of freedom exceeds the normal one, z (1 + (z^2 + 1) / 4k).
    if variance > 0.0 {
        let count = variance * variance / fourth.max(f64::MIN_POSITIVE);
        variance *= (1.0 + 0.25 * Z * Z / count) * (1.0 + 0.25 * (Z * Z + 1.0) / count).powi(2);
    }
    (variance * scores.every).sqrt() / group.refs.max(1.0)
}

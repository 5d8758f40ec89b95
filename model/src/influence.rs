//! Gapless windows: the sampling error of the miss ratio, by the influence of each sample on it.
//!
//! Nothing is left to chance but which references were sampled. A sample moves the run's misses by
//! its own miss probability, times what one miss more adds later ([`Timeline::levers`]); by the first
//! touches it stands for, between its touch and its reuse; and, under LRU, by the lines it adds to
//! the stack distances of others. The variance is that of the influences within stretches of
//! neighbouring samples (infinitesimal jackknife; Efron 1982, ARCHITECTURE.md "The model").

use crate::interval::{Z, probability};
use crate::placed::{Group, Placed};
use crate::timeline::Timeline;
use crate::view::Solved;
use crate::{Cache, Policy};

/// Samples scored for a gapless run's standard error: it is then known to some 3 %.
const SCORED: usize = 10_000;
/// Scores per stratum.
const STRATUM_SCORES: usize = 40;
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

/// At most [`SCORED`] samples, evenly over the run.
pub(crate) struct Scores<'a> {
    pub scored: Vec<Scored<'a>>,
    /// How many samples each of them stands for.
    pub every: f64,
}

impl<'a> Scores<'a> {
    pub fn new(group: &'a Group, cache: &Cache, solved: &Solved) -> Self {
        let every = group.placed.len().div_ceil(SCORED).max(1);
        let score = |i| Scored {
            placed: &group.placed[i],
            miss: probability(group, cache, solved.solution.as_ref(), i),
        };
        Self {
            scored: Self::picks(group).map(score).collect(),
            every: every as f64,
        }
    }

    /// Which samples are scored: the same at every cache.
    pub fn picks(group: &Group) -> impl Iterator<Item = usize> {
        let every = group.placed.len().div_ceil(SCORED).max(1);
        (0..group.placed.len()).step_by(every)
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
    // Mean miss probability of the reuses of each segment.
    let reuses: Vec<f64> = timeline
        .segments
        .iter()
        .zip(&solved.ratios)
        .map(|(s, r)| ((r - s.cold) / (1.0 - s.cold).max(1e-9)).clamp(0.0, 1.0))
        .collect();
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
    let strata = (influences.len() / STRATUM_SCORES).max(1);
    let (mut variance, mut fourth) = (0.0, 0.0);
    for k in 0..strata {
        let stratum =
            &influences[k * influences.len() / strata..(k + 1) * influences.len() / strata];
        let n = stratum.len() as f64;
        let mean = stratum.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = stratum.iter().map(|x| (x - mean).powi(2)).sum();
        variance += squares * n / (n - 1.0).max(1.0);
        fourth += stratum.iter().map(|x| (x - mean).powi(4)).sum::<f64>();
    }
    // Few large influences: as the score interval of a count k widens by sqrt(k + z^2/4), and as
    // Student's point for k degrees of freedom exceeds the normal one, z (1 + (z^2 + 1) / 4k).
    if variance > 0.0 {
        let count = variance * variance / fourth.max(f64::MIN_POSITIVE);
        variance *= (1.0 + 0.25 * Z * Z / count) * (1.0 + 0.25 * (Z * Z + 1.0) / count).powi(2);
    }
    (variance * scores.every).sqrt() / group.refs.max(1.0)
}

//! How sure a curve point is: a sampling part and a model part, stated apart (ARCHITECTURE.md "The model").
//!
//! Sampling, windows with gaps: block bootstrap. Windows are resampled within strata of time
//! neighbours that behave alike (samples inside a window are correlated, windows follow the run's
//! course), their histograms merged per cluster and solved again; where the run changed its ways
//! between two windows, not knowing where adds its variance. Sampling, gapless windows: nothing is left to
//! chance but which references were sampled, so the miss probabilities' variance within segments
//! is enough, divided by one minus the elasticity of the misses to themselves (the solver's own
//! gain; the limit of a one-step bootstrap).

use std::ops::Range;

use crate::equation::{hazard, largest_root};
use crate::placed::{Group, Placed};
use crate::rng::Rng;
use crate::sparse::{Sparse, cluster_survivals};
use crate::stack::{StackDistance, miss_probability, shape};
use crate::survival::{RunSize, Survival};
use crate::timeline::Solution;
use crate::{Cache, LineSize, Policy};

/// Bootstrap replicates: the standard error is known to 1/sqrt(2*64), 9 %.
const REPLICATES: usize = 64;
/// Neighbouring windows that are exchanged for one another: few, as what changes over the run is
/// not chance.
const STRATUM: usize = 3;
/// Windows below which their parts are resampled instead.
const FEW_WINDOWS: usize = 12;
/// Largest gain of sampling noise through the solver that is believed.
const MAX_GAIN: f64 = 8.0;
/// Samples scored for a gapless run's standard error: it is then known to some 3 %.
const SCORED: usize = 4000;
/// Scores per stratum.
const STRATUM_SCORES: usize = 40;
/// Two-sided 95 % point of the normal distribution.
pub(crate) const Z95: f64 = 1.96;

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
}

/// Cluster distributions with their shares of the run.
pub(crate) type Mixture = Vec<(f64, Prepared)>;

/// Miss ratio with every cluster solved for itself.
pub(crate) fn mixture_miss_ratio(mixture: &Mixture, cache: &Cache) -> f64 {
    mixture
        .iter()
        .map(|(share, p)| share * p.miss_ratio(cache))
        .sum()
}

fn mixture(sparse: &Sparse, times: &[f64], line: LineSize, run: RunSize) -> Mixture {
    let (_, survivals) = cluster_survivals(
        &sparse.blocks,
        times,
        &sparse.cluster_of,
        sparse.clusters,
        line,
    );
    let mut shares = vec![0.0; sparse.clusters];
    for ((b, t), &c) in sparse.blocks.iter().zip(times).zip(&sparse.cluster_of) {
        shares[c] += t * b.weight;
    }
    let sum: f64 = shares.iter().sum();
    survivals
        .into_iter()
        .zip(shares)
        .filter(|(s, w)| *w > 0.0 && s.samples > 0)
        .map(|(s, w)| (w / sum, Prepared::new(s, run)))
        .collect()
}

/// Units to exchange for one another: time neighbours of the same cluster.
fn strata(sparse: &Sparse, units: &[Range<usize>]) -> Vec<Vec<usize>> {
    let mut strata = Vec::new();
    for c in 0..sparse.clusters {
        let of: Vec<usize> = (0..units.len())
            .filter(|&u| sparse.cluster_of[units[u].start] == c)
            .collect();
        let parts = (of.len() / STRATUM).max(1);
        strata.extend(
            (0..parts).map(|s| of[s * of.len() / parts..(s + 1) * of.len() / parts].to_vec()),
        );
    }
    strata.retain(|s: &Vec<usize>| !s.is_empty());
    strata
}

/// Changes of cluster between neighbouring units. A border lies anywhere between two windows
/// (variance 1/12 of the stretch squared); beside a window that is alone of its kind the run
/// alternates faster than the windows follow, and each of them is a toss (1/4).
fn borders(sparse: &Sparse, units: &[Range<usize>]) -> Vec<(usize, usize, f64)> {
    let cluster: Vec<usize> = units.iter().map(|u| sparse.cluster_of[u.start]).collect();
    let weight = |u: usize| {
        sparse.blocks[units[u].clone()]
            .iter()
            .map(|b| b.weight)
            .sum::<f64>()
    };
    let total: f64 = sparse.blocks.iter().map(|b| b.weight).sum();
    let alone = |u: usize| {
        (u == 0 || cluster[u - 1] != cluster[u])
            && (u + 1 == units.len() || cluster[u + 1] != cluster[u])
    };
    (1..units.len())
        .filter(|&u| cluster[u - 1] != cluster[u])
        .map(|u| {
            let stretch = 0.5 * (weight(u - 1) + weight(u)) / total;
            let part = if alone(u - 1) || alone(u) { 4.0 } else { 12.0 };
            (cluster[u - 1], cluster[u], stretch * stretch / part)
        })
        .collect()
}

/// Ranges of blocks that are resampled together: windows, or their parts when windows are few.
fn resampling_units(sparse: &Sparse) -> Vec<Range<usize>> {
    let mut windows: Vec<Range<usize>> = Vec::new();
    for (i, b) in sparse.blocks.iter().enumerate() {
        match windows.last_mut() {
            Some(last) if sparse.blocks[last.start].window == b.window => last.end = i + 1,
            _ => windows.push(i..i + 1),
        }
    }
    if windows.len() >= FEW_WINDOWS {
        windows
    } else {
        (0..sparse.blocks.len()).map(|i| i..i + 1).collect()
    }
}

/// The window-wise form and its bootstrap replicates.
#[derive(Clone, Debug)]
pub(crate) struct Replicates {
    pub window_wise: Mixture,
    replicates: Vec<Mixture>,
    /// Makes up for resampling few blocks per stratum.
    inflation: f64,
    /// Where the run changed its ways between two windows: the clusters, and the variance of the
    /// references on the wrong side, per square of the run's references.
    borders: Vec<(usize, usize, f64)>,
}

impl Replicates {
    pub fn new(sparse: &Sparse, line: LineSize, run: RunSize, seed: u64) -> Self {
        let blocks = sparse.blocks.len();
        let once = vec![1.0; blocks];
        let units = resampling_units(sparse);
        let strata = strata(sparse, &units);
        let most = strata.iter().map(Vec::len).max().unwrap_or(0);
        let mut rng = Rng::new(seed);
        let replicates = (0..if most > 1 { REPLICATES } else { 0 })
            .map(|_| {
                let mut times = vec![0.0; blocks];
                for stratum in &strata {
                    for _ in stratum {
                        let unit = stratum[rng.below(stratum.len() as u64) as usize];
                        times[units[unit].clone()]
                            .iter_mut()
                            .for_each(|t| *t += 1.0);
                    }
                }
                mixture(sparse, &times, line, run)
            })
            .collect();
        let size = units.len() as f64 / strata.len().max(1) as f64;
        Self {
            window_wise: mixture(sparse, &once, line, run),
            replicates,
            inflation: if size > 1.0 {
                (size / (size - 1.0)).sqrt()
            } else {
                1.0
            },
            borders: borders(sparse, &units),
        }
    }

    /// Standard error of the miss ratio.
    pub fn standard_error(&self, cache: &Cache) -> f64 {
        let n = self.replicates.len() as f64;
        if n < 2.0 {
            return 0.5;
        }
        let ratios: Vec<f64> = self
            .replicates
            .iter()
            .map(|m| mixture_miss_ratio(m, cache))
            .collect();
        let mean = ratios.iter().sum::<f64>() / n;
        let each: Vec<f64> = self
            .window_wise
            .iter()
            .map(|(_, p)| p.miss_ratio(cache))
            .collect();
        let between: f64 = self
            .borders
            .iter()
            .filter_map(|&(a, b, v)| Some(v * (each.get(a)? - each.get(b)?).powi(2)))
            .sum();
        let variance = ratios.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0);
        (variance.sqrt() * self.inflation).hypot(between.sqrt())
    }

    /// What the bounds of the windows' weights add: the error of the native rate is one of the
    /// kind of code, so it is common to a cluster and independent between clusters.
    pub fn weight_error(&self, sparse: &Sparse, cache: &Cache, miss_ratio: f64) -> f64 {
        let total: f64 = sparse.blocks.iter().map(|b| b.weight).sum();
        if total <= 0.0 || self.window_wise.len() != sparse.clusters {
            return 0.0;
        }
        let mut half = vec![0.0; sparse.clusters];
        for (b, &c) in sparse.blocks.iter().zip(&sparse.cluster_of) {
            half[c] += 0.5 * (b.high - b.low);
        }
        let shift =
            |(h, (_, p)): (&f64, &(f64, Prepared))| h / total * (p.miss_ratio(cache) - miss_ratio);
        half.iter()
            .zip(&self.window_wise)
            .map(shift)
            .map(|s| s * s)
            .sum::<f64>()
            .sqrt()
    }
}

/// Miss probability of a placed sample: a reuse's by its exposure, never reused 1, censored 0
/// (its weight is 0).
fn probability(group: &Group, cache: &Cache, solution: Option<&Solution>, p: &Placed) -> f64 {
    match (p.to, solution) {
        (None, _) => f64::from(u8::from(!p.censored)),
        (Some(to), Some(s)) => group.timeline.random_probability(s, p.from, to),
        (Some(to), None) => {
            let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
            miss_probability(group.timeline.distinct(p.from, to), sets, ways)
        }
    }
}

/// [`probability`] of every placed sample.
pub(crate) fn probabilities(group: &Group, cache: &Cache, solution: Option<&Solution>) -> Vec<f64> {
    group
        .placed
        .iter()
        .map(|p| probability(group, cache, solution, p))
        .collect()
}

/// Standard error of a gapless run's miss ratio, from at most [`SCORED`] of its samples.
pub(crate) fn contiguous_standard_error(
    group: &Group,
    cache: &Cache,
    solution: Option<&Solution>,
) -> f64 {
    let every = group.placed.len().div_ceil(SCORED).max(1);
    let scored = || group.placed.iter().step_by(every);
    let scores: Vec<f64> = scored()
        .map(|p| probability(group, cache, solution, p))
        .collect();
    // Strata: stretches of neighbouring segments with enough scores each.
    let strata = (scores.len() / STRATUM_SCORES).clamp(1, group.timeline.segments.len().max(1));
    let stratum = |i: usize| i * strata / scores.len();
    let mut sums = vec![(0.0, 0.0); strata];
    for (i, (p, &s)) in scored().zip(&scores).enumerate() {
        sums[stratum(i)].0 += p.weight;
        sums[stratum(i)].1 += p.weight * s;
    }
    let mut variance = 0.0;
    for (i, (p, &s)) in scored().zip(&scores).enumerate() {
        let (weight, sum) = sums[stratum(i)];
        let mean = sum / weight.max(f64::MIN_POSITIVE);
        variance += (p.weight * (s - mean)).powi(2);
    }
    (variance * every as f64).sqrt() / group.refs.max(1.0) * gain(solution)
}

/// How much the solver amplifies noise in the miss probabilities.
pub(crate) fn gain(solution: Option<&Solution>) -> f64 {
    solution.map_or(1.0, |s| 1.0 / (1.0 - s.elasticity).max(1.0 / MAX_GAIN))
}

//! How sure a curve point is: a sampling part and a model part, stated apart.
//!
//! Sampling, windows with gaps: block bootstrap. Windows are resampled within strata of time
//! neighbours that behave alike (samples inside a window are correlated, windows follow the run's
//! course), their histograms merged per cluster and solved again; where the run changed its ways
//! between two windows, not knowing where adds its variance: in part, where looks between windows tell. Gapless windows: see `influence` and
//! `agreement`.

use std::ops::Range;

use crate::equation::hazard;
use crate::placed::Group;
use crate::prepared::Prepared;
use crate::random::{Solution, normal_cdf};
use crate::rng::Rng;
use crate::sparse::{Sparse, cluster_survivals};
use crate::stack::{miss_probability, shape};
use crate::survival::RunSize;
use crate::{Cache, LineSize, Policy};

/// Part of what native rates may be off by that differs from code to code: most of it is one error of all, as they are timed in one way. (With that
/// the exact value was inside at 96 % of the sizes, of 31 runs of seven programs and of 59 of six.)
const RATES_APART: f64 = 0.5;
/// Part of the error at changes of cluster that looks leave: those in code that several clusters share do not tell them apart. (Guessed.)
const UNTOLD: f64 = 0.5;
/// Bootstrap replicates: the standard error is known to 1/sqrt(2*64), 9 %.
const REPLICATES: usize = 64;
/// Neighbouring windows that are exchanged for one another: few, as what changes over the run is
/// not chance.
const STRATUM: usize = 3;
/// Windows below which their parts are resampled instead.
const FEW_WINDOWS: usize = 12;
/// How far windows of one run lie apart, as a part of the miss ratio, where they are too few to tell: parts of one window, which are
/// resampled then, differ by less. (A hundred runs of three seconds and less of 33 programs, one to eleven windows each: they were off by
/// 0.6 to 2.6 of their miss ratio for each window by its weight, one half of them by 1.0 and more.)
const FEW_APART: f64 = 0.7;
/// What the part of a run that is in no window may miss where they are too few to tell, as windows that hardly miss say nothing of it: the ratio in
/// a cache of so many bytes, which falls with the square root of the size. (The medians of 40 programs: 6.4 % in 8 KiB, 3.1 in 32, 0.8 in 256, 0.4 in 1024.
/// A JSON tool of 0.4 seconds and six windows of its arithmetic was told 0.04 and 0.1 % in intervals to 0.15 and 0.3, where what it
/// reads and writes makes it 0.5.)
const USUAL: f64 = 0.05;
const USUAL_BYTES: f64 = 8192.0;
/// Two-sided 95 % point of the normal distribution: intervals of single keys.
pub(crate) const Z95: f64 = 1.96;
/// Level of the intervals of curves.
const LEVEL: f64 = 0.94;
/// Its two-sided point of the normal distribution.
pub(crate) const Z: f64 = 1.881;

/// Cluster distributions with their shares of the run.
pub(crate) type Mixture = Vec<(f64, Prepared)>;

/// Miss ratio with every cluster solved for itself.
pub(crate) fn mixture_miss_ratio(mixture: &Mixture, cache: &Cache) -> f64 {
    mixture
        .iter()
        .map(|(share, p)| share * p.miss_ratio(cache))
        .sum()
}

/// `times`: how often each block was drawn.
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

/// Changes of cluster between neighbouring units, as far as nothing tells what was between them. A border lies anywhere between two windows
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

/// Looks at the run between windows that each cluster stands for. `None` where they do not tell.
fn looks(sparse: &Sparse) -> Option<Vec<f64>> {
    let mut looks = vec![0.0; sparse.clusters];
    for (block, &cluster) in sparse.blocks.iter().zip(&sparse.cluster_of) {
        looks[cluster] += block.looks?;
    }
    Some(looks)
}

/// Part of a run that one window stands for on its own: the sum of the squares of their shares, less where there are more of them, and
/// none where they can be resampled.
fn lone(sparse: &Sparse) -> f64 {
    let total: f64 = sparse.blocks.iter().map(|b| b.weight).sum();
    let mut shares: Vec<(usize, f64)> = Vec::new();
    for b in &sparse.blocks {
        match shares.last_mut() {
            Some((window, share)) if *window == b.window => *share += b.weight / total,
            _ => shares.push((b.window, b.weight / total)),
        }
    }
    let fewer = 1.0 - shares.len() as f64 / FEW_WINDOWS as f64;
    fewer.max(0.0) * shares.iter().map(|(_, share)| share * share).sum::<f64>()
}

/// Miss ratio that is usual.
pub(crate) fn usual(cache: &Cache) -> f64 {
    USUAL * (USUAL_BYTES / cache.size.0 as f64).sqrt().min(1.0)
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
    /// Relative variance of the miss ratio because windows are few.
    few: f64,
    /// Part of the run that is in no window.
    unseen: f64,
    /// Where the run changed its ways between two windows: the clusters, and the variance of the
    /// references on the wrong side, per square of the run's references.
    borders: Vec<(usize, usize, f64)>,
    /// How often it was seen in each cluster between windows, if those looks tell.
    looks: Option<Vec<f64>>,
}

impl Replicates {
    /// `unseen`: the part of the run that is in no window.
    pub fn new(sparse: &Sparse, line: LineSize, run: RunSize, unseen: f64, seed: u64) -> Self {
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
        let few = FEW_APART * FEW_APART * lone(sparse);
        Self {
            window_wise: mixture(sparse, &once, line, run),
            replicates,
            inflation: if size > 1.0 {
                (size / (size - 1.0)).sqrt()
            } else {
                1.0
            },
            few,
            unseen,
            borders: borders(sparse, &units),
            looks: looks(sparse),
        }
    }

    /// Standard error of the miss ratio.
    pub fn standard_error(&self, cache: &Cache) -> f64 {
        let unseen = self.unseen * usual(cache);
        self.error_of_seen(cache).hypot(self.few.sqrt() * unseen)
    }

    /// The same, what is in no window apart.
    pub fn error_of_seen(&self, cache: &Cache) -> f64 {
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
        let between = self.between(cache) + self.few * mean * mean;
        let variance = ratios.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0);
        (variance.sqrt() * self.inflation).hypot(between.sqrt())
    }

    /// Variance for what is not known of the run between windows.
    fn between(&self, cache: &Cache) -> f64 {
        let each: Vec<(f64, f64)> = self
            .window_wise
            .iter()
            .map(|(share, p)| (*share, p.miss_ratio(cache)))
            .collect();
        let change =
            |&(a, b, v): &(usize, usize, f64)| Some(v * (each.get(a)?.1 - each.get(b)?.1).powi(2));
        let changes: f64 = self.borders.iter().filter_map(change).sum();
        let Some(looks) = &self.looks else {
            return changes;
        };
        // So many looks fell there by chance (Poisson), at most: they are spread evenly.
        let mean: f64 = each.iter().map(|(share, ratio)| share * ratio).sum();
        let of = |((share, ratio), looks): (&(f64, f64), &f64)| {
            (share * (ratio - mean)).powi(2) / looks.max(1.0)
        };
        let chance: f64 = each.iter().zip(looks).map(of).sum();
        changes.min(chance + UNTOLD * UNTOLD * changes)
    }

    /// What the bounds of the windows' weights add: the part of the native rates' error that is one of the
    /// kind of code ([`RATES_APART`]) is common to a cluster and independent between clusters.
    pub fn weight_error(&self, sparse: &Sparse, cache: &Cache, miss_ratio: f64) -> f64 {
        let total: f64 = sparse.blocks.iter().map(|b| b.weight).sum();
        if total <= 0.0 || self.window_wise.len() != sparse.clusters {
            return 0.0;
        }
        let mut half = vec![0.0; sparse.clusters];
        for (b, &c) in sparse.blocks.iter().zip(&sparse.cluster_of) {
            half[c] += RATES_APART * 0.5 * (b.high - b.low);
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

// Here, as groups are made of what is prepared.
impl Prepared {
    /// Miss probability of every placed sample's distance.
    pub fn probabilities(&self, group: &Group, cache: &Cache) -> Vec<f64> {
        let placed = group.placed.iter();
        match cache.policy {
            Policy::Random { .. } => {
                let rate = hazard(cache.lines().0) * self.miss_ratio(cache);
                placed.map(|p| 1.0 - (-rate * p.distance).exp()).collect()
            }
            Policy::Lru { ways } => {
                let (sets, in_set) = shape(cache.lines().0, ways);
                placed
                    .map(|p| miss_probability(self.stack.at(p.distance), sets, in_set))
                    .collect()
            }
        }
    }
}

/// Miss probability of a placed sample: a reuse's by its exposure, never reused 1, censored 0
/// (its weight is 0).
pub(crate) fn probability(
    group: &Group,
    cache: &Cache,
    solution: Option<&Solution>,
    i: usize,
) -> f64 {
    let p = &group.placed[i];
    match (p.to, solution) {
        (None, _) => f64::from(u8::from(!p.censored)),
        (Some(to), Some(s)) => group.timeline.random_probability(s, p, to),
        (Some(_), None) => {
            let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
            miss_probability(group.distinct()[i], sets, ways)
        }
    }
}

/// [`probability`] of every placed sample.
pub(crate) fn probabilities(group: &Group, cache: &Cache, solution: Option<&Solution>) -> Vec<f64> {
    (0..group.placed.len())
        .map(|i| probability(group, cache, solution, i))
        .collect()
}

/// Half width of the shortest interval that keeps its level however a bias of at most `bias` lies:
/// the 94 % point of `|N(bias, error)|`. Between 1.88 errors (no bias) and bias + 1.56 errors.
/// Source: Armstrong & Kolesar, Econometrica 86 (2018), equation 2; Imbens & Manski 2004.
pub(crate) fn half_width(error: f64, bias: f64) -> f64 {
    if error <= 1e-12 {
        return bias.max(0.0);
    }
    let b = (bias / error).max(0.0);
    let (mut low, mut high) = (b, b + Z);
    for _ in 0..40 {
        let c = 0.5 * (low + high);
        if normal_cdf(c - b) - normal_cdf(-c - b) < LEVEL {
            low = c;
        } else {
            high = c;
        }
    }
    high * error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weight;
    use crate::histogram::Histogram;
    use crate::sparse::Block;
    use std::sync::Arc;

    /// Windows of two blocks each, which stand for these parts of a run.
    fn windows(weights: &[f64]) -> Sparse {
        let blocks = weights.iter().enumerate().flat_map(|(window, &weight)| {
            let block = Block {
                window,
                weight: weight / 2.0,
                low: 0.0,
                high: weight,
                looks: None,
                histogram: Arc::new(Histogram::new(LineSize::B64).compact()),
                extremes: None,
            };
            [block.clone(), block]
        });
        let blocks: Vec<Block> = blocks.collect();
        Sparse {
            cluster_of: vec![0; blocks.len()],
            blocks,
            clusters: 1,
        }
    }

    #[test]
    fn few_windows_are_less_sure_than_their_parts_say() {
        let all = 1.0 - 1.0 / FEW_WINDOWS as f64;
        assert!((lone(&windows(&[7.0])) - all).abs() < 1e-12);
        // Three equal ones are a third each.
        let three = lone(&windows(&[2.0; 3]));
        assert!((three - (1.0 - 3.0 / FEW_WINDOWS as f64) / 3.0).abs() < 1e-12);
        // One that stands for most of the run is nearly alone.
        assert!(lone(&windows(&[98.0, 1.0, 1.0])) > 2.0 * three);
        assert_eq!(lone(&windows(&[1.0; FEW_WINDOWS])), 0.0);
    }

    #[test]
    fn few_windows_without_a_miss_do_not_say_that_nothing_misses() {
        let mut hits = Histogram::new(LineSize::B64);
        hits.add_reuses(3.0, 1000, Weight::ONE);
        let error_with = |count: usize, bytes: u64, unseen: f64| {
            let mut sparse = windows(&vec![1.0; count]);
            let hits = Arc::new(hits.compact());
            let blocks = sparse.blocks.iter_mut();
            blocks.for_each(|block| block.histogram = Arc::clone(&hits));
            let run = RunSize {
                refs: 1e9,
                lines: 1e4,
            };
            let cache = Cache::new(bytes, LineSize::B64, Policy::RANDOM).unwrap();
            let replicates = Replicates::new(&sparse, LineSize::B64, run, unseen, 1);
            assert!(replicates.error_of_seen(&cache) < 1e-6);
            replicates.standard_error(&cache)
        };
        let error = |count: usize, bytes: u64| error_with(count, bytes, 1.0);
        assert!((0.02..0.05).contains(&error(1, 8 << 10)));
        assert!(error(6, 8 << 10) < 0.5 * error(1, 8 << 10));
        assert!(error(1, 1 << 20) < 0.2 * error(1, 8 << 10));
        assert!(error_with(1, 8 << 10, 0.1) < 0.2 * error(1, 8 << 10));
        // More windows speak for themselves.
        assert!(error(FEW_WINDOWS, 8 << 10) < 1e-6);
    }
}

//! A curve point and its interval, from the groups of a view.

use crate::agreement::disagreement;
use crate::equation::{Undecided, random_miss_ratio};
use crate::influence::{self, Scores};
use crate::interval::{Replicates, Z, half_width, usual};
use crate::lone::tail_error;
use crate::placed::Group;
use crate::stack::lru_miss_ratio;
use crate::survival::Survival;
use crate::view::View;
use crate::{Cache, CurvePoint, Policy, Weak};

/// Samples below which any figure is weak (chosen).
const WEAK_SAMPLES: u64 = 1000;
/// Standard deviation of relative errors of stack distances where samples do not tell. (Guessed.)
const USUAL: f64 = 0.03;
/// Sampling half width above which a curve point is weak.
pub(crate) const WEAK_HALF_WIDTH: f64 = 0.02;
/// What the bootstrapped standard errors of windows with gaps fall short of the spread of
/// repetitions. Measured on the synthetic streams: 1.0 to 1.3 for random replacement; for LRU the
/// stack distances carry noise of their own.
const SPREAD_RANDOM: f64 = 1.2;
/// As [`SPREAD_RANDOM`], for LRU.
const SPREAD_LRU: f64 = 1.4;
/// Model allowance: constant part, the stated error of the distance bins ([`crate::bins`]).
pub(crate) const ALLOWANCE: f64 = 0.0005;
/// Model allowance: the equation's error is one of effective cache size; by this factor up and down.
pub(crate) const SIZE_FACTOR: f64 = 1.08;
/// The samples' disagreement is the model's error to first order only: it is found with misses that
/// the model scored, so bursts look flatter than they are. Higher orders count twice as much again
/// (measured: with once, working sets that change faster than samples come were covered less).
const HIGHER_ORDERS: f64 = 3.0;
/// Part of the disagreement of the three forms that is taken for a half width.
pub(crate) const DISAGREEMENT: f64 = 0.25;

/// Standard error of a thread's part of what all do, of itself, where a run is observed in windows: what threads do in the same time is told by how long
/// their turns take. (Two threads, one of which makes five to twelve times as many accesses: parts of 12.3, 15.4 and 13.3 % for 13.0, of 8.5 for 9.1, of 19.5, 10.3
/// and 9.6 for 9.0, 10.0 and 10.5.)
const PART_ERROR: f64 = 0.25;

/// The sum over the groups of one point's parts.
#[derive(Default)]
struct Sum {
    refs: f64,
    ratio: f64,
    variance: f64,
    /// Variance of what is known of the model's error.
    unsure: f64,
    model: f64,
    low: f64,
    high: f64,
    samples: f64,
    known: bool,
}

/// Sampling and model part of a group's ratio.
struct Parts {
    /// Standard error.
    sampling: f64,
    /// Standard error of what is known of the model's error.
    unsure: f64,
    /// Bound of the model's error, as far as known.
    model: f64,
}

impl View {
    /// The curve point of one cache, found anew: see [`View::point`].
    pub(super) fn find_point(&self, cache: &Cache) -> CurvePoint {
        let mut sum = Sum::default();
        for (i, group) in self.groups.iter().enumerate() {
            if !group.complete || group.refs <= 0.0 {
                continue;
            }
            sum.known = true;
            self.add(i, group, cache, &mut sum);
        }
        sum.variance += self.variance_of_parts(cache, sum.ratio / sum.refs.max(1.0));
        sum.point(cache, self.unknown, self.overlooked)
    }

    /// Variance of all misses, where the ratio is `mean`, because threads' parts of what they do together are known roughly.
    fn variance_of_parts(&self, cache: &Cache, mean: f64) -> f64 {
        let known = |group: &Group| group.complete && group.refs > 0.0 && group.sparse.is_some();
        let groups = self.groups.iter().enumerate();
        let groups = groups.filter(|(_, group)| known(group));
        let all: f64 = groups.clone().map(|(_, group)| group.refs).sum();
        let of = |(i, group): (usize, &Group)| {
            let apart = self.solved(i, cache).miss_ratio - mean;
            // One has less where another has more: none, where there is one.
            let others = 1.0 - group.refs / all;
            (PART_ERROR * group.refs * others * apart).powi(2)
        };
        groups.map(of).sum()
    }

    fn add(&self, i: usize, group: &Group, cache: &Cache, sum: &mut Sum) {
        let varying = self.solved(i, cache).miss_ratio;
        let parts = if group.sparse.is_some() {
            self.with_gaps(i, group, cache)
        } else {
            self.gapless(i, group, cache)
        };
        // Rule of three: no miss seen in n samples leaves up to 3/n (Hanley & Lippman-Hand, JAMA 1983).
        let error = parts
            .sampling
            .hypot(3.0 / Z / group.pooled.effective.max(1.0));
        let (mut low, mut high) = (varying, varying);
        if group.pooled.undecided > 0.0 || group.extremes.is_some() {
            let whole = self.whole[i].miss_ratio(cache);
            let (least, most) = match group.extremes.as_deref() {
                Some([least, most]) => (least, most),
                None => (&group.pooled, &group.pooled),
            };
            let at_once = at_once(group, least, cache);
            let never = never_reused(group, most, cache);
            // Where nothing is lost in a cache that holds all, the ratio itself is the bound.
            let shifted = (varying + (at_once - whole).min(0.0)).max(0.0);
            low = if at_once <= least.never {
                shifted.min(at_once)
            } else {
                shifted
            };
            high = (varying + (never - whole).max(0.0)).min(1.0);
            if !group.timeline.fills {
                // Attached: first touches cannot be told from touches before, and are not in the ratio.
                high = high.max(never);
            }
            if group.pooled.steps.is_empty() {
                (low, high) = (at_once, never);
            }
        }
        let refs = group.refs;
        sum.refs += refs;
        sum.ratio += refs * varying;
        sum.variance += (refs * error).powi(2);
        sum.model += refs * parts.model;
        sum.unsure += (refs * parts.unsure).powi(2);
        sum.low += refs * low;
        sum.high += refs * high;
        sum.samples += group.pooled.samples as f64;
    }

    /// Windows with gaps between them: the bootstrap, and the forms against each other.
    fn with_gaps(&self, i: usize, group: &Group, cache: &Cache) -> Parts {
        let [whole, windows, varying] = self.forms(i, cache);
        let (Some(sparse), Some(replicates), Some(sampling)) = (
            &group.sparse,
            self.replicates(i),
            self.windows_error(i, cache, Replicates::standard_error),
        ) else {
            return Parts {
                sampling: 1.0,
                unsure: 0.0,
                model: 1.0,
            };
        };
        let weights = replicates.weight_error(sparse, cache, varying) / Z;
        let tail = tail_error(sparse, &group.pooled, self.whole[i].deadly_gap(cache));
        let spread = match cache.policy {
            Policy::Random { .. } => SPREAD_RANDOM,
            Policy::Lru { .. } => SPREAD_LRU,
        };
        let forms = DISAGREEMENT * (varying - whole).abs().max((varying - windows).abs());
        // Without samples the windows cannot be asked: an error of effective cache size.
        let (model, unsure) = if group.placed.is_empty() {
            let at = |factor: f64| {
                let bytes = (cache.size.0 as f64 * factor) as u64;
                self.whole[i].miss_ratio(&cache.resized(bytes))
            };
            let steepness = 0.5 * (at(1.0 / SIZE_FACTOR) - at(SIZE_FACTOR)).abs();
            (ALLOWANCE + steepness, 0.0)
        } else {
            self.model_error(i, cache)
        };
        Parts {
            sampling: spread * sampling.hypot(weights).hypot(tail),
            unsure,
            model: model + forms,
        }
    }

    /// Standard error of the misses per reference of a group with gaps, by what its windows saw: `windows` of it that between them.
    fn windows_error(
        &self,
        i: usize,
        cache: &Cache,
        windows: fn(&Replicates, &Cache) -> f64,
    ) -> Option<f64> {
        let windows = windows(self.replicates(i)?, cache);
        // The far end of the tail, which few watches see, by Greenwood.
        let gap = self.whole[i].deadly_gap(cache);
        Some(windows.max(self.groups[i].pooled.variance_at(gap).sqrt()))
    }

    /// The same as a share of those misses, what is in no window apart.
    pub fn share_unsure(&self, i: usize, cache: &Cache) -> f64 {
        let misses = self.solved(i, cache).miss_ratio;
        match self.windows_error(i, cache, Replicates::error_of_seen) {
            Some(error) if misses > 0.0 => error / misses,
            _ => 0.0,
        }
    }

    /// No gaps: the influence of each sample, and what the samples say of each other's exposure.
    fn gapless(&self, i: usize, group: &Group, cache: &Cache) -> Parts {
        let solved = self.solved(i, cache);
        let levers = self.levers(i, cache);
        let scores = Scores::new(group, cache, &solved);
        let mut sampling = influence::standard_error(group, cache, &solved, &levers, &scores);
        if group.pooled.censored {
            // The redistributed weight is itself estimated: Greenwood at the distance that decides.
            let gap = self.whole[i].deadly_gap(cache);
            let tail = group.pooled.variance_at(gap).sqrt();
            sampling = sampling.max(tail * group.timeline.gain(&levers, &solved.ratios));
        }
        let (model, unsure) = self.model_error(i, cache);
        let model = model + group.timeline.unresolved(&solved.ratios, &levers);
        Parts {
            sampling,
            unsure,
            model,
        }
    }

    /// Bound of the model's error and the standard error of what is known of it.
    fn model_error(&self, i: usize, cache: &Cache) -> (f64, f64) {
        if !matches!(cache.policy, Policy::Random { .. }) {
            return self.lru_error(i, cache);
        }
        let d = disagreement(
            &self.groups[i],
            cache,
            &self.solved(i, cache),
            &self.levers(i, cache),
        );
        let (mean, spread) = self.evidence(i).weigh(&d);
        (ALLOWANCE + HIGHER_ORDERS * mean.abs(), spread)
    }
}

impl View {
    /// The same for LRU: what the samples inside reuses would change, and the error of that.
    fn lru_error(&self, i: usize, cache: &Cache) -> (f64, f64) {
        let group = &self.groups[i];
        let uneven = group.sparse.is_none() && !group.pairs().are_even();
        if group.texture().is_none() && !uneven {
            return (ALLOWANCE, 0.0);
        }
        let at = |factor: f64| {
            let bytes = (cache.size.0 as f64 * factor) as u64;
            let ratios = group.timeline.lru_ratios(&cache.resized(bytes));
            group.timeline.mean(&ratios)
        };
        let steepness = (at(1.0 / SIZE_FACTOR) - at(SIZE_FACTOR)).abs() / (2.0 * SIZE_FACTOR.ln());
        let Some(texture) = group.texture() else {
            return (ALLOWANCE, steepness * USUAL);
        };
        let off = (group.counted_miss_ratio(cache) - self.solved(i, cache).miss_ratio).abs();
        let error = texture.error(cache.lines().0 as f64);
        (ALLOWANCE + off, steepness * error)
    }
}

/// Ratio with the undecided mass reused at once, by the distribution given.
fn at_once(group: &Group, pooled: &Survival, cache: &Cache) -> f64 {
    let lines = cache.lines().0;
    if group.pooled.steps.is_empty() {
        return 0.0;
    }
    // Reused at once, the run would know no more lines than these; a cache that holds them all
    // never evicts.
    let known = crate::StackDistance::new(pooled).at(pooled.horizon);
    if group.timeline.fills && lines as f64 >= known {
        return pooled.never;
    }
    match cache.policy {
        Policy::Random { .. } => random_miss_ratio(pooled, lines, Undecided::AtHorizon),
        Policy::Lru { ways } => lru_miss_ratio(pooled, lines, ways, false),
    }
}

/// Ratio with the undecided mass never reused.
fn never_reused(group: &Group, pooled: &Survival, cache: &Cache) -> f64 {
    let lines = cache.lines().0;
    if group.pooled.steps.is_empty() {
        return 1.0;
    }
    match cache.policy {
        Policy::Random { .. } => random_miss_ratio(pooled, lines, Undecided::Never),
        Policy::Lru { ways } => lru_miss_ratio(pooled, lines, ways, true),
    }
}

impl Sum {
    /// `unknown`: part of the run of which nothing is known; `overlooked`: part that is likely to be of a kind of which nothing is.
    fn point(self, cache: &Cache, unknown: f64, overlooked: f64) -> CurvePoint {
        let cache_bytes = cache.size.0;
        if !self.known {
            return CurvePoint {
                cache_bytes,
                miss_ratio: 0.0,
                low: 0.0,
                high: 1.0,
                sampling_half_width: 1.0,
                model_half_width: 1.0,
                undecided: Some((0.0, 1.0)),
                weak: Some(Weak {
                    samples: 0,
                    needed: WEAK_SAMPLES,
                }),
            };
        }
        let miss_ratio = (self.ratio / self.refs).clamp(0.0, 1.0);
        let sampling = Z * self.variance.sqrt() / self.refs;
        let (model, unsure) = (self.model / self.refs, self.unsure.sqrt() / self.refs);
        // It may miss nothing where the others do, or what is usual.
        let other = miss_ratio.max(usual(cache));
        let (model, unsure) = (model + unknown * other, unsure.hypot(overlooked * other));
        let half = half_width((sampling / Z).hypot(unsure), model);
        let (under, over) = (
            miss_ratio - self.low / self.refs,
            self.high / self.refs - miss_ratio,
        );
        let open = under + over > 1e-4;
        let samples = self.samples as u64;
        let needed = (self.samples * (sampling / WEAK_HALF_WIDTH).powi(2)).ceil() as u64;
        let weak = (samples < WEAK_SAMPLES || sampling > WEAK_HALF_WIDTH).then_some(Weak {
            samples,
            needed: needed.max(WEAK_SAMPLES),
        });
        CurvePoint {
            cache_bytes,
            miss_ratio,
            low: (miss_ratio - half - under.max(0.0)).clamp(0.0, miss_ratio),
            high: (miss_ratio + half + over.max(0.0)).clamp(miss_ratio, 1.0),
            sampling_half_width: sampling,
            model_half_width: half_width(unsure, model),
            undecided: open.then_some((self.low / self.refs, self.high / self.refs)),
            weak,
        }
    }
}

//! LRU: expected stack distance from reuse distances, and the miss probability it implies.
//!
//! `ES(d) = sum_{j<d} S(j)` distinct lines are expected between two touches `d` references apart;
//! fully associative LRU misses iff that is at least `L` (Eklov & Hagersten, StatStack, ISPASS
//! 2010). In sets: `1 - sum_{i<ways} Binomial(D, 1/sets)(i)` (Smith 1978; Hill &
//! Smith 1989), which takes lines to fall into sets at random.

use crate::bins;
use crate::survival::Survival;

/// Expected stack distance as a function of the reuse distance, one stationary distribution.
#[derive(Clone, Debug)]
pub struct StackDistance {
    /// `ES` at the lower edge of every bin up to the last step's upper edge.
    at_edge: Vec<f64>,
    /// Survival beyond the last edge.
    tail: f64,
}

impl StackDistance {
    /// From a survival function; the undecided mass counts as beyond its horizon.
    #[must_use]
    pub fn new(survival: &Survival) -> Self {
        let last = survival
            .steps
            .iter()
            .map(|s| s.bin)
            .max()
            .map_or(0, |b| b + 1);
        let mut masses = vec![(0.0, 0.0); last];
        for step in &survival.steps {
            masses[step.bin].0 += step.mass;
            masses[step.bin].1 += step.mass * step.distance;
        }
        let mut at_edge = Vec::with_capacity(last + 1);
        let (mut es, mut s) = (0.0, 1.0f64);
        at_edge.push(0.0);
        for (bin, &(mass, moment)) in masses.iter().enumerate() {
            let (lower, upper) = (bins::lower_edge(bin), bins::lower_edge(bin + 1));
            // A distance m keeps its line alive at ages 0..m-1; the bin's mass sits at its mean.
            let alive = if mass > 0.0 {
                (moment / mass - lower).clamp(0.0, upper - lower)
            } else {
                0.0
            };
            let after = (s - mass).max(0.0);
            es += s * alive + after * (upper - lower - alive);
            s = after;
            at_edge.push(es);
        }
        Self { at_edge, tail: s }
    }

    /// Expected distinct lines between two touches of a line `distance` references apart.
    #[must_use]
    pub fn at(&self, distance: f64) -> f64 {
        // Whatever is expected: one reference in between is one line.
        self.expected(distance).max(distance.min(1.0))
    }

    /// Miss probability under LRU of reuses about `distance` apart, spread over its bin.
    pub(crate) fn miss(&self, distance: f64, lines: u64, ways: Option<u32>) -> f64 {
        let (sets, in_set) = shape(lines, ways);
        let bin = bins::bin_of_real(distance);
        let middle = self.at(distance);
        if sets <= 1.0 && !bins::is_exact(bin) {
            let low = self.at(bins::lower_edge(bin));
            let high = self.at(bins::lower_edge(bin + 1));
            // Symmetric about the bin's mean, within the bin.
            let half = (middle - low).min(high - middle).max(0.0);
            return full_miss_fraction(middle - half, middle + half, in_set as f64);
        }
        miss_probability(middle, sets, in_set)
    }

    fn expected(&self, distance: f64) -> f64 {
        let bin = bins::bin_of_real(distance);
        if bin + 1 >= self.at_edge.len() {
            let last = self.at_edge.len() - 1;
            return self.at_edge[last] + self.tail * (distance - bins::lower_edge(last)).max(0.0);
        }
        let (lower, upper) = (bins::lower_edge(bin), bins::lower_edge(bin + 1));
        let f = (distance - lower) / (upper - lower);
        self.at_edge[bin] + f * (self.at_edge[bin + 1] - self.at_edge[bin])
    }
}

/// Probability that a reuse with `distinct` other lines in between misses.
/// `sets` of `ways` lines each; `sets <= 1` is fully associative.
#[must_use]
pub fn miss_probability(distinct: f64, sets: f64, ways: u64) -> f64 {
    if sets <= 1.0 {
        return if distinct >= ways as f64 { 1.0 } else { 0.0 };
    }
    if distinct < ways as f64 {
        return 0.0;
    }
    // Far in the tail the answer is 1 or 0 to twelve digits; skip the sum.
    let p = 1.0 / sets;
    let (mean, spread) = (distinct * p, (distinct * p * (1.0 - p)).sqrt());
    if mean - 8.0 * spread - 8.0 > ways as f64 {
        return 1.0;
    }
    if mean + 8.0 * spread + 40.0 < ways as f64 {
        return 0.0;
    }
    let odds = (p / (1.0 - p)).ln();
    let mut log_term = distinct * (-p).ln_1p();
    let mut kept = 0.0;
    for i in 0..ways {
        kept += log_term.exp();
        let left = distinct - i as f64;
        if left <= 0.0 {
            break;
        }
        log_term += (left / (i + 1) as f64).ln() + odds;
    }
    (1.0 - kept).clamp(0.0, 1.0)
}

/// Fraction of a bin `[low, high)` of stack distances that misses when fully associative.
#[must_use]
pub(crate) fn full_miss_fraction(low: f64, high: f64, lines: f64) -> f64 {
    if low >= lines {
        1.0
    } else if high <= lines {
        0.0
    } else {
        (high - lines) / (high - low)
    }
}

/// LRU miss ratio of one stationary distribution. Undecided mass: misses when `undecided_misses`,
/// else reused at the horizon.
#[must_use]
pub fn lru_miss_ratio(
    survival: &Survival,
    lines: u64,
    ways: Option<u32>,
    undecided_misses: bool,
) -> f64 {
    let stack = StackDistance::new(survival);
    lru_miss_ratio_with(survival, &stack, lines, ways, undecided_misses)
}

/// As [`lru_miss_ratio`], the stack distances already summed up: for many sizes of one cache.
#[must_use]
pub fn lru_miss_ratio_with(
    survival: &Survival,
    stack: &StackDistance,
    lines: u64,
    ways: Option<u32>,
    undecided_misses: bool,
) -> f64 {
    let mut misses = survival.never;
    for step in &survival.steps {
        misses += step.mass * stack.miss(step.distance, lines, ways);
    }
    misses += survival.undecided
        * if undecided_misses {
            1.0
        } else {
            let (sets, in_set) = shape(lines, ways);
            miss_probability(stack.at(survival.horizon), sets, in_set)
        };
    misses.clamp(0.0, 1.0)
}

/// Sets (real) and lines per set.
#[must_use]
pub(crate) fn shape(lines: u64, ways: Option<u32>) -> (f64, u64) {
    match ways {
        Some(w) => (lines as f64 / f64::from(w), u64::from(w)),
        None => (1.0, lines),
    }
}

//! The time-varying form: one miss count `M(t)` over the run instead of one miss ratio.
//!
//! The run is cut into segments. A reuse triggered at `t` of a line touched at `p` was exposed to
//! `E(t) - E(p)` evictions with `E(t) = max(0, M(t) - L)` (nothing is evicted before the cache is
//! full), whatever the miss ratio did in between. Segments are solved in time order, each for its
//! own slope of `M`; first touches are misses where they happen. Source: ARCHITECTURE.md.
//! The LRU side counts distinct lines between `p` and `t` segment by segment (ARCHITECTURE.md "The model"):
//! of the references at age `a` before `t`, those whose own next use lies beyond `t`.

use crate::bins::{self, BINS};
use crate::equation::{exp_neg, hazard};
use crate::stack::{full_miss_fraction, miss_probability, shape};
use crate::{Cache, Policy};

/// A reuse whose line was touched in an earlier segment (or, kept singly, in this one).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cross {
    /// Time of the earlier touch, line references since the start.
    pub from: f64,
    /// Time of the trigger.
    pub to: f64,
    /// Share of the segment's references.
    pub weight: f64,
    /// Expected distinct lines in between.
    pub distinct: f64,
}

/// Reuses inside one segment at about one distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub bin: usize,
    pub distance: f64,
    pub weight: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// First touches per reference.
    pub cold: f64,
    pub local: Vec<Local>,
    pub cross: Vec<Cross>,
    /// Index into [`Timeline::shapes`].
    pub shape: usize,
}

/// Right side of the equation of one segment at one slope of `E`.
struct Exposed {
    misses: f64,
    /// With respect to the slope.
    derivative: f64,
    /// With respect to the logarithm of all exposures.
    elastic: f64,
}

impl Segment {
    /// Scales the reuses to what first touches leave of the segment's references.
    pub fn normalise(&mut self, cold: f64) {
        let sum: f64 = self.local.iter().map(|l| l.weight).sum::<f64>()
            + self.cross.iter().map(|c| c.weight).sum::<f64>();
        self.cold = cold;
        if sum > 0.0 {
            let scale = (1.0 - cold) / sum;
            self.local.iter_mut().for_each(|l| l.weight *= scale);
            self.cross.iter_mut().for_each(|c| c.weight *= scale);
        }
    }

    /// `past[i]`: evictions when the line of `cross[i]` was touched, `None` inside this segment.
    fn exposed(&self, past: &[Option<f64>], h: f64, e0: f64, slope: f64, start: f64) -> Exposed {
        let mut sum = Exposed {
            misses: self.cold,
            derivative: 0.0,
            elastic: 0.0,
        };
        if slope > 0.0 {
            for l in &self.local {
                let x = h * l.distance;
                let kept = exp_neg(x * slope);
                sum.misses += l.weight * (1.0 - kept);
                sum.derivative += l.weight * x * kept;
                sum.elastic += l.weight * x * slope * kept;
            }
        }
        for (c, before) in self.cross.iter().zip(past) {
            let (exposure, lever) = match before {
                None => (slope * (c.to - c.from), c.to - c.from),
                Some(before) => (e0 + slope * (c.to - start) - before, c.to - start),
            };
            let kept = exp_neg(h * exposure.max(0.0));
            sum.misses += c.weight * (1.0 - kept);
            sum.derivative += c.weight * h * lever * kept;
            sum.elastic += c.weight * h * exposure * kept;
        }
        sum
    }
}

/// Survival function of the references of some segments, and its integral, at the bin edges.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// `integral[i]`: sum of `P(d > a)` over ages below the edge of bin `i`.
    integral: Vec<f64>,
    /// Distance per reference that one sample contributes to its own stack distance (taken off).
    pub own_share: f64,
}

impl Shape {
    /// From `P(d >= lower edge)`.
    pub fn new(at_edges: &[f64], own_share: f64) -> Self {
        let mut integral = Vec::with_capacity(BINS + 1);
        let mut sum = 0.0;
        integral.push(0.0);
        for bin in 0..BINS {
            let width = bins::lower_edge(bin + 1) - bins::lower_edge(bin);
            // Alive at age a means d >= a + 1: the value at the upper edge of an exact bin.
            sum += if bins::is_exact(bin) {
                at_edges[bin + 1]
            } else {
                width * 0.5 * (at_edges[bin] + at_edges[bin + 1])
            };
            integral.push(sum);
        }
        Self {
            integral,
            own_share,
        }
    }

    /// Expected references of the last `age` that are not used again before now.
    pub fn alive(&self, age: f64) -> f64 {
        let bin = bins::bin_of_real(age.max(0.0));
        let (lower, upper) = (bins::lower_edge(bin), bins::lower_edge(bin + 1));
        let f = ((age - lower) / (upper - lower)).clamp(0.0, 1.0);
        self.integral[bin] + f * (self.integral[bin + 1] - self.integral[bin])
    }
}

/// A run cut into segments, at one line size.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// Segment borders, line references, one more than segments, from 0.
    pub bounds: Vec<f64>,
    pub segments: Vec<Segment>,
    pub shapes: Vec<Shape>,
    /// Whether the cache is empty at the start.
    pub fills: bool,
}

/// `M` and `E` at the segment borders for one cache.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    evictions: Vec<f64>,
    hazard: f64,
    /// Misses per reference of the whole run.
    pub miss_ratio: f64,
    /// Relative change of all misses per relative change of all exposures.
    pub elasticity: f64,
}

/// Evictions after `misses` misses, and its derivative. Sets fill up one by one.
fn evicted(misses: f64, cache: &Cache, fills: bool) -> (f64, f64) {
    if !fills {
        return (misses, 1.0);
    }
    let lines = cache.lines().0 as f64;
    let sets = cache.sets();
    if sets <= 1.0 {
        return if misses > lines {
            (misses - lines, 1.0)
        } else {
            (0.0, 0.0)
        };
    }
    // Misses fall on sets at random: E[(Poisson(mean) - ways)+] per set, normal approximation.
    let (mean, ways) = (misses / sets, lines / sets);
    let spread = mean.max(1e-12).sqrt();
    let z = (mean - ways) / spread;
    if z < -8.0 {
        return (0.0, 0.0);
    }
    let phi = normal_cdf(z);
    let over =
        (mean - ways) * phi + spread * (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (over.max(0.0) * sets, phi)
}

/// Normal distribution function (Abramowitz & Stegun 26.2.17, error below 1e-7).
pub(crate) fn normal_cdf(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let poly = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let upper = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt() * poly;
    if z >= 0.0 { 1.0 - upper } else { upper }
}

impl Timeline {
    /// References of the run.
    pub fn total(&self) -> f64 {
        self.bounds.last().copied().unwrap_or(0.0)
    }

    /// First touches of the run, lines.
    pub fn first_touches(&self) -> f64 {
        self.bounds
            .windows(2)
            .zip(&self.segments)
            .map(|(b, s)| s.cold * (b[1] - b[0]))
            .sum()
    }

    /// The segment a time lies in.
    pub fn segment_of(&self, time: f64) -> usize {
        self.bounds
            .partition_point(|&b| b <= time)
            .saturating_sub(1)
            .min(self.segments.len().saturating_sub(1))
    }

    /// Solves random replacement segment by segment.
    pub fn random(&self, cache: &Cache) -> Solution {
        let h = hazard(cache.lines().0);
        let mut evictions = vec![0.0];
        let (mut misses, mut exposed, mut missed) = (0.0, 0.0, 0.0);
        let mut past = Vec::new();
        for (j, segment) in self.segments.iter().enumerate() {
            let (start, n) = (self.bounds[j], self.bounds[j + 1] - self.bounds[j]);
            past.clear();
            past.extend(segment.cross.iter().map(|c| {
                // None: touched in this same segment, so it moves with the slope.
                (c.from < start).then(|| self.interpolate(&evictions, c.from))
            }));
            let e0 = evictions[j];
            let full = evicted(misses, cache, self.fills).1 >= 1.0;
            let mut r = 1.0f64;
            let mut elastic = 0.0;
            for _ in 0..64 {
                let slope = (evicted(misses + r * n, cache, self.fills).0 - e0) / n;
                let at = segment.exposed(&past, h, e0, slope, start);
                elastic = at.elastic;
                // Concave once full: Newton from above; while filling: the monotone iteration.
                let next = if full && at.derivative < 1.0 {
                    r - (r - at.misses) / (1.0 - at.derivative)
                } else {
                    at.misses
                };
                let next = next.clamp(segment.cold.min(1.0), 1.0);
                let step = (next - r).abs();
                r = next;
                if step < 1e-7 {
                    break;
                }
            }
            exposed += elastic * n;
            missed += r * n;
            misses += r * n;
            evictions.push(evicted(misses, cache, self.fills).0);
        }
        Solution {
            evictions,
            hazard: h,
            miss_ratio: if self.total() > 0.0 {
                (misses / self.total()).clamp(0.0, 1.0)
            } else {
                0.0
            },
            elasticity: if missed > 0.0 { exposed / missed } else { 0.0 },
        }
    }

    fn interpolate(&self, values: &[f64], time: f64) -> f64 {
        let j = self
            .bounds
            .partition_point(|&b| b <= time)
            .saturating_sub(1);
        let last = values.len() - 1;
        if j >= last {
            // Beyond the end: on with the last slope.
            if last == 0 {
                return values[0];
            }
            let n = self.bounds[last] - self.bounds[last - 1];
            return values[last]
                + (values[last] - values[last - 1]) / n * (time - self.bounds[last]);
        }
        let f = (time - self.bounds[j]) / (self.bounds[j + 1] - self.bounds[j]);
        values[j] + f * (values[j + 1] - values[j])
    }

    /// Miss probability of a reuse at `to` of a line touched at `from`.
    pub fn random_probability(&self, solution: &Solution, from: f64, to: f64) -> f64 {
        let exposure =
            self.interpolate(&solution.evictions, to) - self.interpolate(&solution.evictions, from);
        1.0 - exp_neg(solution.hazard * exposure.max(0.0))
    }

    /// Expected distinct lines touched between `from` and `to`, exclusive.
    pub fn distinct(&self, from: f64, to: f64) -> f64 {
        let (first, last) = (self.segment_of(from), self.segment_of(to));
        let mut sum = 0.0;
        for s in first..=last {
            let shape = &self.shapes[self.segments[s].shape];
            // Ages of this segment's references, seen from `to`.
            let oldest = (to - self.bounds[s].max(from + 1.0)).max(0.0);
            let youngest = if s == last {
                0.0
            } else {
                (to - self.bounds[s + 1]).max(0.0)
            };
            sum += shape.alive(oldest) - shape.alive(youngest);
            if s == first {
                let end = if s == last { to } else { self.bounds[s + 1] };
                sum -= shape.own_share * (end - from - 1.0).max(0.0);
            }
        }
        sum.max((to - from - 1.0).clamp(0.0, 1.0))
    }

    /// Distinct lines inside one segment's own stationary behaviour.
    pub fn local_distinct(&self, segment: usize, distance: f64) -> f64 {
        let shape = &self.shapes[self.segments[segment].shape];
        (shape.alive(distance) - shape.own_share * distance).max(distance.min(1.0))
    }

    /// Miss probability under LRU of a reuse inside one segment.
    pub fn local_lru_probability(
        &self,
        segment: usize,
        bin: usize,
        distance: f64,
        cache: &Cache,
    ) -> f64 {
        let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
        let middle = self.local_distinct(segment, distance);
        if sets <= 1.0 && !bins::is_exact(bin) {
            let low = self.local_distinct(segment, bins::lower_edge(bin));
            let high = self.local_distinct(segment, bins::lower_edge(bin + 1));
            let half = (middle - low).min(high - middle).max(0.0);
            return full_miss_fraction(middle - half, middle + half, ways as f64);
        }
        miss_probability(middle, sets, ways)
    }

    /// LRU miss ratio of the run.
    pub fn lru(&self, cache: &Cache) -> f64 {
        debug_assert!(matches!(cache.policy, Policy::Lru { .. }));
        let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
        let mut misses = 0.0;
        for (j, segment) in self.segments.iter().enumerate() {
            let mut r = segment.cold;
            for l in &segment.local {
                r += l.weight * self.local_lru_probability(j, l.bin, l.distance, cache);
            }
            for c in &segment.cross {
                r += c.weight * miss_probability(c.distinct, sets, ways);
            }
            let r = r.clamp(0.0, 1.0);
            misses += r * (self.bounds[j + 1] - self.bounds[j]);
        }
        let ratio = if self.total() > 0.0 {
            misses / self.total()
        } else {
            0.0
        };
        ratio.clamp(0.0, 1.0)
    }

    /// Fills in [`Cross::distinct`] everywhere (after the shapes are in place).
    pub fn measure_cross(&mut self) {
        for j in 0..self.segments.len() {
            let mut cross = std::mem::take(&mut self.segments[j].cross);
            for c in &mut cross {
                c.distinct = self.distinct(c.from, c.to);
            }
            self.segments[j].cross = cross;
        }
    }
}

/// Isotonic regression with equal weights (pool adjacent violators): the nearest non-decreasing
/// sequence. Source: Barlow et al. 1972.
pub(crate) fn isotonic(values: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for &v in values {
        blocks.push((v, 1));
        while let [.., (a, n), (b, m)] = blocks[..]
            && a > b
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push(((a * n as f64 + b * m as f64) / (n + m) as f64, n + m));
        }
    }
    blocks
        .iter()
        .flat_map(|&(v, n)| std::iter::repeat_n(v, n))
        .collect()
}

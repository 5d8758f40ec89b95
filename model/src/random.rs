//! Random replacement solved along the run: misses `M(t)` and evictions `E(t)`, segment by segment,
//! and how far a change in one segment's misses moves those of the whole run.
//!
//! The equation's form for one distribution is in `equation`.

use crate::Cache;
use crate::equation::{exp_neg, hazard};
use crate::memory::Memory;
use crate::placed::Placed;
use crate::timeline::{Cross, Segment, Timeline};

/// Largest amplification inside one segment that is believed: the linearisation ends there.
const MAX_GAIN: f64 = 50.0;
/// Largest amplification over the run that is believed.
const MAX_LEVER: f64 = 50.0;

/// `M` and `E` at the segment borders for one cache.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// Misses by each border.
    pub misses: Vec<f64>,
    evictions: Vec<f64>,
    pub hazard: f64,
    /// Misses per reference at other times than a segment's own, where the run has a [`Memory`].
    far: f64,
    /// Misses per reference of the whole run.
    pub miss_ratio: f64,
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

/// Right side of the equation of one segment at one slope of `E`.
struct Exposed {
    misses: f64,
    /// With respect to the slope.
    derivative: f64,
}

/// Evictions per reference, as far as they concern reuses inside one segment.
#[derive(Clone, Copy)]
struct Rates<'a> {
    /// In the segment.
    slope: f64,
    /// In the run, which is where reuses longer than its memory were.
    far: f64,
    memory: Option<&'a Memory>,
}

impl Rates<'_> {
    /// Evictions of the part of a distance that is not near.
    fn beyond(&self, distance: f64) -> f64 {
        self.far * (distance - near(self.memory, distance))
    }

    /// Evictions over a distance that ends in the segment, and their derivative by its slope.
    fn over(&self, distance: f64) -> (f64, f64) {
        let near = near(self.memory, distance);
        (self.slope * near + self.far * (distance - near), near)
    }
}

/// Of the references from a touch to the next one of its line, that one included, the part in between: that one evicts nothing of its own.
fn between(apart: f64) -> f64 {
    (1.0 - 1.0 / apart.max(1.0)).max(0.0)
}

/// Part of a distance that was as at its end: all of it without a memory.
fn near(memory: Option<&Memory>, distance: f64) -> f64 {
    memory.map_or(distance, |memory| memory.near(distance))
}

impl Segment {
    /// `past[i]`: evictions when the line of `cross[i]` was touched, `None` inside this segment.
    fn exposed(
        &self,
        past: &[Option<f64>],
        h: f64,
        e0: f64,
        start: f64,
        rates: &Rates<'_>,
    ) -> Exposed {
        let slope = rates.slope;
        let mut sum = Exposed {
            misses: self.cold,
            derivative: 0.0,
        };
        if slope > 0.0 {
            for l in &self.local {
                let (exposure, lever) = rates.over(l.distance);
                let kept = exp_neg(h * exposure);
                sum.misses += l.weight * (1.0 - kept);
                sum.derivative += l.weight * h * lever * kept;
            }
        }
        for (c, before) in self.cross.iter().zip(past) {
            let (exposure, lever) = match before {
                None => rates.over(c.to - c.from),
                Some(before) => {
                    let near = e0 + slope * (c.to - start) - before;
                    (near + rates.beyond(c.to - c.from), c.to - start)
                }
            };
            let kept = exp_neg(h * exposure.max(0.0));
            sum.misses += c.weight * (1.0 - kept);
            sum.derivative += c.weight * h * lever * kept;
        }
        sum
    }
}

/// Evictions per miss.
fn share(evictions: f64, misses: f64) -> f64 {
    if misses > 0.0 {
        evictions / misses
    } else {
        0.0
    }
}

/// Derivatives of a segment's misses per reference.
struct Slopes {
    /// By evictions at its end and at its start.
    end: f64,
    begin: f64,
    /// By those before: of a segment, at its start and at its end.
    past: Vec<(usize, f64, f64)>,
}

impl Timeline {
    /// Solves random replacement segment by segment.
    pub fn random(&self, cache: &Cache) -> Solution {
        let h = hazard(cache.lines().0);
        let (mut evictions, mut course) = (vec![0.0], vec![0.0]);
        let mut misses = 0.0;
        let mut past = Vec::new();
        let memory = self.memory.as_ref();
        let far = memory.map_or(0.0, |m| m.far(cache));
        for (j, segment) in self.segments.iter().enumerate() {
            let (start, n) = (self.bounds[j], self.bounds[j + 1] - self.bounds[j]);
            past.clear();
            past.extend(segment.cross.iter().map(|c| {
                // None: all that is near is in this same segment, so it moves with the slope.
                let (from, k) = self.near_from(c);
                (from < start).then(|| self.interpolate(&evictions, k, from))
            }));
            let e0 = evictions[j];
            let full = evicted(misses, cache, self.fills).1 >= 1.0;
            let most = segment.cold + segment.reuses();
            let mut r = most;
            for _ in 0..64 {
                let slope = (evicted(misses + r * n, cache, self.fills).0 - e0) / n;
                let rates = Rates {
                    slope,
                    far: far * share(slope, r),
                    memory,
                };
                let at = segment.exposed(&past, h, e0, start, &rates);
                // Concave once full: Newton from above; while filling: the monotone iteration.
                let next = if full && at.derivative < 1.0 {
                    r - (r - at.misses) / (1.0 - at.derivative)
                } else {
                    at.misses
                };
                let next = next.max(segment.cold).min(most);
                let step = (next - r).abs();
                r = next;
                if step < 1e-7 {
                    break;
                }
            }
            misses += r * n;
            course.push(misses);
            evictions.push(evicted(misses, cache, self.fills).0);
        }
        Solution {
            misses: course,
            evictions,
            hazard: h,
            far,
            miss_ratio: if self.total() > 0.0 {
                (misses / self.total()).clamp(0.0, 1.0)
            } else {
                0.0
            },
        }
    }

    /// What one more miss in a segment adds to the run's misses, itself included: it evicts, and
    /// what it evicts misses later. The solution differentiated backwards in time.
    ///
    /// How much a segment amplifies its own misses is the mean of those of its shape: of a few samples' reuses some seem to go on
    /// for ever. (Three sweeps by turns, at two sizes told within 0.3 points: half widths of 1.3 to 4.8 points without, of 0.6 to 1.8 with it.)
    pub fn levers(&self, solution: &Solution, cache: &Cache) -> Vec<f64> {
        let count = self.segments.len();
        let slopes: Vec<Slopes> = (0..count).map(|j| self.slopes(solution, j)).collect();
        // References of each shape, and misses more for one more in them, summed.
        let mut feedback = vec![(0.0, 0.0); self.shapes.len()];
        for (j, segment) in self.segments.iter().enumerate() {
            let (refs, more) = &mut feedback[segment.shape];
            *refs += self.refs(j);
            *more += self.refs(j) * self.refs(j) * slopes[j].end;
        }
        let mut levers = vec![0.0; count];
        // Derivatives of the run's misses by M and by E at the borders.
        let (mut by_misses, mut by_evictions) = (vec![0.0; count + 1], vec![0.0; count + 1]);
        by_misses[count] = 1.0;
        for (j, Slopes { end, begin, past }) in slopes.into_iter().enumerate().rev() {
            let n = self.refs(j);
            let rate = evicted(solution.misses[j + 1], cache, self.fills).1;
            by_misses[j + 1] += by_evictions[j + 1] * rate;
            let (refs, more) = feedback[self.segments[j].shape];
            let gain = by_misses[j + 1] / (1.0 - more / refs * rate).max(1.0 / MAX_GAIN);
            levers[j] = gain.min(MAX_LEVER);
            let gain = levers[j] * n;
            by_misses[j] += by_misses[j + 1] + gain * end * rate;
            by_evictions[j] += gain * begin;
            for (k, at, after) in past {
                by_evictions[k] -= gain * at;
                by_evictions[k + 1] -= gain * after;
            }
        }
        levers
    }

    /// Derivatives of a segment's misses per reference by the evictions at its borders, the others fixed.
    fn slopes(&self, solution: &Solution, j: usize) -> Slopes {
        let (segment, h, e) = (&self.segments[j], solution.hazard, &solution.evictions);
        let (start, n) = (self.bounds[j], self.refs(j));
        let rates = self.rates(solution, j);
        let inside = |weight: f64, distance: f64| {
            let (exposure, lever) = rates.over(distance);
            weight * h * lever * exp_neg(h * exposure) / n
        };
        let local = segment.local.iter().map(|l| inside(l.weight, l.distance));
        let own: f64 = local.sum();
        let mut slopes = Slopes {
            end: own,
            begin: -own,
            past: Vec::with_capacity(segment.cross.len()),
        };
        for c in &segment.cross {
            let (from, k) = self.near_from(c);
            if from >= start {
                let lever = inside(c.weight, c.to - c.from);
                slopes.end += lever;
                slopes.begin -= lever;
                continue;
            }
            let k = k as usize;
            let f = (from - self.bounds[k]) / self.refs(k);
            let before = e[k] + f * (e[k + 1] - e[k]);
            let near = e[j] + rates.slope * (c.to - start) - before;
            let exposure = near + rates.beyond(c.to - c.from);
            let lever = c.weight * h * exp_neg(h * exposure.max(0.0));
            let part = (c.to - start) / n;
            slopes.end += lever * part;
            slopes.begin += lever * (1.0 - part);
            slopes.past.push((k, lever * (1.0 - f), lever * f));
        }
        slopes
    }

    /// Evictions per miss in a segment: less than one while the cache fills.
    pub fn evicting(&self, solution: &Solution, j: usize) -> f64 {
        share(
            solution.evictions[j + 1] - solution.evictions[j],
            solution.misses[j + 1] - solution.misses[j],
        )
    }

    /// Of a segment, solved.
    fn rates(&self, solution: &Solution, j: usize) -> Rates<'_> {
        let e = &solution.evictions;
        Rates {
            slope: (e[j + 1] - e[j]) / (self.bounds[j + 1] - self.bounds[j]),
            far: solution.far * self.evicting(solution, j),
            memory: self.memory.as_ref(),
        }
    }

    /// Misses per reference of each segment.
    pub fn random_ratios(&self, solution: &Solution) -> Vec<f64> {
        (0..self.segments.len())
            .map(|j| {
                (solution.misses[j + 1] - solution.misses[j])
                    / (self.bounds[j + 1] - self.bounds[j])
            })
            .collect()
    }

    /// Value at a time in segment `j`, of values at the borders; past the end on with the last slope.
    pub fn interpolate(&self, values: &[f64], j: u32, time: f64) -> f64 {
        let j = j as usize;
        let f = (time - self.bounds[j]) / (self.bounds[j + 1] - self.bounds[j]);
        values[j] + f * (values[j + 1] - values[j])
    }

    /// What values at the borders gain between touch and trigger of a sample.
    pub fn gained(&self, values: &[f64], p: &Placed, to: f64) -> f64 {
        self.interpolate(values, p.segment, to) - self.interpolate(values, p.from_segment, p.from)
    }

    /// Miss probability of a reuse from one time to another.
    pub fn random_miss(&self, solution: &Solution, from: f64, to: f64) -> f64 {
        let e = &solution.evictions;
        let at = |time: f64| self.interpolate(e, self.segment_of(time) as u32, time);
        let rates = self.rates(solution, self.segment_of(to));
        let near = near(self.memory.as_ref(), to - from);
        let exposure = (at(to) - at(to - near) + rates.beyond(to - from)) * between(to - from);
        1.0 - exp_neg(solution.hazard * exposure.max(0.0))
    }

    /// From when on what a reuse was exposed to was near: its touch, without a memory; and the segment of that.
    fn near_from(&self, c: &Cross) -> (f64, u32) {
        match &self.memory {
            None => (c.from, c.from_segment),
            Some(memory) => {
                let from = c.to - memory.near(c.to - c.from);
                (from, self.segment_of(from) as u32)
            }
        }
    }

    /// Distance, share of the segment's references and miss probability of its reuses.
    pub fn random_misses(&self, solution: &Solution, j: usize) -> Vec<[f64; 3]> {
        let (segment, e) = (&self.segments[j], &solution.evictions);
        let start = self.bounds[j];
        let rates = self.rates(solution, j);
        let missing = |exposure: f64| 1.0 - exp_neg(solution.hazard * exposure.max(0.0));
        let local = segment
            .local
            .iter()
            .map(|l| (l.distance, l.weight, rates.over(l.distance).0));
        let cross = segment.cross.iter().map(|c| {
            let distance = c.to - c.from;
            let (from, k) = self.near_from(c);
            let exposure = if from >= start {
                rates.over(distance).0
            } else {
                let before = self.interpolate(e, k, from);
                e[j] + rates.slope * (c.to - start) - before + rates.beyond(distance)
            };
            (distance, c.weight, exposure)
        });
        let reuse = |(distance, weight, exposure)| [distance, weight, missing(exposure)];
        local.chain(cross).map(reuse).collect()
    }

    /// Miss probability of a reuse at `to`.
    pub fn random_probability(&self, solution: &Solution, p: &Placed, to: f64) -> f64 {
        if self.memory.is_some() {
            return self.random_miss(solution, p.from, to);
        }
        let exposure = self.gained(&solution.evictions, p, to) * between(to - p.from);
        1.0 - exp_neg(solution.hazard * exposure.max(0.0))
    }
}

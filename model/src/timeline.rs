//! The time-varying form: one miss count `M(t)` over the run instead of one miss ratio.
//!
//! The run is cut into segments. A reuse triggered at `t` of a line touched at `p` was exposed to
//! `E(t) - E(p)` evictions with `E(t) = max(0, M(t) - L)` (nothing is evicted before the cache is
//! full), whatever the miss ratio did in between. Segments are solved in time order, each for its
//! own slope of `M`; first touches are misses where they happen. (Derived here; with one segment it is the paper's equation.)
//! The LRU side counts distinct lines between `p` and `t` segment by segment:
//! of the references at age `a` before `t`, those whose own next use lies beyond `t`.

use crate::bins::{self, BINS};
use crate::memory::Memory;
use crate::stack::{full_miss_fraction, miss_probability, shape};
use crate::{Cache, Policy};

mod normalise;
pub(crate) use normalise::SHORT;

/// A reuse whose line was touched in an earlier segment (or, kept singly, in this one).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cross {
    /// Time of the earlier touch, line references since the start.
    pub from: f64,
    /// Segment of the earlier touch.
    pub from_segment: u32,
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
    /// Expected distinct lines in between, and how far to both sides the bin spreads them.
    pub distinct: f64,
    pub spread: f64,
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

impl Segment {
    /// Sum of the weights of its reuses.
    pub fn reuses(&self) -> f64 {
        self.local.iter().map(|l| l.weight).sum::<f64>()
            + self.cross.iter().map(|c| c.weight).sum::<f64>()
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

    /// Smallest age by which so many lines are alive: the inverse of [`Shape::alive`].
    pub fn age_of(&self, lines: f64) -> f64 {
        let bin = self.integral.partition_point(|&x| x < lines);
        if bin == 0 {
            return 0.0;
        }
        if bin > BINS {
            return f64::INFINITY;
        }
        let (lower, upper) = (bins::lower_edge(bin - 1), bins::lower_edge(bin));
        let (a, b) = (self.integral[bin - 1], self.integral[bin]);
        lower + (upper - lower) * (lines - a) / (b - a)
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
    /// References within which a change of behaviour at the beginning of each segment is placed, about; none where they are not known.
    pub resolution: Vec<f64>,
    /// For each segment, the number of those whose reuses are scaled together ([`Timeline::normalise`]).
    pub block_of: Vec<usize>,
    /// For each segment, the one behind the last that has its shape without a break.
    same_until: Vec<usize>,
    /// Where the run goes on as in a segment for a while only, and as the whole run does in between.
    pub memory: Option<Memory>,
}

impl Timeline {
    /// Segments between these bounds.
    pub fn new(
        bounds: Vec<f64>,
        segments: Vec<Segment>,
        shapes: Vec<Shape>,
        fills: bool,
        memory: Option<Memory>,
    ) -> Timeline {
        Timeline {
            bounds,
            segments,
            shapes,
            fills,
            resolution: Vec::new(),
            block_of: Vec::new(),
            same_until: Vec::new(),
            memory,
        }
    }

    /// References of a segment.
    pub fn refs(&self, segment: usize) -> f64 {
        self.bounds[segment + 1] - self.bounds[segment]
    }

    /// References of the run.
    pub fn total(&self) -> f64 {
        self.bounds.last().copied().unwrap_or(0.0)
    }

    /// First touches of lines in the run.
    pub fn cold_touches(&self) -> f64 {
        self.bounds
            .windows(2)
            .zip(&self.segments)
            .map(|(b, s)| s.cold * (b[1] - b[0]))
            .sum()
    }

    /// The times by which one part in so many of them has been made, two, and so on to all but one.
    pub fn cold_quantiles(&self, parts: usize) -> Vec<f64> {
        let each = self.cold_touches() / parts as f64;
        let mut times = Vec::new();
        let mut made = 0.0;
        for (b, s) in self.bounds.windows(2).zip(&self.segments) {
            let here = s.cold * (b[1] - b[0]);
            while times.len() + 1 < parts && here > 0.0 {
                let more = (times.len() + 1) as f64 * each - made;
                if more > here {
                    break;
                }
                times.push(b[0] + (b[1] - b[0]) * more / here);
            }
            made += here;
        }
        times
    }

    /// Those of a part of it.
    pub fn cold_between(&self, from: f64, to: f64) -> f64 {
        let bounds = self.bounds.windows(2).zip(&self.segments);
        let part = |b: &[f64]| (b[1].min(to) - b[0].max(from)).max(0.0);
        bounds.map(|(b, s)| s.cold * part(b)).sum()
    }

    /// The segment a time lies in.
    pub fn segment_of(&self, time: f64) -> usize {
        self.bounds
            .partition_point(|&b| b <= time)
            .saturating_sub(1)
            .min(self.segments.len().saturating_sub(1))
    }

    /// Expected distinct lines touched between `from` and `to`, exclusive.
    pub fn distinct(&self, from: f64, to: f64) -> f64 {
        let (first, last) = (self.segment_of(from), self.segment_of(to));
        let shape = &self.shapes[self.segments[first].shape];
        let end = if first == last {
            to
        } else {
            self.bounds[first + 1]
        };
        let mut sum = -shape.own_share * (end - from - 1.0).max(0.0);
        let mut s = first;
        while s <= last {
            let shape = &self.shapes[self.segments[s].shape];
            let next = self.same_until[s];
            // Ages of these segments' references, seen from `to`.
            let oldest = (to - self.bounds[s].max(from + 1.0)).max(0.0);
            let youngest = if next > last {
                0.0
            } else {
                (to - self.bounds[next]).max(0.0)
            };
            sum += shape.alive(oldest) - shape.alive(youngest);
            s = next;
        }
        sum.max((to - from - 1.0).clamp(0.0, 1.0))
    }

    /// Distinct lines inside one segment's own stationary behaviour.
    pub fn local_distinct(&self, segment: usize, distance: f64) -> f64 {
        let shape = &self.shapes[self.segments[segment].shape];
        (shape.alive(distance) - shape.own_share * distance).max(distance.min(1.0))
    }

    /// LRU misses per reference of each segment; by chance more than one where reuses are scaled in blocks.
    pub fn lru_ratios(&self, cache: &Cache) -> Vec<f64> {
        let ratio = |(j, segment): (usize, &Segment)| {
            let reuses = self.lru_misses(cache, j).into_iter();
            let misses = reuses.map(|[_, share, miss]| share * miss).sum::<f64>();
            segment.cold + misses
        };
        self.segments.iter().enumerate().map(ratio).collect()
    }

    /// Distance, share of the segment's references and LRU miss probability of its reuses.
    pub fn lru_misses(&self, cache: &Cache, segment: usize) -> Vec<[f64; 3]> {
        debug_assert!(matches!(cache.policy, Policy::Lru { .. }));
        let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
        let miss = |l: &Local| {
            if sets <= 1.0 && !bins::is_exact(l.bin) {
                let (low, high) = (l.distinct - l.spread, l.distinct + l.spread);
                full_miss_fraction(low, high, ways as f64)
            } else {
                miss_probability(l.distinct, sets, ways)
            }
        };
        let segment = &self.segments[segment];
        let local = segment.local.iter();
        let cross = segment.cross.iter();
        let local = local.map(|l| [l.distance, l.weight, miss(l)]);
        local
            .chain(cross.map(|c| {
                let miss = miss_probability(c.distinct, sets, ways);
                [c.to - c.from, c.weight, miss]
            }))
            .collect()
    }

    /// What segments that hold a change of behaviour may be off by: such a segment is solved as a
    /// mixture of what lies before and after. With the change at a share `u` of it, at most
    /// `u(1-u)` of the difference times the largest sensitivity to exposure, `x exp(-x) <= 1/e`;
    /// over all places of the change 1/(6e). Ratio of the run.
    pub fn unresolved(&self, ratios: &[f64], levers: &[f64]) -> f64 {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (j, s) in self.segments.iter().enumerate() {
            match runs.last_mut() {
                Some((first, end)) if self.segments[*first].shape == s.shape => *end = j + 1,
                _ => runs.push((j, j + 1)),
            }
        }
        let mean = |&(a, b): &(usize, usize)| {
            let misses: f64 = (a..b).map(|j| ratios[j] * self.refs(j)).sum();
            misses / (self.bounds[b] - self.bounds[a]).max(f64::MIN_POSITIVE)
        };
        let sum: f64 = runs
            .windows(2)
            .map(|w| {
                let border = w[1].0;
                let within = self
                    .resolution
                    .get(border)
                    .map_or(f64::INFINITY, |r| 2.0 * r);
                let n = self.refs(border).min(within);
                levers[border] * n * (mean(&w[0]) - mean(&w[1])).abs()
            })
            .sum();
        sum / (6.0 * std::f64::consts::E) / self.total().max(1.0)
    }

    /// How much the solver amplifies noise in the miss probabilities, on average.
    pub fn gain(&self, levers: &[f64], ratios: &[f64]) -> f64 {
        let misses = (0..ratios.len()).map(|j| (levers[j], ratios[j] * self.refs(j)));
        let (gained, all) = misses.fold((0.0, 0.0), |(g, a), (l, m)| (g + l * m, a + m));
        if all > 0.0 { gained / all } else { 1.0 }
    }

    /// Misses per reference of the run, from those of its segments.
    pub fn mean(&self, ratios: &[f64]) -> f64 {
        let misses: f64 = self
            .bounds
            .windows(2)
            .zip(ratios)
            .map(|(b, r)| r * (b[1] - b[0]))
            .sum();
        if self.total() > 0.0 {
            (misses / self.total()).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Fills in the stack distances everywhere (after the shapes are in place).
    pub fn measure(&mut self) {
        self.same_until = vec![0; self.segments.len()];
        let mut until = self.segments.len();
        for j in (0..self.segments.len()).rev() {
            if until > j + 1 && self.segments[j].shape != self.segments[j + 1].shape {
                until = j + 1;
            }
            self.same_until[j] = until;
        }
        for j in 0..self.segments.len() {
            let mut local = std::mem::take(&mut self.segments[j].local);
            for l in &mut local {
                l.distinct = self.local_distinct(j, l.distance);
                let low = self.local_distinct(j, bins::lower_edge(l.bin));
                let high = self.local_distinct(j, bins::lower_edge(l.bin + 1));
                l.spread = (l.distinct - low).min(high - l.distinct).max(0.0);
            }
            self.segments[j].local = local;
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

#[cfg(test)]
mod tests;

//! Samples on the run's time axis, and what is prepared per line size and stream.

use std::sync::OnceLock;

use crate::agreement::Witnesses;
use crate::sparse::Sparse;
use crate::stack::{miss_probability, shape};
use crate::survival::{RunSize, Survival};
use crate::texture::{Counted, Gamma, Texture};
use crate::timeline::{Segment, Timeline};
use crate::{Cache, Outcome};

/// A sample reduced to one line size and stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its window's and its own index.
    pub window: u32,
    pub sample: u32,
    /// Where in its window it was taken, 0 to 1.
    pub fraction: f64,
    pub outcome: Outcome,
}

/// A sample on the time axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Its window's and its own index.
    pub window: u32,
    pub sample: u32,
    /// When it was taken, line references since the start of the run.
    pub from: f64,
    /// When its line was touched again; `None` for never and for censored.
    pub to: Option<f64>,
    /// Distance, or how long it was followed.
    pub distance: f64,
    /// References from its window's start, of the window, and of the window per sample (windows
    /// with gaps only).
    pub position: f64,
    pub window_refs: f64,
    pub per_sample: f64,
    /// References of the run it stands for; 0 where its weight went to others (censored).
    pub weight: f64,
    /// References it stands for as a taken sample, censored or not.
    pub raw: f64,
    pub censored: bool,
    /// Not seen: carries mass beyond the horizon, has no trigger.
    pub imputed: bool,
    /// Segment of the touch.
    pub from_segment: u32,
    /// Segment of the trigger, else of the touch.
    pub segment: u32,
}

/// The windows of one timeline: all of a run, or one thread's.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub timeline: Timeline,
    pub placed: Vec<Placed>,
    /// The whole run as one distribution.
    pub pooled: Survival,
    /// Only with gaps between windows.
    pub sparse: Option<Sparse>,
    /// Whether any outcome is known at all.
    pub complete: bool,
    /// References of the run it stands for.
    pub refs: f64,
    /// Lines it can have touched.
    pub lines: f64,
    pub kept: Kept,
}

/// What does not depend on the cache and is prepared when first asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Expected distinct lines inside each placed reuse (0 for others).
    distinct: OnceLock<(Vec<Gamma>, Option<Texture>)>,
    /// Which samples lie inside which others' intervals.
    witnesses: OnceLock<Witnesses>,
}

impl Group {
    /// Distinct lines between touch and trigger of each placed sample (0 for those without).
    pub fn distinct(&self) -> &[Gamma] {
        &self.lines_inside().0
    }

    /// How the samples found the stack distances, where they were asked.
    pub fn texture(&self) -> Option<&Texture> {
        self.lines_inside().1.as_ref()
    }

    fn lines_inside(&self) -> &(Vec<Gamma>, Option<Texture>) {
        self.kept.distinct.get_or_init(|| {
            let distinct = |p: &Placed| p.to.map_or(0.0, |to| self.timeline.distinct(p.from, to));
            let expected: Vec<f64> = self.placed.iter().map(distinct).collect();
            if self.sparse.is_some() || self.pooled.censored {
                return (expected.into_iter().map(Gamma::exact).collect(), None);
            }
            let reuses = counted_lines(&self.placed, &expected);
            let texture = Texture::fit(&reuses);
            let known = reuses.iter().map(|r| texture.posterior(r)).collect();
            (known, Some(texture))
        })
    }

    /// LRU misses per reference of each segment.
    pub fn lru_ratios(&self, cache: &Cache) -> Vec<f64> {
        if self.sparse.is_some() || self.pooled.censored {
            return self.timeline.lru_ratios(cache);
        }
        let segments = &self.timeline.segments;
        let mut sums = vec![(0.0, 0.0); segments.len()];
        for (p, lines) in self.placed.iter().zip(self.distinct()) {
            if p.to.is_some() && p.weight > 0.0 {
                let s = &mut sums[p.segment as usize];
                s.0 += p.weight;
                s.1 += p.weight * lru_miss(lines, p.distance, cache);
            }
        }
        let ratio = |(s, (all, misses)): (&Segment, (f64, f64))| {
            let reuses = if all > 0.0 { misses / all } else { 0.0 };
            (s.cold + (1.0 - s.cold) * reuses).clamp(0.0, 1.0)
        };
        segments.iter().zip(sums).map(ratio).collect()
    }

    /// Who can testify for whom.
    pub fn witnesses(&self) -> &Witnesses {
        self.kept.witnesses.get_or_init(|| Witnesses::new(self))
    }

    pub fn size(&self) -> RunSize {
        RunSize {
            refs: self.refs,
            lines: self.lines,
        }
    }
}

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

/// The lines inside each reuse as the samples inside count them: those not touched again before it ends.
fn counted_lines(placed: &[Placed], expected: &[f64]) -> Vec<Counted> {
    let by_trigger = {
        let mut order: Vec<usize> = (0..placed.len()).collect();
        let to = |i: usize| placed[i].to.unwrap_or(f64::INFINITY);
        order.sort_by(|&a, &b| to(a).total_cmp(&to(b)));
        order
    };
    // Samples still waiting, by the order of their touches: a Fenwick tree of weights and squares.
    let mut tree = vec![(0.0, 0.0); placed.len() + 1];
    let add = |tree: &mut Vec<(f64, f64)>, at: usize, sign: f64| {
        let w = placed[at].weight;
        let mut i = at + 1;
        while i < tree.len() {
            tree[i].0 += sign * w;
            tree[i].1 += sign * w * w;
            i += i & i.wrapping_neg();
        }
    };
    let up_to = |tree: &[(f64, f64)], end: usize| {
        let (mut i, mut sum) = (end, (0.0, 0.0));
        while i > 0 {
            sum = (sum.0 + tree[i].0, sum.1 + tree[i].1);
            i -= i & i.wrapping_neg();
        }
        sum
    };
    let mut reuses = vec![Counted::default(); placed.len()];
    let (mut armed, mut gone) = (0, 0);
    for &i in &by_trigger {
        let p = &placed[i];
        let Some(to) = p.to else { continue };
        // Times are whole numbers but for rounding; what happens at the trigger itself is not inside.
        let now = to - 0.5;
        while armed < placed.len() && placed[armed].from < now {
            add(&mut tree, armed, 1.0);
            armed += 1;
        }
        while let Some(&other) = by_trigger.get(gone)
            && placed[other].to.is_some_and(|end| end < now + 1.0)
        {
            add(&mut tree, other, -1.0);
            gone += 1;
        }
        let first = placed.partition_point(|other| other.from < p.from + 0.5);
        let (all, before) = (up_to(&tree, armed), up_to(&tree, first));
        reuses[i] = Counted {
            size: expected[i],
            expected: expected[i],
            counted: (all.0 - before.0).max(0.0),
            noise: (all.1 - before.1).max(0.0),
            one: p.weight,
            weight: p.weight,
        };
    }
    reuses
}

//! Samples on the run's time axis, and what is prepared per line size and stream.

use std::ops::Range;
use std::sync::OnceLock;

use crate::agreement::Witnesses;
use crate::counted;
use crate::hash::FastMap;
use crate::pairs::Pairs;
use crate::sparse::Sparse;
use crate::survival::{RunSize, Survival};
use crate::texture::{Gamma, Texture};
use crate::timeline::{Segment, Timeline};
use crate::{Cache, Outcome, Since};

/// A sample reduced to one line size and stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// References at this line size that one at 64-byte lines stands for, of accesses like it.
    pub share: f64,
    /// Its window's and its own index.
    pub window: u32,
    pub sample: u32,
    /// Where in its window it was taken, 0 to 1.
    pub fraction: f64,
    pub outcome: Outcome,
    /// See [`crate::Sample::given_up`].
    pub given_up: bool,
    /// See [`crate::Sample::refs`].
    pub refs: Option<f64>,
    /// The instruction that made the access and the data it touched.
    pub code: u64,
    /// Whether the line was lost before the trigger, which is later than `outcome` says.
    pub lost: bool,
}

/// A sample on the time axis.
#[derive(Clone, Copy, Debug, Default)]
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
    /// Censored in dependence on the distance ([`crate::Sample::given_up`]).
    pub given_up: bool,
    /// Not seen: carries mass beyond the horizon, has no trigger.
    pub imputed: bool,
    /// See [`Entry::code`]; and that which touched the line again, where it did so at `to`.
    pub code: u64,
    pub end_code: Option<u64>,
    /// Segment of the touch.
    pub from_segment: u32,
    /// Segment of the trigger, else of the touch.
    pub segment: u32,
}

/// First touches of windows with gaps between them.
#[derive(Clone, Debug)]
pub(crate) struct Firsts {
    pub placed: Vec<FirstPlaced>,
    /// By a window's index.
    pub windows: FastMap<u32, WindowKind>,
}

/// A first touch on the time axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstPlaced {
    /// Its window's and its own index.
    pub window: u32,
    pub touch: u32,
    /// References of the run it stands for.
    pub weight: f64,
    /// References of the window before it.
    pub position: f64,
    pub segment: u32,
}

/// What kind of window one is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowKind {
    /// Windows of the same number behave alike.
    pub cluster: usize,
    /// Whether first touches were looked for.
    pub looked: bool,
    /// References of the run it stands for, and its own.
    pub span: f64,
    pub refs: f64,
}

impl Firsts {
    /// References of the run that the parts of windows behind `position` stand for, where first touches were looked for.
    pub fn span_beyond(&self, position: f64) -> f64 {
        let looked = self
            .windows
            .values()
            .filter(|w| w.looked && w.refs > position);
        looked.map(|w| w.span * (1.0 - position / w.refs)).sum()
    }
}

/// First touches of epochs, in a run without gaps: returns to lines after one epoch or more, or for the first time.
#[derive(Clone, Debug)]
pub(crate) struct Returns {
    pub placed: Vec<ReturnPlaced>,
    /// When each epoch began, line references since the start of the run, and whether its first touches were looked for.
    pub epochs: Vec<(f64, bool)>,
    /// First touches in the run, of those that would be looked for.
    pub cold: f64,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnPlaced {
    /// Its window's and its own index.
    pub window: u32,
    pub touch: u32,
    /// How many of the run it stands for.
    pub weight: f64,
    /// Line references since the start of the run.
    pub at: f64,
    pub since: Since,
}

impl Returns {
    /// Part of the reuses like this one, at its distance and anywhere in the epoch that it ends in, that did not begin there, and would be looked for.
    /// Not whether it did itself: epochs begin where logs are read, which is behind samples, so that reuses of some thousand references seem to
    /// cross their borders many times too often.
    pub fn part(&self, p: &Placed, end: f64) -> f64 {
        let Some(to) = p.to else { return 0.0 };
        let ended = self.epochs.partition_point(|e| e.0 <= to);
        let Some(&(begun, true)) = ended.checked_sub(1).map(|at| &self.epochs[at]) else {
            return 0.0;
        };
        let next = self.epochs.get(ended).map_or(end, |epoch| epoch.0);
        // What ends in one that begins with the run began there.
        let within = if begun > 0.0 {
            next - begun
        } else {
            f64::INFINITY
        };
        (p.distance / within.max(1.0)).min(1.0)
    }
}

/// The windows of one timeline: all of a run, or one thread's.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub timeline: Timeline,
    pub placed: Vec<Placed>,
    /// The whole run as one distribution.
    pub pooled: Survival,
    /// The same with the watches given up touched again right then, and never; `None` where none was.
    pub extremes: Option<Box<[Survival; 2]>>,
    /// Only with gaps between windows.
    pub sparse: Option<Sparse>,
    /// Only with gaps, where windows were looked at for first touches.
    pub firsts: Option<Firsts>,
    /// Only without gaps, where they were looked for.
    pub returns: Option<Returns>,
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
    distinct: OnceLock<Vec<f64>>,
    /// The same, counted.
    counted: OnceLock<Option<(Texture, Vec<Gamma>)>>,
    /// How the samples lie to each other.
    pairs: OnceLock<Pairs>,
    /// Which samples lie inside which others' intervals.
    witnesses: OnceLock<Witnesses>,
}

impl Group {
    /// Expected distinct lines between touch and trigger of each placed sample (0 for others).
    pub fn distinct(&self) -> &[f64] {
        self.kept.distinct.get_or_init(|| {
            let distinct = |p: &Placed| p.to.map_or(0.0, |to| self.timeline.distinct(p.from, to));
            self.placed.iter().map(distinct).collect()
        })
    }

    /// Distinct lines inside each placed sample as the samples there count them; `None` with gaps
    /// between windows, and where watches were cut.
    fn counted(&self) -> Option<&(Texture, Vec<Gamma>)> {
        let count = || {
            let whole = self.sparse.is_none() && !self.pooled.censored && self.pairs().are_even();
            whole.then(|| {
                let reuses = counted::distinct_lines(&self.placed, self.pairs(), self.distinct());
                let texture = Texture::fit(&reuses);
                let lines = reuses.iter().map(|r| texture.posterior(r)).collect();
                (texture, lines)
            })
        };
        self.kept.counted.get_or_init(count).as_ref()
    }

    /// How far the expected distinct lines differ from those counted, where they were.
    pub fn texture(&self) -> Option<&Texture> {
        self.counted().map(|c| &c.0)
    }

    /// LRU miss ratio by the distinct lines counted; by those expected where none were.
    pub fn counted_miss_ratio(&self, cache: &Cache) -> f64 {
        let Some((_, lines)) = self.counted() else {
            return self.timeline.mean(&self.timeline.lru_ratios(cache));
        };
        let (segments, block_of) = (&self.timeline.segments, &self.timeline.block_of);
        let mut sums = vec![(0.0, 0.0); self.timeline.blocks()];
        for (p, lines) in self.placed.iter().zip(lines) {
            if p.to.is_some() && p.weight > 0.0 {
                let s = &mut sums[block_of[p.segment as usize]];
                s.0 += p.weight;
                s.1 += p.weight * counted::lru_miss(lines, p.distance, cache);
            }
        }
        let ratio = |(j, s): (usize, &Segment)| {
            let (all, misses) = sums[block_of[j]];
            let reuses = if all > 0.0 { misses / all } else { 0.0 };
            s.cold + (1.0 - s.cold) * reuses
        };
        let ratios: Vec<f64> = segments.iter().enumerate().map(ratio).collect();
        self.timeline.mean(&ratios)
    }

    /// Where a sample was taken, line references since the start of its window, or of the run without gaps.
    pub fn place(&self, p: &Placed) -> f64 {
        match self.sparse {
            Some(_) => p.position,
            None => p.from,
        }
    }

    /// The placed samples of each window.
    pub fn windows(&self) -> impl Iterator<Item = Range<u32>> {
        let mut end = 0;
        let windows = self.placed.chunk_by(|a, b| a.window == b.window);
        windows.map(move |window| {
            let begin = end;
            end += window.len() as u32;
            begin..end
        })
    }

    /// What pairs of samples count.
    pub fn pairs(&self) -> &Pairs {
        self.kept.pairs.get_or_init(|| {
            let windows = self.placed.chunk_by(|a, b| a.window == b.window);
            let windows: Vec<&[Placed]> = windows.collect();
            Pairs::measure(&windows, |p| self.place(p))
        })
    }

    /// Who can testify for whom.
    pub fn witnesses(&self) -> &Witnesses {
        self.kept.witnesses.get_or_init(|| Witnesses::new(self))
    }

    /// Part of the run that is in no window.
    pub fn unseen(&self) -> f64 {
        let windows = self.placed.chunk_by(|a, b| a.window == b.window);
        let seen: f64 = windows.map(|window| window[0].window_refs).sum();
        (1.0 - seen / self.refs.max(1.0)).clamp(0.0, 1.0)
    }

    pub fn size(&self) -> RunSize {
        RunSize {
            refs: self.refs,
            lines: self.lines,
        }
    }
}

/// Mean weight of the samples that have one.
pub(crate) fn mean_weight(placed: &[Placed]) -> f64 {
    let (mut n, mut w) = (0usize, 0.0);
    for p in placed.iter().filter(|p| p.weight > 0.0) {
        n += 1;
        w += p.weight;
    }
    if n == 0 { 1.0 } else { w / n as f64 }
}

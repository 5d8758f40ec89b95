//! Samples on the run's time axis, and what is prepared per line size and stream.

use std::sync::OnceLock;

use crate::Outcome;
use crate::agreement::Witnesses;
use crate::sparse::Sparse;
use crate::survival::{RunSize, Survival};
use crate::timeline::Timeline;

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
    distinct: OnceLock<Vec<f64>>,
    /// Which samples lie inside which others' intervals.
    witnesses: OnceLock<Witnesses>,
}

impl Group {
    /// Expected distinct lines between touch and trigger of each placed sample.
    pub fn distinct(&self) -> &[f64] {
        self.kept.distinct.get_or_init(|| {
            let distinct = |p: &Placed| p.to.map_or(0.0, |to| self.timeline.distinct(p.from, to));
            self.placed.iter().map(distinct).collect()
        })
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

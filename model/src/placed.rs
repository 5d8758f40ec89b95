//! Samples on the run's time axis, and what is prepared per line size and stream.

use crate::Outcome;
use crate::sparse::Sparse;
use crate::survival::Survival;
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
    pub entry: Entry,
    /// When it was taken, line references since the start of the run.
    pub from: f64,
    /// When its line was touched again; `None` for never and for censored.
    pub to: Option<f64>,
    /// Distance, or how long it was followed.
    pub distance: f64,
    /// References of the run it stands for; 0 where its weight went to others (censored).
    pub weight: f64,
    /// References it stands for as a taken sample, censored or not.
    pub raw: f64,
    pub censored: bool,
    /// Not seen: carries mass beyond the horizon, has no trigger.
    pub imputed: bool,
    /// Segment of the trigger, else of the sample.
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
}

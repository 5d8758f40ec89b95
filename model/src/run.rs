//! A run: its windows checked and prepared once, then asked any number of questions.

use std::sync::OnceLock;

use crate::prepare::{self, Stored};
use crate::view::View;
use crate::{Cache, CurvePoint, LineSize, ModelError, Policy, Stream, Window};

/// How a run was observed and how to treat it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seed of every random choice (bootstrap).
    pub seed: u64,
    /// The windows follow each other without a gap and watches cross their borders (`--full`).
    pub contiguous: bool,
    /// The windows represent the run from the process's first access, caches empty (false: attached).
    pub from_start: bool,
    /// Weigh all windows alike, as the paper does, instead of by what they stand for.
    pub plain_mean: bool,
    /// Memory the process can have touched, bytes (its peak size, where known): bounds how many
    /// lines can be touched for the first time where windows are too short to see.
    pub footprint_bytes: Option<u64>,
    /// Accesses that may have been made besides those that windows stand for, before the first or between them: of these nothing is known.
    pub unseen: f64,
    /// Accesses that are likely to have been made of a kind that no window shows: a standard error of what those come to that they show.
    pub overlooked: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            contiguous: false,
            from_start: true,
            plain_mean: false,
            footprint_bytes: None,
            unseen: 0.0,
            overlooked: 0.0,
        }
    }
}

/// Feeds windows one by one. Distances go into logarithmic bins at once; samples are kept only
/// where they are needed later (attribution, gapless runs).
#[derive(Clone, Debug)]
pub struct RunBuilder {
    windows: Vec<Stored>,
    options: Options,
    keep_samples: bool,
}

impl RunBuilder {
    /// Keeps the samples: everything can be asked.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            windows: Vec::new(),
            options,
            keep_samples: true,
        }
    }

    /// Keeps bins only, some ten kilobytes a window: curves, no attribution. A gapless run needs
    /// its samples and keeps them all the same.
    #[must_use]
    pub fn binned(options: Options) -> Self {
        Self {
            keep_samples: options.contiguous,
            ..Self::new(options)
        }
    }

    /// Adds a window, in any order.
    ///
    /// # Errors
    /// The [`ModelError`] naming the first bad value.
    pub fn push(&mut self, window: Window) -> Result<(), ModelError> {
        let index = self.windows.len();
        let bin = !self.options.contiguous;
        self.windows
            .push(Stored::new(index, window, self.keep_samples, bin)?);
        Ok(())
    }

    /// The run, ready to be asked.
    #[must_use]
    pub fn finish(self) -> Run {
        let mut windows = self.windows;
        windows.sort_by(|a, b| a.start.total_cmp(&b.start));
        Run {
            windows,
            options: self.options,
            views: Default::default(),
        }
    }
}

/// A run ready to be asked. Work is done at the first question about a line size and stream, and kept.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) windows: Vec<Stored>,
    options: Options,
    views: [OnceLock<View>; 15],
}

impl Run {
    /// Checks and prepares the windows (any order; sorted by `start`).
    ///
    /// # Errors
    /// The [`ModelError`] naming the first bad value.
    pub fn new(windows: Vec<Window>, options: Options) -> Result<Self, ModelError> {
        let mut builder = RunBuilder::new(options);
        for window in windows {
            builder.push(window)?;
        }
        Ok(builder.finish())
    }

    /// The options given.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Samples taken, over all windows.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.windows.iter().map(|w| w.count as u64).sum()
    }

    /// Forgets what was prepared for the questions asked so far (some 60 bytes a sample for each
    /// line size and stream); asking again prepares it anew.
    pub fn forget(&mut self) {
        self.views = Default::default();
    }

    pub(crate) fn view(&self, line: LineSize, stream: Stream) -> Result<&View, ModelError> {
        let slot = &self.views[line.index() * 3 + stream as usize];
        if let Some(view) = slot.get() {
            return Ok(view);
        }
        prepare::check_stream(&self.windows, stream)?;
        let seed = self.options.seed.wrapping_add(line.index() as u64);
        // Whoever asks at the same time waits: preparing twice costs more.
        Ok(slot.get_or_init(|| {
            let groups = prepare::groups(&self.windows, line, stream, &self.options);
            View::new(groups, line, seed, &self.options)
        }))
    }

    /// Miss-ratio curve at the sizes given (bytes), in their order.
    ///
    /// # Errors
    /// Bad line size, cache size or ways; all-thread stream not followed.
    pub fn curve(
        &self,
        line_bytes: u64,
        policy: Policy,
        stream: Stream,
        cache_sizes: &[u64],
    ) -> Result<Vec<CurvePoint>, ModelError> {
        let line = LineSize::from_bytes(line_bytes)?;
        let caches: Result<Vec<Cache>, ModelError> = cache_sizes
            .iter()
            .map(|&bytes| Cache::new(bytes, line, policy))
            .collect();
        let view = self.view(line, stream)?;
        let points = caches?.into_iter().map(|cache| (cache, view.point(&cache)));
        if stream != Stream::Private {
            return Ok(points.map(|(_, point)| point).collect());
        }
        let reuses = self.reuses(view, line);
        Ok(points
            .map(|(cache, own)| Self::with_coherence(view, &reuses, &cache, own))
            .collect())
    }

    /// Miss ratios of the three forms at one cache: whole run in one equation, window-wise,
    /// time-varying (the one reported). For judging the model.
    ///
    /// # Errors
    /// As [`Run::curve`].
    pub fn forms(
        &self,
        line_bytes: u64,
        cache_bytes: u64,
        policy: Policy,
        stream: Stream,
    ) -> Result<[f64; 3], ModelError> {
        let line = LineSize::from_bytes(line_bytes)?;
        let cache = Cache::new(cache_bytes, line, policy)?;
        let view = self.view(line, stream)?;
        let mut sums = [0.0; 3];
        let refs: f64 = view.groups.iter().map(|g| g.refs).sum();
        for i in 0..view.groups.len() {
            for (s, f) in sums.iter_mut().zip(view.forms(i, &cache)) {
                *s += f * view.groups[i].refs / refs.max(1.0);
            }
        }
        Ok(sums)
    }
}

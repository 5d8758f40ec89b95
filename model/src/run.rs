//! A run: its windows checked and prepared once, then asked any number of questions.

use std::sync::OnceLock;

use crate::placed::Group;
use crate::prepare::{self, Stored};
use crate::timeline::Solution;
use crate::{Cache, interval};
use crate::{CurvePoint, LineSize, ModelError, Policy, Stream, Weak, Window};

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
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            contiguous: false,
            from_start: true,
            plain_mean: false,
            footprint_bytes: None,
        }
    }
}

/// Samples below which any figure is weak. Source: ARCHITECTURE.md.
const WEAK_SAMPLES: u64 = 1000;
/// Sampling half width above which a curve point is weak.
const WEAK_HALF_WIDTH: f64 = 0.02;
/// What the linearised and bootstrapped standard errors fall short of the spread of repetitions.
/// Measured on the synthetic streams: 1.0 to 1.3 for random replacement; for LRU the stack
/// distances carry noise of their own.
const SPREAD_RANDOM: f64 = 1.2;
/// As [`SPREAD_RANDOM`], for LRU.
const SPREAD_LRU: f64 = 1.4;
/// Model allowance: constant part. Measured on the synthetic streams of `tests/` and `benches/`.
pub(crate) const ALLOWANCE: f64 = 0.001;
/// Model allowance: the equation's error is one of effective cache size; by this factor up and down.
pub(crate) const SIZE_FACTOR: f64 = 1.08;
/// Part of the disagreement of the three forms that is taken for a half width.
pub(crate) const DISAGREEMENT: f64 = 0.25;

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
    views: [OnceLock<View>; 10],
}

/// A run at one line size and stream.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub groups: Vec<Group>,
    pub whole: Vec<interval::Prepared>,
    replicates: Vec<Option<interval::Replicates>>,
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
        let slot = &self.views[line.index() * 2 + usize::from(stream == Stream::All)];
        if let Some(view) = slot.get() {
            return Ok(view);
        }
        let groups = prepare::groups(&self.windows, line, stream, &self.options)?;
        let whole = groups
            .iter()
            .map(|g| interval::Prepared::new(g.pooled.clone(), g.size()))
            .collect();
        let seed = self.options.seed.wrapping_add(line.index() as u64);
        let replicates = groups
            .iter()
            .map(|g| {
                g.sparse
                    .as_ref()
                    .map(|s| interval::Replicates::new(s, line, g.size(), seed))
            })
            .collect();
        Ok(slot.get_or_init(|| View {
            groups,
            whole,
            replicates,
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
        Ok(caches?.iter().map(|cache| view.point(cache)).collect())
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
            let (_, forms) = view.forms(i, &cache);
            for (s, f) in sums.iter_mut().zip(forms) {
                *s += f * view.groups[i].refs / refs.max(1.0);
            }
        }
        Ok(sums)
    }
}

/// The sum over the groups of one point's parts.
#[derive(Default)]
struct Sum {
    refs: f64,
    ratio: f64,
    variance: f64,
    model: f64,
    low: f64,
    high: f64,
    samples: f64,
    known: bool,
}

impl View {
    /// Line references of the run.
    pub fn refs(&self) -> f64 {
        self.groups.iter().map(|g| g.refs).sum()
    }

    /// Smallest distance whose miss probability exceeds one half, in the run's mean conditions.
    pub fn deadly_gap(&self, cache: &Cache) -> f64 {
        let known = self
            .whole
            .iter()
            .zip(&self.groups)
            .filter(|(_, g)| g.complete);
        known
            .map(|(whole, _)| deadly_gap(whole, cache))
            .fold(f64::INFINITY, f64::min)
    }

    /// Time-varying solution of a group, and the whole-run, window-wise, time-varying ratios.
    fn forms(&self, i: usize, cache: &Cache) -> (Option<Solution>, [f64; 3]) {
        let group = &self.groups[i];
        let (solution, varying) = match cache.policy {
            Policy::Random { .. } => {
                let s = group.timeline.random(cache);
                let ratio = s.miss_ratio;
                (Some(s), ratio)
            }
            Policy::Lru { .. } => (None, group.timeline.lru(cache)),
        };
        let whole = self.whole[i].miss_ratio(cache);
        let windows = self.replicates[i].as_ref().map_or(whole, |r| {
            interval::mixture_miss_ratio(&r.window_wise, cache)
        });
        (solution, [whole, windows, varying])
    }

    fn point(&self, cache: &Cache) -> CurvePoint {
        let mut sum = Sum::default();
        for (i, group) in self.groups.iter().enumerate() {
            if !group.complete || group.refs <= 0.0 {
                continue;
            }
            sum.known = true;
            self.add(i, group, cache, &mut sum);
        }
        sum.point(cache)
    }

    fn add(&self, i: usize, group: &Group, cache: &Cache, sum: &mut Sum) {
        let (solution, [whole, windows, varying]) = self.forms(i, cache);
        let mut error = match (&group.sparse, &self.replicates[i]) {
            (Some(sparse), Some(replicates)) => {
                // The far end of the tail, which few watches see, by Greenwood.
                let gap = deadly_gap(&self.whole[i], cache);
                let tail = group.pooled.variance_at(gap).sqrt();
                let sampling = replicates.standard_error(cache).max(tail);
                let weights = replicates.weight_error(sparse, cache, varying) / interval::Z95;
                sampling.hypot(weights)
            }
            _ => {
                let scores = interval::contiguous_standard_error(group, cache, solution.as_ref());
                if group.pooled.censored {
                    // The redistributed weight is itself estimated: Greenwood at the distance
                    // that decides.
                    let gap = deadly_gap(&self.whole[i], cache);
                    let tail = group.pooled.variance_at(gap).sqrt();
                    scores.max(tail * interval::gain(solution.as_ref()))
                } else {
                    scores
                }
            }
        };
        error *= match cache.policy {
            Policy::Random { .. } => SPREAD_RANDOM,
            Policy::Lru { .. } => SPREAD_LRU,
        };
        // Rule of three: no miss seen in n samples leaves up to 3/n.
        error = error.hypot(1.5 / interval::Z95 / group.pooled.samples.max(1) as f64);
        let wide = self.whole_at(i, cache, SIZE_FACTOR);
        let narrow = self.whole_at(i, cache, 1.0 / SIZE_FACTOR);
        let model = ALLOWANCE
            + DISAGREEMENT * (varying - whole).abs().max((varying - windows).abs())
            + 0.5 * (narrow - wide).abs();
        let (mut low, mut high) = (varying, varying);
        if group.pooled.undecided > 0.0 {
            let (at_once, never) = undecided(group, cache);
            // Where nothing is lost in a cache that holds all, the ratio itself is the bound.
            let shifted = (varying + (at_once - whole).min(0.0)).max(0.0);
            low = if at_once <= group.pooled.never {
                shifted.min(at_once)
            } else {
                shifted
            };
            high = (varying + (never - whole).max(0.0)).min(1.0);
            if group.pooled.steps.is_empty() {
                (low, high) = (at_once, never);
            }
        }
        let refs = group.refs;
        sum.refs += refs;
        sum.ratio += refs * varying;
        sum.variance += (refs * error).powi(2);
        sum.model += refs * model;
        sum.low += refs * low;
        sum.high += refs * high;
        sum.samples += group.pooled.samples as f64;
    }

    /// Whole-run ratio of a cache of another size.
    fn whole_at(&self, i: usize, cache: &Cache, factor: f64) -> f64 {
        let line = u64::from(cache.line_size.bytes());
        let bytes = ((cache.size.0 as f64 * factor) as u64).max(line);
        match Cache::new(bytes, cache.line_size, fitting(cache.policy, bytes / line)) {
            Ok(other) => self.whole[i].miss_ratio(&other),
            Err(_) => self.whole[i].miss_ratio(cache),
        }
    }
}

/// Smallest distance whose miss probability exceeds one half in one distribution.
fn deadly_gap(whole: &interval::Prepared, cache: &Cache) -> f64 {
    let lines = cache.lines().0;
    match cache.policy {
        Policy::Random { .. } => {
            let rate = crate::equation::hazard(lines) * whole.miss_ratio(cache);
            std::f64::consts::LN_2 / rate.max(f64::MIN_POSITIVE)
        }
        Policy::Lru { ways } => {
            let (sets, in_set) = crate::stack::shape(lines, ways);
            let miss = |d: f64| crate::stack::miss_probability(whole.stack.at(d), sets, in_set);
            (0..crate::bins::BINS)
                .map(crate::bins::lower_edge)
                .find(|&d| miss(d) > 0.5)
                .unwrap_or(f64::INFINITY)
        }
    }
}

/// A policy whose ways fit the lines there are.
fn fitting(policy: Policy, lines: u64) -> Policy {
    let clip = |ways: Option<u32>| ways.map(|w| w.min(u32::try_from(lines).unwrap_or(u32::MAX)));
    match policy {
        Policy::Random { ways } => Policy::Random { ways: clip(ways) },
        Policy::Lru { ways } => Policy::Lru { ways: clip(ways) },
    }
}

/// Ratios with the undecided mass reused at once, and never.
fn undecided(group: &Group, cache: &Cache) -> (f64, f64) {
    use crate::equation::{Undecided, random_miss_ratio};
    let lines = cache.lines().0;
    if group.pooled.steps.is_empty() {
        return (0.0, 1.0);
    }
    // Reused at once, the run would know no more lines than these; a cache that holds them all
    // never evicts.
    let known = crate::StackDistance::new(&group.pooled).at(group.pooled.horizon);
    if group.timeline.fills && lines as f64 >= known {
        return (group.pooled.never, never_reused(group, cache));
    }
    let at_once = match cache.policy {
        Policy::Random { .. } => random_miss_ratio(&group.pooled, lines, Undecided::AtHorizon),
        Policy::Lru { ways } => crate::stack::lru_miss_ratio(&group.pooled, lines, ways, false),
    };
    (at_once, never_reused(group, cache))
}

/// Ratio with the undecided mass never reused.
fn never_reused(group: &Group, cache: &Cache) -> f64 {
    let lines = cache.lines().0;
    match cache.policy {
        Policy::Random { .. } => {
            crate::random_miss_ratio(&group.pooled, lines, crate::Undecided::Never)
        }
        Policy::Lru { ways } => crate::stack::lru_miss_ratio(&group.pooled, lines, ways, true),
    }
}

impl Sum {
    fn point(self, cache: &Cache) -> CurvePoint {
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
        let sampling = interval::Z95 * self.variance.sqrt() / self.refs;
        let model = self.model / self.refs;
        let half = sampling + model;
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
            model_half_width: model,
            undecided: open.then_some((self.low / self.refs, self.high / self.refs)),
            weak,
        }
    }
}

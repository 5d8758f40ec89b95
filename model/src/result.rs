//! What is handed back: curve points, per-key figures and their intervals.

use crate::point::WEAK_HALF_WIDTH;
use crate::sample::Key;

/// Width of an interval from which on a curve's point says little, whatever it is of.
const WIDE: f64 = 0.2;

/// Too few samples to lean on, and how many would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weak {
    /// Samples behind the figure.
    pub samples: u64,
    /// Samples at which the figure would no longer be weak (same program, same options).
    pub needed: u64,
}

/// One point of a miss-ratio curve. `low <= miss_ratio <= high`, all within 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Cache size asked for.
    pub cache_bytes: u64,
    /// Misses per line reference.
    pub miss_ratio: f64,
    /// Lower end of the interval (sampling and model part together, undecided tail included).
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Half width of the 94 % sampling part alone.
    pub sampling_half_width: f64,
    /// Half width of the model part alone.
    pub model_half_width: f64,
    /// Where watches were cut too early to decide this size: the ratio if every undecided sample
    /// were reused at once, and if none ever were. `None` when the data decide.
    pub undecided: Option<(f64, f64)>,
    /// Set when the sample base is too thin for this figure.
    pub weak: Option<Weak>,
}

impl CurvePoint {
    /// Whether watches ended too early to say much of this size.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        let open = |(low, high): (f64, f64)| high - low > 2.0 * WEAK_HALF_WIDTH;
        self.undecided.is_some_and(open)
    }

    /// Whether the figure says little, because samples are few, because watches ended before this size was decided, or because its interval
    /// is wide for any other reason.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.weak.is_some() || self.is_undecided() || self.high - self.low > WIDE
    }
}

/// One access site, sampled or triggering, as the closure that chooses keys sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The instruction.
    pub instr: Key,
    /// The data object (of the line, for a trigger: that of its sample).
    pub data: Key,
    /// The thread.
    pub thread: Key,
    /// Index of the window in which the sample was taken, as given to `Run::new`.
    pub window: usize,
}

/// A reuse edge: where the data that a key touches were touched last.
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseFrom<K> {
    /// Key of the sample (the earlier access).
    pub key: K,
    /// Share of the reuses triggered by the later key that come from here.
    pub share: f64,
    /// Mean miss probability of those reuses.
    pub miss_ratio: f64,
}

/// Figures of one key at one cache.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFigures<K> {
    /// The key.
    pub key: K,
    /// Samples taken at it: the base of its share of accesses.
    pub samples: u64,
    /// Reuses of sampled lines triggered by it, and first touches by it of lines in windows: the base of its miss ratio.
    pub triggered: u64,
    /// Line references made here over the run, estimated.
    pub references: f64,
    /// Misses here over the run, estimated.
    pub misses: f64,
    /// Share of the run's line references made here.
    pub access_share: f64,
    /// Its misses per its line references.
    pub miss_ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Share of the run's misses made here.
    pub miss_share: f64,
    /// Where its data were touched last, largest share first.
    pub reuse_from: Vec<ReuseFrom<K>>,
    /// Part of the misses of its reuses for which that was seen, 0 to 1: of lines that windows with gaps between them see touched for the first
    /// time it was not.
    pub from_known: f64,
    /// Set when the sample base is too thin.
    pub weak: Option<Weak>,
}

/// Attribution of a run at one cache, most misses first.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution<K> {
    /// Per key, most misses first.
    pub keys: Vec<KeyFigures<K>>,
    /// Line size, bytes.
    pub line_bytes: u32,
    /// The run's miss ratio as the sum of the keys.
    pub miss_ratio: f64,
    /// Share of the misses that no key could be found for (first touches without a home).
    pub unattributed_share: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_open_is_weak_however_many_samples_there_are() {
        let point = |undecided| CurvePoint {
            cache_bytes: 1 << 20,
            miss_ratio: 0.1,
            low: 0.05,
            high: 0.2,
            sampling_half_width: 0.001,
            model_half_width: 0.001,
            undecided,
            weak: None,
        };
        assert!(!point(None).is_weak());
        assert!(!point(Some((0.09, 0.12))).is_weak());
        assert!(point(Some((0.05, 0.2))).is_weak());
        let wide = CurvePoint {
            high: 0.3,
            ..point(None)
        };
        assert!(wide.is_weak());
    }
}

//! What can be wrong with the input: one typed error, each naming the offending value.

/// Why a question cannot be answered as it was put.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Line sizes are powers of two.
    #[error("line size of {0} bytes is not a power of two: use 16, 32, 64, 128 or 256")]
    LineSizeNotPowerOfTwo(u64),
    /// A power of two, but not one of those followed.
    #[error("line size of {0} bytes is not followed: use 16, 32, 64, 128 or 256")]
    LineSizeNotFollowed(u64),
    /// A cache holds at least one line.
    #[error("cache of {cache_bytes} bytes is smaller than one line of {line_bytes} bytes")]
    CacheSmallerThanLine {
        /// Cache size asked for, bytes.
        cache_bytes: u64,
        /// Line size, bytes.
        line_bytes: u32,
    },
    /// A set holds at least one line and no more than the cache.
    #[error("{ways} ways do not fit a cache of {lines} lines: use 1 to {lines}")]
    BadWays {
        /// Ways asked for.
        ways: u32,
        /// Lines of the cache.
        lines: u64,
    },
    /// Weights are finite and not negative.
    #[error("{what} is {value}: a finite number of at least 0 is needed")]
    BadWeight {
        /// Which weight.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// Sums and squares of weights must stay numbers.
    #[error("{what} is {value}: more than {most:e} is no weight")]
    WeightTooLarge {
        /// Which weight.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The largest there is.
        most: f64,
    },
    /// `low <= value <= high` does not hold.
    #[error("{what} of {value} lies outside its bounds {low} to {high}")]
    BadBounds {
        /// Which estimate.
        what: &'static str,
        /// Best value.
        value: f64,
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// A sample's position lies outside its window.
    #[error("window {window}: a sample at position {position} of {refs} line references")]
    PositionOutsideWindow {
        /// Index of the window as given.
        window: usize,
        /// Position of the sample, references at 64-byte lines.
        position: u64,
        /// References of the window at 64-byte lines.
        refs: u64,
    },
    /// A window holds samples but no references at their line size.
    #[error("window {window}: samples but no line references at {line_bytes} bytes")]
    NoReferences {
        /// Index of the window as given.
        window: usize,
        /// Line size, bytes.
        line_bytes: u32,
    },
    /// Two things that must be of one line size are not.
    #[error("line sizes of {0} and {1} bytes cannot be mixed")]
    MixedLineSizes(u32, u32),
    /// The all-thread stream was asked for and the samples do not carry it.
    #[error("the samples carry no all-thread outcomes")]
    NoAllThreadOutcomes,
}

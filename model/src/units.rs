//! Quantities with their units, so that bytes, lines and accesses cannot be mixed up.

use crate::ModelError;

/// Data references (memory operands of executed instructions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Accesses(pub u64);

/// Cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lines(pub u64);

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Misses per line reference, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct MissRatio(f64);

impl MissRatio {
    /// Clamps rounding residue into [0, 1].
    ///
    /// # Errors
    /// [`ModelError::BadWeight`] when `ratio` is not finite.
    pub fn new(ratio: f64) -> Result<Self, ModelError> {
        if !ratio.is_finite() {
            return Err(ModelError::BadWeight {
                what: "miss ratio",
                value: ratio,
            });
        }
        Ok(Self(ratio.clamp(0.0, 1.0)))
    }

    /// The ratio.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// How much a sample or a window counts: finite, not negative.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Weight(f64);

impl Weight {
    /// One observation.
    pub const ONE: Weight = Weight(1.0);
    /// The largest: squares and sums of it are still numbers.
    pub(crate) const MOST: f64 = 1e30;
    /// The least that is not nothing, for the same reason.
    const LEAST: f64 = 1e-30;

    /// Less than 1e-30 counts as nothing.
    ///
    /// # Errors
    /// [`ModelError::BadWeight`] when negative or not finite, [`ModelError::WeightTooLarge`] above 1e30.
    pub fn new(value: f64) -> Result<Self, ModelError> {
        Self::check("weight", value).map(Self)
    }

    pub(crate) fn check(what: &'static str, value: f64) -> Result<f64, ModelError> {
        if !value.is_finite() || value < 0.0 {
            return Err(ModelError::BadWeight { what, value });
        }
        if value > Self::MOST {
            let most = Self::MOST;
            return Err(ModelError::WeightTooLarge { what, value, most });
        }
        Ok(if value < Self::LEAST { 0.0 } else { value })
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// One of the five line sizes every sample is followed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LineSize {
    /// 16 bytes.
    B16,
    /// 32 bytes.
    B32,
    /// 64 bytes, the default view.
    B64,
    /// 128 bytes.
    B128,
    /// 256 bytes.
    B256,
}

impl LineSize {
    /// All, smallest first; the order of every `[T; 5]` in this crate.
    pub const ALL: [LineSize; 5] = [Self::B16, Self::B32, Self::B64, Self::B128, Self::B256];

    /// From bytes.
    ///
    /// # Errors
    /// [`ModelError::LineSizeNotPowerOfTwo`], [`ModelError::LineSizeNotFollowed`].
    pub fn from_bytes(bytes: u64) -> Result<Self, ModelError> {
        match bytes {
            16 => Ok(Self::B16),
            32 => Ok(Self::B32),
            64 => Ok(Self::B64),
            128 => Ok(Self::B128),
            256 => Ok(Self::B256),
            b if b.is_power_of_two() => Err(ModelError::LineSizeNotFollowed(b)),
            b => Err(ModelError::LineSizeNotPowerOfTwo(b)),
        }
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        16 << self.index()
    }

    /// Position in [`LineSize::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// How a cache chooses its victim, and among how many lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A random line of the set; `ways: None` is fully associative.
    Random {
        /// Lines per set.
        ways: Option<u32>,
    },
    /// The line of the set not touched for longest; `ways: None` is fully associative.
    Lru {
        /// Lines per set.
        ways: Option<u32>,
    },
}

impl Policy {
    /// Fully associative, random replacement: the cache of the StatCache paper.
    pub const RANDOM: Policy = Policy::Random { ways: None };
    /// Fully associative, least recently used.
    pub const LRU: Policy = Policy::Lru { ways: None };

    /// Lines per set, `None` when fully associative.
    #[must_use]
    pub fn ways(self) -> Option<u32> {
        match self {
            Policy::Random { ways } | Policy::Lru { ways } => ways,
        }
    }
}

/// A cache to ask about, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    /// Capacity.
    pub size: Bytes,
    /// Line size.
    pub line_size: LineSize,
    /// Replacement and associativity.
    pub policy: Policy,
}

impl Cache {
    /// Checks size and ways. A size that is no multiple of the line holds the whole lines in it.
    ///
    /// # Errors
    /// [`ModelError::CacheSmallerThanLine`], [`ModelError::BadWays`].
    pub fn new(cache_bytes: u64, line_size: LineSize, policy: Policy) -> Result<Self, ModelError> {
        let lines = cache_bytes / u64::from(line_size.bytes());
        if lines == 0 {
            return Err(ModelError::CacheSmallerThanLine {
                cache_bytes,
                line_bytes: line_size.bytes(),
            });
        }
        match policy.ways() {
            Some(ways) if ways == 0 || u64::from(ways) > lines => {
                Err(ModelError::BadWays { ways, lines })
            }
            _ => Ok(Self {
                size: Bytes(cache_bytes),
                line_size,
                policy,
            }),
        }
    }

    /// The same cache at another capacity: at least a line, no more ways than lines.
    pub(crate) fn resized(&self, cache_bytes: u64) -> Self {
        let bytes = cache_bytes.max(u64::from(self.line_size.bytes()));
        let lines = bytes / u64::from(self.line_size.bytes());
        let clip = |ways: Option<u32>| ways.map(|w| w.min(u32::try_from(lines).unwrap_or(w)));
        let policy = match self.policy {
            Policy::Random { ways } => Policy::Random { ways: clip(ways) },
            Policy::Lru { ways } => Policy::Lru { ways: clip(ways) },
        };
        Self {
            size: Bytes(bytes),
            line_size: self.line_size,
            policy,
        }
    }

    /// Capacity in lines, at least 1.
    #[must_use]
    pub fn lines(&self) -> Lines {
        Lines(self.size.0 / u64::from(self.line_size.bytes()))
    }

    /// Sets as a real number (a capacity need not be a multiple of the ways); 1 when fully associative.
    #[must_use]
    pub fn sets(&self) -> f64 {
        match self.policy.ways() {
            Some(ways) => self.lines().0 as f64 / f64::from(ways),
            None => 1.0,
        }
    }
}

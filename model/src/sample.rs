//! What is fed in: windows and their samples, in this crate's own plain types.
//!
//! Keys are opaque: the caller numbers its instructions, data objects and threads as it likes.

use crate::ModelError;

/// An opaque name for an instruction, a data object or a thread: an index into the caller's table.
pub type Key = u32;

/// The access that touched a watched line again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// The instruction.
    pub instr: Key,
    /// The thread.
    pub thread: Key,
    /// Whether it wrote.
    pub store: bool,
}

/// How the watch of a sample ended at one line size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The line was touched again.
    Reused {
        /// Line references strictly between the two, at this line size (adjacent: 0).
        distance: u64,
        /// Who touched it.
        trigger: Trigger,
    },
    /// We ended the watch after this many line references without a touch: `distance >= at`.
    Censored {
        /// Line references after the sampled one.
        at: u64,
    },
    /// The process ended and the line had not been touched again.
    NeverReused {
        /// Line references after the sampled one until the end.
        at: u64,
    },
    /// Not followed at this line size; says nothing.
    NotFollowed,
}

/// Load, store or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads.
    #[default]
    Load,
    /// Writes.
    Store,
    /// Reads and writes (read-modify-write).
    Modify,
}

/// What remote threads did to the line between the sample and its own-thread reuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Some other thread read it.
    pub read: bool,
    /// Some other thread wrote it: the private copy was lost.
    pub written: bool,
    /// Every remote write was to bytes that neither of our two accesses touched.
    pub disjoint: bool,
}

/// A remote access that took a line from a private cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// The instruction that wrote.
    pub instr: Key,
    /// The thread it ran in.
    pub thread: Key,
}

/// One sampled line reference and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// References at 64-byte lines since the start of the window.
    pub position: u64,
    /// Effective address.
    pub address: u64,
    /// Bytes accessed.
    pub size: u16,
    /// Load, store or both.
    pub kind: Kind,
    /// The instruction that made the sampled access.
    pub instr: Key,
    /// The data object it touched.
    pub data: Key,
    /// The thread that made it.
    pub thread: Key,
    /// Outcome counted in the thread's own references, per line size.
    pub own: [Outcome; 5],
    /// Outcome counted in all threads' references, where followed.
    pub all: Option<Box<[Outcome; 5]>>,
    /// What other threads did to the line meanwhile, where followed (per line size).
    pub remote: Option<Box<[Remote; 5]>>,
    /// Who wrote to the 64-byte line last before the own-thread reuse, where that is known.
    pub writer: Option<Writer>,
    /// Its watch was given up for a reason of its line (a page too hot to watch): what is
    /// [`Outcome::Censored`] then was cut in dependence on the distance. Estimates take it for any
    /// other cut; intervals hold both extremes, touched again right then and never again.
    pub given_up: bool,
    /// References at 64-byte lines that it stands for, where the references of its window were not all sampled alike. Contiguous windows
    /// only.
    pub refs: Option<f64>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            position: 0,
            address: 0,
            size: 8,
            kind: Kind::Load,
            instr: 0,
            data: 0,
            thread: 0,
            own: [Outcome::NotFollowed; 5],
            all: None,
            remote: None,
            writer: None,
            given_up: false,
            refs: None,
        }
    }
}

/// A value with the bounds its giver vouches for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Best value.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Estimate {
    /// Known exactly.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    pub(crate) fn check(self, what: &'static str) -> Result<Self, ModelError> {
        let check = |value| crate::Weight::check(what, value);
        let cleaned = Self {
            value: check(self.value)?,
            low: check(self.low)?,
            high: check(self.high)?,
        };
        if self.low > self.value || self.value > self.high {
            return Err(ModelError::BadBounds {
                what,
                value: self.value,
                low: self.low,
                high: self.high,
            });
        }
        Ok(cleaned)
    }
}

/// One sampling window. A sample belongs to the window it was *taken* in, also where its watch
/// ended in a later one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Orders the windows in time; any unit (seconds of the run, for instance).
    pub start: f64,
    /// The thread it observed.
    pub thread: Key,
    /// Accesses executed inside.
    pub accesses: u64,
    /// Line references inside, per line size.
    pub refs: [u64; 5],
    /// Accesses of the run it stands for. With contiguous windows: its own.
    pub stands_for: Estimate,
    /// How many looks at where the program was between windows it stands for, if what windows stand for is told by looks. `None`: where the
    /// run changed its ways between two windows, no more is known than that.
    pub looks: Option<f64>,
    /// Samples taken in it.
    pub samples: Vec<Sample>,
    /// First touches of lines in it, where they were looked for.
    pub first_touches: Option<FirstTouches>,
}

/// Accesses of a window that were the first ones to their 64-byte lines there: some, drawn at random.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirstTouches {
    /// Those drawn.
    pub touches: Vec<FirstTouch>,
    /// How many of the window's each of them stands for.
    pub each: f64,
    /// Empty where they are the first in the window. With contiguous windows, 64-byte references since the start of the window before each
    /// *epoch* that began in it, the first of them 0: they are the first touches in their epoch.
    pub epochs: Vec<u64>,
}

/// The first access of a window to a 64-byte line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstTouch {
    /// References at 64-byte lines since the start of the window, before it.
    pub position: u64,
    /// The instruction.
    pub instr: Key,
    /// The data object.
    pub data: Key,
    /// How far away the touch of the line before is, where there are epochs.
    pub since: Since,
}

/// References at 64-byte lines since a line was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// At least so many, or it never was.
    AtLeast(u64),
    /// At least and at most so many.
    Between(u64, u64),
}

impl Default for Since {
    fn default() -> Self {
        Self::AtLeast(0)
    }
}

/// Which references a distance counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The thread's own.
    #[default]
    Own,
    /// The thread's own, and a reuse lost to a remote write misses: private caches.
    Private,
    /// All threads': shared caches.
    All,
}

//! What code caches are for: one observes, another only counts.

use super::trace::Lengths;
use crate::arch::Fast;

/// What fragments do about their accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Log what gives their addresses and look these up among the watched lines.
    Observe {
        /// What the processor is fast at.
        fast: Fast,
    },
    /// Count them, in the spare register. There is no log.
    Count,
}

impl Duty {
    /// How long traces are.
    pub fn lengths(self) -> Lengths {
        match self {
            Duty::Observe { .. } => Lengths::LOGGED,
            Duty::Count => Lengths::COUNTED,
        }
    }
}

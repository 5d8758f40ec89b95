//! Limits that a comparison may be held to, and whether it keeps to them.
//!
//! **Invariant:** a limit is met only where all of the figure's interval lies beyond it. What may be chance
//! never fails a check; that the value alone lies beyond is said, as more samples may tell.

use super::change::{Change, Figure};
use super::{AtSize, Diff};

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Misses per line reference of a cache.
    MissRatio,
    /// Misses of the whole run in a cache.
    Misses,
    /// Accesses of the whole run.
    Accesses,
}

/// The side of a limit on which it is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Above it.
    Above,
    /// Below it.
    Below,
}

/// What is held against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The change: of a miss ratio the difference, of misses and accesses the factor less 1.
    Change,
    /// The second run's miss ratio itself.
    After,
}

/// A limit, as `miss_ratio@1M>+0.5%` is.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// As it was written.
    pub text: String,
    /// What it is on.
    pub metric: Metric,
    /// The cache size in bytes; `None`: each that the comparison is asked for, or it is on accesses.
    pub cache_bytes: Option<u64>,
    /// Where it is met.
    pub side: Side,
    /// What is held against it.
    pub of: Of,
    /// The limit, as a part of 1.
    pub at: f64,
}

/// How a figure stands to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of its interval is beyond.
    Met,
    /// Its value is beyond, a part of its interval is not.
    NotSure,
    /// Its value is not beyond.
    NotMet,
    /// There is no such figure: nothing missed, or nothing was accessed, in either run.
    Unknown,
}

/// A limit at one cache size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// The size in bytes; `None` for accesses.
    pub cache_bytes: Option<u64>,
    /// The figure of both runs.
    pub before: Figure,
    /// The figure of both runs.
    pub after: Figure,
    /// What was held against the limit; `None` where it is unknown.
    pub found: Option<Change>,
    /// How it stands to it.
    pub outcome: Outcome,
}

impl Limit {
    /// Holds a comparison to the limit, at each size that it is for, in the order of the sizes.
    #[must_use]
    pub fn judge(&self, diff: &Diff) -> Vec<Judged> {
        if self.metric == Metric::Accesses {
            let accesses = &diff.accesses;
            return vec![self.judged(None, accesses.before, accesses.after, accesses.change)];
        }
        let wanted = |at: &&AtSize| match self.cache_bytes {
            Some(bytes) => at.cache_bytes() == bytes,
            None => at.asked,
        };
        let sizes = diff.sizes.iter().filter(wanted);
        let judged = sizes.map(|at| {
            let bytes = Some(at.cache_bytes());
            let (before, after) = (Figure::from(&at.before), Figure::from(&at.after));
            match (self.metric, self.of) {
                (Metric::Misses, _) => {
                    let misses = &at.misses;
                    self.judged(bytes, misses.before, misses.after, misses.change)
                }
                (_, Of::Change) => self.judged(bytes, before, after, Some(at.ratio)),
                (_, Of::After) => {
                    let itself = Change {
                        value: after.value,
                        low: after.low,
                        high: after.high,
                    };
                    self.judged(bytes, before, after, Some(itself))
                }
            }
        });
        judged.collect()
    }

    fn judged(
        &self,
        cache_bytes: Option<u64>,
        before: Figure,
        after: Figure,
        found: Option<Change>,
    ) -> Judged {
        Judged {
            cache_bytes,
            before,
            after,
            found,
            outcome: found.map_or(Outcome::Unknown, |found| self.outcome(found)),
        }
    }

    /// How a figure stands to the limit; one whose interval touches it is not all beyond.
    #[must_use]
    pub fn outcome(&self, found: Change) -> Outcome {
        let (is_beyond, is_all) = match self.side {
            Side::Above => (found.value > self.at, found.low > self.at),
            Side::Below => (found.value < self.at, found.high < self.at),
        };
        match (is_all, is_beyond) {
            (true, _) => Outcome::Met,
            (false, true) => Outcome::NotSure,
            (false, false) => Outcome::NotMet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_met_by_whole_intervals_only() {
        let outcome = |side, [value, low, high]: [f64; 3]| {
            let limit = Limit {
                text: String::new(),
                metric: Metric::MissRatio,
                cache_bytes: None,
                side,
                of: Of::Change,
                at: 0.25,
            };
            limit.outcome(Change { value, low, high })
        };
        for (side, found, wanted) in [
            (Side::Above, [0.5, 0.375, 0.625], Outcome::Met),
            // Touches it.
            (Side::Above, [0.5, 0.25, 0.75], Outcome::NotSure),
            (Side::Above, [0.375, 0.125, 0.5], Outcome::NotSure),
            (Side::Above, [0.25, 0.25, 0.25], Outcome::NotMet),
            (Side::Above, [0.125, 0.0, 0.5], Outcome::NotMet),
            (Side::Below, [-0.5, -0.75, 0.125], Outcome::Met),
            (Side::Below, [0.0, -0.25, 0.25], Outcome::NotSure),
            (Side::Below, [0.25, 0.0, 0.5], Outcome::NotMet),
            (Side::Below, [0.5, 0.0, 0.75], Outcome::NotMet),
        ] {
            assert_eq!(outcome(side, found), wanted, "{side:?} {found:?}");
        }
    }
}

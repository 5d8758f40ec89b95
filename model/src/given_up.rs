//! Watches given up for a reason of their line: both extremes of what they would have seen.
//!
//! Censoring by Kaplan-Meier supposes that a cut says nothing of the distance. A page too hot to watch is
//! hot because its lines are touched often, so such a cut does say something; nobody knows what. The
//! estimate treats it like any other, the interval is widened to what it would be had all of these lines
//! been touched again at the moment of the cut, and had none been touched ever again: the miss ratio
//! rises with each distance, so that nothing lies outside.
//!
//! Source: bounds that need no assumption on the cuts: Peterson, PNAS 73 (1976).

use crate::histogram::Histogram;
use crate::{Outcome, Weight};

/// What a watch given up is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Cut, like any other.
    Cut,
    /// Its line was touched again at that moment.
    Reused,
    /// Its line was never touched again.
    Never,
}

impl Take {
    /// Adds an outcome to a histogram.
    pub fn add(self, to: &mut Histogram, outcome: &Outcome, given_up: bool, weight: Weight) {
        match (self, given_up, *outcome) {
            (Take::Reused, true, Outcome::Censored { at }) => {
                to.add_reuses(at as f64, 1, weight);
            }
            (Take::Never, true, Outcome::Censored { .. }) => to.add_never(1, weight),
            _ => to.add(outcome, weight),
        }
    }
}

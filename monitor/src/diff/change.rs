//! Figures with intervals, and the change from one to another.
//!
//! Two runs are independent samples. The ends of the interval of a difference are found from the ends of
//! both figures' own (MOVER: Zou & Donner, *Statistics in Medicine* 27, 2008): how far the second may lie
//! below its value and the first above it, in quadrature, and the other way round. That of a factor is
//! the same on logarithms. Confidence stays that of the figures. All of their intervals goes in: what the
//! model may be off by is mostly the same in two runs of nearly the same program and would cancel out, but
//! nobody knows by how much, so none of it is taken to.
//!
//! Of figures that are weak the intervals themselves are known roughly. Their ends are set against each other's (of six runs of one
//! program in windows, all weak, one was called worse than three of the others in quadrature, and is not so), which makes a change
//! of what is apart altogether.

use statcache_model::CurvePoint;

use crate::profile::types::Estimate;

/// A figure with its interval; `low <= value <= high`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// Best value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Figure {
    /// The product of two figures that may be wrong for the same reason, as both come from the same windows:
    /// its interval goes from the product of the lower ends to that of the upper ones.
    #[must_use]
    pub fn times(self, other: Figure) -> Figure {
        Figure {
            value: self.value * other.value,
            low: self.low * other.low,
            high: self.high * other.high,
        }
    }

    /// The sum of two figures, as [`Figure::times`].
    #[must_use]
    pub fn plus(self, other: Figure) -> Figure {
        Figure {
            value: self.value + other.value,
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }
}

impl From<&CurvePoint> for Figure {
    /// The miss ratio, with the sampling and the model's part of its interval.
    fn from(point: &CurvePoint) -> Self {
        Self {
            value: point.miss_ratio,
            low: point.low,
            high: point.high,
        }
    }
}

impl From<Estimate> for Figure {
    fn from(estimate: Estimate) -> Self {
        Self {
            value: estimate.value,
            low: estimate.low,
            high: estimate.high,
        }
    }
}

/// How ends of intervals are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// In quadrature: both intervals are known well.
    Quadrature,
    /// End against end: one of them is not.
    Apart,
}

impl Ends {
    /// How those of figures are, of which one is weak or none.
    #[must_use]
    pub fn of(weak: bool) -> Self {
        if weak { Self::Apart } else { Self::Quadrature }
    }

    fn both(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Quadrature => one.hypot(other),
            Self::Apart => one + other,
        }
    }
}

/// What a change comes to. More is worse, of misses as of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of the interval is below 0.
    Better,
    /// All of it is above 0.
    Worse,
    /// It holds 0.
    NotSeen,
}

/// By how much a figure changed: a difference, or a factor less 1. `low <= value <= high`; of a factor the
/// upper end is infinite where the first figure may be 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Best value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Change {
    /// The difference `after` less `before`, in their unit.
    #[must_use]
    pub fn difference(before: Figure, after: Figure, ends: Ends) -> Self {
        let value = after.value - before.value;
        let down = ends.both(after.value - after.low, before.high - before.value);
        let up = ends.both(after.high - after.value, before.value - before.low);
        Self {
            value,
            low: value - down,
            high: value + up,
        }
    }

    /// The factor from `before` to `after`, less 1: infinite where the first is 0, -1 where the second is; `None` where both are, or one is
    /// unknown.
    #[must_use]
    pub fn relative(before: Figure, after: Figure, ends: Ends) -> Option<Self> {
        let known = |f: Figure| f.value >= 0.0 && f.value.is_finite();
        if !known(before) || !known(after) {
            return None;
        }
        // Of what may be nothing a factor has no end.
        let factor = |to: f64, from: f64| match from > 0.0 {
            true => to / from - 1.0,
            false => f64::INFINITY,
        };
        match (before.value > 0.0, after.value > 0.0) {
            (false, false) => return None,
            (false, true) => {
                return Some(Self {
                    value: f64::INFINITY,
                    low: factor(after.low, before.high),
                    high: f64::INFINITY,
                });
            }
            (true, false) => {
                return Some(Self {
                    value: -1.0,
                    low: -1.0,
                    high: factor(after.high, before.low),
                });
            }
            (true, true) => {}
        }
        // Of an end at 0 the logarithm is infinite, and so is what comes of it: from -100 % on, or without an end.
        let log = (after.value / before.value).ln();
        let far = |one: f64, other: f64| (one / other).ln();
        let down = ends.both(far(after.value, after.low), far(before.high, before.value));
        let up = ends.both(far(after.high, after.value), far(before.value, before.low));
        Some(Self {
            value: log.exp_m1(),
            low: (log - down).exp_m1(),
            high: (log + up).exp_m1(),
        })
    }

    /// What it comes to.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.high < 0.0 {
            Verdict::Better
        } else if self.low > 0.0 {
            Verdict::Worse
        } else {
            Verdict::NotSeen
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ends::{Apart, Quadrature};

    fn figure(value: f64, low: f64, high: f64) -> Figure {
        Figure { value, low, high }
    }

    fn close(change: Change, [value, low, high]: [f64; 3]) {
        for (found, wanted) in [
            (change.value, value),
            (change.low, low),
            (change.high, high),
        ] {
            assert!((found - wanted).abs() < 1e-12, "{change:?}, {wanted}");
        }
    }

    #[test]
    fn sides_of_a_difference_are_combined_each_for_itself() {
        // Down: 3 below the second, 4 above the first. Up: 12 above the second, 5 below the first.
        let (before, after) = (figure(20.0, 15.0, 24.0), figure(30.0, 27.0, 42.0));
        close(
            Change::difference(before, after, Quadrature),
            [10.0, 10.0 - 5.0, 10.0 + 13.0],
        );
        close(
            Change::difference(after, before, Quadrature),
            [-10.0, -10.0 - 13.0, -10.0 + 5.0],
        );
        close(
            Change::difference(before, before, Quadrature),
            [0.0, -41f64.sqrt(), 41f64.sqrt()],
        );
        // End against end: 27 less 24, 42 less 15.
        close(Change::difference(before, after, Apart), [10.0, 3.0, 27.0]);
    }

    #[test]
    fn factors_are_differences_of_logarithms() {
        // A factor of 2 either way: together 2 to the power of the root of 2.
        let (before, after) = (figure(10.0, 5.0, 20.0), figure(40.0, 20.0, 80.0));
        let wide = 2f64.powf(2f64.sqrt());
        close(
            Change::relative(before, after, Quadrature).unwrap(),
            [3.0, 4.0 / wide - 1.0, 4.0 * wide - 1.0],
        );
        close(
            Change::relative(before, after, Apart).unwrap(),
            [3.0, 0.0, 15.0],
        );
        let exact =
            Change::relative(figure(10.0, 10.0, 10.0), figure(5.0, 5.0, 5.0), Quadrature).unwrap();
        close(exact, [-0.5, -0.5, -0.5]);
    }

    #[test]
    fn a_factor_of_what_may_be_nothing_has_no_end() {
        let (some, little) = (figure(2.0, 1.0, 3.0), figure(1.0, 0.0, 2.0));
        let from = Change::relative(little, some, Quadrature).unwrap();
        assert!(from.high.is_infinite() && from.low > -1.0, "{from:?}");
        let to = Change::relative(some, little, Apart).unwrap();
        assert_eq!(to.low, -1.0);
        assert!(to.high.is_finite());
        let nothing = figure(0.0, 0.0, 0.25);
        let from = Change::relative(nothing, some, Apart).unwrap();
        assert_eq!(
            (from.low, from.high),
            (3.0, f64::INFINITY),
            "1 for 0.25 at the least"
        );
        assert_eq!(from.verdict(), Verdict::Worse);
        close(
            Change::relative(some, nothing, Apart).unwrap(),
            [-1.0, -1.0, -0.75],
        );
        let sure = figure(0.0, 0.0, 0.0);
        let from = Change::relative(sure, some, Apart).unwrap();
        assert_eq!((from.value, from.low), (f64::INFINITY, f64::INFINITY));
        assert_eq!(Change::relative(nothing, sure, Apart), None);
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        let verdict = |low, high| {
            let value = (low + high) / 2.0;
            Change { value, low, high }.verdict()
        };
        assert_eq!(verdict(0.1, 0.2), Verdict::Worse);
        assert_eq!(verdict(-0.2, -0.1), Verdict::Better);
        assert_eq!(verdict(0.0, 0.2), Verdict::NotSeen);
        assert_eq!(verdict(-0.2, 0.0), Verdict::NotSeen);
        assert_eq!(verdict(-0.1, 0.3), Verdict::NotSeen);
    }
}

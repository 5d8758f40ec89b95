//! Figures with intervals, and the change from one to another.
//!
//! Two runs are independent samples. The ends of the interval of a difference are found from the ends of
//! both figures' own (MOVER: Zou & Donner, *Statistics in Medicine* 27, 2008): how far the second may lie
//! below its value and the first above it, in quadrature, and the other way round. That of a factor is
//! the same on logarithms. Confidence stays that of the figures. All of their intervals goes in: what the
//! model may be off by is mostly the same in two runs of nearly the same program and would cancel out, but
//! nobody knows by how much, so none of it is taken to.

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

    /// Whether there is a value that both may have.
    #[must_use]
    pub fn overlaps(self, other: Figure) -> bool {
        self.low <= other.high && other.low <= self.high
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
    pub fn difference(before: Figure, after: Figure) -> Self {
        let value = after.value - before.value;
        let down = (after.value - after.low).hypot(before.high - before.value);
        let up = (after.high - after.value).hypot(before.value - before.low);
        Self {
            value,
            low: value - down,
            high: value + up,
        }
    }

    /// The factor from `before` to `after`, less 1; `None` where one of them is 0 or unknown.
    #[must_use]
    pub fn relative(before: Figure, after: Figure) -> Option<Self> {
        let known = |f: Figure| f.value > 0.0 && f.value.is_finite();
        if !known(before) || !known(after) {
            return None;
        }
        // Of an end at 0 the logarithm is infinite, and so is what comes of it: from -100 % on, or without an end.
        let log = (after.value / before.value).ln();
        let down = (after.value / after.low)
            .ln()
            .hypot((before.high / before.value).ln());
        let up = (after.high / after.value)
            .ln()
            .hypot((before.value / before.low).ln());
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
            Change::difference(before, after),
            [10.0, 10.0 - 5.0, 10.0 + 13.0],
        );
        close(
            Change::difference(after, before),
            [-10.0, -10.0 - 13.0, -10.0 + 5.0],
        );
        close(
            Change::difference(before, before),
            [0.0, -41f64.sqrt(), 41f64.sqrt()],
        );
    }

    #[test]
    fn factors_are_differences_of_logarithms() {
        // A factor of 2 either way: together 2 to the power of the root of 2.
        let (before, after) = (figure(10.0, 5.0, 20.0), figure(40.0, 20.0, 80.0));
        let wide = 2f64.powf(2f64.sqrt());
        close(
            Change::relative(before, after).unwrap(),
            [3.0, 4.0 / wide - 1.0, 4.0 * wide - 1.0],
        );
        let exact = Change::relative(figure(10.0, 10.0, 10.0), figure(5.0, 5.0, 5.0)).unwrap();
        close(exact, [-0.5, -0.5, -0.5]);
    }

    #[test]
    fn a_factor_of_what_may_be_nothing_has_no_end() {
        let (some, little) = (figure(2.0, 1.0, 3.0), figure(1.0, 0.0, 2.0));
        let from = Change::relative(little, some).unwrap();
        assert!(from.high.is_infinite() && from.low > -1.0, "{from:?}");
        let to = Change::relative(some, little).unwrap();
        assert_eq!(to.low, -1.0);
        assert!(to.high.is_finite());
        assert_eq!(Change::relative(figure(0.0, 0.0, 1.0), some), None);
        assert_eq!(Change::relative(some, figure(0.0, 0.0, 1.0)), None);
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

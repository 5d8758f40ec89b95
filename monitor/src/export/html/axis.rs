//! Scales and ticks of the drawings. Pure.

use statcache_model::CurvePoint;

/// Ratios below this are as good as none on a logarithmic axis (chosen: one miss in a million references costs nothing).
const LEAST: f64 = 1e-6;
/// Ticks that a linear axis has at most, besides 0.
const MOST_TICKS: f64 = 7.0;

/// A vertical axis of ratios: what lies at its lower and at its upper end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) bottom: f64,
    pub(super) top: f64,
    pub(super) log: bool,
}

impl Scale {
    /// From 0 to a round number above all ratios and, where that leaves the curve half of the height, their intervals.
    pub(super) fn linear(points: &[&CurvePoint]) -> Self {
        let highest = |of: fn(&CurvePoint) -> f64| points.iter().map(|p| of(p)).fold(0.0, f64::max);
        let (ratio, high) = (highest(|p| p.miss_ratio), highest(|p| p.high));
        // Wide intervals do not press the curve to the ground.
        Self::up_to(high.clamp(1.02 * ratio, (2.0 * ratio).max(1e-4)))
    }

    /// From 0 to a round number at or above a ratio.
    pub(super) fn up_to(ratio: f64) -> Self {
        let wanted = ratio.clamp(1e-4, 1.0);
        let step = step(wanted);
        Self {
            bottom: 0.0,
            top: ((wanted / step - 1e-9).ceil() * step).min(1.0),
            log: false,
        }
    }

    /// Whole decades around all ratios, five at most.
    pub(super) fn logarithmic(points: &[&CurvePoint]) -> Self {
        let ratios = points.iter().map(|p| p.miss_ratio).filter(|&r| r > 0.0);
        let (least, most) = ratios.fold((1.0_f64, LEAST), |(least, most), r| {
            (least.min(r), most.max(r))
        });
        let decade = |x: f64| 10f64.powi(x as i32);
        let top = decade(most.log10().ceil()).clamp(10.0 * LEAST, 1.0);
        let bottom = decade(least.log10().floor()).max(top * 1e-5).max(LEAST);
        let bottom = bottom.min(top / 10.0);
        Self {
            bottom,
            top,
            log: true,
        }
    }

    /// Where a ratio lies: 0 at the bottom, 1 at the top, nothing outside.
    pub(super) fn part(&self, ratio: f64) -> f64 {
        let part = match self.log {
            true => (ratio.max(LEAST) / self.bottom).ln() / (self.top / self.bottom).ln(),
            false => ratio / self.top,
        };
        part.clamp(0.0, 1.0)
    }

    /// The ratios that are marked, lowest first.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = step(self.top);
            let count = (self.top / step + 1e-9) as u32;
            return (0..=count).map(|n| f64::from(n) * step).collect();
        }
        let decades = (self.top / self.bottom).log10().round() as i32;
        let mut ticks = Vec::new();
        for decade in 0..=decades {
            let base = self.bottom * 10f64.powi(decade);
            ticks.push(base);
            if decades <= 2 && decade < decades {
                ticks.extend([2.0 * base, 5.0 * base]);
            }
        }
        ticks
    }
}

/// The distance of ticks: 1, 2 or 5 times a power of ten.
fn step(top: f64) -> f64 {
    let rough = top / MOST_TICKS;
    let unit = 10f64.powi(rough.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * unit);
    let fits = steps.iter().find(|&&s| s >= rough * (1.0 - 1e-9));
    *fits.unwrap_or(&steps[3])
}

/// A tick in per cent, with no more digits than it has.
pub(super) fn percent_of_tick(ratio: f64) -> String {
    let percent = (ratio * 1e8).round() / 1e6;
    format!("{percent} %")
}

/// A horizontal axis of cache sizes, in powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    low: f64,
    high: f64,
}

impl Sizes {
    /// From the smallest to the largest.
    pub(super) fn of(sizes: &[u64]) -> Self {
        let log = |size: Option<&u64>| size.map_or(0.0, |&s| (s as f64).log2());
        let (low, high) = (log(sizes.iter().min()), log(sizes.iter().max()));
        Self {
            low,
            high: high.max(low + 1.0),
        }
    }

    /// Where a size lies: 0 at the left, 1 at the right.
    pub(super) fn part(&self, size: u64) -> f64 {
        ((size as f64).log2() - self.low) / (self.high - self.low)
    }

    /// The powers of two, one in so many that there is room for their names.
    pub(super) fn ticks(&self) -> Vec<u64> {
        let (first, last) = (self.low.ceil() as u32, self.high.floor() as u32);
        let every = (last.saturating_sub(first) / 18 + 1) as usize;
        let ticks = (first..=last).step_by(every);
        ticks.map(|n| 1u64 << n.min(63)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(ratios: &[f64], above: f64) -> Vec<CurvePoint> {
        let point = |(n, &miss_ratio): (usize, &f64)| CurvePoint {
            cache_bytes: 1 << (13 + n),
            miss_ratio,
            low: miss_ratio,
            high: (miss_ratio * above).min(1.0),
            sampling_half_width: 0.0,
            model_half_width: 0.0,
            undecided: None,
            weak: None,
        };
        ratios.iter().enumerate().map(point).collect()
    }

    fn axis(ratios: &[f64], above: f64, make: fn(&[&CurvePoint]) -> Scale) -> (Scale, Vec<String>) {
        let points = points(ratios, above);
        let scale = make(&points.iter().collect::<Vec<_>>());
        let ticks = scale.ticks().into_iter().map(percent_of_tick).collect();
        (scale, ticks)
    }

    #[test]
    fn linear_ticks_are_round_few_and_reach_above_the_curve() {
        let (scale, ticks) = axis(&[0.287, 0.05], 1.0, Scale::linear);
        assert_eq!(ticks.join(" "), "0 % 5 % 10 % 15 % 20 % 25 % 30 %");
        assert!(scale.top >= 0.287);
        for ratio in [1.0, 0.9, 0.51, 0.1001, 0.0234, 3e-5] {
            for above in [1.0, 1.7, 30.0] {
                let (scale, ticks) = axis(&[ratio], above, Scale::linear);
                assert!((2..=8).contains(&ticks.len()), "{ratio}: {ticks:?}");
                assert!(ratio <= scale.top && scale.top <= 1.0, "{ratio}: {scale:?}");
                // Wide intervals do not press the curve to the ground.
                assert!(
                    scale.part(ratio) > 0.3 || ratio < 1e-4,
                    "{ratio}: {scale:?}"
                );
            }
        }
        assert_eq!(axis(&[0.0], 1.0, Scale::linear).1.first().unwrap(), "0 %");
    }

    #[test]
    fn logarithmic_ticks_are_decades() {
        let (scale, ticks) = axis(&[0.2, 0.003, 0.0], 1.0, Scale::logarithmic);
        assert_eq!(ticks, ["0.1 %", "1 %", "10 %", "100 %"]);
        assert_eq!((scale.part(0.0), scale.part(1.0)), (0.0, 1.0));
        assert!((scale.part(0.01) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(axis(&[0.02], 1.0, Scale::logarithmic).1.len(), 4);
        // Of nothing there is an axis, too, and of next to nothing.
        for ratio in [0.0, 1e-9, 5e-7, 1e-6, 1e-5, 1e-3, 1.0] {
            let (scale, ticks) = axis(&[ratio], 1.0, Scale::logarithmic);
            assert!(scale.bottom < 0.2 * scale.top, "{ratio}: {scale:?}");
            assert!(
                scale.top <= 1.0 && scale.bottom > 0.9 * LEAST,
                "{ratio}: {scale:?}"
            );
            assert!(ratio <= scale.top && ticks.len() > 1, "{ratio}: {ticks:?}");
        }
    }

    #[test]
    fn sizes_are_spread_by_their_logarithm() {
        let sizes = Sizes::of(&[8 << 10, 12 << 10, 32 << 10]);
        assert_eq!(sizes.ticks(), [8 << 10, 16 << 10, 32 << 10]);
        assert_eq!(sizes.part(16 << 10), 0.5);
        assert!(Sizes::of(&[1 << 10, 1 << 30]).ticks().len() <= 20);
        assert_eq!(Sizes::of(&[4096]).part(4096), 0.0);
    }
}

//! How much less and more lines may be exposed than the model says: what all keys share of the curve's uncertainty.
//!
//! Misses are what evicts under random replacement. Where the curve may be as low or as high as its interval says, the exposure of
//! every line is taken to be smaller or larger by the one factor that changes the misses of reuses as much. A key's ratio follows by how far
//! from each other its data are touched: what always hits or misses does so still. (First touches are unsure by themselves; and a key
//! has the constant part of the interval anyway.)

use crate::point::ALLOWANCE;
use crate::view::View;
use crate::{Cache, Policy};

/// Classes of exposures for each factor of two, and the exposures they reach from and to.
const CLASSES: f64 = 8.0;
const SMALLEST: f64 = 1e-9;
const LARGEST: f64 = 40.0;
/// Factors tried reach this far, down and up.
const FARTHEST: f64 = 1e4;
/// Halvings of the interval of factors: to one in a million.
const HALVINGS: usize = 24;

/// The factors for the lower and upper end of the curve's interval. Under LRU those of the misses.
pub(super) fn exposure(view: &View, cache: &Cache) -> [f64; 2] {
    let point = view.point(cache);
    if point.miss_ratio <= 0.0 {
        return [1.0; 2];
    }
    let ratio = point.miss_ratio;
    let ends = [
        (point.low + ALLOWANCE).min(ratio),
        (point.high - ALLOWANCE).max(ratio),
    ];
    let ends = ends.map(|end| end / ratio);
    match cache.policy {
        Policy::Lru { .. } => ends,
        Policy::Random { .. } => {
            let reuses = Reuses::of(view, cache);
            ends.map(|by| reuses.factor(by))
        }
    }
}

/// Reuses by exposure: references, and their exposures in sum.
struct Reuses(Vec<(f64, f64)>);

impl Reuses {
    fn of(view: &View, cache: &Cache) -> Reuses {
        let class = |exposure: f64| (CLASSES * (exposure / SMALLEST).log2()) as usize;
        let mut classes = vec![(0.0, 0.0); class(LARGEST) + 1];
        for (i, group) in view.groups.iter().enumerate() {
            let miss = view.probabilities(i, cache);
            for (p, &miss) in group.placed.iter().zip(&miss.varying) {
                if p.to.is_some() && p.weight > 0.0 {
                    let exposure = -(-miss).ln_1p();
                    let exposure = exposure.clamp(SMALLEST, LARGEST);
                    let of_class = &mut classes[class(exposure)];
                    of_class.0 += p.weight;
                    of_class.1 += p.weight * exposure;
                }
            }
        }
        classes.retain(|class| class.0 > 0.0);
        Reuses(classes)
    }

    fn misses(&self, factor: f64) -> f64 {
        let of_class = |&(refs, sum): &(f64, f64)| -refs * (-factor * sum / refs).exp_m1();
        self.0.iter().map(of_class).sum()
    }

    /// What exposures are multiplied by where misses are: without any, nothing.
    fn factor(&self, misses_by: f64) -> f64 {
        let wanted = misses_by * self.misses(1.0);
        if wanted <= 0.0 && misses_by > 0.0 {
            return 1.0;
        }
        let (mut low, mut high) = (1.0 / FARTHEST, FARTHEST);
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            if self.misses(middle) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low * high).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_brings_misses_where_they_shall_be() {
        let reuses = Reuses(vec![(1000.0, 1e-6), (50.0, 5.0), (10.0, 30.0)]);
        for by in [0.5, 0.9, 1.0, 1.3, 2.0] {
            let factor = reuses.factor(by);
            let misses = reuses.misses(factor) / reuses.misses(1.0);
            assert!((misses - by).abs() < 1e-3, "{by}: {factor} {misses}");
        }
        // No fewer than none, and no more than all can.
        assert!(reuses.factor(0.0) < 2.0 / FARTHEST);
        assert!(reuses.factor(1e6) > 0.5 * FARTHEST);
        assert_eq!(Reuses(Vec::new()).factor(1.3), 1.0);
    }
}

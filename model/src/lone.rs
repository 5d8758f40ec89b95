//! What only one window or two were long enough to see.
//!
//! Beyond the distances that a few windows reach, the bootstrap has nothing to exchange: however the one long window of a run goes on, every replicate
//! goes on like that. The run may not, most of all where the long window is its start. (Runs of so few windows that no three of them stand for about
//! as much are left to what is said of few windows in `interval`.)

use crate::bins;
use crate::sparse::Sparse;
use crate::survival::Survival;

/// Windows, by what they stand for, that tell by how they differ how far off they are.
const ENOUGH: f64 = 3.0;

/// Part of a run that a window speaks for if it stands for so much.
const SPEAKS: f64 = 0.05;

/// Windows by how far their watches reached: distance and weight, the farthest first.
fn reaches(sparse: &Sparse) -> Vec<(f64, f64)> {
    let mut reaches: Vec<(usize, f64, f64)> = Vec::new();
    for block in &sparse.blocks {
        let last = block.histogram.counts().map(|(bin, ..)| bin).max();
        let reach = last.map_or(0.0, |bin| bins::lower_edge(bin + 1));
        match reaches.last_mut() {
            Some((window, far, weight)) if *window == block.window => {
                *far = far.max(reach);
                *weight += block.weight;
            }
            _ => reaches.push((block.window, reach, block.weight)),
        }
    }
    let mut reaches: Vec<(f64, f64)> = reaches.into_iter().map(|(_, far, w)| (far, w)).collect();
    reaches.sort_by(|a, b| b.0.total_cmp(&a.0));
    reaches
}

/// Standard error of the share of references reused beyond `gap`, if too few windows were followed as far, and these stand for little: from the
/// distance on that enough of them reached, the others' references may go on otherwise. Of so many windows so many did: a binomial share, with
/// half a window more of either kind. (14 default runs each of xz and zstd on two threads, whose start on one thread is their longest window:
/// the ratio of the whole run inside at 322 and 305 of 378 sizes without it, 332 and 359 with it; runs of seven programs of one thread as before.)
pub(crate) fn tail_error(sparse: &Sparse, pooled: &Survival, gap: f64) -> f64 {
    let all: f64 = sparse.blocks.iter().map(|block| block.weight).sum();
    let (mut sum, mut squares, mut few, mut share) = (0.0, 0.0, 0.0, 0.0);
    for (reach, weight) in reaches(sparse) {
        sum += weight;
        squares += weight * weight;
        let windows = if squares > 0.0 {
            sum * sum / squares
        } else {
            0.0
        };
        if reach > gap {
            (few, share) = (windows, sum / all);
        }
        if windows < ENOUGH {
            continue;
        }
        // Where none goes as far the distribution ends, and what is undecided is told apart.
        if few >= ENOUGH || few == 0.0 || reach > gap {
            return 0.0;
        }
        let known = pooled.at(reach);
        let beyond = if known > 0.0 {
            pooled.at(gap) / known
        } else {
            0.0
        };
        let beyond = (few * beyond + 0.5) / (few + 1.0);
        let unlike = (1.0 - share / SPEAKS).max(0.0);
        return known * (unlike * beyond * (1.0 - beyond) / few).sqrt();
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::sparse::Block;
    use crate::{LineSize, Outcome, Trigger, Weight};
    use std::sync::Arc;

    /// Windows of so many references each, in which every tenth is touched no more and the others at once.
    fn windows(lengths: &[u64]) -> (Sparse, Survival) {
        let mut all = Histogram::new(LineSize::B64);
        let blocks = lengths.iter().enumerate().map(|(window, &length)| {
            let mut histogram = Histogram::new(LineSize::B64);
            for n in 0..100 {
                let outcome = match n % 10 {
                    0 => Outcome::Censored { at: length },
                    _ => Outcome::Reused {
                        distance: 10,
                        trigger: Trigger::default(),
                    },
                };
                histogram.add(&outcome, Weight::ONE);
                all.add(&outcome, Weight::ONE);
            }
            Block {
                window,
                weight: 1.0,
                low: 1.0,
                high: 1.0,
                looks: None,
                histogram: Arc::new(histogram.compact()),
                extremes: None,
            }
        });
        let blocks: Vec<Block> = blocks.collect();
        let sparse = Sparse {
            cluster_of: vec![0; blocks.len()],
            blocks,
            clusters: 1,
        };
        (sparse, all.survival())
    }

    #[test]
    fn one_long_window_is_not_believed_as_several_are() {
        let short = [10_000; 80];
        let error = |long: &[u64], gap: f64| {
            let (sparse, pooled) = windows(&[&short[..], long].concat());
            tail_error(&sparse, &pooled, gap)
        };
        // All see as far as the short ones.
        assert_eq!(error(&[10_000_000], 5_000.0), 0.0);
        // One in ten goes on, by one window: anything may become of that.
        let one = error(&[10_000_000], 1e6);
        assert!((0.03..0.05).contains(&one), "{one}");
        let two = error(&[10_000_000; 2], 1e6);
        assert!(two > 0.0 && two < one, "{two}");
        assert_eq!(error(&[10_000_000; 3], 1e6), 0.0);
        // None goes as far.
        assert_eq!(error(&[], 1e6), 0.0);
    }
}

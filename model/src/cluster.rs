//! Which windows behave alike: merging neighbours in time, then clustering what recurs.
//!
//! The equation is not linear, so nothing is solved on fewer than about 1,000 samples:
//! windows whose distance distributions cannot be told apart share one. Likeness is the
//! two-sample Kolmogorov-Smirnov statistic of octave-binned Kaplan-Meier curves, up to the
//! distance that both have seen.

use crate::bins;
use crate::histogram::CompactHistogram;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Octaves of distance in a signature.
pub(crate) const OCTAVES: usize = 48;
/// Samples below which a cluster is never solved alone (chosen).
pub(crate) const SOLVE_SAMPLES: f64 = 1000.0;
/// Most samples that neighbours which are alike are joined to.
pub(crate) const JOINED_SAMPLES: f64 = 800.0;
/// Kolmogorov-Smirnov statistic below which two sets count as alike: 1.36 is its 5 % point for
/// independent samples; windows are correlated inside, hence the larger figure (guessed).
const ALIKE: f64 = 2.0;
/// Most clusters kept: each costs a solve per bootstrap replicate.
const MAX_CLUSTERS: usize = 8;
/// Samples at risk below which an octave is not compared.
const THIN: f64 = 8.0;

fn octave_of(bin: usize) -> usize {
    ((bins::lower_edge(bin) + 1.0).log2() as usize).min(OCTAVES - 1)
}

/// Distance up to which an octave's reach.
pub(crate) fn upper_edge(octave: usize) -> f64 {
    (octave as f64 + 1.0).exp2()
}

/// Share of an octave's samples at risk censored in it above which it is not compared: what they
/// saw depends on where in the octave they stopped.
const MOSTLY_SEEN: f64 = 0.25;

/// Octave-binned life table of some windows.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    events: [f64; OCTAVES],
    censored: [f64; OCTAVES],
    /// Samples behind it.
    pub samples: f64,
    /// References that they stand for.
    pub weight: f64,
}

impl Default for Signature {
    /// Of no sample.
    fn default() -> Self {
        Self {
            events: [0.0; OCTAVES],
            censored: [0.0; OCTAVES],
            samples: 0.0,
            weight: 0.0,
        }
    }
}

impl Signature {
    /// One sample, reused at a distance of the bin `at` or never, which stands for so many independent ones.
    pub fn add(&mut self, at: Option<usize>, weight: f64, samples: f64) {
        if let Some(bin) = at {
            self.events[octave_of(bin)] += weight;
        }
        self.weight += weight;
        self.samples += samples;
    }

    pub fn new(h: &CompactHistogram, factor: f64) -> Self {
        let mut s = Self {
            events: [0.0; OCTAVES],
            censored: [0.0; OCTAVES],
            samples: f64::from(h.samples),
            weight: factor * f64::from(h.samples),
        };
        for (bin, events, censored) in h.counts() {
            s.events[octave_of(bin)] += factor * events;
            s.censored[octave_of(bin)] += factor * censored;
        }
        s
    }

    pub fn absorb(&mut self, other: &Signature) {
        for (a, b) in self.events.iter_mut().zip(&other.events) {
            *a += b;
        }
        for (a, b) in self.censored.iter_mut().zip(&other.censored) {
            *a += b;
        }
        self.samples += other.samples;
        self.weight += other.weight;
    }

    /// Survival after each octave, as far as enough samples are at risk.
    fn curve(&self) -> Vec<f64> {
        let mut curve = Vec::with_capacity(OCTAVES);
        let (mut at_risk, mut s) = (self.weight, 1.0);
        if self.weight <= 0.0 {
            return curve;
        }
        for (e, c) in self.events.iter().zip(&self.censored) {
            if at_risk / self.weight * self.samples < THIN || *c > MOSTLY_SEEN * at_risk {
                break;
            }
            if *e > 0.0 {
                // Constant rates of both inside the octave, as in the fine bins.
                let half = 0.5 * self.weight / self.samples.max(1.0);
                let stay = (1.0 - (e + c) / (at_risk + half)).max(0.0);
                s *= stay.powf(e / (e + c));
            }
            at_risk -= e + c;
            curve.push(s);
        }
        curve
    }

    /// Part of the references that survive each octave. Behind where few samples are left it goes on as it is there.
    pub fn surviving(&self) -> Vec<f64> {
        let mut curve = self.curve();
        curve.resize(OCTAVES, curve.last().copied().unwrap_or(1.0));
        curve
    }

    /// Largest gap of the two survival curves in units of its noise.
    pub fn distance(&self, other: &Signature) -> f64 {
        let (a, b) = (self.curve(), other.curve());
        let gap = a
            .iter()
            .zip(&b)
            .map(|(x, y)| (x - y).abs())
            .fold(0.0, f64::max);
        gap / (1.0 / self.samples.max(1.0) + 1.0 / other.samples.max(1.0)).sqrt()
    }
}

/// Merges neighbours in time, most alike first, until at most `most` remain and none are closer
/// than `alike`. Returns the number of the merged unit of each item.
pub(crate) fn merge_neighbours(
    items: &[Signature],
    most: usize,
    alike: f64,
) -> (Vec<usize>, Vec<Signature>) {
    let mut units: Vec<Option<Signature>> = items.iter().cloned().map(Some).collect();
    // The units before and behind each, by their first items; what is beyond the ends is not there.
    let mut before: Vec<usize> = (0..items.len()).map(|i| i.wrapping_sub(1)).collect();
    let mut behind: Vec<usize> = (1..=items.len()).collect();
    // Gaps behind units, nearest first (the bits of numbers that are not negative order as they do), with how often the unit had changed.
    let gap = |a: &Signature, b: &Signature, at: usize, changed: u32| {
        Reverse((a.distance(b).to_bits(), at, changed))
    };
    let pairs = items.windows(2).enumerate();
    let mut gaps: BinaryHeap<_> = pairs
        .map(|(at, pair)| gap(&pair[0], &pair[1], at, 0))
        .collect();
    let mut changed = vec![0; items.len()];
    let mut left = items.len();
    while let Some(Reverse((size, at, when))) = gaps.pop() {
        if when != changed[at] {
            continue;
        }
        if left <= most && f64::from_bits(size) >= alike {
            break;
        }
        let next = behind[at];
        let Some(absorbed) = units[next].take() else {
            continue;
        };
        left -= 1;
        behind[at] = behind[next];
        if behind[at] < items.len() {
            before[behind[at]] = at;
        }
        if let Some(unit) = &mut units[at] {
            unit.absorb(&absorbed);
        }
        changed[next] += 1;
        for first in [before[at], at] {
            if let (Some(Some(a)), Some(second)) = (units.get(first), behind.get(first))
                && let Some(Some(b)) = units.get(*second)
            {
                changed[first] += 1;
                gaps.push(gap(a, b, first, changed[first]));
            }
        }
    }
    let mut unit = 0;
    let unit_of = units.iter().map(|first| {
        unit += usize::from(first.is_some());
        unit - 1
    });
    (unit_of.collect(), units.into_iter().flatten().collect())
}

/// Clusters units: small ones join their nearest, then those that cannot be told apart merge.
pub(crate) fn cluster(units: &[Signature]) -> Vec<usize> {
    let mut of: Vec<usize> = (0..units.len()).collect();
    let mut clusters: Vec<Option<Signature>> = units.iter().cloned().map(Some).collect();
    loop {
        let live: Vec<usize> = (0..clusters.len())
            .filter(|&i| clusters[i].is_some())
            .collect();
        if live.len() <= 1 {
            break;
        }
        let samples = |i: usize| clusters[i].as_ref().map_or(0.0, |s| s.samples);
        let gap = |a: usize, b: usize| match (&clusters[a], &clusters[b]) {
            (Some(x), Some(y)) => x.distance(y),
            _ => f64::INFINITY,
        };
        let smallest = live
            .iter()
            .copied()
            .min_by(|&a, &b| samples(a).total_cmp(&samples(b)));
        let Some(smallest) = smallest else { break };
        let pair = if samples(smallest) < SOLVE_SAMPLES {
            live.iter()
                .copied()
                .filter(|&i| i != smallest)
                .min_by(|&a, &b| gap(smallest, a).total_cmp(&gap(smallest, b)))
                .map(|i| (i, smallest))
        } else {
            let mut best: Option<(usize, usize)> = None;
            let mut least = f64::INFINITY;
            for (n, &a) in live.iter().enumerate() {
                for &b in &live[n + 1..] {
                    let g = gap(a, b);
                    if g < least {
                        (least, best) = (g, Some((a, b)));
                    }
                }
            }
            best.filter(|_| least < ALIKE || live.len() > MAX_CLUSTERS)
        };
        let Some((into, from)) = pair else { break };
        if let (Some(gone), Some(kept)) = (clusters[from].take(), clusters[into].as_mut()) {
            kept.absorb(&gone);
        }
        of.iter_mut()
            .filter(|c| **c == from)
            .for_each(|c| *c = into);
    }
    // Number the survivors from 0.
    let mut names: Vec<usize> = of.clone();
    names.sort_unstable();
    names.dedup();
    of.iter()
        .map(|c| names.binary_search(c).unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// As [`merge_neighbours`], by looking at all gaps again and again.
    fn merged(items: &[Signature], most: usize, alike: f64) -> Vec<usize> {
        let mut units: Vec<(Signature, usize)> = items.iter().cloned().map(|s| (s, 1)).collect();
        while units.len() > 1 {
            let gaps = units.windows(2).map(|pair| pair[0].0.distance(&pair[1].0));
            let least = gaps.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
            let (at, gap) = least.expect("two units");
            if units.len() <= most && gap >= alike {
                break;
            }
            let (next, members) = units.remove(at + 1);
            units[at].0.absorb(&next);
            units[at].1 += members;
        }
        let numbered = units.iter().enumerate();
        numbered.flat_map(|(unit, u)| vec![unit; u.1]).collect()
    }

    #[test]
    fn the_nearest_neighbours_are_merged_first() {
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let items: Vec<Signature> = (0..rng.below(60))
                .map(|at| {
                    let mut signature = Signature::default();
                    for _ in 0..60 {
                        let far = rng.unit() < 0.2 + 0.6 * (at / 10 % 2) as f64;
                        let bin = if far {
                            300 + rng.below(200)
                        } else {
                            rng.below(40)
                        };
                        signature.add(Some(bin as usize), 1.0, 1.0);
                    }
                    signature
                })
                .collect();
            for (most, alike) in [(usize::MAX, 1.63), (7, 0.0), (3, 2.0)] {
                let (unit_of, units) = merge_neighbours(&items, most, alike);
                assert_eq!(unit_of, merged(&items, most, alike));
                assert_eq!(units.len(), unit_of.last().map_or(0, |last| last + 1));
            }
        }
    }
}

//! Which behaviours are as good as one.

use super::turns::Turns;
use crate::cluster::{JOINED_SAMPLES, OCTAVES, Signature, upper_edge};

/// Part of the references whose survival matters.
const LEAST_SURVIVING: f64 = 0.005;
/// Lines of the smallest cache of interest: 8 KiB of lines of 256 bytes.
const LEAST_LINES: f64 = 32.0;
/// Variance of what survives in time, relative to its mean squared, that does not matter: it is about by how much a mixture is off.
const LITTLE_VARIANCE: f64 = 0.1;

/// Behaviours, told apart for now.
pub(super) struct Parts {
    parts: Vec<Signature>,
    /// Of each, what survives each octave, and of the run.
    surviving: Vec<Vec<f64>>,
    whole: Vec<f64>,
    weight: f64,
    turns: Turns,
    /// References for each sample that says something of its own.
    spacing: f64,
}

impl Parts {
    pub fn new(parts: Vec<Signature>, turns: Turns, spacing: f64) -> Parts {
        let mut whole = Signature::default();
        parts.iter().for_each(|part| whole.absorb(part));
        Parts {
            surviving: parts.iter().map(Signature::surviving).collect(),
            whole: whole.surviving(),
            weight: whole.weight.max(f64::MIN_POSITIVE),
            parts,
            turns,
            spacing,
        }
    }

    /// Merges those first that lose least of how what survives varies in time (Ward 1963), as long as little is lost in all. Returns for each the
    /// number of one that it is merged with.
    pub fn merge_alike(mut self) -> Vec<usize> {
        let mut of: Vec<usize> = (0..self.parts.len()).collect();
        let mut lost = vec![0.0; OCTAVES];
        loop {
            let left: Vec<usize> = (0..of.len()).filter(|&k| of[k] == k).collect();
            let pairs = left
                .iter()
                .flat_map(|&a| left.iter().map(move |&b| (a, b)))
                .filter(|(a, b)| a < b);
            let costs = pairs.map(|(a, b)| {
                let losses = (0..OCTAVES).map(|octave| self.loss(a, b, octave));
                let sums: Vec<f64> = lost
                    .iter()
                    .zip(losses)
                    .map(|(lost, more)| lost + more)
                    .collect();
                (sums.iter().copied().fold(0.0, f64::max), a, b, sums)
            });
            let least = costs.min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, into, gone, sums)) = least.filter(|l| l.0 <= LITTLE_VARIANCE) else {
                return of;
            };
            lost = sums;
            let absorbed = std::mem::take(&mut self.parts[gone]);
            self.parts[into].absorb(&absorbed);
            self.surviving[into] = self.parts[into].surviving();
            self.turns.merge(into, gone);
            let members = of.iter_mut().filter(|k| **k == gone);
            members.for_each(|k| *k = into);
        }
    }

    /// How much less the part of the references that survive an octave varies in time where two behaviours are one, squared and relative to its
    /// mean, and how much less the noise of it.
    ///
    /// Reuses of a distance are kept or lost by chance where as many lines as survive of so many references fill the cache: of a distance that no
    /// cache is of the size for, nothing is lost. Nor by behaviours that take turns within it, as each reuse is exposed to both. Where turns
    /// have few samples, what they seem to evict varies by chance, with the same effect. (A compressor, lz4 -9, in turns of 60,000 references
    /// with 45 samples each: told apart it was told 3.6 % of misses for 1.2 in 256 KiB, and as one 1.4.)
    fn loss(&self, a: usize, b: usize, octave: usize) -> f64 {
        let (of_a, of_b) = (&self.parts[a], &self.parts[b]);
        let (in_a, in_b) = (self.surviving[a][octave], self.surviving[b][octave]);
        let mean = self.whole[octave].max(LEAST_SURVIVING);
        if upper_edge(octave) * mean < LEAST_LINES {
            return 0.0;
        }
        let certain = (1.0 / of_a.samples.max(1.0) + 1.0 / of_b.samples.max(1.0)).sqrt();
        if (in_a - in_b).abs() <= 3.0 * certain * in_a.max(in_b).sqrt() {
            return 0.0;
        }
        let both = (of_a.weight + of_b.weight).max(f64::MIN_POSITIVE);
        let between = of_a.weight * of_b.weight / both * (in_a - in_b).powi(2);
        let noise = |k: usize, surviving: f64| {
            let samples = self.turns.exposing(k, octave) / self.spacing;
            let more = (1.0 / samples.max(1.0) - 1.0 / JOINED_SAMPLES).max(0.0);
            self.parts[k].weight * surviving * (1.0 - surviving) * more
        };
        let noise = noise(a, in_a) + noise(b, in_b);
        let lost = self.turns.persisting(a, b, octave) * between - noise;
        lost.max(0.0) / self.weight / mean.powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::Stretch;
    use crate::bins;

    /// So many behaviours by turns, each of so many references.
    fn turns(many: u32, each: f64) -> Turns {
        let stretch = |turn: u32| Stretch {
            from: f64::from(turn) * each,
            within: 1.0,
            kind: turn % many,
        };
        let course: Vec<Stretch> = (0..10 * many).map(stretch).collect();
        Turns::of_course(&course, f64::from(10 * many) * each)
    }

    /// So many samples, of which this part is reused from afar.
    fn far(samples: u32, part: f64) -> Signature {
        let mut signature = Signature::default();
        for n in 0..samples {
            let afar = f64::from(n) < part * f64::from(samples);
            let distance = if afar { 1e6 } else { 10.0 };
            signature.add(Some(bins::bin_of_real(distance)), 1.0, 1.0);
        }
        signature
    }

    #[test]
    fn parts_are_one_unless_a_mixture_of_them_would_be_far_off() {
        let by_turns = |parts: &[(u32, f64)], each: f64, spacing: f64| {
            let behaviours = turns(parts.len() as u32, each);
            let parts = parts.iter().map(|&(samples, part)| far(samples, part));
            let mut of = Parts::new(parts.collect(), behaviours, spacing).merge_alike();
            of.dedup();
            of.len()
        };
        let merged = |parts: &[(u32, f64)]| by_turns(parts, 1e9, 1e3);
        // Told apart with certainty, and to no effect.
        assert_eq!(merged(&[(930_000, 0.0145), (30_000, 0.0093)]), 1);
        assert_eq!(merged(&[(500_000, 0.10), (500_000, 0.14)]), 1);
        assert_eq!(merged(&[(930_000, 0.0), (70_000, 0.003)]), 1);
        // A small part that misses ten times as much; halves; a working set and a table.
        assert_eq!(merged(&[(950_000, 0.01), (50_000, 0.1)]), 2);
        assert_eq!(merged(&[(500_000, 0.05), (500_000, 0.15)]), 2);
        assert_eq!(merged(&[(800_000, 0.0), (200_000, 1.0)]), 2);
        // By few samples it is chance.
        assert_eq!(merged(&[(950, 0.01), (50, 0.1)]), 1);
        // What is reused after a million references has been through many turns of a hundred.
        let halves = [(500_000, 0.05), (500_000, 0.15)];
        assert_eq!(by_turns(&halves, 1e5, 1.0), 2);
        assert_eq!(by_turns(&halves, 100.0, 1.0), 1);
        // Turns of a thousand samples, and of fifty.
        assert_eq!(by_turns(&halves, 1e5, 100.0), 2);
        assert_eq!(by_turns(&halves, 1e5, 2000.0), 1);
    }

    #[test]
    fn parts_that_are_many_are_merged_with_those_alike() {
        let parts = (0..12).map(|k| far(50_000, if k % 2 == 0 { 0.05 } else { 0.15 }));
        let of = Parts::new(parts.collect(), turns(12, 1e9), 1e3).merge_alike();
        assert_eq!(of, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        // Of many steps none may be taken far.
        let parts = (0..12).map(|k| far(50_000, 0.01 * f64::from(k + 1)));
        let mut of = Parts::new(parts.collect(), turns(12, 1e9), 1e3).merge_alike();
        of.dedup();
        assert!((2..=6).contains(&of.len()), "{of:?}");
    }
}

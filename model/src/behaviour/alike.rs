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
    /// References for each sample that says something of its own, and most samples of a segment.
    spacing: f64,
    most: f64,
}

/// What is lost of how much survives each octave varies in time, squared and relative to its mean.
struct Loss {
    /// In all with what was lost before, less the noise that has gone.
    net: Vec<f64>,
    /// By this step alone, whatever the noise.
    step: f64,
}

impl Parts {
    /// `spacing`: references for each sample that says something of its own. `segments`: as many at least is the run cut to.
    pub fn new(parts: Vec<Signature>, turns: Turns, spacing: f64, segments: f64) -> Parts {
        let mut whole = Signature::default();
        parts.iter().for_each(|part| whole.absorb(part));
        Parts {
            surviving: parts.iter().map(Signature::surviving).collect(),
            whole: whole.surviving(),
            weight: whole.weight.max(f64::MIN_POSITIVE),
            most: f64::min(JOINED_SAMPLES, whole.samples / segments).max(1.0),
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
            let losses = pairs.map(|(a, b)| (self.loss(a, b, &lost), a, b));
            let little = losses.filter(|(loss, ..)| {
                let most = loss.net.iter().copied().fold(0.0, f64::max);
                most <= LITTLE_VARIANCE
            });
            let least = little.min_by(|a, b| a.0.step.total_cmp(&b.0.step));
            let Some((loss, into, gone)) = least else {
                return of;
            };
            lost = loss.net;
            let absorbed = std::mem::take(&mut self.parts[gone]);
            self.parts[into].absorb(&absorbed);
            self.surviving[into] = self.parts[into].surviving();
            self.turns.merge(into, gone);
            let members = of.iter_mut().filter(|k| **k == gone);
            members.for_each(|k| *k = into);
        }
    }

    /// What it costs to make two behaviours one.
    ///
    /// Reuses of a distance are kept or lost by chance where as many lines as survive of so many references fill the cache: of a distance that no
    /// cache is of the size for, nothing is lost. Nor by behaviours that take turns within it, as each reuse is exposed to both. Where turns
    /// have few samples, what they seem to evict varies by chance, with the same effect. (A compressor, lz4 -9, in turns of 60,000 references
    /// with 45 samples each: told apart it was told 3.6 % of misses for 1.2 in 256 KiB, and as one 1.4.)
    fn loss(&self, a: usize, b: usize, lost: &[f64]) -> Loss {
        let mut loss = Loss {
            net: lost.to_vec(),
            step: 0.0,
        };
        for (octave, net) in loss.net.iter_mut().enumerate() {
            let mean = self.whole[octave].max(LEAST_SURVIVING);
            if upper_edge(octave) * mean < LEAST_LINES {
                continue;
            }
            let scale = self.weight * mean.powi(2);
            let step = self.turns.persisting(a, b, octave) * self.between(a, b, octave) / scale;
            loss.step = loss.step.max(step);
            *net += step - self.noise(a, b, octave) / scale;
        }
        loss
    }

    /// How much what survives an octave varies between two behaviours, squared, for their weight; of what may be chance, nothing.
    fn between(&self, a: usize, b: usize, octave: usize) -> f64 {
        let (of_a, of_b) = (&self.parts[a], &self.parts[b]);
        let (in_a, in_b) = (self.surviving[a][octave], self.surviving[b][octave]);
        let certain = (1.0 / of_a.samples.max(1.0) + 1.0 / of_b.samples.max(1.0)).sqrt();
        if (in_a - in_b).abs() <= 3.0 * certain * in_a.max(in_b).sqrt() {
            return 0.0;
        }
        let both = (of_a.weight + of_b.weight).max(f64::MIN_POSITIVE);
        of_a.weight * of_b.weight / both * (in_a - in_b).powi(2)
    }

    /// How much less it varies by chance where they are one.
    fn noise(&self, a: usize, b: usize, octave: usize) -> f64 {
        let [of_a, of_b] = [a, b].map(|k| (self.parts[k].weight, self.surviving[k][octave]));
        let both = of_a.0 + of_b.0;
        let mean = (of_a.0 * of_a.1 + of_b.0 * of_b.1) / both.max(f64::MIN_POSITIVE);
        let of = |kinds: &[usize], (weight, surviving): (f64, f64)| {
            let samples = (self.turns.exposing(kinds, octave) / self.spacing).clamp(1.0, self.most);
            weight * surviving * (1.0 - surviving) / samples
        };
        (of(&[a], of_a) + of(&[b], of_b) - of(&[a, b], (both, mean))).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::Stretch;
    use crate::bins;

    /// So many behaviours by turns, each of so many references: `rounds` of them.
    fn turns(many: u32, each: f64, rounds: u32) -> Turns {
        let stretch = |turn: u32| Stretch {
            from: f64::from(turn) * each,
            within: 1.0,
            kind: turn % many,
        };
        let course: Vec<Stretch> = (0..rounds * many).map(stretch).collect();
        Turns::of_course(&course, f64::from(rounds * many) * each)
    }

    /// How many are left of these parts, each of so many samples of which this part is reused from afar.
    fn left(parts: &[(u32, f64)], turns: Turns, spacing: f64) -> usize {
        let parts = parts.iter().map(|&(samples, part)| far(samples, part));
        let mut of = Parts::new(parts.collect(), turns, spacing, 64.0).merge_alike();
        of.sort_unstable();
        of.dedup();
        of.len()
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
        let merged = |parts: &[(u32, f64)]| left(parts, turns(parts.len() as u32, 1e9, 10), 1e3);
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
    }

    #[test]
    fn parts_by_turns_are_one_where_reuses_see_all_or_turns_are_noisy() {
        let halves = [(500_000, 0.05), (500_000, 0.15)];
        // What is reused after a million references has been through many turns of a hundred.
        assert_eq!(left(&halves, turns(2, 1e5, 100), 1.0), 2);
        assert_eq!(left(&halves, turns(2, 100.0, 100_000), 1.0), 1);
        // Turns of a thousand samples, and of thirty.
        assert_eq!(left(&halves, turns(2, 1e5, 100), 100.0), 2);
        assert_eq!(left(&halves, turns(2, 1e5, 100), 3000.0), 1);
        // Of six the two kinds are left, however they are numbered.
        let six = [0.05, 0.15, 0.05, 0.15, 0.15, 0.05].map(|part| (200_000, part));
        assert_eq!(left(&six, turns(6, 1e5, 100), 100.0), 2);
    }

    #[test]
    fn parts_that_are_many_are_merged_with_those_alike() {
        let parts = (0..12).map(|k| far(50_000, if k % 2 == 0 { 0.05 } else { 0.15 }));
        let of = Parts::new(parts.collect(), turns(12, 1e9, 10), 1e3, 64.0).merge_alike();
        assert_eq!(of, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        // Of many steps none may be taken far.
        let parts = (0..12).map(|k| far(50_000, 0.01 * f64::from(k + 1)));
        let mut of = Parts::new(parts.collect(), turns(12, 1e9, 10), 1e3, 64.0).merge_alike();
        of.dedup();
        assert!((2..=6).contains(&of.len()), "{of:?}");
    }
}

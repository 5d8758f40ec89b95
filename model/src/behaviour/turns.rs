//! How long behaviours go on, next to how far reuses reach.

use super::{MOST, Stretch};
use crate::cluster::{OCTAVES, upper_edge};

/// Pairs of times looked at for each octave of distances.
const LOOKS: u32 = 8192;
/// The golden ratio's fractional part: multiples of it are spread evenly (Weyl 1916).
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// How behaviours take turns.
pub(super) struct Turns {
    /// Which go on at a time and at another within a distance before it: of each octave of distances, up to its upper edge, the part of the pairs
    /// of times that are of each pair of behaviours.
    together: Vec<[[f64; MOST]; MOST]>,
    /// How often each follows each.
    changes: [[f64; MOST]; MOST],
    /// References of each.
    refs: [f64; MOST],
}

impl Turns {
    /// Of a course of a run of so many references.
    pub fn of_course(course: &[Stretch], total: f64) -> Turns {
        let (mut changes, mut refs) = ([[0.0; MOST]; MOST], [0.0; MOST]);
        for (at, stretch) in course.iter().enumerate() {
            let next = course.get(at + 1);
            let kind = stretch.kind as usize;
            refs[kind] += (next.map_or(total, |next| next.from) - stretch.from).max(0.0);
            if let Some(next) = next {
                changes[kind][next.kind as usize] += 1.0;
            }
        }
        let kind = |at: f64| {
            let next = course.partition_point(|stretch| stretch.from <= at);
            course[next.max(1) - 1].kind as usize
        };
        let octave = |octave: usize| {
            let mut together = [[0.0; MOST]; MOST];
            let within = upper_edge(octave).min(total);
            for look in 0..LOOKS {
                let before = within * (f64::from(look) * GOLDEN).fract();
                let at = before + (total - before) * (f64::from(look) + 0.5) / f64::from(LOOKS);
                together[kind(at)][kind(at - before)] += 1.0 / f64::from(LOOKS);
            }
            together
        };
        Turns {
            together: (0..OCTAVES).map(octave).collect(),
            changes,
            refs,
        }
    }

    /// How much of what differs between two behaviours at a time differs on the mean of what a reuse of the octave that ends then has been
    /// through: 1 where they go on for long next to the distance, and 0 where each reuse sees as much of both.
    pub fn persisting(&self, a: usize, b: usize, octave: usize) -> f64 {
        let both = &self.together[octave];
        let [aa, ab, ba, bb] = [both[a][a], both[a][b], both[b][a], both[b][b]];
        let (of_a, of_b) = (aa + 0.5 * (ab + ba), bb + 0.5 * (ab + ba));
        // Covariance of a variable that has the mean 0 over the times of the two, by its variance.
        let varies = of_a * of_b * (of_a + of_b);
        if varies <= 0.0 {
            return 1.0;
        }
        let covaries = of_b * of_b * aa - of_a * of_b * (ab + ba) + of_a * of_a * bb;
        (covaries / varies).clamp(0.0, 1.0)
    }

    /// References of a behaviour that a reuse of the octave is exposed to: those of a turn at least.
    pub fn exposing(&self, kind: usize, octave: usize) -> f64 {
        let turns: f64 = 1.0 + self.changes[kind].iter().sum::<f64>() - self.changes[kind][kind];
        let part = self.refs[kind] / self.refs.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        f64::max(self.refs[kind] / turns, part * upper_edge(octave))
    }

    /// Makes two behaviours one.
    pub fn merge(&mut self, into: usize, gone: usize) {
        merge(&mut self.changes, into, gone);
        for together in &mut self.together {
            merge(together, into, gone);
        }
        self.refs[into] += std::mem::take(&mut self.refs[gone]);
    }
}

/// Adds a row and a column of a table to others.
fn merge(table: &mut [[f64; MOST]; MOST], into: usize, gone: usize) {
    let row = std::mem::replace(&mut table[gone], [0.0; MOST]);
    table[into]
        .iter_mut()
        .zip(row)
        .for_each(|(sum, of)| *sum += of);
    for row in table {
        row[into] += std::mem::take(&mut row[gone]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two behaviours by turns of so many references each.
    fn turns(each: f64) -> Turns {
        let stretch = |turn: u32| Stretch {
            from: f64::from(turn) * each,
            within: 1.0,
            kind: turn % 2,
        };
        let course: Vec<Stretch> = (0..1000).map(stretch).collect();
        Turns::of_course(&course, 1000.0 * each)
    }

    #[test]
    fn short_reuses_see_one_behaviour_and_long_ones_all() {
        let turns = turns(f64::from(1 << 16));
        assert!(turns.persisting(0, 1, 10) > 0.95);
        // A whole turn before the end: the triangle of its covariance falls to -1 at a turn, and is 0 on the mean.
        assert!(turns.persisting(0, 1, 15) < 0.05);
        assert!(turns.persisting(0, 1, 20) < 0.05);
    }

    #[test]
    fn of_behaviours_made_one_only_the_others_matter() {
        // Of three by turns the first two are made one: it goes on for two turns of three.
        let stretch = |turn: u32| Stretch {
            from: f64::from(turn) * 1000.0,
            within: 1.0,
            kind: turn % 3,
        };
        let course: Vec<Stretch> = (0..999).map(stretch).collect();
        let mut three = Turns::of_course(&course, 999_000.0);
        three.merge(0, 1);
        let near = three.persisting(0, 2, 4);
        assert!(near > 0.9, "{near}");
        let far = three.persisting(0, 2, 18);
        assert!(far < 0.05, "{far}");
    }
}

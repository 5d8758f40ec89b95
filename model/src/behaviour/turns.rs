//! How long behaviours go on, next to how far reuses reach.

use super::{MOST, Stretch};
use crate::cluster::{OCTAVES, upper_edge};

/// Times looked at in each behaviour, for each octave of distances.
const LOOKS: u32 = 2048;
/// The golden ratio's fractional part: multiples of it are spread evenly (Weyl 1916).
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Of pairs of behaviours.
type Table = [[f64; MOST]; MOST];

/// How behaviours take turns.
pub(super) struct Turns {
    /// Which go on at a time and at another within a distance before it: of each octave of distances, up to its upper edge, the part of the pairs
    /// of times that are of each pair of behaviours.
    together: Vec<Table>,
    /// How often each follows each.
    changes: Table,
    /// Turns of each, and references of them.
    turns: [f64; MOST],
    refs: [f64; MOST],
}

/// The turns of one behaviour.
#[derive(Clone, Default)]
struct Times {
    /// Where each begins, and the references of it and those before.
    begun: Vec<f64>,
    sums: Vec<f64>,
}

impl Times {
    fn add(&mut self, from: f64, to: f64) {
        let before = self.sums.last().copied().unwrap_or(0.0);
        self.begun.push(from);
        self.sums.push(before + (to - from).max(0.0));
    }

    fn all(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    /// The time behind so many of its references.
    fn at(&self, refs: f64) -> f64 {
        let turn = self.sums.partition_point(|&sum| sum <= refs);
        let turn = turn.min(self.sums.len() - 1);
        let before = turn.checked_sub(1).map_or(0.0, |turn| self.sums[turn]);
        self.begun[turn] + refs - before
    }
}

impl Turns {
    /// Of a course of a run of so many references.
    pub fn of_course(course: &[Stretch], total: f64) -> Turns {
        let (mut changes, mut turns) = ([[0.0; MOST]; MOST], [0.0; MOST]);
        let mut times = vec![Times::default(); MOST];
        for (at, stretch) in course.iter().enumerate() {
            let next = course.get(at + 1);
            let kind = stretch.kind as usize;
            turns[kind] += 1.0;
            times[kind].add(stretch.from, next.map_or(total, |next| next.from));
            if let Some(next) = next {
                changes[kind][next.kind as usize] += 1.0;
            }
        }
        let mut together: Vec<Table> = Vec::with_capacity(OCTAVES);
        for octave in 0..OCTAVES {
            // Beyond the run they are as within it.
            let table = match together.last() {
                Some(last) if upper_edge(octave - 1) >= total => *last,
                _ => looks(course, &times, upper_edge(octave).min(total), total),
            };
            together.push(table);
        }
        let refs = std::array::from_fn(|kind| times[kind].all());
        Turns {
            together,
            changes,
            turns,
            refs,
        }
    }

    /// How much of what differs between two behaviours at a time differs on the mean of what a reuse of the octave that ends then has been
    /// through: 1 where they go on for long next to the distance, and 0 where each reuse sees as much of both, or of neither.
    pub fn persisting(&self, a: usize, b: usize, octave: usize) -> f64 {
        let both = &self.together[octave];
        let part = |k: usize| both[k].iter().sum::<f64>();
        let (of_a, of_b) = (part(a), part(b));
        // Covariance of a variable that has the mean 0 over the times of the two and is 0 elsewhere, by its variance.
        let varies = of_a * of_b * (of_a + of_b);
        if varies <= 0.0 {
            return 0.0;
        }
        let covaries = of_b * of_b * both[a][a] - of_a * of_b * (both[a][b] + both[b][a])
            + of_a * of_a * both[b][b];
        (covaries / varies).clamp(0.0, 1.0)
    }

    /// References of some behaviours, taken for one, that a reuse of the octave is exposed to: those of a turn at least.
    pub fn exposing(&self, kinds: &[usize], octave: usize) -> f64 {
        let sum = |of: &[f64; MOST]| kinds.iter().map(|&k| of[k]).sum::<f64>();
        let between = kinds
            .iter()
            .flat_map(|&a| kinds.iter().map(move |&b| (a, b)));
        let inside: f64 = between
            .filter(|(a, b)| a != b)
            .map(|(a, b)| self.changes[a][b])
            .sum();
        let refs = sum(&self.refs);
        let turn = refs / (sum(&self.turns) - inside).max(1.0);
        let all = self.refs.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        f64::max(turn, refs * (upper_edge(octave) / all).min(1.0))
    }

    /// Makes two behaviours one.
    pub fn merge(&mut self, into: usize, gone: usize) {
        let inside = self.changes[into][gone] + self.changes[gone][into];
        self.turns[into] += std::mem::take(&mut self.turns[gone]) - inside;
        self.refs[into] += std::mem::take(&mut self.refs[gone]);
        merge(&mut self.changes, into, gone);
        self.changes[into][into] = 0.0;
        for together in &mut self.together {
            merge(together, into, gone);
        }
    }
}

/// Of times in each behaviour, and others up to so much before them, the parts that are of each pair of behaviours.
fn looks(course: &[Stretch], times: &[Times], within: f64, total: f64) -> Table {
    let kind = |at: f64| {
        let next = course.partition_point(|stretch| stretch.from <= at);
        course[next.max(1) - 1].kind as usize
    };
    let mut table = [[0.0; MOST]; MOST];
    for (row, times) in table.iter_mut().zip(times) {
        let all = times.all();
        if all <= 0.0 {
            continue;
        }
        let each = all / total.max(f64::MIN_POSITIVE) / f64::from(LOOKS);
        for look in 0..LOOKS {
            let at = times.at(all * (f64::from(look) + 0.5) / f64::from(LOOKS));
            let before = within.min(at) * (f64::from(look) * GOLDEN).fract();
            row[kind(at - before)] += each;
        }
    }
    table
}

/// Adds a row and a column of a table to others.
fn merge(table: &mut Table, into: usize, gone: usize) {
    let row = std::mem::replace(&mut table[gone], [0.0; MOST]);
    let sums = table[into].iter_mut().zip(row);
    sums.for_each(|(sum, of)| *sum += of);
    for row in table {
        row[into] += std::mem::take(&mut row[gone]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Behaviours with these lengths of turns, one after the other, so many times.
    fn rounds(of: &[(u32, f64)], rounds: usize) -> Turns {
        let (mut course, mut from) = (Vec::new(), 0.0);
        for &(kind, refs) in of.iter().cycle().take(rounds * of.len()) {
            let within = 1.0;
            course.push(Stretch { from, within, kind });
            from += refs;
        }
        Turns::of_course(&course, from)
    }

    #[test]
    fn short_reuses_see_one_behaviour_and_long_ones_all() {
        let turn = f64::from(1 << 16);
        let turns = rounds(&[(0, turn), (1, turn)], 500);
        assert!(turns.persisting(0, 1, 10) > 0.95);
        // The covariance falls from 1 to -1 within a turn, so that it is a half on the mean of half of one, and nothing of a whole one.
        let half = turns.persisting(0, 1, 14);
        assert!((half - 0.5).abs() < 0.05, "{half}");
        assert!(turns.persisting(0, 1, 15) < 0.05);
        assert!(turns.persisting(0, 1, 20) < 0.05);
    }

    #[test]
    fn reuses_that_see_others_mostly_tell_two_behaviours_apart_no_more() {
        // Through a turn of eight thousand, of which two of a thousand are on either side.
        let three = rounds(&[(0, 1e3), (2, 8e3), (1, 1e3), (2, 8e3)], 100);
        for (octave, wanted) in [(9, 0.49), (10, 0.24), (11, 0.12), (12, 0.06)] {
            let found = three.persisting(0, 1, octave);
            assert!((found - wanted).abs() < 0.04, "{octave}: {found}");
        }
    }

    #[test]
    fn behaviours_made_one_go_on_for_the_turns_of_both() {
        let mut three = rounds(&[(0, 1e3), (1, 3e3), (2, 1e3)], 333);
        assert!((three.exposing(&[0], 2) / 1e3 - 1.0).abs() < 0.01);
        assert!((three.exposing(&[0, 1], 2) / 4e3 - 1.0).abs() < 0.01);
        // A fifth of what a long reuse sees.
        let fifth = three.exposing(&[0], 16) / upper_edge(16);
        assert!((fifth - 0.2).abs() < 0.01, "{fifth}");
        let before = [8, 9, 10].map(|octave| three.persisting(0, 2, octave));
        three.merge(0, 1);
        assert!((three.exposing(&[0], 2) / 4e3 - 1.0).abs() < 0.01);
        assert!(three.exposing(&[0, 2], 2) > 1e6);
        // As two that take turns of four thousand and one.
        let two = rounds(&[(0, 4e3), (2, 1e3)], 333);
        for octave in 0..14 {
            let (found, wanted) = (three.persisting(0, 2, octave), two.persisting(0, 2, octave));
            assert!((found - wanted).abs() < 0.03, "{octave}: {found} {wanted}");
        }
        let now = [8, 9, 10].map(|octave| three.persisting(0, 2, octave));
        let changed = now
            .iter()
            .zip(before)
            .any(|(now, before)| (now - before).abs() > 0.1);
        assert!(changed, "{before:?} {now:?}");
    }
}

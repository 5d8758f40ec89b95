//! What the change comes from: subjects of both profiles by their misses.

use statcache_model::{CurvePoint, ModelError};

use super::change::{Change, Ends, Figure, Verdict};
use super::doubts::same_objects;
use super::matching::{Pair, Piece, pairs};
use super::{AtSize, Runs};
use crate::analysis::{Analysis, Caches, Miss, Subject};

/// What misses less in both, as a part of all line references, is left out: 0.005 points, as it is printed 0.00 or 0.01.
const LEAST: f64 = 0.5e-4;

/// No subject's misses are known better than to this, as a part of all line references; a curve's ratio is to five times that. (Guessed: without it
/// 8 of 230 rows of a program observed whole five times, ten pairs, were called changed, all by less than 0.02 points; with it none.)
const KNOWN: f64 = 1e-4;

/// In which profiles a subject has samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// In both, or in one only though the code is the same in both: there it was not met.
    Both,
    /// In the second, and its code is not that of the first.
    New,
    /// In the first, and its code is not that of the second.
    Gone,
}

/// A subject in both profiles, or in one.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// As it is called in the second profile; in the first, where it is not in the second.
    pub subject: Subject,
    /// Its line in the first profile, where it has another one there.
    pub line_before: Option<u32>,
    /// Where it has samples.
    pub presence: Presence,
    /// Its misses as a part of all line references of the first run: what it adds to the miss ratio.
    pub before: Figure,
    /// Of the second run.
    pub after: Figure,
    /// Their difference, as a part of 1.
    pub change: Change,
    /// What that comes to.
    pub verdict: Verdict,
    /// Whether its figures in one of the profiles are not to be leaned on.
    pub weak: bool,
}

impl Runs<'_> {
    /// Subjects by how much their misses changed in the cache of a size.
    pub(super) fn subjects(&self, at: &AtSize) -> Result<Vec<Changed>, ModelError> {
        let (before, after) = rayon::join(
            || self.pieces(self.before, &at.before),
            || self.pieces(self.after, &at.after),
        );
        let (a, b) = (self.before.profile, self.after.profile);
        let same = same_objects(a, b);
        let pairs = pairs((a, before?), (b, after?), &same);
        let mut changed: Vec<Changed> = pairs.into_iter().filter_map(changed).collect();
        changed.retain(|c| c.before.value.max(c.after.value) >= LEAST);
        let rank = |c: &Changed| (c.verdict != Verdict::NotSeen, c.change.value.abs());
        changed.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        Ok(changed)
    }

    fn pieces(&self, of: &Analysis<'_>, curve: &CurvePoint) -> Result<Vec<Piece>, ModelError> {
        let cache_bytes = curve.cache_bytes;
        let stream = self.stream_at(cache_bytes);
        let (line_bytes, policy) = (self.options.line_bytes, self.options.policy);
        let caches = Caches {
            sizes: vec![cache_bytes],
            line_bytes,
            policy,
            stream: Some(stream),
            primary: Some(0),
        };
        let ranking = of.ranking(self.options.by, &caches)?;
        let errors = of.share_errors(&ranking.subjects, cache_bytes, line_bytes, policy, stream)?;
        let pieces = ranking.rows.iter().map(|row| {
            let miss = &row.miss[0];
            let error = errors.get(&row.subject).copied().unwrap_or(1.0);
            Piece {
                subject: ranking.subjects.list[row.subject as usize].clone(),
                misses: misses(miss, curve.into(), row.access_share, error),
                share: row.access_share,
                weak: miss.weak,
            }
        });
        Ok(pieces.collect())
    }
}

/// What a subject adds to the miss ratio of its run: its share of the misses. Its interval holds how far its own miss ratio may be off,
/// and how far its share of the references, of which `error` is the half width; they come from different things and are combined in quadrature. It
/// adds no more than there may be: `curve` is what all subjects come to.
fn misses(miss: &Miss, curve: Figure, access_share: f64, error: f64) -> Figure {
    let value = miss.miss_share * curve.value;
    if value <= 0.0 || access_share <= 0.0 || miss.miss_ratio <= 0.0 {
        return Figure {
            value: 0.0,
            low: 0.0,
            high: (miss.high * access_share).hypot(KNOWN).min(curve.high),
        };
    }
    // A share is none at the least and all at the most.
    let (less, more) = (error.min(access_share), error.min(1.0 - access_share));
    let down = (1.0 - miss.low / miss.miss_ratio).hypot(less / access_share);
    let up = (miss.high / miss.miss_ratio - 1.0).hypot(more / access_share);
    Figure {
        value,
        low: (value - (value * down).hypot(KNOWN)).max(0.0),
        high: (value + (value * up).hypot(KNOWN)).min(curve.high.max(value)),
    }
}

fn changed(pair: Pair) -> Option<Changed> {
    let presence = match (&pair.before, &pair.after) {
        (None, Some(_)) if !pair.is_same_code => Presence::New,
        (Some(_), None) if !pair.is_same_code => Presence::Gone,
        _ => Presence::Both,
    };
    let figure = |piece: &Option<Piece>, other: &Option<Piece>| match (piece, other) {
        (Some(piece), _) => piece.misses,
        (None, Some(other)) => absent(other.misses),
        (None, None) => Figure::default(),
    };
    let before = figure(&pair.before, &pair.after);
    let after = figure(&pair.after, &pair.before);
    let weak = [&pair.before, &pair.after]
        .into_iter()
        .flatten()
        .any(|piece| piece.weak);
    let change = Change::difference(before, after, Ends::of(weak));
    let line = pair.before.as_ref().map(|piece| piece.subject.line);
    let subject = pair.after.or(pair.before)?.subject;
    Some(Changed {
        line_before: line.filter(|line| *line != subject.line),
        subject,
        presence,
        before,
        after,
        verdict: change.verdict(),
        change,
        weak,
    })
}

/// What was met in one profile only may be in the other, and its windows have missed it, by as much as is uncertain where it was met.
fn absent(other: Figure) -> Figure {
    Figure {
        value: 0.0,
        low: 0.0,
        high: other.value - other.low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(line: u32, [value, low, high]: [f64; 3], weak: bool) -> Piece {
        Piece {
            subject: Subject {
                line,
                ..Subject::default()
            },
            misses: Figure { value, low, high },
            share: 0.1,
            weak,
        }
    }

    fn of(before: Option<Piece>, after: Option<Piece>, is_same_code: bool) -> Changed {
        changed(Pair {
            before,
            after,
            is_same_code,
        })
        .unwrap()
    }

    #[test]
    fn weak_ones_change_only_where_their_intervals_are_apart() {
        // Apart in quadrature, and overlapping.
        let (low, high) = ([0.02, 0.01, 0.031], [0.04, 0.03, 0.05]);
        let verdict = |weak| {
            let changed = of(
                Some(piece(1, low, weak)),
                Some(piece(1, high, false)),
                false,
            );
            changed.verdict
        };
        assert_eq!(verdict(false), Verdict::Worse);
        assert_eq!(verdict(true), Verdict::NotSeen);
        let far = of(
            Some(piece(1, low, true)),
            Some(piece(3, [0.4, 0.3, 0.5], false)),
            false,
        );
        assert_eq!(
            (far.verdict, far.weak, far.line_before),
            (Verdict::Worse, true, Some(1))
        );
    }

    #[test]
    fn what_is_in_one_profile_only_is_new_or_gone_unless_the_code_is_the_same() {
        let sure = || Some(piece(1, [0.04, 0.03, 0.05], false));
        let unsure = || Some(piece(1, [0.04, 0.001, 0.2], false));
        let new = of(None, sure(), false);
        assert_eq!((new.presence, new.verdict), (Presence::New, Verdict::Worse));
        assert_eq!((new.before.value, new.change.value), (0.0, 0.04));
        let gone = of(sure(), None, false);
        assert_eq!(
            (gone.presence, gone.verdict),
            (Presence::Gone, Verdict::Better)
        );
        assert_eq!(of(sure(), None, true).presence, Presence::Both);
        assert_eq!(of(None, unsure(), false).verdict, Verdict::NotSeen);
    }

    #[test]
    fn misses_are_as_sure_as_ratio_and_share_of_the_references() {
        let miss = Miss {
            cache_bytes: 1 << 20,
            miss_ratio: 0.5,
            low: 0.35,
            high: 0.7,
            miss_share: 0.8,
            weak: false,
        };
        let curve = Figure {
            value: 0.1,
            low: 0.05,
            high: 0.5,
        };
        let figure = misses(&miss, curve, 0.16, 0.064);
        let wanted = [0.08, 0.08 * (1.0 - 0.5), 0.08 * (1.0 + 0.32f64.sqrt())];
        for (found, wanted) in [figure.value, figure.low, figure.high].iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-6, "{figure:?}");
        }
        let none = Miss {
            miss_share: 0.0,
            miss_ratio: 0.0,
            low: 0.0,
            high: 0.1,
            ..miss
        };
        let figure = misses(&none, curve, 0.5, 0.1);
        assert_eq!((figure.value, figure.low), (0.0, 0.0));
        assert!((figure.high - 0.05).abs() < 1e-6, "{figure:?}");
        // All that there is, in a window that tells nothing of others.
        let all = Miss {
            miss_share: 1.0,
            miss_ratio: 0.1,
            low: 0.09,
            high: 0.6,
            ..miss
        };
        assert_eq!(misses(&all, curve, 1.0, 1.0).high, curve.high);
        let high = misses(&Miss { high: 0.2, ..all }, curve, 1.0, 1.0).high;
        assert!(
            (high - 0.2).abs() < 1e-6,
            "no more references than all: {high}"
        );
    }
}

//! Which parts of a run behave alike, by the code that ran and the data it touched.
//!
//! What is seen at samples, and where reuses longer than a cluster of them end, are glimpses of what the program did then, those close together one.
//! Glimpses are told apart by the instructions and data in them, not by the distances that are estimated from them: each shows one of several
//! behaviours, a multinomial over codes (classification EM, Celeux & Govaert 1992), which goes on for a while (Viterbi 1967). As basic block vectors of
//! intervals (Sherwood et al., ASPLOS 2002) are, but sampled and of some hundred references.
//!
//! Samples are taken at times that know nothing of the program. Ends are not: a behaviour with far reuses is seen at many, and one with short ones between its
//! samples at none. So that none ends for a while counts as evidence, what misses is compared with what misses elsewhere and not with what runs,
//! each behaviour's share of the time is made that of its samples, and where these are still far apart, behaviours are not told apart at all.
//!
//! Each part has few samples, and the noise of what it evicts makes misses of hits. So behaviours are one unless a mixture of them would be far off,
//! and farther than that noise ([`alike`]):
//! a compiler runs this and that by turns of some clusters of samples, of which 0.9, 1.5 and 1.6 % of the references are reused from afar. (Told
//! apart it was told 1.10 % of misses for 0.80 in 96 KiB, and as one 0.77 %.)

mod alike;
mod mixture;
mod turns;

use std::ops::Range;

use crate::bins;
use crate::cluster::Signature;
use crate::hash::FastMap;
use crate::pairs;
use crate::placed::{Placed, mean_weight};
use crate::timeline::SHORT;
use alike::Parts;
use mixture::Mixture;
use turns::Turns;

/// Most behaviours told apart.
const MOST: usize = 12;
/// Samples next to each other that behaviours are learned from at once.
const GROUP: usize = 128;
/// Most observations of a glimpse.
const GLIMPSE: usize = 16;
/// Part of the mean distance of samples from which on observations belong to different glimpses.
const APART: f64 = 0.5;
/// Samples that are taken on the mean in a time for which no reuse ends, which tell of behaviours in which many do: samples close together have
/// reuses that end close together, so that a longer time is less unusual than it seems.
const TELLING: f64 = 20.0;
/// Most glimpses of nothing between two of something.
const MOST_UNSEEN: f64 = 64.0;
/// Times that the course is followed, each with what was learned from the one before.
const COURSES: usize = 8;
/// Most stretches that a run is cut to: reuses are followed through each of them.
const MOST_STRETCHES: usize = 32_768;
/// Samples that are looked at together for whether behaviours are told apart, and the part of the time that may be taken for another's.
const BLOCK: f64 = 4096.0;
const UNSURE: f64 = 0.2;
/// The behaviour where they are not.
const MIXED: u32 = MOST as u32;

/// A part of a run that behaves in one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// When it begins, line references since the start of the run; the first at 0.
    pub from: f64,
    /// References within which that is placed; infinity where it is not.
    pub within: f64,
    /// Number of the behaviour.
    pub kind: u32,
}

/// What ran at a time, by its number.
#[derive(Clone, Copy, Debug)]
struct Observation {
    at: f64,
    code: u32,
    /// Of an end of a reuse, the number of the samples taken close together that it is of.
    end: Option<u32>,
    /// References per sample.
    spacing: f64,
}

/// What was seen close together, or nothing for a while.
#[derive(Clone, Debug)]
struct Glimpse {
    /// Observations.
    seen: Range<usize>,
    from: f64,
    to: f64,
    /// Samples that are taken on the mean from the end of the one before to its own; and as many of them as tell something where no reuse ends.
    wide: f32,
    telling: f32,
    /// Ends of reuses, and samples.
    ends: f32,
    taken: f32,
}

impl Stretch {
    /// One for the whole run.
    pub fn whole() -> Stretch {
        Stretch {
            from: 0.0,
            within: f64::INFINITY,
            kind: 0,
        }
    }
}

/// The course of a run of so many references, which is cut to `segments` at least; `placed` in time order.
pub(crate) fn course(placed: &[Placed], total: f64, segments: f64) -> Vec<Stretch> {
    let taken = placed.iter().filter(|p| !p.imputed);
    let (count, sum) = taken.fold((0.0, 0.0), |(n, sum), p| (n + 1.0, sum + p.raw));
    let spacing = f64::max(sum / f64::max(count, 1.0), 1.0);
    let (seen, ends) = observations(placed, spacing);
    if seen.len() < 2 * GROUP || ends.iter().filter(|end| !**end).count() < 2 {
        return vec![Stretch::whole()];
    }
    let codes: Vec<u32> = seen.iter().map(|o| o.code).collect();
    let starts = seen.iter().filter(|o| o.end.is_none());
    let taken: Vec<u32> = starts.map(|o| o.code).collect();
    let glimpses = glimpses(&seen, spacing);
    drop(seen);
    let mut mixture = Mixture::learn(&taken, ends);
    let mut of = mixture.follow(&codes, &glimpses);
    let unite = |of: &mut [u32]| unite(placed, &stretches(&glimpses, of), total, segments, of);
    unite(&mut of);
    for _ in 0..COURSES {
        mixture.learn_course(&codes, &glimpses, &mut of);
        of = mixture.follow(&codes, &glimpses);
    }
    unite(&mut of);
    mix(&glimpses, &mut of);
    let course = stretches(&glimpses, &of);
    match course.len() <= MOST_STRETCHES {
        true => course,
        false => vec![Stretch::whole()],
    }
}

/// What was seen of the program, in time order, and of each code whether it is one of ends. Where reuses end something else may be seen than
/// where they began, and what ends many is seen more often than it runs.
fn observations(placed: &[Placed], spacing: f64) -> (Vec<Observation>, Vec<bool>) {
    let mut names: FastMap<(u64, bool), u32> = FastMap::default();
    let mut ends = Vec::new();
    let (mut seen, mut cluster, mut before) = (Vec::new(), 0, 0.0);
    for p in placed.iter().filter(|p| !p.imputed) {
        let mut see = |at: f64, code: u64, end: Option<u32>| {
            let code = *names.entry((code, end.is_some())).or_insert_with(|| {
                ends.push(end.is_some());
                ends.len() as u32 - 1
            });
            let spacing = p.raw.max(1.0);
            seen.push(Observation {
                at,
                code,
                end,
                spacing,
            });
        };
        cluster += u32::from(p.from - before >= APART * spacing);
        before = p.from;
        see(p.from, p.code, None);
        if let (Some(to), Some(code)) = (p.to.filter(|_| p.distance >= SHORT), p.end_code) {
            see(to, code, Some(cluster));
        }
    }
    seen.sort_by(|a, b| a.at.total_cmp(&b.at));
    // Samples are taken as often at the end of a reuse as they are there, not where it began.
    let mut there = spacing;
    for o in &mut seen {
        match o.end {
            None => there = o.spacing,
            Some(_) => o.spacing = there,
        }
    }
    (seen, ends)
}

/// Stretches of glimpses of one behaviour. That nothing is seen tells where a change is, too. (With the references between samples for how well
/// borders are placed, intervals of behaviours by turns of 400,000 and 100,000 references reached 5 to 8 points to either side, where errors were below one.)
fn stretches(glimpses: &[Glimpse], of: &[u32]) -> Vec<Stretch> {
    let mut stretches = vec![Stretch {
        kind: of[0],
        ..Stretch::whole()
    }];
    for (two, kinds) in glimpses.windows(2).zip(of.windows(2)) {
        let (before, behind) = (two[0].to, two[1].from);
        if kinds[0] != kinds[1] {
            stretches.push(Stretch {
                from: 0.5 * (before + behind),
                within: match kinds.contains(&MIXED) {
                    true => f64::INFINITY,
                    false => behind - before,
                },
                kind: kinds[1],
            });
        }
    }
    stretches
}

/// What was seen close together and what was not, in order. `spacing`: references per sample.
fn glimpses(seen: &[Observation], spacing: f64) -> Vec<Glimpse> {
    let mut glimpses: Vec<Glimpse> = Vec::new();
    let mut from = 0;
    for to in 1..=seen.len() {
        let apart = |two: &[Observation]| two[1].at - two[0].at >= APART * spacing;
        if to < seen.len() && to - from < GLIMPSE && !apart(&seen[to - 1..=to]) {
            continue;
        }
        let (first, last) = (seen[from].at, seen[to - 1].at);
        let before = glimpses.last().map_or(0.0, |g| g.to);
        // Nothing was seen in between: a glimpse of it for each sample that might have been.
        let wide = (first - before) / seen[from].spacing;
        let unseen = wide.min(MOST_UNSEEN) as usize;
        let part = 1.0 / (unseen + 1) as f64;
        let telling = wide.min(TELLING) * part;
        for k in 1..=unseen {
            let at = before + k as f64 * part * (first - before);
            glimpses.push(Glimpse {
                seen: from..from,
                from: at,
                to: at,
                wide: (wide * part) as f32,
                telling: telling as f32,
                ends: 0.0,
                taken: 0.0,
            });
        }
        let inside = (last - first) / seen[from].spacing;
        glimpses.push(Glimpse {
            seen: from..to,
            from: first,
            to: last,
            wide: (wide * part + inside) as f32,
            telling: (telling + inside) as f32,
            ends: ends(&seen[from..to]),
            taken: seen[from..to].iter().filter(|o| o.end.is_none()).count() as f32,
        });
        from = to;
    }
    glimpses
}

/// How many of the ends are not of samples taken close together, as those come together where a program goes through its data once more.
fn ends(seen: &[Observation]) -> f32 {
    let mut of: Vec<u32> = seen.iter().filter_map(|o| o.end).collect();
    of.sort_unstable();
    of.dedup();
    of.len() as f32
}

/// Makes one of behaviours whose distances are as good as one.
fn unite(placed: &[Placed], course: &[Stretch], total: f64, segments: f64, of: &mut [u32]) {
    let mut signatures = vec![Signature::default(); MOST];
    let spacing = mean_weight(placed).max(f64::MIN_POSITIVE) / pairs::independence(placed);
    let mut at = 0;
    for p in placed {
        while course.get(at + 1).is_some_and(|next| next.from <= p.from) {
            at += 1;
        }
        let reused = p.to.map(|_| bins::bin_of_real(p.distance));
        signatures[course[at].kind as usize].add(reused, p.weight, p.weight / spacing);
    }
    let turns = Turns::of_course(course, total.max(1.0));
    let merged = Parts::new(signatures, turns, spacing, segments).merge_alike();
    of.iter_mut().for_each(|k| *k = merged[*k as usize] as u32);
}

/// Makes one of behaviours where they do not last for long enough to be told apart: where those that are seen at the ends of reuses have
/// more of the time than of the samples.
fn mix(glimpses: &[Glimpse], of: &mut [u32]) {
    let samples: f64 = glimpses.iter().map(|g| f64::from(g.taken)).sum();
    let each = samples / (samples / BLOCK).floor().max(1.0);
    let (mut from, mut before) = (0, 0.0);
    let (mut taken, mut wide) = ([0.0; MOST], [0.0; MOST]);
    for at in 0..of.len() {
        taken[of[at] as usize] += f64::from(glimpses[at].taken);
        wide[of[at] as usize] += f64::from(glimpses[at].wide);
        let (n, all) = (taken.iter().sum::<f64>(), wide.iter().sum::<f64>());
        let end = at + 1 == of.len();
        // The last block ends with the run.
        if !end && (n < each || before + n >= samples - 0.5 * each) {
            continue;
        }
        let apart = taken.iter().zip(wide);
        let apart = apart.map(|(taken, wide)| (taken / n - wide / all).abs());
        if n > 0.0 && all > 0.0 && 0.5 * apart.sum::<f64>() > UNSURE {
            of[from..=at].fill(MIXED);
        }
        (from, before) = (at + 1, before + n);
        (taken, wide) = ([0.0; MOST], [0.0; MOST]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Glimpses of behaviours 0 and 1 by turns: samples and time of each in a round, so many rounds.
    fn rounds(taken: [f32; 2], wide: [f32; 2], rounds: usize) -> (Vec<Glimpse>, Vec<u32>) {
        let glimpse = |at: usize| Glimpse {
            seen: at..at + 1,
            from: at as f64,
            to: at as f64,
            wide: wide[at % 2],
            telling: wide[at % 2],
            ends: 0.0,
            taken: taken[at % 2],
        };
        let of = (0..2 * rounds).map(|at| (at % 2) as u32);
        ((0..2 * rounds).map(glimpse).collect(), of.collect())
    }

    #[test]
    fn what_has_more_of_the_time_than_of_the_samples_is_not_told_apart() {
        let (right, of) = rounds([12.0, 4.0], [11.0, 5.0], 1000);
        let mut mixed = of.clone();
        mix(&right, &mut mixed);
        assert_eq!(mixed, of);
        let (wrong, of) = rounds([12.0, 4.0], [6.0, 10.0], 1000);
        let mut mixed = of;
        mix(&wrong, &mut mixed);
        assert!(mixed.iter().all(|&k| k == MIXED));
        // Of a run that goes wrong half-way, the first half is told apart.
        let (mut half, mut of) = rounds([12.0, 4.0], [11.0, 5.0], 1000);
        half.extend(wrong);
        of.extend_from_within(..);
        mix(&half, &mut of);
        assert!(of[..2000 - 512].iter().all(|&k| k != MIXED));
        assert!(of[2000 + 512..].iter().all(|&k| k == MIXED));
    }

    #[test]
    fn changes_lie_between_glimpses_and_mixtures_have_no_place() {
        let (glimpses, _) = rounds([1.0, 1.0], [1.0, 1.0], 3);
        let course = stretches(&glimpses, &[0, 0, 1, 1, MIXED, MIXED]);
        let told: Vec<_> = course.iter().map(|s| (s.from, s.within, s.kind)).collect();
        let never = f64::INFINITY;
        let wanted = [(0.0, never, 0), (1.5, 1.0, 1), (3.5, never, MIXED)];
        assert_eq!(told, wanted);
    }

    #[test]
    fn nothing_seen_for_a_while_is_seen_as_that() {
        let see = |at: f64, end: Option<u32>| Observation {
            at,
            code: 0,
            end,
            spacing: 10.0,
        };
        let seen = [
            see(5.0, None),
            see(6.0, Some(1)),
            see(36.0, Some(2)),
            see(37.0, Some(2)),
        ];
        let glimpses = glimpses(&seen, 10.0);
        let told: Vec<_> = glimpses
            .iter()
            .map(|g| (g.seen.clone(), g.ends, g.taken))
            .collect();
        let wanted = [
            (0..2, 1.0, 1.0),
            (2..2, 0.0, 0.0),
            (2..2, 0.0, 0.0),
            (2..2, 0.0, 0.0),
            (2..4, 1.0, 0.0),
        ];
        assert_eq!(told, wanted);
        let all: f32 = glimpses.iter().map(|g| g.wide).sum();
        assert!((all - 3.7).abs() < 1e-5, "{all}");
    }
}

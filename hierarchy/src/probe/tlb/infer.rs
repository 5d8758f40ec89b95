//! From timed walks over pages to entries, costs and granules.

use super::{FITS, Point, Samples, Vote};
use crate::finding::{Confidence, Finding, plurality, quantile};

/// How far a vote's plain hits may lie above the fastest vote's before it counts as disturbed. A choice: clocks wander less.
const BASE: f64 = 1.15;

/// Votes whose base is sound. Everything looks fast beside plain hits that were disturbed: the one place where noise
/// would not add.
fn sound(s: &Samples) -> impl Iterator<Item = &Vote> {
    let base = s.votes.iter().map(|v| v.hit).fold(f64::INFINITY, f64::min);
    s.votes
        .iter()
        .filter(move |v| v.cost >= 1.0 && v.hit <= BASE * base)
}

/// Entries that some vote has proven: the largest page count that was fast.
pub fn proven(s: &Samples) -> u64 {
    let fast = |v: &Vote| {
        v.tries
            .iter()
            .filter(|t| t.1 < FITS * v.cost)
            .map(|t| t.0)
            .max()
    };
    sound(s).filter_map(fast).max().unwrap_or(0)
}

/// First-level entries, by the votes' knees.
///
/// Interference takes entries away, so a vote for more than the winner speaks against it.
pub fn infer_entries(s: &Samples) -> Finding<u64> {
    let good: Vec<Option<u64>> = sound(s).map(Vote::entries).collect();
    if good.is_empty() {
        return Finding::refused(if s.votes.is_empty() {
            "not measured"
        } else {
            "translation misses cost nothing that can be seen"
        });
    }
    let found = plurality(&good);
    match found.value {
        Some(n) if !n.is_multiple_of(8) => {
            // No published buffer has such a size (Intel and AMD optimisation manuals): something else holds entries.
            let mut f = Finding::refused(format!(
                "{n} usable; no multiple of 8, so others hold some of the entries"
            ));
            f.votes = found.votes;
            f
        }
        Some(_) if found.agree < 2 => {
            let mut f = Finding::refused("only one vote came to a result");
            f.votes = found.votes;
            f
        }
        _ => found,
    }
}

/// Cost of a first-level miss that hits the second level, cycles.
pub fn infer_cost(s: &Samples) -> Finding<f64> {
    let costs: Vec<f64> = sound(s).map(|v| v.cost).collect();
    match quantile(&costs, 0.5) {
        None => Finding::refused("translation misses cost nothing that can be seen"),
        Some(c) => {
            let agree = costs.iter().filter(|x| (*x - c).abs() < 0.1 * c).count();
            let sure = if agree >= 3 {
                Confidence::High
            } else {
                Confidence::Medium
            };
            Finding {
                value: Some(c),
                confidence: sure,
                votes: costs.len() as u32,
                agree: agree as u32,
                runner_up: None,
                reason: String::new(),
            }
        }
    }
}

/// Page size.
pub fn infer_page(s: &Samples) -> Finding<u64> {
    plurality(&sound(s).map(Vote::page).collect::<Vec<_>>())
}

/// Second level: entries (as low and high bound) and extra cycles of a walk.
pub fn infer_second(s: &Samples) -> Finding<(u64, u64, f64)> {
    let mut counts: Vec<u64> = s.curve.iter().map(|p| p.0).collect();
    counts.sort_unstable();
    counts.dedup();
    // Lowest of all passes for each point, then made monotone: noise only adds.
    let mut extra: Vec<(u64, f64)> = counts
        .iter()
        .map(|&n| {
            let low = |f: fn(&Point) -> f64| {
                s.curve
                    .iter()
                    .filter(|p| p.0 == n)
                    .map(f)
                    .fold(f64::INFINITY, f64::min)
            };
            (n, low(|p| p.1) - low(|p| p.2))
        })
        .collect();
    for i in (0..extra.len().saturating_sub(1)).rev() {
        extra[i].1 = extra[i].1.min(extra[i + 1].1);
    }
    if extra.len() < 8 {
        return Finding::refused("the sweep over pages did not run far enough");
    }
    let cost = infer_cost(s).value.unwrap_or(7.0);
    let low = quantile(&extra.iter().take(6).map(|e| e.1).collect::<Vec<_>>(), 0.5).unwrap_or(cost);
    let high = extra[extra.len() - 1].1;
    let plateau = quantile(
        &extra.iter().rev().take(4).map(|e| e.1).collect::<Vec<_>>(),
        0.5,
    )
    .unwrap_or(high);
    if plateau - low < cost.max(5.0) {
        return Finding::refused("no second rise within the sweep");
    }
    // Onset and half height of the largest rise: the sparse lines fill the caches too, so a slow drift is
    // taken off by requiring a quarter of the whole rise.
    let cross = |share: f64| {
        extra
            .iter()
            .find(|e| e.1 > low + share * (plateau - low))
            .map(|e| e.0)
    };
    let (Some(onset), Some(half)) = (cross(0.12), cross(0.5)) else {
        return Finding::refused("no second rise within the sweep");
    };
    // What is sure to be there is the last count of pages before the rise.
    let held = extra.iter().map(|e| e.0).rfind(|n| *n < onset);
    let onset = held.unwrap_or(onset);
    let sharp = (half as f64 / onset as f64) < 1.35;
    let confidence = if sharp {
        Confidence::Medium
    } else {
        Confidence::Low
    };
    let why = if sharp {
        "read off a curve"
    } else {
        "soft knee: caches and page tables blur it"
    };
    Finding::new((onset, half, plateau - low), confidence, why)
}

/// Does the host translate a huge page as one? True when misses vanish with huge pages asked for.
pub fn infer_granule(s: &Samples, page: Option<u64>) -> Finding<bool> {
    let Some(cost) = infer_cost(s).value else {
        return Finding::refused("no visible translation cost");
    };
    if s.huge.is_empty() {
        return Finding::refused("not measured");
    }
    if s.huge_kib == Some(0) {
        return Finding::refused("the kernel gave no huge pages");
    }
    let Some(low) = quantile(&s.huge.iter().map(|h| h.1).collect::<Vec<_>>(), 0.0) else {
        return Finding::refused("no undisturbed window");
    };
    if page.is_none() {
        return Finding::refused("the page size is not known");
    }
    let whole = low < 0.3 * cost;
    if whole || low > 0.7 * cost {
        // On one host some runs' memory was translated whole and others' was not.
        let place = "seen at one place of memory: a host may back another one differently";
        let mut f = Finding::new(whole, Confidence::Medium, place);
        (f.votes, f.agree) = (s.huge.len() as u32, s.huge.len() as u32);
        f
    } else {
        Finding::refused("part of the accesses miss")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tlb::found;

    #[test]
    fn a_strangers_entry_does_not_hide_the_last_ones() {
        // One host with 96 entries: from 94 on one miss a lap more, from 97 on two more for every page.
        let knee = [
            (92, 1.2),
            (93, 0.7),
            (94, 8.5),
            (95, 8.6),
            (96, 9.0),
            (97, 23.5),
            (98, 35.4),
        ];
        assert_eq!(found(&knee, 6.8), Some(96));
        assert_eq!(found(&knee[..6], 6.8), None);
    }

    #[test]
    fn entries_that_no_buffer_has_are_refused() {
        let vote = |n: u64| Vote {
            cost: 7.0,
            knee: vec![(n, 0.0), (n + 1, 20.0), (n + 2, 40.0)],
            ..Vote::default()
        };
        let of = |n: u64| {
            infer_entries(&Samples {
                votes: vec![vote(n); 5],
                ..Samples::default()
            })
        };
        assert_eq!(of(96).value, Some(96));
        assert_eq!(of(91).value, None);
    }
}

//! Second-level associativity on ordinary pages, whatever the index: by congruent pages.
//!
//! Two searches lead to a *congruence class*, pages whose lines at one offset share a second-level set:
//! [`circle`] compares walks, which serves any replacement policy, and [`victim`] watches one line, which serves
//! any index. In a class k pages fit up to the ways and one more does not: that step, asked of many random
//! subsets and at spaced times, is the answer. The share of congruent pages among strangers gives the number of sets
//! reachable from one page offset. Nothing assumes contiguous memory or least-recently-used replacement.

mod circle;
mod victim;

use super::l1::Geometry;
use crate::finding::{Confidence, Finding};
use crate::measure::{Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// What one congruence class taught.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Vote {
    /// When it began, nanoseconds.
    pub at_ns: u64,
    /// Cycles per load of a victim that stayed, and of one that was evicted.
    pub levels: (f64, f64),
    /// (subset size, subsets that evicted, subsets tried).
    pub curve: Vec<(u32, u32, u32)>,
    /// (pages in a batch, batches that held a congruent page, batches tried): how rare congruent pages are.
    pub batches: Vec<(u32, u32, u32)>,
    /// The same with batches of pages known not to be congruent: how often the test errs.
    pub control: (u32, u32),
    /// The same with a member among them: how often the test sees what is there. (0, 0) where it was not asked.
    #[serde(default)]
    pub noticed: (u32, u32),
    /// Pages that the batches were drawn from.
    pub pool: u32,
    /// Cycles per load of the victim after the whole pool was walked at other page offsets: a slow answer
    /// says that the index mixes page-offset bits with higher ones.
    pub crossed: Option<f64>,
    /// Length of the shortest evicting prefix of random pages.
    pub prefix: u32,
    /// Found by comparing walks; otherwise by watching a victim.
    #[serde(default)]
    pub walked: bool,
    /// Where the vote gave up, if it did.
    pub gave_up: Option<String>,
    /// The congruent pages, for probes that build on them.
    #[serde(skip)]
    pub class: Vec<u64>,
    /// Filler pages of the vote.
    #[serde(skip)]
    pub others: Vec<u64>,
}

/// Subsets tried for each number of congruent pages.
const TRIALS: u32 = 10;
/// Batches that count towards the share of congruent pages.
const BATCHES: u32 = 240;

/// One vote: a new class, its curve, the share of congruent pages.
///
/// `hit` is the level's latency in cycles as far as it is known, `pool_pages` bounds the pages to draw from.
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    l1: Geometry,
    line: u64,
    hit: Option<f64>,
    pool_pages: u64,
    deadline_ns: u64,
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let start = m.now_ns();
    let half = start + deadline_ns.saturating_sub(start) / 2;
    let watched = victim::collect(m, l1, line, pool_pages, half, rng)?;
    // Most hosts are done here; others have a policy under which a victim now and then survives.
    if step(&watched.curve).is_some() && watched.control.0 * 8 <= watched.control.1 {
        return Ok(watched);
    }
    let mut walked = circle::collect(m, l1, hit, pool_pages, deadline_ns, rng)?;
    walked.at_ns = start;
    if step(&walked.curve).is_some() {
        return Ok(walked);
    }
    if let (Some(a), Some(b)) = (&watched.gave_up, &walked.gave_up) {
        walked.gave_up = Some(format!("{a}; walks: {b}"));
    }
    Ok(if walked.curve.is_empty() && !watched.curve.is_empty() {
        watched
    } else {
        walked
    })
}

/// Second-level ways: where the pooled curve steps.
pub fn infer(votes: &[Vote]) -> Finding<u32> {
    let done: Vec<&Vote> = votes.iter().filter(|v| !v.curve.is_empty()).collect();
    if done.is_empty() {
        let why = votes
            .iter()
            .find_map(|v| v.gave_up.clone())
            .unwrap_or_else(|| "not measured".into());
        return Finding::refused(why);
    }
    // A blurred curve is no vote: a disturbed class says nothing, a sharp step does.
    // A class whose test errs on pages known to be strangers is no vote either.
    let steps: Vec<Option<u32>> = done
        .iter()
        .filter(|v| v.walked || v.control.0 * 8 <= v.control.1)
        .filter_map(|v| step(&v.curve))
        .map(Some)
        .collect();
    let mut found = crate::finding::plurality(&steps);
    if found.agree < 2 {
        return Finding::refused(format!(
            "{} of {} congruence classes came to a sharp result",
            steps.len(),
            votes.len()
        ));
    }
    if found.agree == found.votes && found.votes >= 3 {
        found.confidence = Confidence::High;
        found.reason.clear();
    }
    found
}

/// The least subset size from which on most subsets evict while smaller ones do not.
fn step(curve: &[(u32, u32, u32)]) -> Option<u32> {
    let share = |c: &(u32, u32, u32)| f64::from(c.1) / f64::from(c.2.max(1));
    let at = curve.iter().position(|c| share(c) >= 0.5)?;
    let sharp = curve[..at].iter().all(|c| share(c) <= 0.25)
        && curve[at..].iter().all(|c| share(c) >= 0.75);
    (at > 0 && sharp).then(|| curve[at].0)
}

/// Sets reachable from one page offset, from the share of congruent pages: (estimate, relative error).
pub fn colours(votes: &[Vote]) -> Option<(f64, f64)> {
    // Weighted mean of the logarithms.
    let (mut sum, mut weight) = (0.0, 0.0);
    for (v, &(size, hits, tried)) in votes
        .iter()
        .filter(|v| step(&v.curve).is_some())
        .flat_map(|v| v.batches.iter().map(move |b| (v, b)))
    {
        let (errors, controls) = v.control;
        if hits == 0 || hits == tried || controls < 5 || errors * 8 > controls {
            continue;
        }
        let error = f64::from(errors) / f64::from(controls);
        let right = 1.0 - error;
        let seen = match v.noticed {
            (_, 0) => 1.0,
            (n, tried) => f64::from(n) / f64::from(tried),
        };
        if seen < 0.7 {
            continue;
        }
        let share = (f64::from(hits) / f64::from(tried) - error) / (seen - error);
        let missed = (1.0 - share).clamp(0.01, 0.99);
        let colours = 1.0 / (1.0 - missed.powf(1.0 / f64::from(size)));
        let x = -missed.ln();
        // The pages drawn from are themselves a sample of all, and three in a hundred for tests that failed.
        let variance = (x.exp() - 1.0) / (f64::from(tried) * x * x)
            + colours / f64::from(v.pool.max(1))
            + (0.03 + (1.0 - right) / x / right).powi(2);
        sum += colours.ln() / variance;
        weight += 1.0 / variance;
    }
    (weight > 0.0).then(|| ((sum / weight).exp(), weight.recip().sqrt()))
}

/// The index leaves the page offset alone: lines at other offsets never evict. `None` when votes disagree.
pub fn linear(votes: &[Vote]) -> Option<bool> {
    let says: Vec<bool> = votes
        .iter()
        .filter_map(|v| {
            Some(v.crossed? < v.levels.0 + 0.3 * (v.levels.1 - v.levels.0).min(2.5 * v.levels.0))
        })
        .collect();
    let yes = says.iter().filter(|s| **s).count();
    // Noise makes a vote slow, a pool with too few congruent pages makes one fast.
    match (yes, says.len()) {
        (y, n) if n >= 1 && y == n => Some(true),
        (0, n) if n >= 2 => Some(false),
        (y, n) if n >= 4 && y * 4 >= n * 3 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sharp_step_counts() {
        assert_eq!(
            step(&[(14, 0, 12), (15, 1, 12), (16, 12, 12), (17, 12, 12)]),
            Some(16)
        );
        assert_eq!(step(&[(14, 0, 12), (15, 6, 12), (16, 7, 12)]), None);
        assert_eq!(step(&[(16, 12, 12)]), None);
    }

    #[test]
    fn batches_count_the_colours_and_their_errors() {
        // 32 colours: a batch of 32 misses them all with (31/32)^32 = 0.362.
        let vote = |errors: u32| Vote {
            curve: vec![(15, 0, 10), (16, 10, 10)],
            batches: vec![(32, 638, 1000)],
            control: (errors, 100),
            pool: 8000,
            ..Vote::default()
        };
        let found = colours(&[vote(0), vote(0)]);
        assert!(
            found.is_some_and(|(c, error)| (c - 32.0).abs() < 1.0 && error < 0.08),
            "{found:?}"
        );
        assert_eq!(colours(&[vote(40)]), None);
    }
}

//! From the classes' curves and counts to ways, sets and the kind of index.

use super::Vote;
use crate::finding::{Confidence, Finding};

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
    // Noise moves a step by one now and then: against a class that says otherwise two are too few.
    let enough = if found.agree < found.votes { 3 } else { 2 };
    // And among many blurred classes some look sharp by chance.
    if found.agree < enough || (found.agree as usize) * SHARP < done.len() {
        if let Some(pooled) = pooled(&done, &steps) {
            return pooled;
        }
        let why = match steps.len() {
            n if n < 2 => "it takes two",
            n if n * SHARP < done.len() => "too few among the blurred",
            _ => "they disagree",
        };
        return Finding::refused(format!(
            "{} of {} congruence classes came to a sharp result: {why}",
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

/// One class in so many must be sharp; a choice.
const SHARP: usize = 4;

/// Where disturbances blur the classes one by one: what all subsets of a size, of at least three classes, say
/// together. Noise makes a subset that fits look as if it evicted, now and then; one that evicts always does so.
/// Other policies than those that look like least recently used let it be spared, and are not decided by this.
fn pooled(done: &[&Vote], steps: &[Option<u32>]) -> Option<Finding<u32>> {
    let votes: Vec<&&Vote> = (done.iter())
        .filter(|v| v.control.0 * 8 <= v.control.1)
        .collect();
    let share = |k: u32| {
        let at = votes
            .iter()
            .flat_map(|v| v.curve.iter().filter(|c| c.0 == k));
        let (classes, evicted, tried) = at.fold((0, 0, 0), |s, c| (s.0 + 1, s.1 + c.1, s.2 + c.2));
        (classes >= 3).then(|| f64::from(evicted) / f64::from(tried.max(1)))
    };
    let sizes = votes.iter().flat_map(|v| v.curve.iter().map(|c| c.0));
    let ways = sizes
        .filter(|&k| share(k).is_some_and(|s| s > 0.97))
        .min()
        .filter(|&k| k > 1)?;
    let clear = share(ways - 1)? < 0.4 && share(ways + 1)? > 0.9;
    // No class may say otherwise: neither by a sharp step nor by sizes that lie elsewhere.
    let agrees = |v: &&&Vote| v.curve.iter().any(|c| c.0 == ways);
    let elsewhere = steps.iter().flatten().any(|&s| s != ways);
    if !clear || elsewhere || !votes.iter().all(agrees) {
        return None;
    }
    let mut found = Finding::new(
        ways,
        Confidence::Medium,
        "all classes together: each of them was blurred",
    );
    (found.votes, found.agree) = (votes.len() as u32, votes.len() as u32);
    Some(found)
}

/// The least subset size from which on most subsets evict while smaller ones do not.
pub(super) fn step(curve: &[(u32, u32, u32)]) -> Option<u32> {
    let share = |c: &(u32, u32, u32)| f64::from(c.1) / f64::from(c.2.max(1));
    let at = curve.iter().position(|c| share(c) >= 0.5)?;
    let sharp = curve[..at].iter().all(|c| share(c) <= 0.25)
        && curve[at..].iter().all(|c| share(c) >= 0.75);
    (at > 0 && sharp).then(|| curve[at].0)
}

/// What a line costs, in cycles, that a class's search saw thrown out: the least of the votes that came to a result.
pub fn cost(votes: &[Vote]) -> Option<f64> {
    let done = votes.iter().filter(|v| step(&v.curve).is_some());
    done.map(|v| v.levels.1).reduce(f64::min)
}

/// Share of the batches of known strangers that may be slow all the same: of votes that are taken to say all there is to
/// be said, and of votes that count at all. The formula of [`colours`] holds for any; a choice.
pub const SOUND: f64 = 0.125;
/// See [`SOUND`].
pub const USABLE: f64 = 0.4;

/// By what part of itself the share of slow controls may differ from that of batches. (Guessed.)
const BURSTS: f64 = 0.5;

/// Sets reachable from one page offset, from the share of congruent pages: (estimate, relative error); by votes of which
/// no more than a share of `erring` went wrong on strangers.
///
/// Disturbances come in bursts, so that the control's share is off by half of itself; and votes that disagree by more than
/// they should are less sure by as much.
///
/// A batch of `size` pages is slow by itself with probability `e` (the control) and for each congruent page in it with
/// probability `s` (a batch with one of them is slow with `1 - (1 - e) (1 - s)`), so that it is fast with
/// `(1 - e) (1 - s / colours)^size`.
pub fn colours(votes: &[Vote], erring: f64) -> Option<(f64, f64)> {
    // Weighted mean of the logarithms.
    let (mut sum, mut weight, mut squares, mut count) = (0.0, 0.0, 0.0, 0.0);
    for (v, &(size, hits, tried)) in votes
        .iter()
        .filter(|v| step(&v.curve).is_some())
        .flat_map(|v| v.batches.iter().map(move |b| (v, b)))
    {
        let (errors, controls) = v.control;
        let error = f64::from(errors) / f64::from(controls.max(1));
        if hits == 0 || hits == tried || controls < 5 || error > erring {
            continue;
        }
        let (seen, unsure) = match v.noticed {
            (_, 0) => (1.0, 0.0),
            (n, tried) => {
                let seen = f64::from(n) / f64::from(tried);
                // One more of each kind: none missed in so many is not none ever.
                (
                    seen,
                    (1.0 - seen + 1.0 / f64::from(tried)) / f64::from(tried),
                )
            }
        };
        if seen < 0.7 {
            continue;
        }
        let noticed = (seen - error) / (1.0 - error);
        if noticed < 0.3 {
            continue;
        }
        let fast = 1.0 - f64::from(hits) / f64::from(tried);
        let missed = (fast / (1.0 - error)).clamp(0.01, 0.99);
        let colours = noticed / (1.0 - missed.powf(1.0 / f64::from(size)));
        let x = -missed.ln();
        let drift = BURSTS * error / ((1.0 - error) * x);
        // The pages drawn from are themselves a sample of all, and three in a hundred for tests that failed.
        let variance = (fast.recip() - 1.0) / (f64::from(tried) * x * x)
            + colours / f64::from(v.pool.max(1))
            + error / ((1.0 - error) * f64::from(controls) * x * x)
            + unsure / (noticed * noticed)
            + drift.powi(2)
            + 0.03f64.powi(2);
        sum += colours.ln() / variance;
        squares += colours.ln().powi(2) / variance;
        weight += 1.0 / variance;
        count += 1.0;
    }
    (weight > 0.0).then(|| {
        let mean: f64 = sum / weight;
        let scatter = (squares - sum * mean) / f64::max(count - 1.0, 1.0);
        (mean.exp(), (scatter.max(1.0) / weight).sqrt())
    })
}

/// Lines at other page offsets evicted the class: by a class that came to a result, and plainly. What is in between is
/// noise.
fn crosses(v: &Vote) -> Option<bool> {
    let (hit, miss) = v.levels;
    step(&v.curve)?;
    let share = (v.crossed? - hit) / (miss - hit).min(2.5 * hit);
    match share {
        s if s < 0.3 => Some(false),
        s if s > 0.6 => Some(true),
        _ => None,
    }
}

/// The index leaves the page offset alone: lines at other offsets never evict. `None` when votes disagree.
///
/// Where the index mixes, a class may by chance be spared; where it does not, nothing but noise evicts, and that no
/// four times in a row. So one eviction outweighs as many times sparing.
pub fn linear(votes: &[Vote]) -> Option<bool> {
    let says: Vec<bool> = votes.iter().filter_map(crosses).collect();
    let evicted = says.iter().filter(|s| **s).count();
    match (evicted, says.len()) {
        (_, 0) => None,
        (0, _) => Some(true),
        (e, n) if e >= 2 || e * 2 > n => Some(false),
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
    fn blurred_classes_count_together_when_none_says_otherwise() {
        let vote = |curve: &[(u32, u32, u32)]| Vote {
            curve: curve.to_vec(),
            ..Vote::default()
        };
        let blurred = |below: u32| vote(&[(7, below, 10), (8, 10, 10), (9, 10, 10)]);
        let votes = [blurred(3), blurred(4), blurred(4)];
        assert_eq!(infer(&votes).value, Some(8));
        assert_eq!(infer(&votes[..2]).value, None);
        // First in, first out: the victim is spared at the ways themselves.
        let fifo = |at: u32| vote(&[(19, 0, 10), (20, 3, 10), (21, at, 10), (22, 9, 10)]);
        assert_eq!(infer(&[fifo(5), fifo(6), fifo(6)]).value, None);
        let other = vote(&[(3, 0, 10), (4, 10, 10), (5, 10, 10)]);
        let [a, b, c] = votes;
        assert_eq!(infer(&[a, b, c, other]).value, None);
    }

    #[test]
    fn an_eviction_across_page_offsets_outweighs_classes_that_were_spared() {
        let vote = |crossed: f64| Vote {
            curve: vec![(7, 0, 10), (8, 10, 10)],
            levels: (10.0, 40.0),
            crossed: Some(crossed),
            ..Vote::default()
        };
        let votes = |all: &[f64]| all.iter().map(|&c| vote(c)).collect::<Vec<_>>();
        assert_eq!(linear(&votes(&[10.0, 10.2])), Some(true));
        assert_eq!(linear(&votes(&[10.0, 39.0, 10.0, 38.0])), Some(false));
        assert_eq!(linear(&votes(&[10.0, 39.0, 10.0])), None);
        assert_eq!(linear(&[]), None);
        // A walk that came to nothing says nothing of the index.
        let failed = Vote {
            curve: Vec::new(),
            ..vote(39.0)
        };
        assert_eq!(linear(&[vote(10.0), failed]), Some(true));
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
        let found = colours(&[vote(0), vote(0)], SOUND);
        assert!(
            found.is_some_and(|(c, error)| (c - 32.0).abs() < 1.0 && error < 0.08),
            "{found:?}"
        );
        assert_eq!(colours(&[vote(40)], SOUND), None);
        // One slow batch in ten for no reason, one congruent page in ten not noticed.
        let fast = 0.9 * (1.0f64 - 0.9 / 32.0).powi(32);
        let dulled = Vote {
            batches: vec![(32, 1000 - (1000.0 * fast) as u32, 1000)],
            noticed: (91, 100),
            ..vote(10)
        };
        let found = colours(&[dulled], SOUND);
        assert!(
            found.is_some_and(|(c, _)| (c - 32.0).abs() < 1.0),
            "{found:?}"
        );
    }
}

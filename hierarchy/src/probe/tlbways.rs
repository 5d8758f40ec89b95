//! Associativity of the first-level data translation buffer.
//!
//! Pages drawn at random, as many as there are entries, fit only where any page may go to any entry. In sets picked
//! by the low bits of the page number, pages a power of two apart share sets: each doubling of the stride halves
//! what fits, down to the ways. Where neither holds the index is a hash, and there is no answer.
//! Source: X-Ray (Yotov et al. 2005) for the strides; the random pages that tell full associativity are ours.

use super::{PAGE, circle};
use crate::finding::{Finding, plurality};
use crate::measure::{Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// One vote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Vote {
    /// Entries it was made for.
    pub entries: u64,
    /// As many random pages as entries, less two for the rest of the system, fit.
    pub any: bool,
    /// (stride in pages, most pages found to fit, one more than them does not).
    pub strides: Vec<(u64, u64, bool)>,
}

/// Extra cycles per lap with pages at these numbers, over lines that need few translations.
fn extra(m: &mut dyn Measure, pages: &[u64], hit: f64, rng: &mut Rng) -> Result<f64, MeasureError> {
    let mut ring = Vec::new();
    for slot in 0..4u64 {
        let mut turn: Vec<u64> = (pages.iter().enumerate())
            .map(|(i, p)| p * PAGE + (i + i / 64) as u64 * 64 % PAGE + 8 * slot)
            .collect();
        rng.shuffle(&mut turn);
        ring.extend(turn);
    }
    Ok((circle(m, &ring, 4)? - hit) * pages.len() as f64)
}

/// One vote; `hit` and `cost` as the vote on the entries found them, cycles.
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    entries: u64,
    (hit, cost): (f64, f64),
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let limit = m.facts().memory_bytes / 2 / PAGE;
    let mut vote = Vote {
        entries,
        ..Vote::default()
    };
    let fits = |m: &mut dyn Measure,
                pages: &mut dyn FnMut(&mut Rng) -> Vec<u64>,
                rng: &mut Rng|
     -> Result<bool, MeasureError> {
        for _ in 0..6 {
            let p = pages(rng);
            if extra(m, &p, hit, rng)? < 0.7 * cost {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // Drawn once: the best of several draws might fit by luck.
    let mut drawn: Vec<u64> = Vec::new();
    while (drawn.len() as u64) < entries - 2 {
        let p = rng.below(limit);
        if !drawn.contains(&p) {
            drawn.push(p);
        }
    }
    vote.any = fits(m, &mut |_| drawn.clone(), rng)?;
    let mut most = entries;
    let mut stride = 2;
    while !vote.any && stride <= 1024 && most > 1 && stride * (most + 9) < limit {
        let run = |n: u64, m: &mut dyn Measure, rng: &mut Rng| {
            fits(
                m,
                &mut |r: &mut Rng| {
                    let start = r.below(8);
                    (start..start + n).map(|i| i * stride).collect()
                },
                rng,
            )
        };
        let half = most.div_ceil(2);
        if run(half + 1, m, rng)? {
            // No halving: the sets are used up, and this is what one holds; or there are none.
            let full = run(most, m, rng)?;
            let more = run(most + 1, m, rng)?;
            vote.strides
                .push((stride, if full { most } else { half + 1 }, full && !more));
            break;
        }
        most = half;
        vote.strides.push((stride, most, run(most, m, rng)?));
        stride *= 2;
    }
    Ok(vote)
}

impl Vote {
    /// Ways; as many as entries when any page may go anywhere.
    pub fn ways(&self) -> Option<u32> {
        if self.any {
            return u32::try_from(self.entries).ok();
        }
        let (last, halvings) = self.strides.split_last()?;
        let sure = !halvings.is_empty() && self.strides.iter().all(|s| s.2);
        (sure && last.1 < self.entries).then_some(last.1 as u32)
    }
}

/// Ways, by all votes.
pub fn infer(votes: &[Vote]) -> Finding<u32> {
    if votes.is_empty() {
        return Finding::refused("needs the entries first");
    }
    let found = plurality(&votes.iter().map(Vote::ways).collect::<Vec<_>>());
    if found.value.is_none() {
        let mut f = Finding::refused(
            "neither random pages fit nor do strides halve what fits: a hashed index, or disturbed",
        );
        f.votes = found.votes;
        return f;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Machine, Noise, Tlb, random};

    #[test]
    fn strides_tell_sets_and_random_pages_tell_none() -> Result<(), MeasureError> {
        for (entries, ways) in [(64, 4), (96, 6), (64, 0), (128, 1)] {
            let mut truth = random::machine(0);
            truth.noise = Noise {
                burst_every: 0.0,
                switch_every: 0.0,
                hidden_switches: 0.0,
                drift: 0.0,
                timer_step: 1.0,
            };
            truth.levels[0].policy = crate::policy::Policy::Lru;
            truth.tlbs[0] = Tlb {
                entries,
                ways,
                miss_cycles: 7.0,
            };
            let hit = truth.levels[0].latency;
            let mut m = Machine::new(truth);
            let mut rng = Rng::new(2);
            let votes = (0..2)
                .map(|_| collect(&mut m, entries, (hit, 7.0), &mut rng))
                .collect::<Result<Vec<_>, _>>()?;
            let expected = if ways == 0 { entries as u32 } else { ways };
            assert_eq!(infer(&votes).value, Some(expected), "{votes:?}");
        }
        Ok(())
    }
}

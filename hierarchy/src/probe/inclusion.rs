//! Does the second level take a line from the first when it throws it out itself?
//!
//! A line is kept in use in the first level, which the second does not see, while more lines than the second level
//! has ways are walked through its set there. Where the second level is inclusive the line is gone in spite of its
//! use. The control does not use it meanwhile, and must lose it. It needs a congruence class of the second level, and a
//! first level whose policy keeps what is in use.
//! Source: X-Ray (Yotov et al. 2005) tells exclusion by the capacity; asking for the lost line is ours.

use super::{PAGE, best};
use crate::finding::{Finding, plurality};
use crate::measure::{Chase, Measure, MeasureError};
use crate::policy::Policy;
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// One vote, cycles per line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// The line, kept in use.
    pub used: f64,
    /// The line, left alone.
    pub unused: f64,
    /// A first-level hit.
    pub hit: f64,
}

/// Uses of the line during the walk; each takes a slot of 8 bytes.
const USES: usize = 6;

/// One vote; `None` when the class is too small or the line too short for the uses.
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    class: &[u64],
    ways: u32,
    line: u64,
    hit: f64,
    rng: &mut Rng,
) -> Result<Option<Vote>, MeasureError> {
    let k = ways as usize + 6;
    if class.len() < k + 1 || line < 64 {
        return Ok(None);
    }
    let mut pages = class.to_vec();
    rng.shuffle(&mut pages);
    let (victim, others) = (pages[0], &pages[1..=k]);
    let offsets: Vec<u64> = (0..8).map(|i| (i * 5 % 8) * 512 + 128).collect();
    let mut run = |used: bool| -> Result<f64, MeasureError> {
        let mut prep = Vec::new();
        for &o in &offsets {
            prep.push(victim * PAGE + o);
            for (i, chunk) in others.chunks(k.div_ceil(USES)).enumerate() {
                prep.extend(chunk.iter().map(|p| p * PAGE + o));
                if used {
                    prep.push(victim * PAGE + o + 8 * (i as u64 + 1));
                }
            }
        }
        prep.push(victim * PAGE + 64);
        let timed: Vec<u64> = offsets.iter().map(|o| victim * PAGE + o + 56).collect();
        let w = m.chase(&Chase {
            prep: &prep,
            timed: &timed,
            windows: 24,
            ..Chase::default()
        })?;
        Ok(best(&w))
    };
    Ok(Some(Vote {
        used: run(true)?,
        unused: run(false)?,
        hit,
    }))
}

impl Vote {
    /// Inclusive? `None` where the control did not lose the line or the answer lies between.
    pub fn inclusive(&self) -> Option<bool> {
        let gap = self.unused - self.hit;
        if gap < 2.0 * self.hit {
            return None;
        }
        match (self.used - self.hit) / gap {
            s if s > 0.7 => Some(true),
            s if s < 0.3 => Some(false),
            _ => None,
        }
    }
}

/// A policy under which a line in use stays.
pub fn keeps_used(policy: Policy) -> bool {
    !matches!(policy, Policy::Fifo | Policy::Random | Policy::Lip)
}

/// Inclusive (true) or not, by all votes; `policy` is the first level's.
pub fn infer(votes: &[Vote], policy: Option<Policy>) -> Finding<bool> {
    if votes.is_empty() {
        return Finding::refused(
            "needs a congruence class of the second level, larger than its ways",
        );
    }
    match policy {
        None => {
            return Finding::refused(
                "the first level's policy is not known, so it is not sure that a line in use stays there",
            );
        }
        Some(p) if !keeps_used(p) => {
            return Finding::refused(
                "the first level does not keep what is in use, under its policy",
            );
        }
        Some(_) => {}
    }
    let told: Vec<Option<bool>> = votes.iter().map(Vote::inclusive).collect();
    let of = |answer| told.iter().filter(|v| **v == Some(answer)).count();
    // Both answers on one machine: the second level's policy lets some lines live that nobody uses there.
    if of(true).min(of(false)) > 0 {
        return Finding::refused("some votes say that it does, others that it does not");
    }
    plurality(&told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_is_lost_in_spite_of_its_use_says_inclusive() {
        let vote = |used| Vote {
            used,
            unused: 60.0,
            hit: 5.0,
        };
        let of = |used| infer(&[vote(used); 4], Some(Policy::Lru)).value;
        assert_eq!(
            (of(5.1), of(58.0), of(30.0)),
            (Some(false), Some(true), None)
        );
        assert_eq!(infer(&[vote(5.1); 4], Some(Policy::Fifo)).value, None);
        let mixed = [vote(5.1), vote(58.0), vote(5.1), vote(5.1), vote(5.1)];
        assert_eq!(infer(&mixed, Some(Policy::Lru)).value, None);
        assert_eq!(
            infer(
                &[Vote {
                    unused: 6.0,
                    ..vote(5.0)
                }; 4],
                Some(Policy::Lru)
            )
            .value,
            None
        );
    }
}

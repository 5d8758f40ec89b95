//! Line size, by shifting half of a conflicting set until the conflict ends.
//!
//! Twice as many lines as ways at multiples of the way size miss; when half of them is moved by d bytes they
//! stay in the same set as long as d is less than a line. Neighbouring lines are never touched, so
//! prefetchers of line pairs do not blur the answer.
//! Source: the line-size test of X-Ray (Yotov et al., 2005).

use super::l1::{Geometry, multiples, spacing};
use super::{PAGE, circle};
use crate::finding::{Finding, plurality};
use crate::measure::{Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Lowest cycles per load for each shift.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// (shift in bytes, shifted, spread control) in cycles per load.
    pub shifts: Vec<(u64, f64, f64)>,
    /// Cycles per load with no shift.
    pub conflict: f64,
}

/// One vote.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure, l1: Geometry, rng: &mut Rng) -> Result<Vote, MeasureError> {
    let limit = m.facts().memory_bytes / 2;
    let n = 2 * l1.ways;
    let stride = l1.way_bytes.max(512);
    let mut conflict = f64::INFINITY;
    let mut shifts = Vec::new();
    for shift in [0u64, 8, 16, 32, 64, 128, 256] {
        let (mut low, mut control) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..3 {
            let base = multiples(stride, n, rng, limit);
            let ring: Vec<u64> = base
                .iter()
                .enumerate()
                .map(|(i, a)| a + if i % 2 == 0 { 0 } else { shift })
                .collect();
            let spread: Vec<u64> = base
                .iter()
                .enumerate()
                .map(|(i, a)| a / PAGE * PAGE + i as u64 * spacing(n) % PAGE)
                .collect();
            low = low.min(circle(m, &ring, 3)?);
            control = control.min(circle(m, &spread, 3)?);
        }
        if shift == 0 {
            conflict = low
        } else {
            shifts.push((shift, low, control))
        }
    }
    Ok(Vote { shifts, conflict })
}

/// One vote on the second level's line, over pages of one congruence class.
///
/// More lines than ways, half of them shifted; as many pages as fit are the control.
///
/// # Errors
/// What the backend reports.
pub fn collect_second(
    m: &mut dyn Measure,
    class: &[u64],
    ways: u32,
    rng: &mut Rng,
) -> Result<Option<Vote>, MeasureError> {
    let n = (ways as usize * 8 / 5).next_multiple_of(2);
    if class.len() < n || ways < 4 {
        return Ok(None);
    }
    let mut time = |m: &mut dyn Measure, n: usize, shift: u64| -> Result<f64, MeasureError> {
        let mut low = f64::INFINITY;
        for _ in 0..3 {
            let mut pages = class.to_vec();
            rng.shuffle(&mut pages);
            let mut ring: Vec<u64> = (0..4u64)
                .flat_map(|o| {
                    let moved = pages[..n].iter().enumerate();
                    moved.map(move |(i, p)| {
                        p * PAGE + o * 1024 + 256 + if i % 2 == 0 { 0 } else { shift }
                    })
                })
                .collect();
            for chunk in ring.chunks_mut(n) {
                rng.shuffle(chunk);
            }
            low = low.min(circle(m, &ring, 3)?);
        }
        Ok(low)
    };
    let conflict = time(m, n, 0)?;
    let control = time(m, n / 2, 0)?;
    let mut shifts = Vec::new();
    for shift in [8u64, 16, 32, 64, 128, 256] {
        shifts.push((shift, time(m, n, shift)?, control));
    }
    Ok(Some(Vote { shifts, conflict }))
}

impl Vote {
    /// The least shift at which everything fits.
    pub fn line(&self) -> Option<u64> {
        let fits = |s: &(u64, f64, f64)| s.1 - s.2 < 0.3 * (self.conflict - s.2);
        let first = self.shifts.iter().position(fits)?;
        // All larger shifts must fit too, all smaller must not.
        (first > 0 && self.shifts[first..].iter().all(fits)).then(|| self.shifts[first].0)
    }
}

/// The line size all votes speak for.
pub fn infer(votes: &[Vote]) -> Finding<u64> {
    plurality(&votes.iter().map(Vote::line).collect::<Vec<_>>())
}

/// The second level's line size, where it is that of the first: `above`, in bytes.
///
/// A prefetcher of line pairs fills both halves and moves the end of the conflict to twice the line, just as a
/// longer line would: then there is no answer.
pub fn infer_second(votes: &[Vote], above: Option<u64>) -> Finding<u64> {
    if votes.is_empty() {
        return Finding::refused("needs a congruence class of the second level");
    }
    // The conflict itself must be plain to see.
    let found = plurality(
        &votes
            .iter()
            .map(|v| v.line().filter(|_| v.conflict > 1.5 * v.shifts[0].2))
            .collect::<Vec<_>>(),
    );
    match found.value {
        value if value.is_none() || value != above => {
            let mut f = Finding::refused(
                "a longer line and a prefetched pair look alike: the conflict does not end at the first level's line",
            );
            f.votes = found.votes;
            f
        }
        _ if found.agree < 2 => Finding::refused("only one vote came to a result"),
        _ => found,
    }
}

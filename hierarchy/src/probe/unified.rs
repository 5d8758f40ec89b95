//! Does running code push data out of a level? Then the level holds both.
//!
//! Data that fits the level is walked, code of twice the level's size is run, and the data is timed; the control
//! runs as many jumps in a handful of lines. The code ends each line in a direct jump to the next, so it reads no data.
//! Source: the question is AMP's (Coleman & Davidson 2001), which answers it with counters.

use crate::finding::{Finding, plurality, quantile};
use crate::measure::{CodeChase, Measure, MeasureError, Window};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// One vote on one level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// 1 for the level next to the core.
    pub level: u32,
    /// Bytes of data.
    pub data: u64,
    /// Bytes of code.
    pub code: u64,
    /// Cycles per line of data after little code.
    pub control: f64,
    /// Cycles per line of data after much code.
    pub after: f64,
    /// Cycles per line that a miss of the level costs more, as far as known then.
    pub gap: f64,
}

/// The most code a vote may need, bytes.
pub const MOST_CODE: u64 = 40 << 20;

/// One vote: `data` bytes that fit the level, `code` bytes that overflow it.
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    level: u32,
    (data, code): (u64, u64),
    gap: f64,
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let mut lines: Vec<u64> = (0..data / 64).map(|i| i * 64).collect();
    rng.shuffle(&mut lines);
    let blocks: Vec<u64> = (0..code / 64).map(|i| i * 64).collect();
    let windows = if data > 1 << 18 { 4 } else { 8 };
    let mut run = |blocks: &[u64]| -> Result<f64, MeasureError> {
        let chase = CodeChase {
            blocks,
            pad: 0,
            indirect: false,
            jumps: code / 64 * 2,
            windows,
        };
        let w = m.after_code(&lines, &chase, windows)?;
        let clean: Vec<f64> = w.iter().filter(|w| w.clean()).map(Window::cycles).collect();
        Ok(quantile(&clean, 0.25).unwrap_or(f64::INFINITY))
    };
    Ok(Vote {
        level,
        data,
        code,
        control: run(&blocks[..8])?,
        after: run(&blocks)?,
        gap,
    })
}

impl Vote {
    /// Holds both? `None` where part of the data stayed.
    pub fn unified(&self) -> Option<bool> {
        let share = (self.after - self.control) / self.gap.max(1.0);
        match share {
            s if s > 0.5 => Some(true),
            s if s < 0.15 => Some(false),
            _ => None,
        }
    }
}

/// Unified (true) or split, by the votes of a level.
pub fn infer(votes: &[Vote], level: u32) -> Finding<bool> {
    let of: Vec<Option<bool>> = votes
        .iter()
        .filter(|v| v.level == level && v.control < crate::raw::NEVER)
        .map(Vote::unified)
        .collect();
    if of.is_empty() {
        return Finding::refused("not measured");
    }
    let found = plurality(&of);
    if found.value.is_none() {
        let mut f =
            Finding::refused("part of the data stayed: neither plainly shared nor plainly apart");
        f.votes = found.votes;
        return f;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_leaves_says_unified_and_data_that_stays_says_split() {
        let vote = |after| Vote {
            level: 1,
            data: 24 << 10,
            code: 96 << 10,
            control: 5.0,
            after,
            gap: 11.0,
        };
        assert_eq!(infer(&[vote(5.2); 4], 1).value, Some(false));
        assert_eq!(infer(&[vote(15.0); 4], 1).value, Some(true));
        assert_eq!(infer(&[vote(8.0); 4], 1).value, None);
        assert_eq!(infer(&[vote(5.2)], 2).value, None);
    }
}

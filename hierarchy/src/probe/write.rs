//! Does a store that misses bring the line in, and do stored lines stay until they are thrown out?
//!
//! Flush, store to the line, wait, then time loads from it. A first-level time says it was allocated; a memory
//! time says it was not. A non-temporal store, which must not allocate, is the control.
//! A flush has more to do for a line that holds the only copy of a store than for one that was only loaded;
//! where every store goes through to memory both cost the same. It says that some level writes back, not which.
//! Some processors hand a flush on without waiting for the write. There a second sign is looked for: stores to many lines
//! over and over, faster than any memory takes lines.

use super::PAGE;
use super::best;
use crate::finding::{Finding, plurality};
use crate::measure::{Chase, Measure, MeasureError};
use serde::{Deserialize, Serialize};

/// Cycles per load after: nothing but loads, a plain store, a non-temporal store, a flush.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// After a load of the same lines.
    pub loaded: f64,
    /// After plain stores.
    pub stored: f64,
    /// After non-temporal stores.
    pub bypassed: f64,
    /// After the flush alone.
    pub flushed: f64,
    /// Cycles to flush a line that was only loaded; not a number where that cannot be timed.
    pub clean: f64,
    /// Cycles to flush a line that was stored to as well.
    pub dirty: f64,
    /// Cycles per store where lines that fit the first level are stored to in turn; only asked where flushes leave it open.
    #[serde(default)]
    pub kept: Option<f64>,
}

/// Lines stored to in turn: 16 KiB, which every first level holds.
const KEPT_LINES: u64 = 256;

/// Cycles per store below which no memory can have been written: a line in that time is 64 bytes in 0.8 ns at 3 GHz, several
/// times what one core gets from any memory.
const FASTER_THAN_MEMORY: f64 = 2.5;

/// One vote.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure) -> Result<Vote, MeasureError> {
    let lines: Vec<u64> = (0..32)
        .map(|i| (i * 7 % 32) * PAGE + (i * 11 % 32) * 128)
        .collect();
    let touch: Vec<u64> = (0..32).map(|i| i * PAGE + 4032).collect();
    let stores: Vec<u64> = lines.iter().map(|a| a + 8).collect();
    let loads: Vec<u64> = touch
        .iter()
        .copied()
        .chain(lines.iter().map(|a| a + 16))
        .collect();
    let mut run = |prep: &[u64], stores: &[u64], nt: &[u64]| -> Result<f64, MeasureError> {
        let chase = Chase {
            flush: &lines,
            prep,
            stores,
            nt_stores: nt,
            timed: &lines,
            windows: 8,
            ..Chase::default()
        };
        Ok(best(&m.chase(&chase)?))
    };
    let mut vote = Vote {
        loaded: run(&loads, &[], &[])?,
        stored: run(&touch, &stores, &[])?,
        bypassed: run(&touch, &[], &stores)?,
        flushed: run(&touch, &[], &[])?,
        clean: f64::NAN,
        dirty: f64::NAN,
        kept: None,
    };
    // A backend that cannot time a flush leaves this one question open, not the others.
    if let (Ok(clean), Ok(dirty)) = (m.flush(&lines, false, 12), m.flush(&lines, true, 12)) {
        (vote.clean, vote.dirty) = (best(&clean), best(&dirty));
    }
    if vote.writes_back().is_none() {
        let lines: Vec<u64> = (0..KEPT_LINES).map(|i| i * 64).collect();
        let kept = m.stores(&lines, 6).map(|w| best(&w));
        vote.kept = kept.ok().filter(|c| c.is_finite());
    }
    Ok(vote)
}

impl Vote {
    /// Do stores stay in the caches until the line leaves them? `None` where neither is plain.
    pub fn writes_back(&self) -> Option<bool> {
        if self.kept.is_some_and(|c| c < FASTER_THAN_MEMORY) {
            return Some(true);
        }
        if !(self.clean.is_finite() && self.dirty.is_finite()) || self.clean >= crate::raw::NEVER {
            return None;
        }
        let ratio = self.dirty / self.clean.max(1.0);
        if ratio > 1.15 && self.dirty - self.clean > 4.0 {
            Some(true)
        } else if (ratio - 1.0).abs() < 0.05 {
            Some(false)
        } else {
            None
        }
    }

    /// Allocated?
    pub fn allocates(&self) -> Option<bool> {
        if self.flushed < 2.0 * self.loaded || self.bypassed < 2.0 * self.loaded {
            return None;
        }
        let share = (self.stored - self.loaded) / (self.flushed - self.loaded);
        if share < 0.2 {
            Some(true)
        } else if share > 0.6 {
            Some(false)
        } else {
            None
        }
    }
}

/// Write-allocate, by all votes.
pub fn infer(votes: &[Vote]) -> Finding<bool> {
    plurality(&votes.iter().map(Vote::allocates).collect::<Vec<_>>())
}

/// Write-back, by all votes.
pub fn infer_back(votes: &[Vote]) -> Finding<bool> {
    plurality(&votes.iter().map(Vote::writes_back).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dirty_line_costs_more_to_flush_only_where_stores_stay() {
        let vote = |clean, dirty| Vote {
            loaded: 5.0,
            stored: 5.0,
            bypassed: 300.0,
            flushed: 300.0,
            clean,
            dirty,
            kept: None,
        };
        assert_eq!(vote(210.0, 343.0).writes_back(), Some(true));
        assert_eq!(vote(210.0, 214.0).writes_back(), Some(false));
        assert_eq!(vote(210.0, 228.0).writes_back(), None);
        assert_eq!(vote(f64::NAN, 343.0).writes_back(), None);
        // As measured on a Zen 5, whose flushes do not wait.
        let quick = |kept| Vote {
            kept: Some(kept),
            ..vote(33.7, 36.7)
        };
        assert_eq!(quick(1.2).writes_back(), Some(true));
        assert_eq!(quick(20.0).writes_back(), None);
        assert_eq!(
            vote(crate::raw::NEVER, crate::raw::NEVER).writes_back(),
            None
        );
    }
}

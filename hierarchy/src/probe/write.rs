//! Does a store that misses bring the line in?
//!
//! Flush, store to the line, wait, then time loads from it. A first-level time says it was allocated; a memory
//! time says it was not. A non-temporal store, which must not allocate, is the control.

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
}

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
    Ok(Vote {
        loaded: run(&loads, &[], &[])?,
        stored: run(&touch, &stores, &[])?,
        bypassed: run(&touch, &[], &stores)?,
        flushed: run(&touch, &[], &[])?,
    })
}

impl Vote {
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

//! What threads take from each other: coherence misses of private caches, and the lines of code
//! that fight over the same lines of memory.
//!
//! At 64-byte lines, as the writer is known for those; how much is lost at other line sizes is told
//! beside it.

use std::collections::HashMap;

use statcache_model::{Coherence, Lost, ModelError, Sharing};

use super::subjects::{By, Subject, Subjects};
use super::{Analysis, DEFAULT_LINE_BYTES};
use crate::profile::types::LINE_SIZES;

/// Two lines of code whose threads take a line of memory from each other, over one datum.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The one that loses more: index into [`SharingFigures::subjects`].
    pub first: u32,
    /// The other; `None` where the writer is not known.
    pub second: Option<u32>,
    /// What they fight over.
    pub data: Subject,
    /// Lost reuses seen.
    pub lost: u64,
    /// Share of all coherence misses.
    pub share: f64,
    /// Its 95 % interval.
    pub low: f64,
    /// Its 95 % interval.
    pub high: f64,
    /// Coherence misses per line reference of the run.
    pub miss_ratio: f64,
    /// Share of the pair's coherence misses that are `first`'s; 1 where both are one line.
    pub first_share: f64,
    /// Share of them whose remote writes were all to other bytes of the line.
    pub disjoint: f64,
    /// The verdict; none below a base of samples.
    pub verdict: Sharing,
}

/// What threads take from each other in a run.
#[derive(Clone, Debug)]
pub struct SharingFigures {
    /// Threads that windows saw.
    pub threads: usize,
    /// At 64-byte lines.
    pub at_64: Coherence,
    /// Coherence misses per reference at each of [`LINE_SIZES`], where followed.
    pub by_line: Vec<(u32, Coherence)>,
    /// Most coherence misses first.
    pub pairs: Vec<Pair>,
    /// The source lines that pairs index.
    pub subjects: Subjects,
}

/// Loser, writer, datum.
type Ordered = (u32, Option<u32>, u32);

impl Analysis<'_> {
    /// What threads take from each other; `None` where no window saw several, or no reuse.
    ///
    /// # Errors
    /// A value the model refuses.
    pub fn sharing(&self) -> Result<Option<SharingFigures>, ModelError> {
        if !self.has_threads() {
            return Ok(None);
        }
        let Some(at_64) = self.own.coherence(u64::from(DEFAULT_LINE_BYTES))? else {
            return Ok(None);
        };
        let mut by_line = Vec::new();
        for line in LINE_SIZES {
            if let Some(figures) = self.own.coherence(u64::from(line))? {
                by_line.push((line, figures));
            }
        }
        let subjects = self.subjects(By::Line);
        Ok(Some(SharingFigures {
            threads: self.threads(),
            at_64,
            by_line,
            pairs: self.pairs(&subjects)?,
            subjects,
        }))
    }

    fn pairs(&self, subjects: &Subjects) -> Result<Vec<Pair>, ModelError> {
        let line = u64::from(DEFAULT_LINE_BYTES);
        let ordered = |lost: &Lost| -> Ordered {
            let of = |instr: u32| subjects.of_instr[instr as usize];
            let writer = lost.writer.map(|w| of(w.instr));
            (of(lost.at.instr), writer, lost.at.data)
        };
        // Who loses to whom, to put the one that loses more first.
        let losers: HashMap<Ordered, f64> = self
            .own
            .rivalries(line, ordered)?
            .into_iter()
            .map(|r| (r.key, r.share))
            .collect();
        let both = |lost: &Lost| match ordered(lost) {
            (a, Some(b), data) if b < a => (b, Some(a), data),
            key => key,
        };
        let rivalries = self.own.rivalries(line, both)?.into_iter();
        Ok(rivalries
            .map(|r| {
                let (a, b, data) = r.key;
                let of = |key: Ordered| losers.get(&key).copied().unwrap_or(0.0);
                let (mut first, mut second) = (a, b);
                let mut first_share = 1.0;
                if let Some(b) = b.filter(|&b| b != a) {
                    let (lost_a, lost_b) = (of((a, Some(b), data)), of((b, Some(a), data)));
                    if lost_b > lost_a {
                        (first, second) = (b, Some(a));
                    }
                    first_share = lost_a.max(lost_b) / (lost_a + lost_b);
                }
                Pair {
                    first,
                    second,
                    data: self.data[data as usize].clone(),
                    lost: r.lost,
                    share: r.share,
                    low: r.share_interval.0,
                    high: r.share_interval.1,
                    miss_ratio: r.miss_ratio,
                    first_share,
                    disjoint: r.disjoint,
                    verdict: r.sharing,
                }
            })
            .collect())
    }
}

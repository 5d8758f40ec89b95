//! Which pages are congruent with the victim.

use super::Test;
use crate::measure::MeasureError;
use crate::probe::l1::Geometry;

/// Most pages of a congruence class that are worth finding: enough to overflow the first level's sets, whose colours
/// they are spread over.
pub(super) fn limit(l1: Geometry) -> usize {
    (2 * l1.ways as usize * l1.colours() as usize + 8).clamp(40, 72)
}

/// Pages that were asked.
pub(super) struct Members {
    /// Those that are congruent.
    pub(super) class: Vec<u64>,
    /// Those that are not.
    pub(super) others: Vec<u64>,
    /// Members, one less than evict the victim.
    base: Vec<u64>,
    victim: u64,
    fillers: Vec<u64>,
}

impl Members {
    /// Of the group that evicts the victim, the fillers and the victim those that are evicted in their turn.
    pub(super) fn of(
        t: &mut Test<'_>,
        victim: u64,
        set: &[u64],
        fillers: &[u64],
    ) -> Result<Members, MeasureError> {
        let mut class = Vec::new();
        let mut others = Vec::new();
        let mut group = set.to_vec();
        group.push(victim);
        for &page in fillers.iter().chain(&group) {
            if t.evicts(page, &group, fillers)? {
                class.push(page);
            } else {
                others.push(page)
            }
        }
        let mut base = set.to_vec();
        while base.len() > 1 && t.evicts(victim, &base[1..], fillers)? {
            base.remove(0);
        }
        base.remove(0);
        Ok(Members {
            class,
            others,
            base,
            victim,
            fillers: fillers.to_vec(),
        })
    }

    /// Those of `rest` up to `limit` in all, in batches beside one member less than evicts: a batch that evicts the victim all
    /// the same holds a member, found by halving. How many were asked. [`Members::purge`] asks again.
    pub(super) fn join(
        &mut self,
        t: &mut Test<'_>,
        rest: &[u64],
        batch: usize,
        limit: usize,
        deadline_ns: u64,
    ) -> Result<usize, MeasureError> {
        let mut at = 0;
        while self.class.len() < limit && at < rest.len() && t.m.now_ns() < deadline_ns {
            let chunk = &rest[at..(at + batch).min(rest.len())];
            let with = |t: &mut Test<'_>, n: usize| {
                let group: Vec<u64> = self.base.iter().chain(&chunk[..n]).copied().collect();
                t.evicts(self.victim, &group, &self.fillers)
            };
            if !with(t, chunk.len())? {
                self.others.extend(chunk);
                at += chunk.len();
                continue;
            }
            let (mut no, mut yes) = (0, chunk.len());
            while yes - no > 1 {
                let middle = (no + yes) / 2;
                if with(t, middle)? {
                    yes = middle
                } else {
                    no = middle
                }
            }
            self.others.extend(&chunk[..yes - 1]);
            self.class.push(chunk[yes - 1]);
            at += yes;
        }
        Ok(at)
    }

    /// A member must be evicted by other members, some more than `front`, with clean fillers, and by no filler.
    pub(super) fn purge(&mut self, t: &mut Test<'_>, front: usize) -> Result<(), MeasureError> {
        t.tries = 4;
        t.windows = 5;
        let mut kept = Vec::new();
        for &page in &self.class {
            let mut by: Vec<u64> = self.class.iter().copied().filter(|p| *p != page).collect();
            t.rng.shuffle(&mut by);
            by.truncate(front + 6);
            if t.evicts(page, &by, &self.others)? && !t.evicts(page, &[], &self.others)? {
                kept.push(page);
            }
        }
        self.class = kept;
        Ok(())
    }
}

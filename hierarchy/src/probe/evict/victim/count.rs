//! How rare congruent pages are.

use super::super::{BATCHES, Vote};
use super::Test;
use crate::measure::{Measure, MeasureError};

/// What a batch is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// Pages never looked at.
    Unseen,
    /// Pages known not to be congruent.
    Strangers,
    /// These, and one that is.
    WithMember,
}

/// How rare congruent pages are: one page less than evicts, and a batch of pages never looked at before. The
/// victim goes exactly when the batch holds a congruent page, by the same test that counted the ways.
///
/// A batch of 1.6 times the colours says most: the variance of the logarithm of the share after n batches is
/// `(e^x - 1) / (n x^2)`, with x congruent pages expected in a batch.
pub(super) fn count(
    t: &mut Test<'_>,
    class: &[u64],
    ways: u32,
    unseen: &[u64],
    others: &[u64],
    deadline_ns: u64,
    vote: &mut Vote,
) -> Result<(), MeasureError> {
    vote.pool = unseen.len() as u32;
    t.tries = 2;
    t.windows = 3;
    let mut size = 4usize;
    let mut batches = unseen.to_vec();
    let mut known = others.to_vec();
    let spare = class.len() > ways as usize;
    let mut trial = |t: &mut Test<'_>, size: usize, of: Batch| -> Result<bool, MeasureError> {
        let batches = if of == Batch::Unseen {
            &mut batches
        } else {
            &mut known
        };
        let size = size.min(batches.len());
        let mut group = class.to_vec();
        t.rng.shuffle(&mut group);
        let victim = group.pop().unwrap_or(0);
        let member = group.get(ways as usize - 1).copied();
        group.truncate(ways as usize - 1);
        // Only the first pages need to be random.
        for i in 0..size {
            let j = i + t.rng.below((batches.len() - i) as u64) as usize;
            batches.swap(i, j);
        }
        match member.filter(|_| of == Batch::WithMember) {
            Some(member) => {
                group.extend(&batches[..size.saturating_sub(1)]);
                group.push(member);
            }
            None => group.extend(&batches[..size]),
        }
        t.rng.shuffle(&mut group);
        t.evicts(victim, &group, others)
    };
    while size * 2 <= unseen.len() {
        let mut n = 0;
        for _ in 0..6 {
            n += u32::from(trial(t, size, Batch::Unseen)?);
        }
        if n >= 4 {
            break;
        }
        size *= 2;
    }
    if size * 2 > unseen.len() {
        return Ok(());
    }
    let (mut hits, mut done) = (0, 0);
    while done < BATCHES && (done % 8 > 0 || t.m.now_ns() < deadline_ns) {
        hits += u32::from(trial(t, size, Batch::Unseen)?);
        done += 1;
        if done % 3 == 0 {
            vote.control.0 += u32::from(trial(t, size, Batch::Strangers)?);
            vote.control.1 += 1;
            if spare {
                vote.noticed.0 += u32::from(trial(t, size, Batch::WithMember)?);
                vote.noticed.1 += 1;
            }
        }
    }
    if done >= 16 {
        vote.batches.push((size as u32, hits, done));
    }
    Ok(())
}

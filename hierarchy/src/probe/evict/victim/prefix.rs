//! A small group of pages that evicts the victim.

use super::{Stop, Test};

/// Most pages that such a group may need.
const MOST: usize = 40;
/// Most prefixes that evicted once and did not do so again.
const DOUBTS: u32 = 12;

/// Shortest evicting prefixes of the pool, their last page moved to its front, until the front alone evicts: how many
/// pages that takes. `prefix` is the length of the first.
pub(super) fn search(
    t: &mut Test<'_>,
    victim: u64,
    pool: &mut [u64],
    fillers: &[u64],
    deadline_ns: u64,
    prefix: &mut u32,
) -> Result<usize, Stop> {
    let mut front = 0;
    let mut reach = pool.len();
    let mut doubts = 0;
    while front < MOST && doubts < DOUBTS {
        if front > 0 && t.evicts(victim, &pool[..front], fillers)? {
            return Ok(front);
        }
        if t.m.now_ns() > deadline_ns {
            return Err(Stop::GaveUp("out of time in the prefix search".into()));
        }
        let (mut no, mut yes) = (front, reach);
        while yes - no > 1 {
            let middle = (no + yes) / 2;
            if t.evicts(victim, &pool[..middle], fillers)? {
                yes = middle
            } else {
                no = middle
            }
        }
        // The step must hold when asked again, or a disturbance led the search astray.
        let holds =
            t.evicts(victim, &pool[..yes], fillers)? && t.evicts(victim, &pool[..yes], fillers)?;
        if !holds {
            doubts += 1;
            reach = (reach + reach / 4 + 8).min(pool.len());
            continue;
        }
        if front == 0 {
            *prefix = yes as u32;
        }
        pool[..yes].rotate_right(1);
        front += 1;
        reach = yes.max(front + 1).min(pool.len());
    }
    let why = if doubts >= DOUBTS {
        "disturbed: prefixes that evicted did not do so again"
    } else {
        "no small group of pages evicts the line"
    };
    Err(Stop::GaveUp(why.into()))
}

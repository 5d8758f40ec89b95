//! Congruent pages found with a victim: any index, policies that look like least recently used.
//!
//! A victim line is loaded, then a group of lines at the same page offset is walked, then the victim is
//! timed. Enough congruent pages evict it. From one minimal evicting prefix the module learns which pages are
//! congruent with the victim; then it counts: random subsets of k congruent pages evict from k = A on.
//! Filler pages, known not to be congruent, push the victim out of the first level.
//!
//! Source: prefix search for minimal eviction sets, Vila, Koepf & Morales, S&P 2019, and Zhao et al. 2024;
//! counting with random subsets of a congruence class is ours.

mod count;
mod watch;

use super::{TRIALS, Vote, step};
use crate::finding::quantile;
use crate::measure::{Measure, MeasureError};
use crate::probe::l1::Geometry;
use crate::probe::{PAGE, stir};
use crate::rng::Rng;
use count::count;
use std::collections::HashSet;
use watch::Test;

/// Pages never looked at from which the share of congruent ones is counted; fewer are joined by the pool's.
const FRESH: usize = 2000;

/// Most pages of a congruence class that are worth finding: enough to overflow the first level's sets, whose colours
/// they are spread over.
fn class_limit(l1: Geometry) -> usize {
    (2 * l1.ways as usize * l1.colours() as usize + 8).clamp(40, 72)
}

/// One vote: a new victim, its class, the curve.
///
/// `capacity` bounds the pool of pages (bytes that surely exceed the level).
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    l1: Geometry,
    line: u64,
    pool_pages: u64,
    deadline_ns: u64,
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let mut vote = Vote {
        at_ns: m.now_ns(),
        ..Vote::default()
    };
    let f = m.facts();
    let coarse = f.timer_step * f.clock > 60.0;
    let limit = f.memory_bytes / 2 / PAGE;
    // A reading of the fastest windows can lie this much low by the timer's step alone.
    let base = rng.below(8);
    let fine = f.timer_step * f.clock < 8.0;
    let apart = if coarse { 256 } else { 512 };
    let grain = 2.2 * f.timer_step * f.clock * apart as f64 / PAGE as f64;
    // In an order without two equal steps in a row: a stride prefetcher must not bring the victim back.
    let mut offsets: Vec<u64> = (0..PAGE / apart)
        .map(|i| i * apart + 128 * (base % 2))
        .collect();
    stir(&mut offsets, rng);
    let filler_count = (2 * l1.ways as usize + 8).min(64);
    let mut pool: Vec<u64> = (0..pool_pages.min(limit)).collect();
    rng.shuffle(&mut pool);
    let victim = pool.pop().unwrap_or(0);
    let mut filler_pool: Vec<u64> = {
        let take = filler_count * l1.colours() as usize * 2;
        pool.split_off(pool.len().saturating_sub(take))
    };
    let mut t = Test {
        m,
        colours: l1.colours(),
        filler_count,
        offsets,
        threshold: f64::INFINITY,
        windows: if fine { 2 } else { 3 },
        rounds: 2,
        tries: 2,
        rng,
    };

    // The two levels: fillers only, and the largest group.
    // Fillers may by chance hold a full set of congruent pages: the best of several draws does not.
    let mut hit = f64::INFINITY;
    let mut quiet = filler_pool.clone();
    for _ in 0..8 {
        t.rng.shuffle(&mut filler_pool);
        let time = t.time(victim, &[], &filler_pool)?;
        if time < 0.97 * hit {
            hit = time;
            quiet.clone_from(&filler_pool);
        }
    }
    let filler_pool = quiet;
    let mut size = 64usize;
    loop {
        let n = size.min(pool.len());
        let slow: Vec<f64> = (0..3)
            .map(|_| t.time(victim, &pool[..n], &filler_pool))
            .collect::<Result<_, _>>()?;
        let low = quantile(&slow, 0.0).unwrap_or(f64::INFINITY);
        if low.is_finite() && low > 1.9 * hit {
            vote.levels = (hit, low);
            pool.truncate(n);
            break;
        }
        if n == pool.len() {
            vote.gave_up = Some(format!(
                "{n} pages do not evict a line: the level is larger than the pool, or nothing slower lies behind it"
            ));
            return Ok(vote);
        }
        if t.m.now_ns() > deadline_ns {
            vote.gave_up = Some("out of time while growing the pool".into());
            return Ok(vote);
        }
        size *= 2;
    }
    // A third of the way up: with random replacement only some of the victim's lines are gone.
    let spare: Vec<u64> = (pool_pages.min(limit) / 2..pool_pages.min(limit))
        .filter(|p| !pool.contains(p))
        .collect();
    t.threshold = hit + (0.35 * (vote.levels.1 - hit).min(2.5 * hit)).max(grain);

    // Shortest evicting prefixes, their last page moved to the front, until the front alone evicts.
    let mut front = 0;
    let mut reach = pool.len();
    let mut doubts = 0;
    while front < 40 && doubts < 12 {
        if front > 0 && t.evicts(victim, &pool[..front], &filler_pool)? {
            break;
        }
        if t.m.now_ns() > deadline_ns {
            vote.gave_up = Some("out of time in the prefix search".into());
            return Ok(vote);
        }
        let (mut no, mut yes) = (front, reach);
        while yes - no > 1 {
            let middle = (no + yes) / 2;
            if t.evicts(victim, &pool[..middle], &filler_pool)? {
                yes = middle
            } else {
                no = middle
            }
        }
        // The step must hold when asked again, or a disturbance led the search astray.
        let holds = t.evicts(victim, &pool[..yes], &filler_pool)?
            && t.evicts(victim, &pool[..yes], &filler_pool)?;
        if !holds {
            doubts += 1;
            reach = (reach + reach / 4 + 8).min(pool.len());
            continue;
        }
        if front == 0 {
            vote.prefix = yes as u32;
        }
        pool[..yes].rotate_right(1);
        front += 1;
        reach = yes.max(front + 1).min(pool.len());
    }
    if front >= 40 || doubts >= 12 {
        vote.gave_up = Some(
            if doubts >= 12 {
                "disturbed: prefixes that evicted did not do so again"
            } else {
                "no small group of pages evicts the line"
            }
            .into(),
        );
        return Ok(vote);
    }
    let set: Vec<u64> = pool[..front].to_vec();

    // Which pages are congruent: those that the set, the victim and the fillers evict in their turn.
    let mut everyone: Vec<u64> = filler_pool.iter().chain(&set).copied().collect();
    everyone.push(victim);
    let mut rest: Vec<u64> = pool[front..].to_vec();
    // Pages beyond the pool too, for a better count.
    rest.extend(
        spare
            .iter()
            .filter(|p| !filler_pool.contains(p) && **p != victim),
    );
    t.rng.shuffle(&mut rest);
    let mut class = Vec::new();
    let mut others = Vec::new();
    let mut group = set.clone();
    group.push(victim);
    for &page in &everyone {
        if t.evicts(page, &group, &filler_pool)? {
            class.push(page);
        } else {
            others.push(page)
        }
    }
    // The rest in batches, with one member less than evicts: a batch that evicts the victim all the same holds a
    // member, found by halving. The purge below asks again.
    let mut base = set.clone();
    while base.len() > 1 && t.evicts(victim, &base[1..], &filler_pool)? {
        base.remove(0);
    }
    base.remove(0);
    let batch = (vote.prefix as usize / front.max(1)).clamp(4, 64);
    let mut at = 0;
    while class.len() < class_limit(l1) && at < rest.len() && t.m.now_ns() < deadline_ns {
        let chunk = &rest[at..(at + batch).min(rest.len())];
        let with = |t: &mut Test<'_>, n: usize| {
            let group: Vec<u64> = base.iter().chain(&chunk[..n]).copied().collect();
            t.evicts(victim, &group, &filler_pool)
        };
        if !with(&mut t, chunk.len())? {
            others.extend(chunk);
            at += chunk.len();
            continue;
        }
        let (mut no, mut yes) = (0, chunk.len());
        while yes - no > 1 {
            let middle = (no + yes) / 2;
            if with(&mut t, middle)? {
                yes = middle
            } else {
                no = middle
            }
        }
        others.extend(&chunk[..yes - 1]);
        class.push(chunk[yes - 1]);
        at += yes;
    }
    t.tries = 4;
    t.windows = 5;
    // Purge: a member must be evicted by the other members with clean fillers, and no filler may be.
    let mut kept = Vec::new();
    for &page in &class {
        let mut by: Vec<u64> = class.iter().copied().filter(|p| *p != page).collect();
        t.rng.shuffle(&mut by);
        by.truncate(front + 6);
        if t.evicts(page, &by, &others)? && !t.evicts(page, &[], &others)? {
            kept.push(page);
        }
    }
    let class = kept;
    // Lines enough to fill every set if the index mixed: a pool that overflows the sets of one offset is spread over
    // all of them then, and hits the victim's by chance only.
    let wide: Vec<u64> = (pool.iter().chain(&spare).copied())
        .take(3 * pool.len())
        .collect();
    let mut crossed = f64::INFINITY;
    for _ in 0..4 {
        crossed = crossed.min(t.time_at(victim, &wide, &others, 192)?);
    }
    vote.crossed = crossed.is_finite().then_some(crossed);
    if class.len() < 5 {
        vote.gave_up = Some(format!("only {} congruent pages", class.len()));
        return Ok(vote);
    }
    // The curve: from here on one evicted line of the victim's counts.
    t.threshold = hit + (0.12 * (vote.levels.1 - hit).min(2.5 * hit).max(0.5 * hit)).max(grain);
    t.windows = 6;
    t.rounds = if line >= 64 { 6 } else { 3 };
    let most = class.len() - 1;
    // Other fillers each time: a congruent page among them blurs the step instead of moving it.
    let mut fillers = others.clone();
    let mut trial = |t: &mut Test<'_>, k: usize| -> Result<bool, MeasureError> {
        t.rng.shuffle(&mut fillers);
        let mut subset = class.clone();
        t.rng.shuffle(&mut subset);
        let v = subset.pop().unwrap_or(victim);
        subset.truncate(k);
        t.evicts(v, &subset, &fillers)
    };
    let (mut no, mut yes) = (0, most);
    while yes - no > 1 {
        let middle = (no + yes) / 2;
        let mut n = 0;
        for _ in 0..3 {
            n += u32::from(trial(&mut t, middle)?);
        }
        if n >= 2 { yes = middle } else { no = middle }
    }
    for k in yes.saturating_sub(3).max(1)..=(yes + 2).min(most) {
        let mut n = 0;
        for _ in 0..TRIALS {
            n += u32::from(trial(&mut t, k)?);
        }
        vote.curve.push((k as u32, n, TRIALS));
    }
    if let Some(ways) = step(&vote.curve) {
        // Never looked at, one by one or as part of a prefix: what was tried and dropped is no stranger, and the pool
        // has lost its set.
        let beyond: HashSet<u64> = spare.iter().copied().collect();
        let mut unseen: Vec<u64> = (rest[at.min(rest.len())..].iter().copied())
            .filter(|p| beyond.contains(p))
            .collect();
        if unseen.len() < FRESH {
            unseen = rest[at.min(rest.len())..].to_vec();
        }
        count(
            &mut t,
            &class,
            ways,
            &unseen,
            &others,
            deadline_ns,
            &mut vote,
        )?;
    }
    (vote.class, vote.others) = (class, others);
    Ok(vote)
}

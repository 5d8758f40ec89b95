//! Congruent pages found with a victim: any index, policies that look like least recently used.
//!
//! A victim line is loaded, then a group of lines at the same page offset is walked, then the victim is
//! timed. Enough congruent pages evict it. From one minimal evicting prefix the module learns which pages are
//! congruent with the victim; then it counts: random subsets of k congruent pages evict from k = A on.
//! Filler pages, known not to be congruent, push the victim out of the first level.
//!
//! Source: prefix search for minimal eviction sets, Vila, Koepf & Morales, S&P 2019, and Zhao et al. 2024;
//! counting with random subsets of a congruence class is ours.

mod class;
mod count;
mod curve;
mod levels;
mod prefix;
mod watch;

use super::{Vote, step};
use crate::measure::{Measure, MeasureError};
use crate::probe::l1::Geometry;
use crate::probe::{PAGE, stir};
use crate::rng::Rng;
use class::Members;
use count::count;
use levels::Levels;
use std::collections::HashSet;
use watch::Test;

/// Pages never looked at from which the share of congruent ones is counted; fewer are joined by the pool's.
const FRESH: usize = 2000;

/// Why a vote ends before it has counted.
enum Stop {
    /// What the backend reports.
    Failed(MeasureError),
    /// The search came to nothing.
    GaveUp(String),
}

impl From<MeasureError> for Stop {
    fn from(error: MeasureError) -> Stop {
        Stop::Failed(error)
    }
}

/// One vote: a new victim, its class, the curve.
///
/// `pool_pages` bounds the pages drawn from (they surely exceed the level).
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
    let limit = m.facts().memory_bytes / 2 / PAGE;
    let search = Search {
        l1,
        line,
        pages: pool_pages.min(limit),
        deadline_ns,
    };
    match search.vote(m, rng, &mut vote) {
        Ok(()) => {}
        Err(Stop::GaveUp(why)) => vote.gave_up = Some(why),
        Err(Stop::Failed(error)) => return Err(error),
    }
    Ok(vote)
}

/// What a vote starts from.
struct Search {
    l1: Geometry,
    /// The first level's line, bytes.
    line: u64,
    /// Pages that there are to draw from.
    pages: u64,
    deadline_ns: u64,
}

impl Search {
    /// Fills `vote` as far as it comes.
    fn vote(&self, m: &mut dyn Measure, rng: &mut Rng, vote: &mut Vote) -> Result<(), Stop> {
        let f = m.facts();
        let step_cycles = f.timer_step * f.clock;
        let coarse = step_cycles > 60.0;
        let base = rng.below(8);
        let fine = step_cycles < 8.0;
        let apart = if coarse { 256 } else { 512 };
        // A reading of the fastest windows can lie this much low by the timer's step alone.
        let grain = 2.2 * step_cycles * apart as f64 / PAGE as f64;
        // In an order without two equal steps in a row: a stride prefetcher must not bring the victim back.
        let mut offsets: Vec<u64> = (0..PAGE / apart)
            .map(|i| i * apart + 128 * (base % 2))
            .collect();
        stir(&mut offsets, rng);
        let filler_count = (2 * self.l1.ways as usize + 8).min(64);
        let mut pool: Vec<u64> = (0..self.pages).collect();
        rng.shuffle(&mut pool);
        let victim = pool.pop().unwrap_or(0);
        let fillers: Vec<u64> = {
            let take = filler_count * self.l1.colours() as usize * 2;
            pool.split_off(pool.len().saturating_sub(take))
        };
        let mut t = Test {
            m,
            colours: self.l1.colours(),
            filler_count,
            offsets,
            threshold: f64::INFINITY,
            windows: if fine { 2 } else { 3 },
            rounds: 2,
            tries: 2,
            rng,
        };

        let (fillers, hit) = levels::quiet(&mut t, victim, fillers)?;
        let miss = levels::grow(&mut t, victim, hit, &mut pool, &fillers, self.deadline_ns)?;
        vote.levels = (hit, miss);
        let levels = Levels { hit, miss, grain };
        let spare: Vec<u64> = (self.pages / 2..self.pages)
            .filter(|p| !pool.contains(p))
            .collect();
        t.threshold = levels.some_lines_gone();
        let front = prefix::search(
            &mut t,
            victim,
            &mut pool,
            &fillers,
            self.deadline_ns,
            &mut vote.prefix,
        )?;

        let mut rest: Vec<u64> = pool[front..].to_vec();
        // Pages beyond the pool too, for a better count.
        rest.extend(
            spare
                .iter()
                .filter(|p| !fillers.contains(p) && **p != victim),
        );
        t.rng.shuffle(&mut rest);
        let mut members = Members::of(&mut t, victim, &pool[..front], &fillers)?;
        let batch = (vote.prefix as usize / front.max(1)).clamp(4, 64);
        let seen = members.join(
            &mut t,
            &rest,
            batch,
            class::limit(self.l1),
            self.deadline_ns,
        )?;
        members.purge(&mut t, front)?;
        let Members { class, others, .. } = members;
        vote.crossed = crossed(&mut t, victim, &pool, &spare, &others)?;
        if class.len() < 5 {
            return Err(Stop::GaveUp(format!(
                "only {} congruent pages",
                class.len()
            )));
        }
        // From here on one evicted line of the victim's counts.
        t.threshold = levels.one_line_gone();
        t.windows = 6;
        t.rounds = if self.line >= 64 { 6 } else { 3 };
        vote.curve = curve::curve(&mut t, victim, &class, &others)?;
        if let Some(ways) = step(&vote.curve) {
            let unseen = unseen(&rest[seen.min(rest.len())..], &spare);
            count(
                &mut t,
                &class,
                ways,
                &unseen,
                &others,
                self.deadline_ns,
                vote,
            )?;
        }
        (vote.class, vote.others) = (class, others);
        Ok(())
    }
}

/// Cycles per load of the victim once lines enough were walked at other page offsets to fill every set if the index mixed:
/// a pool that overflows the sets of one offset is spread over all of them then, and hits the victim's by chance only.
fn crossed(
    t: &mut Test<'_>,
    victim: u64,
    pool: &[u64],
    spare: &[u64],
    others: &[u64],
) -> Result<Option<f64>, MeasureError> {
    let wide: Vec<u64> = (pool.iter().chain(spare).copied())
        .take(3 * pool.len())
        .collect();
    let mut crossed = f64::INFINITY;
    for _ in 0..4 {
        crossed = crossed.min(t.time_at(victim, &wide, others, 192)?);
    }
    Ok(crossed.is_finite().then_some(crossed))
}

/// Pages never looked at, one by one or as part of a prefix: what was tried and dropped is no stranger, and the pool has
/// lost its set.
fn unseen(rest: &[u64], spare: &[u64]) -> Vec<u64> {
    let beyond: HashSet<u64> = spare.iter().copied().collect();
    let unseen: Vec<u64> = (rest.iter().copied())
        .filter(|p| beyond.contains(p))
        .collect();
    if unseen.len() < FRESH {
        return rest.to_vec();
    }
    unseen
}

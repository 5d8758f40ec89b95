//! Second-level associativity on ordinary pages, whatever the index: by congruent pages.
//!
//! Two searches lead to a *congruence class*, pages whose lines at one offset share a second-level set:
//! [`circle`] compares walks, which serves any replacement policy, and [`victim`] watches one line, which serves
//! any index. In a class k pages fit up to the ways and one more does not: that step, asked of many random
//! subsets and at spaced times, is the answer. The share of congruent pages among strangers gives the number of sets
//! reachable from one page offset. Nothing assumes contiguous memory or least-recently-used replacement.

mod circle;
mod infer;
mod victim;

use super::PAGE;
use super::l1::Geometry;
use crate::measure::{Measure, MeasureError};
use crate::rng::Rng;
use infer::step;
pub use infer::{SOUND, USABLE, colours, cost, infer, linear};
use serde::{Deserialize, Serialize};

/// What one congruence class taught.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Vote {
    /// When it began, nanoseconds.
    pub at_ns: u64,
    /// Cycles per load of a victim that stayed, and of one that was evicted.
    pub levels: (f64, f64),
    /// (subset size, subsets that evicted, subsets tried).
    pub curve: Vec<(u32, u32, u32)>,
    /// (pages in a batch, batches that held a congruent page, batches tried): how rare congruent pages are.
    pub batches: Vec<(u32, u32, u32)>,
    /// The same with batches of pages known not to be congruent: how often the test errs.
    pub control: (u32, u32),
    /// The same with a member among them: how often the test sees what is there. (0, 0) where it was not asked.
    #[serde(default)]
    pub noticed: (u32, u32),
    /// Pages that the batches were drawn from.
    pub pool: u32,
    /// Cycles per load of the victim after the whole pool was walked at other page offsets: a slow answer
    /// says that the index mixes page-offset bits with higher ones.
    pub crossed: Option<f64>,
    /// Length of the shortest evicting prefix of random pages.
    pub prefix: u32,
    /// Found by comparing walks; otherwise by watching a victim.
    #[serde(default)]
    pub walked: bool,
    /// Where the vote gave up, if it did.
    pub gave_up: Option<String>,
    /// The congruent pages, for probes that build on them.
    #[serde(skip)]
    pub class: Vec<u64>,
    /// Filler pages of the vote.
    #[serde(skip)]
    pub others: Vec<u64>,
}

impl Vote {
    /// The ways by this vote alone, where it came to a sharp result.
    pub fn ways(&self) -> Option<u32> {
        step(&self.curve)
    }
}

/// Places within a page at which pages of one class share sets, bytes; `base` is added to each.
///
/// At one place they do so under any index. Where the index mixes the page offset in by exclusive or, two pages may also
/// have the same sets with their places exchanged, and the searches cannot tell: so these are the searches' own places, all
/// of them together, which an exchange maps onto themselves.
pub fn places(base: u64) -> Vec<u64> {
    (0..PAGE / PLACES_APART)
        .map(|i| i * PLACES_APART + base)
        .collect()
}

/// Distance of [`places`], bytes: the searches' least.
const PLACES_APART: u64 = 256;

/// Subsets tried for each number of congruent pages.
const TRIALS: u32 = 10;
/// Batches that count towards the share of congruent pages.
const BATCHES: u32 = 240;

/// Which searches a vote makes, by what earlier ones came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Searches {
    /// A victim for half of the time, walks if it comes to nothing.
    Both,
    /// A victim for all of it.
    Victim,
    /// Walks alone.
    Walks,
}

impl Searches {
    /// What led to a class once does so again; where nothing did for want of time, each has all of it in turn. Walks
    /// are of no use where lines at other page offsets evict.
    fn after(votes: &[Vote]) -> Searches {
        let sharp = |walked: bool| {
            let of = votes.iter().filter(|v| v.walked == walked);
            of.filter(|v| step(&v.curve).is_some()).count()
        };
        match (sharp(false), sharp(true)) {
            (0, 0) if votes.is_empty() => Searches::Both,
            (0, 0) if votes.len() % 2 == 1 => Searches::Victim,
            (0, _) => Searches::Walks,
            (_, 0) => Searches::Victim,
            _ => Searches::Both,
        }
    }
}

/// What a vote starts from.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The first level's line, bytes.
    pub line: u64,
    /// The level's latency in cycles, as far as it is known.
    pub hit: Option<f64>,
    /// Bounds the pages to draw from.
    pub pool_pages: u64,
    /// When to give up, nanoseconds.
    pub deadline_ns: u64,
    /// The earlier votes.
    pub votes: &'a [Vote],
}

/// One vote: a new class, its curve, the share of congruent pages.
///
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    l1: Geometry,
    ask: Ask<'_>,
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let Ask {
        line,
        hit,
        pool_pages,
        deadline_ns,
        votes,
    } = ask;
    let start = m.now_ns();
    let searches = Searches::after(votes);
    let until = match searches {
        Searches::Both => start + deadline_ns.saturating_sub(start) / 2,
        _ => deadline_ns,
    };
    let watched = match searches {
        Searches::Walks => Vote::default(),
        _ => victim::collect(m, l1, line, pool_pages, until, rng)?,
    };
    // Most hosts are done here; others have a policy under which a victim now and then survives.
    let sharp = step(&watched.curve).is_some() && watched.control.0 * 8 <= watched.control.1;
    if sharp || searches == Searches::Victim && m.now_ns() >= deadline_ns {
        return Ok(watched);
    }
    let mut walked = circle::collect(m, l1, hit, pool_pages, deadline_ns, rng)?;
    walked.at_ns = start;
    if step(&walked.curve).is_some() {
        return Ok(walked);
    }
    if let (Some(a), Some(b)) = (&watched.gave_up, &walked.gave_up) {
        walked.gave_up = Some(format!("{a}; walks: {b}"));
    }
    Ok(if walked.curve.is_empty() && !watched.curve.is_empty() {
        watched
    } else {
        walked
    })
}

//! Data translation buffers: entries, miss costs, page size, and the granule the host translates at.
//!
//! One line per page, the line's place in the page changing from page to page so that the caches stay
//! flat; the same number of lines packed densely is the control. The first level's entry count is where the
//! difference first exceeds half a miss per lap; it is searched, and each slow answer asked again.
//! The second level is read off a curve.

mod infer;

use super::l1::Geometry;
use super::{PAGE, best, circle, loads_for};
use crate::finding::quantile;
use crate::measure::{Buffer, Chase, Measure, MeasureError};
use crate::rng::Rng;
pub use infer::{infer_cost, infer_entries, infer_granule, infer_page, infer_second, proven};
use serde::{Deserialize, Serialize};

/// One vote on the first level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Vote {
    /// Cycles per load of lines that need no more than a few translations.
    pub hit: f64,
    /// Extra cycles per load with many more pages than entries.
    pub cost: f64,
    /// (pages, lowest extra cycles per lap) in the order tried.
    pub tries: Vec<(u64, f64)>,
    /// (pages, lowest extra cycles per lap) in steps of one around the end of what fits.
    pub knee: Vec<(u64, f64)>,
    /// (stride, extra cycles per load) with one and a half times the entries: where the page ends.
    pub strides: Vec<(u64, f64)>,
}

/// Misses per lap below which everything counts as held; a single miss is 1.
const FITS: f64 = 0.7;

/// One point of the curve for the second level: pages, cycles per load, cycles per load of the control.
pub type Point = (u64, f64, f64);

/// Everything about translation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Samples {
    /// Votes on the first level.
    pub votes: Vec<Vote>,
    /// The curve; several points may share a page count.
    pub curve: Vec<Point>,
    /// With huge pages asked for: (pages of 4096 bytes, extra cycles per load).
    pub huge: Vec<(u64, f64)>,
    /// Kilobytes the kernel backed with huge pages, where it says.
    pub huge_kib: Option<u64>,
}

/// One line per page, at changing places: all lines of a page in turn, and one further every 64 pages, so that
/// even a direct-mapped cache holds them.
fn sparse(pages: u64, stride: u64, start: u64, rng: &mut Rng) -> Vec<u64> {
    let mut ring: Vec<u64> = (0..pages)
        .map(|i| {
            (start + i) * stride
                + if stride >= PAGE {
                    (i + i / 64) * 64 % PAGE
                } else {
                    0
                }
        })
        .collect();
    rng.shuffle(&mut ring);
    ring
}

/// The same in four different orders one after the other, each with its own slot of the line: repeated in
/// one order, a stranger's translation can survive for ever under a pseudo LRU.
fn stirred(pages: u64, start: u64, rng: &mut Rng) -> Vec<u64> {
    (0..4)
        .flat_map(|slot| {
            sparse(pages, PAGE, start, rng)
                .into_iter()
                .map(move |a| a + 8 * slot)
        })
        .collect()
}

/// Lines at multiples of the stride, each moved within the stride (within its page) to the first-level set that has the
/// fewest of them, so that even a direct-mapped cache holds them.
fn spaced(lines: u64, stride: u64, l1: Geometry, line: u64) -> Vec<u64> {
    let room = (stride.min(PAGE) / line).max(1);
    let mut used = vec![0u32; l1.way_bytes.div_ceil(line) as usize];
    (0..lines)
        .map(|i| {
            let start = i * stride;
            let set = |place: u64| ((start + place * line) % l1.way_bytes / line) as usize;
            let free = (0..room).min_by_key(|&place| used[set(place)]).unwrap_or(0);
            used[set(free)] += 1;
            start + free * line
        })
        .collect()
}

fn dense(lines: u64, rng: &mut Rng) -> Vec<u64> {
    let mut ring: Vec<u64> = (0..lines).map(|i| i * 64).collect();
    rng.shuffle(&mut ring);
    ring
}

/// One vote. `known` is how many entries earlier votes have proven, 0 for none.
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    l1: Geometry,
    line: u64,
    known: u64,
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let room = l1.bytes() / line.max(64);
    let top = (room * 2 / 3).min(512);
    let mut vote = Vote {
        hit: f64::INFINITY,
        ..Vote::default()
    };
    for n in [top / 4, top / 2, top] {
        vote.hit = vote.hit.min(circle(m, &dense(n, rng), 3)?);
    }
    let hit = vote.hit;
    let mut extra = |m: &mut dyn Measure, n: u64| -> Result<f64, MeasureError> {
        // Aligned half of the time: a buffer indexed by a hash of the page number is filled evenly then.
        let start = if rng.chance(0.5) {
            128 * rng.below(8)
        } else {
            rng.below(512)
        };
        Ok((circle(m, &stirred(n, start, rng), 6)? - hit) * n as f64)
    };
    let mut costs = Vec::new();
    for _ in 0..3 {
        costs.push(extra(m, top)? / top as f64);
    }
    vote.cost = quantile(&costs, 0.0).unwrap_or(0.0);
    if vote.cost < 1.0 {
        return Ok(vote);
    }
    let cost = vote.cost;
    let tries = &mut vote.tries;
    let mut misses = |m: &mut dyn Measure, n: u64| -> Result<bool, MeasureError> {
        let mut low = f64::INFINITY;
        for _ in 0..8 {
            low = low.min(extra(m, n)?);
            if low < FITS * cost {
                break;
            }
        }
        tries.push((n, low));
        Ok(low >= FITS * cost)
    };
    let (mut fits, mut not) = (4, top);
    if known > 0 {
        // Interference hides entries, so what was proven stands; ask for more, and for it once again.
        fits = known;
        misses(m, known)?;
        let mut step = 1;
        while fits + step < top && !misses(m, fits + step)? {
            fits += step;
            step *= 2;
        }
        not = (fits + step).min(top);
    } else {
        let mut n = 8;
        while n < top {
            if misses(m, n)? {
                not = n;
                break;
            }
            fits = n;
            n += n / 4;
        }
    }
    while not - fits > 1 {
        let middle = (fits + not) / 2;
        if misses(m, middle)? {
            not = middle
        } else {
            fits = middle
        }
    }
    // Page by page around the place: one miss a lap more may be a stranger's entry, two steps in a row are not.
    let mut knee = Vec::new();
    for n in fits.saturating_sub(4).max(2)..(fits + 20).min(top) {
        let mut low = f64::INFINITY;
        for _ in 0..5 {
            low = low.min(extra(m, n)?);
        }
        knee.push((n, low));
        if found(&knee, cost).is_some() {
            break;
        }
    }
    let fits = found(&knee, cost).unwrap_or(fits);
    vote.knee = knee;
    let n = (fits + fits / 2).min(top);
    for stride in [512u64, 1024, 2048, 4096, 8192, 16384] {
        let mut ring = spaced(n, stride, l1, line.max(64));
        rng.shuffle(&mut ring);
        let far = circle(m, &ring, 4)?;
        let near = circle(m, &dense(n, rng), 4)?;
        vote.strides.push((stride, far - near));
    }
    Ok(vote)
}

/// Where two pages more cost a miss or two each and every lap, for good: the entries before that fit.
fn found(knee: &[(u64, f64)], cost: f64) -> Option<u64> {
    knee.windows(3).find_map(|w| {
        let (first, both) = ((w[1].1 - w[0].1) / cost, (w[2].1 - w[0].1) / cost);
        (first >= 0.8 && both - first >= 0.8 && both >= 2.4 && w[0].1 < 3.0 * cost)
            .then_some(w[0].0)
    })
}

impl Vote {
    /// Entries by the steps around the end of what fits.
    pub fn entries(&self) -> Option<u64> {
        found(&self.knee, self.cost)
    }

    /// The least stride that misses about always.
    pub fn page(&self) -> Option<u64> {
        let slow = |s: &&(u64, f64)| s.1 > 0.5 * self.cost;
        let first = self.strides.iter().find(slow)?.0;
        self.strides
            .iter()
            .all(|s| (s.0 >= first) == (s.1 > 0.5 * self.cost))
            .then_some(first)
    }
}

/// Adds one pass over the curve for the second level, page counts from `from` to `to` in eighths of an octave.
///
/// # Errors
/// What the backend reports.
pub fn collect_curve(
    m: &mut dyn Measure,
    to: u64,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    let to = to.min(m.facts().memory_bytes / PAGE - 64);
    let mut n = 256.0;
    while n as u64 <= to {
        let pages = n as u64;
        let mut point = |ring: &[u64]| -> Result<f64, MeasureError> {
            let loads = loads_for(m, 10.0).max(2000);
            let chase = Chase {
                timed: ring,
                warm: 2 * ring.len() as u64,
                loads,
                windows: 6,
                ..Chase::default()
            };
            Ok(best(&m.chase(&chase)?))
        };
        let far = point(&sparse(pages, PAGE, 0, rng))?;
        let near = point(&dense(pages, rng))?;
        if far.is_finite() && near.is_finite() {
            s.curve.push((pages, far, near));
        }
        n *= 2f64.powf(0.125);
    }
    Ok(())
}

/// Extra cost per load in a buffer for which huge pages were asked, at twice the first level's entries.
///
/// # Errors
/// What the backend reports.
pub fn collect_huge(
    m: &mut dyn Measure,
    entries: u64,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    let n = entries * 2;
    let run = |m: &mut dyn Measure, ring: &[u64]| -> Result<f64, MeasureError> {
        let chase = Chase {
            buffer: Buffer::Huge,
            timed: ring,
            warm: 3 * n,
            loads: loads_for(m, 4.0),
            windows: 6,
            ..Chase::default()
        };
        Ok(best(&m.chase(&chase)?))
    };
    let far = run(m, &sparse(n, PAGE, 0, rng))?;
    let near = run(m, &dense(n, rng))?;
    if (far - near).is_finite() {
        s.huge.push((n, far - near));
    }
    Ok(())
}

//! First-level capacity and associativity, by sets of lines that must share a set.
//!
//! Lines at random multiples of a stride S all fall into one set when S is a multiple of the way size W;
//! A of them fit, A + 1 do not. The same pages with the lines spread over all sets are timed beside them,
//! so that translation misses cancel. A is the least number that fits over all strides, W the least stride
//! with that number, the capacity A x W.
//!
//! It assumes an index linear in the virtual address within a way; what breaks this fails the check
//! against a dense footprint and is refused.
//!
//! Source: Yotov, Pingali & Stodghill, "X-Ray", QEST 2005 (compact sets); the spread control is ours.

use super::{PAGE, circle};
use crate::finding::{Finding, plurality};
use crate::measure::{Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Cycles per load of lines in one set and of as many spread ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Stride, bytes.
    pub stride: u64,
    /// Number of lines.
    pub lines: u32,
    /// Lowest cycles per load with all lines congruent modulo the stride.
    pub same: f64,
    /// Lowest cycles per load with the same pages, lines spread.
    pub spread: f64,
}

/// All trials of one vote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Vote {
    /// When it began, nanoseconds.
    pub at_ns: u64,
    /// Cycles per load of a few lines that fit.
    pub hit: f64,
    /// Extra cycles per load when no line fits.
    pub gap: f64,
    /// The trials in order.
    pub trials: Vec<Trial>,
    /// What the search came to.
    pub found: Option<Geometry>,
    /// Dense footprints: (share of the capacity found, cycles per load).
    pub dense: Vec<(f64, f64)>,
}

/// What the first level looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Lines per set.
    pub ways: u32,
    /// Bytes per way.
    pub way_bytes: u64,
}

impl Geometry {
    /// Capacity in bytes.
    pub fn bytes(&self) -> u64 {
        self.way_bytes * u64::from(self.ways)
    }

    /// Pages apart that two equal page offsets must be to share a first-level set.
    pub fn colours(&self) -> u64 {
        lcm(self.way_bytes, PAGE) / PAGE
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Largest associativity looked for.
pub const MAX_WAYS: u32 = 32;
const GAP_LINES: [u32; 4] = [24, 32, 40, 48];
const LARGE: [u64; 10] = [
    4096, 12288, 8192, 24576, 16384, 49152, 32768, 98304, 65536, 196_608,
];

/// Random multiples of the stride whose residues modulo 12 are balanced, so that half a way's stride
/// spreads them evenly over two sets, a third over three.
pub fn multiples(stride: u64, n: u32, rng: &mut Rng, limit: u64) -> Vec<u64> {
    let room = (limit / stride / 12)
        .clamp(1, 64)
        .max(u64::from(n) / 12 + 1);
    let start = rng.below(12);
    let mut groups: Vec<u64> = (0..room).collect();
    rng.shuffle(&mut groups);
    let groups: Vec<u64> = (0..u64::from(n))
        .map(|i| groups[(i / 12) as usize % groups.len()])
        .collect();
    let mut out: Vec<u64> = (0..u64::from(n))
        .map(|i| (groups[i as usize] * 12 + (start + i) % 12) * stride)
        .collect();
    // Within a residue class any group will do; pick again for more randomness where there is room.
    for i in 0..out.len() {
        let residue = out[i] / stride % 12;
        let other = (rng.below(room) * 12 + residue) * stride;
        if !out.contains(&other) {
            out[i] = other;
        }
    }
    rng.shuffle(&mut out);
    out
}

/// Distance of spread lines within a page: no two of them in one line, as far as a page reaches.
pub fn spacing(lines: u32) -> u64 {
    if u64::from(lines) * 128 <= PAGE {
        128
    } else {
        64
    }
}

fn trial(
    m: &mut dyn Measure,
    stride: u64,
    lines: u32,
    rng: &mut Rng,
) -> Result<Trial, MeasureError> {
    let limit = m.facts().memory_bytes / 2;
    let same = multiples(stride, lines, rng, limit);
    let apart = spacing(lines);
    let spread: Vec<u64> = same
        .iter()
        .enumerate()
        .map(|(i, a)| a / PAGE * PAGE + i as u64 * apart % PAGE)
        .collect();
    Ok(Trial {
        stride,
        lines,
        same: circle(m, &same, 3)?,
        spread: circle(m, &spread, 3)?,
    })
}

impl Trial {
    /// At least 0.6 misses per lap more than the spread lines have.
    fn conflicts(&self, gap: f64) -> bool {
        (self.same - self.spread) * f64::from(self.lines) > 0.6 * gap
    }
}

/// One vote: cheap trials, each slow one repeated up to four times with other pages.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure, rng: &mut Rng) -> Result<Vote, MeasureError> {
    let mut vote = Vote {
        at_ns: m.now_ns(),
        hit: circle(m, &[0, 64, 4096 + 128, 8192 + 192], 3)?,
        ..Vote::default()
    };
    let mut gaps = Vec::new();
    // Many lines surely miss, but may miss the next level too: the least figure that is a miss at all,
    // bounded by what a second level costs at most in practice.
    for lines in GAP_LINES {
        let t = trial(m, PAGE, lines, rng)?;
        gaps.push(t.same - t.spread);
        vote.trials.push(t);
    }
    let real = gaps.into_iter().filter(|g| *g >= 0.4 * vote.hit);
    vote.gap = real.fold(f64::INFINITY, f64::min).min(3.0 * vote.hit);
    if !vote.gap.is_finite() {
        return Ok(vote);
    }
    let gap = vote.gap;
    let mut conflict =
        |m: &mut dyn Measure, stride: u64, lines: u32, tries: u32| -> Result<bool, MeasureError> {
            for _ in 0..tries {
                let t = trial(m, stride, lines, rng)?;
                vote.trials.push(t);
                if !t.conflicts(gap) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
    let mut ways = MAX_WAYS + 1;
    let mut stride = LARGE[0];
    for s in LARGE {
        // A way larger than the stride leaves at most two thirds at the next one that divides it: three
        // quarters of the lines are a test with room to spare for whoever else uses the cache.
        let enough = if ways > MAX_WAYS {
            ways
        } else {
            (ways * 3).div_ceil(4)
        };
        if s * 13 > m.facts().memory_bytes / 2 || ways == 1 || !conflict(m, s, enough, 6)? {
            continue;
        }
        let (mut fits, mut not) = (1, enough);
        while not - fits > 1 {
            let middle = (fits + not) / 2;
            if conflict(m, s, middle, 10)? {
                not = middle
            } else {
                fits = middle
            }
        }
        (ways, stride) = (fits, s);
    }
    if ways > MAX_WAYS {
        return Ok(vote);
    }
    let mut smaller = true;
    while smaller {
        smaller = false;
        for divisor in [2, 3] {
            let s = stride / divisor;
            if stride.is_multiple_of(divisor) && s >= 256 && conflict(m, s, ways + 1, 4)? {
                stride = s;
                smaller = true;
                break;
            }
        }
    }
    vote.found = Some(Geometry {
        ways,
        way_bytes: stride,
    });
    let bytes = stride * u64::from(ways);
    for share in [0.4, 0.9, 1.25] {
        let mut ring: Vec<u64> = (0..(bytes as f64 * share) as u64 / 64)
            .map(|i| i * 64)
            .collect();
        rng.shuffle(&mut ring);
        let mut low = f64::INFINITY;
        for _ in 0..3 {
            low = low.min(circle(m, &ring, 4)?);
        }
        vote.dense.push((share, low));
    }
    Ok(vote)
}

impl Vote {
    /// What this vote says: the search's result, where its own trials bear it out.
    pub fn geometry(&self) -> Option<Geometry> {
        let found = self.found?;
        let of = |lines: u32| {
            self.trials
                .iter()
                .skip(GAP_LINES.len())
                .filter(move |t| t.stride == found.way_bytes && t.lines == lines)
        };
        // At the way size itself one line too many never fits; at its multiples the ways' number did.
        let never =
            of(found.ways + 1).count() > 0 && of(found.ways + 1).all(|t| t.conflicts(self.gap));
        let fits = self.trials.iter().skip(GAP_LINES.len()).any(|t| {
            t.stride.is_multiple_of(found.way_bytes)
                && t.lines == found.ways
                && !t.conflicts(self.gap)
        });
        (never && (fits || found.ways == 1) && found.ways < MAX_WAYS).then_some(found)
    }

    fn dense_at(&self, share: f64) -> Option<f64> {
        self.dense
            .iter()
            .find(|d| d.0 == share)
            .map(|d| (d.1 - self.hit) / self.gap)
    }

    /// The search's result, where dense footprints bear it out: two fifths of the capacity and nine tenths are equally
    /// fast, five quarters are not.
    ///
    /// A thread beside this one on the core takes some ways of every set for as long as it runs, and a host's owner may
    /// put one there for seconds: then sets look smaller by as many ways each time they are asked. But it takes them now
    /// here, now there, which shows where nearly all of what is left is used. As seen on one host: with 12 ways nine tenths
    /// cost 0.3 % of a miss more than two fifths, with 10 of them left 1.7 % and more in most votes.
    fn sound(&self) -> Option<Geometry> {
        let found = self.geometry()?;
        let (few, most) = (self.dense_at(0.4)?, self.dense_at(0.9)?);
        let fits = few < 0.5 && most - few.min(0.0) < SLOWER;
        (fits && self.dense_at(1.25)? > 0.08).then_some(found)
    }
}

/// Share of a miss by which a load of nine tenths of the capacity may be slower than one of two fifths.
const SLOWER: f64 = 0.012;

/// Votes that are enough by themselves where earlier ones were disturbed, and how many of them may not be sound.
const LATE: usize = 15;
const LATE_UNSOUND: usize = 3;

/// The geometry that all sound votes speak for; or the latest, where what disturbed the others is gone.
pub fn infer(votes: &[Vote]) -> Finding<Geometry> {
    let found = infer_all(votes);
    if found.value.is_some() || votes.len() <= LATE {
        return found;
    }
    let late = &votes[votes.len() - LATE..];
    // Of votes beside another thread some look sound by chance, most do not.
    let enough = late.iter().filter(|v| v.sound().is_some()).count() + LATE_UNSOUND >= LATE;
    let of_late = infer_all(late);
    // What earlier ones have shown to hold is there still.
    match of_late.value {
        Some(geometry) if enough && geometry.bytes() >= held(votes) => of_late,
        _ => found,
    }
}

/// Bytes that the first level has at least. A fast answer is proof: what held nine tenths of so much is no smaller.
fn held(votes: &[Vote]) -> u64 {
    let sound = votes.iter().filter_map(Vote::sound);
    sound.map(|g| g.bytes() * 9 / 10).max().unwrap_or(0)
}

fn infer_all(votes: &[Vote]) -> Finding<Geometry> {
    let sound: Vec<Geometry> = votes.iter().filter_map(Vote::sound).collect();
    let held = held(votes);
    let votes_for: Vec<Option<Geometry>> = (sound.into_iter())
        .filter(|g| g.bytes() >= held)
        .map(Some)
        .collect();
    let mut found = plurality(&votes_for);
    // Of those that found the same most are sound, or those that are were lucky.
    let same = |v: &&Vote| v.geometry().is_some() && v.geometry() == found.value;
    let all = votes.iter().filter(same).count() as u32;
    if found.votes > 0 && found.agree * 5 >= all * 3 {
        return found;
    }
    if found.value.is_none() {
        found = plurality(&votes.iter().map(Vote::geometry).collect::<Vec<_>>());
    }
    let Some(value) = found.value.take() else {
        return found;
    };
    let mut refused = Finding::refused(format!(
        "{} ways of {} bytes found, but nine tenths of their product never fitted: shared with other work",
        value.ways, value.way_bytes
    ));
    refused.votes = found.votes;
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vote as measured on a 12-way first level; `dense` are cycles per load of two fifths, nine tenths, five quarters.
    fn vote(ways: u32, dense: [f64; 3]) -> Vote {
        let trial = |lines: u32, same: f64| Trial {
            stride: 4096,
            lines,
            same,
            spread: 4.0,
        };
        let mut trials = vec![trial(24, 14.0); GAP_LINES.len()];
        trials.extend([trial(ways + 1, 9.5), trial(ways, 4.0)]);
        Vote {
            hit: 4.0,
            gap: 10.0,
            trials,
            found: Some(Geometry {
                ways,
                way_bytes: 4096,
            }),
            dense: [0.4, 0.9, 1.25].into_iter().zip(dense).collect(),
            ..Vote::default()
        }
    }

    #[test]
    fn ways_that_another_thread_takes_are_not_missed() {
        let whole = vote(12, [4.0, 4.01, 13.9]);
        let shared = || vote(10, [4.0, 4.3, 12.3]);
        let found = |votes: &[Vote]| infer(votes).value.map(|g| g.ways);
        let most = [shared(), shared(), shared(), shared(), whole];
        assert_eq!(found(&most), Some(12));
        // Nothing but disturbed votes: refused, however well they agree.
        let refused = infer(&most[..4]);
        assert_eq!(refused.value, None);
        assert!(refused.reason.contains("shared"), "{}", refused.reason);
        // One of them that happens to look whole is not enough either.
        let lucky = [shared(), shared(), vote(10, [4.0, 4.05, 12.3])];
        assert_eq!(found(&lucky), None);
        // Whoever shared it has gone: what was found since counts, though earlier votes that found as much were not sound.
        let unsound = || vote(12, [4.0, 4.3, 13.9]);
        let whole = || vote(12, [4.0, 4.01, 13.9]);
        let mut gone: Vec<Vote> = (0..60).map(|_| unsound()).collect();
        gone.extend((0..LATE - LATE_UNSOUND - 1).map(|_| whole()));
        assert_eq!(found(&gone), None);
        gone.push(whole());
        assert_eq!(found(&gone), Some(12));
        // Not what is less than was seen to be there, however well it looks.
        let mut fewer = vec![whole(), unsound(), unsound()];
        fewer.extend((0..20).map(|_| vote(10, [4.0, 4.0, 12.3])));
        assert_eq!(found(&fewer), None);
        assert_eq!(found(&fewer[1..]), Some(10));
        // Where a smaller level is all there is, nine tenths of it fit.
        let small = || vote(10, [4.0, 4.0, 12.3]);
        assert_eq!(found(&[small(), small(), small()]), Some(10));
    }
}

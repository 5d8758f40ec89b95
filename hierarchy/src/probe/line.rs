//! Line size, by shifting half of a conflicting set until the conflict ends.
//!
//! Twice as many lines as ways at multiples of the way size miss; when half of them is moved by d bytes they
//! stay in the same set as long as d is less than a line. Neighbouring lines are never touched, so
//! prefetchers of line pairs do not blur the answer.
//! Source: the line-size test of X-Ray (Yotov et al., 2005).

use super::l1::{Geometry, multiples, spacing};
use super::{PAGE, best, circle, evict};
use crate::finding::{Confidence, Finding, plurality};
use crate::measure::{Chase, Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Lowest cycles per load for each shift.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// (shift in bytes, shifted, spread control) in cycles per load.
    pub shifts: Vec<(u64, f64, f64)>,
    /// Cycles per load with no shift.
    pub conflict: f64,
    /// Second level: what is left of the conflict once it had time to settle (see [`Settled`]).
    #[serde(default)]
    pub settled: Option<Settled>,
}

/// Lowest cycles per load over two lines more than a set holds, after many walks in random orders.
///
/// A prefetcher of line pairs fetches for misses only: where half of the lines lie in the neighbouring set, walks come
/// to a state in which all hit, and nothing is fetched any more. Lines of one set never do. So the one is told from
/// the other, and a pair from a longer line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// All in one set.
    pub together: f64,
    /// Half of them moved by the first level's line.
    pub apart: f64,
    /// As many fewer as fit one set.
    pub fitting: f64,
}

/// One vote.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure, l1: Geometry, rng: &mut Rng) -> Result<Vote, MeasureError> {
    let limit = m.facts().memory_bytes / 2;
    let n = 2 * l1.ways;
    let stride = l1.way_bytes.max(512);
    let mut conflict = f64::INFINITY;
    let mut shifts = Vec::new();
    for shift in [0u64, 8, 16, 32, 64, 128, 256] {
        let (mut low, mut control) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..3 {
            let base = multiples(stride, n, rng, limit);
            let ring: Vec<u64> = base
                .iter()
                .enumerate()
                .map(|(i, a)| a + if i % 2 == 0 { 0 } else { shift })
                .collect();
            let spread: Vec<u64> = base
                .iter()
                .enumerate()
                .map(|(i, a)| a / PAGE * PAGE + i as u64 * spacing(n) % PAGE)
                .collect();
            low = low.min(circle(m, &ring, 3)?);
            control = control.min(circle(m, &spread, 3)?);
        }
        if shift == 0 {
            conflict = low
        } else {
            shifts.push((shift, low, control))
        }
    }
    Ok(Vote {
        shifts,
        conflict,
        settled: None,
    })
}

/// One vote on the second level's line, over pages of one congruence class.
///
/// More lines than ways, half of them shifted; as many pages as fit are the control. `strangers` are in other sets, `above`
/// is the first level's line.
///
/// # Errors
/// What the backend reports.
pub fn collect_second(
    m: &mut dyn Measure,
    l1: Geometry,
    (class, strangers): (&[u64], &[u64]),
    (ways, above): (u32, u64),
    rng: &mut Rng,
) -> Result<Option<Vote>, MeasureError> {
    let n = (ways as usize * 8 / 5).next_multiple_of(2);
    if class.len() < n || ways < 4 {
        return Ok(None);
    }
    let mut time = |m: &mut dyn Measure, n: usize, shift: u64| -> Result<f64, MeasureError> {
        let mut low = f64::INFINITY;
        for _ in 0..3 {
            let mut pages = class.to_vec();
            rng.shuffle(&mut pages);
            let mut ring: Vec<u64> = (evict::places(0).into_iter())
                .flat_map(|o| {
                    let moved = pages[..n].iter().enumerate();
                    moved.map(move |(i, p)| p * PAGE + o + if i % 2 == 0 { 0 } else { shift })
                })
                .collect();
            for chunk in ring.chunks_mut(n) {
                rng.shuffle(chunk);
            }
            low = low.min(circle(m, &ring, 3)?);
        }
        Ok(low)
    };
    let conflict = time(m, n, 0)?;
    let control = time(m, n / 2, 0)?;
    let mut shifts = Vec::new();
    for shift in [8u64, 16, 32, 64, 128] {
        shifts.push((shift, time(m, n, shift)?, control));
    }
    let settled = settle(m, l1, (class, strangers), (ways, above), rng)?;
    Ok(Some(Vote {
        shifts,
        conflict,
        settled,
    }))
}

/// Walks before each window of [`Walk::settle`].
const LAPS: usize = 24;

/// Pages of a class and strangers, all of one first-level colour.
struct Walk<'a> {
    class: &'a [u64],
    /// They push the class's lines out of the first level, or that would hide what the second holds.
    strangers: &'a [u64],
    shift: u64,
}

impl Walk<'_> {
    /// Lowest cycles per load over lines of `n` pages of the class, every other one moved if `apart`.
    fn settle(
        &self,
        m: &mut dyn Measure,
        n: usize,
        apart: bool,
        rng: &mut Rng,
    ) -> Result<f64, MeasureError> {
        let mut low = f64::INFINITY;
        for _ in 0..4 {
            let mut pages = self.class.to_vec();
            rng.shuffle(&mut pages);
            pages.truncate(n);
            let (mut prep, mut timed) = (Vec::new(), Vec::new());
            for o in [256u64, 1280, 2304, 3328] {
                let moved = pages.iter().enumerate().map(|(i, p)| {
                    let by = if apart && i % 2 == 1 { self.shift } else { 0 };
                    p * PAGE + o + by
                });
                let mut lines: Vec<u64> = moved.collect();
                let places = [o, o + self.shift];
                let ballast = places
                    .iter()
                    .flat_map(|o| self.strangers.iter().map(move |p| p * PAGE + o));
                let mut ballast: Vec<u64> = ballast.collect();
                for _ in 0..LAPS {
                    rng.shuffle(&mut lines);
                    rng.shuffle(&mut ballast);
                    prep.extend(lines.iter().chain(&ballast));
                }
                timed.extend(lines);
            }
            let w = m.chase(&Chase {
                prep: &prep,
                timed: &timed,
                windows: 10,
                ..Chase::default()
            })?;
            low = low.min(best(&w));
        }
        Ok(low)
    }
}

/// The conflict settled, where there are pages enough of one first-level colour.
fn settle(
    m: &mut dyn Measure,
    l1: Geometry,
    (class, strangers): (&[u64], &[u64]),
    (ways, above): (u32, u64),
    rng: &mut Rng,
) -> Result<Option<Settled>, MeasureError> {
    let n = ways as usize;
    let wanted = 2 * l1.ways as usize + 4;
    let of = |pages: &[u64], colour: u64| -> Vec<u64> {
        let of = pages.iter().filter(|p| *p % l1.colours() == colour);
        of.copied().collect()
    };
    for colour in 0..l1.colours() {
        let (class, mut strangers) = (of(class, colour), of(strangers, colour));
        if class.len() < n + 2 || strangers.len() < wanted {
            continue;
        }
        rng.shuffle(&mut strangers);
        strangers.truncate(wanted);
        let walk = Walk {
            class: &class,
            strangers: &strangers,
            shift: above,
        };
        return Ok(Some(Settled {
            together: walk.settle(m, n + 2, false, rng)?,
            apart: walk.settle(m, n + 2, true, rng)?,
            fitting: walk.settle(m, n, true, rng)?,
        }));
    }
    Ok(None)
}

impl Settled {
    /// Whether the conflict is gone where half of the lines have moved; `None` where there was none to see.
    fn ends(&self) -> Option<bool> {
        let plain = self.together - self.fitting;
        (plain > 0.08 * self.fitting).then_some(self.apart - self.fitting < 0.25 * plain)
    }
}

impl Vote {
    /// The least shift at which everything fits.
    pub fn line(&self) -> Option<u64> {
        let fits = |s: &(u64, f64, f64)| s.1 - s.2 < 0.3 * (self.conflict - s.2);
        let first = self.shifts.iter().position(fits)?;
        // All larger shifts must fit too, all smaller must not.
        (first > 0 && self.shifts[first..].iter().all(fits)).then(|| self.shifts[first].0)
    }
}

/// The line size all votes speak for.
pub fn infer(votes: &[Vote]) -> Finding<u64> {
    plurality(&votes.iter().map(Vote::line).collect::<Vec<_>>())
}

/// The second level's line size, where it is that of the first: `above`, in bytes.
///
/// A prefetcher of line pairs fills both halves and moves the end of the conflict to twice the line, just as a
/// longer line would: then what is left when the conflict has settled decides, where it does.
pub fn infer_second(votes: &[Vote], above: Option<u64>) -> Finding<u64> {
    if votes.is_empty() {
        return Finding::refused("needs a congruence class of the second level");
    }
    // The conflict itself must be plain to see.
    let found = plurality(
        &votes
            .iter()
            .map(|v| v.line().filter(|_| v.conflict > 1.5 * v.shifts[0].2))
            .collect::<Vec<_>>(),
    );
    let settled: Vec<bool> = (votes.iter()).filter_map(|v| v.settled?.ends()).collect();
    let ends = settled.iter().filter(|e| **e).count();
    match found.value {
        // The first level hides some of a conflict as well, where half of the lines move to another of its sets.
        _ if settled.len() >= 2 && ends * 2 < settled.len() => Finding::refused(
            "lines next to each other share a set, or a prefetcher keeps fetching both: the conflict does not end",
        ),
        value if value != above && above.is_some() && ends >= 3 && ends * 4 >= votes.len() * 3 => {
            let mut f = Finding {
                value: above,
                ..Finding::new(0, Confidence::Medium, "a prefetcher fetches pairs of lines")
            };
            (f.votes, f.agree) = (votes.len() as u32, ends as u32);
            f
        }
        value if value.is_none() || value != above => {
            let mut f = Finding::refused(
                "a longer line and a prefetched pair look alike: the conflict does not end at the first level's line",
            );
            f.votes = found.votes;
            f
        }
        _ if found.agree < 2 => Finding::refused("only one vote came to a result"),
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::sim::cache::Index;
    use crate::sim::{Machine, Noise, random};

    /// Votes over a class that is known, on a quiet machine with pairs of lines fetched.
    fn votes(seed: u64, line: u64, pair: bool) -> Result<Vec<Vote>, MeasureError> {
        let mut truth = random::machine(seed);
        truth.noise = Noise {
            burst_every: 0.0,
            switch_every: 0.0,
            hidden_switches: 0.0,
            drift: 0.0,
            timer_step: 1.0,
        };
        truth.prefetch.pair = pair;
        let l2 = &mut truth.levels[1];
        (l2.index, l2.ways, l2.line, l2.sets) = (Index::Modulo, 8, line, (1 << 19) / (8 * line));
        let colours = l2.sets * line / PAGE;
        truth.levels[0].line = line.min(64);
        truth.levels[0].sets = 64;
        truth.levels[0].ways = 4;
        truth.levels[0].policy = Policy::Lru;
        let policies = [
            Policy::Lru,
            Policy::TreePlru,
            Policy::Random,
            Policy::Fifo,
            Policy::BitPlru,
        ];
        truth.levels[1].policy = policies[seed as usize % policies.len()];
        let mut m = Machine::new(truth);
        let (mut class, strangers): (Vec<u64>, Vec<u64>) =
            (0..600).partition(|&p| m.frame(p) % colours == 3);
        class.truncate(24);
        let l1 = Geometry {
            ways: 4,
            way_bytes: PAGE,
        };
        let mut rng = Rng::new(seed);
        let vote = |_| collect_second(&mut m, l1, (&class, &strangers), (8, 64), &mut rng);
        let votes: Result<Vec<Option<Vote>>, MeasureError> = (0..4).map(vote).collect();
        Ok(votes?.into_iter().flatten().collect())
    }

    #[test]
    fn a_fetched_pair_is_told_from_a_longer_line() -> Result<(), MeasureError> {
        let mut decided = 0;
        for seed in 0..12 {
            let pair = infer_second(&votes(seed, 64, true)?, Some(64));
            assert!(pair.value.is_none_or(|l| l == 64), "{seed}: {pair:?}");
            decided += u32::from(pair.value.is_some());
            let long = infer_second(&votes(seed, 128, true)?, Some(64));
            assert_eq!(long.value, None, "{seed}: {long:?}");
        }
        assert!(decided >= 8, "{decided} of 12 decided");
        Ok(())
    }
}

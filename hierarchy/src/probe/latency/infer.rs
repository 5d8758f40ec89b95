//! From timed walks to latencies.

use super::{PLATEAU, Samples};
use crate::finding::{Confidence, Finding, quantile};
use crate::policy::{OneSet, Policy};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// A latency in cycles and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Core cycles, load to use.
    pub cycles: f64,
    /// Nanoseconds at the clock seen.
    pub ns: f64,
}

/// Cycles per nanosecond: the upper part of what the multiplications saw.
pub fn ghz(s: &Samples, ns_per_tick: f64) -> Option<f64> {
    Some(quantile(&s.clock, 0.5)? / ns_per_tick)
}

pub(super) fn latency(values: &[f64], ghz: Option<f64>, q: f64) -> Option<(Latency, f64)> {
    let cycles = quantile(values, q)?;
    let middle = quantile(values, 0.5)?;
    Some((
        Latency {
            cycles,
            ns: cycles / ghz?,
        },
        middle / cycles - 1.0,
    ))
}

/// First-level latency: a whole number of cycles, or the clock is not to be trusted.
pub fn infer_l1(s: &Samples, ns_per_tick: f64) -> Finding<Latency> {
    let Some((found, spread)) = latency(&s.l1, ghz(s, ns_per_tick), 0.25) else {
        return Finding::refused("no undisturbed window");
    };
    let whole = found.cycles.round();
    let off = (found.cycles - whole).abs() / whole.max(1.0);
    let mut f = if off <= 0.03 && whole >= 1.0 {
        let ns = found.ns * whole / found.cycles;
        Finding::new(Latency { cycles: whole, ns }, Confidence::High, "")
    } else {
        Finding::new(
            found,
            Confidence::Low,
            "not a whole number of cycles: the clock was not steady",
        )
    };
    (f.votes, f.agree) = (
        s.l1.len() as u32,
        s.l1.iter()
            .filter(|x| (*x / found.cycles - 1.0).abs() < 0.02)
            .count() as u32,
    );
    if spread > 0.05 {
        f.at_most(Confidence::Medium, "windows differ by more than 5 %")
    } else {
        f
    }
}

/// Second-level latency, corrected for the hits that the first level's policy still gives.
///
/// `policies` are those the first level may have: one when it is known. What remains open between them must
/// not matter.
pub fn infer_l2(
    s: &Samples,
    ns_per_tick: f64,
    l1_cycles: Option<f64>,
    policies: &[Policy],
    ways: u32,
) -> Finding<Latency> {
    let Some(ghz) = ghz(s, ns_per_tick) else {
        return Finding::refused("no undisturbed window");
    };
    let Some(l1_cycles) = l1_cycles else {
        return Finding::refused("the first level's latency is not known");
    };
    let mut counts: Vec<u32> = s.l2.iter().map(|x| x.0).collect();
    counts.sort_unstable();
    counts.dedup();
    // For each number of lines: least and most by the policies, and the votes for it. A second level that is
    // too small for the lines only adds, so each upper bound holds, and the least of them is the best.
    let figures = counts.iter().filter_map(|&n| {
        // What the same pages' control takes beyond a plain hit is translation.
        let values = s.l2.iter().filter(|x| x.0 == n).map(|x| {
            let extra = x.2 - l1_cycles;
            x.1 - if extra > 0.1 * l1_cycles { extra } else { 0.0 }
        });
        let values: Vec<f64> = values.collect();
        let raw = quantile(&values, 0.5)?;
        let shares = policies.iter().map(|&p| hit_share(p, ways, n));
        let corrected: Vec<f64> = shares
            .map(|h| (raw - h * l1_cycles) / (1.0 - h).max(0.01))
            .collect();
        let low = quantile(&corrected, 0.0).unwrap_or(raw);
        let high = quantile(&corrected, 1.0).unwrap_or(raw);
        let near = values
            .iter()
            .filter(|x| (*x / raw - 1.0).abs() < 0.03)
            .count();
        Some((low, high, near, values.len()))
    });
    let figures: Vec<_> = figures.collect();
    let least = figures.iter().map(|f| f.1).fold(f64::INFINITY, f64::min);
    let most = figures.iter().map(|f| f.1).fold(0.0, f64::max);
    if policies.len() != 1 && most > 1.05 * least {
        return Finding::refused(format!(
            "{least:.1} to {most:.1} cycles by the number of lines walked: the first level's policy is not known"
        ));
    }
    // Of those that agree with it the most lines leave the fewest hits to take off.
    let chosen = figures.into_iter().rfind(|f| f.1 <= 1.03 * least);
    let Some((low, high, near, votes)) = chosen else {
        return Finding::refused("no undisturbed window");
    };
    if low < 1.5 * l1_cycles {
        return Finding::refused("not slower than the first level");
    }
    if high > 1.04 * low {
        return Finding::refused(format!(
            "{low:.1} to {high:.1} cycles, by how often the first level still hits: its policy is not known"
        ));
    }
    let cycles = (low * high).sqrt();
    let found = Latency {
        cycles,
        ns: cycles / ghz,
    };
    let mut f = Finding::new(found, Confidence::High, "");
    (f.votes, f.agree) = (votes as u32, near as u32);
    if policies.len() != 1 {
        f = f.at_most(
            Confidence::Medium,
            "first-level policy unknown, hits there not taken off",
        );
    }
    if near * 2 < votes {
        return Finding::refused(format!(
            "the windows differ: {near} of {votes} near {cycles:.1} cycles"
        ));
    }
    if votes < 3 || near * 4 < votes * 3 {
        f.at_most(Confidence::Medium, "few or spread windows")
    } else {
        f
    }
}

/// Share of hits when `lines` lines are walked in a circle through a set of `ways` ways.
pub(super) fn hit_share(policy: Policy, ways: u32, lines: u32) -> f64 {
    let mut rng = Rng::new(7);
    let mut set = OneSet::new(policy, ways);
    // A random policy's share is a mean, the others' soon repeat.
    let total = if policy == Policy::Random { 1500 } else { 60 } * lines;
    let hits = (0..total)
        .filter(|i| set.touch(i % lines, &mut rng) && *i >= 10 * lines)
        .count();
    hits as f64 / f64::from(total - 10 * lines)
}

/// The flat part of a curve that lies above `above`, in cycles: all victims left the second level for the next.
///
/// Before it some stayed, beyond it some may have fallen out of the next level too, which is far slower. Under a random
/// policy fewer and fewer stay, and the curve creeps up to its level: the longest stretch counts among those near the first.
pub(super) fn plateau(curve: &[(u32, f64)], above: f64) -> Option<f64> {
    let flat = |from: usize| {
        let run = |to: usize| curve[from..to].iter().map(|c| c.1);
        let level = |to: &usize| {
            let least = run(*to).fold(f64::INFINITY, f64::min);
            least > above && run(*to).fold(0.0, f64::max) <= FLAT * least
        };
        let to = (from + PLATEAU..=curve.len()).take_while(level).last()?;
        let middle = quantile(&run(to).collect::<Vec<_>>(), 0.5)?;
        Some((to - from, middle))
    };
    let stretches: Vec<(usize, f64)> = (0..curve.len()).filter_map(flat).collect();
    let first = stretches.first()?.1;
    let near = stretches.iter().filter(|s| s.1 <= CREEPS * first);
    // Of equally long ones the first.
    near.rev().max_by_key(|s| s.0).map(|s| s.1)
}

/// Largest figure of a flat stretch over its least; timer and clock together err by less.
const FLAT: f64 = 1.05;

/// How much a curve may creep up and still be on its way to one level: memory is further from a cache than that.
const CREEPS: f64 = 1.25;

/// Share of what a line thrown out cost in the search for its class, below which walks are not believed to have met only
/// such lines; a choice, as the search's figure is that of single lines.
const BELIEVED: f64 = 0.8;

/// The level most of the walks show: (cycles, walks near it, walks that show one).
///
/// Interference adds, and so does a class too large for the next level: the lowest that enough agree on.
fn agreed(walks: &[Vec<(u32, f64)>], above: f64) -> Option<(f64, u32, u32)> {
    let flat = walks.iter().filter_map(|c| plateau(c, 1.4 * above));
    let levels: Vec<f64> = flat.collect();
    let near = |x: f64| {
        let of = levels.iter().filter(|y| (*y / x - 1.0).abs() < 0.05);
        of.count() as u32
    };
    (levels.iter().copied())
        .filter(|&x| near(x) >= 2 && near(x) * 2 > levels.len() as u32)
        .min_by(f64::total_cmp)
        .map(|x| (x, near(x), levels.len() as u32))
}

/// Walks over all lines of the victims agree with each other and with what a line thrown out `cost`; `above` is the second
/// level's latency. Both in cycles.
pub fn adds_up(s: &Samples, above: Option<f64>, cost: Option<f64>) -> bool {
    let found = above.and_then(|above| agreed(&s.l3, above));
    found.is_some_and(|(x, ..)| cost.is_none_or(|c| x > BELIEVED * c))
}

/// What lines cost, in cycles, that all of their class threw out: the middle of the walks.
pub fn highest(s: &Samples) -> Option<f64> {
    let ends = s.l3.iter().filter_map(|c| Some(c.last()?.1));
    quantile(&ends.collect::<Vec<_>>(), 0.5)
}

/// Latency behind the second level: the plateau that most votes show.
///
/// A class that still fits the second level has a plateau too, at that level's own latency: `above`, in cycles. `cost` is
/// what a line cost that was thrown out; where the walks stay well below it, lines came back by themselves, and walks that
/// touch a few lines of a page decide.
pub fn infer_l3(
    s: &Samples,
    ns_per_tick: f64,
    above: Option<f64>,
    cost: Option<f64>,
) -> Finding<Latency> {
    let Some(ghz) = ghz(s, ns_per_tick).filter(|_| !s.l3.is_empty()) else {
        return Finding::refused("no congruence class of the level above to force misses with");
    };
    let Some(above) = above else {
        return Finding::refused("the latency of the level above is not known");
    };
    let walks = match s.l3_few.is_empty() || adds_up(s, Some(above), cost) {
        true => &s.l3,
        false => &s.l3_few,
    };
    let votes = walks.len() as u32;
    match agreed(walks, above) {
        None => {
            let levels = walks.iter().filter_map(|c| plateau(c, 1.4 * above));
            let mut f = Finding::refused(format!(
                "no level that the walks agree on: {} of {votes} had one",
                levels.count()
            ));
            f.votes = votes;
            f
        }
        Some((cycles, near, _)) => {
            let sure = if near >= 3 {
                Confidence::Medium
            } else {
                Confidence::Low
            };
            let found = Latency {
                cycles,
                ns: cycles / ghz,
            };
            let mut f = Finding::new(found, sure, "lines thrown out by their congruence class");
            (f.votes, f.agree) = (votes, near);
            f
        }
    }
}

/// Quantiles of a latency distribution, nanoseconds and cycles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// 10th percentile, cycles.
    pub cycles_p10: f64,
    /// 10th percentile, nanoseconds.
    pub ns_p10: f64,
    /// Median, nanoseconds.
    pub ns_p50: f64,
    /// 90th percentile, nanoseconds.
    pub ns_p90: f64,
}

/// Memory latency as a distribution over windows.
pub fn infer_memory(samples: &[(f64, f64)]) -> Finding<Spread> {
    let (cycles, ns): (Vec<f64>, Vec<f64>) = samples.iter().copied().unzip();
    let spread = (|| {
        Some(Spread {
            cycles_p10: quantile(&cycles, 0.1)?,
            ns_p10: quantile(&ns, 0.1)?,
            ns_p50: quantile(&ns, 0.5)?,
            ns_p90: quantile(&ns, 0.9)?,
        })
    })();
    match spread {
        None => Finding::refused("no undisturbed window"),
        Some(s) => {
            let mut f = Finding::new(s, Confidence::High, "");
            (f.votes, f.agree) = (ns.len() as u32, ns.len() as u32);
            if ns.len() < 20 {
                f.at_most(Confidence::Medium, "fewer than 20 windows")
            } else {
                f
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(l3: Vec<Vec<(u32, f64)>>) -> Samples {
        Samples {
            l3,
            clock: vec![1.5],
            ..Samples::default()
        }
    }

    #[test]
    fn only_a_level_stretch_above_the_second_level_is_a_latency() {
        let rising: Vec<(u32, f64)> = (18..30)
            .map(|k| (k, 20.0 + 12.0 * f64::from(k - 18)))
            .collect();
        assert_eq!(plateau(&rising, 15.0), None);
        let flat = |y: f64| {
            vec![
                (18, 30.0),
                (21, y),
                (24, y),
                (28, y),
                (33, y),
                (39, 3.0 * y),
            ]
        };
        let found = infer_l3(
            &samples(vec![flat(60.0), flat(61.0), flat(60.5), rising]),
            0.5,
            Some(15.0),
            None,
        );
        assert!(
            found.value.is_some_and(|l| (l.cycles - 60.0).abs() < 1.0),
            "{found:?}"
        );
        // All lines fit the second level: its own latency is not the next one's.
        let fits = infer_l3(
            &samples(vec![flat(15.0), flat(15.0), flat(15.0)]),
            0.5,
            Some(15.0),
            None,
        );
        assert_eq!(fits.value, None);
    }

    #[test]
    fn a_curve_that_creeps_up_is_read_where_it_ends() {
        // As simulated: a random second level of 6 ways at 11 cycles, the next at 35.
        let counts = [7, 8, 9, 10, 11, 12, 14, 16, 18, 21, 24, 28, 32, 37];
        let cycles = [
            25.7, 27.8, 29.7, 30.0, 30.6, 31.7, 32.3, 33.6, 33.8, 34.4, 33.9, 34.6, 34.8, 34.7,
        ];
        let creeping: Vec<(u32, f64)> = counts.into_iter().zip(cycles).collect();
        let found = plateau(&creeping, 15.0);
        assert!(found.is_some_and(|l| (l - 34.4).abs() < 0.5), "{found:?}");
        // What has left the next level too is no creeping, however long its stretch.
        let lost = [40.0, 40.5, 40.2, 90.0, 200.0, 201.0, 200.0, 200.0, 200.5];
        let lost: Vec<(u32, f64)> = (17..).zip(lost).collect();
        assert_eq!(plateau(&lost, 15.0), Some(40.2));
    }

    #[test]
    fn second_level_hits_are_freed_of_first_level_ones() {
        let s = Samples {
            clock: vec![1.5],
            // A random first level of 8 ways at 4 cycles in front of 16: the fewer lines, the more hits.
            l2: [16u32, 24, 32, 56]
                .into_iter()
                .flat_map(|n| {
                    let h = hit_share(Policy::Random, 8, n);
                    vec![(n, 16.0 - 12.0 * h, 4.0); 4]
                })
                .collect(),
            ..Samples::default()
        };
        let known = infer_l2(&s, 0.5, Some(4.0), &[Policy::Random], 8);
        assert!(
            known.value.is_some_and(|l| (l.cycles - 16.0).abs() < 0.2),
            "{known:?}"
        );
        let unknown = infer_l2(&s, 0.5, Some(4.0), &[Policy::Lru, Policy::Fifo], 8);
        assert_eq!(unknown.value, None, "{unknown:?}");
    }
}

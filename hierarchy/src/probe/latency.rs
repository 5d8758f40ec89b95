//! Hit latencies beyond the first level, and memory latency with translations at hand.
//!
//! Second level: lines of one first-level set over few pages, several draws of pages, the fastest draw.
//! Next level: growing parts of one second-level congruence class (from [`super::evict`]); where all of them
//! miss and still hit the next level the curve is flat.
//! Memory: flushed lines over at most 32 pages. Few pages, so no translation misses are in these figures.

use super::l1::Geometry;
use super::{PAGE, best, circle};
use crate::finding::{Confidence, Finding, quantile};
use crate::measure::{Chase, Measure, MeasureError, Window};
use crate::policy::{OneSet, Policy};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Raw figures, cycles per load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Samples {
    /// First level: lowest of each vote.
    pub l1: Vec<f64>,
    /// Second level: (lines per first-level set, lowest of each vote, and of as many pages' lines that fit the
    /// first level).
    pub l2: Vec<(u32, f64, f64)>,
    /// Behind the second level: one curve per vote, (lines of one congruence class, cycles).
    pub l3: Vec<Vec<(u32, f64)>>,
    /// For each of these as many of one line a page, which fit the first level: what is above a plain hit there is
    /// translation.
    #[serde(default)]
    pub l3_control: Vec<Vec<f64>>,
    /// Memory, one figure per clean window: (cycles, nanoseconds).
    pub memory: Vec<(f64, f64)>,
    /// Memory with translation misses: (cycles, nanoseconds) per clean window.
    pub memory_walk: Vec<(f64, f64)>,
    /// Core cycles per timer tick, as seen beside the clean windows.
    pub clock: Vec<f64>,
}

/// First-level hits.
///
/// # Errors
/// What the backend reports.
pub fn collect_l1(m: &mut dyn Measure, s: &mut Samples) -> Result<(), MeasureError> {
    let ring = [0, PAGE + 320, 64, 2 * PAGE + 1216];
    let loads = super::loads_for(m, 4.0) * 2;
    let windows = m.chase(&Chase {
        timed: &ring,
        warm: 64,
        loads,
        windows: 6,
        ..Chase::default()
    })?;
    s.clock.extend(
        windows
            .iter()
            .filter(|w| w.clean())
            .map(|w| f64::from(w.clock.0 + w.clock.1) / 2.0),
    );
    s.l1.push(best(&windows));
    Ok(())
}

/// Lines per way walked for second-level hits: few leave hits in a first level that is not LRU, many may
/// fall out of a small second level.
const L2_LINES: [u32; 4] = [2, 3, 4, 7];
/// Pages whose translations are surely at hand; a choice below every published buffer's size.
const FEW_PAGES: u32 = 24;

/// Second-level hits: a multiple of the ways' number of lines in one set of the first level.
///
/// Where a way is smaller than a page the lines share pages, which spares translations and second-level sets.
///
/// # Errors
/// What the backend reports.
pub fn collect_l2(
    m: &mut dyn Measure,
    l1: Geometry,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    let limit = (m.facts().memory_bytes / 2 / PAGE / l1.colours()).min(4096);
    let spots = if PAGE.is_multiple_of(l1.way_bytes) {
        PAGE / l1.way_bytes
    } else {
        1
    };
    let plain = quantile(&s.l1, 0.25);
    for factor in L2_LINES {
        let lines = (factor * l1.ways).clamp(2, 112);
        let (mut low, mut control) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..2 {
            let mut pages: Vec<u64> = (0..limit).collect();
            rng.shuffle(&mut pages);
            let offset = rng.below(l1.way_bytes.min(PAGE) / 256) * 256;
            let mut ring: Vec<u64> = pages
                .iter()
                .flat_map(|p| {
                    let page = p * l1.colours() * PAGE + offset;
                    (0..spots).map(move |k| page + k * l1.way_bytes)
                })
                .take(lines as usize)
                .collect();
            rng.shuffle(&mut ring);
            low = low.min(circle(m, &ring, 3)?);
            if lines / spots as u32 <= FEW_PAGES {
                control = plain.unwrap_or(f64::INFINITY);
                continue;
            }
            // The same pages, lines spread so that they fit: what is above a plain hit is translation.
            let spread: Vec<u64> = ring
                .iter()
                .enumerate()
                .map(|(i, a)| a / PAGE * PAGE + (i + i / 64) as u64 * 64 % PAGE)
                .collect();
            control = control.min(circle(m, &spread, 3)?);
        }
        s.l2.push((lines, low, control));
    }
    Ok(())
}

/// Hits behind the second level: growing parts of a congruence class, from more lines than both levels hold.
///
/// # Errors
/// What the backend reports.
pub fn collect_l3(
    m: &mut dyn Measure,
    class: &[u64],
    l1: Geometry,
    ways: u32,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    // Pages of one first-level colour overflow that level soonest; a class may not hold enough of them.
    let mut best: Vec<u64> = Vec::new();
    for colour in 0..l1.colours() {
        let of: Vec<u64> = (class.iter().copied())
            .filter(|p| p % l1.colours() == colour)
            .collect();
        if of.len() > best.len() {
            best = of;
        }
    }
    let one = ways.max(l1.ways);
    let (class, held) = if best.len() * 10 >= 19 * one as usize + 20 {
        (&best[..], one)
    } else {
        (class, ways.max(l1.ways * l1.colours() as u32))
    };
    let plain = quantile(&s.l1, 0.25).unwrap_or(0.0);
    let (mut curve, mut controls) = (Vec::new(), Vec::new());
    let mut k = f64::from(held + 2);
    while k as usize <= class.len() {
        let mut pages = class.to_vec();
        rng.shuffle(&mut pages);
        pages.truncate(k as usize);
        let mut ring: Vec<u64> = (0..8)
            .flat_map(|o| pages.iter().map(move |p| p * PAGE + o * 512 + 128))
            .collect();
        // One offset after the other, so that each set sees all its lines in turn; pages in random order.
        for chunk in ring.chunks_mut(pages.len()) {
            rng.shuffle(chunk);
        }
        let low = circle(m, &ring, 4)?;
        // In as many of the first level's sets as there are; where that would not do there is no control.
        let apart = |(i, p): (usize, &u64)| p * PAGE + (i + i / 32) as u64 * 128 % PAGE;
        let spread: Vec<u64> = pages.iter().enumerate().map(apart).collect();
        let fits = pages.len().div_ceil(32) <= l1.ways as usize;
        let control = if fits { circle(m, &spread, 2)? } else { plain };
        if low.is_finite() && control.is_finite() {
            curve.push((pages.len() as u32, low));
            controls.push(control);
        }
        k = (k * 1.17).max(k + 1.0);
    }
    if curve.len() >= PLATEAU {
        s.l3.push(curve);
        s.l3_control.push(controls);
    }
    Ok(())
}

/// Memory latency; `pages` few or many decides whether translations are at hand.
///
/// # Errors
/// What the backend reports.
pub fn collect_memory(
    m: &mut dyn Measure,
    pages: u64,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    let ns = m.facts().ns_per_tick;
    let limit = m.facts().memory_bytes / 2 / PAGE;
    let mut all: Vec<u64> = (0..limit.min(pages.max(4096))).collect();
    rng.shuffle(&mut all);
    all.truncate(pages as usize);
    let few = pages <= 32;
    let lines: Vec<u64> = if few {
        all.iter()
            .flat_map(|p| {
                [
                    p * PAGE + rng.below(7) * 256,
                    p * PAGE + 2048 + rng.below(7) * 256,
                ]
            })
            .collect()
    } else {
        all.iter().map(|p| p * PAGE + rng.below(15) * 256).collect()
    };
    // Translations: touch each page at a line that is not timed.
    let prep: Vec<u64> = if few {
        all.iter().map(|p| p * PAGE + 4096 - 64).collect()
    } else {
        vec![all[0] * PAGE + 4032]
    };
    let windows = if few { 8 } else { 2 };
    let w = m.chase(&Chase {
        flush: &lines,
        prep: &prep,
        timed: &lines,
        windows,
        ..Chase::default()
    })?;
    let clean: Vec<(f64, f64)> = w
        .iter()
        .filter(|w| w.clean())
        .map(|w: &Window| (w.cycles(), w.per_event() * ns))
        .collect();
    if few {
        s.memory.extend(clean)
    } else {
        s.memory_walk.extend(clean)
    }
    Ok(())
}

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

fn latency(values: &[f64], ghz: Option<f64>, q: f64) -> Option<(Latency, f64)> {
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
fn hit_share(policy: Policy, ways: u32, lines: u32) -> f64 {
    let mut rng = Rng::new(7);
    let mut set = OneSet::new(policy, ways);
    // A random policy's share is a mean, the others' soon repeat.
    let total = if policy == Policy::Random { 1500 } else { 60 } * lines;
    let hits = (0..total)
        .filter(|i| set.touch(i % lines, &mut rng) && *i >= 10 * lines)
        .count();
    hits as f64 / f64::from(total - 10 * lines)
}

/// Points a plateau needs.
const PLATEAU: usize = 4;

/// The flat part of a curve, in cycles: all lines miss the second level and hit what is behind it.
///
/// Below it some lines still hit, above it they fall out of the next level too.
fn plateau(curve: &[(u32, f64)]) -> Option<f64> {
    let flat = |run: &[(u32, f64)]| {
        let y = run.iter().map(|c| c.1);
        y.clone().fold(0.0, f64::max) <= 1.06 * y.fold(f64::INFINITY, f64::min)
    };
    let mut best: Option<&[(u32, f64)]> = None;
    for from in 0..curve.len() {
        for to in (from + PLATEAU)..=curve.len() {
            let run = &curve[from..to];
            if flat(run) && best.is_none_or(|b| run.len() > b.len()) {
                best = Some(run);
            }
        }
    }
    quantile(&best?.iter().map(|c| c.1).collect::<Vec<_>>(), 0.5)
}

/// Latency behind the second level: the plateau that most votes show.
///
/// A class that still fits the second level has a plateau too, at that level's own latency: `above`, in cycles.
pub fn infer_l3(s: &Samples, ns_per_tick: f64, above: Option<f64>) -> Finding<Latency> {
    let Some(ghz) = ghz(s, ns_per_tick).filter(|_| !s.l3.is_empty()) else {
        return Finding::refused("no congruence class of the level above to force misses with");
    };
    let Some(above) = above else {
        return Finding::refused("the latency of the level above is not known");
    };
    let plain = quantile(&s.l1, 0.25).unwrap_or(f64::INFINITY);
    let flat = s.l3.iter().enumerate().filter_map(|(i, c)| {
        let controls = s.l3_control.get(i);
        let corrected = c.iter().enumerate().map(|(j, &(lines, cycles))| {
            let control = controls.and_then(|c| c.get(j)).unwrap_or(&plain);
            let extra = control - plain;
            let translation = if extra > 0.1 * plain { extra } else { 0.0 };
            (lines, cycles - translation)
        });
        plateau(&corrected.collect::<Vec<_>>())
    });
    let levels: Vec<f64> = flat.filter(|x| *x > 1.4 * above).collect();
    let votes = s.l3.len() as u32;
    // Interference adds, and so does a class too large for the next level: the lowest that enough agree on.
    let near = |x: f64| {
        levels
            .iter()
            .filter(|y| (*y / x - 1.0).abs() < 0.05)
            .count() as u32
    };
    let agreed = levels
        .iter()
        .copied()
        .filter(|&x| near(x) >= 2 && near(x) * 2 > levels.len() as u32)
        .min_by(f64::total_cmp);
    match agreed {
        None => {
            let mut f = Finding::refused(format!(
                "no level that the walks agree on: {} of {votes} had one",
                levels.len()
            ));
            f.votes = votes;
            f
        }
        Some(cycles) => {
            let sure = if near(cycles) >= 3 {
                Confidence::Medium
            } else {
                Confidence::Low
            };
            let found = Latency {
                cycles,
                ns: cycles / ghz,
            };
            let mut f = Finding::new(found, sure, "level part of walks over a congruence class");
            (f.votes, f.agree) = (votes, near(cycles));
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
        assert_eq!(plateau(&rising), None);
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
        );
        assert_eq!(fits.value, None);
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

//! Hit latencies beyond the first level, and memory latency with translations at hand.
//!
//! Second level: lines of one first-level set over few pages, several draws of pages, the fastest draw.
//! Next level: growing parts of one second-level congruence class (from [`super::evict`]); where all of them
//! miss and still hit the next level the curve is flat.
//! Memory: flushed lines over at most 32 pages. Few pages, so no translation misses are in these figures.

mod infer;

use super::l1::Geometry;
use super::{PAGE, best, circle};
use crate::finding::quantile;
use crate::measure::{Chase, Measure, MeasureError, Window};
use crate::rng::Rng;
pub use infer::{Latency, Spread, ghz, infer_l1, infer_l2, infer_l3, infer_memory};
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

/// Points a plateau needs.
const PLATEAU: usize = 4;

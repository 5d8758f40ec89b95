//! Hit latencies beyond the first level, and memory latency with translations at hand.
//!
//! Second level: lines of one first-level set over few pages, several draws of pages, the fastest draw.
//! Next level: lines that growing parts of one second-level congruence class (from [`super::evict`]) threw out; where
//! they throw out all of them and the next level holds them the curve is flat.
//! Memory: flushed lines over at most 32 pages. Few pages, so no translation misses are in these figures.

mod infer;

use super::l1::Geometry;
use super::{PAGE, best, circle, evict};
use crate::finding::quantile;
use crate::measure::{Chase, Measure, MeasureError, Window};
use crate::rng::Rng;
pub use infer::{
    Latency, Spread, adds_up, ghz, highest, infer_l1, infer_l2, infer_l3, infer_memory,
};
use serde::{Deserialize, Serialize};

/// Raw figures, cycles per load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Samples {
    /// First level: lowest of each vote.
    pub l1: Vec<f64>,
    /// Second level: (lines per first-level set, lowest of each vote, and of as many pages' lines that fit the
    /// first level).
    pub l2: Vec<(u32, f64, f64)>,
    /// Behind the second level: one curve per vote, (lines of one congruence class that threw others out, cycles of these).
    pub l3: Vec<Vec<(u32, f64)>>,
    /// The same with a few lines of each page timed; taken where the first kind does not add up.
    #[serde(default)]
    pub l3_few: Vec<Vec<(u32, f64)>>,
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

/// What the walks behind the second level are made of.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// Pages that share second-level sets.
    pub pages: &'a [u64],
    /// Pages that do not.
    pub strangers: &'a [u64],
    /// Ways of the second level.
    pub ways: u32,
    /// The first level's line, bytes.
    pub line: u64,
}

/// Pages of the class that are timed; the others are what throws them out.
const VICTIMS: usize = 3;

/// The same where a few lines of each are timed, and how many: all of them together are at different places.
const FEW: (usize, usize) = (5, 3);

/// Hits behind the second level: lines of a congruence class that growing parts of it have thrown out.
///
/// They are thrown out twice over, before they are brought in and again before they are timed, so that none is ever hit
/// in the second level and a policy that protects what was hit does not keep them. Strangers push them out of the first.
///
/// With `few` only some lines of a victim are ever touched: where the processor learns which lines of a page are used
/// together, the first of them brings the others along and half of the walk hits the second level.
///
/// # Errors
/// What the backend reports.
pub fn collect_l3(
    m: &mut dyn Measure,
    class: Class<'_>,
    l1: Geometry,
    few: bool,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    let mut pages = class.pages.to_vec();
    rng.shuffle(&mut pages);
    let number = if few { FEW.0 } else { VICTIMS };
    let Some((victims, others)) = pages.split_at_checked(number) else {
        return Ok(());
    };
    let mut offsets = evict::places(0);
    let mut curve = Vec::new();
    let mut k = class.ways as usize + 1;
    while k <= others.len() {
        super::stir(&mut offsets, rng);
        let mut group = others.to_vec();
        rng.shuffle(&mut group);
        group.truncate(k);
        let low = after(m, l1, class, (victims, &mut group, &offsets, few), rng)?;
        if low.is_finite() {
            curve.push((k as u32, low));
        }
        k += (k / 6).max(1);
    }
    if curve.len() >= PLATEAU {
        if few { &mut s.l3_few } else { &mut s.l3 }.push(curve);
    }
    Ok(())
}

/// Cycles per line of the victims after the group threw them out.
fn after(
    m: &mut dyn Measure,
    l1: Geometry,
    class: Class<'_>,
    (victims, group, offsets, few): (&[u64], &mut [u64], &[u64], bool),
    rng: &mut Rng,
) -> Result<f64, MeasureError> {
    let colours = l1.colours();
    let near = |v: u64| {
        let of = class.strangers.iter().copied();
        let of = of.filter(move |p| p % colours == v % colours);
        of.take(2 * l1.ways as usize + 8)
    };
    // Each visit of a line has a slot of its own, and the timed one another. A round goes over all places: where the index
    // mixes the page offset in, pages of a class share sets at different places.
    let rounds = (class.line / 8).clamp(4, 8) - 2;
    let mut lines: Vec<u64> = (offsets.iter())
        .flat_map(|o| victims.iter().map(move |v| v * PAGE + o))
        .collect();
    if few {
        let places = offsets.chunks(FEW.1).zip(victims);
        lines = places
            .flat_map(|(places, v)| places.iter().map(move |o| v * PAGE + o))
            .collect();
        super::stir(&mut lines, rng);
    }
    let mut prep = Vec::new();
    for round in 0..rounds {
        if round == (rounds / 3).max(1) {
            prep.extend(&lines);
        }
        for &o in offsets {
            rng.shuffle(group);
            prep.extend(group.iter().map(|p| p * PAGE + o + 8 * round));
            for (i, &v) in victims.iter().enumerate() {
                // Victims of one first-level colour need its lines once.
                if victims[..i].iter().all(|w| w % colours != v % colours) {
                    prep.extend(near(v).map(|p| p * PAGE + o + 8 * round));
                }
            }
        }
    }
    // Translations come back through lines that are not timed.
    prep.extend(victims.iter().map(|v| v * PAGE + (offsets[0] + 64) % PAGE));
    let mut timed: Vec<u64> = (victims.iter())
        .flat_map(|v| offsets.iter().map(move |o| v * PAGE + o + class.line - 8))
        .collect();
    if few {
        timed = lines.iter().map(|a| a + class.line - 8).collect();
    }
    let windows = m.chase(&Chase {
        prep: &prep,
        timed: &timed,
        windows: if few { 26 } else { 14 },
        ..Chase::default()
    })?;
    // The first windows bring everything in; the faster half of the rest leaves disturbed ones out.
    let cycles = windows[2..]
        .iter()
        .filter(|w| w.clean())
        .map(Window::cycles);
    let mut cycles: Vec<f64> = cycles.collect();
    cycles.sort_by(f64::total_cmp);
    cycles.truncate(cycles.len().div_ceil(2));
    if cycles.is_empty() {
        return Ok(f64::INFINITY);
    }
    Ok(cycles.iter().sum::<f64>() / cycles.len() as f64)
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
const PLATEAU: usize = 3;

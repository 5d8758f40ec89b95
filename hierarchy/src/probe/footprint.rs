//! Latency over footprint: the curve of the picture, and effective capacities read off it.
//!
//! Every line of the footprint is visited in a fully random order, so neither a prefetcher nor the order
//! of pages helps. Translation misses are part of the curve; capacities are read where it rises.

use super::{PAGE, best, loads_for};
use crate::finding::{Confidence, Finding, quantile};
use crate::measure::{Chase, Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// One point: when (ns), footprint (bytes), lowest and median cycles per load, windows that were clean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Time of the point, nanoseconds since the start.
    pub at_ns: u64,
    /// Footprint, bytes.
    pub bytes: u64,
    /// Lowest cycles per load.
    pub low: f64,
    /// Median cycles per load.
    pub median: f64,
    /// Median nanoseconds per load.
    pub ns: f64,
}

/// Footprints of `per_octave` points an octave between two sizes, whole pages.
pub fn sizes(from: u64, to: u64, per_octave: u32) -> Vec<u64> {
    let mut out = Vec::new();
    let mut x = from as f64;
    while x as u64 <= to {
        let unit = if x < 65536.0 { 1024 } else { PAGE };
        let b = (x as u64 / unit).max(1) * unit;
        if out.last() != Some(&b) {
            out.push(b);
        }
        x *= 2f64.powf(1.0 / f64::from(per_octave));
    }
    out
}

/// Measures one point; `line` is the distance of the lines visited.
///
/// # Errors
/// What the backend reports; [`MeasureError::Memory`] when the footprint is not to be had.
pub fn collect(
    m: &mut dyn Measure,
    bytes: u64,
    line: u64,
    windows: u32,
    rng: &mut Rng,
) -> Result<Option<Point>, MeasureError> {
    let allowed = m.facts().memory_bytes;
    if bytes > allowed {
        return Err(MeasureError::Memory {
            needed: bytes,
            allowed,
        });
    }
    let mut ring: Vec<u64> = (0..bytes / line).map(|i| i * line).collect();
    rng.shuffle(&mut ring);
    let loads = loads_for(m, 10.0).max(1000);
    let warm = ring.len() as u64 * if bytes < 1 << 20 { 3 } else { 1 };
    let chase = Chase {
        timed: &ring,
        warm,
        loads,
        windows,
        ..Chase::default()
    };
    let at_ns = m.now_ns();
    let ns_per_tick = m.facts().ns_per_tick;
    let w = m.chase(&chase)?;
    let clean: Vec<f64> = w.iter().filter(|w| w.clean()).map(|w| w.cycles()).collect();
    let ns: Vec<f64> = w
        .iter()
        .filter(|w| w.clean())
        .map(|w| w.per_event() * ns_per_tick)
        .collect();
    Ok(quantile(&clean, 0.5).map(|median| Point {
        at_ns,
        bytes,
        low: best(&w),
        median,
        ns: quantile(&ns, 0.5).unwrap_or(0.0),
    }))
}

/// Lowest figure per size over all passes, made monotone from above: interference only adds.
pub fn envelope(points: &[Point]) -> Vec<(u64, f64)> {
    let mut sizes: Vec<u64> = points.iter().map(|p| p.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut out: Vec<(u64, f64)> = sizes
        .into_iter()
        .map(|b| {
            (
                b,
                points
                    .iter()
                    .filter(|p| p.bytes == b)
                    .map(|p| p.low)
                    .fold(f64::INFINITY, f64::min),
            )
        })
        .collect();
    for i in (0..out.len().saturating_sub(1)).rev() {
        out[i].1 = out[i].1.min(out[i + 1].1);
    }
    out
}

/// Footprint at which the curve crosses `level`, interpolated in the logarithm of the size.
pub fn crossing(curve: &[(u64, f64)], from: u64, level: f64) -> Option<f64> {
    curve
        .windows(2)
        .filter(|w| w[1].0 > from)
        .find(|w| w[0].1 <= level && w[1].1 > level)
        .map(|w| {
            let share = (level - w[0].1) / (w[1].1 - w[0].1);
            let (a, b) = ((w[0].0 as f64).ln(), (w[1].0 as f64).ln());
            (a + share * (b - a)).exp()
        })
}

/// Share of the loads of a cyclic walk over `pages` pages that miss a level of `colours` page colours and
/// `ways` ways under LRU, pages placed at random.
///
/// A page's set holds L - 1 other pages, binomially distributed; all miss when L exceeds the ways.
pub fn lru_miss_share(pages: f64, colours: f64, ways: u32) -> f64 {
    let (n, p) = (pages - 1.0, 1.0 / colours);
    if n < f64::from(ways) {
        return 0.0;
    }
    // P(others >= ways) for a binomial, by summing the lower part.
    let mut term = n * (1.0 - p).ln();
    let mut below = 0.0;
    for k in 0..ways {
        below += term.exp();
        let k = f64::from(k);
        term += ((n - k) / (k + 1.0)).ln() + (p / (1.0 - p)).ln();
    }
    (1.0 - below).clamp(0.0, 1.0)
}

/// Pages at which that share reaches `share`.
pub fn pages_at(share: f64, colours: f64, ways: u32) -> f64 {
    let (mut low, mut high) = (1.0f64, 4.0 * colours * f64::from(ways));
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if lru_miss_share(middle, colours, ways) < share {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

/// The most colours with which half of the loads of a walk over so many pages miss.
pub fn colours_of(pages: f64, ways: u32) -> f64 {
    let (mut low, mut high) = (1.0f64, 4.0 * pages);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if lru_miss_share(pages, middle, ways) > 0.5 {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

/// Footprints, bytes, at which the curve has gone an eighth of the way from a level to what follows it, and half of it.
pub fn rise(points: &[Point], above: u64, hit: f64, next: f64, tlb: f64) -> Option<(f64, f64)> {
    let curve = envelope(points);
    let at = |share: f64| crossing(&curve, above * 2, hit + tlb + share * (next - hit));
    Some((at(EARLY)?, at(0.5)?))
}

/// Share of the way at which [`rise`] takes a curve to have left the level.
const EARLY: f64 = 0.12;

/// A level of `bytes` and `ways` rises as [`rise`] says.
///
/// Nothing misses before some sets overflow, under any policy and with any prefetcher, and least recently used is the
/// first to miss wherever they do: the curve is not earlier than that policy's. A random policy and lines that a prefetcher
/// brings in pairs make the rest of the rise later: both together have half of the loads miss at 1.9 times the capacity.
pub fn rises_at(bytes: f64, ways: u32, (early, half): (f64, f64)) -> bool {
    let colours = bytes / PAGE as f64 / f64::from(ways);
    let first = |share: f64| pages_at(share, colours, ways) * PAGE as f64;
    // Points lie where they were asked for, so either may be a little early, but not both.
    let both = early * half >= 0.95 * first(EARLY) * first(0.5);
    (0.85 * first(EARLY)..1.15 * bytes).contains(&early)
        && (0.9 * first(0.5)..1.95 * bytes).contains(&half)
        && both
}

/// Effective capacity of the second level by the curve alone: (bytes, bounds).
///
/// `hit` and `next` are the latencies of the level and of what follows. Without ways the half-height
/// crossing stands for the capacity; with them the random placement of pages is modelled.
pub fn infer_capacity(
    points: &[Point],
    above: u64,
    hit: f64,
    next: f64,
    tlb: f64,
    ways: Option<u32>,
) -> Finding<(u64, u64, u64)> {
    let curve = envelope(points);
    if curve.len() < 8 {
        return Finding::refused("the footprint sweep did not run");
    }
    // Translation misses lift the plateau before the rise.
    let quarter = crossing(&curve, above * 2, hit + tlb + 0.25 * (next - hit));
    let half = crossing(&curve, above * 2, hit + tlb + 0.5 * (next - hit));
    let (Some(quarter), Some(half)) = (quarter, half) else {
        return Finding::refused("the curve does not rise to the next level within the sweep");
    };
    let estimate = match ways {
        None => half * 0.95,
        Some(a) => colours_of(half / PAGE as f64, a) * f64::from(a) * PAGE as f64,
    };
    let (low, high) = (quarter.min(estimate) * 0.9, half.max(estimate) * 1.1);
    let mut f = Finding::new(
        (estimate as u64, low as u64, high as u64),
        Confidence::Low,
        "footprint curve alone",
    );
    if half / quarter > 1.8 {
        f.reason = "soft rise: shared with other work, or pages placed unevenly".into();
    }
    f
}

/// Bounds of one pass that are further from each other say nothing of a capacity; a choice.
const MOST_OPEN: f64 = 4.0;

/// What lies before memory, over time: low bound, middle and high bound of the effective capacity, bytes.
///
/// Each pass gives the footprints at which latency has gone an eighth, a third and two thirds of the way to
/// memory; the bounds are the 10th percentile of the first and the 90th of the last. A victim level holds what
/// the level above it does not, so for it the figure is the sum of both.
pub fn infer_last_level(
    points: &[Point],
    above: u64,
    hit: f64,
    memory: f64,
    tlb: f64,
) -> Finding<(u64, u64, u64)> {
    let mut passes: Vec<Vec<(u64, f64)>> = Vec::new();
    for p in points {
        match passes.last_mut() {
            Some(last) if last.last().is_some_and(|q| q.0 < p.bytes) => last.push((p.bytes, p.low)),
            _ => passes.push(vec![(p.bytes, p.low)]),
        }
    }
    let at = |share: f64, q: f64| {
        let level = hit + tlb + share * (memory - hit);
        let found: Vec<f64> = passes
            .iter()
            .filter_map(|c| crossing(c, above * 5 / 4, level))
            .collect();
        Some((quantile(&found, q)?, found.len()))
    };
    let (Some((low, _)), Some((middle, n)), Some((high, _))) =
        (at(0.12, 0.1), at(0.35, 0.5), at(0.65, 0.9))
    else {
        return Finding::refused("no pass over the footprints reached memory latency");
    };
    let sure = if n >= 3 {
        Confidence::Medium
    } else {
        Confidence::Low
    };
    let (low, high) = (0.85 * low.min(middle), 1.1 * high.max(middle));
    // Over several passes the width is what changed meanwhile; that of one is doubt.
    if n < 3 && high > MOST_OPEN * low {
        let mut f = Finding::refused(format!(
            "latency rises to memory's all the way from {} to {}",
            crate::report::bytes(low as u64),
            crate::report::bytes(high as u64)
        ));
        f.votes = passes.len() as u32;
        return f;
    }
    let mut f = Finding::new(
        (low as u64, middle as u64, high as u64),
        sure,
        format!("effective share, {n} passes"),
    );
    (f.votes, f.agree) = (passes.len() as u32, n as u32);
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placement_model_has_the_right_limits() {
        assert_eq!(lru_miss_share(8.0, 32.0, 16), 0.0);
        assert!(lru_miss_share(32.0 * 16.0 * 0.5, 32.0, 16) < 0.03);
        assert!(lru_miss_share(32.0 * 16.0 * 2.0, 32.0, 16) > 0.97);
    }

    #[test]
    fn one_power_of_two_explains_a_rise() {
        let fits = |rise: (f64, f64), ways: u32| -> Vec<u64> {
            let sizes = (16..24).map(|k| 1u64 << k);
            sizes.filter(|&b| rises_at(b as f64, ways, rise)).collect()
        };
        let size = 262_144.0;
        // Least recently used; random; a tree and pairs of lines fetched together, as simulated.
        for (early, half) in [(0.75, 1.0), (0.9, 1.4), (1.09, 1.88)] {
            assert_eq!(fits((early * size, half * size), 8), [1 << 18]);
        }
        // Translation ends before the cache does.
        assert!(fits((0.3 * size, 1.0 * size), 8).is_empty());
    }

    #[test]
    fn crossing_interpolates() {
        let c = [(1000, 4.0), (2000, 4.0), (4000, 8.0)];
        let x = crossing(&c, 0, 6.0).unwrap_or(0.0);
        assert!((x - 2828.0).abs() < 2.0, "{x}");
    }
}

//! What prefetching and parallelism hide: ordered against random walks, one chase against many.

use super::{best, loads_for};
use crate::finding::{Confidence, Finding, quantile};
use crate::measure::{Chase, Measure, MeasureError};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Raw figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Samples {
    /// (stride in bytes, negative for backwards; ordered; random) in cycles per load over the same lines.
    pub strides: Vec<(i64, f64, f64)>,
    /// (chains, nanoseconds per load over all chains).
    pub parallel: Vec<(u32, f64)>,
}

/// Walks `bytes` by several strides, both ways.
///
/// # Errors
/// What the backend reports.
pub fn collect_strides(
    m: &mut dyn Measure,
    bytes: u64,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    for stride in [64i64, 128, 192, 256, 512, 1024, 2048, 4096] {
        let mut ring: Vec<u64> = (0..bytes / stride as u64)
            .map(|i| i * stride as u64)
            .collect();
        let time = |m: &mut dyn Measure, ring: &[u64]| -> Result<f64, MeasureError> {
            let loads = loads_for(m, 10.0).max(1500);
            let chase = Chase {
                timed: ring,
                warm: ring.len() as u64,
                loads,
                windows: 4,
                ..Chase::default()
            };
            Ok(best(&m.chase(&chase)?))
        };
        let up = time(m, &ring)?;
        ring.reverse();
        let down = time(m, &ring)?;
        rng.shuffle(&mut ring);
        let random = time(m, &ring)?;
        if up.is_finite() && down.is_finite() && random.is_finite() {
            s.strides
                .extend([(stride, up, random), (-stride, down, random)]);
        }
    }
    Ok(())
}

/// Chases flushed lines with 1 to 32 chains at once.
///
/// # Errors
/// [`MeasureError::Unsupported`] where the backend has no parallel chase.
pub fn collect_parallel(
    m: &mut dyn Measure,
    s: &mut Samples,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    let mut lines: Vec<u64> = (0..1024u64)
        .map(|i| (i % 64) * 4096 + (i / 64) * 256)
        .collect();
    let ns = m.facts().ns_per_tick;
    for chains in [1u32, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32] {
        rng.shuffle(&mut lines);
        let w = m.parallel(&lines, chains as usize, 6)?;
        let low = w
            .iter()
            .filter(|w| !w.switched)
            .map(|w| w.per_event() * ns)
            .fold(f64::INFINITY, f64::min);
        if low.is_finite() {
            s.parallel.push((chains, low));
        }
    }
    Ok(())
}

/// Strides whose ordered walk takes less than 70 % of the random walk's time: (stride, share).
pub fn infer_strides(s: &Samples) -> Finding<Vec<(i64, f64)>> {
    let mut strides: Vec<i64> = s.strides.iter().map(|x| x.0).collect();
    strides.sort_unstable();
    strides.dedup();
    if strides.is_empty() {
        return Finding::refused("not measured");
    }
    let share = |stride: i64| {
        let of: Vec<f64> = s
            .strides
            .iter()
            .filter(|x| x.0 == stride)
            .map(|x| x.1 / x.2)
            .collect();
        quantile(&of, 0.5).unwrap_or(1.0)
    };
    let hidden: Vec<(i64, f64)> = strides
        .into_iter()
        .map(|x| (x, share(x)))
        .filter(|x| x.1 < 0.7)
        .collect();
    let passes = s.strides.len() / 16;
    let sure = if passes >= 3 {
        Confidence::High
    } else {
        Confidence::Medium
    };
    // Every stride with its direction, for the note: what the ordered walk takes of the random one's time.
    let each: Vec<String> = strides_up(s)
        .map(|x| format!("{x} B {:.0}/{:.0}", 100.0 * share(x), 100.0 * share(-x)))
        .collect();
    let note = format!(
        "ordered walk in % of the random one's time, up/down: {}; below 70 counts",
        each.join(", ")
    );
    let mut f = Finding::new(hidden, sure, note);
    (f.votes, f.agree) = (passes as u32, passes as u32);
    f
}

fn strides_up(s: &Samples) -> impl Iterator<Item = i64> {
    let mut up: Vec<i64> = s.strides.iter().map(|x| x.0).filter(|x| *x > 0).collect();
    up.sort_unstable();
    up.dedup();
    up.into_iter()
}

/// Memory-level parallelism: how many times faster many chains are than one.
pub fn infer_parallel(s: &Samples) -> Finding<f64> {
    let low = |n: u32| {
        s.parallel
            .iter()
            .filter(|p| p.0 == n)
            .map(|p| p.1)
            .fold(f64::INFINITY, f64::min)
    };
    let least = s.parallel.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    if !low(1).is_finite() || s.parallel.len() < 6 {
        return Finding::refused("not measured");
    }
    let still_falling = low(32) < 0.92 * low(24);
    let f = Finding::new(
        low(1) / least,
        Confidence::Medium,
        "speed-up of independent chases of flushed lines",
    );
    if still_falling {
        f.at_most(Confidence::Low, "still rising at 32 chains: a lower bound")
    } else {
        f
    }
}

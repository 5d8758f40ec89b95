//! The decoded-instruction cache: loops of straight code that decoders are slow at.
//!
//! As long as the decoded operations are kept, the loop's speed does not depend on how hard the code is to
//! fetch and decode; beyond that it does. Two kinds of code are tried, because processors stumble over different
//! things: no-operations of 7 bytes ask for more bytes a cycle than are fetched, those of 4 bytes for more
//! instructions than a narrow decoder takes. What is told is how much such code is kept; how a cache packs its
//! operations is not seen. Source: sizes by no-operation footprints are common practice.

use super::best;
use crate::finding::{Confidence, Finding, quantile};
use crate::measure::{Measure, MeasureError};
use serde::{Deserialize, Serialize};

/// One sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// Bytes per instruction.
    pub length: u64,
    /// (bytes, cycles per instruction).
    pub curve: Vec<(u64, f64)>,
}

/// One sweep over loops of 2 to 64 KiB.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure, length: u64) -> Result<Vote, MeasureError> {
    let mut curve = Vec::new();
    for k in [
        2u64, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16, 17, 18, 20, 22, 24, 25, 26, 28, 32, 36, 40, 48,
        64,
    ] {
        let w = m.straight(k << 10, length, 5)?;
        let low = best(&w);
        if low.is_finite() {
            curve.push((k << 10, low));
        }
    }
    Ok(Vote { length, curve })
}

/// Bytes of straight code kept: the last size before the loop slows down for good, for the kind that slows down most.
///
/// `l1i` is the instruction cache's capacity, whose own end must not be taken for it.
pub fn infer(votes: &[Vote], l1i: Option<u64>) -> Finding<u64> {
    if votes.is_empty() {
        return Finding::refused("not measured");
    }
    let mut found: Option<(f64, u64, u64)> = None;
    let mut tried = 0;
    for length in [4, 7] {
        let of = || votes.iter().filter(|v| v.length == length);
        tried = tried.max(of().count() as u32);
        let mut sizes: Vec<u64> = of().flat_map(|v| v.curve.iter().map(|c| c.0)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let low = |size: u64| {
            let of = of().flat_map(|v| v.curve.iter().filter(move |c| c.0 == size));
            of.map(|c| c.1).fold(f64::INFINITY, f64::min)
        };
        let y: Vec<f64> = sizes.iter().map(|s| low(*s)).collect();
        let Some(base) = y
            .get(..4)
            .map(|b| b.iter().copied().fold(f64::INFINITY, f64::min))
        else {
            continue;
        };
        // Beyond the instruction cache everything is slow: what counts is the speed just before its end.
        let inside = sizes
            .iter()
            .filter(|s| l1i.is_none_or(|b| **s <= b))
            .count();
        let Some(high) = quantile(&y[inside.saturating_sub(3)..inside], 0.5) else {
            continue;
        };
        // A set that overflows slows the loop down by degrees: a tenth of the way is the end.
        let fast = |t: &f64| *t < base + 0.1 * (high - base);
        let Some(at) = y[..inside].iter().rposition(fast) else {
            continue;
        };
        if high < 1.15 * base || at == 0 || at + 1 >= inside {
            continue;
        }
        if found.is_none_or(|f| high / base > f.0) {
            found = Some((high / base, sizes[at], length));
        }
    }
    let refuse = |why: &str| {
        let mut f = Finding::refused(why);
        f.votes = tried;
        f
    };
    match found {
        None => refuse(
            "straight code that fits the instruction cache runs equally fast at all sizes: no such cache, or decoders that keep up with it",
        ),
        Some((_, size, length)) => {
            let text = format!("straight code of {length}-byte instructions; slower beyond");
            // Loops slow down by degrees, so the end is a choice of where.
            let mut f = Finding::new(size, Confidence::Low, text);
            (f.votes, f.agree) = (tried, tried);
            f
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(length: u64, end: u64) -> Vote {
        let curve = [2u64, 4, 8, 12, 15, 16, 17, 18, 24, 32, 36, 48]
            .map(|k| (k << 10, if k << 10 <= end { 0.17 } else { 0.22 }))
            .to_vec();
        Vote { length, curve }
    }

    #[test]
    fn the_kind_that_decoders_stumble_over_names_the_size() {
        let votes = [
            sweep(7, 16 << 10),
            sweep(4, 1 << 20),
            sweep(7, 16 << 10),
            sweep(7, 16 << 10),
        ];
        let found = infer(&votes, Some(32 << 10));
        assert_eq!(
            (found.value, found.confidence),
            (Some(16 << 10), Confidence::Low)
        );
        assert_eq!(infer(&[sweep(7, 32 << 10)], Some(32 << 10)).value, None);
        assert_eq!(infer(&[sweep(4, 1 << 20)], None).value, None);
    }
}

//! The decoded-instruction cache: loops of straight code that decoders are slow at.
//!
//! As long as the decoded operations are kept, the loop's speed does not depend on how hard the code is to
//! decode; beyond that it does. Two kinds of code are tried, because processors stumble over different things: an
//! operand-size prefix that changes the length (Intel), and plain 4-byte no-operations (a decoder narrower than
//! what follows it). Source: the length-changing prefix is in Intel's optimisation manual, chapter on decoding; sizes by
//! no-operation footprints are common practice.

use super::best;
use crate::finding::{Confidence, Finding};
use crate::measure::{Measure, MeasureError};
use serde::{Deserialize, Serialize};

/// One sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// Made of instructions that decoders stall on.
    pub stalling: bool,
    /// (bytes, cycles per instruction).
    pub curve: Vec<(u64, f64)>,
}

/// One sweep over loops of 2 to 64 KiB.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure, stalling: bool) -> Result<Vote, MeasureError> {
    let mut curve = Vec::new();
    for k in [
        2u64, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16, 17, 18, 20, 22, 24, 25, 26, 28, 32, 36, 40, 48,
        64,
    ] {
        let w = m.straight(k << 10, stalling, 5)?;
        let low = best(&w);
        if low.is_finite() {
            curve.push((k << 10, low));
        }
    }
    Ok(Vote { stalling, curve })
}

/// Operations held: the last size before the loop slows down for good, for the kind that slows down most.
///
/// `l1i` is the instruction cache's capacity, whose own end must not be taken for it.
pub fn infer(votes: &[Vote], l1i: Option<u64>) -> Finding<u64> {
    if votes.is_empty() {
        return Finding::refused("not measured");
    }
    let mut found: Option<(f64, u64, u64)> = None;
    let mut tried = 0;
    for stalling in [false, true] {
        let of = || votes.iter().filter(|v| v.stalling == stalling);
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
        let Some(at) = y.iter().rposition(|t| *t < 1.2 * base) else {
            continue;
        };
        // The end must stand out: flat before it, and well above soon after.
        let Some(after) = y.get((at + 2).min(y.len() - 1)) else {
            continue;
        };
        if at + 1 == y.len() || at == 0 || *after < 1.3 * base {
            continue;
        }
        if found.is_none_or(|f| after / base > f.0) {
            found = Some((after / base, sizes[at], sizes[at + 1]));
        }
    }
    let refuse = |why: &str| {
        let mut f = Finding::refused(why);
        f.votes = tried;
        f
    };
    match found {
        None => refuse(
            "straight code runs equally fast at all sizes: no such cache, or decoders that keep up with it",
        ),
        Some((_, size, _)) if l1i.is_some_and(|b| size >= b * 9 / 10) => {
            refuse("straight code slows down only where the instruction cache ends")
        }
        Some((_, size, next)) => {
            let text = format!(
                "loops of 4-byte instructions: {} run from it, {} do not",
                size / 4,
                next / 4
            );
            let mut f = Finding::new(size / 4, Confidence::Medium, text);
            (f.votes, f.agree) = (tried, tried);
            if tried < 3 {
                f = f.at_most(Confidence::Low, "few sweeps");
            }
            f
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(stalling: bool, end: u64) -> Vote {
        let curve = [2u64, 4, 8, 12, 15, 16, 17, 18, 24, 32, 36, 48]
            .map(|k| (k << 10, if k << 10 <= end { 0.2 } else { 0.9 }))
            .to_vec();
        Vote { stalling, curve }
    }

    #[test]
    fn the_kind_that_decoders_stumble_over_names_the_size() {
        let votes = [
            sweep(true, 16 << 10),
            sweep(false, 1 << 20),
            sweep(true, 16 << 10),
            sweep(true, 16 << 10),
        ];
        assert_eq!(infer(&votes, Some(32 << 10)).value, Some(4096));
        assert_eq!(infer(&[sweep(true, 32 << 10)], Some(32 << 10)).value, None);
        assert_eq!(infer(&[sweep(false, 1 << 20)], None).value, None);
    }
}

//! The instruction side: line, capacity and ways of the first-level instruction cache, translation buffer.
//!
//! Blocks end in an indirect jump whose target is random, so that no front end runs ahead, and are full of one-byte
//! instructions, of which a decoded-instruction cache holds two lines a set at most: its misses set in long before those
//! of the cache behind it. The order changes every lap, so misses set in gradually beyond the ways; the number of ways is
//! the one whose simulated miss shares fit the measured curve best, beside an earlier step where there is one.
//!
//! The instruction translation buffer is read with direct jumps, one per page, against as many jumps over an eighth of the
//! pages: they go as far and have as many targets, for which predictors have small fast tables too. (Against jumps within a
//! few pages one host showed 64 entries, where its far jumps become slower, in place of its 256 translations.)

mod fit;
mod infer;

use super::{PAGE, best};
use crate::finding::quantile;
use crate::measure::{CodeChase, Measure, MeasureError};
use crate::rng::Rng;
pub use infer::{infer, infer_line, infer_translations};
use serde::{Deserialize, Serialize};

/// Numbers of blocks tried. More than these collide among the branch targets too, on one host by tens of cycles.
const COUNTS: [u32; 16] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24];
/// Neighbouring lines visited at each place: several sets at once, so that one jump's luck does not show.
const GROUP: u64 = 8;
/// Strides tried, bytes.
const STRIDES: [u64; 5] = [1024, 2048, 4096, 8192, 16384];
const PAD: u32 = 50;
/// Times each shift is tried in a vote.
const SHIFT_TRIES: u32 = 5;

/// Curves of one vote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Vote {
    /// (stride, groups of blocks in the same sets, cycles per block).
    pub curve: Vec<(u64, u32, f64)>,
    /// (stride, groups, shift of half of the groups in bytes, cycles per block more than spread blocks take).
    pub shifts: Vec<(u64, u32, u64, f64)>,
    /// Instruction pages: (pages, cycles per jump, cycles per jump of as many over an eighth of the pages).
    pub pages: Vec<(u64, f64, f64)>,
    /// Footprints of consecutive blocks: (bytes, cycles per block).
    pub footprints: Vec<(u64, f64)>,
}

fn run(m: &mut dyn Measure, blocks: &[u64], pad: u32, indirect: bool) -> Result<f64, MeasureError> {
    let jumps = (blocks.len() as u64 * 4).max(1500);
    Ok(best(&m.code(&CodeChase {
        blocks,
        pad,
        indirect,
        jumps,
        windows: 4,
    })?))
}

/// Where `n` groups of blocks in the same sets begin: at random multiples of `stride`, half of them moved by `shift` bytes.
///
/// The lines of a group are `apart` bytes from each other.
fn congruent(
    stride: u64,
    n: u32,
    (apart, shift): (u64, u64),
    rng: &mut Rng,
) -> (Vec<u64>, Vec<u64>) {
    let room = ((24 << 20) / stride).min(512);
    let mut places: Vec<u64> = (0..room).collect();
    rng.shuffle(&mut places);
    let first = rng.below(stride.min(PAGE) / (GROUP * apart).min(stride)) * GROUP * apart;
    // As many odd as even multiples, so that half a way's stride uses two sets evenly.
    let (odd, even): (Vec<u64>, Vec<u64>) = places.iter().partition(|p| *p % 2 == 1);
    let starts = (0..n as usize).map(|i| {
        let place = if i % 2 == 0 { even[i / 2] } else { odd[i / 2] };
        place * stride + first + if i / 2 % 2 == 1 { shift } else { 0 }
    });
    let group = |start: u64| (0..GROUP).map(move |g| start + g * apart);
    (starts.flat_map(group).collect(), places)
}

/// Cycles per block that `n` groups of lines in the same sets cost more than in different ones.
fn difference(
    m: &mut dyn Measure,
    stride: u64,
    n: u32,
    (apart, shift, pad): (u64, u64, u32),
    rng: &mut Rng,
) -> Result<f64, MeasureError> {
    let (same, places) = congruent(stride, n, (apart, shift), rng);
    // As many pages, their lines spread evenly over a page's sets.
    let pages: Vec<u64> = places.iter().map(|p| p % 512).collect();
    let spread: Vec<u64> = (0..u64::from(n) * GROUP)
        .map(|i| pages[(i / GROUP) as usize] * PAGE + i * 64 % PAGE)
        .collect();
    let a = run(m, &same, pad, true)?.min(run(m, &same, pad, true)?);
    let b = run(m, &spread, pad, true)?.min(run(m, &spread, pad, true)?);
    Ok(a - b)
}

/// One vote on the cache.
///
/// # Errors
/// What the backend reports.
pub fn collect(m: &mut dyn Measure, vote: &mut Vote, rng: &mut Rng) -> Result<(), MeasureError> {
    for stride in STRIDES {
        for n in COUNTS {
            let (blocks, _) = congruent(stride, n, (64, 0), rng);
            vote.curve.push((stride, n, run(m, &blocks, PAD, true)?));
        }
    }
    if let Some((ways, way_bytes)) = vote.geometry() {
        let n = 2 * ways.min(12);
        // Orders are random: each shift several times, in rounds, so that no disturbance hits one alone.
        let mut all = [0, 16, 32, 64, 128].map(|shift| (shift, Vec::new()));
        for _ in 0..SHIFT_TRIES {
            for (shift, seen) in &mut all {
                // Blocks short enough not to reach into the next line when shifted by half a one, and long enough to
                // be more than a decoded-instruction cache takes. Lines apart: no group reaches the next one's sets.
                seen.push(difference(
                    m,
                    way_bytes.max(2048),
                    n,
                    (256, *shift, 22),
                    rng,
                )?);
            }
        }
        for (shift, seen) in all {
            let d = quantile(&seen, 0.5).unwrap_or(f64::INFINITY);
            vote.shifts.push((way_bytes, n, shift, d));
        }
    }
    Ok(())
}

/// Consecutive blocks over growing footprints, for the picture of the front end.
///
/// # Errors
/// What the backend reports.
pub fn collect_footprints(m: &mut dyn Measure, vote: &mut Vote) -> Result<(), MeasureError> {
    for k in [
        8u64, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128,
    ] {
        let blocks: Vec<u64> = (0..k * 16).map(|i| i * 64).collect();
        let long = run(m, &blocks, PAD, true)?;
        vote.footprints.push((k << 10, long));
    }
    Ok(())
}

/// Jumps in a page of the control.
const CROWD: u64 = 8;

/// Block `i` of those that take turns in so many pages: at most [`CROWD`] to a page, their lines spread evenly over the sets.
fn block_of(i: u64, pages: u64) -> u64 {
    let (page, turn) = (i % pages, i / pages);
    page * PAGE + (page + turn * CROWD) * 64 % PAGE
}

/// The instruction pages' curve.
///
/// # Errors
/// What the backend reports.
pub fn collect_pages(
    m: &mut dyn Measure,
    vote: &mut Vote,
    to: u64,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    // No point at a power of two: one entry or two are the timing loop's own.
    let mut n = 15.0f64;
    while n as u64 <= to {
        let count = n as u64;
        // Turn by turn, so that next to no jump stays in its page.
        let few = count.div_ceil(CROWD);
        let mut order: Vec<u64> = (0..count).collect();
        order
            .chunks_mut(few as usize)
            .for_each(|turn| rng.shuffle(turn));
        let over = |pages: u64| -> Vec<u64> { order.iter().map(|&i| block_of(i, pages)).collect() };
        let a = run(m, &over(count), 0, false)?;
        let b = run(m, &over(few), 0, false)?;
        if a.is_finite() && b.is_finite() {
            vote.pages.push((count, a, b));
        }
        n *= 2f64.powf(0.125);
    }
    Ok(())
}

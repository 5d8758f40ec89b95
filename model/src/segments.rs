//! How a run observed without a gap is cut into segments: finely, and what cannot be told apart is joined again.

use crate::bins;
use crate::cluster::{Signature, merge_neighbours};
use crate::pairs;
use crate::placed::{Placed, mean_weight};

/// Samples a segment is cut to. Finer follows phases better; exposures reach over many segments, so
/// the noise of one does not bend the sum (measured: 20 to 400 differ by phases and short working
/// sets alone, where finer is better; below 50 the intervals widen).
const SEGMENT_SAMPLES: f64 = 50.0;
/// The same where one of several threads is sampled at a time: a segment stands for its references whoever made them, so it is to hold
/// samples of all.
const SEGMENT_TOGETHER: f64 = 2_000.0;
/// Most segments a run is cut into.
const MAX_SEGMENTS: usize = 8192;
/// Most samples that segments which are alike are joined to, and fewest segments that a run is joined to which was cut into as many.
const JOINED_SAMPLES: f64 = 800.0;
const LEAST_SEGMENTS: f64 = 64.0;
/// Samples whose reuses are scaled together ([`crate::timeline::Timeline::normalise`]). (Of 16 programs whole runs were 0.103 points off on the mean
/// with 800, 0.093 with these; a sweep 0.19 and 0.13.)
const BLOCK_SAMPLES: f64 = 12_800.0;
/// Kolmogorov-Smirnov statistic (its 1 % point) below which neighbours are alike.
const ALIKE: f64 = 1.63;

/// The segments of a run.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    /// Their borders, line references, one more than segments, from 0.
    pub bounds: Vec<f64>,
    /// Of each, the number of its survival function: those of neighbours that cannot be told apart are one.
    pub shape_of: Vec<usize>,
    /// Of each, the number of its block.
    pub block_of: Vec<usize>,
    /// References within which changes of behaviour are placed, about.
    pub resolution: f64,
}

impl Segments {
    /// Of a run of so many references. `together`: the part of the samples that are taken of one of several threads at a time.
    pub fn of(placed: &[Placed], total: f64, together: f64) -> Segments {
        let each = SEGMENT_SAMPLES.powf(1.0 - together) * SEGMENT_TOGETHER.powf(together);
        join(placed, &cut(placed, total, each))
    }
}

/// Segment borders: equal numbers of samples, enough (effective) ones in each.
fn cut(placed: &[Placed], total: f64, each: f64) -> Vec<f64> {
    // Samples that took over others' weight know less than their number (Kish).
    let sum: f64 = placed.iter().map(|p| p.weight).sum();
    let squares: f64 = placed.iter().map(|p| p.weight * p.weight).sum();
    let effective = if squares > 0.0 {
        sum * sum / squares
    } else {
        0.0
    };
    let effective = effective * pairs::independence(placed);
    let segments = ((effective / each) as usize).clamp(1, MAX_SEGMENTS);
    let mut bounds = vec![0.0];
    for k in 1..segments {
        let at = placed[k * placed.len() / segments].from;
        if at > bounds[bounds.len() - 1] + 1.0 && at < total - 1.0 {
            bounds.push(at);
        }
    }
    bounds.push(total.max(1.0));
    bounds
}

/// Joins neighbours that cannot be told apart, as the noise of each is one of the evictions in it: up to [`JOINED_SAMPLES`] independent
/// ones, or to a part of the run over which what happens while the cache fills is not lost.
fn join(placed: &[Placed], bounds: &[f64]) -> Segments {
    let count = bounds.len() - 1;
    let longest = bounds[count] / LEAST_SEGMENTS;
    let per_sample = mean_weight(placed) / pairs::independence(placed);
    let mut signatures = vec![Signature::default(); count];
    let mut s = 0;
    for p in placed {
        while s + 1 < count && bounds[s + 1] <= p.from {
            s += 1;
        }
        let at = p.to.map(|_| bins::bin_of_real(p.distance));
        signatures[s].add(at, p.weight, p.weight / per_sample);
    }
    let (unit_of, _) = merge_neighbours(&signatures, usize::MAX, ALIKE);
    let mut segments = Segments {
        bounds: vec![0.0],
        shape_of: Vec::new(),
        block_of: Vec::new(),
        resolution: bounds[count] / count as f64,
    };
    let (mut from, mut samples, mut block, mut in_block) = (0, 0.0, 0, 0.0);
    for j in 0..count {
        samples += signatures[j].samples;
        let enough = samples >= JOINED_SAMPLES || bounds[j + 1] - bounds[from] >= longest;
        if j + 1 == count || unit_of[j + 1] != unit_of[from] || enough {
            segments.bounds.push(bounds[j + 1]);
            segments.shape_of.push(unit_of[from]);
            segments.block_of.push(block);
            in_block += samples;
            if in_block >= BLOCK_SAMPLES {
                (block, in_block) = (block + 1, 0.0);
            }
            (from, samples) = (j + 1, 0.0);
        }
    }
    segments
}

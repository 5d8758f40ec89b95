//! How a run observed without a gap is cut into segments: finely, and what cannot be told apart is joined again.

use crate::behaviour::{self, Stretch};
use crate::bins;
use crate::cluster::{JOINED_SAMPLES, Signature, merge_neighbours};
use crate::pairs;
use crate::placed::{Placed, mean_weight};

/// Samples a segment is cut to. Finer follows phases better; exposures reach over many segments, so
/// the noise of one does not bend the sum (measured: 20 to 400 differ by phases and short working
/// sets alone, where finer is better; below 50 the intervals widen).
const SEGMENT_SAMPLES: f64 = 50.0;
/// The same where one of several threads is sampled at a time: a segment stands for its references whoever made them, so it is to hold
/// samples of all.
const SEGMENT_TOGETHER: f64 = 2_000.0;
/// Most segments a run is cut into by its samples: it is cut where behaviours change besides.
const MAX_SEGMENTS: usize = 8192;
/// Fewest segments that a run is joined to which was cut into as many.
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
    /// Of each, the number of its survival function: those of neighbours, among those of one behaviour, that cannot be told apart are one.
    pub shape_of: Vec<usize>,
    /// Of each, the number of its block.
    pub block_of: Vec<usize>,
    /// References within which a change of behaviour at the beginning of each is placed, about.
    pub resolution: Vec<f64>,
}

impl Segments {
    /// Of a run of so many references. `together`: the part of the samples that are taken of one of several threads at a time.
    pub fn of(placed: &[Placed], total: f64, together: f64) -> Segments {
        let each = SEGMENT_SAMPLES.powf(1.0 - together) * SEGMENT_TOGETHER.powf(together);
        let course = match together > 0.0 {
            true => vec![Stretch::whole()],
            false => behaviour::course(placed, total, LEAST_SEGMENTS),
        };
        let pieces = cut(placed, &course, total, each);
        join(placed, &pieces)
    }
}

/// What a run is cut to.
#[derive(Default)]
struct Pieces {
    /// Borders, one more than pieces.
    bounds: Vec<f64>,
    /// Which behaviour each is of.
    kinds: Vec<u32>,
    /// References within which the beginning of each is placed, where the behaviour changes there.
    within: Vec<Option<f64>>,
}

impl Pieces {
    /// Begins one if there is room for it.
    fn begin(&mut self, from: f64, kind: u32, within: Option<f64>, total: f64) -> bool {
        let room = self
            .bounds
            .last()
            .is_none_or(|before| from > before + 1.0 && from < total - 1.0);
        if room {
            self.bounds.push(from);
            self.kinds.push(kind);
            self.within.push(within);
        }
        room
    }
}

/// Borders where behaviours change, and in between such that as many samples, enough (effective) ones, are in each but the last of a stretch.
fn cut(placed: &[Placed], course: &[Stretch], total: f64, each: f64) -> Pieces {
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
    let samples = placed.len().div_ceil(segments);
    let mut pieces = Pieces::default();
    let mut left = placed.iter().map(|p| p.from).peekable();
    for (at, stretch) in course.iter().enumerate() {
        let within = Some(stretch.within).filter(|within| within.is_finite());
        pieces.begin(stretch.from, stretch.kind, within, total);
        let end = course.get(at + 1).map_or(f64::INFINITY, |next| next.from);
        let mut since = 0;
        while let Some(from) = left.next_if(|&from| from < end) {
            if since >= samples && pieces.begin(from, stretch.kind, None, total) {
                since = 0;
            }
            since += 1;
        }
    }
    pieces.bounds.push(total.max(1.0));
    pieces
}

/// Joins neighbours that cannot be told apart, as the noise of each is one of the evictions in it: up to [`JOINED_SAMPLES`] independent
/// ones, or to a part of the run over which what happens while the cache fills is not lost.
fn join(
    placed: &[Placed],
    Pieces {
        bounds,
        kinds,
        within,
    }: &Pieces,
) -> Segments {
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
    let mut unit_of = vec![0; count];
    let mut units = 0;
    for kind in 0..=kinds.iter().copied().max().unwrap_or(0) {
        let members: Vec<usize> = (0..count).filter(|&j| kinds[j] == kind).collect();
        let items: Vec<Signature> = members.iter().map(|&j| signatures[j].clone()).collect();
        let (of, merged) = merge_neighbours(&items, usize::MAX, ALIKE);
        members
            .iter()
            .zip(of)
            .for_each(|(&j, unit)| unit_of[j] = units + unit);
        units += merged.len();
    }
    let mut segments = Segments {
        bounds: vec![0.0],
        shape_of: Vec::new(),
        block_of: Vec::new(),
        resolution: Vec::new(),
    };
    let (mut from, mut samples, mut block, mut in_block) = (0, 0.0, 0, 0.0);
    for j in 0..count {
        samples += signatures[j].samples;
        let enough = samples >= JOINED_SAMPLES || bounds[j + 1] - bounds[from] >= longest;
        if j + 1 == count || unit_of[j + 1] != unit_of[from] || enough {
            segments.bounds.push(bounds[j + 1]);
            segments.shape_of.push(unit_of[from]);
            segments
                .resolution
                .push(within[from].unwrap_or(bounds[count] / count as f64));
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

//! Timeline of a run seen through windows with gaps between them.
//!
//! Each window stands for a stretch of the run. Its samples are followed to its end, so distances
//! beyond are censored; what short windows cannot see is taken from longer ones (Kaplan-Meier over
//! the windows that behave alike, then over all). `M(t)` is interpolated across the gaps: every
//! stretch behaves like its window, and a reuse at distance `d` triggered in it was exposed to the
//! evictions of the `d` references before, whatever stretches those lie in. (Laying the triggers
//! out `d` after their samples instead is worse: at a change of phase the reuse does not come.)
//! Where long windows show that the run soon does other things, exposure further back is that of the whole run
//! ([`crate::memory`]).
//! Source: none; the equation is the paper's (`equation`), laid along the run.

use std::sync::Arc;

use crate::bins::{self, BINS};
use crate::cluster::{Signature, cluster, merge_neighbours};
use crate::hash::FastMap;
use crate::histogram::{CompactHistogram, Histogram};
use crate::memory::Memory;
use crate::placed::{Entry, FirstPlaced, Firsts, Group, Kept, Placed, WindowKind};
use crate::survival::{RunSize, Survival};
use crate::timeline::{Cross, Local, Segment, Shape, Timeline, isotonic};
use crate::{FirstTouches, LineSize, Outcome, Weight};

/// Most stretches told apart in time.
const MAX_UNITS: usize = 48;
/// Fewest segments of a timeline: the filling of the cache is followed at this resolution.
const MIN_SEGMENTS: usize = 24;
/// Samples at risk below which a cluster's own tail gives way to the pool's.
const THIN: f64 = 20.0;
/// Part of a run below which a window's stretch is lost to rounding.
const NOTHING: f64 = 1e-12;
/// A distance below this part of a segment is not taken across its border.
const SHORT: f64 = 1.0 / 64.0;

/// A window, or part of one, at one line size.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Index of its window in time order.
    pub window: usize,
    /// Line references of the run it stands for, with bounds.
    pub weight: f64,
    pub low: f64,
    pub high: f64,
    /// Looks between windows that it stands for, if those tell.
    pub looks: Option<f64>,
    pub histogram: Arc<CompactHistogram>,
    /// With the watches given up touched again right then, and never; where the window has any.
    pub extremes: Option<[Arc<CompactHistogram>; 2]>,
}

/// What intervals need of a run with gaps.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    pub blocks: Vec<Block>,
    /// Cluster of each block.
    pub cluster_of: Vec<usize>,
    pub clusters: usize,
}

/// The distribution of each cluster, spliced with the pool's tail.
pub(crate) fn cluster_survivals(
    blocks: &[Block],
    times: &[f64],
    cluster_of: &[usize],
    clusters: usize,
    line_size: LineSize,
) -> (Survival, Vec<Survival>) {
    let mut histograms = vec![Histogram::new(line_size); clusters];
    for ((b, &times), &c) in blocks.iter().zip(times).zip(cluster_of) {
        if b.histogram.samples > 0 {
            let factor = times * b.weight / f64::from(b.histogram.samples);
            histograms[c].merge_compact(&b.histogram, factor);
        }
    }
    let mut all = Histogram::new(line_size);
    for h in &histograms {
        // Same line size by construction.
        let _ = all.merge(h, Weight::ONE);
    }
    let pool = all.survival();
    if clusters == 1 {
        return (pool.clone(), vec![pool]);
    }
    let each = histograms
        .iter()
        .map(|h| h.survival_spliced(Some(&pool), THIN))
        .collect();
    (pool, each)
}

/// All blocks as one distribution, with the watches given up taken for either extreme.
fn extremes(blocks: &[Block], line_size: LineSize) -> Option<Box<[Survival; 2]>> {
    let pool = |which: usize| {
        let mut all = Histogram::new(line_size);
        for b in blocks {
            let histogram = b.extremes.as_ref().map_or(&b.histogram, |e| &e[which]);
            all.merge_compact(histogram, b.weight / f64::from(b.histogram.samples));
        }
        all.survival()
    };
    let any = blocks.iter().any(|b| b.extremes.is_some());
    any.then(|| Box::new([pool(0), pool(1)]))
}

/// What is known of a run besides its windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Whether the cache is empty at the start.
    pub fills: bool,
    /// Lines it can have touched.
    pub lines: f64,
    /// Line references over which it goes on as it does.
    pub memory: f64,
}

/// Builds the timeline. `entries`, per window in time order, and `looked`, the index of each window with its first touches, are needed for
/// attribution only.
pub(crate) fn build(
    blocks: Vec<Block>,
    entries: &[(f64, Vec<Entry>)],
    looked: &[(u32, Option<&FirstTouches>)],
    line_size: LineSize,
    known: Known,
) -> Group {
    let lines = known.lines;
    let weighed: f64 = blocks.iter().map(|b| b.weight).sum();
    let mut blocks = blocks;
    blocks.retain(|b| b.histogram.samples > 0 && b.weight > NOTHING * weighed);
    // Windows without a sample, or of no length beside the run's, say nothing: the others stand for
    // their stretch too.
    let kept: f64 = blocks.iter().map(|b| b.weight).sum();
    if kept > 0.0 {
        for b in &mut blocks {
            b.low *= weighed / kept;
            b.high *= weighed / kept;
            b.weight *= weighed / kept;
        }
    }
    let signatures: Vec<Signature> = blocks
        .iter()
        .map(|b| Signature::new(&b.histogram, b.weight / f64::from(b.histogram.samples)))
        .collect();
    let (unit_of, units) = merge_neighbours(&signatures, MAX_UNITS, 0.0);
    let cluster_of_unit = cluster(&units);
    let clusters = cluster_of_unit.iter().max().map_or(0, |c| c + 1);
    let cluster_of: Vec<usize> = unit_of.iter().map(|&u| cluster_of_unit[u]).collect();
    let once = vec![1.0; blocks.len()];
    let (pooled, mut survivals) =
        cluster_survivals(&blocks, &once, &cluster_of, clusters, line_size);
    let size = RunSize {
        refs: weighed,
        lines,
    };
    for s in &mut survivals {
        s.spread_undecided(size);
    }
    let mut unit_weight = vec![0.0; units.len()];
    for (b, &u) in blocks.iter().zip(&unit_of) {
        unit_weight[u] += b.weight;
    }
    let memory = Memory::new(known.memory, &pooled, size);
    let timeline = deposit(
        &unit_weight,
        &cluster_of_unit,
        &survivals,
        size,
        known.fills,
        memory,
    );
    let mut at = 0.0;
    let span_of: Vec<(f64, f64)> = blocks
        .iter()
        .map(|b| {
            at += b.weight;
            (at - b.weight, at)
        })
        .collect();
    let window_span = window_spans(entries.len(), &blocks, &span_of);
    let placed = place(entries, &window_span, &timeline, line_size);
    let clusters_of = blocks
        .iter()
        .map(|b| b.window)
        .zip(cluster_of.iter().copied());
    let firsts = first_touches(
        looked,
        entries,
        &window_span,
        clusters_of.collect(),
        &timeline,
    );
    let complete = !blocks.is_empty();
    Group {
        timeline,
        placed,
        pooled,
        extremes: extremes(&blocks, line_size),
        sparse: Some(Sparse {
            blocks,
            cluster_of,
            clusters,
        }),
        firsts,
        returns: None,
        complete,
        refs: weighed,
        lines,
        kept: Kept::default(),
    }
}

/// Lays out each stretch's reuses and the times their lines were touched before.
fn deposit(
    unit_weight: &[f64],
    cluster_of_unit: &[usize],
    survivals: &[Survival],
    run: RunSize,
    fills: bool,
    memory: Option<Memory>,
) -> Timeline {
    let total = run.refs;
    let mut bounds = vec![0.0];
    let mut shape_of = Vec::new();
    for (&w, &c) in unit_weight.iter().zip(cluster_of_unit) {
        let parts = (w / total * MIN_SEGMENTS as f64).ceil().max(1.0) as usize;
        let start = bounds[bounds.len() - 1];
        for i in 1..=parts {
            bounds.push(start + w * i as f64 / parts as f64);
            shape_of.push(c);
        }
    }
    let shapes: Vec<Shape> = survivals
        .iter()
        .map(|s| {
            let mut edges = s.at_edges();
            if let Some(memory) = &memory {
                memory.blend(&mut edges);
            }
            Shape::new(&edges, 0.0)
        })
        .collect();
    let count = shape_of.len();
    let mut segments: Vec<Segment> = shape_of
        .iter()
        .map(|&shape| Segment {
            cold: 0.0,
            local: Vec::new(),
            cross: Vec::new(),
            shape,
        })
        .collect();
    for j in 0..count {
        let start = bounds[j];
        let n = bounds[j + 1] - start;
        for step in &survivals[shape_of[j]].steps {
            let d = step.distance;
            let inside = if d < SHORT * n {
                1.0
            } else {
                (1.0 - d / n).max(0.0)
            };
            if inside > 0.0 {
                segments[j].local.push(Local {
                    bin: step.bin,
                    distance: d,
                    weight: step.mass * inside,
                    distinct: 0.0,
                    spread: 0.0,
                });
            }
            if inside >= 1.0 {
                continue;
            }
            // The others were touched before the segment began, at times `first..last`.
            let (first, last) = (start - d, start - d + d.min(n));
            let mut k = bounds.partition_point(|&b| b <= first).saturating_sub(1);
            while k < j && bounds[k] < last {
                let low = bounds[k].max(first);
                let high = bounds[k + 1].min(last);
                if high > low {
                    let from = 0.5 * (low + high);
                    let weight = step.mass * (high - low) / n;
                    segments[j].cross.push(Cross {
                        from,
                        from_segment: k as u32,
                        to: from + d,
                        weight,
                        distinct: 0.0,
                    });
                }
                k += 1;
            }
        }
    }
    let touched: Vec<f64> = (0..=count)
        .map(|j| {
            (0..j)
                .map(|k| {
                    let shape = &shapes[shape_of[k]];
                    shape.alive(bounds[j] - bounds[k]) - shape.alive(bounds[j] - bounds[k + 1])
                })
                .sum::<f64>()
                .min(run.lines)
        })
        .collect();
    let lines = isotonic(&touched);
    for j in 0..count {
        let n = bounds[j + 1] - bounds[j];
        let cold = if fills && n > 0.0 {
            ((lines[j + 1] - lines[j]) / n).clamp(0.0, 1.0)
        } else {
            0.0
        };
        segments[j].cold = cold;
    }
    let mut timeline = Timeline::new(bounds, segments, shapes, fills, memory);
    timeline.normalise((0..count).collect());
    timeline.measure();
    timeline
}

/// What part of the run each window stands for, from and to.
fn window_spans(
    windows: usize,
    blocks: &[Block],
    span_of: &[(f64, f64)],
) -> Vec<Option<(f64, f64)>> {
    let mut window_span: Vec<Option<(f64, f64)>> = vec![None; windows];
    for (b, &(start, end)) in blocks.iter().zip(span_of) {
        if let Some(span) = window_span.get_mut(b.window) {
            let (s, e) = span.unwrap_or((start, end));
            *span = Some((s.min(start), e.max(end)));
        }
    }
    window_span
}

/// First touches at the times their windows stand for; `None` where no window was looked at for them.
fn first_touches(
    looked: &[(u32, Option<&FirstTouches>)],
    entries: &[(f64, Vec<Entry>)],
    window_span: &[Option<(f64, f64)>],
    clusters: FastMap<usize, usize>,
    timeline: &Timeline,
) -> Option<Firsts> {
    if looked.iter().all(|(_, first)| first.is_none()) {
        return None;
    }
    let mut firsts = Firsts {
        placed: Vec::new(),
        windows: FastMap::default(),
    };
    for (at, &(window, first)) in looked.iter().enumerate() {
        let (Some((start, end)), Some(&cluster)) = (window_span[at], clusters.get(&at)) else {
            continue;
        };
        let looked = first.is_some();
        firsts.windows.insert(
            window,
            WindowKind {
                cluster,
                looked,
                span: end - start,
                refs: entries[at].0.max(1.0),
            },
        );
        let Some(first) = first else { continue };
        let refs = entries[at].0.max(1.0);
        let touches = first
            .touches
            .iter()
            .enumerate()
            .map(|(touch, first_touch)| {
                let position = first_touch.position as f64;
                let time = start + position / refs * (end - start);
                FirstPlaced {
                    window,
                    touch: touch as u32,
                    weight: (end - start) / refs * first.each,
                    position,
                    segment: timeline.segment_of(time) as u32,
                }
            });
        firsts.placed.extend(touches);
    }
    Some(firsts)
}

/// Samples at the times their windows stand for, weighted for what censoring took.
fn place(
    entries: &[(f64, Vec<Entry>)],
    window_span: &[Option<(f64, f64)>],
    timeline: &Timeline,
    line_size: LineSize,
) -> Vec<Placed> {
    let mut placed = Vec::new();
    let mut cut = Histogram::new(line_size);
    for ((refs, entries), span) in entries.iter().zip(window_span) {
        let Some((start, end)) = *span else { continue };
        let followed = || entries.iter().filter(|e| e.outcome != Outcome::NotFollowed);
        let shares: f64 = followed().map(|e| e.share).sum();
        let per_share = (end - start) / shares.max(f64::MIN_POSITIVE);
        let followed = followed().count();
        for e in entries {
            let weight = per_share * e.share;
            let w = Weight::new(weight).unwrap_or(Weight::ONE);
            let from = start + e.fraction * (end - start);
            let (to, distance, censored) = match e.outcome {
                Outcome::Reused { distance, .. } => {
                    (Some(from + distance as f64 + 1.0), distance, false)
                }
                Outcome::Censored { at } => (None, at, true),
                // As in the histograms: the end of the process cuts a window with gaps around it.
                Outcome::NeverReused { at } => (None, at, true),
                Outcome::NotFollowed => continue,
            };
            cut.add(
                &if censored {
                    Outcome::Reused {
                        distance,
                        trigger: Default::default(),
                    }
                } else {
                    Outcome::Censored { at: distance }
                },
                w,
            );
            let from_segment = timeline.segment_of(from) as u32;
            let segment = to.map_or(from_segment, |to| timeline.segment_of(to) as u32);
            placed.push(Placed {
                window: e.window,
                sample: e.sample,
                from,
                to,
                distance: distance as f64,
                position: e.fraction * refs,
                window_refs: *refs,
                per_sample: refs / followed.max(1) as f64,
                weight,
                raw: weight,
                censored,
                given_up: censored && e.given_up,
                imputed: false,
                code: 0,
                end_code: None,
                from_segment,
                segment,
            });
        }
    }
    let edges = if placed.is_empty() {
        vec![1.0; BINS + 1]
    } else {
        cut.survival().at_edges()
    };
    for p in &mut placed {
        let g = edges[bins::bin_of_real(p.distance)];
        p.weight = if p.censored || g <= 1e-9 {
            0.0
        } else {
            p.weight / g
        };
    }
    placed
}

//! Timeline of a run observed without a gap: every sample is placed at its own time.

use crate::bins::{self, BINS};
use crate::given_up::Take;
use crate::histogram::Histogram;
use crate::placed::{Entry, Group, Kept, Placed, ReturnPlaced, Returns, mean_weight};
use crate::segments::Segments;
use crate::survival::{RunSize, Survival};
use crate::timeline::{Cross, Local, Segment, Shape, Timeline, isotonic};
use crate::{FirstTouches, LineSize, Outcome, Trigger, Weight};

/// Fewest samples that set a weight (references per sample) of their own.
const RATE_SAMPLES: usize = 16;
/// Censored samples that stand for the undecided mass.
const CARRIERS: usize = 200;

/// Places the samples of gapless windows and cuts the run into segments.
///
/// `windows`: references at this line size, and the window's samples; in time order. `lines`: how
/// many the run can have touched; `looked`: each window's index and its first touches.
pub(crate) fn build(
    windows: &[(f64, Vec<Entry>)],
    looked: &[(u32, Option<&FirstTouches>)],
    line_size: LineSize,
    fills: bool,
    lines: f64,
) -> Group {
    let total: f64 = windows.iter().map(|w| w.0).sum();
    let mut placed = place(windows);
    for p in &mut placed {
        // A window's references are counted, a position is scaled: keep triggers inside the run.
        if let Some(to) = &mut p.to {
            *to = to.min(total * (1.0 - 1e-12)).max(p.from);
        }
        p.raw = p.weight;
    }
    let extremes = extremes(&placed, line_size);
    let pooled = weigh_by_censoring(&mut placed, line_size, RunSize { refs: total, lines });
    let told = windows.iter().flat_map(|w| &w.1);
    let together = told.filter(|e| e.refs.is_some()).count() as f64;
    let together = (together / placed.len().max(1) as f64).min(1.0);
    let segments = Segments::of(&placed, total, together);
    let timeline = assemble(&mut placed, segments, fills);
    let returns = returns(windows, looked, &timeline);
    let complete = placed.iter().any(|p| p.raw > 0.0);
    Group {
        timeline,
        placed,
        pooled,
        extremes,
        sparse: None,
        firsts: None,
        returns,
        complete,
        refs: total,
        lines,
        kept: Kept::default(),
    }
}

/// First touches of epochs at their times; `None` where no window had any looked for.
fn returns(
    windows: &[(f64, Vec<Entry>)],
    looked: &[(u32, Option<&FirstTouches>)],
    timeline: &Timeline,
) -> Option<Returns> {
    let mut returns = Returns {
        placed: Vec::new(),
        epochs: Vec::new(),
        cold: 0.0,
    };
    let mut start = 0.0;
    for ((refs, _), &(window, first)) in windows.iter().zip(looked) {
        let Some(first) = first else {
            returns.epochs.push((start, false));
            start += refs;
            continue;
        };
        let epochs = first.epochs.iter().map(|&at| (start + at as f64, true));
        returns.epochs.extend(epochs);
        for (at, touch) in first.touches.iter().enumerate() {
            returns.placed.push(ReturnPlaced {
                window,
                touch: at as u32,
                weight: first.each,
                at: start + touch.position as f64,
                since: touch.since,
            });
        }
        start += refs;
    }
    returns.epochs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = returns.epochs.iter().skip(1).map(|epoch| epoch.0);
    let epochs = returns.epochs.iter().zip(ends.chain([start]));
    let looked = epochs.filter(|(epoch, _)| epoch.1);
    let cold = looked.map(|(epoch, end)| timeline.cold_between(epoch.0, end));
    returns.cold = cold.sum();
    // Each stands for itself at least.
    let seen: f64 = returns.placed.iter().map(|touch| touch.weight).sum();
    (seen >= 1.0).then_some(returns)
}

fn place(windows: &[(f64, Vec<Entry>)]) -> Vec<Placed> {
    let (mut placed, mut told): (Vec<Placed>, Vec<Option<f64>>) = Default::default();
    let (mut start, mut pending_refs, mut pending_shares, mut first) = (0.0, 0.0, 0.0, 0);
    for (refs, entries) in windows {
        for e in entries {
            let from = start + e.fraction * refs;
            let mut end_code = None;
            let (to, distance, censored) = match e.outcome {
                Outcome::Reused { distance, trigger } => {
                    let code = u64::from(trigger.instr) << 32 | e.code & u64::from(u32::MAX);
                    end_code = (!e.lost).then_some(code);
                    (Some(from + distance as f64 + 1.0), distance as f64, false)
                }
                Outcome::Censored { at } => (None, at as f64, true),
                Outcome::NeverReused { at } => (None, at as f64, false),
                Outcome::NotFollowed => continue,
            };
            told.push(e.refs);
            pending_shares += e.share;
            placed.push(Placed {
                window: e.window,
                sample: e.sample,
                from,
                to,
                distance,
                position: 0.0,
                window_refs: 0.0,
                per_sample: 0.0,
                weight: e.share,
                raw: 0.0,
                censored,
                given_up: censored && e.given_up,
                imputed: false,
                code: e.code,
                end_code,
                from_segment: 0,
                segment: 0,
            });
        }
        start += refs;
        pending_refs += refs;
        if placed.len() - first >= RATE_SAMPLES {
            let w = pending_refs / pending_shares;
            placed[first..].iter_mut().for_each(|p| p.weight *= w);
            (pending_refs, pending_shares, first) = (0.0, 0.0, placed.len());
        }
    }
    // What is left joins the samples before it; with none before, it stands alone.
    let rest = placed.len() - first;
    if rest > 0 {
        let w = pending_refs / pending_shares;
        placed[first..].iter_mut().for_each(|p| p.weight *= w);
    }
    if told.iter().any(Option::is_some) {
        for (p, told) in placed.iter_mut().zip(told) {
            p.weight = told.unwrap_or(p.weight);
        }
        // Told of 64-byte lines, and of threads with samples.
        let all: f64 = placed.iter().map(|p| p.weight).sum();
        if all > 0.0 {
            placed.iter_mut().for_each(|p| p.weight *= start / all);
        }
    }
    placed.sort_by(|a, b| a.from.total_cmp(&b.from));
    placed
}

/// The distribution with the watches given up taken for either extreme.
fn extremes(placed: &[Placed], line_size: LineSize) -> Option<Box<[Survival; 2]>> {
    let with = |take: Take| {
        let mut seen = Histogram::new(line_size);
        for p in placed {
            let weight = Weight::new(p.weight).unwrap_or(Weight::ONE);
            let at = p.distance as u64;
            let outcome = match (p.to, p.censored) {
                (Some(_), _) => Outcome::Reused {
                    distance: at,
                    trigger: Trigger::default(),
                },
                (None, true) => Outcome::Censored { at },
                (None, false) => Outcome::NeverReused { at },
            };
            take.add(&mut seen, &outcome, p.given_up, weight);
        }
        seen.survival()
    };
    let any = placed.iter().any(|p| p.given_up);
    any.then(|| Box::new([with(Take::Reused), with(Take::Never)]))
}

/// Censored samples hand their weight to those that were followed longer (Kaplan-Meier's
/// redistribution to the right); what nobody was followed long enough for is placed beyond the
/// horizon by [`Survival::spread_undecided`]. Returns the distribution, undecided mass apart.
fn weigh_by_censoring(placed: &mut Vec<Placed>, line_size: LineSize, run: RunSize) -> Survival {
    let mut seen = Histogram::new(line_size);
    let (mut events, mut ends) = (vec![0.0; BINS], vec![0.0; BINS]);
    for p in placed.iter() {
        let weight = Weight::new(p.weight).unwrap_or(Weight::ONE);
        match (p.to, p.censored) {
            (Some(_), _) => {
                seen.add_reuses(p.distance, 1, weight);
                events[bins::bin_of_real(p.distance)] += p.weight;
            }
            (None, true) => {
                seen.add(
                    &Outcome::Censored {
                        at: p.distance as u64,
                    },
                    weight,
                );
            }
            (None, false) => {
                let at = p.distance as u64;
                seen.add(&Outcome::NeverReused { at }, weight);
                ends[bins::bin_of(at)] += p.weight;
            }
        }
    }
    let survival = seen.survival();
    if !placed.iter().any(|p| p.censored) {
        return survival;
    }
    let all = seen.weight();
    let mut factor = vec![1.0; BINS];
    for step in survival.steps.iter().filter(|s| events[s.bin] > 0.0) {
        factor[step.bin] = step.mass * all / events[step.bin];
    }
    let mut ended = vec![1.0; BINS];
    for &(bin, mass) in survival.ended.iter().filter(|e| ends[e.0] > 0.0) {
        ended[bin] = mass * all / ends[bin];
    }
    for p in placed.iter_mut() {
        if p.censored {
            p.weight = 0.0;
        } else if p.to.is_some() {
            p.weight *= factor[bins::bin_of_real(p.distance)];
        } else {
            p.weight *= ended[bins::bin_of_real(p.distance)];
        }
    }
    if survival.undecided > 0.0 && !survival.steps.is_empty() {
        carry_undecided(placed, &survival, all, run);
    }
    survival
}

/// The longest followed of the censored samples carry the undecided mass.
fn carry_undecided(placed: &mut Vec<Placed>, survival: &Survival, all: f64, run: RunSize) {
    let mut spread = survival.clone();
    spread.spread_undecided(run);
    let mut carriers: Vec<Placed> = placed.iter().filter(|p| p.censored).copied().collect();
    carriers.sort_by(|a, b| b.distance.total_cmp(&a.distance));
    carriers.truncate(CARRIERS);
    let beyond = spread.steps[survival.steps.len()..]
        .iter()
        .map(|s| (s.distance, s.mass));
    let never = std::iter::once((f64::INFINITY, spread.never - survival.never));
    for (distance, mass) in beyond.chain(never).filter(|x| x.1 > 0.0) {
        let weight = mass * all / carriers.len() as f64;
        placed.extend(carriers.iter().map(|c| {
            let to = c.from + distance + 1.0;
            let reached = to < run.refs;
            Placed {
                to: reached.then_some(to),
                distance: if reached { distance } else { c.distance },
                weight,
                raw: 0.0,
                censored: false,
                imputed: true,
                ..*c
            }
        }));
    }
    placed.sort_by(|a, b| a.from.total_cmp(&b.from));
}

fn assemble(placed: &mut [Placed], of: Segments, fills: bool) -> Timeline {
    let count = of.bounds.len() - 1;
    let segments = of.shape_of.iter().map(|&shape| Segment {
        cold: 0.0,
        local: Vec::new(),
        cross: Vec::new(),
        shape,
    });
    let mut timeline = Timeline::new(of.bounds, segments.collect(), Vec::new(), fills, None);
    timeline.resolution = of.resolution;
    // Distinct lines touched by each border: touches before it whose next one is not.
    let mut outstanding = vec![0.0; count + 1];
    for p in placed.iter_mut() {
        let s = timeline.segment_of(p.from);
        let t = p.to.map(|to| timeline.segment_of(to));
        p.from_segment = s as u32;
        p.segment = t.unwrap_or(s) as u32;
        match t {
            Some(t) => {
                outstanding[s + 1] += p.weight;
                outstanding[t + 1] -= p.weight;
            }
            None if p.weight > 0.0 => {
                outstanding[s + 1] += p.weight;
            }
            None => {}
        }
    }
    for j in 0..count {
        outstanding[j + 1] += outstanding[j];
    }
    let lines = isotonic(&outstanding);
    let mut local = vec![vec![(0.0, 0.0); 0]; count];
    for p in placed.iter().filter(|p| p.weight > 0.0) {
        let Some(to) = p.to else { continue };
        let t = p.segment as usize;
        if p.from >= timeline.bounds[t] {
            let bin = bins::bin_of_real(p.distance);
            if local[t].len() <= bin {
                local[t].resize(bin + 1, (0.0, 0.0));
            }
            local[t][bin].0 += p.weight;
            local[t][bin].1 += p.weight * p.distance;
        } else {
            timeline.segments[t].cross.push(Cross {
                from: p.from,
                from_segment: p.from_segment,
                to,
                weight: p.weight,
                distinct: 0.0,
            });
        }
    }
    for j in 0..count {
        let n = timeline.bounds[j + 1] - timeline.bounds[j];
        // From an attached start first touches cannot be told from touches before it.
        let cold = if fills {
            ((lines[j + 1] - lines[j]) / n).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let segment = &mut timeline.segments[j];
        segment.local = local[j]
            .iter()
            .enumerate()
            .filter(|(_, c)| c.0 > 0.0)
            .map(|(bin, c)| Local {
                bin,
                distance: c.1 / c.0,
                weight: c.0,
                distinct: 0.0,
                spread: 0.0,
            })
            .collect();
        segment.cold = cold;
    }
    timeline.normalise(of.block_of);
    timeline.shapes = shapes(placed, &timeline.segments);
    timeline.measure();
    timeline
}

/// Survival functions for stack distances: segments that cannot be told apart, neighbours among those of one behaviour, share
/// one, as a segment's own few samples would blur the edge of a cache.
fn shapes(placed: &[Placed], segments: &[Segment]) -> Vec<Shape> {
    let count = segments.iter().map(|s| s.shape + 1).max().unwrap_or(0);
    // Weights of reuses by the bin of their distance, and of all samples.
    let mut taken = vec![(vec![0.0; BINS + 1], 0.0); count];
    for p in placed {
        let (reused, all) = &mut taken[segments[p.from_segment as usize].shape];
        *all += p.weight;
        if p.to.is_some() {
            reused[bins::bin_of_real(p.distance)] += p.weight;
        }
    }
    // Of a shape without a sample nothing is known but how the run is.
    let mut whole = (vec![0.0; BINS + 1], 0.0);
    for (edges, weight) in &taken {
        whole.1 += weight;
        whole.0.iter_mut().zip(edges).for_each(|(all, e)| *all += e);
    }
    taken
        .iter_mut()
        .filter(|of| of.1 <= 0.0)
        .for_each(|of| of.clone_from(&whole));
    let per_sample = mean_weight(placed);
    let shape = |(mut edges, weight): (Vec<f64>, f64)| {
        let mut s = 1.0f64;
        for e in &mut edges {
            let mass = *e / f64::max(weight, f64::MIN_POSITIVE);
            *e = s;
            s = (s - mass).max(0.0);
        }
        // The sample itself must not count towards its own stack distance.
        let own_share = if weight > 0.0 {
            per_sample / weight
        } else {
            0.0
        };
        Shape::new(&edges, own_share)
    };
    taken.into_iter().map(shape).collect()
}

//! Whether the samples themselves agree with the exposures that the equation gives them.
//!
//! The solver takes the misses between the two touches of a line to be those of the stretch of the
//! run they lie in, whatever the line. Where distances and misses go together on a finer scale than
//! segments or windows (loops inside loops) that is wrong, and nothing in the equation shows it.
//! The samples do: those triggered inside another's interval are an unbiased count of the misses
//! there. One count is mostly noise; summed over all samples, each weighed by what its exposure
//! does to the miss ratio, they give the model's first-order error with a standard error of its
//! own, from blocks of the run. How much of it is believed depends on all cache sizes together
//! ([`Evidence`]): in a run that agrees with itself at every scale, the noise of one scale is no
//! news. Random replacement only; needs the samples kept.

use crate::influence::{Scored, Scores};
use crate::placed::{Group, Placed};
use crate::random::Solution;
use crate::view::Solved;

/// Blocks of the run whose spread gives the standard error.
const BLOCKS: usize = 24;
/// Most pairs of samples of one window that are looked at.
const MOST_PAIRS: usize = 2_000_000;

/// First-order error of the modelled miss ratio, as the samples see it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disagreement {
    /// What the samples' counts would add to the miss ratio.
    pub shift: f64,
    /// Its standard error.
    pub error: f64,
    /// What exposures twice as large everywhere would add, to first order.
    pub reach: f64,
}

/// Which scored samples were triggered inside which others' intervals; the same at every cache.
#[derive(Clone, Debug)]
pub(crate) enum Witnesses {
    /// Gapless: all triggers of the run are there to be counted.
    Run {
        /// Scored reuses in the order of their triggers.
        order: Vec<u32>,
        /// For each scored sample, the part of `order` inside its interval.
        inside: Vec<(u32, u32)>,
    },
    /// Windows with gaps: a trigger is seen where its touch lies in the window too, so the later
    /// the more. Counted for a sample at position `v` are triggers after `v` with distances up to
    /// `v`, which are seen wherever they are; expected is their mean rate over the window's rest.
    Windows {
        /// Each window's reuses.
        windows: Vec<Vec<Seen>>,
        /// Pairs that were left out for each that is listed.
        every: f64,
    },
}

/// A reuse that has its window's other reuses for witnesses.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Index among the scored samples.
    at: u32,
    /// How many of the window's reuses, by position, come before its trigger is countable and how
    /// many before it no longer is.
    countable: (u32, u32),
    /// Countable triggers inside its interval.
    inside: Vec<u32>,
    /// Its interval as a part of the window's rest; `None` where it is not asked.
    part: Option<f64>,
}

impl Witnesses {
    pub fn new(group: &Group) -> Self {
        let picks: Vec<&Placed> = Scores::picks(group).map(|i| &group.placed[i]).collect();
        let reuse = |p: &Placed| p.to.is_some() && p.weight > 0.0;
        if group.sparse.is_none() {
            let to = |i: u32| picks[i as usize].to.unwrap_or(f64::INFINITY);
            let mut order: Vec<u32> = (0..picks.len() as u32)
                .filter(|&i| reuse(picks[i as usize]))
                .collect();
            order.sort_by(|&a, &b| to(a).total_cmp(&to(b)));
            let inside = picks
                .iter()
                .map(|p| {
                    // Times are whole numbers but for rounding, and both ends are not inside.
                    let up_to = |time: f64| order.partition_point(|&o| to(o) < time);
                    let before = up_to(p.from + 0.5);
                    let until = p.to.map_or(0, |end| up_to(end - 0.5));
                    (before as u32, until.max(before) as u32)
                })
                .collect();
            return Self::Run { order, inside };
        }
        let of: Vec<u32> = (0..picks.len() as u32)
            .filter(|&i| reuse(picks[i as usize]))
            .collect();
        let windows: Vec<&[u32]> = of
            .chunk_by(|&a, &b| picks[a as usize].window == picks[b as usize].window)
            .collect();
        let pairs: usize = windows.iter().map(|w| w.len() * w.len()).sum();
        let every = pairs.div_ceil(MOST_PAIRS).max(1);
        let windows = windows
            .into_iter()
            .map(|w| seen(w, &picks, every))
            .collect();
        Self::Windows {
            windows,
            every: every as f64,
        }
    }
}

/// The reuses of one window, every so manyth of them with its witnesses.
fn seen(window: &[u32], picks: &[&Placed], every: usize) -> Vec<Seen> {
    let placed = |i: u32| picks[i as usize];
    let trigger = |i: u32| placed(i).position + placed(i).distance + 1.0;
    let mut window = window.to_vec();
    window.sort_by(|&a, &b| placed(a).position.total_cmp(&placed(b).position));
    let up_to = |v: f64| window.partition_point(|&i| placed(i).position < v) as u32;
    window
        .iter()
        .enumerate()
        .map(|(n, &at)| {
            let (p, to) = (placed(at), trigger(at));
            let v = p.position;
            let asked = n.is_multiple_of(every);
            let countable =
                |y: u32| y != at && placed(y).distance <= v && trigger(y) > v && trigger(y) < to;
            Seen {
                at,
                countable: (up_to(p.distance), up_to(to)),
                inside: if asked {
                    window.iter().copied().filter(|&y| countable(y)).collect()
                } else {
                    Vec::new()
                },
                part: asked.then(|| (p.distance / (p.window_refs - v).max(1.0)).min(1.0)),
            }
        })
        .collect()
}

/// One sample's interval.
struct Interval {
    /// Change of the run's misses by a miss more inside.
    lever: f64,
    /// Misses that the other samples count inside.
    counted: f64,
    /// Misses to be expected there.
    expected: f64,
}

/// Misses counted between touch and reuse against those expected.
pub(crate) fn disagreement(
    group: &Group,
    solved: &Solved,
    levers: &[f64],
    scores: &Scores,
) -> Disagreement {
    let Some(solution) = &solved.solution else {
        return Disagreement::default();
    };
    let lever = |x: &Scored| {
        let t = x.placed.segment as usize;
        let evicting = group.timeline.evicting(solution, t);
        x.placed.weight * levers[t] * solution.hazard * evicting * (1.0 - x.miss)
    };
    let (intervals, every) = match group.witnesses() {
        Witnesses::Run { order, inside } => (
            along_the_run(group, solution, scores, (order, inside), &lever),
            scores.every,
        ),
        Witnesses::Windows { windows, every } => {
            let of_window = |w: &Vec<Seen>| inside_window(w, scores, &lever);
            let all = windows.iter().flat_map(of_window).collect();
            (all, scores.every * every)
        }
    };
    let (mut blocks, mut reach) = ([0.0; BLOCKS], 0.0);
    for (i, x) in intervals.iter().enumerate() {
        blocks[i * BLOCKS / intervals.len()] += x.lever * (x.counted - x.expected);
        reach += x.lever * x.expected;
    }
    let scale = every / group.refs.max(1.0);
    let mean = blocks.iter().sum::<f64>() / BLOCKS as f64;
    let spread: f64 = blocks.iter().map(|b| (b - mean).powi(2)).sum();
    Disagreement {
        shift: scale * mean * BLOCKS as f64,
        error: scale * (spread * BLOCKS as f64 / (BLOCKS - 1) as f64).sqrt(),
        reach: scale * reach,
    }
}

/// Gapless: expected is what is modelled.
fn along_the_run(
    group: &Group,
    solution: &Solution,
    scores: &Scores,
    (order, inside): (&[u32], &[(u32, u32)]),
    lever: &dyn Fn(&Scored) -> f64,
) -> Vec<Interval> {
    let timeline = &group.timeline;
    let mut first = vec![0.0];
    for (j, s) in timeline.segments.iter().enumerate() {
        first.push(first[j] + s.cold * (timeline.bounds[j + 1] - timeline.bounds[j]));
    }
    let mut sums = vec![0.0];
    for (i, &o) in order.iter().enumerate() {
        let x = &scores.scored[o as usize];
        sums.push(sums[i] + scores.every * x.placed.weight * x.miss);
    }
    let interval = |(x, &(before, until)): (&Scored, &(u32, u32))| {
        let p = x.placed;
        let to = p.to.filter(|_| p.weight > 0.0)?;
        let t = p.segment as usize;
        let (start, end) = (timeline.bounds[t], timeline.bounds[t + 1]);
        // First touches have no trigger: as modelled on both sides.
        let cold = timeline.gained(&first, p, to);
        // The sample helped to make its segment's misses, and is not its own witness.
        let own = p.weight * x.miss * (to - p.from.max(start)) / (end - start);
        Some(Interval {
            lever: lever(x),
            counted: sums[until as usize] - sums[before as usize],
            expected: timeline.gained(&solution.misses, p, to) - cold - own,
        })
    };
    scores
        .scored
        .iter()
        .zip(inside)
        .filter_map(interval)
        .collect()
}

fn inside_window(
    window: &[Seen],
    scores: &Scores,
    lever: &dyn Fn(&Scored) -> f64,
) -> Vec<Interval> {
    let miss = |i: u32| scores.scored[i as usize].miss;
    // Countable misses as the position moves on through the window.
    let mut change = vec![0.0; window.len() + 1];
    for x in window {
        let (from, until) = x.countable;
        change[from as usize] += miss(x.at);
        change[until as usize] -= miss(x.at);
    }
    let mut countable = 0.0;
    let mut intervals = Vec::new();
    for (n, x) in window.iter().enumerate() {
        countable += change[n];
        let Some(part) = x.part else { continue };
        let (from, until) = x.countable;
        let own = if (from as usize..until as usize).contains(&n) {
            miss(x.at)
        } else {
            0.0
        };
        let scored = &scores.scored[x.at as usize];
        let stands = scores.every * scored.placed.per_sample;
        intervals.push(Interval {
            lever: lever(scored),
            counted: stands * x.inside.iter().map(|&y| miss(y)).sum::<f64>(),
            expected: stands * (countable - own).max(0.0) * part,
        });
    }
    intervals
}

/// How far the exposures of a run are off, relative to themselves, over all cache sizes: variance
/// of the excess beyond what chance gives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    variance: f64,
}

impl Evidence {
    /// From the disagreements at several cache sizes. Moment estimate for effects of mean zero
    /// (DerSimonian & Laird 1986).
    pub fn new(sizes: &[Disagreement]) -> Self {
        let (mut excess, mut weight) = (0.0, 0.0);
        for d in sizes.iter().filter(|d| d.error > 0.0 && d.reach > 0.0) {
            excess += (d.shift / d.error).powi(2) - 1.0;
            weight += (d.reach / d.error).powi(2);
        }
        let variance = if weight > 0.0 { excess / weight } else { 0.0 };
        Self {
            variance: variance.max(0.0),
        }
    }

    /// Mean and standard deviation of the model's error at a size, given what was seen there:
    /// normal prior and normal noise.
    pub fn weigh(&self, d: &Disagreement) -> (f64, f64) {
        let prior = self.variance * d.reach * d.reach;
        let noise = d.error * d.error;
        if prior <= 0.0 {
            return (0.0, 0.0);
        }
        let belief = prior / (prior + noise);
        (d.shift * belief, (belief * noise).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(shift: f64, error: f64) -> Disagreement {
        Disagreement {
            shift,
            error,
            reach: 0.1,
        }
    }

    #[test]
    fn noise_is_not_believed_and_evidence_is() {
        let noise = Evidence::new(&[seen(0.001, 0.002), seen(-0.001, 0.001), seen(0.0005, 0.001)]);
        assert_eq!(noise.weigh(&seen(0.003, 0.002)), (0.0, 0.0));
        let clear = Evidence::new(&[seen(-0.02, 0.002), seen(-0.01, 0.002)]);
        let (mean, spread) = clear.weigh(&seen(-0.02, 0.002));
        assert!((-0.02..-0.018).contains(&mean), "{mean}");
        assert!(spread > 0.001 && spread <= 0.002, "{spread}");
        // Where nothing can be seen, the prior's width is what remains.
        let (_, blind) = clear.weigh(&seen(0.0, 10.0));
        assert!(blind > 0.01, "{blind}");
    }
}

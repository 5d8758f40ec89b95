//! Whether the samples themselves agree with the exposures that the equation gives them.
//!
//! The solver takes the misses between the two touches of a line to be those of the stretch of the
//! run they lie in, whatever the line. Where distances and misses go together on a finer scale than
//! segments or windows (loops inside loops) that is wrong, and nothing in the equation shows it.
//! The samples do: those triggered inside another's interval are an unbiased count of the misses
//! there, each pair weighed by how likely it was to be sampled ([`crate::pairs`]). One count is
//! mostly noise; summed over all samples, each weighed by what its exposure
//! does to the miss ratio, they give the model's first-order error with a standard error of its
//! own, from blocks of the run. How much of it is believed depends on all cache sizes together
//! ([`Evidence`]): in a run that agrees with itself at every scale, the noise of one scale is no
//! news, but what is usual is allowed for, as it is where samples are not spread evenly (threads
//! that are sampled by turns). Random replacement only; needs the samples kept.

use std::ops::Range;

use crate::counted;
use crate::fenwick::Fenwick;
use crate::placed::{Group, Placed};
use crate::random::Solution;
use crate::timeline::Timeline;
use crate::view::Solved;
use crate::{Cache, interval};

/// Blocks of the run whose spread gives the standard error.
const BLOCKS: usize = 24;
/// Standard deviation of relative errors of exposures that nothing has to show: it is allowed for where a run's own samples
/// cannot tell it from none. (Of 21 programs observed whole, where twice the exposure would add 0.3 points and more, the
/// median error was 0.06, with what sampling adds; 0.06 for the deviation covered 562 of 567 sizes.)
const USUAL: f64 = 0.06;
/// Part of a pair that is too little to be kept.
const LITTLE: f64 = 0.02;
/// Most reuses that are asked what they count; those that are counted are all.
const ASKED: usize = 50_000;

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

/// Which samples were triggered inside which others' intervals; the same at every cache.
#[derive(Clone, Debug)]
pub(crate) struct Witnesses {
    /// How many reuses each one that is asked stands for.
    every: f64,
    within: Within,
}

#[derive(Clone, Debug)]
enum Within {
    /// Gapless: all triggers of the run are there to be counted.
    Run {
        /// Reuses in the order of their triggers; and window by window.
        order: Vec<u32>,
        by_window: Vec<u32>,
        asked: Vec<Asked>,
        near: Vec<Near>,
    },
    /// Windows with gaps: a trigger is seen where its touch lies in the window too, so the later
    /// the more. Counted for a sample at position `v` are triggers after `v` with distances up to
    /// `v`, which are seen wherever they are; expected is their mean rate over the window's rest.
    Windows(Vec<Window>),
}

#[derive(Clone, Debug)]
struct Window {
    /// Its reuses in the order of their distances, each with its place in the order of triggers.
    by_distance: Vec<(u32, u32)>,
    /// By position.
    asked: Vec<Asked>,
    near: Vec<Near>,
}

/// A reuse that is asked what it counts.
#[derive(Clone, Debug)]
struct Asked {
    at: u32,
    /// Triggers inside its interval, in the order of triggers.
    inside: Range<u32>,
    /// Its part of `near`.
    near: Range<u32>,
    /// Those that were taken in its own window, and what each of them that is not near counts beyond one: a sample that is there with
    /// those like it leaves so many fewer for the rest.
    own: Range<u32>,
    rest: f64,
    /// Its interval as a part of the window's rest (windows only).
    part: f64,
}

/// A pair close together, of the one that is asked and this one.
#[derive(Clone, Copy, Debug)]
struct Near {
    at: u32,
    /// What the pair counts beyond one.
    surplus: f32,
    /// Whether it is inside the interval, or after it.
    inside: bool,
}

impl Witnesses {
    pub fn new(group: &Group) -> Self {
        let is_reuse = |i: &u32| {
            let p = &group.placed[*i as usize];
            p.to.is_some() && p.weight > 0.0
        };
        let reuses: Vec<u32> = (0..group.placed.len() as u32).filter(is_reuse).collect();
        // An odd number: of clusters of a power of two each place has its turn.
        let every = reuses.len().div_ceil(ASKED).max(1) | 1;
        let within = match group.sparse {
            None => along_the_run(group, &reuses, every),
            Some(_) => {
                let mut before = 0;
                let window = |w: Range<u32>| {
                    let reuses: Vec<u32> = w.filter(is_reuse).collect();
                    let skip = (every - before % every) % every;
                    before += reuses.len();
                    Window::new(group, reuses, (skip, every))
                };
                Within::Windows(group.windows().map(window).collect())
            }
        };
        Self {
            every: every as f64,
            within,
        }
    }
}

/// Every so manyth reuse of a run without gaps, in the order of their touches.
fn along_the_run(group: &Group, reuses: &[u32], every: usize) -> Within {
    let of = |i: u32| &group.placed[i as usize];
    let to = |i: u32| of(i).to.unwrap_or(f64::INFINITY);
    let mut order = reuses.to_vec();
    order.sort_by(|&a, &b| to(a).total_cmp(&to(b)));
    let mut by_window = reuses.to_vec();
    for window in by_window.chunk_by_mut(|&a, &b| of(a).window == of(b).window) {
        window.sort_by(|&a, &b| to(a).total_cmp(&to(b)));
    }
    let taken = counted::windows(&group.placed);
    let (mut asked, mut near) = (Vec::new(), Vec::new());
    let mut window = 0..0;
    for n in (0..reuses.len()).step_by(every) {
        let at = reuses[n];
        while n >= window.end {
            let number = of(reuses[window.end]).window;
            let rest = &reuses[window.end..];
            let length = rest.partition_point(|&i| of(i).window == number);
            window = window.end..window.end + length;
        }
        let own = &by_window[window.clone()];
        // Times are whole numbers but for rounding, and both ends are not inside.
        let (from, until) = (of(at).from + 0.5, to(at) - 0.5);
        let up_to = |time: f64| order.partition_point(|&o| to(o) < time) as u32;
        let begin = near.len() as u32;
        for (other, surplus) in neighbours(group, reuses, n) {
            if from <= to(other) && to(other) < until {
                near.push(Near {
                    at: other,
                    surplus: surplus as f32,
                    inside: true,
                });
            }
        }
        let before = up_to(from);
        let in_own = |time: f64| (window.start + own.partition_point(|&o| to(o) < time)) as u32;
        let own_before = in_own(from);
        let alike = group.pairs().alike(at);
        asked.push(Asked {
            at,
            inside: before..up_to(until).max(before),
            near: begin..near.len() as u32,
            own: own_before..in_own(until).max(own_before),
            rest: counted::left_out(taken[at as usize].1, alike),
            part: 1.0,
        });
    }
    Within::Run {
        order,
        by_window,
        asked,
        near,
    }
}

/// The others that are near the `n`th of some in the order of their places, with what the pairs count beyond one where that
/// is more than a little.
fn neighbours(group: &Group, reuses: &[u32], n: usize) -> impl Iterator<Item = (u32, f64)> {
    let (pairs, at) = (group.pairs(), reuses[n]);
    let place = |i: u32| group.place(&group.placed[i as usize]);
    let (here, reach) = (place(at), pairs.reach(at));
    let apart = move |&other: &u32| (other, (place(other) - here).abs());
    let near = move |&(_, apart): &(u32, f64)| apart < reach;
    let before = reuses[..n].iter().rev().map(apart).take_while(near);
    let after = reuses[n + 1..].iter().map(apart).take_while(near);
    let surplus = move |(other, apart): (u32, f64)| (other, pairs.surplus(at, apart));
    let both = before.chain(after).map(surplus);
    both.filter(|(_, surplus)| surplus.abs() > LITTLE)
}

impl Window {
    /// Asked is every so manyth reuse, after some.
    fn new(group: &Group, mut reuses: Vec<u32>, (skip, every): (usize, usize)) -> Self {
        let of = |i: u32| &group.placed[i as usize];
        let trigger = |i: u32| of(i).position + of(i).distance + 1.0;
        let mut triggers = reuses.clone();
        triggers.sort_by(|&a, &b| trigger(a).total_cmp(&trigger(b)));
        let mut by_distance: Vec<(u32, u32)> = triggers.iter().copied().zip(0..).collect();
        by_distance.sort_by(|a, b| of(a.0).distance.total_cmp(&of(b.0).distance));
        reuses.sort_by(|&a, &b| of(a).position.total_cmp(&of(b).position));
        let (mut asked, mut near) = (Vec::new(), Vec::new());
        for n in (skip..reuses.len()).step_by(every) {
            let at = reuses[n];
            let (p, to) = (of(at), trigger(at));
            let v = p.position;
            let begin = near.len() as u32;
            for (other, surplus) in neighbours(group, &reuses, n) {
                if of(other).distance <= v && trigger(other) > v {
                    near.push(Near {
                        at: other,
                        surplus: surplus as f32,
                        inside: trigger(other) < to,
                    });
                }
            }
            let before = triggers.partition_point(|&y| trigger(y) <= v) as u32;
            let until = triggers.partition_point(|&y| trigger(y) < to) as u32;
            asked.push(Asked {
                at,
                inside: before..until.max(before),
                near: begin..near.len() as u32,
                own: 0..0,
                rest: 0.0,
                part: (p.distance / (p.window_refs - v).max(1.0)).min(1.0),
            });
        }
        Self {
            by_distance,
            asked,
            near,
        }
    }
}

/// One sample's interval.
struct Interval {
    at: u32,
    /// Misses that the other samples count inside.
    counted: f64,
    /// Misses to be expected there.
    expected: f64,
}

/// Misses counted between touch and reuse against those expected.
pub(crate) fn disagreement(
    group: &Group,
    cache: &Cache,
    solved: &Solved,
    levers: &[f64],
) -> Disagreement {
    let Some(solution) = &solved.solution else {
        return Disagreement::default();
    };
    let miss = interval::probabilities(group, cache, solved.solution.as_ref());
    // Change of the run's misses by a miss more inside.
    let lever = |i: u32| {
        let p = &group.placed[i as usize];
        let t = p.segment as usize;
        let evicting = group.timeline.evicting(solution, t);
        p.weight * levers[t] * solution.hazard * evicting * (1.0 - miss[i as usize])
    };
    let witnesses = group.witnesses();
    let intervals: Vec<Interval> = match &witnesses.within {
        Within::Run {
            order,
            by_window,
            asked,
            near,
        } => {
            let counted = counted_along(group, &miss, (order, by_window), (asked, near));
            let cold = first_touches(&group.timeline);
            let expected = |asked: &Asked| expected_along(group, solution, &cold, &miss, asked.at);
            let both = |(asked, counted): (&Asked, f64)| Interval {
                at: asked.at,
                counted,
                expected: expected(asked),
            };
            asked.iter().zip(counted).map(both).collect()
        }
        Within::Windows(windows) => {
            let each = |w| inside_window(w, &group.placed, &miss);
            windows.iter().flat_map(each).collect()
        }
    };
    let (mut blocks, mut reach) = ([0.0; BLOCKS], 0.0);
    for (i, x) in intervals.iter().enumerate() {
        let lever = lever(x.at);
        blocks[i * BLOCKS / intervals.len()] += lever * (x.counted - x.expected);
        reach += lever * x.expected;
    }
    let scale = witnesses.every / group.refs.max(1.0);
    if !group.pairs().are_even() {
        // Counts show the sampler's pattern: nothing is known.
        return Disagreement {
            shift: 0.0,
            error: scale * reach,
            reach: scale * reach,
        };
    }
    let mean = blocks.iter().sum::<f64>() / BLOCKS as f64;
    let spread: f64 = blocks.iter().map(|b| (b - mean).powi(2)).sum();
    Disagreement {
        shift: scale * mean * BLOCKS as f64,
        error: scale * (spread * BLOCKS as f64 / (BLOCKS - 1) as f64).sqrt(),
        reach: scale * reach,
    }
}

/// Gapless: misses counted inside.
fn counted_along(
    group: &Group,
    miss: &[f64],
    (order, by_window): (&[u32], &[u32]),
    (asked, near): (&[Asked], &[Near]),
) -> Vec<f64> {
    let stands = |i: u32| group.placed[i as usize].weight * miss[i as usize];
    let sums_of = |order: &[u32]| {
        let mut sums = vec![0.0];
        for (n, &i) in order.iter().enumerate() {
            sums.push(sums[n] + stands(i));
        }
        sums
    };
    let (sums, own_sums) = (sums_of(order), sums_of(by_window));
    let within =
        |sums: &[f64], range: &Range<u32>| sums[range.end as usize] - sums[range.start as usize];
    let counted = |x: &Asked| {
        let near = &near[x.near.start as usize..x.near.end as usize];
        let surplus = |n: &Near| f64::from(n.surplus) * stands(n.at);
        let window = |i: u32| group.placed[i as usize].window;
        let of_window = near.iter().filter(|n| window(n.at) == window(x.at));
        let of_near: f64 = of_window.map(|n| stands(n.at)).sum();
        let rest = within(&own_sums, &x.own) - of_near;
        within(&sums, &x.inside) + near.iter().map(surplus).sum::<f64>() + x.rest * rest
    };
    asked.iter().map(counted).collect()
}

/// First touches by each border.
fn first_touches(timeline: &Timeline) -> Vec<f64> {
    let mut first = vec![0.0];
    for (j, s) in timeline.segments.iter().enumerate() {
        first.push(first[j] + s.cold * (timeline.bounds[j + 1] - timeline.bounds[j]));
    }
    first
}

/// Gapless: expected is what is modelled.
fn expected_along(group: &Group, solution: &Solution, cold: &[f64], miss: &[f64], at: u32) -> f64 {
    let timeline = &group.timeline;
    let p = &group.placed[at as usize];
    let to = p.to.unwrap_or(p.from);
    let start = timeline.bounds[p.segment as usize];
    let end = timeline.bounds[p.segment as usize + 1];
    // First touches have no trigger: as modelled on both sides.
    let cold = timeline.gained(cold, p, to);
    // The sample helped to make its segment's misses, and is not its own witness.
    let own = p.weight * miss[at as usize] * (to - p.from.max(start)) / (end - start);
    timeline.gained(&solution.misses, p, to) - cold - own
}

/// Windows with gaps.
fn inside_window(window: &Window, placed: &[Placed], miss: &[f64]) -> Vec<Interval> {
    let miss = |i: u32| miss[i as usize];
    // Misses that can be counted as the position moves on through the window, by their triggers.
    let mut countable = Fenwick::new(window.by_distance.len());
    let mut waiting = window.by_distance.iter().peekable();
    let interval = |x: &Asked| {
        let p = &placed[x.at as usize];
        while let Some((i, place)) =
            waiting.next_if(|(i, _)| placed[*i as usize].distance <= p.position)
        {
            countable.add(*place as usize, miss(*i));
        }
        let before = countable.sum(x.inside.start as usize);
        let mut inside = countable.sum(x.inside.end as usize) - before;
        let mut rest = countable.all() - before;
        if p.distance <= p.position {
            rest -= miss(x.at);
        }
        for n in &window.near[x.near.start as usize..x.near.end as usize] {
            let surplus = f64::from(n.surplus) * miss(n.at);
            rest += surplus;
            if n.inside {
                inside += surplus;
            }
        }
        Interval {
            at: x.at,
            counted: p.per_sample * inside.max(0.0),
            expected: p.per_sample * rest.max(0.0) * x.part,
        }
    };
    window.asked.iter().map(interval).collect()
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

    /// Mean and standard deviation of the model's error at a size, given what was seen there (what is usual moves no mean):
    /// normal prior and normal noise.
    pub fn weigh(&self, d: &Disagreement) -> (f64, f64) {
        let noise = d.error * d.error;
        let belief = |variance: f64| {
            let prior = variance * d.reach * d.reach;
            if prior > 0.0 {
                prior / (prior + noise)
            } else {
                0.0
            }
        };
        let (shown, usual) = (belief(self.variance), belief(USUAL * USUAL));
        (d.shift * shown, (shown.max(usual) * noise).sqrt())
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
        let (mean, spread) = noise.weigh(&seen(0.03, 0.02));
        assert!(mean < 0.003, "{mean}");
        // What is usual is allowed for, as far as the samples do not tell that there is less.
        assert!((0.005..=0.1 * USUAL).contains(&spread), "{spread}");
        let (_, told) = noise.weigh(&seen(0.0, 0.001));
        assert!(told < 0.001, "{told}");
        let clear = Evidence::new(&[seen(-0.02, 0.002), seen(-0.01, 0.002)]);
        let (mean, spread) = clear.weigh(&seen(-0.02, 0.002));
        assert!((-0.02..-0.018).contains(&mean), "{mean}");
        assert!(spread > 0.001 && spread <= 0.002, "{spread}");
        // Where nothing can be seen, the prior's width is what remains.
        let (_, blind) = clear.weigh(&seen(0.0, 10.0));
        assert!(blind > 0.01, "{blind}");
    }
}

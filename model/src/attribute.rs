//! Who misses: the arithmetic of attribution (paper sections 3.8 and 3.10).
//!
//! A reuse is charged to the key that triggered it, with the miss probability of its exposure; the
//! reuse edge points from the trigger to the sample. The first touch of a line in the run (a *cold touch*) has no trigger: what a key was
//! sampled more often than it triggered is its share of the cold touches; where that excess may be chance, of those that
//! sure ones leave. With gaps between windows, and first touches of lines in these, see `gaps`.
//!
//! A watch given up has no trigger either, and may not be of a cold touch. The interval of a key holds
//! both extremes for the watches given up at its own sites and at those whose lines it was seen to
//! touch next: none of them triggered by it or all, missing as the time watched says or in any case.
//! A key that was never seen to follow a site does not pay for it.

mod apart;
mod exposed;
mod gaps;
mod part;
mod whole;

use std::hash::Hash;

use apart::Apart;
use whole::Crossing;

use crate::beyond::Beyond;
use crate::equation::exp_neg;
use crate::hash::FastMap;
use crate::interval::Z95;
use crate::placed::{Group, Placed, Returns};
use crate::point::{ALLOWANCE, DISAGREEMENT, SIZE_FACTOR};
use crate::prepare::{Stored, lost, outcome};
use crate::run::Run;
use crate::view::Probabilities;
use crate::{
    Attribution, Cache, KeyFigures, LineSize, ModelError, Outcome, Policy, ReuseFrom, Site, Stream,
    Weak,
};

/// Reuses below which a key's miss ratio is weak: a ratio of one half is known to 10 points.
const WEAK_REUSES: u64 = 100;

/// Exposure of what misses for sure: any that leaves nothing, and is a number.
const CERTAIN: f64 = 1e9;

/// Standard errors from which on an excess of samples over triggers is no chance.
const SURE: f64 = 3.0;

/// By what it is told who misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Watches, and first touches where these were looked for.
    ByAll,
    /// Watches alone, at any line size by the same means: to compare line sizes with each other. (First touches are of 64-byte lines.)
    ByWatches,
}

/// What is summed per key.
#[derive(Clone, Debug, Default)]
struct Sums {
    samples: u64,
    taken: f64,
    /// Samples whose lines were not touched again.
    last: u64,
    triggered: u64,
    weight: f64,
    /// What of that nobody saw made here, and the squares of the rest, seen at a time.
    assumed: f64,
    weight_squares: f64,
    /// Those that watches saw, by windows with gaps between them.
    apart: Apart,
    misses: f64,
    /// Misses of far reuses of the group at hand, and the standard error of those of groups before, which all keys share.
    far_misses: f64,
    unsure: f64,
    /// Misses by the whole-run equation, and by the time-varying form in a larger and smaller cache.
    whole: f64,
    wide: f64,
    narrow: f64,
    /// Misses where lines are as exposed as at the ends of the curve's interval, and by what factors that is less and more.
    exposed: [f64; 2],
    exposure: [f64; 2],
    /// By the whole-run equation with the watches given up taken for either extreme.
    extremes: [f64; 2],
    /// Watches given up here.
    given_up: GivenUp,
    /// Taken here, next touched elsewhere or never; and the other way round; with their noise.
    excess: f64,
    excess_variance: f64,
    /// Sample key -> weight, misses.
    from: FastMap<u32, (f64, f64)>,
}

/// Watches given up.
#[derive(Clone, Copy, Debug, Default)]
struct GivenUp {
    /// References they stand for.
    weight: f64,
    /// Misses among those, had the lines been touched again right then.
    misses: f64,
}

/// What the figures of all keys share.
struct Totals {
    /// References taken as samples.
    taken: f64,
    /// Reuses per weight of a triggered sample.
    scale: f64,
    misses: f64,
    policy: Policy,
}

/// Keys numbered in the order of their first appearance.
struct Names<K> {
    known: FastMap<K, u32>,
    keys: Vec<K>,
    sums: Vec<Sums>,
    /// See [`Sums::exposure`].
    exposure: [f64; 2],
}

impl<K: Clone + Eq + Hash> Names<K> {
    fn number(&mut self, key: K) -> u32 {
        let next = self.keys.len() as u32;
        let (keys, sums, exposure) = (&mut self.keys, &mut self.sums, self.exposure);
        *self.known.entry(key).or_insert_with_key(|k| {
            keys.push(k.clone());
            sums.push(Sums {
                exposure,
                ..Sums::default()
            });
            next
        })
    }

    fn sums_of(&mut self, key: K) -> &mut Sums {
        let number = self.number(key);
        &mut self.sums[number as usize]
    }

    /// The misses of far reuses of the group at hand have this standard error, as a share of them.
    fn far_are_unsure(&mut self, share: f64) {
        for sums in &mut self.sums {
            sums.unsure += share * std::mem::take(&mut sums.far_misses);
        }
    }
}

impl Run {
    /// Misses by key: `key_of` names a site (by instruction, function, object, window, ...), the
    /// miss is charged to the site that triggered the reuse. Needs the samples kept
    /// ([`crate::RunBuilder::new`], [`Run::new`]); without them the result has no keys.
    ///
    /// # Errors
    /// As [`Run::curve`].
    pub fn attribute<K, F>(
        &self,
        line_bytes: u64,
        cache_bytes: u64,
        policy: Policy,
        stream: Stream,
        key_of: F,
    ) -> Result<Attribution<K>, ModelError>
    where
        K: Clone + Eq + Hash + Ord,
        F: Fn(&Site) -> K,
    {
        let cache = Cache::new(cache_bytes, LineSize::from_bytes(line_bytes)?, policy)?;
        self.attribute_by(Told::ByAll, &cache, stream, key_of)
    }

    /// The same by all that was seen, or by watches alone.
    ///
    /// # Errors
    /// As [`Run::curve`].
    pub fn attribute_by<K, F>(
        &self,
        told: Told,
        cache: &Cache,
        stream: Stream,
        key_of: F,
    ) -> Result<Attribution<K>, ModelError>
    where
        K: Clone + Eq + Hash + Ord,
        F: Fn(&Site) -> K,
    {
        let view = self.view(cache.line_size, stream)?;
        let mut names = Names {
            known: FastMap::default(),
            keys: Vec::new(),
            sums: Vec::new(),
            exposure: exposed::exposure(view, cache),
        };
        let mut cold = 0.0;
        for (i, group) in view.groups.iter().enumerate() {
            let miss = view.probabilities(i, cache);
            if let Some(firsts) = group.firsts.as_ref().filter(|_| told == Told::ByAll) {
                let beyond = Beyond::of(group, cache, &view.solved(i, cache));
                let group = (group, firsts);
                self.sum_ends(group, &miss, &beyond, stream, &key_of, &mut names);
                names.far_are_unsure(view.share_unsure(i, cache));
                continue;
            }
            let returns = group.returns.as_ref().filter(|_| told == Told::ByAll);
            let of = (group, returns);
            let crossing = self.sum_group(of, &miss, cache.line_size, stream, &key_of, &mut names);
            cold += group.timeline.cold_touches();
            if let Some(returns) = returns {
                cold -= returns.cold;
                let solved = view.solved(i, cache);
                let charged = crossing.charge(&group.timeline, cache, &solved, returns);
                self.sum_returns(returns, &charged, &key_of, &mut names);
            }
        }
        Ok(finish(names, cold, cache))
    }

    /// Adds a group's samples to the keys, but for those that `returns` tell; what these come to.
    fn sum_group<K, F>(
        &self,
        (group, returns): (&Group, Option<&Returns>),
        miss: &Probabilities,
        line: LineSize,
        stream: Stream,
        key_of: &F,
        names: &mut Names<K>,
    ) -> Crossing
    where
        K: Clone + Eq + Hash,
        F: Fn(&Site) -> K,
    {
        let cold = returns.map_or(0.0, |returns| returns.cold);
        let mut crossing = Crossing::new(cold);
        // Of the touches never followed by another, those that count as first ones; none of a process that was attached to.
        let cold_part = match group.timeline.cold_touches() {
            all if all > 0.0 => cold / all,
            _ => 0.0,
        };
        let mut clusters = group.pairs().clusters();
        let mut cluster = 0..0;
        for (at, p) in group.placed.iter().enumerate() {
            if at as u32 >= cluster.end {
                crossing.end_cluster();
                cluster = clusters.next().unwrap_or(0..u32::MAX);
            }
            let (varying, by_whole) = (miss.varying[at], miss.whole[at]);
            let stored = &self.windows[p.window as usize];
            let (from, to) = sites(stored, p, line, stream);
            let from = names.number(key_of(&from));
            let to = to.map(|site| names.number(key_of(&site)));
            if p.imputed {
                continue;
            }
            let lost = stream == Stream::Private && lost(&stored.samples[p.sample as usize], line);
            let s = &mut names.sums[from as usize];
            s.samples += 1;
            s.taken += p.raw;
            s.last += u64::from(to.is_none() && !p.censored);
            let [least, most] = match &miss.extremes {
                Some([least, most]) => [least[at], most[at]],
                None => [by_whole; 2],
            };
            if p.given_up {
                s.given_up.weight += p.raw;
                s.given_up.misses += p.raw * least;
            }
            let told = returns.map_or(0.0, |returns| returns.part(p, group.timeline.total()));
            if to != Some(from) && returns.is_none() {
                s.excess += p.raw;
                s.excess_variance += p.raw * p.raw;
            }
            let Some(to) = to.filter(|_| p.weight > 0.0) else {
                // Where it was not followed to its end, others have its weight.
                crossing.of_cluster += p.weight * cold_part;
                continue;
            };
            let t = &mut names.sums[to as usize];
            // A line that a remote write took misses whatever the model says.
            let sure = |miss: f64| if lost { 1.0 } else { miss };
            let misses = [varying, by_whole, least, most].map(sure);
            t.edge(from, p.weight, misses[0]);
            if told > 0.0 {
                let end = p.to.unwrap_or_default();
                crossing.add(end, p.distance, told * p.weight, misses[0]);
            }
            let weight = (1.0 - told) * p.weight;
            if weight <= 0.0 {
                continue;
            }
            // Consecutive windows leave nothing out.
            let window = group.sparse.as_ref().map(|_| p.window);
            t.reused(window, weight, misses);
            if to != from && returns.is_none() {
                t.excess -= p.weight;
                t.excess_variance += p.weight * p.weight;
            }
        }
        crossing.end_cluster();
        crossing
    }

    /// Where a first touch was made.
    fn site_of_touch(&self, window: u32, touch: u32) -> Site {
        let stored = &self.windows[window as usize];
        let touches = stored.first_touches.as_ref();
        let touch = touches.and_then(|t| t.touches.get(touch as usize));
        let touch = touch.copied().unwrap_or_default();
        Site {
            instr: touch.instr,
            data: touch.data,
            thread: stored.thread,
            window: stored.index,
        }
    }
}

impl Sums {
    /// Adds accesses that end reuses, one of which was seen, with their miss probability by the time-varying form, the whole-run equation
    /// and its extremes; in which window, if there are gaps between these.
    fn reused(&mut self, window: Option<u32>, weight: f64, misses: [f64; 4]) {
        self.triggered += 1;
        if let Some(window) = window {
            self.apart.add(window, weight, misses[0]);
        }
        self.ends(weight, misses);
        self.weight_squares += weight * weight;
    }

    /// Reuses from a key.
    fn edge(&mut self, from: u32, weight: f64, miss: f64) {
        let edge = self.from.entry(from).or_default();
        edge.0 += weight;
        edge.1 += weight * miss;
    }

    fn ends(&mut self, weight: f64, [varying, by_whole, least, most]: [f64; 4]) {
        self.weight += weight;
        self.misses += weight * varying;
        self.whole += weight * by_whole;
        self.extremes[0] += weight * least;
        self.extremes[1] += weight * most;
        if varying <= 0.0 {
            return;
        }
        // The exposure of a line scales as one over the cache's size.
        let exposed = (-(-varying).ln_1p()).min(CERTAIN);
        let at = |by: f64| weight * (1.0 - exp_neg(by * exposed)).max(0.0);
        self.wide += at(1.0 / SIZE_FACTOR);
        self.narrow += at(SIZE_FACTOR);
        self.exposed[0] += at(self.exposure[0]);
        self.exposed[1] += at(self.exposure[1]);
    }

    /// Misses at the ends of the curve's interval, of which all keys have their part.
    fn at_ends(&self, policy: Policy) -> [f64; 2] {
        match policy {
            Policy::Random { .. } => self.exposed,
            // Whether one misses is all or nothing, and does not say how nearly.
            Policy::Lru { .. } => self.exposure.map(|by| (by * self.misses).min(self.weight)),
        }
    }
}

/// The sampled and the triggering site.
fn sites(stored: &Stored, p: &Placed, line: LineSize, stream: Stream) -> (Site, Option<Site>) {
    let sample = &stored.samples[p.sample as usize];
    let at = Site {
        instr: sample.instr,
        data: sample.data,
        thread: sample.thread,
        window: stored.index,
    };
    let trigger = match outcome(sample, line, stream) {
        Outcome::Reused { trigger, .. } => Some(Site {
            instr: trigger.instr,
            thread: trigger.thread,
            ..at
        }),
        _ => None,
    };
    (at, trigger)
}

/// Cold touches of a key, and by how much they may be fewer and more.
#[derive(Clone, Copy, Debug)]
struct Cold {
    touches: f64,
    under: f64,
    over: f64,
}

/// Splits the cold touches over the keys sampled more often than they triggered: first over those where that is no chance, and what these
/// leave over the others. (Of thousands of keys the excess that is chance comes to more than all cold touches there are.)
fn cold_touches(sums: &[Sums], cold: f64) -> Vec<Cold> {
    let noise = |s: &Sums| s.excess_variance.sqrt();
    let is_sure = |s: &Sums| s.excess > SURE * noise(s);
    let sum = |sure: bool| -> f64 {
        let of = sums.iter().filter(|s| s.excess > 0.0 && is_sure(s) == sure);
        of.map(|s| s.excess).sum()
    };
    let part = |touches: f64, of: f64| (touches / of.max(f64::MIN_POSITIVE)).min(1.0);
    let (sure, unsure) = (sum(true), sum(false));
    let left = (cold - sure).max(0.0);
    let (sure, unsure) = (part(cold, sure), part(left, unsure));
    let each = |s: &Sums| {
        let excess = s.excess.max(0.0);
        if is_sure(s) {
            let touches = excess * sure;
            let error = Z95 * noise(s) * sure;
            Cold {
                touches,
                under: error.min(touches),
                over: error,
            }
        } else {
            let touches = excess * unsure;
            Cold {
                touches,
                under: touches,
                over: excess.min(left) - touches,
            }
        }
    };
    sums.iter().map(each).collect()
}

fn finish<K: Clone + Ord>(names: Names<K>, cold: f64, cache: &Cache) -> Attribution<K> {
    let Names { keys, sums, .. } = names;
    let cold_of = cold_touches(&sums, cold);
    let placed_cold: f64 = cold_of.iter().map(|cold| cold.touches).sum();
    let taken: f64 = sums
        .iter()
        .map(|s| s.taken)
        .sum::<f64>()
        .max(f64::MIN_POSITIVE);
    let triggered: f64 = sums.iter().map(|s| s.weight).sum();
    // Reuses and first touches together are the run's references.
    let scale = if triggered > 0.0 {
        (taken - cold).max(0.0) / triggered
    } else {
        0.0
    };
    let unplaced = (cold - placed_cold).max(0.0);
    let misses: f64 = sums.iter().map(|s| s.misses * scale).sum::<f64>() + placed_cold + unplaced;
    let totals = Totals {
        taken,
        scale,
        misses,
        policy: cache.policy,
    };
    let mut figures: Vec<KeyFigures<K>> = (0..sums.len())
        .map(|k| key_figures(&keys, k, &sums, cold_of[k], &totals))
        .collect();
    figures.sort_by(|a, b| {
        b.misses
            .total_cmp(&a.misses)
            .then_with(|| a.key.cmp(&b.key))
    });
    Attribution {
        keys: figures,
        line_bytes: cache.line_size.bytes(),
        miss_ratio: (misses / taken).clamp(0.0, 1.0),
        unattributed_share: if misses > 0.0 { unplaced / misses } else { 0.0 },
    }
}

/// Watches given up whose lines a key may have touched next.
fn given_up(k: usize, sums: &[Sums]) -> GivenUp {
    let others = sums[k].from.keys().filter(|&&from| from as usize != k);
    others.fold(sums[k].given_up, |all, &from| {
        let at = sums[from as usize].given_up;
        GivenUp {
            weight: all.weight + at.weight,
            misses: all.misses + at.misses,
        }
    })
}

/// How far the ratio of a key, `misses` per `base`, reaches down and up with the watches given up
/// taken for either extreme.
fn reach(s: &Sums, scale: f64, misses: f64, base: f64, open: GivenUp) -> (f64, f64) {
    if base + open.weight <= 0.0 {
        return (0.0, 0.0);
    }
    let ratio_of = |misses: f64| if base > 0.0 { misses / base } else { 0.0 };
    // Others' watches change what these reuses are exposed to.
    let shifted = |to: f64| (misses + scale * (to - s.whole)).clamp(0.0, base);
    let least = shifted(s.extremes[0].min(s.whole));
    let most = shifted(s.extremes[1].max(s.whole));
    let all = base + open.weight;
    let low = ratio_of(least).min((least + open.misses) / all);
    let high = (most + open.weight) / all;
    let ratio = ratio_of(misses);
    ((ratio - low).max(0.0), (high - ratio).max(0.0))
}

fn key_figures<K: Clone + Ord>(
    keys: &[K],
    k: usize,
    sums: &[Sums],
    cold: Cold,
    totals: &Totals,
) -> KeyFigures<K> {
    let s = &sums[k];
    let (scale, taken, first) = (totals.scale, totals.taken, cold.touches);
    let misses = s.misses * scale + first;
    let base = s.weight * scale + first;
    let ratio = if base > 0.0 {
        (misses / base).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let effective = if s.weight_squares > 0.0 {
        let seen = s.weight - s.assumed;
        let samples = seen * seen / s.weight_squares;
        samples * (base / (s.weight * scale).max(f64::MIN_POSITIVE))
    } else {
        s.samples as f64 * (first / s.taken.max(f64::MIN_POSITIVE))
    };
    let (low, high) = wilson(ratio, effective);
    // Where windows differ by more than their samples let them, by as much as watched reuses are of all.
    let apart = s
        .apart
        .clone()
        .variance()
        .map_or(0.0, |(variance, watched)| {
            Z95 * scale * watched * variance.sqrt() / base.max(f64::MIN_POSITIVE)
        });
    let (low, high) = (low.min(ratio - apart), high.max(ratio + apart));
    let shared = Z95 * scale * s.unsure / base.max(f64::MIN_POSITIVE);
    let (low, high) = (
        ratio - (ratio - low).hypot(shared),
        ratio + (high - ratio).hypot(shared),
    );
    // Touches that are no cold ones are reuses, which may hit.
    let [fewer, more] = [cold.under, cold.over].map(|by| by / base.max(f64::MIN_POSITIVE));
    let (low, high) = (
        ratio - (ratio - low).hypot(fewer),
        ratio + (high - ratio).hypot(more),
    );
    let [fewer, more] = s
        .at_ends(totals.policy)
        .map(|at_end| scale * (at_end - s.misses) / base.max(f64::MIN_POSITIVE));
    let (low, high) = (
        ratio - (ratio - low).hypot(fewer),
        ratio + (high - ratio).hypot(more),
    );
    let (under, over) = reach(s, scale, misses, base, given_up(k, sums));
    let model = if base > 0.0 {
        ALLOWANCE
            + scale * (0.5 * (s.narrow - s.wide).abs() + DISAGREEMENT * (s.misses - s.whole).abs())
                / base
    } else {
        1.0
    };
    let reused: f64 = s.from.values().map(|edge| edge.0).sum();
    let known: f64 = s.from.values().map(|edge| edge.1).sum();
    let mut reuse_from: Vec<ReuseFrom<K>> = s
        .from
        .iter()
        .map(|(&from, &(weight, missed))| ReuseFrom {
            key: keys[from as usize].clone(),
            share: weight / reused,
            miss_ratio: missed / weight,
        })
        .collect();
    reuse_from.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.key.cmp(&b.key)));
    let needed = WEAK_REUSES;
    // Touches that none follows are as many as first ones.
    let seen = s.triggered + if cold.touches > 0.0 { s.last } else { 0 };
    KeyFigures {
        key: keys[k].clone(),
        samples: s.samples,
        triggered: s.triggered,
        references: s.taken,
        misses,
        access_share: s.taken / taken,
        miss_ratio: ratio,
        low: (low - model - under).clamp(0.0, ratio),
        high: (high + model + over).clamp(ratio, 1.0),
        miss_share: if totals.misses > 0.0 {
            misses / totals.misses
        } else {
            0.0
        },
        reuse_from,
        from_known: if s.misses > 0.0 {
            (known / s.misses).clamp(0.0, 1.0)
        } else {
            1.0
        },
        weak: (seen < needed).then_some(Weak {
            samples: seen,
            needed,
        }),
    }
}

/// Wilson's score interval (JASA 22, 1927) of a ratio seen in `n` (effective) samples.
pub(crate) fn wilson(ratio: f64, n: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let z2 = Z95 * Z95;
    let middle = (ratio + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z95 / (1.0 + z2 / n) * (ratio * (1.0 - ratio) / n + z2 / (4.0 * n * n)).sqrt();
    // Rounding aside, it holds the ratio.
    let (low, high) = ((middle - half).max(0.0), (middle + half).min(1.0));
    (low.min(ratio), high.max(ratio))
}

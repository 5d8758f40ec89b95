//! Who misses in windows with gaps between them, where first touches were seen.
//!
//! Every access of a window either ends a reuse that began in it, which samples tell, or is the first touch of its line there, which was
//! drawn by line. Both are told at the instruction that would miss, and together they are all accesses. (Watches that
//! a window's end cuts tell who touched a line last, and not who will next: in loops over much data that is another instruction.)
//!
//! Windows too long for every access to be looked at saw no first touches. What their watches that were cut stand for is ended by those who
//! touch first in windows that behave alike; for want of such windows, by whoever touched last.
//!
//! What first touches miss together is what the model says of reuses as far as that. Of an instruction's first touches those miss less that
//! long windows saw to be nearer, and those of others more: the sum stays.

use std::collections::BTreeMap;
use std::hash::Hash;

use super::{Names, Sums, sites};
use crate::beyond::Beyond;
use crate::hash::FastMap;
use crate::placed::{FirstPlaced, Firsts, Group};
use crate::prepare::lost;
use crate::run::Run;
use crate::view::Probabilities;
use crate::{Key, LineSize, Site, Stream};

/// First touches of an instruction that count as much as what those of others do.
const DOUBT: f64 = 5.0;
/// First touches of a key in one window that count as independent of each other at most: they are of the same loops. (Guessed.)
const INDEPENDENT: u64 = 30;

/// Accesses of the run, and their misses.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    weight: f64,
    misses: f64,
}

impl Part {
    fn of(weight: f64, miss: f64) -> Part {
        Part {
            weight,
            misses: weight * miss,
        }
    }

    fn add(&mut self, other: Part) {
        self.weight += other.weight;
        self.misses += other.misses;
    }

    fn ratio(&self) -> f64 {
        if self.weight > 0.0 {
            (self.misses / self.weight).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// What first touches come to, by instruction and data.
type BySite = BTreeMap<(Key, Key), Part>;

/// The same of windows that behave alike, by their cluster.
type Alike = BTreeMap<usize, BySite>;

/// Far reuses that an instruction ends.
#[derive(Clone, Copy, Debug, Default)]
struct Far {
    /// First touches, and accesses of the run that they stand for.
    touches: f64,
    mass: f64,
    /// Reuses as far as these that windows saw.
    seen: Part,
}

impl Far {
    /// Share of them that misses, if of those that no window saw `unseen` does.
    fn miss(&self, unseen: f64) -> f64 {
        let left = (self.mass - self.seen.weight).max(0.0);
        let all = self.seen.weight + left;
        (self.seen.misses + left * unseen) / all.max(f64::MIN_POSITIVE)
    }
}

impl Sums {
    /// Adds accesses that end reuses from before their window, of which so many were seen.
    fn before_window(&mut self, part: Part, seen: u64) {
        if part.weight > 0.0 {
            let independent = seen.min(INDEPENDENT);
            self.far(part);
            self.triggered += independent;
            self.weight_squares += part.weight * part.weight / independent as f64;
        }
    }

    /// Adds such accesses of which none was seen, and that are taken to be made here.
    fn assume(&mut self, part: Part) {
        if part.weight > 0.0 {
            self.far(part);
            self.assumed += part.weight;
        }
    }

    fn far(&mut self, part: Part) {
        self.ends(part.weight, [part.ratio(); 4]);
        self.far_misses += part.misses;
    }
}

impl Run {
    /// Adds a group's samples and first touches, of 64-byte lines, to the keys.
    pub(super) fn sum_ends<K, F>(
        &self,
        (group, firsts): (&Group, &Firsts),
        miss: &Probabilities,
        beyond: &[Beyond],
        stream: Stream,
        key_of: &F,
        names: &mut Names<K>,
    ) where
        K: Clone + Eq + Hash,
        F: Fn(&Site) -> K,
    {
        let told = self.first_misses((group, firsts), miss, beyond, stream);
        let alike = self.sum_first(firsts, &told, key_of, names);
        // What is left open in windows that saw no first touches.
        let mut open: BTreeMap<u32, Part> = BTreeMap::new();
        for (at, p) in group.placed.iter().enumerate() {
            let stored = &self.windows[p.window as usize];
            let (site, trigger) = sites(stored, p, LineSize::B64, stream);
            let from = names.number(key_of(&site));
            let sums = &mut names.sums[from as usize];
            sums.samples += 1;
            sums.taken += p.raw;
            if let Some(trigger) = trigger {
                let sample = &stored.samples[p.sample as usize];
                let misses = match stream == Stream::Private && lost(sample, LineSize::B64) {
                    true => [1.0; 4],
                    false => {
                        let whole = miss.whole[at];
                        [miss.varying[at], whole, whole, whole]
                    }
                };
                let sums = names.sums_of(key_of(&trigger));
                sums.reused(p.raw, misses);
                // Where far ones came from, few windows tell.
                sums.edge(from, p.weight, misses[0]);
                continue;
            }
            let Some(window) = firsts.windows.get(&p.window).filter(|w| !w.looked) else {
                continue;
            };
            let part = Part::of(p.raw, beyond[p.segment as usize].miss(p.distance));
            if alike.contains_key(&window.cluster) {
                open.entry(p.window).or_default().add(part);
            } else {
                sums.assume(part);
            }
        }
        for (window, open) in open {
            let by_site = &alike[&firsts.windows[&window].cluster];
            let stored = &self.windows[window as usize];
            for ((instr, data), part) in share_out(open, by_site) {
                let site = Site {
                    instr,
                    data,
                    thread: stored.thread,
                    window: stored.index,
                };
                names.sums_of(key_of(&site)).assume(part);
            }
        }
    }

    /// Adds first touches to the keys, of which each comes to what `told` says.
    fn sum_first<K, F>(
        &self,
        firsts: &Firsts,
        told: &[Part],
        key_of: &F,
        names: &mut Names<K>,
    ) -> Alike
    where
        K: Clone + Eq + Hash,
        F: Fn(&Site) -> K,
    {
        let mut alike = Alike::new();
        // By window and key: what they come to and how many they are.
        let mut by_window: BTreeMap<(u32, u32), (Part, u64)> = BTreeMap::new();
        for (first, &part) in firsts.placed.iter().zip(told) {
            let site = self.site_of(first);
            let key = names.number(key_of(&site));
            let of_key = by_window.entry((first.window, key)).or_default();
            of_key.0.add(part);
            of_key.1 += 1;
            let cluster = firsts.windows[&first.window].cluster;
            let by_site = alike.entry(cluster).or_default();
            let of_site = by_site.entry((site.instr, site.data)).or_default();
            of_site.add(part);
        }
        for ((_, key), (part, seen)) in by_window {
            names.sums[key as usize].before_window(part, seen);
        }
        alike
    }

    /// What each first touch stands for.
    fn first_misses(
        &self,
        (group, firsts): (&Group, &Firsts),
        miss: &Probabilities,
        beyond: &[Beyond],
        stream: Stream,
    ) -> Vec<Part> {
        let far = |first: &FirstPlaced| beyond[first.segment as usize].miss(first.position);
        let placed = firsts.placed.iter();
        let mut told: Vec<Part> = placed.map(|f| Part::of(f.weight, far(f))).collect();
        let all: f64 = told.iter().map(|part| part.misses).sum();
        let inclined = self.inclined((group, firsts), miss, beyond, stream);
        for (first, part) in firsts.placed.iter().zip(&mut told) {
            if let Some(factor) = inclined.get(&self.site_of(first).instr) {
                part.misses = (part.misses * factor).min(part.weight);
            }
        }
        come_to(&mut told, all);
        told
    }

    /// By what factor the first touches of an instruction miss more or less often than others do. Of its far reuses those
    /// that long windows saw miss as their distances say; what is left of its first touches is farther than any window.
    fn inclined(
        &self,
        (group, firsts): (&Group, &Firsts),
        miss: &Probabilities,
        beyond: &[Beyond],
        stream: Stream,
    ) -> FastMap<Key, f64> {
        let mut positions: Vec<f64> = firsts.placed.iter().map(|first| first.position).collect();
        positions.sort_unstable_by(f64::total_cmp);
        let far = positions.get(positions.len() / 2).copied().unwrap_or(0.0);
        let longest = group.placed.iter().map(|p| p.window_refs);
        let longest = longest.fold(0.0, f64::max);
        let mut by_instr: FastMap<Key, Far> = FastMap::default();
        let mut unseen = Part::default();
        // Those of the second halves of windows stand for all of the run, as reuses do that were seen.
        let looked = firsts.span_beyond(far).max(f64::MIN_POSITIVE);
        for first in firsts.placed.iter().filter(|f| f.position >= far) {
            let of = by_instr.entry(self.site_of(first).instr).or_default();
            of.touches += 1.0;
            of.mass += first.weight * group.refs / looked;
            let miss = beyond[first.segment as usize].miss(longest);
            unseen.add(Part::of(first.weight, miss));
        }
        for (p, &miss) in group.placed.iter().zip(&miss.varying) {
            let stored = &self.windows[p.window as usize];
            let (_, trigger) = sites(stored, p, LineSize::B64, stream);
            if let Some(trigger) = trigger.filter(|_| p.distance >= far) {
                let of = by_instr.entry(trigger.instr).or_default();
                of.seen.add(Part::of(p.weight, miss));
            }
        }
        let unseen = unseen.ratio();
        let all = by_instr.values().fold(Part::default(), |mut all, of| {
            all.add(Part::of(of.mass, of.miss(unseen)));
            all
        });
        let mean = all.ratio();
        let factor = |(&instr, of): (&Key, &Far)| {
            let miss = (of.touches * of.miss(unseen) + DOUBT * mean) / (of.touches + DOUBT);
            (instr, if mean > 0.0 { miss / mean } else { 1.0 })
        };
        by_instr.iter().map(factor).collect()
    }

    fn site_of(&self, first: &FirstPlaced) -> Site {
        let stored = &self.windows[first.window as usize];
        let touches = stored.first_touches.as_ref();
        let touch = touches.and_then(|t| t.touches.get(first.touch as usize));
        let touch = touch.copied().unwrap_or_default();
        Site {
            instr: touch.instr,
            data: touch.data,
            thread: stored.thread,
            window: stored.index,
        }
    }
}

/// Gives what is open to those who touch first elsewhere, in proportion to how much.
fn share_out(open: Part, by_site: &BySite) -> Vec<((Key, Key), Part)> {
    let all: f64 = by_site.values().map(|part| part.weight).sum();
    let of_site = |part: &Part| Part::of(open.weight * part.weight / all, part.ratio());
    let mut parts: Vec<Part> = by_site.values().map(of_site).collect();
    come_to(&mut parts, open.misses);
    by_site.keys().copied().zip(parts).collect()
}

/// Has parts miss `misses` together, by one factor on the odds of all.
fn come_to(parts: &mut [Part], misses: f64) {
    let all: f64 = parts.iter().map(|part| part.weight).sum();
    let wanted = misses.clamp(0.0, all);
    // Neither never nor always, so that every ratio can be reached.
    let odds = |part: &Part| {
        let ratio = part.ratio().clamp(1e-6, 1.0 - 1e-6);
        ratio / (1.0 - ratio)
    };
    let odds: Vec<f64> = parts.iter().map(odds).collect();
    let of = |factor: f64, odds: f64| 1.0 - 1.0 / (1.0 + factor * odds);
    let sum = |factor: f64| -> f64 {
        let of_part = |(part, &odds): (&Part, &f64)| part.weight * of(factor, odds);
        parts.iter().zip(&odds).map(of_part).sum()
    };
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if sum(f64::exp(middle)) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let factor = f64::exp(0.5 * (low + high));
    for (part, odds) in parts.iter_mut().zip(odds) {
        part.misses = part.weight * of(factor, odds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_to_what_they_shall() {
        let parts = [(1.0, 0.0), (2.0, 0.1), (3.0, 0.95), (0.0, 0.5), (4.0, 1.0)];
        for wanted in [0.0, 0.5, 3.0, 7.05, 9.9, 10.0, 20.0] {
            let mut parts = parts.map(|(weight, ratio)| Part::of(weight, ratio));
            come_to(&mut parts, wanted);
            let misses: f64 = parts.iter().map(|part| part.misses).sum();
            assert!(
                (misses - wanted.min(10.0)).abs() < 1e-3,
                "{wanted} {misses}"
            );
            let ratios = [0, 1, 2, 4].map(|at: usize| parts[at].ratio());
            assert!(ratios.is_sorted(), "{ratios:?}");
        }
        come_to(&mut [], 1.0);
    }
}

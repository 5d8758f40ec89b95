//! Who misses in windows with gaps between them, where first touches were seen.
//!
//! Every access of a window either ends a reuse that began in it, which samples tell, or is the first touch of its line there, which was
//! drawn by line. Both are told at the instruction that would miss, and together they are all accesses. (Watches that
//! a window's end cuts tell who touched a line last, and not who will next: in loops over much data that is another instruction.)
//!
//! Windows too long for every access to be looked at saw no first touches. What their watches that were cut stand for is ended by those who
//! touch first in windows that behave alike; for want of such windows, by whoever touched last.

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
}

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

/// What first touches of windows that behave alike come to, by instruction and data, and in all.
type Alike = BTreeMap<usize, (BTreeMap<(Key, Key), Part>, Part)>;

impl Sums {
    /// Adds accesses that end reuses from before their windows; one observation stands for `grain` of them.
    fn before_window(&mut self, part: Part, grain: f64) {
        if part.weight > 0.0 {
            let miss = (part.misses / part.weight).min(1.0);
            self.ends(part.weight, [miss; 4]);
            self.weight_squares += part.weight * grain;
        }
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
        let mut alike = Alike::new();
        let inclined = self.inclined((group, firsts), miss, beyond, stream);
        for first in &firsts.placed {
            let site = self.site_of(first);
            let far = beyond[first.segment as usize].miss(first.position, 0.0);
            let far = (far * inclined.get(&site.instr).copied().unwrap_or(1.0)).min(1.0);
            let part = Part::of(first.weight, far);
            let sums = names.sums_of(key_of(&site));
            sums.triggered += 1;
            sums.before_window(part, first.weight);
            let cluster = firsts.windows[&first.window].cluster;
            let (by_site, all) = alike.entry(cluster).or_default();
            by_site
                .entry((site.instr, site.data))
                .or_default()
                .add(part);
            all.add(part);
        }
        // What is left open in windows that saw no first touches, and what a sample of them stands for.
        let mut open: BTreeMap<u32, (Part, f64)> = BTreeMap::new();
        for (at, p) in group.placed.iter().enumerate() {
            let stored = &self.windows[p.window as usize];
            let (site, trigger) = sites(stored, p, LineSize::B64, stream);
            let from = names.number(key_of(&site));
            let sums = &mut names.sums[from as usize];
            sums.samples += 1;
            sums.taken += p.raw;
            let window = firsts.windows.get(&p.window).copied();
            let looked = window.is_some_and(|w| w.looked);
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
                sums.reused(from, p.raw, misses);
                continue;
            }
            let Some(window) = window.filter(|_| !looked) else {
                continue;
            };
            let part = Part::of(p.raw, beyond[p.segment as usize].miss(p.distance, 0.0));
            if alike.contains_key(&window.cluster) {
                let open = open.entry(p.window).or_default();
                open.0.add(part);
                open.1 = p.raw;
            } else {
                sums.before_window(part, p.raw);
            }
        }
        for (window, (open, grain)) in open {
            let (by_site, all) = &alike[&firsts.windows[&window].cluster];
            let stored = &self.windows[window as usize];
            let share = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
            for (&(instr, data), part) in by_site {
                let site = Site {
                    instr,
                    data,
                    thread: stored.thread,
                    window: stored.index,
                };
                let part = Part {
                    weight: open.weight * share(part.weight, all.weight),
                    misses: open.misses * share(part.misses, all.misses),
                };
                names.sums_of(key_of(&site)).before_window(part, grain);
            }
        }
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
        for first in firsts.placed.iter().filter(|f| f.position >= far) {
            let of = by_instr.entry(self.site_of(first).instr).or_default();
            of.touches += 1.0;
            // They stand for those of the windows' beginnings.
            of.mass += first.weight / (1.0 - far / first.window_refs).max(0.1);
            let miss = beyond[first.segment as usize].miss(longest, 0.0);
            unseen.add(Part::of(first.weight, miss));
        }
        let unseen = unseen.misses / unseen.weight.max(f64::MIN_POSITIVE);
        for (p, &miss) in group.placed.iter().zip(&miss.varying) {
            let stored = &self.windows[p.window as usize];
            let (_, trigger) = sites(stored, p, LineSize::B64, stream);
            if let Some(trigger) = trigger.filter(|_| p.distance >= far) {
                let of = by_instr.entry(trigger.instr).or_default();
                of.seen.add(Part::of(p.weight, miss));
            }
        }
        let all = by_instr.values().fold(Part::default(), |mut all, of| {
            all.add(Part::of(of.mass, of.miss(unseen)));
            all
        });
        let mean = all.misses / all.weight.max(f64::MIN_POSITIVE);
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

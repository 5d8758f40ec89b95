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

use super::part::{ByWindow, Part, come_to};
use super::{Names, sites};
use crate::beyond::Beyond;
use crate::hash::FastMap;
use crate::placed::{FirstPlaced, Firsts, Group};
use crate::prepare::lost;
use crate::run::Run;
use crate::view::Probabilities;
use crate::{Key, LineSize, Site, Stream};

/// First touches of an instruction that count as much as what those of others do.
const DOUBT: f64 = 5.0;

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
                sums.reused(Some(p.window), p.raw, misses);
                // Where far ones came from, few windows tell.
                if p.weight > 0.0 {
                    sums.edge(from, p.weight, misses[0]);
                }
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
        let mut by_window = ByWindow::default();
        for (first, &part) in firsts.placed.iter().zip(told) {
            let site = self.site_of_touch(first.window, first.touch);
            let key = names.number(key_of(&site));
            by_window.add(first.window, key, part);
            let cluster = firsts.windows[&first.window].cluster;
            let by_site = alike.entry(cluster).or_default();
            let of_site = by_site.entry((site.instr, site.data)).or_default();
            of_site.add(part);
        }
        by_window.give(&mut names.sums);
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
            if let Some(factor) = inclined.get(&self.site_of_touch(first.window, first.touch).instr)
            {
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
            let of = by_instr
                .entry(self.site_of_touch(first.window, first.touch).instr)
                .or_default();
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
}

/// Gives what is open to those who touch first elsewhere, in proportion to how much.
fn share_out(open: Part, by_site: &BySite) -> Vec<((Key, Key), Part)> {
    let all: f64 = by_site.values().map(|part| part.weight).sum();
    let of_site = |part: &Part| Part::of(open.weight * part.weight / all, part.ratio());
    let mut parts: Vec<Part> = by_site.values().map(of_site).collect();
    come_to(&mut parts, open.misses);
    by_site.keys().copied().zip(parts).collect()
}

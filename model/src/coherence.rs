//! What remote writes cost a run in private caches, and whose writes they are.
//!
//! Each thread has a private cache; a remote write between its two touches of a line takes the line
//! away, so that the reuse misses at any size (a coherence miss). Its slot is free until the next
//! miss fills it, so that such a miss evicts nothing, unless the line had been evicted before the
//! write: for that a lost reuse is solved at half its distance ([`crate::Stream::Private`]). The
//! miss ratio is that solution's plus the lost reuses that it lets hit.

use std::collections::HashMap;
use std::hash::Hash;

use crate::attribute::wilson;
use crate::interval::Z95;
use crate::prepare::outcome;
use crate::run::Run;
use crate::threads::{VERDICT_MISSES, verdict};
use crate::view::View;
use crate::{
    Cache, CurvePoint, LineSize, ModelError, Outcome, Sample, Sharing, Site, Stream, Trigger, Weak,
    Writer,
};

/// Windows below which parts of them are the blocks whose spread gives the sampling error.
const FEW_BLOCKS: usize = 12;
/// Parts of each of them.
const PARTS: f64 = 8.0;

/// How the reuses of a run fare in private caches of unlimited size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coherence {
    /// Reuses with thread information.
    pub reuses: u64,
    /// Of those, lost to a remote write.
    pub lost: u64,
    /// Share of the reuses with no remote access in between.
    pub private: f64,
    /// Share with remote reads only.
    pub shared: f64,
    /// Share lost to a remote write.
    pub coherence: f64,
    /// 95 % interval of `coherence`.
    pub interval: (f64, f64),
    /// Coherence misses per line reference (first touches are references too).
    pub miss_ratio: f64,
    /// 95 % interval of `miss_ratio`.
    pub miss_interval: (f64, f64),
    /// Share of the coherence misses whose remote writes were all to other bytes of the line.
    pub disjoint: f64,
    /// Set when too few reuses were lost to lean on `coherence`, and not so few that it is nothing.
    pub weak: Option<Weak>,
}

/// A reuse that a remote write made miss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// Where the thread touched its line again.
    pub at: Site,
    /// Who wrote in between, last; `None` where that is not known.
    pub writer: Option<Writer>,
}

/// Reuses of one key that were lost to remote writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Rivalry<K> {
    /// The key.
    pub key: K,
    /// Its lost reuses.
    pub lost: u64,
    /// Its share of the run's coherence misses.
    pub share: f64,
    /// 95 % interval of `share`.
    pub share_interval: (f64, f64),
    /// Its coherence misses per line reference of the run.
    pub miss_ratio: f64,
    /// Share of them whose remote writes were all to other bytes of the line.
    pub disjoint: f64,
    /// The verdict.
    pub sharing: Sharing,
}

/// A reuse with thread information, weighted so that all of a run's are its references but the
/// first touches.
pub(crate) struct Reuse<'a> {
    sample: &'a Sample,
    trigger: Trigger,
    /// Index of its window as given.
    window: usize,
    /// Block of the run it lies in, numbered from 0.
    block: u32,
    weight: f64,
    /// Group, and place in its `placed`.
    at: (usize, usize),
    read: bool,
    written: bool,
    disjoint: bool,
}

/// Sums of the weights per block, and of what is asked about.
#[derive(Default)]
struct Blocks {
    of: Vec<(f64, f64)>,
    squares: f64,
}

impl Blocks {
    fn add(&mut self, block: u32, weight: f64, value: f64) {
        let at = block as usize;
        if self.of.len() <= at {
            self.of.resize(at + 1, (0.0, 0.0));
        }
        let sums = &mut self.of[at];
        sums.0 += weight;
        sums.1 += weight * value;
        self.squares += weight * weight;
    }

    /// The mean with its 95 % interval: the spread between blocks, no less than that of samples
    /// that are independent.
    fn mean(&self) -> (f64, (f64, f64)) {
        let (all, sum) = self
            .of
            .iter()
            .fold((0.0, 0.0), |(a, s), x| (a + x.0, s + x.1));
        if all <= 0.0 {
            return (0.0, (0.0, 1.0));
        }
        let mean = (sum / all).clamp(0.0, 1.0);
        let n = self.of.len() as f64;
        let off = |&(weight, sum): &(f64, f64)| (sum - mean * weight).powi(2);
        let spread: f64 = self.of.iter().map(off).sum();
        let variance = if n > 1.0 {
            spread / (all * all) * n / (n - 1.0)
        } else {
            0.0
        };
        let independent = all * all / self.squares;
        let effective = if variance > 0.0 {
            (mean * (1.0 - mean) / variance).min(independent)
        } else {
            independent
        };
        (mean, wilson(mean, effective))
    }
}

impl Run {
    /// How the run's reuses fare in private caches at a line size; `None` where no sample says.
    ///
    /// # Errors
    /// Bad line size.
    pub fn coherence(&self, line_bytes: u64) -> Result<Option<Coherence>, ModelError> {
        let line = LineSize::from_bytes(line_bytes)?;
        let view = self.view(line, Stream::Own)?;
        let reuses = self.reuses(view, line);
        if reuses.is_empty() {
            return Ok(None);
        }
        let mut blocks = Blocks::default();
        let (mut weight, mut shared, mut disjoint, mut lost) = (0.0, 0.0, 0.0, 0);
        for r in &reuses {
            blocks.add(r.block, r.weight, f64::from(u8::from(r.written)));
            weight += r.weight;
            lost += u64::from(r.written);
            if r.written && r.disjoint {
                disjoint += r.weight;
            } else if r.read && !r.written {
                shared += r.weight;
            }
        }
        let (coherence, interval) = blocks.mean();
        let again = 1.0 - first_touches(view);
        let shared: f64 = shared / weight;
        Ok(Some(Coherence {
            reuses: reuses.len() as u64,
            lost,
            private: (1.0 - coherence - shared).max(0.0),
            shared: shared.min(1.0),
            coherence,
            interval,
            miss_ratio: coherence * again,
            miss_interval: (interval.0 * again, interval.1 * again),
            disjoint: if coherence > 0.0 {
                (disjoint / weight / coherence).min(1.0)
            } else {
                0.0
            },
            weak: (0 < lost && lost < VERDICT_MISSES).then_some(Weak {
                samples: lost,
                needed: VERDICT_MISSES,
            }),
        }))
    }

    /// Who takes lines from whom: the lost reuses by key, most first.
    ///
    /// # Errors
    /// Bad line size.
    pub fn rivalries<K, F>(&self, line_bytes: u64, key_of: F) -> Result<Vec<Rivalry<K>>, ModelError>
    where
        K: Clone + Eq + Hash + Ord,
        F: Fn(&Lost) -> K,
    {
        #[derive(Default)]
        struct Sums {
            lost: u64,
            weight: f64,
            disjoint: f64,
        }
        let line = LineSize::from_bytes(line_bytes)?;
        let view = self.view(line, Stream::Own)?;
        let reuses = self.reuses(view, line);
        let all: f64 = reuses.iter().map(|r| r.weight).sum();
        let again = 1.0 - first_touches(view);
        let mut sums: HashMap<K, Sums> = HashMap::new();
        let (mut missed, mut squares) = (0.0, 0.0);
        for r in reuses.iter().filter(|r| r.written) {
            let at = Site {
                instr: r.trigger.instr,
                data: r.sample.data,
                thread: r.trigger.thread,
                window: r.window,
            };
            let writer = r.sample.writer;
            let s = sums.entry(key_of(&Lost { at, writer })).or_default();
            s.lost += 1;
            s.weight += r.weight;
            missed += r.weight;
            squares += r.weight * r.weight;
            if r.disjoint {
                s.disjoint += r.weight;
            }
        }
        let mut list: Vec<Rivalry<K>> = sums
            .into_iter()
            .filter(|(_, s)| s.weight > 0.0)
            .map(|(key, s)| {
                let share = (s.weight / missed).min(1.0);
                let disjoint = (s.disjoint / s.weight).min(1.0);
                Rivalry {
                    key,
                    lost: s.lost,
                    share,
                    share_interval: wilson(share, missed * missed / squares),
                    miss_ratio: s.weight / all * again,
                    disjoint,
                    sharing: verdict(1.0, disjoint, s.lost),
                }
            })
            .collect();
        list.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.key.cmp(&b.key)));
        Ok(list)
    }

    /// The point of private caches, from that of the own distances alone.
    pub(crate) fn with_coherence(
        view: &View,
        reuses: &[Reuse<'_>],
        cache: &Cache,
        own: CurvePoint,
    ) -> CurvePoint {
        if !reuses.iter().any(|r| r.written) {
            return own;
        }
        let mut blocks = Blocks::default();
        let mut group = None;
        for r in reuses {
            let (i, at) = r.at;
            if group.as_ref().is_none_or(|&(g, _)| g != i) {
                group = Some((i, view.probabilities(i, cache)));
            }
            let miss = group.as_ref().map_or(1.0, |(_, p)| p.varying[at]);
            let more = if r.written { 1.0 - miss } else { 0.0 };
            blocks.add(r.block, r.weight, more);
        }
        let (more, (low, high)) = blocks.mean();
        let again = 1.0 - first_touches(view);
        let (more, low, high) = (more * again, low * again, high * again);
        let miss_ratio = (own.miss_ratio + more).min(1.0);
        let down = (own.miss_ratio - own.low).hypot(more - low);
        let up = (own.high - own.miss_ratio).hypot(high - more);
        let half = 0.5 * (high - low) * crate::interval::Z / Z95;
        CurvePoint {
            miss_ratio,
            low: (miss_ratio - down).clamp(0.0, miss_ratio),
            high: (miss_ratio + up).clamp(miss_ratio, 1.0),
            sampling_half_width: own.sampling_half_width.hypot(half),
            undecided: own
                .undecided
                .map(|(a, b)| ((a + more).min(1.0), (b + more).min(1.0))),
            ..own
        }
    }

    /// The reuses with thread information, group after group.
    pub(crate) fn reuses(&self, view: &View, line: LineSize) -> Vec<Reuse<'_>> {
        let mut starts: Vec<u64> = self.windows.iter().map(|w| w.start.to_bits()).collect();
        starts.dedup();
        let few = starts.len() < FEW_BLOCKS;
        let mut reuses = Vec::new();
        let mut blocks: HashMap<(u64, u8), u32> = HashMap::new();
        for (i, group) in view.groups.iter().enumerate() {
            let first = reuses.len();
            let mut all = 0.0;
            for (at, p) in group.placed.iter().enumerate() {
                let stored = &self.windows[p.window as usize];
                let sample = &stored.samples[p.sample as usize];
                let Outcome::Reused { trigger, .. } = outcome(sample, line, Stream::Own) else {
                    continue;
                };
                if p.imputed || p.weight <= 0.0 {
                    continue;
                }
                all += p.weight;
                let Some(remote) = &sample.remote else {
                    continue;
                };
                let remote = remote[line.index()];
                let refs = stored.refs[LineSize::B64.index()].max(1) as f64;
                let part = (sample.position as f64 / refs * PARTS).min(PARTS - 1.0);
                let next = blocks.len() as u32;
                let block = (stored.start.to_bits(), if few { part as u8 } else { 0 });
                let block = *blocks.entry(block).or_insert(next);
                reuses.push(Reuse {
                    sample,
                    trigger,
                    window: stored.index,
                    block,
                    weight: p.weight,
                    at: (i, at),
                    read: remote.read,
                    written: remote.written,
                    disjoint: remote.disjoint,
                });
            }
            let again = (group.refs - group.timeline.cold_touches()).max(0.0);
            let scale = if all > 0.0 { again / all } else { 0.0 };
            reuses[first..].iter_mut().for_each(|r| r.weight *= scale);
        }
        reuses.retain(|r| r.weight > 0.0);
        reuses
    }
}

/// Share of the run's references that are first touches.
fn first_touches(view: &View) -> f64 {
    let groups = view.groups.iter();
    let cold: f64 = groups.map(|g| g.timeline.cold_touches()).sum();
    let refs = view.refs();
    if refs > 0.0 {
        (cold / refs).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

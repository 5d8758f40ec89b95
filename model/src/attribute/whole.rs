//! Who misses in a run observed as a whole, where first touches of epochs were looked for.
//!
//! An access ends a reuse that began in its epoch, which samples tell, or is the first touch of its line there. The latter miss most,
//! and few samples are of them; many more were drawn by line, at the instruction that would miss. How many they are, and how many of
//! them miss, is what the samples say: sums stay what the curve is.

use std::hash::Hash;

use super::Names;
use super::part::{ByWindow, Part, come_to};
use crate::beyond::Beyond;
use crate::placed::{ReturnPlaced, Returns};
use crate::run::Run;
use crate::stack::{miss_probability, shape};
use crate::timeline::Timeline;
use crate::view::Solved;
use crate::{Cache, Since, Site};

/// Parts of the run. (Chosen. Of 21 programs' misses in 8 MiB 29 % were with another instruction with one, 9 % with these and as many by cold touches.)
const SLICES: usize = 16;
/// Distances tried where one is known to lie between two.
const TRIED: usize = 4;

/// Samples whose reuses cross epochs, which first touches tell.
#[derive(Clone, Debug)]
pub(super) struct Crossing {
    part: Part,
    /// First touches in the run, which are among those.
    cold: f64,
    /// Misses that the samples of the cluster at hand stand for, first touches among them, and the squares of the clusters before. (Samples
    /// of one cluster miss together.)
    pub of_cluster: f64,
    squares: f64,
    reuses: Vec<Reuse>,
}

/// A reuse that first touches tell.
#[derive(Clone, Copy, Debug)]
struct Reuse {
    /// Time of its end, in references.
    end: f64,
    distance: f64,
    weight: f64,
    miss: f64,
}

impl Reuse {
    /// As [`Beyond::new`] takes it.
    fn of(&self) -> [f64; 3] {
        [self.distance, self.weight, self.miss]
    }
}

/// What those come to that are longer than something, by part of the run: early in it none can be longer than the run was by then, and first
/// touches are not spread evenly.
struct Slices {
    /// Where one part ends and the next begins.
    bounds: Vec<f64>,
    beyond: Vec<Beyond>,
    /// All of it, which tells what a part with less than one sample lacks.
    whole: Beyond,
    sample: f64,
}

impl Slices {
    /// Parts with as many of the first touches that were looked for each, and these again where as many are cold.
    fn new(reuses: &[Reuse], cold: f64, timeline: &Timeline, returns: &Returns) -> Slices {
        let mut times: Vec<f64> = returns.placed.iter().map(|touch| touch.at).collect();
        times.sort_unstable_by(f64::total_cmp);
        let inner = (1..SLICES).filter_map(|n| times.get(n * times.len() / SLICES));
        let mut slices = Slices {
            bounds: inner.copied().collect(),
            beyond: Vec::new(),
            whole: Beyond::new(reuses.iter().map(Reuse::of).collect(), cold),
            sample: reuses.iter().map(|reuse| reuse.weight).sum::<f64>()
                / reuses.len().max(1) as f64,
        };
        slices.bounds.extend(timeline.cold_quantiles(SLICES));
        slices.bounds.sort_unstable_by(f64::total_cmp);
        slices.bounds.dedup();
        let mut by_slice = vec![Vec::new(); slices.bounds.len() + 1];
        for reuse in reuses {
            by_slice[slices.at(reuse.end)].push(reuse.of());
        }
        let scale = cold / timeline.cold_touches().max(f64::MIN_POSITIVE);
        let from = std::iter::once(0.0).chain(slices.bounds.iter().copied());
        let to = slices.bounds.iter().copied().chain([f64::INFINITY]);
        let part =
            |((from, to), reuses)| Beyond::new(reuses, scale * timeline.cold_between(from, to));
        slices.beyond = from.zip(to).zip(by_slice).map(part).collect();
        slices
    }

    fn at(&self, time: f64) -> usize {
        self.bounds.partition_point(|&bound| bound <= time)
    }

    /// Miss probability of an access at a time whose line was not touched for so long.
    fn miss(&self, at: f64, least: f64) -> f64 {
        let (mass, misses) = self.beyond[self.at(at)].sums(least);
        let usual = self.whole.miss(least);
        let lacks = (self.sample - mass).max(0.0);
        match mass + lacks > 0.0 {
            true => (misses + lacks * usual) / (mass + lacks),
            false => usual,
        }
    }
}

/// What each first touch comes to.
pub(super) struct Charged {
    each: Vec<Part>,
    /// Standard error of the misses, as a share of them.
    unsure: f64,
}

impl Crossing {
    /// So many first touches in the run, and no samples yet.
    pub fn new(cold: f64) -> Crossing {
        Crossing {
            part: Part::of(cold, 1.0),
            cold,
            of_cluster: 0.0,
            squares: 0.0,
            reuses: Vec::new(),
        }
    }

    /// Adds a sample whose reuse ends at a time.
    pub fn add(&mut self, end: f64, distance: f64, weight: f64, miss: f64) {
        let part = Part::of(weight, miss);
        self.part.add(part);
        self.of_cluster += part.misses;
        self.reuses.push(Reuse {
            end,
            distance,
            weight,
            miss,
        });
    }

    /// A cluster of samples ends.
    pub fn end_cluster(&mut self) {
        self.squares += std::mem::take(&mut self.of_cluster).powi(2);
    }

    /// Shares all of it out to first touches.
    pub fn charge(
        self,
        timeline: &Timeline,
        cache: &Cache,
        solved: &Solved,
        returns: &Returns,
    ) -> Charged {
        let slices = Slices::new(&self.reuses, self.cold, timeline, returns);
        let after = |at: f64, distance: f64| {
            let from = (at - distance).max(0.0);
            match &solved.solution {
                Some(solution) => timeline.random_miss(solution, from, at),
                None => {
                    let (sets, ways) = shape(cache.lines().0, cache.policy.ways());
                    miss_probability(timeline.distinct(from, at), sets, ways)
                }
            }
        };
        let miss = |touch: &ReturnPlaced| match touch.since {
            // Never before in the run.
            Since::AtLeast(least) if timeline.fills && least as f64 >= touch.at => 1.0,
            Since::AtLeast(least) => slices.miss(touch.at, least as f64),
            Since::Between(least, most) => {
                let width = (most as f64 - least as f64) / TRIED as f64;
                let tried = (0..TRIED).map(|n| least as f64 + (n as f64 + 0.5) * width);
                tried.map(|d| after(touch.at, d)).sum::<f64>() / TRIED as f64
            }
        };
        let seen: f64 = returns.placed.iter().map(|touch| touch.weight).sum();
        let scale = self.part.weight / seen.max(f64::MIN_POSITIVE);
        let told = |touch: &ReturnPlaced| Part::of(scale * touch.weight, miss(touch));
        let mut each: Vec<Part> = returns.placed.iter().map(told).collect();
        come_to(&mut each, self.part.misses);
        Charged {
            each,
            unsure: match self.part.misses > 0.0 {
                true => self.squares.sqrt() / self.part.misses,
                false => 0.0,
            },
        }
    }
}

impl Run {
    /// Adds first touches to the keys.
    pub(super) fn sum_returns<K, F>(
        &self,
        returns: &Returns,
        charged: &Charged,
        key_of: &F,
        names: &mut Names<K>,
    ) where
        K: Clone + Eq + Hash,
        F: Fn(&Site) -> K,
    {
        let mut by_window = ByWindow::default();
        for (touch, &part) in returns.placed.iter().zip(&charged.each) {
            let key = names.number(key_of(&self.site_of_touch(touch.window, touch.touch)));
            by_window.add(touch.window, key, part);
        }
        by_window.give(&mut names.sums);
        names.far_are_unsure(charged.unsure);
    }
}

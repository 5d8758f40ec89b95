//! One simulated cache level: sets, ways, an index function and a replacement policy.

use crate::policy::Policy;
use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// How a line's address picks its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Index {
    /// Line number modulo the number of sets (any number of sets).
    Modulo,
    /// Low bits exclusive-or higher bits (power-of-two sets only).
    XorFold,
}

/// What a level holds in relation to the levels above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inclusion {
    /// Filled on every miss, no promise.
    Neither,
    /// Losing a line here takes it from the levels above.
    Inclusive,
    /// Holds only what the level above threw out.
    Victim,
}

/// The shape of a level; sizes in bytes, latency in core cycles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Number of sets.
    pub sets: u64,
    /// Lines per set.
    pub ways: u32,
    /// Bytes per line.
    pub line: u64,
    /// Load-to-use latency of a hit.
    pub latency: f64,
    /// Replacement policy.
    pub policy: Policy,
    /// Index function.
    pub index: Index,
    /// Relation to the levels above.
    pub inclusion: Inclusion,
}

impl Shape {
    /// Capacity in bytes.
    pub fn bytes(&self) -> u64 {
        self.sets * u64::from(self.ways) * self.line
    }
}

/// Tags are line numbers, below 2^32 for the addresses the machine gives out.
const EMPTY: u32 = u32::MAX;

/// Tags compared at a time.
const LANES: usize = 8;

/// Rank in the places beyond the ways: below none, so that it never moves and never leaves.
const NO_RANK: u8 = u8::MAX;

/// How a line's number picks its set, with everything worked out beforehand.
#[derive(Debug, Clone, Copy)]
enum Pick {
    Mask(u32),
    Fold { mask: u64, bits: u32 },
    Modulo(u32),
}

/// What a set has beside its tags and ranks.
#[derive(Debug, Clone, Copy)]
struct Extra {
    word: u64,
    /// Free ways: most fills need not look for one.
    free: u8,
}

/// A level with its contents.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The level's shape.
    pub shape: Shape,
    /// By set, `stride` places each: those beyond the ways stay empty.
    tags: Vec<u32>,
    /// As the tags.
    meta: Vec<u8>,
    extra: Vec<Extra>,
    stride: usize,
    line_shift: u32,
    pick: Pick,
}

impl Cache {
    /// An empty cache.
    pub fn new(shape: Shape) -> Self {
        let (sets, ways) = (shape.sets as usize, shape.ways as usize);
        let stride = ways.next_multiple_of(LANES);
        let mut meta = vec![NO_RANK; sets * stride];
        let free = ways as u8;
        let mut extra = vec![Extra { word: 0, free }; sets];
        for (m, e) in meta.chunks_mut(stride).zip(&mut extra) {
            shape.policy.reset(&mut m[..ways], &mut e.word);
        }
        let mask = shape.sets - 1;
        let pick = match shape.index {
            _ if !shape.sets.is_power_of_two() => Pick::Modulo(shape.sets as u32),
            Index::Modulo => Pick::Mask(mask as u32),
            Index::XorFold => Pick::Fold {
                mask,
                bits: mask.count_ones(),
            },
        };
        Cache {
            shape,
            tags: vec![EMPTY; sets * stride],
            meta,
            extra,
            stride,
            line_shift: shape.line.trailing_zeros(),
            pick,
        }
    }

    /// The set of an address.
    #[inline]
    pub fn set_of(&self, address: u64) -> usize {
        let n = address >> self.line_shift;
        match self.pick {
            Pick::Mask(mask) => (n as u32 & mask) as usize,
            Pick::Fold { mask, bits } => ((n ^ (n >> bits) ^ (n >> (2 * bits))) & mask) as usize,
            Pick::Modulo(sets) => (n as u32 % sets) as usize,
        }
    }

    /// The way that holds an address of this set.
    #[inline]
    fn find(&self, set: usize, address: u64) -> Option<usize> {
        let tag = (address >> self.line_shift) as u32;
        let tags = &self.tags[set * self.stride..][..self.stride];
        // Some places at once, without a branch for each: this is where the simulation spends its time.
        for (i, lanes) in tags.as_chunks::<LANES>().0.iter().enumerate() {
            if lanes.iter().fold(false, |any, &t| any | (t == tag)) {
                let j = lanes.iter().position(|&t| t == tag);
                return j.map(|j| i * LANES + j);
            }
        }
        None
    }

    #[inline]
    fn touched(&mut self, set: usize, way: usize) {
        let ranks = &mut self.meta[set * self.stride..][..self.stride];
        if self.shape.policy == Policy::Lru {
            to_front(ranks, way);
        } else {
            let ways = self.shape.ways as usize;
            let word = &mut self.extra[set].word;
            self.shape.policy.hit(&mut ranks[..ways], word, way);
        }
    }

    /// Touches a line of this set if it is there.
    #[inline]
    pub fn lookup_in(&mut self, set: usize, address: u64) -> bool {
        let way = self.find(set, address);
        if let Some(way) = way {
            self.touched(set, way);
        }
        way.is_some()
    }

    /// Touches a line if it is there.
    #[inline]
    pub fn lookup(&mut self, address: u64) -> bool {
        self.lookup_in(self.set_of(address), address)
    }

    /// Puts a line in and returns the address of the one that had to leave.
    pub fn fill(&mut self, address: u64, rng: &mut Rng) -> Option<u64> {
        let set = self.set_of(address);
        if self.lookup_in(set, address) {
            return None;
        }
        self.fill_missing(set, address, rng)
    }

    /// Puts a line into its set, where it is known not to be; otherwise as [`Cache::fill`].
    #[inline]
    pub fn fill_missing(&mut self, set: usize, address: u64, rng: &mut Rng) -> Option<u64> {
        let ways = self.shape.ways as usize;
        let tags = &mut self.tags[set * self.stride..][..self.stride];
        let ranks = &mut self.meta[set * self.stride..][..self.stride];
        let Extra { word, free } = &mut self.extra[set];
        let lru = self.shape.policy == Policy::Lru;
        let empty = (*free > 0)
            .then(|| tags[..ways].iter().position(|&t| t == EMPTY))
            .flatten();
        let way = match empty {
            Some(empty) => {
                *free -= 1;
                empty
            }
            None if lru => oldest(ranks, ways),
            None => self.shape.policy.victim(&mut ranks[..ways], word, rng),
        };
        let old = tags[way];
        tags[way] = (address >> self.line_shift) as u32;
        if lru {
            to_front(ranks, way);
        } else {
            self.shape.policy.filled(&mut ranks[..ways], word, way);
        }
        (old != EMPTY).then_some(u64::from(old) << self.line_shift)
    }

    /// Drops a line.
    pub fn drop_line(&mut self, address: u64) {
        let set = self.set_of(address);
        if let Some(way) = self.find(set, address) {
            self.tags[set * self.stride + way] = EMPTY;
            self.extra[set].free += 1;
        }
    }
}

/// [`Policy::Lru`] over whole lanes, which is several times as fast: the most frequent policy has its own way.
#[inline]
fn to_front(ranks: &mut [u8], way: usize) {
    let old = ranks[way];
    for lanes in ranks.as_chunks_mut::<LANES>().0 {
        for r in lanes {
            *r += u8::from(*r < old);
        }
    }
    ranks[way] = 0;
}

#[inline]
fn oldest(ranks: &[u8], ways: usize) -> usize {
    let last = (ways - 1) as u8;
    for (i, lanes) in ranks.as_chunks::<LANES>().0.iter().enumerate() {
        // A lane's number for the one that matches, none for the others.
        let mut at = 0u8;
        for (j, &r) in lanes.iter().enumerate() {
            at |= if r == last { j as u8 + 1 } else { 0 };
        }
        if at > 0 {
            return i * LANES + usize::from(at) - 1;
        }
    }
    0
}

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

/// A level with its contents.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The level's shape.
    pub shape: Shape,
    /// By set, `stride` places each: those beyond the ways stay empty.
    tags: Vec<u32>,
    stride: usize,
    meta: Vec<u8>,
    words: Vec<u64>,
    /// Free ways of each set: most fills need not look for one.
    free: Vec<u8>,
    line_shift: u32,
    mask: Option<u64>,
}

impl Cache {
    /// An empty cache.
    pub fn new(shape: Shape) -> Self {
        let (sets, ways) = (shape.sets as usize, shape.ways as usize);
        let mut meta = vec![0; sets * ways];
        let mut words = vec![0; sets];
        for (m, w) in meta.chunks_mut(ways).zip(&mut words) {
            shape.policy.reset(m, w);
        }
        Cache {
            shape,
            tags: vec![EMPTY; sets * ways.next_multiple_of(LANES)],
            stride: ways.next_multiple_of(LANES),
            meta,
            words,
            free: vec![ways as u8; sets],
            line_shift: shape.line.trailing_zeros(),
            mask: shape.sets.is_power_of_two().then(|| shape.sets - 1),
        }
    }

    #[inline]
    fn set_of(&self, address: u64) -> usize {
        let n = address >> self.line_shift;
        let Some(mask) = self.mask else {
            return (n % self.shape.sets) as usize;
        };
        match self.shape.index {
            Index::Modulo => (n & mask) as usize,
            Index::XorFold => {
                let bits = mask.count_ones();
                ((n ^ (n >> bits) ^ (n >> (2 * bits))) & mask) as usize
            }
        }
    }

    #[inline]
    fn find(&self, address: u64) -> (usize, Option<usize>) {
        let set = self.set_of(address);
        let tag = (address >> self.line_shift) as u32;
        let tags = &self.tags[set * self.stride..(set + 1) * self.stride];
        // Some places at once, without a branch for each: this is where the simulation spends its time.
        for (i, lanes) in tags.chunks_exact(LANES).enumerate() {
            let mut found = 0u32;
            for (j, &t) in lanes.iter().enumerate() {
                found |= u32::from(t == tag) << j;
            }
            if found != 0 {
                return (set, Some(i * LANES + found.trailing_zeros() as usize));
            }
        }
        (set, None)
    }

    /// Touches a line if it is there.
    #[inline]
    pub fn lookup(&mut self, address: u64) -> bool {
        let (set, way) = self.find(address);
        if let Some(way) = way {
            let ways = self.shape.ways as usize;
            self.shape.policy.hit(
                &mut self.meta[set * ways..(set + 1) * ways],
                &mut self.words[set],
                way,
            );
        }
        way.is_some()
    }

    /// Puts a line in and returns the address of the one that had to leave.
    pub fn fill(&mut self, address: u64, rng: &mut Rng) -> Option<u64> {
        let (set, found) = self.find(address);
        let ways = self.shape.ways as usize;
        let range = set * ways..(set + 1) * ways;
        let meta = &mut self.meta[range.clone()];
        if let Some(way) = found {
            self.shape.policy.hit(meta, &mut self.words[set], way);
            return None;
        }
        self.put(set, address, rng)
    }

    /// Puts in a line that is known not to be there; otherwise as [`Cache::fill`].
    pub fn fill_missing(&mut self, address: u64, rng: &mut Rng) -> Option<u64> {
        self.put(self.set_of(address), address, rng)
    }

    #[inline]
    fn put(&mut self, set: usize, address: u64, rng: &mut Rng) -> Option<u64> {
        let ways = self.shape.ways as usize;
        let meta = &mut self.meta[set * ways..(set + 1) * ways];
        let tags = &mut self.tags[set * self.stride..set * self.stride + ways];
        let free = (self.free[set] > 0)
            .then(|| tags.iter().position(|&t| t == EMPTY))
            .flatten();
        let way = match free {
            Some(free) => {
                self.free[set] -= 1;
                free
            }
            None => self.shape.policy.victim(meta, &mut self.words[set], rng),
        };
        let old = tags[way];
        tags[way] = (address >> self.line_shift) as u32;
        self.shape.policy.filled(meta, &mut self.words[set], way);
        (old != EMPTY).then_some(u64::from(old) << self.line_shift)
    }

    /// Drops a line.
    pub fn drop_line(&mut self, address: u64) {
        let (set, way) = self.find(address);
        if let Some(way) = way {
            self.tags[set * self.stride + way] = EMPTY;
            self.free[set] += 1;
        }
    }
}

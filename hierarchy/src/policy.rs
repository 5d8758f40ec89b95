//! The library of replacement policies: the names the tool can give to what it measured.
//!
//! Every policy acts on one set: a few bytes of metadata per way and one word per set. The simulator
//! runs them for whole caches, the inference runs them for one set to predict a block sequence.
//! Policies that adapt between sets (set duelling) are not here: one set's behaviour does not define them.
//!
//! Source: the parametrised QLRU family and the LRU-over-PLRU combination follow Abel & Reineke,
//! "nanoBench", ISPASS 2020; tree and bit PLRU follow Al-Zoubi et al., ACMSE 2004.

use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Largest associativity the policies handle.
pub const MAX_WAYS: usize = 32;

/// What a QLRU policy does when no line has age 3 any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ageing {
    /// Raise every age by the distance of the oldest to 3.
    AllToThree,
    /// The same, leaving out the line just touched.
    OthersToThree,
    /// Raise every age by one.
    AllByOne,
    /// Raise every age but that of the line just touched by one.
    OthersByOne,
}

/// A replacement policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// A uniformly random way.
    Random,
    /// Binary-tree pseudo LRU; the number of ways must be a power of two.
    TreePlru,
    /// LRU between `groups` groups, tree PLRU inside each.
    LruOfPlru {
        /// Number of groups; divides the associativity, the quotient being a power of two.
        groups: u8,
    },
    /// One recently-used bit per way; when the last is set the others are cleared; leftmost clear way is the victim.
    BitPlru,
    /// One bit per way; when a victim is needed and none is clear, all are cleared; leftmost clear way.
    Nru,
    /// LRU with new lines inserted in the least recent position.
    Lip,
    /// Quad-age LRU.
    Qlru {
        /// Age after a hit on a line of age 3.
        hit3: u8,
        /// Age after a hit on a line of age 2.
        hit2: u8,
        /// Age of a new line.
        insert: u8,
        /// Search for the victim from the right instead of the left.
        from_right: bool,
        /// What happens when no line has age 3.
        ageing: Ageing,
        /// Ageing is checked only when a victim is needed.
        on_miss_only: bool,
    },
}

impl Policy {
    /// The policy's name, in the notation of the literature where it has one.
    pub fn name(&self, ways: u32) -> String {
        match self {
            Policy::Lru => "LRU".into(),
            Policy::Fifo => "FIFO".into(),
            Policy::Random => "random".into(),
            Policy::TreePlru => "tree-PLRU".into(),
            Policy::LruOfPlru { groups } => {
                format!("LRU{groups}-PLRU{}", ways / u32::from(*groups))
            }
            Policy::BitPlru => "bit-PLRU".into(),
            Policy::Nru => "NRU".into(),
            Policy::Lip => "LIP".into(),
            Policy::Qlru {
                hit3,
                hit2,
                insert,
                from_right,
                ageing,
                on_miss_only,
            } => {
                let r = if *from_right { 2 } else { 0 };
                let u = match ageing {
                    Ageing::AllToThree => 0,
                    Ageing::OthersToThree => 1,
                    Ageing::AllByOne => 2,
                    Ageing::OthersByOne => 3,
                };
                let mo = if *on_miss_only { "_UMO" } else { "" };
                format!("QLRU_H{hit3}{hit2}_M{insert}_R{r}_U{u}{mo}")
            }
        }
    }

    /// Every policy of the library that exists for this associativity.
    pub fn library(ways: u32) -> Vec<Policy> {
        let mut all = vec![Policy::Lru, Policy::Fifo, Policy::Random];
        if ways < 2 {
            return vec![Policy::Lru];
        }
        if ways.is_power_of_two() && ways > 2 {
            all.push(Policy::TreePlru);
        }
        for groups in 2..ways {
            let inner = ways / groups;
            if ways.is_multiple_of(groups) && inner.is_power_of_two() && inner > 1 {
                all.push(Policy::LruOfPlru {
                    groups: groups as u8,
                });
            }
        }
        all.extend([Policy::BitPlru, Policy::Nru, Policy::Lip]);
        for (hit3, hit2) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
            for insert in 0..4 {
                for from_right in [false, true] {
                    for ageing in [
                        Ageing::AllToThree,
                        Ageing::OthersToThree,
                        Ageing::AllByOne,
                        Ageing::OthersByOne,
                    ] {
                        for on_miss_only in [false, true] {
                            all.push(Policy::Qlru {
                                hit3,
                                hit2,
                                insert,
                                from_right,
                                ageing,
                                on_miss_only,
                            });
                        }
                    }
                }
            }
        }
        all
    }

    /// Prepares the metadata of an empty set.
    pub fn reset(&self, meta: &mut [u8], word: &mut u64) {
        *word = 0;
        for (i, m) in meta.iter_mut().enumerate() {
            *m = match self {
                Policy::Qlru { .. } => 3,
                _ => i as u8,
            };
        }
    }

    /// Records a hit on `way`.
    #[inline]
    pub fn hit(&self, meta: &mut [u8], word: &mut u64, way: usize) {
        match *self {
            Policy::Lru | Policy::Lip => to_front(meta, way),
            Policy::Fifo | Policy::Random => {}
            Policy::TreePlru => *word = tree_touch(*word, meta.len(), way),
            Policy::LruOfPlru { groups } => group_touch(meta, word, groups as usize, way),
            Policy::BitPlru => {
                *word |= 1 << way;
                if word.count_ones() as usize == meta.len() {
                    *word = 1 << way;
                }
            }
            Policy::Nru => *word |= 1 << way,
            Policy::Qlru {
                hit3,
                hit2,
                ageing,
                on_miss_only,
                ..
            } => {
                meta[way] = match meta[way] {
                    3 => hit3,
                    2 => hit2,
                    _ => 0,
                };
                if !on_miss_only {
                    age(meta, ageing, Some(way));
                }
            }
        }
    }

    /// Chooses the way to replace in a full set; the caller then calls [`Policy::filled`] with it.
    #[inline]
    pub fn victim(&self, meta: &mut [u8], word: &mut u64, rng: &mut Rng) -> usize {
        let ways = meta.len();
        match *self {
            Policy::Lru | Policy::Lip => last_of(meta, ways),
            Policy::Fifo => {
                let way = *word as usize;
                *word = ((way + 1) % ways) as u64;
                way
            }
            Policy::Random => rng.below(ways as u64) as usize,
            Policy::TreePlru => tree_victim(*word, ways),
            Policy::LruOfPlru { groups } => {
                let n = groups as usize;
                let inner = ways / n;
                let g = last_of(&meta[..n], n);
                let bits = (*word >> (g * (inner - 1))) & ((1 << (inner - 1)) - 1);
                g * inner + tree_victim(bits, inner)
            }
            Policy::BitPlru => (!*word).trailing_zeros() as usize % ways,
            Policy::Nru => {
                if word.count_ones() as usize >= ways {
                    *word = 0;
                }
                (!*word).trailing_zeros() as usize % ways
            }
            Policy::Qlru {
                from_right, ageing, ..
            } => loop {
                let found = if from_right {
                    meta.iter().rposition(|&a| a == 3)
                } else {
                    meta.iter().position(|&a| a == 3)
                };
                if let Some(way) = found {
                    return way;
                }
                let all = match ageing {
                    Ageing::AllToThree | Ageing::OthersToThree => Ageing::AllToThree,
                    Ageing::AllByOne | Ageing::OthersByOne => Ageing::AllByOne,
                };
                age(meta, all, None);
            },
        }
    }

    /// Records that a new line was put into `way`.
    #[inline]
    pub fn filled(&self, meta: &mut [u8], word: &mut u64, way: usize) {
        match *self {
            Policy::Lip | Policy::Fifo | Policy::Random => {}
            Policy::Qlru {
                insert,
                ageing,
                on_miss_only,
                ..
            } => {
                meta[way] = insert;
                if !on_miss_only {
                    age(meta, ageing, Some(way));
                }
            }
            _ => self.hit(meta, word, way),
        }
    }
}

#[inline]
fn last_of(ranks: &[u8], n: usize) -> usize {
    ranks.iter().position(|&r| r as usize == n - 1).unwrap_or(0)
}

#[inline]
fn to_front(ranks: &mut [u8], which: usize) {
    let old = ranks[which];
    for r in ranks.iter_mut() {
        *r += u8::from(*r < old);
    }
    ranks[which] = 0;
}

fn age(meta: &mut [u8], ageing: Ageing, touched: Option<usize>) {
    let oldest = meta.iter().copied().max().unwrap_or(3);
    if oldest >= 3 {
        return;
    }
    let step = match ageing {
        Ageing::AllToThree | Ageing::OthersToThree => 3 - oldest,
        Ageing::AllByOne | Ageing::OthersByOne => 1,
    };
    let spare = matches!(ageing, Ageing::OthersToThree | Ageing::OthersByOne);
    for (i, a) in meta.iter_mut().enumerate() {
        if !(spare && touched == Some(i)) {
            *a = (*a + step).min(3);
        }
    }
}

/// Node bits point to the half to replace next; a touch makes each node on the path point away.
#[inline]
fn tree_touch(mut bits: u64, ways: usize, way: usize) -> u64 {
    let (mut node, mut low, mut size) = (1usize, 0usize, ways);
    while size > 1 {
        size /= 2;
        let right = way >= low + size;
        if right {
            bits &= !(1 << (node - 1));
            low += size;
        } else {
            bits |= 1 << (node - 1);
        }
        node = node * 2 + usize::from(right);
    }
    bits
}

#[inline]
fn tree_victim(bits: u64, ways: usize) -> usize {
    let (mut node, mut low, mut size) = (1usize, 0usize, ways);
    while size > 1 {
        size /= 2;
        let right = bits >> (node - 1) & 1 == 1;
        if right {
            low += size;
        }
        node = node * 2 + usize::from(right);
    }
    low
}

fn group_touch(meta: &mut [u8], word: &mut u64, groups: usize, way: usize) {
    let inner = meta.len() / groups;
    let g = way / inner;
    to_front(&mut meta[..groups], g);
    let shift = g * (inner - 1);
    let mask = (1u64 << (inner - 1)) - 1;
    let bits = tree_touch(*word >> shift & mask, inner, way % inner);
    *word = *word & !(mask << shift) | bits << shift;
}

/// One set of a cache under a policy, with small block numbers for tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneSet {
    policy: Policy,
    ways: usize,
    tags: [u32; MAX_WAYS],
    meta: [u8; MAX_WAYS],
    word: u64,
    /// Ways in use; they fill from the left and never empty again.
    filled: usize,
}

const NO_BLOCK: u32 = u32::MAX;

impl OneSet {
    /// An empty set of at most [`MAX_WAYS`] ways.
    pub fn new(policy: Policy, ways: u32) -> Self {
        let ways = (ways as usize).min(MAX_WAYS);
        let mut set = OneSet {
            policy,
            ways,
            tags: [NO_BLOCK; MAX_WAYS],
            meta: [0; MAX_WAYS],
            word: 0,
            filled: 0,
        };
        policy.reset(&mut set.meta[..ways], &mut set.word);
        set
    }

    /// Touches a block and says whether it hit.
    #[inline]
    pub fn touch(&mut self, block: u32, rng: &mut Rng) -> bool {
        let meta = &mut self.meta[..self.ways];
        // All places are compared, without a branch: those beyond the ways hold no block.
        let mut found = 0u32;
        for (i, &t) in self.tags.iter().enumerate() {
            found |= u32::from(t == block) << i;
        }
        if found != 0 {
            self.policy
                .hit(meta, &mut self.word, found.trailing_zeros() as usize);
            return true;
        }
        let way = if self.filled < self.ways {
            self.filled += 1;
            self.filled - 1
        } else {
            self.policy.victim(meta, &mut self.word, rng)
        };
        self.tags[way] = block;
        self.policy.filled(meta, &mut self.word, way);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(policy: Policy, ways: u32, blocks: &[u32]) -> Vec<u32> {
        let (mut set, mut rng) = (OneSet::new(policy, ways), Rng::new(1));
        blocks
            .iter()
            .copied()
            .filter(|&b| !set.touch(b, &mut rng))
            .collect()
    }

    #[test]
    fn lru_fifo_and_plru_differ_as_by_hand() {
        // 0 1 2 3, 0 again, 4: LRU throws out 1, FIFO throws out 0, the tree throws out 2.
        let seq = [0, 1, 2, 3, 0, 4];
        let out = |p| {
            (0..4u32)
                .filter(|&b| {
                    let mut s = seq.to_vec();
                    s.push(b);
                    misses(p, 4, &s).ends_with(&[4, b])
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(out(Policy::Lru), [1]);
        assert_eq!(out(Policy::Fifo), [0]);
        assert_eq!(out(Policy::TreePlru), [2]);
        assert_eq!(out(Policy::Lip), [3]);
    }

    #[test]
    fn every_policy_keeps_a_set_that_fits() {
        for ways in [1, 2, 3, 4, 6, 8, 12, 16, 20] {
            for policy in Policy::library(ways) {
                let blocks: Vec<u32> = (0..ways).chain(0..ways).chain(0..ways).collect();
                assert_eq!(
                    misses(policy, ways, &blocks).len(),
                    ways as usize,
                    "{policy:?} {ways}"
                );
            }
        }
    }

    #[test]
    fn one_block_too_many_always_misses_at_least_once_a_lap() {
        for ways in [2, 4, 12] {
            for policy in Policy::library(ways) {
                let blocks: Vec<u32> = (0..100 * (ways + 1)).map(|i| i % (ways + 1)).collect();
                assert!(misses(policy, ways, &blocks).len() >= 100, "{policy:?}");
            }
        }
    }

    #[test]
    fn lru_of_plru_prefers_the_least_recent_group() {
        // Three groups of two; touching 0 again makes group 0 the newest, so group 1's older line 2 leaves.
        let p = Policy::LruOfPlru { groups: 3 };
        assert!(misses(p, 6, &[0, 1, 2, 3, 4, 5, 0, 9, 2]).ends_with(&[9, 2]));
        assert!(!misses(p, 6, &[0, 1, 2, 3, 4, 5, 0, 9, 3]).ends_with(&[9, 3]));
    }
}

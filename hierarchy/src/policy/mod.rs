//! The library of replacement policies: the names the tool can give to what it measured.
//!
//! Every policy acts on one set: a few bytes of metadata per way and one word per set. The simulator
//! runs them for whole caches, the inference runs them for one set to predict a block sequence.
//! Policies that adapt between sets (set duelling) are not here: one set's behaviour does not define them.
//!
//! Source: the parametrised QLRU family and the LRU-over-PLRU combination follow Abel & Reineke,
//! "nanoBench", ISPASS 2020; tree and bit PLRU follow Al-Zoubi et al., ACMSE 2004.

mod act;
mod set;

use serde::{Deserialize, Serialize};
pub use set::OneSet;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

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

//! One set under a policy, for predicting block sequences.

use super::{MAX_WAYS, Policy};
use crate::rng::Rng;

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

//! Whose stack it is that several threads touch: a profile says of an address that it is a stack's.

use std::collections::HashSet;

use super::{DEFAULT_LINE, DEFAULT_LINE_BYTES};
use crate::profile::Profile;
use crate::profile::types::{Memory, SampleRecord};

/// Whose stack an address lies on: that of the thread with the nearest stack access in a line that
/// nobody else was seen in.
pub(super) struct StackOwners {
    /// Addresses and threads, sorted.
    private: Vec<(u64, i32)>,
}

impl StackOwners {
    pub(super) fn new(profile: &Profile) -> Self {
        let samples = || {
            let all = profile.windows.iter().flat_map(|w| &w.samples);
            all.map(|taken| &taken.sample)
                .filter(|s| s.memory == Memory::Stack)
        };
        let line = |s: &SampleRecord| s.address / u64::from(DEFAULT_LINE_BYTES);
        let shared: HashSet<u64> = samples()
            .filter(|s| touched_by_others(s))
            .map(line)
            .collect();
        let mut private: Vec<(u64, i32)> = samples()
            .filter(|s| !shared.contains(&line(s)))
            .map(|s| (s.address, s.tid))
            .collect();
        private.sort_unstable();
        private.dedup();
        Self { private }
    }

    /// The thread whose stack the sample touched; its own for anything else.
    pub(super) fn thread(&self, sample: &SampleRecord) -> i32 {
        if sample.memory != Memory::Stack || !touched_by_others(sample) {
            return sample.tid;
        }
        let after = self.private.partition_point(|p| p.0 < sample.address);
        let near = &self.private[after.saturating_sub(1)..self.private.len().min(after + 1)];
        near.iter()
            .min_by_key(|p| p.0.abs_diff(sample.address))
            .map_or(sample.tid, |p| p.1)
    }
}

fn touched_by_others(sample: &SampleRecord) -> bool {
    let shared = sample.shared.as_ref();
    shared.is_some_and(|shared| shared.remote[DEFAULT_LINE] != 0)
}

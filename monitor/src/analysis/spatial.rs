//! Spatial use: how much of a fetched line is used, per subject.
//!
//! Source: StatCache paper, section 5.2 (DESIGN 7.6): with `M_B` the misses at line size `B` and
//! `M_s` those at a smaller one, `use = (1 - M_B / M_s) / (1 - s / B)`. Misses are the ratio times
//! the line references of that size, since wide accesses make several references to small lines.

use std::collections::HashMap;

use statcache_model::{ModelError, Policy};

use super::subjects::Subjects;
use super::{Analysis, attribute};
use crate::profile::types::LINE_SIZES;

/// Misses of one subject below which its spatial use is not given (guessed: the ratio of two
/// counts of 30 is known to about a quarter).
const ENOUGH_MISSES: f64 = 30.0;

impl Analysis<'_> {
    /// Spatial use of every subject with enough misses at this cache, 0 (one small piece of every
    /// line) to 1 (all of it); `None` at the smallest line size, which has nothing to compare with.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn spatial_use(
        &self,
        subjects: &Subjects,
        cache_bytes: u64,
        line_bytes: u32,
        policy: Policy,
    ) -> Result<Option<HashMap<u32, f64>>, ModelError> {
        let small = LINE_SIZES[0];
        if line_bytes <= small {
            return Ok(None);
        }
        let at_large = self.misses(subjects, cache_bytes, line_bytes, policy)?;
        let at_small = self.misses(subjects, cache_bytes, small, policy)?;
        let mut result = HashMap::new();
        for (key, (large, sampled)) in at_large {
            let Some(&(small_misses, sampled_small)) = at_small.get(&key) else {
                continue;
            };
            if sampled.min(sampled_small) < ENOUGH_MISSES || small_misses <= 0.0 {
                continue;
            }
            let best = 1.0 - f64::from(small) / f64::from(line_bytes);
            result.insert(key, ((1.0 - large / small_misses) / best).clamp(0.0, 1.0));
        }
        Ok(Some(result))
    }

    /// Per subject its share of the run's accesses that are misses at this line size (misses per
    /// access of the run), and how many missing samples that rests on.
    fn misses(
        &self,
        subjects: &Subjects,
        cache_bytes: u64,
        line_bytes: u32,
        policy: Policy,
    ) -> Result<HashMap<u32, (f64, f64)>, ModelError> {
        let figures = attribute::attribute(
            &self.run,
            &self.windows,
            u64::from(line_bytes),
            cache_bytes,
            policy,
            |site| self.key(subjects, site),
        )?;
        let refs = self.refs_per_access(line_bytes);
        Ok(figures
            .keys
            .into_iter()
            .map(|k| {
                let misses = k.miss_share * figures.miss_ratio * refs;
                (k.key, (misses, k.miss_ratio * k.triggered as f64))
            })
            .collect())
    }
}

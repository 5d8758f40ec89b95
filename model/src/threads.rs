//! What threads do to each other's lines: private, shared, lost to a remote write, false sharing.
//!
//! In private caches a remote write between a thread's two touches of a line takes the line away:
//! a coherence miss whatever the distance. False sharing: those writes were to bytes that the
//! thread itself did not touch.

use std::collections::HashMap;
use std::hash::Hash;

use crate::attribute::wilson;
use crate::prepare::outcome;
use crate::run::Run;
use crate::{Cache, LineSize, ModelError, Outcome, Policy, Site, Stream};

/// Coherence misses below which no verdict is given.
pub(crate) const VERDICT_MISSES: u64 = 20;
/// Share of a key's reuses lost to remote writes from which they are worth a verdict.
const VERDICT_SHARE: f64 = 0.01;

/// Whether remote writes hit the bytes used here or only their neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Too few coherence misses to matter or to tell.
    NoVerdict,
    /// Most remote writes were to bytes used here.
    True,
    /// Most remote writes were to other bytes of the line: moving data apart would cure it.
    False,
    /// Both are likely, or the samples do not tell them apart.
    Mixed,
}

/// How the reuses triggered by one key fare in a private cache.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadUse<K> {
    /// The key.
    pub key: K,
    /// Reuses with thread information.
    pub reuses: u64,
    /// Share with no remote access in between.
    pub private: f64,
    /// Share with remote reads only.
    pub shared: f64,
    /// Share lost to a remote write: coherence misses per reuse.
    pub coherence: f64,
    /// 95 % interval of `coherence`.
    pub coherence_interval: (f64, f64),
    /// Misses of the private cache per reuse: coherence, or else by distance.
    pub private_miss_ratio: f64,
    /// Share of the coherence misses caused by writes to disjoint bytes.
    pub disjoint: f64,
    /// The verdict.
    pub sharing: Sharing,
}

#[derive(Default)]
struct Sums {
    count: u64,
    lost: u64,
    weight: f64,
    squares: f64,
    shared: f64,
    coherence: f64,
    disjoint: f64,
    misses: f64,
}

impl Run {
    /// Classifies the reuses of each key, in private caches of the size given, most coherence
    /// misses first. Samples without remote information are left out.
    ///
    /// # Errors
    /// As [`Run::curve`].
    pub fn threads<K, F>(
        &self,
        line_bytes: u64,
        cache_bytes: u64,
        policy: Policy,
        key_of: F,
    ) -> Result<Vec<ThreadUse<K>>, ModelError>
    where
        K: Clone + Eq + Hash + Ord,
        F: Fn(&Site) -> K,
    {
        let line = LineSize::from_bytes(line_bytes)?;
        let cache = Cache::new(cache_bytes, line, policy)?;
        let view = self.view(line, Stream::Own)?;
        let mut sums: HashMap<K, Sums> = HashMap::new();
        for (i, group) in view.groups.iter().enumerate() {
            let miss = view.probabilities(i, &cache);
            for (p, &miss) in group.placed.iter().zip(&miss.varying) {
                let stored = &self.windows[p.window as usize];
                let sample = &stored.samples[p.sample as usize];
                let (Outcome::Reused { trigger, .. }, Some(remote)) =
                    (outcome(sample, line, Stream::Own), &sample.remote)
                else {
                    continue;
                };
                let remote = remote[line.index()];
                let s = sums
                    .entry(key_of(&Site {
                        instr: trigger.instr,
                        data: sample.data,
                        thread: trigger.thread,
                        window: stored.index,
                    }))
                    .or_default();
                s.count += 1;
                s.weight += p.weight;
                s.squares += p.weight * p.weight;
                if remote.written {
                    s.lost += 1;
                    s.coherence += p.weight;
                    s.misses += p.weight;
                    if remote.disjoint {
                        s.disjoint += p.weight;
                    }
                } else {
                    s.misses += p.weight * miss;
                    if remote.read {
                        s.shared += p.weight;
                    }
                }
            }
        }
        let mut result: Vec<(f64, ThreadUse<K>)> = sums
            .into_iter()
            .filter(|(_, s)| s.weight > 0.0)
            .map(|(key, s)| (s.coherence, s.figures(key)))
            .collect();
        result.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.key.cmp(&b.1.key)));
        Ok(result.into_iter().map(|r| r.1).collect())
    }
}

impl Sums {
    fn figures<K>(&self, key: K) -> ThreadUse<K> {
        let share = |x: f64| (x / self.weight).clamp(0.0, 1.0);
        let coherence = share(self.coherence);
        let disjoint = if self.coherence > 0.0 {
            self.disjoint / self.coherence
        } else {
            0.0
        };
        ThreadUse {
            key,
            reuses: self.count,
            private: share(self.weight - self.coherence - self.shared),
            shared: share(self.shared),
            coherence,
            coherence_interval: wilson(coherence, self.weight * self.weight / self.squares),
            private_miss_ratio: share(self.misses),
            disjoint,
            sharing: verdict(coherence, disjoint, self.lost),
        }
    }
}

pub(crate) fn verdict(coherence: f64, disjoint: f64, lost: u64) -> Sharing {
    if lost < VERDICT_MISSES || coherence < VERDICT_SHARE {
        return Sharing::NoVerdict;
    }
    let (low, high) = wilson(disjoint, lost as f64);
    if low > 0.5 {
        Sharing::False
    } else if high < 0.5 {
        Sharing::True
    } else {
        Sharing::Mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_need_a_base() {
        assert_eq!(verdict(0.5, 1.0, 5), Sharing::NoVerdict);
        assert_eq!(verdict(0.001, 1.0, 500), Sharing::NoVerdict);
        assert_eq!(verdict(0.5, 1.0, 50), Sharing::False);
        assert_eq!(verdict(0.5, 0.0, 50), Sharing::True);
        assert_eq!(verdict(0.5, 0.5, 50), Sharing::Mixed);
    }
}

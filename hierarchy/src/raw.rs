//! Everything that was measured, in the form it was measured: the input of inference.

use crate::measure::Facts;
use crate::probe::{
    code, evict, footprint, inclusion, l1, latency, line, opcache, policy, prefetch, tlb, tlbways,
    unified, write,
};
use serde::{Deserialize, Serialize};

/// Which CPUs disturb each other at a footprint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Corun {
    /// The other CPU.
    pub cpu: usize,
    /// Level number, 1 for the first.
    pub level: u32,
    /// Bytes each side walked.
    pub bytes: u64,
    /// Cycles per load alone and with the other side walking, alternating.
    pub pairs: Vec<(f64, f64)>,
}

/// Misses per load that a hardware counter saw on both sides of a measured size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The level.
    pub what: String,
    /// At three quarters of the size.
    pub inside: f64,
    /// At twice the size.
    pub beyond: f64,
}

/// Architectural registers found by executing their encodings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterClass {
    /// Class name.
    pub name: String,
    /// Registers that could be written and kept distinct values; 0 when the encoding faulted.
    pub count: u32,
}

/// Raw samples of one session. A stored set can be given to [`crate::infer()`] again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawSamples {
    /// Schema of this structure.
    pub version: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// The backend's facts.
    pub facts: Facts,
    /// How long the session took, nanoseconds.
    pub elapsed_ns: u64,
    /// First-level geometry.
    pub l1: Vec<l1::Vote>,
    /// Line size.
    pub line: Vec<line::Vote>,
    /// Second-level line size.
    pub line2: Vec<line::Vote>,
    /// First-level replacement.
    pub policy: policy::Samples,
    /// Second-level ways.
    pub evict: Vec<evict::Vote>,
    /// Latencies.
    pub latency: latency::Samples,
    /// Translation.
    pub tlb: tlb::Samples,
    /// Latency over footprint.
    pub footprint: Vec<footprint::Point>,
    /// Repeated passes over large footprints.
    pub shared: Vec<footprint::Point>,
    /// Write policy.
    pub write: Vec<write::Vote>,
    /// Instruction side.
    pub code: Vec<code::Vote>,
    /// Ways of the first-level translation buffer.
    pub tlb_ways: Vec<tlbways::Vote>,
    /// Whether code and data share a level.
    pub unified: Vec<unified::Vote>,
    /// Whether the second level includes the first.
    pub inclusion: Vec<inclusion::Vote>,
    /// Decoded-instruction cache.
    pub op_cache: Vec<opcache::Vote>,
    /// Prefetching and parallelism.
    pub prefetch: prefetch::Samples,
    /// Registers.
    pub registers: Vec<RegisterClass>,
    /// Sharing between CPUs.
    pub corun: Vec<Corun>,
    /// Counters, where there are any.
    pub counters: Vec<Counted>,
    /// What could not be measured: (parameter, reason).
    pub failures: Vec<(String, String)>,
}

/// The schema this version writes.
pub const VERSION: u32 = 5;

impl RawSamples {
    /// An empty set.
    pub fn new(facts: Facts, seed: u64) -> Self {
        RawSamples {
            version: VERSION,
            seed,
            facts,
            elapsed_ns: 0,
            l1: Vec::new(),
            line: Vec::new(),
            line2: Vec::new(),
            policy: policy::Samples::default(),
            evict: Vec::new(),
            latency: latency::Samples::default(),
            tlb: tlb::Samples::default(),
            footprint: Vec::new(),
            shared: Vec::new(),
            write: Vec::new(),
            code: Vec::new(),
            tlb_ways: Vec::new(),
            unified: Vec::new(),
            inclusion: Vec::new(),
            op_cache: Vec::new(),
            prefetch: prefetch::Samples::default(),
            registers: Vec::new(),
            corun: Vec::new(),
            counters: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Replaces what is not a number by [`NEVER`]: JSON has no infinity, and a stored set must read back as it was.
    pub fn settle(&mut self) {
        let fix = |x: &mut f64| {
            if !x.is_finite() {
                *x = NEVER;
            }
        };
        for v in &mut self.l1 {
            [&mut v.hit, &mut v.gap].into_iter().for_each(fix);
            v.trials
                .iter_mut()
                .for_each(|t| [&mut t.same, &mut t.spread].into_iter().for_each(fix));
            v.dense.iter_mut().for_each(|d| fix(&mut d.1));
        }
        for v in self.line.iter_mut().chain(&mut self.line2) {
            fix(&mut v.conflict);
            v.shifts
                .iter_mut()
                .for_each(|s| [&mut s.1, &mut s.2].into_iter().for_each(fix));
            if let Some(s) = &mut v.settled {
                [&mut s.together, &mut s.apart, &mut s.fitting]
                    .into_iter()
                    .for_each(fix);
            }
        }
        for v in &mut self.evict {
            [&mut v.levels.0, &mut v.levels.1].into_iter().for_each(fix);
        }
        self.latency.l1.retain(|x| x.is_finite());
        self.latency
            .l2
            .retain(|x| x.1.is_finite() && x.2.is_finite());
        for v in &mut self.tlb.votes {
            [&mut v.hit, &mut v.cost].into_iter().for_each(fix);
            v.tries.iter_mut().for_each(|t| fix(&mut t.1));
            v.knee.iter_mut().for_each(|t| fix(&mut t.1));
            v.strides.iter_mut().for_each(|t| fix(&mut t.1));
        }
        for v in &mut self.write {
            [
                &mut v.loaded,
                &mut v.stored,
                &mut v.bypassed,
                &mut v.flushed,
                &mut v.clean,
                &mut v.dirty,
            ]
            .into_iter()
            .for_each(fix);
        }
        for v in &mut self.unified {
            [&mut v.control, &mut v.after, &mut v.gap]
                .into_iter()
                .for_each(fix);
        }
        for v in &mut self.inclusion {
            [&mut v.used, &mut v.unused, &mut v.hit]
                .into_iter()
                .for_each(fix);
        }
        for v in &mut self.code {
            v.curve.iter_mut().for_each(|c| fix(&mut c.2));
            v.shifts.iter_mut().for_each(|c| fix(&mut c.3));
            v.footprints.iter_mut().for_each(|c| fix(&mut c.1));
        }
    }
}

#[cfg(test)]
impl RawSamples {
    /// Of some machine, nothing measured.
    pub fn example() -> Self {
        let facts = Facts {
            ns_per_tick: 0.5,
            timer_step: 1.0,
            clock: 1.5,
            page_bytes: 4096,
            memory_bytes: 1 << 30,
            can_flush: true,
        };
        RawSamples::new(facts, 1)
    }
}

/// Stands for "no undisturbed window": slower than anything real, in cycles.
pub const NEVER: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_set_survives_json() -> Result<(), serde_json::Error> {
        let mut raw = RawSamples::example();
        raw.l1.push(l1::Vote {
            gap: f64::INFINITY,
            hit: f64::NAN,
            ..l1::Vote::default()
        });
        raw.latency.l1.push(f64::INFINITY);
        raw.line2.push(line::Vote {
            shifts: vec![(8, f64::INFINITY, 4.0)],
            conflict: 9.0,
            settled: Some(line::Settled {
                together: f64::INFINITY,
                apart: f64::NAN,
                fitting: 12.0,
            }),
        });
        raw.settle();
        let again: RawSamples = serde_json::from_str(&serde_json::to_string(&raw)?)?;
        assert_eq!(again, raw);
        assert_eq!(crate::infer(&again).levels[0].capacity.value, None);
        Ok(())
    }
}

//! Everything that was measured, in the form it was measured: the input of inference.

use crate::measure::Facts;
use crate::probe::{code, evict, footprint, l1, latency, line, policy, prefetch, tlb, write};
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
    /// Prefetching and parallelism.
    pub prefetch: prefetch::Samples,
    /// Registers.
    pub registers: Vec<RegisterClass>,
    /// Sharing between CPUs.
    pub corun: Vec<Corun>,
    /// What could not be measured: (parameter, reason).
    pub failures: Vec<(String, String)>,
}

/// The schema this version writes.
pub const VERSION: u32 = 1;

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
            policy: policy::Samples::default(),
            evict: Vec::new(),
            latency: latency::Samples::default(),
            tlb: tlb::Samples::default(),
            footprint: Vec::new(),
            shared: Vec::new(),
            write: Vec::new(),
            code: Vec::new(),
            prefetch: prefetch::Samples::default(),
            registers: Vec::new(),
            corun: Vec::new(),
            failures: Vec::new(),
        }
    }
}

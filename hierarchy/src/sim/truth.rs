//! What a simulated machine is made of, and the world around it.

use super::cache::Shape;
use serde::{Deserialize, Serialize};

/// A translation buffer: fully associative when `ways` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tlb {
    /// Number of translations held.
    pub entries: u64,
    /// Associativity, 0 for full.
    pub ways: u32,
    /// Cycles that a miss here adds.
    pub miss_cycles: f64,
}

/// Prefetchers of the simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Prefetch {
    /// A second-level fill brings the other half of its 128-byte pair.
    pub pair: bool,
    /// Two equal strides in a row fetch the next line of the stream into the first level.
    pub stride: bool,
}

/// The world around the machine. Times in nanoseconds of simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Mean time between bursts; a burst lasts a twentieth of it. 0 for none.
    pub burst_every: f64,
    /// Mean time between context switches; 0 for none.
    pub switch_every: f64,
    /// Share of the switches that the guest cannot see.
    pub hidden_switches: f64,
    /// Core clock wanders within this share.
    pub drift: f64,
    /// Timer step in ticks.
    pub timer_step: f64,
}

/// The truth about a simulated machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Data cache levels from the core outwards.
    pub levels: Vec<Shape>,
    /// Memory latency in cycles.
    pub memory: f64,
    /// First- and second-level data translation buffers.
    pub tlbs: Vec<Tlb>,
    /// A store that misses brings the line in.
    pub write_allocate: bool,
    /// Stored lines stay until they are thrown out; otherwise every store goes through to memory.
    pub write_back: bool,
    /// The first-level instruction cache.
    pub code: Shape,
    /// The first-level instruction translation buffer.
    pub code_tlb: Tlb,
    /// Jumps to other pages that the predictor knows at full speed; beyond them each takes longer.
    pub far_jumps: u64,
    /// Prefetchers.
    pub prefetch: Prefetch,
    /// Noise.
    pub noise: Noise,
    /// Seed of the page mapping and of everything random.
    pub seed: u64,
}

//! How much is measured.

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Time for everything, nanoseconds.
    pub budget_ns: u64,
    /// How many times as long it may take where others have the processor meanwhile; at least 1.
    pub stretch: f64,
    /// How many times as long it may take where the first levels are undecided after that time, or the second one's sets are not counted;
    /// at least 1.
    pub patience: f64,
    /// Processor time that the report will take, nanoseconds: where others have the processor it takes longer, and
    /// measuring ends so much earlier. 0 where nobody was promised an end.
    pub after_ns: u64,
    /// Votes per parameter after which an undecided one is left.
    pub votes: usize,
    /// Second-level votes.
    pub evict_votes: usize,
    /// Time for one of them, nanoseconds.
    pub evict_ns: u64,
    /// Pages from which second-level sets may be drawn.
    pub pool_pages: u64,
    /// Largest footprint of the curve, bytes.
    pub footprint: u64,
    /// Points per octave of the curve.
    pub per_octave: u32,
    /// Passes over the curve up to 4 MiB.
    pub passes: u32,
    /// Largest footprint of the repeated passes for the last level, bytes.
    pub shared: u64,
    /// Pages in the translation sweep.
    pub tlb_pages: u64,
    /// Measure the instruction side.
    pub code: bool,
    /// Least time between two votes of a parameter, nanoseconds.
    pub gap_ns: u64,
}

impl Plan {
    /// Whether there is little time for anything.
    pub fn is_short(&self) -> bool {
        self.budget_ns < 3_000_000_000
    }

    /// About 2 seconds, which leaves a loaded host a second to end what it began.
    pub const QUICK: Plan = Plan {
        budget_ns: 1_800_000_000,
        stretch: 1.0,
        patience: 1.0,
        after_ns: 400_000_000,
        votes: 5,
        evict_votes: 3,
        evict_ns: 400_000_000,
        pool_pages: 4096,
        footprint: 16 << 20,
        per_octave: 3,
        passes: 1,
        shared: 0,
        tlb_pages: 0,
        code: false,
        gap_ns: 20_000_000,
    };
    /// About 12 seconds, up to twice that where disturbances leave those undecided, and up to 2.5 times
    /// where others have the processor most of the time.
    pub const STANDARD: Plan = Plan {
        budget_ns: 12_000_000_000,
        stretch: 2.5,
        patience: 2.0,
        after_ns: 0,
        votes: 9,
        evict_votes: 4,
        evict_ns: 1_200_000_000,
        pool_pages: 8192,
        footprint: 128 << 20,
        per_octave: 6,
        passes: 3,
        shared: 64 << 20,
        tlb_pages: 8192,
        code: true,
        gap_ns: 50_000_000,
    };
    /// Up to 55 seconds.
    pub const FULL: Plan = Plan {
        budget_ns: 50_000_000_000,
        stretch: 1.0,
        patience: 1.0,
        after_ns: 800_000_000,
        votes: 25,
        evict_votes: 9,
        evict_ns: 1_500_000_000,
        pool_pages: 16384,
        footprint: 256 << 20,
        per_octave: 6,
        passes: 4,
        shared: 64 << 20,
        tlb_pages: 16384,
        code: true,
        gap_ns: 100_000_000,
    };
}

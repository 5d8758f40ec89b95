//! How often a run observed as a whole is sampled: by its length, and by how many instructions its accesses are spread over.

use crate::profile::types::InstrId;
use rustc_hash::FxHashMap;

/// One 64-byte reference in this many is sampled at the beginning of an observed run.
pub const FULL_PERIOD: u64 = 150;
/// Later one in (accesses so far / this): samples grow with the logarithm of the run.
const SAMPLES_PER_E_FOLD: f64 = 50_000.0;
/// So many times as many more, at the beginning, of a program whose accesses are spread over [`MANY`] instructions, and half of
/// that after these accesses: to tell which of them miss takes more samples than to tell how often all do.
const MORE_AT_FIRST: f64 = 4.0;
const FIRST_ACCESSES: f64 = 0.2e9;
/// Samples that make an instruction one of those, and how many it takes: a kernel has few, beside those that every program starts with.
const OFTEN: u8 = 20;
const MANY: f64 = 250.0;

/// Over how many instructions samples are spread.
#[derive(Debug, Default)]
pub struct Spread {
    samples: FxHashMap<InstrId, u8>,
    /// Instructions with [`OFTEN`] samples.
    often: u32,
}

impl Spread {
    /// Samples of these instructions were taken.
    pub fn sampled(&mut self, instructions: impl Iterator<Item = InstrId>) {
        for instruction in instructions {
            let count = self.samples.entry(instruction).or_default();
            if *count < OFTEN {
                *count += 1;
                self.often += u32::from(*count == OFTEN);
            }
        }
    }

    /// One in how many references is sampled after so many accesses.
    pub fn period(&self, accesses: u64) -> u64 {
        let accesses = accesses as f64;
        let many = (f64::from(self.often) / MANY).min(1.0);
        let more = many * MORE_AT_FIRST / (1.0 + accesses / FIRST_ACCESSES);
        FULL_PERIOD.max((accesses / (SAMPLES_PER_E_FOLD * (1.0 + more))) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_instructions_are_sampled_more_often_at_first() {
        let mut kernel = Spread::default();
        // A loop of eight, and what is executed once.
        kernel.sampled((0..20_000).map(|n| n % 8));
        kernel.sampled(100..5_000);
        let mut large = Spread::default();
        large.sampled((0..20_000).map(|n| n % 800));
        let periods = |accesses| (kernel.period(accesses), large.period(accesses));
        assert_eq!(periods(1_000_000), (FULL_PERIOD, FULL_PERIOD));
        let (few, many) = periods(200_000_000);
        assert!(few > 3_000 && many < 1_400, "{few} {many}");
        // Of a long run as many, nearly.
        let (few, many) = periods(100_000_000_000);
        assert!(few <= 2_000_000 && many > 1_900_000, "{few} {many}");
    }
}

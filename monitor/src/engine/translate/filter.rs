//! The filter of watched lines that translated code looks into: one byte for every class of addresses,
//! the number of watched lines that an access there may touch.
//!
//! Translated code looks up the first byte of up to [`GROUP_BYTES`] bytes only, so that a watched line
//! is entered under the line before it too. No line is ever missed; a class shared with other lines
//! costs records that need not have been kept.

use super::group::GROUP_BYTES;
use super::layout::{FILTER, FILTER_BITS, state};
use super::memory::Shared;
use crate::observe::{CLASS_BITS, Mark};

/// log2 of the lines that lie side by side in the filter.
const LOW_BITS: u32 = 16;
/// Bits of the address from elsewhere.
const HIGH_BITS: u32 = FILTER_BITS - LOW_BITS;
/// log2 of the bytes of a line.
const LINE_SHIFT: u32 = 6;
/// Where those bits may be taken from.
const HIGH_SHIFTS: std::ops::Range<u32> = LINE_SHIFT + LOW_BITS..36;

/// Places remembered to be set to zero one by one.
const MOST_TOUCHED: usize = 1 << 16;

/// Where the filter has a line.
#[derive(Clone, Debug)]
pub struct TargetFilter {
    /// Whether the processor has a fast `pext`; without, bits 8 to 23 of the address choose.
    wide: bool,
    high_shift: u32,
    /// Places that may not be zero; more than [`MOST_TOUCHED`]: any.
    touched: Vec<u32>,
    /// Places entered for drawn lines, a bit each, and those entered for the line behind; empty before the first.
    marked: Vec<u64>,
    before: Vec<u64>,
}

impl TargetFilter {
    /// A filter without lines.
    pub fn new(wide: bool) -> TargetFilter {
        TargetFilter {
            wide,
            high_shift: HIGH_SHIFTS.start,
            touched: Vec::new(),
            marked: Vec::new(),
            before: Vec::new(),
        }
    }

    fn mask(&self) -> u64 {
        ((1 << LOW_BITS) - 1) << LINE_SHIFT | ((1 << HIGH_BITS) - 1) << self.high_shift
    }

    fn place(&self, address: u64) -> u64 {
        if self.wide {
            (address >> LINE_SHIFT & ((1 << LOW_BITS) - 1))
                | (address >> self.high_shift & ((1 << HIGH_BITS) - 1)) << LOW_BITS
        } else {
            address >> 8 & 0xffff
        }
    }

    /// Empties the filter at `gs` in `data` and enters `lines`.
    pub fn fill(&mut self, data: &mut Shared, gs: u64, lines: impl Iterator<Item = u64>) {
        data.write_word(gs + state::MASK as u64, self.mask());
        if self.touched.len() > MOST_TOUCHED {
            data.zero(gs + FILTER as u64, 1 << FILTER_BITS);
        } else {
            for place in &self.touched {
                data.write(gs + FILTER as u64 + u64::from(*place), &[0]);
            }
        }
        self.touched.clear();
        self.marked.fill(0);
        self.before.fill(0);
        for line in lines {
            self.change(data, gs, line, true);
        }
    }

    /// Enters a line or takes one away.
    pub fn change(&mut self, data: &mut Shared, gs: u64, line: u64, watched: bool) {
        let address = line << LINE_SHIFT;
        for address in [address, address.wrapping_sub(GROUP_BYTES)] {
            self.count(data, gs, self.place(address), watched);
        }
    }

    /// Follows what of drawn lines is to be looked at.
    pub fn mark(&mut self, data: &mut Shared, gs: u64, mark: Mark) {
        if self.marked.is_empty() {
            let words = (1 << FILTER_BITS) / 64;
            (self.marked, self.before) = (vec![0; words], vec![0; words]);
        }
        let (class, drawn) = match mark {
            Mark::Lines(class, drawn) | Mark::Before(class, drawn) => (class, drawn),
        };
        // Bits of the line's number that choose the place and are not the class's.
        let low = self.high_shift - LINE_SHIFT;
        let (low, end) = match self.wide {
            true => (low.max(CLASS_BITS), low + HIGH_BITS),
            false => (CLASS_BITS, CLASS_BITS),
        };
        for high in 0..1u64 << (end - low) {
            let line = u64::from(class) | high << low;
            let place = self.place(line << LINE_SHIFT);
            // The bytes of a group that begins in the line before have the same high bits.
            let (marked, place) = match mark {
                Mark::Lines(..) => (&mut self.marked, place),
                Mark::Before(..) => (&mut self.before, place - 1),
            };
            let (word, bit) = (&mut marked[place as usize / 64], 1u64 << (place % 64));
            if (*word & bit != 0) != drawn {
                *word ^= bit;
                self.count(data, gs, place, drawn);
            }
        }
    }

    fn count(&mut self, data: &mut Shared, gs: u64, place: u64, more: bool) {
        let at = gs + FILTER as u64 + place;
        let count = data.byte(at);
        if count == 0 && self.touched.len() <= MOST_TOUCHED {
            self.touched.push(place as u32);
        }
        // A count that has reached its limit stays there.
        let count = match (more, count) {
            (_, u8::MAX) => u8::MAX,
            (true, n) => n + 1,
            (false, n) => n.saturating_sub(1),
        };
        data.write(at, &[count]);
    }

    /// Whether this processor has a `pext` that is faster than what replaces it. AMD's first
    /// processors with the instruction interpret it (Software Optimization Guide for family 17h, table
    /// of instruction latencies: 18 cycles and more; 19h: 3).
    pub fn fast_extract() -> bool {
        use std::arch::x86_64::__cpuid;
        let vendor = __cpuid(0);
        let amd = vendor.ebx == u32::from_le_bytes(*b"Auth");
        let signature = __cpuid(1).eax;
        let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
        is_x86_feature_detected!("bmi2") && !(amd && family < 0x19)
    }

    /// Chooses other bits.
    pub fn rehash(&mut self) {
        self.high_shift += 1;
        if !HIGH_SHIFTS.contains(&self.high_shift) {
            self.high_shift = HIGH_SHIFTS.start;
        }
    }
}

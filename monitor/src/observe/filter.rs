//! A table that says quickly that a 64-byte line is not watched.

/// Entries of the table; one byte each, so that it stays inside a second-level cache while only
/// the entries of lines in use are touched.
const BITS: u32 = 20;
const MASK: u64 = (1 << BITS) - 1;
/// log2 of the lines of a neighbourhood: 1 MiB of memory.
const NEIGHBOURS: u32 = 14;

/// Counting filter over line numbers: no false negatives, few false positives.
#[derive(Debug)]
pub struct LineFilter {
    counts: Box<[u8; 1 << BITS]>,
    multiplier: u64,
}

impl LineFilter {
    /// An empty filter; `seed` places the lines.
    pub fn new(seed: u64) -> LineFilter {
        let counts = vec![0u8; 1 << BITS].into_boxed_slice();
        let counts = counts
            .try_into()
            .unwrap_or_else(|_| unreachable!("length is as declared"));
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4) with a seeded multiplier.
        let multiplier = (0x9e37_79b9_7f4a_7c15 ^ (seed << 1)) | 1;
        LineFilter { counts, multiplier }
    }

    /// Lines of one neighbourhood lie side by side, so that the table is no more scattered than the
    /// program's own accesses; neighbourhoods are placed by a hash.
    #[inline(always)]
    fn slot(&self, line: u64) -> usize {
        let place = (line >> NEIGHBOURS).wrapping_mul(self.multiplier) >> 40;
        (line.wrapping_add(place << 6) & MASK) as usize
    }

    /// Whether `line` may be in the set; certainly not when false.
    #[inline(always)]
    pub fn may_hold(&self, line: u64) -> bool {
        self.counts[self.slot(line)] != 0
    }

    /// Whether any line of the bytes `first..=first + extent` may be in the set; `extent` is less
    /// than a line.
    #[inline(always)]
    pub fn may_hold_bytes(&self, first: u64, extent: u64) -> bool {
        let last = first.wrapping_add(extent);
        self.counts[self.slot(first >> 6)] | self.counts[self.slot(last >> 6)] != 0
    }

    /// Adds `line`. A count that reaches its limit stays there: false hits, never a miss.
    pub fn add(&mut self, line: u64) {
        let count = &mut self.counts[self.slot(line)];
        *count = count.saturating_add(1);
    }

    /// Removes `line`, which was added before.
    pub fn remove(&mut self, line: u64) {
        let count = &mut self.counts[self.slot(line)];
        if *count != u8::MAX {
            *count -= 1;
        }
    }
}

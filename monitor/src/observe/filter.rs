//! A table that says quickly that a 64-byte line is not watched.

use rand::Rng;
use rand::rngs::SmallRng;

/// Entries of the table; one byte each, so that it stays inside a second-level cache while only
/// the entries of lines in use are touched.
pub(super) const BITS: u32 = 20;
const MASK: u64 = (1 << BITS) - 1;
/// log2 of the lines of a neighbourhood: 1 MiB of memory.
const NEIGHBOURS: u32 = 14;

/// Bit of an entry that is marked, above the count.
const MARK: u8 = 0x80;
const MOST: u8 = MARK - 1;
/// One entry in so many is marked.
pub(super) const MARKED_ONE_IN: u32 = 32;
/// Entries that are marked.
pub(super) const MARKED: u32 = (1 << BITS) / MARKED_ONE_IN;

/// Counting filter over line numbers: no false negatives, few false positives.
#[derive(Debug)]
pub struct LineFilter {
    counts: Box<[u8; 1 << BITS]>,
    multiplier: u64,
    /// Marks by the low bits of a line's number, where the table does not place lines in that order.
    apart: Option<Box<Marks>>,
}

/// A bit for each line of the lowest numbers.
type Marks = [u64; 1 << (BITS - 6)];

/// Word and bit of a line's mark.
#[inline(always)]
fn bit_of(line: u64) -> (usize, u64) {
    ((line & MASK) as usize / 64, 1 << (line % 64))
}

impl LineFilter {
    /// An empty filter; `seed` places the lines.
    pub fn new(seed: u64) -> LineFilter {
        let counts = vec![0u8; 1 << BITS].into_boxed_slice();
        let counts = counts
            .try_into()
            .unwrap_or_else(|_| unreachable!("length is as declared"));
        let mut filter = LineFilter {
            counts,
            multiplier: 0,
            apart: None,
        };
        filter.place(seed);
        filter
    }

    /// Places the lines anew, of an empty filter.
    pub(super) fn place(&mut self, seed: u64) {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4) with a seeded multiplier.
        self.multiplier = (0x9e37_79b9_7f4a_7c15 ^ (seed << 1)) | 1;
    }

    /// Places every line by its number alone, in an empty filter.
    pub(super) fn place_in_order(&mut self) {
        self.multiplier = 0;
    }

    /// Lines of one neighbourhood lie side by side, so that the table is no more scattered than the
    /// program's own accesses; neighbourhoods are placed by a hash.
    #[inline(always)]
    fn slot(&self, line: u64) -> usize {
        let place = (line >> NEIGHBOURS).wrapping_mul(self.multiplier) >> 40;
        (line.wrapping_add(place << 6) & MASK) as usize
    }

    /// Whether two lines have one entry.
    pub(super) fn share(&self, line: u64, other: u64) -> bool {
        self.slot(line) == self.slot(other)
    }

    /// Whether `line` may be in the set, or its entry is marked; certainly neither when false.
    #[inline(always)]
    pub fn may_hold(&self, line: u64) -> bool {
        self.counts[self.slot(line)] != 0 || self.is_marked_apart(line)
    }

    /// Whether `line` may be in the set.
    pub(super) fn may_be_watched(&self, line: u64) -> bool {
        self.counts[self.slot(line)] & MOST != 0
    }

    #[inline(always)]
    fn is_marked_apart(&self, line: u64) -> bool {
        let (word, bit) = bit_of(line);
        self.apart
            .as_ref()
            .is_some_and(|marks| marks[word] & bit != 0)
    }

    /// Whether any line of the bytes `first..=first + extent` may be in the set; `extent` is less
    /// than a line.
    #[inline(always)]
    pub fn may_hold_bytes(&self, first: u64, extent: u64) -> bool {
        let last = first.wrapping_add(extent);
        let slot = self.slot(first >> 6);
        let beside = match (first ^ last) >> (6 + NEIGHBOURS) {
            0 => (slot + ((last >> 6) - (first >> 6)) as usize) & MASK as usize,
            _ => self.slot(last >> 6),
        };
        self.counts[slot] | self.counts[beside] != 0
            || self.apart.is_some()
                && (self.is_marked_apart(first >> 6) || self.is_marked_apart(last >> 6))
    }

    /// Adds `line`. A count that reaches its limit stays there: false hits, never a miss.
    pub fn add(&mut self, line: u64) {
        let entry = &mut self.counts[self.slot(line)];
        if *entry & MOST != MOST {
            *entry += 1;
        }
    }

    /// Removes `line`, which was added before.
    pub fn remove(&mut self, line: u64) {
        let entry = &mut self.counts[self.slot(line)];
        if *entry & MOST != MOST {
            *entry -= 1;
        }
    }

    /// Marks one entry in [`MARKED_ONE_IN`], drawn at random, so that the first touch of its line is looked at. (Two lines in use seldom
    /// share an entry: the first touch of the second would pass unseen.)
    pub(super) fn mark(&mut self, random: &mut SmallRng) {
        let each = MARKED_ONE_IN as usize;
        for entries in self.counts.chunks_exact_mut(8 * each) {
            // Eight draws of a byte each.
            let draws: u64 = random.random();
            for (entries, draw) in entries.chunks_exact_mut(each).zip(draws.to_le_bytes()) {
                entries[usize::from(draw) % each] |= MARK;
            }
        }
    }

    /// Whether the entry of `line` is marked.
    pub(super) fn is_marked(&self, line: u64) -> bool {
        self.counts[self.slot(line)] & MARK != 0 || self.is_marked_apart(line)
    }

    /// Marks the entry of `line`.
    pub(super) fn mark_line(&mut self, line: u64) {
        let ((word, bit), slot) = (bit_of(line), self.slot(line));
        match &mut self.apart {
            Some(marks) => marks[word] |= bit,
            None => self.counts[slot] |= MARK,
        }
    }

    /// Takes that mark.
    pub(super) fn unmark(&mut self, line: u64) {
        let ((word, bit), slot) = (bit_of(line), self.slot(line));
        match &mut self.apart {
            Some(marks) => marks[word] &= !bit,
            None => self.counts[slot] &= MOST,
        }
    }

    /// An empty filter that places lines elsewhere; marks made in order stay.
    pub(super) fn elsewhere(&mut self, seed: u64) -> LineFilter {
        let mut new = LineFilter::new(seed);
        new.apart = self.apart.take();
        if self.counts.iter().any(|entry| entry & MARK != 0) {
            let mut marks: Box<Marks> = Box::new([0; 1 << (BITS - 6)]);
            for (word, entries) in marks.iter_mut().zip(self.counts.chunks_exact(64)) {
                let bits = entries.iter().rev();
                *word = bits.fold(0, |word, entry| word << 1 | u64::from(entry >> 7));
            }
            new.apart = Some(marks);
        }
        new
    }

    /// Takes all marks.
    pub(super) fn unmark_all(&mut self) {
        self.apart = None;
        for entry in self.counts.iter_mut() {
            *entry &= MOST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines side by side have their entries side by side, but for the last one of a neighbourhood and the next one.
    #[test]
    fn bytes_of_either_line_are_held() {
        let boundary = 0x7fff_1230_0000u64;
        for seed in 0..50 {
            for first_line in [boundary - 64, boundary, boundary + 64 * 77] {
                for held in [first_line, first_line + 64] {
                    let mut filter = LineFilter::new(seed << 40);
                    filter.add(held >> 6);
                    // From the last byte of the first line into the second one, and within each.
                    assert!(filter.may_hold_bytes(first_line + 63, 40));
                    assert_eq!(filter.may_hold_bytes(first_line, 63), held == first_line);
                    let second = filter.may_hold_bytes(first_line + 64, 63);
                    assert_eq!(second, held != first_line);
                }
            }
        }
    }
}

//! A simulated translation buffer: sets, least recently used out.
//!
//! It knows pages, not addresses, and no costs.

use super::Tlb;
use std::collections::HashMap;

/// Translations held, least recently used out; a hash finds them and a list per set orders them, so that a
/// large buffer costs no more than a small one.
pub(super) struct Translations {
    sets: u64,
    /// Slot to page, and its neighbours in the set's ring from newest to oldest.
    slots: Vec<(u64, u32, u32)>,
    /// Newest slot of each set; the oldest is before it in the ring.
    newest: Vec<u32>,
    found: HashMap<u64, u32, std::hash::BuildHasherDefault<PageHash>>,
    last: u64,
}

/// Hashes a page number by multiplication.
#[derive(Default)]
struct PageHash(u64);

impl std::hash::Hasher for PageHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        let x = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = x ^ x >> 32;
    }
}

impl Translations {
    pub(super) fn new(t: Tlb) -> Self {
        let ways = if t.ways == 0 {
            t.entries
        } else {
            u64::from(t.ways)
        } as u32;
        let sets = t.entries / u64::from(ways);
        let ring = |s: u32, w: u32| {
            (
                u64::MAX,
                s * ways + (w + ways - 1) % ways,
                s * ways + (w + 1) % ways,
            )
        };
        Translations {
            sets,
            slots: (0..sets as u32)
                .flat_map(|s| (0..ways).map(move |w| ring(s, w)))
                .collect(),
            newest: (0..sets as u32).map(|s| s * ways).collect(),
            found: HashMap::default(),
            last: u64::MAX,
        }
    }

    /// Looks a page up and brings it in; true when it was there.
    pub(super) fn touch(&mut self, page: u64) -> bool {
        if page == self.last {
            return true;
        }
        self.last = page;
        let set = (page % self.sets) as usize;
        let newest = self.newest[set];
        let oldest = self.slots[newest as usize].1;
        if let Some(&slot) = self.found.get(&page) {
            if slot != newest && slot != oldest {
                let (_, before, after) = self.slots[slot as usize];
                self.slots[before as usize].2 = after;
                self.slots[after as usize].1 = before;
                self.slots[slot as usize] = (page, oldest, newest);
                self.slots[oldest as usize].2 = slot;
                self.slots[newest as usize].1 = slot;
            }
            self.newest[set] = slot;
            return true;
        }
        // The oldest's place in the ring is just before the newest: it becomes the newest by being called so.
        self.found.remove(&self.slots[oldest as usize].0);
        self.found.insert(page, oldest);
        self.slots[oldest as usize].0 = page;
        self.newest[set] = oldest;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_leave_in_the_order_of_their_last_use() {
        let mut t = Translations::new(Tlb {
            entries: 3,
            ways: 0,
            miss_cycles: 1.0,
        });
        let hits: Vec<bool> = [1, 2, 3, 1, 4, 2, 1, 3]
            .iter()
            .map(|&p| t.touch(p))
            .collect();
        // 4 throws out 2, 2 throws out 3, 1 is still there, 3 is not.
        assert_eq!(hits, [false, false, false, true, false, false, true, false]);
    }
}

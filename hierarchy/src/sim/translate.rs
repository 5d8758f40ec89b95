//! A simulated translation buffer: sets, least recently used out.
//!
//! It knows pages, not addresses, and no costs.

use super::Tlb;

/// Translations held, least recently used out; a table by page finds them and a list per set orders them, so
/// that a large buffer costs no more than a small one.
pub(super) struct Translations {
    sets: u32,
    /// Slot to page, and its neighbours in the set's ring from newest to oldest.
    slots: Vec<(u64, u32, u32)>,
    /// Newest slot of each set; the oldest is before it in the ring.
    newest: Vec<u32>,
    /// Slot plus one by page, 0 for pages not held.
    found: Vec<u32>,
    last: u64,
}

impl Translations {
    pub(super) fn new(t: Tlb) -> Self {
        let ways = if t.ways == 0 {
            t.entries
        } else {
            u64::from(t.ways)
        } as u32;
        let sets = (t.entries / u64::from(ways)) as u32;
        let ring = |s: u32, w: u32| {
            (
                u64::MAX,
                s * ways + (w + ways - 1) % ways,
                s * ways + (w + 1) % ways,
            )
        };
        Translations {
            sets,
            slots: (0..sets)
                .flat_map(|s| (0..ways).map(move |w| ring(s, w)))
                .collect(),
            newest: (0..sets).map(|s| s * ways).collect(),
            found: Vec::new(),
            last: u64::MAX,
        }
    }

    /// Looks a page up and brings it in; true when it was there.
    pub(super) fn touch(&mut self, page: u64) -> bool {
        if page == self.last {
            return true;
        }
        self.last = page;
        let set = (page as u32 % self.sets) as usize;
        let newest = self.newest[set];
        let oldest = self.slots[newest as usize].1;
        let at = page as usize;
        if at >= self.found.len() {
            self.found.resize((at + 1).next_power_of_two(), 0);
        }
        if let Some(slot) = self.found[at].checked_sub(1) {
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
        let old = self.slots[oldest as usize].0;
        if old != u64::MAX {
            self.found[old as usize] = 0;
        }
        self.found[at] = oldest + 1;
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

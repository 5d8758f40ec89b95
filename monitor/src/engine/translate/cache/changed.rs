//! Fragments of code that has changed, or may no longer be executed.

use super::super::fragment::FragmentId;
use super::CodeCache;
use std::ops::Range;

/// Times that the code at an address is translated anew in a window because it has changed; the next time the window
/// ends there.
const MOST_REPLACED: u32 = 64;
/// Most fragments of code that has changed that are gone through one after the other.
const LONGEST_CHAIN: usize = 4;

impl CodeCache {
    /// The fragment that leaves by `exit` has found that the program's code is not what it was made of: what is
    /// there now gets a fragment when it is next asked for, to which that exit will lead. False where that has
    /// been so too often in this window.
    pub fn replace(&mut self, exit: u32) -> bool {
        let Some(id) = self.tables.exit(exit).map(|e| e.fragment) else {
            return true;
        };
        let fragment = &self.fragments[id as usize];
        let ip = fragment.ip;
        if let Some(&now) = self.by_ip.get(&ip).filter(|now| **now != id) {
            self.link(exit, now);
            return true;
        }
        if fragment.skips_exit().is_some() {
            let times = self.replaced.entry(ip).or_default();
            *times += 1;
            if *times > MOST_REPLACED {
                return false;
            }
        }
        self.by_ip.remove(&ip);
        self.left.entry(ip).or_default().push(exit);
        true
    }

    /// A window begins: what changed too often in the one before may have come to rest.
    pub fn begin_window(&mut self) {
        self.replaced.clear();
    }

    /// Makes all fragments of changing code in these ranges leave at their next entry: it may not be executed any more.
    pub fn invalidate(&mut self, ranges: &[Range<u64>]) {
        let fragments = &mut self.fragments;
        let (arenas, by_ip) = (&mut self.arenas, &mut self.by_ip);
        self.comparing.retain(|&id| {
            let fragment = &mut fragments[id as usize];
            let meets = |r: &Range<u64>| {
                let gone = |lost: &Range<u64>| lost.start < r.end && r.start < lost.end;
                ranges.iter().any(gone)
            };
            let changing = fragment.changing.as_mut();
            let Some(changing) = changing.filter(|c| c.compared.iter().any(meets)) else {
                return true;
            };
            let skip = changing.skips_exit.take();
            let arena = skip.and_then(|skip| arenas.iter_mut().find(|a| a.contains(skip)));
            if let (Some(skip), Some(arena)) = (skip, arena) {
                arena.memory.write(skip, &[0]);
            }
            if by_ip.get(&fragment.ip) == Some(&id) {
                by_ip.remove(&fragment.ip);
            }
            false
        });
    }

    /// Leads the exits of what was at `ip` before to fragment `id`, which is of what is there now.
    pub(super) fn relink_changed(&mut self, ip: u64, id: FragmentId) {
        // The last one leads here. Some may lead to each other, as there is code that goes back and forth; many would
        // be a long way.
        let left = self.left.get(&ip).map_or(&[][..], Vec::as_slice);
        let first = match left.len() <= LONGEST_CHAIN {
            true => left.len().saturating_sub(1),
            false => 0,
        };
        let relinked: Vec<u32> = left[first..].into();
        for exit in relinked {
            self.link(exit, id);
        }
    }
}

//! Which block lies where: see `statcache_abi::heap` for the layout.
//!
//! Unsafe invariant: a chunk's `shadow` above 1 is a mapping of ours of `WORDS` words that is never unmapped.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use statcache_abi::heap::{
    CHUNK, CHUNKS, Chunk, GRANULE, LARGE, LARGES, Large, PROBES, WORDS, Word, entry, slot,
};

use crate::raw::syscall;

pub(super) static DIRECTORY: [Chunk; CHUNKS] = [const { Chunk::NONE }; CHUNKS];
pub(super) static LIST: [Large; LARGES] = [const { Large::NONE }; LARGES];
/// Large blocks noted so far.
static NOTED: AtomicU64 = AtomicU64::new(0);
/// A chunk for whose shadow there is no memory.
const REFUSED: u64 = 1;
const PAGE: u64 = 4096;

/// A block of `bytes` has come to lie at `block`.
pub(super) fn came(block: u64, bytes: u64, site: u32) {
    let Some(word) = word_of(block, true) else {
        return;
    };
    let noted = match bytes < LARGE {
        true => entry::small(bytes, site),
        false => entry::large(listed(block, bytes, site)),
    };
    // What was said to begin there does so no more, or another allocator cuts it up.
    retire(block, word.load(Relaxed));
    word.store(noted, Relaxed);
}

/// Puts a large block into the list, and says in which place.
fn listed(start: u64, bytes: u64, site: u32) -> u32 {
    let number = NOTED.fetch_add(1, Relaxed);
    let order = 2 * number + 1;
    for look in 0..LARGES as u64 {
        let place = (number + look) % LARGES as u64;
        let large = &LIST[place as usize];
        let was = large.order.load(Relaxed);
        let free = was & 1 == 0;
        if free
            && large
                .order
                .compare_exchange(was, order, Acquire, Relaxed)
                .is_ok()
        {
            fill(large, start, bytes, site);
            // The next one need not look at these again.
            NOTED.fetch_add(look, Relaxed);
            return place as u32;
        }
    }
    // All live: the one that is taken is told as what it lies in, if anything.
    let place = number % LARGES as u64;
    let large = &LIST[place as usize];
    large.order.store(order, Relaxed);
    fill(large, start, bytes, site);
    place as u32
}

fn fill(large: &Large, start: u64, bytes: u64, site: u32) {
    large.bytes.store(bytes, Relaxed);
    large.site.store(u64::from(site), Relaxed);
    large.start.store(start, Release);
}

/// The large block that `word` says begins at `block`, unless its place has been given to another.
fn large(block: u64, word: u32) -> Option<&'static Large> {
    let large = LIST.get(entry::place(word)? as usize)?;
    (large.start.load(Relaxed) == block).then_some(large)
}

/// The large block that `word` says begins at `block` lives no more.
fn retire(block: u64, word: u32) {
    if let Some(large) = large(block, word) {
        large.order.fetch_and(!1, Relaxed);
    }
}

/// These bytes have been unmapped, or are about to be: all of what was mapped there, a part of it or several.
pub(super) fn unmapped(start: u64, bytes: u64) {
    let word = held(start);
    let whole = match large(start, word) {
        Some(large) => large.bytes.load(Relaxed) == bytes,
        None => entry::lives(word) && u64::from(entry::granules(word)) * GRANULE == bytes,
    };
    if whole {
        went(start);
        return;
    }
    let end = start.saturating_add(bytes);
    if end == start {
        return;
    }
    for large in &LIST {
        let (from, length) = (large.start.load(Relaxed), large.bytes.load(Relaxed));
        let to = from.saturating_add(length);
        if large.order.load(Relaxed) & 1 == 0 || from >= end || to <= start {
            continue;
        }
        let site = large.site.load(Relaxed) as u32;
        if from < start {
            large.bytes.store(start - from, Relaxed);
        } else {
            went(from);
        }
        if to > end {
            came(end, to - end, site);
        }
    }
    // Small ones that were mapped, each of whole pages; of however much the program gives back, in the chunks that are known.
    let numbers = start / CHUNK..=(end - 1) / CHUNK;
    if numbers.end() - numbers.start() < CHUNKS as u64 {
        return numbers.for_each(|number| all_went(number, start, end));
    }
    for chunk in &DIRECTORY {
        let number = chunk.number.load(Acquire);
        if number != 0 && numbers.contains(&number) {
            all_went(number, start, end);
        }
    }
}

/// The pages of a chunk from `start` to `end` have gone.
fn all_went(number: u64, start: u64, end: u64) {
    let first = number * CHUNK;
    if !has_shadow(first) {
        return;
    }
    let mut page = start.max(first);
    while page < end.min(first + CHUNK) {
        went(page);
        page += PAGE;
    }
}

/// The block has been freed, or is about to be: it is what was there last, until another comes. Whether it was a large one.
pub(super) fn went(block: u64) -> bool {
    let Some(word) = word_of(block, false) else {
        return false;
    };
    let held = word.load(Relaxed);
    retire(block, held);
    let large = entry::place(held).is_some();
    word.store(if large { 0 } else { entry::freed(held) }, Relaxed);
    large
}

/// What has been noted of the block, to be put back with [`came_back`].
pub(super) fn held(block: u64) -> u32 {
    word_of(block, false).map_or(0, |word| word.load(Relaxed))
}

/// The block has not been freed after all.
pub(super) fn came_back(block: u64, held: u32) {
    let Some(word) = word_of(block, false) else {
        return;
    };
    if let Some(large) = large(block, held) {
        large.order.fetch_or(1, Relaxed);
    }
    word.store(held, Relaxed);
}

/// Whether anything may be noted in the chunk of an address.
fn has_shadow(address: u64) -> bool {
    word_of(address, false).is_some()
}

/// The shadow's word of an address, made where there is none and `make` says so.
fn word_of(address: u64, make: bool) -> Option<&'static Word> {
    let number = address / CHUNK;
    let first = slot(number);
    for look in 0..PROBES {
        let chunk = DIRECTORY.get((first + look) % CHUNKS)?;
        let held = chunk.number.load(Acquire);
        if held == number {
            let shadow = chunk.shadow.load(Acquire);
            if shadow <= REFUSED {
                return None;
            }
            let word = shadow + address % CHUNK / GRANULE * size_of::<Word>() as u64;
            // SAFETY: this module's invariant; the index is below `WORDS`.
            return Some(unsafe { &*(word as *const Word) });
        }
        if held == 0 {
            if !make || number == 0 {
                return None;
            }
            let taken = chunk.number.compare_exchange(0, number, Release, Relaxed);
            if taken.is_ok() {
                chunk.shadow.store(piece(), Release);
            }
            // By this thread or another: with what it is now.
            return word_of(address, false);
        }
    }
    None
}

/// Memory for the shadow of one chunk, zeroed.
fn piece() -> u64 {
    const MMAP: u64 = 9;
    const READ_WRITE: u64 = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: u64 = 0x4022;
    let bytes = (WORDS * size_of::<Word>()) as u64;
    let arguments = [
        0,
        bytes,
        READ_WRITE,
        PRIVATE_ANONYMOUS_NORESERVE,
        u64::MAX,
        0,
    ];
    // SAFETY: a new mapping.
    let at = unsafe { syscall(MMAP, arguments) };
    u64::try_from(at).unwrap_or(REFUSED).max(REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The tables are the process's.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn blocks_come_and_go() {
        let _turn = alone();
        let base = 0x7f00_1230_0000;
        came(base, 100, 7);
        let word = held(base);
        assert!(entry::lives(word));
        assert_eq!((entry::granules(word), entry::site(word)), (7, 7));
        went(base);
        let word = held(base);
        assert!(!entry::lives(word));
        assert_eq!((entry::granules(word), entry::site(word)), (7, 7));
        // Nothing is made for what has never come.
        went(0x7f00_5550_0000);
        assert!(word_of(0x7f00_5550_0000, false).is_none());
    }

    #[test]
    fn large_blocks_are_listed() {
        let _turn = alone();
        let base = 0x7f10_0000_0010;
        came(base, 1 << 30, 9);
        let held = held(base);
        let place = entry::place(held).expect("listed");
        let large = &LIST[place as usize];
        assert_eq!(large.start.load(Relaxed), base);
        assert_eq!(large.bytes.load(Relaxed), 1 << 30);
        assert_eq!(large.order.load(Relaxed) & 1, 1);
        went(base);
        assert_eq!(large.order.load(Relaxed) & 1, 0);
        came_back(base, held);
        assert_eq!(large.order.load(Relaxed) & 1, 1);
    }

    #[test]
    fn what_is_left_of_a_mapping_stays() {
        let _turn = alone();
        let base = 0x7f30_0000_0000;
        came(base, 1 << 20, 5);
        unmapped(base, 1 << 12);
        assert_eq!(held(base), 0);
        let place = entry::place(held(base + (1 << 12))).expect("listed");
        let large = &LIST[place as usize];
        assert_eq!(large.bytes.load(Relaxed), (1 << 20) - (1 << 12));
        assert_eq!(
            (large.site.load(Relaxed), large.order.load(Relaxed) & 1),
            (5, 1)
        );
        // Cut up by another allocator.
        came(base + (1 << 12), 64, 6);
        assert_eq!(large.order.load(Relaxed) & 1, 0);
        unmapped(base + (1 << 12), 1 << 12);
        assert!(!entry::lives(held(base + (1 << 12))));
    }

    #[test]
    fn a_mapping_is_cut_on_both_sides_and_goes() {
        let _turn = alone();
        let base = 0x7f40_0000_0000;
        came(base, 1 << 20, 5);
        // Head and tail, as who wants it aligned does, and a hole.
        unmapped(base, 1 << 16);
        unmapped(base + (3 << 18), 1 << 18);
        let middle = base + (1 << 16);
        let place = entry::place(held(middle)).expect("listed");
        let large = &LIST[place as usize];
        assert_eq!(large.bytes.load(Relaxed), (3 << 18) - (1 << 16));
        unmapped(base + (1 << 18), 1 << 17);
        assert_eq!(large.bytes.load(Relaxed), (1 << 18) - (1 << 16));
        let right = base + (1 << 18) + (1 << 17);
        let place = entry::place(held(right)).expect("listed");
        assert_eq!(
            LIST[place as usize].bytes.load(Relaxed),
            (3 << 18) - (1 << 18) - (1 << 17)
        );
        // All that is left, by one call.
        unmapped(base, 1 << 20);
        let live = |large: &&Large| {
            let start = large.start.load(Relaxed);
            large.order.load(Relaxed) & 1 != 0 && (base..base + (1 << 20)).contains(&start)
        };
        assert_eq!(LIST.iter().filter(live).count(), 0);
        // Small ones beside each other.
        for n in 0..4 {
            came(base + n * 8192, 8192, 6);
        }
        unmapped(base, 4 * 8192);
        assert!((0..4).all(|n| !entry::lives(held(base + n * 8192))));
    }

    #[test]
    fn a_full_list_loses_notes_and_nothing_else() {
        let _turn = alone();
        let base = 0x7f20_0000_0000;
        let at = |n: u64| base + n * (1 << 16);
        // Those that stay are not taken for those that come and go.
        for n in 0..1000 {
            came(at(n), LARGE, 2);
        }
        for _ in 0..2 * LARGES as u64 {
            came(at(1000), LARGE, 3);
            went(at(1000));
        }
        for n in 0..1000 {
            assert!(large(at(n), held(at(n))).is_some(), "{n}");
            went(at(n));
        }
        for n in 0..2 * LARGES as u64 {
            came(at(n), LARGE, 1);
        }
        for n in 0..2 * LARGES as u64 {
            went(at(n));
        }
        came(base, LARGE, 1);
        assert!(entry::place(held(base)).is_some());
    }
}

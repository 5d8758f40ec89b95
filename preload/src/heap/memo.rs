//! Chains of calls as they were seen before: who allocates does so again, mostly, from the same place of the stack.
//!
//! A chain in which each return address alone says where the next one lies (`Chain::plain`) is the same again when the first lies where it did and
//! each has the value it had. To see that takes a look at each, at places that are known beforehand, where walking has each wait
//! for the one before.
//!
//! Unsafe invariant: return addresses are compared from the first on, so that what is read lies in a frame that the one before it is proof of.

use super::unwind::Chain;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
use statcache_abi::heap::FRAMES;

#[repr(align(128))]
struct Memo {
    /// Odd while it is written; one more each time it begins or ends to be.
    turn: AtomicU32,
    site: AtomicU32,
    at: AtomicU64,
    addresses: [AtomicU64; FRAMES],
    /// How far from the first each lies.
    offsets: [AtomicU32; FRAMES],
}

const LENGTH: usize = 512;
static MEMOS: [Memo; LENGTH] = [const {
    Memo {
        turn: AtomicU32::new(0),
        site: AtomicU32::new(0),
        at: AtomicU64::new(0),
        addresses: [const { AtomicU64::new(0) }; FRAMES],
        offsets: [const { AtomicU32::new(0) }; FRAMES],
    }
}; LENGTH];

/// Where a chain is kept whose first return address, `address`, lies at `at`.
fn place(at: u64, address: u64) -> Option<&'static Memo> {
    let hash = (at ^ address.rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    MEMOS.get((hash >> 40) as usize % LENGTH)
}

/// The site of the chain that begins at `at`, if it is one that is known.
///
/// # Safety
/// The return address of a call that is under way must lie at `at`.
pub(super) unsafe fn find(at: *const u64) -> Option<u32> {
    // SAFETY: the caller's contract.
    let memo = place(at as u64, unsafe { at.read() })?;
    let turn = memo.turn.load(Acquire);
    if memo.at.load(Relaxed) != at as u64 || turn & 1 != 0 {
        return None;
    }
    // All of it of one moment, before any of it is believed.
    let mut addresses = [0; FRAMES];
    let mut offsets = [0; FRAMES];
    for (copy, word) in addresses.iter_mut().zip(&memo.addresses) {
        *copy = word.load(Relaxed);
    }
    for (copy, word) in offsets.iter_mut().zip(&memo.offsets) {
        *copy = word.load(Relaxed);
    }
    let site = memo.site.load(Relaxed);
    fence(Acquire);
    if memo.turn.load(Relaxed) != turn {
        return None;
    }
    for (address, offset) in addresses.iter().zip(offsets) {
        // The chain's end.
        if *address == 0 {
            break;
        }
        // SAFETY: this module's invariant.
        if unsafe { at.byte_add(offset as usize).read() } != *address {
            return None;
        }
    }
    Some(site)
}

/// Keeps a chain that begins at `at`, where it is plain.
pub(super) fn keep(at: *const u64, chain: &Chain, site: u32) {
    let first = chain.addresses.first().copied().unwrap_or(0);
    let Some(memo) = place(at as u64, first).filter(|_| chain.plain && first != 0) else {
        return;
    };
    let turn = memo.turn.load(Relaxed);
    let next = turn.wrapping_add(1);
    if turn & 1 != 0
        || memo
            .turn
            .compare_exchange(turn, next, Acquire, Relaxed)
            .is_err()
    {
        return;
    }
    fence(Release);
    memo.at.store(at as u64, Relaxed);
    memo.site.store(site, Relaxed);
    for (word, address) in memo.addresses.iter().zip(chain.addresses) {
        word.store(address, Relaxed);
    }
    for (word, offset) in memo.offsets.iter().zip(chain.offsets) {
        word.store(offset, Relaxed);
    }
    memo.turn.store(next.wrapping_add(1), Release);
}

/// Code may have gone, and other code come in its place.
pub(super) fn forget() {
    for memo in &MEMOS {
        memo.at.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_known_while_it_is_as_it_was() {
        let mut stack = [0u64; 16];
        let chain = |plain| Chain {
            addresses: [5001, 5002, 5003, 0, 0, 0, 0, 0],
            offsets: [0, 24, 96, 0, 0, 0, 0, 0],
            count: 3,
            plain,
        };
        (stack[0], stack[3], stack[12]) = (5001, 5002, 5003);
        let at = stack.as_ptr();
        // SAFETY: memory of this test.
        let find = || unsafe { find(std::hint::black_box(at)) };
        keep(at, &chain(false), 7);
        assert_eq!(find(), None);
        keep(at, &chain(true), 7);
        assert_eq!(find(), Some(7));
        for place in [3, 12] {
            let kept = std::mem::replace(&mut stack[place], 5009);
            std::hint::black_box(&stack);
            assert_eq!(find(), None);
            stack[place] = kept;
            std::hint::black_box(&stack);
            assert_eq!(find(), Some(7));
        }
        forget();
        assert_eq!(find(), None);
    }
}

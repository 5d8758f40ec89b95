//! Allocation sites: each chain of return addresses that led to the allocator, numbered.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use statcache_abi::heap::{FRAMES, SITES, Site};

/// By the upper bits of the chain's hash the site's number: `hash << NUMBER | number`, 0 for none.
static INDEX: [AtomicU64; INDEX_LENGTH] = [const { AtomicU64::new(0) }; INDEX_LENGTH];
const INDEX_LENGTH: usize = 2 * SITES;
const NUMBER: u32 = SITES.trailing_zeros();

/// The sites, from 1 on; 0 is that of blocks whose site found no room.
pub(super) static LIST: [Site; SITES] = [const { Site::NONE }; SITES];
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Number of the site with these frames, the callee's first.
pub(super) fn number(frames: &[u64]) -> u32 {
    let hash = frames.iter().fold(0u64, |hash, frame| {
        (hash ^ frame)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    });
    // The lower half of a product is the weaker one.
    let name = (hash ^ hash >> 32) << NUMBER;
    let mut at = (hash >> 40) as usize;
    let mut own = 0;
    for _ in 0..64 {
        at %= INDEX_LENGTH;
        let Some(slot) = INDEX.get(at) else { break };
        let held = slot.load(Acquire);
        if held == 0 {
            if own == 0 {
                own = enlist(frames);
            }
            if own == 0 {
                break;
            }
            match slot.compare_exchange(0, name | own, Release, Acquire) {
                Ok(_) => return own as u32,
                // Another thread was there first: with this chain, or with another.
                Err(other) if other & !(SITES as u64 - 1) == name => {
                    return (other % SITES as u64) as u32;
                }
                Err(_) => {}
            }
        } else if held & !(SITES as u64 - 1) == name {
            return (held % SITES as u64) as u32;
        }
        at += 1;
    }
    0
}

/// Gives these frames the next number; 0 where there is none left.
fn enlist(frames: &[u64]) -> u64 {
    if NEXT.load(Relaxed) >= SITES as u64 {
        return 0;
    }
    let number = NEXT.fetch_add(1, Relaxed);
    let Some(site) = LIST.get(number as usize) else {
        return 0;
    };
    for (word, frame) in site.0.iter().zip(frames.iter().take(FRAMES)) {
        word.store(*frame, Relaxed);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_one_number() {
        let chains: Vec<Vec<u64>> = (0..2000u64)
            .map(|n| vec![0x5555_0000 + 16 * n, 0x7fff_0000 + n % 7])
            .collect();
        let numbers: Vec<u32> = chains.iter().map(|chain| number(chain)).collect();
        let again: Vec<u32> = chains.iter().map(|chain| number(chain)).collect();
        assert_eq!(numbers, again);
        let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), chains.len());
        for (chain, number) in chains.iter().zip(&numbers) {
            let frames = LIST[*number as usize].0.iter().map(|f| f.load(Relaxed));
            let frames: Vec<u64> = frames.take_while(|f| *f != 0).collect();
            assert_eq!(&frames, chain);
        }
    }
}

//! A stretch of the code cache: where its fragments lie, and how much room is left.

use super::super::duty::Duty;
use super::super::fragment::FragmentId;
use super::super::memory::Shared;
use super::super::runtime::{self, Runtime};

/// Bytes of an arena.
pub const ARENA_BYTES: u64 = 320 << 20;
/// Share of an arena for hot code.
pub(super) const HOT_BYTES: u64 = 96 << 20;
/// Code that was written is let go of by so many bytes: a power of two.
const LET_GO: u64 = 1 << 20;
/// Room a fragment needs at the most, hot or cold.
const FRAGMENT_ROOM: u64 = 32 << 10;
/// How far code may lie from its arena for 32-bit displacements to reach all of it; see [`serves`] for what lies at low addresses.
pub const REACH: u64 = (1 << 31) - ARENA_BYTES - (64 << 20);

/// Copies of code below this address name what it names by 32-bit absolute addresses, wherever they lie.
pub const LOW: u64 = 1 << 31;
/// Where arenas of such code lie: where the data regions do, half way between them.
pub const FAR: std::ops::Range<u64> = 0x7e90 << 32..0x7ef0 << 32;

/// Whether an arena at `place` serves code at `ip`.
pub fn serves(place: u64, ip: u64) -> bool {
    place.abs_diff(ip) < REACH || ip < LOW && FAR.contains(&place)
}

/// One stretch of the cache.
#[derive(Debug)]
pub struct Arena {
    pub(super) memory: Shared,
    pub(super) runtime: Runtime,
    pub(super) hot_next: u64,
    pub(super) cold_next: u64,
    /// Fragments by hot address, ascending.
    pub(super) hot_index: Vec<(u64, FragmentId)>,
    /// Fragments by cold address, ascending.
    pub(super) cold_index: Vec<(u64, FragmentId)>,
}

impl Arena {
    pub(super) fn new(mut memory: Shared, duty: Duty) -> Arena {
        let (code, runtime) = runtime::generate(memory.remote(), duty);
        memory.write(memory.remote(), &code);
        let mut arena = Arena {
            memory,
            runtime,
            hot_next: 0,
            cold_next: 0,
            hot_index: Vec::new(),
            cold_index: Vec::new(),
        };
        arena.reset();
        arena
    }

    pub(super) fn reset(&mut self) {
        self.hot_next = self.runtime.end.next_multiple_of(64);
        self.cold_next = self.memory.remote() + HOT_BYTES;
        self.hot_index.clear();
        self.cold_index.clear();
    }

    /// Puts hot code of fragment `id` behind all other, where it was made for. Returns where that is.
    pub(super) fn put_hot(&mut self, id: FragmentId, code: &[u8]) -> u64 {
        let at = self.hot_next;
        self.hot_next = self.put(at, code);
        self.hot_index.push((at, id));
        at
    }

    /// Puts cold code of fragment `id` behind all other, where it was made for.
    pub(super) fn put_cold(&mut self, id: FragmentId, code: &[u8]) {
        let at = self.cold_next;
        self.cold_next = self.put(at, code);
        self.cold_index.push((at, id));
    }

    /// Writes code at `at`; gives where the next may lie.
    fn put(&mut self, at: u64, code: &[u8]) -> u64 {
        self.memory.write(at, code);
        let next = (at + code.len() as u64).next_multiple_of(16);
        if at & !(LET_GO - 1) != next & !(LET_GO - 1) {
            // Much of what leads out of the newest code still changes.
            let before = (next & !(LET_GO - 1)).saturating_sub(2 * LET_GO);
            if before >= self.memory.remote() {
                self.memory.let_go(before, LET_GO as usize);
            }
        }
        next
    }

    pub(super) fn full(&self) -> bool {
        self.hot_next + FRAGMENT_ROOM > self.memory.remote() + HOT_BYTES
            || self.cold_next + FRAGMENT_ROOM > self.memory.remote() + self.memory.bytes()
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.memory.remote()) < self.memory.bytes()
    }

    pub(super) fn reaches(&self, ip: u64) -> bool {
        serves(self.memory.remote(), ip)
    }
}

//! Where the runtime's data lies in the target, shared by the translator and the generated code.
//!
//! One data region per thread, shared with the monitor:
//!
//! ```text
//! END-LOG_BYTES .. END           the access log; END is a multiple of 4 GiB
//! END .. END+SLACK               room for the records written between two checks for "full"
//! END+SLACK ..                   the state block (gs base) with the record that is being written, then the
//!                                tables of indirect targets and of jumps, then the filter of watched lines
//! ```
//!
//! The log grows towards END. Because END is a multiple of 4 GiB, "full" is byte 3 of the log
//! pointer turning 0, which can be tested without touching the flags.

use crate::arch::Gpr;
use crate::tracee::filters::HARMLESS_SYSCALL;

/// Most bytes of log the region has; less is used at a time, so that it stays in the cache.
pub const LOG_BYTES: u64 = 16 << 20;
/// Room behind the log for what is written between two checks. A record is at most
/// [`MAX_RECORD_QWORDS`] long and every fragment checks once.
pub const SLACK: u64 = 64 << 10;
/// Longest record, in 8-byte words.
pub const MAX_RECORD_QWORDS: usize = 96;
const _: () = assert!(2 * MAX_RECORD_QWORDS * 8 < SLACK as usize);

/// Bits of a record number in a header; the record's length in words lies above, so that a reader
/// finds the next record without looking anything up.
const RECORD_BITS: u32 = 24;
const _: () = assert!(MAX_RECORD_QWORDS < 1 << (31 - RECORD_BITS));

/// Value of [`state::COUNT`] from which on records are kept: below, it is negative.
pub const COUNT_DUE: u64 = 0;
/// [`state::DUE`] below that.
pub const NOT_DUE: u8 = 0xff;
/// Where the count of a code cache that only counts ends: its byte 3 is nonzero from here on.
pub const COUNT_END: u64 = 1 << 24;
/// Value of [`state::END`] for no end.
pub const NO_END: u64 = 1 << 63;
/// Byte put into [`state::DUE`] by a record that does not count its accesses: records are kept from there on,
/// and no count ends that.
pub const UNCOUNTED: u8 = 0x40;
/// Most accesses of one record, `rep` apart.
pub const MAX_RECORD_ACCESSES: u64 = 512;

/// Low half of the first word of a record, or `None` when there are too many kinds of records. The
/// high half is the low half of [`state::COUNT`] before the record.
pub fn header(record: u32, words: u16) -> Option<u32> {
    (record < 1 << RECORD_BITS).then_some(record | u32::from(words) << RECORD_BITS)
}

/// Record number and length in words, from the first word of a record.
#[inline(always)]
pub fn split_header(word: u64) -> (usize, usize) {
    let header = word as u32;
    (
        (header & ((1 << RECORD_BITS) - 1)) as usize,
        (header >> RECORD_BITS) as usize,
    )
}

/// Alignment of the end of the log.
pub const END_ALIGN: u64 = 1 << 32;

/// First word of the state block of a live or dead runtime: lets a later attach know what it finds.
pub const MAGIC: u64 = u64::from_le_bytes(*b"statcch1");

/// All bits of an address but those that choose its place in the table of jumps.
pub const HIGH_BITS: u64 = !(JUMP_ENTRIES as u64 - 1);

/// Bits of a byte of the filter: how many watched lines it stands for,
pub const WATCHED: u8 = 0x3f;
/// whether for drawn ones,
pub const DRAWN: u8 = 0x80;
/// and whether for the lines before drawn ones.
pub const BEFORE_DRAWN: u8 = 0x40;

/// Offsets in the state block, from gs.
pub mod state {
    use super::Gpr;

    /// [`super::MAGIC`].
    pub const MAGIC: i32 = 0x00;
    /// Log pointer: where the next record is kept. In a cache that only counts, the count while it is in no register.
    pub const LOG: i32 = 0x08;
    /// Why the cache was left: an exit number.
    pub const EXIT: i32 = 0x10;
    /// Original address to go on at.
    pub const TARGET: i32 = 0x18;
    /// Cache address an indirect transfer goes to.
    pub const JUMP: i32 = 0x20;
    /// Scratch word of the flagless "full" check.
    pub const SCRATCH: i32 = 0x28;
    /// Accesses so far, from a start such that it is negative until records are to be kept.
    pub const COUNT: i32 = 0x30;
    /// Highest byte of [`COUNT`]: [`super::NOT_DUE`], and a lower one while every record is kept.
    pub const DUE: i32 = COUNT + 7;
    /// Minus the count at which the log is to be read; every record is kept for some time before.
    pub const END: i32 = 0x48;
    /// Bits of an address that choose its byte of the filter.
    pub const MASK: i32 = 0x38;
    /// [`super::HIGH_BITS`].
    pub const HIGH: i32 = 0x50;
    /// A word with all bits of a byte of the filter but [`super::DRAWN`].
    pub const NOT_DRAWN: i32 = 0x58;
    /// The same with all bits but [`super::BEFORE_DRAWN`],
    pub const NOT_BEFORE: i32 = 0x60;
    /// and with [`super::DRAWN`] alone.
    pub const DRAWN: i32 = 0x68;
    /// The thread's fs base.
    pub const FS: i32 = 0x40;
    /// Address of the state block itself.
    pub const SELF: i32 = 0x70;
    /// Iterations of a `rep` instruction that are not of the part being executed.
    pub const REST: i32 = 0x78;
    /// The program's values of general registers, by encoding number.
    const REGISTERS: i32 = 0x80;

    /// The record that is being written: what is kept of it is copied to the log. Always here, so that where it goes does not
    /// hang on what was kept before.
    const RECORD: i32 = 0x200;
    const _: () = assert!(record(super::super::log::VIEW) <= super::TABLE);

    /// Word of that record; the first, the header, is only in the log.
    pub const fn record(word: usize) -> i32 {
        RECORD + 8 * word as i32
    }

    /// Slot of a register's value.
    pub const fn slot(gpr: Gpr) -> i32 {
        REGISTERS + 8 * gpr as i32
    }
}

/// Offset of the table of indirect targets from gs.
pub const TABLE: i32 = 0x1000;
/// Entries of the table: a target is looked for from [`first_entry`] on.
pub const TABLE_ENTRIES: usize = 5 << 16;
/// Number of the first of a target's [`PROBES`] entries: can be had without touching the flags, and tells apart what lies
/// 64 KiB apart. (By the low 16 bits alone, nearly half of all stops of a compiler observed whole were for targets that had been
/// entered, and replaced by others.)
pub const fn first_entry(target: u64) -> u64 {
    (target & 0xffff) + 4 * ((target >> 8) & 0xffff)
}
const _: () = assert!(first_entry(u64::MAX) < TABLE_ENTRIES as u64);
/// Consecutive entries looked at for one target.
pub const PROBES: usize = 4;
/// Offset from gs of the table of jumps: for each value of a target's low 16 bits, where a thread goes on that is bound for it.
/// There it is seen whether that is the right place.
pub const JUMPS: i32 =
    (TABLE as u32 + 16 * (TABLE_ENTRIES + PROBES) as u32).next_multiple_of(4096) as i32;
/// Its entries.
pub const JUMP_ENTRIES: usize = 1 << 16;
/// Offset of the filter of watched lines from gs.
pub const FILTER: i32 = JUMPS + 8 * JUMP_ENTRIES as i32;
/// log2 of the bytes of the filter.
pub const FILTER_BITS: u32 = 23;
/// Bytes of the state block, the tables and the filter.
pub const STATE_BYTES: u64 = FILTER as u64 + (1 << FILTER_BITS);
/// Bytes of the whole data region.
pub const DATA_BYTES: u64 = LOG_BYTES + SLACK + STATE_BYTES;

/// The system call by which a thread leaves the cache: a stop when somebody traces it, and nothing when nobody does. (One of a number
/// that no kernel knows would do, but for filters that end who makes it.)
pub const LEAVING_SYSCALL: u32 = HARMLESS_SYSCALL as u32;

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as a compiler has, in 20 MiB of text.
    #[test]
    fn targets_find_room_in_the_table() {
        let (mut taken, mut without) = (vec![false; TABLE_ENTRIES + PROBES], 0);
        let targets = 45_000u64;
        for i in 0..targets {
            let target = 0x40_0000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64) >> 20) % (20 << 20);
            let first = first_entry(target) as usize;
            match taken[first..first + PROBES]
                .iter_mut()
                .find(|taken| !**taken)
            {
                Some(free) => *free = true,
                None => without += 1,
            }
        }
        assert!(without < targets / 500, "{without}");
    }
}

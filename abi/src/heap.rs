//! What the heap shim notes of a program's heap, and where a reader of the program's memory finds it.
//!
//! Small blocks are noted in a shadow of the heap: for each [`GRANULE`] bytes of the address space one word ([`entry`]), which says what
//! block begins there. The shadow exists where blocks do: [`Chunk`]s of the address space have a piece each, found by [`slot`].
//! Blocks of [`LARGE`] bytes or more, and memory mapped by the program itself, are in a list ([`Large`]). All of it is private
//! memory of the process, written without locks while others read: a reader may see a block that is just coming or going.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Its file, a memfd: in mappings behind `/memfd:`.
pub const IMAGE: &str = "heap-of-statcache";
/// Name of the heap shim's exported [`Places`].
pub const PLACES: &str = "statcache_heap_places";
/// Changes with any change of layout or meaning.
pub const VERSION: u64 = 1;
/// Bytes of the address space per word of the shadow: what glibc aligns blocks to. Of two smaller ones that begin in one granule, as
/// some allocators have them, the last that came is known.
pub const GRANULE: u64 = 16;
/// Bytes of the address space per piece of shadow.
pub const CHUNK: u64 = 2 << 20;
/// Words of a piece of shadow.
pub const WORDS: usize = (CHUNK / GRANULE) as usize;
/// Chunks that there is room for, a power of two: 64 GiB of heap.
pub const CHUNKS: usize = 1 << 15;
/// How far from its [`slot`] a chunk may be.
pub const PROBES: usize = 32;
/// Sites that there is room for, a power of two.
pub const SITES: usize = 1 << 16;
/// Return addresses of a site.
pub const FRAMES: usize = 8;
/// Large blocks that there is room for, a power of two.
pub const LARGES: usize = 1 << 14;
/// Bytes from which on a block is large: more granules than [`entry`] has room for.
pub const LARGE: u64 = 0x7ff * GRANULE;

/// Where a chunk's piece of shadow lies.
#[repr(C)]
pub struct Chunk {
    /// Address of the chunk divided by [`CHUNK`]; 0 for a free slot.
    pub number: AtomicU64,
    /// Address of its piece of shadow, [`WORDS`] words ([`entry`]); 0 or 1 where it has none (yet).
    pub shadow: AtomicU64,
}

/// A large block.
#[repr(C)]
pub struct Large {
    /// Its address; 0 for a free place.
    pub start: AtomicU64,
    /// Its bytes.
    pub bytes: AtomicU64,
    /// Blocks noted before, times two, and 1 while it lives.
    pub order: AtomicU64,
    /// Its site.
    pub site: AtomicU64,
}

/// An allocation site: return addresses, the allocator's own first, then 0s.
#[repr(C)]
pub struct Site(pub [AtomicU64; FRAMES]);

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "what statics are made of"
)]
impl Chunk {
    /// A free slot.
    pub const NONE: Chunk = Chunk {
        number: AtomicU64::new(0),
        shadow: AtomicU64::new(0),
    };
}

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "what statics are made of"
)]
impl Large {
    /// A free place.
    pub const NONE: Large = Large {
        start: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        order: AtomicU64::new(0),
        site: AtomicU64::new(0),
    };
}

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "what statics are made of"
)]
impl Site {
    /// No frames.
    pub const NONE: Site = Site([const { AtomicU64::new(0) }; FRAMES]);
}

/// Where the tables lie: pointers in the image, addresses (`u64`) for a reader.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Places<T> {
    /// [`VERSION`].
    pub version: u64,
    /// [`CHUNKS`] of [`Chunk`].
    pub chunks: T,
    /// [`LARGES`] of [`Large`].
    pub larges: T,
    /// [`SITES`] of [`Site`].
    pub sites: T,
}

/// The slot at which a chunk is looked for first.
#[must_use]
pub const fn slot(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % CHUNKS
}

/// A word of the shadow: what block begins there. 0 for none.
pub mod entry {
    use super::{GRANULE, LARGE, SITES};

    const LIVES: u32 = 1 << 31;
    const SITE: u32 = 20;
    const _: () = assert!(SITES <= 1 << SITE);
    const _: () = assert!(LARGE / GRANULE < 1 << (31 - SITE));

    /// A live block of `bytes`, less than [`LARGE`].
    #[must_use]
    pub const fn small(bytes: u64, site: u32) -> u32 {
        let granules = bytes.div_ceil(GRANULE) as u32;
        let least = if granules == 0 { 1 } else { granules };
        LIVES | least << SITE | site
    }

    /// The large block at this place of the list.
    #[must_use]
    pub const fn large(place: u32) -> u32 {
        LIVES | place
    }

    /// The place of a large block; `None` for any other word.
    #[must_use]
    pub const fn place(word: u32) -> Option<u32> {
        if word & LIVES != 0 && granules(word) == 0 {
            Some(word & ((1 << SITE) - 1))
        } else {
            None
        }
    }

    /// As `word`, of a block that has been freed. Where another lies over it, that one counts.
    #[must_use]
    pub const fn freed(word: u32) -> u32 {
        word & !LIVES
    }

    /// Whether the block lives.
    #[must_use]
    pub const fn lives(word: u32) -> bool {
        word & LIVES != 0
    }

    /// Granules of a small block.
    #[must_use]
    pub const fn granules(word: u32) -> u32 {
        (word & !LIVES) >> SITE
    }

    /// Site of a small block.
    #[must_use]
    pub const fn site(word: u32) -> u32 {
        word & ((1 << SITE) - 1)
    }
}

/// A word of the shadow, as it lies in memory.
pub type Word = AtomicU32;

//! Which call made a block of the heap: the heap shim from the monitor's side.
//!
//! What the shim notes is said in `preload/src/heap/mod.rs`; the layout of its tables is `statcache_abi`'s. They are read in the process's
//! own memory, while it goes on: an address is of the block that lies there when it is asked about, shortly after it was touched, or
//! else of the one that lay there last.
//!
//! Source: ld.so(8), `LD_PRELOAD`; proc(5), `/proc/PID/mem`.

use super::root;
use crate::engine::counter::shim::memory_file;
use crate::tracee::maps::Maps;
use nix::unistd::Pid;
use object::elf::{DT_NEEDED, DT_STRSZ, DT_STRTAB};
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use rustc_hash::FxHashMap;
use statcache_abi::heap::{
    CHUNK, CHUNKS, Chunk, FRAMES, GRANULE, IMAGE, LARGE, LARGES, Large, PLACES, PROBES, Places,
    SITES, VERSION, entry, slot,
};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The shim, an ELF shared object.
static SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libstatcache_heap.so"));
/// What the dynamic linker of glibc has since 2.35, when the C library got `_dl_find_object`, and those of other C libraries have not. From
/// 2.34 on `dlsym` is in the C library itself.
const OF_LINKER: &str = "__rseq_offset";
/// Libraries that end the program where another comes before them.
const FIRST: [&str; 6] = [
    "libasan.",
    "libtsan.",
    "libmsan.",
    "liblsan.",
    "libhwasan.",
    "libclang_rt.",
];
const WORD: u64 = 8;

/// The shim's image, inherited by the processes that we start.
#[derive(Debug)]
pub struct HeapShim(OwnedFd);

impl HeapShim {
    /// Makes a file with the image, whose descriptor passes to every child process.
    ///
    /// # Errors
    /// The operating system's, for memory or descriptors.
    pub fn create() -> std::io::Result<HeapShim> {
        let file = File::from(memory_file(&CString::new(IMAGE)?)?);
        file.write_all_at(SHIM, 0)?;
        Ok(HeapShim(file.into()))
    }

    /// The variable with which a program loads the shim.
    pub fn environment(&self) -> [(&'static str, String); 1] {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        [("LD_PRELOAD", path)]
    }

    /// Whether the program that `pid` is about to start loads it and is none the worse: one that is linked dynamically, with a C library
    /// that the shim knows, without a library that insists on being first, in a process that still has our descriptor and our files.
    pub fn suits(&self, pid: Pid) -> bool {
        let file = |path: String| fs::metadata(path).ok().map(|f| (f.dev(), f.ino()));
        let number = self.0.as_raw_fd();
        let ours = file(format!("/proc/self/fd/{number}"));
        let is_there = ours.is_some() && file(format!("/proc/{pid}/fd/{number}")) == ours;
        let has_our_files =
            !root::is_foreign(pid) && file(format!("/proc/{pid}/root/")) == file("/".to_owned());
        is_there && has_our_files && is_suited(pid).unwrap_or(false)
    }
}

/// What [`HeapShim::suits`] says of the program; `None` where it cannot be read.
fn is_suited(pid: Pid) -> Option<bool> {
    let cache = object::ReadCache::new(File::open(format!("/proc/{pid}/exe")).ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let (endian, data) = (elf.endian(), elf.data());
    let headers = elf.elf_program_headers();
    let linker = headers
        .iter()
        .find_map(|h| h.interpreter(endian, data).ok()?)?;
    let linker = Path::new(OsStr::from_bytes(linker));
    let linker = object::ReadCache::new(File::open(linker).ok()?);
    let linker = ElfFile64::<Endianness, _>::parse(&linker).ok()?;
    let known = linker.dynamic_symbols().any(|s| s.name() == Ok(OF_LINKER));
    let dynamic = headers.iter().find_map(|h| h.dynamic(endian, data).ok()?)?;
    let value = |tag| {
        let found = dynamic.iter().find(move |d| d.d_tag(endian) == tag);
        found.map(|d| d.d_val(endian))
    };
    let strings = (value(u64::from(DT_STRTAB))?, value(u64::from(DT_STRSZ))?);
    let strings = headers
        .iter()
        .find_map(|h| h.data_range(endian, data, strings.0, strings.1).ok()?)?;
    let needs = dynamic
        .iter()
        .filter(|d| d.d_tag(endian) == u64::from(DT_NEEDED));
    let names = needs.filter_map(|d| strings.get(d.d_val(endian) as usize..));
    let names = names.filter_map(|name| name.split(|byte| *byte == 0).next());
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let preloaded = environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(b"LD_PRELOAD="))
        .flat_map(|list| list.split(|byte| b": ".contains(byte)));
    let insists = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        FIRST.iter().any(|first| name.starts_with(first.as_bytes()))
    };
    Some(known && !names.chain(preloaded).any(insists))
}

/// The tables of one process image, found once the shim is loaded there.
#[derive(Debug)]
pub struct Heap {
    memory: File,
    places: Places<u64>,
    /// Pieces of shadow by chunk: they stay where they are.
    shadows: FxHashMap<u64, u64>,
    /// The large blocks as they were, until [`Heap::look_again`].
    larges: Option<Vec<Block>>,
    sites: FxHashMap<u32, Vec<u64>>,
}

/// A large block.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    end: u64,
    lives: bool,
    order: u64,
    site: u32,
}

impl Heap {
    /// Where the process with these mappings has loaded the shim.
    pub fn find(pid: Pid, maps: &Maps) -> Option<Heap> {
        let mapping = maps.0.iter().find(|m| m.path.is_heap_shim())?;
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let elf = ElfFile64::<Endianness>::parse(SHIM).ok()?;
        let symbol = elf.dynamic_symbols().find(|s| s.name() == Ok(PLACES))?;
        let at = maps.file_start(mapping).wrapping_add(symbol.address());
        let mut words = [0; 4];
        read_words(&memory, at, &mut words)?;
        let [version, chunks, larges, sites] = words;
        let places = Places {
            version,
            chunks,
            larges,
            sites,
        };
        // 0 before the linker has filled them in.
        let complete = version == VERSION && chunks != 0 && larges != 0 && sites != 0;
        complete.then(|| Heap {
            memory,
            places,
            shadows: FxHashMap::default(),
            larges: None,
            sites: FxHashMap::default(),
        })
    }

    /// Time has gone by.
    pub fn look_again(&mut self) {
        self.larges = None;
    }

    /// Return addresses of the calls that led to the block at `address`, the allocator's first; `None` where none is known.
    pub fn site(&mut self, address: u64) -> Option<&[u64]> {
        let number = self.number(address).filter(|number| *number != 0)?;
        if !self.sites.contains_key(&number) {
            let mut frames = [0; FRAMES];
            // The program may write over where they are.
            let of_number = u64::from(number) * (FRAMES as u64 * WORD);
            let at = self.places.sites.wrapping_add(of_number);
            read_words(&self.memory, at, &mut frames)?;
            let known = frames.iter().position(|frame| *frame == 0);
            let frames = frames[..known.unwrap_or(FRAMES)].to_vec();
            // Another thread may be about to write them.
            if frames.is_empty() {
                return None;
            }
            self.sites.insert(number, frames);
        }
        self.sites.get(&number).map(Vec::as_slice)
    }

    /// Number of the site. Of those that lie there a small block counts before a large one, which may be what the small one was cut from, and
    /// one that lives before one that has been freed.
    fn number(&mut self, address: u64) -> Option<u32> {
        let small = self.small(address);
        if let Some((site, true)) = small {
            return Some(site);
        }
        let large = self.large(address);
        match (small, large) {
            (_, Some((site, true))) | (Some((site, _)), _) | (None, Some((site, _))) => Some(site),
            (None, None) => None,
        }
    }

    /// Site of the small block at `address`, and whether it lives.
    fn small(&mut self, address: u64) -> Option<(u32, bool)> {
        /// Granules looked at first: most blocks are no larger.
        const FIRST: u64 = 64;
        let granule = address / GRANULE;
        let mut freed = None;
        let mut end = granule + 1;
        let farthest = end.saturating_sub(LARGE / GRANULE);
        let mut start = granule.saturating_sub(FIRST - 1);
        loop {
            let words = self.shadow(start.max(farthest), end);
            for (back, word) in words.iter().rev().enumerate() {
                let distance = granule - (end - 1 - back as u64);
                // 0 for a large one, too.
                if u64::from(entry::granules(*word)) <= distance {
                    continue;
                }
                let site = entry::site(*word);
                if entry::lives(*word) {
                    return Some((site, true));
                }
                freed.get_or_insert((site, false));
            }
            if start <= farthest {
                return freed;
            }
            (end, start) = (start, farthest);
        }
    }

    /// The shadow's words of these granules, as many as there are; 0 where there is none.
    fn shadow(&mut self, start: u64, end: u64) -> Vec<u32> {
        const PER_CHUNK: u64 = CHUNK / GRANULE;
        let mut words = Vec::with_capacity((end - start) as usize);
        let mut at = start;
        while at < end {
            let upto = end.min((at / PER_CHUNK + 1) * PER_CHUNK);
            let mut bytes = vec![0; (upto - at) as usize * 4];
            if let Some(shadow) = self.piece(at / PER_CHUNK) {
                // What cannot be read stays 0.
                let place = shadow.wrapping_add(at % PER_CHUNK * 4);
                let _ = self.memory.read_exact_at(&mut bytes, place);
            }
            let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            words.extend(bytes.chunks_exact(4).map(word));
            at = upto;
        }
        words
    }

    /// The piece of shadow of a chunk.
    fn piece(&mut self, number: u64) -> Option<u64> {
        if let Some(&shadow) = self.shadows.get(&number) {
            return Some(shadow);
        }
        let first = slot(number);
        for at in (first..first + PROBES).map(|at| at % CHUNKS) {
            let mut chunk = [0; 2];
            let place = self.places.chunks + (at * size_of::<Chunk>()) as u64;
            read_words(&self.memory, place, &mut chunk)?;
            match chunk {
                [0, _] => return None,
                [held, shadow] if held == number => {
                    if shadow <= 1 {
                        return None;
                    }
                    self.shadows.insert(number, shadow);
                    return Some(shadow);
                }
                _ => {}
            }
        }
        None
    }

    /// Site of the large block at `address`, and whether it lives; the one noted last counts.
    fn large(&mut self, address: u64) -> Option<(u32, bool)> {
        if self.larges.is_none() {
            const WORDS: usize = size_of::<Large>() / WORD as usize;
            let mut words = vec![0; LARGES * WORDS];
            read_words(&self.memory, self.places.larges, &mut words)?;
            let block = |words: &[u64]| Block {
                start: words[0],
                end: words[0].saturating_add(words[1]),
                lives: words[2] & 1 != 0,
                order: words[2] >> 1,
                site: (words[3] % SITES as u64) as u32,
            };
            let blocks = words.chunks_exact(WORDS).map(block);
            self.larges = Some(blocks.filter(|block| block.start != 0).collect());
        }
        let there = |block: &&Block| (block.start..block.end).contains(&address);
        let found = self.larges.iter().flatten().filter(there);
        let last = found.max_by_key(|block| (block.lives, block.order))?;
        Some((last.site, last.lives))
    }
}

/// Fills `words` from `at` on; `None` where that cannot be read.
fn read_words(memory: &File, at: u64, words: &mut [u64]) -> Option<()> {
    let mut bytes = vec![0; size_of_val(words)];
    memory.read_exact_at(&mut bytes, at).ok()?;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Some(())
}

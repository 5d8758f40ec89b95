//! The allocator behind the shim: the next one in the order in which the dynamic linker looks; and what there is before it is known.
//!
//! Unsafe invariant: `EARLY` is given away piece by piece, each piece once.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};

/// What is asked of it.
#[derive(Clone, Copy)]
pub(super) enum Function {
    Malloc,
    Calloc,
    Realloc,
    Free,
    AlignedAlloc,
    Memalign,
    PosixMemalign,
    Valloc,
    Pvalloc,
    Mmap,
    Munmap,
    Dlclose,
}

const NAMES: [&core::ffi::CStr; 12] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"aligned_alloc",
    c"memalign",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
    c"mmap",
    c"munmap",
    c"dlclose",
];

static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
static STATE: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = 0;
const SOUGHT: usize = 1;
const KNOWN: usize = 2;

/// Address of the function behind; 0 where there is none, or while it is being looked for.
pub(super) fn next(function: Function) -> usize {
    let found = FOUND
        .get(function as usize)
        .map_or(0, |at| at.load(Relaxed));
    if found != 0 || STATE.load(Acquire) == KNOWN {
        return found;
    }
    find();
    FOUND
        .get(function as usize)
        .map_or(0, |at| at.load(Relaxed))
}

/// All at once, with the first call in the process, which is made by the dynamic linker or a constructor: before there are threads. Who is
/// called while it is looking allocates from `EARLY`; dlsym(3) itself does not since glibc 2.34, where it finds what is asked for.
#[cold]
pub(super) fn find() {
    let first = STATE.compare_exchange(UNKNOWN, SOUGHT, Acquire, Relaxed);
    if first.is_err() {
        return;
    }
    for (name, at) in NAMES.iter().zip(&FOUND) {
        // SAFETY: a string that ends in 0.
        let found = unsafe { linker::next_symbol(name.as_ptr().cast()) } as usize;
        at.store(found, Relaxed);
    }
    // Asked too early, before the linker has bound this very call.
    let first = FOUND.first().map_or(0, |at| at.load(Relaxed));
    STATE.store(if first == 0 { UNKNOWN } else { KNOWN }, Release);
}

/// Bytes for who allocates before the allocator is known.
const EARLY_BYTES: usize = 64 << 10;

#[repr(align(4096))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: this module's invariant.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);
static ANY: AtomicBool = AtomicBool::new(false);

/// Zeroed memory that is never taken back; 0 where there is none left.
#[cold]
pub(super) fn early(bytes: u64) -> u64 {
    let Some(room) = usize::try_from(bytes)
        .ok()
        .and_then(|b| b.checked_next_multiple_of(16))
    else {
        return 0;
    };
    if room > EARLY_BYTES {
        return 0;
    }
    ANY.store(true, Relaxed);
    let at = USED.fetch_add(room.max(16), Relaxed);
    if at.saturating_add(room) > EARLY_BYTES {
        return 0;
    }
    EARLY.0.get() as u64 + at as u64
}

/// Whether a block is from there.
pub(super) fn is_early(block: u64) -> bool {
    let begin = EARLY.0.get() as u64;
    ANY.load(Relaxed) && (begin..begin + EARLY_BYTES as u64).contains(&block)
}

/// Copies what an early block may hold, as far as `bytes`.
///
/// # Safety
/// `to` must have room for `bytes`.
pub(super) unsafe fn copy_early(from: u64, to: u64, bytes: u64) {
    let left = EARLY.0.get() as u64 + EARLY_BYTES as u64 - from;
    // SAFETY: the caller's contract; what is read ends with the room.
    unsafe { core::ptr::copy(from as *const u8, to as *mut u8, left.min(bytes) as usize) };
}

#[cfg(feature = "heap")]
mod linker {
    use core::arch::global_asm;

    // Weak: neither is linked with, nor has to exist when this is.
    global_asm!(
        ".weak dlsym",
        ".weak _dl_find_object",
        ".hidden statcache_next_symbol",
        ".globl statcache_next_symbol",
        ".type statcache_next_symbol, @function",
        "statcache_next_symbol:",
        ".cfi_startproc",
        "mov rax, qword ptr [rip + dlsym@GOTPCREL]",
        "test rax, rax",
        "je 2f",
        "mov rsi, rdi",
        // RTLD_NEXT: behind the object that calls. That is this one, so it has to be a call.
        "mov rdi, -1",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call rax",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "2: ret",
        ".cfi_endproc",
        ".hidden statcache_find_object",
        ".globl statcache_find_object",
        ".type statcache_find_object, @function",
        "statcache_find_object:",
        ".cfi_startproc",
        "mov rax, qword ptr [rip + _dl_find_object@GOTPCREL]",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2: mov eax, -1",
        "ret",
        ".cfi_endproc",
    );

    unsafe extern "C" {
        /// dlsym(3) of `RTLD_NEXT`.
        #[link_name = "statcache_next_symbol"]
        pub fn next_symbol(name: *const u8) -> *const ();
        /// `_dl_find_object` (glibc 2.35); -1 where there is none.
        #[link_name = "statcache_find_object"]
        pub fn find_object(address: u64, found: *mut [u64; 12]) -> i32;
    }
}

#[cfg(not(feature = "heap"))]
mod linker {
    /// Nothing: in tests no allocator stands behind us.
    pub unsafe fn next_symbol(_: *const u8) -> *const () {
        core::ptr::null()
    }

    #[cfg(test)]
    unsafe extern "C" {
        #[link_name = "_dl_find_object"]
        pub fn find_object(address: u64, found: *mut [u64; 12]) -> i32;
    }

    #[cfg(not(test))]
    pub unsafe fn find_object(_: u64, _: *mut [u64; 12]) -> i32 {
        -1
    }
}

/// What the dynamic linker knows of the object at an address.
pub(super) struct Found {
    /// Address of its table of unwind information (`.eh_frame_hdr`).
    pub table: u64,
    /// Whether it goes without dlclose(3): what the C library loads for conversions of characters.
    pub may_go: bool,
}

/// The object that holds `address`, with its unwind information.
///
/// Source: the GNU C Library's manual, "Dynamic Linker Introspection".
pub(super) fn object(address: u64) -> Option<Found> {
    /// `struct dl_find_object`: flags, begin and end of the object, its link map, its table, and room for more.
    const MAP: usize = 3;
    const TABLE: usize = 4;
    let mut found = [0u64; 12];
    // SAFETY: it writes one such structure, for which there is room.
    let answer = unsafe { linker::find_object(address, &raw mut found) };
    let table = found.get(TABLE).copied().filter(|table| *table != 0);
    let table = table.filter(|_| answer == 0)?;
    let map = found.get(MAP).copied().unwrap_or(0);
    // SAFETY: a `struct link_map` of an object that is loaded; its second word is a string.
    let may_go = map != 0 && unsafe { holds((map as *const u64).add(1).read(), b"/gconv/") };
    Some(Found { table, may_go })
}

/// Whether the string at `at` holds `part`.
///
/// # Safety
/// It must be 0 or end in 0.
unsafe fn holds(at: u64, part: &[u8; 7]) -> bool {
    if at == 0 {
        return false;
    }
    let mut last = [0u8; 7];
    for n in 0.. {
        // SAFETY: the caller's contract; nothing is read behind its end.
        let byte = unsafe { (at as *const u8).add(n).read() };
        if byte == 0 {
            break;
        }
        last.rotate_left(1);
        last[6] = byte;
        if last == *part {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        // SAFETY: it ends in 0.
        let of = |text: &core::ffi::CStr| unsafe { holds(text.as_ptr() as u64, b"/gconv/") };
        assert!(of(c"/usr/lib/x86_64-linux-gnu/gconv/UTF-16.so"));
        assert!(!of(c"/usr/lib/gconv"));
        assert!(!of(c""));
        // SAFETY: none.
        assert!(!unsafe { holds(0, b"/gconv/") });
    }

    #[test]
    fn early_memory_ends() {
        let first = early(100);
        assert!(is_early(first) && first.is_multiple_of(16));
        assert_ne!(early(0), early(0));
        assert_eq!(early(1 << 40), 0);
        assert_eq!(early(u64::MAX), 0);
        while early(4096) != 0 {}
        assert_eq!(early(4096), 0);
        assert!(!is_early(0));
    }
}

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

/// All at once, with the first call in the process, which is made by the dynamic linker or a constructor: before there are threads. The
/// linker may allocate to answer.
#[cold]
pub(super) fn find() {
    let first = STATE.compare_exchange(UNKNOWN, SOUGHT, Acquire, Relaxed);
    if first.is_err() {
        return;
    }
    for (n, (name, at)) in NAMES.iter().zip(&FOUND).enumerate() {
        // SAFETY: a string that ends in 0.
        let found = unsafe { linker::next_symbol(name.as_ptr().cast()) } as usize;
        at.store(
            if found == 0 {
                linker::internal(n)
            } else {
                found
            },
            Relaxed,
        );
    }
    STATE.store(KNOWN, Release);
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

    // Nothing here has to exist: an undefined symbol that is weak is null. The second table has what old C libraries call the allocator
    // themselves, whose dlsym is in a library of its own that programs need not have.
    global_asm!(
        ".weak dlsym",
        ".weak _dl_find_object",
        ".weak __libc_malloc",
        ".weak __libc_calloc",
        ".weak __libc_realloc",
        ".weak __libc_free",
        ".weak __libc_memalign",
        ".weak __libc_valloc",
        ".weak __libc_pvalloc",
        ".weak __mmap",
        ".weak __munmap",
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
        ".pushsection .data.rel.ro, \"aw\"",
        ".hidden statcache_internals",
        ".globl statcache_internals",
        ".balign 8",
        "statcache_internals:",
        ".quad __libc_malloc, __libc_calloc, __libc_realloc, __libc_free, __libc_memalign, __libc_memalign, 0",
        ".quad __libc_valloc, __libc_pvalloc, __mmap, __munmap, 0",
        ".popsection",
    );

    unsafe extern "C" {
        /// dlsym(3) of `RTLD_NEXT`.
        #[link_name = "statcache_next_symbol"]
        pub fn next_symbol(name: *const u8) -> *const ();
        /// `_dl_find_object` (glibc 2.35); -1 where there is none.
        #[link_name = "statcache_find_object"]
        pub fn find_object(address: u64, found: *mut [u64; 12]) -> i32;
        #[link_name = "statcache_internals"]
        static INTERNALS: [usize; super::NAMES.len()];
    }

    /// What the C library calls its own function by that number, 0 for none.
    pub fn internal(function: usize) -> usize {
        // SAFETY: a table of that length, above.
        unsafe { INTERNALS.get(function).copied().unwrap_or(0) }
    }
}

#[cfg(not(feature = "heap"))]
mod linker {
    /// Nothing: in tests no allocator stands behind us.
    pub unsafe fn next_symbol(_: *const u8) -> *const () {
        core::ptr::null()
    }

    pub fn internal(_: usize) -> usize {
        0
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

/// Address of the table of unwind information (`.eh_frame_hdr`) of the object that holds `address`.
///
/// Source: the GNU C Library's manual, "Dynamic Linker Introspection".
pub(super) fn unwind_table(address: u64) -> Option<u64> {
    /// `struct dl_find_object`: flags, begin and end of the object, its link map, its table, and room for more.
    const TABLE: usize = 4;
    let mut found = [0u64; 12];
    // SAFETY: it writes one such structure, for which there is room.
    let answer = unsafe { linker::find_object(address, &raw mut found) };
    let table = found.get(TABLE).copied().filter(|table| *table != 0);
    table.filter(|_| answer == 0)
}

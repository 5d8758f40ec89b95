//! The allocator's functions, and those that map memory: each does what the one behind it does, and notes the block.
//!
//! Unsafe invariant: what is called behind a name has the C prototype of that name (malloc(3), posix_memalign(3), mmap(2),
//! dlclose(3)), and pointers are passed on as they came. `at` is where the return address of the call lies (`entries`).

use super::resolve::{self, Function};
use super::{memo, sites, table, unwind};
use statcache_abi::PAGE_BYTES;
#[cfg(feature = "heap")]
use statcache_abi::heap::{Places, VERSION};

/// Number of the site that is being called from.
///
/// # Safety
/// As [`unwind::callers`].
unsafe fn site(at: *const u64, frame: u64) -> u32 {
    // SAFETY: the caller's contract.
    if let Some(site) = unsafe { memo::find(at) } {
        return site;
    }
    // SAFETY: the caller's contract.
    let chain = unsafe { unwind::callers(at, frame) };
    let site = sites::number(chain.addresses.get(..chain.count).unwrap_or(&[]));
    memo::keep(at, &chain, site);
    site
}

/// Notes a block that has been made for the caller, unless it is null; gives it back.
///
/// # Safety
/// As [`unwind::callers`].
unsafe fn noted(block: u64, bytes: u64, at: *const u64, frame: u64) -> u64 {
    if block != 0 {
        // SAFETY: the caller's contract.
        table::came(block, bytes, unsafe { site(at, frame) });
    }
    block
}

const ENOMEM: i32 = 12;

macro_rules! next {
    ($function:expr, $type:ty) => {{
        let at = resolve::next($function);
        // SAFETY: this module's invariant; null is none.
        unsafe { core::mem::transmute::<usize, Option<$type>>(at) }
    }};
}

type Of1 = unsafe extern "C" fn(u64) -> u64;
type Of2 = unsafe extern "C" fn(u64, u64) -> u64;

unsafe extern "C" fn malloc(size: u64, _: u64, _: u64, at: *const u64, frame: u64) -> u64 {
    // SAFETY: this module's invariant.
    let block = next!(Function::Malloc, Of1)
        .map_or_else(|| resolve::early(size), |next| unsafe { next(size) });
    // SAFETY: this module's invariant.
    unsafe { noted(block, size, at, frame) }
}

unsafe extern "C" fn calloc(count: u64, size: u64, _: u64, at: *const u64, frame: u64) -> u64 {
    // What overflows is refused, here or behind.
    let bytes = count.saturating_mul(size);
    // SAFETY: this module's invariant. Early memory is zeroed.
    let block = next!(Function::Calloc, Of2).map_or_else(
        || resolve::early(bytes),
        |next| unsafe { next(count, size) },
    );
    // SAFETY: this module's invariant.
    unsafe { noted(block, bytes, at, frame) }
}

unsafe extern "C" fn realloc(old: u64, size: u64, _: u64, at: *const u64, frame: u64) -> u64 {
    if resolve::is_early(old) {
        // SAFETY: this module's invariant.
        let block = unsafe { malloc(size, 0, 0, at, frame) };
        if block != 0 {
            // SAFETY: early memory holds that much behind each of its blocks.
            unsafe { resolve::copy_early(old, block, size) };
        }
        return block;
    }
    let Some(next) = next!(Function::Realloc, Of2) else {
        return resolve::early(size);
    };
    let held = table::held(old);
    // Before it can be another thread's. A large one may move.
    if table::went(old) {
        unwind::forget_places();
    }
    // SAFETY: this module's invariant.
    let block = unsafe { next(old, size) };
    if block != 0 {
        // SAFETY: this module's invariant.
        table::came(block, size, unsafe { site(at, frame) });
    } else if size != 0 {
        table::came_back(old, held);
    }
    block
}

unsafe extern "C" fn free(block: u64, _: u64, _: u64, _: *const u64, _: u64) {
    if block == 0 || resolve::is_early(block) {
        return;
    }
    // Before it can be another thread's. The allocator may unmap a large one without our hearing of it.
    if table::went(block) {
        unwind::forget_places();
    }
    if let Some(next) = next!(Function::Free, Of1) {
        // SAFETY: this module's invariant.
        unsafe { next(block) };
    }
}

unsafe extern "C" fn aligned_alloc(
    alignment: u64,
    size: u64,
    _: u64,
    at: *const u64,
    frame: u64,
) -> u64 {
    // SAFETY: this module's invariant.
    unsafe { aligned(Function::AlignedAlloc, alignment, size, at, frame) }
}

unsafe extern "C" fn memalign(
    alignment: u64,
    size: u64,
    _: u64,
    at: *const u64,
    frame: u64,
) -> u64 {
    // SAFETY: this module's invariant.
    unsafe { aligned(Function::Memalign, alignment, size, at, frame) }
}

unsafe fn aligned(
    function: Function,
    alignment: u64,
    size: u64,
    at: *const u64,
    frame: u64,
) -> u64 {
    // SAFETY: this module's invariant.
    let block = next!(function, Of2).map_or(0, |next| unsafe { next(alignment, size) });
    // SAFETY: this module's invariant.
    unsafe { noted(block, size, at, frame) }
}

unsafe extern "C" fn posix_memalign(
    to: *mut u64,
    alignment: u64,
    size: u64,
    at: *const u64,
    frame: u64,
) -> i32 {
    type Next = unsafe extern "C" fn(*mut u64, u64, u64) -> i32;
    let Some(next) = next!(Function::PosixMemalign, Next) else {
        return ENOMEM;
    };
    // SAFETY: this module's invariant.
    unsafe {
        let error = next(to, alignment, size);
        if error == 0 {
            table::came(to.read(), size, site(at, frame));
        }
        error
    }
}

unsafe extern "C" fn valloc(size: u64, _: u64, _: u64, at: *const u64, frame: u64) -> u64 {
    // SAFETY: this module's invariant.
    unsafe { pages(Function::Valloc, size, at, frame) }
}

unsafe extern "C" fn pvalloc(size: u64, _: u64, _: u64, at: *const u64, frame: u64) -> u64 {
    // SAFETY: this module's invariant.
    unsafe { pages(Function::Pvalloc, size, at, frame) }
}

unsafe fn pages(function: Function, size: u64, at: *const u64, frame: u64) -> u64 {
    // SAFETY: this module's invariant.
    let block = next!(function, Of1).map_or(0, |next| unsafe { next(size) });
    // SAFETY: this module's invariant.
    unsafe { noted(block, size, at, frame) }
}

/// mmap(2). What files hold is named by the file.
unsafe extern "C" fn mmap(
    place: u64,
    bytes: u64,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: i64,
    at: *const u64,
    frame: u64,
) -> u64 {
    type Next = unsafe extern "C" fn(u64, u64, i32, i32, i32, i64) -> u64;
    const FAILED: u64 = u64::MAX;
    const PRIVATE_ANONYMOUS: i32 = 0x22;
    let Some(next) = next!(Function::Mmap, Next) else {
        return FAILED;
    };
    // SAFETY: this module's invariant.
    unsafe {
        let start = next(place, bytes, protection, flags, fd, offset);
        if start != FAILED && flags & PRIVATE_ANONYMOUS == PRIVATE_ANONYMOUS {
            table::came(start, bytes, site(at, frame));
        }
        start
    }
}

unsafe extern "C" fn munmap(start: u64, bytes: u64, _: u64, _: *const u64, _: u64) -> i32 {
    type Next = unsafe extern "C" fn(u64, u64) -> i32;
    /// End of what a program can have, with page tables of five levels.
    const HIGHEST: u64 = 1 << 56;
    let Some(next) = next!(Function::Munmap, Next) else {
        return -1;
    };
    // Before it can be another thread's; but nothing goes of what the kernel refuses.
    let is_range = start.checked_add(bytes).is_some_and(|end| end <= HIGHEST);
    if is_range && bytes != 0 && start.is_multiple_of(PAGE_BYTES) {
        table::unmapped(start, bytes);
        unwind::forget_places();
    }
    // SAFETY: this module's invariant.
    unsafe { next(start, bytes) }
}

unsafe extern "C" fn dlclose(handle: u64, _: u64, _: u64, _: *const u64, _: u64) -> i32 {
    type Next = unsafe extern "C" fn(u64) -> i32;
    // SAFETY: this module's invariant.
    let answer = next!(Function::Dlclose, Next).map_or(-1, |next| unsafe { next(handle) });
    // In this order: what is kept is kept by rules.
    unwind::forget();
    unwind::forget_places();
    memo::forget();
    answer
}

/// The names that the program's calls are bound to.
#[cfg(feature = "heap")]
mod entries {
    use core::arch::naked_asm;

    // Where the return address lies goes behind the last argument that any of them has, and the caller's frame pointer behind that.
    macro_rules! entry {
        ($($name:ident = $to:path;)*) => {$(
            /// As the C library's.
            ///
            /// # Safety
            /// As there.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "mov rcx, rsp",
                    "mov r8, rbp",
                    // The C library's do without the alignment that they are promised (System V ABI for x86-64, 3.2.2), and programs with stacks of
                    // their own without keeping it.
                    "lea rax, [rsp + 8]",
                    "test al, 15",
                    "jnz 2f",
                    "jmp {to}",
                    "2:",
                    "push rbp",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_offset rbp, -16",
                    "mov rbp, rsp",
                    ".cfi_def_cfa_register rbp",
                    "and rsp, -16",
                    "call {to}",
                    "leave",
                    ".cfi_def_cfa rsp, 8",
                    "ret",
                    ".cfi_endproc",
                    to = sym $to,
                )
            }
        )*};
    }

    entry! {
        malloc = super::malloc;
        calloc = super::calloc;
        realloc = super::realloc;
        free = super::free;
        aligned_alloc = super::aligned_alloc;
        memalign = super::memalign;
        posix_memalign = super::posix_memalign;
        valloc = super::valloc;
        pvalloc = super::pvalloc;
        munmap = super::munmap;
        dlclose = super::dlclose;
    }

    // Its arguments fill all registers, so it is called with these two on the stack.
    macro_rules! mapping {
        ($($name:ident)*) => {$(
            /// As the C library's.
            ///
            /// # Safety
            /// As there.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "mov rax, rsp",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "push rbp",
                    ".cfi_adjust_cfa_offset 8",
                    "push rax",
                    ".cfi_adjust_cfa_offset 8",
                    "call {to}",
                    "add rsp, 24",
                    ".cfi_adjust_cfa_offset -24",
                    "ret",
                    ".cfi_endproc",
                    to = sym super::mmap,
                )
            }
        )*};
    }

    mapping! { mmap mmap64 }
}

/// [`Places`] is made of addresses of statics.
#[cfg(feature = "heap")]
#[repr(transparent)]
pub struct Image(Places<*const ()>);
// SAFETY: the pointers are only passed on.
#[cfg(feature = "heap")]
unsafe impl Sync for Image {}

/// What whoever reads the process looks for.
#[cfg(feature = "heap")]
#[unsafe(export_name = "statcache_heap_places")]
pub static PLACES: Image = Image(Places {
    version: VERSION,
    chunks: (&raw const table::DIRECTORY).cast(),
    larges: (&raw const table::LIST).cast(),
    sites: (&raw const sites::LIST).cast(),
});

/// Takes the shim out of the environment, where children would find it.
///
/// # Safety
/// Only at the start of the process. `environment` is a list of strings as `execve` passes it.
pub unsafe extern "C" fn start(_: i32, _: *const *const u8, environment: *const *const u8) {
    resolve::find();
    // SAFETY: the caller's contract.
    unsafe { crate::environment::hide(environment as u64) };
}

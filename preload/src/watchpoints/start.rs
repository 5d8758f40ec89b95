//! Being loaded, and the one exported function.
//!
//! Unsafe invariant: `start` is called once, by the loader. The environment is written only where it has named our block, so that it
//! is the list that `execve` made, in the process's own stack. A block is used once all of it is mapped.

use core::sync::atomic::Ordering;
use statcache_abi::{BLOCK_BYTES, Block, ENV_FD, MAGIC, Places, Request, VERSION};

use crate::environment::{hide, number, variable};
use crate::watchpoints::state::{self, connect};
use crate::watchpoints::sys::{self, nr};
use crate::watchpoints::{process, requests, signals, text, threads};

/// Serves a request of the program's own; see `statcache_abi::Request`. For tests, and for programs that know of the shim.
///
/// # Safety
/// `request` must be valid for reads and writes.
#[cfg_attr(feature = "shim", unsafe(no_mangle))]
pub unsafe extern "C" fn statcache_shim_call(request: *mut Request) -> i32 {
    requests::call(request)
}

/// [`Places`] is made of addresses of statics.
#[repr(transparent)]
pub struct Image(Places<*const ()>);
// SAFETY: the pointers are only compared and passed on.
unsafe impl Sync for Image {}

/// Where everything lies, for [`start`], and for whoever maps the shim into a running process, where that is not called.
#[cfg_attr(feature = "shim", unsafe(export_name = "statcache_shim_places"))]
pub static PLACES: Image = Image(Places {
    call: statcache_shim_call as *const (),
    handler: signals::handler as *const (),
    restorer: text::RESTORER,
    ring: [text::RING, threads::RING_STACK_TOP, text::RUNG],
    stubs: text::STUBS,
    holds: (&raw const signals::HOLDS).cast(),
    block: (&raw const state::BLOCK).cast(),
    pid: (&raw const process::PID).cast(),
    here: (&raw const process::HERE).cast(),
    wipes: (&raw const process::WIPES).cast(),
});

/// Maps the control block, where the environment names one that is not another process's.
///
/// # Safety
/// Only at the start of the process. `environment` is a list of strings as `execve` passes it, or, from C libraries that
/// pass nothing to constructors, any value.
pub unsafe extern "C" fn start(_: i32, _: *const *const u8, environment: *const *const u8) {
    process::note_pid();
    process::mark();
    let environment = environment as u64;
    let Some(fd) = variable(environment, ENV_FD).and_then(|(_, value)| number(value)) else {
        return;
    };
    if !holds_block(fd) {
        return;
    }
    const READ_WRITE: u64 = 3;
    const MAP_SHARED: u64 = 1;
    // SAFETY: a new mapping.
    let at = unsafe {
        text::syscall(
            nr::MMAP,
            [0, BLOCK_BYTES as u64, READ_WRITE, MAP_SHARED, fd, 0],
        )
    };
    if at <= 0 {
        return;
    }
    let block = at as *mut Block;
    // SAFETY: mapped above, of that size, as the file is; read through atomics.
    let shared = unsafe { &*block };
    let own = sys::getpid();
    let known = shared.magic.load(Ordering::Relaxed) == MAGIC
        && shared.version.load(Ordering::Relaxed) == VERSION;
    let owner = shared
        .owner
        .compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed);
    let free = owner.is_ok() || owner == Err(own);
    if !known || !free {
        // SAFETY: the mapping made above, used by nobody.
        unsafe { text::syscall(nr::MUNMAP, [at as u64, BLOCK_BYTES as u64, 0, 0, 0, 0]) };
        return;
    }
    shared.settle(&PLACES.0.map(|place| place as u64), at as u64);
    connect(block);
    if shared.hides.load(Ordering::Relaxed) != 0 {
        // SAFETY: it named the block, so it is the list; nobody has used it yet.
        unsafe { hide(environment) };
    }
}

/// Whether a descriptor is a file as large as a block.
fn holds_block(fd: u64) -> bool {
    const FSTAT: u64 = 5;
    /// `struct stat`; its `st_size`.
    const WORDS: usize = 18;
    const SIZE: usize = 6;
    let mut stat = [0u64; WORDS];
    // SAFETY: the kernel writes at most a `struct stat`, which is as large.
    let answer = unsafe { text::syscall(FSTAT, [fd, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    answer == 0
        && stat
            .get(SIZE)
            .is_some_and(|size| *size >= BLOCK_BYTES as u64)
}

//! Being loaded, the one exported function, and what a freestanding object must bring along.
//!
//! Unsafe invariant: `start` is called once, by the loader. The environment is read by the kernel
//! (`peek`), into integers; it is written only where it has named our block, so that it is the list
//! that `execve` made, in the process's own stack. A block is used once all of it is mapped.

use core::sync::atomic::Ordering;
use statcache_abi::{BLOCK_BYTES, Block, ENV_FD, MAGIC, Places, Request, VERSION};

use crate::state::{self, connect};
use crate::sys::{self, nr};
use crate::{process, requests, signals, text, threads};

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

/// A word or bytes of this process, read as far as they can be: what a C library passes to constructors is not the same for all.
fn peek<T: Copy + Default>(at: u64) -> Option<T> {
    const PROCESS_VM_READV: u64 = 310;
    let mut value = T::default();
    let bytes = size_of::<T>() as u64;
    let local = [&raw mut value as u64, bytes];
    let remote = [at, bytes];
    let (local, remote) = (local.as_ptr() as u64, remote.as_ptr() as u64);
    let arguments = [sys::getpid() as u64, local, 1, remote, 1, 0];
    // SAFETY: `value` is live and of that size; the kernel checks `at`.
    let moved = unsafe { text::syscall(PROCESS_VM_READV, arguments) };
    (moved == bytes as i64).then_some(value)
}

/// Place of the variable `name` in a list of strings as `execve` passes it, and its value.
fn variable(environment: u64, name: &str) -> Option<(u64, u64)> {
    const MOST: u64 = 1 << 16;
    for place in (0..MOST).map(|n| environment.wrapping_add(8 * n)) {
        let string = peek::<u64>(place).filter(|string| *string != 0)?;
        let mut at = string;
        let mut next = || {
            let byte = peek::<u8>(at);
            at += 1;
            byte
        };
        if name.bytes().all(|wanted| next() == Some(wanted)) && next() == Some(b'=') {
            return Some((place, at));
        }
    }
    None
}

/// The number that a string begins with, up to its end.
fn number(mut at: u64) -> Option<u64> {
    let mut value = 0u64;
    loop {
        match peek::<u8>(at)? {
            digit @ b'0'..=b'9' => value = value.wrapping_mul(10) + u64::from(digit - b'0'),
            0 => return Some(value),
            _ => return None,
        }
        at += 1;
    }
}

/// Takes the shim out of the environment: the variable with its descriptor, and the first of the preloaded objects.
///
/// # Safety
/// The list must be the process's own, at its start.
unsafe fn hide(environment: u64) {
    if let Some((place, _)) = variable(environment, ENV_FD) {
        // SAFETY: the caller's contract.
        unsafe { remove(place) };
    }
    let Some((place, value)) = variable(environment, "LD_PRELOAD") else {
        return;
    };
    let mut rest = value;
    loop {
        match peek::<u8>(rest) {
            None | Some(0) => {
                // SAFETY: the caller's contract.
                return unsafe { remove(place) };
            }
            Some(b':' | b' ') => break,
            Some(_) => rest += 1,
        }
    }
    let mut to = value as *mut u8;
    while let Some(byte) = peek::<u8>(rest + 1) {
        // SAFETY: in the string, before what is read.
        unsafe {
            to.write(byte);
            to = to.add(1);
        }
        rest += 1;
        if byte == 0 {
            return;
        }
    }
}

/// Takes the pointer at `place` out of a list that ends in null.
///
/// # Safety
/// The list must be writable from there to its end.
unsafe fn remove(place: u64) {
    let mut at = place as *mut u64;
    // SAFETY: the caller's contract.
    unsafe {
        while at.read() != 0 {
            at.write(at.add(1).read());
            at = at.add(1);
        }
    }
}

#[cfg(feature = "shim")]
mod freestanding {
    use core::arch::global_asm;

    type Constructor = unsafe extern "C" fn(i32, *const *const u8, *const *const u8);

    #[used]
    #[unsafe(link_section = ".init_array")]
    static START: Constructor = super::start;

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo) -> ! {
        loop {
            // SAFETY: raises SIGILL, which ends a handler that went wrong.
            unsafe { core::arch::asm!("ud2", options(nomem, nostack)) }
        }
    }

    // What the compiler calls for copies and comparisons; hidden, so that nobody else's is called and nobody else calls these.
    global_asm!(
        ".hidden memcpy, memmove, memset, memcmp, bcmp",
        ".globl memcpy, memmove, memset, memcmp, bcmp",
        "memcpy:",
        "mov rax, rdi",
        "mov rcx, rdx",
        "rep movsb",
        "ret",
        "memmove:",
        "mov rax, rdi",
        "mov rcx, rdx",
        "cmp rdi, rsi",
        "jbe 1f",
        "lea rdi, [rdi + rcx - 1]",
        "lea rsi, [rsi + rcx - 1]",
        "std",
        "rep movsb",
        "cld",
        "ret",
        "1: rep movsb",
        "ret",
        "memset:",
        "mov r8, rdi",
        "mov eax, esi",
        "mov rcx, rdx",
        "rep stosb",
        "mov rax, r8",
        "ret",
        "memcmp:",
        "bcmp:",
        "mov rcx, rdx",
        "xor eax, eax",
        "cmp eax, eax",
        "repe cmpsb",
        "je 2f",
        "movzx eax, byte ptr [rdi - 1]",
        "movzx ecx, byte ptr [rsi - 1]",
        "sub ecx, eax",
        "mov eax, ecx",
        "2: ret",
        // Named by the unwind tables of the compiler's own library, never called.
        ".hidden rust_eh_personality",
        ".globl rust_eh_personality",
        "rust_eh_personality:",
        "ud2",
    );
}

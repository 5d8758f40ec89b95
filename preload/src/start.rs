//! Being loaded, the one exported function, and what a freestanding object must bring along.

use core::sync::atomic::Ordering;
use statcache_abi::{BLOCK_BYTES, Block, ENV_FD, MAGIC, Request, VERSION};

use crate::state::connect;
use crate::sys::{self, nr};
use crate::{process, requests, signals, text};

/// Serves a request of the program's own; see `statcache_abi::Request`. For tests, and for programs that know of the shim.
///
/// # Safety
/// `request` must be valid for reads and writes.
#[cfg_attr(feature = "shim", unsafe(no_mangle))]
pub unsafe extern "C" fn statcache_shim_call(request: *mut Request) -> i32 {
    requests::call(request)
}

/// Maps the control block, where the environment names one that is not another process's.
///
/// # Safety
/// `environment` must be a list of strings as `execve` passes it.
pub unsafe extern "C" fn start(_: i32, _: *const *const u8, environment: *const *const u8) {
    process::note_pid();
    process::mark();
    // SAFETY: the caller's contract.
    let Some(fd) = (unsafe { descriptor(environment) }) else {
        return;
    };
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
    // SAFETY: mapped above, of that size; read through atomics. A descriptor of something smaller would raise SIGBUS here; the
    // variable is ours, and so is what it names.
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
    let call = statcache_shim_call as *const () as u64;
    shared.call.store(call, Ordering::Relaxed);
    let handler = signals::handler as *const () as u64;
    shared.handler.store(handler, Ordering::Relaxed);
    shared.restorer.store(text::restorer(), Ordering::Relaxed);
    shared.base.store(at as u64, Ordering::Relaxed);
    for (word, value) in shared.knock.iter().zip(signals::knock()) {
        word.store(value, Ordering::Relaxed);
    }
    shared.images.fetch_add(1, Ordering::Release);
    connect(block);
}

/// The descriptor that [`ENV_FD`] names.
unsafe fn descriptor(mut environment: *const *const u8) -> Option<u64> {
    loop {
        // SAFETY: the caller's contract: a list that ends in null.
        let mut at = unsafe { environment.read() };
        if at.is_null() {
            return None;
        }
        // SAFETY: within each string up to its NUL.
        let mut next = || unsafe {
            let byte = at.read();
            at = at.add(1);
            byte
        };
        if ENV_FD.bytes().all(|wanted| next() == wanted) && next() == b'=' {
            let mut value = 0u64;
            loop {
                match next() {
                    digit @ b'0'..=b'9' => value = value.wrapping_mul(10) + u64::from(digit - b'0'),
                    0 => return Some(value),
                    _ => return None,
                }
            }
        }
        // SAFETY: not yet at the end.
        environment = unsafe { environment.add(1) };
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

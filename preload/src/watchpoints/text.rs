//! The code from which the shim makes system calls, and through which it sends those of the program.
//!
//! All of it lies in one stretch of text that is handed to the kernel as the range that Syscall User Dispatch
//! lets pass, so the shim needs no selector of its own to turn. A dispatched call of the program goes on in one of
//! two tables of stubs, with the program's registers and stack: the place of a stub stands for the place in
//! the program that the call came from (`sites`), so that nothing has to be saved anywhere to find the way back. A
//! stub of the first table jumps back by itself; one of the second stops at an `int3` first, for pages to be closed.
//! Both tables lie end to end (`inside`).
//!
//! Source: Linux Documentation/admin-guide/syscall-user-dispatch.rst.
//!
//! Unsafe invariant: `shim_syscall` and `shim_ask` keep to the C calling convention. `shim_returns`
//! and `shim_home` have as many words as declared, zero to begin with and aligned; Rust code
//! reaches them atomically only. Of the other symbols only the addresses are used.

use core::arch::global_asm;

/// Places of system calls in the program that can be told apart.
pub const SITES: usize = 1024;
/// Registers of `statcache_abi::Block::home`, and the signal mask.
pub const HOME_WORDS: usize = 19;
/// Bytes of a stub in either table.
pub const STUB_BYTES: u64 = 8;

#[cfg(all(feature = "shim", target_feature = "avx"))]
compile_error!("`shim_ring` saves the state of SSE2 only, as the shim is compiled for no more");

global_asm!(
    ".pushsection .text.statcache_shim,\"ax\",@progbits",
    ".balign 64",
    ".hidden shim_text_begin, shim_text_end, shim_syscall, shim_restorer, shim_plain, shim_ask",
    ".hidden shim_direct, shim_closing, shim_returns, shim_ring, shim_rung, shim_home",
    ".globl shim_text_begin, shim_text_end, shim_syscall, shim_restorer, shim_plain, shim_ask",
    ".globl shim_direct, shim_closing, shim_returns, shim_ring, shim_rung, shim_home",
    "shim_text_begin:",
    // shim_syscall(number, a, b, c, d, e, f)
    "shim_syscall:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "ret",
    // Unwinders know a signal frame by these very bytes.
    ".balign 16",
    "nop",
    "shim_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05",
    ".balign 16",
    // A call of the program that does not come back.
    "shim_plain:",
    "syscall",
    "ud2",
    // shim_ask(request, mask): see `requests`.
    "shim_ask:",
    "int3",
    "ret",
    // See `requests::rung`. This code is compiled for SSE2, so that saves all vector state it may change: the upper halves stay.
    ".balign 16",
    "shim_ring:",
    "cld",
    "sub rsp, 512",
    "fxsave64 [rsp]",
    "call {rung}",
    "fxrstor64 [rsp]",
    // rt_sigprocmask(SIG_SETMASK, the mask behind the registers, null, 8)
    "mov edi, 2",
    "lea rsi, [rip + shim_home + 8 * 18]",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "shim_rung:",
    "push qword ptr [rip + shim_home + 8 * 17]",
    "popfq",
    "mov r8, [rip + shim_home]",
    "mov r9, [rip + shim_home + 8]",
    "mov r10, [rip + shim_home + 8 * 2]",
    "mov r11, [rip + shim_home + 8 * 3]",
    "mov r12, [rip + shim_home + 8 * 4]",
    "mov r13, [rip + shim_home + 8 * 5]",
    "mov r14, [rip + shim_home + 8 * 6]",
    "mov r15, [rip + shim_home + 8 * 7]",
    "mov rdi, [rip + shim_home + 8 * 8]",
    "mov rsi, [rip + shim_home + 8 * 9]",
    "mov rbp, [rip + shim_home + 8 * 10]",
    "mov rbx, [rip + shim_home + 8 * 11]",
    "mov rdx, [rip + shim_home + 8 * 12]",
    "mov rax, [rip + shim_home + 8 * 13]",
    "mov rcx, [rip + shim_home + 8 * 14]",
    "mov rsp, [rip + shim_home + 8 * 15]",
    "jmp qword ptr [rip + shim_home + 8 * 16]",
    ".balign 64",
    "shim_direct:",
    ".set shim_slot, 0",
    ".rept 1024",
    "syscall",
    "jmp qword ptr [rip + shim_returns + 8 * shim_slot]",
    ".set shim_slot, shim_slot + 1",
    ".endr",
    "shim_closing:",
    ".rept 1024",
    "syscall",
    "int3",
    // Back to it: whoever traces and dies between a signal's stop and its delivery takes the signal along.
    ".byte 0xeb, 0xfd, 0x0f, 0x0b, 0x90",
    ".endr",
    "shim_text_end:",
    ".popsection",
    ".pushsection .bss.statcache_shim,\"aw\",@nobits",
    ".balign 64",
    "shim_returns: .skip 8 * 1024",
    "shim_home: .skip 8 * 19",
    ".popsection",
    rung = sym crate::watchpoints::requests::rung,
);

unsafe extern "C" {
    static shim_text_begin: u8;
    static shim_text_end: u8;
    static shim_plain: u8;
    static shim_direct: u8;
    static shim_closing: u8;
    static shim_returns: [core::sync::atomic::AtomicU64; SITES];
    static shim_ring: u8;
    static shim_rung: u8;
    static shim_home: [core::sync::atomic::AtomicU64; HOME_WORDS];
    fn shim_ask(request: u64, mask: u64) -> i32;
    fn shim_restorer();
    fn shim_syscall(number: u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64;
}

/// The stretch of text that Syscall User Dispatch lets pass: begin and length.
pub fn range() -> (u64, u64) {
    let begin = &raw const shim_text_begin as u64;
    (begin, &raw const shim_text_end as u64 - begin)
}

/// The return from a signal handler.
pub const RESTORER: *const () = shim_restorer as *const ();

/// Its address.
pub fn restorer() -> u64 {
    RESTORER as u64
}

/// Stops this thread in the SIGTRAP handler with these arguments, and returns what that answers. No memory is used on the way.
pub fn ask(request: u64, mask: u64) -> i32 {
    // SAFETY: an `int3`; the caller has put the handler in place.
    unsafe { shim_ask(request, mask) }
}

/// Whether a SIGTRAP at `rip` is from [`ask`].
pub fn asked(rip: u64) -> bool {
    rip == shim_ask as *const () as u64 + 1
}

/// Where a rung thread is put.
pub const RING: *const () = (&raw const shim_ring).cast();
/// The end of its last system call there.
pub const RUNG: *const () = (&raw const shim_rung).cast();

/// What it goes home with.
pub fn home() -> &'static [core::sync::atomic::AtomicU64; HOME_WORDS] {
    // SAFETY: zeroed memory of the size declared, only accessed atomically; plain loads by the rung thread's way home.
    unsafe { &shim_home }
}

/// Where the stubs lie: begin and end.
pub const STUBS: [*const (); 2] = {
    let begin: *const () = (&raw const shim_direct).cast();
    [
        begin,
        begin.wrapping_byte_add(2 * SITES * STUB_BYTES as usize),
    ]
};

/// A stub that makes the system call in the registers and does not expect to come back.
pub fn plain() -> u64 {
    &raw const shim_plain as u64
}

/// The stub that makes the call in the registers and goes on at `site`'s place in the program.
pub fn direct(site: usize) -> u64 {
    &raw const shim_direct as u64 + site as u64 * STUB_BYTES
}

/// As [`direct`], with a SIGTRAP before it goes on.
pub fn closing(site: usize) -> u64 {
    &raw const shim_closing as u64 + site as u64 * STUB_BYTES
}

/// Where in a stub a thread is: its site, and whether the system call is still to be made (or made again).
pub fn inside(rip: u64) -> Option<(usize, bool)> {
    let offset = rip.checked_sub(&raw const shim_direct as u64)?;
    if offset >= 2 * SITES as u64 * STUB_BYTES {
        return None;
    }
    let site = (offset / STUB_BYTES) as usize % SITES;
    Some((site, offset.is_multiple_of(STUB_BYTES)))
}

/// Whether a thread is in a stub of [`closing`].
pub fn in_closing(rip: u64) -> bool {
    let begin = &raw const shim_closing as u64;
    (begin..begin + SITES as u64 * STUB_BYTES).contains(&rip)
}

/// Where `site`'s stubs go on.
pub fn returns(site: usize) -> &'static core::sync::atomic::AtomicU64 {
    // SAFETY: zeroed memory of the size declared, only accessed atomically; a plain load by the stub's jump.
    unsafe { &shim_returns[site % SITES] }
}

/// Makes a system call; the kernel's answer, `-errno` included. `errno` itself is not touched.
///
/// # Safety
/// The call must be sound with these arguments in this process.
pub unsafe fn syscall(number: u64, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's contract.
    unsafe { shim_syscall(number, a, b, c, d, e, f) }
}

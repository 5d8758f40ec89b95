//! What an object without any library must bring along.

use core::arch::global_asm;

type Constructor = unsafe extern "C" fn(i32, *const *const u8, *const *const u8);

#[used]
#[unsafe(link_section = ".init_array")]
static START: Constructor = AT_START;

#[cfg(feature = "shim")]
const AT_START: Constructor = crate::watchpoints::start::start;
#[cfg(feature = "heap")]
const AT_START: Constructor = crate::heap::start;

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

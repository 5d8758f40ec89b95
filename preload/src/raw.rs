//! System calls from wherever they are needed; those that watchpoints must be able to tell from the program's are `text`'s.
//!
//! Unsafe invariant: the callers', by contract; the instruction itself changes what is said at it.

/// Makes a system call; the kernel's answer, `-errno` included. `errno` itself is not touched.
///
/// # Safety
/// The call must be sound with these arguments in this process.
pub unsafe fn syscall(number: u64, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let answer: i64;
    // SAFETY: the caller's contract; what the instruction changes is said.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as i64 => answer,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

//! What the process may execute: the timer, and register encodings tried in a child.
//!
//! Each class's instructions are executed in a forked child: every register of the class gets its own
//! number, then all are read back. A fault or a repeated number ends the class.
//! Encodings: Intel SDM volume 2 (VEX, EVEX), Intel APX specification (REX2 prefix).
//!
//! Unsafe invariant: a trial runs only in a forked child that ends by `_exit` or its fault; it
//! writes to registers and to the slots of its own array. `prctl` fills one live integer.

use crate::raw::RegisterClass;
use std::arch::asm;

/// The time-stamp counter is not disabled for this process.
pub fn tsc_readable() -> bool {
    let mut mode: libc::c_int = libc::PR_TSC_ENABLE;
    // SAFETY: PR_GET_TSC writes one int. An error leaves the default: readable.
    unsafe { libc::prctl(libc::PR_GET_TSC, &mut mode) };
    mode == libc::PR_TSC_ENABLE
}

/// A test: true when all its registers kept their numbers.
type Trial = unsafe fn() -> bool;

/// Runs a trial in a child; false when it faulted or the numbers did not last.
fn in_child(trial: Trial) -> bool {
    // SAFETY: the child only runs register instructions and leaves by _exit; default handlers end it on a fault.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::signal(libc::SIGILL, libc::SIG_DFL);
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            libc::_exit(if trial() { 0 } else { 1 });
        }
        if pid < 0 {
            return false;
        }
        let mut status = 0;
        while libc::waitpid(pid, &mut status, 0) < 0 {
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return false;
            }
        }
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

fn distinct(values: &[u64]) -> bool {
    values
        .iter()
        .enumerate()
        .all(|(i, v)| !values[..i].contains(v))
}

/// General registers but the stack pointer and the one that holds the buffer: 14 numbers written, read, compared.
unsafe fn general() -> bool {
    let mut out = [0u64; 14];
    // SAFETY: all changed registers are declared or saved; out has 14 slots.
    unsafe {
        asm!(
            "push rbx", "push rbp",
            "mov eax, 1", "mov ebx, 2", "mov ecx, 3", "mov edx, 4", "mov esi, 5", "mov ebp, 6", "mov r8d, 7", "mov r9d, 8",
            "mov r10d, 9", "mov r11d, 10", "mov r12d, 11", "mov r13d, 12", "mov r14d, 13", "mov r15d, 14",
            "mov [rdi], rax", "mov [rdi+8], rbx", "mov [rdi+16], rcx", "mov [rdi+24], rdx", "mov [rdi+32], rsi",
            "mov [rdi+40], rbp", "mov [rdi+48], r8", "mov [rdi+56], r9", "mov [rdi+64], r10", "mov [rdi+72], r11",
            "mov [rdi+80], r12", "mov [rdi+88], r13", "mov [rdi+96], r14", "mov [rdi+104], r15",
            "pop rbp", "pop rbx",
            in("rdi") out.as_mut_ptr(), out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("r8") _, out("r9") _,
            out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _
        );
    }
    distinct(&out)
}

/// The sixteen further general registers of APX: `mov r16d..r31d, n` with the REX2 prefix, read back to rax.
unsafe fn apx() -> bool {
    let (mut a, mut b): (u64, u64);
    // SAFETY: the bytes are `mov r16, 101; mov r31, 102; mov rax, r16; mov rcx, r31`; where APX is absent they fault.
    unsafe {
        asm!(
            ".byte 0xd5, 0x18, 0xc7, 0xc0, 101, 0, 0, 0",
            ".byte 0xd5, 0x19, 0xc7, 0xc7, 102, 0, 0, 0",
            ".byte 0xd5, 0x48, 0x89, 0xc0",
            ".byte 0xd5, 0x4c, 0x89, 0xf9",
            out("rax") a, out("rcx") b, options(nostack)
        );
    }
    (a, b) == (101, 102)
}

/// Eight MMX registers.
unsafe fn mmx() -> bool {
    let mut out = [0u64; 8];
    // SAFETY: writes registers that are declared or unused here, and 8 slots of out; faults where absent.
    unsafe {
        asm!(
            "mov eax, 1", "movd mm0, eax",
            "mov eax, 2", "movd mm1, eax",
            "mov eax, 3", "movd mm2, eax",
            "mov eax, 4", "movd mm3, eax",
            "mov eax, 5", "movd mm4, eax",
            "mov eax, 6", "movd mm5, eax",
            "mov eax, 7", "movd mm6, eax",
            "mov eax, 8", "movd mm7, eax",
            "movq rax, mm0", "mov [{o} + 0], rax",
            "movq rax, mm1", "mov [{o} + 8], rax",
            "movq rax, mm2", "mov [{o} + 16], rax",
            "movq rax, mm3", "mov [{o} + 24], rax",
            "movq rax, mm4", "mov [{o} + 32], rax",
            "movq rax, mm5", "mov [{o} + 40], rax",
            "movq rax, mm6", "mov [{o} + 48], rax",
            "movq rax, mm7", "mov [{o} + 56], rax",
            "emms",
            o = in(reg) out.as_mut_ptr(), out("rax") _
        );
    }
    distinct(&out)
}

/// Sixteen vector registers by legacy encoding.
unsafe fn xmm() -> bool {
    let mut out = [0u64; 16];
    // SAFETY: writes registers that are declared or unused here, and 16 slots of out; faults where absent.
    unsafe {
        asm!(
            "mov eax, 1", "movd xmm0, eax",
            "mov eax, 2", "movd xmm1, eax",
            "mov eax, 3", "movd xmm2, eax",
            "mov eax, 4", "movd xmm3, eax",
            "mov eax, 5", "movd xmm4, eax",
            "mov eax, 6", "movd xmm5, eax",
            "mov eax, 7", "movd xmm6, eax",
            "mov eax, 8", "movd xmm7, eax",
            "mov eax, 9", "movd xmm8, eax",
            "mov eax, 10", "movd xmm9, eax",
            "mov eax, 11", "movd xmm10, eax",
            "mov eax, 12", "movd xmm11, eax",
            "mov eax, 13", "movd xmm12, eax",
            "mov eax, 14", "movd xmm13, eax",
            "mov eax, 15", "movd xmm14, eax",
            "mov eax, 16", "movd xmm15, eax",
            "movq rax, xmm0", "mov [{o} + 0], rax",
            "movq rax, xmm1", "mov [{o} + 8], rax",
            "movq rax, xmm2", "mov [{o} + 16], rax",
            "movq rax, xmm3", "mov [{o} + 24], rax",
            "movq rax, xmm4", "mov [{o} + 32], rax",
            "movq rax, xmm5", "mov [{o} + 40], rax",
            "movq rax, xmm6", "mov [{o} + 48], rax",
            "movq rax, xmm7", "mov [{o} + 56], rax",
            "movq rax, xmm8", "mov [{o} + 64], rax",
            "movq rax, xmm9", "mov [{o} + 72], rax",
            "movq rax, xmm10", "mov [{o} + 80], rax",
            "movq rax, xmm11", "mov [{o} + 88], rax",
            "movq rax, xmm12", "mov [{o} + 96], rax",
            "movq rax, xmm13", "mov [{o} + 104], rax",
            "movq rax, xmm14", "mov [{o} + 112], rax",
            "movq rax, xmm15", "mov [{o} + 120], rax",
            o = in(reg) out.as_mut_ptr(), out("rax") _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _
        );
    }
    distinct(&out)
}

/// Sixteen 256-bit registers by VEX encoding: the upper half is what is written and read.
unsafe fn ymm() -> bool {
    let mut out = [0u64; 16];
    // SAFETY: writes registers that are declared or unused here, and 16 slots of out; faults where absent.
    unsafe {
        asm!(
            "mov eax, 1", "vmovd xmm0, eax", "vinsertf128 ymm0, ymm0, xmm0, 1",
            "mov eax, 2", "vmovd xmm1, eax", "vinsertf128 ymm1, ymm1, xmm1, 1",
            "mov eax, 3", "vmovd xmm2, eax", "vinsertf128 ymm2, ymm2, xmm2, 1",
            "mov eax, 4", "vmovd xmm3, eax", "vinsertf128 ymm3, ymm3, xmm3, 1",
            "mov eax, 5", "vmovd xmm4, eax", "vinsertf128 ymm4, ymm4, xmm4, 1",
            "mov eax, 6", "vmovd xmm5, eax", "vinsertf128 ymm5, ymm5, xmm5, 1",
            "mov eax, 7", "vmovd xmm6, eax", "vinsertf128 ymm6, ymm6, xmm6, 1",
            "mov eax, 8", "vmovd xmm7, eax", "vinsertf128 ymm7, ymm7, xmm7, 1",
            "mov eax, 9", "vmovd xmm8, eax", "vinsertf128 ymm8, ymm8, xmm8, 1",
            "mov eax, 10", "vmovd xmm9, eax", "vinsertf128 ymm9, ymm9, xmm9, 1",
            "mov eax, 11", "vmovd xmm10, eax", "vinsertf128 ymm10, ymm10, xmm10, 1",
            "mov eax, 12", "vmovd xmm11, eax", "vinsertf128 ymm11, ymm11, xmm11, 1",
            "mov eax, 13", "vmovd xmm12, eax", "vinsertf128 ymm12, ymm12, xmm12, 1",
            "mov eax, 14", "vmovd xmm13, eax", "vinsertf128 ymm13, ymm13, xmm13, 1",
            "mov eax, 15", "vmovd xmm14, eax", "vinsertf128 ymm14, ymm14, xmm14, 1",
            "mov eax, 16", "vmovd xmm15, eax", "vinsertf128 ymm15, ymm15, xmm15, 1",
            "vextractf128 xmm0, ymm0, 1", "vmovq rax, xmm0", "mov [{o} + 0], rax",
            "vextractf128 xmm1, ymm1, 1", "vmovq rax, xmm1", "mov [{o} + 8], rax",
            "vextractf128 xmm2, ymm2, 1", "vmovq rax, xmm2", "mov [{o} + 16], rax",
            "vextractf128 xmm3, ymm3, 1", "vmovq rax, xmm3", "mov [{o} + 24], rax",
            "vextractf128 xmm4, ymm4, 1", "vmovq rax, xmm4", "mov [{o} + 32], rax",
            "vextractf128 xmm5, ymm5, 1", "vmovq rax, xmm5", "mov [{o} + 40], rax",
            "vextractf128 xmm6, ymm6, 1", "vmovq rax, xmm6", "mov [{o} + 48], rax",
            "vextractf128 xmm7, ymm7, 1", "vmovq rax, xmm7", "mov [{o} + 56], rax",
            "vextractf128 xmm8, ymm8, 1", "vmovq rax, xmm8", "mov [{o} + 64], rax",
            "vextractf128 xmm9, ymm9, 1", "vmovq rax, xmm9", "mov [{o} + 72], rax",
            "vextractf128 xmm10, ymm10, 1", "vmovq rax, xmm10", "mov [{o} + 80], rax",
            "vextractf128 xmm11, ymm11, 1", "vmovq rax, xmm11", "mov [{o} + 88], rax",
            "vextractf128 xmm12, ymm12, 1", "vmovq rax, xmm12", "mov [{o} + 96], rax",
            "vextractf128 xmm13, ymm13, 1", "vmovq rax, xmm13", "mov [{o} + 104], rax",
            "vextractf128 xmm14, ymm14, 1", "vmovq rax, xmm14", "mov [{o} + 112], rax",
            "vextractf128 xmm15, ymm15, 1", "vmovq rax, xmm15", "mov [{o} + 120], rax",
            o = in(reg) out.as_mut_ptr(), out("rax") _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _
        );
    }
    distinct(&out)
}

/// Thirty-two 512-bit registers by EVEX encoding.
unsafe fn zmm() -> bool {
    let mut out = [0u64; 32];
    // SAFETY: writes registers that are declared or unused here, and 32 slots of out; faults where absent.
    unsafe {
        asm!(
            "mov eax, 1", "vpbroadcastd zmm0, eax",
            "mov eax, 2", "vpbroadcastd zmm1, eax",
            "mov eax, 3", "vpbroadcastd zmm2, eax",
            "mov eax, 4", "vpbroadcastd zmm3, eax",
            "mov eax, 5", "vpbroadcastd zmm4, eax",
            "mov eax, 6", "vpbroadcastd zmm5, eax",
            "mov eax, 7", "vpbroadcastd zmm6, eax",
            "mov eax, 8", "vpbroadcastd zmm7, eax",
            "mov eax, 9", "vpbroadcastd zmm8, eax",
            "mov eax, 10", "vpbroadcastd zmm9, eax",
            "mov eax, 11", "vpbroadcastd zmm10, eax",
            "mov eax, 12", "vpbroadcastd zmm11, eax",
            "mov eax, 13", "vpbroadcastd zmm12, eax",
            "mov eax, 14", "vpbroadcastd zmm13, eax",
            "mov eax, 15", "vpbroadcastd zmm14, eax",
            "mov eax, 16", "vpbroadcastd zmm15, eax",
            "mov eax, 17", "vpbroadcastd zmm16, eax",
            "mov eax, 18", "vpbroadcastd zmm17, eax",
            "mov eax, 19", "vpbroadcastd zmm18, eax",
            "mov eax, 20", "vpbroadcastd zmm19, eax",
            "mov eax, 21", "vpbroadcastd zmm20, eax",
            "mov eax, 22", "vpbroadcastd zmm21, eax",
            "mov eax, 23", "vpbroadcastd zmm22, eax",
            "mov eax, 24", "vpbroadcastd zmm23, eax",
            "mov eax, 25", "vpbroadcastd zmm24, eax",
            "mov eax, 26", "vpbroadcastd zmm25, eax",
            "mov eax, 27", "vpbroadcastd zmm26, eax",
            "mov eax, 28", "vpbroadcastd zmm27, eax",
            "mov eax, 29", "vpbroadcastd zmm28, eax",
            "mov eax, 30", "vpbroadcastd zmm29, eax",
            "mov eax, 31", "vpbroadcastd zmm30, eax",
            "mov eax, 32", "vpbroadcastd zmm31, eax",
            "vmovq rax, xmm0", "mov [{o} + 0], rax",
            "vmovq rax, xmm1", "mov [{o} + 8], rax",
            "vmovq rax, xmm2", "mov [{o} + 16], rax",
            "vmovq rax, xmm3", "mov [{o} + 24], rax",
            "vmovq rax, xmm4", "mov [{o} + 32], rax",
            "vmovq rax, xmm5", "mov [{o} + 40], rax",
            "vmovq rax, xmm6", "mov [{o} + 48], rax",
            "vmovq rax, xmm7", "mov [{o} + 56], rax",
            "vmovq rax, xmm8", "mov [{o} + 64], rax",
            "vmovq rax, xmm9", "mov [{o} + 72], rax",
            "vmovq rax, xmm10", "mov [{o} + 80], rax",
            "vmovq rax, xmm11", "mov [{o} + 88], rax",
            "vmovq rax, xmm12", "mov [{o} + 96], rax",
            "vmovq rax, xmm13", "mov [{o} + 104], rax",
            "vmovq rax, xmm14", "mov [{o} + 112], rax",
            "vmovq rax, xmm15", "mov [{o} + 120], rax",
            "vmovq rax, xmm16", "mov [{o} + 128], rax",
            "vmovq rax, xmm17", "mov [{o} + 136], rax",
            "vmovq rax, xmm18", "mov [{o} + 144], rax",
            "vmovq rax, xmm19", "mov [{o} + 152], rax",
            "vmovq rax, xmm20", "mov [{o} + 160], rax",
            "vmovq rax, xmm21", "mov [{o} + 168], rax",
            "vmovq rax, xmm22", "mov [{o} + 176], rax",
            "vmovq rax, xmm23", "mov [{o} + 184], rax",
            "vmovq rax, xmm24", "mov [{o} + 192], rax",
            "vmovq rax, xmm25", "mov [{o} + 200], rax",
            "vmovq rax, xmm26", "mov [{o} + 208], rax",
            "vmovq rax, xmm27", "mov [{o} + 216], rax",
            "vmovq rax, xmm28", "mov [{o} + 224], rax",
            "vmovq rax, xmm29", "mov [{o} + 232], rax",
            "vmovq rax, xmm30", "mov [{o} + 240], rax",
            "vmovq rax, xmm31", "mov [{o} + 248], rax",
            o = in(reg) out.as_mut_ptr(), out("rax") _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _
        );
    }
    distinct(&out)
}

/// Eight mask registers.
unsafe fn masks() -> bool {
    let mut out = [0u64; 8];
    // SAFETY: writes registers that are declared or unused here, and 8 slots of out; faults where absent.
    unsafe {
        asm!(
            "mov eax, 1", "kmovw k0, eax",
            "mov eax, 2", "kmovw k1, eax",
            "mov eax, 3", "kmovw k2, eax",
            "mov eax, 4", "kmovw k3, eax",
            "mov eax, 5", "kmovw k4, eax",
            "mov eax, 6", "kmovw k5, eax",
            "mov eax, 7", "kmovw k6, eax",
            "mov eax, 8", "kmovw k7, eax",
            "kmovw eax, k0", "mov [{o} + 0], rax",
            "kmovw eax, k1", "mov [{o} + 8], rax",
            "kmovw eax, k2", "mov [{o} + 16], rax",
            "kmovw eax, k3", "mov [{o} + 24], rax",
            "kmovw eax, k4", "mov [{o} + 32], rax",
            "kmovw eax, k5", "mov [{o} + 40], rax",
            "kmovw eax, k6", "mov [{o} + 48], rax",
            "kmovw eax, k7", "mov [{o} + 56], rax",
            o = in(reg) out.as_mut_ptr(), out("rax") _
        );
    }
    distinct(&out)
}

/// Registers of each class, by executing their encodings in children.
pub fn registers() -> Vec<RegisterClass> {
    let class = |name: &str, count: u32, trial: Trial| RegisterClass {
        name: name.into(),
        count: if in_child(trial) { count } else { 0 },
    };
    vec![
        // The stack pointer and the buffer's address are registers too.
        class("general", 16, general),
        class("general, extended (APX)", 16, apx),
        class("mmx", 8, mmx),
        class("xmm", 16, xmm),
        class("ymm", 16, ymm),
        class("zmm", 32, zmm),
        class("mask", 8, masks),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_x86_64_has_its_general_and_xmm_registers() {
        let found = registers();
        let of = |n: &str| found.iter().find(|c| c.name == n).map(|c| c.count);
        assert_eq!(
            (of("general"), of("xmm"), of("mmx")),
            (Some(16), Some(16), Some(8))
        );
        assert_eq!(
            of("zmm") == Some(32),
            std::is_x86_feature_detected!("avx512f")
        );
    }

    #[test]
    fn a_fault_in_the_child_is_an_answer_not_a_crash() {
        unsafe fn bad() -> bool {
            // SAFETY: ud2 faults by definition; the child dies of it.
            unsafe { asm!("ud2") };
            true
        }
        assert!(!in_child(bad));
    }
}

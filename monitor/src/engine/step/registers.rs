//! A stopped thread's registers, as the evaluation of addresses wants them.
//!
//! Source: ptrace(2) `PTRACE_GETREGSET` with `NT_X86_XSTATE`; Intel SDM volume 1, 13.4 (layout of the XSAVE area).
//!
//! Unsafe invariant: the kernel writes no more than the `iov_len` it is told, the buffer's length.

use crate::arch::{Gpr, Registers};
use crate::tracee::{Regs, Result, Stopped, TraceError};
use nix::unistd::Pid;
use std::arch::x86_64::__cpuid_count;
use std::cell::OnceCell;

/// `NT_X86_XSTATE` of linux/elf.h.
const NT_X86_XSTATE: usize = 0x202;
/// Large enough for any state there is today (AMX included), bytes.
const LARGEST: usize = 16 << 10;
/// Offset of XMM0 in the legacy region.
const XMM: usize = 160;

/// Registers at a stop. Vector state is fetched when it is first asked for: gathers only.
pub struct View<'a> {
    regs: &'a Regs,
    tid: Pid,
    state: OnceCell<Result<Vec<u8>>>,
}

impl<'a> View<'a> {
    /// Of a thread whose general registers are known.
    pub fn new(stopped: &Stopped, regs: &'a Regs) -> View<'a> {
        View {
            regs,
            tid: stopped.tid(),
            state: OnceCell::new(),
        }
    }

    /// Value of a general-purpose register.
    pub fn value(&self, gpr: Gpr) -> u64 {
        self.gpr(gpr)
    }

    /// Whether everything that was asked for could be had.
    ///
    /// # Errors
    /// What ptrace said when the vector state was fetched.
    pub fn result(self) -> Result<()> {
        match self.state.into_inner() {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let state = self.state.get_or_init(|| fetch(self.tid));
        let bytes = state.as_ref().ok().and_then(|state| state.get(at..at + N));
        bytes.map_or([0; N], |bytes| bytes.try_into().expect("N bytes"))
    }

    /// `N` bytes at `at` in XSAVE component `component`; zero where the host lacks it.
    fn component<const N: usize>(&self, component: u32, at: usize) -> [u8; N] {
        let leaf = __cpuid_count(0xd, component);
        if leaf.eax == 0 {
            return [0; N];
        }
        self.bytes(leaf.ebx as usize + at)
    }
}

impl Registers for View<'_> {
    fn gpr(&self, gpr: Gpr) -> u64 {
        let regs = self.regs;
        match gpr {
            Gpr::Rax => regs.rax,
            Gpr::Rcx => regs.rcx,
            Gpr::Rdx => regs.rdx,
            Gpr::Rbx => regs.rbx,
            Gpr::Rsp => regs.rsp,
            Gpr::Rbp => regs.rbp,
            Gpr::Rsi => regs.rsi,
            Gpr::Rdi => regs.rdi,
            Gpr::R8 => regs.r8,
            Gpr::R9 => regs.r9,
            Gpr::R10 => regs.r10,
            Gpr::R11 => regs.r11,
            Gpr::R12 => regs.r12,
            Gpr::R13 => regs.r13,
            Gpr::R14 => regs.r14,
            Gpr::R15 => regs.r15,
        }
    }

    fn rflags(&self) -> u64 {
        self.regs.eflags
    }

    fn fs_base(&self) -> u64 {
        self.regs.fs_base
    }

    fn vector(&self, number: u8) -> [u8; 64] {
        let number = usize::from(number);
        let mut vector = [0; 64];
        if number >= 16 {
            return self.component(7, (number - 16) * 64);
        }
        vector[..16].copy_from_slice(&self.bytes::<16>(XMM + number * 16));
        vector[16..32].copy_from_slice(&self.component::<16>(2, number * 16));
        vector[32..].copy_from_slice(&self.component::<32>(6, number * 32));
        vector
    }

    fn mask(&self, number: u8) -> u64 {
        u64::from_le_bytes(self.component(5, usize::from(number) * 8))
    }
}

/// The thread's XSAVE area in the standard format.
fn fetch(tid: Pid) -> Result<Vec<u8>> {
    let mut state = vec![0; LARGEST];
    let mut vector = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `iov_base`, which `state` owns, and the length into `vector`.
    let rc = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid.as_raw(),
            NT_X86_XSTATE,
            &raw mut vector,
        )
    };
    if rc == -1 {
        return Err(TraceError::Os {
            operation: "PTRACE_GETREGSET",
            tid,
            source: std::io::Error::last_os_error(),
        });
    }
    state.truncate(vector.iov_len);
    Ok(state)
}

//! What the kernel puts on a stack when it delivers a signal, and takes from there at `rt_sigreturn`.
//!
//! Source: Linux arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h, uapi/asm/ucontext.h, uapi/asm-generic/siginfo.h.
//!
//! Unsafe invariant: the layouts are the kernel's. Callers vouch for their addresses: at an
//! `fpstate` there are the 512 bytes of the legacy area, and the header behind where the words at
//! 464 say so.

/// `struct sigaction` as `rt_sigaction` takes it.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelAction {
    /// Handler, [`DEFAULT`] or [`IGNORE`].
    pub handler: u64,
    /// Bits of [`sa`].
    pub flags: u64,
    /// Where a handler returns to.
    pub restorer: u64,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

/// `SIG_DFL`.
pub const DEFAULT: u64 = 0;
/// `SIG_IGN`.
pub const IGNORE: u64 = 1;

/// Bits of [`KernelAction::flags`].
#[allow(missing_docs)]
pub mod sa {
    pub const NOCLDSTOP: u64 = 1;
    pub const NOCLDWAIT: u64 = 2;
    pub const SIGINFO: u64 = 4;
    pub const RESTORER: u64 = 0x0400_0000;
    pub const ONSTACK: u64 = 0x0800_0000;
    pub const RESTART: u64 = 0x1000_0000;
    pub const NODEFER: u64 = 0x4000_0000;
    pub const RESETHAND: u64 = 0x8000_0000;
}

/// Signal numbers and sets. Bit `n - 1` of a set is signal `n`.
#[allow(missing_docs)]
pub mod sig {
    pub const ILL: i32 = 4;
    pub const TRAP: i32 = 5;
    pub const BUS: i32 = 7;
    pub const FPE: i32 = 8;
    pub const KILL: i32 = 9;
    pub const SEGV: i32 = 11;
    pub const STOP: i32 = 19;
    pub const URG: i32 = 23;
    pub const SYS: i32 = 31;
    pub const COUNT: i32 = 64;

    /// The set of one signal.
    pub const fn bit(signal: i32) -> u64 {
        1 << (signal - 1)
    }

    /// Signals an instruction can raise; never blocked in the kernel while the shim is in charge, because one raised
    /// while blocked kills.
    pub const FAULTS: u64 = bit(ILL) | bit(TRAP) | bit(BUS) | bit(FPE) | bit(SEGV) | bit(SYS);

    /// What one thread of the shim's sends to another. By default it is ignored, so one that arrives when nobody expects it any
    /// more, behind an `execve` for instance, does nothing.
    pub const DOORBELL: i32 = URG;

    /// Signals the shim always has a handler for, and never lets the kernel block.
    pub const HELD: u64 = FAULTS | bit(DOORBELL);
}

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StackSetting {
    /// Lowest address.
    pub sp: u64,
    /// 0, or bits below.
    pub flags: u32,
    /// Zero.
    pub pad: u32,
    /// Bytes.
    pub size: u64,
}

/// In use, in an answer of `sigaltstack`.
pub const SS_ONSTACK: u32 = 1;
/// None.
pub const SS_DISABLE: u32 = 2;
/// Off while a handler runs on it.
pub const SS_AUTODISARM: u32 = 1 << 31;

impl StackSetting {
    /// No alternate stack.
    pub const NONE: StackSetting = StackSetting {
        sp: 0,
        flags: SS_DISABLE,
        pad: 0,
        size: 0,
    };

    /// Whether there is one.
    pub fn enabled(&self) -> bool {
        self.flags & SS_DISABLE == 0 && self.size > 0
    }

    /// Whether a thread with this stack pointer runs on it.
    pub fn holds(&self, sp: u64) -> bool {
        self.enabled() && sp > self.sp && sp - self.sp <= self.size
    }
}

/// `siginfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SignalInfo {
    /// Signal number.
    pub signo: i32,
    /// Unused by Linux.
    pub errno: i32,
    /// Positive when the kernel raised it.
    pub code: i32,
    /// Zero.
    pub pad: i32,
    /// By kind: fault address; or sender and value; or call address, number and architecture.
    pub fields: [u64; 14],
}

impl SignalInfo {
    /// No signal.
    pub const NONE: SignalInfo = SignalInfo {
        signo: 0,
        errno: 0,
        code: 0,
        pad: 0,
        fields: [0; 14],
    };

    /// Fault address.
    pub fn address(&self) -> u64 {
        self.fields[0]
    }

    /// `si_value` of a queued signal.
    pub fn value(&self) -> u64 {
        self.fields[1]
    }

    /// System call number and architecture of a SIGSYS.
    pub fn call(&self) -> (u64, u32) {
        (self.fields[1] & 0xffff_ffff, (self.fields[1] >> 32) as u32)
    }
}

/// `si_code` values.
#[allow(missing_docs)]
pub mod code {
    pub const QUEUE: i32 = -1;
    pub const SEGV_ACCERR: i32 = 2;
    pub const TRAP_BRKPT: i32 = 1;
    pub const TRAP_TRACE: i32 = 2;
    pub const SYS_USER_DISPATCH: i32 = 2;
}

/// Places of [`Context::regs`].
#[allow(missing_docs)]
pub mod reg {
    pub const R8: usize = 0;
    pub const R9: usize = 1;
    pub const R10: usize = 2;
    pub const R11: usize = 3;
    pub const RDI: usize = 8;
    pub const RSI: usize = 9;
    pub const RDX: usize = 12;
    pub const RAX: usize = 13;
    pub const RCX: usize = 14;
    pub const RSP: usize = 15;
    pub const RIP: usize = 16;
    pub const FLAGS: usize = 17;
    pub const SEGMENTS: usize = 18;
    pub const ERROR: usize = 19;
    /// Place of the general register with this number in the instruction encoding.
    pub const BY_NUMBER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
}

/// Single-step flag.
pub const TF: u64 = 0x100;
/// Direction and resume flags, cleared as the kernel does when a handler starts.
pub const DF_RF: u64 = 0x400 | 0x1_0000;

/// `ucontext_t` as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Context {
    /// Bits that say what the frame holds.
    pub flags: u64,
    /// Zero.
    pub link: u64,
    /// Alternate stack, as it was and as it will be set at the return.
    pub stack: StackSetting,
    /// Registers.
    pub regs: [u64; 23],
    /// Address of the floating-point state, or 0.
    pub fpstate: u64,
    /// Zero.
    pub reserved: [u64; 8],
    /// Signals blocked before, and again after the return.
    pub mask: u64,
}

/// `struct rt_sigframe`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    /// Where the handler returns to.
    pub restorer: u64,
    /// State.
    pub context: Context,
    /// Cause.
    pub info: SignalInfo,
}

const _: () = assert!(size_of::<Frame>() == 440 && size_of::<Context>() == 304);

/// Bytes of the floating-point state at `fpstate`: what its software-reserved words say, else the legacy area.
///
/// # Safety
/// `fpstate` must be 0 or point at one.
pub unsafe fn fp_bytes(fpstate: u64) -> u64 {
    const MAGIC1: u32 = 0x4650_5853;
    if fpstate == 0 {
        return 0;
    }
    // SAFETY: the caller's contract; the legacy area has 512 bytes.
    let (magic, extended) = unsafe {
        let words = (fpstate + 464) as *const u32;
        (words.read_unaligned(), words.add(1).read_unaligned())
    };
    if magic == MAGIC1 {
        u64::from(extended).clamp(512, 16384)
    } else {
        512
    }
}

/// Makes the floating-point state at `fpstate` the initial one, which handlers start with.
///
/// # Safety
/// `fpstate` must be 0 or point at one.
pub unsafe fn fp_initial(fpstate: u64) {
    const MXCSR: u32 = 0x1f80;
    if fpstate == 0 {
        return;
    }
    // SAFETY: the caller's contract: legacy area, then the header whose first word names the parts that follow.
    unsafe {
        ((fpstate + 24) as *mut u32).write(MXCSR);
        if fp_bytes(fpstate) > 512 {
            ((fpstate + 512) as *mut u64).write(0);
        } else {
            // FCW; empty x87 stack.
            (fpstate as *mut u64).write(0x37f);
        }
    }
}

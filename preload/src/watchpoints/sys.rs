//! The system calls the shim makes for itself, as functions; raw, async-signal-safe, `errno` untouched.
//!
//! Source: man pages of section 2; numbers from arch/x86/entry/syscalls/syscall_64.tbl.
//!
//! Unsafe invariant: the kernel is handed numbers, null, or the address of a live value of the size
//! it is told; paths end in NUL. For what `mprotect` and `dispatch` do the caller answers.

use crate::watchpoints::frame::{KernelAction, SignalInfo, StackSetting};
use crate::watchpoints::text::syscall;

/// System call numbers of x86-64 that the shim makes or treats specially.
#[allow(missing_docs)]
pub mod nr {
    pub const READ: u64 = 0;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const RT_SIGRETURN: u64 = 15;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const EPOLL_PWAIT2: u64 = 441;
    pub const RT_SIGPENDING: u64 = 127;
    pub const RT_SIGTIMEDWAIT: u64 = 128;
    pub const SCHED_YIELD: u64 = 24;
    pub const MREMAP: u64 = 25;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const GETPID: u64 = 39;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const SHMDT: u64 = 67;
    pub const SIGALTSTACK: u64 = 131;
    pub const RESTART: u64 = 219;
    pub const MLOCK: u64 = 149;
    pub const MLOCKALL: u64 = 151;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const GETTID: u64 = 186;
    pub const TKILL: u64 = 200;
    pub const GETDENTS64: u64 = 217;
    pub const TGKILL: u64 = 234;
    pub const EXIT_GROUP: u64 = 231;
    pub const RT_TGSIGQUEUEINFO: u64 = 297;
    pub const SECCOMP: u64 = 317;
    pub const EXECVEAT: u64 = 322;
    pub const RSEQ: u64 = 334;
    pub const MLOCK2: u64 = 325;
    pub const PKEY_MPROTECT: u64 = 329;
    pub const IO_URING_SETUP: u64 = 425;
    pub const IO_URING_ENTER: u64 = 426;
    pub const IO_URING_REGISTER: u64 = 427;
    pub const CLONE3: u64 = 435;
}

const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const ARCH_GET_FS: u64 = 0x1003;

/// This thread's id.
pub fn gettid() -> i32 {
    // SAFETY: no arguments.
    unsafe { syscall(nr::GETTID, [0; 6]) as i32 }
}

/// This process's id.
pub fn getpid() -> i32 {
    // SAFETY: no arguments.
    unsafe { syscall(nr::GETPID, [0; 6]) as i32 }
}

/// Gives the processor away for a moment.
pub fn sched_yield() {
    // SAFETY: no arguments.
    unsafe { syscall(nr::SCHED_YIELD, [0; 6]) };
}

/// Base of the `fs` segment: the thread's control block.
pub fn fs_base() -> u64 {
    let mut base = 0u64;
    // SAFETY: writes one word to a live variable.
    unsafe {
        syscall(
            nr::ARCH_PRCTL,
            [ARCH_GET_FS, &raw mut base as u64, 0, 0, 0, 0],
        )
    };
    base
}

/// Changes the protection of one page. Negative on failure.
///
/// # Safety
/// Whoever then accesses the page must be able to stand it.
pub unsafe fn mprotect(address: u64, bytes: u64, protection: u32) -> i64 {
    // SAFETY: the caller's contract.
    unsafe {
        syscall(
            nr::MPROTECT,
            [address, bytes, u64::from(protection), 0, 0, 0],
        )
    }
}

/// Reads the disposition of `signal`, and replaces it with `new`.
pub fn sigaction(signal: i32, new: Option<&KernelAction>) -> Option<KernelAction> {
    let mut old = KernelAction::default();
    let new = new.map_or(0, |new| new as *const KernelAction as u64);
    // SAFETY: both pointers are null or live and of the size the kernel is told.
    let answer = unsafe {
        syscall(
            nr::RT_SIGACTION,
            [signal as u64, new, &raw mut old as u64, 8, 0, 0],
        )
    };
    (answer == 0).then_some(old)
}

/// Sets this thread's signal mask; the old one.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both pointers are live words.
    unsafe {
        syscall(
            nr::RT_SIGPROCMASK,
            [2, &raw const mask as u64, &raw mut old as u64, 8, 0, 0],
        )
    };
    old
}

/// This thread's alternate signal stack.
pub fn alternate() -> StackSetting {
    let mut old = StackSetting::NONE;
    // SAFETY: a live structure.
    unsafe { syscall(nr::SIGALTSTACK, [0, &raw mut old as u64, 0, 0, 0, 0]) };
    old
}

/// Sets this thread's alternate signal stack.
pub fn sigaltstack(new: &StackSetting) -> i64 {
    // SAFETY: a live structure.
    unsafe {
        syscall(
            nr::SIGALTSTACK,
            [new as *const StackSetting as u64, 0, 0, 0, 0, 0],
        )
    }
}

/// Puts this thread under Syscall User Dispatch, or takes it out.
///
/// # Safety
/// `selector` must stay valid for as long as the thread lives.
pub unsafe fn dispatch(on: bool, selector: *const u8) -> bool {
    let (begin, bytes) = crate::watchpoints::text::range();
    let arguments = if on {
        [
            PR_SET_SYSCALL_USER_DISPATCH,
            1,
            begin,
            bytes,
            selector as u64,
            0,
        ]
    } else {
        [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0]
    };
    // SAFETY: the caller's contract.
    unsafe { syscall(nr::PRCTL, arguments) == 0 }
}

/// The word that the kernel clears when this thread ends, 0 for none; `None` where the kernel does not say.
pub fn tid_address() -> Option<u64> {
    const PR_GET_TID_ADDRESS: u64 = 40;
    let mut at = 0u64;
    let arguments = [PR_GET_TID_ADDRESS, &raw mut at as u64, 0, 0, 0, 0];
    // SAFETY: writes one word to a live variable.
    let answer = unsafe { syscall(nr::PRCTL, arguments) };
    (answer == 0).then_some(at)
}

/// Sends `signal` with `info` to a thread of this process.
pub fn queue(tid: i32, signal: i32, info: &SignalInfo) -> i64 {
    // SAFETY: `info` is a live siginfo.
    unsafe {
        syscall(
            nr::RT_TGSIGQUEUEINFO,
            [
                getpid() as u64,
                tid as u64,
                signal as u64,
                info as *const SignalInfo as u64,
                0,
                0,
            ],
        )
    }
}

/// Sends `signal` to this thread.
pub fn raise(signal: i32) {
    // SAFETY: only sends a signal.
    unsafe {
        syscall(
            nr::TGKILL,
            [getpid() as u64, gettid() as u64, signal as u64, 0, 0, 0],
        )
    };
}

/// Whether there is a thread `tid`, of this process or another that shares its memory.
pub fn alive(tid: i32) -> bool {
    const ESRCH: i64 = -3;
    // SAFETY: signal 0 only asks.
    unsafe { syscall(nr::TKILL, [tid as u64, 0, 0, 0, 0, 0]) != ESRCH }
}

/// A file open for reading; closed when dropped.
pub struct File(u64);

impl File {
    /// Opens `path`, which ends in NUL.
    pub fn open(path: &[u8], flags: u64) -> Option<File> {
        const CLOEXEC: u64 = 0o2_000_000;
        // SAFETY: a NUL-terminated path.
        let fd = unsafe {
            syscall(
                nr::OPEN,
                [path.as_ptr() as u64, flags | CLOEXEC, 0, 0, 0, 0],
            )
        };
        (fd >= 0).then_some(File(fd as u64))
    }

    /// Reads or, with `GETDENTS64`, lists into `buffer`; the bytes got, 0 at the end or on failure.
    pub fn fill(&self, number: u64, buffer: &mut [u8]) -> usize {
        // SAFETY: the buffer is live and of that length.
        let got = unsafe {
            syscall(
                number,
                [
                    self.0,
                    buffer.as_mut_ptr() as u64,
                    buffer.len() as u64,
                    0,
                    0,
                    0,
                ],
            )
        };
        usize::try_from(got).unwrap_or(0).min(buffer.len())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: closes a descriptor of ours.
        unsafe { syscall(nr::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// The time stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: an unprivileged read.
    unsafe { core::arch::x86_64::_rdtsc() }
}

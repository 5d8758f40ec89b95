//! A traced thread, as types: what is stopped can be looked at and resumed, what runs can only be
//! waited for. Wraps ptrace(2); knows nothing of sampling.
//!
//! Invariants: every function runs on the thread that seized the tracee (ptrace(2): "subsequent
//! ptrace commands must come from the tracer thread"); `PTRACE_O_EXITKILL` is never set, so a
//! tracee outlives its tracer.

mod completion;
pub mod filters;
pub mod hub;
pub mod launch;
pub mod maps;
pub mod near;
pub mod procinfo;
pub mod remote;
mod rivals;
pub mod sequence;
mod space;
pub mod spare;
pub mod status;
pub mod stops;
mod tracers;
pub mod transfers;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Instant;

pub use libc::user_regs_struct as Regs;

/// The code segment of 64-bit code (linux/arch/x86, `__USER_CS`).
pub const CODE_64: u64 = 0x33;

/// A failed operation on a tracee, with the operation and the thread it was meant for.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The tracee is gone (`ESRCH`): an expected event of its life.
    #[error("thread {0} is gone")]
    Gone(Pid),
    /// Anything else.
    #[error("{operation} on thread {tid} failed: {source}")]
    Os {
        /// The ptrace request or system call.
        operation: &'static str,
        /// The thread it was meant for.
        tid: Pid,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A call injected into the tracee failed there.
    #[error("{what} inside process {tid} failed: {source}")]
    Remote {
        /// What was attempted.
        what: &'static str,
        /// The thread that attempted it for us.
        tid: Pid,
        /// The error it got.
        source: std::io::Error,
    },
    /// The process cannot host our runtime; it goes on natively.
    #[error("cannot observe process {tid}: {reason}")]
    Unsuitable {
        /// The thread.
        tid: Pid,
        /// Why.
        reason: String,
    },
}

/// Result of a tracee operation.
pub type Result<T> = std::result::Result<T, TraceError>;

pub(crate) fn os<T>(operation: &'static str, tid: Pid, result: nix::Result<T>) -> Result<T> {
    result.map_err(|errno| match errno {
        nix::Error::ESRCH => TraceError::Gone(tid),
        errno => TraceError::Os {
            operation,
            tid,
            source: errno.into(),
        },
    })
}

/// Why a tracee stopped (ptrace(2), "Stopped states").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Entry to or exit from a system call (`PTRACE_SYSCALL`), or entry only (`PTRACE_SYSEMU`).
    Syscall,
    /// A signal is about to be delivered; it is lost unless handed back at the resume.
    Signal(i32),
    /// Group stop by a stopping signal; to be listened out.
    Group,
    /// `PTRACE_INTERRUPT` took effect.
    Interrupt,
    /// A new program image is in place (inside `execve`).
    Exec,
    /// About to exit; registers can still be read.
    Exiting,
    /// Any other ptrace event.
    Other(i32),
}

/// What happened to a tracee that was waited for.
#[derive(Debug)]
pub enum Event {
    /// It stopped.
    Stopped(Stopped),
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
}

/// How to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Run until a signal or an event.
    Continue,
    /// Run until the next entry to or exit from a system call.
    Syscall,
    /// Run until the next system call, which is not executed (x86 only).
    SyscallEmulated,
    /// Deliver a signal to its handler and stop at the handler's first instruction. Only with a
    /// signal that has a handler: the step ends inside the kernel, before user code runs.
    IntoHandler,
    /// Stay in a group stop until `SIGCONT` (`PTRACE_LISTEN`).
    Listen,
}

/// A thread that runs (or may run).
#[derive(Debug)]
pub struct Running {
    tid: Pid,
    not_send: PhantomData<*mut ()>,
}

/// A thread in a ptrace stop.
#[derive(Debug)]
pub struct Stopped {
    tid: Pid,
    /// Why it stopped.
    pub reason: StopReason,
    not_send: PhantomData<*mut ()>,
}

impl Running {
    pub(crate) fn new(tid: Pid) -> Self {
        Running {
            tid,
            not_send: PhantomData,
        }
    }

    /// The thread's id.
    pub fn tid(&self) -> Pid {
        self.tid
    }

    /// Asks the thread to stop soon; it stops with [`StopReason::Interrupt`] or for another reason first.
    ///
    /// # Errors
    /// [`TraceError::Gone`] when it has exited.
    pub fn interrupt(&self) -> Result<()> {
        os("PTRACE_INTERRUPT", self.tid, ptrace::interrupt(self.tid))?;
        hub::interrupt_sent(self.tid);
        Ok(())
    }

    /// Blocks until something happens to the thread.
    ///
    /// # Errors
    /// [`TraceError::Gone`] when there is no such child any more.
    pub fn wait(self) -> Result<Event> {
        loop {
            if let Some(event) = self.poll_flags(WaitPidFlag::empty())? {
                return Ok(event);
            }
        }
    }

    /// As [`Running::wait`], of a thread that is sure to stop.
    #[cfg(test)]
    pub(crate) fn wait_to_stop(self) -> Stopped {
        match self.wait().expect("waited") {
            Event::Stopped(stopped) => stopped,
            gone => panic!("{gone:?}"),
        }
    }

    /// As [`Running::wait`], after [`Stopped::resume_near`].
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn wait_near(self) -> Result<Event> {
        let Ok(event) = self.wait_near_or(|running| running.wait().map(Ok::<_, Infallible>))?;
        Ok(event)
    }

    /// The same, where `longer` waits for what does not come at once.
    ///
    /// # Errors
    /// As [`Running::wait`], and of `longer`.
    pub fn wait_near_or<T>(
        self,
        longer: impl FnOnce(Running) -> Result<std::result::Result<Event, T>>,
    ) -> Result<std::result::Result<Event, T>> {
        let poll = near::poll_time();
        let begun = Instant::now();
        let mut event = Ok(None);
        while begun.elapsed() < poll {
            event = self.poll_flags(WaitPidFlag::WNOHANG);
            if !matches!(event, Ok(None)) {
                break;
            }
            near::step_aside();
        }
        let event = match event.transpose() {
            Some(event) => event.map(Ok),
            None => longer(self),
        };
        near::come_back();
        event
    }

    /// What has happened to the thread, if anything; gives the thread back otherwise.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn poll(self) -> Result<std::result::Result<Event, Running>> {
        Ok(match self.poll_flags(WaitPidFlag::WNOHANG)? {
            Some(event) => Ok(event),
            None => Err(self),
        })
    }

    fn poll_flags(&self, flags: WaitPidFlag) -> Result<Option<Event>> {
        if let Some(event) = hub::wait(self.tid, !flags.contains(WaitPidFlag::WNOHANG)) {
            return event;
        }
        let mut status = 0;
        // The raw status is read because nix knows only the signals of its enum, not real-time ones.
        // SAFETY: `status` is a live i32; waitpid(2) writes nothing else.
        let got = unsafe {
            libc::waitpid(
                self.tid.as_raw(),
                &raw mut status,
                flags.bits() | libc::__WALL,
            )
        };
        match got {
            0 => return Ok(None),
            -1 => match nix::Error::last() {
                nix::Error::EINTR => return Ok(None),
                nix::Error::ECHILD => return Err(TraceError::Gone(self.tid)),
                errno => {
                    return Err(TraceError::Os {
                        operation: "waitpid",
                        tid: self.tid,
                        source: errno.into(),
                    });
                }
            },
            _ => {}
        }
        Ok(Some(decode_status(self.tid, status)))
    }
}

/// Splits a wait status as ptrace(2) describes under "PTRACE_EVENT stops".
fn decode_status(tid: Pid, status: i32) -> Event {
    if libc::WIFEXITED(status) {
        return Event::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Event::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    let event = status >> 16;
    let reason = match (event, signal) {
        (0, s) if s == libc::SIGTRAP | 0x80 => StopReason::Syscall,
        (0, s) => StopReason::Signal(s),
        (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => StopReason::Interrupt,
        (libc::PTRACE_EVENT_STOP, _) => StopReason::Group,
        (libc::PTRACE_EVENT_EXEC, _) => StopReason::Exec,
        (libc::PTRACE_EVENT_EXIT, _) => StopReason::Exiting,
        (other, _) => StopReason::Other(other),
    };
    Event::Stopped(Stopped::of(tid, reason))
}

impl Stopped {
    pub(crate) fn of(tid: Pid, reason: StopReason) -> Self {
        Stopped {
            tid,
            reason,
            not_send: PhantomData,
        }
    }

    /// At the end of a call, and at its own registers: as stopped anywhere else. (Who finds a thread stopped for a call
    /// takes that for one to come.)
    pub(crate) fn without_call(self) -> Self {
        match self.reason {
            StopReason::Syscall if self.is_behind_call() => {
                Stopped::of(self.tid, StopReason::Other(0))
            }
            _ => self,
        }
    }

    /// Whether it has come to its end, or is a new program's thread under the id of one that has.
    pub fn is_replaced(&self) -> bool {
        matches!(self.reason, StopReason::Exec | StopReason::Exiting)
    }

    /// Whether it is for something that is the program's, to be passed on or sat out before anything else: a signal, or a stop of all its process.
    pub fn has_news(&self) -> bool {
        matches!(self.reason, StopReason::Signal(_) | StopReason::Group)
    }

    /// Whether a system call stop is at the exit from a call that will not be made again.
    pub fn leaves_call(&self) -> bool {
        self.is_behind_call() && hub::leave_kernel(self)
    }

    /// Whether the stop is at the exit from a call that will not be made again.
    pub(super) fn has_left_call(&self) -> bool {
        let will_be = || self.regs().is_ok_and(|regs| remote::restart_pending(&regs));
        self.reason == StopReason::Syscall && self.is_behind_call() && !will_be()
    }

    /// Whether it is at the entry to this system call.
    fn calls(&self, number: i64) -> bool {
        !self.is_behind_call() && self.regs().is_ok_and(|regs| regs.orig_rax as i64 == number)
    }

    /// Whether a system call stop is at the exit from a call (ptrace(2), `PTRACE_GET_SYSCALL_INFO`).
    fn is_behind_call(&self) -> bool {
        const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;
        const EXIT: u8 = 2;
        /// `struct ptrace_syscall_info`: the operation, then up to 87 bytes.
        const BYTES: usize = 88;
        let mut info = [0u64; BYTES / 8];
        // SAFETY: the kernel writes at most `BYTES` bytes to the array, which is that large.
        let rc = unsafe {
            libc::ptrace(
                PTRACE_GET_SYSCALL_INFO,
                self.tid.as_raw(),
                BYTES,
                info.as_mut_ptr(),
            )
        };
        match rc {
            1.. => info[0] as u8 == EXIT,
            // Before Linux 5.3. At the entry rax says that there is no such call; one that there is not is the rare exception.
            _ => self
                .regs()
                .is_ok_and(|regs| regs.rax as i64 != -i64::from(libc::ENOSYS)),
        }
    }

    /// Where the code begins that makes system calls for a thread which has all others turned into signals (prctl(2),
    /// `PR_SET_SYSCALL_USER_DISPATCH`; 0 where there is none). `None`: it has not, or the kernel does not tell, before Linux 6.4.
    pub fn dispatcher(&self) -> Option<u64> {
        const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
        /// `struct ptrace_sud_config`: mode, selector, offset, length.
        const BYTES: usize = 32;
        let mut configuration = [0u64; BYTES / 8];
        // SAFETY: the kernel writes at most `BYTES` bytes to the array, which is that large.
        let rc = unsafe {
            libc::ptrace(
                PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
                self.tid.as_raw(),
                BYTES,
                configuration.as_mut_ptr(),
            )
        };
        let [mode, _, offset, _] = configuration;
        (rc == 0 && mode != 0).then_some(offset)
    }

    /// Why the thread cannot be in a code cache, if system call `number` with arguments `args` has
    /// just made it so.
    pub fn must_leave_after(&self, number: u64, args: &Regs) -> Option<&'static str> {
        const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
        const ARCH_SHSTK_ENABLE: u64 = 0x5001;
        let asked = match number as i64 {
            libc::SYS_prctl => args.rdi == PR_SET_SYSCALL_USER_DISPATCH,
            libc::SYS_arch_prctl => args.rdi == ARCH_SHSTK_ENABLE,
            _ => false,
        };
        asked.then(|| self.must_be_native())?
    }

    /// Why the thread cannot be in a code cache, if it cannot.
    pub fn must_be_native(&self) -> Option<&'static str> {
        if self.dispatcher().is_some() {
            return Some("the program turns its system calls into signals");
        }
        status::has_shadow_stack(self.tid).then_some("the program has shadow stacks")
    }

    /// The thread's id.
    pub fn tid(&self) -> Pid {
        self.tid
    }

    /// Asks the thread to stop again at its resume, before its next instruction.
    ///
    /// # Errors
    /// [`TraceError::Gone`] when it was killed meanwhile.
    pub fn interrupt(&self) -> Result<()> {
        Running::new(self.tid).interrupt()
    }

    /// General registers, with `fs_base` and `gs_base`.
    ///
    /// # Errors
    /// [`TraceError::Gone`] when it was killed meanwhile.
    pub fn regs(&self) -> Result<Regs> {
        os("PTRACE_GETREGS", self.tid, ptrace::getregs(self.tid))
    }

    /// Sets the general registers.
    ///
    /// # Errors
    /// As [`Stopped::regs`].
    pub fn set_regs(&self, regs: &Regs) -> Result<()> {
        os("PTRACE_SETREGS", self.tid, ptrace::setregs(self.tid, *regs))
    }

    /// The pending signal's information.
    ///
    /// # Errors
    /// As [`Stopped::regs`]; `EINVAL` when the stop is not for a signal.
    pub fn siginfo(&self) -> Result<libc::siginfo_t> {
        os("PTRACE_GETSIGINFO", self.tid, ptrace::getsiginfo(self.tid))
    }

    /// Replaces the pending signal's information.
    ///
    /// # Errors
    /// As [`Stopped::siginfo`].
    pub fn set_siginfo(&self, info: &libc::siginfo_t) -> Result<()> {
        os(
            "PTRACE_SETSIGINFO",
            self.tid,
            ptrace::setsiginfo(self.tid, info),
        )
    }

    /// Lets the thread run, delivering `signal` (0: none).
    ///
    /// # Errors
    /// [`TraceError::Gone`] when it was killed meanwhile.
    pub fn resume(self, how: Resume, signal: i32) -> Result<Running> {
        let (request, name) = match how {
            Resume::Continue => (libc::PTRACE_CONT, "PTRACE_CONT"),
            Resume::Syscall => (libc::PTRACE_SYSCALL, "PTRACE_SYSCALL"),
            Resume::SyscallEmulated => (PTRACE_SYSEMU, "PTRACE_SYSEMU"),
            Resume::IntoHandler => (libc::PTRACE_SINGLESTEP, "PTRACE_SINGLESTEP"),
            Resume::Listen => (libc::PTRACE_LISTEN, "PTRACE_LISTEN"),
        };
        // Raw because nix's wrappers cannot carry real-time signals.
        // SAFETY: these requests take no pointers; the data word is the signal number.
        let rc = unsafe {
            libc::ptrace(
                request,
                self.tid.as_raw(),
                std::ptr::null_mut::<libc::c_void>(),
                libc::c_long::from(signal),
            )
        };
        hub::resumed(self.tid, how, signal);
        os(name, self.tid, nix::errno::Errno::result(rc))?;
        Ok(Running::new(self.tid))
    }

    /// As [`Stopped::resume`], for a thread that is expected to stop soon: it is kept on our processor where that is
    /// possible, up to [`Running::wait_near`].
    ///
    /// # Errors
    /// As [`Stopped::resume`].
    pub fn resume_near(self, how: Resume, signal: i32) -> Result<Running> {
        let given = near::give_way(self.tid);
        let running = self.resume(how, signal);
        if running.is_err() && given {
            near::come_back();
        }
        running
    }

    /// As [`Stopped::resume`], for a thread that may stop soon: it is kept on our processor where that is possible.
    ///
    /// # Errors
    /// As [`Stopped::resume`].
    pub fn resume_here(self, how: Resume, signal: i32) -> Result<Running> {
        let given = near::give_way(self.tid);
        let running = self.resume(how, signal);
        if given {
            near::come_back();
        }
        running
    }

    /// Stops tracing the thread and lets it run, delivering `signal` (0: none).
    ///
    /// # Errors
    /// As [`Stopped::resume`].
    pub fn detach(self, signal: i32) -> Result<()> {
        hub::detaching(&self);
        self.detach_newborn(signal)
    }

    /// As [`Stopped::detach`], of one of which the hub knows nothing to be given up.
    fn detach_newborn(self, signal: i32) -> Result<()> {
        // SAFETY: as in `resume`.
        let rc = unsafe {
            libc::ptrace(
                libc::PTRACE_DETACH,
                self.tid.as_raw(),
                std::ptr::null_mut::<libc::c_void>(),
                libc::c_long::from(signal),
            )
        };
        hub::resumed(self.tid, Resume::Continue, signal);
        os("PTRACE_DETACH", self.tid, nix::errno::Errno::result(rc)).map(|_| ())
    }

    /// Reads `buffer.len()` bytes of the process's memory, whatever its protection.
    ///
    /// # Errors
    /// The operating system's, when any part is unmapped.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let result =
            procinfo::memory(self.tid, false).and_then(|f| f.read_exact_at(buffer, address));
        result.map_err(|source| TraceError::Os {
            operation: "read memory",
            tid: self.tid,
            source,
        })
    }

    /// Writes to the process's memory, read-only private pages included (they are copied).
    ///
    /// # Errors
    /// As [`Stopped::read`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let result = procinfo::memory(self.tid, true).and_then(|f| f.write_all_at(bytes, address));
        result.map_err(|source| TraceError::Os {
            operation: "write memory",
            tid: self.tid,
            source,
        })
    }
}

/// Whether a signal is one a hardware fault raises at an instruction.
pub fn is_fault(signal: i32) -> bool {
    [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGTRAP,
    ]
    .iter()
    .any(|&s| s as i32 == signal)
}

/// Linux x86: `PTRACE_SYSEMU` (asm/ptrace-abi.h).
const PTRACE_SYSEMU: libc::c_uint = 31;

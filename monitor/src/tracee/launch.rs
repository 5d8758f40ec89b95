//! Starting a program under trace.
//!
//! The child waits on a pipe until it is seized, then executes the program; a failure of `execve`
//! comes back over a second, close-on-exec pipe, so that it is told apart from the program's own
//! exit status.
//!
//! Unsafe invariant: between fork and exec the child calls async-signal-safe functions only,
//! allocates nothing, and ends in `execve` or `_exit`. `note_start`, which runs before `main`, asks
//! the kernel by number or into a live local.

use super::hub::Follow;
use super::{Event, Resume, Running, StopReason, TraceError, os};
use nix::fcntl::OFlag;
use nix::sys::ptrace::{self, Options};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a program could not be started under trace.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// `execve` failed in the child.
    #[error("cannot execute {program}: {source}")]
    Exec {
        /// The program as given.
        program: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel refused to let us trace it.
    #[error(
        "the kernel refused to trace the program: {0}; where another tracer follows statcache (strace, gdb, another statcache) leave it away, else allow ptrace (CAP_SYS_PTRACE of a container, kernel.yama.ptrace_scope below 3)"
    )]
    Refused(TraceError),
    /// Anything before that.
    #[error("cannot start a process: {0}")]
    Fork(#[from] std::io::Error),
}

/// Starts `path` with `args` (the program's name first), traced from its first instruction on.
/// Returns the child before its `execve`; the exec stop is the first event to wait for.
///
/// # Errors
/// [`LaunchError`]; no child is left behind.
pub fn launch(path: &CString, args: &[CString]) -> Result<(Pid, Running, ExecResult), LaunchError> {
    launch_with(path, args, None, BASE, None)
}

/// Ptrace options of every traced thread.
pub const BASE: Options = Options::PTRACE_O_TRACESYSGOOD
    .union(Options::PTRACE_O_TRACEEXEC)
    .union(Options::PTRACE_O_TRACEEXIT);

/// Options under which newborns are traced from their first instruction on.
pub fn options(follow: Follow) -> Options {
    let threads = BASE.union(Options::PTRACE_O_TRACECLONE);
    match follow {
        Follow::Threads => threads,
        Follow::Children => threads
            .union(Options::PTRACE_O_TRACEFORK)
            .union(Options::PTRACE_O_TRACEVFORK),
    }
}

/// [`launch`] with an environment other than ours, ptrace options and the signal mask the program is to have.
///
/// # Errors
/// As [`launch`].
pub fn launch_with(
    path: &CString,
    args: &[CString],
    environment: Option<&[CString]>,
    options: Options,
    mask: Option<&libc::sigset_t>,
) -> Result<(Pid, Running, ExecResult), LaunchError> {
    let io = |e: nix::Error| LaunchError::Fork(e.into());
    let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC).map_err(io)?;
    let (status_read, status_write) = pipe2(OFlag::O_CLOEXEC).map_err(io)?;
    let image = Image {
        path: path.clone(),
        args: args.to_vec(),
        environment: environment.map(<[CString]>::to_vec),
        mask: mask.copied(),
        go: go_read,
        not_go: go_write.as_raw_fd(),
        status: status_write,
    };
    // The program's parent is a thread that lives as long as the process: when the one that traces ends, a program that wants to die with its
    // parent would (prctl(2), PR_SET_PDEATHSIG).
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let _ = tell.send(image.fork());
        loop {
            std::thread::park();
        }
    })?;
    let child = told.recv().map_err(std::io::Error::other)?.map_err(io)?;
    if let Err(e) = os("PTRACE_SEIZE", child, ptrace::seize(child, options)) {
        drop(go_write);
        let _ = nix::sys::wait::waitpid(child, None);
        return Err(LaunchError::Refused(e));
    }
    File::from(go_write).write_all(b"g")?;
    let result = ExecResult(File::from(status_read));
    Ok((child, Running::new(child), result))
}

/// What a child is to execute, and how it is told to.
struct Image {
    path: CString,
    args: Vec<CString>,
    environment: Option<Vec<CString>>,
    mask: Option<libc::sigset_t>,
    /// A byte comes here when it may; the other end is the parent's, and closed in the child.
    go: OwnedFd,
    not_go: RawFd,
    /// Where the number of the error goes.
    status: OwnedFd,
}

impl Image {
    /// Forks the child. Our ends of its pipes are closed behind that.
    fn fork(self) -> nix::Result<Pid> {
        let words = |words: &[CString]| -> Vec<*const libc::c_char> {
            let words = words.iter().map(|word| word.as_ptr());
            words.chain([std::ptr::null()]).collect()
        };
        let argv = words(&self.args);
        let envp = self.environment.as_deref().map(words);
        // SAFETY: the child calls only async-signal-safe functions (close, read, signal, pthread_sigmask, execve, execv, write, _exit) on
        // memory prepared before the fork.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let mut byte = 0u8;
                // SAFETY: descriptors and buffers are live; `path` and `argv` are NUL-terminated and
                // null-terminated respectively; `_exit` does not return.
                unsafe {
                    // Or the end of the pipe would never come when we give up, or die.
                    libc::close(self.not_go);
                    if libc::read(self.go.as_raw_fd(), (&raw mut byte).cast(), 1) == 1 {
                        restore_ignored();
                        close_what_was_closed();
                        if let Some(mask) = &self.mask {
                            libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
                        }
                        let path = self.path.as_ptr();
                        match &envp {
                            Some(envp) => libc::execve(path, argv.as_ptr(), envp.as_ptr()),
                            None => libc::execv(path, argv.as_ptr()),
                        };
                    }
                    let errno = *libc::__errno_location();
                    libc::write(self.status.as_raw_fd(), (&raw const errno).cast(), 4);
                    libc::_exit(127)
                }
            }
            ForkResult::Parent { child } => Ok(child),
        }
    }
}

/// Brings a launched child to its program's first instruction: the event is that stop, or the child's end where there was none. Signals
/// that come meanwhile reach it as they would without us.
///
/// # Errors
/// What ptrace refuses.
pub fn until_exec(mut running: Running) -> super::Result<Event> {
    loop {
        let stopped = match running.wait()? {
            Event::Stopped(stopped) => stopped,
            end => return Ok(end),
        };
        running = match stopped.reason {
            StopReason::Exec => return Ok(Event::Stopped(stopped)),
            StopReason::Signal(signal) => stopped.resume(Resume::Continue, signal)?,
            StopReason::Group => stopped.resume(Resume::Listen, 0)?,
            _ => stopped.resume(Resume::Continue, 0)?,
        };
    }
}

/// Has the kernel tell us of children: it does not where `SIGCHLD` is ignored, as whoever started us may have had it (ptrace(2) stops are told of
/// by it alone). Programs that are launched from now on are given it as it was.
pub fn hear_of_children() {
    // SAFETY: setting a default disposition touches no memory of ours.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if before == libc::SIG_IGN {
        SIGCHLD_WAS_IGNORED.store(true, Ordering::Relaxed);
    }
}

/// Gives the child the dispositions of `SIGPIPE` and `SIGCHLD` that we were started with: Rust's runtime ignores the first
/// before `main`, [`hear_of_children`] does not ignore the second, and both last across `execve`.
///
/// # Safety
/// Async-signal-safe; called between fork and exec.
unsafe fn restore_ignored() {
    // SAFETY: setting a default disposition, or none, touches no memory of ours.
    unsafe {
        if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        if SIGCHLD_WAS_IGNORED.load(Ordering::Relaxed) {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
    }
}

static SIGCHLD_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Closes the standard descriptors that we were started without: Rust's runtime opens `/dev/null` in their place.
///
/// # Safety
/// Async-signal-safe; called between fork and exec.
unsafe fn close_what_was_closed() {
    for (descriptor, was_closed) in (0..).zip(&WAS_CLOSED) {
        if was_closed.load(Ordering::Relaxed) {
            // SAFETY: nothing in this process, which is about to become another program, uses it.
            unsafe { libc::close(descriptor) };
        }
    }
}

static WAS_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Runs before Rust's runtime starts, by the ELF initialisation array (System V ABI, "Initialization
/// and Termination Functions").
extern "C" fn note_start() {
    for (descriptor, was_closed) in (0..).zip(&WAS_CLOSED) {
        // SAFETY: a query by number.
        let closed = unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0;
        was_closed.store(closed, Ordering::Relaxed);
    }
    // SAFETY: a query with a null new action only writes `old`, a live local of the right type.
    let ignored = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions of this type, called once by the dynamic loader.
#[unsafe(link_section = ".init_array")]
#[used]
static NOTE_START: extern "C" fn() = note_start;

/// Tells how the `execve` of a launched child went.
pub struct ExecResult(File);

impl ExecResult {
    /// The error `execve` gave, once the child is past it; `None` when it succeeded.
    pub fn error(mut self) -> Option<std::io::Error> {
        let mut errno = [0; 4];
        match self.0.read_exact(&mut errno) {
            Ok(()) => Some(std::io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};

    fn started(program: &CString) -> (Pid, Running) {
        let (pid, running, _) = launch(program, std::slice::from_ref(program)).expect("launched");
        (pid, running)
    }

    #[test]
    fn a_signal_before_the_program_is_passed_on() {
        // The child may be further than that at times; what is ignored by default stops a traced process all the same.
        for _ in 0..20 {
            let (pid, running) = started(&c"/bin/true".into());
            kill(pid, Signal::SIGWINCH).expect("sent");
            let Event::Stopped(mut stopped) = until_exec(running).expect("traced") else {
                panic!("ended");
            };
            assert_eq!(stopped.reason, StopReason::Exec);
            let status = loop {
                let signal = match stopped.reason {
                    StopReason::Signal(signal) => signal,
                    _ => 0,
                };
                let running = stopped.resume(Resume::Continue, signal).expect("resumed");
                match running.wait().expect("waited") {
                    Event::Stopped(next) => stopped = next,
                    Event::Exited(status) => break status,
                    Event::Killed(signal) => panic!("killed by {signal}"),
                }
            };
            assert_eq!(status, 0);
        }
    }

    #[test]
    fn a_child_that_ends_before_its_program() {
        let (_, running) = started(&c"/nowhere/at/all".into());
        assert!(matches!(until_exec(running), Ok(Event::Exited(127))));
        let (pid, running) = started(&c"/bin/true".into());
        kill(pid, Signal::SIGKILL).expect("sent");
        assert!(matches!(
            until_exec(running),
            Ok(Event::Killed(9) | Event::Stopped(_))
        ));
    }
}

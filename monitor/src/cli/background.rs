//! `--background`: the profiler leaves the terminal, once it is known that it works.
//!
//! The process that was started forks; the child is the profiler. The parent waits until the program
//! is under way, or passes the child's refusal on: its message has been printed, its exit code is ours. Source:
//! daemon(7), without what a service manager does.
//!
//! Unsafe invariant: `enter` comes before any thread is started, so that a forked child may do what
//! it likes; `dup2` takes numbers.

use super::Exit;
use crate::session::ProfileConfig;
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setsid};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

/// Which of the two processes we are.
pub(super) enum Entered {
    /// The one that profiles: in the foreground, or the child.
    Go(Started),
    /// The one that ends, with this code.
    Left(Exit),
}

/// Tells the parent that the program is under way; without one, nothing.
pub(super) struct Started(Option<File>);

impl Started {
    /// Leaves the terminal, and the parent with it.
    pub(super) fn tell(self, pid: Pid) {
        let Some(mut parent) = self.0 else {
            return;
        };
        // Whoever reads our output is not to wait for the end of the profile; the program has its
        // own descriptors by now.
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            for descriptor in 0..=2 {
                // SAFETY: both descriptors are open; nothing of ours holds on to the old ones.
                unsafe { libc::dup2(null.as_raw_fd(), descriptor) };
            }
        }
        // Not to keep a file system from being unmounted.
        let _ = std::env::set_current_dir("/");
        let _ = writeln!(parent, "{pid}");
    }
}

/// Forks, if the profile is to be taken in the background. To be called while the process has one
/// thread.
pub(super) fn enter(config: &mut ProfileConfig, quiet: bool) -> Entered {
    if !config.background {
        return Entered::Go(Started(None));
    }
    if let Ok(path) = std::path::absolute(&config.output) {
        config.output = path;
    }
    match divide() {
        Ok((ForkResult::Child, _, write)) => {
            let _ = setsid();
            Entered::Go(Started(Some(write)))
        }
        Ok((ForkResult::Parent { child }, read, write)) => {
            drop(write);
            Entered::Left(await_start(child, read, config, quiet))
        }
        Err(errno) => {
            tell!("statcache: cannot start a process: {errno}");
            Entered::Left(Exit::Failure)
        }
    }
}

fn divide() -> nix::Result<(ForkResult, File, File)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the process has one thread, so the child may do what it likes.
    let result = unsafe { fork() }?;
    Ok((result, File::from(read), File::from(write)))
}

fn await_start(child: Pid, mut read: File, config: &ProfileConfig, quiet: bool) -> Exit {
    let mut line = String::new();
    let _ = read.read_to_string(&mut line);
    let pid = line.trim();
    if !pid.is_empty() {
        if !quiet {
            tell!(
                "statcache: profiling process {pid} in the background; profile in {} \
                 (statcache report {pid}; statcache stop {pid})",
                config.output.display()
            );
        }
        return Exit::Success;
    }
    match waitpid(child, None) {
        Ok(WaitStatus::Exited(_, code)) => Exit::Program(code as u8),
        _ => {
            tell!("statcache: the profiler in the background died before it began");
            Exit::Failure
        }
    }
}

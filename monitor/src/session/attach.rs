//! Coming to a running process: refusing what cannot be watched, and seizing all of its threads.
//!
//! Seizing stops nothing (ptrace(2), `PTRACE_SEIZE`): no thread notices.

use super::{leave, program};
use crate::exit::Exit;
use crate::tracee::{hub, procinfo, status};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use std::io::Read;
use std::time::Duration;

/// A process that will not be attached to, with the exit code that says so.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NotAttached {
    /// One line: which, why, and what to do.
    pub message: String,
    /// 126 or 127.
    pub exit: Exit,
}

fn refuse(pid: Pid, why: &str) -> NotAttached {
    NotAttached {
        message: format!("process {pid}: {why}"),
        exit: Exit::CannotExecute,
    }
}

fn gone(pid: Pid) -> NotAttached {
    NotAttached {
        message: format!("process {pid}: there is no such process"),
        exit: Exit::NotFound,
    }
}

/// Refuses what can be told without touching it.
///
/// # Errors
/// [`NotAttached`].
pub fn check(pid: Pid) -> Result<(), NotAttached> {
    if pid == Pid::this() {
        return Err(refuse(pid, "that is statcache itself"));
    }
    if pid.as_raw() <= 0 {
        return Err(gone(pid));
    }
    let standing = status::standing(pid).ok_or_else(|| gone(pid))?;
    if standing.process != pid {
        let why = format!(
            "that is a thread; attach to its process, {}",
            standing.process
        );
        return Err(refuse(pid, &why));
    }
    match standing.state {
        'Z' => {
            let others = procinfo::tasks(pid).is_ok_and(|tasks| tasks.len() > 1);
            let why = match others {
                true => {
                    "its first thread has ended before the others, which cannot be observed then"
                }
                false => "it has ended already, and only waits for its parent",
            };
            return Err(refuse(pid, why));
        }
        'X' | 'x' => return Err(gone(pid)),
        _ => {}
    }
    if leave::is_monitor(pid) {
        return Err(refuse(pid, "it is another statcache, at work"));
    }
    if standing.kernel_thread {
        return Err(refuse(pid, "a kernel thread, which has no program"));
    }
    if standing.tracer.as_raw() != 0 {
        let why = format!(
            "already traced, by process {} (a debugger, strace, or another statcache)",
            standing.tracer
        );
        return Err(refuse(pid, &why));
    }
    if status::has_shadow_stack(pid) {
        return Err(refuse(
            pid,
            "it has shadow stacks on, so that its code cannot be observed elsewhere; \
             start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off",
        ));
    }
    let mut head = Vec::new();
    // Where its program cannot be looked at, the kernel judges at the seizing.
    if let Ok(file) = std::fs::File::open(format!("/proc/{pid}/exe")) {
        let _ = file.take(4096).read_to_end(&mut head);
        if head.starts_with(b"\x7fELF") {
            let shown = format!("process {pid}");
            program::check_format(&head, &shown).map_err(|refused| NotAttached {
                message: refused.message,
                exit: refused.exit,
            })?;
        }
    }
    Ok(())
}

/// How often, and how soon again, one that could not be had is looked at.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Seizes every thread of the process, and makes them known to the hub.
///
/// # Errors
/// [`NotAttached`] when the first thread cannot be had.
pub fn seize(pid: Pid, options: Options) -> Result<(), NotAttached> {
    ptrace::seize(pid, options).map_err(|errno| explain(pid, errno))?;
    hub::add_found(pid);
    // A thread that another one starts now is traced from its birth if that one was seized before;
    // once a look finds no new one, none can come that is not.
    loop {
        let mut found = false;
        for tid in procinfo::tasks(pid).unwrap_or_default() {
            if !hub::knows(tid) && ptrace::seize(tid, options).is_ok() {
                hub::add_found(tid);
                found = true;
            }
        }
        if !found {
            return Ok(());
        }
    }
}

fn explain(pid: Pid, errno: Errno) -> NotAttached {
    if errno == Errno::ESRCH {
        return gone(pid);
    }
    // One that is just ending is refused as if it were another user's.
    for _ in 0..LOOKS {
        if let Err(refused) = check(pid) {
            return refused;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    let standing = status::standing(pid);
    let tracer = standing.as_ref().map_or(0, |s| s.tracer.as_raw());
    let us = nix::unistd::geteuid();
    let why = match standing {
        Some(_) if tracer != 0 => {
            format!(
                "already traced, by process {tracer} (a debugger, strace, or another statcache)"
            )
        }
        Some(s) if !us.is_root() && s.uids.iter().any(|&uid| uid != us.as_raw()) => {
            if s.uids[0] == us.as_raw() {
                "it runs with rights of another user (set-user-id): attach as root".to_owned()
            } else {
                format!("it belongs to another user ({}): attach as root", s.uids[0])
            }
        }
        Some(_) if ptrace_scope() > 0 && !us.is_root() => {
            "the kernel lets programs trace their own children only; attach as root, or set \
             /proc/sys/kernel/yama/ptrace_scope to 0"
                .to_owned()
        }
        _ if us.is_root() => {
            format!(
                "the kernel refuses: {errno} (in a container, allow ptrace, or attach from the host)"
            )
        }
        _ => format!("the kernel refuses: {errno} (attach as root; in a container, allow ptrace)"),
    };
    refuse(pid, &why)
}

fn ptrace_scope() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

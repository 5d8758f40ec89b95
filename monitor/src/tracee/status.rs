//! What `/proc/PID/status` tells of a thread: whose it is, its users, signal sets and filters (proc_pid_status(5)).

use super::procinfo;
use nix::unistd::Pid;
use std::str::FromStr;
use std::sync::OnceLock;

/// The file as text. What a thread calls itself stands in it as it is, and may be no UTF-8: the kernel cuts names at 15 bytes.
struct Status(String);

impl Status {
    /// `None` of a thread that is gone.
    fn read(tid: Pid) -> Option<Status> {
        let bytes = std::fs::read(format!("/proc/{tid}/status")).ok()?;
        Some(Status(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What is said behind a name and its colon.
    fn text(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        let of_name = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(of_name.trim())
    }

    fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn pid(&self, name: &str) -> Option<Pid> {
        self.number(name).map(Pid::from_raw)
    }

    /// A set of signals.
    fn signals(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.text(name)?, 16).ok()
    }

    fn kib(&self, name: &str) -> Option<u64> {
        self.text(name)?.trim_end_matches(" kB").parse().ok()
    }

    fn names_shadow_stack(&self) -> bool {
        let features = self.text("x86_Thread_features");
        features.is_some_and(|f| f.split_whitespace().any(|word| word == "shstk"))
    }
}

/// Process id of a thread's process, and of the parent (proc(5), `Tgid`, `PPid`).
pub fn family(tid: Pid) -> Option<(Pid, Pid)> {
    let status = Status::read(tid)?;
    Some((status.pid("Tgid")?, status.pid("PPid")?))
}

/// What `/proc/PID/status` and `stat` say of a process before it is touched.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The process that the id belongs to.
    pub process: Pid,
    /// Its state, as one letter (proc(5)).
    pub state: char,
    /// Who traces it; 0 for nobody.
    pub tracer: Pid,
    /// Real, effective, saved and file system user.
    pub uids: [u32; 4],
    /// Whether it is a thread of the kernel.
    pub kernel_thread: bool,
}

/// Whether the thread has its return addresses kept on a shadow stack as well (linux
/// Documentation/arch/x86/shstk.rst): code elsewhere than its own would not return.
pub fn has_shadow_stack(tid: Pid) -> bool {
    Status::read(tid).is_some_and(|status| status.names_shadow_stack())
}

/// A process's number in its own, innermost, PID namespace, and its effective user; `None` when it is gone.
pub fn identity(pid: Pid) -> Option<(i32, u32)> {
    let status = Status::read(pid)?;
    let words = |name: &str| Some(status.text(name)?.split_whitespace());
    let inner = words("NSpid").and_then(|mut pids| pids.next_back()?.parse().ok());
    let user = words("Uid")?.nth(1)?.parse().ok()?;
    Some((inner.unwrap_or(pid.as_raw()), user))
}

/// How a process stands; `None` when there is none.
pub fn standing(pid: Pid) -> Option<Standing> {
    /// `PF_KTHREAD` (linux/sched.h).
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let status = Status::read(pid)?;
    let mut uids = status.text("Uid")?.split_whitespace().map(str::parse);
    let mut uid = || uids.next()?.ok();
    let flags = procinfo::flags(pid);
    Some(Standing {
        process: status.pid("Tgid")?,
        state: status.text("State")?.chars().next()?,
        tracer: status.pid("TracerPid")?,
        uids: [uid()?, uid()?, uid()?, uid()?],
        kernel_thread: flags.unwrap_or(0) & KERNEL_THREAD != 0,
    })
}

/// Peak resident set of the process in bytes, less the shared memory it holds now (ours).
pub fn footprint_bytes(pid: Pid) -> Option<u64> {
    let status = Status::read(pid)?;
    let shared = status.kib("RssShmem").unwrap_or(0);
    Some(status.kib("VmHWM")?.saturating_sub(shared) << 10)
}

/// Whether a thread's process has memory locked (mlock(2)), and perhaps all that it maps from now on.
pub fn locks_memory(tid: Pid) -> bool {
    let locked = Status::read(tid).and_then(|status| status.kib("VmLck"));
    locked.is_some_and(|kib| kib > 0)
}

/// Whether a thread has a filter for its system calls that it has not from us.
pub fn is_filtered(tid: Pid) -> bool {
    // We take on none.
    static OURS: OnceLock<u64> = OnceLock::new();
    seccomp_filters(tid) > *OURS.get_or_init(|| seccomp_filters(Pid::this()))
}

/// Seccomp filters in force (proc(5), `Seccomp_filters`); strict mode counts as one.
pub fn seccomp_filters(tid: Pid) -> u64 {
    let Some(status) = Status::read(tid) else {
        return 0;
    };
    let mode = status.number("Seccomp").unwrap_or(0);
    match status.number::<u64>("Seccomp_filters") {
        Some(filters) => filters.max(u64::from(mode == 1)),
        None => u64::from(mode != 0),
    }
}

/// Signal sets of a thread, as bit masks with signal n at bit n-1.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalSets {
    /// Blocked by the thread.
    pub blocked: u64,
    /// Ignored by the process.
    pub ignored: u64,
    /// Caught by a handler.
    pub caught: u64,
    /// Sent to the thread or to its process, and not delivered yet.
    pub pending: u64,
    /// Those of them that were sent to the thread.
    pub own: u64,
    /// Whether the process is the first one of its namespace, to which signals do nothing by default (pid_namespaces(7)).
    pub is_init: bool,
}

impl SignalSets {
    /// Whether this signal runs a handler.
    pub fn catches(&self, signal: i32) -> bool {
        self.caught >> (signal - 1) & 1 == 1
    }

    /// Whether it was sent to the thread, and waits.
    pub fn waits_for(&self, signal: i32) -> bool {
        self.own >> (signal - 1) & 1 == 1
    }

    /// Whether the thread has it wait.
    pub fn blocks(&self, signal: i32) -> bool {
        self.blocked >> (signal - 1) & 1 == 1
    }

    /// Whether this signal does nothing: ignored, or neither caught nor of those whose default does something. A traced thread
    /// stops for it all the same. Source: signal(7), "Standard signals"; linux/kernel/signal.c, `sig_ignored`.
    pub fn ignores(&self, signal: i32) -> bool {
        const DEFAULT: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let ignored = self.ignored >> (signal - 1) & 1 == 1;
        // Faults of its own end it, and so may who is outside of the namespace.
        let ends = super::is_fault(signal) || [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
        let by_default = DEFAULT.contains(&signal) || self.is_init && !ends;
        ignored || by_default && !self.catches(signal)
    }

    /// Whether signals are about to be delivered, all of them such.
    pub fn awaits_only(&self, are_such: impl Fn(i32) -> bool) -> bool {
        let coming = self.pending & !self.blocked;
        let mut signals = (1..=64).filter(|signal| coming >> (signal - 1) & 1 == 1);
        coming != 0 && signals.all(are_such)
    }
}

/// The thread's signal sets (proc(5), `SigBlk`, `SigIgn`, `SigCgt`, `SigPnd`, `ShdPnd`).
pub fn signal_sets(tid: Pid) -> Option<SignalSets> {
    let status = Status::read(tid)?;
    let own = status.signals("SigPnd")?;
    // The thread group's number in the innermost namespace that it is in.
    let inner = status
        .text("NStgid")
        .and_then(|ids| ids.split_whitespace().next_back());
    Some(SignalSets {
        blocked: status.signals("SigBlk")?,
        ignored: status.signals("SigIgn")?,
        caught: status.signals("SigCgt")?,
        pending: own | status.signals("ShdPnd")?,
        own,
        is_init: inner == Some("1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_do_nothing_where_ignored_or_by_default() {
        let bits = |signals: &[i32]| signals.iter().map(|signal| 1 << (signal - 1)).sum();
        let sets = |blocked: &[i32], pending: &[i32]| SignalSets {
            blocked: bits(blocked),
            ignored: bits(&[libc::SIGALRM]),
            caught: bits(&[libc::SIGURG]),
            pending: bits(pending),
            own: 0,
            is_init: false,
        };
        let ignores = |signal| sets(&[], &[]).ignores(signal);
        assert!(ignores(libc::SIGALRM) && ignores(libc::SIGCHLD));
        assert!(!ignores(libc::SIGURG) && !ignores(libc::SIGTERM));
        let init = SignalSets {
            is_init: true,
            ..sets(&[], &[])
        };
        assert!(init.ignores(libc::SIGTERM) && !init.ignores(libc::SIGURG));
        let coming = |blocked, pending| {
            let sets = sets(blocked, pending);
            sets.awaits_only(|signal| sets.ignores(signal))
        };
        assert!(coming(&[], &[libc::SIGALRM, libc::SIGCHLD]));
        assert!(coming(&[libc::SIGURG], &[libc::SIGALRM, libc::SIGURG]));
        assert!(
            !coming(&[], &[libc::SIGALRM, libc::SIGURG]),
            "one runs a handler"
        );
        assert!(!coming(&[libc::SIGALRM], &[libc::SIGALRM]) && !coming(&[], &[]));
    }

    #[test]
    fn shadow_stacks_are_told_from_their_lock() {
        let status = |features: &str| {
            Status(format!(
                "Name:\tx\nx86_Thread_features:\t{features}\nx86_Thread_features_locked:\tshstk\n"
            ))
        };
        assert!(status("shstk wrss ").names_shadow_stack());
        assert!(!status("").names_shadow_stack());
        assert!(!Status("Name:\tshstk\n".into()).names_shadow_stack());
    }
}

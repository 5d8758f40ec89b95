//! Limits on what we use ourselves (setrlimit(2)): raised as far as they may be once the program, which keeps its own, is started.
//!
//! Unsafe invariant: the kernel fills a live local of its own type; the handler put in place is a
//! function that does nothing.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What we use more of than programs are given at times, and how much of it is enough (descriptors: some for each process and thread); `None`: any.
const OURS: [(Resource, Option<u64>); 4] = [
    (Resource::Data, None),
    (Resource::As, None),
    (Resource::Fsize, None),
    (Resource::Nofile, Some(4096)),
];

/// Makes a file size limit give an error, not end us (SIGXFSZ, setrlimit(2)). Called before anything is written; the program has the signal as
/// we were given it.
pub fn survive_file_limits() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: plain data, all zeros, which are valid.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a query into a local. The handler does nothing; execve(2) puts the default back in its place, and one that is ignored stays so.
    unsafe {
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut now);
        if now.sa_sigaction == libc::SIG_DFL {
            libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t);
        }
    }
}

/// Raises them, and has us be killed before the program where memory runs out, as in a container that may have little. Called after the program is
/// started, which is to inherit none of it.
pub fn raise() {
    // Source: proc_pid_oom_score_adj(5), 1000 is the most; without it the larger one is killed, which is the program.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    for (resource, enough) in OURS {
        let now = getrlimit(resource);
        let has = |limit: Option<u64>| limit.is_none_or(|n| enough.is_some_and(|e| n >= e));
        if has(now.current) {
            continue;
        }
        let raised = Rlimit {
            current: enough,
            maximum: now.maximum.and_then(|most| Some(most.max(enough?))),
        };
        // Without the right to more, as much as there is.
        let all = Rlimit {
            current: now.maximum,
            ..now
        };
        let _ = setrlimit(resource, raised).or_else(|_| setrlimit(resource, all));
    }
}

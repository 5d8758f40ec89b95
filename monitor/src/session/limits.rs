//! Limits on what we use ourselves (setrlimit(2)): raised as far as they may be once the program, which keeps its own, is started.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What we use more of than programs are given at times, and how much of it is enough (descriptors: some for each process and thread); `None`: any.
const OURS: [(Resource, Option<u64>); 4] = [
    (Resource::Data, None),
    (Resource::As, None),
    (Resource::Fsize, None),
    (Resource::Nofile, Some(4096)),
];
/// Most memory that the monitor takes, in bytes (README.md).
const MEMORY: u64 = 256 << 20;

/// There is too little memory for a profile, and a program whose profiler is out of memory is let go in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory is limited to {} MiB here (ulimit -d), and a profile may take {} MiB: raise that limit, or run the program without statcache",
    .0 >> 20,
    MEMORY >> 20
)]
pub struct Limited(u64);

/// Whether there is memory enough, or may be.
///
/// # Errors
/// [`Limited`].
pub fn check() -> Result<(), Limited> {
    let now = getrlimit(Resource::Data);
    let most = now.maximum.filter(|&most| most < MEMORY);
    // With CAP_SYS_RESOURCE it may be raised, and the program is to have it as it is.
    match most.filter(|_| setrlimit(Resource::Data, UNLIMITED).is_err()) {
        Some(most) => Err(Limited(most)),
        None => {
            if let Some(most) = most {
                setrlimit(Resource::Data, now).map_err(|_| Limited(most))?;
            }
            Ok(())
        }
    }
}

const UNLIMITED: Rlimit = Rlimit {
    current: None,
    maximum: None,
};

/// Raises them. A file size limit is to give an error, not to end us. Called after the program is started, which is to inherit none of it.
pub fn raise() {
    // SAFETY: sets a disposition; no memory of ours is involved.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
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

//! What a profile needs of where it is taken, told before anything is started: a program whose profiler comes to its end is let go
//! in the middle.

use super::EngineChoice;
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// Most memory that the monitor takes, in bytes (LIMITS.md).
pub const MOST_MEMORY: u64 = 256 << 20;
/// Most of one file that it shares with the program: such memory is one (memfd_create(2)), of a log and two code caches in most programs.
const FILE: u64 = 704 << 20;

/// Something of it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// Bytes of memory that there may be.
    #[error(
        "memory is limited to {} MiB here (ulimit -d), and a profile may take {} MiB: raise that limit, or run the program without statcache",
        .0 >> 20,
        MOST_MEMORY >> 20
    )]
    Memory(u64),
    /// Bytes that a file may have.
    #[error(
        "files are limited to {} KiB here (ulimit -f), and memory that the program and its profiler share is a file of {} MiB: raise that limit, or run the program without statcache",
        .0 >> 10,
        FILE >> 20
    )]
    File(u64),
    /// No `/proc`.
    #[error(
        "there is no /proc here, which tells of processes: mount it (mount -t proc proc /proc)"
    )]
    Proc,
    /// One that shows other processes, of a pid namespace around this one for instance (pid_namespaces(7)).
    #[error(
        "/proc shows other processes than ours here: mount it for this pid namespace (mount -t proc proc /proc; unshare --mount-proc)"
    )]
    ForeignProc,
}

/// Whether it is all there, or may be had.
///
/// # Errors
/// [`Lacking`].
pub fn check(engine: EngineChoice) -> Result<(), Lacking> {
    own_processes(Path::new("/proc/self"))?;
    enough(Resource::Data, MOST_MEMORY).map_err(Lacking::Memory)?;
    match engine {
        EngineChoice::Auto | EngineChoice::Translate => {
            enough(Resource::Fsize, FILE).map_err(Lacking::File)
        }
        EngineChoice::Step | EngineChoice::Counter => Ok(()),
    }
}

/// `itself`: a link that is named after whoever reads it (proc_pid(5)).
fn own_processes(itself: &Path) -> Result<(), Lacking> {
    let named = std::fs::read_link(itself).map_err(|_| Lacking::Proc)?;
    match named.as_os_str() == Pid::this().to_string().as_str() {
        true => Ok(()),
        false => Err(Lacking::ForeignProc),
    }
}

/// What it is limited to where that is less than so much.
fn enough(resource: Resource, bytes: u64) -> Result<(), u64> {
    let now = getrlimit(resource);
    let most = now.maximum.filter(|&most| most < bytes);
    // With CAP_SYS_RESOURCE it may be raised, and the program is to have it as it is.
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    match most.filter(|_| setrlimit(resource, unlimited).is_err()) {
        Some(most) => Err(most),
        None => {
            if let Some(most) = most {
                setrlimit(resource, now).map_err(|_| most)?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_of_others() {
        assert_eq!(own_processes(Path::new("/proc/self")), Ok(()));
        assert_eq!(
            own_processes(Path::new("/no/proc/self")),
            Err(Lacking::Proc)
        );
        let place = tempfile::tempdir().unwrap();
        let itself = place.path().join("self");
        std::os::unix::fs::symlink("1", &itself).unwrap();
        assert_eq!(own_processes(&itself), Err(Lacking::ForeignProc));
    }
}

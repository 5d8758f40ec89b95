//! Live profiles: how a monitor at work is found, asked how far it is, and told to end.
//!
//! Each monitor listens on a Unix socket named after the process it profiles, in a directory that only
//! its user can enter. One request a connection: a line in, a line of JSON out. Nothing here
//! touches a traced process; the session is asked through flags it looks at anyway.

mod client;
mod server;

pub use client::{Answer, AskError, ask, live, stop};
pub use server::{Control, Server};

use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What a monitor says of its profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The first profiled process.
    pub pid: i32,
    /// The monitor.
    pub monitor: i32,
    /// The program's command line.
    pub command: Vec<String>,
    /// The profile, as an absolute path.
    #[serde(with = "as_bytes")]
    pub output: PathBuf,
    /// Start, seconds since the Unix epoch.
    pub start_unix_s: f64,
    /// Whether the monitor came to a running process.
    pub attached: bool,
    /// Whether it runs without a terminal to end it from.
    pub background: bool,
    /// Windows recorded so far.
    pub windows: u64,
    /// Samples recorded so far.
    pub samples: u64,
    /// Bytes of the profile.
    pub bytes: u64,
    /// Whether the profile is complete.
    pub complete: bool,
    /// Why it is not what it should be, once complete.
    pub error: Option<String>,
}

/// A path as the bytes that it is: JSON has text only, and a name need not be any.
mod as_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Vec::<u8>::deserialize(from).map(|bytes| OsString::from_vec(bytes).into())
    }
}

/// Why there is no place for control sockets.
#[derive(Debug, thiserror::Error)]
#[error(
    "no safe place for the control socket: {path}: {why}; set XDG_RUNTIME_DIR to a directory of your own with a short name"
)]
pub struct NoPlace {
    path: String,
    why: String,
}

/// Mode of the directory and of the sockets: their owner's alone.
const DIRECTORY_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;
/// What their names end with.
const SOCKET: &str = ".sock";
/// Above all process ids (proc_sys_kernel(5), `pid_max`).
const LARGEST_PID: i32 = 1 << 22;
/// Longest name of a socket, with the byte behind it (unix(7)).
const LONGEST: usize = 108;

/// The directory that the sockets of this user are in, without making it: in the runtime directory of
/// the session (XDG Base Directory Specification, `XDG_RUNTIME_DIR`), else in the one that systemd
/// makes for each user, else one of our own in `/tmp`.
#[must_use]
pub fn directory() -> PathBuf {
    let uid = nix::unistd::geteuid();
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let mut runtime = named.into_iter().filter(|path| path.is_absolute());
    runtime
        .find(|path| is_own(path))
        .or_else(|| Some(usual).filter(|path| is_own(path)))
        .map_or_else(
            || PathBuf::from(format!("/tmp/statcache-{uid}")),
            |path| path.join("statcache"),
        )
}

/// Whether it is a directory, no link, that belongs to us and that nobody else can write to.
fn is_own(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| {
        m.is_dir() && m.uid() == nix::unistd::geteuid().as_raw() && m.mode() & 0o022 == 0
    })
}

/// Makes the directory, if need be, and makes sure that it is ours alone.
///
/// # Errors
/// [`NoPlace`].
pub fn prepare() -> Result<PathBuf, NoPlace> {
    let path = directory();
    let refuse = |why: String| NoPlace {
        path: path.display().to_string(),
        why,
    };
    if socket(&path, LARGEST_PID).as_os_str().len() >= LONGEST {
        return Err(refuse("its name is too long for a socket".to_owned()));
    }
    let made = std::fs::DirBuilder::new()
        .mode(DIRECTORY_MODE)
        .create(&path);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(refuse(error.to_string()));
    }
    if !is_own(&path) {
        return Err(refuse(
            "it is not ours, or others can write to it".to_owned(),
        ));
    }
    let ours = std::fs::Permissions::from_mode(DIRECTORY_MODE);
    std::fs::set_permissions(&path, ours).map_err(|e| refuse(e.to_string()))?;
    Ok(path)
}

/// The socket of the monitor of `pid` in `directory`, which other pid namespaces may share.
fn socket(directory: &Path, pid: i32) -> PathBuf {
    directory.join(format!("{pid}{}", suffix()))
}

/// What the names of sockets of this pid namespace end with (pid_namespaces(7)).
fn suffix() -> String {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
    format!(".{namespace}{SOCKET}")
}

/// All sockets, those of dead monitors and of other namespaces included.
fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let ours = names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(SOCKET)));
    ours.map(|name| directory.join(name)).collect()
}

/// Pids of this namespace that have a socket, dead monitors' included.
fn named(directory: &Path) -> Vec<i32> {
    let suffix = suffix();
    let pid = |path: &PathBuf| {
        path.file_name()?
            .to_str()?
            .strip_suffix(&suffix)?
            .parse()
            .ok()
    };
    let mut pids: Vec<i32> = sockets(directory).iter().filter_map(pid).collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_profile_may_have_any_name() {
        let status = Status {
            output: Path::new(std::ffi::OsStr::from_bytes(b"/tmp/caf\xe9.prof")).to_owned(),
            ..Status::default()
        };
        let line = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&line).unwrap(), status);
    }
}

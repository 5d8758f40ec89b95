//! What we map into processes, taken into account where their address space is limited ([`super::super::space`]).

use super::super::{Result, TraceError};
use super::with;
use nix::unistd::Pid;
use std::io;

/// Makes room for `bytes` that we are about to map into the process of thread `tid`, if its address space is limited. With 0:
/// sees whether the program has limited it meanwhile.
///
/// # Errors
/// [`TraceError::Unsuitable`] when that takes more rights than we have.
pub fn take_space(tid: Pid, bytes: u64) -> Result<()> {
    with(|hub| {
        let Some(pid) = hub.threads.get(&tid.as_raw()).map(|thread| thread.pid) else {
            return Ok(());
        };
        let space = hub.spaces.entry(pid.as_raw()).or_default();
        if bytes == 0 && space.is_empty() {
            return Ok(());
        }
        space.take(pid, bytes).map_err(|error| TraceError::Unsuitable {
            tid,
            reason: match error.kind() {
                io::ErrorKind::PermissionDenied => format!(
                    "its address space is limited (ulimit -v), and we may not raise that by what we map ({error}): raise the hard limit"
                ),
                _ => format!("no room could be made for what we map: {error}"),
            },
        })
    })
    .unwrap_or(Ok(()))
}

/// Notes that `bytes` of ours are not mapped into the process of thread `tid` any more, or could not be.
pub fn give_space_back(tid: Pid, bytes: u64) {
    with(|hub| {
        let pid = hub.threads.get(&tid.as_raw()).map(|thread| thread.pid)?;
        let space = hub.spaces.get_mut(&pid.as_raw())?;
        space.give_back(pid, bytes);
        Some(())
    });
}

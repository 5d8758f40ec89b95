//! `--engine counter`: whether this host can, and how late its counter's stops come.

use crate::engine::counter::overflow::{self, Overflow, Refused, Unit};
use crate::engine::counter::window::{Simulation, Source};
use crate::session::ProfileConfig;
use crate::tracee::{Event, Resume, Running, launch};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

/// Set to anything, makes single steps stand in for a performance counter: a test aid, and very slow. Set to [`SIMULATE_MEMORY`], for one
/// of memory instructions too; to [`SIMULATE_CLOCK`], in windows alone, and CPU time behind them.
pub const SIMULATE: &str = "STATCACHE_SIMULATED_PMU";
/// See [`SIMULATE`].
pub const SIMULATE_MEMORY: &str = "memory";
/// See [`SIMULATE`].
pub const SIMULATE_CLOCK: &str = "clock";

/// Why the engine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoCounter {
    /// The host has no counter for us.
    #[error("--engine counter: {0}")]
    Refused(#[from] Refused),
    /// It has samples only.
    #[error(
        "--engine counter cannot observe all of a run: leave --full out, or use --engine translate"
    )]
    Full,
    /// No shim.
    #[error("the shim could not be prepared: {0}")]
    Shim(std::io::Error),
}

/// What counts, where this host has something that may.
///
/// # Errors
/// [`NoCounter`], before anything is started.
pub fn source(config: &ProfileConfig) -> Result<Source, NoCounter> {
    if config.full {
        return Err(NoCounter::Full);
    }
    if let Some(set) = std::env::var_os(SIMULATE) {
        return Ok(Source::Simulated(match set.to_str() {
            Some(SIMULATE_MEMORY) => Simulation::Memory,
            Some(SIMULATE_CLOCK) => Simulation::Clock,
            _ => Simulation::Instructions,
        }));
    }
    Overflow::open(Pid::from_raw(0), Unit::Instructions)?;
    Ok(Source::Hardware)
}

/// How late the stops of this host's counter come at most, in instructions, as a child of ours showed; `None` where it could not
/// be started.
///
/// # Errors
/// Why there is no counter.
pub fn largest_skid() -> Result<Option<u64>, Refused> {
    Overflow::open(Pid::from_raw(0), Unit::Instructions)?;
    let words = [c"statcache", c"check", c"--be-observed"].map(CString::from);
    let Ok((pid, running, _)) = launch::launch(&c"/proc/self/exe".into(), &words) else {
        return Ok(None);
    };
    let skid = match launch::until_exec(running) {
        Ok(Event::Stopped(stopped)) => {
            overflow::largest_skid(stopped, Unit::Instructions, SKID_PERIOD, SKID_TRIALS)
        }
        _ => return Ok(None),
    };
    // Where it has ended and been waited for, its number may be another's.
    let still = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    if waitid(Id::Pid(pid), still).is_ok() {
        // It is a child of ours, and nobody else waits for it.
        let _ = kill(pid, Signal::SIGKILL);
    }
    while let Ok(Event::Stopped(stopped)) = Running::new(pid).wait() {
        let _ = stopped.resume(Resume::Continue, 0);
    }
    skid
}

/// Overflows that show the skid, and instructions before each: the child makes some more than all of them.
const SKID_TRIALS: u32 = 100;
const SKID_PERIOD: u64 = 4_000;

/// The monitor's environment, without what is meant for it alone.
pub fn environment() -> Vec<CString> {
    std::env::vars_os()
        .filter(|(name, _)| name != OsStr::new(SIMULATE))
        .filter_map(|(mut word, value)| {
            word.push("=");
            word.push(value);
            CString::new(word.as_bytes()).ok()
        })
        .collect()
}

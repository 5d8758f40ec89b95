//! A session on the real host, from options to report.

use crate::measure::MeasureError;
use crate::raw::RawSamples;
use crate::report::{HostKey, MachineReport};
use crate::session::{Plan, Progress};
use crate::{declared, store as files};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// At most 3 seconds: first level, line, translation, latencies.
    Quick,
    /// About 12 seconds; up to 30 where others have the processor.
    #[default]
    Standard,
    /// At most 60 seconds.
    Full,
}

impl Mode {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Standard => "standard",
            Mode::Full => "full",
        }
    }

    fn plan(self) -> Plan {
        match self {
            Mode::Quick => Plan::QUICK,
            Mode::Standard => Plan::STANDARD,
            Mode::Full => Plan::FULL,
        }
    }
}

/// What to measure and whom to tell.
pub struct Options<'a> {
    /// How much.
    pub mode: Mode,
    /// Seed of all random choices.
    pub seed: u64,
    /// Called with the current parameter and the share of the time that has passed.
    pub progress: Progress<'a>,
}

/// Why there is no report at all. Single parameters that fail are rows of the report instead.
#[derive(Debug, Error)]
pub enum HierarchyError {
    /// The build has no backend for this machine.
    #[error(
        "cannot measure on this architecture: built for {0}, the timing backend needs Linux on x86-64"
    )]
    Architecture(&'static str),
    /// The backend could not start.
    #[error("cannot start measuring: {0}")]
    Start(#[from] MeasureError),
    /// The stored report could not be written.
    #[error("cannot store the report: {0}")]
    Store(#[from] std::io::Error),
}

/// Measures the host.
///
/// # Errors
/// [`HierarchyError`] when nothing at all can be measured.
pub fn measure(options: Options<'_>) -> Result<MachineReport, HierarchyError> {
    let key = files::host_key();
    let (raw, cpu) = session(options.mode.plan(), options.seed, options.progress)?;
    let declared = declared::read(Path::new("/"), cpu);
    Ok(report(key, options.mode, declared, raw))
}

fn report(
    key: HostKey,
    mode: Mode,
    declared: declared::Declared,
    raw: RawSamples,
) -> MachineReport {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    MachineReport::new(key, now, mode.name(), declared, raw)
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn session(
    plan: Plan,
    seed: u64,
    progress: Progress<'_>,
) -> Result<(RawSamples, usize), HierarchyError> {
    use crate::hw::{self, Host, isa, share};
    use crate::probe::{l1, tlb};
    use crate::session;

    let registers = isa::registers();
    let mut host = Host::open()?;
    let mut raw = session::collect(&mut host, plan, seed, progress);
    raw.tlb.huge_kib = host.huge_kib();
    if let (Some((from, _)), Some((_, to))) = (host.moves().first(), host.moves().last()) {
        raw.failures.push((
            "cpuset".into(),
            format!(
                "the measuring thread was moved from CPU {from} ({} times, last to CPU {to}): the allowed CPUs changed \
                 meanwhile; what was measured before stands only if the CPUs are alike: run again",
                host.moves().len()
            ),
        ));
    }
    raw.registers = registers;
    let l1_bytes = l1::infer(&raw.l1).value.map(|g| g.bytes());
    let entries = tlb::infer_entries(&raw.tlb).value;
    match hw::counters::check(&mut host, l1_bytes, entries) {
        Ok(counted) => raw.counters = counted,
        Err(e) => raw.failures.push(("counters".into(), e.to_string())),
    }
    if plan.code {
        let others = share::others(&host);
        if others.is_empty() {
            raw.failures.push((
                "sharing".into(),
                "only one CPU is allowed: allow more (taskset, cpuset) to see who shares".into(),
            ));
        }
        let found = if others.is_empty() {
            Vec::new()
        } else {
            crate::infer(&raw).levels
        };
        // The four nearest numbers say enough on a large host, in the time there is.
        for cpu in others.into_iter().rev().take(4) {
            for level in found.iter().filter(|l| l.level <= 2) {
                let Some(bytes) = level.capacity.value else {
                    continue;
                };
                match share::corun(&mut host, cpu, level.level, bytes, 6) {
                    Ok(c) => raw.corun.push(c),
                    Err(e) => raw.failures.push(("sharing".into(), e.to_string())),
                }
            }
        }
    }
    Ok((raw, host.cpu()))
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn session(_: Plan, _: u64, _: Progress<'_>) -> Result<(RawSamples, usize), HierarchyError> {
    Err(HierarchyError::Architecture(std::env::consts::ARCH))
}

/// The stored report of this host, if it still holds.
pub fn cached() -> Option<MachineReport> {
    files::load(&files::directory()?, &files::host_key())
}

/// Stores a report for [`cached`]; where.
///
/// # Errors
/// [`HierarchyError::Store`].
pub fn store(report: &MachineReport) -> Result<PathBuf, HierarchyError> {
    let Some(dir) = files::directory() else {
        return Err(std::io::Error::other("neither XDG_CACHE_HOME nor HOME is set").into());
    };
    Ok(files::save(&dir, report)?)
}

//! The result kept per host, and when it no longer holds.
//!
//! The file lies in the user's cache directory; it is written beside its place and renamed, so a reader sees
//! a whole report or none. Source for the place: XDG Base Directory Specification.

use crate::report::{HostKey, MachineReport, SCHEMA_VERSION};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where reports are kept: `$XDG_CACHE_HOME/statcache` or `~/.cache/statcache`; `None` without a home.
pub fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|h| h.join(".cache")))?;
    Some(base.join("statcache"))
}

/// The key of this host, now.
pub fn host_key() -> HostKey {
    let read = |p: &str| fs::read_to_string(p).unwrap_or_default();
    let cpu = read("/proc/cpuinfo")
        .lines()
        .find(|l| l.starts_with("model name"))
        .and_then(|l| l.split(':').nth(1))
        .map_or_else(|| "unknown CPU".into(), |v| v.trim().to_string());
    HostKey {
        cpu,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
        allowed: allowed(),
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn allowed() -> Vec<usize> {
    crate::hw::cores::allowed_cpus()
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

fn file(dir: &Path) -> PathBuf {
    dir.join("machine.json")
}

/// Reads a report that was stored for `key`; one for another host, kernel, set of CPUs or schema is not given.
pub fn load(dir: &Path, key: &HostKey) -> Option<MachineReport> {
    let text = fs::read(file(dir)).ok()?;
    let report: MachineReport = serde_json::from_slice(&text).ok()?;
    (report.schema_version == SCHEMA_VERSION && report.host == *key).then_some(report)
}

/// Stores a report; in which file.
///
/// # Errors
/// When the directory or file cannot be written, or the report not be expressed in JSON.
pub fn save(dir: &Path, report: &MachineReport) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let text = serde_json::to_vec(report).map_err(io::Error::other)?;
    let beside = dir.join(format!("machine.json.{}", std::process::id()));
    fs::write(&beside, text)?;
    fs::rename(&beside, file(dir)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })?;
    Ok(file(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::Declared;
    use crate::raw::RawSamples;

    #[test]
    fn a_stored_report_holds_for_its_host_only() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let key = HostKey {
            cpu: "a".into(),
            kernel: "1".into(),
            allowed: vec![0, 1],
        };
        let report = MachineReport::new(
            key.clone(),
            7,
            "quick",
            Declared::default(),
            RawSamples::example(),
        );
        save(dir.path(), &report)?;
        assert_eq!(load(dir.path(), &key), Some(report));
        for other in [
            HostKey {
                cpu: "b".into(),
                ..key.clone()
            },
            HostKey {
                kernel: "2".into(),
                ..key.clone()
            },
            HostKey {
                allowed: vec![0],
                ..key.clone()
            },
        ] {
            assert_eq!(load(dir.path(), &other), None);
        }
        fs::write(file(dir.path()), "not json")?;
        assert_eq!(load(dir.path(), &key), None);
        Ok(())
    }
}

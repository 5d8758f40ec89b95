//! What the host allows, unjudged: what the kernel tells, and how a child fares under the profiler.

use crate::profile::types::HostCache;
use crate::session::{self, Outcome, ProfileConfig, RunError, host};
use crate::session::{EngineChoice, RunConfig};
use crate::tracee::launch::LaunchError;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// What was found out, unjudged.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Kernel release.
    pub(super) kernel: String,
    /// The processor's name.
    pub(super) cpu: String,
    /// Features of interest that it has.
    pub(super) features: Vec<&'static str>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    pub(super) yama_scope: Option<u32>,
    /// How the observed child fared.
    pub(super) child: Child,
    /// Whether the kernel has a driver for the processor's performance counters.
    pub(super) pmu: bool,
    /// How late stops of the counter of instructions come at most, where there is one for us; else why not.
    pub(super) skid: Option<Result<Option<u64>, String>>,
    /// `kernel.perf_event_paranoid`; `None` without perf events.
    pub(super) paranoid: Option<i32>,
    /// Mode of the seccomp filter we run under: 0 none, 1 strict, 2 filter.
    pub(super) seccomp: u32,
    /// Bytes of memory that control groups leave us and the program together; `None` without such a limit.
    pub(super) memory: Option<u64>,
    /// Caches as measured or as the kernel tells.
    pub(super) caches: Vec<HostCache>,
}

/// How the observed child fared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Child {
    /// It could not be observed for a reason that has nothing to do with tracing.
    #[default]
    Untested,
    /// As `Untested`, with the reason.
    NotStarted(String),
    /// What a profile needs is not there: the reason, and what to do.
    Lacking(String),
    /// The kernel does not let us trace it.
    NotTraced(String),
    /// It was traced; the code cache could not be set up.
    NotObserved(String),
    /// It was observed: accesses seen, and its exit status.
    Observed(u64, i32),
}

impl Facts {
    pub(super) fn gather() -> Facts {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let seccomp = status.lines().find_map(|l| l.strip_prefix("Seccomp:"));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Facts {
            kernel: kernel.trim().to_owned(),
            cpu: host::cpu_name(),
            features: features(),
            yama_scope: number("/proc/sys/kernel/yama/ptrace_scope").map(|n: i32| n.max(0) as u32),
            child: observe_child(),
            // Hybrid processors have one driver per kind of core.
            pmu: ["cpu", "cpu_core"]
                .iter()
                .any(|d| Path::new("/sys/bus/event_source/devices").join(d).exists()),
            skid: Some(session::counter::largest_skid().map_err(|error| error.to_string())),
            paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            seccomp: seccomp.and_then(|s| s.trim().parse().ok()).unwrap_or(0),
            memory: session::memory::limit(),
            caches: host::caches(),
        }
    }
}

/// Runs this program again as the observed child, from its first instruction to its last.
pub(super) fn observe_child() -> Child {
    let places = [
        env::temp_dir(),
        PathBuf::from("."),
        PathBuf::from("/dev/shm"),
    ];
    let mut child = Child::default();
    for place in places {
        // A directory of our own: others may have put links of any name where everybody may write.
        let place = place.join(format!("statcache-check-{}", process::id()));
        child = match fs::DirBuilder::new().mode(0o700).create(&place) {
            Ok(()) => {
                let child = observe_child_into(&place.join("p"));
                // What cannot be removed is no news.
                let _ = fs::remove_dir_all(&place);
                child
            }
            Err(error) => Child::NotStarted(format!("cannot create {}: {error}", place.display())),
        };
        if !matches!(child, Child::NotStarted(_)) {
            break;
        }
    }
    child
}

pub(super) fn observe_child_into(profile: &Path) -> Child {
    let config = RunConfig {
        program: OsString::from("/proc/self/exe"),
        args: ["check", "--be-observed"].map(OsString::from).to_vec(),
        profile: ProfileConfig {
            output: profile.to_owned(),
            engine: EngineChoice::Auto,
            overhead_percent: 10.0,
            full: true,
            seed: 1,
            follow: true,
            background: false,
            most_bytes: 32 << 20,
            // To look up names in this program takes more memory than all else (150 MiB), which a container may not have.
            kept: false,
        },
        heap_sites: false,
        quiet: true,
    };
    match session::run(&config, |_| {}) {
        Ok(outcome) if outcome.accesses > 0 => {
            Child::Observed(outcome.accesses, outcome.status.unwrap_or(0))
        }
        Ok(outcome) => Child::NotObserved(why_nothing(&outcome)),
        Err(RunError::Launch(LaunchError::Refused(error))) => Child::NotTraced(error.to_string()),
        Err(RunError::Lacking(error)) => Child::Lacking(error.to_string()),
        Err(error) => Child::NotStarted(error.to_string()),
    }
}

pub(super) fn why_nothing(outcome: &Outcome) -> String {
    let error = outcome.error.as_ref().map(ToString::to_string);
    let warning = outcome.warnings.first().map(|w| w.what.clone());
    error
        .or(warning)
        .unwrap_or_else(|| "no access was seen".to_owned())
}

pub(super) fn features() -> Vec<&'static str> {
    let known = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("xsave", is_x86_feature_detected!("xsave")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
    ];
    known
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
}

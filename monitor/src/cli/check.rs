//! `statcache check`: what this host allows, and what to do about what it does not.
//!
//! The first two lines come from a real run of a small child under the profiler, the others from
//! what the kernel tells. Facts are gathered first and judged by pure functions, so that hosts
//! which nobody has at hand can be tested too.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use clap::Args;

use super::Exit;
use super::run::{EngineChoice, RunConfig};
use crate::profile::types::HostCache;
use crate::session::rate::RateProbe;
use crate::session::{self, Outcome, ProfileConfig, RunError, host};
use crate::tracee::launch::LaunchError;

/// Raw options of `check`.
#[derive(Clone, Debug, Args)]
pub(super) struct CheckArgs {
    /// Be the child that `check` observes.
    #[arg(long, hide = true)]
    be_observed: bool,
}

/// Loads and stores that the observed child is known to make.
const KNOWN_ACCESSES: u64 = 200_000;
/// Status of a child that computed what it should.
const CHILD_STATUS: u8 = 42;

pub(super) fn execute(args: &CheckArgs) -> anyhow::Result<Exit> {
    if args.be_observed {
        return Ok(be_observed());
    }
    let facts = Facts::gather();
    let findings = judge(&facts);
    io::stdout()
        .lock()
        .write_all(render(&facts, &findings).as_bytes())?;
    Ok(if runs(&findings) {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// The observed child: a known number of accesses, and a status that only the right values give.
fn be_observed() -> Exit {
    let mut word = 1u64;
    for i in 0..KNOWN_ACCESSES / 2 {
        // SAFETY: both accesses are to a live local; volatile, so that each is executed.
        unsafe {
            let before = (&raw const word).read_volatile();
            (&raw mut word).write_volatile(before.wrapping_mul(31).wrapping_add(i));
        }
    }
    let expected = (0..KNOWN_ACCESSES / 2).fold(1u64, |w, i| w.wrapping_mul(31).wrapping_add(i));
    Exit::Program(if word == expected { CHILD_STATUS } else { 1 })
}

/// What was found out, unjudged.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Kernel release.
    kernel: String,
    /// The processor's name.
    cpu: String,
    /// Features of interest that it has.
    features: Vec<&'static str>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    yama_scope: Option<u32>,
    /// How the observed child fared.
    child: Child,
    /// Whether a hardware breakpoint could be counted.
    breakpoints: bool,
    /// Whether the kernel has a driver for the processor's performance counters.
    pmu: bool,
    /// How late stops of the counter of instructions come at most, where there is one for us; else why not.
    skid: Option<Result<Option<u64>, String>>,
    /// `kernel.perf_event_paranoid`; `None` without perf events.
    paranoid: Option<i32>,
    /// Mode of the seccomp filter we run under: 0 none, 1 strict, 2 filter.
    seccomp: u32,
    /// Caches as measured or as the kernel tells.
    caches: Vec<HostCache>,
}

/// How the observed child fared.
#[derive(Clone, Debug, Default, PartialEq)]
enum Child {
    /// It could not be observed for a reason that has nothing to do with tracing.
    #[default]
    Untested,
    /// As `Untested`, with the reason.
    NotStarted(String),
    /// The kernel does not let us trace it.
    NotTraced(String),
    /// It was traced; the code cache could not be set up.
    NotObserved(String),
    /// It was observed: accesses seen, and its exit status.
    Observed(u64, i32),
}

impl Facts {
    fn gather() -> Facts {
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
            breakpoints: RateProbe::new().is_some(),
            // Hybrid processors have one driver per kind of core.
            pmu: ["cpu", "cpu_core"]
                .iter()
                .any(|d| Path::new("/sys/bus/event_source/devices").join(d).exists()),
            skid: Some(session::counter::largest_skid().map_err(|error| error.to_string())),
            paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            seccomp: seccomp.and_then(|s| s.trim().parse().ok()).unwrap_or(0),
            caches: host::caches(),
        }
    }
}

/// Runs this program again as the observed child, from its first instruction to its last.
fn observe_child() -> Child {
    let places = [
        env::temp_dir(),
        PathBuf::from("."),
        PathBuf::from("/dev/shm"),
    ];
    let mut child = Child::default();
    for place in places {
        child = observe_child_into(&place.join(format!("statcache-check-{}.prof", process::id())));
        if !matches!(child, Child::NotStarted(_)) {
            break;
        }
    }
    child
}

fn observe_child_into(profile: &Path) -> Child {
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
        },
        quiet: true,
    };
    let result = session::run(&config, |_| {});
    // Not there when nothing was written: no news.
    let _ = fs::remove_file(profile);
    match result {
        Ok(outcome) if outcome.accesses > 0 => {
            Child::Observed(outcome.accesses, outcome.status.unwrap_or(0))
        }
        Ok(outcome) => Child::NotObserved(why_nothing(&outcome)),
        Err(RunError::Launch(LaunchError::Refused(error))) => Child::NotTraced(error.to_string()),
        Err(error) => Child::NotStarted(error.to_string()),
    }
}

fn why_nothing(outcome: &Outcome) -> String {
    let error = outcome.error.as_ref().map(ToString::to_string);
    let warning = outcome.warnings.first().map(|w| w.what.clone());
    error
        .or(warning)
        .unwrap_or_else(|| "no access was seen".to_owned())
}

fn features() -> Vec<&'static str> {
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

/// What a finding means for `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// As it should be.
    Good,
    /// `run` works without it, or with less.
    Less,
    /// `run` does not work.
    Bad,
}

/// One line of the answer.
#[derive(Clone, Debug)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    says: String,
    remedy: Option<&'static str>,
}

fn judge(facts: &Facts) -> Vec<Finding> {
    vec![
        tracing(facts),
        code_cache(facts),
        native_rate(facts),
        counters(facts),
        seccomp(facts),
        processor(facts),
        caches(facts),
    ]
}

fn good(what: &'static str, says: impl Into<String>) -> Finding {
    Finding {
        what,
        verdict: Verdict::Good,
        says: says.into(),
        remedy: None,
    }
}

fn tracing(facts: &Facts) -> Finding {
    const WHAT: &str = "tracing";
    let (verdict, says) = match &facts.child {
        Child::NotTraced(error) => (Verdict::Bad, error.clone()),
        Child::NotStarted(error) => (Verdict::Bad, format!("not tested: {error}")),
        Child::Untested => (Verdict::Bad, "not tested".to_owned()),
        Child::NotObserved(_) | Child::Observed(..) => {
            return good(
                WHAT,
                match facts.yama_scope {
                    Some(scope) => {
                        format!("a child was traced (kernel.yama.ptrace_scope is {scope})")
                    }
                    None => "a child was traced (no restriction by Yama)".to_owned(),
                },
            );
        }
    };
    let traced_tested = matches!(facts.child, Child::NotTraced(_));
    let remedy = match facts.yama_scope {
        _ if !traced_tested => "make a directory writable for it (TMPDIR names one)",
        // Documentation/admin-guide/LSM/Yama.rst: 2 asks for CAP_SYS_PTRACE, 3 forbids for good.
        Some(2) => "as root: sysctl kernel.yama.ptrace_scope=1",
        Some(3) => "kernel.yama.ptrace_scope=3 lasts until the next boot: set it to 1 there",
        _ => "in a container: start it with --cap-add=SYS_PTRACE; do not run under another tracer",
    };
    Finding {
        what: WHAT,
        verdict,
        says,
        remedy: Some(remedy),
    }
}

fn code_cache(facts: &Facts) -> Finding {
    const WHAT: &str = "code cache";
    let bad = |says: String, remedy| Finding {
        what: WHAT,
        verdict: Verdict::Bad,
        says,
        remedy: Some(remedy),
    };
    match &facts.child {
        Child::Observed(seen, status) if *status != i32::from(CHILD_STATUS) => bad(
            format!(
                "the child ended with status {status}, not {CHILD_STATUS}, after {seen} accesses"
            ),
            "this should not happen: do not trust profiles made here, and report it",
        ),
        Child::Observed(seen, _) if *seen < KNOWN_ACCESSES => bad(
            format!("{seen} accesses of a child observed, it made more than {KNOWN_ACCESSES}"),
            "this should not happen: do not trust profiles made here, and report it",
        ),
        Child::Observed(seen, _) => good(
            WHAT,
            format!("{seen} accesses of a child observed, its result unchanged"),
        ),
        Child::NotObserved(error) => bad(
            error.clone(),
            "allow executable shared memory (memfd_create, vm.memfd_noexec below 2) and raise limits on address space (ulimit -v)",
        ),
        _ => bad("not tested: it needs tracing".to_owned(), "see above"),
    }
}

fn native_rate(facts: &Facts) -> Finding {
    const WHAT: &str = "native rate";
    if facts.breakpoints {
        return good(WHAT, "hardware breakpoints count between windows");
    }
    let says = "no hardware breakpoints: estimates of accesses are less sure, intervals wider";
    let remedy = match facts.paranoid {
        Some(level) if level > 2 => "as root: sysctl kernel.perf_event_paranoid=2",
        Some(_) => {
            "in a container: start it with --cap-add=PERFMON; else leave a debug register free"
        }
        None => "none: this kernel has no perf events",
    };
    Finding {
        what: WHAT,
        verdict: Verdict::Less,
        says: says.to_owned(),
        remedy: Some(remedy),
    }
}

fn counters(facts: &Facts) -> Finding {
    let paranoid = match facts.paranoid {
        Some(level) => format!("kernel.perf_event_paranoid is {level}"),
        None => "no perf events in this kernel".to_owned(),
    };
    let says = match &facts.skid {
        Some(Ok(Some(skid))) => format!(
            "present, for --engine counter: stops come up to {skid} instructions late ({paranoid})"
        ),
        Some(Ok(None)) => format!("present, not tested ({paranoid})"),
        _ if facts.pmu => format!("present, not for this user; not needed ({paranoid})"),
        _ => format!("absent, as in most virtual machines; not needed ({paranoid})"),
    };
    good("hardware counters", says)
}

fn seccomp(facts: &Facts) -> Finding {
    const WHAT: &str = "seccomp";
    if facts.seccomp == 0 {
        return good(WHAT, "no filter on this shell");
    }
    let says = match facts.child {
        Child::Observed(..) => "a filter is in force, and lets through what is needed",
        _ => "a filter is in force (a container's, usually) and may be what is in the way",
    };
    let remedy = match facts.child {
        Child::Observed(..) => None,
        _ => Some("start the container with --security-opt seccomp=unconfined"),
    };
    let verdict = if remedy.is_some() {
        Verdict::Less
    } else {
        Verdict::Good
    };
    Finding {
        what: WHAT,
        verdict,
        says: says.to_owned(),
        remedy,
    }
}

fn processor(facts: &Facts) -> Finding {
    let features = match facts.features.as_slice() {
        [] => "no extensions".to_owned(),
        some => some.join(" "),
    };
    good("processor", format!("{}: {features}", facts.cpu))
}

fn caches(facts: &Facts) -> Finding {
    const WHAT: &str = "cache sizes";
    if facts.caches.is_empty() {
        return Finding {
            what: WHAT,
            verdict: Verdict::Less,
            says: "the kernel tells none: curves are shown without this host's marks".to_owned(),
            remedy: Some(
                "statcache machine measures them; or name sizes: statcache report --cache 32K,1M,32M",
            ),
        };
    }
    let list: Vec<String> = facts
        .caches
        .iter()
        .map(|c| format!("L{} {}", c.level, size(c.bytes)))
        .collect();
    good(WHAT, list.join(", "))
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

fn runs(findings: &[Finding]) -> bool {
    findings.iter().all(|f| f.verdict != Verdict::Bad)
}

fn render(facts: &Facts, findings: &[Finding]) -> String {
    let mut text = format!(
        "statcache {} on Linux {}\n\n",
        env!("CARGO_PKG_VERSION"),
        facts.kernel
    );
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Good => "ok",
            Verdict::Less => "less",
            Verdict::Bad => "FAIL",
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "  {verdict:<4}  {:<width$}  {}",
            finding.what, finding.says
        );
        if let Some(remedy) = finding.remedy {
            let _ = write!(text, "\n  {:<4}  {:<width$}  -> {remedy}", "", "");
        }
        text.push('\n');
    }
    text.push_str(if runs(findings) {
        "\nstatcache run works on this host.\n"
    } else {
        "\nstatcache run does not work on this host; the lines marked FAIL say what to do.\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host on which everything works.
    fn fine() -> Facts {
        Facts {
            kernel: "6.18.0".into(),
            cpu: "some processor".into(),
            features: vec!["avx2"],
            yama_scope: Some(1),
            child: Child::Observed(KNOWN_ACCESSES + 70_000, i32::from(CHILD_STATUS)),
            breakpoints: true,
            pmu: false,
            skid: None,
            paranoid: Some(2),
            seccomp: 0,
            caches: vec![HostCache {
                level: 1,
                bytes: 48 << 10,
                line_bytes: 64,
                ways: 12,
            }],
        }
    }

    /// The answer's text and whether `run` works.
    fn answer(facts: &Facts) -> (String, bool) {
        let findings = judge(facts);
        (render(facts, &findings), runs(&findings))
    }

    #[test]
    fn a_host_without_counters_is_fine() {
        let (text, runs) = answer(&fine());
        assert!(runs, "{text}");
        assert!(
            text.contains("absent, as in most virtual machines"),
            "{text}"
        );
        assert!(text.contains("L1 48K"), "{text}");
        assert!(!text.contains("->"), "nothing to remedy: {text}");
        let columns: Vec<usize> = text
            .lines()
            .filter(|l| l.starts_with("  ok"))
            .map(|l| {
                l[8..].find("  ").map_or(0, |gap| {
                    l[8 + gap..].len() - l[8 + gap..].trim_start().len() + gap
                })
            })
            .collect();
        assert_eq!(columns.len(), 7, "{text}");
        assert!(
            columns.iter().all(|&c| c == columns[0]),
            "one column: {text}"
        );
    }

    #[test]
    fn what_stands_in_the_way_is_named_with_its_remedy() {
        let refused = Child::NotTraced("PTRACE_SEIZE on thread 7 failed: EPERM".into());
        let unsuitable = Child::NotObserved("cannot observe process 7: no room".into());
        let child = |child: Child, yama_scope| Facts {
            child,
            yama_scope,
            ..fine()
        };
        for (facts, part) in [
            (
                child(refused.clone(), Some(2)),
                "sysctl kernel.yama.ptrace_scope=1",
            ),
            (child(refused.clone(), Some(3)), "next boot"),
            (child(refused.clone(), None), "--cap-add=SYS_PTRACE"),
            (
                Facts {
                    seccomp: 2,
                    ..child(refused, None)
                },
                "seccomp=unconfined",
            ),
            (child(unsuitable, None), "vm.memfd_noexec"),
            (child(Child::NotStarted("disk full".into()), None), "TMPDIR"),
            (child(Child::Observed(900_000, 139), None), "do not trust"),
            (child(Child::Observed(10, 42), None), "do not trust"),
        ] {
            let (text, runs) = answer(&facts);
            assert!(
                !runs && text.contains(part) && text.contains("FAIL"),
                "{part}: {text}"
            );
        }
    }

    #[test]
    fn what_is_missed_but_not_needed_does_not_fail() {
        for (facts, part) in [
            (
                Facts {
                    breakpoints: false,
                    paranoid: Some(3),
                    ..fine()
                },
                "perf_event_paranoid=2",
            ),
            (
                Facts {
                    breakpoints: false,
                    ..fine()
                },
                "--cap-add=PERFMON",
            ),
            (
                Facts {
                    caches: Vec::new(),
                    ..fine()
                },
                "--cache 32K,1M,32M",
            ),
            (
                Facts {
                    seccomp: 2,
                    ..fine()
                },
                "lets through what is needed",
            ),
            (
                Facts {
                    pmu: true,
                    ..fine()
                },
                "present, not for this user",
            ),
            (
                Facts {
                    pmu: true,
                    skid: Some(Ok(Some(31))),
                    ..fine()
                },
                "up to 31 instructions late",
            ),
        ] {
            let (text, runs) = answer(&facts);
            assert!(runs && text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_child_computes_what_it_should() {
        assert_eq!(be_observed(), Exit::Program(CHILD_STATUS));
    }
}

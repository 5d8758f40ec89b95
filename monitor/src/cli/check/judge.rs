//! What the facts mean for `run`, and what to do about it: pure, so that hosts which nobody has at hand are tested too.

use super::facts::{Child, Facts};
use super::{CHILD_STATUS, KNOWN_ACCESSES};
use crate::session::MOST_MEMORY;

/// What a finding means for `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// `run` works without it, or with less.
    Less,
    /// `run` does not work.
    Bad,
}

/// One line of the answer.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) verdict: Verdict,
    pub(super) says: String,
    pub(super) remedy: Option<&'static str>,
}

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    vec![
        tracing(facts),
        code_cache(facts),
        counters(facts),
        seccomp(facts),
        memory(facts),
        processor(facts),
        caches(facts),
    ]
}

pub(super) fn good(what: &'static str, says: impl Into<String>) -> Finding {
    Finding {
        what,
        verdict: Verdict::Good,
        says: says.into(),
        remedy: None,
    }
}

pub(super) fn tracing(facts: &Facts) -> Finding {
    const WHAT: &str = "tracing";
    let (verdict, says) = match &facts.child {
        Child::NotTraced(error) => (Verdict::Bad, error.clone()),
        Child::Lacking(error) => {
            return Finding {
                what: WHAT,
                verdict: Verdict::Bad,
                says: format!("not tested: {error}"),
                remedy: None,
            };
        }
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

pub(super) fn code_cache(facts: &Facts) -> Finding {
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

pub(super) fn counters(facts: &Facts) -> Finding {
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

pub(super) fn seccomp(facts: &Facts) -> Finding {
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

pub(super) fn memory(facts: &Facts) -> Finding {
    const WHAT: &str = "memory";
    let Some(limit) = facts.memory else {
        return good(WHAT, "no limit by a control group");
    };
    let says = format!(
        "{} by a control group, for the program and the profiler, which takes up to {}",
        size(limit),
        size(MOST_MEMORY)
    );
    // The program needs some, too.
    if limit >= 2 * MOST_MEMORY {
        return good(WHAT, says);
    }
    Finding {
        what: WHAT,
        verdict: Verdict::Less,
        says,
        remedy: Some(
            "raise it (docker run --memory): where it runs out the profiler is ended first, with the profile so far, and the program goes on",
        ),
    }
}

pub(super) fn processor(facts: &Facts) -> Finding {
    let features = match facts.features.as_slice() {
        [] => "no extensions".to_owned(),
        some => some.join(" "),
    };
    good("processor", format!("{}: {features}", facts.cpu))
}

pub(super) fn caches(facts: &Facts) -> Finding {
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

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

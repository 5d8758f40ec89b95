//! Hosts that nobody has at hand, judged.

use super::facts::{Child, Facts};
use super::judge::judge;
use super::{CHILD_STATUS, KNOWN_ACCESSES, be_observed, render, runs};
use crate::cli::Exit;
use crate::profile::types::HostCache;

/// A host on which everything works.
fn fine() -> Facts {
    Facts {
        kernel: "6.18.0".into(),
        cpu: "some processor".into(),
        features: vec!["avx2"],
        yama_scope: Some(1),
        child: Child::Observed(KNOWN_ACCESSES + 70_000, i32::from(CHILD_STATUS)),
        pmu: false,
        skid: None,
        paranoid: Some(2),
        seccomp: 0,
        memory: None,
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
        (
            child(Child::Lacking("no /proc: mount it".into()), None),
            "not tested: no /proc: mount it",
        ),
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

#[test]
fn a_container_with_little_memory_is_told() {
    let with = |memory| answer(&Facts { memory, ..fine() });
    let (text, runs) = with(Some(128 << 20));
    assert!(runs, "{text}");
    assert!(text.contains("less  memory"), "{text}");
    assert!(text.contains("128M by a control group"), "{text}");
    assert!(text.contains("-> raise it"), "{text}");
    let (text, _) = with(Some(8 << 30));
    assert!(text.contains("8192M by a control group"), "{text}");
    assert!(!text.contains("->"), "{text}");
}

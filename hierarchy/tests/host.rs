//! The real host: a quick session, and the situations in which one must stay clear and partial.
//!
//! These run the example binary's code path in child processes where limits or masks have to be set.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use statcache_hierarchy::hw::{Host, cores};
use statcache_hierarchy::measure::{Chase, Measure, MeasureError};
use statcache_hierarchy::{MachineReport, Mode, Options, infer, measure, render_svg, render_text};
use std::process::Command;

fn quick() -> MachineReport {
    match measure(Options {
        mode: Mode::Quick,
        seed: 3,
        progress: &mut |_, _| (),
    }) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_quick_session_gives_a_whole_report_that_can_be_inferred_again() {
    let report = quick();
    assert_eq!(infer(&report.raw), report.hierarchy);
    let text = render_text(&report);
    for what in [
        "L1 data cache",
        "capacity",
        "memory",
        "DTLB1.entries",
        "registers",
        "latency over footprint",
    ] {
        assert!(text.contains(what), "{what} missing in\n{text}");
    }
    assert!(render_svg(&report).ends_with("</svg>\n"));
    // A row without a figure says why.
    for row in report.rows.iter().filter(|r| r.measured.is_empty()) {
        assert!(!row.reason.is_empty(), "{}", row.what);
    }
    let json = serde_json::to_string(&report).unwrap_or_default();
    let again: MachineReport = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(again.hierarchy.levels.len(), report.hierarchy.levels.len());
}

#[test]
fn a_footprint_beyond_the_memory_limit_is_an_error_not_a_crash() {
    let mut host = Host::open().unwrap_or_else(|e| panic!("{e}"));
    let far = host.facts().memory_bytes;
    let asked = host.chase(&Chase {
        timed: &[far],
        loads: 1,
        windows: 1,
        ..Chase::default()
    });
    assert!(
        matches!(asked, Err(MeasureError::Memory { .. })),
        "{asked:?}"
    );
}

#[test]
fn the_callers_affinity_is_put_back() {
    let before = cores::allowed_cpus();
    let host = Host::open().expect("a processor of our own");
    if before.len() > 1 {
        assert_eq!(cores::allowed_cpus(), [host.cpu()]);
    } else {
        println!("SKIP the_callers_affinity_is_put_back: there is one processor");
    }
    drop(host);
    assert_eq!(cores::allowed_cpus(), before);
}

/// Runs this test binary again as a child doing one ignored-by-name scenario through the environment.
fn child(scenario: &str, wrap: &[&str]) -> Option<String> {
    let me = std::env::current_exe().ok()?;
    let mut command = match wrap {
        [] => Command::new(&me),
        [program, rest @ ..] => {
            let mut c = Command::new(program);
            c.args(rest).arg(&me);
            c
        }
    };
    let out = command
        .args(["--exact", "scenario_in_a_child", "--nocapture"])
        .env("STATCACHE_SCENARIO", scenario)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{scenario}: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(text)
}

#[test]
fn scenario_in_a_child() {
    let Ok(scenario) = std::env::var("STATCACHE_SCENARIO") else {
        return;
    };
    if scenario == "cpuid faults" {
        const ARCH_SET_CPUID: i64 = 0x1012;
        // SAFETY: the call takes no pointer with this code.
        let refused = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 0) } != 0;
        if refused {
            println!("SCENARIO SKIP the processor cannot make cpuid fault");
            return;
        }
    }
    if scenario == "cpuset" {
        let allowed = cores::allowed_cpus();
        let (Some(first), true) = (allowed.first().copied(), allowed.len() > 1) else {
            println!("SCENARIO SKIP only one CPU is allowed");
            return;
        };
        // SAFETY: the call takes nothing.
        let thread = unsafe { libc::gettid() };
        std::thread::spawn(move || {
            // Once it is bound to the CPU that it measures, and has begun.
            let bound = || {
                // SAFETY: an all-zero set is valid, and the call writes to it alone.
                unsafe {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::sched_getaffinity(thread, std::mem::size_of_val(&set), &mut set);
                    libc::CPU_COUNT(&set) == 1
                }
            };
            while !bound() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
            // What a shrinking cpuset does to a thread: its CPU is no longer allowed, another one is.
            // SAFETY: an all-zero set is valid, and the call only reads it.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(first, &mut set);
                libc::sched_setaffinity(thread, std::mem::size_of_val(&set), &set);
            }
        });
    }
    let report = quick();
    println!(
        "SCENARIO rows {} figures {} memory {} warnings {:?}",
        report.rows.len(),
        report
            .rows
            .iter()
            .filter(|r| !r.measured.is_empty())
            .count(),
        report.raw.facts.memory_bytes,
        report.warnings
    );
}

/// Figures that a session has wherever it comes to its end, whoever else uses the core: clock, timer, first-level and memory
/// latency, registers twice.
const KEPT: u32 = 6;

/// Parameters that a child measured.
fn figures(text: &str) -> u32 {
    let of = text.split("figures ").nth(1);
    let word = of.and_then(|t| t.split(' ').next());
    word.and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn one_allowed_cpu_is_enough() {
    let cpu = cores::allowed_cpus()
        .first()
        .copied()
        .unwrap_or(0)
        .to_string();
    match child("one cpu", &["taskset", "-c", &cpu]) {
        Some(text) => assert!(figures(&text) >= KEPT, "{text}"),
        None => println!("SKIP one_allowed_cpu_is_enough: taskset is not installed"),
    }
}

#[test]
fn a_cpuset_that_changes_meanwhile_is_told_and_the_rest_kept() {
    let text = child("cpuset", &[]).unwrap_or_default();
    if text.contains("SCENARIO SKIP") {
        println!("SKIP a_cpuset_that_changes_meanwhile_is_told_and_the_rest_kept: one CPU allowed");
        return;
    }
    assert!(text.contains("the allowed CPUs changed"), "{text}");
    assert!(figures(&text) >= KEPT, "{text}");
}

#[test]
fn faulting_cpuid_is_left_alone() {
    let text = child("cpuid faults", &[]).unwrap_or_default();
    if text.contains("SCENARIO SKIP") {
        println!("SKIP faulting_cpuid_is_left_alone: the processor cannot make cpuid fault");
        return;
    }
    assert!(text.contains("cpuid: faulting is on"), "{text}");
}

#[test]
fn a_small_address_space_gives_a_smaller_sweep() {
    // 300 MB of address space: the buffers get a quarter of it at most.
    match child("memory", &["prlimit", "--as=314572800"]) {
        Some(text) => {
            let memory = text
                .split("memory ")
                .nth(1)
                .and_then(|t| t.split(' ').next())
                .and_then(|n| n.parse::<u64>().ok());
            assert!(memory.is_some_and(|m| m <= 80 << 20), "{text}");
        }
        None => {
            println!("SKIP a_small_address_space_gives_a_smaller_sweep: prlimit is not installed")
        }
    }
}

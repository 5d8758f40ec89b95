//! `statcache run --engine counter`: refused in one line where the host has no counter; with single steps in place of
//! one (`STATCACHE_SIMULATED_PMU`, a test aid), whole sessions that show nothing to the program.

use crate::support::cli::{
    awaited, lossy, native, program_of, readable, run, shell_status, text, under,
};
use crate::support::counted::{BUSY, build, directory, simulated_as, simulated_with};
use nix::unistd::Pid;
use statcache::engine::counter::overflow::{Overflow, Unit};
use statcache::profile::types::{Outcome, SampleRecord, sample_flags};
use statcache::session::counter::{SIMULATE, SIMULATE_CLOCK, SIMULATE_MEMORY};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Samples of the program's own code, of as many runs as it takes to have so many: how much is seen of one, and how much of
/// that is its start, depends on how busy this machine is.
fn sampled(kind: &str, directory: &Path, words: &[&str], wanted: usize) -> Vec<SampleRecord> {
    let alone = native(directory, words, b"");
    let file = directory.join("p");
    let mut samples = Vec::new();
    for _ in 0..30 {
        let found = simulated_as(kind, &file, words, b"");
        assert_eq!(found.stdout, alone.stdout, "{}", lossy(&found.stderr));
        assert_eq!(shell_status(&found), 7);
        let profile = readable(&file);
        assert_eq!(profile.header.engine, "counter");
        let is_own = |sample: &SampleRecord| {
            let module = profile.instrs[sample.ip as usize].module;
            module.is_some_and(|m| profile.modules[m as usize].path == words[0])
        };
        let all = profile.windows.iter().flat_map(|window| &window.samples);
        let own = all.map(|s| s.sample.clone()).filter(is_own);
        samples.extend(own);
        if samples.len() >= wanted {
            return samples;
        }
    }
    panic!("{} samples in 30 runs of {words:?}", samples.len());
}

fn one_line(found: &Output, parts: &[&str]) {
    let said = lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(125), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(found.stdout.is_empty());
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn refusals_are_one_line_with_the_remedy() {
    let profiles = directory();
    let under = |options: &[&str]| under(profiles.path(), profiles.path(), options, &["true"], b"");
    let full = under(&["--engine", "counter", "--full"]);
    one_line(&full, &["--full", "--engine translate"]);
    match Overflow::open(Pid::from_raw(0), Unit::Instructions) {
        Ok(_) => println!("SKIP refusal without a counter: this host has one"),
        Err(refused) => {
            let parts = [&refused.to_string(), "--engine translate"];
            one_line(&under(&["--engine", "counter"]), &parts);
            let attach = Command::new(env!("CARGO_BIN_EXE_statcache"))
                .args(["attach", "--engine", "counter", "--for", "0.1", "-o"])
                .arg(profiles.path().join("p"))
                .arg(std::process::id().to_string())
                .output();
            one_line(&attach.expect("run"), &parts);
        }
    }
    let left = std::fs::read_dir(profiles.path()).expect("listed").count();
    assert_eq!(left, 0, "a refused run leaves no file");
}

/// The window's counts and distances are those of the program: a ring of 40 lines.
#[test]
fn distances_of_a_ring() {
    let directory = directory();
    let Some(program) = build(directory.path(), "ring") else {
        return;
    };
    let words = [&text(&program), "6000"];
    let samples = sampled("1", directory.path(), &words, 120);
    let outcomes: Vec<Outcome> = samples.iter().map(|sample| sample.own[2]).collect();
    let mut distances = Vec::new();
    let mut censored = 0;
    for &outcome in &outcomes {
        match outcome {
            Outcome::Reused { distance, .. } => distances.push(distance),
            Outcome::Censored { .. } => censored += 1,
            other => panic!("{other:?}"),
        }
    }
    // Of a hundred accesses to come in a window, a watch needs forty.
    assert!(censored < distances.len(), "{censored} of {outcomes:?}");
    // Start-up is part of the run, and its distances are any; the references between are instructions times a ratio of
    // the window's draws, right to some per cent: here the 202 instructions between two accesses of a line times 40 of
    // 203, which is 39.8 where 39 is the truth.
    let near = distances.iter().filter(|d| (33..=46).contains(*d)).count();
    assert!(
        near * 10 >= distances.len() * 8,
        "{near} of {}: {distances:?}",
        distances.len()
    );
    distances.sort_unstable();
    let median = distances[distances.len() / 2];
    assert!((38..=42).contains(&median), "{median}");
}

/// Counted in memory instructions, of which each makes one reference there, distances are exact.
#[test]
fn distances_of_a_ring_by_memory_instructions() {
    let directory = directory();
    let Some(program) = build(directory.path(), "ring") else {
        return;
    };
    let words = [&text(&program), "6000"];
    let samples = sampled(SIMULATE_MEMORY, directory.path(), &words, 120);
    let distance = |sample: &SampleRecord| match sample.own[2] {
        Outcome::Reused { distance, .. } => Some(distance),
        _ => None,
    };
    let distances: Vec<u64> = samples.iter().filter_map(distance).collect();
    let exact = distances.iter().filter(|d| **d == 39).count();
    assert!(
        exact * 10 >= distances.len() * 9,
        "{exact} of {}: {distances:?}",
        distances.len()
    );
}

/// A ring of more lines than a stepped window has accesses, on a page each: its reuses are met in the native gap behind, which is stepped, or
/// native with the thread's CPU time for a count.
#[test]
fn distances_go_beyond_their_windows() {
    const LINES: u64 = 1201;
    let directory = directory();
    let Some(program) = build(directory.path(), "ring") else {
        return;
    };
    let words = [&text(&program), "1500", &LINES.to_string(), "4096"];
    let alone = native(directory.path(), &words, b"");
    let file = directory.path().join("p");
    for kind in [SIMULATE_MEMORY, SIMULATE_CLOCK] {
        let mut distances = Vec::new();
        let mut censored = 0;
        for _ in 0..10 {
            // Long gaps.
            let options = ["--engine", "counter", "--overhead", "10"];
            let found = simulated_with(&options, kind, &file, &words, b"");
            assert_eq!(found.stdout, alone.stdout, "{}", lossy(&found.stderr));
            for window in readable(&file).windows {
                // As nearly all are.
                if window.accesses >= LINES {
                    continue;
                }
                for taken in &window.samples {
                    match taken.sample.own[2] {
                        Outcome::Reused { distance, .. } => distances.push(distance),
                        _ => censored += 1,
                    }
                }
            }
            if distances.len() >= 10 {
                break;
            }
        }
        assert!(
            distances.len() >= 10,
            "{kind}: {censored} of them only cut off, {distances:?}"
        );
        if kind == SIMULATE_MEMORY {
            let exact = |d: &u64| *d == LINES - 1;
            assert!(distances.iter().all(exact), "{distances:?}");
        }
    }
}

/// A watch that ends with its page says so in its sample; one that ends with its window does not.
#[test]
fn watches_that_end_with_their_page_are_told() {
    let directory = directory();
    // Lines of one page would be given up for the page where it is too hot: each has a page of its own.
    let ring: &[&str] = &["3000", "40", "4096"];
    for (name, words, least, most) in [("unmapped", &["4000"][..], 30, 100), ("ring", ring, 0, 10)]
    {
        let Some(program) = build(directory.path(), name) else {
            return;
        };
        let program = text(&program);
        let words: Vec<&str> = [&program[..]].iter().chain(words).copied().collect();
        let samples = sampled("1", directory.path(), &words, 60);
        let told = samples.iter().filter(|sample| {
            let censored = matches!(sample.own[2], Outcome::Censored { .. });
            censored && sample.flags & sample_flags::GIVEN_UP != 0
        });
        let share = 100 * told.count() / samples.len();
        println!("{name}: {share} % of {} given up", samples.len());
        assert!((least..=most).contains(&share), "{name}: {share} %");
    }
}

/// Programs nobody here wrote, with as many windows as there is time for.
#[test]
fn programs_do_not_notice() {
    let count = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo $i; exit 23";
    let pipes = "trap 'echo usr' USR1; i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i | tr 1-5 a-e; kill -USR1 $$; done; exit 4";
    let awk = "BEGIN { for (i = 0; i < 400000; i++) n[i % 9973] += i; print n[17]; exit 6 }";
    let python = "import threading,time\nr=[]\nts=[threading.Thread(target=lambda k=k: r.append(sum(i*k for i in range(200000)))) for k in range(4)]\n[t.start() for t in ts]; [t.join() for t in ts]; time.sleep(0.05); print(sorted(r))";
    let programs: [&[&str]; 5] = [
        &["sh", "-c", count],
        &["bash", "-c", pipes],
        &["awk", awk],
        &["python3", "-S", "-c", python],
        &["sort", "-n"],
    ];
    let lines: Vec<String> = (0..60_000u64)
        .map(|n| format!("{}\n", n.wrapping_mul(0x9e37_79b9) % 100_003))
        .collect();
    let input = lines.concat();
    let mut windows = 0;
    for words in programs {
        let directory = directory();
        let installed = Command::new(words[0])
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if installed.is_err() {
            println!("SKIP {}: not installed", words[0]);
            continue;
        }
        let alone = native(directory.path(), words, input.as_bytes());
        for kind in ["1", SIMULATE_CLOCK] {
            let found = simulated_as(kind, &directory.path().join("p"), words, input.as_bytes());
            assert_eq!(
                (lossy(&found.stdout), shell_status(&found)),
                (lossy(&alone.stdout), shell_status(&alone)),
                "{words:?}, {kind}: {}",
                lossy(&found.stderr)
            );
            let profile = readable(&directory.path().join("p"));
            windows += profile.windows.len();
        }
    }
    assert!(windows > programs.len(), "{windows} windows");
}

/// Killed at any moment of a window, even while it single-steps, and of what follows it, the monitor leaves a program that finishes.
#[test]
fn a_killed_monitor_leaves_the_program_alone() {
    let directory = directory();
    let Some(program) = build(directory.path(), "ring") else {
        return;
    };
    let words = [&text(&program), "20000"];
    let alone = native(directory.path(), &words, b"");
    for turn in 0..12 {
        let mut monitor = run(&directory.path().join("p"), &BUSY)
            .args(words)
            .env(SIMULATE, ["1", SIMULATE_CLOCK][turn as usize % 2])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        awaited(|| program_of(monitor.id(), "ring").is_some());
        std::thread::sleep(Duration::from_millis(19 * turn));
        monitor.kill().expect("killed");
        // The program holds the other end until it has finished.
        let output = monitor.wait_with_output().expect("waited");
        assert_eq!(lossy(&output.stdout), lossy(&alone.stdout), "turn {turn}");
    }
}

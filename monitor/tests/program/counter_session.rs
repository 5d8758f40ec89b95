//! `statcache run --engine counter` beside what programs do with environments, images, threads and each other. Single steps stand in for
//! a counter.

use crate::support::cli;
use crate::support::cli::{
    awaited, lossy, native, output, program_of, readable, run, shell_status, text,
};
use crate::support::counted::{BUSY, build, directory, simulated_as};
use statcache::session::counter::{SIMULATE, SIMULATE_CLOCK};
use std::path::Path;
use std::process::{Command, Stdio};

/// Paths of the modules that samples were taken in, and the threads that had any.
fn places(file: &Path) -> (Vec<String>, Vec<i32>) {
    let profile = readable(file);
    let (mut paths, mut threads) = (Vec::new(), Vec::new());
    for window in &profile.windows {
        for taken in &window.samples {
            let module = profile.instrs[taken.sample.ip as usize].module;
            paths.extend(module.map(|m| profile.modules[m as usize].path.clone()));
            threads.push(window.tid);
        }
    }
    threads.sort_unstable();
    threads.dedup();
    (paths, threads)
}

/// Neither the program nor its children find the shim in their environment, and none of their linkers looks for it where
/// descriptors have been closed. What was preloaded before still is.
#[test]
fn the_environment_shows_nothing() {
    let directory = directory();
    let python = "import os, subprocess\nprint(sorted(k for k in os.environ if 'STATCACHE' in k or 'PRELOAD' in k))\nprint(subprocess.run(['sh', '-c', 'env | grep -cE \"STATCACHE|PRELOAD\"; echo $LD_PRELOAD'], capture_output=True))";
    let shell = "env | grep -E 'STATCACHE|PRELOAD'; tr '\\0' '\\n' </proc/self/environ | grep -cE 'STATCACHE_SHIM|PRELOAD'; exec env A=1 sh -c 'env | grep -E \"STATCACHE|PRELOAD\"; echo $A'";
    let programs: [&[&str]; 2] = [&["sh", "-c", shell], &["python3", "-S", "-c", python]];
    for preloaded in [None, Some("libc.so.6")] {
        for words in programs {
            if words[0] == "python3" && cli::installed("python3").is_none() {
                println!("SKIP the_environment_shows_nothing of python3: not installed");
                continue;
            }
            let with = |mut command: Command| {
                command.args(words).env_remove(SIMULATE);
                match preloaded {
                    Some(library) => command.env("LD_PRELOAD", library),
                    None => command.env_remove("LD_PRELOAD"),
                };
                command
            };
            let mut alone = with(Command::new("env"));
            alone.current_dir(directory.path());
            let mut watched = with(run(&directory.path().join("p"), &BUSY));
            watched.env(SIMULATE, "1");
            let (alone, watched) = (output(alone, b""), output(watched, b""));
            assert_eq!(
                (lossy(&watched.stdout), shell_status(&watched)),
                (lossy(&alone.stdout), shell_status(&alone)),
                "{words:?}: {}",
                lossy(&watched.stderr)
            );
        }
    }
}

/// A program is watched behind whatever executes it, any number of images later.
#[test]
fn a_program_behind_others_is_observed() {
    let directory = directory();
    let Some(program) = build(directory.path(), "ring") else {
        return;
    };
    let ring = text(&program);
    let file = directory.path().join("p");
    let words = [
        "env",
        "A=1",
        "sh",
        "-c",
        "exec env \"$@\"",
        "sh",
        &ring,
        "6000",
    ];
    for _ in 0..10 {
        let found = simulated_as("1", &file, &words, b"");
        assert_eq!(shell_status(&found), 7, "{}", lossy(&found.stderr));
        assert!(
            !lossy(&found.stderr).contains("ends early"),
            "{}",
            lossy(&found.stderr)
        );
        if places(&file).0.contains(&ring) {
            return;
        }
    }
    panic!("no sample of {ring} in ten runs");
}

/// Windows come to threads made later as well: the counter of each is its own.
#[test]
fn threads_made_later_are_sampled() {
    let directory = directory();
    let Some(program) = build(directory.path(), "spinners") else {
        return;
    };
    let words = [&text(&program), "1200"];
    let alone = native(directory.path(), &words, b"");
    let file = directory.path().join("p");
    let mut sampled = 0;
    for _ in 0..10 {
        let found = simulated_as("1", &file, &words, b"");
        assert_eq!(found.stdout, alone.stdout, "{}", lossy(&found.stderr));
        sampled = sampled.max(places(&file).1.len());
        if sampled > 1 {
            return;
        }
    }
    panic!("samples of {sampled} thread in ten runs");
}

/// Monitors beside each other, and one more that wants one of the programs too: refused, and nobody is disturbed. (No program
/// arms watches of its own, which a shim has one master for.)
#[test]
fn monitors_beside_each_other() {
    let directory = directory();
    let (Some(ring), Some(stream)) = (
        build(directory.path(), "ring"),
        build(directory.path(), "stream"),
    ) else {
        return;
    };
    let (ring, stream) = (text(&ring), text(&stream));
    let programs: [&[&str]; 3] = [&[&ring, "8000"], &[&stream], &[&ring, "7000"]];
    let started: Vec<_> = programs
        .iter()
        .enumerate()
        .map(|(n, words)| {
            run(&directory.path().join(format!("p{n}")), &BUSY)
                .args(*words)
                .env(SIMULATE, "1")
                .env("TRACEE_UNARMED", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("started")
        })
        .collect();
    let monitor = started[0].id();
    awaited(|| program_of(monitor, "ring").is_some());
    if let Some(pid) = program_of(monitor, "ring") {
        let third = Command::new(env!("CARGO_BIN_EXE_statcache"))
            .args(["attach", "--for", "0.1", "-o"])
            .arg(directory.path().join("third"))
            .arg(pid.to_string())
            .output()
            .expect("run");
        let said = lossy(&third.stderr);
        assert!(
            !third.status.success() && said.lines().count() == 1,
            "{said}"
        );
    }
    for (n, (monitor, words)) in started.into_iter().zip(programs).enumerate() {
        let found = monitor.wait_with_output().expect("waited");
        let alone = native(directory.path(), words, b"");
        assert_eq!(
            (lossy(&found.stdout), shell_status(&found)),
            (lossy(&alone.stdout), shell_status(&alone)),
            "{words:?}: {}",
            lossy(&found.stderr)
        );
        readable(&directory.path().join(format!("p{n}")));
    }
}

/// The torture set once more, with windows of the engine instead of watches that each program arms by itself.
#[test]
fn the_torture_set_in_windows() {
    let directory = directory();
    for name in [
        "calls",
        "direct",
        "exec",
        "fork",
        "groups",
        "halted",
        "leaving",
        "longjmp",
        "masks",
        "mprotect",
        "own_faults",
        "remap",
        "robust",
        "sealed",
        "sleeps",
        "stack",
        "stack_growth",
        "strict",
        "sync",
        "uring",
    ] {
        let Some(program) = build(directory.path(), name) else {
            continue;
        };
        let words = [&text(&program)[..]];
        let alone = native(directory.path(), &words, b"");
        for kind in ["1", SIMULATE_CLOCK] {
            let mut command = run(&directory.path().join("p"), &BUSY);
            command
                .args(words)
                .env(SIMULATE, kind)
                .env("TRACEE_UNARMED", "1");
            let found = output(command, b"");
            assert_eq!(
                (lossy(&found.stdout), shell_status(&found)),
                (lossy(&alone.stdout), shell_status(&alone)),
                "{name}, {kind}: {}",
                lossy(&found.stderr)
            );
        }
    }
}

//! `--engine counter` where no shim was loaded at the start: in running programs, children and static programs. Single steps stand in
//! for a counter.

use crate::support::attached::{ask, server, traces};
use crate::support::c;
use crate::support::cli::{awaited, lossy, native, readable, shell_status, text};
use crate::support::counted;
use crate::support::counted::{directory, simulated_as};
use nix::sys::signal::Signal;
use statcache::session::counter::SIMULATE;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the log says of a shim that stays.
const STAYS: &str = "the shim stays";

/// `statcache attach` to `pid` with windows as often as can be.
fn attach(profile: &Path, engine: &str, seconds: &str, pid: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    command
        .args(["attach", "--engine", engine, "--overhead", "600", "--for"])
        .args([seconds, "-o"])
        .arg(profile)
        .arg(pid.to_string())
        .env(SIMULATE, "1")
        .env("STATCACHE_LOG", "statcache::session::leave=debug")
        .stderr(Stdio::piped());
    command
}

/// The same for a second, with nothing left behind; how it ended and what it said. On a host that is too busy the shim may have to stay:
/// whoever leaves next takes it away.
fn attach_to_end(profile: &Path, engine: &str, pid: u32) -> (Option<i32>, String) {
    let found = attach(profile, engine, "1", pid).output().expect("run");
    let said = lossy(&found.stderr);
    for _ in 0..10 {
        if traces(pid).is_empty() {
            break;
        }
        assert!(said.contains(STAYS), "{engine}: {said}");
        let mut again = attach(&profile.with_extension("again"), engine, "0.2", pid);
        again.output().expect("run");
    }
    assert_eq!(traces(pid), [""; 0], "{engine}: {said}");
    (found.status.code(), said)
}

/// As [`attach_to_end`], until there are windows and it ends with 0, or there are none and it ends with 126: a second may pass in which we hardly run.
fn attach_until(profile: &Path, engine: &str, pid: u32, windows: bool) -> String {
    let mut all = Vec::new();
    let seen = (0..5).any(|_| {
        let (code, said) = attach_to_end(profile, engine, pid);
        all.push(said);
        let expected = if windows { 0 } else { 126 };
        let has_windows = !readable(profile).windows.is_empty();
        assert!(windows || !has_windows, "{engine}: {all:?}");
        code == Some(expected) && has_windows == windows
    });
    assert!(seen, "{engine}: {all:?}");
    all.concat()
}

fn samples(profile: &Path) -> usize {
    let profile = readable(profile);
    profile
        .windows
        .iter()
        .map(|window| window.samples.len())
        .sum()
}

/// Mappings, and what is blocked, ignored and caught by each thread: as it was before. Without SIGALRM, which is blocked while it is
/// handled, a hundred times a second.
fn state(pid: u32) -> Vec<String> {
    let read = |path: &Path| std::fs::read_to_string(path).expect("alive");
    let mut lines = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("alive") {
        let status = read(&task.expect("a task").path().join("status"));
        let of_signals = |line: &&str| ["SigBlk", "SigIgn", "SigCgt"].contains(&&line[..6]);
        lines.extend(
            status
                .lines()
                .filter(|l| l.len() > 6)
                .filter(of_signals)
                .map(|line| {
                    let (name, set) = line.split_once(":\t").expect("a set");
                    let set = u64::from_str_radix(set, 16).expect("a number");
                    format!("{name} {:x}", set & !(1 << (Signal::SIGALRM as u64 - 1)))
                }),
        );
    }
    let maps = read(Path::new(&format!("/proc/{pid}/maps")));
    lines.extend(maps.lines().map(str::to_owned));
    lines
}

/// Threads at work, and threads that sleep in every way, none of whose calls may be cut short: six in all.
#[test]
fn a_busy_server_is_counted_again_and_again() {
    let Some((place, program)) = c::build("server") else {
        return;
    };
    let (mut child, mut output) = server(&program);
    let before = state(child.id());
    let profile = place.path().join("p");
    let mut taken = 0;
    for turn in 0..4 {
        let (code, said) = attach_to_end(&profile, "counter", child.id());
        assert_eq!(code, Some(0), "{turn}: {said}");
        assert_eq!(state(child.id()), before, "{turn}: {said}");
        assert_eq!(readable(&profile).header.engine, "counter");
        taken += samples(&profile);
    }
    assert!(taken > 0, "no sample in four turns");
    assert_eq!(ask(&mut child, &mut output), "bad 0, timer ran\n");
    assert_eq!(child.wait().expect("waited").code(), Some(0));
}

/// Killed with its shim in use, a monitor leaves a program that goes on; the next one, of whichever engine, takes the shim away.
#[test]
fn a_shim_that_was_left_in_use_is_taken_away() {
    let Some((place, program)) = c::build("server") else {
        return;
    };
    let (mut child, mut output) = server(&program);
    let before = state(child.id());
    let profile = place.path().join("p");
    for (turn, engine) in ["counter", "translate", "step"].into_iter().enumerate() {
        let first = attach(&place.path().join("killed"), "counter", "100", child.id()).spawn();
        let mut first = first.expect("started");
        assert!(awaited(|| !traces(child.id()).is_empty()));
        std::thread::sleep(Duration::from_millis(400 + 37 * turn as u64));
        first.kill().expect("killed");
        first.wait().expect("waited");
        let said = attach_until(&profile, engine, child.id(), true);
        assert_eq!(state(child.id()), before, "{engine}: {said}");
    }
    assert_eq!(ask(&mut child, &mut output), "bad 0, timer ran\n");
    assert_eq!(child.wait().expect("waited").code(), Some(0));
}

/// A program that has given up rights, of which the kernel does not tell itself what its threads sleep in; and one whose memory another process
/// uses as well, which has no windows.
#[test]
fn programs_in_unlike_places_go_on() {
    let Some((place, program)) = c::build("unlike") else {
        return;
    };
    for (way, has_windows) in [("dropped", true), ("shared", false)] {
        let mut child = Command::new(&program)
            .arg(way)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("read");
        if line != "ready\n" {
            println!("SKIP programs_in_unlike_places_go_on of {way}: not possible here");
            child.wait().expect("waited");
            continue;
        }
        let profile = place.path().join("p");
        for _ in 0..3 {
            attach_until(&profile, "counter", child.id(), has_windows);
        }
        let printed = ask(&mut child, &mut output);
        assert_eq!(printed, "bad 0, lost 0\n", "{way}");
        assert_eq!(child.wait().expect("waited").code(), Some(5), "{way}");
    }
}

/// Whatever loads no shim is given one at once: static programs, children.
#[test]
fn static_programs_and_children_are_counted() {
    let directory = directory();
    let Some(program) = counted::build(directory.path(), "ring") else {
        return;
    };
    let ring = text(&program);
    let file = directory.path().join("p");
    let fixed = directory.path().join("fixed");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees/shim/ring.c");
    let built = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .arg(&fixed)
        .arg(source)
        .status();
    // They run for some hundredths of a second, and may be over before the first window.
    let is_counted = |words: &[&str], of: &str| {
        let alone = native(directory.path(), words, b"");
        let mut said = Vec::new();
        let counted = (0..5).any(|_| {
            let found = simulated_as("1", &file, words, b"");
            said.push(lossy(&found.stderr));
            assert_eq!(found.stdout, alone.stdout, "{said:?}");
            assert_eq!(shell_status(&found), 7, "{said:?}");
            let profile = readable(&file);
            std::iter::once(&profile)
                .chain(&profile.others)
                .filter(|process| {
                    process
                        .header
                        .command
                        .first()
                        .is_some_and(|word| word == of)
                })
                .flat_map(|process| &process.windows)
                .any(|window| !window.samples.is_empty())
        });
        assert!(counted, "{said:?}");
    };
    if built.is_ok_and(|status| status.success()) {
        let fixed = text(&fixed);
        is_counted(&[&fixed, "5000"], &fixed);
    } else {
        println!("SKIP static_programs_and_children_are_counted: nothing static can be built here");
    }
    let script = format!("{ring} 1500; {ring} 500 & wait $!");
    is_counted(&["sh", "-c", &script], &ring);
}

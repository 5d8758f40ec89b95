//! `--engine counter` where no shim was loaded at the start: in running programs, children and static programs. Single steps stand in
//! for a counter.

#[path = "support/attached.rs"]
mod attached;
#[path = "support/c.rs"]
mod c;
#[path = "support/cli.rs"]
mod cli;
#[path = "support/counted.rs"]
mod counted;

use attached::{ask, server, traces};
use cli::{awaited, lossy, native, readable, shell_status, text};
use counted::{directory, simulated_as};
use statcache::session::counter::SIMULATE;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// `statcache attach` to `pid` with windows as often as can be.
fn attach(profile: &Path, engine: &str, seconds: &str, pid: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    command
        .args(["attach", "--engine", engine, "--overhead", "600", "--for"])
        .args([seconds, "-o"])
        .arg(profile)
        .arg(pid.to_string())
        .env(SIMULATE, "1")
        .stderr(Stdio::piped());
    command
}

/// The same for a second, with nothing left behind; what it said.
fn attach_to_end(profile: &Path, engine: &str, pid: u32) -> String {
    attach_until(profile, engine, pid, 0)
}

/// The same, ending with this code.
fn attach_until(profile: &Path, engine: &str, pid: u32, code: i32) -> String {
    let found = attach(profile, engine, "1", pid).output().expect("run");
    let said = lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(code), "{engine}: {said}");
    assert_eq!(traces(pid), [""; 0], "{engine}: {said}");
    said
}

fn samples(profile: &Path) -> usize {
    let profile = readable(profile);
    profile
        .windows
        .iter()
        .map(|window| window.samples.len())
        .sum()
}

/// Mappings, and what is blocked, ignored and caught by each thread: as it was before.
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
                .map(str::to_owned),
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
    // Until its threads have what they need.
    std::thread::sleep(Duration::from_millis(300));
    let before = state(child.id());
    let profile = place.path().join("p");
    let mut taken = 0;
    for turn in 0..4 {
        let said = attach_to_end(&profile, "counter", child.id());
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
    std::thread::sleep(Duration::from_millis(300));
    let before = state(child.id());
    let profile = place.path().join("p");
    for (turn, engine) in ["counter", "translate", "step"].into_iter().enumerate() {
        let first = attach(&place.path().join("killed"), "counter", "100", child.id()).spawn();
        let mut first = first.expect("started");
        assert!(awaited(|| !traces(child.id()).is_empty()));
        std::thread::sleep(Duration::from_millis(400 + 37 * turn as u64));
        first.kill().expect("killed");
        first.wait().expect("waited");
        let said = attach_to_end(&profile, engine, child.id());
        assert_eq!(state(child.id()), before, "{engine}: {said}");
        let windows = readable(&profile).windows.len();
        assert!(windows > 0, "{engine}: {said}");
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
        let mut output = child.stdout.take().expect("piped");
        std::thread::sleep(Duration::from_millis(500));
        if child.try_wait().expect("waited").is_some() {
            println!("SKIP programs_in_unlike_places_go_on of {way}: not possible here");
            continue;
        }
        let profile = place.path().join("p");
        for turn in 0..3 {
            let code = if has_windows { 0 } else { 126 };
            let said = attach_until(&profile, "counter", child.id(), code);
            let windows = !readable(&profile).windows.is_empty();
            assert_eq!(windows, has_windows, "{way} {turn}: {said}");
        }
        let printed = ask(&mut child, &mut output);
        assert_eq!(printed, "ready\nbad 0, lost 0\n", "{way}");
        assert_eq!(child.wait().expect("waited").code(), Some(5), "{way}");
    }
}

/// Whatever loads no shim is given one: a static program once it could have loaded one, a child at once.
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
    if built.is_ok_and(|status| status.success()) {
        let words = [&text(&fixed), "180000"];
        let alone = native(directory.path(), &words, b"");
        let mut said = Vec::new();
        // It runs for two seconds, or one, and may be over before the first window.
        let counted = (0..5).any(|_| {
            let found = simulated_as("1", &file, &words, b"");
            said.push(lossy(&found.stderr));
            assert_eq!(found.stdout, alone.stdout, "{said:?}");
            assert_eq!(shell_status(&found), 7, "{said:?}");
            samples(&file) > 0
        });
        assert!(counted, "{said:?}");
    } else {
        println!("SKIP static_programs_and_children_are_counted: nothing static can be built here");
    }
    let script = format!("{ring} 1500; {ring} 500 & wait $!");
    let words = ["sh", "-c", &script];
    let alone = native(directory.path(), &words, b"");
    let found = simulated_as("1", &file, &words, b"");
    let said = lossy(&found.stderr);
    assert_eq!(found.stdout, alone.stdout, "{said}");
    assert_eq!(shell_status(&found), 7, "{said}");
    let profile = readable(&file);
    let taken: usize = std::iter::once(&profile)
        .chain(&profile.others)
        .filter(|process| process.header.command.first() == Some(&ring))
        .flat_map(|process| &process.windows)
        .map(|window| window.samples.len())
        .sum();
    assert!(taken > 0, "{said}");
}

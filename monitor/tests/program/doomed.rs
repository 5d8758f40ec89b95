//! A monitor that is killed at its n-th ptrace call, for one n after the other: through a launch, windows,
//! an attach and a leaving, the program ends as it would alone. So it does where the monitor has a fault of its own.

use crate::support::attached::{ask, server, server_of};
use crate::support::c;
use crate::support::cli::{lossy, run};
use statcache::session::counter::SIMULATE;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Every n up to the first of these, then every so many; all of them with `STATCACHE_DOOMS`.
const ALL_BELOW: usize = 24;
const THEN_EVERY: usize = 23;

/// The library that does it. `None`, after saying so, where it cannot be built.
fn doom() -> Option<(tempfile::TempDir, PathBuf)> {
    let place = tempfile::tempdir().expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees/doom.c");
    let library = place.path().join("doom.so");
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl");
    if !command.output().is_ok_and(|o| o.status.success()) {
        println!("SKIP doom: cannot be built here");
        return None;
    }
    Some((place, library))
}

fn condemn(command: &mut Command, library: &Path, at: usize, file: &Path) {
    command
        .env("LD_PRELOAD", library)
        .env("DOOM_AT", at.to_string())
        .env("DOOM_FILE", file);
}

fn moments(last: usize) -> impl Iterator<Item = usize> {
    let all = std::env::var_os("STATCACHE_DOOMS").is_some();
    (1..=last).filter(move |n| all || *n <= ALL_BELOW || n % THEN_EVERY == 0)
}

#[test]
fn at_every_call_of_a_run() {
    let (Some((_doom, library)), Some((_place, program))) = (doom(), c::build("threads")) else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let words = ["2", "6", "40"];
    let expected = Command::new(&program).args(words).output().expect("run");
    let file = place.path().join("doomed");
    let mut deaths = 0;
    for way in [&["-q", "--overhead", "400"][..], &["-q", "--full"]] {
        for n in moments(400) {
            let mut command = run(&place.path().join("p"), way);
            command.arg(&program).args(words).stdout(Stdio::piped());
            condemn(&mut command, &library, n, &file);
            let mut monitor = command.spawn().expect("started");
            // To the end of file, which comes when the orphan is gone too.
            let mut printed = Vec::new();
            let mut output = monitor.stdout.take().expect("piped");
            output.read_to_end(&mut printed).expect("read");
            let status = monitor.wait().expect("waited");
            let doomed = std::fs::remove_file(&file).is_ok();
            deaths += u32::from(doomed);
            assert_eq!(doomed, status.code().is_none(), "{way:?} {n}: {status}");
            // The first call is the one that seizes: before it there is no program.
            if n > 1 || !doomed {
                assert_eq!(lossy(&printed), lossy(&expected.stdout), "{way:?} {n}");
            }
        }
    }
    assert!(deaths > 45, "{deaths}");
}

#[test]
fn at_every_call_of_an_attach() {
    let (Some((_doom, library)), Some((_place, program))) = (doom(), c::build("server")) else {
        return;
    };
    let Some((_other, sandbox)) = c::build("sandbox") else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("doomed");
    // Every second one under filters that end it for calls of no number there is.
    let mut filtered = true;
    let mut start = || {
        filtered = !filtered;
        match filtered {
            true => server_of(Command::new(&sandbox).arg("service").arg(&program)),
            false => server(&program),
        }
    };
    let (mut deaths, mut attached, mut server) = (0, 0, start());
    let end = |(child, output): &mut (Child, BufReader<ChildStdout>), what: &str| {
        // It asks for twenty ticks of ten milliseconds, and may have begun just now.
        std::thread::sleep(Duration::from_millis(400));
        let rest = ask(child, output);
        // A wait for events (2) may fail once with EINTR where the monitor dies while it has the thread
        // stopped there: the kernel makes it so (signal(7)), and nobody is left to mend it.
        assert!(
            ["bad 0, timer ran\n", "bad 2, timer ran\n"].contains(&rest.as_str()),
            "{what}: {rest}"
        );
        child.wait().expect("waited");
    };
    let counter = &["--engine", "counter", "--for", "0.1"];
    for way in [&["--for", "0.1"][..], &["--full", "--for", "0.1"], counter] {
        for n in moments(300) {
            if attached == 12 {
                end(&mut server, &format!("{way:?}, up to {n}"));
                (attached, server) = (0, start());
            }
            attached += 1;
            let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
            command.args(["attach", "-q", "--overhead", "400", "-o"]);
            command
                .arg(place.path().join("p"))
                .args(way)
                .env(SIMULATE, "1")
                .arg(server.0.id().to_string());
            condemn(&mut command, &library, n, &file);
            let status = command.stderr(Stdio::piped()).status().expect("run");
            let doomed = std::fs::remove_file(&file).is_ok();
            deaths += u32::from(doomed);
            assert_eq!(doomed, status.code().is_none(), "{way:?} {n}: {status}");
        }
    }
    end(&mut server, "at last");
    assert!(deaths > 40, "{deaths}");
}

/// The log full of nonsense is more than a reader can bear.
#[test]
fn at_a_fault_of_its_own() {
    let Some((_place, program)) = c::build("scribble") else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let words = ["20"];
    let expected = Command::new(&program).args(words).output().expect("run");
    let mut faults = 0;
    for way in [&["-q", "--overhead", "400"][..], &["-q", "--full"]] {
        let mut command = run(&place.path().join("p"), way);
        let found = command.arg(&program).args(words).output().expect("run");
        let errors = lossy(&found.stderr);
        faults += usize::from(errors.contains("a fault of statcache's own"));
        assert_eq!(found.status.code(), expected.status.code(), "{errors}");
        assert_eq!(lossy(&found.stdout), lossy(&expected.stdout), "{errors}");
    }
    assert!(faults > 0);
}

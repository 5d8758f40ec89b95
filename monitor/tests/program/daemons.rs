//! Processes whose parents end before them, and what becomes of those that end.

use crate::support::c::build;
use crate::support::cli::{WAYS, awaited, lossy, output, readable, run, shell_status, text, under};
use std::path::Path;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A child that stays behind does not keep `run` waiting, and goes on when it is gone.
#[test]
fn a_daemon_outlives_the_run() {
    let place = directory();
    let [file, go] = ["done", "go"].map(|name| text(&place.path().join(name)));
    for way in WAYS {
        let waits = format!("while ! test -e {go}; do sleep 0.1; done");
        let script = format!("({waits}; echo late > {file}) > /dev/null 2>&1 & echo early");
        let found = under(
            Path::new("/"),
            place.path(),
            way,
            &["sh", "-c", &script],
            b"",
        );
        assert_eq!(lossy(&found.stdout), "early\n");
        assert!(!Path::new(&file).exists(), "it has been waited for");
        std::fs::write(&go, "").expect("written");
        let late = || std::fs::read_to_string(&file).is_ok_and(|text| text == "late\n");
        assert!(awaited(late));
        for path in [&file, &go] {
            std::fs::remove_file(path).expect("removed");
        }
    }
}

/// One whose parent has ended before it was seen is observed like any other.
#[test]
fn orphans_are_observed() {
    let Some((_place, program)) = build("orphan") else {
        return;
    };
    let place = directory();
    let mut unseen = 0;
    for _ in 0..8 {
        let words = [&*text(&program), "daemon", "1000"];
        let found = under(Path::new("/"), place.path(), &[], &words, b"");
        assert_eq!(lossy(&found.stdout), "finished\n");
        assert_eq!(shell_status(&found), 2, "{found:?}");
        let profile = readable(&place.path().join("p"));
        // The first process does nothing but wait.
        let windows = profile.others.iter().map(|p| p.windows.len());
        unseen += usize::from(windows.sum::<usize>() == 0);
    }
    // One run may be too short for a window on a busy machine.
    assert!(unseen < 2, "{unseen} of 8");
}

/// What has ended is waited for by nobody else: a child can be had once its pidfd says so, and a joined thread is gone.
#[test]
fn what_has_ended_is_its_parents() {
    const TIMES: u32 = 200;
    let Some((place, program)) = build("ends") else {
        return;
    };
    for options in [&[][..], &["--full"], &["--overhead", "300"]] {
        let mut command = run(&place.path().join("p"), options);
        command.arg(&program).arg(TIMES.to_string());
        let found = output(command, b"");
        let said = lossy(&found.stdout);
        if said.starts_with("skip") {
            println!("SKIP what_has_ended_is_its_parents: no pidfds here");
            return;
        }
        assert!(found.status.success(), "{options:?}: {found:?}");
        let counts: Vec<u32> = said
            .split_whitespace()
            .map(|word| word.parse().expect("a count"))
            .collect();
        // Alone some threads are listed a moment longer, too; where we were waited for it was most.
        let few = counts.iter().all(|&count| count < TIMES / 5);
        assert!(few && counts.len() == 2, "{options:?}: {said}");
    }
}

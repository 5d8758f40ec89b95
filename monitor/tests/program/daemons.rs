//! Processes whose parents end before them.

use crate::support::c::build;
use crate::support::cli::{WAYS, awaited, lossy, readable, shell_status, text, under};
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

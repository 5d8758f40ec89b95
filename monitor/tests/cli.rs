//! The program itself, on profiles of the synthetic program.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Plan, records, write};

fn statcache(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("COLUMNS", "80")
        .output()
        .unwrap()
}

fn profile(dir: &Path, plan: Plan) -> PathBuf {
    let path = dir.join("statcache.prof");
    write(&path, &records(plan));
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_report_without_options_reads_the_default_file() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path(), Plan::small());
    let out = statcache(dir.path(), &["report"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    assert!(report.starts_with("./grind --size large input.dat\n"), "{report}");
    for part in ["Miss ratio by cache size", "L2 2M", "hash.h:31", "grid", "warning  2 threads"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

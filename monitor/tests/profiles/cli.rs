//! The program itself, on profiles of the synthetic program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Plan, records, write};
use statcache::profile::types::Record;

pub fn statcache(dir: &Path, args: &[&str]) -> Output {
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

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_report_without_options_reads_the_default_file() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path(), Plan::small());
    let out = statcache(dir.path(), &["report"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    assert!(
        report.starts_with("./grind --size large input.dat\n"),
        "{report}"
    );
    for part in [
        "Miss ratio by cache size",
        "L2 2M",
        "hash.h:31",
        "grid",
        "warning  2 threads",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

/// Every way of looking at a profile keeps to its width and its characters.
#[test]
fn reports_fit_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path(), Plan::small());
    let views: [&[&str]; 9] = [
        &["report"],
        &["report", "--by", "line"],
        &["report", "--by", "function", "--top", "2"],
        &["report", "--by", "instruction", "--policy", "lru"],
        &["report", "--by", "data", "--cache", "1M"],
        &[
            "report",
            "--by",
            "object",
            "--cache",
            "4K,16K,64K,256K,1M,4M,16M",
        ],
        &["report", "--by", "window"],
        &["report", "--line-size", "256"],
        &["report", "--source", "grid.c"],
    ];
    for view in views {
        for (columns, language, no_color) in
            [("80", "C.UTF-8", "1"), ("120", "C", ""), ("60", "C", "1")]
        {
            let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
                .args(view)
                .current_dir(dir.path())
                .env_clear()
                .envs([
                    ("LANG", language),
                    ("COLUMNS", columns),
                    ("NO_COLOR", no_color),
                ])
                .env("CLICOLOR_FORCE", "1")
                .output()
                .unwrap();
            assert!(out.status.success(), "{view:?}: {}", text(&out.stderr));
            let report = text(&out.stdout);
            assert_eq!(report.contains('\u{1b}'), no_color.is_empty(), "{view:?}");
            if language == "C" {
                let odd: Vec<char> = report.chars().filter(|c| !c.is_ascii()).collect();
                assert!(odd.is_empty(), "{view:?}: {odd:?}");
            }
            let limit: usize = columns.parse().unwrap();
            for line in report.lines() {
                let width = without_colours(line).chars().count();
                assert!(width <= limit, "{view:?} at {limit}: {width}: {line}");
                assert_eq!(line.trim_end(), line, "{view:?}: spaces at the end");
            }
        }
    }
}

fn without_colours(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, r)| r);
    }
    out + rest
}

/// A profile whose header file is `source`, which is written with 40 lines.
fn on_source(source: &Path) -> Vec<Record> {
    let lines: Vec<String> = (1..=40).map(|n| format!("\tstatement {n};")).collect();
    std::fs::write(source, lines.join("\n")).unwrap();
    let mut all = records(Plan::small());
    for record in &mut all {
        if let Record::Symbols(chains) = record {
            for frame in chains
                .iter_mut()
                .flatten()
                .filter(|f| f.file.ends_with("hash.h"))
            {
                frame.file = source.to_str().unwrap().to_owned();
            }
        }
    }
    all
}

#[test]
fn source_is_shown_with_figures_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("walk.c");
    let mut all = on_source(&source);
    write(&dir.path().join("statcache.prof"), &all);
    let line = statcache(dir.path(), &["report", "--by", "line"]);
    assert!(
        !text(&line.stdout).contains("statement 31;"),
        "the profile is older than the source"
    );
    if let Record::Header(header) = &mut all[0] {
        header.start_unix_s = 4e9;
    }
    write(&dir.path().join("later.prof"), &all);
    let line = statcache(dir.path(), &["report", "later.prof", "--by", "line"]);
    assert!(
        text(&line.stdout).contains("│ statement 31;"),
        "{}",
        text(&line.stdout)
    );
    for wanted in ["walk.c", "lookup", "run"] {
        let out = statcache(dir.path(), &["report", "--source", wanted]);
        let report = text(&out.stdout);
        assert!(
            report.contains(" 31 │     statement 31;"),
            "{report}{}",
            text(&out.stderr)
        );
        assert!(
            report.contains(" 28 │     statement 28;") && !report.contains("statement 27;"),
            "{report}"
        );
        assert!(
            report.contains("changed since the run"),
            "the profile is dated 2023: {report}"
        );
    }
    let out = statcache(dir.path(), &["report", "--source", "nothing.c"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(
        text(&out.stderr).contains("no file or function `nothing.c`"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_program_without_line_numbers_is_told_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = records(Plan::small());
    all.retain(|r| !matches!(r, Record::Symbols(_)));
    write(&dir.path().join("statcache.prof"), &all);
    let report = text(&statcache(dir.path(), &["report"]).stdout);
    let words: Vec<&str> = report.split_whitespace().collect();
    let flowing = words.join(" ");
    assert!(
        flowing.contains("most of it in grind: compile it with -g"),
        "{report}"
    );
    assert!(
        !report.contains("Top lines") && report.contains("Top functions"),
        "{report}"
    );
    assert!(
        report.contains(" grind+0x1188\n"),
        "the object is not named twice: {report}"
    );
}

#[test]
fn bad_input_is_one_line_and_a_named_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = profile(
        dir.path(),
        Plan {
            accesses: 50_000,
            ..Plan::small()
        },
    );
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(
        dir.path().join("text.prof"),
        "not a profile, long enough to be one",
    )
    .unwrap();
    for name in ["twice", "twice.old"] {
        std::fs::write(dir.path().join(name), "something else").unwrap();
    }
    let mut newer = whole.clone();
    newer[12] = 99;
    std::fs::write(dir.path().join("newer.prof"), newer).unwrap();
    std::fs::write(dir.path().join("empty.prof"), &whole[..20]).unwrap();
    for (args, code, part) in [
        (&["report", "missing.prof"][..], 125, "statcache run"),
        (&["report", "text.prof"], 125, "not a statcache profile"),
        (&["report", "newer.prof"], 125, "format 99"),
        (&["report", "empty.prof"], 125, "no complete record"),
        (&["report", "--cache", "lots"], 2, "`lots` is not a size"),
        (&["report", "--cache", "16"], 2, "write 16K"),
        (&["report", "--top", "-1"], 2, "rows, 1 or more"),
        (&["run", "--overhead", "-5", "true"], 2, "above 0"),
        (&["run", "-o", "twice", "true"], 125, "is no profile"),
        (&["report", "--line-size", "48"], 2, "16, 32, 64, 128, 256"),
        (&["report", "--policy", "fifo"], 2, "random, lru"),
        (&["report", "--by", "colour"], 2, "line, function"),
        (&["report", "--top", "0"], 2, "rows, 1 or more"),
        (&["run", "--seed", "x", "true"], 2, "a whole number from 0"),
        (&["stop", "it"], 2, "the id of a process"),
        (&["export"], 2, "--format"),
        (&["export", "--format", "xls"], 2, "json, csv"),
        (
            &["export", "--format", "json", "-o", "no/such/dir.json"],
            125,
            "-o OUT",
        ),
        (
            &[
                "export",
                "newer.prof",
                "--format",
                "csv",
                "-o",
                "./newer.prof",
            ],
            125,
            "the profile itself",
        ),
        (&["frobnicate"], 2, "frobnicate"),
    ] {
        let out = statcache(dir.path(), args);
        let errors = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(part), "{args:?}: {errors}");
        assert!(out.stdout.is_empty(), "{args:?}");
        if code == 125 {
            assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
        }
    }
}

#[test]
fn a_torn_profile_is_reported_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = profile(dir.path(), Plan::small());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() * 2 / 3]).unwrap();
    let out = statcache(dir.path(), &["report"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    assert!(
        report.contains("cut off or damaged") && report.contains("no end recorded"),
        "{report}"
    );
    // Names were not written; the objects are asked, and of these there are none here.
    assert!(report.contains("grind+0x1188"), "{report}");
}

#[test]
fn a_profile_without_a_window_says_so_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = records(Plan {
        accesses: 1000,
        ..Plan::small()
    });
    all.retain(|r| !matches!(r, Record::Window(_)));
    write(&dir.path().join("statcache.prof"), &all);
    for args in [
        &["report"][..],
        &["report", "--by", "line"],
        &["report", "--by", "window"],
    ] {
        let out = statcache(dir.path(), args);
        let report = text(&out.stdout);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert!(
            report.contains("Nothing was measured") && report.contains("--full"),
            "{report}"
        );
    }
    for format in ["json", "csv"] {
        let out = statcache(dir.path(), &["export", "--format", format]);
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path(), Plan::small());
    let mut child = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(["export", "--format", "json"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(
        out.status.success() && out.stderr.is_empty(),
        "{}",
        text(&out.stderr)
    );
}

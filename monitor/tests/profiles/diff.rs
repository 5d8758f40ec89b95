//! `statcache diff` on profiles of the synthetic program, before and after an edit.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::{statcache, text};
use crate::common::{COPY, INSERT, LOOKUP, Plan, records, write};
use crate::views::{masked, shape};
use serde_json::Value;
use statcache::profile::types::{Outcome, Record};

fn plan(seed: u64, full: bool) -> Plan {
    Plan {
        seed,
        full,
        ..Plan::small()
    }
}

/// The program after an edit: its table fits any cache, what was inlined from the header lies two lines lower, and another
/// function copies.
fn edited(mut all: Vec<Record>) -> Vec<Record> {
    let near = |outcome: &mut Outcome| {
        if let Outcome::Reused {
            distance, trigger, ..
        } = outcome
            && [LOOKUP, INSERT].contains(trigger)
        {
            *distance = (*distance).min(4);
        }
    };
    for record in &mut all {
        match record {
            Record::Window(window) => {
                let samples = window.samples.iter_mut();
                samples
                    .flat_map(|taken| &mut taken.sample.own)
                    .for_each(near);
            }
            Record::Modules(modules) => modules[0].build_id = "11ff".to_owned(),
            Record::Symbols(symbols) => {
                for frame in symbols.iter_mut().flatten() {
                    if frame.file.ends_with("hash.h") {
                        frame.line += 2;
                    }
                }
                symbols[COPY as usize][0].function = "copy_forward".to_owned();
            }
            _ => {}
        }
    }
    all
}

/// `a` and `again`: two runs of the program, observed whole. `b`: after the edit.
fn profiles(dir: &Path) {
    write(&dir.join("a"), &records(plan(7, true)));
    write(&dir.join("again"), &records(plan(8, true)));
    write(&dir.join("b"), &edited(records(plan(9, true))));
}

fn diff(dir: &Path, options: &[&str]) -> (String, String, Option<i32>) {
    let out = statcache(dir, &[&["diff"], options].concat());
    (text(&out.stdout), text(&out.stderr), out.status.code())
}

#[test]
fn an_edit_as_text() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    let (report, errors, code) = diff(dir.path(), &["a", "b"]);
    assert_eq!((errors.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(masked(&report));
    // What the zeros of the snapshot do not show.
    let row = |of: &str, part: &str| {
        let line = report.lines().find(|l| l.contains(part)).unwrap_or("");
        assert!(line.contains(of), "{part}: {report}");
    };
    row("better", "hash.h:33 (was 31)");
    row("new", "copy_forward");
    row("gone", "__memmove_avx");
    row("better", "L2 2M  ");
    let words: Vec<&str> = report.split_whitespace().collect();
    let flowing = words.join(" ");
    assert!(
        flowing.contains("At L2 2M the miss ratio fell by 9"),
        "{report}"
    );
}

#[test]
fn a_profile_is_like_itself_and_like_another_run() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    for [a, b] in [["a", "a"], ["b", "b"], ["a", "again"]] {
        for options in [
            &["--by", "line"][..],
            &["--by", "function"],
            &["--by", "data", "--cache", "64K,1M"],
            &["--by", "object", "--policy", "lru"],
        ] {
            let (report, errors, code) = diff(dir.path(), &[&[a, b], options].concat());
            assert_eq!((errors.as_str(), code), ("", Some(0)), "{report}");
            for word in [" better", " worse", " new ", " gone ", " fell", " rose"] {
                assert!(
                    !report.contains(word),
                    "{a} {b} {options:?}{word}: {report}"
                );
            }
            assert!(
                report.contains("No difference in the miss ratio was seen at"),
                "{report}"
            );
        }
    }
}

#[test]
fn limits_fail_only_where_they_are_surely_met() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    write(&dir.path().join("few"), &edited(records(plan(9, false))));
    let files = |files: &str, limits: &[&str]| {
        let mut args: Vec<&str> = files.split(' ').collect();
        args.extend(limits.iter().flat_map(|limit| ["--fail-if", limit]));
        let (report, errors, code) = diff(dir.path(), &args);
        assert!(report.contains("Miss ratio by cache size"), "{report}");
        (errors, code)
    };
    // From `b` to `a` the ratio of the second level rises by 9.4 points (8.4 to 10.5), its misses by 120 %.
    for limit in [
        "miss_ratio>+0.5%",
        "miss_ratio@2M>+5%",
        "miss_ratio@1M>=5%",
        "misses>+50%",
        "accesses<+5%",
        "miss_ratio@2M<50%",
    ] {
        let (errors, code) = files("b a", &[limit]);
        assert_eq!(code, Some(1), "{limit}: {errors}");
        assert!(
            errors.starts_with(&format!("statcache: failed: {limit}")),
            "{errors}"
        );
        assert!(errors.contains(" before, "), "{errors}");
        // Without --cache the first two levels meet one.
        let lines = errors.lines().count();
        assert!((1..=3).contains(&lines), "{errors}");
    }
    let (errors, code) = files("b a --cache 2M", &["miss_ratio>+0.5%", "accesses>+5%"]);
    assert_eq!((errors.lines().count(), code), (1, Some(1)), "{errors}");
    for (named, limit) in [
        ("b a", "miss_ratio>+60%"),
        ("b a", "miss_ratio@2M>90%"),
        ("a b", "miss_ratio>+0.5%"),
        ("a b", "misses>+1%"),
        ("a a", "miss_ratio>+0%"),
        ("a a", "misses<-0%"),
        ("a again", "accesses>+1%"),
    ] {
        let (errors, code) = files(named, &[limit]);
        assert_eq!((errors.as_str(), code), ("", Some(0)), "{named} {limit}");
    }
    // The value is beyond, and all of its interval is not.
    let (errors, code) = files("b a --cache 2M", &["miss_ratio@2M>+9%"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        errors.starts_with("statcache: not sure: miss_ratio@2M>+9% in L2 2M: ")
            && errors.ends_with("would need more samples (--full or a longer run)\n"),
        "{errors}"
    );
}

#[test]
fn what_cannot_be_compared_is_one_line_and_a_named_code() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    let whole = std::fs::read(dir.path().join("a")).unwrap();
    std::fs::write(
        dir.path().join("text"),
        "not a profile, long enough to be one",
    )
    .unwrap();
    std::fs::write(dir.path().join("torn"), &whole[..20]).unwrap();
    let mut nothing = records(plan(7, true));
    nothing.retain(|r| !matches!(r, Record::Window(_)));
    write(&dir.path().join("nothing"), &nothing);
    for (args, code, part) in [
        (&["a", "missing"][..], 125, "missing: No such file"),
        (&["text", "a"], 125, "not a statcache profile"),
        (&["a", "torn"], 125, "no complete record"),
        (&["a", "b", "--process", "other"], 125, "no process other"),
        (&["a"], 2, "<AFTER>"),
        (&["a", "b", "--fail-if", "miss_rate>5%"], 2, "no metric"),
        (&["a", "b", "--fail-if", "miss_ratio>1"], 2, "per cent"),
        (&["a", "b", "--cache", "lots"], 2, "is not a size"),
        (&["a", "b", "--by", "window"], 2, "line, function, data"),
        (&["a", "b", "--top", "0"], 2, "rows, 1 or more"),
    ] {
        let (report, errors, found) = diff(dir.path(), args);
        assert_eq!(found, Some(code), "{args:?}: {errors}");
        assert!(errors.contains(part), "{args:?}: {errors}");
        assert!(report.is_empty(), "{args:?}: {report}");
        if code == 125 {
            assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
        }
    }
    // Without samples there is something to say, and nothing to judge.
    let (report, errors, code) = diff(dir.path(), &["a", "nothing"]);
    assert_eq!((errors.as_str(), code), ("", Some(0)));
    assert!(report.contains("after has no samples"), "{report}");
    let (_, errors, code) = diff(dir.path(), &["a", "nothing", "--fail-if", "misses>+1%"]);
    assert_eq!(code, Some(125), "{errors}");
    assert!(
        errors.contains("after has no samples to judge by"),
        "{errors}"
    );
    // So it is where a profile broke off.
    std::fs::write(dir.path().join("half"), &whole[..whole.len() * 2 / 3]).unwrap();
    let (report, errors, code) = diff(dir.path(), &["half", "a"]);
    assert_eq!((errors.as_str(), code), ("", Some(0)));
    assert!(report.contains("before is not complete"), "{report}");
    let (_, errors, code) = diff(dir.path(), &["half", "a", "--fail-if", "misses>+1%"]);
    assert_eq!(code, Some(125), "{errors}");
    assert!(errors.contains("before is not complete"), "{errors}");
}

#[test]
fn comparisons_fit_the_terminal_and_say_what_makes_them_hard() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    let mut other = edited(records(plan(9, false)));
    let Some(Record::Header(header)) = other.first_mut() else {
        panic!("no header");
    };
    header.command = vec!["/opt/mill".to_owned()];
    header.host_caches.truncate(2);
    other.retain(|r| !matches!(r, Record::Footer(_)));
    write(&dir.path().join("other"), &other);
    for columns in ["60", "80", "120"] {
        for locale in ["C", "C.UTF-8"] {
            let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
                .args(["diff", "a", "other"])
                .current_dir(dir.path())
                .env_clear()
                .env("LANG", locale)
                .env("COLUMNS", columns)
                .output()
                .unwrap();
            let report = text(&out.stdout);
            let width: usize = columns.parse().unwrap();
            for line in report.lines() {
                assert!(line.chars().count() <= width, "{columns} {line}: {report}");
            }
            assert!(locale != "C" || report.is_ascii(), "{report}");
            let words: Vec<&str> = report.split_whitespace().collect();
            let flowing = words.join(" ");
            for part in [
                "different programs, grind and mill",
                "before was observed as a whole, after in windows",
                "after is not complete",
                "before with caches of 48K, 2M and 32M, after with caches of 48K and 2M",
            ] {
                assert!(flowing.contains(part), "{part}: {report}");
            }
        }
    }
}

#[test]
fn the_json_document_says_what_the_text_does() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    let options = ["b", "a", "--format", "json"];
    let limits = ["--fail-if", "misses>+50%", "--fail-if", "accesses>+5%"];
    let (report, errors, code) = diff(dir.path(), &[&options[..], &limits].concat());
    assert_eq!((errors.lines().count(), code), (2, Some(1)), "{errors}");
    let document: Value = serde_json::from_str(&report).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&shape(&document)).unwrap());
    let at = |path: &str| document.pointer(path).unwrap_or(&Value::Null);
    assert_eq!(at("/sizes/1/cache_bytes"), 2 << 20);
    assert_eq!(at("/sizes/1/change/verdict"), "worse");
    assert_eq!(at("/sizes/2/change/verdict"), "none");
    assert_eq!(at("/ranked_by"), 2 << 20);
    assert_eq!(at("/subjects/0/line"), 31);
    assert_eq!(at("/subjects/0/line_before"), 33);
    let limits = at("/limits").as_array().unwrap().iter();
    let outcomes: Vec<&Value> = limits.map(|limit| &limit["outcome"]).collect();
    assert_eq!(outcomes, ["met", "met", "not met", "not met"]);
}

/// Whoever reads the text has seen enough; the exit code is for whoever started it.
#[test]
fn a_reader_that_goes_away_does_not_undo_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    profiles(dir.path());
    for (limit, code) in [("misses>+50%", 1), ("misses<-50%", 0)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_statcache"))
            .args(["diff", "b", "a", "--fail-if", limit])
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
    }
}

//! Programs of other languages and libraries: they do what they do alone, launched and attached to, and have names and
//! lines in the profile.

use crate::support::cli::{WAYS, lossy, native, readable, shell_status, text, under};
use statcache::profile::Profile;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program to be built and what is to be found of it.
struct Sort {
    name: &'static str,
    /// The compiler, its options, the source; `-o PROGRAM` comes behind the options.
    compiler: &'static str,
    options: &'static [&'static str],
    source: &'static str,
    /// What it is called with to be short.
    short: &'static [&'static str],
    /// And to last long enough to be attached to, where that is of interest.
    long: Option<&'static [&'static str]>,
    status: i32,
    /// How a function of it begins, and its source file.
    line: (&'static str, &'static str),
}

const CPP: &[&str] = &["-O1", "-g", "-pthread"];

const SORTS: [Sort; 6] = [
    Sort {
        name: "Go",
        compiler: "go",
        options: &["build"],
        source: "programs/trees.go",
        short: &["1000"],
        long: Some(&["100000"]),
        status: 5,
        line: ("main.(*node).insert", "trees.go"),
    },
    Sort {
        name: "C++",
        compiler: "c++",
        options: CPP,
        source: "programs/thrown.cc",
        short: &["300"],
        long: None,
        status: 4,
        line: ("deep", "thrown.cc"),
    },
    Sort {
        name: "C++, static and loaded anywhere",
        compiler: "c++",
        options: &["-O1", "-g", "-pthread", "-static-pie"],
        source: "programs/thrown.cc",
        short: &["300"],
        long: Some(&["150000"]),
        status: 4,
        line: ("deep", "thrown.cc"),
    },
    Sort {
        name: "Rust",
        compiler: "rustc",
        options: &["--edition=2024", "-Copt-level=1", "-g"],
        source: "programs/caught.rs",
        short: &["400"],
        long: Some(&["40000"]),
        status: 6,
        line: ("caught::deep", "caught.rs"),
    },
    Sort {
        name: "musl",
        compiler: "musl-gcc",
        options: &["-O1", "-g", "-pthread"],
        source: "../../tests/tracees/threads.c",
        short: &["2", "60", "5"],
        long: None,
        status: 7,
        line: ("work", "threads.c"),
    },
    Sort {
        name: "musl, static",
        compiler: "musl-gcc",
        options: &["-O1", "-g", "-pthread", "-static"],
        source: "../../tests/tracees/threads.c",
        short: &["2", "60", "5"],
        long: Some(&["2", "60", "3000"]),
        status: 7,
        line: ("work", "threads.c"),
    },
];

/// The program, or why there is none.
fn build(sort: &Sort, place: &Path) -> Result<PathBuf, String> {
    let program = place.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(sort.source);
    let output = Command::new(sort.compiler)
        .args(sort.options)
        .arg("-o")
        .arg(&program)
        .arg(source)
        // Of Go's: one file is no module, and what it keeps goes with the rest.
        .env("GO111MODULE", "off")
        .env("GOCACHE", place.join("cache"))
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => Err(lossy(&output.stderr)),
        Err(error) => Err(format!("{}: {error}", sort.compiler)),
    }
}

/// Whether a function of the program has been seen, at a line of its file.
fn assert_named(profile: &Profile, (function, file): (&str, &str), what: &str) {
    let frames: Vec<_> = profile.symbols.iter().flatten().collect();
    let found = frames
        .iter()
        .any(|f| f.function.starts_with(function) && f.file.ends_with(file) && f.line > 0);
    let its = frames.iter().filter(|f| f.file.ends_with(file));
    assert!(
        found,
        "{what}: no {function} in {:?}",
        its.collect::<Vec<_>>()
    );
}

#[test]
fn they_do_what_they_do_alone() {
    for sort in &SORTS {
        let place = tempfile::tempdir().expect("a temporary directory");
        let program = match build(sort, place.path()) {
            Ok(program) => text(&program),
            Err(why) => {
                println!("SKIP {}: cannot be built here: {why}", sort.name);
                continue;
            }
        };
        let words = |of: &[&'static str]| [&[program.as_str()], of].concat();
        let short = words(sort.short);
        let alone = native(Path::new("/"), &short, b"");
        assert_eq!(shell_status(&alone), sort.status, "{}", sort.name);
        for way in WAYS {
            let what = format!("{} {way:?}", sort.name);
            let found = under(Path::new("/"), place.path(), way, &short, b"");
            assert_eq!(
                shell_status(&found),
                sort.status,
                "{what}: {}",
                lossy(&found.stderr)
            );
            assert_eq!(lossy(&found.stdout), lossy(&alone.stdout), "{what}");
            let profile = readable(&place.path().join("p"));
            if way == ["--full"] {
                assert_named(&profile, sort.line, &what);
            }
        }
        if let Some(long) = sort.long {
            attached(&words(long), sort, place.path());
        }
    }
}

/// Attached to while it works and left again, it ends as it does alone.
fn attached(words: &[&str], sort: &Sort, place: &Path) {
    let alone = native(Path::new("/"), words, b"");
    // Where we hardly run it may have ended before we come.
    let seen = (0..5).any(|_| attached_once(words, sort, place, &alone));
    assert!(seen, "{}: it was never attached to", sort.name);
}

fn attached_once(words: &[&str], sort: &Sort, place: &Path, alone: &Output) -> bool {
    let mut command = Command::new(words[0]);
    let program = command
        .args(&words[1..])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let statuses: Vec<_> = ["0.2", "0.3"]
        .into_iter()
        .map(|time| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
            command.args(["attach", "-q", "--overhead", "200", "--for", time, "-o"]);
            command
                .arg(place.join("attached"))
                .arg(program.id().to_string());
            command.output().expect("run").status.code()
        })
        .collect();
    // Where the machine is fast it may have ended before we come the second time.
    let known = |status: &Option<i32>| matches!(status, Some(0 | 126));
    assert!(statuses.iter().all(known), "{}: {statuses:?}", sort.name);
    let found = program.wait_with_output().expect("waited");
    assert_eq!(shell_status(&found), sort.status, "{}", sort.name);
    assert_eq!(lossy(&found.stdout), lossy(&alone.stdout), "{}", sort.name);
    statuses[0] == Some(0)
}

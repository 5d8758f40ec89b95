//! README's first command does what README says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where README has the programs that its first command builds.
const RELEASE: &str = "./target/release/";

/// The words of each part of README's first command, which `&&` joins: to build, to profile, to report.
fn first_command() -> [Vec<String>; 3] {
    let readme = include_str!("../../../README.md");
    let (_, behind) = readme.split_once("```sh\n").expect("a block of commands");
    let (block, _) = behind.split_once("\n```").expect("its end");
    let parts: Vec<Vec<String>> = block
        .split("&&")
        .map(|part| part.split_whitespace().map(str::to_owned).collect())
        .collect();
    parts.try_into().expect("three parts")
}

/// Directory in which cargo has put what this test was built with.
fn built() -> PathBuf {
    let statcache = Path::new(env!("CARGO_BIN_EXE_statcache"));
    statcache.parent().expect("a directory").to_owned()
}

/// Runs these words of README's, with the programs that this test was built with.
fn output(directory: &Path, words: &[String]) -> Output {
    let words: Vec<PathBuf> = words
        .iter()
        .map(|word| match word.strip_prefix(RELEASE) {
            Some(program) => built().join(program),
            None => PathBuf::from(word),
        })
        .collect();
    Command::new(&words[0])
        .args(&words[1..])
        .current_dir(directory)
        .output()
        .unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

#[test]
fn the_first_command_of_readme_shows_the_lines_of_a_library() {
    let [build, mut profile, mut report] = first_command();
    // What is built is what is used, where cargo puts it.
    let after = |option: &str| -> Vec<&String> {
        let pairs = build.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| &pair[1]).collect()
    };
    assert_eq!(build[..3], ["cargo", "build", "--release"], "{build:?}");
    assert_eq!(after("-p"), [env!("CARGO_PKG_NAME")], "{build:?}");
    let statcache: Vec<String> = after("--bin")
        .iter()
        .map(|name| format!("{RELEASE}{name}"))
        .collect();
    let examples: Vec<String> = after("--example")
        .iter()
        .map(|name| format!("{RELEASE}examples/{name}"))
        .collect();
    let ([statcache], [example]) = (&statcache[..], &examples[..]) else {
        panic!("{build:?}");
    };
    let words = [statcache.as_str(), "run", example, statcache];
    assert_eq!(profile, words, "{profile:?}");
    let program = built().join(&example[RELEASE.len()..]);
    assert!(
        program.exists(),
        "no {}: `cargo test` builds it, before `cargo test --test program` it takes `cargo build --example`",
        program.display()
    );
    assert_eq!(report[..2], [statcache.as_str(), "report"], "{report:?}");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = "profile".to_owned();
    let quiet = ["-q".to_owned(), "-o".to_owned(), file.clone()];
    profile.splice(2..2, quiet);
    report.push(file);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = output(directory.path(), &profile);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let shown = output(directory.path(), &report);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    // What README says the work is done by.
    assert!(shown.contains("miniz_oxide"), "{shown}");
}

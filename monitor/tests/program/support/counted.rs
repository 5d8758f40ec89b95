//! Whole runs of the `counter` engine with single steps in a counter's place.

use crate::support::cli::{output, run};
use statcache::session::counter::SIMULATE;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Windows as often as can be.
pub const BUSY: [&str; 4] = ["--engine", "counter", "--overhead", "600"];

/// A directory for one test.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Compiles `tests/tracees/shim/NAME.c`; says why it cannot.
pub fn build(directory: &Path, name: &str) -> Option<PathBuf> {
    let program = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/tracees/shim")
        .join(format!("{name}.c"));
    let built = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .output();
    match built {
        Ok(built) if built.status.success() => Some(program),
        Ok(output) => panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("SKIP {name}: no cc here: {error}");
            None
        }
    }
}

/// Under the engine with this kind of counter.
pub fn simulated_as(kind: &str, profile: &Path, words: &[&str], input: &[u8]) -> Output {
    simulated_with(&BUSY, kind, profile, words, input)
}

/// As [`simulated_as`], with these options.
pub fn simulated_with(
    options: &[&str],
    kind: &str,
    profile: &Path,
    words: &[&str],
    input: &[u8],
) -> Output {
    let mut command = run(profile, options);
    command.args(words).env(SIMULATE, kind);
    output(command, input)
}

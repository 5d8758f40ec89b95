//! Tracees written in C, with threads.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `NAME.c` of `tests/tracees`. `None`, after saying so, where there is no compiler.
pub fn build(name: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    build_with(name, &[])
}

/// The same with further options of the compiler's.
pub fn build_with(name: &str, options: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let place = tempfile::tempdir().expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/tracees/{name}.c"));
    let program = place.path().join(name);
    let output = Command::new("cc")
        .args(["-O1", "-g", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .output();
    match output {
        Ok(output) if output.status.success() => Some((place, program)),
        Ok(output) => panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("SKIP {name}: no cc here: {error}");
            None
        }
    }
}

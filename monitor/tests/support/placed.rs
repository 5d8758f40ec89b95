//! Putting programs where they are to be run.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Puts a copy of the program `from` at `to`, with the permissions `mode`.
///
/// Another process writes it. Whatever a test beside this one forks has our descriptors until it
/// executes its own program, and while any process has a file open to write, the file cannot be
/// executed (`ETXTBSY`, execve(2)).
pub fn copied(from: &Path, to: &Path, mode: u32) {
    let output = Command::new("install")
        .arg(format!("--mode={mode:o}"))
        .args([from, to])
        .output()
        .expect("run");
    assert!(output.status.success(), "{output:?}");
}

/// Puts `bytes` at `to`, as a file with the permissions `mode`.
pub fn written(bytes: &[u8], to: &Path, mode: u32) {
    let mut apart = tempfile::NamedTempFile::new().expect("a temporary file");
    apart.write_all(bytes).expect("written");
    copied(apart.path(), to, mode);
}

//! Building the tracees of `tests/tracees`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with built tracees.
pub struct Tracees {
    directory: tempfile::TempDir,
}

impl Tracees {
    /// Builds `name`. `None`, after saying so, where there is no assembler.
    pub fn build(name: &str) -> Option<(Tracees, PathBuf)> {
        Tracees::build_with(name, &[])
    }

    /// The same with more arguments for the compiler.
    pub fn build_with(name: &str, more: &[&str]) -> Option<(Tracees, PathBuf)> {
        let tracees = Tracees {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees");
        let program = tracees.directory.path().join(name);
        let output = Command::new("cc")
            .current_dir(sources)
            .args(["-nostdlib", "-static", "-Wa,-I,."])
            .args(["-Wl,-z,noexecstack", "-Wl,--no-warn-rwx-segments", "-o"])
            .arg(&program)
            .args([format!("{name}.s"), "report.s".into()])
            .args(more)
            .output();
        match output {
            Ok(output) if output.status.success() => Some((tracees, program)),
            Ok(output) => panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                println!("SKIP {name}: no cc here: {error}");
                None
            }
        }
    }
}

/// One at a time of the tests to which it matters when things happen: timers and deaths are less of a matter of luck then. (Others run beside them.)
pub fn exclusive() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

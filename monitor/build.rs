//! Builds the two shims (`preload/`) into `OUT_DIR`, from where `engine::counter::shim` and `session::heap` embed them.
//!
//! The compiler is called directly, with no cargo inside cargo: the shim and the interface it shares with the monitor are
//! two crates without dependencies, so nothing is fetched, locked or built twice, and `cargo build` stays the only step. They
//! need settings of their own as well: a freestanding shared object aborts on panic and links nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    let out = PathBuf::from(variable("OUT_DIR"));
    for source in ["abi/src", "preload/src"] {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    compile(
        &root.join("abi/src/lib.rs"),
        &out,
        "rlib",
        "statcache_abi",
        &[],
    );
    let library = format!(
        "statcache_abi={}",
        out.join("libstatcache_abi.rlib").display()
    );
    let source = root.join("preload/src/lib.rs");
    for (feature, name) in [("shim", "statcache_shim"), ("heap", "statcache_heap")] {
        let more = [
            "--cfg",
            &format!("feature=\"{feature}\""),
            "--extern",
            &library,
            "-Crelocation-model=pic",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-Wl,-z,now,-z,noexecstack",
            "-Cstrip=symbols",
            // What only the unit tests and the other builds use.
            "-Adead_code",
        ];
        let mut more = more.to_vec();
        if feature == "heap" {
            // Before a library's constructor sees what the environment holds of it.
            more.push("-Clink-arg=-Wl,-z,initfirst");
        }
        compile(&source, &out, "cdylib", name, &more);
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn compile(source: &Path, out: &Path, kind: &str, name: &str, more: &[&str]) {
    let mut command = Command::new(variable("RUSTC"));
    command
        .args([
            "--edition",
            "2024",
            "--crate-type",
            kind,
            "--crate-name",
            name,
        ])
        .args(["-Copt-level=2", "-Cpanic=abort", "--target"])
        .arg(variable("TARGET"))
        .arg("--out-dir")
        .arg(out)
        .args(more)
        .arg(source);
    if let Ok(linker) = std::env::var("RUSTC_LINKER") {
        command.arg(format!("-Clinker={linker}"));
    }
    let status = command.status();
    assert!(
        matches!(&status, Ok(status) if status.success()),
        "the shim could not be built: {command:?}: {status:?}"
    );
}

//! `statcache run` on what it cannot do: one line that says what to do, a named exit code, and
//! nothing started.

use crate::support::cli::{
    WAYS, installed, lossy, native, output, readable, run, shell_status, text, under,
};
use crate::support::forbidden::forbid;
use crate::support::placed;
use statcache::profile::Profile;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn file(directory: &Path, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
    let path = directory.join(name);
    placed::written(bytes, &path, mode);
    path
}

/// Exit code `code`, one line that contains every one of `parts`, nothing on standard output.
fn assert_refused(found: &Output, code: i32, parts: &[&str]) {
    let said = lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(found.stdout.is_empty(), "{}", lossy(&found.stdout));
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

fn refused(program: &str, code: i32, parts: &[&str]) {
    let profiles = directory();
    for way in WAYS {
        let found = under(profiles.path(), profiles.path(), way, &[program], b"");
        assert_refused(&found, code, parts);
        let left = std::fs::read_dir(profiles.path()).expect("listed").count();
        assert_eq!(left, 0, "a refused run leaves no file");
    }
}

/// A profiler that runs out of memory, or has none to share, leaves the program in the middle.
#[test]
fn too_little_for_a_profile() {
    for (option, said) in [
        ("-d", "memory is limited to 48 MiB"),
        ("-f", "files are limited to "),
    ] {
        let raised = Command::new("sh")
            .args([
                "-c",
                &format!("ulimit {option} 50000; ulimit {option} unlimited"),
            ])
            .output()
            .expect("run");
        // With the right to raise it.
        let may = raised.status.success();
        let profiles = directory();
        for way in WAYS {
            let mut command = run(&profiles.path().join("p"), way);
            command.args(["sh", "-c", &format!("ulimit {option}")]);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let found = Command::new("sh")
                .args(["-c", &format!("ulimit {option} 50000; exec \"$@\""), "sh"])
                .args(words)
                .output()
                .expect("run");
            if may {
                // The program has its own all the same.
                assert_eq!(lossy(&found.stdout), "50000\n", "{found:?}");
                continue;
            }
            assert_refused(&found, 125, &[said, &format!("ulimit {option}")]);
            let left = std::fs::read_dir(profiles.path()).expect("listed").count();
            assert_eq!(left, 0, "a refused run leaves no file");
        }
    }
}

/// It would wait for somebody who reads, and the program with it.
#[test]
fn a_fifo_that_nobody_reads_for_a_profile() {
    let profiles = directory();
    let fifo = profiles.path().join("p");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
    for way in WAYS {
        let found = run(&fifo, way).arg("true").output().expect("run");
        assert_refused(&found, 125, &["cannot create the profile"]);
    }
}

#[test]
fn missing_program() {
    refused(
        "no-such-program-anywhere",
        127,
        &["no-such-program-anywhere", "PATH"],
    );
    refused("/no/such/program", 127, &["/no/such/program"]);
}

#[test]
fn file_that_is_not_executable() {
    let directory = directory();
    let path = file(directory.path(), "plain", b"#!/bin/sh\n", 0o644);
    refused(&text(&path), 126, &["not executable", "chmod"]);
}

/// An ELF header with this class and machine.
fn elf(class: u8, machine: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    bytes[16] = 2;
    bytes[18] = machine;
    bytes
}

#[test]
fn program_for_32_bits() {
    let directory = directory();
    let path = file(directory.path(), "old", &elf(1, 3), 0o755);
    refused(&text(&path), 126, &["32-bit"]);
}

#[test]
fn program_for_another_machine() {
    let directory = directory();
    let path = file(directory.path(), "foreign", &elf(2, 183), 0o755);
    refused(&text(&path), 126, &["another architecture"]);
}

#[test]
fn program_that_is_cut_off() {
    let directory = directory();
    let path = file(directory.path(), "short", &elf(2, 62), 0o755);
    // The kernel's own judgement, over the pipe.
    refused(&text(&path), 126, &["cannot execute"]);
}

#[test]
fn text_without_an_interpreter_line() {
    let directory = directory();
    let path = file(directory.path(), "script", b"echo hi\n", 0o755);
    refused(&text(&path), 126, &["#!", "statcache run sh"]);
    let path = file(directory.path(), "lost", b"#!/no/such/interpreter\n", 0o755);
    refused(&text(&path), 126, &["/no/such/interpreter"]);
}

#[test]
fn directory_as_program() {
    let directory = directory();
    refused(&text(directory.path()), 126, &["directory"]);
}

/// As somebody who is not root, where we are.
fn unprivileged(program: &Path) -> Option<Command> {
    // SAFETY: no arguments, no failure.
    if unsafe { libc::geteuid() } != 0 {
        return Some(Command::new(program));
    }
    let setpriv = installed("setpriv")?;
    let mut command = Command::new(setpriv);
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program);
    Some(command)
}

#[test]
fn program_with_another_users_rights() {
    let Some(program) = installed("true") else {
        return;
    };
    let directory = directory();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).expect("set");
    let path = directory.path().join("powerful");
    placed::copied(&program, &path, 0o4755);
    // Our own binary may lie where nobody else can reach it.
    let own = directory.path().join("statcache");
    placed::copied(Path::new(env!("CARGO_BIN_EXE_statcache")), &own, 0o755);
    let Some(mut command) = unprivileged(&own) else {
        return;
    };
    command
        .args(["run", "-o"])
        .arg(directory.path().join("p"))
        .arg(&path);
    let found = output(command, b"");
    assert_refused(&found, 126, &["set-user-id", "as root"]);
    assert!(!directory.path().join("p").exists());
}

#[test]
fn kernel_that_refuses_to_trace() {
    let directory = directory();
    let marker = directory.path().join("ran");
    let mut command = run(&directory.path().join("p"), &[]);
    command.arg("touch").arg(&marker);
    // SAFETY: prctl is async-signal-safe, and nothing is allocated.
    unsafe { command.pre_exec(|| forbid(libc::SYS_ptrace)) };
    let found = output(command, b"");
    assert_refused(&found, 125, &["refused to trace", "allow ptrace"]);
    assert!(!marker.exists(), "the program was not to run");
    assert!(!directory.path().join("p").exists());
}

#[test]
fn output_that_cannot_be_written() {
    let directory = directory();
    let marker = directory.path().join("ran");
    let long = "x".repeat(300);
    for place in ["no/such/directory/p", ".", "/proc/p", "/dev/full", &long] {
        let mut command = run(Path::new(place), &[]);
        command
            .arg("touch")
            .arg(&marker)
            .current_dir(directory.path());
        let found = output(command, b"");
        assert_refused(&found, 125, &[]);
        assert!(!marker.exists(), "{place}: the program was not to run");
    }
}

/// A file system with this many bytes, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path, bytes: u64) -> Option<Small> {
        let options = format!("size={bytes}");
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(at);
        match command.output() {
            Ok(done) if done.status.success() => Some(Small(at.to_owned())),
            other => {
                println!("SKIP disk_that_fills_up: cannot mount: {other:?}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn disk_that_fills_up() {
    if installed("awk").is_none() {
        return;
    }
    let directory = directory();
    let Some(small) = Small::mount(directory.path(), 32 << 10) else {
        return;
    };
    let profile = small.0.join("p");
    let words = [
        "awk",
        "BEGIN { for (i = 0; i < 400000; i++) n[i % 9973] += i; print n[17]; exit 6 }",
    ];
    let expected = native(Path::new("/"), &words, b"");
    let mut command = run(&profile, &["--full"]);
    command.args(words);
    let found = output(command, b"");
    // The program did all it does; its own failure says more than ours.
    assert_eq!(found.stdout, expected.stdout);
    assert_eq!(shell_status(&found), 6, "{}", lossy(&found.stderr));
    let said = lossy(&found.stderr);
    assert!(said.contains("No space left"), "{said}");
    // What was written before can be read.
    if profile.exists() {
        Profile::read(&profile).expect("the part that fitted");
    }
    // And without a failure of its own.
    let mut command = run(&profile, &["--full"]);
    command.args(["awk", &words[1].replace("exit 6", "exit 0")]);
    assert_eq!(shell_status(&output(command, b"")), 125);
}

#[test]
fn unknown_option_values() {
    let directory = directory();
    let marker = text(&directory.path().join("ran"));
    for (options, part) in [
        (&["--engine", "magic"][..], "magic"),
        (&["--overhead", "0"], "0"),
        (&["--overhead", "much"], "much"),
        (&["--seed", "x"], "x"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command
            .arg("run")
            .args(options)
            .args(["touch", &marker])
            .current_dir(directory.path());
        let found = output(command, b"");
        assert_eq!(found.status.code(), Some(2), "{options:?}");
        assert!(
            lossy(&found.stderr).contains(part),
            "{options:?}: {}",
            lossy(&found.stderr)
        );
        assert!(!Path::new(&marker).exists());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    command.arg("run");
    assert_eq!(output(command, b"").status.code(), Some(2));
}

#[test]
fn run_too_short_for_a_window() {
    let profiles = directory();
    let found = under(profiles.path(), profiles.path(), &[], &["true"], b"");
    assert_eq!(found.status.code(), Some(0));
    let said = lossy(&found.stderr);
    let profile = readable(&profiles.path().join("p"));
    if profile.windows.is_empty() {
        assert!(
            said.contains("before the first window") && said.contains("--full"),
            "{said}"
        );
    }
    let mut report = Command::new(env!("CARGO_BIN_EXE_statcache"));
    report.arg("report").arg(profiles.path().join("p"));
    let report = lossy(&output(report, b"").stdout);
    if profile.windows.is_empty() {
        assert!(
            report.contains("Nothing was measured") && report.contains("--full"),
            "{report}"
        );
    }
}

#[test]
fn older_profile_is_kept() {
    let profiles = directory();
    for _ in 0..2 {
        let found = under(profiles.path(), profiles.path(), &["-q"], &["true"], b"");
        assert!(found.stderr.is_empty(), "{}", lossy(&found.stderr));
    }
    readable(&profiles.path().join("p"));
    readable(&profiles.path().join("p.old"));
    assert_eq!(
        std::fs::read_dir(profiles.path()).expect("listed").count(),
        2
    );
}

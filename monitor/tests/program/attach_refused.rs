//! `statcache attach` to what it does not watch, or cannot: one clear line, a code, and the process goes on.

use crate::support::attached::{ask, attach, await_state, server, traces};
use crate::support::c::build;
use crate::support::cli::{awaited, lossy, program_of, readable};
use crate::support::placed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

/// A monitor maps what its programs do: taken for what a killed one left, that would be unmapped.
#[test]
fn monitors_at_work_are_left_alone() {
    let Some((place, program)) = build("spins") else {
        return;
    };
    let profile = place.path().join("p");
    let mut working = Command::new(env!("CARGO_BIN_EXE_statcache"));
    working.args(["run", "-q", "--overhead", "200", "-o"]);
    working.arg(&profile).arg("--").arg(&program);
    let mut working = working.args(["1", "20000"]).spawn().expect("started");
    let is_at_work = || {
        traces(working.id())
            .iter()
            .any(|line| line.contains("memfd"))
    };
    assert!(awaited(is_at_work));
    let other = place.path().join("q");
    let found = attach(&other, &[], working.id());
    let said = lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(126), "{said}");
    assert!(said.contains("another statcache, at work"), "{said}");
    assert_eq!(working.wait().expect("waited").code(), Some(6));
    readable(&profile);
}

/// A profile that is lost is no success, whatever the program's own end.
#[test]
fn profiles_that_are_lost_are_told() {
    let Some((place, program)) = build("spins") else {
        return;
    };
    let child = Command::new(&program).args(["1", "30000"]).spawn();
    let mut child = child.expect("started");
    let profile = place.path().join("p");
    // The program's own limit stays what it is.
    let limited = format!(
        "ulimit -f 1; exec \"$0\" attach --full -o \"$1\" {}",
        child.id()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_statcache")]);
    let found = command.arg(&profile).output().expect("run");
    assert_eq!(found.status.code(), Some(125), "{}", lossy(&found.stderr));
    assert_eq!(child.wait().expect("waited").code(), Some(6));
}

/// What there is no room in is not watched, and that is no success.
#[test]
fn a_process_that_cannot_be_observed() {
    let raised = Command::new("sh")
        .args(["-c", "ulimit -v 2000000; ulimit -v unlimited"])
        .output()
        .expect("run");
    if raised.status.success() {
        println!("SKIP a_process_that_cannot_be_observed: its limit may be raised here");
        return;
    }
    let Some((place, program)) = build("server") else {
        return;
    };
    let limited = place.path().join("limited");
    let script = format!("#!/bin/sh\nulimit -v 300000; exec {}\n", program.display());
    placed::written(script.as_bytes(), &limited, 0o755);
    let (mut child, mut output) = server(&limited);
    let found = attach(&place.path().join("p"), &["--for", "1"], child.id());
    assert_eq!(found.status.code(), Some(126), "{found:?}");
    assert!(lossy(&found.stderr).contains("ulimit -v"), "{found:?}");
    assert_eq!(ask(&mut child, &mut output), "bad 0, timer ran\n");
    assert!(child.wait().expect("waited").success());
}

#[test]
fn refusals_are_one_line_and_a_code() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let refused = |pid: u32, code: i32, why: &str| {
        let found = attach(&place.path().join("p"), &["--for", "1"], pid);
        let said = lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(code), "{pid}: {said}");
        assert!(
            said.contains(why) && said.lines().count() == 1,
            "{pid}: {said}"
        );
        assert!(!place.path().join("p").exists(), "nothing is written");
    };
    // The largest process id there can be is 2^22 (proc(5), pid_max).
    refused(4_194_303, 127, "no such process");
    let mut ended = Command::new("true").spawn().expect("started");
    await_state(ended.id(), 'Z');
    refused(ended.id(), 126, "ended already");
    ended.wait().expect("waited");
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        refused(2, 126, "kernel thread");
    }
    let mut traced = Command::new(env!("CARGO_BIN_EXE_statcache"));
    traced
        .args(["run", "-q", "-o"])
        .arg(place.path().join("other"))
        .args(["sleep", "60"]);
    let mut traced = traced.spawn().expect("started");
    let program = || program_of(traced.id(), "sleep");
    assert!(awaited(|| program().is_some()));
    let program = program().expect("there");
    refused(program as u32, 126, "already traced");
    kill(Pid::from_raw(program), Signal::SIGTERM).expect("sent");
    traced.wait().expect("waited");
    // A thread's id is no process's.
    if let Some((_place, program)) = build("server") {
        let (mut child, _output) = server(&program);
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("alive");
        let mut tids = tasks
            .flatten()
            .filter_map(|t| t.file_name().to_str()?.parse::<u32>().ok());
        let tid = tids
            .find(|&tid| tid != child.id())
            .expect("a second thread");
        refused(tid, 126, "that is a thread; attach to its process");
        child.kill().expect("killed");
        child.wait().expect("waited");
    }
    refused(0, 127, "no such process");
}

/// Runs `statcache` as a user without rights, where we may become one.
fn as_nobody(arguments: &[&str]) -> Option<Output> {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP refusals of strangers: needs root to become somebody else");
        return None;
    }
    // The build may lie where only we can go.
    let place = tempfile::tempdir().expect("a temporary directory");
    let program = place.path().join("statcache");
    placed::copied(Path::new(env!("CARGO_BIN_EXE_statcache")), &program, 0o755);
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path(), everybody).expect("set");
    let mut command = Command::new(&program);
    command
        .args(arguments)
        .current_dir(place.path())
        .uid(65534)
        .gid(65534);
    command.env_remove("XDG_RUNTIME_DIR");
    Some(command.output().expect("run"))
}

#[test]
fn strangers_and_privileged_programs_are_refused() {
    let mut sleeping = Command::new("sleep").arg("300").spawn().expect("started");
    if let Some(found) = as_nobody(&["attach", &sleeping.id().to_string()]) {
        let said = lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(126), "{said}");
        assert!(
            said.contains("belongs to another user (0)") && said.lines().count() == 1,
            "{said}"
        );
    }
    sleeping.kill().expect("killed");
    sleeping.wait().expect("waited");
    let su = ["/usr/bin/su", "/bin/su"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let Some(su) = su else {
        println!("SKIP set-user-id programs: there is no su");
        return;
    };
    if let Some(found) = as_nobody(&["run", su]) {
        let said = lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(126), "{said}");
        assert!(
            said.contains("set-user-id") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn itself_is_refused() {
    // A shell becomes statcache under an id that it knows.
    let line = format!("exec {} attach --for 1 $$", env!("CARGO_BIN_EXE_statcache"));
    let place = tempfile::tempdir().expect("a temporary directory");
    let found = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path())
        .output()
        .expect("run");
    assert_eq!(found.status.code(), Some(126), "{found:?}");
    assert!(
        lossy(&found.stderr).contains("statcache itself"),
        "{found:?}"
    );
}

/// Builds a program of a few lines; `None`, after saying so, where that does not work or run.
fn small(name: &str, source: &str, options: &[&str]) -> Option<(tempfile::TempDir, Child)> {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("small.c");
    std::fs::write(&file, source).expect("written");
    let program = place.path().join("small");
    let mut command = Command::new("cc");
    command.args(options).arg("-o").arg(&program).arg(&file);
    let built = command.output().is_ok_and(|o| o.status.success());
    let child = built.then(|| Command::new(&program).spawn().ok())?;
    std::thread::sleep(Duration::from_millis(200));
    let running = child.and_then(|mut c| c.try_wait().ok()?.is_none().then_some(c));
    if running.is_none() {
        println!("SKIP {name}: such a program cannot be built or run here");
    }
    Some((place, running?))
}

#[test]
fn a_32_bit_program_is_refused() {
    let source = "void _start(void) { for (volatile int i = 0;; i++) {} }";
    let options = ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"];
    let Some((place, mut child)) = small("a_32_bit_program_is_refused", source, &options) else {
        return;
    };
    let found = attach(&place.path().join("p"), &["--for", "1"], child.id());
    let said = lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(126), "{said}");
    assert!(
        said.contains("a 32-bit program") && said.lines().count() == 1,
        "{said}"
    );
    assert!(child.try_wait().expect("waited").is_none(), "it goes on");
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// The segment that windows need is the program's own: it keeps it, and goes on unobserved.
#[test]
fn a_program_with_its_own_gs_segment() {
    let source = "#include <signal.h>\n#include <sys/syscall.h>\n#include <unistd.h>\nstatic long words[8];\n\
        static volatile sig_atomic_t over; static void end(int number) { over = number; }\n\
        int main(void) { signal(SIGUSR1, end); syscall(SYS_arch_prctl, 0x1001, words); words[0] = 7;\n\
        for (long w = 0; !over; ) { __asm__ volatile(\"mov %%gs:0, %0\" : \"=r\"(w)); if (w != 7) return 3; }\n\
        return 4; }";
    let Some((place, mut child)) = small("a_program_with_its_own_gs_segment", source, &["-O1"])
    else {
        return;
    };
    let found = attach(
        &place.path().join("p"),
        &["--for", "2", "--overhead", "100"],
        child.id(),
    );
    kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).expect("sent");
    let said = lossy(&found.stderr);
    assert!(found.status.success(), "{said}");
    assert!(said.contains("the program uses the gs segment"), "{said}");
    assert!(readable(&place.path().join("p")).windows.is_empty());
    assert_eq!(child.wait().expect("waited").code(), Some(4));
}

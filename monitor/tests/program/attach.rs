//! `statcache attach`: a running program does not notice that it is watched, and nothing stays behind.

use crate::support::attached::{
    ask, attach, await_call, await_state, reads_filters, server, server_of, traces,
};
use crate::support::c::build;
use crate::support::cli::{awaited, installed, is_traced, lossy, native, program_of, readable};
use crate::support::placed;
use nix::sys::signal::{Signal, kill};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const READ: u32 = libc::SYS_read as u32;
const WAIT4: u32 = libc::SYS_wait4 as u32;

/// The program is attached to with each of these options and left, goes on, and is ended.
fn is_left(program: &mut Command, profile: &Path, ways: &[&[&str]]) {
    let mut child = program.spawn().expect("started");
    for options in ways {
        let found = attach(profile, options, child.id());
        assert!(found.status.success(), "{options:?}: {found:?}");
        readable(profile);
        assert_eq!(traces(child.id()), [""; 0], "{options:?}");
    }
    assert!(child.try_wait().expect("waited").is_none(), "it goes on");
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// Threads that the kernel has in a process for itself never stop: they are not waited for.
#[test]
fn threads_of_the_kernel_are_left_alone() {
    let Some((place, program)) = build("rings") else {
        return;
    };
    let mut child = Command::new(&program).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().expect("started");
    let mut said = [0; 5];
    let mut output = child.stdout.take().expect("piped");
    output.read_exact(&mut said).expect("a word");
    if said != *b"ready" {
        println!("SKIP threads_of_the_kernel_are_left_alone: no io_uring here");
        child.wait().expect("waited");
        return;
    }
    let profile = place.path().join("p");
    for options in [&["--for", "0.3"][..], &["--for", "0.3", "--full"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command.args(["attach", "-q", "-o"]).arg(&profile);
        let command = command.args(options).arg(child.id().to_string());
        let mut monitor = command.spawn().expect("started");
        let has_left = awaited(|| monitor.try_wait().expect("waited").is_some());
        if !has_left {
            child.kill().expect("killed");
        }
        let status = monitor.wait().expect("waited");
        assert!(has_left && status.success(), "{options:?}: {status:?}");
        assert_eq!(traces(child.id()), [""; 0], "{options:?}");
        readable(&profile);
    }
    child.kill().expect("killed");
    child.wait().expect("waited");
}

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

/// A window in a loop without accesses is left when the profile ends.
#[test]
fn loops_without_accesses_are_left() {
    let Some((place, program)) = build("spins") else {
        return;
    };
    let ways: [&[&str]; 3] = [
        &["--for", "0.5", "--overhead", "400"],
        &["--for", "0.5", "--full"],
        &["--for", "0.5", "--engine", "step"],
    ];
    let mut command = Command::new(&program);
    is_left(command.arg("0"), &place.path().join("p"), &ways);
}

/// Nor does one who comes later take the cache from under a thread that a killed monitor has left in such a loop.
#[test]
fn loops_without_accesses_are_left_to_themselves() {
    let Some((place, program)) = build("spins") else {
        return;
    };
    let mut child = Command::new(&program).arg("0").spawn().expect("started");
    let profile = place.path().join("p");
    let mut monitor = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(["attach", "-q", "--full", "-o"])
        .arg(&profile)
        .arg(child.id().to_string())
        .spawn()
        .expect("started");
    let is_inside = || traces(child.id()).iter().any(|t| t.contains("statcache"));
    assert!(awaited(is_inside));
    // It is in the cache by then, most likely.
    std::thread::sleep(Duration::from_millis(500));
    monitor.kill().expect("killed");
    monitor.wait().expect("waited");
    for options in [&["--for", "0.5"][..], &["--for", "0.5", "--full"]] {
        let found = attach(&profile, options, child.id());
        assert!(child.try_wait().expect("asked").is_none(), "{found:?}");
    }
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// Signals come faster than they are passed on: the end is heard all the same.
#[test]
fn storms_of_signals_do_not_outlast_the_profile() {
    let Some((place, program)) = build("storm") else {
        return;
    };
    let ways: [&[&str]; 2] = [&["--for", "0.5"], &["--for", "0.5", "--full"]];
    let mut command = Command::new(&program);
    command.args(["100000000", "20000", "0", "0"]);
    is_left(&mut command, &place.path().join("p"), &ways);
}

#[test]
fn a_busy_server_is_watched_again_and_again() {
    let Some((place, program)) = build("server") else {
        return;
    };
    let (mut child, mut output) = server(&program);
    let profile = place.path().join("p");
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(child.id() as i32)).expect("its clock");
    let cpu_time = || Duration::from(clock.now().expect("alive"));
    let mut accesses = 0;
    for turn in 0..6 {
        let before = cpu_time();
        let options: &[&str] = match turn % 4 {
            3 => &["--full", "--for", "0.2"],
            _ => &["--for", "0.5"],
        };
        let found = attach(&profile, options, child.id());
        assert!(found.status.success(), "{turn}: {found:?}");
        // Left before the program's end: `traces` reads of a live process.
        assert_eq!(
            traces(child.id()),
            [""; 0],
            "{turn}: {}",
            lossy(&found.stderr)
        );
        let profile = readable(&profile);
        let footer = profile.footer.as_ref().expect("readable");
        assert_eq!(footer.exit_status, None);
        // The CPU time from before we came is not ours to account for.
        let meanwhile = (cpu_time() - before).as_secs_f64();
        let most = meanwhile + 0.1;
        assert!(footer.cpu_s <= most, "{} {meanwhile}", footer.cpu_s);
        accesses += profile.windows.iter().map(|w| w.accesses).sum::<u64>();
    }
    assert!(accesses > 1_000_000, "{accesses}");
    assert_eq!(ask(&mut child, &mut output), "bad 0, timer ran\n");
    assert!(child.wait().expect("waited").success());
}

/// So is one that filters its calls, where the filters bear what we do; others are left alone. Nor does it matter when the monitor is killed.
#[test]
fn a_server_in_a_sandbox_is_watched() {
    let (Some((place, program)), Some((_other, sandbox))) = (build("server"), build("sandbox"))
    else {
        return;
    };
    let reads = reads_filters("a_server_in_a_sandbox_is_watched");
    let profile = place.path().join("p");
    for how in ["container", "service", "strict"] {
        let mut command = Command::new(&sandbox);
        let (mut child, mut output) = server_of(command.arg(how).arg(&program));
        for turn in 0..2 {
            // A whole run is in a window at once.
            let mut monitor = Command::new(env!("CARGO_BIN_EXE_statcache"))
                .args(["attach", "-q", "--full", "-o"])
                .arg(&profile)
                .arg(child.id().to_string())
                .stderr(Stdio::null())
                .spawn()
                .expect("started");
            std::thread::sleep(Duration::from_millis(200 + 100 * turn));
            monitor.kill().expect("killed");
            monitor.wait().expect("waited");
        }
        for options in [["--overhead", "100"], ["--full", "-q"]] {
            let options = [&options[..], &["--for", "0.5"]].concat();
            let expected = reads && how != "strict";
            let mut said = Vec::new();
            // Where others have the processors half a second may pass in which neither of us runs.
            let seen = (0..5).any(|_| {
                said.push(attach(&profile, &options, child.id()));
                assert_eq!(traces(child.id()), [""; 0], "{how} {options:?}");
                let profile = readable(&profile);
                let accesses: u64 = profile.windows.iter().map(|w| w.accesses).sum();
                assert!(expected || accesses == 0, "{how} {options:?}: {said:?}");
                !expected || accesses > 1000
            });
            assert!(seen, "{how} {options:?}: {said:?}");
        }
        let rest = ask(&mut child, &mut output);
        // A wait for events (2) may fail once where a monitor dies while it has the thread stopped there.
        assert!(
            ["bad 0, timer ran\n", "bad 2, timer ran\n"].contains(&rest.as_str()),
            "{how}: {rest}"
        );
        child.wait().expect("waited");
    }
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

/// As of servers that start a process for each client.
#[test]
fn a_parent_that_waits_points_to_its_children() {
    if !Path::new(&format!(
        "/proc/self/task/{}/children",
        nix::unistd::gettid()
    ))
    .exists()
    {
        println!("SKIP a_parent_that_waits_points_to_its_children: this kernel does not tell");
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let started = |script: &str| {
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).stdin(Stdio::piped());
        command.spawn().expect("started")
    };
    // The one sleeps in a call of its own, the other while its child does.
    for (script, points) in [("read line", false), ("sh -c 'read line'; true", true)] {
        let mut child = started(script);
        let begun = || {
            let path = format!("/proc/{0}/task/{0}/children", child.id());
            let has_child = std::fs::read_to_string(path).is_ok_and(|text| !text.is_empty());
            has_child == points
        };
        assert!(awaited(begun));
        await_call(child.id(), if points { WAIT4 } else { READ });
        let found = attach(&place.path().join("p"), &["--for", "0.2"], child.id());
        let said = lossy(&found.stderr);
        assert!(
            found.status.success() && said.contains("no thread of it ran"),
            "{said}"
        );
        assert_eq!(
            said.contains("attach to those of its children"),
            points,
            "{said}"
        );
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let named = format!("the busiest so far: {})", children.trim());
        assert_eq!(said.contains(&named), points, "{said}");
        let mut report = Command::new(env!("CARGO_BIN_EXE_statcache"));
        let shown = report.arg("report").arg(place.path().join("p")).output();
        let shown = lossy(&shown.expect("a report").stdout);
        assert!(
            shown.contains("nothing: no window was opened") && !shown.contains("ended"),
            "{shown}"
        );
        drop(child.stdin.take());
        assert!(child.wait().is_ok());
    }
}

#[test]
fn killed_while_attached_and_attached_again() {
    let Some((place, program)) = build("server") else {
        return;
    };
    let (mut child, mut output) = server(&program);
    for turn in 0..8u64 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command.args(["attach", "-q", "--overhead", "300", "-o"]);
        command.arg(place.path().join("p"));
        let way: &[&str] = if turn % 2 == 0 { &[] } else { &["--full"] };
        let mut monitor = command
            .args(way)
            .arg(child.id().to_string())
            .spawn()
            .expect("started");
        std::thread::sleep(Duration::from_millis(100 + 37 * turn));
        monitor.kill().expect("killed");
        monitor.wait().expect("waited");
    }
    // What the dead ones left is taken away by the next that leaves in order.
    let found = attach(&place.path().join("p"), &["--for", "2"], child.id());
    assert!(found.status.success(), "{found:?}");
    assert_eq!(traces(child.id()), [""; 0], "{}", lossy(&found.stderr));
    let rest = ask(&mut child, &mut output);
    // A wait for events (2) may fail once where a monitor dies while it has the thread stopped there.
    assert!(
        ["bad 0, timer ran\n", "bad 2, timer ran\n"].contains(&rest.as_str()),
        "{rest}"
    );
    child.wait().expect("waited");
}

#[test]
fn a_program_that_ends_while_it_is_watched() {
    if installed("awk").is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    // It begins when it is told to: when it is watched.
    let loops =
        "BEGIN { getline; for (i = 0; i < 40000000; i++) n[i % 997] += i; print n[5]; exit 6 }";
    let mut child = Command::new("awk")
        .arg(loops)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    await_call(child.id(), READ);
    let gate = child.stdin.take().expect("piped");
    let found = std::thread::scope(|scope| {
        let found = scope.spawn(|| attach(&place.path().join("p"), &[], child.id()));
        assert!(awaited(|| is_traced(child.id())));
        drop(gate);
        found.join().expect("attached")
    });
    assert!(found.status.success(), "{found:?}");
    let profile = readable(&place.path().join("p"));
    assert_eq!(profile.footer.as_ref().and_then(|f| f.exit_status), Some(6));
    assert!(profile.windows.len() > 3);
    let output = child.wait_with_output().expect("waited");
    let expected = native(place.path(), &["awk", loops], b"");
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(6), expected.stdout)
    );
}

#[test]
fn threads_are_born_while_we_come_and_go() {
    let Some((place, program)) = build("threads") else {
        return;
    };
    let words = ["2", "8000", "4000"];
    let expected = Command::new(&program).args(words).output().expect("run");
    let child = Command::new(&program)
        .args(words)
        .stdout(Stdio::piped())
        .spawn();
    let child = child.expect("started");
    let mut watched = 0;
    for turn in 0..6 {
        let options: &[&str] = if turn % 2 == 0 {
            &["--for", "0.15"]
        } else {
            &["--full", "--for", "0.1"]
        };
        // It may have ended by now.
        watched += u32::from(
            attach(&place.path().join("p"), options, child.id())
                .status
                .success(),
        );
    }
    assert!(watched > 0);
    let found = child.wait_with_output().expect("waited");
    assert_eq!(
        (found.status.code(), found.stdout),
        (Some(7), expected.stdout)
    );
}

/// An idle program is not disturbed, and the profile says that there is nothing in it.
#[test]
fn a_sleeping_program() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut child = Command::new("sh")
        .args(["-c", "read line; test \"$line\" = done"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    await_call(child.id(), READ);
    let found = attach(&place.path().join("p"), &["--for", "0.3"], child.id());
    assert!(found.status.success(), "{found:?}");
    let ended = child.try_wait().expect("asked");
    assert_eq!(ended, None, "left while the program sleeps");
    assert!(
        lossy(&found.stderr).contains("nothing to report"),
        "{found:?}"
    );
    assert!(readable(&place.path().join("p")).windows.is_empty());
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"done\n").expect("written");
    assert!(child.wait().expect("waited").success());
}

/// One that is stopped stays so, and the profile says what to do.
#[test]
fn a_stopped_program() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut child = Command::new("sh")
        .args(["-c", "kill -STOP $$"])
        .spawn()
        .expect("started");
    let pid = Pid::from_raw(child.id() as i32);
    await_state(child.id(), 'T');
    let found = attach(&place.path().join("p"), &["--for", "0.3"], child.id());
    assert!(found.status.success(), "{found:?}");
    let remedy = format!("kill -CONT {pid}");
    assert!(lossy(&found.stderr).contains(&remedy), "{found:?}");
    await_state(child.id(), 'T');
    kill(pid, Signal::SIGCONT).expect("sent");
    assert!(child.wait().expect("waited").success());
}

/// One that is stopped while it is watched keeps nothing of ours, stays stopped, and goes on when it is told to.
#[test]
fn a_program_that_is_stopped_meanwhile() {
    let Some((place, program)) = build("server") else {
        return;
    };
    let (mut child, mut output) = server(&program);
    let profile = place.path().join("p");
    let pid = Pid::from_raw(child.id() as i32);
    for options in [&["--for", "3"][..], &["--for", "3", "--full"]] {
        let mut monitor = Command::new(env!("CARGO_BIN_EXE_statcache"))
            .args(["attach", "-q", "--seed", "1", "-o"])
            .arg(&profile)
            .args(options)
            .arg(child.id().to_string())
            .spawn()
            .expect("started");
        let is_inside = || traces(child.id()).iter().any(|t| t.contains("statcache"));
        assert!(awaited(is_inside), "{options:?}");
        kill(pid, Signal::SIGSTOP).expect("sent");
        assert!(monitor.wait().expect("waited").success(), "{options:?}");
        await_state(child.id(), 'T');
        assert_eq!(traces(child.id()), [""; 0], "{options:?}");
        kill(pid, Signal::SIGCONT).expect("sent");
    }
    // Its timer is to tick for a fifth of a second.
    std::thread::sleep(Duration::from_secs(2));
    let said = ask(&mut child, &mut output);
    // A wait for events fails behind a stop also alone (signal(7)).
    assert!(
        ["bad 0, timer ran\n", "bad 2, timer ran\n"].contains(&said.as_str()),
        "{said}"
    );
    child.wait().expect("waited");
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

/// In a container paths mean other files than here; names are found all the same, and nothing stays.
#[test]
fn a_program_with_mounts_of_its_own() {
    let Some((place, program)) = build("threads") else {
        return;
    };
    // The program lies on a file system that only it and its shell see.
    let hidden = place.path().join("hidden");
    std::fs::create_dir(&hidden).expect("made");
    let line = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/inside && exec {0}/inside 2 10 100 stay",
        hidden.display(),
        program.display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("SKIP a_program_with_mounts_of_its_own: there is no unshare");
        return;
    };
    let inside = || std::fs::read_link(format!("/proc/{}/exe", child.id()));
    let is_inside = || inside().is_ok_and(|exe| exe.ends_with("inside"));
    // Where it may not be done it ends at once.
    if !awaited(|| is_inside() || inside().is_err()) || !is_inside() {
        println!("SKIP a_program_with_mounts_of_its_own: no mount namespace is to be had here");
        let _ = child.kill();
        let _ = child.wait();
        return;
    }
    assert!(!hidden.join("inside").exists());
    let found = attach(
        &place.path().join("p"),
        &["--for", "1", "--overhead", "100"],
        child.id(),
    );
    assert!(found.status.success(), "{found:?}");
    assert_eq!(traces(child.id()), [""; 0]);
    child.kill().expect("killed");
    child.wait().expect("waited");
    let profile = readable(&place.path().join("p"));
    let mut frames = profile.symbols.iter().flatten();
    assert!(
        frames.any(|f| f.function == "work" && f.file.ends_with("threads.c")),
        "{:?}",
        profile.modules
    );
}

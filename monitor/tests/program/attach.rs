//! `statcache attach`: a running program does not notice that it is watched, and nothing stays behind.

use crate::support::attached::{
    ask, attach, await_call, await_state, reads_filters, server, server_of, traces,
};
use crate::support::c::build;
use crate::support::cli::{awaited, installed, is_traced, lossy, native, readable};
use nix::sys::signal::{Signal, kill};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
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

//! Signals to `statcache run`: what they mean to the program, to the profile, or to both.

use crate::support::c;
use crate::support::cli::{
    WAYS, awaited, installed, lossy, readable, run, shell_status, text, under, windows,
};
use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Busy as long as there is a file `busy`, with a line at the end.
const BUSY: &str = "i=0; while [ -e busy ]; do i=$((i+1)); done; echo done";

/// Whether a signal sent to a process has not been taken by it (proc_pid_status(5), ShdPnd).
fn is_pending(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|l| l.strip_prefix("ShdPnd:\t"));
    let pending = pending.and_then(|set| u64::from_str_radix(set, 16).ok());
    pending.unwrap_or(0) & 1 << (signal as u64 - 1) != 0
}

/// Signals the monitor, or its whole process group, in the middle of a busy program, which may end when the profile has.
fn signalled(
    signal: Signal,
    group: bool,
    way: &[&str],
) -> (std::process::Output, tempfile::TempDir) {
    let profiles = directory();
    let profile = profiles.path().join("p");
    std::fs::write(profiles.path().join("busy"), "").expect("written");
    let mut command = run(&profile, way);
    command.args(["sh", "-c", BUSY]).process_group(0);
    // Who has the tests run may ignore it (nohup, a shell's background), and what is ignored stays so for what is executed.
    // SAFETY: signal(2) is async-signal-safe, and no handler is put in place.
    unsafe {
        command.pre_exec(move || {
            nix::sys::signal::signal(signal, SigHandler::SigDfl)?;
            Ok(())
        });
    }
    let child = command
        .current_dir(profiles.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let pid = child.id() as i32;
    assert!(awaited(|| windows(&profile) > 0));
    kill(Pid::from_raw(if group { -pid } else { pid }), signal).expect("sent");
    assert!(awaited(|| !is_pending(pid, signal)));
    std::fs::remove_file(profiles.path().join("busy")).expect("removed");
    let output = child.wait_with_output().expect("waited");
    (output, profiles)
}

#[test]
fn interrupt_ends_the_profile_and_not_the_program() {
    for way in WAYS {
        let (found, profiles) = signalled(Signal::SIGINT, false, way);
        assert_eq!(
            (shell_status(&found), &found.stdout[..]),
            (0, &b"done\n"[..]),
            "{found:?}"
        );
        let said = lossy(&found.stderr);
        assert!(said.contains("ended before the program"), "{said}");
        let profile = readable(&profiles.path().join("p"));
        assert!(!profile.windows.is_empty());
    }
}

#[test]
fn interrupt_from_the_terminal_ends_both() {
    for way in WAYS {
        let (found, profiles) = signalled(Signal::SIGINT, true, way);
        assert_eq!(
            (shell_status(&found), found.stdout.len()),
            (130, 0),
            "{found:?}"
        );
        let profile = readable(&profiles.path().join("p"));
        assert!(!profile.windows.is_empty());
    }
}

/// Whoever has started the program knows our process id alone.
#[test]
fn signals_for_the_program_are_passed_on_and_leave_the_profile() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGALRM,
    ] {
        for way in WAYS {
            let (found, profiles) = signalled(signal, false, way);
            assert_eq!(
                (shell_status(&found), found.stdout.len()),
                (128 + signal as i32, 0),
                "{found:?}"
            );
            // It was for both.
            let said = lossy(&found.stderr);
            assert!(!said.contains("ended before the program"), "{said}");
            let profile = readable(&profiles.path().join("p"));
            assert!(!profile.windows.is_empty());
        }
    }
}

/// Who is started by nohup(1) or in a shell's background is to go on, as the program does: also to its end of the profile. And the program
/// finds ignored what it would have found so alone.
#[test]
fn signals_ignored_at_the_start_end_nothing() {
    let Some(python) = installed("python3") else {
        return;
    };
    const IGNORED: [Signal; 4] = [
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGCHLD,
    ];
    let script = "import os, signal, subprocess\n\
        for s in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):\n    os.kill(os.getppid(), s)\n\
        print([signal.getsignal(s).name for s in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)], flush=True)\n\
        print(sum(i * i % 7 for i in range(300000)))";
    for way in WAYS {
        let profiles = directory();
        let mut command = run(&profiles.path().join("p"), way);
        command.args([&text(&python), "-S", "-c", script]);
        // SAFETY: signal is async-signal-safe, and nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                for signal in IGNORED {
                    libc::signal(signal as i32, libc::SIG_IGN);
                }
                Ok(())
            })
        };
        let found = command.output().expect("run");
        let said = lossy(&found.stdout);
        assert_eq!(shell_status(&found), 0, "{found:?}");
        assert!(
            said.starts_with(&format!("{:?}", ["SIG_IGN"; 4]).replace('"', "'")),
            "{said}"
        );
        let stderr = lossy(&found.stderr);
        assert!(!stderr.contains("ended before the program"), "{stderr}");
        let profile = readable(&profiles.path().join("p"));
        let last = profile
            .footer
            .as_ref()
            .and_then(|footer| footer.exit_status);
        assert_eq!(last, Some(0));
        if profile.header.full {
            assert!(!profile.windows.is_empty());
        }
    }
}

/// The kernel gives a signal to the first thread where that would have it, asleep or not, and so it is where others are observed meanwhile.
#[test]
fn signals_come_to_the_first_thread() {
    let Some((_place, program)) = c::build("waits") else {
        return;
    };
    let ways: [&[&str]; 3] = [&[], &["--full"], &["--overhead", "300"]];
    for (way, threads) in ways.into_iter().zip(["1", "1", "2"]) {
        let profiles = directory();
        let mut command = run(&profiles.path().join("p"), way);
        let found = command.args([&*text(&program), "20", threads]).output();
        let found = found.expect("run");
        let said = lossy(&found.stdout);
        assert_eq!(shell_status(&found), 5, "{way:?}: {found:?}");
        let words = said.trim().split([' ', ',']);
        let numbers: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
        let [missed, elsewhere, forged, cut, stray] = numbers[..] else {
            panic!("{way:?}: {said}");
        };
        println!("{way:?}: {said}");
        // On a busy machine it may be told before it waits, and we may be late.
        assert!(missed < 10 && elsewhere < 3 && cut < 6, "{way:?}: {said}");
        assert!(forged == 0 && stray < 3, "{way:?}: {said}");
    }
}

/// What a program sends to its whole process group comes to us, too, and to it once.
#[test]
fn signals_to_the_group_come_once() {
    let script =
        "trap 'echo got' USR1; kill -USR1 0; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    for way in WAYS {
        let profiles = directory();
        let mut command = run(&profiles.path().join("p"), way);
        command.args(["sh", "-c", script]).process_group(0);
        let found = command.output().expect("run");
        assert_eq!(lossy(&found.stdout), "got\n", "{found:?}");
        assert_eq!(shell_status(&found), 0, "{found:?}");
    }
}

/// With windows all the time, now and then, and single steps.
const OFTEN: [&[&str]; 4] = [
    &["--overhead", "600"],
    &["--full"],
    &["--overhead", "600", "--engine", "step"],
    &["--overhead", "50"],
];

/// A copy of megabytes by one instruction is made in parts; handlers see it as far as it is.
#[test]
fn signals_and_faults_in_the_midst_of_string_instructions() {
    let Some((place, program)) = c::build("cuts") else {
        return;
    };
    let program = program.display().to_string();
    for options in OFTEN {
        let found = under(place.path(), place.path(), options, &[&program], b"");
        assert_eq!(
            (shell_status(&found), lossy(&found.stdout)),
            (0, "done\n".to_owned()),
            "{options:?}: {found:?}"
        );
    }
}

/// A step into a handler from `popf` would leave the trap flag in what the handler returns to.
#[test]
fn signals_that_come_while_flags_are_popped() {
    let Some((place, program)) = c::build("pops") else {
        return;
    };
    let program = program.display().to_string();
    for options in OFTEN {
        for words in [&[program.as_str()][..], &[program.as_str(), "calls"]] {
            let found = under(place.path(), place.path(), options, words, b"");
            assert_eq!(
                (shell_status(&found), lossy(&found.stdout)),
                (0, "done\n".to_owned()),
                "{options:?}: {found:?}"
            );
        }
    }
}

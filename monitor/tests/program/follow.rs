//! Threads and child processes are followed, and none of them notices.

use crate::support::attached::await_state;
use crate::support::c::build;
use crate::support::cli::{
    WAYS, awaited, installed, lossy, native, output, program_of, readable, run, shell_status, text,
    under, windows,
};
use crate::support::forbidden::forbid;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use statcache::profile::Profile;
use statcache::profile::types::WindowRecord;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Output and status are those of the program alone; the profiles, one for each way.
fn transparent(words: &[&str]) -> Vec<Profile> {
    let profiles = directory();
    let expected = native(Path::new("/"), words, b"");
    WAYS.map(|way| {
        let found = under(Path::new("/"), profiles.path(), way, words, b"");
        let what = format!("{words:?} {way:?}: {}", lossy(&found.stderr));
        assert_eq!(shell_status(&found), shell_status(&expected), "{what}");
        assert_eq!(lossy(&found.stdout), lossy(&expected.stdout), "{what}");
        let profile = readable(&profiles.path().join("p"));
        let footer = profile.footer.as_ref().expect("readable");
        assert_eq!(footer.exit_status, Some(shell_status(&expected)), "{what}");
        profile
    })
    .into()
}

fn accesses(profile: &Profile) -> u64 {
    profile.windows.iter().map(|w| w.accesses).sum()
}

/// The threads that a window observed.
fn tids(window: &WindowRecord) -> Vec<i32> {
    match window.threads.is_empty() {
        true => vec![window.tid],
        false => window.threads.iter().map(|share| share.tid).collect(),
    }
}

fn threads(profile: &Profile) -> usize {
    let windows = profile.windows.iter();
    let mut tids: Vec<i32> = windows.flat_map(tids).collect();
    tids.sort_unstable();
    tids.dedup();
    tids.len()
}

/// Who sleeps while another thread is observed does not notice: nothing is written of what is left, no read is cut or takes longer.
#[test]
fn sleepers_are_left_alone() {
    let Some((_place, program)) = build("sleepers") else {
        return;
    };
    transparent(&[&text(&program)]);
}

#[test]
fn threads_born_and_dying_are_all_observed() {
    let Some((_place, program)) = build("threads") else {
        return;
    };
    let full = &transparent(&[&text(&program), "2", "120", "60"])[1];
    assert!(threads(full) >= 120, "{} threads", threads(full));
    let least = loads(2, 60);
    let seen = accesses(full);
    assert!(
        seen > least && seen < least + least / 5,
        "{seen} of {least}"
    );
    // A library that clears the word for restartable sequences, of each new thread, begins none.
    let declined: u32 = full.windows.iter().map(|w| w.declined).sum();
    assert!(declined < 10, "{declined} times natively");
}

/// Loads of so many workers of `threads.c` in so many rounds.
fn loads(workers: u64, rounds: u64) -> u64 {
    workers * rounds * 2 * (1 << 18)
}

#[test]
fn threads_get_windows_as_they_use_time() {
    let Some((_place, program)) = build("threads") else {
        return;
    };
    let profiles = directory();
    let words = [&text(&program) as &str, "3", "10", "2500"];
    let found = under(
        Path::new("/"),
        profiles.path(),
        &["--overhead", "40"],
        &words,
        b"",
    );
    assert_eq!(shell_status(&found), 7, "{found:?}");
    let profile = readable(&profiles.path().join("p"));
    let mut windows: Vec<(i32, usize)> = Vec::new();
    for window in &profile.windows {
        match windows.iter_mut().find(|(tid, _)| *tid == window.tid) {
            Some((_, n)) => *n += 1,
            None => windows.push((window.tid, 1)),
        }
    }
    windows.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    let of_workers: usize = windows.iter().take(3).map(|(_, n)| n).sum();
    assert!(
        windows.len() >= 3 && windows[2].1 * 6 > of_workers / 3,
        "{windows:?}"
    );
    assert!(of_workers * 10 > profile.windows.len() * 7, "{windows:?}");
    // Rates are estimated roughly; a thread left out, or counted twice for each window, would show.
    let estimated = profile
        .footer
        .as_ref()
        .expect("readable")
        .accesses_estimated
        .value;
    let truth = loads(3, 2500) as f64;
    assert!(
        estimated > truth / 30.0 && estimated < 8.0 * truth,
        "{estimated} for {truth}"
    );
}

#[test]
fn a_thousand_threads() {
    let Some((_place, program)) = build("threads") else {
        return;
    };
    transparent(&[&text(&program), "1", "1000", "5"]);
}

/// Open descriptors and mappings of the monitor, and processes it has not waited for.
fn holdings(monitor: u32) -> (usize, usize, usize) {
    let entries = |what: &str| {
        std::fs::read_dir(format!("/proc/{monitor}/{what}")).map_or(0, Iterator::count)
    };
    let maps = std::fs::read_to_string(format!("/proc/{monitor}/maps")).unwrap_or_default();
    let mut zombies = 0;
    for task in std::fs::read_dir(format!("/proc/{monitor}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        zombies += children
            .split_whitespace()
            .filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|s| s.contains(") Z "))
            })
            .count();
    }
    (entries("fd"), maps.lines().count(), zombies)
}

/// Two thousand children, and ten thousand signals a second: all counted, and the monitor holds no more
/// at the end than in the middle.
#[test]
fn storms_of_children_and_signals() {
    let Some((_place, program)) = build("storm") else {
        return;
    };
    for words in [["0", "1", "2000"], ["20000", "10000", "0"]] {
        let path = text(&program);
        let words = [&[&path as &str][..], &words].concat();
        let expected = native(Path::new("/"), &words, b"");
        let profiles = directory();
        let mut command = run(&profiles.path().join("p"), &["-q"]);
        command
            .args(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("started");
        let mut seen = Vec::new();
        let monitor = child.id();
        let watcher = std::thread::spawn(move || {
            while Path::new(&format!("/proc/{monitor}/fd/0")).exists() && seen.len() < 10_000 {
                seen.push(holdings(monitor));
                std::thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        let found = child.wait_with_output().expect("waited");
        let seen = watcher.join().expect("watched");
        assert_eq!(
            (shell_status(&found), lossy(&found.stdout)),
            (5, lossy(&expected.stdout)),
            "{}",
            lossy(&found.stderr)
        );
        let most = |part: &[(usize, usize, usize)]| {
            part.iter()
                .fold((0, 0, 0), |m, h| (m.0.max(h.0), m.1.max(h.1), m.2.max(h.2)))
        };
        let (first, second) = seen.split_at(seen.len() / 2);
        let (middle, end) = (most(first), most(second));
        // Engines of live processes come and go: some dozens of mappings, not thousands.
        assert!(
            end.0 <= middle.0 + 20 && end.0 < 100,
            "descriptors {middle:?}, then {end:?}"
        );
        assert!(end.1 <= middle.1 + 150, "mappings {middle:?}, then {end:?}");
        assert!(end.2 < 60, "zombies {middle:?}, then {end:?}");
    }
}

/// A timer that goes off before the last tick has been followed leaves the program time of its own.
#[test]
fn work_under_a_storm_of_signals_gets_done() {
    let Some((_place, program)) = build("storm") else {
        return;
    };
    let path = text(&program);
    let words = [&path, "1", "20000", "0", "30000"];
    let profiles = transparent(&words);
    let full = &profiles[1];
    let unobserved = |what: &&str| what.contains("signals came faster");
    let warnings = full.footer.iter().flat_map(|f| &f.warnings);
    let told: Vec<&str> = warnings.map(|w| w.what.as_str()).collect();
    println!("{told:?}");
    // Where stops are cheap all of it is observed: a round is 8192 accesses.
    assert!(
        accesses(full) > 30_000 * 8192 || told.iter().any(unobserved),
        "{}",
        accesses(full)
    );
}

#[test]
fn shells_pipelines_and_subshells() {
    let script = "for i in 1 2 3; do echo $i | tr 1-3 a-c; done; (exit 3); echo $?; \
        awk 'BEGIN { for (i = 0; i < 300000; i++) n[i % 97] += i; print n[5] }' & wait; \
        echo $(seq 1 2000 | sort -r | head -n 3); exit 5";
    let profiles = transparent(&["sh", "-c", script]);
    let full = &profiles[1];
    let of = |name: &str| {
        let process = |p: &&Profile| p.header.command.first().is_some_and(|c| c == name);
        let found = full.others.iter().find(process);
        found.unwrap_or_else(|| panic!("{name}: {:?}", full.others.len()))
    };
    assert!(accesses(of("awk")) > 1_000_000, "{}", accesses(of("awk")));
    assert_eq!(of("awk").header.ppid, full.header.pid);
    assert!(accesses(of("sort")) > 50_000 && accesses(full) > 10_000);
    assert_eq!(full.footer.as_ref().and_then(|f| f.exit_status), Some(5));
    assert_eq!(
        of("seq").footer.as_ref().and_then(|f| f.exit_status),
        Some(0)
    );
}

/// Starts children in three ways.
const SPAWNS: &str = "import os, subprocess, sys\n\
        print(subprocess.run(['sh', '-c', 'echo $((6*7)); exit 3']).returncode, flush=True)\n\
        print(os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'x'], {}), 0)[1], flush=True)\n\
        child = os.fork()\n\
        if child == 0:\n    print(sum(range(300000)), flush=True); os._exit(4)\n\
        print(os.waitpid(child, 0)[1]); sys.exit(11)";

#[test]
fn fork_and_posix_spawn_and_vfork() {
    let Some(python) = installed("python3") else {
        return;
    };
    let profiles = transparent(&["/usr/bin/env", &text(&python), "-S", "-c", SPAWNS]);
    let full = &profiles[1];
    let forked = full.others.iter().filter(|p| accesses(p) > 1_000_000);
    assert!(forked.count() >= 1, "the forked child's sum is observed");
}

/// A thread that loops without an access comes to no check of the code cache: others have their turns all the same.
#[test]
fn loops_without_accesses_keep_nobody_waiting() {
    let Some((_place, program)) = build("spins") else {
        return;
    };
    for profile in transparent(&[&text(&program), "2", "20000"]) {
        if profile.header.full {
            assert!(accesses(&profile) > 80_000_000, "{}", accesses(&profile));
        }
    }
}

/// Containers refuse to tell whose memory is whose: a child in its parent's is left alone there, too.
#[test]
fn children_are_followed_where_memory_is_not_compared() {
    let Some(python) = installed("python3") else {
        return;
    };
    let words = [&text(&python), "-S", "-c", SPAWNS];
    let expected = native(Path::new("/"), &words, b"");
    let profiles = directory();
    for way in WAYS {
        let mut command = run(&profiles.path().join("p"), way);
        command.args(words).current_dir("/");
        // SAFETY: prctl is async-signal-safe, and nothing is allocated.
        unsafe { command.pre_exec(|| forbid(libc::SYS_kcmp)) };
        let found = output(command, b"");
        let what = format!("{way:?}: {}", lossy(&found.stderr));
        assert_eq!(shell_status(&found), shell_status(&expected), "{what}");
        assert_eq!(lossy(&found.stdout), lossy(&expected.stdout), "{what}");
        let profile = readable(&profiles.path().join("p"));
        if profile.header.full {
            let forked = profile.others.iter().filter(|p| accesses(p) > 1_000_000);
            assert!(forked.count() >= 1, "the forked child's sum is observed");
        }
    }
}

#[test]
fn program_executed_by_another_thread() {
    let Some((_place, program)) = build("execs") else {
        return;
    };
    let loops = "BEGIN { for (i = 0; i < 200000; i++) n[i % 97] += i; print n[5]; exit 9 }";
    for profile in transparent(&[&text(&program), "awk", loops]) {
        if profile.header.full {
            assert!(accesses(&profile) > 1_000_000, "{}", accesses(&profile));
        }
    }
}

#[test]
fn no_signal_is_lost() {
    let Some((_place, program)) = build("signals") else {
        return;
    };
    let words = [&text(&program) as &str, "6000"];
    transparent(&words);
    let profiles = directory();
    let expected = native(Path::new("/"), &words, b"");
    let found = under(
        Path::new("/"),
        profiles.path(),
        &["--overhead", "400"],
        &words,
        b"",
    );
    assert_eq!(
        (found.status.code(), found.stdout),
        (Some(5), expected.stdout)
    );
}

#[test]
fn system_calls_turned_into_signals() {
    let Some((_place, program)) = build("dispatch") else {
        return;
    };
    transparent(&[&text(&program), "400"]);
    let profiles = directory();
    let words = [&text(&program) as &str, "4000"];
    let expected = native(Path::new("/"), &words, b"");
    let found = under(
        Path::new("/"),
        profiles.path(),
        &["--overhead", "400"],
        &words,
        b"",
    );
    assert_eq!(
        (found.status.code(), lossy(&found.stdout)),
        (Some(4), lossy(&expected.stdout))
    );
}

/// Runs a tracee under us some times, in each way: it ends with `status` and says `said`.
fn says_always(name: &str, words: &[&str], status: i32, said: &str) {
    const TIMES: usize = 2;
    let Some((_place, program)) = build(name) else {
        return;
    };
    let profiles = directory();
    let program = text(&program);
    let words = [&[&program as &str], words].concat();
    for way in [&[][..], &["--full"], &["--overhead", "400"]] {
        for _ in 0..TIMES {
            let found = under(Path::new("/"), profiles.path(), way, &words, b"");
            assert_eq!(lossy(&found.stdout), said, "{name} {words:?} {way:?}");
            assert_eq!(shell_status(&found), status, "{name} {way:?}: {found:?}");
        }
    }
}

/// A stop of ours has no call return less than it would have alone: who sleeps in one is left asleep.
#[test]
fn calls_that_move_much_come_back_whole() {
    says_always("transfers", &["60"], 3, "0 cut\n");
}

/// A call that moves much into a pipe or socket is gone on with where a stop has cut it.
#[test]
fn transfers_that_a_stop_has_cut_are_completed() {
    let said = "0 cut, pipe whole, socket whole\n";
    says_always("pours", &["200"], 5, said);
}

/// Signals that the program ignores cut such calls only because it is traced: they are gone on with, too.
#[test]
fn transfers_that_ignored_signals_have_cut_are_completed() {
    let said = "0 cut, pipe whole, socket whole\n";
    says_always("pours", &["200", "ignored"], 5, said);
}

/// Signals of the program's own cut such calls also alone: it asks again for the rest, and all of it comes once.
/// Windows come more often than these limits pass.
#[test]
fn time_limits_of_sleeps_pass_beside_a_busy_thread() {
    let Some((_place, program)) = build("limits") else {
        return;
    };
    let us = Pid::this();
    if statcache::tracee::procinfo::borrow_descriptor(us, us, 0).is_none() {
        println!("SKIP time_limits_of_sleeps_pass_beside_a_busy_thread: no pidfd_getfd(2) here");
        return;
    }
    let profiles = directory();
    let words = [&text(&program) as &str];
    for way in [&["--overhead", "100"][..], &["--full"]] {
        let found = under(Path::new("/"), profiles.path(), way, &words, b"");
        assert_eq!(lossy(&found.stdout), "8 waits\n", "{way:?}");
    }
}

#[test]
fn transfers_that_signals_cut_too_lose_nothing() {
    let said = "pipe whole, socket whole\n";
    says_always("pours", &["200", "signals"], 5, said);
}

/// A thread that is alone for long makes room for others as soon as they wake up.
#[test]
fn who_wakes_up_joins_a_thread_that_was_alone() {
    let said = "109803545386, 0 cut, 0 lost, clock goes\n";
    says_always("wakes", &["60"], 6, said);
}

#[test]
fn make_with_jobs() {
    if installed("make").is_none() {
        return;
    }
    let place = directory();
    let rules = "all: $(foreach n,1 2 3 4 5 6 7 8,out$(n))\n\t@cat out*; exit 3\n\
        out%:\n\t@awk 'BEGIN { for (i = 0; i < 60000; i++) n[i % 97] += i * $*; print n[5] }' > $@\n";
    std::fs::write(place.path().join("Makefile"), rules).expect("written");
    let words = ["make", "-s", "-j4", "-B"];
    let expected = native(place.path(), &words, b"");
    assert!(expected.stdout.len() > 40, "{expected:?}");
    let profiles = directory();
    for way in WAYS {
        let found = under(place.path(), profiles.path(), way, &words, b"");
        assert_eq!(shell_status(&found), 2, "{way:?}: {}", lossy(&found.stderr));
        assert_eq!(lossy(&found.stdout), lossy(&expected.stdout), "{way:?}");
        let profile = readable(&profiles.path().join("p"));
        let busy = profile
            .others
            .iter()
            .filter(|p| accesses(p) > 100_000)
            .count();
        assert!(busy >= 8 || way.is_empty(), "{busy}");
    }
}

#[test]
fn many_processes_at_once() {
    let script = "i=0; while [ $i -lt 70 ]; do (: $((i*i)); sleep 0.05; exit $((i % 7))) & i=$((i+1)); done; \
        wait; echo all; exit 2";
    transparent(&["sh", "-c", script]);
}

#[test]
fn children_are_left_alone_on_request() {
    let profiles = directory();
    let script = "awk 'BEGIN { for (i = 0; i < 300000; i++) n[i % 97] += i; print n[5] }'; exit 6";
    let found = under(
        Path::new("/"),
        profiles.path(),
        &["--no-follow", "--full"],
        &["sh", "-c", script],
        b"",
    );
    assert_eq!(shell_status(&found), 6, "{found:?}");
    let profile = readable(&profiles.path().join("p"));
    assert!(profile.others.is_empty() && accesses(&profile) > 1000);
}

/// Stopped and continued from outside, a program with threads stops and goes on, and its result is the same.
#[test]
fn group_stop_and_continue() {
    stops_and_goes_on(false);
}

/// So it does when its terminal stops it, and we with it.
#[test]
fn stop_from_the_terminal_and_continue() {
    stops_and_goes_on(true);
}

/// `all`: the whole process group is stopped, as by Ctrl-Z.
fn stops_and_goes_on(all: bool) {
    let Some((_place, program)) = build("threads") else {
        return;
    };
    let profiles = directory();
    for way in WAYS {
        let path = text(&program);
        let words = [path.as_str(), "2", "10", "100", "stay"];
        let expected = native(Path::new("/"), &words, b"");
        let profile = profiles.path().join(format!("p{}", way.concat()));
        let mut child = run(&profile, way)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("started");
        assert!(awaited(|| windows(&profile) > 0));
        let pid = program_of(child.id(), "threads").expect("its child");
        let monitor = Pid::from_raw(child.id() as i32);
        let send = |signal| match all {
            true => killpg(monitor, signal).expect("sent"),
            false => kill(Pid::from_raw(pid), signal).expect("sent"),
        };
        send(if all {
            Signal::SIGTSTP
        } else {
            Signal::SIGSTOP
        });
        // A program may use no time before it is stopped, too.
        std::thread::sleep(Duration::from_millis(200));
        let used =
            || statcache::tracee::procinfo::process_clock_s(Pid::from_raw(pid)).expect("alive");
        let stands = || {
            let before = used();
            std::thread::sleep(Duration::from_millis(300));
            used() - before < 0.05
        };
        assert!(awaited(stands), "{way:?}: it runs while stopped");
        if all {
            await_state(child.id(), 'T');
            assert!(stands(), "{way:?}: it runs while we are stopped");
        }
        send(Signal::SIGCONT);
        drop(child.stdin.take());
        let ended = awaited(|| child.try_wait().expect("asked").is_some());
        if !ended {
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("there");
        }
        let found = child.wait_with_output().expect("waited");
        assert!(
            ended,
            "{way:?}: it does not go on: {}",
            lossy(&found.stderr)
        );
        assert_eq!(shell_status(&found), 7, "{way:?}: {}", lossy(&found.stderr));
        assert_eq!(found.stdout, expected.stdout, "{way:?}");
    }
}

/// A stop that is taken back between being told of and being passed on does not come: nobody waits for it while others wait for their turn.
#[test]
fn stops_that_are_taken_back() {
    let Some((_place, program)) = build("threads") else {
        return;
    };
    let profiles = directory();
    for way in WAYS {
        let path = text(&program);
        let profile = profiles.path().join(format!("p{}", way.concat()));
        let mut child = run(&profile, way)
            .args([path.as_str(), "2", "10", "100", "stay"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        assert!(awaited(|| windows(&profile) > 0));
        let pid = Pid::from_raw(program_of(child.id(), "threads").expect("its child"));
        for round in 0..300 {
            kill(pid, Signal::SIGSTOP).expect("sent");
            std::thread::sleep(Duration::from_micros(round));
            kill(pid, Signal::SIGCONT).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(child.stdin.take());
        let ended = awaited(|| child.try_wait().expect("asked").is_some());
        if !ended {
            kill(pid, Signal::SIGKILL).expect("there");
        }
        let found = child.wait_with_output().expect("waited");
        assert!(
            ended,
            "{way:?}: it does not go on: {}",
            lossy(&found.stderr)
        );
        assert_eq!(shell_status(&found), 7, "{way:?}: {}", lossy(&found.stderr));
    }
}

#[test]
fn the_report_lists_processes_and_shows_one() {
    let profiles = directory();
    let script = "awk 'BEGIN { for (i = 0; i < 300000; i++) n[i % 97] += i; print n[5] }'; exit 0";
    under(
        Path::new("/"),
        profiles.path(),
        &["--full"],
        &["sh", "-c", script],
        b"",
    );
    let path = profiles.path().join("p");
    let report = |options: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_statcache"));
        command.arg("report").args(options).arg(&path);
        command.output().expect("run")
    };
    let all = lossy(&report(&[]).stdout);
    let whole = String::from_utf8_lossy(&report(&[]).stdout).into_owned();
    assert!(
        whole.contains("Processes") && whole.contains("awk BEGIN"),
        "{all}"
    );
    let one = String::from_utf8_lossy(&report(&["--process", "awk"]).stdout).into_owned();
    assert!(
        one.starts_with("awk ") && !one.contains("Processes"),
        "{one}"
    );
    assert!(!one.contains("of this name"), "{one}");
    let none = report(&["--process", "emacs"]);
    let said = lossy(&none.stderr);
    let names = said
        .split_once("there are: ")
        .map_or("", |(_, names)| names);
    let names: Vec<&str> = names.trim().split(", ").collect();
    // With their ids, busiest first.
    let is = |name: &str, program: &str| {
        name.split_once(' ').is_some_and(|(pid, named)| {
            pid.parse::<i32>().is_ok_and(|pid| pid > 1) && named == program
        })
    };
    assert!(
        !none.status.success() && names.len() == 2 && is(names[0], "awk") && is(names[1], "sh"),
        "{none:?}"
    );
}

/// A script's shell comes first, and may not have been observed at all: what it started is in every export.
#[test]
fn all_processes_are_exported() {
    let place = directory();
    let script = "awk 'BEGIN { for (i = 0; i < 20000; i++) n[i % 97] += i; print n[5] }'; :";
    let words = ["sh", "-c", script];
    let found = under(Path::new("/"), place.path(), &["--full"], &words, b"");
    assert_eq!(shell_status(&found), 0, "{found:?}");
    let path = place.path().join("p");
    let export = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command.args(["export", "--format", format]).arg(&path);
        String::from_utf8(command.output().expect("run").stdout).expect("text")
    };
    let document: serde_json::Value = serde_json::from_str(&export("json")).expect("JSON");
    let table = export("csv");
    let processes = document["processes"].as_array().expect("a list");
    assert!(processes.len() >= 2, "{}", processes.len());
    let mut all = 0;
    for process in processes {
        let (pid, curves) = (process["pid"].to_string(), &process["curves"]);
        let points = |curve: &serde_json::Value| curve["points"].as_array().map_or(0, Vec::len);
        let points: usize = curves.as_array().expect("a list").iter().map(points).sum();
        let of_process = |row: &&str| row.ends_with(&format!(",{pid}"));
        let rows = table.lines().filter(|row| row.starts_with("curve,"));
        assert_eq!(rows.filter(of_process).count(), points, "{pid}");
        all += points;
    }
    assert!(all > 0, "no curve at all");
}

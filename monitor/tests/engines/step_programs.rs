//! The step engine on whole runs of real programs, against another tracer, and under a monitor that dies.

use crate::support::tracee;
use crate::support::tracee::{Ending, MARK_BEGIN, MARK_END, Tracee, Tracees, exclusive};
use statcache::engine::step::{After, End, Limits, Stepper};
use statcache::tracee::{Event, Resume, StopReason, Stopped};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What stepping a whole run saw.
#[derive(Debug)]
struct Run {
    accesses: u64,
    steps: u64,
    ending: Ending,
}

/// Steps `program` from its first instruction to its last, with a window between any two system calls that no
/// window survives.
fn step_whole(program: &Path, args: &[&str]) -> Run {
    let (tracee, mut stopped) = Tracee::launch(program, args);
    let mut stepper = Stepper::new();
    let mut run = (0, 0);
    let event = loop {
        let window = stepper
            .window(stopped, &Limits::NONE, |_| {})
            .expect("stepped");
        run = (run.0 + window.accesses, run.1 + window.steps);
        stopped = match window.after {
            After::Stopped(stopped, End::Syscall(_)) => match over_syscall(stopped) {
                Ok(stopped) => stopped,
                Err(event) => break event,
            },
            After::Stopped(stopped, End::Exiting) => {
                break tracee::run_natively(stopped.resume(Resume::Continue, 0).expect("resumed"));
            }
            After::Stopped(_, end) => panic!("{program:?}: {end:?} after {} steps", run.1),
            After::Exited(status) => break Event::Exited(status),
            After::Killed(signal) => break Event::Killed(signal),
        };
    };
    Run {
        accesses: run.0,
        steps: run.1,
        ending: tracee.ended(event),
    }
}

/// Lets the thread make its next system call natively.
fn over_syscall(mut stopped: Stopped) -> Result<Stopped, Event> {
    let mut calls = 0;
    while calls < 2 {
        stopped = match stopped
            .resume(Resume::Syscall, 0)
            .expect("resumed")
            .wait()
            .expect("waited")
        {
            Event::Stopped(stopped) => stopped,
            event => return Err(event),
        };
        match stopped.reason {
            StopReason::Syscall => calls += 1,
            StopReason::Exiting => {
                let running = stopped.resume(Resume::Continue, 0).expect("resumed");
                return Err(tracee::run_natively(running));
            }
            reason => panic!("{reason:?} at a system call"),
        }
    }
    Ok(stopped)
}

#[test]
fn whole_run_of_a_dynamic_program() {
    let program = Path::new("/bin/echo");
    if !program.exists() {
        println!("SKIP whole_run_of_a_dynamic_program: no {program:?}");
        return;
    }
    let first = step_whole(program, &["seen", "whole"]);
    assert!(matches!(first.ending.event, Event::Exited(0)), "{first:?}");
    assert_eq!(first.ending.printed, "seen whole\n");
    // The dynamic loader alone makes tens of thousands.
    assert!(
        first.accesses > 10_000 && first.accesses < 2 * first.steps,
        "{first:?}"
    );
    println!("{first:?}");
}

#[test]
fn agrees_with_another_tracer_to_the_access() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("lackey");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees/lackey.c");
    for options in ["-O0", "-O2"] {
        let built = Command::new("cc")
            .arg(options)
            .args(["-fno-builtin", "-static", "-o"])
            .args([&program, &source])
            .status();
        if !built.is_ok_and(|status| status.success()) {
            println!("SKIP agrees_with_another_tracer_to_the_access: no static C library");
            return;
        }
        // The difference of two runs leaves out start-up, which differs under the other tracer.
        let Some(theirs) = lackey(&program, "3").zip(lackey(&program, "5")) else {
            println!("SKIP agrees_with_another_tracer_to_the_access: no valgrind");
            return;
        };
        let ours = (step_whole(&program, &["3"]), step_whole(&program, &["5"]));
        println!(
            "{options}: lackey {theirs:?}, step {} {}",
            ours.0.accesses, ours.1.accesses
        );
        let (ours, theirs) = (ours.1.accesses - ours.0.accesses, theirs.1 - theirs.0);
        // Equal to the access with gcc 12. Room is left for compilers that emit what Valgrind gets wrong: it drops loads
        // whose value is not used (`pop rax; pop rdx` to clear the stack), and has `bt` of two registers access memory.
        assert!(
            ours.abs_diff(theirs) * 1000 <= theirs,
            "{options}: {ours}, {theirs}"
        );
    }
}

/// Accesses that Valgrind's lackey traces: its loads, stores and modifies.
fn lackey(program: &Path, argument: &str) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(program)
        .arg(argument)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let is_access = |line: &&str| {
        [" L ", " S ", " M "]
            .iter()
            .any(|kind| line.starts_with(kind))
    };
    Some(text.lines().filter(is_access).count() as u64)
}

/// Environment variable that makes [`doomed_monitor`] do something: the tracee to step.
const DOOMED: &str = "STATCACHE_TEST_DOOMED";

/// And how long its windows are.
const DOOMED_STEPS: &str = "STATCACHE_TEST_DOOMED_STEPS";

/// No test by itself: steps a program until it is killed, in a process of its own.
#[test]
fn doomed_monitor() {
    let Some(program) = std::env::var_os(DOOMED) else {
        return;
    };
    let stopped = Tracee::launch_uncaptured(Path::new(&program), &[]);
    let mut stopped = Tracee::run_past(stopped, MARK_BEGIN).expect("at its mark");
    eprintln!("stepping");
    let mut stepper = Stepper::new();
    let steps = std::env::var(DOOMED_STEPS).expect("set with the other");
    let limits = Limits {
        steps: steps.parse().expect("a number"),
        before_syscall: Some(MARK_END),
        ..Limits::NONE
    };
    loop {
        stopped = match stepper
            .window(stopped, &limits, |_| {})
            .expect("stepped")
            .after
        {
            After::Stopped(stopped, End::Limit) => stopped,
            other => panic!("the window ended by itself: {other:?}"),
        };
    }
}

#[test]
fn program_survives_the_death_of_its_monitor() {
    const DEATHS: u64 = 16;
    let _turn = exclusive();
    let Some((_tracees, program)) = Tracees::build("patient") else {
        return;
    };
    let this = std::env::current_exe().expect("this test's path");
    for death in 0..DEATHS {
        // Short windows, so that half of the deaths fall into the injected calls at their borders.
        let steps = if death % 2 == 0 { "40" } else { "1000000000" };
        let mut monitor = Command::new(&this)
            .args(["--exact", "step_programs::doomed_monitor", "--nocapture"])
            .env(DOOMED, &program)
            .env(DOOMED_STEPS, steps)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spawned");
        let mut said = [0; 8];
        let mut stderr = monitor.stderr.take().expect("piped");
        stderr.read_exact(&mut said).expect("it begins to step");
        std::thread::sleep(Duration::from_micros(3000 + death * 1737));
        monitor.kill().expect("killed");
        monitor.wait().expect("waited");
        let mut printed = String::new();
        let mut stdout = monitor.stdout.take().expect("piped");
        // To the end of file, which comes when the orphaned program is gone too.
        stdout.read_to_string(&mut printed).expect("text");
        assert!(
            printed.contains("ok patient accesses 2200000\n"),
            "death {death}: {printed:?}"
        );
    }
    std::io::stdout().flush().expect("flushed");
}

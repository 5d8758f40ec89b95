//! Translated windows see the same accesses as stepped ones, and make the same samples of them: on
//! tracees with known numbers of accesses, and on windows of real programs.

use crate::support::tracee;
use crate::support::tracee::{Ending, MARK_BEGIN, MARK_END, Tracee, Tracees, exclusive};
use crate::support::translated;
use crate::support::translated::{Looking, Plan};
use statcache::engine::step::{After, End, Limits, Stepper};
use statcache::observe::{Access, Ended, Observer, Sample};
use statcache::tracee::{Event, Resume, StopReason, Stopped};
use std::path::{Path, PathBuf};

const PERIOD: u64 = 37;
const SEED: u64 = 20;

/// Accesses of a window, and what an observer made of them.
struct Seen {
    accesses: Vec<Access>,
    observer: Observer,
}

impl Seen {
    fn of(accesses: Vec<Access>) -> Seen {
        let mut observer = observer();
        accesses.iter().for_each(|access| observer.access(*access));
        Seen { accesses, observer }
    }
}

/// Panics unless both lists are equal to the access.
fn assert_same_accesses(what: &str, stepped: &[Access], translated: &[Access]) {
    if let Some(at) = stepped.iter().zip(translated).position(|(a, b)| a != b) {
        let around = at.saturating_sub(4)..(at + 4).min(stepped.len()).min(translated.len());
        panic!(
            "{what}: access {at} of {} and {}: stepped {:#x?}, translated {:#x?}",
            stepped.len(),
            translated.len(),
            &stepped[around.clone()],
            &translated[around]
        );
    }
    assert_eq!(
        stepped.len(),
        translated.len(),
        "{what}: number of accesses"
    );
}

/// One that takes samples and looks for first touches.
fn observer() -> Observer {
    let mut observer = Observer::new(PERIOD, SEED);
    observer.await_first_touches();
    observer
}

/// Panics unless both observers counted the same, took the same samples and saw the same first touches.
fn assert_same_samples(what: &str, one: &mut Observer, other: &mut Observer) {
    let first = [&mut *one, &mut *other].map(|observer| {
        let first = observer.end_first_touches();
        first.map(|first| (first.seen, first.kept))
    });
    assert!(first[0].is_some(), "{what}: all of it was looked at");
    assert_eq!(first[0], first[1], "{what}: first touches");
    assert_eq!(one.accesses(), other.accesses(), "{what}: counts");
    assert_eq!(
        one.refs(),
        other.refs(),
        "{what}: references at each line size"
    );
    assert_eq!(one.samples(), other.samples(), "{what}: number of samples");
    let all = |observer: &mut Observer| -> Vec<Sample> {
        let mut samples = observer.drain_finished();
        samples.extend(observer.end_all(Ended::Cut));
        samples
    };
    let (one, other) = (sorted(&all(one)), sorted(&all(other)));
    for (a, b) in one.iter().zip(&other) {
        assert_eq!(a, b, "{what}: sample");
    }
    assert_eq!(one.len(), other.len(), "{what}: samples");
}

/// Panics unless every access is the same, and every sample taken of them.
fn assert_equal(what: &str, mut stepped: Seen, mut translated: Seen) {
    assert_same_accesses(what, &stepped.accesses, &translated.accesses);
    assert_same_samples(what, &mut stepped.observer, &mut translated.observer);
}

/// In an order that does not depend on when they were handed out.
fn sorted(samples: &[Sample]) -> Vec<String> {
    let mut texts: Vec<String> = samples.iter().map(|sample| format!("{sample:?}")).collect();
    texts.sort();
    texts
}

/// Steps `stopped` until it is about to exit or has made `most` accesses. The position of the end
/// mark in the stream, if it came by.
fn step(mut stopped: Stopped, most: usize) -> (Seen, Option<usize>, Event) {
    let mut seen = Seen {
        accesses: Vec::new(),
        observer: observer(),
    };
    let mut stepper = Stepper::new();
    let mut mark = None;
    let event = loop {
        let limits = Limits {
            accesses: (most - seen.accesses.len()) as u64,
            before_syscall: Some(MARK_END),
            ..Limits::NONE
        };
        let window = stepper.window(stopped, &limits, |access| {
            seen.accesses.push(access);
            seen.observer.access(access);
        });
        stopped = match window.expect("stepped").after {
            After::Stopped(stopped, End::Syscall(number)) => {
                if number == MARK_END {
                    mark = Some(seen.accesses.len());
                }
                match over_syscall(stopped) {
                    Ok(stopped) => stopped,
                    Err(event) => break event,
                }
            }
            After::Stopped(stopped, End::Limit | End::Exiting) => {
                let running = stopped.resume(Resume::Continue, 0).expect("resumed");
                break tracee::run_natively(running);
            }
            After::Stopped(_, end) => panic!("{end:?} after {} accesses", seen.accesses.len()),
            After::Exited(status) => break Event::Exited(status),
            After::Killed(signal) => break Event::Killed(signal),
        };
    };
    (seen, mark, event)
}

/// Lets the thread make its next system call natively.
fn over_syscall(mut stopped: Stopped) -> Result<Stopped, Event> {
    let mut calls = 0;
    while calls < 2 {
        let running = stopped.resume(Resume::Syscall, 0).expect("resumed");
        stopped = match running.wait().expect("waited") {
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

/// The addresses of two runs are equal only where the kernel does not draw them.
fn without_randomization() {
    // SAFETY: sets a number in the process's own state.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}

fn to_the_mark(program: &Path) -> (Tracee, Result<Stopped, Event>) {
    let (tracee, stopped) = Tracee::launch(program, &[]);
    let stopped = Tracee::run_past(stopped, MARK_BEGIN);
    (tracee, stopped)
}

fn translate(stopped: Stopped, plan: Plan) -> (Seen, translated::Run) {
    let mut run = translated::run(stopped, plan, observer(), true);
    let accesses = std::mem::take(&mut run.accesses);
    let observer = std::mem::replace(&mut run.observer, observer());
    (Seen { accesses, observer }, run)
}

const PLANS: [Plan; 6] = [
    Plan::WHOLE,
    Plan::TINY,
    Plan {
        close_after: 1,
        around: true,
        ..Plan::TINY
    },
    Plan {
        late: true,
        ..Plan::WHOLE
    },
    Plan {
        looking: Looking::Jumping,
        ..Plan::WHOLE
    },
    Plan {
        looking: Looking::Narrow,
        ..Plan::WHOLE
    },
];

/// A tracee's accesses are the same to the access, and as many as it says itself.
fn check(name: &str) {
    check_at(name, &[]);
}

/// The same of code that the linker puts somewhere else.
fn check_at(name: &str, link: &[&str]) {
    without_randomization();
    let Some((_tracees, program)) = Tracees::build_with(name, link) else {
        return;
    };
    let (tracee, stopped) = to_the_mark(&program);
    let stopped = match stopped {
        Ok(stopped) => stopped,
        Err(event) => {
            assert_eq!(tracee.ended(event).expected_accesses(name), None);
            return;
        }
    };
    let (Seen { accesses, .. }, mark, event) = step(stopped, usize::MAX);
    assert_eq!(
        mark.map(|n| n as u64),
        tracee.ended(event).expected_accesses(name),
        "{name}"
    );
    for plan in PLANS {
        let stepped = Seen::of(accesses.clone());
        let (tracee, stopped) = to_the_mark(&program);
        let (seen, run) = translate(stopped.expect("at its mark"), plan);
        let ending = tracee.ended(run.event);
        assert!(ending.expected_accesses(name).is_some());
        assert!(run.declined.is_empty(), "{name}: {:?}", run.declined);
        // However few accesses are asked for at a time, a stop is not made for each.
        let (accesses, reads) = (seen.accesses.len() as u64, run.stats.full);
        assert!(reads < 20 + accesses / 50, "{name}: {reads} of {accesses}");
        assert_equal(&format!("{name} {plan:?}"), stepped, seen);
    }
}

macro_rules! checks {
    ($($name:ident),*) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

checks!(
    apart,
    avx512,
    bits,
    crossing,
    gather,
    locked,
    parts,
    plain,
    returns,
    segment,
    selfmodifying,
    stack,
    string,
    syscalls,
    x87
);

/// Return addresses of more than 32 bits.
#[test]
fn returns_far_up() {
    check_at("returns", &["-Wl,-Ttext-segment=0x200000000"]);
}

/// Its log ends in a loop without a place where flags are dead.
#[test]
fn sideways() {
    let _turn = exclusive();
    let Some((_tracees, program)) = Tracees::build("sideways") else {
        return;
    };
    for plan in PLANS {
        let (tracee, stopped) = to_the_mark(&program);
        let (seen, run) = translate(stopped.expect("at its mark"), plan);
        let ending = tracee.ended(run.event);
        let expected = ending.expected_accesses("sideways").expect("not skipped");
        let tail = seen.accesses.len() as u64 - expected;
        assert!(
            tail < 1000,
            "{plan:?}: {} of {expected}",
            seen.accesses.len()
        );
    }
}

/// Tracees whose accesses depend on when a signal comes: as many as they say, besides what they make
/// behind their end mark, which is the same for all.
fn check_number(name: &str) {
    let _turn = exclusive();
    without_randomization();
    let Some((_tracees, program)) = Tracees::build(name) else {
        return;
    };
    for plan in PLANS {
        let (tracee, stopped) = to_the_mark(&program);
        let (stepped, mark, event) = step(stopped.expect("at its mark"), usize::MAX);
        let first = tracee.ended(event);
        let tail = stepped.accesses.len() - mark.expect("passed");
        let (tracee, stopped) = to_the_mark(&program);
        let (seen, run) = translate(stopped.expect("at its mark"), plan);
        let ending = tracee.ended(run.event);
        let expected = ending.expected_accesses(name).expect("not skipped");
        assert!(run.declined.is_empty(), "{name}: {:?}", run.declined);
        // A digit more or less of the printed number.
        let digits = |ending: &Ending| ending.printed.len();
        if digits(&first) == digits(&ending) {
            assert_eq!(
                seen.accesses.len() as u64,
                expected + tail as u64,
                "{name} {plan:?}"
            );
        }
        assert_eq!(seen.observer.accesses(), seen.accesses.len() as u64);
    }
}

#[test]
fn alarms() {
    check_number("alarms");
}

#[test]
fn faults() {
    check_number("faults");
}

#[test]
fn ignored() {
    check_number("ignored");
}

/// What no window survives runs natively and does what it does without us.
#[test]
fn what_cannot_be_translated_runs_natively() {
    let _turn = exclusive();
    let declined: [(&str, &[&str]); 4] = [
        ("popped", &["flags popped that trap, or go downwards"]),
        ("backwards", &["direction flag set"]),
        ("patient", &[]),
        ("handles_sigtrap", &[]),
    ];
    for (name, reasons) in declined {
        let Some((_tracees, program)) = Tracees::build(name) else {
            return;
        };
        for plan in PLANS {
            let (tracee, stopped) = to_the_mark(&program);
            let (_, run) = translate(stopped.expect("at its mark"), plan);
            let ending = tracee.ended(run.event);
            assert!(
                ending.expected_accesses(name).is_some(),
                "{name} {ending:?}"
            );
            for reason in reasons {
                assert!(run.declined.contains(reason), "{name}: {:?}", run.declined);
            }
        }
    }
}

/// Takes one step, which leaves the stepper's page in the process: what is mapped later lies where it
/// lies when the whole window is stepped.
fn guarded(stopped: Stopped) -> (Vec<Access>, Stopped) {
    let mut accesses = Vec::new();
    let limits = Limits {
        steps: 1,
        ..Limits::NONE
    };
    let window = Stepper::new().window(stopped, &limits, |access| accesses.push(access));
    match window.expect("stepped").after {
        After::Stopped(stopped, _) => (accesses, stopped),
        after => panic!("{after:?}"),
    }
}

/// Runs natively over the first `calls` system calls.
fn past_calls(mut stopped: Stopped, calls: u64) -> Option<Stopped> {
    for _ in 0..2 * calls {
        stopped = match stopped
            .resume(Resume::Syscall, 0)
            .expect("resumed")
            .wait()
            .expect("waited")
        {
            Event::Stopped(stopped) if stopped.reason == StopReason::Syscall => stopped,
            _ => return None,
        };
    }
    Some(stopped)
}

/// A directory with something to list, pack, sort and query.
fn input() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut text = String::new();
    let mut state = 12345u64;
    for line in 0..2000 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        text += &format!("{:x} line {line} of the input\n", state >> 40);
        if line % 400 == 0 {
            std::fs::create_dir(directory.path().join(format!("d{line}"))).expect("created");
        }
    }
    std::fs::write(directory.path().join("text"), text).expect("written");
    directory
}

#[test]
fn windows_of_real_programs() {
    const ACCESSES: usize = 25_000;
    without_randomization();
    let input = input();
    let at = input.path().to_str().expect("text");
    let text = format!("{at}/text");
    let query = "with recursive c(x) as (select 1 union all select x+1 from c limit 900) \
        select count(*), sum(x*x) from c where x % 7 in (1, 2, 3);";
    let programs: [(&str, &[&str]); 6] = [
        ("/bin/ls", &["-R", at]),
        ("/usr/bin/sort", &["--parallel=1", &text]),
        ("/bin/gzip", &["-c", &text]),
        ("/usr/bin/xz", &["-c", "-T1", &text]),
        ("/usr/bin/sqlite3", &[":memory:", query]),
        (
            "/usr/bin/awk",
            &[
                "{ n[$1 % 17] += length($0) } END { print length(n) }",
                &text,
            ],
        ),
    ];
    let mut compared = 0;
    for (program, args) in programs {
        if !Path::new(program).exists() {
            println!("SKIP {program}: not installed");
            continue;
        }
        let program = PathBuf::from(program);
        // In the dynamic loader, and in the program itself.
        for calls in [0, 60] {
            let launched = || {
                let (tracee, stopped) = Tracee::launch(&program, args);
                past_calls(stopped, calls).map(|stopped| (tracee, stopped))
            };
            let Some((tracee, stopped)) = launched() else {
                continue;
            };
            let (stepped, _, event) = step(stopped, ACCESSES);
            let stepped_ending = tracee.ended(event);
            let (tracee, stopped) = launched().expect("again");
            let count = stepped.accesses.len();
            let (first, stopped) = guarded(stopped);
            let plan = Plan {
                most: (count - first.len()) as u64,
                ..Plan::TINY
            };
            let (mut seen, run) = translate(stopped, plan);
            assert!(run.declined.is_empty(), "{program:?}: {:?}", run.declined);
            let ending = tracee.ended(run.event);
            assert_eq!(stepped_ending.printed, ending.printed, "{program:?}");
            let what = format!("{program:?} from call {calls}");
            // The short ways of the log reader against the long one, on all that the window saw.
            let mut long = observer();
            seen.accesses.iter().for_each(|access| long.access(*access));
            assert_same_samples(&what, &mut long, &mut seen.observer);
            // The window ends at the first look at the log after as many as were stepped.
            seen.accesses.splice(0..0, first);
            seen.accesses.truncate(count);
            assert_same_accesses(&what, &stepped.accesses, &seen.accesses);
            println!(
                "{program:?} from call {calls}: {count} accesses, {:?}",
                run.stats
            );
            compared += 1;
        }
    }
    assert!(
        compared >= 6 || !Path::new("/bin/ls").exists(),
        "{compared} windows compared"
    );
}

/// What leads from code that was met, translated between windows, saves stops for it, and changes nothing that is seen.
#[test]
fn real_programs_stop_less_where_code_around_is_translated() {
    let _turn = exclusive();
    without_randomization();
    let input = input();
    let at = input.path().to_str().expect("text");
    let text = format!("{at}/text");
    let programs: [(&str, &[&str]); 3] = [
        ("/bin/ls", &["-R", at]),
        ("/usr/bin/sort", &["--parallel=1", &text]),
        ("/bin/gzip", &["-c", &text]),
    ];
    for (program, args) in programs {
        if !Path::new(program).exists() {
            println!("SKIP {program}: not installed");
            continue;
        }
        let [without, with] = [false, true].map(|around| {
            let (tracee, stopped) = Tracee::launch(Path::new(program), args);
            let plan = Plan {
                close_after: 1,
                around,
                ..Plan::TINY
            };
            let (seen, run) = translate(past_calls(stopped, 10).expect("alive"), plan);
            let printed = tracee.ended(run.event).printed;
            (printed, seen.accesses.len(), run.stats.misses)
        });
        println!("{program}: {} and {} stops for new code", without.2, with.2);
        assert_eq!(without.0, with.0, "{program}: output");
        assert_eq!(without.1, with.1, "{program}: accesses");
        assert!(with.2 < without.2 * 9 / 10, "{program}: stops");
    }
}

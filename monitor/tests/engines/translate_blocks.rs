//! Random blocks of instructions leave the same registers, flags and memory translated as they do
//! natively, wherever windows begin and end.
//!
//! `STATCACHE_FUZZ_BLOCKS` says how many blocks (of the order of 1 000 a second), `STATCACHE_FUZZ_SEED`
//! from which seed on.

use crate::support::blocks::{Program, difference};
use crate::support::tracee;
use crate::support::tracee::{MARK_BEGIN, Tracee};
use crate::support::translated;
use crate::support::translated::{Looking, Plan};
use statcache::engine::step::{After, Limits, Stepper};
use statcache::observe::{Access, Observer};
use statcache::tracee::Event;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BLOCKS_AT_A_TIME: u64 = 256;

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: {text}"))
    })
}

/// Runs a program natively: what it leaves in its data file.
fn native(program: &Program, directory: &Path) -> Vec<u8> {
    let (elf, data) = (directory.join("program"), directory.join("native"));
    program.write(&elf);
    std::fs::write(&data, program.data()).expect("written");
    let status = Command::new(&elf).arg(&data).status().expect("run");
    let left = std::fs::read(&data).expect("read");
    let at = Program::under_way(&left);
    assert!(
        status.success(),
        "{status:?} in block {at}\n{}",
        program.listing(at)
    );
    left
}

/// The same under windows.
fn under_windows(
    program: &Program,
    directory: &Path,
    plan: Plan,
    period: u64,
    tap: bool,
) -> (Vec<u8>, translated::Run) {
    let data = directory.join("translated");
    std::fs::write(&data, program.data()).expect("written");
    let argument = data.to_str().expect("text").to_owned();
    let (_tracee, stopped) = Tracee::launch(&directory.join("program"), &[&argument]);
    let stopped = Tracee::run_past(stopped, MARK_BEGIN).expect("at its mark");
    let run = translated::run(stopped, plan, Observer::new(period, 7), tap);
    let left = std::fs::read(&data).expect("read");
    let at = Program::under_way(&left);
    let event = &run.event;
    let listing = || program.listing(at);
    assert!(
        matches!(event, Event::Exited(0)),
        "{program:?} {event:?} in block {at}\n{}",
        listing()
    );
    assert!(run.declined.is_empty(), "{:?}", run.declined);
    (left, run)
}

fn compare(program: &Program, native: &mut [u8], other: &mut [u8], how: &str) {
    for index in 0..program.blocks {
        let (native, other) = (
            program.outcome(native, index),
            program.outcome(other, index),
        );
        if native != other {
            panic!(
                "seed {} {how}:\n{}\n{}",
                program.seed + index,
                difference(native, other),
                program.listing(index)
            );
        }
    }
}

#[test]
fn blocks_do_the_same_translated() {
    let blocks = number("STATCACHE_FUZZ_BLOCKS", 3072);
    let first = number("STATCACHE_FUZZ_SEED", 1);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let plans = [
        Plan::WHOLE,
        Plan::TINY,
        Plan {
            close_after: 1,
            around: true,
            ..Plan::TINY
        },
        Plan {
            close_after: 2,
            native: Duration::from_micros(30),
            around: true,
            ..Plan::TINY
        },
    ];
    let (mut full, mut windows, mut misses) = (0, 0, 0);
    let (mut looks, mut counts, mut exacts) = (0, 0, 0);
    for (turn, start) in (0..blocks).step_by(BLOCKS_AT_A_TIME as usize).enumerate() {
        let count = BLOCKS_AT_A_TIME.min(blocks - start);
        let program = Program {
            seed: first + start,
            blocks: count,
            rounds: 8,
            far: turn % 2 == 1,
            writable: turn % 3 == 2,
        };
        let plan = plans[turn / 2 % plans.len()];
        let mut expected = native(&program, directory.path());
        let (mut found, run) = under_windows(&program, directory.path(), plan, 1000, false);
        compare(&program, &mut expected, &mut found, &format!("{plan:?}"));
        full += run.stats.full;
        windows += run.windows;
        misses += run.stats.misses;
        // Without a look at most addresses: the same again, and as many accesses.
        let looking = [Looking::Wide, Looking::Jumping, Looking::Narrow][turn % 3];
        let quiet = Plan {
            looking,
            ..Plan::WHOLE
        };
        let period = [5_000, 200_000][turn / 2 % 2];
        let (mut found, seldom) = under_windows(&program, directory.path(), quiet, period, false);
        compare(&program, &mut expected, &mut found, &format!("{quiet:?}"));
        if plan.native.is_zero() {
            assert_eq!(
                seldom.observer.accesses(),
                run.observer.accesses(),
                "seed {}: {quiet:?}",
                program.seed
            );
        }
        // Counted only: all lanes of a gather, and an interrupted `rep` again.
        let counted = Plan {
            looking: Looking::Nowhere,
            ..plan
        };
        let (mut found, counting) = under_windows(&program, directory.path(), counted, 1, false);
        compare(&program, &mut expected, &mut found, &format!("{counted:?}"));
        looks += counting.stats.full;
        if plan.native.is_zero() {
            counts += counting.observer.accesses();
            exacts += run.observer.accesses();
        }
    }
    let off = counts as f64 / exacts as f64 - 1.0;
    println!("counted: looked at {looks} times, off by {off:.4}");
    // Lanes of gathers that are not active are counted: without AVX-512 more of the memory operands are such.
    let bound = match is_x86_feature_detected!("avx512f") {
        true => 0.08,
        false => 0.15,
    };
    assert!(off > -0.001 && off < bound, "{off}");
    assert!(blocks < 2048 || looks > 1000, "{looks}");
    println!("{blocks} blocks, {windows} windows, log full {full} times, {misses} new targets");
    assert!(
        blocks < 2048 || full > 1000 && windows > 100,
        "{full} {windows}"
    );
}

/// Steps the program from its mark to its end.
fn stepped(program: &Program, directory: &Path) -> Vec<Access> {
    let data = directory.join("stepped");
    std::fs::write(&data, program.data()).expect("written");
    let argument = data.to_str().expect("text").to_owned();
    let (_tracee, stopped) = Tracee::launch(&directory.join("program"), &[&argument]);
    let stopped = Tracee::run_past(stopped, MARK_BEGIN).expect("at its mark");
    let mut accesses = Vec::new();
    let limits = Limits {
        before_syscall: Some(libc::SYS_exit_group as u64),
        ..Limits::NONE
    };
    let window = Stepper::new().window(stopped, &limits, |access| accesses.push(access));
    match window.expect("stepped").after {
        After::Stopped(stopped, _) => {
            tracee::run_natively(
                stopped
                    .resume(statcache::tracee::Resume::Continue, 0)
                    .expect("resumed"),
            );
        }
        after => panic!("{after:?}"),
    }
    accesses
}

#[test]
fn blocks_access_the_same_translated_and_stepped() {
    let first = number("STATCACHE_FUZZ_SEED", 1) + 1_000_000;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let short = Plan {
        close_after: 1,
        ..Plan::TINY
    };
    let ways = [
        (Plan::WHOLE, false),
        (short, false),
        (Plan::WHOLE, true),
        (short, true),
    ];
    for (turn, (plan, writable)) in ways.into_iter().enumerate() {
        let blocks = number("STATCACHE_FUZZ_BLOCKS", 192).min(2000) / 2;
        let program = Program {
            seed: first + turn as u64 * 10_000,
            blocks,
            rounds: 2,
            far: turn == 1,
            writable,
        };
        let mut expected = native(&program, directory.path());
        let (mut found, run) = under_windows(&program, directory.path(), plan, 1000, true);
        compare(&program, &mut expected, &mut found, &format!("{plan:?}"));
        let steps = stepped(&program, directory.path());
        let differ = run.accesses.iter().zip(&steps).position(|(a, b)| a != b);
        if let Some(at) = differ {
            let around = at.saturating_sub(3)..at + 3;
            panic!(
                "access {at}: translated {:x?}, stepped {:x?}",
                &run.accesses[around.clone()],
                &steps[around]
            );
        }
        assert_eq!(run.accesses.len(), steps.len());
        assert_eq!(run.observer.accesses(), steps.len() as u64);
        println!("{} accesses in {} windows", steps.len(), run.windows);
    }
}

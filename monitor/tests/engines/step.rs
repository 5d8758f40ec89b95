//! The step engine against programs whose accesses are known.

use crate::support::tracee::{Ending, MARK_BEGIN, MARK_END, Tracee, Tracees, exclusive};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use statcache::engine::step::{After, End, Limits, Stepper, Window};
use statcache::observe::Access;
use statcache::tracee::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TO_THE_MARK: Limits<'static> = Limits {
    before_syscall: Some(MARK_END),
    ..Limits::NONE
};

/// What a tracee did when it was stepped from its first mark on.
struct Observed {
    window: Vec<Access>,
    end: End,
    steps: u64,
    window_time: Duration,
    ending: Ending,
}

/// Steps `name` between its marks and lets it finish natively. `None` where it cannot be built.
fn observe(name: &str, limits: &Limits<'_>) -> Option<Observed> {
    observe_with(name, &[], limits, |_| {})
}

/// As `observe`; `begin` is given the process just before its window.
fn observe_with(
    name: &str,
    args: &[&str],
    limits: &Limits<'_>,
    begin: impl FnOnce(Pid),
) -> Option<Observed> {
    let _turn = exclusive();
    let (_tracees, program) = Tracees::build(name)?;
    let (tracee, stopped) = Tracee::launch(&program, args);
    let stopped = match Tracee::run_past(stopped, MARK_BEGIN) {
        Ok(stopped) => stopped,
        Err(event) => {
            let ending = tracee.ended(event);
            assert_eq!(ending.expected_accesses(name), None);
            return None;
        }
    };
    begin(stopped.tid());
    let begun = Instant::now();
    let mut stepper = Stepper::new();
    let mut accesses = Vec::new();
    let window = stepper.window(stopped, limits, |access| accesses.push(access));
    let Window {
        after,
        steps,
        accesses: count,
    } = window.expect("stepped");
    let window_time = begun.elapsed();
    assert_eq!(count, accesses.len() as u64);
    let After::Stopped(stopped, end) = after else {
        panic!("{name} ended in the window: {after:?}");
    };
    let stopped = match end {
        End::Exiting => stopped,
        _ => match stepper.release(stopped).expect("released") {
            After::Stopped(stopped, _) => stopped,
            after => panic!("{name} ended at the release: {after:?}"),
        },
    };
    let ending = tracee.finish(stopped);
    Some(Observed {
        window: accesses,
        end,
        steps,
        window_time,
        ending,
    })
}

/// Expects exactly as many accesses as the tracee says, and no more trouble than it finds itself.
fn check_count(name: &str) -> Option<Vec<Access>> {
    let observed = observe(name, &TO_THE_MARK)?;
    assert_eq!(observed.end, End::Syscall(MARK_END), "{name}");
    let expected = observed.ending.expected_accesses(name)?;
    assert_eq!(observed.window.len() as u64, expected, "{name}");
    Some(observed.window)
}

/// `(loads, stores, read-modify-writes)` of a list.
fn kinds(accesses: &[Access]) -> (usize, usize, usize) {
    let count = |load, store| {
        let of_kind = |a: &&Access| a.load == load && a.store == store;
        accesses.iter().filter(of_kind).count()
    };
    (count(true, false), count(false, true), count(true, true))
}

#[test]
fn plain_loads_and_stores() {
    let Some(accesses) = check_count("plain") else {
        return;
    };
    assert_eq!(kinds(&accesses), (3 * 500 + 1, 500, 500));
    // Five accesses an iteration: source, then four times the same element of the target.
    let (source, target) = (accesses[0].address, accesses[1].address);
    for (index, five) in accesses[..2500].chunks(5).enumerate() {
        let offset = 8 * index as u64;
        assert_eq!(five[0].address, source + offset);
        assert!(
            five[1..]
                .iter()
                .all(|access| access.address == target + offset)
        );
        assert!(five.iter().all(|access| access.size == 8));
        assert!(five.windows(2).all(|pair| pair[0].ip < pair[1].ip));
    }
    assert_eq!(accesses[2500].address, source);
}

#[test]
fn string_instructions_by_iteration() {
    let Some(accesses) = check_count("string") else {
        return;
    };
    let (source, target) = (accesses[0].address, accesses[1].address);
    for (index, pair) in accesses[..200].chunks(2).enumerate() {
        assert_eq!(pair[0].address, source + index as u64);
        assert_eq!(pair[1].address, target + index as u64);
        assert!(pair[0].load && !pair[0].store && pair[1].store && !pair[1].load);
    }
}

#[test]
fn string_instructions_backwards() {
    let Some(accesses) = check_count("backwards") else {
        return;
    };
    assert!(
        accesses[..100]
            .chunks(2)
            .all(|pair| pair[1].address == pair[0].address + 256)
    );
    assert_eq!(accesses[2].address + 1, accesses[0].address);
}

#[test]
fn stack_instructions_without_our_trap_flag() {
    check_count("stack");
}

#[test]
fn locked_instructions() {
    let Some(accesses) = check_count("locked") else {
        return;
    };
    assert_eq!(kinds(&accesses), (0, 0, 400));
}

#[test]
fn accesses_across_lines_and_pages() {
    let Some(accesses) = check_count("crossing") else {
        return;
    };
    let last = |a: &Access| a.address + u64::from(a.size) - 1;
    let crossing = |bits: u32| {
        accesses
            .iter()
            .filter(|a| a.address >> bits != last(a) >> bits)
            .count()
    };
    // Offsets -32 to 31 from a page border, operands of 8, 4, 16, 16 and 2 bytes.
    assert_eq!(crossing(12), 7 + 3 + 15 + 15 + 1);
    // Line borders within the operands' range: at 0 and, for the last offsets, at 64 - 32.
    assert_eq!(crossing(6), crossing(12));
}

#[test]
fn bit_offsets_and_xlat() {
    let Some(accesses) = check_count("bits") else {
        return;
    };
    // `bt [rdi], eax` with eax = -37 * 40 first: 4 * floor(-1480 / 32) = -188.
    let table_of = |a: &Access| a.size == 1;
    assert_eq!(accesses.iter().filter(|a| table_of(a)).count(), 40);
    assert_eq!(accesses[0].address + 188, accesses[5].address);
    assert_eq!(accesses[1].address + 192, accesses[5].address);
}

#[test]
fn x87_and_save_areas() {
    let Some(accesses) = check_count("x87") else {
        return;
    };
    let sizes: Vec<u32> = accesses[..24].iter().map(|a| a.size).collect();
    assert_eq!(
        sizes,
        [
            8, 4, 4, 10, 10, 2, 2, 10, 2, 2, 2, 28, 28, 108, 108, 512, 512, 4, 4, 8, 8, 8, 8, 16
        ]
    );
}

#[test]
fn gathers_by_active_lane() {
    let Some(accesses) = check_count("gather") else {
        return;
    };
    let table = accesses[1].address;
    let lanes: Vec<(u64, u32)> = accesses[1..9]
        .iter()
        .map(|a| (a.address - table, a.size))
        .collect();
    assert_eq!(
        lanes,
        [
            (0, 4),
            (8, 4),
            (16, 4),
            (24, 4),
            (36, 4),
            (44, 4),
            (52, 4),
            (60, 4)
        ]
    );
    let merged: Vec<(u64, u32)> = accesses[10..12]
        .iter()
        .map(|a| (a.address - table, a.size))
        .collect();
    assert_eq!(merged, [(0, 16), (80, 16)]);
}

#[test]
fn avx512_masks_broadcasts_gathers_and_scatters() {
    let Some(accesses) = check_count("avx512") else {
        return;
    };
    let sizes: Vec<u32> = accesses[..11].iter().map(|a| a.size).collect();
    assert_eq!(sizes, [64, 64, 64, 64, 64, 4, 64, 64, 8, 2, 64]);
    let table = accesses[0].address;
    for lanes in [&accesses[11..16], &accesses[16..21]] {
        let lanes: Vec<(u64, u32)> = lanes.iter().map(|a| (a.address - table, a.size)).collect();
        assert_eq!(lanes, [(0, 16), (80, 4), (88, 4), (120, 8), (200, 4)]);
    }
}

#[test]
fn system_calls_keep_our_trap_flag_out_of_r11() {
    check_count("syscalls");
}

#[test]
fn segment_and_32_bit_addresses() {
    let Some(accesses) = check_count("segment") else {
        return;
    };
    let base = accesses[0].address - 16;
    let offsets: Vec<i64> = accesses[..6]
        .iter()
        .map(|a| a.address.wrapping_sub(base) as i64)
        .collect();
    assert_eq!(offsets, [16, 16, 8, -16, 4, 0]);
}

#[test]
fn code_that_changes_under_way() {
    check_count("selfmodifying");
}

#[test]
fn faulting_access_counts_once_repeated() {
    check_count("faults");
}

#[test]
fn program_with_its_own_trap_handler_is_declined() {
    let Some(observed) = observe("handles_sigtrap", &TO_THE_MARK) else {
        return;
    };
    assert_eq!(observed.end, End::Declined("the program handles SIGTRAP"));
    assert_eq!(observed.steps, 0);
    assert!(
        observed
            .ending
            .expected_accesses("handles_sigtrap")
            .is_some()
    );
}

#[test]
fn program_that_blocks_traps_is_declined() {
    let Some(observed) = observe("blocks_sigtrap", &TO_THE_MARK) else {
        return;
    };
    assert_eq!(observed.end, End::Declined("the program blocks SIGTRAP"));
    assert!(
        observed
            .ending
            .expected_accesses("blocks_sigtrap")
            .is_some()
    );
}

#[test]
fn window_ends_before_traps_are_blocked() {
    let Some(observed) = observe("blocks_midway", &TO_THE_MARK) else {
        return;
    };
    assert_eq!(observed.end, End::Syscall(libc::SYS_rt_sigprocmask as u64));
    assert_eq!(observed.window.len(), 20);
    assert!(observed.ending.expected_accesses("blocks_midway").is_some());
}

#[test]
fn window_ends_at_its_limits() {
    let limits = Limits {
        accesses: 123,
        ..TO_THE_MARK
    };
    let Some(observed) = observe("plain", &limits) else {
        return;
    };
    assert_eq!((observed.end, observed.window.len()), (End::Limit, 123));
    assert!(observed.ending.expected_accesses("plain").is_some());
    let limits = Limits {
        steps: 77,
        ..TO_THE_MARK
    };
    let Some(observed) = observe("plain", &limits) else {
        return;
    };
    assert_eq!((observed.end, observed.steps), (End::Limit, 77));
}

#[test]
fn timer_signals_reach_their_handler_and_interrupt_calls() {
    check_count("alarms");
}

#[test]
fn signals_that_do_nothing_go_unnoticed() {
    check_count("ignored");
}

#[test]
fn fatal_signal_is_fatal() {
    let Some(observed) = observe_with("dies", &["15"], &TO_THE_MARK, |_| {}) else {
        return;
    };
    assert_eq!((observed.end, observed.window.len()), (End::Exiting, 1));
    let event = &observed.ending.event;
    assert!(matches!(event, Event::Killed(libc::SIGTERM)), "{event:?}");
}

#[test]
fn trap_signal_of_the_program_reaches_it() {
    let Some(observed) = observe_with("dies", &["05"], &TO_THE_MARK, |_| {}) else {
        return;
    };
    assert_eq!((observed.end, observed.window.len()), (End::Trap, 1));
    let event = &observed.ending.event;
    assert!(matches!(event, Event::Killed(libc::SIGTRAP)), "{event:?}");
}

#[test]
fn ignored_trap_signal_stays_ignored() {
    let Some(observed) = observe("ignores_sigtrap", &TO_THE_MARK) else {
        return;
    };
    assert_eq!((observed.end, observed.window.len()), (End::Trap, 10));
    let expected = observed.ending.expected_accesses("ignores_sigtrap");
    assert_eq!(expected, Some(11));
}

#[test]
fn trap_instruction_of_the_program_reaches_it() {
    let Some(observed) = observe("breakpoint", &TO_THE_MARK) else {
        return;
    };
    assert_eq!(observed.end, End::Declined("software interrupt"));
    let event = &observed.ending.event;
    assert!(matches!(event, Event::Killed(libc::SIGTRAP)), "{event:?}");
}

#[test]
fn stopped_and_continued_program_goes_on() {
    let over = Arc::new(AtomicBool::new(false));
    let continue_it = |pid| {
        let over = Arc::clone(&over);
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                let _ = kill(pid, Signal::SIGCONT);
            }
        });
    };
    let observed = observe_with("dies", &["19"], &TO_THE_MARK, continue_it);
    over.store(true, Ordering::Relaxed);
    let Some(observed) = observed else {
        return;
    };
    assert_eq!(observed.end, End::Interrupted);
    assert_eq!(observed.ending.expected_accesses("dies"), Some(2));
}

#[test]
fn window_is_left_from_within_a_sleep() {
    let stop = Arc::new(AtomicBool::new(false));
    let is_asked = || stop.load(Ordering::Relaxed);
    let limits = Limits {
        stop: Some(&is_asked),
        ..TO_THE_MARK
    };
    let begun = Instant::now();
    let stop_soon = |_| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
    };
    let Some(observed) = observe_with("sleeps", &[], &limits, stop_soon) else {
        return;
    };
    assert_eq!((observed.end, observed.window.len()), (End::Interrupted, 0));
    // It slept out its six seconds natively.
    assert_eq!(observed.ending.expected_accesses("sleeps"), Some(1));
    assert!(begun.elapsed() > Duration::from_secs(6));
    assert!(observed.window_time < Duration::from_secs(5));
}

//! Rounds of turns by hand: what is own, what another thread did, and how it is shared out.

use super::super::{DEFAULT_LINE, Ended, Observer, Sample};
use super::*;

fn write(ip: u64, address: u64) -> Access {
    Access {
        ip,
        address,
        size: 8,
        load: true,
        store: true,
    }
}

fn read(ip: u64, address: u64) -> Access {
    Access {
        store: false,
        ..write(ip, address)
    }
}

/// Threads 0, 1, ... of a process: access number `i` of thread `t` is `program(t, i)`. In rounds of
/// `length` accesses each, of which every thread leads one in turn.
fn observe(
    threads: u64,
    rounds: u64,
    length: u64,
    program: impl Fn(u64, u64) -> Access,
) -> Vec<Sample> {
    let mut observer = Observer::new(50, 7);
    observer.share(0);
    for round in 0..rounds {
        observer.begin_round(threads);
        for turn in 0..threads {
            let t = (round + turn) % threads;
            observer.begin_turn(t as i32, 1.0);
            for i in 0..length {
                observer.access(program(t, round * length + i));
            }
            observer.end_turn();
        }
        observer.end_round();
    }
    let samples = observer.end_all(Ended::Cut);
    observer.end_share();
    assert_eq!(observer.watched_lines().count(), 0);
    assert!(!observer.filter().may_hold(COUNTERS >> 6));
    samples
}

fn reused(outcome: Outcome) -> Option<u64> {
    match outcome {
        Outcome::Reused { distance, .. } => Some(distance),
        _ => None,
    }
}

fn remotely(sample: &Sample) -> &Remotely {
    sample.remotely.as_ref().expect("several threads")
}

const COUNTERS: u64 = 0x10000;

/// Each thread writes a counter of its own, `apart` bytes from the next one's, every fourth access, and
/// reads memory of its own otherwise.
fn counters(apart: u64) -> impl Fn(u64, u64) -> Access {
    move |t, i| match i % 4 {
        0 => write(0x100 + t, COUNTERS + t * apart),
        _ => read(0x200 + t, ((t + 1) << 24) | ((i * 64) & 0xffff)),
    }
}

#[test]
fn counters_in_one_line_are_shared_falsely() {
    let samples = observe(3, 60, 1000, counters(8));
    assert!(samples.len() > 2500, "{}", samples.len());
    let of_counters: Vec<&Sample> = samples.iter().filter(|s| s.access.ip < 0x200).collect();
    assert!(of_counters.len() > 500);
    let mut lost = 0;
    for sample in &of_counters {
        let shared = remotely(sample);
        let Some(own) = reused(sample.outcomes[DEFAULT_LINE]) else {
            continue;
        };
        assert_eq!(own, 3);
        // Somebody else writes at the same moment of virtual time, or in between.
        let all = reused(shared.all[DEFAULT_LINE]).expect("reused");
        assert!(all <= 12, "{all}");
        if shared.remote[DEFAULT_LINE] & remote_flags::WRITTEN != 0 {
            lost += 1;
            assert_ne!(shared.remote[DEFAULT_LINE] & remote_flags::DISJOINT, 0);
            let (ip, tid) = shared.writer.expect("written");
            assert_eq!(ip, 0x100 + tid as u64);
            assert_ne!(tid, shared.tid);
        }
    }
    // Their writes coincide in virtual time: that of the next round of the loop is between.
    assert!(
        lost * 10 > of_counters.len() * 9,
        "{lost} of {}",
        of_counters.len()
    );
}

#[test]
fn counters_apart_are_private_and_everybody_else_counts_in_between() {
    let samples = observe(3, 60, 1000, counters(64));
    let mut sums = (0, 0, 0);
    for sample in &samples {
        let shared = remotely(sample);
        assert_eq!(shared.remote[DEFAULT_LINE], 0);
        if let (Some(own), Some(all)) = (
            reused(sample.outcomes[DEFAULT_LINE]),
            reused(shared.all[DEFAULT_LINE]),
        ) {
            sums = (sums.0 + own, sums.1 + all, sums.2 + 1);
        }
    }
    let ratio = (sums.1 as f64 + f64::from(sums.2)) / (sums.0 as f64 + f64::from(sums.2));
    assert!(
        sums.2 > 2000 && (ratio - 3.0).abs() < 0.05,
        "{sums:?} {ratio}"
    );
}

#[test]
fn data_handed_over_are_shared_truly() {
    // Thread 0 writes what thread 1 reads, at another pace, and each reads other data too.
    let samples = observe(2, 60, 1000, |t, i| match (t, i % 8) {
        (0, 0) => write(0x100, COUNTERS + i / 8 % 4 * 8),
        (1, 1) => read(0x101, COUNTERS + (i / 8 + 1) % 4 * 8),
        _ => read(0x200 + t, ((t + 1) << 24) | ((i * 64) & 0xfff)),
    });
    let of = |ip: u64| {
        samples
            .iter()
            .filter(move |s| s.access.ip == ip)
            .map(remotely)
    };
    let lost = of(0x101).filter(|s| s.remote[DEFAULT_LINE] & remote_flags::WRITTEN != 0);
    assert!(lost.count() > 50);
    let shared = of(0x100).filter(|s| s.remote[DEFAULT_LINE] == remote_flags::READ);
    assert!(shared.count() > 50);
}

/// A thread that fills a buffer word by word is at the lines before one many times before it comes to that: it is seen there
/// all the same.
#[test]
fn what_is_handed_over_is_seen_wherever_it_lies() {
    const WORDS: u64 = 1024;
    let program = |t: u64, i: u64| {
        let (lap, word) = (i / WORDS, i % WORDS);
        match (t, lap % 2 == t) {
            (0, true) => write(0x100, COUNTERS + 8 * word),
            (_, true) => read(0x101, COUNTERS + 8 * word),
            _ => read(0x200 + t, (t + 1) << 24),
        }
    };
    let samples = observe(2, 200, WORDS, program);
    let mut by_line = [0; 4];
    for sample in &samples {
        let Access { ip, address, .. } = sample.access;
        // The last touch of a line in its lap, and not of the last two.
        if ip >= 0x200 || address % 64 != 56 || sample.position > 2 * 197 * WORDS {
            continue;
        }
        let Outcome::Reused {
            distance, trigger, ..
        } = remotely(sample).all[DEFAULT_LINE]
        else {
            panic!("{sample:?}");
        };
        assert_eq!(trigger, ip ^ 1, "{sample:?}");
        assert!(distance < 2 * WORDS, "{distance}");
        by_line[(address / 64 % 4) as usize] += 1;
    }
    assert!(by_line.iter().all(|&n| n > 20), "{by_line:?}");
}

/// One word of 256 bytes is one thread's, the others are written by the other thread in each of its turns.
#[test]
fn many_writes_around_a_word_are_false_sharing_still() {
    let program = |t: u64, i: u64| match (t, i % 64) {
        (0, 0) => write(0x100, COUNTERS),
        (1, word @ 1..32) => write(0x101, COUNTERS + 8 * word),
        _ => read(0x200 + t, (t + 1) << 24),
    };
    let samples = observe(2, 400, 64, program);
    let mut lost = 0;
    for sample in samples.iter().filter(|s| s.access.ip == 0x100) {
        let remote = remotely(sample).remote[DEFAULT_LINE];
        if remote & remote_flags::WRITTEN != 0 && reused(sample.outcomes[DEFAULT_LINE]).is_some() {
            lost += 1;
            assert_ne!(remote & remote_flags::DISJOINT, 0, "{sample:?}");
        }
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn a_thread_that_ends_touches_its_lines_no_more() {
    let mut observer = Observer::new(20, 3);
    observer.share(0);
    for round in 0..4 {
        observer.begin_round(2);
        for t in [round % 2, 1 - round % 2] {
            observer.begin_turn(t, 1.0);
            for i in 0..500 {
                observer.access(read(t as u64, ((t as u64 + 1) << 24) | (i * 64)));
            }
            observer.end_turn();
        }
        observer.end_round();
    }
    observer.thread_ended(1);
    observer.begin_round(1);
    observer.begin_turn(0, 1.0);
    for i in 0..250 {
        observer.access(read(0, (1 << 24) | (i * 64)));
    }
    observer.end_turn();
    observer.end_round();
    let lanes: Vec<(i32, u64, bool)> = observer
        .lanes()
        .iter()
        .map(|l| (l.tid, l.accesses, l.ended))
        .collect();
    assert_eq!(lanes, [(0, 2250, false), (1, 2000, true)]);
    let samples = observer.end_all(Ended::Cut);
    let (mut first, mut second) = (0, 0);
    for sample in &samples {
        match (remotely(sample).tid, sample.outcomes[DEFAULT_LINE]) {
            (0, Outcome::Censored(_)) => first += 1,
            (1, Outcome::NeverReused(_)) => second += 1,
            (_, Outcome::Reused { distance, .. }) => assert_eq!(distance, 499),
            other => panic!("{other:?}"),
        }
    }
    assert!(first > 5 && second > 5, "{first} {second}");
}

#[test]
fn a_watch_from_before_there_were_two_threads_goes_on() {
    let mut observer = Observer::new(10, 3);
    for i in 0..1000 {
        observer.access(read(0, (1 << 24) | (i * 64)));
    }
    observer.share(0);
    for _ in 0..2 {
        observer.begin_round(2);
        for t in 0..2 {
            observer.begin_turn(t, 1.0);
            for i in 0..500 {
                observer.access(read(t as u64, ((t as u64 + 1) << 24) | (i * 64)));
            }
            observer.end_turn();
        }
        observer.end_round();
    }
    let samples = observer.end_all(Ended::Cut);
    let before: Vec<&Sample> = samples.iter().filter(|s| s.position < 500).collect();
    assert!(before.len() > 20);
    for sample in before {
        assert_eq!(reused(sample.outcomes[DEFAULT_LINE]), Some(999));
        let all = reused(remotely(sample).all[DEFAULT_LINE]).expect("reused");
        assert!((999..1500).contains(&all), "{all}");
    }
}

/// As where one of them waits for the other: it leads long turns, or none at all follows it.
#[test]
fn threads_are_sampled_alike_however_long_their_first_turns_are() {
    let mut observer = Observer::new(100, 5);
    observer.share(0);
    let mut made = [0.0; 2];
    for round in 0..4_000 {
        observer.begin_round(2);
        let first = round % 2;
        // Thread 1 makes 300 accesses where it leads and 900 behind the other one.
        for (t, length) in [
            (first, [600, 300][first]),
            (1 - first, [600, 900][1 - first]),
        ] {
            observer.begin_turn(t as i32, 1.0);
            for i in 0..length {
                observer.access(read(t as u64, ((t as u64 + 1) << 24) | ((i * 64) & 0xffff)));
            }
            observer.end_turn();
            made[t] += length as f64;
        }
        observer.end_round();
    }
    let samples = observer.end_all(Ended::Cut);
    let of = |t: usize| samples.iter().filter(|s| s.access.ip == t as u64).count() as f64;
    for (t, made) in made.into_iter().enumerate() {
        let share = of(t) / (made / 100.0);
        assert!((share - 1.0).abs() < 0.05, "thread {t}: {share}");
    }
}

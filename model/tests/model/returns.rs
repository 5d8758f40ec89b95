//! Who misses, in a run observed as a whole of which lines drawn at random tell who returns to them after long.

use crate::common::misses_by_instruction;
use statcache_model::oracle::Trace;
use statcache_model::{
    Estimate, FirstTouch, FirstTouches, Options, Outcome, Policy, Rng, Run, Sample, Since, Stream,
    Trigger, Window,
};
use std::collections::HashMap;

/// References of a window, and of an epoch.
const WINDOW: usize = 60_000;
const EPOCH: usize = 20_000;

/// Instruction 1000 is hot; 0 to 39 read lines of their own, in turn, the first ones most often. One line is new each time, by 2000.
fn program(n: usize) -> Vec<(u64, u32)> {
    let mut rng = Rng::new(3);
    let mut next = [0u64; 40];
    (0..n as u64)
        .map(|i| match i % 50 {
            0 => {
                let instr = (rng.below(40) * rng.below(40) / 40) as usize;
                next[instr] += 1;
                let lines = 50 * (instr as u64 + 1);
                let line = 10_000 * (instr as u64 + 1) + next[instr] % lines;
                (line, instr as u32)
            }
            25 if i % 500 == 25 => (10_000_000 + i, 2000),
            _ => (i % 16, 1000),
        })
        .collect()
}

/// The run in windows, one reference in 400 a sample; of one line in 16 the first touches in each epoch.
fn windows(program: &[(u64, u32)], looks: bool) -> Vec<Window> {
    let mut rng = Rng::new(5);
    sampled(program, looks, |_| rng.below(400) == 0)
}

/// As [`windows`], of references picked by their place.
fn sampled(
    program: &[(u64, u32)],
    looks: bool,
    mut picks: impl FnMut(usize) -> bool,
) -> Vec<Window> {
    let distances = Trace::new(program.iter().map(|&(line, _)| line)).distances();
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut windows = Vec::new();
    for (index, part) in program.chunks(WINDOW).enumerate() {
        let start = index * WINDOW;
        let (mut samples, mut touches) = (Vec::new(), Vec::new());
        for (position, &(line, instr)) in part.iter().enumerate() {
            let at = start + position;
            if picks(at) {
                let outcome = match distances[at] {
                    Some(distance) => Outcome::Reused {
                        distance,
                        trigger: Trigger {
                            instr: program[at + 1 + distance as usize].1,
                            ..Trigger::default()
                        },
                    },
                    None => Outcome::NeverReused {
                        at: (program.len() - at) as u64,
                    },
                };
                samples.push(Sample {
                    position: position as u64,
                    instr,
                    own: [outcome; 5],
                    ..Sample::default()
                });
            }
            // A draw by the line's number.
            if line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 != 5 {
                continue;
            }
            let epoch = at / EPOCH * EPOCH;
            let since = match last.get(&line) {
                Some(&before) if before >= epoch => continue,
                Some(&first) => {
                    let ended = (first / EPOCH + 1) * EPOCH;
                    Since::Between((at - ended) as u64, (at - first) as u64)
                }
                None => Since::AtLeast(at as u64),
            };
            last.insert(line, at);
            touches.push(FirstTouch {
                position: position as u64,
                instr,
                data: 0,
                since,
            });
        }
        windows.push(Window {
            start: index as f64,
            accesses: part.len() as u64,
            refs: [part.len() as u64; 5],
            stands_for: Estimate::exact(part.len() as f64),
            samples,
            first_touches: looks.then_some(FirstTouches {
                touches,
                each: 16.0,
                epochs: (0..part.len()).step_by(EPOCH).map(|at| at as u64).collect(),
            }),
            ..Window::default()
        });
    }
    windows
}

/// Share of the misses that is with another instruction, where the exact ones are `exact`.
fn misplaced(windows: Vec<Window>, lines: u64, policy: Policy, exact: &HashMap<u32, f64>) -> f64 {
    let options = Options {
        contiguous: true,
        from_start: true,
        ..Options::default()
    };
    let run = Run::new(windows, options).unwrap();
    let told = run
        .attribute(64, 64 * lines, policy, Stream::Own, |s| s.instr)
        .unwrap();
    let all: f64 = exact.values().sum();
    let curve = run.curve(64, policy, Stream::Own, &[64 * lines]).unwrap();
    let off = told.miss_ratio / curve[0].miss_ratio - 1.0;
    assert!(off.abs() < 0.02, "sums are what the curve says: {off}");
    let mut apart = 0.0;
    for key in &told.keys {
        assert!(key.low <= key.miss_ratio && key.miss_ratio <= key.high);
        let exact = exact.get(&key.key).copied().unwrap_or(0.0);
        apart += (key.miss_share - exact / all).abs();
    }
    0.5 * apart
}

/// Drawn lines tell who makes the few misses of a cache better than samples alone.
fn few_misses_are_charged_to_who_makes_them(lines: u64, policy: Policy) {
    let program = program(6_000_000);
    let exact = misses_by_instruction(&program, lines, policy);
    let with = misplaced(windows(&program, true), lines, policy, &exact);
    let without = misplaced(windows(&program, false), lines, policy, &exact);
    println!("{lines} lines: {with:.3}, by samples alone {without:.3}");
    assert!(with < 0.12, "{with}");
    // Else this test would show nothing.
    assert!(without > 1.5 * with, "{without} {with}");
}

#[test]
fn misses_of_a_small_cache_are_charged_to_who_makes_them() {
    few_misses_are_charged_to_who_makes_them(2_000, Policy::RANDOM);
}

#[test]
fn few_misses_of_a_larger_cache_are_charged_to_who_makes_them() {
    few_misses_are_charged_to_who_makes_them(8_000, Policy::RANDOM);
}

#[test]
fn few_misses_of_an_lru_cache_are_charged_to_who_makes_them() {
    few_misses_are_charged_to_who_makes_them(8_000, Policy::LRU);
}

/// Epochs begin where logs are read, which is just behind samples: a loop's own reuses must not be taken for returns of other epochs.
#[test]
fn samples_close_before_epochs_cross_their_borders_no_more_often() {
    // A loop over 1000 lines, and a walk over more than any cache here holds.
    let step = |i: u64| match i % 50 {
        7 => (1_000_000 + i / 50 % 50_000, 1),
        _ => (i % 1000, 2),
    };
    let program: Vec<(u64, u32)> = (0..4_000_000).map(step).collect();
    let mut rng = Rng::new(9);
    let windows = sampled(&program, true, |at| {
        at % EPOCH > EPOCH - 1_000 && rng.below(20) == 0
    });
    let options = Options {
        contiguous: true,
        from_start: true,
        ..Options::default()
    };
    let run = Run::new(windows, options).unwrap();
    for policy in [Policy::RANDOM, Policy::LRU] {
        let told = run
            .attribute(64, 64 * 4_000, policy, Stream::Own, |s| s.instr)
            .unwrap();
        let walk = told.keys.iter().find(|key| key.key == 1).unwrap();
        println!("{policy:?}: {:.3}", walk.miss_ratio);
        assert!(walk.miss_ratio > 0.97, "{policy:?}: {}", walk.miss_ratio);
    }
}

/// An array that is filled at the start and read again and again: lines that are looked for only from later on tell no age of their own, but early in the
/// run none can have been touched long before.
#[test]
fn first_touches_are_charged_to_who_fills_an_array() {
    const LINES: u64 = 20_000;
    const FILLED: u64 = 4 * LINES;
    let mut rng = Rng::new(7);
    let step = |i: u64| match i {
        _ if !i.is_multiple_of(4) => (i % 16, 1000),
        0..FILLED => (1_000 + i / 4, 1),
        _ => (1_000 + rng.below(LINES), 2),
    };
    let program: Vec<(u64, u32)> = (0..4_000_000).map(step).collect();
    let mut windows = windows(&program, true);
    for (index, window) in windows.iter_mut().enumerate() {
        let touches = &mut window.first_touches.as_mut().unwrap().touches;
        for touch in touches {
            let at = (index * WINDOW) as u64 + touch.position;
            touch.since = match touch.since {
                Since::AtLeast(_) => Since::AtLeast(at / 4),
                Since::Between(least, _) if index % 2 == 1 => Since::AtLeast(least),
                known => known,
            };
        }
    }
    let lines = 2 * LINES;
    let exact = misses_by_instruction(&program, lines, Policy::RANDOM);
    let apart = misplaced(windows, lines, Policy::RANDOM, &exact);
    println!("{apart:.3}");
    assert!(apart < 0.1, "{apart}");
}

//! Who misses, of windows with gaps between them that are too short to see far reuses.

use crate::common::misses_by_instruction;
use statcache_model::oracle::Trace;
use statcache_model::{
    Cache, Estimate, FirstTouch, FirstTouches, LineSize, Options, Outcome, Policy, Rng, Run,
    Sample, Since, Stream, Told, Trigger, Window,
};
use std::collections::{HashMap, HashSet};

/// Instruction 1 reads each of 30,000 lines in turn, 2 writes it right after; 3 is hot; 4 reads one of 3,000 lines at random.
fn program(n: usize) -> Vec<(u64, u32)> {
    let mut rng = Rng::new(3);
    let of_round = |i: u64| {
        let line = 1_000 + i % 30_000;
        [
            (line, 1),
            (line, 2),
            (i % 8, 3),
            (100_000 + rng.below(3_000), 4),
        ]
    };
    (0..n as u64 / 4).flat_map(of_round).collect()
}

/// Forty windows of 20,000 references in which every 16th line was drawn; each seventh is five times as long, and nothing was.
fn windows(program: &[(u64, u32)], looks: bool) -> Vec<Window> {
    let distances = Trace::new(program.iter().map(|&(line, _)| line)).distances();
    let mut rng = Rng::new(5);
    let apart = program.len() / 40;
    let window = |at: usize| {
        let (start, long) = (at * apart, at % 7 == 6);
        let refs = if long { 100_000 } else { 20_000 };
        let sample = |_| {
            let position = rng.below(refs) as usize;
            let left = refs - 1 - position as u64;
            let outcome = match distances[start + position] {
                Some(distance) if distance < left => Outcome::Reused {
                    distance,
                    trigger: Trigger {
                        instr: program[start + position + 1 + distance as usize].1,
                        ..Trigger::default()
                    },
                },
                _ => Outcome::Censored { at: left },
            };
            Sample {
                position: position as u64,
                instr: program[start + position].1,
                own: [outcome; 5],
                ..Sample::default()
            }
        };
        let samples = (0..300).map(sample).collect();
        let mut seen = HashSet::new();
        let first = program[start..start + refs as usize].iter().enumerate();
        let first =
            first.filter(|&(_, &(line, _))| seen.insert(line) && line % 16 == at as u64 % 16);
        let touches = first.map(|(position, &(_, instr))| FirstTouch {
            position: position as u64,
            instr,
            data: 0,
            since: Since::default(),
        });
        Window {
            start: at as f64,
            accesses: refs,
            refs: [refs; 5],
            stands_for: Estimate::exact(apart as f64),
            samples,
            first_touches: (looks && !long).then(|| FirstTouches {
                touches: touches.collect(),
                each: 16.0,
                epochs: Vec::new(),
            }),
            ..Window::default()
        }
    };
    (0..40).map(window).collect()
}

/// Miss ratio, and shares of misses by instruction, of a cache of so many lines.
fn told(windows: Vec<Window>, lines: u64, policy: Policy) -> (f64, HashMap<u32, f64>) {
    let run = Run::new(windows, Options::default()).unwrap();
    let told = run
        .attribute(64, 64 * lines, policy, Stream::Own, |s| s.instr)
        .unwrap();
    let sum: f64 = told.keys.iter().map(|k| k.miss_share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert!(
        told.keys
            .iter()
            .all(|k| k.low <= k.miss_ratio && k.miss_ratio <= k.high)
    );
    let shares = told.keys.iter().map(|k| (k.key, k.miss_share));
    (told.miss_ratio, shares.collect())
}

#[test]
fn far_reuses_are_charged_to_who_ends_them() {
    let program = program(4_000_000);
    for (lines, policy) in [
        (512, Policy::RANDOM),
        (2_048, Policy::RANDOM),
        (8_192, Policy::RANDOM),
        (2_048, Policy::LRU),
    ] {
        let exact = misses_by_instruction(&program, lines, policy);
        let all: f64 = exact.values().sum();
        let (ratio, shares) = told(windows(&program, true), lines, policy);
        let (_, without) = told(windows(&program, false), lines, policy);
        println!("{lines}: exact {exact:?}, told {shares:?}, without first touches {without:?}");
        // All misses are at some key.
        let off = ratio - all / program.len() as f64;
        assert!(off.abs() < 0.02, "{off}");
        for instr in 1..=4 {
            let off = (shares[&instr] - exact[&instr] / all).abs();
            assert!(off < 0.06, "{lines} lines, instruction {instr}: {off}");
        }
        // Watches alone, of windows as short as that, do not tell: else this test would show nothing.
        let off = (without[&1] - exact[&1] / all).abs();
        assert!(off > 0.05, "{without:?}");
    }
}

/// Who touched last is seen only where windows are long enough for the reuse.
#[test]
fn who_touched_last_is_known_of_near_reuses_alone() {
    let program = program(4_000_000);
    let run = Run::new(windows(&program, true), Options::default()).unwrap();
    let told = run
        .attribute(64, 64 * 2_048, Policy::RANDOM, Stream::Own, |s| s.instr)
        .unwrap();
    let known = |instr: u32| {
        let of_instr = told.keys.iter().find(|k| k.key == instr).unwrap();
        of_instr.from_known
    };
    // 120,000 references apart, where windows have 20,000 and 100,000; and 12,000.
    assert!(known(1) < 0.3, "{}", known(1));
    assert!(known(4) > 0.5, "{}", known(4));
}

/// Where few windows are looked at, and where windows behave like none of these.
#[test]
fn windows_without_first_touches_count() {
    let program = program(4_000_000);
    let spare = |keep: usize| {
        let mut windows = windows(&program, true);
        for (at, window) in windows.iter_mut().enumerate() {
            if at % keep > 0 {
                window.first_touches = None;
            }
        }
        windows
    };
    let (_, all) = told(spare(1), 2_048, Policy::RANDOM);
    let (_, few) = told(spare(4), 2_048, Policy::RANDOM);
    for instr in [1, 4] {
        assert!((all[&instr] - few[&instr]).abs() < 0.05, "{all:?} {few:?}");
    }
    // The second half of the run is one loop over many lines, by an instruction that the first half does not have.
    let mut unlike = windows(&program, true);
    for window in &mut unlike[20..] {
        window.first_touches = None;
        for sample in &mut window.samples {
            let at = window.refs[0] - sample.position;
            (sample.instr, sample.own) = (9, [Outcome::Censored { at }; 5]);
        }
    }
    let (_, shares) = told(unlike, 2_048, Policy::RANDOM);
    assert!(shares[&9] > 0.5, "{shares:?}");
}

/// To compare line sizes both must be told by the same means, and first touches are of one line size.
#[test]
fn watches_alone_tell_as_if_there_were_no_first_touches() {
    let program = program(1_000_000);
    let [with, without] = [true, false].map(|looks| {
        let run = Run::new(windows(&program, looks), Options::default()).unwrap();
        let cache = Cache::new(1 << 17, LineSize::B64, Policy::RANDOM).unwrap();
        run.attribute_by(Told::ByWatches, &cache, Stream::Own, |s| s.instr)
            .unwrap()
    });
    assert_eq!(with, without);
}

#[test]
fn bad_first_touches_are_refused() {
    let spoilt = |first: FirstTouches| {
        let window = Window {
            accesses: 10,
            refs: [10; 5],
            first_touches: Some(first),
            ..Window::default()
        };
        Run::new(vec![window], Options::default()).is_err()
    };
    let touch = FirstTouch {
        position: 11,
        ..FirstTouch::default()
    };
    let one = |touch, each| FirstTouches {
        touches: vec![touch],
        each,
        epochs: Vec::new(),
    };
    let epoch = |at| FirstTouches {
        epochs: vec![0, at],
        ..one(FirstTouch::default(), 1.0)
    };
    assert!(spoilt(epoch(11)));
    assert!(!spoilt(epoch(10)));
    // Of a whole run, standing for nothing.
    for each in [0.0, 1e-300] {
        let of_nothing = |start: u32| Window {
            start: f64::from(start),
            accesses: 1000,
            refs: [1000; 5],
            stands_for: Estimate::exact(1000.0),
            samples: vec![Sample::default(); 10],
            first_touches: Some(FirstTouches { each, ..epoch(1) }),
            ..Window::default()
        };
        let options = Options {
            contiguous: true,
            ..Options::default()
        };
        let run = Run::new(vec![of_nothing(0), of_nothing(1)], options).unwrap();
        let told = run.attribute(64, 1 << 15, Policy::RANDOM, Stream::Own, |s| s.instr);
        assert!(told.is_ok());
    }
    assert!(spoilt(one(touch, 1.0)));
    assert!(spoilt(one(FirstTouch::default(), f64::NAN)));
    assert!(!spoilt(one(FirstTouch::default(), 32.0)));
}

//! Programs whose parts go on for less than samples alone could tell apart: code tells which is which.

use crate::common::{Sampler, contiguous_by};
use statcache_model::oracle::Trace;
use statcache_model::{CurvePoint, Options, Outcome, Policy, Run, Stream, Window};

const TOUCHES: u64 = 8;
/// Lines of what fits most caches and of what fits few, and references for which a program goes through each, again and again.
const LINES: [u64; 2] = [400, 4_000];
const TURN: [u64; 2] = [20 * 400 * TOUCHES, 2 * 4_000 * TOUCHES];
const REFERENCES: u64 = 6_000_000;
/// Caches that hold the first, and next to nothing or some of the other besides; and one that holds both.
const SIZES: [u64; 3] = [64 << 10, 160 << 10, 1 << 20];
const SEEDS: u64 = 16;

/// Which of both runs at a reference.
fn part(at: u64) -> usize {
    usize::from(at % (TURN[0] + TURN[1]) >= TURN[0])
}

/// Goes through one, then the other, by turns.
fn trace() -> Trace {
    Trace::new((0..REFERENCES).map(|at| {
        let turn = at % (TURN[0] + TURN[1]);
        match part(at) {
            0 => turn / TOUCHES % LINES[0],
            _ => LINES[0] + (turn - TURN[0]) / TOUCHES % LINES[1],
        }
    }))
}

/// The curve of so many samples, taken in clusters of eight; `code`: the instruction at a reference.
fn told(
    distances: &[Option<u64>],
    samples: usize,
    policy: Policy,
    seed: u64,
    code: impl Fn(u64) -> u32,
) -> Vec<CurvePoint> {
    let mut windows: Vec<Window> = contiguous_by(Sampler::Clustered, distances, samples, 1, seed);
    for sample in &mut windows[0].samples {
        sample.instr = code(sample.position);
        if let Outcome::Reused { distance, trigger } = &mut sample.own[2] {
            trigger.instr = code(sample.position + *distance + 1);
        }
    }
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(windows, options).unwrap();
    run.curve(64, policy, Stream::Own, &SIZES).unwrap()
}

#[test]
fn parts_by_turns_are_told_apart_by_their_code() {
    let trace = trace();
    let distances = trace.distances();
    let lines: Vec<u64> = SIZES.iter().map(|size| size / 64).collect();
    for policy in [Policy::RANDOM, Policy::LRU] {
        let exact = match policy {
            Policy::Lru { .. } => trace.lru_curve(&lines),
            Policy::Random { .. } => {
                let ratio = |&lines: &u64| trace.random_miss_ratio(lines, None, 5);
                lines.iter().map(ratio).collect()
            }
        };
        // Summed errors by the code and without, and sizes inside the interval.
        let (mut known, mut blind, mut inside) = (0.0, 0.0, 0);
        for seed in 0..SEEDS {
            let curve = |code: fn(u64) -> u32| told(&distances, 20_000, policy, seed, code);
            let off = |curve: &[CurvePoint]| -> f64 {
                let both = curve.iter().zip(&exact);
                both.map(|(p, e)| (p.miss_ratio - e).abs()).sum()
            };
            let curves = [curve(|at| part(at) as u32), curve(|_| 0)];
            known += off(&curves[0]);
            blind += off(&curves[1]);
            let both = curves[0].iter().zip(&exact);
            inside += both.filter(|(p, e)| (p.low..=p.high).contains(e)).count();
        }
        let all = SEEDS as usize * SIZES.len();
        println!("{policy:?}: {known:.4} off, {blind:.4} without code, inside {inside} of {all}");
        assert!(known < 0.4 * blind, "{policy:?}: {known}, {blind}");
        assert!(inside * 10 >= all * 9, "{policy:?}: {inside} of {all}");
    }
}

/// Code that changes tells nothing where distances do not.
#[test]
fn code_without_a_difference_is_not_told_apart() {
    let distances = trace().distances();
    // Of the second part alone.
    let swept: Vec<Option<u64>> = (0..REFERENCES)
        .filter(|&at| part(at) == 1)
        .map(|at| distances[at as usize].filter(|&d| d == 0))
        .enumerate()
        .map(|(at, d)| {
            let again = TOUCHES * (LINES[1] - 1);
            let ends = at as u64 + again + 1 < REFERENCES / 2;
            d.or(ends.then_some(again))
        })
        .collect();
    for policy in [Policy::RANDOM, Policy::LRU] {
        let curve = |code: fn(u64) -> u32| told(&swept, 10_000, policy, 3, code);
        assert_eq!(curve(|at| (at / 30_000 % 2) as u32), curve(|_| 0));
    }
}

/// Parts that last for less than what lies between samples: what of them is seen is not when they run.
#[test]
fn parts_too_short_to_be_seen_are_not_told_apart() {
    const ROUND: u64 = 400;
    let second = |at: u64| u32::from(at % ROUND >= ROUND * 3 / 4);
    let distances: Vec<Option<u64>> = (0..REFERENCES)
        .map(|at| match second(at) {
            0 => 3,
            _ => 499 * ROUND + ROUND - 1,
        })
        .zip(0..)
        .map(|(distance, at)| (at + distance + 1 < REFERENCES).then_some(distance))
        .collect();
    for policy in [Policy::RANDOM, Policy::LRU] {
        let curve = |code: &dyn Fn(u64) -> u32| told(&distances, 10_000, policy, 5, code);
        assert_eq!(curve(&second), curve(&|_| 0));
    }
}

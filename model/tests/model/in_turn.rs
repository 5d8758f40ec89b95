//! Threads of which one at a time is sampled, each at a rate of its own.

use statcache_model::{Estimate, Options, Outcome, Policy, Run, Sample, Stream, Trigger, Window};

const ROUNDS: u64 = 400;
const OF_A: u64 = 100;
const OF_B: u64 = 300;
/// References between two samples, where the thread is the one that is sampled: in every other round.
const EVERY: [u64; 2] = [10, 60];
const LINES: u64 = 4096;

/// In each round one thread touches its one line, then the other sweeps over many.
fn windows(told: bool) -> Vec<Window> {
    let round = OF_A + OF_B;
    let reuse = |distance| Outcome::Reused {
        distance,
        trigger: Trigger::default(),
    };
    (0..ROUNDS / 10)
        .map(|at| {
            let refs = 10 * round;
            let in_round = |r: u64| {
                let sweeps = (r + at) % 2 == 1;
                let every = EVERY[usize::from(sweeps)];
                let (from, to, distance) = match sweeps {
                    false => (0, OF_A, 0),
                    true => (OF_A, round, LINES * round / OF_B),
                };
                (from..to).step_by(every as usize).map(move |i| Sample {
                    position: r * round + i,
                    own: [reuse(distance); 5],
                    refs: told.then_some(2.0 * every as f64),
                    ..Sample::default()
                })
            };
            Window {
                start: at as f64,
                accesses: refs,
                refs: [refs; 5],
                stands_for: Estimate::exact(refs as f64),
                samples: (0..10).flat_map(in_round).collect(),
                ..Window::default()
            }
        })
        .collect()
}

#[test]
fn samples_stand_for_the_references_that_they_are_told_to() {
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let ratio = |told: bool| {
        let run = Run::new(windows(told), options).unwrap();
        let size = [64 * LINES / 4];
        let curve = run.curve(64, Policy::LRU, Stream::Own, &size).unwrap();
        curve[0].miss_ratio
    };
    let right = OF_B as f64 / (OF_A + OF_B) as f64;
    assert!((ratio(true) - right).abs() < 0.02, "{}", ratio(true));
    assert!((ratio(false) - right).abs() > 0.1, "{}", ratio(false));
}

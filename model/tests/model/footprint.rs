//! What the process's size adds where windows are too short to see the far end of the tail.

use crate::common::{sizes, sparse, stream};
use statcache_model::{Options, Policy, Run, Stream};

/// Draws of the samples.
const DRAWS: u64 = 8;

#[test]
fn a_bounded_process_cannot_miss_for_ever() {
    // Cycle of 160,000 references over 40,000 nodes; no window is longer than 80,000.
    let trace = stream("chase", 4_000_000, 7);
    let distances = trace.distances();
    let exact: Vec<f64> = sizes()
        .iter()
        .map(|s| trace.random_miss_ratio(s / 64, None, 3))
        .collect();
    // Mean error over the draws of the samples. What the windows are too short to decide must lie in
    // the interval in each draw, the sizes where only chance is left in most of them.
    let error = |footprint_bytes| {
        let options = Options {
            footprint_bytes,
            ..Options::default()
        };
        let (mut sum, mut covered) = (0.0, 0);
        for seed in 1..=DRAWS {
            let windows = sparse(&distances, 10_000, 50, (20_000, 80_000), seed);
            let run = Run::new(windows, options).unwrap();
            let curve = run
                .curve(64, Policy::RANDOM, Stream::Own, &sizes())
                .unwrap();
            for (p, exact) in curve.iter().zip(&exact) {
                let inside = p.low <= *exact && *exact <= p.high;
                let open = p.undecided.is_some_and(|(low, high)| high - low > 0.01);
                assert!(inside || !open, "exact {exact}: {p:?}");
                covered += u64::from(inside);
                sum += (p.miss_ratio - exact).abs();
            }
        }
        let points = DRAWS * exact.len() as u64;
        println!("{covered} of {points} points inside the interval");
        assert!(covered * 10 >= points * 9, "{covered} of {points}");
        sum / points as f64
    };
    let unknown = error(None);
    let known = error(Some(44_000 * 64));
    println!("size unknown: {unknown:.4}, known within 10 %: {known:.4}");
    assert!(
        unknown > 0.05,
        "windows this short cannot decide: {unknown}"
    );
    assert!(known < unknown / 3.0, "{known} against {unknown}");
}

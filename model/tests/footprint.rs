//! What the process's size adds where windows are too short to see the far end of the tail.

mod common;

use common::{sizes, sparse, stream};
use statcache_model::{Options, Policy, Run, Stream};

#[test]
fn a_bounded_process_cannot_miss_for_ever() {
    // Cycle of 160,000 references over 40,000 nodes; no window is longer than 80,000.
    let trace = stream("chase", 4_000_000, 7);
    let windows = sparse(&trace.distances(), 10_000, 50, (20_000, 80_000), 1);
    let error = |footprint_bytes| {
        let options = Options {
            footprint_bytes,
            ..Options::default()
        };
        let run = Run::new(windows.clone(), options).unwrap();
        let curve = run
            .curve(64, Policy::RANDOM, Stream::Own, &sizes())
            .unwrap();
        let mut sum = 0.0;
        for p in &curve {
            let exact = trace.random_miss_ratio(p.cache_bytes / 64, None, 3);
            assert!(p.low <= exact && exact <= p.high, "exact {exact}: {p:?}");
            sum += (p.miss_ratio - exact).abs();
        }
        sum / curve.len() as f64
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

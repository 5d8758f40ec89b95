//! Whether the stated intervals hold what they say. The tables over all streams and 200
//! repetitions come from `benches/accuracy.rs`; here two streams and few repetitions.

mod common;

use common::{contiguous, sizes, sparse, stream};
use statcache_model::{CurvePoint, Options, Policy, Run, Stream, Window};

const REPETITIONS: u64 = 24;

/// Shares of points whose sampling part covers the mean of the repetitions, and whose interval
/// covers the exact value; median full width.
fn coverage(exact: &[f64], contiguous: bool, make: impl Fn(u64) -> Vec<Window>) -> (f64, f64, f64) {
    let curves: Vec<Vec<CurvePoint>> = (0..REPETITIONS)
        .map(|seed| {
            let options = Options {
                contiguous,
                ..Options::default()
            };
            let run = Run::new(make(seed), options).unwrap();
            run.curve(64, Policy::RANDOM, Stream::Own, &sizes())
                .unwrap()
        })
        .collect();
    let n = (curves.len() * exact.len()) as f64;
    let (mut sampling, mut oracle, mut widths) = (0.0, 0.0, Vec::new());
    for (k, &e) in exact.iter().enumerate() {
        let limit = curves.iter().map(|c| c[k].miss_ratio).sum::<f64>() / curves.len() as f64;
        for p in curves.iter().map(|c| c[k]) {
            let inside = (p.miss_ratio - limit).abs() <= p.sampling_half_width;
            sampling += f64::from(u8::from(inside)) / n;
            oracle += f64::from(u8::from(p.low <= e && e <= p.high)) / n;
            widths.push(p.high - p.low);
        }
    }
    widths.sort_by(f64::total_cmp);
    (sampling, oracle, widths[widths.len() / 2])
}

#[test]
fn intervals_cover() {
    const REFERENCES: usize = 2_000_000;
    for name in ["stack", "phases"] {
        let trace = stream(name, REFERENCES, 7);
        let distances = trace.distances();
        let exact: Vec<f64> = sizes()
            .iter()
            .map(|s| trace.random_miss_ratio(s / 64, None, 3))
            .collect();
        let gapless = coverage(&exact, true, |s| contiguous(&distances, 10_000, 40, s));
        let gaps = coverage(&exact, false, |s| {
            sparse(&distances, 10_000, 60, (10_000, REFERENCES / 60), s)
        });
        for (how, (sampling, oracle, width)) in [("gapless", gapless), ("gaps", gaps)] {
            println!("{name} {how}: limit {sampling:.3}, oracle {oracle:.3}, width {width:.4}");
            // 24 repetitions of 27 sizes that move together: some points below the 0.9 of 200.
            assert!(
                sampling >= 0.8,
                "{name} {how}: sampling part covers {sampling}"
            );
            assert!(oracle >= 0.9, "{name} {how}: interval covers {oracle}");
        }
        assert!(gapless.2 <= 0.02, "{name}: median width {}", gapless.2);
    }
}

//! Whether the stated intervals hold what they say. The tables over all streams and 200
//! repetitions come from `benches/accuracy.rs`; here two streams and few repetitions
//! (`REPEATS=200` for as many as there).

use crate::common::{Sampler, contiguous, contiguous_by, sizes, sparse, sparse_by, stream};
use statcache_model::oracle::Trace;
use statcache_model::{CurvePoint, Options, Policy, Rng, Run, Stream, Window};

/// Repetitions by default.
const REPETITIONS: u64 = 24;
/// Samples of a run that stands for the estimator's large-sample limit, and how many are averaged.
const LIMIT: (usize, u64) = (160_000, 2);

fn repetitions() -> u64 {
    let wanted = std::env::var("REPEATS").ok().and_then(|n| n.parse().ok());
    wanted.unwrap_or(REPETITIONS)
}

/// Shares of points covered, and the median full width.
struct Coverage {
    /// The sampling part covers the mean of the repetitions.
    mean: f64,
    /// The sampling part covers the large-sample limit.
    limit: f64,
    /// The interval covers the exact value.
    oracle: f64,
    width: f64,
}

fn coverage(
    exact: &[f64],
    policy: Policy,
    contiguous: bool,
    make: impl Fn(u64, usize) -> Vec<Window>,
) -> Coverage {
    let curve = |seed, samples| -> Vec<CurvePoint> {
        let options = Options {
            contiguous,
            ..Options::default()
        };
        let run = Run::new(make(seed, samples), options).unwrap();
        run.curve(64, policy, Stream::Own, &sizes()).unwrap()
    };
    let curves: Vec<_> = (0..repetitions()).map(|seed| curve(seed, 10_000)).collect();
    let large: Vec<_> = (0..LIMIT.1).map(|k| curve(1_000 + k, LIMIT.0)).collect();
    let average = |curves: &[Vec<CurvePoint>], k: usize| {
        curves.iter().map(|c| c[k].miss_ratio).sum::<f64>() / curves.len() as f64
    };
    let n = (curves.len() * exact.len()) as f64;
    let (mut of, mut widths) = ([0.0; 3], Vec::new());
    for (k, &e) in exact.iter().enumerate() {
        let (mean, limit) = (average(&curves, k), average(&large, k));
        for p in curves.iter().map(|c| c[k]) {
            let near = |x: f64| (p.miss_ratio - x).abs() <= p.sampling_half_width;
            let inside = [near(mean), near(limit), p.low <= e && e <= p.high];
            for (sum, inside) in of.iter_mut().zip(inside) {
                *sum += f64::from(u8::from(inside)) / n;
            }
            widths.push(p.high - p.low);
        }
    }
    widths.sort_by(f64::total_cmp);
    let [mean, limit, oracle] = of;
    Coverage {
        mean,
        limit,
        oracle,
        width: widths[widths.len() / 2],
    }
}

fn exact_random(trace: &Trace) -> Vec<f64> {
    let ratio = |size: &u64| trace.random_miss_ratio(size / 64, None, 3);
    sizes().iter().map(ratio).collect()
}

#[test]
fn intervals_cover() {
    const REFERENCES: usize = 2_000_000;
    for name in ["stack", "phases"] {
        let trace = stream(name, REFERENCES, 7);
        let distances = trace.distances();
        let lines: Vec<u64> = sizes().iter().map(|s| s / 64).collect();
        let random = exact_random(&trace);
        for (policy, exact) in [
            (Policy::RANDOM, random),
            (Policy::LRU, trace.lru_curve(&lines)),
        ] {
            let gapless = coverage(&exact, policy, true, |s, n| {
                contiguous(&distances, n, 40, s)
            });
            let gaps = coverage(&exact, policy, false, |s, n| {
                sparse(&distances, n, 60, (10_000, REFERENCES / 60), s)
            });
            for (how, c) in [("gapless", &gapless), ("gaps", &gaps)] {
                println!(
                    "{name} {policy:?} {how}: sampling part covers mean {:.3}, limit {:.3}; interval covers oracle {:.3}; median width {:.4}",
                    c.mean, c.limit, c.oracle, c.width
                );
                // 24 repetitions of 27 sizes that move together: some points below the 0.9 of 200.
                assert!(
                    c.mean >= 0.8,
                    "{name} {how}: sampling part covers {}",
                    c.mean
                );
                assert!(
                    c.limit >= 0.75,
                    "{name} {how}: limit covered at {}",
                    c.limit
                );
                assert!(
                    c.oracle >= 0.9,
                    "{name} {how}: interval covers {}",
                    c.oracle
                );
            }
            let width = gapless.width;
            assert!(width <= 0.02, "{name}: median width {width}");
        }
    }
}

/// Samples that come in clusters witness for each other more often than others would: that is not taken for misses.
#[test]
fn clustered_samples_cover_too() {
    const REFERENCES: usize = 2_000_000;
    for name in ["stack", "phases"] {
        let trace = stream(name, REFERENCES, 7);
        let distances = trace.distances();
        let exact = exact_random(&trace);
        let by = |sampler| {
            let lengths = (10_000, REFERENCES / 60);
            [
                coverage(&exact, Policy::RANDOM, true, |s, n| {
                    contiguous_by(sampler, &distances, n, 40, s)
                }),
                coverage(&exact, Policy::RANDOM, false, |s, n| {
                    sparse_by(sampler, &distances, n, 60, lengths, s)
                }),
            ]
        };
        let (apart, together) = (by(Sampler::Independent), by(Sampler::Clustered));
        for (how, (apart, together)) in ["gapless", "gaps"].iter().zip(apart.iter().zip(&together))
        {
            println!(
                "{name} {how}: clustered covers mean {:.3}, limit {:.3}, oracle {:.3}, median width {:.4} (apart {:.3}, {:.4})",
                together.mean,
                together.limit,
                together.oracle,
                together.width,
                apart.oracle,
                apart.width
            );
            assert!(together.oracle >= 0.9, "{name} {how}: {}", together.oracle);
            // Eight samples that say much the same know as much as one: the root of eight.
            let widest = 8f64.sqrt() * apart.width;
            assert!(together.width <= widest, "{name} {how}: {widest}");
        }
    }
}

/// However samples are spread, of uniformly random accesses nothing is uncertain but what sampling is.
#[test]
fn the_samplers_pattern_is_not_taken_for_the_programs() {
    const LINES: u64 = 2_048;
    const REFERENCES: usize = 6_000_000;
    let mut rng = Rng::new(11);
    let trace = Trace::new((0..REFERENCES).map(|_| rng.below(LINES)));
    let distances = trace.distances();
    let caches = [LINES / 4, LINES / 2, LINES * 3 / 4];
    for (sampler, most) in [
        (Sampler::Independent, [0.01, 0.03]),
        (Sampler::Sixteen, [0.02, 0.12]),
        (Sampler::InTurns(40_000), [0.06, 0.12]),
        // Threads that begin when samples are rare.
        (Sampler::Late(40_000), [0.06, 0.12]),
    ] {
        for seed in 1..=3 {
            let options = Options {
                contiguous: true,
                ..Options::default()
            };
            let windows = contiguous_by(sampler, &distances, REFERENCES / 600, 40, seed);
            let run = Run::new(windows, options).unwrap();
            for (policy, most) in [Policy::Lru { ways: None }, Policy::Random { ways: None }]
                .into_iter()
                .zip(most)
            {
                let sizes = caches.map(|lines| 64 * lines);
                let curve = run.curve(64, policy, Stream::Own, &sizes).unwrap();
                for (point, lines) in curve.iter().zip(caches) {
                    let exact = 1.0 - lines as f64 / LINES as f64;
                    let at = format!("{sampler:?}, seed {seed}, {policy:?}: {exact} and {point:?}");
                    assert!(point.model_half_width < most, "{at}");
                    assert!((point.miss_ratio - exact).abs() < 0.03, "{at}");
                }
            }
        }
    }
}

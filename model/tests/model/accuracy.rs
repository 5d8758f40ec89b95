//! Sampled curves against exact simulation, 8 KiB to 64 MiB, 10,000 samples.

use crate::common::{ROUND_PART, Sampler, contiguous, contiguous_by, sizes, sparse, stream};
use statcache_model::oracle::Trace;
use statcache_model::{
    CurvePoint, Histogram, LineSize, Options, Policy, Run, Stream, Undecided, Weight, Window,
    random_miss_ratio,
};

const REFERENCES: usize = 4_000_000;
const SAMPLES: usize = 10_000;

fn run(windows: Vec<Window>, contiguous: bool) -> Run {
    Run::new(
        windows,
        Options {
            contiguous,
            ..Options::default()
        },
    )
    .unwrap()
}

fn lines() -> Vec<u64> {
    sizes().iter().map(|s| s / 64).collect()
}

fn exact(trace: &Trace, policy: Policy) -> Vec<f64> {
    match policy {
        Policy::Random { .. } => lines()
            .iter()
            .map(|&l| trace.random_miss_ratio(l, None, 5))
            .collect(),
        Policy::Lru { .. } => trace.lru_curve(&lines()),
    }
}

/// Mean absolute errors of the three forms (whole run, window-wise, time-varying) over four draws
/// of the samples: a single draw of 10,000 alone is off by up to half a point on the widest stream.
fn mean_errors(
    runs: impl Fn(u64) -> Run,
    policy: Policy,
    exact: &[f64],
    keep: impl Fn(u64) -> bool,
) -> [f64; 3] {
    const DRAWS: u64 = 4;
    let mut sums = [0.0; 3];
    for seed in 0..DRAWS {
        for (s, e) in sums
            .iter_mut()
            .zip(errors(&runs(seed), policy, exact, &keep))
        {
            *s += e / DRAWS as f64;
        }
    }
    sums
}

fn errors(run: &Run, policy: Policy, exact: &[f64], keep: impl Fn(u64) -> bool) -> [f64; 3] {
    let mut sums = [0.0; 3];
    let mut n = 0.0;
    for (bytes, e) in sizes().into_iter().zip(exact).filter(|(b, _)| keep(*b)) {
        let forms = run.forms(64, bytes, policy, Stream::Own).unwrap();
        for (s, f) in sums.iter_mut().zip(forms) {
            *s += (f - e).abs();
        }
        n += 1.0;
    }
    sums.map(|s| s / n)
}

#[test]
fn random_curves_within_half_a_point() {
    for name in ["sweep", "uniform", "zipf", "stack", "chase", "phases"] {
        let trace = stream(name, REFERENCES, 7);
        let exact = exact(&trace, Policy::RANDOM);
        let distances = trace.distances();
        let draw = |seed| run(contiguous(&distances, SAMPLES, 40, seed), true);
        let [whole, _, varying] = mean_errors(draw, Policy::RANDOM, &exact, |_| true);
        println!("{name:8} random: whole-run {whole:.4}, time-varying {varying:.4}");
        assert!(varying <= 0.005, "{name}: {varying}");
        if name == "phases" {
            assert!(whole > 0.01, "one equation must not do for phases: {whole}");
        }
    }
}

#[test]
fn lru_curves_away_from_edges() {
    for name in ["sweep", "uniform", "zipf", "stack", "chase", "phases"] {
        let trace = stream(name, REFERENCES, 7);
        let exact = exact(&trace, Policy::LRU);
        let distances = trace.distances();
        let draw = |seed| run(contiguous(&distances, SAMPLES, 40, seed), true);
        // Cyclic working sets in bytes; an edge is within 10 % of one.
        let cycle = match name {
            "sweep" => 20_000 * 64,
            "chase" => 40_008 * 64,
            "phases" => 10_000 * 64,
            _ => 0,
        };
        let edge = |b: u64| cycle > 0 && b.abs_diff(cycle) * 10 <= cycle;
        let [whole, _, varying] = mean_errors(draw, Policy::LRU, &exact, |b| !edge(b));
        println!("{name:8} lru: whole-run {whole:.4}, time-varying {varying:.4}");
        assert!(varying <= 0.005, "{name}: {varying}");
        if name == "phases" {
            assert!(varying < whole / 2.0, "phases: {varying} against {whole}");
        }
        // At the edge itself, reported: the cycle's own size and 2 % to each side.
        if cycle > 0 {
            let run = draw(1);
            for bytes in [cycle * 98 / 100, cycle, cycle * 102 / 100] {
                let p = run.curve(64, Policy::LRU, Stream::Own, &[bytes]).unwrap()[0];
                let e = trace.lru_curve(&[bytes / 64])[0];
                println!(
                    "   edge {bytes}: exact {e:.4}, estimated {:.4}",
                    p.miss_ratio
                );
            }
        }
    }
}

#[test]
fn windows_with_gaps() {
    for (name, bar) in [("sweep", 0.005), ("stack", 0.01), ("rare", 0.01)] {
        let trace = stream(name, REFERENCES, 7);
        let exact = exact(&trace, Policy::RANDOM);
        let windows = sparse(&trace.distances(), SAMPLES, 20, (10_000, 100_000), 1);
        let [_, _, varying] = errors(&run(windows, false), Policy::RANDOM, &exact, |_| true);
        println!("{name:8} random, 20 windows of 10K to 100K: {varying:.4}");
        assert!(varying <= bar, "{name}: {varying}");
    }
}

/// Windows shorter than the round they are of, each of which sees a part of it: reuses of a round's length were exposed to the other parts too.
#[test]
fn rounds_longer_than_windows() {
    let trace = stream("rounds", 4 * REFERENCES, 7);
    let distances = trace.distances();
    let windows = |seed| {
        let part = ROUND_PART;
        let short = sparse(&distances, 4 * SAMPLES, 40, (part / 2, part), seed);
        let long = sparse(&distances, 16 * SAMPLES, 40, (5 * part, 7 * part), seed);
        let one_in_four = |(w, (short, long))| if w % 4 == 0 { long } else { short };
        short
            .into_iter()
            .zip(long)
            .enumerate()
            .map(one_in_four)
            .collect::<Vec<Window>>()
    };
    // One that just holds all that a round touches.
    let holds = sizes().iter().position(|&s| s > 31_000 * 64).unwrap();
    for (policy, bar) in [(Policy::RANDOM, 0.01), (Policy::LRU, 0.05)] {
        let exact = exact(&trace, policy);
        let (mut misses, mut inside, mut all) = (0.0, 0, 0);
        for seed in 0..6 {
            let run = run(windows(seed), false);
            let curve = run.curve(64, policy, Stream::Own, &sizes()).unwrap();
            misses += curve[holds].miss_ratio / 6.0;
            let is_inside = |(p, e): &(&CurvePoint, &f64)| p.low <= **e && **e <= p.high;
            inside += curve.iter().zip(&exact).filter(is_inside).count();
            all += curve.len();
        }
        println!(
            "rounds {policy:?}: {misses:.4} for {:.4}, inside {inside} of {all}",
            exact[holds]
        );
        assert!(misses <= bar, "{policy:?}: {misses}");
        assert!(inside * 10 >= all * 9, "{policy:?}: {inside} of {all}");
    }
}

#[test]
fn caches_in_sets() {
    for name in ["zipf", "stack"] {
        let trace = stream(name, REFERENCES, 7);
        let run = run(contiguous(&trace.distances(), SAMPLES, 40, 1), true);
        for lines in [512u64, 4096] {
            for ways in [1u32, 2, 8] {
                // With few ways the hottest lines decide, and chance where they collide.
                let bar = if ways <= 2 { 0.03 } else { 0.015 };
                let size = [lines * 64];
                let e = trace.lru_miss_ratio(lines, ways);
                let policy = Policy::Lru { ways: Some(ways) };
                let p = run.curve(64, policy, Stream::Own, &size).unwrap()[0].miss_ratio;
                println!("{name} LRU {lines} lines {ways} ways: exact {e:.4}, estimated {p:.4}");
                assert!((e - p).abs() < bar, "{name} {lines} {ways}: {e} {p}");
                let e = trace.random_miss_ratio(lines, Some(ways), 3);
                let policy = Policy::Random { ways: Some(ways) };
                let p = run.curve(64, policy, Stream::Own, &size).unwrap()[0].miss_ratio;
                println!("{name} random {lines} lines {ways} ways: exact {e:.4}, estimated {p:.4}");
                assert!((e - p).abs() < bar, "{name} {lines} {ways}: {e} {p}");
            }
        }
    }
}

#[test]
fn many_small_windows_agree_with_a_large_one() {
    for name in ["stack", "uniform"] {
        let trace = stream(name, REFERENCES, 7);
        let distances = trace.distances();
        let drawn = |windows, seed| {
            let length = REFERENCES / windows;
            sparse(&distances, SAMPLES, windows, (length, length), seed)
        };
        let (one, small) = (drawn(1, 3), drawn(200, 4));
        assert!(small.iter().all(|w| w.samples.len() == 50));
        for policy in [Policy::RANDOM, Policy::LRU] {
            let curve = |windows: &[Window]| {
                let run = run(windows.to_vec(), false);
                run.curve(64, policy, Stream::Own, &sizes()).unwrap()
            };
            let mut widest: f64 = 0.0;
            for (a, b) in curve(&one).iter().zip(&curve(&small)) {
                // What 200 short windows are too short to see is an open interval.
                if b.undecided.is_none() {
                    widest = widest.max(b.high - b.low);
                }
                let inside = b.low <= a.miss_ratio && a.miss_ratio <= b.high;
                assert!(inside, "{name} {policy:?}: {a:?}\n{b:?}");
            }
            println!("{name} {policy:?}: 200 windows of 50, widest decided interval {widest:.4}");
            assert!(
                widest > 0.0 && widest < 0.05,
                "agreeing must mean something: {widest}"
            );
        }
    }
}

#[test]
fn windows_solved_one_by_one_would_not_agree() {
    let trace = stream("stack", REFERENCES, 7);
    let length = REFERENCES / 200;
    let windows = sparse(&trace.distances(), SAMPLES, 200, (length, length), 4);
    let exact = exact(&trace, Policy::RANDOM);
    let pooled = run(windows.clone(), false)
        .curve(64, Policy::RANDOM, Stream::Own, &sizes())
        .unwrap();
    let alone: Vec<_> = windows
        .iter()
        .map(|w| {
            let mut h = Histogram::new(LineSize::B64);
            w.samples.iter().for_each(|s| h.add(&s.own[2], Weight::ONE));
            h.survival()
        })
        .collect();
    let (mut by_pool, mut one_by_one) = (0.0, 0.0);
    for ((p, lines), exact) in pooled.iter().zip(lines()).zip(exact) {
        let solve = |s| random_miss_ratio(s, lines, Undecided::Never);
        let mean = alone.iter().map(solve).sum::<f64>() / alone.len() as f64;
        by_pool += (p.miss_ratio - exact).abs() / 27.0;
        one_by_one += (mean - exact).abs() / 27.0;
    }
    println!("mean error pooled {by_pool:.4}, each window solved alone {one_by_one:.4}");
    assert!(one_by_one > 2.0 * by_pool, "{one_by_one} against {by_pool}");
}

#[test]
fn stack_distances_follow_phases_better_than_one_distribution() {
    for name in ["phases", "scans", "bursts"] {
        let trace = stream(name, REFERENCES, 7);
        let exact = exact(&trace, Policy::LRU);
        let distances = trace.distances();
        let draw = |seed| run(contiguous(&distances, SAMPLES, 40, seed), true);
        let [whole, _, varying] = mean_errors(draw, Policy::LRU, &exact, |_| true);
        println!("{name:8} lru: whole-run StatStack {whole:.4}, time-varying {varying:.4}");
        assert!(varying < 0.9 * whole, "{name}: {varying} against {whole}");
    }
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let trace = stream("zipf", 200_000, 7);
    let windows = sparse(&trace.distances(), 2_000, 10, (5_000, 20_000), 1);
    let points = |seed| {
        let options = Options {
            seed,
            ..Options::default()
        };
        let run = Run::new(windows.clone(), options).unwrap();
        run.curve(64, Policy::RANDOM, Stream::Own, &sizes())
            .unwrap()
    };
    assert_eq!(points(1), points(1));
    assert_ne!(
        points(1),
        points(2),
        "the bootstrap must depend on the seed"
    );
}

#[test]
fn bounds_of_the_weights_widen_the_interval() {
    let trace = stream("phases", REFERENCES, 7);
    let mut windows = sparse(&trace.distances(), SAMPLES, 40, (10_000, 40_000), 1);
    let width = |windows: Vec<Window>| {
        let p = run(windows, false)
            .curve(64, Policy::RANDOM, Stream::Own, &[192 << 10])
            .unwrap()[0];
        p.high - p.low
    };
    let sure = width(windows.clone());
    for w in &mut windows {
        (w.stands_for.low, w.stands_for.high) =
            (w.stands_for.value * 0.5, w.stands_for.value * 1.5);
    }
    let unsure = width(windows);
    assert!(unsure > sure + 0.02, "{sure} {unsure}");
}

/// What two threads do in the same time is not known as well as what each does: where one hits and one misses, that is all there is to know.
#[test]
fn parts_of_unlike_threads_widen_the_interval() {
    let windows = |distance: u64, thread: u32| {
        let distances = vec![Some(distance); REFERENCES];
        let mut windows = sparse(&distances, SAMPLES, 40, (10_000, 40_000), 1);
        windows.iter_mut().for_each(|w| w.thread = thread);
        windows
    };
    let point = |near: u64, far: u64| {
        let mut all = windows(near, 1);
        all.extend(windows(far, 2));
        let curve = run(all, false).curve(64, Policy::LRU, Stream::Own, &[32 << 10]);
        curve.unwrap()[0]
    };
    let (alike, unlike) = (point(1, 1), point(1, 3_000));
    assert!(alike.high - alike.low < 0.05, "{alike:?}");
    assert!((0.4..0.6).contains(&unlike.miss_ratio), "{unlike:?}");
    assert!(unlike.high - unlike.low > 0.1, "{unlike:?}");
}

/// Reuses count where they end: those within a line just behind their sample, in its cluster; the far ones alone. A piece of the
/// run has more of the one or the other by chance, and the run has its mean all the same.
#[test]
fn samples_in_clusters_of_a_sweep() {
    const LINES: usize = 20_000;
    const TOUCHES: usize = 8;
    let n = REFERENCES;
    let next = |i: usize| match (i + 1) % TOUCHES {
        0 => TOUCHES * (LINES - 1),
        _ => 0,
    };
    let distances: Vec<Option<u64>> = (0..n)
        .map(|i| (i + next(i) + 1 < n).then(|| next(i) as u64))
        .collect();
    let size = [8 << 10];
    for policy in [Policy::RANDOM, Policy::LRU] {
        let told = |seed: u64| {
            let windows = contiguous_by(Sampler::Clustered, &distances, 100_000, 1, seed);
            let curve = run(windows, true).curve(64, policy, Stream::Own, &size);
            curve.unwrap()[0].miss_ratio
        };
        let mean = (0..4).map(told).sum::<f64>() / 4.0;
        let off = mean * TOUCHES as f64 - 1.0;
        println!(
            "{policy:?}: {:.2} % more misses than there are",
            100.0 * off
        );
        assert!(off.abs() < 0.01, "{policy:?}: {off}");
    }
}

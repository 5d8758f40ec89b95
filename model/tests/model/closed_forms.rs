//! Streams whose answer is known on paper, and the ends of every scale.

use statcache_model::{
    Estimate, Histogram, LineSize, Options, Outcome, Policy, Run, Sample, Stream, Trigger,
    Undecided, Weight, Window, lru_miss_ratio, random_miss_ratio,
};

fn reuses(distances: &[(u64, u64)], never: u64) -> Histogram {
    let mut h = Histogram::new(LineSize::B64);
    for &(distance, count) in distances {
        h.add_reuses(distance as f64, count, Weight::ONE);
    }
    h.add_never(never, Weight::ONE);
    h
}

fn random(h: &Histogram, lines: u64) -> f64 {
    random_miss_ratio(&h.survival(), lines, Undecided::Never)
}

fn lru(h: &Histogram, lines: u64) -> f64 {
    lru_miss_ratio(&h.survival(), lines, None, true)
}

#[test]
fn cyclic_sweep() {
    for w in [20u64, 1_000, 10_000] {
        let h = reuses(&[(w - 1, 1_000_000)], 0);
        for lines in [w / 2, w * 9 / 10, w * 3 / 4] {
            let r = random(&h, lines);
            let f = 1.0 - (1.0 - 1.0 / lines as f64).powf(r * (w - 1) as f64);
            assert!(
                (r - f).abs() < 1e-5 && r > 0.05,
                "W {w}, L {lines}: {r} solves to {f}"
            );
            assert_eq!(lru(&h, lines), 1.0, "LRU keeps nothing of a longer sweep");
        }
        assert!(random(&h, 2 * w) < 1e-6, "fits: no misses");
        assert_eq!(lru(&h, w * 11 / 10), 0.0, "fits: no misses");
    }
}

#[test]
fn uniform_random() {
    let n = 4_000f64;
    let mut h = Histogram::new(LineSize::B64);
    for d in 0..60_000u64 {
        let p = (1.0 - 1.0 / n).powf(d as f64) / n;
        h.add_reuses(d as f64, 1, Weight::new(p * 1e9).unwrap());
    }
    for share in [0.05, 0.2, 0.5, 0.8] {
        let lines = (n * share) as u64;
        assert!(
            (random(&h, lines) - (1.0 - share)).abs() < 0.002,
            "random at {share}"
        );
        assert!(
            (lru(&h, lines) - (1.0 - share)).abs() < 0.002,
            "LRU at {share}"
        );
    }
}

#[test]
fn streaming_and_hot_line() {
    for lines in [1, 2, 1 << 20] {
        let once = reuses(&[], 5_000);
        assert_eq!((random(&once, lines), lru(&once, lines)), (1.0, 1.0));
        let hot = reuses(&[(0, 5_000)], 0);
        assert!(random(&hot, lines) < 1e-6);
        assert_eq!(lru(&hot, lines), 0.0);
    }
}

#[test]
fn one_line_cache() {
    let h = reuses(&[(0, 600), (1, 300), (1 << 40, 100)], 0);
    assert!(
        (random(&h, 1) - 0.4).abs() < 1e-6,
        "only an adjacent reuse hits"
    );
    assert!((lru(&h, 1) - 0.4).abs() < 1e-6);
}

#[test]
fn distances_to_two_to_the_forty() {
    let h = reuses(&[(0, 500), (1 << 40, 500)], 0);
    assert!((random(&h, 1 << 20) - 0.5).abs() < 1e-3);
    assert!((lru(&h, 1 << 20) - 0.5).abs() < 1e-9);
    assert!(h.survival().at((1u64 << 39) as f64) - 0.5 < 1e-12);
}

fn window(outcomes: &[Outcome]) -> Window {
    let n = 1_000_000u64;
    let step = n / outcomes.len().max(1) as u64;
    Window {
        accesses: n,
        refs: [n; 5],
        stands_for: Estimate::exact(1e8),
        samples: outcomes
            .iter()
            .enumerate()
            .map(|(i, &o)| Sample {
                position: i as u64 * step,
                own: [o; 5],
                ..Sample::default()
            })
            .collect(),
        ..Window::default()
    }
}

#[test]
fn nothing_sampled_and_no_window() {
    for windows in [vec![], vec![window(&[])]] {
        for contiguous in [false, true] {
            let options = Options {
                contiguous,
                ..Options::default()
            };
            let run = Run::new(windows.clone(), options).unwrap();
            for policy in [Policy::RANDOM, Policy::LRU] {
                let p = run.curve(64, policy, Stream::Own, &[32768]).unwrap()[0];
                assert_eq!((p.low, p.high), (0.0, 1.0), "nothing is known");
                assert_eq!(p.weak.map(|w| w.samples), Some(0));
            }
            let a = run
                .attribute(64, 32768, Policy::RANDOM, Stream::Own, |s| s.instr)
                .unwrap();
            assert!(a.keys.is_empty());
        }
    }
}

#[test]
fn all_censored_is_undecided() {
    let outcomes = vec![Outcome::Censored { at: 500 }; 2_000];
    for contiguous in [false, true] {
        let options = Options {
            contiguous,
            ..Options::default()
        };
        let run = Run::new(vec![window(&outcomes)], options).unwrap();
        for policy in [Policy::RANDOM, Policy::LRU] {
            let p = run.curve(64, policy, Stream::Own, &[1 << 20]).unwrap()[0];
            let (low, high) = p.undecided.expect("the data do not decide");
            assert!(low < 0.01 && high > 0.99, "{p:?}");
            assert!(p.low < 0.01 && p.high > 0.99, "{p:?}");
        }
    }
}

#[test]
fn undecided_only_where_it_matters() {
    // Half adjacent, half cut at 1,000: a cache of 8 lines has lost them by then, a large one not.
    let o: Vec<Outcome> = (0..4_000)
        .map(|i| match i % 2 {
            0 => Outcome::Reused {
                distance: 0,
                trigger: Trigger::default(),
            },
            _ => Outcome::Censored { at: 1_000 },
        })
        .collect();
    let run = Run::new(vec![window(&o)], Options::default()).unwrap();
    let c = run
        .curve(64, Policy::RANDOM, Stream::Own, &[512, 4 << 20])
        .unwrap();
    assert_eq!(c[0].undecided, None);
    assert!((c[0].miss_ratio - 0.5).abs() < 0.01, "{:?}", c[0]);
    let (low, high) = c[1].undecided.expect("undecided");
    assert!(low < 0.01 && (high - 0.5).abs() < 0.01, "{:?}", c[1]);
}

//! The estimators one by one: product limit, bins, merging, weights, spliced tails, line sizes.

use statcache_model::{
    Estimate, Histogram, LineSize, Options, Outcome, Policy, Rng, Run, Sample, Stream, Trigger,
    Undecided, Weight, Window, bins, random_miss_ratio,
};

fn reused(distance: u64) -> Outcome {
    Outcome::Reused {
        distance,
        trigger: Trigger::default(),
    }
}

#[test]
fn product_limit_and_greenwood_by_hand() {
    let mut h = Histogram::new(LineSize::B64);
    let outcomes = [
        reused(2),
        reused(5),
        Outcome::Censored { at: 5 },
        Outcome::Censored { at: 7 },
        reused(9),
        reused(12),
        Outcome::NeverReused { at: 30 },
        Outcome::Censored { at: 30 },
    ];
    outcomes.iter().for_each(|o| h.add(o, Weight::ONE));
    let s = h.survival();
    // At risk: 8 at 2; 7 at 5, one of them cut at 5 and so at risk below 5 only (d >= 5): 6; 4 at 9
    // and 3 at 12.
    let steps = [7.0 / 8.0, 5.0 / 6.0, 3.0 / 4.0, 2.0 / 3.0];
    let mut expected = 1.0;
    let mut greenwood = 0.0;
    for ((at, factor), risk) in [2.0, 5.0, 9.0, 12.0]
        .iter()
        .zip(steps)
        .zip([8.0, 6.0, 4.0, 3.0])
    {
        expected *= factor;
        greenwood += (1.0 - factor) / (factor * risk);
        assert!(
            (s.at(*at) - expected).abs() < 1e-12,
            "S({at}) {}",
            s.at(*at)
        );
        let variance = expected * expected * greenwood;
        assert!(
            (s.variance_at(*at) - variance).abs() < 1e-12,
            "variance at {at}"
        );
    }
    // Of the two left at 30 one was cut there, so one is at risk: all that is left ends with it.
    assert!((s.never - expected).abs() < 1e-12, "{}", s.never);
    assert_eq!(s.undecided, 0.0);
}

#[test]
fn the_end_of_the_process_competes_with_the_reuses() {
    // Eight watches; two of them were still open when the process ended after 10, two were cut at 15.
    let mut h = Histogram::new(LineSize::B64);
    for o in [
        reused(4),
        reused(4),
        Outcome::NeverReused { at: 10 },
        Outcome::NeverReused { at: 10 },
        Outcome::Censored { at: 15 },
        Outcome::Censored { at: 15 },
        reused(20),
        Outcome::Censored { at: 25 },
    ] {
        h.add(&o, Weight::ONE);
    }
    let s = h.survival();
    // The cut ones say nothing of what ended before; their weight goes to the two still followed.
    assert!((s.never - 0.25).abs() < 1e-12, "{}", s.never);
    assert!((s.at(19.0) - 0.75).abs() < 1e-12, "{}", s.at(19.0));
    assert!((s.at(20.0) - 0.5).abs() < 1e-12, "{}", s.at(20.0));
    assert!((s.undecided - 0.25).abs() < 1e-12, "{}", s.undecided);
}

#[test]
fn weights_count_as_so_many_samples() {
    let (mut once, mut twice) = (Histogram::new(LineSize::B64), Histogram::new(LineSize::B64));
    let two = Weight::new(2.0).unwrap();
    for o in [
        reused(3),
        reused(40),
        Outcome::Censored { at: 20 },
        reused(900),
    ] {
        once.add(&o, two);
        twice.add(&o, Weight::ONE);
        twice.add(&o, Weight::ONE);
    }
    for t in [0.0, 3.0, 10.0, 50.0, 1_000.0] {
        assert!(
            (once.survival().at(t) - twice.survival().at(t)).abs() < 0.02,
            "at {t}"
        );
    }
    assert_eq!(once.weight(), twice.weight());
    assert_eq!(
        (once.effective_samples(), twice.effective_samples()),
        (4.0, 8.0)
    );
}

#[test]
fn merged_halves_are_the_whole() {
    let mut rng = Rng::new(5);
    let mut parts = [Histogram::new(LineSize::B64), Histogram::new(LineSize::B64)];
    let mut whole = Histogram::new(LineSize::B64);
    for i in 0..5_000 {
        let d = (1e6f64.powf(rng.unit()) - 1.0) as u64;
        let o = match i % 10 {
            0 => Outcome::Censored { at: d },
            1 => Outcome::NeverReused { at: d },
            _ => reused(d),
        };
        parts[i % 2].add(&o, Weight::ONE);
        whole.add(&o, Weight::ONE);
    }
    let [mut merged, other] = parts;
    merged.merge(&other, Weight::ONE).unwrap();
    assert_eq!(merged.samples(), whole.samples());
    for t in 0..20 {
        let t = 2f64.powi(t);
        assert!(
            (merged.survival().at(t) - whole.survival().at(t)).abs() < 1e-9,
            "at {t}"
        );
    }
}

#[test]
fn bins_cost_less_than_they_say_and_do_not_grow() {
    let mut rng = Rng::new(11);
    let distances: Vec<f64> = (0..50_000)
        .map(|_| (1e8f64.powf(rng.unit().powi(2)) - 1.0).floor())
        .collect();
    let mut h = Histogram::new(LineSize::B64);
    for &d in &distances {
        h.add(&reused(d as u64), Weight::ONE);
    }
    let survival = h.survival();
    assert!(survival.steps.len() <= bins::BINS);
    let mut worst: f64 = 0.0;
    for lines in (0..20).map(|k| 2u64 << k) {
        let rate = -(1.0 - 1.0 / lines as f64).ln();
        let mut exact = 1.0;
        for _ in 0..400 {
            let f = |d: &f64| 1.0 - (-rate * d * exact).exp();
            exact = distances.iter().map(f).sum::<f64>() / distances.len() as f64;
        }
        let binned = random_miss_ratio(&survival, lines, Undecided::Never);
        worst = worst.max((binned - exact).abs());
    }
    println!("largest error of the bins: {worst:.6}");
    assert!(worst < 0.0005, "{worst}");
}

/// Windows of `refs` references and `samples` samples, spread evenly, outcomes by the closure.
fn window(start: f64, refs: u64, samples: u64, stands_for: f64, o: impl Fn(u64) -> u64) -> Window {
    Window {
        start,
        thread: 0,
        accesses: refs,
        refs: [refs; 5],
        stands_for: Estimate::exact(stands_for),
        samples: (0..samples)
            .map(|i| {
                let position = i * refs / samples;
                let distance = o(i);
                let outcome = if position + distance + 1 < refs {
                    reused(distance)
                } else {
                    Outcome::Censored {
                        at: refs - position - 1,
                    }
                };
                Sample {
                    position,
                    own: [outcome; 5],
                    ..Sample::default()
                }
            })
            .collect(),
        ..Window::default()
    }
}

#[test]
fn windows_are_weighed_by_what_they_stand_for_or_alike() {
    // Half the windows never leave one line, half never come back within the cache.
    let windows = |heavy: f64| -> Vec<Window> {
        (0..20)
            .map(|w| {
                let (distance, stands_for) = if w < 10 { (0, heavy) } else { (10_000, 1e8) };
                window(f64::from(w), 1_000_000, 1_000, stands_for, |_| distance)
            })
            .collect()
    };
    let ratio = |plain_mean, heavy| {
        let options = Options {
            plain_mean,
            footprint_bytes: Some(64 << 10),
            ..Options::default()
        };
        let run = Run::new(windows(heavy), options).unwrap();
        run.curve(64, Policy::LRU, Stream::Own, &[64 * 64]).unwrap()[0].miss_ratio
    };
    assert!(
        (ratio(false, 9e8) - 0.1).abs() < 0.02,
        "{}",
        ratio(false, 9e8)
    );
    assert!(
        (ratio(true, 9e8) - 0.5).abs() < 0.02,
        "{}",
        ratio(true, 9e8)
    );
}

#[test]
fn long_windows_lend_their_tail() {
    // Two of three references come back after 20,000, which the short windows are too short to see.
    let distance = |i: u64| if i.is_multiple_of(3) { 1 } else { 20_000 };
    let short = |w: u32| window(f64::from(w), 5_000, 200, 1e7, distance);
    let decided = |long: bool| {
        let mut windows: Vec<Window> = (0..20).map(short).collect();
        if long {
            windows.push(window(20.0, 400_000, 400, 1e7, distance));
        }
        let options = Options {
            from_start: false,
            ..Options::default()
        };
        let run = Run::new(windows, options).unwrap();
        // Some 13,000 other lines lie between the touches: 32,768 lines keep them all.
        let p = run
            .curve(64, Policy::LRU, Stream::Own, &[32_768 * 64])
            .unwrap()[0];
        let (low, high) = p.undecided.unwrap_or((0.0, 0.0));
        assert_eq!(high - low < 0.01, long, "{p:?}");
        (p.miss_ratio, p.high)
    };
    let (ratio, _) = decided(true);
    assert!(ratio < 0.01, "{ratio}");
    let (_, high) = decided(false);
    assert!(high > 0.6, "all that was cut may be misses: {high}");
}

#[test]
fn each_line_size_has_its_own_answer() {
    // One pass over memory, eight bytes at a time: the first touch of each line misses.
    let n = 4_000u64;
    let samples = (0..n)
        .map(|i| Sample {
            position: i * 250,
            own: LineSize::ALL.map(|line| {
                let per_line = u64::from(line.bytes()) / 8;
                if i % per_line == per_line - 1 {
                    Outcome::NeverReused {
                        at: (n - i) * 250 - 1,
                    }
                } else {
                    reused(0)
                }
            }),
            ..Sample::default()
        })
        .collect();
    let window = Window {
        accesses: n * 250,
        refs: [n * 250; 5],
        stands_for: Estimate::exact((n * 250) as f64),
        samples,
        ..Window::default()
    };
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(vec![window], options).unwrap();
    for line in [16u64, 32, 64, 128, 256] {
        for policy in [Policy::RANDOM, Policy::LRU, Policy::Lru { ways: Some(8) }] {
            let p = run.curve(line, policy, Stream::Own, &[1 << 20]).unwrap()[0];
            let exact = 8.0 / line as f64;
            assert!((p.miss_ratio - exact).abs() < 0.002, "{line} B: {p:?}");
            assert!(p.low <= exact && exact <= p.high, "{line} B: {p:?}");
        }
    }
}

/// Forty windows, of reuses that hit and of ones that miss in turn. Where looks tell how much of the run was of which kind that is better known than
/// by the windows, the better the more looks there were in either.
#[test]
fn looks_between_windows_narrow_what_they_leave_open() {
    let width = |looks: [Option<f64>; 2]| {
        let window = |n: usize| {
            let samples = (0..200).map(|i| Sample {
                position: 50_000 * i,
                own: [reused([10, 1 << 30][n % 2]); 5],
                ..Sample::default()
            });
            Window {
                start: n as f64,
                accesses: 10_000_000,
                refs: [10_000_000; 5],
                stands_for: Estimate::exact(1e10),
                looks: looks[n % 2],
                samples: samples.collect(),
                ..Window::default()
            }
        };
        let run = Run::new((0..40).map(window).collect(), Options::default()).unwrap();
        let point = run.curve(64, Policy::RANDOM, Stream::Own, &[1 << 20]);
        let point = point.unwrap()[0];
        assert!((point.miss_ratio - 0.5).abs() < 0.01, "{point:?}");
        point.high - point.low
    };
    let open = width([None, None]);
    let told = width([Some(100.0), Some(100.0)]);
    assert!(told < 0.6 * open, "{told} of {open}");
    // What is fast has half of the accesses, and few looks fall there.
    let few = width([Some(0.5), Some(100.0)]);
    assert!(few > 1.5 * told, "{few} and {told}");
    // Of some windows it is not known.
    assert_eq!(width([None, Some(100.0)]), open);
}

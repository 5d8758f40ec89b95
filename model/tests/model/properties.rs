//! Whatever comes in, what goes out is a number between its bounds.

use proptest::prelude::*;
use statcache_model::{
    Estimate, FirstTouch, FirstTouches, Histogram, LineSize, Options, Outcome, Policy, Remote, Run,
    Sample, Since, Stream, Trigger, Undecided, Weight, Window, lru_miss_ratio, random_miss_ratio,
};

fn outcome() -> impl Strategy<Value = Outcome> {
    let distance = prop_oneof![0u64..40, 0u64..100_000, any::<u64>().prop_map(|x| x >> 24)];
    (0u8..8, distance).prop_map(|(kind, d)| match kind {
        0 => Outcome::Censored { at: d },
        1 => Outcome::NeverReused { at: d },
        2 => Outcome::NotFollowed,
        k => Outcome::Reused {
            distance: d,
            trigger: Trigger {
                instr: u32::from(k),
                ..Trigger::default()
            },
        },
    })
}

fn remote() -> impl Strategy<Value = Option<Box<[Remote; 5]>>> {
    prop::option::of(any::<[bool; 3]>().prop_map(|[read, written, disjoint]| {
        Box::new(
            [Remote {
                read,
                written,
                disjoint,
            }; 5],
        )
    }))
}

/// Any size of quantity, from nothing to the end of what a double tells apart.
fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        0.0f64..1e3,
        0.0f64..1e12,
        (-300.0f64..30.0).prop_map(|e| 10f64.powf(e)),
        Just(1e30),
    ]
}

fn window(all: bool) -> impl Strategy<Value = Window> {
    let sample = (
        any::<u16>(),
        prop::array::uniform5(outcome()),
        prop::array::uniform5(outcome()),
        remote(),
    );
    let refs = prop_oneof![1u64..1 << 10, 1u64..1 << 34, any::<u64>()];
    let start = prop_oneof![
        0.0f64..10.0,
        any::<f64>().prop_filter("finite", |x| x.is_finite())
    ];
    let samples = prop::collection::vec(sample, 0..40);
    let first = (
        prop::collection::vec(any::<u16>(), 0..20),
        amount(),
        0u64..4,
    );
    let first = prop::option::of(first);
    (samples, refs, amount(), start, 0u32..3, first).prop_map(
        move |(samples, refs, value, start, thread, first)| {
            let refs = refs.max(1);
            let touch = |&position: &u16| FirstTouch {
                position: u64::from(position).min(refs),
                instr: u32::from(position) % 7,
                data: 0,
                since: match position % 3 {
                    0 => Since::AtLeast(refs / (1 + u64::from(position))),
                    _ => Since::Between(u64::from(position), refs),
                },
            };
            Window {
                start,
                thread,
                accesses: refs,
                refs: [refs; 5],
                stands_for: Estimate {
                    value,
                    low: value / 2.0,
                    high: (value * 2.0).min(1e30),
                },
                looks: (refs % 3 > 0).then_some(value / 1e6),
                samples: samples
                    .into_iter()
                    .map(|(position, own, others, remote)| Sample {
                        position: u64::from(position).min(refs),
                        own,
                        all: all.then(|| Box::new(others)),
                        remote,
                        ..Sample::default()
                    })
                    .collect(),
                first_touches: first.map(|(touches, each, epochs)| FirstTouches {
                    touches: touches.iter().map(touch).collect(),
                    each,
                    epochs: (0..epochs).map(|n| refs / 4 * n).collect(),
                }),
            }
        },
    )
}

fn windows() -> impl Strategy<Value = (Vec<Window>, bool)> {
    any::<bool>().prop_flat_map(|all| (prop::collection::vec(window(all), 0..6), Just(all)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn answers_are_ordered_numbers(
        (windows, all) in windows(),
        contiguous: bool,
        from_start: bool,
        plain_mean: bool,
        footprint_bytes in prop::option::of(any::<u64>()),
        unseen in prop_oneof![Just(0.0), 0.0..1e12],
        overlooked in prop_oneof![Just(0.0), 0.0..1e12],
        line in 0usize..5,
        any_size: u64,
        ways in prop::option::of(1u32..9),
    ) {
        let line = 16u64 << line;
        let options = Options { contiguous, from_start, plain_mean, seed: 3, footprint_bytes, unseen, overlooked };
        let run = Run::new(windows, options).unwrap();
        let smallest = line * u64::from(ways.unwrap_or(1));
        let sizes = [smallest, line * 9, 1 << 14, 1 << 20, 1 << 26, 1 << 40, any_size.max(smallest)];
        if let Some(c) = run.coherence(line).unwrap() {
            let shares = [c.private, c.shared, c.coherence, c.miss_ratio, c.disjoint];
            prop_assert!(shares.iter().all(|s| (0.0..=1.0).contains(s)), "{c:?}");
            prop_assert!(c.interval.0 <= c.coherence && c.coherence <= c.interval.1, "{c:?}");
            for r in run.rivalries(line, |lost| lost.at.instr).unwrap() {
                let shares = [r.share, r.miss_ratio, r.disjoint];
                prop_assert!(shares.iter().all(|s| (0.0..=1.0).contains(s)), "{r:?}");
            }
        }
        let other = if all { Stream::All } else { Stream::Own };
        for (policy, stream) in [
            (Policy::Random { ways }, other),
            (Policy::Lru { ways }, other),
            (Policy::Random { ways }, Stream::Private),
            (Policy::Lru { ways }, Stream::Private),
        ] {
            for p in run.curve(line, policy, stream, &sizes).unwrap() {
                prop_assert!(0.0 <= p.low && p.low <= p.miss_ratio, "{p:?}");
                prop_assert!(p.miss_ratio <= p.high && p.high <= 1.0, "{p:?}");
                prop_assert!(p.sampling_half_width >= 0.0 && p.model_half_width >= 0.0, "{p:?}");
                prop_assert!(p.sampling_half_width.is_finite() && p.model_half_width.is_finite());
            }
            for t in run.threads(line, 1 << 16, policy, |s| s.instr).unwrap() {
                let shares = [t.private, t.shared, t.coherence, t.private_miss_ratio, t.disjoint];
                prop_assert!(shares.iter().all(|s| (0.0..=1.0).contains(s)), "{t:?}");
            }
            if line > 16
                && let Some(used) = run.spatial_use(16, line, 1 << 16, policy, stream).unwrap()
            {
                prop_assert!((0.0..=1.0).contains(&used), "{used}");
            }
            let a = run.attribute(line, 1 << 16, policy, stream, |s| s.instr).unwrap();
            prop_assert!((0.0..=1.0).contains(&a.miss_ratio), "{}", a.miss_ratio);
            let (mut access, mut miss) = (0.0, a.unattributed_share);
            for k in &a.keys {
                prop_assert!(k.low <= k.miss_ratio && k.miss_ratio <= k.high, "{k:?}");
                prop_assert!(k.misses.is_finite() && k.references.is_finite(), "{k:?}");
                access += k.access_share;
                miss += k.miss_share;
            }
            prop_assert!(a.keys.is_empty() || access == 0.0 || (access - 1.0).abs() < 1e-6, "{access}");
            prop_assert!(miss < 1.0 + 1e-6, "{miss}");
        }
    }

    #[test]
    fn distributions_stay_between_nothing_and_all(
        samples in prop::collection::vec((outcome(), amount()), 0..60),
        lines in prop_oneof![1u64..100, any::<u64>().prop_map(|x| x.max(1))],
        ways in prop::option::of(1u32..9),
    ) {
        let mut h = Histogram::new(LineSize::B64);
        for (o, w) in &samples {
            h.add(o, Weight::new(*w).unwrap());
        }
        let s = h.survival();
        let mut last = 1.0;
        for t in (0..60).map(|k| (1u64 << k) as f64) {
            prop_assert!((0.0..=last).contains(&s.at(t)), "S({t}) = {}", s.at(t));
            prop_assert!(s.variance_at(t) >= 0.0, "{}", s.variance_at(t));
            last = s.at(t);
        }
        for undecided in [Undecided::AtHorizon, Undecided::Never, Undecided::At(1e9)] {
            let r = random_miss_ratio(&s, lines, undecided);
            prop_assert!((0.0..=1.0).contains(&r), "random {r}");
        }
        for misses in [false, true] {
            let r = lru_miss_ratio(&s, lines, ways, misses);
            prop_assert!((0.0..=1.0).contains(&r), "LRU {r}");
        }
    }
}

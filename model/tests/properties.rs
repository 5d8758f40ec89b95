//! Whatever comes in, what goes out is a number between its bounds.

use proptest::prelude::*;
use statcache_model::{Estimate, Options, Outcome, Policy, Run, Sample, Stream, Trigger, Window};

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

fn window() -> impl Strategy<Value = Window> {
    let samples = prop::collection::vec((any::<u16>(), prop::array::uniform5(outcome())), 0..40);
    (samples, 1u64..1 << 34, 0.0f64..1e12, 0.0f64..10.0).prop_map(
        |(samples, refs, value, start)| {
            let refs = refs.max(1 << 16);
            Window {
                start,
                thread: 0,
                accesses: refs,
                refs: [refs; 5],
                stands_for: Estimate {
                    value,
                    low: value / 2.0,
                    high: value * 2.0,
                },
                samples: samples
                    .into_iter()
                    .map(|(position, own)| Sample {
                        position: u64::from(position),
                        own,
                        ..Sample::default()
                    })
                    .collect(),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn answers_are_ordered_numbers(
        windows in prop::collection::vec(window(), 0..6),
        contiguous: bool,
        from_start: bool,
        plain_mean: bool,
        line in 0usize..5,
        ways in prop::option::of(1u32..9),
    ) {
        let line = 16u64 << line;
        let options = Options { contiguous, from_start, plain_mean, seed: 3 };
        let run = Run::new(windows, options).unwrap();
        let sizes = [line * 8, line * 9, 1 << 14, 1 << 20, 1 << 26, 1 << 40];
        for policy in [Policy::Random { ways }, Policy::Lru { ways }] {
            for p in run.curve(line, policy, Stream::Own, &sizes).unwrap() {
                prop_assert!(0.0 <= p.low && p.low <= p.miss_ratio, "{p:?}");
                prop_assert!(p.miss_ratio <= p.high && p.high <= 1.0, "{p:?}");
                prop_assert!(p.sampling_half_width >= 0.0 && p.model_half_width >= 0.0, "{p:?}");
                prop_assert!(p.sampling_half_width.is_finite() && p.model_half_width.is_finite());
            }
            let a = run.attribute(line, 1 << 16, policy, Stream::Own, |s| s.instr).unwrap();
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
}

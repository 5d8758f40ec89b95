//! Bad input is a typed error that names the value.

use statcache_model::{
    Estimate, Histogram, LineSize, ModelError, Options, Outcome, Policy, Run, Sample, Stream,
    Trigger, Weight, Window,
};

fn run() -> Run {
    Run::new(vec![], Options::default()).unwrap()
}

fn curve_error(line: u64, size: u64, policy: Policy) -> String {
    run()
        .curve(line, policy, Stream::Own, &[size])
        .unwrap_err()
        .to_string()
}

#[test]
fn caches() {
    assert!(curve_error(48, 32768, Policy::RANDOM).contains("48 bytes is not a power of two"));
    assert!(curve_error(512, 32768, Policy::RANDOM).contains("512 bytes is not followed"));
    assert!(curve_error(64, 63, Policy::LRU).contains("63 bytes is smaller than one line of 64"));
    let ways = Policy::Lru { ways: Some(0) };
    assert!(curve_error(64, 4096, ways).starts_with("0 ways"));
    let ways = Policy::Random { ways: Some(65) };
    assert!(curve_error(64, 4096, ways).starts_with("65 ways do not fit a cache of 64 lines"));
    let whole = Policy::Lru { ways: Some(64) };
    assert!(
        run().curve(64, whole, Stream::Own, &[4096]).is_ok(),
        "64 ways in 64 lines are fine"
    );
}

#[test]
fn weights() {
    for value in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            Weight::new(value),
            Err(ModelError::BadWeight { .. })
        ));
        let stands_for = Estimate {
            value,
            low: 0.0,
            high: 1.0,
        };
        let e = Run::new(
            vec![Window {
                stands_for,
                ..Window::default()
            }],
            Options::default(),
        );
        let message = e.unwrap_err().to_string();
        assert!(message.contains(&value.to_string()), "{message}");
    }
    let stands_for = Estimate {
        value: 5.0,
        low: 6.0,
        high: 7.0,
    };
    let e = Run::new(
        vec![Window {
            stands_for,
            ..Window::default()
        }],
        Options::default(),
    );
    assert!(matches!(e, Err(ModelError::BadBounds { value: 5.0, .. })));
}

#[test]
fn samples() {
    let sample = Sample {
        position: 11,
        ..Sample::default()
    };
    let w = Window {
        refs: [10; 5],
        samples: vec![sample],
        ..Window::default()
    };
    let e = Run::new(vec![w], Options::default()).unwrap_err();
    assert_eq!(
        e,
        ModelError::PositionOutsideWindow {
            window: 0,
            position: 11,
            refs: 10
        }
    );
    let mut own = [Outcome::NotFollowed; 5];
    own[4] = Outcome::Censored { at: 3 };
    let w = Window {
        accesses: 10,
        refs: [10, 10, 10, 10, 0],
        samples: vec![Sample {
            own,
            ..Sample::default()
        }],
        ..Window::default()
    };
    let e = Run::new(vec![w], Options::default()).unwrap_err();
    assert_eq!(
        e,
        ModelError::NoReferences {
            window: 0,
            line_bytes: 256
        }
    );
}

#[test]
fn all_thread_outcomes_need_references_too() {
    let mut all = [Outcome::NotFollowed; 5];
    all[0] = Outcome::Censored { at: 3 };
    let w = Window {
        accesses: 10,
        refs: [0, 10, 10, 10, 10],
        samples: vec![Sample {
            all: Some(Box::new(all)),
            ..Sample::default()
        }],
        ..Window::default()
    };
    let e = Run::new(vec![w], Options::default()).unwrap_err();
    let line_bytes = 16;
    assert_eq!(
        e,
        ModelError::NoReferences {
            window: 0,
            line_bytes
        }
    );
}

#[test]
fn weights_that_no_run_has() {
    // Their sums and squares would no longer be numbers.
    for value in [1e40, f64::MAX] {
        let w = Window {
            stands_for: Estimate::exact(value),
            ..Window::default()
        };
        let e = Run::new(vec![w], Options::default()).unwrap_err();
        assert!(matches!(e, ModelError::WeightTooLarge { .. }), "{e}");
        assert!(e.to_string().contains(&value.to_string()), "{e}");
    }
}

#[test]
fn streams_and_line_sizes() {
    let w = Window {
        accesses: 10,
        refs: [10; 5],
        samples: vec![Sample::default()],
        ..Window::default()
    };
    let run = Run::new(vec![w], Options::default()).unwrap();
    let e = run
        .curve(64, Policy::RANDOM, Stream::All, &[4096])
        .unwrap_err();
    assert_eq!(e, ModelError::NoAllThreadOutcomes);
    let mut a = Histogram::new(LineSize::B64);
    let e = a
        .merge(&Histogram::new(LineSize::B32), Weight::ONE)
        .unwrap_err();
    assert_eq!(e, ModelError::MixedLineSizes(64, 32));
}

#[test]
fn references_that_no_sample_stands_for() {
    let told = |refs: f64| {
        let sample = |position| Sample {
            position,
            refs: Some(refs),
            own: [Outcome::Reused {
                distance: 3,
                trigger: Trigger::default(),
            }; 5],
            ..Sample::default()
        };
        let window = |start| Window {
            start,
            accesses: 100,
            refs: [100; 5],
            stands_for: Estimate::exact(100.0),
            samples: (0..20).map(sample).collect(),
            ..Window::default()
        };
        let options = Options {
            contiguous: true,
            ..Options::default()
        };
        Run::new(vec![window(0.0), window(1.0)], options)
    };
    for refs in [f64::NAN, -1.0] {
        assert!(matches!(
            told(refs).unwrap_err(),
            ModelError::BadWeight { .. }
        ));
    }
    for refs in [0.0, 1e-320, 1e-300, 5.0] {
        let run = told(refs).unwrap();
        for policy in [Policy::RANDOM, Policy::LRU] {
            let points = run.curve(64, policy, Stream::Own, &[4096]).unwrap();
            let point = &points[0];
            assert!(
                point.low <= point.miss_ratio && point.miss_ratio <= point.high,
                "{refs}: {point:?}"
            );
        }
    }
}

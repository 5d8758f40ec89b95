//! Watches given up because of their line: intervals that hold whatever those lines did.

use crate::common::{contiguous, sizes, sparse};
use statcache_model::oracle::Trace;
use statcache_model::{
    CurvePoint, KeyFigures, Options, Outcome, Policy, Rng, Run, Stream, Trigger, Window,
};

/// References of the stream.
const LENGTH: usize = 1_000_000;
/// Lines from here on belong to the second object.
const SECOND: u64 = 1 << 32;

/// Two objects: one touched with skew, one by and by; three references in five go to the first.
fn references() -> Vec<u64> {
    let mut rng = Rng::new(11);
    let mut next = 0;
    (0..LENGTH)
        .map(|_| {
            if rng.below(5) < 3 {
                (rng.unit().powi(4) * 50_000.0) as u64
            } else {
                next += 1;
                SECOND + next % 6_000
            }
        })
        .collect()
}

/// Names the object of each sample as its data, its instruction and its trigger.
fn name(windows: &mut [Window], lines: &[u64], start_of: impl Fn(usize) -> usize) {
    for (w, window) in windows.iter_mut().enumerate() {
        let start = start_of(w);
        for s in &mut window.samples {
            let object = u32::from(lines[start + s.position as usize] >= SECOND);
            (s.data, s.instr) = (object, object);
            if let Outcome::Reused { trigger, .. } = &mut s.own[2] {
                *trigger = Trigger {
                    instr: object,
                    ..Trigger::default()
                };
            }
        }
    }
}

/// Gives up watches of the first object: half of those whose line comes back after `range`
/// references, at `cut`.
fn give_up(windows: &mut [Window], range: std::ops::Range<u64>, cut: u64, flagged: bool) -> f64 {
    let mut rng = Rng::new(5);
    let (mut lost, mut all) = (0.0, 0.0);
    for s in windows.iter_mut().flat_map(|w| &mut w.samples) {
        all += 1.0;
        let length = match s.own[2] {
            Outcome::Reused { distance, .. } => distance,
            Outcome::NeverReused { at } | Outcome::Censored { at } => at,
            Outcome::NotFollowed => 0,
        };
        if s.data == 0 && range.contains(&length) && rng.below(2) == 0 {
            s.own[2] = Outcome::Censored { at: cut };
            s.given_up = flagged;
            lost += 1.0;
        }
    }
    lost / all
}

fn run(windows: Vec<Window>, contiguous: bool) -> Run {
    let options = Options {
        contiguous,
        ..Options::default()
    };
    Run::new(windows, options).unwrap()
}

fn curve(run: &Run, policy: Policy) -> Vec<CurvePoint> {
    run.curve(64, policy, Stream::Own, &sizes()).unwrap()
}

/// Sizes at which `truth` lies outside of what `points` vouch for.
fn outside(points: &[CurvePoint], truth: &[CurvePoint]) -> usize {
    let pairs = points.iter().zip(truth);
    pairs
        .filter(|(p, t)| t.miss_ratio < p.low || p.high < t.miss_ratio)
        .count()
}

fn keys(run: &Run, bytes: u64) -> Vec<KeyFigures<u32>> {
    let by_data = run.attribute(64, bytes, Policy::RANDOM, Stream::Own, |site| site.data);
    let mut keys = by_data.unwrap().keys;
    keys.sort_by_key(|k| k.key);
    keys
}

/// Watches that would have seen long distances, and such that would have seen short ones.
const CASES: [(std::ops::Range<u64>, u64); 2] = [(2_000..u64::MAX, 200), (30..4_000, 20)];

fn holds(full: &[Window], gapless: bool) {
    let reference = run(full.to_vec(), gapless);
    for (range, cut) in CASES {
        let given_up = |flagged| {
            let mut windows = full.to_vec();
            let share = give_up(&mut windows, range.clone(), cut, flagged);
            (run(windows, gapless), share)
        };
        let ((told, share), (untold, _)) = (given_up(true), given_up(false));
        assert!((0.04..0.3).contains(&share), "{share}");
        for policy in [Policy::RANDOM, Policy::LRU] {
            let truth = curve(&reference, policy);
            let (with, without) = (curve(&told, policy), curve(&untold, policy));
            assert_eq!(outside(&with, &truth), 0, "{range:?} {policy:?}: {with:#?}");
            assert!(
                outside(&without, &truth) >= 4,
                "the case is too mild: {range:?} {policy:?}"
            );
            let mut wider = 0.0;
            for (a, b) in with.iter().zip(&without) {
                assert!((a.miss_ratio - b.miss_ratio).abs() < 1e-12);
                assert!(a.low <= b.low && b.high <= a.high, "{a:?} {b:?}");
                wider += ((a.high - a.low) - (b.high - b.low)) / with.len() as f64;
            }
            // What was given up, and what its misses do to others, is all that is open.
            println!(
                "{range:?} {policy:?} gapless {gapless}: {share:.3} given up, {wider:.3} wider"
            );
            assert!(wider <= 3.0 * share, "{wider} for {share}");
        }
        for bytes in [64 << 10, 256 << 10, 1 << 20] {
            let (truth, with) = (keys(&reference, bytes), keys(&told, bytes));
            let without = keys(&untold, bytes);
            for ((t, a), b) in truth.iter().zip(&with).zip(&without) {
                assert!(
                    (a.low..=a.high).contains(&t.miss_ratio),
                    "{range:?} object {} at {bytes}: {} not in {}..{}",
                    t.key,
                    t.miss_ratio,
                    a.low,
                    a.high
                );
                assert!(a.low <= b.low && b.high <= a.high);
            }
            let wider =
                |k: usize| (with[k].high - with[k].low) - (without[k].high - without[k].low);
            assert!(wider(0) > 0.5 * share, "{}", wider(0));
            assert!(wider(1) < wider(0), "nothing of the second was given up");
        }
    }
}

#[test]
fn the_interval_holds_where_cuts_depend_on_the_distance() {
    let lines = references();
    let trace = Trace::new(lines.iter().copied());
    let (count, n) = (20, LENGTH);
    let mut windows = contiguous(&trace.distances(), 20_000, count, 1);
    name(&mut windows, &lines, |w| w * n / count);
    holds(&windows, true);
}

#[test]
fn it_holds_in_windows_with_gaps() {
    let lines = references();
    let trace = Trace::new(lines.iter().copied());
    let distances = trace.distances();
    let (count, n) = (20, LENGTH);
    // Windows as long as their stretches lie where the stretch does.
    let length = n / count;
    let mut windows = sparse(&distances, 20_000, count, (length, length + 1), 1);
    name(&mut windows, &lines, |w| w * n / count);
    for w in &mut windows {
        // Each stands for ten times its own.
        w.stands_for.value *= 10.0;
        w.stands_for.low *= 10.0;
        w.stands_for.high *= 10.0;
    }
    holds(&windows, false);
}

#[test]
fn the_interval_spans_both_extremes_and_the_flag_alone_says_nothing() {
    let lines = references();
    let trace = Trace::new(lines.iter().copied());
    let full = contiguous(&trace.distances(), 10_000, 10, 3);
    let (_, cut) = CASES[0].clone();
    let mut windows = full.clone();
    give_up(&mut windows, CASES[0].0.clone(), cut, true);
    let instead = |make: &dyn Fn(u64) -> Outcome| {
        let mut windows = windows.clone();
        for s in windows.iter_mut().flat_map(|w| &mut w.samples) {
            if let Outcome::Censored { at } = s.own[2] {
                s.own[2] = make(at);
            }
        }
        curve(&run(windows, true), Policy::LRU)
    };
    let least = instead(&|distance| Outcome::Reused {
        distance,
        trigger: Trigger::default(),
    });
    let most = instead(&|_| Outcome::NeverReused { at: LENGTH as u64 });
    let told = curve(&run(windows, true), Policy::LRU);
    for ((p, least), most) in told.iter().zip(&least).zip(&most) {
        assert!(p.low <= least.miss_ratio + 0.01, "{p:?} {least:?}");
        assert!(p.high >= most.miss_ratio - 0.01, "{p:?} {most:?}");
    }
    let mut flagged = full.clone();
    let samples = flagged.iter_mut().flat_map(|w| &mut w.samples);
    samples.for_each(|s| s.given_up = true);
    assert_eq!(
        curve(&run(flagged, true), Policy::LRU),
        curve(&run(full, true), Policy::LRU)
    );
}

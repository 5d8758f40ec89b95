//! Watches cut off by us: what the estimate must survive, and what the naive ways make of it.

mod common;

use common::{contiguous, sizes, stream};
use statcache_model::{Options, Outcome, Policy, Rng, Run, Sample, Stream, Window};

fn curve(windows: Vec<Window>) -> Vec<statcache_model::CurvePoint> {
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(windows, options).unwrap();
    run.curve(64, Policy::RANDOM, Stream::Own, &sizes())
        .unwrap()
}

/// References after the sample at which its line is touched again or the run ends.
fn length(s: &Sample) -> u64 {
    match s.own[2] {
        Outcome::Reused { distance, .. } => distance,
        Outcome::NeverReused { at } | Outcome::Censored { at } => at,
        Outcome::NotFollowed => 0,
    }
}

/// Cuts each watch at a horizon drawn when it is armed, `P(horizon > c) = min(1, least/c)`.
fn horizons(windows: &mut [Window], least: f64, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let (mut cut, mut all) = (0.0, 0.0);
    for s in windows.iter_mut().flat_map(|w| &mut w.samples) {
        let horizon = (least / rng.unit()) as u64;
        all += 1.0;
        if length(s) >= horizon {
            s.own = [Outcome::Censored { at: horizon }; 5];
            cut += 1.0;
        }
    }
    cut / all
}

/// Cuts as a table of `slots` does that evicts a random watch when it is full.
fn evictions(windows: &mut [Window], slots: usize, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let mut armed: Vec<(usize, usize, u64)> = Vec::new();
    let (mut start, mut cut, mut all) = (0, 0.0, 0.0);
    for w in 0..windows.len() {
        for i in 0..windows[w].samples.len() {
            let now = start + windows[w].samples[i].position;
            armed.retain(|&(w, i, at)| at + length(&windows[w].samples[i]) >= now);
            if armed.len() == slots {
                let (w, i, at) = armed.swap_remove(rng.below(slots as u64) as usize);
                windows[w].samples[i].own = [Outcome::Censored { at: now - at }; 5];
                cut += 1.0;
            }
            armed.push((w, i, now));
            all += 1.0;
        }
        start += windows[w].refs[2];
    }
    cut / all
}

fn naive(windows: &[Window], instead: Option<Outcome>) -> Vec<Window> {
    let mut windows = windows.to_vec();
    for w in &mut windows {
        for s in &mut w.samples {
            if matches!(s.own[2], Outcome::Censored { .. }) {
                s.own = [instead.unwrap_or(Outcome::NotFollowed); 5];
            }
        }
    }
    windows
}

#[test]
fn cutting_most_watches_moves_the_estimate_by_less_than_its_interval() {
    let trace = stream("zipf", 2_000_000, 7);
    let full = contiguous(&trace.distances(), 20_000, 20, 1);
    let reference = curve(full.clone());
    let gap = |c: &[statcache_model::CurvePoint]| {
        c.iter()
            .zip(&reference)
            .map(|(a, b)| (a.miss_ratio - b.miss_ratio).abs())
            .sum::<f64>()
            / c.len() as f64
    };
    let mut by_horizon = full.clone();
    // A hard case: the median distance is some 25 times the least horizon, so that what decides
    // the large caches is seen by some twenty watches.
    let share = horizons(&mut by_horizon, 350.0, 2);
    assert!((0.5..=0.8).contains(&share), "{share} of the watches cut");
    let estimate = curve(by_horizon.clone());
    let mut by_eviction = full.clone();
    let evicted = evictions(&mut by_eviction, 64, 3);
    let uniform = curve(by_eviction);
    let dropped = curve(naive(&by_horizon, None));
    let missed = curve(naive(&by_horizon, Some(Outcome::NeverReused { at: 0 })));
    println!(
        "horizons: {:.1} % cut, mean change {:.4}",
        100.0 * share,
        gap(&estimate)
    );
    println!(
        "uniform eviction, 64 slots: {:.1} % cut, mean change {:.4}",
        100.0 * evicted,
        gap(&uniform)
    );
    println!(
        "dropped: {:.4}, called misses: {:.4}",
        gap(&dropped),
        gap(&missed)
    );
    for (a, b) in estimate.iter().zip(&reference) {
        assert!(
            a.low <= b.miss_ratio && b.miss_ratio <= a.high,
            "{a:?}\n{b:?}"
        );
    }
    assert!(gap(&estimate) < 0.07, "{}", gap(&estimate));
    assert!(
        gap(&dropped) > 3.0 * gap(&estimate),
        "dropping must be worse"
    );
    assert!(
        gap(&missed) > 3.0 * gap(&estimate),
        "calling them misses must be worse"
    );
}

//! Misses by key: the paper's arithmetic over samples (sections 3.8 and 3.10).
//!
//! A reuse at distance `d` misses with probability `f(d R) = 1 - (1 - 1/L)^(d R)`, `R` the run's miss
//! ratio; the miss is charged to the trigger. What never was touched again is charged to its sample.

use std::collections::HashMap;

use statcache_model::{
    Attribution, KeyFigures, ModelError, Outcome, Policy, ReuseFrom, Run, Site, Stream, Window,
};

/// Samples below which a key's figures are weak (guessed).
const ENOUGH: u64 = 100;

#[derive(Default)]
struct Sums {
    samples: u64,
    triggered: u64,
    weight: f64,
    misses: f64,
    from: HashMap<u32, (f64, f64)>,
}

pub(super) fn attribute(
    run: &Run,
    windows: &[Window],
    line_bytes: u64,
    cache_bytes: u64,
    policy: Policy,
    key_of: impl Fn(&Site) -> u32,
) -> Result<Attribution<u32>, ModelError> {
    let ratio = run
        .curve(line_bytes, policy, Stream::Own, &[cache_bytes])?
        .first()
        .map_or(0.0, |p| p.miss_ratio);
    let at = line_bytes.trailing_zeros() as usize - 4;
    let lines = (cache_bytes / line_bytes).max(1) as f64;
    let hit = (1.0 - 1.0 / lines).max(0.0);
    let mut keys: HashMap<u32, Sums> = HashMap::new();
    let mut all = 0.0;
    for (index, window) in windows.iter().enumerate() {
        let weight = window.stands_for.value / window.samples.len().max(1) as f64;
        for s in &window.samples {
            let site = |instr, thread| Site {
                instr,
                data: s.data,
                thread,
                window: index,
            };
            let from = key_of(&site(s.instr, s.thread));
            keys.entry(from).or_default().samples += 1;
            match s.own[at] {
                Outcome::Reused { distance, trigger } => {
                    let miss = 1.0 - hit.powf(distance as f64 * ratio);
                    let k = keys
                        .entry(key_of(&site(trigger.instr, trigger.thread)))
                        .or_default();
                    k.triggered += 1;
                    k.weight += weight;
                    k.misses += miss * weight;
                    let edge = k.from.entry(from).or_default();
                    edge.0 += weight;
                    edge.1 += miss * weight;
                    all += weight;
                }
                Outcome::NeverReused { .. } => {
                    let k = keys.entry(from).or_default();
                    k.weight += weight;
                    k.misses += weight;
                    all += weight;
                }
                Outcome::Censored { .. } | Outcome::NotFollowed => {}
            }
        }
    }
    let misses: f64 = keys.values().map(|k| k.misses).sum();
    let mut figures: Vec<KeyFigures<u32>> = keys
        .into_iter()
        .filter(|(_, k)| k.weight > 0.0)
        .map(|(key, k)| figures(key, k, all, misses))
        .collect();
    figures.sort_by(|a, b| {
        b.miss_share
            .total_cmp(&a.miss_share)
            .then(a.key.cmp(&b.key))
    });
    let miss_ratio = if all > 0.0 { misses / all } else { 0.0 };
    Ok(Attribution {
        keys: figures,
        miss_ratio,
        unattributed_share: 0.0,
    })
}

fn figures(key: u32, k: Sums, all: f64, misses: f64) -> KeyFigures<u32> {
    let n = k.samples.max(k.triggered).max(1) as f64;
    let p = k.misses / k.weight;
    // Wilson, 95 %.
    let z = 1.96f64;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let reused: f64 = k.from.values().map(|e| e.0).sum();
    let mut reuse_from: Vec<ReuseFrom<u32>> = k
        .from
        .into_iter()
        .map(|(key, (w, m))| ReuseFrom {
            key,
            share: w / reused,
            miss_ratio: m / w,
        })
        .collect();
    reuse_from.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.key.cmp(&b.key)));
    KeyFigures {
        key,
        samples: k.samples,
        triggered: k.triggered,
        access_share: k.weight / all,
        miss_ratio: p,
        low: (middle - half).clamp(0.0, p),
        high: (middle + half).clamp(p, 1.0),
        miss_share: if misses > 0.0 { k.misses / misses } else { 0.0 },
        reuse_from,
        weak: (k.samples < ENOUGH).then_some(statcache_model::Weak {
            samples: k.samples,
            needed: ENOUGH,
        }),
    }
}

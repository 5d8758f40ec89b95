//! Who misses, against exact simulation with a key on every reference.

use std::collections::HashMap;

use statcache_model::oracle::Trace;
use statcache_model::{
    Estimate, FirstTouch, FirstTouches, LineSize, Options, Outcome, Policy, Remote, Rng, Run,
    Sample, Sharing, Since, Stream, Trigger, Window, spatial_use_by_key,
};

/// A program of four instructions: a hot loop (1), a sweep (2) that a second one (3) follows at
/// 2,000 lines' distance, and a one-shot initialisation (4).
fn program(n: usize) -> (Vec<u64>, Vec<u32>) {
    let (mut lines, mut keys) = (Vec::new(), Vec::new());
    let mut i = 0u64;
    while lines.len() < n {
        lines.extend([i % 8, 1_000 + i % 30_000, 1_000 + (i + 28_000) % 30_000]);
        keys.extend([1, 2, 3]);
        if i.is_multiple_of(4) {
            lines.push(1_000_000 + i / 4);
            keys.push(4);
        }
        i += 1;
    }
    (lines, keys)
}

fn windows(lines: &[u64], keys: &[u32], samples: usize) -> Vec<Window> {
    let distances = Trace::new(lines.iter().copied()).distances();
    let n = lines.len();
    let mut rng = Rng::new(9);
    let mut picks: Vec<usize> = (0..samples).map(|_| rng.below(n as u64) as usize).collect();
    picks.sort_unstable();
    let samples = picks
        .iter()
        .map(|&p| {
            let o = match distances[p] {
                Some(d) => {
                    let instr = keys[p + d as usize + 1];
                    Outcome::Reused {
                        distance: d,
                        trigger: Trigger {
                            instr,
                            ..Trigger::default()
                        },
                    }
                }
                None => Outcome::NeverReused {
                    at: (n - 1 - p) as u64,
                },
            };
            Sample {
                position: p as u64,
                instr: keys[p],
                own: [o; 5],
                ..Sample::default()
            }
        })
        .collect();
    vec![Window {
        accesses: n as u64,
        refs: [n as u64; 5],
        stands_for: Estimate::exact(n as f64),
        samples,
        ..Window::default()
    }]
}

#[test]
fn misses_by_key_match_the_oracle() {
    let (lines, keys) = program(2_000_000);
    let trace = Trace::new(lines.iter().copied());
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(windows(&lines, &keys, 20_000), options).unwrap();
    for capacity in [512u64, 8_192, 16_384] {
        let misses = trace.random_misses(capacity, None, 1);
        let a = run
            .attribute(64, capacity * 64, Policy::RANDOM, Stream::Own, |s| s.instr)
            .unwrap();
        let mut exact: HashMap<u32, (f64, f64)> = HashMap::new();
        for (&k, &m) in keys.iter().zip(&misses) {
            let e = exact.entry(k).or_default();
            e.0 += 1.0;
            e.1 += f64::from(u8::from(m));
        }
        let all: f64 = exact.values().map(|e| e.1).sum();
        assert!((a.keys.iter().map(|k| k.access_share).sum::<f64>() - 1.0).abs() < 1e-9);
        for k in &a.keys {
            let e = exact[&k.key];
            let (share, ratio, part) = (e.0 / keys.len() as f64, e.1 / e.0, e.1 / all);
            println!(
                "{capacity} key {}: exact {ratio:.4} {part:.4}, got {k:?}",
                k.key
            );
            assert!(
                (k.access_share - share).abs() < 0.02,
                "access share of {}",
                k.key
            );
            assert!(
                (k.miss_ratio - ratio).abs() < 0.04,
                "miss ratio of {}",
                k.key
            );
            assert!(
                (k.miss_share - part).abs() < 0.03,
                "miss share of {}",
                k.key
            );
            assert!(
                k.low - 0.02 <= ratio && ratio <= k.high + 0.02,
                "interval of {}",
                k.key
            );
        }
        // Instruction 3 meets the sweep at 28,000 lines, 2 follows it 2,000 behind.
        let two = a.keys.iter().find(|k| k.key == 2).unwrap();
        assert_eq!(two.reuse_from[0].key, 3);
        assert!(two.reuse_from[0].share > 0.99);
        assert!((two.reuse_from[0].miss_ratio - two.miss_ratio).abs() < 0.05);
        assert!(two.from_known > 0.99, "{}", two.from_known);
    }
}

#[test]
fn windows_are_keys_too() {
    let (lines, keys) = program(200_000);
    let run = Run::new(windows(&lines, &keys, 2_000), Options::default()).unwrap();
    let a = run
        .attribute(64, 32768, Policy::LRU, Stream::Own, |s| s.window)
        .unwrap();
    assert_eq!(a.keys.len(), 1);
    assert!((a.keys[0].miss_share + a.unattributed_share - 1.0).abs() < 1e-6);
}

#[test]
fn first_touches_are_charged_to_who_makes_them() {
    let (lines, keys) = program(1_000_000);
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(windows(&lines, &keys, 10_000), options).unwrap();
    let a = run
        .attribute(64, 64 << 20, Policy::RANDOM, Stream::Own, |s| s.instr)
        .unwrap();
    assert_eq!(
        a.keys[0].key, 4,
        "only first touches miss in a large cache: {:?}",
        a.keys
    );
    assert!(
        a.keys[0].miss_ratio > 0.9 && a.keys[0].miss_share > 0.6,
        "{:?}",
        a.keys[0]
    );
}

/// Of a process attached to and followed to its end, what none touched again has no place among the misses of a cache that holds all.
#[test]
fn touches_that_none_follows_of_a_process_attached_to() {
    let (lines, keys) = program(400_000);
    let mut windows = windows(&lines, &keys, 4_000);
    let touch = |position: u64| FirstTouch {
        position,
        instr: keys[position as usize],
        data: 0,
        since: Since::AtLeast(position),
    };
    windows[0].first_touches = Some(FirstTouches {
        touches: (0..50).map(|i| touch(200_001 + 3 * i)).collect(),
        each: 64.0,
        epochs: vec![0, 200_000],
    });
    let options = Options {
        contiguous: true,
        from_start: false,
        ..Options::default()
    };
    let run = Run::new(windows, options).unwrap();
    for policy in [Policy::LRU, Policy::RANDOM] {
        let told = run
            .attribute(64, 1 << 30, policy, Stream::Own, |s| s.instr)
            .unwrap();
        for k in &told.keys {
            let ordered = k.low <= k.miss_ratio && k.miss_ratio <= k.high;
            assert!(ordered && k.low >= 0.0 && k.high <= 1.0, "{k:?}");
            assert!(k.weak.is_some() || k.high < 0.1, "nothing misses: {k:?}");
        }
    }
}

#[test]
fn few_reuses_are_weak() {
    let (lines, keys) = program(200_000);
    let run = Run::new(windows(&lines, &keys, 200), Options::default()).unwrap();
    let a = run
        .attribute(64, 32768, Policy::RANDOM, Stream::Own, |s| s.instr)
        .unwrap();
    let k = a.keys.iter().find(|k| k.key == 1).unwrap();
    assert_eq!(
        k.weak.map(|w| (w.samples, w.needed)),
        Some((k.triggered, 100))
    );
    let p = run
        .curve(64, Policy::RANDOM, Stream::Own, &[32768])
        .unwrap()[0];
    assert!(
        p.weak
            .is_some_and(|w| w.samples == 200 && w.needed >= 1_000),
        "{p:?}"
    );
}

/// Sequential (key 1) and strided (key 2) 16-byte references; distances at 16 and 64 bytes.
fn spatial_window(n: usize) -> Window {
    let addresses: Vec<u64> = (0..n as u64)
        .map(|i| {
            if i % 2 == 0 {
                i * 8
            } else {
                (1 << 32) + i * 256
            }
        })
        .collect();
    let at = |bytes: u64| Trace::new(addresses.iter().map(move |a| a / bytes)).distances();
    let (d16, d64) = (at(16), at(64));
    let mut rng = Rng::new(4);
    let mut picks: Vec<usize> = (0..10_000).map(|_| rng.below(n as u64) as usize).collect();
    picks.sort_unstable();
    let samples = picks
        .iter()
        .map(|&p| {
            let key = 1 + (p % 2) as u32;
            let outcome = |d: Option<u64>| match d {
                Some(distance) => Outcome::Reused {
                    distance,
                    trigger: Trigger {
                        instr: key,
                        ..Trigger::default()
                    },
                },
                None => Outcome::NeverReused {
                    at: (n - 1 - p) as u64,
                },
            };
            let mut own = [Outcome::NotFollowed; 5];
            own[0] = outcome(d16[p]);
            own[2] = outcome(d64[p]);
            Sample {
                position: p as u64,
                instr: key,
                own,
                ..Sample::default()
            }
        })
        .collect();
    Window {
        accesses: n as u64,
        refs: [n as u64; 5],
        stands_for: Estimate::exact(n as f64),
        samples,
        ..Window::default()
    }
}

#[test]
fn spatial_use_tells_sequential_from_strided() {
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(vec![spatial_window(400_000)], options).unwrap();
    let at = |line| {
        run.attribute(line, 32768, Policy::RANDOM, Stream::Own, |s| s.instr)
            .unwrap()
    };
    let by_key = spatial_use_by_key(&at(16), &at(64)).unwrap();
    assert!(by_key[&1] > 0.85, "sequential: {by_key:?}");
    assert!(by_key[&2] < 0.15, "strided: {by_key:?}");
    let all = run
        .spatial_use(16, 64, 32768, Policy::RANDOM, Stream::Own)
        .unwrap()
        .unwrap();
    // Half the misses at 16 bytes are sequential, three quarters of those are saved.
    assert!((all - 0.5).abs() < 0.05, "{all}");
}

#[test]
fn false_sharing_is_told_from_true() {
    let mut samples = Vec::new();
    for i in 0..4_000u64 {
        let key = 1 + (i % 3) as u32;
        let remote = match key {
            1 => Remote {
                read: true,
                written: true,
                disjoint: true,
            },
            2 => Remote {
                read: false,
                written: i % 2 == 0,
                disjoint: false,
            },
            _ => Remote {
                read: i % 4 < 2,
                ..Remote::default()
            },
        };
        let o = Outcome::Reused {
            distance: 5,
            trigger: Trigger {
                instr: key,
                ..Trigger::default()
            },
        };
        samples.push(Sample {
            position: i * 10,
            instr: key,
            own: [o; 5],
            remote: Some(Box::new([remote; 5])),
            ..Sample::default()
        });
    }
    let w = Window {
        accesses: 40_000,
        refs: [40_000; 5],
        stands_for: Estimate::exact(40_000.0),
        samples,
        ..Window::default()
    };
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(vec![w], options).unwrap();
    let t = run.threads(64, 32768, Policy::RANDOM, |s| s.instr).unwrap();
    let of = |k| t.iter().find(|t| t.key == k).unwrap();
    assert_eq!((of(1).sharing, of(1).coherence), (Sharing::False, 1.0));
    assert_eq!(of(2).sharing, Sharing::True);
    assert!((of(2).coherence - 0.5).abs() < 0.05);
    assert_eq!((of(3).sharing, of(3).coherence), (Sharing::NoVerdict, 0.0));
    assert!((of(3).shared - 0.5).abs() < 0.05 && (of(3).private - 0.5).abs() < 0.05);
    assert_eq!(LineSize::from_bytes(64).unwrap().index(), 2);
}

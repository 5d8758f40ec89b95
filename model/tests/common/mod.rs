//! Synthetic access streams and samplers of them, shared by tests and benches.
#![allow(dead_code)]

use statcache_model::oracle::Trace;
use statcache_model::{Estimate, Outcome, Rng, Sample, Trigger, Window};

/// The 27 sizes of the curves: 8 KiB to 64 MiB, two per octave, bytes.
pub fn sizes() -> Vec<u64> {
    (0..27)
        .map(|k| {
            let base = 8192u64 << (k / 2);
            base + if k % 2 == 1 { base / 2 } else { 0 }
        })
        .collect()
}

/// Names of the streams of [`stream`].
pub const STREAMS: [&str; 9] = [
    "sweep", "uniform", "zipf", "stack", "chase", "phases", "matrix", "oneshot", "rare",
];

/// Spreads line numbers over the sets.
fn scramble(x: u64) -> u64 {
    Rng::new(x).next_u64() >> 20
}

fn permutation(n: usize, rng: &mut Rng) -> Vec<u64> {
    let mut p: Vec<u64> = (0..n as u64).collect();
    for i in (1..n).rev() {
        p.swap(i, rng.below(i as u64 + 1) as usize);
    }
    p
}

/// A stream of `n` line references.
pub fn stream(name: &str, n: usize, seed: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let mut v = Vec::with_capacity(n);
    match name {
        "sweep" => v.extend((0..n as u64).map(|i| i % 20_000)),
        "uniform" => v.extend((0..n).map(|_| rng.below(30_000))),
        "zipf" => {
            let lines = 100_000usize;
            let mut sum = 0.0;
            let cumulative: Vec<f64> = (0..lines)
                .map(|k| {
                    sum += 1.0 / (k as f64 + 1.0).powf(0.9);
                    sum
                })
                .collect();
            v.extend((0..n).map(|_| {
                let u = rng.unit() * sum;
                scramble(cumulative.partition_point(|&c| c < u) as u64)
            }));
        }
        "stack" => {
            // Depth in the recency list is Pareto distributed.
            let mut list: Vec<u64> = (0..20_000).collect();
            for _ in 0..n {
                let depth = (rng.unit().powf(-1.0 / 0.7) as usize).min(list.len()) - 1;
                let line = list[depth];
                list.copy_within(0..depth, 1);
                list[0] = line;
                v.push(scramble(line));
            }
        }
        "chase" => {
            let next = permutation(40_000, &mut rng);
            let mut i = 0usize;
            while v.len() < n {
                v.push(1_000_000 + next[i]);
                v.extend((0..3).map(|h| 2_000_000 + ((i as u64 + h) & 7)));
                i = (i + 1) % next.len();
            }
            v.truncate(n);
        }
        "phases" => {
            let lengths = [n / 10, n / 14, n / 20];
            let mut k = 0;
            while v.len() < n {
                let len = lengths[k % 3].min(n - v.len());
                match k % 3 {
                    0 => v.extend((0..len).map(|_| rng.below(3_000))),
                    1 => v.extend((0..len as u64).map(|i| 1_000_000 + i % 10_000)),
                    _ => v.extend((0..len).map(|_| 2_000_000 + rng.below(60_000))),
                }
                k += 1;
            }
        }
        "matrix" => {
            // c[i][j] += a[i][k] * b[k][j], row-major doubles.
            let m = 200u64;
            'outer: loop {
                for i in 0..m {
                    for j in 0..m {
                        for k in 0..m {
                            v.push((i * m + k) / 8);
                            v.push(100_000 + (k * m + j) / 8);
                            if v.len() >= n {
                                break 'outer;
                            }
                        }
                        v.push(200_000 + (i * m + j) / 8);
                    }
                }
            }
            v.truncate(n);
        }
        "rare" => {
            // 99 % in twenty lines, the rest skewed over many.
            v.extend((0..n).map(|_| {
                if rng.below(100) > 0 {
                    rng.below(20)
                } else {
                    1_000 + (rng.unit().powi(4) * 50_000.0) as u64
                }
            }));
        }
        "oneshot" => {
            v.extend((0..n as u64).map(|i| if i % 8 == 0 { 1_000 + i / 8 } else { i % 8 }))
        }
        other => panic!("no stream {other}"),
    }
    Trace::new(v)
}

fn outcome(distance: Option<u64>, left: u64, to_the_end: bool) -> Outcome {
    match distance {
        Some(d) if to_the_end || d < left => Outcome::Reused {
            distance: d,
            trigger: Trigger::default(),
        },
        None if to_the_end => Outcome::NeverReused { at: left },
        _ => Outcome::Censored { at: left },
    }
}

fn sample(position: u64, o: Outcome) -> Sample {
    let mut own = [Outcome::NotFollowed; 5];
    own[2] = o;
    Sample {
        position,
        own,
        ..Sample::default()
    }
}

/// Gapless windows; `samples` references picked at random, every watch kept to the end.
pub fn contiguous(
    distances: &[Option<u64>],
    samples: usize,
    windows: usize,
    seed: u64,
) -> Vec<Window> {
    let mut rng = Rng::new(seed);
    let n = distances.len();
    let mut picks: Vec<usize> = (0..samples).map(|_| rng.below(n as u64) as usize).collect();
    picks.sort_unstable();
    (0..windows)
        .map(|w| {
            let (start, end) = (w * n / windows, (w + 1) * n / windows);
            let inside = picks.iter().filter(|&&p| p >= start && p < end);
            let refs = (end - start) as u64;
            Window {
                start: w as f64,
                thread: 0,
                accesses: refs,
                refs: [refs; 5],
                stands_for: Estimate::exact(refs as f64),
                samples: inside
                    .map(|&p| {
                        let left = (n - 1 - p) as u64;
                        sample((p - start) as u64, outcome(distances[p], left, true))
                    })
                    .collect(),
            }
        })
        .collect()
}

/// Windows with gaps: one at a random place in each of `windows` equal stretches, lengths drawn
/// log-uniformly between `short` and `long` references, `samples` in all, watches cut at each
/// window's end.
pub fn sparse(
    distances: &[Option<u64>],
    samples: usize,
    windows: usize,
    lengths: (usize, usize),
    seed: u64,
) -> Vec<Window> {
    let mut rng = Rng::new(seed);
    let n = distances.len();
    (0..windows)
        .map(|w| {
            let (from, to) = (w * n / windows, (w + 1) * n / windows);
            let stretch = to - from;
            let ratio = lengths.1 as f64 / lengths.0 as f64;
            let len = (lengths.0 as f64 * ratio.powf(rng.unit())) as usize;
            let len = len.clamp(1, stretch);
            let start = from + rng.below((stretch - len + 1) as u64) as usize;
            let mut picks: Vec<u64> = (0..samples / windows)
                .map(|_| rng.below(len as u64))
                .collect();
            picks.sort_unstable();
            Window {
                start: w as f64,
                thread: 0,
                accesses: len as u64,
                refs: [len as u64; 5],
                stands_for: Estimate::exact(stretch as f64),
                samples: picks
                    .iter()
                    .map(|&p| {
                        let at = start + p as usize;
                        let ends = at + len - p as usize == n;
                        sample(p, outcome(distances[at], len as u64 - 1 - p, ends))
                    })
                    .collect(),
            }
        })
        .collect()
}

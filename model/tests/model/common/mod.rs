//! Synthetic access streams and samplers of them, shared by tests and benches.
#![allow(dead_code)]

use statcache_model::oracle::Trace;
use statcache_model::{Estimate, Outcome, Policy, Rng, Sample, Trigger, Window};
use std::collections::HashMap;

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

/// References of each of the three loops that a round of the stream `rounds` consists of.
pub const ROUND_PART: usize = 52_000;

/// Streams that were written after the intervals were settled, to judge them; never tuned on.
pub const HELD_OUT: [&str; 6] = ["descents", "tiles", "scans", "bursts", "stencil", "pools"];

/// Streams that judge what was changed in view of [`HELD_OUT`]; looked at once, afterwards.
pub const JUDGES: [&str; 4] = ["nursery", "requests", "mergesort", "drift"];

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
        "rounds" => {
            // Two arrays, the second denser, and a few lines, by turns.
            let part = ROUND_PART as u64;
            v.extend((0..n as u64).map(|i| match (i / part % 3, i % part) {
                (0, at) => 1_000_000 + at / 2,
                (1, at) => 2_000_000 + at / 16,
                (_, at) => at % 4,
            }));
        }
        "oneshot" => {
            v.extend((0..n as u64).map(|i| if i % 8 == 0 { 1_000 + i / 8 } else { i % 8 }))
        }
        other => held_out(other, n, &mut rng, &mut v),
    }
    Trace::new(v)
}

/// The streams of [`HELD_OUT`].
fn held_out(name: &str, n: usize, rng: &mut Rng, v: &mut Vec<u64>) {
    match name {
        "descents" => {
            // Lookups in a tree of fanout 8 over 2^18 leaves, skewed towards low keys.
            while v.len() < n {
                let key = (rng.unit().powi(2) * f64::from(1 << 18)) as u64;
                for level in 0..=6u64 {
                    v.push((level << 32) + (key >> (3 * (6 - level))));
                }
            }
        }
        "tiles" => {
            // Blocked product of two 240 x 240 matrices of doubles, tiles of 24.
            let (m, b) = (240u64, 24u64);
            'outer: loop {
                for (ti, tj, tk) in (0..1000u64).map(|t| (t / 100, t / 10 % 10, t % 10)) {
                    for (i, j, k) in (0..b * b * b).map(|t| (t / b / b, t / b % b, t % b)) {
                        v.push(((ti * b + i) * m + tk * b + k) / 8);
                        v.push(100_000 + ((tk * b + k) * m + tj * b + j) / 8);
                        if v.len() >= n {
                            break 'outer;
                        }
                    }
                }
            }
        }
        "scans" => {
            // Skewed lookups, and every 200,000 references a scan over 25,000 lines.
            while v.len() < n {
                v.extend((0..175_000).map(|_| (rng.unit().powi(3) * 60_000.0) as u64));
                v.extend((0..25_000).map(|i| 1_000_000 + i));
            }
        }
        "bursts" => {
            // Bursts of random length, each in one of 400 working sets of 20 to 2,000 lines.
            while v.len() < n {
                let set = rng.below(400);
                let lines = 20 + Rng::new(set).below(1_980);
                let length = (200.0 * rng.unit().powf(-0.8)).min(50_000.0) as usize;
                v.extend((0..length).map(|_| (set << 20) + rng.below(lines)));
            }
        }
        "stencil" => {
            // Five-point sweeps over a grid of 600 x 600 doubles, from one array to another.
            let m = 600u64;
            let mut sweep = 0u64;
            while v.len() < n {
                let (a, b) = ((sweep & 1) << 24, (1 - (sweep & 1)) << 24);
                for (i, j) in (m + 1..m * (m - 1)).map(|t| (t / m, t % m)) {
                    let at = |i: u64, j: u64| (i * m + j) / 8;
                    v.extend([at(i, j), at(i, j - 1 + u64::from(j == 0))].map(|x| a + x));
                    v.extend([at(i, j + 1), at(i - 1, j), at(i + 1, j)].map(|x| a + x));
                    v.push(b + at(i, j));
                }
                sweep += 1;
            }
        }
        "pools" => {
            // Objects of 1 to 8 lines, used whole a few times and freed; their room is used again
            // last in, first out.
            let mut free: Vec<u64> = (0..40_000).rev().collect();
            let mut live: Vec<u64> = Vec::new();
            while v.len() < n {
                if live.len() < 2_000 || (rng.below(2) == 0 && !free.is_empty()) {
                    live.extend(free.pop());
                } else {
                    free.push(live.swap_remove(rng.below(live.len() as u64) as usize));
                }
                for _ in 0..4 {
                    let recent = (rng.unit().powi(2) * live.len() as f64) as usize;
                    let object = live[live.len() - 1 - recent];
                    v.extend((0..1 + object % 8).map(|line| object * 8 + line));
                }
            }
        }
        other => judge(other, n, rng, v),
    }
    v.truncate(n);
}

/// The streams of [`JUDGES`].
fn judge(name: &str, n: usize, rng: &mut Rng, v: &mut Vec<u64>) {
    match name {
        "nursery" => {
            // Bump allocation in 6,000 lines, reads of what is young, copies of what survives.
            let (mut old, old_base) = (2_000u64, 1u64 << 32);
            while v.len() < n {
                for top in 1..6_000u64 {
                    v.extend([top, top, top - 1]);
                    v.extend((0..3).map(|_| top - (rng.unit().powi(6) * top as f64) as u64));
                    if rng.below(5) == 0 {
                        v.push(old_base + rng.below(old));
                    }
                }
                for _ in 0..600 {
                    v.extend([rng.below(6_000), old_base + old]);
                    old += 1;
                }
                // Now and then the old ones are marked and most of them freed.
                if old > 12_000 {
                    v.extend((0..old).map(|line| old_base + line));
                    old = 2_000;
                }
            }
        }
        "requests" => {
            // A ring of slots, a hash table with skewed keys, a log, a per-user record.
            let mut served = 0u64;
            while v.len() < n {
                let slot = served % 3_000;
                v.extend((0..2).map(|l| slot * 2 + l));
                let user = (rng.unit().powi(3) * 20_000.0) as u64;
                v.push((1 << 24) + scramble(user) % 8_192);
                v.extend((0..3).map(|l| (2 << 24) + user * 3 + l));
                for _ in 0..rng.below(8) {
                    let item = scramble(rng.below(4_000) * rng.below(4_000) / 4_000);
                    v.extend([(3 << 24) + item % 16_384, (1 << 30) + item % (1 << 18)]);
                }
                v.extend([(4 << 24) + served / 4, slot * 2]);
                served += 1;
            }
        }
        "mergesort" => {
            // Bottom-up passes over 30,000 lines of eight keys, runs merged into a second array.
            let lines = 30_000u64;
            let mut width = 4u64;
            while v.len() < n {
                let (a, b) = if width.ilog2().is_multiple_of(2) {
                    (0, 1 << 24)
                } else {
                    (1 << 24, 0)
                };
                for start in (0..lines).step_by(2 * width as usize) {
                    let ends = [(start + width).min(lines), (start + 2 * width).min(lines)];
                    let mut at = [start * 8, (start + width).min(lines) * 8];
                    for out in start * 8..ends[1] * 8 {
                        let left = [ends[0] * 8 - at[0], ends[1] * 8 - at[1]];
                        let side = usize::from(rng.below(left[0] + left[1]) >= left[0]);
                        v.extend([a + at[side] / 8, b + out / 8]);
                        at[side] += 1;
                    }
                    if v.len() > n {
                        break;
                    }
                }
                width = if width * 2 >= lines { 4 } else { width * 2 };
            }
        }
        "drift" => {
            // A working set that slides through memory and breathes between 200 and 40,000 lines.
            let mut base = 0.0;
            while v.len() < n {
                let angle = v.len() as f64 / n as f64 * 18.0;
                let lines = 200.0 * 200f64.powf(0.5 - 0.5 * angle.cos());
                v.push((base + rng.unit() * lines) as u64);
                base += 0.02;
            }
        }
        other => panic!("no stream {other}"),
    }
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

/// How references are picked: each is as likely as any other.
#[derive(Clone, Copy, Debug)]
pub enum Sampler {
    Independent,
    /// Eight or so together, 16 references apart, as engines do that look at addresses now and then only.
    Clustered,
    /// Sixteen together, 64 references apart.
    Sixteen,
    /// Alone, in every other stretch of so many references: a thread that is sampled while it is its turn.
    InTurns(u64),
    /// The same behind a tenth of the run, in which half of the samples are.
    Late(u64),
}

impl Sampler {
    /// Ascending picks of `n` references, some `samples` of them.
    fn picks(self, n: usize, samples: usize, rng: &mut Rng) -> Vec<usize> {
        let mut picks = Vec::new();
        match self {
            Self::Independent => picks.extend((0..samples).map(|_| rng.below(n as u64) as usize)),
            Self::Clustered => {
                for _ in 0..samples / 8 {
                    let mut at = rng.below(n as u64) as usize;
                    loop {
                        picks.push(at % n);
                        if rng.below(8) == 0 {
                            break;
                        }
                        at += 1 + (-16.0 * rng.unit().ln()) as usize;
                    }
                }
            }
            Self::Sixteen => {
                for _ in 0..samples / 16 {
                    let mut at = rng.below(n as u64) as usize;
                    for _ in 0..16 {
                        picks.push(at % n);
                        at += 1 + (-64.0 * rng.unit().ln()) as usize;
                    }
                }
            }
            Self::Late(length) => {
                picks.extend((0..samples / 2).map(|_| rng.below(n as u64 / 10) as usize));
                while picks.len() < samples {
                    let at = n as u64 / 10 + rng.below(n as u64 * 9 / 10);
                    if (at / length).is_multiple_of(2) {
                        picks.push(at as usize);
                    }
                }
            }
            Self::InTurns(length) => {
                while picks.len() < samples {
                    let at = rng.below(n as u64);
                    if (at / length).is_multiple_of(2) {
                        picks.push(at as usize);
                    }
                }
            }
        }
        picks.sort_unstable();
        picks
    }
}

/// Gapless windows; `samples` references picked at random, every watch kept to the end.
pub fn contiguous(
    distances: &[Option<u64>],
    samples: usize,
    windows: usize,
    seed: u64,
) -> Vec<Window> {
    contiguous_by(Sampler::Independent, distances, samples, windows, seed)
}

/// As [`contiguous`], picked by a sampler.
pub fn contiguous_by(
    sampler: Sampler,
    distances: &[Option<u64>],
    samples: usize,
    windows: usize,
    seed: u64,
) -> Vec<Window> {
    let n = distances.len();
    let picks = sampler.picks(n, samples, &mut Rng::new(seed));
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
                ..Window::default()
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
    sparse_by(
        Sampler::Independent,
        distances,
        samples,
        windows,
        lengths,
        seed,
    )
}

/// As [`sparse`], picked by a sampler.
pub fn sparse_by(
    sampler: Sampler,
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
            let picks = sampler.picks(len, samples / windows, &mut rng);
            Window {
                start: w as f64,
                thread: 0,
                accesses: len as u64,
                refs: [len as u64; 5],
                stands_for: Estimate::exact(stretch as f64),
                samples: picks
                    .iter()
                    .map(|&p| {
                        let at = start + p;
                        let ends = start + len == n;
                        let left = (len - 1 - p) as u64;
                        sample(p as u64, outcome(distances[at], left, ends))
                    })
                    .collect(),
                ..Window::default()
            }
        })
        .collect()
}

/// Misses of a fully associative cache of so many lines, by the instruction of each reference (line, instruction).
pub fn misses_by_instruction(
    program: &[(u64, u32)],
    lines: u64,
    policy: Policy,
) -> HashMap<u32, f64> {
    let trace = Trace::new(program.iter().map(|&(line, _)| line));
    let misses = match policy {
        Policy::LRU => trace.lru_misses(lines, lines as u32),
        _ => trace.random_misses(lines, None, 1),
    };
    let mut by_instruction: HashMap<u32, f64> = HashMap::new();
    for (&(_, instr), &miss) in program.iter().zip(&misses) {
        *by_instruction.entry(instr).or_default() += f64::from(u8::from(miss));
    }
    by_instruction
}

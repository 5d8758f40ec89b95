//! Time and memory of the solvers.
//!
//! `one_window`: 10,000 samples, 27 sizes x 5 line sizes x 2 policies, from the binned histogram.
//! `thousand_windows`: 1,000 such windows fed one by one, binned, all curves with intervals.
//! `attribute`: 100,000 samples at 10 cache sizes. Peak heap, counted by the
//! allocator, is printed first.

// criterion_group! makes an undocumented public function.
#![allow(missing_docs)]

#[path = "../tests/model/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::sizes;
use criterion::{Criterion, criterion_group, criterion_main};
use statcache_model::{
    Estimate, Histogram, LineSize, Options, Outcome, Policy, Rng, Run, RunBuilder, Sample,
    StackDistance, Stream, Trigger, Undecided, Weight, Window, lru_miss_ratio_with,
    random_miss_ratio,
};

/// Distances spread over seven decades, as real programs have them.
fn window(index: u64, samples: u64) -> Window {
    let mut rng = Rng::new(index);
    let refs = 1u64 << 24;
    Window {
        start: index as f64,
        thread: 0,
        accesses: refs,
        refs: [refs; 5],
        stands_for: Estimate {
            value: 1e8,
            low: 0.9e8,
            high: 1.1e8,
        },
        samples: (0..samples)
            .map(|i| {
                let position = i * refs / samples;
                let distance = (10f64.powf(7.0 * rng.unit().powi(2)) - 1.0) as u64;
                let own = [4, 2, 1, 1, 1].map(|scale| {
                    if position + distance / scale >= refs {
                        return Outcome::Censored {
                            at: refs - position - 1,
                        };
                    }
                    let instr = (distance % 300) as u32;
                    let trigger = Trigger {
                        instr,
                        ..Trigger::default()
                    };
                    Outcome::Reused {
                        distance: distance / scale,
                        trigger,
                    }
                });
                Sample {
                    position,
                    instr: (i % 300) as u32,
                    own,
                    ..Sample::default()
                }
            })
            .collect(),
        ..Window::default()
    }
}

fn solve_all(histograms: &[Histogram]) -> f64 {
    let mut sum = 0.0;
    for h in histograms {
        let survival = h.survival();
        let stack = StackDistance::new(&survival);
        for lines in sizes().iter().map(|s| s / u64::from(h.line_size().bytes())) {
            sum += random_miss_ratio(&survival, lines, Undecided::Never);
            sum += lru_miss_ratio_with(&survival, &stack, lines, None, true);
        }
    }
    sum
}

fn all_curves(run: &Run) -> f64 {
    let mut sum = 0.0;
    for line in LineSize::ALL {
        for policy in [Policy::RANDOM, Policy::LRU] {
            let curve = run.curve(u64::from(line.bytes()), policy, Stream::Own, &sizes());
            sum += curve
                .expect("valid sizes")
                .iter()
                .map(|p| p.high)
                .sum::<f64>();
        }
    }
    sum
}

fn thousand_windows() -> f64 {
    let mut builder = RunBuilder::binned(Options::default());
    for i in 0..1_000 {
        builder.push(window(i, 10_000)).expect("a valid window");
    }
    all_curves(&builder.finish())
}

/// The system's allocator, counting bytes asked for and not yet given back.
struct Counting;

static HEAP: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    let now = HEAP.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is handed on to `System` unchanged; the counters touch no allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `ptr` came from `System` with this layout, by the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may be held while bytes are copied.
        grown(new_size);
        // SAFETY: `ptr` came from `System` with this layout, by the caller's contract.
        let new = unsafe { System.realloc(ptr, layout, new_size) };
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        new
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Largest heap in use since the last call, MiB; then counts anew from what is in use now.
fn peak_mib() -> f64 {
    PEAK.swap(HEAP.load(Ordering::Relaxed), Ordering::Relaxed) as f64 / f64::from(1 << 20)
}

/// Processor seconds this process has used: the machine may be shared.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat
        .split_whitespace()
        .next()
        .and_then(|n| n.parse::<f64>().ok());
    ns.unwrap_or(0.0) * 1e-9
}

fn report_cpu(name: &str, times: u32, f: impl Fn() -> f64) {
    let before = cpu_s();
    for _ in 0..times {
        black_box(f());
    }
    println!(
        "{name}: {:.3} ms of CPU each",
        (cpu_s() - before) * 1e3 / f64::from(times)
    );
}

fn benches(c: &mut Criterion) {
    let before = HEAP.load(Ordering::Relaxed) as f64 / f64::from(1 << 20);
    peak_mib();
    report_cpu("thousand_windows", 1, thousand_windows);
    let peak = peak_mib();
    println!("1,000 windows: peak heap {peak:.1} MiB, {before:.1} MiB of it before");
    assert!(peak <= 64.0, "more than 64 MiB of heap");
    let one = window(1, 10_000);
    let histograms: Vec<Histogram> = LineSize::ALL
        .iter()
        .map(|&l| {
            let mut h = Histogram::new(l);
            one.samples
                .iter()
                .for_each(|s| h.add(&s.own[l.index()], Weight::ONE));
            h
        })
        .collect();
    report_cpu("one_window", 50, || solve_all(black_box(&histograms)));
    let mut group = c.benchmark_group("solve");
    group.sample_size(10);
    group.bench_function("one_window", |b| {
        b.iter(|| solve_all(black_box(&histograms)))
    });
    group.bench_function("thousand_windows", |b| b.iter(thousand_windows));
    let run = Run::new(
        (0..10).map(|i| window(i, 10_000)).collect(),
        Options::default(),
    );
    let run = run.expect("valid windows");
    group.bench_function("attribute", |b| {
        b.iter(|| {
            for kib in (0..10).map(|k| 32u64 << k) {
                let a = run.attribute(64, kib << 10, Policy::RANDOM, Stream::Own, |s| s.instr);
                black_box(a.expect("a valid cache"));
            }
        });
    });
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    group.bench_function("gapless_curves", |b| {
        b.iter(|| {
            let windows = (0..10).map(|i| window(i, 10_000)).collect();
            all_curves(&Run::new(windows, options).expect("valid windows"))
        });
    });
    group.finish();
}

criterion_group!(solve, benches);
criterion_main!(solve);

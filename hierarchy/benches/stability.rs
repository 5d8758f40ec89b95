//! Repeated runs on this host while its other CPUs are busy: does each field come out the same?
//!
//! `STATCACHE_RUNS=N` asks for N runs (20 otherwise), `STATCACHE_MODE=quick|standard|full` for their length;
//! `STATCACHE_KEEP=DIRECTORY` keeps the reports of runs that refused a field, with all they have measured.
//! Memory latency is compared with the quiet host's just before and just after: the load rests meanwhile, as neighbours
//! outside change it by more than the load does. Prints one line per field and, at the
//! end, the fields that missed the bar the tool is held to; it fails on a value that is wrong by the majority of
//! the runs and was given with high confidence.

use statcache_hierarchy::finding::{Confidence, quantile};
use statcache_hierarchy::{MachineReport, Mode, Options, Row, measure};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Fields that must come out the same in every run.
const EXACT: [&str; 9] = [
    "L1d.capacity",
    "L1d.ways",
    "L1d.line",
    "L1d.replacement",
    "DTLB1.entries",
    "page size",
    "write-allocate",
    "L1i.line",
    "registers",
];
/// Fields that must come out the same or be refused.
const EXACT_OR_REFUSED: [&str; 4] = ["L2.ways", "L2.capacity", "L1i.capacity", "L1i.ways"];

fn session(mode: Mode, seed: u64) -> MachineReport {
    measure(Options {
        mode,
        seed,
        progress: &mut |_, _| (),
    })
    .unwrap_or_else(|e| panic!("{e}"))
}

/// CPUs beside the one that is measured, which is the last allowed one.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn other_cpus() -> Vec<usize> {
    let mut allowed = statcache_hierarchy::hw::cores::allowed_cpus();
    allowed.pop();
    allowed
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn other_cpus() -> Vec<usize> {
    Vec::new()
}

/// What the load is to do.
#[derive(Default)]
struct Load {
    rest: AtomicBool,
    stop: AtomicBool,
}

/// Walks and writes memory on one CPU until told to stop.
fn hog(cpu: usize, load: &Load) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Err(error) = statcache_hierarchy::hw::cores::pin(cpu) {
        eprintln!("CPU {cpu} is not kept busy: {error}");
        return;
    }
    let mut memory = vec![1u8; 64 << 20];
    let mut sum = 0u64;
    while !load.stop.load(Ordering::Relaxed) {
        if load.rest.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        for line in memory.chunks_mut(64) {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(line[0]));
            line[0] = sum as u8;
        }
    }
    std::hint::black_box(sum);
}

/// (name, cycles or nanoseconds, largest deviation from the middle allowed).
fn latencies(r: &MachineReport) -> Vec<(&'static str, Option<f64>, f64)> {
    let level = |n: usize| r.hierarchy.levels.get(n).and_then(|l| l.latency.value);
    vec![
        ("L1d latency (cycles)", level(0).map(|l| l.cycles), 0.02),
        ("L2 latency (cycles)", level(1).map(|l| l.cycles), 0.03),
        (
            "L3 latency (cycles)",
            level(2).map(|l| l.cycles),
            f64::INFINITY,
        ),
        (
            "memory p10 (ns)",
            r.hierarchy.memory.value.map(|m| m.ns_p10),
            0.10,
        ),
    ]
}

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let runs = number("STATCACHE_RUNS").unwrap_or(20);
    let mode = match std::env::var("STATCACHE_MODE").as_deref() {
        Ok("quick") => Mode::Quick,
        Ok("full") => Mode::Full,
        _ => Mode::Standard,
    };
    let others = other_cpus();
    if others.is_empty() {
        println!(
            "SKIP the other CPU's load: only one CPU is allowed, so the runs are alone with it"
        );
    }
    let load = Load::default();
    let started = Instant::now();
    let (quiet, reports): (Vec<[MachineReport; 2]>, Vec<MachineReport>) =
        std::thread::scope(|scope| {
            for cpu in others.iter().copied() {
                let load = &load;
                scope.spawn(move || hog(cpu, load));
            }
            // A lap of the load takes some milliseconds.
            let settle = || std::thread::sleep(Duration::from_millis(50));
            let quick = |seed: u64| {
                load.rest.store(true, Ordering::Relaxed);
                settle();
                let quiet = session(Mode::Quick, seed);
                load.rest.store(false, Ordering::Relaxed);
                settle();
                quiet
            };
            let all = (0..runs)
                .map(|i| {
                    let before = quick(1000 + i);
                    let r = session(mode, i);
                    eprintln!("run {} of {runs}", i + 1);
                    ([before, quick(2000 + i)], r)
                })
                .unzip();
            load.stop.store(true, Ordering::Relaxed);
            all
        });
    println!(
        "{runs} {} runs in {:.0} s, {} busy CPU(s) beside",
        mode.name(),
        started.elapsed().as_secs_f64(),
        others.len()
    );
    let failed = table(&reports) | figures(&reports, &quiet);
    if failed {
        println!("some fields missed their bar");
    }
    assert!(
        !wrong_and_sure(&reports),
        "a value differed with high confidence"
    );
}

fn values<'a>(reports: &'a [MachineReport], what: &str) -> BTreeMap<&'a str, u32> {
    let mut counts = BTreeMap::new();
    for row in reports.iter().flat_map(|r| &r.rows) {
        if row.what == what {
            *counts.entry(row.measured.as_str()).or_default() += 1;
        }
    }
    counts
}

/// Fields with words for values; true when one missed its bar.
fn table(reports: &[MachineReport]) -> bool {
    println!("{:<26} {:>6} {:>8}  values", "field", "equal", "refused");
    let mut failed = false;
    let names: Vec<&str> = reports.first().map_or(Vec::new(), |r| {
        r.rows.iter().map(|r| r.what.as_str()).collect()
    });
    for what in names {
        let mut counts: Vec<(&str, u32)> = values(reports, what).into_iter().collect();
        counts.sort_by_key(|c| std::cmp::Reverse(c.1));
        let refused = counts.iter().find(|c| c.0.is_empty()).map_or(0, |c| c.1);
        counts.retain(|c| !c.0.is_empty());
        let equal = counts.first().map_or(0, |c| c.1);
        let total = reports.len() as u32;
        let missed = EXACT.contains(&what) && equal < total
            || EXACT_OR_REFUSED.contains(&what) && counts.len() > 1;
        failed |= missed;
        let shown: Vec<String> = counts
            .iter()
            .take(4)
            .map(|(v, n)| format!("{n} x {}", v.chars().take(60).collect::<String>()))
            .collect();
        println!(
            "{what:<26} {equal:>3}/{total:<2} {refused:>8}  {}{}",
            shown.join("; "),
            if missed { "   MISSED" } else { "" }
        );
        if EXACT.contains(&what) || EXACT_OR_REFUSED.contains(&what) {
            refusals(reports, what);
        }
    }
    failed
}

/// Why a field was refused, and in which run.
fn refusals(reports: &[MachineReport], what: &str) {
    for (run, report) in reports.iter().enumerate() {
        let refused = |r: &&Row| r.what == what && r.measured.is_empty();
        for row in report.rows.iter().filter(refused) {
            let seconds = report.raw.elapsed_ns as f64 / 1e9;
            println!(
                "    refused in run {} ({seconds:.0} s): {}",
                run + 1,
                row.reason
            );
            keep(report, run + 1);
        }
    }
}

/// Keeps what was measured, so that it can be inferred from again.
fn keep(report: &MachineReport, run: usize) {
    let Some(directory) = std::env::var_os("STATCACHE_KEEP") else {
        return;
    };
    let path = std::path::Path::new(&directory).join(format!("run{run}.json"));
    let written = serde_json::to_vec(report).map(|json| std::fs::write(&path, json));
    if !matches!(written, Ok(Ok(()))) {
        eprintln!("{} was not written", path.display());
    }
}

/// Latencies as spread around their middle, memory against the mean of the quiet host's just before and just after each run;
/// true when one missed its bar.
fn figures(reports: &[MachineReport], quiet: &[[MachineReport; 2]]) -> bool {
    let mut failed = false;
    for i in 0..4 {
        let all: Vec<_> = reports.iter().map(|r| latencies(r)[i]).collect();
        let (name, _, bar) = all[0];
        let got: Vec<f64> = all.iter().filter_map(|x| x.1).collect();
        let Some(middle) = quantile(&got, 0.5) else {
            println!("{name:<26} never decided");
            continue;
        };
        let beside = quiet.iter().map(|[before, after]| match i {
            3 => Some((latencies(before)[i].1? + latencies(after)[i].1?) / 2.0),
            _ => Some(middle),
        });
        let pairs = all.iter().map(|x| x.1).zip(beside);
        let off = pairs.filter_map(|(x, of)| Some((x? / of? - 1.0).abs()));
        let off: Vec<f64> = off.collect();
        let worst = off.iter().copied().fold(0.0, f64::max);
        let missed = worst > bar;
        failed |= missed;
        println!(
            "{name:<26} {} of {}, median {middle:.2}, median {:.1} % and worst {:.1} % from {}{}",
            got.len(),
            reports.len(),
            100.0 * quantile(&off, 0.5).unwrap_or(0.0),
            100.0 * worst,
            if i == 3 {
                "the quiet host beside"
            } else {
                "the median"
            },
            if missed { "   MISSED" } else { "" }
        );
    }
    failed
}

/// A field that is exact by nature has a value against the majority, with high confidence.
fn wrong_and_sure(reports: &[MachineReport]) -> bool {
    let mut found = false;
    for what in EXACT.iter().chain(&EXACT_OR_REFUSED) {
        let counts = values(reports, what);
        let usual = counts
            .iter()
            .filter(|c| !c.0.is_empty())
            .max_by_key(|c| *c.1)
            .map(|c| *c.0);
        for row in reports.iter().flat_map(|r| &r.rows) {
            if row.what == *what
                && row.confidence == Confidence::High
                && Some(row.measured.as_str()) != usual
            {
                println!("{what}: {} with high confidence", row.measured);
                found = true;
            }
        }
    }
    found
}

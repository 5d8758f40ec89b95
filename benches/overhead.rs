//! What profiling costs: `cargo bench -p statcache --bench overhead -- [NAME...]`.
//!
//! Native and profiled runs of the long inputs of the harness in `STATCACHE_TRUTH`, taking turns; wall
//! and CPU time as ratios to the native run of the same turn, with the accuracy of the same runs
//! beside them where the harness has an exact result. `--runs=N` turns (5), `--full` observes whole
//! runs, `--counter` takes `--engine counter` where the host has a counter, `--trace` takes the trace
//! inputs and, where it is installed, cachegrind with them. CPU time is that of program and profiler
//! together. Raw figures go to `benches/runs`.

mod common;

use std::fs;
use std::process::Command;

use common::score::score;
use common::{Arguments, Ran, Result, Truth, export, keep, profiler};

fn main() -> Result<()> {
    common::measure_if_asked();
    let arguments = Arguments::parse(&["--trace", "--full", "--runs", "--counter"])?;
    let counter = arguments.has("--counter");
    if counter && !common::may_count("overhead") {
        return Ok(());
    }
    let Some(truth) = Truth::find("overhead")? else {
        return Ok(());
    };
    let runs = arguments.number("--runs", 5)?.max(1);
    let (long, full) = (!arguments.has("--trace"), arguments.has("--full"));
    let valgrind = !long && Command::new("valgrind").arg("--version").output().is_ok();
    if !long && !valgrind {
        println!("SKIP cachegrind: valgrind is not installed");
    }
    println!(
        "{:12} {:>8}  {:>22} {:>22}  {:>8} {:>9} {:>8}  same",
        "program", "native s", "wall", "CPU", "peak MiB", "file KiB", "error pt"
    );
    let mut rows = Vec::new();
    for workload in truth.workloads(&arguments.names)? {
        let name = &workload.name;
        let options: &[&str] = match (counter, full) {
            (true, _) => &["--quiet", "--engine", "counter"],
            (false, true) => &["--quiet", "--full"],
            (false, false) => &["--quiet"],
        };
        let result = turns(&truth, name, long, options, valgrind, runs, &mut rows);
        // One failure must not cost the results of an hour.
        if let Err(error) = result {
            println!("{name:12} FAILED: {error}");
        }
    }
    keep(
        "overhead",
        "program\thow\tturn\twall_s\tcpu_s\tpeak_kib\tfile_bytes\tstatus",
        &rows,
    )
}

/// One program: all its turns, then one line for each way of running it.
fn turns(
    truth: &Truth,
    name: &str,
    long: bool,
    options: &[&str],
    valgrind: bool,
    runs: usize,
    rows: &mut Vec<String>,
) -> Result<()> {
    let profile = truth.scratch("profile");
    let profiler = profiler(&profile, options)?;
    let cachegrind: Vec<String> = [
        "valgrind",
        "-q",
        "--tool=cachegrind",
        "--cache-sim=yes",
        "--cachegrind-out-file=/dev/null",
    ]
    .map(str::to_owned)
    .to_vec();
    let exact = truth.result(name, long);
    let (mut native, mut profiled, mut simulated) = (Vec::new(), Vec::new(), Vec::new());
    let (mut file_bytes, mut errors) = (0, Vec::new());
    for turn in 0..runs {
        let mut note = |how: &str, ran: &Ran, bytes: u64| {
            rows.push(format!(
                "{name}\t{how}\t{turn}\t{}\t{}\t{}\t{bytes}\t{}",
                ran.wall_s, ran.cpu_s, ran.peak_kib, ran.status
            ));
        };
        let ran = truth.run(name, long, &[])?;
        note("native", &ran, 0);
        native.push(ran);
        let ran = truth.run(name, long, &profiler)?;
        let bytes = fs::metadata(&profile)?.len();
        let how = options
            .last()
            .map_or("default", |last| last.trim_start_matches('-'));
        note(if how == "quiet" { "default" } else { how }, &ran, bytes);
        file_bytes = bytes.max(file_bytes);
        profiled.push(ran);
        if let Some(exact) = &exact {
            errors.push(score(&export(&profile)?, exact)?.random.mean_error());
        }
        if valgrind {
            let ran = truth.run(name, long, &cachegrind)?;
            note("cachegrind", &ran, 0);
            simulated.push(ran);
        }
    }
    let native_s = median(native.iter().map(|r| r.wall_s).collect());
    let error = match errors.is_empty() {
        true => "-".to_owned(),
        false => format!("{:.2}", 100.0 * median(errors)),
    };
    print(
        name,
        native_s,
        &native,
        &profiled,
        &format!("{:>9} {error:>8}", file_bytes >> 10),
    );
    if !simulated.is_empty() {
        print(
            "  cachegrind",
            native_s,
            &native,
            &simulated,
            &format!("{:>9} {:>8}", "-", "-"),
        );
    }
    Ok(())
}

fn print(name: &str, native_s: f64, native: &[Ran], other: &[Ran], middle: &str) {
    let ratios = |of: fn(&Ran) -> f64| {
        let all: Vec<f64> = native
            .iter()
            .zip(other)
            .map(|(n, o)| of(o) / of(n))
            .collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        format!("{:.3} ({least:.3}..{most:.3})", median(all))
    };
    let peak = other.iter().map(|r| r.peak_kib).max().unwrap_or(0) >> 10;
    let same = native
        .iter()
        .zip(other)
        .all(|(n, o)| n.status == o.status && n.output == o.output);
    // Some print how long they took.
    let steady = native
        .windows(2)
        .all(|pair| pair[0].output == pair[1].output);
    println!(
        "{name:12} {native_s:>8.2}  {:>22} {:>22}  {peak:>8} {middle}  {}",
        ratios(|r| r.wall_s),
        ratios(|r| r.cpu_s),
        match (same, steady) {
            (true, _) => "yes",
            (_, false) => "differs alone too",
            _ => "NO",
        },
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

//! Where the processor time of whole runs goes: `cargo bench -p statcache --bench breakdown -- [NAME...]`.
//!
//! Long inputs of the harness in `STATCACHE_TRUTH` under `--full`, all on one processor, where program and profiler alternate; `--trace`
//! takes the trace inputs. Program and profiler are sampled by the kernel's task clock. What the sampled instruction of the code cache is there
//! for is told by its form, so that shares of some per cent are approximate; the cost of colder caches is in none. Beside the
//! shares: processor time beside the program's alone. Raw figures go to `benches/runs`.

#[path = "../common/mod.rs"]
mod common;

mod classes;
mod sampler;

use classes::Class;
use common::{Arguments, Result, Truth, keep, profiler};
use std::{env, fs};

fn main() -> Result<()> {
    common::measure_if_asked();
    sampler::sample_if_asked();
    let arguments = Arguments::parse(&["--trace"])?;
    let Some(truth) = Truth::find("breakdown")? else {
        return Ok(());
    };
    println!("shares of the processor time of program and profiler, per cent\n");
    let names = Class::ALL.map(|(_, name)| format!("{name:>11}"));
    println!(
        "{:10} {:>7} {:>6} {}",
        "program",
        "CPU s",
        "ratio",
        names.concat()
    );
    let mut rows = Vec::new();
    for workload in truth.workloads(&arguments.names)? {
        // One failure must not cost the results of an hour.
        if let Err(error) = one(&truth, &workload.name, !arguments.has("--trace"), &mut rows) {
            println!("{:10} FAILED: {error}", workload.name);
        }
    }
    keep(
        "breakdown",
        "program\tclass\tsamples\tcpu_s\tnative_cpu_s",
        &rows,
    )
}

fn one(truth: &Truth, name: &str, long: bool, rows: &mut Vec<String>) -> Result<()> {
    let (report, profile) = (truth.scratch("classes"), truth.scratch("profile"));
    let words = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
    let pinned = words(&["taskset", "-c", "0"]);
    let this = env::current_exe()?;
    let (Some(this), Some(report_name)) = (this.to_str(), report.to_str()) else {
        return Err("a path is not UTF-8".into());
    };
    let alone = truth.run(name, long, &pinned)?;
    let wrapper = [
        pinned,
        words(&[this, sampler::SAMPLE, report_name]),
        profiler(&profile, &["--quiet", "--full"])?,
    ];
    let ran = truth.run(name, long, &wrapper.concat())?;
    let text = fs::read_to_string(&report)?;
    let count = |line: &str| line.split('\t').nth(1)?.parse::<u64>().ok();
    let samples: Vec<u64> = text.lines().filter_map(count).collect();
    let all: u64 = samples.iter().sum();
    if all == 0 {
        return Err("the kernel gave no samples".into());
    }
    let share = |n: &u64| format!("{:>11.1}", 100.0 * *n as f64 / all as f64);
    let ratio = ran.cpu_s / alone.cpu_s;
    println!(
        "{name:10} {:>7.1} {ratio:>6.1} {}",
        ran.cpu_s,
        samples.iter().map(share).collect::<String>()
    );
    for (line, n) in text.lines().zip(&samples) {
        let class = line.split('\t').next().unwrap_or_default();
        rows.push(format!(
            "{name}\t{class}\t{n}\t{}\t{}",
            ran.cpu_s, alone.cpu_s
        ));
    }
    Ok(())
}

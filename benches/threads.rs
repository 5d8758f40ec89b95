//! How near a cache of several threads comes to exact tracing: `cargo bench -p statcache --bench threads -- [NAME...]`.
//!
//! Public programs of several threads of the harness in `STATCACHE_TRUTH`, trace inputs under `--full` (`--repeat=N` runs each). A
//! tracer interleaves threads as it happens to, so its own runs differ; `--against=DIR` takes exact results (`NAME.json`) from elsewhere,
//! as of one that interleaves evenly. Every size goes to `benches/runs`.

mod common;

use common::score::{Curve, curve};
use common::{Arguments, Result, Truth, export, keep, profiler};
use serde_json::Value;
use std::path::Path;

/// Of all references, what a pair of lines must lose to be printed.
const WORTH_A_LINE: f64 = 1e-3;
/// Sizes printed, in KiB.
const SHOWN: [u64; 9] = [8, 32, 48, 64, 96, 128, 256, 512, 768];

fn main() -> Result<()> {
    common::measure_if_asked();
    let arguments = Arguments::parse(&["--repeat", "--against"])?;
    let Some(truth) = Truth::find("threads")? else {
        return Ok(());
    };
    let mut rows = Vec::new();
    for workload in truth.threaded(&arguments.names)? {
        let name = &workload.name;
        let exact = match arguments.value("--against") {
            Some(directory) => Some(elsewhere(directory, name)?),
            None => truth.result(name, false),
        };
        let Some(exact) = exact else {
            println!("SKIP {name}: no exact result");
            continue;
        };
        for round in 0..arguments.number("--repeat", 1)? {
            let profile = truth.scratch("profile");
            let wrapper = profiler(&profile, &["--quiet", "--full"])?;
            let ran = truth.run(name, false, &wrapper)?;
            if ran.status != 0 {
                return Err(format!("{name} ended with status {}", ran.status).into());
            }
            let export = export(&profile)?;
            for policy in ["random", "lru"] {
                let curve = curve(&export, &exact, policy, "all")?;
                print(name, policy, &curve);
                rows.extend(curve.points.iter().map(|p| {
                    let size = p.cache_bytes;
                    let figures = format!("{}\t{}\t{}\t{}", p.exact, p.got, p.low, p.high);
                    format!("{name}\t{round}\t{policy}\t{size}\t{figures}")
                }));
            }
            for pair in export["sharing"]["pairs"].as_array().into_iter().flatten() {
                let ratio = pair["coherence_miss_ratio"].as_f64().unwrap_or(0.0);
                if ratio < WORTH_A_LINE {
                    continue;
                }
                let verdict = pair["verdict"].as_str().unwrap_or("no");
                println!("  {verdict} sharing: {:.2} % of references", 100.0 * ratio);
            }
        }
    }
    let header = "program\tround\tpolicy\tcache_bytes\texact\tmiss_ratio\tlow\thigh";
    keep("threads", header, &rows)
}

fn elsewhere(directory: &str, name: &str) -> Result<Value> {
    let file = Path::new(directory).join(format!("{name}.json"));
    let text = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_slice(&text)?)
}

/// Ours and exact, per cent, at some sizes; the mean and the greatest difference of all.
fn print(name: &str, policy: &str, curve: &Curve) {
    let shown = curve
        .points
        .iter()
        .filter(|p| SHOWN.contains(&(p.cache_bytes >> 10)));
    let shown: Vec<String> = shown
        .map(|p| {
            let size = p.cache_bytes >> 10;
            format!("{size}K {:.1}/{:.1}", 100.0 * p.got, 100.0 * p.exact)
        })
        .collect();
    let worst = curve.worst().map_or(0.0, |p| (p.got - p.exact).abs());
    println!(
        "{name:12} {policy:6} mean {:.2} worst {:.2} inside {}/{}  {}",
        100.0 * curve.mean_error(),
        100.0 * worst,
        curve.inside(),
        curve.points.len(),
        shown.join(", ")
    );
}

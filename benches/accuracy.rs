//! How near profiles come to exact tracing: `cargo bench -p statcache --bench accuracy -- [NAME...]`.
//!
//! For each public program of one thread of the harness in `STATCACHE_TRUTH`: its trace input under
//! `--full`, and its long input at default settings where the harness has an exact result for it
//! (`--trace` or `--long` asks for one of the two, `--repeat=N` for N runs each; `--counter` for the long inputs by
//! `--engine counter`, where the host has a counter). Every size of every
//! curve goes to `benches/runs`.

mod common;

use common::score::{Curve, INSTRUCTION_CACHES, Score, score};
use common::{Arguments, Result, Truth, export, keep, profiler};

fn main() -> Result<()> {
    common::measure_if_asked();
    let arguments = Arguments::parse(&["--trace", "--long", "--repeat", "--counter"])?;
    let counter = arguments.has("--counter");
    if counter && !common::may_count("accuracy") {
        return Ok(());
    }
    let Some(truth) = Truth::find("accuracy")? else {
        return Ok(());
    };
    let repeat = arguments.number("--repeat", 1)?;
    let both = !counter && arguments.has("--trace") == arguments.has("--long");
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for long in [false, true] {
        if !both && (counter || arguments.has("--long")) != long {
            continue;
        }
        println!(
            "\n{}\n{:12} {:>9} {:>8}  {:6} {:>6} {:>6} {:>22} {:>7} {:>6}  instructions: of top 20, weighted error (as many samples drawn singly), misses misplaced",
            if long {
                "long inputs, default settings"
            } else {
                "trace inputs, --full"
            },
            "program",
            "accesses",
            "differ",
            "policy",
            "mean",
            "floor",
            "worst at",
            "inside",
            "width",
        );
        for workload in truth.workloads(&arguments.names)? {
            let name = &workload.name;
            let Some(exact) = truth.result(name, long) else {
                println!(
                    "SKIP {name}{}: no exact result",
                    if long { " long" } else { "" }
                );
                continue;
            };
            for round in 0..repeat {
                // One failure must not cost the results of an hour.
                match one(&truth, name, long, counter, &exact) {
                    Ok(score) => {
                        print(name, &score, truth.model_floor(name, long));
                        rows.extend(raw(name, long, round, &score));
                        all.push((long, score));
                    }
                    Err(error) => println!("{name:12} FAILED: {error}"),
                }
            }
        }
    }
    for long in [false, true] {
        summarize(long, &all);
    }
    let header = "program\tlong\tround\tpolicy\tcache_bytes\texact\tmiss_ratio\tlow\thigh";
    keep("accuracy", header, &rows)
}

fn one(
    truth: &Truth,
    name: &str,
    long: bool,
    counter: bool,
    exact: &serde_json::Value,
) -> Result<Score> {
    let profile = truth.scratch("profile");
    let options: &[&str] = if counter {
        &["--quiet", "--engine", "counter"]
    } else if long {
        &["--quiet"]
    } else {
        &["--quiet", "--full"]
    };
    let ran = truth.run(name, long, &profiler(&profile, options)?)?;
    if ran.status != 0 {
        return Err(format!("ended with status {}", ran.status).into());
    }
    score(&export(&profile)?, exact)
}

fn print(name: &str, score: &Score, floor: Option<f64>) {
    let ours = score.accesses_estimated;
    let differ = 100.0 * (ours / score.accesses_exact - 1.0);
    let floor = floor.map_or("-".to_owned(), |f| format!("{:.2}", 100.0 * f));
    let instructions: Vec<String> = score
        .instructions
        .iter()
        .map(|i| {
            format!(
                "{}K: {} ({:.1})/{} {:.2} ({:.2}) {:.0} %",
                i.cache_bytes >> 10,
                i.found,
                i.chance.found,
                i.top,
                100.0 * i.weighted_error,
                100.0 * i.chance.weighted_error,
                100.0 * i.misplaced
            )
        })
        .collect();
    let head = format!(
        "{name:12} {:>8.1}M {differ:>+7.3}%",
        score.accesses_exact / 1e6
    );
    line(
        &head,
        "random",
        &score.random,
        &floor,
        &instructions.join(", "),
    );
    if !score.lru.points.is_empty() {
        line(&" ".repeat(head.len()), "LRU", &score.lru, "", "");
    }
}

fn line(head: &str, policy: &str, curve: &Curve, floor: &str, tail: &str) {
    let worst = curve.worst().map_or(String::new(), |w| {
        format!(
            "{:.2}/{:.2} {}K",
            100.0 * w.got,
            100.0 * w.exact,
            w.cache_bytes >> 10
        )
    });
    let text = format!(
        "{head}  {policy:6} {:>6.2} {floor:>6} {worst:>22} {:>3}/{:<3} {:>6.2}  {tail}",
        100.0 * curve.mean_error(),
        curve.inside(),
        curve.points.len(),
        100.0 * curve.median_width(),
    );
    println!("{}", text.trim_end());
}

fn raw<'a>(
    name: &'a str,
    long: bool,
    round: usize,
    score: &'a Score,
) -> impl Iterator<Item = String> + 'a {
    [("random", &score.random), ("lru", &score.lru)]
        .into_iter()
        .flat_map(move |(policy, curve)| {
            curve.points.iter().map(move |p| {
                format!(
                    "{name}\t{long}\t{round}\t{policy}\t{}\t{}\t{}\t{}\t{}",
                    p.cache_bytes, p.exact, p.got, p.low, p.high
                )
            })
        })
}

/// What holds over all programs together.
fn summarize(long: bool, all: &[(bool, Score)]) {
    let scores: Vec<&Score> = all
        .iter()
        .filter(|(l, _)| *l == long)
        .map(|(_, s)| s)
        .collect();
    if scores.is_empty() {
        return;
    }
    let curves = |pick: fn(&Score) -> &Curve| {
        let curves = scores.iter().map(move |s| pick(s));
        curves.filter(|c| !c.points.is_empty())
    };
    println!(
        "\n{}",
        if long {
            "long inputs together"
        } else {
            "trace inputs together"
        }
    );
    for (policy, pick) in [
        ("random", (|s| &s.random) as fn(&Score) -> &Curve),
        ("LRU", |s| &s.lru),
    ] {
        if curves(pick).next().is_none() {
            continue;
        }
        let inside: usize = curves(pick).map(Curve::inside).sum();
        let sizes: usize = curves(pick).map(|c| c.points.len()).sum();
        let mean: f64 =
            curves(pick).map(Curve::mean_error).sum::<f64>() / curves(pick).count() as f64;
        println!(
            "  {policy:6} mean error {:.2} points; exact value inside the interval for {inside} of {sizes} sizes ({:.1} %)",
            100.0 * mean,
            100.0 * inside as f64 / sizes as f64,
        );
    }
    for cache_bytes in INSTRUCTION_CACHES {
        let all = scores.iter().flat_map(|s| &s.instructions);
        let of_cache: Vec<_> = all.filter(|i| i.cache_bytes == cache_bytes).collect();
        let misplaced: f64 = of_cache.iter().map(|i| i.misplaced).sum();
        let inside: usize = of_cache.iter().map(|i| i.inside).sum();
        let judged: usize = of_cache.iter().map(|i| i.judged).sum();
        println!(
            "  at {}K: {:.0} % of the misses are with another instruction (mean); exact ratio inside the interval for {inside} of {judged} instructions ({:.1} %)",
            cache_bytes >> 10,
            100.0 * misplaced / of_cache.len() as f64,
            100.0 * inside as f64 / judged as f64
        );
    }
}

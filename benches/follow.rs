//! What following costs a program while no window is open: `cargo bench -p statcache --bench follow`.
//!
//! Native and followed runs of one program a kind of event, taking turns; medians of wall and of the program's
//! and the profiler's CPU time together, as ratios to native, and the added wall time an event. Windows
//! are kept away by an overhead of next to nothing. `--runs=N` turns (7). Raw figures go to `benches/runs`.

mod common;

use common::{Arguments, Result, keep};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Kind, events in a run (about half a second to two), and what forces stops.
const KINDS: [(&str, u64, &str); 6] = [
    ("work", 4_000_000, "nothing"),
    ("calls", 3_000_000, "nothing"),
    ("signals", 60_000, "each signal: the kernel has no filter"),
    ("faults", 40_000, "each signal: the kernel has no filter"),
    ("forks", 3_000, "birth (3 stops), end"),
    ("threads", 15_000, "birth (3 stops), end"),
];

/// What a run took.
struct Ran {
    wall_s: f64,
    cpu_s: f64,
}

fn measure(command: &mut Command) -> Result<Ran> {
    let (start, before) = (Instant::now(), children_s());
    let status = command.stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    Ok(Ran {
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: children_s() - before,
    })
}

/// CPU seconds of all children waited for (getrusage(2), `RUSAGE_CHILDREN`).
fn children_s() -> f64 {
    // SAFETY: rusage is plain numbers, for which zero is a value; getrusage writes nothing else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse(&["--runs"])?;
    let turns = arguments.number("--runs", 7)?.max(1);
    let place = tempfile::tempdir()?;
    let program = place.path().join("costs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tracees/costs.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source);
    if !compiler.status().is_ok_and(|status| status.success()) {
        println!("SKIP follow: there is no C compiler");
        return Ok(());
    }
    println!(
        "{:8} {:>9} {:>9} {:>7} {:>7} {:>10}  forced by",
        "kind", "events", "native s", "wall", "CPU", "us/event"
    );
    let mut rows = Vec::new();
    for (kind, events, forced) in KINDS {
        let events_text = events.to_string();
        let mut native = Command::new(&program);
        native.args([kind, &events_text]);
        let mut followed = Command::new(env!("CARGO_BIN_EXE_statcache"));
        followed.args(["run", "-q", "--overhead", "0.0001", "-o"]);
        followed.arg(place.path().join("p")).arg(&program);
        followed.args([kind, &events_text]);
        let mut runs: Vec<(Ran, Ran)> = Vec::new();
        for turn in 0..turns {
            let pair = (measure(&mut native)?, measure(&mut followed)?);
            for (how, ran) in [("native", &pair.0), ("followed", &pair.1)] {
                rows.push(format!(
                    "{kind}\t{how}\t{turn}\t{:.6}\t{:.6}",
                    ran.wall_s, ran.cpu_s
                ));
            }
            runs.push(pair);
        }
        let median = |of: &dyn Fn(&(Ran, Ran)) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let added = median(&|(n, f)| f.wall_s - n.wall_s) / events as f64;
        println!(
            "{kind:8} {events:>9} {:>9.3} {:>7.2} {:>7.2} {:>10.2}  {forced}",
            median(&|(n, _)| n.wall_s),
            median(&|(n, f)| f.wall_s / n.wall_s),
            median(&|(n, f)| f.cpu_s / n.cpu_s),
            1e6 * added
        );
    }
    keep("follow", "kind\thow\tturn\twall_s\tcpu_s", &rows)
}

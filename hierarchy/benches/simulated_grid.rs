//! The whole grid: 500 random machines solved blind, and the bar that inference is held to.
//!
//! `cargo bench -p statcache-hierarchy --bench simulated_grid`. `STATCACHE_GRID=N` asks for N machines, `STATCACHE_GRID_FROM=K`
//! starts at seed K, `STATCACHE_GRID_THREADS=T` measures T at a time (all processors otherwise), `STATCACHE_GRID_VERBOSE=1`
//! tells what was found on each; `STATCACHE_GRID_RAW=DIR` keeps what was measured there, and infers from it again where
//! it is there already. A machine takes 3 to 15 s of processor time. Nothing in it depends on the time that passes outside.

use statcache_hierarchy::sim::grid::{Grid, PLAN, table};
use std::path::PathBuf;

/// Share of the decided values of a field that must be right.
const RIGHT: f64 = 0.99;
/// Machines the share is asked of; fewer show nothing, and only high confidence is judged.
const ENOUGH: u64 = 500;

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let (count, from) = (
        number("STATCACHE_GRID").unwrap_or(ENOUGH),
        number("STATCACHE_GRID_FROM").unwrap_or(0),
    );
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let tally = Grid {
        seeds: from..from + count,
        plan: PLAN,
        threads: number("STATCACHE_GRID_THREADS").map_or(processors, |n| n.max(1) as usize),
        kept: std::env::var_os("STATCACHE_GRID_RAW").map(PathBuf::from),
        verbose: std::env::var_os("STATCACHE_GRID_VERBOSE").is_some(),
    }
    .run();
    println!("{}", table(&tally));
    let mut failed = false;
    for (name, f) in &tally {
        let short = count >= ENOUGH && f64::from(f.right) < RIGHT * f64::from(f.decided());
        if f.wrong_high > 0 || short {
            println!(
                "{name}: {} wrong and {} wrong with high confidence of {} decided",
                f.wrong,
                f.wrong_high,
                f.decided()
            );
            failed = true;
        }
    }
    if count < ENOUGH {
        println!("SKIP the share of right values: {count} machines are too few for it");
    }
    assert!(!failed, "the grid missed its bar");
    println!("{count} machines from seed {from}: passed");
}

//! A small part of the grid of simulated machines; `cargo bench --bench simulated_grid` runs all of it.
//!
//! `STATCACHE_GRID=N` asks for N machines, `STATCACHE_GRID_FROM=K` starts at seed K, `STATCACHE_GRID_VERBOSE=1` tells
//! what was found on each.

use statcache_hierarchy::sim::grid::{Grid, PLAN, table};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_machines_are_solved_blind() {
    let count = number("STATCACHE_GRID").unwrap_or(if cfg!(debug_assertions) { 2 } else { 6 });
    let from = number("STATCACHE_GRID_FROM").unwrap_or(0);
    let tally = Grid {
        seeds: from..from + count,
        plan: PLAN,
        threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(2)),
        kept: None,
        verbose: std::env::var_os("STATCACHE_GRID_VERBOSE").is_some(),
    }
    .run();
    println!("{}", table(&tally));
    // So few machines cannot tell one wrong value in a hundred from none; the bench can.
    for (name, f) in &tally {
        assert_eq!(f.wrong_high, 0, "{name}: wrong with high confidence");
        assert!(f.wrong <= 1, "{name}: {} wrong of {}", f.wrong, f.decided());
    }
    for name in ["L1 capacity", "L1 ways", "L1 line", "L1 latency"] {
        let f = &tally[name];
        assert!(f.right >= 4 * f.refused, "{name}: {} refused", f.refused);
    }
}

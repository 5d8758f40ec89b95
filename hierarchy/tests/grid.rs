//! A small part of the grid of simulated machines; `cargo bench --bench simulated_grid` runs all of it.
//!
//! `STATCACHE_GRID=N` asks for N machines, `STATCACHE_GRID_FROM=K` starts at seed K, `STATCACHE_GRID_VERBOSE=1` tells
//! what was found on each.

use statcache_hierarchy::measure::MeasureError;
use statcache_hierarchy::probe::code;
use statcache_hierarchy::rng::Rng;
use statcache_hierarchy::sim::grid::{Grid, PLAN, table};
use statcache_hierarchy::sim::{Machine, random};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_machines_are_solved_blind() {
    let count = number("STATCACHE_GRID").unwrap_or(if cfg!(debug_assertions) { 2 } else { 4 });
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

#[test]
fn instruction_caches_are_solved_blind() -> Result<(), MeasureError> {
    let mut refused = 0;
    for seed in 0..6 {
        let truth = random::machine(seed);
        let mut m = Machine::new(truth.clone());
        let mut rng = Rng::new(seed);
        let mut votes = Vec::new();
        for _ in 0..3 {
            let mut vote = code::Vote::default();
            code::collect(&mut m, &mut vote, &mut rng)?;
            code::collect_footprints(&mut m, &mut vote)?;
            votes.push(vote);
        }
        let (cache, line) = (code::infer(&votes), code::infer_line(&votes));
        let way = truth.code.bytes() / u64::from(truth.code.ways);
        match cache.value {
            Some(found) => assert_eq!(found, (truth.code.ways, way), "machine {seed}"),
            None => refused += 1,
        }
        assert!(
            line.value.is_none_or(|l| l == truth.code.line),
            "machine {seed}: {line:?}"
        );
    }
    assert!(refused <= 1, "{refused} of 6 refused");
    Ok(())
}

/// Also where far jumps leave the predictor's fast table before their pages leave the translation buffer.
#[test]
fn instruction_translations_are_solved_blind() -> Result<(), MeasureError> {
    let (mut refused, mut predictors) = (0, 0);
    for seed in 0..24 {
        let truth = random::machine(seed);
        predictors += u32::from(truth.far_jumps < truth.code_tlb.entries);
        let mut m = Machine::new(truth.clone());
        let mut rng = Rng::new(seed);
        let mut votes = vec![code::Vote::default(); 3];
        for vote in &mut votes {
            code::collect_pages(&mut m, vote, 512, &mut rng)?;
        }
        match code::infer_translations(&votes).value {
            Some((fit, beyond)) => assert!(
                (fit..beyond).contains(&truth.code_tlb.entries),
                "machine {seed}: {fit} to {beyond}, has {:?}",
                truth.code_tlb
            ),
            None => refused += 1,
        }
    }
    assert!(predictors >= 4, "{predictors}");
    assert!(refused <= 3, "{refused} of 24 refused");
    Ok(())
}

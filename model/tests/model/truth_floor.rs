//! The equation on complete reuse histograms of real programs gives the published model floor.
//!
//! `STATCACHE_TRUTH` names the directory of the exact simulations.

use std::collections::HashMap;
use std::path::Path;

use statcache_model::{Histogram, LineSize, Undecided, Weight, random_miss_ratio};

/// The columns of the floor table: name -> ratios by the equation at 32K, 256K, 1M, 8M.
fn published(table: &str) -> HashMap<String, [f64; 4]> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut parts = line.split('|');
            let name = parts.next()?.split_whitespace().next()?.to_string();
            let model: Vec<f64> = parts
                .next()?
                .split_whitespace()
                .filter_map(|pair| pair.split_once('/')?.1.parse().ok())
                .collect();
            Some((name, model.try_into().ok()?))
        })
        .collect()
}

fn histogram(result: &serde_json::Value) -> Option<Histogram> {
    let line = &result["line"]["64"];
    let mut h = Histogram::new(LineSize::B64);
    for bin in line["reuse_hist"].as_array()? {
        let (lower, count) = (bin[0].as_u64()?, bin[1].as_u64()?);
        let width = if lower < 16 {
            1
        } else {
            1u64 << (lower.ilog2() - 3)
        };
        h.add_reuses(lower as f64 + (width - 1) as f64 / 2.0, count, Weight::ONE);
    }
    h.add_never(line["cold"].as_u64()?, Weight::ONE);
    Some(h)
}

#[test]
fn equation_reproduces_the_model_floor() {
    let Some(truth) = std::env::var_os("STATCACHE_TRUTH") else {
        println!("SKIP equation_reproduces_the_model_floor: STATCACHE_TRUTH is not set");
        return;
    };
    let results = Path::new(&truth).join("results");
    let table = std::fs::read_to_string(results.join("MODEL_FLOOR.txt")).unwrap();
    let floor = published(&table);
    assert!(floor.len() > 20, "{} programs in the table", floor.len());
    let mut worst: f64 = 0.0;
    for (name, expected) in &floor {
        let text = std::fs::read_to_string(results.join(format!("{name}.json"))).unwrap();
        let h = histogram(&serde_json::from_str(&text).unwrap()).unwrap();
        let survival = h.survival();
        for (bytes, want) in [32u64 << 10, 256 << 10, 1 << 20, 8 << 20]
            .iter()
            .zip(expected)
        {
            let got = random_miss_ratio(&survival, bytes / 64, Undecided::Never);
            worst = worst.max((got - want).abs());
            assert!(
                (got - want).abs() < 0.001,
                "{name} at {bytes}: {got}, published {want}"
            );
        }
    }
    println!("{} programs, largest difference {worst:.6}", floor.len());
}

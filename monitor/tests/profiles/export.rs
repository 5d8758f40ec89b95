//! Exports held against the contract and against exact simulation.

use std::process::Command;

use crate::common::{COPY, LOOKUP, Plan, SWEEP, records, simulate_random, write};
use serde_json::Value;

fn export(plan: Plan, format: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.prof");
    write(&path, &records(plan));
    let out = dir.path().join("out");
    std::fs::write(&out, "older and longer than nothing ".repeat(100_000)).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args([
            "export",
            path.to_str().unwrap(),
            "--format",
            format,
            "-o",
            out.to_str().unwrap(),
        ])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::read_to_string(out).unwrap()
}

fn json(plan: Plan) -> Value {
    serde_json::from_str(&export(plan, "json")).unwrap()
}

fn keys_of(value: &Value, expected: &[&str]) {
    for key in expected {
        assert!(value.get(key).is_some(), "{key} of {value}");
    }
}

fn miss_at(entry: &Value, cache_bytes: u64) -> &Value {
    let list = entry["miss"].as_array().unwrap();
    list.iter()
        .find(|m| m["cache_bytes"] == cache_bytes)
        .unwrap()
}

#[test]
fn the_document_has_the_keys_of_the_contract() {
    let doc = json(Plan::small());
    keys_of(
        &doc,
        &[
            "schema_version",
            "processes",
            "engine",
            "command",
            "pid",
            "exit_status",
            "seed",
            "totals",
            "time",
            "curves",
            "lines",
            "functions",
            "instructions",
            "data",
            "windows",
            "warnings",
        ],
    );
    let first = &doc["processes"][0];
    keys_of(
        first,
        &[
            "pid",
            "ppid",
            "engine",
            "totals",
            "curves",
            "lines",
            "instructions",
            "warnings",
        ],
    );
    assert_eq!(first["curves"], doc["curves"]);
    keys_of(
        &doc["totals"],
        &[
            "accesses_observed",
            "accesses_estimated",
            "windows",
            "samples",
            "reused",
            "censored",
            "never_reused",
            "declined",
        ],
    );
    keys_of(&doc["time"], &["wall_s", "window_wall_s"]);
    keys_of(
        &doc["lines"][0],
        &[
            "file",
            "line",
            "function",
            "object",
            "samples",
            "access_share",
            "miss",
            "reuse_from",
        ],
    );
    keys_of(
        &doc["lines"][0]["miss"][0],
        &["cache_bytes", "miss_ratio", "low", "high", "miss_share"],
    );
    keys_of(
        &doc["lines"][0]["reuse_from"][0],
        &["file", "line", "share", "miss_ratio"],
    );
    keys_of(
        &doc["instructions"][0],
        &[
            "object",
            "offset",
            "samples",
            "access_share",
            "miss",
            "reuse_from",
        ],
    );
    keys_of(
        &doc["data"][0],
        &["kind", "name", "samples", "access_share", "miss"],
    );
    keys_of(&doc["windows"][0], &["start_s", "accesses", "samples"]);
    keys_of(&doc["warnings"][0], &["what", "remedy"]);
    assert_eq!(doc["windows"].as_array().unwrap().len(), 8);
    assert!(doc["totals"]["accesses_estimated"].is_u64());
}

#[test]
fn there_is_a_curve_for_every_line_size_and_policy() {
    let doc = json(Plan::small());
    let curves = doc["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 10);
    for curve in curves {
        let sizes: Vec<u64> = curve["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["cache_bytes"].as_u64().unwrap())
            .collect();
        let mut size = 8 << 10;
        while size <= 64 << 20 {
            assert!(sizes.contains(&size), "{size}");
            assert!(
                size == 64 << 20 || sizes.contains(&(size + size / 2)),
                "{size} and a half"
            );
            size *= 2;
        }
        assert!(sizes.is_sorted());
        for p in curve["points"].as_array().unwrap() {
            let x = |k: &str| p[k].as_f64().unwrap();
            assert!(0.0 <= x("low") && x("low") <= x("miss_ratio"), "{p}");
            assert!(x("miss_ratio") <= x("high") && x("high") <= 1.0, "{p}");
        }
    }
}

#[test]
fn figures_are_near_exact_simulation() {
    let plan = Plan {
        accesses: 3_000_000,
        period: 100,
        ..Plan::small()
    };
    let doc = json(plan);
    let curve = doc["curves"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["line_size"] == 64 && c["policy"] == "random")
        .unwrap();
    for (bytes, share_tolerance) in [(32 << 10, 0.05), (1 << 20, 0.05), (8 << 20, 0.08)] {
        let truth = simulate_random(plan, bytes, 64);
        let point = curve["points"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["cache_bytes"] == bytes)
            .unwrap();
        let off = point["miss_ratio"].as_f64().unwrap() - truth.miss_ratio();
        println!(
            "{bytes}: {} true {}",
            point["miss_ratio"],
            truth.miss_ratio()
        );
        assert!(off.abs() < 0.01, "{bytes}: off by {off}");
        for (ip, offset, object) in [
            (SWEEP, 0x1130, "grind"),
            (LOOKUP, 0x1188, "grind"),
            (COPY, 0x16_0a40, "libc.so.6"),
        ] {
            let instruction = doc["instructions"]
                .as_array()
                .unwrap()
                .iter()
                .find(|i| i["offset"] == offset && i["object"] == object)
                .unwrap();
            let share = miss_at(instruction, bytes)["miss_share"].as_f64().unwrap();
            println!(
                "  {object}+{offset:#x}: {share} true {}",
                truth.miss_share(ip)
            );
            assert!(
                (share - truth.miss_share(ip)).abs() < share_tolerance,
                "{bytes} {offset:#x}: {share} for {}",
                truth.miss_share(ip)
            );
        }
    }
}

#[test]
fn lists_are_complete_and_worst_first() {
    let doc = json(Plan::small());
    let shares = |list: &str, bytes: u64| -> Vec<f64> {
        doc[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| miss_at(e, bytes)["miss_share"].as_f64().unwrap())
            .collect()
    };
    for list in ["lines", "functions", "instructions", "data"] {
        // In the host's second level, as a report has them.
        let worsts = shares(list, 2 << 20);
        assert!(worsts.is_sorted_by(|a, b| a >= b), "{list}: {worsts:?}");
        assert!(worsts.len() > 1 && worsts[0] > 0.0, "{list}: {worsts:?}");
        for bytes in [
            32 << 10,
            256 << 10,
            1 << 20,
            8 << 20,
            32 << 20,
            48 << 10,
            2 << 20,
        ] {
            let sum: f64 = shares(list, bytes).iter().sum();
            assert!(
                (0.9..=1.0 + 1e-9).contains(&sum),
                "{list} at {bytes}: {sum}"
            );
        }
    }
    let names: Vec<&str> = doc["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["kind"].as_str().unwrap())
        .collect();
    for kind in ["heap", "static", "stack", "mapping"] {
        assert!(names.contains(&kind), "{kind} in {names:?}");
    }
}

#[test]
fn the_table_has_a_row_for_every_figure_of_the_document() {
    let plan = Plan::small();
    let doc = json(plan);
    let csv = export(plan, "csv");
    let columns = csv.lines().next().unwrap().split(',').count();
    for line in csv.lines() {
        assert_eq!(
            line.split(',').count(),
            columns,
            "no name here holds a comma: {line}"
        );
    }
    let rows = |section: &str| {
        csv.lines()
            .filter(|l| l.starts_with(&format!("{section},")))
            .count()
    };
    let figures = |list: &str| -> usize {
        doc[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["miss"].as_array().unwrap().len())
            .sum()
    };
    assert_eq!(rows("line"), figures("lines"));
    assert_eq!(rows("function"), figures("functions"));
    assert_eq!(rows("instruction"), figures("instructions"));
    assert_eq!(rows("data"), figures("data"));
    let points: usize = doc["curves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["points"].as_array().unwrap().len())
        .sum();
    assert_eq!(rows("curve"), points);
}

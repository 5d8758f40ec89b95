//! How many accesses a default run says there were, where that is known.

use crate::support::c::build;
use crate::support::cli::{lossy, output, readable, text};
use std::process::Command;

/// A program that makes no accesses for nine tenths of its time makes as many as it does in the rest.
#[test]
fn time_without_accesses_is_nobodys() {
    const LOADS: f64 = 100e6;
    let Some((place, program)) = build("idles") else {
        return;
    };
    let program = text(&program);
    let told: Vec<_> = ["1", "2", "3"]
        .into_iter()
        .map(|seed| {
            let profile = place.path().join(seed);
            let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
            command
                .args(["run", "-q", "--seed", seed, "-o"])
                .arg(&profile)
                .arg("--");
            command.args([program.as_str(), "20", "100000000", "250000000"]);
            let found = output(command, b"");
            assert!(found.status.success(), "{}", lossy(&found.stderr));
            let footer = readable(&profile).footer.expect("an end");
            footer.accesses_estimated
        })
        .collect();
    let holds = |e: &&_| {
        let statcache::profile::types::Estimate { low, high, .. } = **e;
        (low / 1.5..=high * 1.5).contains(&LOADS)
    };
    assert!(told.iter().filter(holds).count() >= 2, "{told:?}");
}

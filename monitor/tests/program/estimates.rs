//! How many accesses a default run says there were, where that is known.

use crate::support::c::build;
use crate::support::cli::{lossy, output, readable, text};
use statcache::profile::Profile;
use statcache::profile::types::{Estimate, ThreadShare, Warning};
use std::path::Path;
use std::process::Command;

/// What a program prints, and its profile of a default run.
fn observed(place: &Path, seed: &str, words: &[&str]) -> (String, Profile) {
    let profile = place.join(seed);
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    command.args(["run", "-q", "--seed", seed, "-o"]);
    command.arg(&profile).arg("--").args(words);
    let found = output(command, b"");
    assert!(found.status.success(), "{}", lossy(&found.stderr));
    (lossy(&found.stdout), readable(&profile))
}

/// A program that makes no accesses for nine tenths of its time makes as many as it does in the rest.
#[test]
fn time_without_accesses_is_nobodys() {
    const LOADS: f64 = 100e6;
    let Some((place, program)) = build("idles") else {
        return;
    };
    let program = text(&program);
    let (mut looked, mut named) = (0, 0);
    let told: Vec<_> = ["1", "2", "3", "4", "5", "6"]
        .into_iter()
        .map(|seed| {
            let words = [program.as_str(), "20", "100000000", "250000000"];
            let (_, profile) = observed(place.path(), seed, &words);
            let footer = profile.footer.expect("an end");
            // Where the program is between windows is told where its clock may tick.
            let of_windows = |w: &Warning| w.what.contains("no window saw an access");
            let warning = footer.warnings.iter().find(|w| of_windows(w));
            assert!(
                warning.is_none_or(|w| w.what.contains(": think ") && !w.what.contains("load ")),
                "{warning:?}"
            );
            let told = profile.unmet.is_some_and(|unmet| unmet.of > 0);
            assert_eq!(told, !profile.looks.is_empty());
            // Without such looks nothing tells.
            looked += u32::from(!profile.looks.is_empty());
            named += u32::from(warning.is_some());
            footer.accesses_estimated
        })
        .collect();
    // Its return may be a sample.
    assert!(named + 2 >= looked, "{named} of {looked}");
    let holds = |e: &&_| {
        let Estimate { low, high, .. } = **e;
        (low / 1.5..=high * 1.5).contains(&LOADS)
    };
    assert!(told.iter().filter(holds).count() >= 5, "{told:?}");
}

/// Code that makes most of the accesses in a hundredth of the time has windows, as one is opened where it was seen in between.
#[test]
fn windows_are_sought_where_the_program_was_seen_and_none_was() {
    const NAME: &str = "windows_are_sought_where_the_program_was_seen_and_none_was";
    const ACCESSES: f64 = 170e6;
    let Some((place, program)) = build("bursts") else {
        return;
    };
    let program = text(&program);
    let mut told = Vec::new();
    // Beside others that want the processors it is met less often.
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"] {
        let profile = place.path().join(seed);
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command.env("STATCACHE_LOG", "statcache::session=debug");
        command.args(["run", "-q", "--seed", seed, "-o"]);
        command.arg(&profile).arg("--");
        command.args([program.as_str(), "30", "20000000", "150000000"]);
        let ran = output(command, b"");
        assert!(ran.status.success(), "{}", lossy(&ran.stderr));
        let profile = readable(&profile);
        if lossy(&ran.stderr).contains("no samples of the task clock") {
            println!("SKIP {NAME}: the kernel gives no samples of where the program is");
            return;
        }
        let found = lossy(&ran.stderr).contains("found where it was sought");
        let estimated = profile.footer.expect("an end").accesses_estimated.value;
        // It is a tenth of them without that code, and a quarter where windows that merely came to it stand for its time.
        let near = (0.4..4.0).contains(&(estimated / ACCESSES));
        told.push((near, found, estimated));
        if told.iter().filter(|(near, ..)| *near).count() >= 3 {
            return;
        }
    }
    panic!("{told:?}");
}

/// Threads that run side by side have parts of the windows as they have of the run, whatever they do in the same time.
#[test]
fn threads_of_unequal_speed_have_unequal_parts() {
    let Some((place, program)) = build("uneven") else {
        return;
    };
    let program = text(&program);
    let told: Vec<(f64, f64)> = ["1", "2", "3"]
        .into_iter()
        .map(|seed| {
            let words = [program.as_str(), "200000000"];
            let (printed, profile) = observed(place.path(), seed, &words);
            let share: f64 = printed.trim().parse().expect("a number");
            let (mut slow, mut all) = (0.0, 0.0);
            for window in &profile.windows {
                let first = window.threads.iter().min_by_key(|share| share.tid);
                let part = |first: &ThreadShare| first.accesses as f64 / window.accesses as f64;
                let both = window.threads.len() == 2;
                let stands_for = window.stands_for.value * f64::from(u8::from(both));
                slow += first.map_or(0.0, part) * stands_for;
                all += stands_for;
            }
            (slow / all, share)
        })
        .collect();
    println!("{told:?}");
    // Equal parts would be several times too many.
    let near = |(told, share): &&(f64, f64)| (0.4..3.0).contains(&(told / share));
    assert!(told.iter().filter(near).count() >= 2, "{told:?}");
}

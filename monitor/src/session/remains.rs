//! What is left of a process for the profile when it ends, or when we go.

use super::recorder::Recorder;
use crate::engine::counter::window::Losses;
use crate::engine::translate::window::STORM;
use crate::profile::ProfileError;
use crate::profile::types::{Estimate, Warning};
use crate::tracee::filters::UNREADABLE;
use crate::tracee::hub;
use std::collections::BTreeMap;

/// What a process leaves for the profile.
pub struct Remains {
    /// The process as last seen.
    pub process: hub::Process,
    /// Its recorder.
    pub recorder: Recorder,
    /// Accesses estimated.
    pub estimated: Estimate,
    /// Windows, samples and accesses observed.
    pub counts: (u32, u64, u64),
    /// Wall seconds of windows.
    pub window_wall_s: f64,
    /// Share of its CPU time that was spent unobserved though all was to be observed.
    pub missed: f64,
    /// Whether its last program could not be observed.
    pub refused: bool,
    /// What its result suffers from.
    pub warnings: Vec<Warning>,
    /// Set when its last window could not be written.
    pub error: Option<ProfileError>,
}

/// Ended processes of which a profile keeps anything: of a server that starts one for each client, it
/// must not grow for ever.
pub const MOST: usize = 400;

/// Takes away the process that says least: the one, but for the first, with the fewest accesses.
pub fn take_least(remains: &mut Vec<Remains>) -> Option<Remains> {
    let others = remains.iter().enumerate().filter(|(_, r)| r.process.id > 0);
    let least = others.min_by(|a, b| a.1.estimated.value.total_cmp(&b.1.estimated.value));
    least.map(|(at, _)| at).map(|at| remains.swap_remove(at))
}

/// Processes that have ended and are not in the profile.
#[derive(Debug, Default)]
pub struct Unseen {
    /// How many there were.
    pub count: u64,
    /// Their CPU seconds while they were followed.
    pub cpu_s: f64,
    /// The first process, if it is one of them.
    pub first: Option<hub::Process>,
    /// How many of them were observed, and left out to keep the profile small.
    pub left_out: u64,
}

impl Unseen {
    /// Books one without a window.
    pub fn add(&mut self, process: hub::Process) {
        self.count += 1;
        self.cpu_s += (process.cpu_s - process.cpu_before_s).max(0.0);
        if process.id == 0 {
            self.first = Some(process);
        }
    }
}

/// What makes the result of one process less sure: why its program was `refused`, its `windows`, and
/// what was `declined` in them.
pub fn warnings(
    refused: Option<&str>,
    windows: u32,
    declined: &BTreeMap<&'static str, u64>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let Some(reason) = refused {
        let what = if windows == 0 {
            "nothing was"
        } else {
            "the last program executed was not"
        };
        warnings.push(Warning {
            what: format!("{what} observed: {reason}"),
            remedy: "run 'statcache check' to see what this host allows".into(),
        });
    }
    if let Some(storms) = declined.get(STORM) {
        warnings.push(Warning {
            what: format!("signals came faster than windows can follow them, {storms} times"),
            remedy: "if it is a timer of the program's, a slower one".into(),
        });
    }
    if declined.contains_key(UNREADABLE) {
        warnings.push(Warning {
            what: format!("not observed where there is {UNREADABLE}"),
            remedy: "run statcache as root, or in the container whose filter it is".into(),
        });
    }
    let others = || {
        let told = |reason: &str| reason == STORM || reason == UNREADABLE;
        declined.iter().filter(move |(reason, _)| !told(reason))
    };
    let times: u64 = others().map(|(_, n)| n).sum();
    if times > 0 {
        let reasons: Vec<String> = others()
            .map(|(reason, n)| format!("{reason} ({n})"))
            .collect();
        warnings.push(Warning {
            what: format!(
                "windows ended {} where the program must run natively: {}",
                if times == 1 {
                    "once".to_owned()
                } else {
                    format!("{times} times")
                },
                reasons.join(", ")
            ),
            remedy: "nothing to be done: what is around that is less well covered".into(),
        });
    }
    warnings
}

/// Share of its CPU time that a process to be observed whole may spend unobserved before it is told, and counted.
pub const NOTABLE_MISSED: f64 = 0.05;

/// Accesses of a process that was to be observed whole: those that were seen, and where this share of its CPU time was not
/// observed, as many a second there, which is a guess.
pub fn whole(seen: f64, missed: f64) -> Estimate {
    const SPREAD: f64 = 3.0;
    let unseen = match missed > NOTABLE_MISSED {
        true => seen * missed / (1.0 - missed).max(1e-6),
        false => 0.0,
    };
    Estimate {
        value: seen + unseen,
        low: seen,
        high: seen + SPREAD * unseen,
    }
}

/// Share of samples, in per cent, whose watches may end early for reasons of their own before it is told.
const NOTABLE_PERCENT: f64 = 1.0;

/// Watches of the `counter` engine that ended for reasons tied to the line: their censoring is not independent of the
/// distance, so that intervals hold both extremes for them.
pub fn losses(losses: &Losses) -> Option<Warning> {
    let percent = |n: u64| 100.0 * n as f64 / losses.samples.max(1) as f64;
    let lost = losses.hot + losses.unwatchable;
    if percent(lost) < NOTABLE_PERCENT {
        return None;
    }
    Some(Warning {
        what: format!(
            "{:.1} % of {} watches ended for reasons of their line (page too hot {:.1} %, memory that cannot be watched {:.1} %): intervals are wider, to hold whatever these lines did",
            percent(lost),
            losses.samples,
            percent(losses.hot),
            percent(losses.unwatchable),
        ),
        remedy: "profile with --engine translate, which loses hardly any".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_given_up_are_told_by_their_share() {
        let lost = |hot, unwatchable| {
            let all = Losses {
                samples: 200,
                hot,
                unwatchable,
                ..Losses::default()
            };
            losses(&all).map(|warning| warning.what)
        };
        assert_eq!(lost(1, 0), None);
        let said = lost(10, 2).expect("a warning");
        for part in [
            "6.0 % of 200",
            "page too hot 5.0 %",
            "cannot be watched 1.0 %",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn what_was_not_observed_is_no_part_of_what_was() {
        let all = whole(1e6, 0.04);
        assert_eq!((all.low, all.value, all.high), (1e6, 1e6, 1e6));
        let fifth = whole(1e6, 0.8);
        assert!(fifth.low == 1e6 && (fifth.value / 5e6 - 1.0).abs() < 1e-9);
        assert!(fifth.high > fifth.value);
        assert!(whole(1e6, 1.0).value.is_finite());
    }
}

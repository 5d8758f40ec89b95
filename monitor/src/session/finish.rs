//! The end of a session: what it saw becomes footers, warnings and an outcome.

use super::engine::Kind;
use super::follow::Session;
use super::names;
use super::output::Output;
use super::recorder::Recorder;
use super::remains::{NOTABLE_MISSED, Remains};
use super::run::Outcome;
use crate::profile::types::{ENDED_EARLY, Estimate, Footer, ProcessRecord, Warning};
use crate::sizes::format_size;
use crate::tracee::hub::{self, Process};
use crate::tracee::{procinfo, status};
use nix::unistd::Pid;
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// A session whose program is left alone; names are still to be resolved. Holds nothing of the
/// tracing thread.
pub struct Ended {
    /// Of each process its recorder and its end; the first process's comes last.
    parts: Vec<(Recorder, Footer)>,
    output: Output,
    outcome: Outcome,
    kept: bool,
}

impl Ended {
    /// Resolves names, and completes the profile, if that is kept.
    pub fn write(self) -> Outcome {
        let mut outcome = self.outcome;
        if outcome.error.is_some() || !self.kept {
            return outcome;
        }
        let (names, all) = names::resolve(
            self.parts.iter().map(|(recorder, _)| recorder),
            self.output.take_ahead(),
        );
        if !all {
            outcome.warnings.push(Warning {
                what: "memory is short here: the names of lines are not in the profile".into(),
                remedy: "statcache report looks them up, where the program's files are".into(),
            });
        }
        for ((recorder, mut footer), names) in self.parts.into_iter().zip(names) {
            if let Some(warning) = recorder.overlooked(&names) {
                if recorder.is_first() {
                    outcome.warnings.push(warning.clone());
                }
                footer.warnings.push(warning);
            }
            if outcome.error.is_none() {
                outcome.error = recorder.finish(names, footer).err();
            }
        }
        outcome.error = outcome.error.or_else(|| self.output.finish().err());
        outcome
    }
}

impl Session<'_> {
    /// Ends the session; nothing is traced from here on.
    pub(super) fn end(mut self) -> Ended {
        let cut = self.over || self.status.is_none();
        let live: Vec<_> = std::mem::take(&mut self.observed).into_values().collect();
        let live = live.into_iter().map(|observed| observed.finish(cut));
        self.remains.extend(live);
        self.remains
            .sort_by_key(|r| std::cmp::Reverse(r.process.id));
        let wall_s = self.elapsed_s();
        let unseen_s = self.unseen.cpu_s;
        let seen_s: f64 = self.remains.iter().map(|r| r.process.cpu_s).sum();
        let lost_s = unseen_s + live_without_windows(&self.remains);
        let warnings = self.collect_warnings(lost_s, seen_s);
        let mut outcome = Outcome {
            status: self.status,
            processes: self.remains.len(),
            windows: 0,
            samples: 0,
            accesses: 0,
            accesses_estimated: 0.0,
            refused: false,
            warnings: Vec::new(),
            error: self.error,
        };
        let seen_first = self.remains.iter().any(|r| r.process.id == 0);
        let mut parts = Vec::new();
        // Child processes with warnings: too many, often, to be told one by one.
        let mut noted = 0;
        for remains in self.remains {
            let (windows, samples, accesses) = remains.counts;
            outcome.windows += windows;
            outcome.samples += samples;
            outcome.accesses += accesses;
            outcome.accesses_estimated += remains.estimated.value;
            if outcome.error.is_none() {
                outcome.error = remains.error;
            }
            let first = remains.process.id == 0;
            outcome.refused |= first && remains.refused;
            let mut own = remains.warnings;
            if remains.missed > NOTABLE_MISSED && self.config.full {
                own.push(missed(remains.missed));
            }
            if first {
                outcome.warnings.extend(own.iter().cloned());
                own.splice(0..0, warnings.iter().cloned());
            } else {
                noted += u32::from(!own.is_empty());
            }
            let footer = footer(
                &remains.process,
                if first {
                    wall_s
                } else {
                    lived_s(&remains.process)
                },
                remains.window_wall_s,
                remains.estimated,
                own,
            );
            parts.push((remains.recorder, footer));
        }
        outcome.refused &= outcome.windows == 0;
        // The first process has a part even where it had no window.
        let live = hub::process(self.first).filter(|p| p.id == 0);
        let first = live.as_ref().or(self.unseen.first.as_ref());
        if let (Some(first), false) = (first, seen_first) {
            parts.push(empty_part(first, &self.output, wall_s, &warnings));
        }
        outcome.warnings.splice(0..0, warnings);
        if noted > 0 {
            outcome.warnings.push(Warning {
                what: match noted {
                    1 => "the results of one child process have warnings of their own".into(),
                    _ => {
                        format!("the results of {noted} child processes have warnings of their own")
                    }
                },
                remedy: "statcache report --process PID shows them".into(),
            });
        }
        Ended {
            parts,
            output: self.output,
            outcome,
            kept: self.config.kept,
        }
    }

    /// What makes the result less sure, of the run as a whole.
    fn collect_warnings(&mut self, lost_s: f64, seen_s: f64) -> Vec<Warning> {
        let mut warnings = std::mem::take(&mut self.warnings);
        self.output.settle();
        let dropped = self.output.dropped();
        let most_bytes = self.config.most_bytes;
        let mut warn = |what: String, remedy: &str| {
            warnings.push(Warning {
                what,
                remedy: remedy.to_owned(),
            });
        };
        let windows: u32 = self.remains.iter().map(|r| r.counts.0).sum();
        if windows == 0 && self.remains.iter().all(|r| r.warnings.is_empty()) {
            let (what, remedy) = if self.attached {
                // As servers have them that start a process for each client, or some for all.
                let remedy = match working(procinfo::children(self.first)) {
                    Some(which) => format!(
                        "attach to those of its children that work (the busiest so far: {which}): the ones it had before are not followed"
                    ),
                    None if procinfo::is_halted(self.first) => format!(
                        "it is stopped (signal(7), SIGSTOP): have it go on, by kill -CONT {}",
                        self.first
                    ),
                    None => "watch it longer, while it works".to_owned(),
                };
                (
                    "no thread of it ran while it was watched: there is nothing to report",
                    remedy,
                )
            } else {
                (
                    "the program ended before the first window: there is nothing to report",
                    match self.kind {
                        // It has windows only.
                        Kind::Counter(..) => {
                            "run it with --engine translate --full, or on a larger input"
                        }
                        _ if self.config.full => "run it on a larger input",
                        Kind::Translate | Kind::Step => "run it with --full, or on a larger input",
                    }
                    .to_owned(),
                )
            };
            warn(what.into(), &remedy);
        }
        // A signal to both has mostly ended both.
        let shared = self.signals.shared_end.filter(|_| self.status.is_some());
        let with_it = shared.is_some_and(|at| at.elapsed() < WITH_IT);
        if self.signals.end_wanted && !self.attached && !with_it {
            warn(ENDED_EARLY.into(), "let it run to its end");
        }
        if let Some(which) = outlived(self.first)
            && self.status.is_some()
            && !self.attached
            && !self.signals.end_wanted
        {
            warn(
                format!(
                    "the profile ends with the program; other processes that it started went on ({which})"
                ),
                "statcache attach PID watches one of them",
            );
        }
        if windows > 0 && self.output.lacks_heap_sites() {
            warn(
                "no heap could be told by allocation sites: the program is linked statically or to a sanitizer, or its C library is not glibc 2.35 or newer"
                    .into(),
                "the lines that touch its heap tell what they touch",
            );
        }
        let all_s = seen_s + lost_s;
        if windows > 0 && lost_s > 0.03 && lost_s > 0.02 * all_s {
            warn(
                format!(
                    "{:.0} % of the CPU time was spent in {} processes too short for a window, which were not observed",
                    100.0 * lost_s / all_s,
                    self.unseen.count
                ),
                "observe the whole run with --full",
            );
        }
        let left_alone = hub::left_alone();
        if left_alone > 0 {
            warn(
                format!(
                    "{left_alone} processes were not followed: what started them traces them itself, as debuggers do"
                ),
                "none, while it does",
            );
        }
        if dropped > 0 {
            warn(
                format!(
                    "{dropped} older windows were left out to keep the profile under {}; others stand for them",
                    format_size(most_bytes)
                ),
                "keep more of them with --max-size",
            );
        }
        if self.config.full && self.output.bytes() > most_bytes {
            warn(
                format!(
                    "the profile is larger than {} (--max-size): a run that is observed as a whole is kept as a whole",
                    format_size(most_bytes)
                ),
                "leave out --full, or run it on a smaller input",
            );
        }
        if self.unseen.left_out > 0 {
            warn(
                format!(
                    "{} ended processes of little weight were left out to keep the profile small",
                    self.unseen.left_out
                ),
                "watch one process with --no-follow",
            );
        }
        warnings
    }
}

/// Most processes that are named.
const NAMED: usize = 4;
/// How long a program may take to end where the signal that ended the profile was for it, too.
const WITH_IT: Duration = Duration::from_secs(2);

/// Those of a process's children that are not followed and have not ended, the busiest so far first; `None` without any.
fn working(mut children: Vec<Pid>) -> Option<String> {
    children.retain(|&pid| hub::process(pid).is_none());
    listed(children)
}

/// Those of its processes that go on, likewise.
fn outlived(first: Pid) -> Option<String> {
    let pids = hub::processes().into_iter().map(|process| process.pid);
    listed(pids.filter(|&pid| pid != first).collect())
}

/// Those that live, the busiest first.
fn listed(mut pids: Vec<Pid>) -> Option<String> {
    let lives = |pid| status::standing(pid).is_some_and(|standing| !"ZXx".contains(standing.state));
    pids.retain(|&pid| lives(pid));
    pids.sort_by_cached_key(|&pid| {
        Reverse(procinfo::process_clock_s(pid).map(Duration::from_secs_f64))
    });
    let named: Vec<String> = pids.iter().take(NAMED).map(Pid::to_string).collect();
    let more = if pids.len() > NAMED { ", ..." } else { "" };
    (!named.is_empty()).then(|| named.join(", ") + more)
}

/// CPU seconds of a process while it was followed.
fn used(process: &Process) -> f64 {
    (process.cpu_s - process.cpu_before_s).max(0.0)
}

/// Wall seconds from when it was first seen to its end.
fn lived_s(process: &Process) -> f64 {
    let end = process.ended.unwrap_or_else(Instant::now);
    end.duration_since(process.born).as_secs_f64()
}

/// CPU seconds of followed processes that still run and had no window.
fn live_without_windows(remains: &[Remains]) -> f64 {
    let seen = |p: &Process| remains.iter().any(|r| r.process.id == p.id);
    let live = hub::processes().into_iter().filter(|p| !seen(p));
    live.filter_map(|p| Some(procinfo::process_clock_s(p.pid)? - p.cpu_before_s))
        .sum()
}

fn missed(share: f64) -> Warning {
    Warning {
        what: format!(
            "about {:.0} % of the CPU time was spent natively, unobserved",
            100.0 * share
        ),
        remedy: "none: other warnings may say why".into(),
    }
}

fn footer(
    process: &Process,
    wall_s: f64,
    window_wall_s: f64,
    accesses_estimated: Estimate,
    warnings: Vec<Warning>,
) -> Footer {
    Footer {
        exit_status: process.status,
        wall_s,
        cpu_s: process.cpu_s,
        window_wall_s,
        accesses_estimated,
        footprint_bytes: process.footprint_bytes,
        warnings,
    }
}

fn empty_part(
    first: &Process,
    output: &Output,
    wall_s: f64,
    warnings: &[Warning],
) -> (Recorder, Footer) {
    let record = ProcessRecord {
        id: first.id,
        pid: first.pid.as_raw(),
        ppid: first.ppid.as_raw(),
        command: Vec::new(),
    };
    let process = Process {
        cpu_s: used(first),
        ..first.clone()
    };
    let footer = footer(
        &process,
        wall_s,
        0.0,
        Estimate::default(),
        warnings.to_vec(),
    );
    (Recorder::new(output.clone(), record), footer)
}

//! The grid: blind inference on many random machines, judged against their truth.
//!
//! The tests run a small part of it, `benches/simulated_grid.rs` all of it, by the same code.

use super::judge::{Outcome, judge};
use super::{Machine, Truth, random};
use crate::infer::{Hierarchy, infer};
use crate::raw::RawSamples;
use crate::session::{self, Plan};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the grid asks for: the standard plan, shorter, less what no machine here can be asked.
pub const PLAN: Plan = Plan {
    budget_ns: 6_000_000_000,
    stretch: 1.0,
    patience: 1.0,
    after_ns: 0,
    votes: 5,
    evict_votes: 3,
    evict_ns: 1_200_000_000,
    pool_pages: 16384,
    footprint: 24 << 20,
    per_octave: 5,
    passes: 1,
    shared: 0,
    tlb_pages: 0,
    code: false,
    gap_ns: 20_000_000,
};

/// Which machines, and what is done with them.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Seeds of the machines.
    pub seeds: Range<u64>,
    /// How much is measured on each.
    pub plan: Plan,
    /// Machines measured at a time.
    pub threads: usize,
    /// Where raw samples are kept, one file a machine, and inferred from again when they are there already.
    pub kept: Option<PathBuf>,
    /// Print what was found on every machine, not only where something is wrong.
    pub verbose: bool,
}

/// How often a field came out in which way.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// Right.
    pub right: u32,
    /// No value.
    pub refused: u32,
    /// Wrong, said with less than high confidence.
    pub wrong: u32,
    /// Wrong with high confidence.
    pub wrong_high: u32,
    /// Why it was refused, and how often for that reason.
    pub reasons: BTreeMap<String, u32>,
}

impl Field {
    /// Machines on which the field has a value.
    pub fn decided(&self) -> u32 {
        self.right + self.wrong + self.wrong_high
    }
}

/// Counts by field.
pub type Tally = BTreeMap<&'static str, Field>;

/// A reason without its figures, so that like ones are counted together.
fn kind(reason: &str) -> String {
    let mut out = String::new();
    let start = reason.split("; by the footprint curve").next();
    for word in start.unwrap_or(reason).split(' ') {
        let figure = word.chars().any(|c| c.is_ascii_digit());
        let _ = write!(
            out,
            "{}{}",
            if out.is_empty() { "" } else { " " },
            if figure { "N" } else { word }
        );
    }
    out
}

impl Grid {
    /// What was measured on a machine: kept from an earlier run, or measured now.
    fn samples(&self, truth: &Truth, seed: u64) -> RawSamples {
        let file = self.kept.as_ref().map(|d| d.join(format!("{seed}.json")));
        let kept = file.as_ref().and_then(|f| std::fs::read(f).ok());
        if let Some(raw) = kept.and_then(|text| serde_json::from_slice(&text).ok()) {
            return raw;
        }
        let mut machine = Machine::new(truth.clone());
        let raw = session::collect(&mut machine, self.plan, seed, &mut |_, _| ());
        if let Some(file) = file {
            let written = serde_json::to_vec(&raw).map(|text| std::fs::write(&file, text));
            if !matches!(written, Ok(Ok(()))) {
                println!("{}: not written", file.display());
            }
        }
        raw
    }

    /// Measures and judges all machines, printing a line for each: `+` right, `.` refused, `w` wrong, `H` wrong with high
    /// confidence, in the order of [`judge`].
    pub fn run(&self) -> Tally {
        let next = AtomicU64::new(self.seeds.start);
        let tally: Mutex<Tally> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if !self.seeds.contains(&seed) {
                            break;
                        }
                        self.machine(seed, &tally);
                    }
                });
            }
        });
        tally.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn machine(&self, seed: u64, tally: &Mutex<Tally>) {
        let truth = random::machine(seed);
        let raw = self.samples(&truth, seed);
        let found = infer(&raw);
        let (mut line, mut details) = (String::new(), String::new());
        let mut tally = tally.lock().unwrap_or_else(|e| e.into_inner());
        for (name, outcome, reason) in judge(&truth, &found) {
            let field = tally.entry(name).or_default();
            let (sign, count) = match outcome {
                Outcome::Right => ('+', &mut field.right),
                Outcome::Refused => ('.', &mut field.refused),
                Outcome::Wrong => ('w', &mut field.wrong),
                Outcome::WrongHigh => ('H', &mut field.wrong_high),
            };
            *count += 1;
            line.push(sign);
            match outcome {
                Outcome::Right => {}
                Outcome::Refused => *field.reasons.entry(kind(&reason)).or_default() += 1,
                _ => details += &format!("machine {seed}: {name} {outcome:?}\n"),
            }
        }
        println!("machine {seed} {line}");
        if !details.is_empty() || self.verbose {
            println!("{details}{}", explain(&truth, &found, &raw));
        }
    }
}

/// What is needed to see why a machine was misread.
fn explain(truth: &Truth, found: &Hierarchy, raw: &RawSamples) -> String {
    let mut out = String::new();
    for (i, l) in truth.levels.iter().enumerate() {
        let _ = writeln!(out, "  truth L{}: {} bytes, {l:?}", i + 1, l.bytes());
    }
    let _ = writeln!(
        out,
        "  memory {} tlbs {:?} {:?} {:?}",
        truth.memory, truth.tlbs, truth.prefetch, truth.noise
    );
    for l in &found.levels {
        let _ = writeln!(
            out,
            "  found L{}: capacity {:?} range {:?}\n    ways {:?}\n    latency {:?}\n    policy {:?} linear {:?}",
            l.level, l.capacity, l.range, l.ways, l.latency, l.policy.value, l.linear_index.value
        );
    }
    for v in &raw.evict {
        let _ = writeln!(
            out,
            "  evict {:.1?} {:?} batches {:?} of {} crossed {:.1?} {:?}",
            v.levels,
            v.curve,
            (&v.batches, v.control, v.noticed),
            v.pool,
            v.crossed,
            v.gave_up
        );
    }
    let _ = writeln!(
        out,
        "  l2 {:.1?}\n  l3 {:.1?}",
        raw.latency.l2, raw.latency.l3
    );
    let _ = writeln!(out, "  translation {:?}", found.translation.entries);
    for v in &raw.tlb.votes {
        let _ = writeln!(out, "  {:.2} {:.2} {:.1?}", v.hit, v.cost, v.tries);
    }
    out
}

/// The counts as a table, with the most frequent reasons of refusals.
pub fn table(tally: &Tally) -> String {
    let mut out = format!(
        "{:<16} {:>6} {:>6} {:>11} {:>8} {:>9} {:>17}\n",
        "field", "right", "wrong", "wrong, high", "refused", "refused %", "right of decided"
    );
    for (name, f) in tally {
        let all = f.refused + f.decided();
        let _ = writeln!(
            out,
            "{name:<16} {:>6} {:>6} {:>11} {:>8} {:>8.1} {:>15.1} %",
            f.right,
            f.wrong,
            f.wrong_high,
            f.refused,
            100.0 * f64::from(f.refused) / f64::from(all),
            100.0 * f64::from(f.right) / f64::from(f.decided().max(1))
        );
    }
    for (name, f) in tally {
        let mut reasons: Vec<_> = f.reasons.iter().collect();
        reasons.sort_by_key(|r| std::cmp::Reverse(r.1));
        for (reason, n) in reasons.into_iter().take(4) {
            let _ = writeln!(out, "{name} refused, {n} times: {reason}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn like_reasons_are_counted_together() {
        let a = kind("2 of 9 classes; by the footprint curve 1 MiB to 2 MiB");
        assert_eq!(
            (a.as_str(), kind("3 of 7 classes")),
            ("N of N classes", a.clone())
        );
    }
}

//! The order of the experiments: votes of one parameter apart in time, dependants after what they need.
//!
//! Rounds go over all parameters, each taking one vote, until they are decided or the time is up.
//! A probe that the backend refuses is noted and left out from then on.

mod dependants;
mod plan;

use crate::measure::{Measure, MeasureError};
use crate::probe::{
    PAGE, code, evict, footprint, l1, latency, opcache, policy, prefetch, tlb, unified,
};
use crate::raw::RawSamples;
use crate::rng::Rng;
pub use plan::Plan;
use std::collections::BTreeSet;

/// Progress: what is being measured and the share of the time that has passed, 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(&str, f64);

struct Session<'a> {
    m: &'a mut dyn Measure,
    plan: Plan,
    raw: RawSamples,
    rng: Rng,
    start: u64,
    start_cpu: u64,
    off: BTreeSet<&'static str>,
    /// Probes that came to an end without being refused.
    answered: u64,
    race: Option<(l1::Geometry, policy::Race)>,
    /// Races for the first level's policy that came to nothing.
    restarts: u32,
    class: Vec<u64>,
    /// It came to a sharp result.
    class_sharp: bool,
    /// Pages that are not in it.
    strangers: Vec<u64>,
    /// Rounds in which the class was used: what builds on it needs some votes too.
    class_rounds: u32,
    /// What a second part of the time is for was still undecided when the last round ended: the first levels, translation in front of
    /// them, the second level's sets.
    open: bool,
    progress: Progress<'a>,
}

/// Measures everything the plan has time for.
pub fn collect(m: &mut dyn Measure, plan: Plan, seed: u64, progress: Progress<'_>) -> RawSamples {
    let (start, start_cpu) = (m.now_ns(), m.cpu_ns());
    let raw = RawSamples::new(m.facts().clone(), seed);
    let mut s = Session {
        m,
        plan,
        raw,
        rng: Rng::new(seed),
        start,
        start_cpu,
        off: BTreeSet::new(),
        answered: 0,
        race: None,
        restarts: 0,
        class: Vec::new(),
        class_sharp: false,
        strangers: Vec::new(),
        class_rounds: 0,
        open: true,
        progress,
    };
    s.run();
    s.raw.elapsed_ns = s.m.now_ns() - start;
    s.raw.settle();
    s.raw
}

impl Session<'_> {
    fn spent(&self) -> f64 {
        let wall = (self.m.now_ns() - self.start) as f64;
        wall / (self.end() - self.start) as f64
    }

    /// When measuring ends, as far as can be told now: later where disturbances left open what all else is built on.
    fn end(&self) -> u64 {
        let plan = &self.plan;
        let patience = if self.open {
            plan.patience.max(1.0)
        } else {
            1.0
        };
        // What others take of the report's time; half of the plan is kept for measuring whatever they do.
        let lost = (self.busy() - 1.0) * plan.after_ns as f64;
        let budget = plan.budget_ns as f64;
        self.start + (patience * self.slowness() * (budget - lost).max(budget / 2.0)) as u64
    }

    /// How many times as long everything takes because others have the processor.
    fn busy(&self) -> f64 {
        let wall = (self.m.now_ns() - self.start) as f64;
        let had = (self.m.cpu_ns() - self.start_cpu) as f64;
        (wall / had.max(1.0)).max(1.0)
    }

    /// The same, as far as the plan allows for it.
    fn slowness(&self) -> f64 {
        self.busy().min(self.plan.stretch.max(1.0))
    }

    /// Runs a probe unless it was refused before; notes a refusal.
    fn probe(&mut self, what: &'static str, f: impl FnOnce(&mut Self) -> Result<(), MeasureError>) {
        if self.off.contains(what) || self.spent() > 1.0 {
            return;
        }
        let spent = self.spent();
        (self.progress)(what, spent);
        match f(self) {
            Ok(()) => self.answered += 1,
            Err(error) => {
                self.off.insert(what);
                let told = (what.to_string(), error.to_string());
                self.raw.failures.push(told);
            }
        }
    }

    fn geometry(&self) -> Option<l1::Geometry> {
        if self.raw.l1.len() < 3 {
            None
        } else {
            l1::infer(&self.raw.l1).value
        }
    }

    fn run(&mut self) {
        let mut round = 0u32;
        let mut pass = 0;
        while self.spent() < 1.0 {
            let began = self.m.now_ns();
            let answered = self.answered;
            self.probe("latency", |s| latency::collect_l1(s.m, &mut s.raw.latency));
            if self.wants_l1() {
                self.probe("first level", |s| {
                    let vote = l1::collect(s.m, &mut s.rng)?;
                    s.raw.l1.push(vote);
                    Ok(())
                });
            }
            self.probe("memory", |s| {
                latency::collect_memory(s.m, 32, &mut s.raw.latency, &mut s.rng)
            });
            if let Some(l1) = self.geometry() {
                self.dependants(l1, round);
            }
            if round >= 2 && !round.is_multiple_of(2) && pass < self.plan.passes {
                pass += 1;
                self.sweep(pass);
            }
            if round >= 3 {
                self.slow_parts(round);
            }
            round += 1;
            let first = self.wants_l1() || self.wants_policy() || self.wants_translation();
            let second = self.wants_count() || self.wants_class();
            self.open = first || second || self.wants_code();
            // A round without an answer is the last: everything was refused, or the backend is gone.
            if self.finished(round, pass) || self.answered == answered {
                break;
            }
            // Votes of a parameter must not all fall into one burst of disturbance.
            while self.m.now_ns() - began < self.plan.gap_ns && self.spent() < 1.0 {
                let before = self.m.now_ns();
                self.probe("memory", |s| {
                    latency::collect_memory(s.m, 32, &mut s.raw.latency, &mut s.rng)
                });
                if self.m.now_ns() - before < 1000 || self.off.contains("memory") {
                    break;
                }
            }
        }
    }

    /// One pass over the curve; only the first goes beyond 4 MiB.
    fn sweep(&mut self, pass: u32) {
        let to = if pass == 1 {
            self.plan.footprint
        } else {
            self.plan.footprint.min(4 << 20)
        };
        let line = self.line();
        for bytes in footprint::sizes(
            4096,
            to.min(self.m.facts().memory_bytes),
            self.plan.per_octave,
        ) {
            // Beyond 4 MiB half the resolution is enough for a picture.
            if bytes > 4 << 20 && self.spent() > 0.6 {
                break;
            }
            self.probe("footprint", |s| {
                let point = footprint::collect(s.m, bytes, line, 10, &mut s.rng)?;
                s.raw.footprint.extend(point);
                Ok(())
            });
        }
    }

    /// Code against data on both levels, and the decoded-instruction cache; one vote on each.
    fn front_end(&mut self) {
        let (Some(l1), Some(hit), Some(second)) = (
            self.geometry(),
            crate::finding::quantile(&self.raw.latency.l1, 0.25),
            self.second_hit(),
        ) else {
            return;
        };
        // Where the curve leaves the second level, near enough for data that fits and code that does not.
        let curve = footprint::envelope(&self.raw.footprint);
        let end = footprint::crossing(&curve, 3 * l1.bytes(), 2.2 * second);
        let mut asked = vec![(1, (l1.bytes() / 2, 3 * l1.bytes()), second - hit)];
        if let Some(b) = end {
            let b = b as u64 / PAGE * PAGE;
            asked.push((2, (b * 3 / 8, 3 * b), second));
        }
        for (level, sizes, gap) in asked {
            if sizes.1 > unified::MOST_CODE {
                continue;
            }
            self.probe("code against data", |s| {
                let vote = unified::collect(s.m, level, sizes, gap, &mut s.rng)?;
                s.raw.unified.push(vote);
                Ok(())
            });
        }
        for length in [7, 4] {
            self.probe("decoded instructions", |s| {
                let vote = opcache::collect(s.m, length)?;
                s.raw.op_cache.push(vote);
                Ok(())
            });
        }
    }

    /// One of the long experiments per round, in turn, so that the short ones keep their pace.
    fn slow_parts(&mut self, round: u32) {
        if self.plan.code && self.raw.op_cache.len() < 8 && !round.is_multiple_of(3) {
            self.front_end();
        }
        let (walks, curve) = (self.raw.latency.memory_walk.len(), self.raw.tlb.curve.len());
        match round % 6 {
            0 | 3
                if self.plan.code && self.raw.code.len() < self.plan.votes.min(9)
                    || self.wants_code() =>
            {
                self.probe("instructions", |s| {
                    let mut vote = code::Vote::default();
                    code::collect(s.m, &mut vote, &mut s.rng)?;
                    code::collect_footprints(s.m, &mut vote)?;
                    code::collect_pages(s.m, &mut vote, 512, &mut s.rng)?;
                    s.raw.code.push(vote);
                    Ok(())
                })
            }
            1 if self.plan.tlb_pages > 0 && curve < 6 * 40 => {
                let pages = self.plan.tlb_pages;
                self.probe("translation sweep", |s| {
                    tlb::collect_curve(s.m, pages, &mut s.raw.tlb, &mut s.rng)
                });
            }
            2 if self.plan.code && self.raw.prefetch.strides.len() < 16 * 3 => {
                self.probe("prefetch", |s| {
                    prefetch::collect_strides(s.m, 4 << 20, &mut s.raw.prefetch, &mut s.rng)
                });
                self.probe("parallelism", |s| {
                    prefetch::collect_parallel(s.m, &mut s.raw.prefetch, &mut s.rng)
                });
            }
            4 if self.plan.tlb_pages > 0 && walks < 60 => {
                let pages = self.plan.tlb_pages;
                for _ in 0..3 {
                    self.probe("memory with walks", |s| {
                        latency::collect_memory(s.m, pages, &mut s.raw.latency, &mut s.rng)
                    });
                }
            }
            5 if self.plan.shared > 0 => {
                let line = self.line();
                let to = self.plan.shared.min(self.m.facts().memory_bytes);
                for bytes in footprint::sizes(2 << 20, to, 2) {
                    self.probe("last level", |s| {
                        let point = footprint::collect(s.m, bytes, line, 6, &mut s.rng)?;
                        s.raw.shared.extend(point);
                        Ok(())
                    });
                }
            }
            _ => {}
        }
    }

    /// The instruction cache's line is undecided, and more votes may tell.
    fn wants_code(&self) -> bool {
        let votes = &self.raw.code;
        let more = self.plan.code && votes.len() < 2 * self.plan.votes.min(9);
        more && !self.off.contains("instructions") && code::infer_line(votes).value.is_none()
    }

    fn finished(&self, round: u32, pass: u32) -> bool {
        let p = &self.plan;
        round as usize >= p.votes.max(5)
            && pass >= p.passes
            && !self.wants_l1()
            && (!self.wants_sets() || self.geometry().is_none())
            && (!self.wants_translation() || self.geometry().is_none())
            && (self.class_rounds >= if self.next_adds_up() { 3 } else { 9 }
                || evict::infer(&self.raw.evict).value.is_none())
            && !self.wants_policy()
            && !self.wants_code()
            && (p.shared == 0 || round >= 25)
            && self.raw.latency.memory.len() >= 40
    }
}

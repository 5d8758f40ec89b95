//! The order of the experiments: votes of one parameter apart in time, dependants after what they need.
//!
//! Rounds go over all parameters, each taking one vote, until they are decided or the time is up.
//! A probe that the backend refuses is noted and left out from then on.

use crate::measure::{Measure, MeasureError};
use crate::probe::{
    PAGE, code, evict, footprint, inclusion, l1, latency, line, opcache, policy, prefetch, tlb,
    tlbways, unified, write,
};
use crate::raw::RawSamples;
use crate::rng::Rng;
use std::collections::BTreeSet;

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Time for everything, nanoseconds.
    pub budget_ns: u64,
    /// How many times as long it may take where others have the processor meanwhile; at least 1.
    pub stretch: f64,
    /// Votes per parameter after which an undecided one is left.
    pub votes: usize,
    /// Second-level votes.
    pub evict_votes: usize,
    /// Time for one of them, nanoseconds.
    pub evict_ns: u64,
    /// Pages from which second-level sets may be drawn.
    pub pool_pages: u64,
    /// Largest footprint of the curve, bytes.
    pub footprint: u64,
    /// Points per octave of the curve.
    pub per_octave: u32,
    /// Passes over the curve up to 4 MiB.
    pub passes: u32,
    /// Largest footprint of the repeated passes for the last level, bytes.
    pub shared: u64,
    /// Pages in the translation sweep.
    pub tlb_pages: u64,
    /// Measure the instruction side.
    pub code: bool,
    /// Least time between two votes of a parameter, nanoseconds.
    pub gap_ns: u64,
}

impl Plan {
    /// About 2 seconds, which leaves a loaded host a second to end what it began.
    pub const QUICK: Plan = Plan {
        budget_ns: 1_800_000_000,
        stretch: 1.0,
        votes: 5,
        evict_votes: 3,
        evict_ns: 400_000_000,
        pool_pages: 4096,
        footprint: 16 << 20,
        per_octave: 3,
        passes: 1,
        shared: 0,
        tlb_pages: 0,
        code: false,
        gap_ns: 20_000_000,
    };
    /// About 12 seconds, up to 30 where others have the processor most of the time.
    pub const STANDARD: Plan = Plan {
        budget_ns: 12_000_000_000,
        stretch: 2.5,
        votes: 9,
        evict_votes: 4,
        evict_ns: 1_200_000_000,
        pool_pages: 8192,
        footprint: 128 << 20,
        per_octave: 6,
        passes: 3,
        shared: 64 << 20,
        tlb_pages: 8192,
        code: true,
        gap_ns: 50_000_000,
    };
    /// Up to 55 seconds.
    pub const FULL: Plan = Plan {
        budget_ns: 50_000_000_000,
        stretch: 1.0,
        votes: 25,
        evict_votes: 9,
        evict_ns: 1_500_000_000,
        pool_pages: 16384,
        footprint: 256 << 20,
        per_octave: 6,
        passes: 4,
        shared: 64 << 20,
        tlb_pages: 16384,
        code: true,
        gap_ns: 100_000_000,
    };
}

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
    class: Vec<u64>,
    /// Pages that are not in it.
    strangers: Vec<u64>,
    /// Rounds in which the class was used: what builds on it needs some votes too.
    class_rounds: u32,
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
        class: Vec::new(),
        strangers: Vec::new(),
        class_rounds: 0,
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
        wall / self.slowness() / self.plan.budget_ns as f64
    }

    /// How many times as long everything takes because others have the processor, as far as the plan allows for it.
    fn slowness(&self) -> f64 {
        let wall = (self.m.now_ns() - self.start) as f64;
        let had = (self.m.cpu_ns() - self.start_cpu) as f64;
        (wall / had.max(1.0)).clamp(1.0, self.plan.stretch.max(1.0))
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

    fn wants_l1(&self) -> bool {
        let votes = &self.raw.l1;
        votes.len() < 5
            || votes.len() < self.plan.votes && l1::infer(votes).agree < (votes.len() as u32).min(8)
    }

    /// More classes are wanted; where none came to a result so far, a small plan gives up early.
    fn wants_sets(&self) -> bool {
        let (done, wanted) = (&self.raw.evict, self.plan.evict_votes);
        let short = self.plan.budget_ns < 3_000_000_000;
        let hopeless = short && done.len() >= 2 && done.iter().all(|v| v.curve.is_empty());
        // Where classes are found but not sharp enough to agree, as many again are worth their time.
        let doubtful = done.iter().any(|v| !v.curve.is_empty())
            && done.len() < 2 * wanted
            && evict::infer(done).value.is_none();
        (done.len() < wanted || doubtful) && !hopeless
    }

    fn dependants(&mut self, l1: l1::Geometry, round: u32) {
        // A change of mind about the geometry makes void what was built on it.
        if self.race.as_ref().is_some_and(|r| r.0 != l1) {
            self.race = None;
            self.raw.policy = policy::Samples::default();
            self.raw.line.clear();
            self.raw.line2.clear();
            self.raw.evict.clear();
            self.raw.latency.l2.clear();
            self.raw.latency.l3.clear();
            self.raw.latency.l3_control.clear();
            self.class.clear();
        }
        let race = self
            .race
            .get_or_insert_with(|| (l1, policy::Race::new(l1.ways)));
        let mut race = race.1.clone();
        if self.raw.line.len() < 5
            || self.raw.line.len() < self.plan.votes
                && line::infer(&self.raw.line).confidence < crate::finding::Confidence::High
        {
            self.probe("line", |s| {
                let vote = line::collect(s.m, l1, &mut s.rng)?;
                s.raw.line.push(vote);
                Ok(())
            });
        }
        let found_line = line::infer(&self.raw.line).value;
        let bytes = found_line.unwrap_or(64);
        self.probe("second-level latency", |s| {
            latency::collect_l2(s.m, l1, &mut s.raw.latency, &mut s.rng)
        });
        if self.raw.tlb.votes.len() < self.plan.votes.max(9) && !self.tlb_decided() {
            self.probe("translation", |s| {
                let known = tlb::proven(&s.raw.tlb);
                let vote = tlb::collect(s.m, l1, bytes, known, &mut s.rng)?;
                s.raw.tlb.votes.push(vote);
                Ok(())
            });
        }
        if self.raw.write.len() < 5 {
            self.probe("stores", |s| {
                let vote = write::collect(s.m)?;
                s.raw.write.push(vote);
                Ok(())
            });
        }
        if let (Some(line), true) = (found_line, self.raw.line.len() >= 3)
            && l1.ways > 1
            && self.raw.policy.unsplit < 4
            && self.raw.policy.samples.len() < 300
        {
            // A short plan has few rounds.
            let count = if self.plan.budget_ns < 3_000_000_000 {
                24
            } else {
                12
            };
            self.probe("replacement", |s| {
                policy::collect(
                    s.m,
                    l1,
                    line,
                    &mut race,
                    &mut s.raw.policy,
                    count,
                    &mut s.rng,
                )
            });
            self.race = Some((l1, race));
        }
        // The first level's policy comes before the second level's sets, which take longest.
        let settled = l1.ways == 1
            || self.raw.policy.unsplit >= 2
            || self.raw.policy.samples.len() >= 60
            || self.spent() > 0.5;
        if round >= 2 && round.is_multiple_of(2) && self.wants_sets() && settled {
            self.probe("second-level sets", |s| {
                let slow = s.slowness();
                let long = |ns: u64| (ns as f64 * slow) as u64;
                let budget = s.start + long(s.plan.budget_ns);
                let until = (s.m.now_ns() + long(s.plan.evict_ns)).min(budget);
                let hit = s.second_hit();
                let ask = evict::Ask {
                    line: bytes,
                    hit,
                    pool_pages: s.plan.pool_pages,
                    deadline_ns: until,
                    votes: &s.raw.evict,
                };
                let vote = evict::collect(s.m, l1, ask, &mut s.rng)?;
                if vote.class.len() > s.class.len() {
                    s.class.clone_from(&vote.class);
                    s.strangers.clone_from(&vote.others);
                }
                s.raw.evict.push(vote);
                Ok(())
            });
        }
        if let Some(ways) = evict::infer(&self.raw.evict).value
            && self.raw.latency.l3.len() < 9
        {
            self.class_rounds += 1;
            self.probe("next latency", |s| {
                let class = std::mem::take(&mut s.class);
                let r = latency::collect_l3(s.m, &class, l1, ways, &mut s.raw.latency, &mut s.rng);
                s.class = class;
                r
            });
        }
        if let Some(ways) = evict::infer(&self.raw.evict).value
            && self.raw.line2.len() < 5
        {
            self.probe("second-level line", |s| {
                let vote = line::collect_second(
                    s.m,
                    l1,
                    (&s.class, &s.strangers),
                    (ways, bytes),
                    &mut s.rng,
                )?;
                s.raw.line2.extend(vote);
                Ok(())
            });
        }
        if let (Some(ways), Some(hit)) = (
            evict::infer(&self.raw.evict).value,
            crate::finding::quantile(&self.raw.latency.l1, 0.25),
        ) && self.raw.inclusion.len() < 5
        {
            self.probe("inclusion", |s| {
                let vote = inclusion::collect(s.m, &s.class, ways, bytes, hit, &mut s.rng)?;
                s.raw.inclusion.extend(vote);
                Ok(())
            });
        }
        if self.raw.tlb_ways.len() < 5
            && self.raw.tlb.votes.len() >= 4
            && let Some(n) = tlb::infer_entries(&self.raw.tlb).value
            && let Some(v) = self.raw.tlb.votes.last()
        {
            let known = (v.hit, v.cost);
            self.probe("translation sets", |s| {
                let vote = tlbways::collect(s.m, n, known, &mut s.rng)?;
                s.raw.tlb_ways.push(vote);
                Ok(())
            });
        }
        let entries = tlb::proven(&self.raw.tlb);
        if self.raw.tlb.huge.len() < 5 && self.raw.tlb.votes.len() >= 3 && entries >= 16 {
            self.probe("huge pages", |s| {
                tlb::collect_huge(s.m, entries, &mut s.raw.tlb, &mut s.rng)
            });
        }
    }

    /// About what a second-level hit costs, in cycles.
    fn second_hit(&self) -> Option<f64> {
        let seen: Vec<f64> = self.raw.latency.l2.iter().map(|x| x.1).collect();
        crate::finding::quantile(&seen, 0.2)
    }

    fn tlb_decided(&self) -> bool {
        let f = tlb::infer_entries(&self.raw.tlb);
        self.raw.tlb.votes.len() >= 4 && f.confidence == crate::finding::Confidence::High
    }

    fn line(&self) -> u64 {
        line::infer(&self.raw.line).value.unwrap_or(64)
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
            0 | 3 if self.plan.code && self.raw.code.len() < self.plan.votes.min(9) => {
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

    fn finished(&self, round: u32, pass: u32) -> bool {
        let p = &self.plan;
        round as usize >= p.votes.max(5)
            && pass >= p.passes
            && !self.wants_l1()
            && (!self.wants_sets() || self.geometry().is_none())
            && (self.class_rounds >= 3 || evict::infer(&self.raw.evict).value.is_none())
            && (self.raw.policy.unsplit >= 4
                || self.raw.policy.samples.len() >= 300
                || self.geometry().is_none_or(|g| g.ways == 1))
            && (p.shared == 0 || round >= 25)
            && self.raw.latency.memory.len() >= 40
            && round as u64 * PAGE > 0
    }
}

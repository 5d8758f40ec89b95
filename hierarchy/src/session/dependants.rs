//! A round's votes: what is still wanted, and what needs the first level's geometry.

use super::Session;
use crate::measure::Measure;
use crate::probe::{evict, inclusion, l1, latency, line, policy, tlb, tlbways, write};

/// How many times as many votes are taken on first-level translation where the usual number does not decide.
const MORE_VOTES: usize = 4;
/// How many times as many votes on the first level, where others leave no clear view of it.
const MOST_VOTES: usize = 32;
/// Races for the first level's policy that are run again because no policy explains what was seen.
const MOST_RESTARTS: u32 = 12;

impl Session<'_> {
    pub(super) fn wants_l1(&self) -> bool {
        let votes = &self.raw.l1;
        let found = || l1::infer(votes);
        votes.len() < 5
            || votes.len() < self.plan.votes && found().agree < (votes.len() as u32).min(8)
            // All the rest builds on it: what is still undecided, or hangs on few votes, has the time of everything else.
            || votes.len() < 8 * self.plan.votes && self.spent() < 0.5 && found().agree < 3
            // Nor is anything else known without it: whoever shares the level may go away in the time that is left.
            || votes.len() < MOST_VOTES * self.plan.votes && !self.plan.is_short() && found().value.is_none()
    }

    /// More classes are wanted; where none came to a result so far, a small plan gives up early.
    pub(super) fn wants_sets(&self) -> bool {
        let (done, wanted) = (&self.raw.evict, self.plan.evict_votes);
        let short = self.plan.is_short();
        let hopeless = short && done.len() >= 2 && done.iter().all(|v| v.curve.is_empty());
        // Where classes are found but not sharp enough to agree, as many again are worth their time, and more are while
        // nothing else has a use for it.
        let doubtful = || {
            let more = match self.spent() < 0.8 && !short {
                true => 8 * wanted,
                false => 2 * wanted,
            };
            done.len() < more && self.doubts()
        };
        // So are more where the sets could not be counted yet, while there is time to spare.
        let uncounted = || self.spent() < 0.8 && self.wants_count();
        let nothing = || {
            let spare = !short && self.spent() < 0.7 && done.len() < 4 * wanted;
            spare && done.iter().all(|v| v.curve.is_empty())
        };
        (done.len() < wanted || doubtful() || uncounted() || nothing()) && !hopeless
    }

    /// Classes were found, but do not agree on the second level's ways.
    fn doubts(&self) -> bool {
        let done = &self.raw.evict;
        done.iter().any(|v| !v.curve.is_empty()) && evict::infer(done).value.is_none()
    }

    /// The second level's sets could not be counted yet, or not even its ways, and more classes of pages may tell.
    pub(super) fn wants_count(&self) -> bool {
        let (done, wanted) = (&self.raw.evict, self.plan.evict_votes);
        let may = !self.plan.is_short() && !self.off.contains("second-level sets");
        may && done.len() < 4 * wanted && (self.doubts() || !crate::infer::counted(&self.raw))
    }

    /// The second level's ways are known, but what builds on them has had too few turns.
    pub(super) fn wants_class(&self) -> bool {
        !self.plan.is_short()
            && self.class_rounds < 3
            && evict::infer(&self.raw.evict).value.is_some()
    }

    pub(super) fn dependants(&mut self, l1: l1::Geometry, round: u32) {
        // A change of mind about the geometry makes void what was built on it.
        if self.race.as_ref().is_some_and(|r| r.0 != l1) {
            self.race = None;
            self.raw.policy = policy::Samples::default();
            self.raw.line.clear();
            self.raw.line2.clear();
            self.raw.evict.clear();
            self.raw.latency.l2.clear();
            self.raw.latency.l3.clear();
            self.class.clear();
            self.class_sharp = false;
            self.strangers.clear();
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
        if self.wants_translation() {
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
            && self.wants_policy()
        {
            // A short plan has few rounds.
            let count = if self.plan.is_short() { 24 } else { 12 };
            self.probe("replacement", |s| {
                let into = &mut s.raw.policy;
                policy::collect(s.m, l1, line, &mut race, into, count, &mut s.rng)?;
                // Sequences that no policy explains were disturbed: away with them, and once more.
                let over = into.unsplit >= 4 && s.restarts < MOST_RESTARTS;
                if over && policy::infer(into).value.is_none() {
                    *into = policy::Samples::default();
                    race = policy::Race::new(l1.ways);
                    s.restarts += 1;
                }
                Ok(())
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
                let each = (s.plan.evict_ns as f64 * s.slowness()) as u64;
                // Two classes that time did not suffice for want more of it, while there is some.
                let none = s.raw.evict.iter().all(|v| v.curve.is_empty());
                let patience = if none && s.raw.evict.len() >= 2 { 2 } else { 1 };
                let until = (s.m.now_ns() + patience * each).min(s.end());
                let hit = s.second_hit();
                let ask = evict::Ask {
                    line: bytes,
                    hit,
                    pool_pages: s.plan.pool_pages,
                    deadline_ns: until,
                    votes: &s.raw.evict,
                };
                let vote = evict::collect(s.m, l1, ask, &mut s.rng)?;
                // A class that came to a sharp result is the better one to build on, and so is a large one.
                if (vote.ways().is_some(), vote.class.len()) > (s.class_sharp, s.class.len()) {
                    s.class.clone_from(&vote.class);
                    s.strangers.clone_from(&vote.others);
                    s.class_sharp = vote.ways().is_some();
                }
                s.raw.evict.push(vote);
                Ok(())
            });
        }
        if let Some(ways) = evict::infer(&self.raw.evict).value
            && self.raw.latency.l3.len() + self.raw.latency.l3_few.len() < 9
        {
            self.class_rounds += 1;
            let few = self.raw.latency.l3.len() >= 3 && !self.next_adds_up();
            self.probe("next latency", |s| {
                let class = latency::Class {
                    pages: &s.class,
                    strangers: &s.strangers,
                    ways,
                    line: bytes,
                };
                latency::collect_l3(s.m, class, l1, few, &mut s.raw.latency, &mut s.rng)
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

    /// The walks behind the second level agree with each other and with what a line cost that was thrown out.
    pub(super) fn next_adds_up(&self) -> bool {
        let hit = self.second_hit();
        latency::adds_up(&self.raw.latency, hit, evict::cost(&self.raw.evict))
    }

    /// About what a second-level hit costs, in cycles.
    pub(super) fn second_hit(&self) -> Option<f64> {
        let seen: Vec<f64> = self.raw.latency.l2.iter().map(|x| x.1).collect();
        crate::finding::quantile(&seen, 0.2)
    }

    pub(super) fn wants_translation(&self) -> bool {
        let f = tlb::infer_entries(&self.raw.tlb);
        let votes = self.raw.tlb.votes.len();
        let decided = votes >= 4 && f.confidence == crate::finding::Confidence::High;
        let enough = self.plan.votes.max(9);
        // What disturbed votes leave open is asked again, where there is an answer at all.
        let open = f.value.is_none() && tlb::infer_cost(&self.raw.tlb).value.is_some();
        !decided && votes < if open { MORE_VOTES * enough } else { enough }
    }

    /// The candidates for the first level's policy are not told apart yet.
    pub(super) fn wants_policy(&self) -> bool {
        let seen = &self.raw.policy;
        let ways = self.geometry().map_or(1, |l1| l1.ways);
        ways > 1 && seen.unsplit < 4 && seen.samples.len() < 300
    }

    pub(super) fn line(&self) -> u64 {
        line::infer(&self.raw.line).value.unwrap_or(64)
    }
}

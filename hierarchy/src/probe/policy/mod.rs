//! The first level's replacement policy, named from a library.
//!
//! The same block sequence runs in many sets in lockstep; the last access is timed over all sets as one
//! chain, so its time says in which share of them the block was still there. Each policy of the library
//! predicts that share. Sequences are chosen to split the policies that are still in the race.
//! Policies that no sequence splits are reported together.
//!
//! Source: the idea of comparing with simulated policies is AMP's (Coleman & Davidson 2001) and
//! nanoBench's (Abel & Reineke 2020); timing whole sets in lockstep is ours.

mod race;

use super::l1::{Geometry, multiples};
use crate::finding::{Confidence, Finding};
use crate::measure::{Chase, Measure, MeasureError, Window};
use crate::policy::Policy;
use crate::rng::Rng;
pub use race::Race;
use race::*;
use serde::{Deserialize, Serialize};

/// One sequence as measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Block numbers, in order; the last is the timed one.
    pub blocks: Vec<u32>,
    /// Share of the sets in which the last access hit, by time; not clipped.
    pub hit_share: f64,
    /// The same by the middle window instead of the least disturbed ones: what a random policy is judged by,
    /// since its windows differ by nature.
    pub middle_share: f64,
    /// Cycles per access of the two controls, sure hit and sure miss.
    pub controls: (f64, f64),
}

/// Samples collected, and the associativity they were made for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Samples {
    /// Associativity the sequences were made for.
    pub ways: u32,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Sequences looked for and not found: the remaining policies could not be split this often.
    pub unsplit: u32,
}

/// Policies that explain what was seen, simplest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The name to print.
    pub name: String,
    /// Every policy of the library that no sequence told apart from it.
    pub alike: Vec<Policy>,
}

/// Spread of a measured hit share around the true one; a choice, wide enough for a disturbed set in ten.
const SIGMA: f64 = 0.13;

/// Cost above which a policy is out of the race.
const OUT: f64 = 30.0;

/// Where the blocks lie and how long to time them.
struct Layout {
    starts: Vec<u64>,
    sets: Vec<u64>,
    windows: u32,
    fine: bool,
}

impl Layout {
    fn new(m: &dyn Measure, l1: Geometry, line: u64, rng: &mut Rng) -> Self {
        let blocks = 3 * l1.ways + 4;
        let starts = multiples(
            l1.way_bytes.max(1024),
            blocks,
            rng,
            m.facts().memory_bytes / 2,
        );
        let in_way = l1.way_bytes / line;
        // Every other set, so that a next-line prefetch lands beside the sets that are looked at.
        let sets: Vec<u64> = (0..in_way).step_by(2).take(32).map(|s| s * line).collect();
        let f = m.facts();
        let coarse = f.timer_step * f.clock / (sets.len() as f64 * 10.0);
        let fine = coarse < 0.15;
        let windows = if fine {
            20
        } else {
            (9.0 + 300.0 * coarse * coarse).min(64.0) as u32
        };
        Layout {
            starts,
            sets,
            windows,
            fine,
        }
    }

    /// Cycles per access of the least disturbed windows, and of the middle ones.
    fn time(
        &self,
        m: &mut dyn Measure,
        blocks: &[u32],
        rng: &mut Rng,
    ) -> Result<(f64, f64), MeasureError> {
        let ways = (self.starts.len() as u32 - 4) / 3;
        let mut visits = vec![0u64; self.starts.len()];
        let mut prep = Vec::new();
        let mut sets = self.sets.clone();
        let mut timed = Vec::new();
        for (i, &b) in blocks.iter().enumerate() {
            let at = if b >= 100 { b - 100 + ways + 4 } else { b } as usize;
            super::stir(&mut sets, rng);
            let line = sets.iter().map(|s| self.starts[at] + s + 8 * visits[at]);
            if i + 1 == blocks.len() {
                timed.extend(line)
            } else {
                prep.extend(line)
            }
            visits[at] += 1;
        }
        let windows = m.chase(&Chase {
            prep: &prep,
            timed: &timed,
            windows: self.windows + 1,
            ..Chase::default()
        })?;
        let mut cycles: Vec<f64> = windows[1..]
            .iter()
            .filter(|w| w.clean())
            .map(Window::cycles)
            .collect();
        cycles.sort_by(f64::total_cmp);
        // A fine timer lets the least disturbed windows stand alone; a coarse one needs the mean of many.
        let keep = if self.fine {
            4
        } else {
            (cycles.len() * 2).div_ceil(3)
        };
        // The mean of the middle half: a single window may be all of one timer step.
        let half = &cycles[cycles.len() / 4..cycles.len() - cycles.len() / 4];
        let middle = half.iter().sum::<f64>() / half.len() as f64;
        cycles.truncate(keep);
        Ok((cycles.iter().sum::<f64>() / cycles.len() as f64, middle))
    }
}

/// Adds up to `count` samples.
///
/// # Errors
/// What the backend reports.
pub fn collect(
    m: &mut dyn Measure,
    l1: Geometry,
    line: u64,
    race: &mut Race,
    into: &mut Samples,
    count: u32,
    rng: &mut Rng,
) -> Result<(), MeasureError> {
    into.ways = l1.ways;
    let visits = (line / 8).min(8) as u32;
    for _ in 0..count {
        let Some(blocks) = splitting(race, visits, rng) else {
            into.unsplit += 1;
            continue;
        };
        let layout = Layout::new(m, l1, line, rng);
        let a = l1.ways;
        let mut sure_hit: Vec<u32> = (100..100 + 2 * a).collect();
        sure_hit.extend([0, 0]);
        let mut sure_miss: Vec<u32> = vec![0];
        for _ in 0..2 {
            sure_miss.extend(100..100 + 2 * a);
        }
        sure_miss.push(0);
        let hit = layout.time(m, &sure_hit, rng)?;
        let miss = layout.time(m, &sure_miss, rng)?;
        let controls = (hit.0, miss.0);
        // Disturbance only turns hits into misses: with a fine timer the fastest of three tells most.
        let (mut time, mut middle) = layout.time(m, &blocks, rng)?;
        if layout.fine {
            for _ in 0..2 {
                let again = layout.time(m, &blocks, rng)?;
                time = time.min(again.0);
                middle += again.1;
            }
            middle /= 3.0;
        }
        let hit_share = (controls.1 - time) / (controls.1 - controls.0);
        let middle_share = (miss.1 - middle) / (miss.1 - hit.1);
        // A sample whose controls are not apart, or that lies far outside them, was disturbed.
        if hit_share.is_finite()
            && middle_share.is_finite()
            && (-0.5..1.5).contains(&hit_share)
            && controls.1 > 1.3 * controls.0
        {
            let sample = Sample {
                blocks,
                hit_share,
                middle_share,
                controls,
            };
            race.add(&sample);
            into.samples.push(sample);
        }
    }
    Ok(())
}

/// The policies that the samples leave open.
pub fn possible(samples: &Samples) -> Vec<Policy> {
    let mut race = Race::new(samples.ways);
    samples.samples.iter().for_each(|s| race.add(s));
    race.alive()
}

/// The policy that explains the samples, or why none does.
pub fn infer(samples: &Samples) -> Finding<Named> {
    let ways = samples.ways;
    if ways == 1 {
        let only = Named {
            name: "none (direct mapped)".into(),
            alike: Policy::library(1),
        };
        return Finding::new(only, Confidence::High, "");
    }
    let n = samples.samples.len();
    if n < 12 {
        return Finding::refused(format!("only {n} undisturbed sequences"));
    }
    let mut race = Race::new(ways);
    samples.samples.iter().for_each(|s| race.add(s));
    let mean_cost = race.best() / n as f64;
    if mean_cost > 0.9 {
        return Finding::refused(format!(
            "no policy of the library explains the {n} sequences (best mean cost {mean_cost:.2})"
        ));
    }
    let alike = race.alive();
    let best = race
        .field
        .iter()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(alike[0], |f| f.0.policy);
    // A group of several is an answer only when its members behave alike, whatever is tried.
    let open = behave_apart(best, &race.open(), ways);
    if open > 0 {
        return Finding::refused(format!(
            "{} policies still fit after {n} sequences",
            alike.len()
        ));
    }
    let first = alike[0].name(ways);
    let name = match alike.len() {
        1 => first,
        more => format!("{first} (or {} alike)", more - 1),
    };
    let mut found = Finding::new(Named { name, alike }, Confidence::High, "");
    (found.votes, found.agree) = (n as u32, n as u32);
    if mean_cost > 0.45 {
        return found.at_most(
            Confidence::Medium,
            "the sequences agree with it only loosely",
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race_for(truth: Policy, ways: u32) -> Samples {
        let mut rng = Rng::new(5);
        let mut race = Race::new(ways);
        let mut samples = Samples {
            ways,
            ..Samples::default()
        };
        for _ in 0..120 {
            match splitting(&race, 8, &mut rng) {
                Some(blocks) => {
                    let hit_share = Contender::new(truth, ways).predict(&blocks, STATES).mean;
                    let s = Sample {
                        blocks,
                        hit_share,
                        middle_share: hit_share,
                        controls: (4.0, 14.0),
                    };
                    race.add(&s);
                    samples.samples.push(s);
                }
                None => samples.unsplit += 1,
            }
            if samples.unsplit > 2 {
                break;
            }
        }
        samples
    }

    #[test]
    fn every_policy_is_told_from_every_other_that_behaves_differently() {
        for truth in [
            Policy::Lru,
            Policy::Fifo,
            Policy::Random,
            Policy::TreePlru,
            Policy::BitPlru,
            Policy::LruOfPlru { groups: 2 },
        ] {
            let found = infer(&race_for(truth, 8));
            let named = found
                .value
                .unwrap_or_else(|| panic!("{truth:?}: {}", found.reason));
            assert!(named.alike.contains(&truth), "{truth:?} read as {named:?}");
        }
    }

    #[test]
    fn a_sequence_that_contradicts_everything_is_refused() {
        let mut samples = race_for(Policy::Lru, 8);
        let mut rng = Rng::new(3);
        samples.samples.iter_mut().for_each(|s| {
            s.hit_share = rng.below(2) as f64;
            s.middle_share = s.hit_share;
        });
        assert!(infer(&samples).value.is_none());
    }
}

//! The library of policies in the race, and the sequences that split them.

use super::{OUT, SIGMA, Sample};
use crate::policy::{OneSet, Policy};
use crate::rng::Rng;
use std::sync::Arc;

/// What a policy says about the last access of an endlessly repeated sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    /// Mean hit share over the starting states tried.
    pub(super) mean: f64,
    /// The same from every state.
    pub(super) sure: bool,
}

/// A policy in the race, with the states it may be found in.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    pub(super) policy: Policy,
    /// States of a set after the strange blocks that every sequence begins with, reached from random states,
    /// and how many of those led to each.
    pub(super) starts: Arc<[(OneSet, u32)]>,
}

/// States looked at when it must be exact.
pub(super) const STATES: usize = 8;

/// As many times more for a random policy, whose share is a mean.
pub(super) const RANDOM_STATES: usize = 25;

impl Contender {
    pub(super) fn new(policy: Policy, ways: u32) -> Self {
        let random = policy == Policy::Random;
        let mut rng = Rng::new(99);
        let mut starts: Vec<(OneSet, u32)> = Vec::new();
        for _ in 0..if random {
            RANDOM_STATES * STATES
        } else {
            STATES
        } {
            let mut set = OneSet::new(policy, ways);
            for _ in 0..3 * ways {
                set.touch(200 + rng.below(u64::from(ways) + 4) as u32, &mut rng);
            }
            for b in strangers(ways) {
                set.touch(b, &mut rng);
            }
            match starts.iter_mut().find(|s| !random && s.0 == set) {
                Some(s) => s.1 += 1,
                None => starts.push((set, 1)),
            }
        }
        let starts = starts.into();
        Contender { policy, starts }
    }

    /// The outcome can be told: the same from every state, or a share by nature.
    pub(super) fn tells(&self, p: Prediction) -> bool {
        p.sure || self.policy == Policy::Random
    }

    /// Runs the sequence twice from up to `states` states of the set and looks at the second run.
    pub(super) fn predict(&self, blocks: &[u32], states: usize) -> Prediction {
        let random = self.policy == Policy::Random;
        let count = if random {
            RANDOM_STATES * states
        } else {
            states
        };
        let mut rng = Rng::new(99);
        let (&last, others) = blocks.split_last().unwrap_or((&0, &[]));
        let fresh = others.iter().take_while(|b| **b >= 100).count();
        let (mut hits, mut done) = (0, 0);
        for (start, weight) in self.starts.iter().take(count) {
            let mut set = start.clone();
            for &b in &others[fresh..] {
                set.touch(b, &mut rng);
            }
            set.touch(last, &mut rng);
            for &b in others {
                set.touch(b, &mut rng);
            }
            hits += u32::from(set.touch(last, &mut rng)) * weight;
            done += weight;
            if !random && hits > 0 && hits < done {
                break;
            }
        }
        Prediction {
            mean: f64::from(hits) / f64::from(done),
            sure: hits == 0 || hits == done,
        }
    }
}

/// Cost of a measured share under a prediction: bounded, so that a few disturbed samples rule nothing out.
///
/// Where the prediction depends on a state that cannot be known any share is possible, at a small price.
pub(super) fn cost(sample: &Sample, contender: &Contender) -> f64 {
    let p = contender.predict(&sample.blocks, STATES);
    if !contender.tells(p) {
        return 1.0;
    }
    let (low, middle) = (
        sample.hit_share.clamp(0.0, 1.0),
        sample.middle_share.clamp(0.0, 1.0),
    );
    // Strangers' lines cost hits, and the empty places they leave behind make some: what lies between the least
    // disturbed windows and the middle one is possible.
    let off = if contender.policy == Policy::Random {
        middle - p.mean
    } else {
        p.mean - p.mean.clamp(low.min(middle), low.max(middle))
    };
    (off * off / (2.0 * SIGMA * SIGMA)).min(6.0)
}

/// The state of the race: candidate policies and what each has cost so far.
#[derive(Debug, Clone)]
pub struct Race {
    pub(super) ways: u32,
    pub(super) field: Vec<(Contender, f64)>,
}

impl Race {
    /// All policies at the start.
    pub fn new(ways: u32) -> Self {
        Race {
            ways,
            field: Policy::library(ways)
                .into_iter()
                .map(|p| (Contender::new(p, ways), 0.0))
                .collect(),
        }
    }

    /// Adds a sample's evidence. A policy far behind the best stays out.
    pub fn add(&mut self, sample: &Sample) {
        let limit = self.best() + 2.0 * OUT;
        for (contender, spent) in &mut self.field {
            if *spent <= limit {
                *spent += cost(sample, contender);
            }
        }
    }

    pub(super) fn best(&self) -> f64 {
        self.field.iter().map(|f| f.1).fold(f64::INFINITY, f64::min)
    }

    pub(super) fn open(&self) -> Vec<&Contender> {
        let best = self.best();
        self.field
            .iter()
            .filter(|f| f.1 - best < OUT)
            .map(|f| &f.0)
            .collect()
    }

    /// Policies still possible.
    pub fn alive(&self) -> Vec<Policy> {
        self.open().into_iter().map(|c| c.policy).collect()
    }
}

/// Blocks of no interest, enough to push the past out.
pub(super) fn strangers(ways: u32) -> std::ops::Range<u32> {
    100..100 + 2 * ways
}

/// A random sequence: enough other blocks to forget the past, then blocks of a set slightly overfull.
pub(super) fn sequence(ways: u32, visits: u32, rng: &mut Rng) -> Vec<u32> {
    let mut blocks: Vec<u32> = strangers(ways).collect();
    let width = u64::from(ways + 1) + rng.below(3);
    let mut used = vec![0; width as usize];
    // All blocks once, in order, then random visits.
    for b in 0..u64::from(ways).min(width) {
        blocks.push(b as u32);
        used[b as usize] += 1;
    }
    for _ in 0..rng.below(u64::from(3 * ways)) + 2 {
        let b = rng.below(width) as usize;
        if used[b] + 1 < visits {
            used[b] += 1;
            blocks.push(b as u32);
        }
    }
    blocks.push(rng.below(width) as u32);
    blocks
}

/// A sequence on which the policies still possible disagree most, out of some random ones.
///
/// A few of the policies judge while there are many; only when they see no difference do all.
pub(super) fn splitting(race: &Race, visits: u32, rng: &mut Rng) -> Option<Vec<u32>> {
    let mut judges = race.open();
    if judges.len() < 2 {
        return None;
    }
    rng.shuffle(&mut judges);
    let few = &judges[..judges.len().min(8)];
    best_split(race.ways, few, 24, 0.2 / few.len() as f64, visits, rng).or_else(|| {
        let more = &judges[..judges.len().min(32)];
        best_split(race.ways, more, 80, 0.2 / more.len() as f64, visits, rng)
    })
}

pub(super) fn best_split(
    ways: u32,
    judges: &[&Contender],
    tries: u32,
    least: f64,
    visits: u32,
    rng: &mut Rng,
) -> Option<Vec<u32>> {
    let mut choice: Option<(f64, Vec<u32>)> = None;
    for _ in 0..tries {
        let blocks = sequence(ways, visits, rng);
        let p: Vec<f64> = judges
            .iter()
            .filter_map(|j| {
                let p = j.predict(&blocks, 3);
                j.tells(p).then_some(p.mean)
            })
            .collect();
        let mean = p.iter().sum::<f64>() / p.len().max(1) as f64;
        // Beside disagreement, certainty counts: a policy that cannot say is never ruled out.
        let unsure = 1.0 - p.len() as f64 / judges.len() as f64;
        let spread = p.iter().map(|x| (x - mean).abs()).sum::<f64>() / judges.len() as f64
            * (1.0 - 0.5 * unsure);
        if choice.as_ref().is_none_or(|c| spread > c.0) {
            choice = Some((spread, blocks));
        }
        if choice.as_ref().is_some_and(|c| c.0 > 0.3) {
            break;
        }
    }
    choice.filter(|c| c.0 > least).map(|c| c.1)
}

/// Of 150 random sequences the least number that a policy must tell the outcome of, or others cannot be held against it.
const TOLD: usize = 15;

/// Policies that part ways with `first` on some of many random sequences; all of them where it foretells hardly any.
pub(super) fn behave_apart(first: Policy, others: &[&Contender], ways: u32) -> usize {
    let mut rng = Rng::new(4242);
    let first = Contender::new(first, ways);
    let sequences: Vec<(Vec<u32>, Prediction)> = (0..150)
        .map(|_| {
            let s = sequence(ways, 8, &mut rng);
            let p = first.predict(&s, STATES);
            (s, p)
        })
        .filter(|s| first.tells(s.1))
        .collect();
    if sequences.len() < TOLD && others.len() > 1 {
        return others.len();
    }
    let apart = |c: &&&Contender| {
        let differ = |s: &&(Vec<u32>, Prediction)| {
            let p = c.predict(&s.0, STATES);
            c.tells(p) && (s.1.mean - p.mean).abs() > 0.4
        };
        sequences.iter().filter(differ).take(2).count() >= 2
    };
    others.iter().filter(apart).count()
}

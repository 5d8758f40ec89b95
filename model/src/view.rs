//! A run at one line size and stream: what is prepared once, and solutions kept per cache.
//!
//! A report asks for the same caches again and again (by line, by function, by object, ...); what
//! does not depend on the keys is solved at the first question.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::agreement::{Disagreement, Evidence, disagreement};
use crate::interval::{self, Replicates};
use crate::placed::Group;
use crate::prepared::Prepared;
use crate::random::Solution;
use crate::{Cache, CurvePoint, LineSize, Options, Policy};

/// Miss probabilities kept over all caches of a view, 16 bytes each: 64 MiB.
const KEPT_PROBABILITIES: usize = 4 << 20;

/// Cache sizes, in lines, at which samples and model are compared.
const LINES_LOOKED_AT: [u64; 7] = [1 << 7, 1 << 9, 1 << 11, 1 << 13, 1 << 15, 1 << 17, 1 << 19];

/// A run at one line size and stream.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub groups: Vec<Group>,
    pub whole: Vec<Prepared>,
    /// The same with the watches given up taken for either extreme, where there are any.
    pub extremes: Vec<Option<[Prepared; 2]>>,
    line: LineSize,
    seed: u64,
    /// Part of the run that may lie before the first window, of which nothing is known.
    pub unknown: f64,
    /// Part of it that windows are likely to have left out between them.
    pub overlooked: f64,
    /// Per group, where windows have gaps; bootstrapped when first asked for.
    replicates: Vec<OnceLock<Option<Replicates>>>,
    /// Per group; gathered when first asked for.
    evidence: Vec<OnceLock<Evidence>>,
    memo: Memo,
}

/// The time-varying solution of one group at one cache.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    /// Random replacement only.
    pub solution: Option<Solution>,
    /// Misses per reference of each segment.
    pub ratios: Vec<f64>,
    /// Misses per reference of the group.
    pub miss_ratio: f64,
}

/// Miss probabilities of a group's placed samples at one cache.
#[derive(Debug)]
pub(crate) struct Probabilities {
    /// By the time-varying solution.
    pub varying: Vec<f64>,
    /// By the whole run in one equation.
    pub whole: Vec<f64>,
    /// By the same with the watches given up taken for either extreme, where there are any.
    pub extremes: Option<[Vec<f64>; 2]>,
}

/// What was solved before. A clone starts empty.
#[derive(Debug, Default)]
struct Memo {
    solved: Mutex<HashMap<(usize, Cache), Arc<Solved>>>,
    probabilities: Mutex<HashMap<(usize, Cache), Arc<Probabilities>>>,
    points: Mutex<HashMap<Cache, CurvePoint>>,
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl View {
    /// Of `options`: the references of which nothing is known.
    pub fn new(groups: Vec<Group>, line: LineSize, seed: u64, options: &Options) -> Self {
        let gaps = groups.iter().any(|g| g.sparse.is_some());
        let refs: f64 = groups.iter().map(|g| g.refs).sum();
        let part = |of: f64| match gaps && of.is_finite() && of > 0.0 {
            true => of / (refs + of),
            false => 0.0,
        };
        let whole = groups
            .iter()
            .map(|g| Prepared::new(g.pooled.clone(), g.size()))
            .collect();
        let prepare = |g: &Group| {
            let [least, most] = g.extremes.as_deref()?.each_ref();
            Some([least, most].map(|s| Prepared::new(s.clone(), g.size())))
        };
        Self {
            extremes: groups.iter().map(prepare).collect(),
            replicates: groups.iter().map(|_| OnceLock::new()).collect(),
            evidence: groups.iter().map(|_| OnceLock::new()).collect(),
            groups,
            whole,
            line,
            seed,
            unknown: part(options.unseen),
            overlooked: part(options.overlooked),
            memo: Memo::default(),
        }
    }

    /// Line references of the run.
    pub fn refs(&self) -> f64 {
        self.groups.iter().map(|g| g.refs).sum()
    }

    /// Bootstrap replicates of a group, `None` without gaps between windows.
    pub fn replicates(&self, i: usize) -> Option<&Replicates> {
        let make = || {
            let g = &self.groups[i];
            let sparse = g.sparse.as_ref()?;
            let unseen = g.unseen();
            Some(Replicates::new(
                sparse,
                self.line,
                g.size(),
                unseen,
                self.seed,
            ))
        };
        self.replicates[i].get_or_init(make).as_ref()
    }

    /// How far the samples of a group disagree with the model, over cache sizes four times apart.
    pub fn evidence(&self, i: usize) -> &Evidence {
        self.evidence[i].get_or_init(|| {
            let line = u64::from(self.line.bytes());
            let sizes: Vec<Disagreement> = LINES_LOOKED_AT
                .iter()
                .filter_map(|lines| Cache::new(lines * line, self.line, Policy::RANDOM).ok())
                .map(|cache| {
                    let group = &self.groups[i];
                    let solved = self.solved(i, &cache);
                    disagreement(group, &cache, &solved, &self.levers(i, &cache))
                })
                .collect();
            Evidence::new(&sizes)
        })
    }

    /// What a miss more in each segment of a group adds to the run's misses.
    pub fn levers(&self, i: usize, cache: &Cache) -> Vec<f64> {
        let timeline = &self.groups[i].timeline;
        match &self.solved(i, cache).solution {
            Some(s) => timeline.levers(s, cache),
            None => vec![1.0; timeline.segments.len()],
        }
    }

    /// The time-varying solution of a group, solved at the first question.
    pub fn solved(&self, i: usize, cache: &Cache) -> Arc<Solved> {
        let solved = || {
            self.memo
                .solved
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = solved().get(&(i, *cache)) {
            return Arc::clone(known);
        }
        let timeline = &self.groups[i].timeline;
        let (solution, ratios) = match cache.policy {
            Policy::Random { .. } => {
                let s = timeline.random(cache);
                let ratios = timeline.random_ratios(&s);
                (Some(s), ratios)
            }
            Policy::Lru { .. } => (None, timeline.lru_ratios(cache)),
        };
        let miss_ratio = match &solution {
            Some(s) => s.miss_ratio,
            None => timeline.mean(&ratios),
        };
        let new = Arc::new(Solved {
            solution,
            ratios,
            miss_ratio,
        });
        solved().insert((i, *cache), Arc::clone(&new));
        new
    }

    /// Miss probabilities of a group's placed samples.
    pub fn probabilities(&self, i: usize, cache: &Cache) -> Arc<Probabilities> {
        let kept = || {
            self.memo
                .probabilities
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = kept().get(&(i, *cache)) {
            return Arc::clone(known);
        }
        let group = &self.groups[i];
        let solved = self.solved(i, cache);
        let new = Arc::new(Probabilities {
            varying: interval::probabilities(group, cache, solved.solution.as_ref()),
            whole: self.whole[i].probabilities(group, cache),
            extremes: self.extremes[i]
                .as_ref()
                .map(|e| e.each_ref().map(|p| p.probabilities(group, cache))),
        });
        let mut kept = kept();
        if (kept.len() + 1) * group.placed.len().max(1) <= KEPT_PROBABILITIES {
            kept.insert((i, *cache), Arc::clone(&new));
        }
        new
    }

    /// The curve point of one cache.
    pub fn point(&self, cache: &Cache) -> CurvePoint {
        let known = || {
            let points = self.memo.points.lock();
            points.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(&point) = known().get(cache) {
            return point;
        }
        let point = self.find_point(cache);
        known().insert(*cache, point);
        point
    }

    /// Ratios of a group by the whole run in one equation, window-wise, and time-varying.
    pub fn forms(&self, i: usize, cache: &Cache) -> [f64; 3] {
        let whole = self.whole[i].miss_ratio(cache);
        let windows = self.replicates(i).map_or(whole, |r| {
            interval::mixture_miss_ratio(&r.window_wise, cache)
        });
        [whole, windows, self.solved(i, cache).miss_ratio]
    }
}

//! Subjects ranked by their misses: ratios with intervals, shares, reuse edges, spatial use.

use std::collections::HashMap;

use statcache_model::{KeyFigures, ModelError, Policy, Weak};

use super::subjects::{By, Subjects};
use super::{Analysis, attribute};

/// Which caches a ranking is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Caches {
    /// Capacities in bytes, in the order they are shown.
    pub sizes: Vec<u64>,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Replacement policy.
    pub policy: Policy,
    /// Index into `sizes` of the cache whose misses rank and whose edges are given; `None` ranks
    /// by the largest share at any size and gives the edges of the first.
    pub primary: Option<usize>,
}

/// A subject at one cache size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss {
    /// The cache.
    pub cache_bytes: u64,
    /// Its misses per its line references.
    pub miss_ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Its share of all misses.
    pub miss_share: f64,
    /// Too few samples to lean on.
    pub weak: Option<Weak>,
}

/// Where a subject's data were touched last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// The earlier subject.
    pub from: u32,
    /// Share of this subject's reuses.
    pub share: f64,
    /// Mean miss probability of those.
    pub miss_ratio: f64,
}

/// One ranked subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Index into the subjects.
    pub subject: u32,
    /// Samples behind its figures.
    pub samples: u64,
    /// Reuses it triggered.
    pub triggered: u64,
    /// Share of the run's line references.
    pub access_share: f64,
    /// One entry for each of [`Caches::sizes`].
    pub miss: Vec<Miss>,
    /// Reuse edges at the primary cache, largest share first.
    pub reuse_from: Vec<Edge>,
}

/// Subjects of one kind, most misses first.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// What the rows' indices mean.
    pub subjects: Subjects,
    /// Most misses first.
    pub rows: Vec<Row>,
    /// Per size: share of the misses that no subject could be found for.
    pub unattributed: Vec<f64>,
}

impl Analysis<'_> {
    /// Ranks the subjects of one kind.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn ranking(&self, by: By, caches: &Caches) -> Result<Ranking, ModelError> {
        let subjects = self.subjects(by);
        let mut rows: HashMap<u32, Row> = HashMap::new();
        let mut unattributed = Vec::with_capacity(caches.sizes.len());
        let edges_of = caches.primary.unwrap_or(0);
        for (at, &cache_bytes) in caches.sizes.iter().enumerate() {
            let figures = attribute::attribute(
                &self.run,
                &self.windows,
                u64::from(caches.line_bytes),
                cache_bytes,
                caches.policy,
                |site| self.key(&subjects, site),
            )?;
            unattributed.push(figures.unattributed_share);
            for key in figures.keys {
                let row = rows.entry(key.key).or_insert_with(|| Row {
                    subject: key.key,
                    samples: key.samples,
                    triggered: key.triggered,
                    access_share: key.access_share,
                    miss: Vec::with_capacity(caches.sizes.len()),
                    reuse_from: Vec::new(),
                });
                // A key missing at an earlier size had no figures there.
                row.miss.extend(
                    caches.sizes[row.miss.len()..at]
                        .iter()
                        .map(|&b| nothing_at(b)),
                );
                row.miss.push(miss_of(&key, cache_bytes));
                if at == edges_of {
                    row.reuse_from = key
                        .reuse_from
                        .iter()
                        .map(|e| Edge {
                            from: e.key,
                            share: e.share,
                            miss_ratio: e.miss_ratio,
                        })
                        .collect();
                }
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        for row in &mut rows {
            row.miss.extend(
                caches.sizes[row.miss.len()..]
                    .iter()
                    .map(|&b| nothing_at(b)),
            );
        }
        rows.sort_by(|a, b| {
            let worst = |r: &Row| match caches.primary {
                Some(p) => r.miss[p].miss_share,
                None => r.miss.iter().map(|m| m.miss_share).fold(0.0, f64::max),
            };
            worst(b)
                .total_cmp(&worst(a))
                .then(b.samples.cmp(&a.samples))
                .then(a.subject.cmp(&b.subject))
        });
        Ok(Ranking {
            subjects,
            rows,
            unattributed,
        })
    }
}

fn miss_of(key: &KeyFigures<u32>, cache_bytes: u64) -> Miss {
    Miss {
        cache_bytes,
        miss_ratio: key.miss_ratio,
        low: key.low,
        high: key.high,
        miss_share: key.miss_share,
        weak: key.weak,
    }
}

fn nothing_at(cache_bytes: u64) -> Miss {
    Miss {
        cache_bytes,
        miss_ratio: 0.0,
        low: 0.0,
        high: 1.0,
        miss_share: 0.0,
        weak: None,
    }
}

//! Subjects ranked by their misses: ratios with intervals, shares, reuse edges, spatial use.

use std::collections::HashMap;

use rayon::prelude::*;
use statcache_model::{
    Attribution, Cache, KeyFigures, LineSize, ModelError, Policy, Sharing, Site, Stream, Told,
    spatial_use_by_key,
};

use super::callers::Callers;
use super::subjects::{By, Subjects};
use super::{Analysis, DEFAULT_LINE_BYTES};
use crate::profile::types::LINE_SIZES;

/// Missing samples of one subject, at the smaller of both line sizes, below which its spatial use
/// is not given (guessed: the ratio of two counts of 30 is known to about a quarter).
const ENOUGH_MISSES: f64 = 30.0;
/// A ratio whose interval is wider is as good as unknown.
const UNKNOWN: f64 = 0.5;

/// Which caches a ranking is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Caches {
    /// Capacities in bytes, in the order they are shown.
    pub sizes: Vec<u64>,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Replacement policy.
    pub policy: Policy,
    /// Whose references the caches see; `None`: at each size what a cache of the profile's host
    /// sees ([`Analysis::stream_at`]).
    pub stream: Option<Stream>,
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
    /// Not to be leaned on: of too few samples, or told as all but nothing.
    pub weak: bool,
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
    /// Part of its misses there, first touches in the run aside, for which that was seen, 0 to 1.
    pub from_known: f64,
    /// Share of a fetched line's other bytes that save misses at the primary cache, 0 to 1;
    /// `None` without misses enough, for windows, and at the smallest line size.
    pub spatial_use: Option<f64>,
    /// Memory objects ([`Analysis::datum`]) and their share of its misses at the primary cache, largest first; of
    /// its references where it has none. Empty for memory and windows.
    pub data: Vec<(u32, f64)>,
    /// Of a line of a library, the program's own lines ([`Ranking::callers`]) that it was inlined into, as `data`.
    pub called_at: Vec<(u32, f64)>,
    /// What other threads did to its lines; `None` where no window saw several.
    pub sharing: Option<RowSharing>,
}

impl Row {
    /// Gives it its share of the curve's misses at one size. (Its own reuses alone would say too little: rough rankings have few far ones.)
    fn split(&mut self, size: usize, miss_ratio: f64) {
        let miss = &mut self.miss[size];
        if self.access_share > 0.0 {
            miss.miss_ratio = (miss.miss_share * miss_ratio / self.access_share).min(1.0);
        }
        miss.low = miss.low.min(miss.miss_ratio);
        miss.high = miss.high.max(miss.miss_ratio);
        miss.weak = true;
    }
}

/// How the reuses that a subject triggered fare in private caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowSharing {
    /// Reuses with thread information.
    pub reuses: u64,
    /// Share of them without a remote access in between.
    pub private: f64,
    /// Share with remote reads only.
    pub shared: f64,
    /// Share lost to a remote write.
    pub coherence: f64,
    /// Its 95 % interval.
    pub low: f64,
    /// Its 95 % interval.
    pub high: f64,
    /// Whether the remote writes were to the bytes used here.
    pub verdict: Sharing,
}

/// Subjects of one kind, most misses first.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// What the rows' indices mean.
    pub subjects: Subjects,
    /// Most misses first.
    pub rows: Vec<Row>,
    /// What lines of libraries were inlined into; empty but in rankings of lines.
    pub callers: Callers,
    /// Per size: share of the misses that no subject could be found for.
    pub unattributed: Vec<f64>,
    /// Whether it rests on long windows alone where reuses are far, as it does at other line sizes than the one at which watches
    /// outlive their windows: subjects may be given each other's misses, which no interval shows.
    pub rough: bool,
}

/// Misses at the smallest line size and at the one asked for.
type BothLines = (Attribution<u32>, Attribution<u32>);

impl Analysis<'_> {
    /// Ranks the subjects of one kind.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn ranking(&self, by: By, caches: &Caches) -> Result<Ranking, ModelError> {
        let subjects = self.subjects(by);
        let first = caches.primary.unwrap_or(0);
        let stream_at = |bytes| match caches.stream {
            Some(stream) if self.has_threads() => stream,
            _ => self.stream_at(bytes),
        };
        let (line, policy) = (caches.line_bytes, caches.policy);
        let (at_sizes, spatial) = rayon::join(
            || -> Result<Vec<Attribution<u32>>, ModelError> {
                let sizes = caches.sizes.par_iter();
                sizes
                    .map(|&b| self.attribute(&subjects, b, line, policy, stream_at(b)))
                    .collect()
            },
            || -> Result<Option<BothLines>, ModelError> {
                let small = LINE_SIZES[0];
                let Some(&bytes) = caches.sizes.get(first) else {
                    return Ok(None);
                };
                if by == By::Window || line <= small {
                    return Ok(None);
                }
                // What a longer line saves is no matter of who else writes to it.
                let stream = match stream_at(bytes) {
                    Stream::Private => Stream::Own,
                    stream => stream,
                };
                let (run, asked) = self.run(stream);
                let at = |line: u32| {
                    let cache = Cache::new(bytes, LineSize::from_bytes(line.into())?, policy)?;
                    let key = |site: &Site| self.key(&subjects, stream, site);
                    run.attribute_by(Told::ByWatches, &cache, asked, key)
                };
                Ok(Some((at(small)?, at(line)?)))
            },
        );
        let at_sizes = at_sizes?;
        let spatial = match spatial? {
            Some((small, large)) => enough(&small, spatial_use_by_key(&small, &large)?),
            None => HashMap::new(),
        };
        let sharing = self.sharing_by_key(&subjects, caches)?;
        let mut data = match caches.sizes.get(first) {
            Some(&bytes) if !matches!(by, By::Data | By::Window) => {
                let datum = |site: &Site| Some(site.data);
                self.parts_by_key(&subjects, bytes, caches, stream_at(bytes), datum)?
            }
            _ => HashMap::new(),
        };
        let callers = match by {
            By::Line => Callers::of(self.profile),
            _ => Callers::default(),
        };
        let mut called_at = match caches.sizes.get(first) {
            Some(&bytes) if !callers.list.is_empty() => {
                let caller = |site: &Site| callers.of_instr[site.instr as usize];
                self.parts_by_key(&subjects, bytes, caches, stream_at(bytes), caller)?
            }
            _ => HashMap::new(),
        };
        let unattributed = at_sizes.iter().map(|a| a.unattributed_share).collect();
        let mut rows = fold(&at_sizes, caches, first);
        let usual = line == DEFAULT_LINE_BYTES;
        let header = &self.profile.header;
        let sampled = header.engine == "translate" && !header.full;
        let rough = sampled && !usual && by != By::Window;
        if rough {
            for (i, &bytes) in caches.sizes.iter().enumerate() {
                let curve = self.curve(line, policy, stream_at(bytes), &[bytes])?;
                let ratio = curve.first().map_or(0.0, |point| point.miss_ratio);
                rows.iter_mut().for_each(|row| row.split(i, ratio));
            }
        }
        for row in &mut rows {
            row.spatial_use = spatial.get(&row.subject).copied();
            row.sharing = sharing.get(&row.subject).copied();
            row.data = data.remove(&row.subject).unwrap_or_default();
            row.called_at = called_at.remove(&row.subject).unwrap_or_default();
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
            callers,
            unattributed,
            rough,
        })
    }

    fn attribute(
        &self,
        subjects: &Subjects,
        cache_bytes: u64,
        line_bytes: u32,
        policy: Policy,
        stream: Stream,
    ) -> Result<Attribution<u32>, ModelError> {
        let (run, asked) = self.run(stream);
        run.attribute(u64::from(line_bytes), cache_bytes, policy, asked, |site| {
            self.key(subjects, stream, site)
        })
    }

    /// How each subject's misses are shared out among the parts that their sites belong to, as [`Row::data`]; some belong to none.
    fn parts_by_key(
        &self,
        subjects: &Subjects,
        cache_bytes: u64,
        caches: &Caches,
        stream: Stream,
        part: impl Fn(&Site) -> Option<u32> + Sync,
    ) -> Result<HashMap<u32, Vec<(u32, f64)>>, ModelError> {
        let (run, asked) = self.run(stream);
        let line = u64::from(caches.line_bytes);
        let key = |site: &Site| (self.key(subjects, stream, site), part(site));
        let pairs = run.attribute(line, cache_bytes, caches.policy, asked, key)?;
        let mut parts: HashMap<u32, Vec<(Option<u32>, f64, f64)>> = HashMap::new();
        for pair in &pairs.keys {
            let (subject, part) = pair.key;
            let of_subject = parts.entry(subject).or_default();
            of_subject.push((part, pair.misses, pair.references));
        }
        let shares = |of_subject: Vec<(Option<u32>, f64, f64)>| {
            let misses: f64 = of_subject.iter().map(|&(_, misses, _)| misses).sum();
            let references: f64 = of_subject.iter().map(|&(_, _, refs)| refs).sum();
            let mut shares: Vec<(u32, f64)> = of_subject
                .into_iter()
                .filter_map(|(part, missed, refs)| {
                    let share = match misses > 0.0 {
                        true => missed / misses,
                        false => refs / references.max(f64::MIN_POSITIVE),
                    };
                    Some((part?, share))
                })
                .collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            shares
        };
        Ok(parts
            .into_iter()
            .map(|(key, of)| (key, shares(of)))
            .collect())
    }

    /// What other threads did to the lines of each subject.
    fn sharing_by_key(
        &self,
        subjects: &Subjects,
        caches: &Caches,
    ) -> Result<HashMap<u32, RowSharing>, ModelError> {
        let first = caches.sizes.get(caches.primary.unwrap_or(0));
        let (Some(&bytes), true) = (first, self.has_threads() && subjects.by != By::Window) else {
            return Ok(HashMap::new());
        };
        let line = u64::from(caches.line_bytes);
        let uses = self.own.threads(line, bytes, caches.policy, |site| {
            self.key(subjects, Stream::Own, site)
        })?;
        let uses = uses.into_iter().map(|u| {
            let figures = RowSharing {
                reuses: u.reuses,
                private: u.private,
                shared: u.shared,
                coherence: u.coherence,
                low: u.coherence_interval.0,
                high: u.coherence_interval.1,
                verdict: u.sharing,
            };
            (u.key, figures)
        });
        Ok(uses.collect())
    }
}

/// Rows from one attribution a size.
fn fold(at_sizes: &[Attribution<u32>], caches: &Caches, first: usize) -> Vec<Row> {
    let mut rows: HashMap<u32, Row> = HashMap::new();
    for (at, (figures, &cache_bytes)) in at_sizes.iter().zip(&caches.sizes).enumerate() {
        for key in &figures.keys {
            let row = rows.entry(key.key).or_insert_with(|| Row {
                subject: key.key,
                samples: key.samples,
                triggered: key.triggered,
                access_share: key.access_share,
                miss: caches.sizes.iter().map(|&b| nothing_at(b)).collect(),
                reuse_from: Vec::new(),
                from_known: 1.0,
                spatial_use: None,
                data: Vec::new(),
                called_at: Vec::new(),
                sharing: None,
            });
            row.miss[at] = miss_of(key, cache_bytes);
            if at == first {
                row.from_known = key.from_known;
                let edges = key.reuse_from.iter();
                row.reuse_from = edges
                    .map(|e| Edge {
                        from: e.key,
                        share: e.share,
                        miss_ratio: e.miss_ratio,
                    })
                    .collect();
            }
        }
    }
    rows.into_values().collect()
}

/// Leaves out the keys whose misses rest on too few samples.
fn enough(small: &Attribution<u32>, mut spatial: HashMap<u32, f64>) -> HashMap<u32, f64> {
    for key in &small.keys {
        if key.miss_ratio * (key.triggered as f64) < ENOUGH_MISSES {
            spatial.remove(&key.key);
        }
    }
    spatial
}

fn miss_of(key: &KeyFigures<u32>, cache_bytes: u64) -> Miss {
    Miss {
        cache_bytes,
        miss_ratio: key.miss_ratio,
        low: key.low,
        high: key.high,
        miss_share: key.miss_share,
        weak: key.weak.is_some() || key.high - key.low > UNKNOWN,
    }
}

fn nothing_at(cache_bytes: u64) -> Miss {
    Miss {
        cache_bytes,
        miss_ratio: 0.0,
        low: 0.0,
        high: 1.0,
        miss_share: 0.0,
        weak: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(access_share: f64, miss_share: f64, miss_ratio: f64) -> Row {
        Row {
            subject: 0,
            samples: 1000,
            triggered: 1000,
            access_share,
            miss: vec![Miss {
                cache_bytes: 1 << 20,
                miss_ratio,
                low: 0.9 * miss_ratio,
                high: 1.1 * miss_ratio,
                miss_share,
                weak: false,
            }],
            reuse_from: Vec::new(),
            from_known: 1.0,
            spatial_use: None,
            data: Vec::new(),
            called_at: Vec::new(),
            sharing: None,
        }
    }

    #[test]
    fn rows_that_are_split_add_up_to_the_curve() {
        let mut rows = [row(0.9, 0.97, 0.0003), row(0.1, 0.03, 0.2)];
        rows.iter_mut().for_each(|row| row.split(0, 0.064));
        let all: f64 = rows
            .iter()
            .map(|r| r.access_share * r.miss[0].miss_ratio)
            .sum();
        assert!((all - 0.064).abs() < 1e-12, "{all}");
        for Row { miss, .. } in &rows {
            let miss = miss[0];
            assert!(miss.low <= miss.miss_ratio && miss.miss_ratio <= miss.high && miss.weak);
        }
        // No more than all of its references miss.
        let mut few = row(0.01, 0.5, 0.1);
        few.split(0, 0.064);
        assert_eq!(few.miss[0].miss_ratio, 1.0);
    }
}

//! Two profiles set against each other: did locality get better, how sure is that, and where.
//!
//! Holds no text and does no IO: figures come from [`Analysis`], `report::diff` writes them. The two runs are taken for independent
//! samples ([`change`]). **Invariants:** a change is called better or worse only where its whole interval is; a limit is met
//! only where the whole interval lies beyond it ([`limit`]).

pub mod change;
pub mod doubts;
pub mod limit;
mod matching;
mod subjects;

use statcache_model::{CurvePoint, ModelError, Policy, Stream};

use crate::analysis::sizes::{host_sizes, shared_from};
use crate::analysis::{Analysis, By};
use change::{Change, Ends, Figure, Verdict};
pub use doubts::{Doubt, Which};
pub use limit::Limit;
pub use subjects::{Changed, Presence};

/// Powers of two from and to which a curve is looked through for differences, in bytes.
const THROUGH: std::ops::RangeInclusive<u32> = 13..=26;

/// Runs of one program on one input make as many accesses, but for what addresses, the environment and the time change: so much of
/// them, at the most, up and down. (Guessed: one of 423 M accesses and one that reads its matrix in another order were 0.01 % apart.)
const OF_ITSELF: f64 = 0.001;

/// What is to be compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Cache sizes in bytes, the one to rank by first; `None`: the levels of the second profile's host.
    pub caches: Option<Vec<u64>>,
    /// Sizes in bytes that limits are on, besides.
    pub besides: Vec<u64>,
    /// Line size in bytes, one of [`crate::profile::types::LINE_SIZES`].
    pub line_bytes: u32,
    /// Replacement policy.
    pub policy: Policy,
    /// What is ranked: lines, functions, data or objects.
    pub by: By,
}

/// A count of both runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Of the first run.
    pub before: Figure,
    /// Of the second.
    pub after: Figure,
    /// The factor less 1; `None` where one of them is none or unknown.
    pub change: Option<Change>,
}

impl Counts {
    fn new(before: Figure, after: Figure, ends: Ends) -> Self {
        Self {
            before,
            after,
            change: Change::relative(before, after, ends),
        }
    }
}

/// Both runs at one cache size.
#[derive(Clone, Debug, PartialEq)]
pub struct AtSize {
    /// The first run's curve.
    pub before: CurvePoint,
    /// The second's.
    pub after: CurvePoint,
    /// Difference of the miss ratios, as parts of 1.
    pub ratio: Change,
    /// Misses of the whole runs: line references times miss ratio, whose errors may go together.
    pub misses: Counts,
    /// Whether it is one of the sizes asked for, or of the host.
    pub asked: bool,
}

impl AtSize {
    /// The size.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.after.cache_bytes
    }

    /// Whether one of the ratios rests on little.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.before.is_weak() || self.after.is_weak()
    }
}

/// Two profiles compared.
#[derive(Debug)]
pub struct Diff {
    /// What makes them hard to compare.
    pub doubts: Vec<Doubt>,
    /// Accesses of the whole runs.
    pub accesses: Counts,
    /// Each size: those asked for in their order, those that limits are on, then powers of two upwards, unless
    /// sizes were asked for. Empty where one of the profiles has no samples.
    pub sizes: Vec<AtSize>,
    /// Index into `sizes` of the cache whose misses rank: the first asked for; of the host's levels the one that reports rank by, unless a
    /// difference is seen at others only.
    pub primary: usize,
    /// Subjects, those that surely changed first, then by how much they changed.
    pub subjects: Vec<Changed>,
    /// What was asked.
    pub options: Options,
}

impl Diff {
    /// Compares two profiles.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn new(
        before: &Analysis<'_>,
        after: &Analysis<'_>,
        options: &Options,
    ) -> Result<Self, ModelError> {
        let count = |of: &Analysis<'_>| roughly(Figure::from(of.totals().accesses_estimated));
        let mut diff = Self {
            doubts: doubts::doubts(before, after),
            accesses: Counts::new(count(before), count(after), Ends::Quadrature),
            sizes: Vec::new(),
            primary: 0,
            subjects: Vec::new(),
            options: options.clone(),
        };
        if before.is_empty() || after.is_empty() {
            return Ok(diff);
        }
        let runs = Runs {
            before,
            after,
            options,
        };
        let (asked, ranks) = runs.asked()?;
        diff.sizes = runs.sizes(&asked)?;
        diff.primary = match options.caches {
            Some(_) => ranks,
            None => diff.telling(ranks),
        };
        diff.subjects = runs.subjects(&diff.sizes[diff.primary])?;
        Ok(diff)
    }

    /// Of the host's levels the one that ranks, unless a difference is seen at others only: then that where it is largest.
    fn telling(&self, ranks: usize) -> usize {
        let levels = self.sizes.iter().enumerate().filter(|(_, at)| at.asked);
        let seen = levels.filter(|(_, at)| at.ratio.verdict() != Verdict::NotSeen);
        seen.max_by(|(a, one), (b, other)| {
            let sizes = one.ratio.value.abs().total_cmp(&other.ratio.value.abs());
            (*a == ranks).cmp(&(*b == ranks)).then(sizes)
        })
        .map_or(ranks, |(i, _)| i)
    }

    /// Whether nothing can be compared, as one of the profiles has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }
}

/// With what a count differs by from run to run.
fn roughly(count: Figure) -> Figure {
    Figure {
        value: count.value,
        low: count.low * (1.0 - OF_ITSELF),
        high: count.high * (1.0 + OF_ITSELF),
    }
}

/// What a comparison is made from.
struct Runs<'a> {
    before: &'a Analysis<'a>,
    after: &'a Analysis<'a>,
    options: &'a Options,
}

impl Runs<'_> {
    /// The sizes asked for, or of the host, and which of them ranks: the second level where either run misses there.
    fn asked(&self) -> Result<(Vec<u64>, usize), ModelError> {
        if let Some(sizes) = &self.options.caches {
            return Ok((sizes.clone(), 0));
        }
        let sizes = host_sizes(&self.after.profile.header);
        let (line, policy) = (self.options.line_bytes, self.options.policy);
        let of = |run: &Analysis<'_>| run.level_that_ranks(line, policy, &sizes);
        let ranks = of(self.before)?.max(of(self.after)?);
        Ok((sizes, ranks))
    }

    /// Whose references a cache sees, on the host of the second run: both are asked of the same cache.
    fn stream_at(&self, cache_bytes: u64) -> Stream {
        if !self.before.has_threads() && !self.after.has_threads() {
            Stream::Own
        } else if cache_bytes < shared_from(&self.after.profile.header) {
            Stream::Private
        } else {
            Stream::All
        }
    }

    fn sizes(&self, asked: &[u64]) -> Result<Vec<AtSize>, ModelError> {
        let mut sizes = asked.to_vec();
        let through = THROUGH
            .map(|shift| 1 << shift)
            .filter(|_| self.options.caches.is_none());
        for more in self.options.besides.iter().copied().chain(through) {
            if !sizes.contains(&more) {
                sizes.push(more);
            }
        }
        let references = |of: &Analysis<'_>| {
            roughly(Figure::from(
                of.references_estimated(self.options.line_bytes),
            ))
        };
        let all = (references(self.before), references(self.after));
        let (before, after) = rayon::join(
            || self.curve(self.before, &sizes),
            || self.curve(self.after, &sizes),
        );
        let points = before?.into_iter().zip(after?);
        let at = |(i, (before, after)): (usize, (CurvePoint, CurvePoint))| {
            let ratios = (Figure::from(&before), Figure::from(&after));
            let ends = Ends::of(before.is_weak() || after.is_weak());
            AtSize {
                ratio: Change::difference(ratios.0, ratios.1, ends),
                misses: Counts::new(all.0.times(ratios.0), all.1.times(ratios.1), ends),
                before,
                after,
                asked: i < asked.len(),
            }
        };
        Ok(points.enumerate().map(at).collect())
    }

    fn curve(&self, of: &Analysis<'_>, sizes: &[u64]) -> Result<Vec<CurvePoint>, ModelError> {
        let (line, policy) = (self.options.line_bytes, self.options.policy);
        let mut points = Vec::new();
        for &bytes in sizes {
            points.extend(of.curve(line, policy, self.stream_at(bytes), &[bytes])?);
        }
        Ok(points)
    }
}

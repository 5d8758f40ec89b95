//! From a profile to the figures that views show: the one bridge between profile and model.
//!
//! Holds no text and does no IO. `report` and `export` (and the views to come) ask an [`Analysis`]
//! and never the model, so that all of them show the same figures.

mod allocated;
mod callers;
mod costs;
mod feed;
mod ranking;
mod sharing;
pub mod sizes;
mod spread;
mod stacks;
mod subjects;
mod unseen;

use std::collections::HashSet;

use statcache_model::{CurvePoint, ModelError, Policy, Run, Site, Stream};

use crate::profile::Profile;
use crate::profile::types::{Estimate, LINE_SIZES, Outcome};

pub use costs::{Apart, Costs, Place};
pub use ranking::{Caches, Edge, Miss, Ranking, Row, RowSharing};
pub use sharing::{Pair, SharingFigures};
pub use subjects::{By, DataKind, Subject, Subjects, nameless};

/// Line size of the default view, bytes.
pub const DEFAULT_LINE_BYTES: u32 = 64;
/// Its position in [`LINE_SIZES`].
const DEFAULT_LINE: usize = 2;

/// Counts over a whole profile, at 64-byte lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Accesses executed inside windows.
    pub accesses_observed: u64,
    /// Accesses of the whole run.
    pub accesses_estimated: Estimate,
    /// Windows.
    pub windows: u64,
    /// Samples taken.
    pub samples: u64,
    /// Of those, touched again.
    pub reused: u64,
    /// Cut off by us.
    pub censored: u64,
    /// Untouched when the process ended.
    pub never_reused: u64,
    /// Units of code that could not be observed.
    pub declined: u64,
}

/// A profile ready to be asked.
#[derive(Debug)]
pub struct Analysis<'p> {
    /// The profile.
    pub profile: &'p Profile,
    /// The threads' own distances: each thread's part of a window is a window.
    own: Run,
    /// All threads' distances, where they differ.
    all: Option<Run>,
    /// Profile window of each window of `own`.
    window_of: Vec<u32>,
    data: Vec<Subject>,
}

impl<'p> Analysis<'p> {
    /// Hands the profile's windows to the model.
    ///
    /// # Errors
    /// A value in the profile that the model refuses.
    pub fn new(profile: &'p Profile) -> Result<Self, ModelError> {
        let fed = feed::feed(profile)?;
        Ok(Self {
            profile,
            own: fed.own,
            all: fed.all,
            window_of: fed.window_of,
            data: fed.data,
        })
    }

    /// Whether some window saw several threads: then a private cache and one shared by all threads
    /// have curves of their own, and [`Analysis::sharing`] has something to say.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.all.is_some()
    }

    /// Threads that windows saw.
    #[must_use]
    pub fn threads(&self) -> usize {
        let windows = self.profile.windows.iter();
        let tids = windows.flat_map(|w| w.threads.iter().map(|t| t.tid).chain([w.tid]));
        tids.collect::<HashSet<i32>>().len()
    }

    /// The stream that a cache of this size sees on the profile's host: a private one's up to the
    /// first level that threads share.
    #[must_use]
    pub fn stream_at(&self, cache_bytes: u64) -> Stream {
        if !self.has_threads() {
            Stream::Own
        } else if cache_bytes < sizes::shared_from(&self.profile.header) {
            Stream::Private
        } else {
            Stream::All
        }
    }

    /// Whether there is nothing to compute figures from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.profile.windows.iter().all(|w| w.samples.is_empty())
    }

    /// Counts over the whole profile.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut t = Totals {
            windows: self.profile.windows.len() as u64,
            ..Totals::default()
        };
        for w in &self.profile.windows {
            t.accesses_observed = t.accesses_observed.saturating_add(w.accesses);
            t.declined += u64::from(w.declined);
            for taken in &w.samples {
                t.samples += 1;
                match taken.sample.own[DEFAULT_LINE] {
                    Outcome::Reused { .. } => t.reused += 1,
                    Outcome::Censored { .. } => t.censored += 1,
                    Outcome::NeverReused { .. } => t.never_reused += 1,
                    Outcome::NotFollowed => {}
                }
            }
        }
        t.accesses_estimated = match &self.profile.footer {
            Some(footer) => footer.accesses_estimated,
            // Broken off: what the windows that were written stand for.
            None => self
                .profile
                .windows
                .iter()
                .fold(Estimate::default(), |sum, w| Estimate {
                    value: sum.value + w.stands_for.value,
                    low: sum.low + w.stands_for.low,
                    high: sum.high + w.stands_for.high,
                }),
        };
        t.accesses_estimated.high += self.before_first().0;
        t
    }

    /// Accesses that may have been made before the first window besides those that it stands for, and the CPU seconds there.
    #[must_use]
    pub fn before_first(&self) -> (f64, f64) {
        unseen::before_first(self.profile)
    }

    /// Miss-ratio curve at the given sizes, in their order; empty for an empty profile.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn curve(
        &self,
        line_bytes: u32,
        policy: Policy,
        stream: Stream,
        sizes: &[u64],
    ) -> Result<Vec<CurvePoint>, ModelError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let (run, stream) = self.run(stream);
        run.curve(u64::from(line_bytes), policy, stream, sizes)
    }

    /// Points of the caches that the profile's host has or might have: each in the stream that
    /// such a cache sees ([`Analysis::stream_at`]), in the order of `sizes`.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn curve_of_host(
        &self,
        line_bytes: u32,
        policy: Policy,
        sizes: &[u64],
    ) -> Result<Vec<CurvePoint>, ModelError> {
        if !self.has_threads() {
            return self.curve(line_bytes, policy, Stream::Own, sizes);
        }
        let mut points = Vec::new();
        for &bytes in sizes {
            points.extend(self.curve(line_bytes, policy, self.stream_at(bytes), &[bytes])?);
        }
        Ok(points)
    }

    /// By which of the host's levels lists are in order: the second, unless hardly anything misses there. Misses of the first mostly hide behind
    /// other work, and a shared last level is not the program's alone.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn level_that_ranks(
        &self,
        line_bytes: u32,
        policy: Policy,
        sizes: &[u64],
    ) -> Result<usize, ModelError> {
        /// A program that misses in the second level less often than in the first by this is ranked by the first. (Chosen: one that
        /// the second level serves takes a fraction of what one from memory does.)
        const HARDLY: f64 = 50.0;
        let curve = self.curve_of_host(line_bytes, policy, sizes)?;
        let second = match curve[..] {
            [first, second, ..] => second.miss_ratio * HARDLY >= first.miss_ratio,
            _ => sizes.len() > 1,
        };
        Ok(usize::from(second))
    }

    /// The sizes of a view's columns, and which of them ranks: those asked for, the first ranking; else the host's.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn sizes_shown(
        &self,
        asked: Option<&[u64]>,
        line_bytes: u32,
        policy: Policy,
    ) -> Result<(Vec<u64>, usize), ModelError> {
        if let Some(sizes) = asked {
            return Ok((sizes.to_vec(), 0));
        }
        let sizes = sizes::host_sizes(&self.profile.header);
        let ranks = self.level_that_ranks(line_bytes, policy, &sizes)?;
        Ok((sizes, ranks))
    }

    /// The run that answers for a stream, and the stream to ask it for.
    fn run(&self, stream: Stream) -> (&Run, Stream) {
        match (&self.all, stream) {
            (Some(all), Stream::All) => (all, Stream::Own),
            (Some(_), stream) => (&self.own, stream),
            (None, _) => (&self.own, Stream::Own),
        }
    }

    /// What a miss ratio of 1 would fetch, in bytes a CPU second: multiply by a ratio for the traffic
    /// of that cache. `None` where the CPU time of the run is not known, or is that of a run observed
    /// as a whole, which is many times slower than the program alone.
    #[must_use]
    pub fn bytes_per_second(&self, line_bytes: u32) -> Option<f64> {
        let footer = self
            .profile
            .footer
            .as_ref()
            .filter(|_| !self.profile.header.full)?;
        let refs = footer.accesses_estimated.value * self.refs_per_access(line_bytes);
        let rate = refs * f64::from(line_bytes) / footer.cpu_s;
        (footer.cpu_s > 0.0 && rate.is_finite()).then_some(rate)
    }

    /// All subjects of one kind.
    #[must_use]
    pub fn subjects(&self, by: By) -> Subjects {
        match by {
            By::Data => Subjects {
                by,
                list: self.data.clone(),
                of_instr: Vec::new(),
            },
            By::Window => Subjects::of_windows(self.profile),
            _ => Subjects::of_code(self.profile, by),
        }
    }

    /// The memory object that rankings number `datum`.
    #[must_use]
    pub fn datum(&self, datum: u32) -> &Subject {
        &self.data[datum as usize]
    }

    /// The subject of a site of a stream.
    fn key(&self, subjects: &Subjects, stream: Stream, site: &Site) -> u32 {
        match subjects.by {
            By::Data => site.data,
            By::Window if stream == Stream::All => site.window as u32,
            By::Window => self.window_of[site.window],
            _ => subjects.of_instr[site.instr as usize],
        }
    }

    /// Line references of the whole run at a line size: its accesses, and more where accesses span lines.
    #[must_use]
    pub fn references_estimated(&self, line_bytes: u32) -> Estimate {
        let accesses = self.totals().accesses_estimated;
        accesses.times(self.refs_per_access(line_bytes))
    }

    /// Line references per access at a line size: above 1 where accesses span lines.
    fn refs_per_access(&self, line_bytes: u32) -> f64 {
        let at = LINE_SIZES
            .iter()
            .position(|&l| l == line_bytes)
            .unwrap_or(DEFAULT_LINE);
        let (mut refs, mut accesses) = (0.0, 0.0);
        for w in self.profile.windows.iter().filter(|w| w.accesses > 0) {
            refs += w.refs[at] as f64 / w.accesses as f64 * w.stands_for.value;
            accesses += w.stands_for.value;
        }
        if accesses > 0.0 { refs / accesses } else { 1.0 }
    }
}

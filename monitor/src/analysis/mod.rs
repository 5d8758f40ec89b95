//! From a profile to the figures that views show: the one bridge between profile and model.
//!
//! Holds no text and does no IO. `report` and `export` (and the views to come) ask an [`Analysis`]
//! and never the model, so that all of them show the same figures.

mod ranking;
pub mod sizes;
mod subjects;

use std::collections::HashMap;

use statcache_model::{self as model, CurvePoint, ModelError, Policy, Run, Site, Stream};

use crate::profile::Profile;
use crate::profile::types::{Estimate, LINE_SIZES, Outcome, SampleRecord, sample_flags};

pub use ranking::{Caches, Edge, Miss, Ranking, Row};
pub use subjects::{By, DataKind, Subject, Subjects};

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
    run: Run,
    data: Vec<Subject>,
    /// Per (instruction, datum): samples taken.
    touched: HashMap<(u32, u32), u64>,
}

impl<'p> Analysis<'p> {
    /// Hands the profile's windows to the model.
    ///
    /// # Errors
    /// A value in the profile that the model refuses.
    pub fn new(profile: &'p Profile) -> Result<Self, ModelError> {
        let places: HashMap<u32, usize> = profile
            .windows
            .iter()
            .enumerate()
            .map(|(at, w)| (w.index, at))
            .collect();
        let mut windows: Vec<model::Window> = profile
            .windows
            .iter()
            .map(|w| model::Window {
                start: w.start_s,
                thread: key_of_tid(w.tid),
                accesses: w.accesses,
                refs: w.refs,
                stands_for: model::Estimate {
                    value: w.stands_for.value,
                    low: w.stands_for.low,
                    high: w.stands_for.high,
                },
                samples: Vec::with_capacity(w.samples.len()),
            })
            .collect();
        let mut tids = profile.windows.iter().map(|w| w.tid);
        let first = tids.next();
        let many_threads = tids.any(|t| Some(t) != first);
        let mut data = subjects::Interner::new();
        let mut by_memory = HashMap::new();
        let mut touched: HashMap<(u32, u32), u64> = HashMap::new();
        for taken in profile.windows.iter().flat_map(|w| &w.samples) {
            // A window that never was written takes its samples with it.
            let Some(&at) = places.get(&taken.taken_in) else {
                continue;
            };
            let sample = &taken.sample;
            let tid = if many_threads { sample.tid } else { 0 };
            let datum = *by_memory
                .entry((sample.memory, tid))
                .or_insert_with(|| data.id(subjects::data_subject(profile, sample, many_threads)));
            *touched.entry((sample.ip, datum)).or_default() += 1;
            windows[at].samples.push(model_sample(sample, datum));
        }
        let options = model::Options {
            seed: profile.header.seed,
            contiguous: profile.windows.len() > 1
                && profile.windows[1..]
                    .iter()
                    .all(|w| w.contiguous_with_previous),
            footprint_bytes: profile
                .footer
                .as_ref()
                .map(|footer| footer.footprint_bytes)
                .filter(|&bytes| bytes > 0),
            ..model::Options::default()
        };
        let run = Run::new(windows, options)?;
        Ok(Self {
            profile,
            run,
            data: data.into_list(),
            touched,
        })
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
            t.accesses_observed += w.accesses;
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
        t
    }

    /// Miss-ratio curve at the given sizes, in their order; empty for an empty profile.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn curve(
        &self,
        line_bytes: u32,
        policy: Policy,
        sizes: &[u64],
    ) -> Result<Vec<CurvePoint>, ModelError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        self.run
            .curve(u64::from(line_bytes), policy, Stream::Own, sizes)
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

    /// What data each of `subjects` (of code) touched: data and share of its samples, largest first.
    #[must_use]
    pub fn data_touched(&self, subjects: &Subjects) -> HashMap<u32, Vec<(&Subject, f64)>> {
        let mut counts: HashMap<u32, HashMap<u32, u64>> = HashMap::new();
        for (&(instr, datum), &n) in &self.touched {
            if let Some(&subject) = subjects.of_instr.get(instr as usize) {
                *counts.entry(subject).or_default().entry(datum).or_default() += n;
            }
        }
        counts
            .into_iter()
            .map(|(subject, data)| {
                let all: u64 = data.values().sum();
                let mut list: Vec<(u32, u64)> = data.into_iter().collect();
                list.sort_by_key(|&(datum, n)| (std::cmp::Reverse(n), datum));
                let shares = list
                    .into_iter()
                    .map(|(datum, n)| (&self.data[datum as usize], n as f64 / all as f64));
                (subject, shares.collect())
            })
            .collect()
    }

    /// The subject of a site.
    fn key(&self, subjects: &Subjects, site: &Site) -> u32 {
        match subjects.by {
            By::Data => site.data,
            By::Window => site.window as u32,
            _ => subjects.of_instr[site.instr as usize],
        }
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

fn key_of_tid(tid: i32) -> model::Key {
    tid.unsigned_abs()
}

fn model_sample(s: &SampleRecord, datum: u32) -> model::Sample {
    let kind = match (
        s.flags & sample_flags::LOAD != 0,
        s.flags & sample_flags::STORE != 0,
    ) {
        (true, true) => model::Kind::Modify,
        (false, true) => model::Kind::Store,
        _ => model::Kind::Load,
    };
    let thread = key_of_tid(s.tid);
    model::Sample {
        position: s.position,
        address: s.address,
        size: s.size,
        kind,
        instr: s.ip,
        data: datum,
        thread,
        own: s.own.map(|outcome| match outcome {
            Outcome::Reused {
                distance,
                trigger,
                store,
            } => model::Outcome::Reused {
                distance,
                trigger: model::Trigger {
                    instr: trigger,
                    thread,
                    store,
                },
            },
            Outcome::Censored { at } => model::Outcome::Censored { at },
            Outcome::NeverReused { at } => model::Outcome::NeverReused { at },
            Outcome::NotFollowed => model::Outcome::NotFollowed,
        }),
        all: None,
        remote: None,
        given_up: s.flags & sample_flags::GIVEN_UP != 0,
    }
}

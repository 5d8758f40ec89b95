//! What each place in the code costs over the whole run: references and misses as counts, for tools that add them up themselves.

use std::collections::HashMap;

use rayon::prelude::*;
use statcache_model::{ModelError, Policy, Site, Stream};

use super::subjects::Subjects;
use super::{Analysis, DEFAULT_LINE_BYTES};
use crate::profile::types::InstrId;

/// By what else places are told apart than by their instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// By nothing.
    Nothing,
    /// By the memory object ([`Analysis::datum`]) that is touched.
    Data,
    /// By the profile's window.
    Windows,
}

/// One instruction, or its part of an object or a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The instruction.
    pub instr: InstrId,
    /// Object or window, as asked; 0 where they are not told apart.
    pub part: u32,
    /// Line references of the run.
    pub references: f64,
    /// Misses of the run, one for each size asked for.
    pub misses: Vec<f64>,
}

/// All places, and what the whole run costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Line references of the run.
    pub references: f64,
    /// Misses of the run, one for each size asked for.
    pub misses: Vec<f64>,
    /// In the order of their instructions and parts.
    pub places: Vec<Place>,
}

impl Costs {
    /// What no place was found for: references, and misses at each size. (Of threads, whose streams differ between sizes, places may have
    /// more than all together; then nothing is left.)
    #[must_use]
    pub fn homeless(&self) -> (f64, Vec<f64>) {
        let left = |all: f64, of: &dyn Fn(&Place) -> f64| {
            (all - self.places.iter().map(of).sum::<f64>()).max(0.0)
        };
        let misses = self.misses.iter().enumerate();
        let misses = misses.map(|(i, &all)| left(all, &|p| p.misses[i]));
        (left(self.references, &|p| p.references), misses.collect())
    }
}

impl Analysis<'_> {
    /// Costs in caches of the given sizes (bytes; random replacement, 64-byte lines), each in the stream that such a cache sees on
    /// the profile's host ([`Analysis::stream_at`]); of an empty profile none.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn costs(&self, sizes: &[u64], apart: Apart) -> Result<Costs, ModelError> {
        if self.is_empty() {
            return Ok(Costs {
                misses: vec![0.0; sizes.len()],
                ..Costs::default()
            });
        }
        let (line, policy) = (DEFAULT_LINE_BYTES, Policy::RANDOM);
        let references = self.references_estimated(line).value;
        let curve = self.curve_of_host(line, policy, sizes)?;
        let misses: Vec<f64> = curve.iter().map(|p| p.miss_ratio * references).collect();
        let windows = Subjects::windows();
        let part = |site: &Site, stream: Stream| match apart {
            Apart::Nothing => 0,
            Apart::Data => site.data,
            Apart::Windows => self.key(&windows, stream, site),
        };
        let at_sizes: Result<Vec<_>, ModelError> = sizes
            .par_iter()
            .map(|&bytes| {
                let stream = self.stream_at(bytes);
                let (run, asked) = self.run(stream);
                let key = |site: &Site| (site.instr, part(site, stream));
                run.attribute(u64::from(line), bytes, policy, asked, key)
            })
            .collect();
        let mut places: HashMap<(InstrId, u32), Place> = HashMap::new();
        for (at, attribution) in at_sizes?.iter().enumerate() {
            for figures in &attribution.keys {
                let (instr, part) = figures.key;
                let place = places.entry(figures.key).or_insert_with(|| Place {
                    instr,
                    part,
                    references: figures.access_share * references,
                    misses: vec![0.0; sizes.len()],
                });
                place.misses[at] = figures.miss_share * misses[at];
            }
        }
        let mut places: Vec<Place> = places.into_values().collect();
        places.sort_unstable_by_key(|place| (place.instr, place.part));
        Ok(Costs {
            references,
            misses,
            places,
        })
    }
}

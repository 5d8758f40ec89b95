//! What the formats of other profilers have in common: counts at call stacks, of one process after the other.
//!
//! A stack is an instruction's chain of inlined functions; who called the function that holds it was not seen.

use std::path::Path;

use super::{ExportError, Options};
use crate::analysis::sizes::label;
use crate::analysis::{Analysis, DEFAULT_LINE_BYTES, nameless};
use crate::profile::Profile;
use crate::profile::types::{Frame, Header, InstrId};
use crate::report::processes;
use statcache_model::Policy;

/// Name of what no place was found for: first touches without a home.
pub(super) const HOMELESS: &str = "[unknown place]";

/// The caches that misses are given for.
#[derive(Debug)]
pub(super) struct Levels {
    /// Bytes.
    pub(super) sizes: Vec<u64>,
    /// Which of them a view shows first.
    pub(super) first: usize,
}

impl Levels {
    /// Those asked for, the first of them first; else the host's, and first the one that a report ranks by.
    pub(super) fn new(analysis: &Analysis<'_>, options: &Options) -> Result<Self, ExportError> {
        let asked = options.caches.as_deref();
        let ranked = |of: &Analysis<'_>| of.sizes_shown(asked, DEFAULT_LINE_BYTES, Policy::RANDOM);
        let shown = match options.alone {
            true => analysis.profile,
            false => processes::default(analysis.profile),
        };
        let (sizes, first) = match std::ptr::eq(shown, analysis.profile) {
            true => ranked(analysis)?,
            false => ranked(&Analysis::new(shown)?)?,
        };
        Ok(Self { sizes, first })
    }

    /// `L1 32K`, or `32K` where the host has no such cache.
    pub(super) fn labels(&self, header: &Header) -> Vec<String> {
        let sizes = self.sizes.iter();
        sizes.map(|&bytes| label(header, bytes)).collect()
    }
}

/// Calls `with` for the process of `analysis` and, unless it is wanted alone, for all others of the profile.
pub(super) fn each_process(
    analysis: &Analysis<'_>,
    options: &Options,
    mut with: impl FnMut(&Analysis<'_>) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    with(analysis)?;
    for other in analysis.profile.others.iter().filter(|_| !options.alone) {
        with(&Analysis::new(other)?)?;
    }
    Ok(())
}

/// Path of the object that holds an instruction; `None` for generated code.
pub(super) fn object(profile: &Profile, instr: InstrId) -> Option<&str> {
    let module = profile.instrs[instr as usize].module?;
    Some(&profile.modules[module as usize].path)
}

/// The instruction's functions, innermost first, never empty. One of unknown name is called by its object and address.
pub(super) fn frames(profile: &Profile, instr: InstrId) -> Vec<Frame> {
    match profile.frames(instr) {
        [] => vec![nameless(profile, instr)],
        known => known.to_vec(),
    }
}

/// `core.rs:1410`, where a line is known.
pub(super) fn place(frame: &Frame) -> Option<String> {
    if frame.file.is_empty() || frame.line == 0 {
        return None;
    }
    let name = Path::new(&frame.file).file_name();
    let name = name.map_or(frame.file.as_str().into(), |n| n.to_string_lossy());
    Some(format!("{name}:{}", frame.line))
}

/// A whole number of events; estimates have no better.
pub(super) fn count(value: f64) -> u64 {
    value.round() as u64
}

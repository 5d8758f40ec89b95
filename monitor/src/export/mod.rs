//! Profiles in other tools' formats.
//!
//! Formats outside this project are defined only by the data types in here; the JSON one carries
//! a schema version. An exporter turns an [`Analysis`] into bytes; where they go is the caller's.

mod callgrind;
mod csv;
pub mod diff;
mod dto;
mod fill;
mod firefox;
mod flat;
mod folded;
mod html;
mod json;
mod pprof;
mod sharing;

use std::io::{self, Write};

use statcache_model::ModelError;

use crate::analysis::Analysis;
use crate::report::Sources;

pub use dto::SCHEMA_VERSION;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The model refuses a value of the profile.
    #[error("the profile holds a value the model refuses: {0}")]
    Model(#[from] ModelError),
    /// The output cannot be written.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// What an export is asked for.
#[derive(Clone)]
pub struct Options<'a> {
    /// Cache sizes in bytes; `None`: those of the profile's host.
    pub caches: Option<Vec<u64>>,
    /// Leave the other processes of the run out.
    pub alone: bool,
    /// Where the text of the program comes from, for formats that show it.
    pub sources: &'a (dyn Sources + Sync),
}

/// One outside format.
pub trait Exporter {
    /// Writes the whole export.
    ///
    /// # Errors
    /// [`ExportError`]; the output may then be incomplete.
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options<'_>,
        out: &mut dyn Write,
    ) -> Result<(), ExportError>;
}

/// The formats there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// All that reports tell, as one document with a schema version (of instructions the 1,000 with most misses).
    Json,
    /// One table in long form: a row for each figure of each curve point, line, function,
    /// instruction, object of data and window.
    Csv,
    /// For KCachegrind and `callgrind_annotate`: references and misses of each function, line and
    /// instruction.
    Callgrind,
    /// For `pprof` and `go tool pprof`: references and misses at each instruction, by the data they go to.
    Pprof,
    /// For the Firefox Profiler: misses over the time of the run, a track for each cache.
    Firefox,
    /// For flame graphs: a line for each chain of inlined functions, and the misses in one cache.
    Folded,
    /// One page for a browser, which needs nothing besides: curves at every line size, sortable lists (of 200 rows at most), the
    /// source with its figures as it is here, what threads take from each other, windows.
    Html,
}

impl Format {
    /// Its exporter.
    #[must_use]
    pub fn exporter(self) -> Box<dyn Exporter> {
        match self {
            Self::Json => Box::new(json::Json),
            Self::Csv => Box::new(csv::Csv),
            Self::Callgrind => Box::new(callgrind::Callgrind),
            Self::Pprof => Box::new(pprof::Pprof),
            Self::Firefox => Box::new(firefox::Firefox),
            Self::Folded => Box::new(folded::Folded),
            Self::Html => Box::new(html::Html),
        }
    }
}

//! Profiles in other tools' formats.
//!
//! Formats outside this project are defined only by the data types in here; the JSON one carries
//! a schema version. An exporter turns an [`Analysis`] into bytes; where they go is the caller's.

mod csv;
pub mod diff;
mod dto;
mod fill;
mod json;
mod sharing;

use std::io::{self, Write};

use statcache_model::ModelError;

use crate::analysis::Analysis;

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
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Cache sizes in bytes; `None`: those of the profile's host.
    pub caches: Option<Vec<u64>>,
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
        options: &Options,
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
}

impl Format {
    /// Its exporter.
    #[must_use]
    pub fn exporter(self) -> Box<dyn Exporter> {
        match self {
            Self::Json => Box::new(json::Json),
            Self::Csv => Box::new(csv::Csv),
        }
    }
}

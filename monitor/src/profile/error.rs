//! What can go wrong with a profile file, each as one clear line with its remedy.

use std::io;
use std::path::PathBuf;

use super::types::{OLDEST_SCHEMA_VERSION, SCHEMA_VERSION};

/// A profile file that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The output cannot be created; found before the program starts.
    #[error("cannot create the profile {}: {source}; choose another place with -o FILE", path.display())]
    Create {
        /// The path asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A record could not be written; the file is valid up to the record before it.
    #[error(
        "cannot write the profile {}: {source}; what was written before is kept and readable (records: {records}): {remedy}",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Records that are safely in it.
        records: u64,
        /// What the user can do.
        remedy: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The file cannot be opened or read.
    #[error("cannot read the profile {}: {source}{hint}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// How to come by one, where it is missing.
        hint: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is not a statcache profile: make one with `statcache run -o FILE PROGRAM`", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a statcache with another layout.
    #[error(
        "{} is a profile of format {found}, this statcache reads formats {OLDEST_SCHEMA_VERSION} to {SCHEMA_VERSION}: \
         profile again, or read it with the statcache that wrote it",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file ends before anything useful was written.
    #[error("{} holds no complete record ({what}): profile again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// A checksum is right and the content is not: a defect of the writer.
    #[error("{} is damaged: {what}: profile again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What contradicts what.
        what: String,
    },
    /// A record that cannot be encoded: a defect of the caller.
    #[error("cannot encode a record for {}: {what}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What.
        what: String,
    },
}

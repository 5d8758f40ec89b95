//! Values of options that several verbs have.

use clap::ValueEnum;
use statcache_model::Policy;

use crate::profile::types::LINE_SIZES;

/// Rows of a table.
pub(super) fn parse_rows(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(rows) if rows > 0 => Ok(rows),
        _ => Err("give a number of rows, 1 or more".to_owned()),
    }
}

/// A line size in bytes.
pub(super) fn parse_line_size(text: &str) -> Result<u32, String> {
    let refuse = || {
        format!(
            "give one of {}",
            LINE_SIZES.map(|l| l.to_string()).join(", ")
        )
    };
    let bytes = text.parse().map_err(|_| refuse())?;
    if LINE_SIZES.contains(&bytes) {
        Ok(bytes)
    } else {
        Err(refuse())
    }
}

/// A replacement policy.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum PolicyArg {
    /// Random replacement.
    Random,
    /// Least recently used.
    Lru,
}

impl From<PolicyArg> for Policy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Random => Policy::RANDOM,
            PolicyArg::Lru => Policy::LRU,
        }
    }
}

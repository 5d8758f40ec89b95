//! Cache sizes as they are given on the command line.

use std::collections::HashSet;

use crate::sizes::parse_size;

/// The smallest cache that there are figures for: the model knows nothing of a few lines.
const LEAST: u64 = 1 << 10;

/// One size, in bytes.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < LEAST => {
            let kib = text.bytes().all(|b| b.is_ascii_digit());
            let meant = kib.then(|| format!(" (for {text} KiB write {text}K)"));
            Err(format!(
                "the smallest cache is 1K{}",
                meant.unwrap_or_default()
            ))
        }
        bytes => Ok(bytes),
    }
}

/// In their order, without repetitions.
pub(super) fn each_once(mut caches: Vec<u64>) -> Vec<u64> {
    let mut seen = HashSet::new();
    caches.retain(|&bytes| seen.insert(bytes));
    caches
}

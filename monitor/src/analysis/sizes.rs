//! The cache sizes a view shows when none are asked for, and how it names them.

use crate::profile::types::Header;
use crate::sizes::format_size;

/// Smallest size of the default curve.
const CURVE_FROM: u64 = 8 << 10;
/// The default curve reaches at least this far (contract of the JSON export).
const CURVE_TO: u64 = 64 << 20;
/// And never beyond this, however large the host's last level says it is.
const CURVE_MAX: u64 = 1 << 30;
/// Sizes every exported figure is given at, whatever the host (contract of the JSON export).
pub const EXPORT_SIZES: [u64; 5] = [32 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20];

/// Powers of two and the points half-way above them, from 8 KiB to 64 MiB, further where the host
/// has a larger cache.
#[must_use]
pub fn curve_sizes(header: &Header) -> Vec<u64> {
    let largest = header
        .host_caches
        .iter()
        .map(|c| c.bytes)
        .max()
        .unwrap_or(0);
    let to = largest
        .min(CURVE_MAX)
        .checked_next_power_of_two()
        .map_or(CURVE_TO, |n| n.max(CURVE_TO));
    let mut sizes = Vec::new();
    let mut size = CURVE_FROM;
    while size <= to {
        sizes.push(size);
        if size < to {
            sizes.push(size + size / 2);
        }
        size *= 2;
    }
    sizes
}

/// The host's data-cache sizes, nearest first; three usual ones where none are known.
#[must_use]
pub fn host_sizes(header: &Header) -> Vec<u64> {
    let mut sizes: Vec<u64> = header
        .host_caches
        .iter()
        .map(|c| c.bytes)
        .filter(|&b| b >= 256)
        .collect();
    sizes.dedup();
    if sizes.is_empty() {
        sizes = vec![32 << 10, 1 << 20, 32 << 20];
    }
    sizes
}

/// Size of the smallest cache that the host's threads share: the last level of several, and any from
/// the third on; nearer ones are private. The profile does not say which processors share what.
#[must_use]
pub fn shared_from(header: &Header) -> u64 {
    let caches = &header.host_caches;
    let last = caches.iter().map(|c| c.level).max().unwrap_or(0);
    let shared = |level| level >= 3 || (level == last && last > 1);
    match caches
        .iter()
        .filter(|c| shared(c.level))
        .map(|c| c.bytes)
        .min()
    {
        Some(bytes) => bytes,
        None if caches.is_empty() => host_sizes(header).last().copied().unwrap_or(u64::MAX),
        None => u64::MAX,
    }
}

/// `L2 2M` for a size the host has, `2M` for another.
#[must_use]
pub fn label(header: &Header, bytes: u64) -> String {
    match header.host_caches.iter().find(|c| c.bytes == bytes) {
        Some(c) => format!("L{} {}", c.level, format_size(bytes)),
        None => format_size(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_covers_the_contract_and_the_host() {
        let mut header = Header::example(&["x"]);
        let sizes = curve_sizes(&header);
        assert_eq!((sizes.len(), sizes[0], sizes[1]), (27, 8 << 10, 12 << 10));
        assert_eq!(sizes.last(), Some(&(64 << 20)));
        header.host_caches[2].bytes = 260 << 20;
        assert_eq!(curve_sizes(&header).last(), Some(&(512 << 20)));
        header.host_caches.clear();
        assert_eq!(curve_sizes(&header).len(), 27);
        assert_eq!(host_sizes(&header).len(), 3);
    }

    #[test]
    fn the_last_level_is_shared_unless_it_is_the_only_one() {
        let mut header = Header::example(&["x"]);
        assert_eq!(shared_from(&header), 32 << 20);
        header.host_caches.pop();
        assert_eq!(shared_from(&header), 2 << 20);
        header.host_caches.pop();
        assert_eq!(shared_from(&header), u64::MAX);
        header.host_caches.clear();
        assert_eq!(shared_from(&header), 32 << 20);
    }
}

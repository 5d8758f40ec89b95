//! Cache sizes as people write them, and the sizes a view shows when none are asked for.

use crate::profile::types::Header;

/// Smallest size of the default curve.
const CURVE_FROM: u64 = 8 << 10;
/// The default curve reaches at least this far (contract of the JSON export).
const CURVE_TO: u64 = 64 << 20;
/// And never beyond this, however large the host's last level says it is.
const CURVE_MAX: u64 = 1 << 30;
/// Sizes every exported figure is given at, whatever the host (contract of the JSON export).
pub const EXPORT_SIZES: [u64; 5] = [32 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20];

/// Reads `65536`, `48K`, `1.5M`, `32MiB` or `1G`; powers of 1024.
///
/// # Errors
/// A text that shows the accepted forms.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let refuse = || format!("`{text}` is not a size; write 32K, 1.5M, 1G or a number of bytes");
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(refuse()),
    };
    let number: f64 = number.parse().map_err(|_| refuse())?;
    let bytes = number * (1u64 << shift) as f64;
    if !(1.0..=(1u64 << 50) as f64).contains(&bytes) || bytes.fract() != 0.0 {
        return Err(refuse());
    }
    Ok(bytes as u64)
}

/// The shortest exact form: `48K`, `1.5M`, `100` for an odd number of bytes.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        let one = 1u64 << shift;
        if bytes < one {
            continue;
        }
        if bytes.is_multiple_of(one) {
            return format!("{}{unit}", bytes >> shift);
        }
        // Tenths only where they are exact: 1.5M yes, 1.3M no.
        if (bytes * 10).is_multiple_of(one) {
            return format!("{:.1}{unit}", bytes as f64 / one as f64);
        }
    }
    bytes.to_string()
}

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
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in [
            ("65536", 65536),
            ("32K", 32768),
            ("32k", 32768),
            ("1.5M", 1_572_864),
            ("48KiB", 49152),
            (" 1G ", 1 << 30),
            ("0.5K", 512),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "1T5",
            "0",
            "1.0001K",
            "32 parsecs",
            "1e99",
            "nan",
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(text) && error.contains("32K"), "{error}");
        }
    }

    #[test]
    fn the_written_form_is_exact() {
        for (bytes, text) in [
            (64, "64"),
            (1536, "1.5K"),
            (49152, "48K"),
            (1_572_864, "1.5M"),
            (260 << 20, "260M"),
            ((1 << 20) + 1, "1048577"),
        ] {
            assert_eq!(format_size(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }

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

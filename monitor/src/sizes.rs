//! Sizes in bytes as people, and the kernel, write them.

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
        "t" | "tb" | "tib" => 40,
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
}

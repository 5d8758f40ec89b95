//! Numbers in as few bytes as they need: in the columns of a profile, and in what is kept of a code cache.
//!
//! Source: LEB128 and zigzag, as in the Protocol Buffers encoding.

/// Difference to the value before, as a small number whatever its sign.
pub(crate) fn difference(value: u64, before: &mut u64) -> u64 {
    let d = value.wrapping_sub(*before) as i64;
    *before = value;
    zigzag(d)
}

/// Undoes [`difference`].
pub(crate) fn sum(stored: u64, before: &mut u64) -> u64 {
    *before = before.wrapping_add(unzigzag(stored) as u64);
    *before
}

/// A signed number as an unsigned one that is small where it is near zero.
pub(crate) fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

/// The value in a smaller type.
///
/// # Errors
/// A text, when it does not fit.
pub(crate) fn narrow<T, S: Copy + std::fmt::Display + TryInto<T>>(value: S) -> Result<T, String> {
    value
        .try_into()
        .map_err(|_| format!("value {value} is out of range"))
}

/// Appends seven bits a byte, lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Takes what [`put_varint`] put; `None` where the bytes end or make no number.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let (&b, rest) = bytes.split_first()?;
        *bytes = rest;
        v |= u64::from(b & 0x7f) << shift;
        if b < 0x80 {
            return Some(v);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_and_differences_return_what_was_put() {
        for v in [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, v);
            assert_eq!(take_varint(&mut bytes.as_slice()), Some(v));
            let (mut a, mut b) = (12345, 12345);
            let d = difference(v, &mut a);
            assert_eq!(sum(d, &mut b), v);
        }
    }
}

//! How much of a fetched line is used: spatial use, and bytes touched while a line lives.
//!
//! Source: Berg & Hagersten 2005, section 5.2 and figure 12.

use std::collections::HashMap;
use std::hash::Hash;

use crate::run::Run;
use crate::{Attribution, LineSize, ModelError, Policy, Stream};

/// Share of the larger line's extra bytes that save a miss, 0 (none: every small line would have
/// missed anyway) to 1 (all): `(1 - M_B / M_small) / (1 - B_small / B)`. Arguments: misses (not
/// ratios) and bytes at the small and the large line size. `None` without misses at the small one.
///
/// # Errors
/// [`ModelError::MixedLineSizes`] unless `small < large`; [`ModelError::BadWeight`].
pub fn spatial_use(
    small_misses: f64,
    small: LineSize,
    large_misses: f64,
    large: LineSize,
) -> Result<Option<f64>, ModelError> {
    if small >= large {
        return Err(ModelError::MixedLineSizes(small.bytes(), large.bytes()));
    }
    for value in [small_misses, large_misses] {
        if !value.is_finite() || value < 0.0 {
            return Err(ModelError::BadWeight {
                what: "misses",
                value,
            });
        }
    }
    if small_misses <= 0.0 {
        return Ok(None);
    }
    let room = 1.0 - f64::from(small.bytes()) / f64::from(large.bytes());
    Ok(Some(
        ((1.0 - large_misses / small_misses) / room).clamp(0.0, 1.0),
    ))
}

/// Spatial use of each key of two attributions of the same cache size, `small` at the smaller line
/// size. Keys without misses at the smaller size have no figure.
///
/// # Errors
/// As [`spatial_use`].
pub fn spatial_use_by_key<K: Clone + Eq + Hash>(
    small: &Attribution<K>,
    large: &Attribution<K>,
) -> Result<HashMap<K, f64>, ModelError> {
    let (s, l) = (
        LineSize::from_bytes(u64::from(small.line_bytes))?,
        LineSize::from_bytes(u64::from(large.line_bytes))?,
    );
    let at_large: HashMap<&K, f64> = large.keys.iter().map(|k| (&k.key, k.misses)).collect();
    let mut result = HashMap::new();
    for k in &small.keys {
        let misses = at_large.get(&k.key).copied().unwrap_or(0.0);
        if let Some(u) = spatial_use(k.misses, s, misses, l)? {
            result.insert(k.key.clone(), u);
        }
    }
    Ok(result)
}

impl Run {
    /// Spatial use of the whole run at one cache size.
    ///
    /// # Errors
    /// As [`Run::curve`] and [`spatial_use`].
    pub fn spatial_use(
        &self,
        small_line: u64,
        large_line: u64,
        cache_bytes: u64,
        policy: Policy,
        stream: Stream,
    ) -> Result<Option<f64>, ModelError> {
        let misses = |line: u64| -> Result<f64, ModelError> {
            let ratio = self.curve(line, policy, stream, &[cache_bytes])?[0].miss_ratio;
            Ok(ratio * self.view(LineSize::from_bytes(line)?, stream)?.refs())
        };
        spatial_use(
            misses(small_line)?,
            LineSize::from_bytes(small_line)?,
            misses(large_line)?,
            LineSize::from_bytes(large_line)?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_scale() {
        let f = |small, large| spatial_use(small, LineSize::B16, large, LineSize::B64);
        assert_eq!(
            f(400.0, 100.0),
            Ok(Some(1.0)),
            "sequential: a quarter of the misses"
        );
        assert_eq!(f(400.0, 400.0), Ok(Some(0.0)), "scattered: no miss saved");
        assert_eq!(f(0.0, 0.0), Ok(None));
        assert_eq!(
            spatial_use(1.0, LineSize::B64, 1.0, LineSize::B64),
            Err(ModelError::MixedLineSizes(64, 64))
        );
    }
}

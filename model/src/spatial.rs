//! How much of a fetched line is used: spatial use, and bytes touched while a line lives.
//!
//! Source: Berg & Hagersten 2005, section 5.2 and figure 12; ARCHITECTURE.md.

use std::collections::HashMap;
use std::hash::Hash;

use crate::run::Run;
use crate::{Attribution, Cache, LineSize, ModelError, Policy, Stream};

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

/// A touch of a followed line, for bytes used per fetched line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Line references since the touch before it (of the sampled one: anything).
    pub gap: u64,
    /// First byte touched, from the line's start.
    pub offset: u16,
    /// Bytes touched.
    pub size: u16,
}

/// The touches of one line from a sampled access on, of the random subset of samples whose watch
/// was kept after re-touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// In order, the sampled access first.
    pub touches: Vec<Touch>,
    /// Line references watched after the last touch.
    pub quiet: u64,
}

/// Bytes used per fetched line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BytesUsed {
    /// Mean bytes touched between fetch and eviction, in grains of 1, 4, 8 and 16 bytes (a grain
    /// counts whole when any of its bytes was touched).
    pub by_grain: [f64; 4],
    /// Half width of its 95 % interval, grain of 1.
    pub half_width: f64,
    /// Line lives seen to their end.
    pub lives: u64,
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

    /// Bytes of a line used while it lives in the cache: it dies in a gap whose miss probability
    /// exceeds one half. Lives that began before the watch count from the sampled access on, so
    /// the figure is a lower bound where lines live long. `None` without a life seen to its end.
    ///
    /// # Errors
    /// As [`Run::curve`].
    pub fn bytes_used(
        &self,
        line_bytes: u64,
        cache_bytes: u64,
        policy: Policy,
        stream: Stream,
        footprints: &[Footprint],
    ) -> Result<Option<BytesUsed>, ModelError> {
        let line = LineSize::from_bytes(line_bytes)?;
        let cache = Cache::new(cache_bytes, line, policy)?;
        let view = self.view(line, stream)?;
        let deadly = view.deadly_gap(&cache);
        let mut lives: Vec<[u16; 4]> = Vec::new();
        for f in footprints {
            let mut mask = [false; 256];
            for (i, t) in f.touches.iter().enumerate() {
                if i > 0 && t.gap as f64 >= deadly {
                    lives.push(grains(&mask[..line_bytes as usize]));
                    mask = [false; 256];
                }
                let start = (t.offset as usize).min(line_bytes as usize);
                let end = (t.offset as usize + t.size as usize).min(line_bytes as usize);
                mask[start..end].fill(true);
            }
            if !f.touches.is_empty() && f.quiet as f64 >= deadly {
                lives.push(grains(&mask[..line_bytes as usize]));
            }
        }
        if lives.is_empty() {
            return Ok(None);
        }
        let n = lives.len() as f64;
        let mut by_grain = [0.0; 4];
        for l in &lives {
            for (sum, &bytes) in by_grain.iter_mut().zip(l) {
                *sum += f64::from(bytes) / n;
            }
        }
        let variance = lives
            .iter()
            .map(|l| (f64::from(l[0]) - by_grain[0]).powi(2))
            .sum::<f64>()
            / n;
        Ok(Some(BytesUsed {
            by_grain,
            half_width: crate::interval::Z95 * (variance / n).sqrt(),
            lives: lives.len() as u64,
        }))
    }
}

fn grains(mask: &[bool]) -> [u16; 4] {
    [1usize, 4, 8, 16].map(|g| {
        let used = mask.chunks(g).filter(|c| c.contains(&true)).count();
        (used * g) as u16
    })
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

    #[test]
    fn grains_count_whole() {
        let mut mask = [false; 64];
        mask[3] = true;
        mask[17] = true;
        assert_eq!(grains(&mask), [2, 8, 16, 32]);
    }
}

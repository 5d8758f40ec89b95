//! What a load of the victim takes when it stayed, and when it was evicted.

use super::{Stop, Test};
use crate::finding::quantile;
use crate::measure::MeasureError;

/// Cycles per load of a victim, and what divides those that stayed from those that were evicted.
pub(super) struct Levels {
    /// When it stayed.
    pub(super) hit: f64,
    /// When it was evicted.
    pub(super) miss: f64,
    /// Least difference that can be told.
    pub(super) grain: f64,
}

impl Levels {
    /// A third of the way up: with random replacement only some of the victim's lines are gone.
    pub(super) fn some_lines_gone(&self) -> f64 {
        let apart = (self.miss - self.hit).min(2.5 * self.hit);
        self.hit + (0.35 * apart).max(self.grain)
    }

    /// So far up that one evicted line of the victim's counts.
    pub(super) fn one_line_gone(&self) -> f64 {
        let apart = (self.miss - self.hit)
            .min(2.5 * self.hit)
            .max(0.5 * self.hit);
        self.hit + (0.12 * apart).max(self.grain)
    }
}

/// The fillers in the order, of several, that disturbs the victim least, and cycles per load of the victim then.
///
/// Fillers may by chance hold a full set of congruent pages: the best of several draws does not.
pub(super) fn quiet(
    t: &mut Test<'_>,
    victim: u64,
    mut fillers: Vec<u64>,
) -> Result<(Vec<u64>, f64), MeasureError> {
    let mut hit = f64::INFINITY;
    let mut quiet = fillers.clone();
    for _ in 0..8 {
        t.rng.shuffle(&mut fillers);
        let time = t.time(victim, &[], &fillers)?;
        if time < 0.97 * hit {
            hit = time;
            quiet.clone_from(&fillers);
        }
    }
    Ok((quiet, hit))
}

/// Cuts the pool to a size that evicts the victim: cycles per load of it then.
pub(super) fn grow(
    t: &mut Test<'_>,
    victim: u64,
    hit: f64,
    pool: &mut Vec<u64>,
    fillers: &[u64],
    deadline_ns: u64,
) -> Result<f64, Stop> {
    let mut size = 64usize;
    loop {
        let n = size.min(pool.len());
        let slow: Vec<f64> = (0..3)
            .map(|_| t.time(victim, &pool[..n], fillers))
            .collect::<Result<_, _>>()?;
        let low = quantile(&slow, 0.0).unwrap_or(f64::INFINITY);
        if low.is_finite() && low > 1.9 * hit {
            pool.truncate(n);
            return Ok(low);
        }
        if n == pool.len() {
            return Err(Stop::GaveUp(format!(
                "{n} pages do not evict a line: the level is larger than the pool, or nothing slower lies behind it"
            )));
        }
        if t.m.now_ns() > deadline_ns {
            return Err(Stop::GaveUp("out of time while growing the pool".into()));
        }
        size *= 2;
    }
}

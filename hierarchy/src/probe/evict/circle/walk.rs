//! Walks, and walks compared: does one have misses that another over as many pages has not?

use crate::measure::{Chase, Measure, MeasureError};
use crate::probe::l1::Geometry;
use crate::probe::{PAGE, best, loads_for};
use crate::rng::Rng;

/// Share of a lap by which two walks over the same lines may differ for no reason. A choice: clocks are seen to a thousandth.
const NOISE: f64 = 0.005;

/// Walks over pages of one first-level colour, a few lines in each.
pub(super) struct Walker<'a> {
    pub(super) m: &'a mut dyn Measure,
    pub(super) rng: &'a mut Rng,
    /// Places of the lines within every page.
    pub(super) offsets: Vec<u64>,
    /// Strangers needed in a walk so that the first level does not hold it.
    pub(super) ballast: usize,
    /// Cycles per lap that are a miss at half of the offsets.
    pub(super) bar: f64,
    /// How often a slow answer is asked for before it is believed.
    pub(super) tries: u32,
    /// Laps before the timed ones.
    pub(super) warm: u64,
}

impl<'a> Walker<'a> {
    /// `hit` is the level's latency in cycles, as far as it is known.
    pub(super) fn new(m: &'a mut dyn Measure, l1: Geometry, hit: f64, rng: &'a mut Rng) -> Self {
        let base = 128 * rng.below(2);
        let offsets = (0..8).map(|i| i * (PAGE / 8) + base).collect::<Vec<_>>();
        // The least that a further level costs more in practice.
        let gap = (0.8 * hit).max(10.0);
        Walker {
            m,
            bar: 0.5 * offsets.len() as f64 * gap,
            offsets,
            ballast: 2 * l1.ways as usize + 4,
            rng,
            tries: 3,
            warm: 3,
        }
    }

    /// Lowest cycles of a lap over the pages.
    pub(super) fn lap(&mut self, pages: &[u64]) -> Result<f64, MeasureError> {
        let mut order = pages.to_vec();
        self.rng.shuffle(&mut order);
        let mut places = self.offsets.clone();
        let mut ring = Vec::with_capacity(order.len() * places.len());
        for p in order {
            self.rng.shuffle(&mut places);
            ring.extend(places.iter().map(|o| p * PAGE + o));
        }
        let n = ring.len() as u64;
        // Some laps: a policy that is not LRU needs them until the strangers are out.
        let laps = if n < 500 { 2 } else { 1 };
        let loads = loads_for(self.m, 10.0).max(laps * n).next_multiple_of(n);
        for _ in 0..3 {
            let w = self.m.chase(&Chase {
                timed: &ring,
                warm: self.warm * n,
                loads,
                windows: 4,
                ..Chase::default()
            })?;
            let low = best(&w);
            if low.is_finite() {
                return Ok(low * n as f64);
            }
        }
        Ok(f64::INFINITY)
    }

    /// Cycles per line of `pages`, beside ballast whose own time is taken off.
    pub(super) fn per_line(
        &mut self,
        pages: &[u64],
        strangers: &[u64],
    ) -> Result<f64, MeasureError> {
        let mut walk = strangers[..self.ballast.min(strangers.len())].to_vec();
        let alone = self.lap(&walk)?;
        walk.extend(pages);
        let lines = (pages.len() * self.offsets.len()) as f64;
        Ok((self.lap(&walk)? - alone) / lines)
    }

    /// Cycles per line of `fits` after many lines at other page offsets: slow when the index mixes page-offset bits
    /// with higher ones.
    pub(super) fn crossed(
        &mut self,
        fits: &[u64],
        strangers: &[u64],
        pool: &[u64],
    ) -> Result<Option<f64>, MeasureError> {
        let mut prep = Vec::new();
        for &o in &self.offsets {
            prep.extend(fits.iter().map(|p| p * PAGE + o));
        }
        for o in &self.offsets {
            let at = (o + 192) % PAGE;
            prep.extend(
                pool.iter()
                    .filter(|p| !fits.contains(p))
                    .map(|p| p * PAGE + at),
            );
            let ballast = &strangers[..self.ballast.min(strangers.len())];
            prep.extend(ballast.iter().map(|p| p * PAGE + o));
        }
        let timed: Vec<u64> = (self.offsets.iter())
            .flat_map(|o| fits.iter().map(move |p| p * PAGE + o + 8))
            .collect();
        // Translations come back through lines that are not timed.
        prep.extend(
            fits.iter()
                .map(|p| p * PAGE + (self.offsets[0] + 64) % PAGE),
        );
        let w = self.m.chase(&Chase {
            prep: &prep,
            timed: &timed,
            windows: 12,
            ..Chase::default()
        })?;
        Ok(Some(best(&w)).filter(|c| c.is_finite()))
    }

    /// The first walk has misses that the second one, over as many pages, has not.
    ///
    /// Asked in pairs, each in a fresh order: a first level that is not LRU likes some orders better. Two fast
    /// answers refute it; one may be a disturbed control.
    pub(super) fn conflicts(
        &mut self,
        group: &[u64],
        control: &[u64],
    ) -> Result<bool, MeasureError> {
        let (mut slow, mut fast) = (0, 0);
        while slow < self.tries {
            let (with, without) = (self.lap(group)?, self.lap(control)?);
            let extra = with - without;
            // In a long walk the clock's own error is more than a few misses.
            let bar = self.bar.max(NOISE * without);
            if extra >= bar && with.is_finite() {
                // All lines of a set, as with LRU, say it at once.
                slow += if extra > 4.0 * bar { 2 } else { 1 };
            } else if extra.abs() < 0.5 * bar {
                return Ok(false);
            } else {
                fast += 1;
                if fast == 2 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The difference grows with the lines walked in each page, as that of a cache does; that of a translation buffer's
    /// full set does not.
    pub(super) fn by_lines(
        &mut self,
        group: &[u64],
        control: &[u64],
    ) -> Result<bool, MeasureError> {
        let all = self.offsets.clone();
        let mut extra = [0.0; 2];
        for (n, extra) in [all.len(), all.len() / 4].into_iter().zip(&mut extra) {
            self.offsets.truncate(n);
            let mut low = [f64::INFINITY; 2];
            for _ in 0..3 {
                low[0] = low[0].min(self.lap(group)?);
                low[1] = low[1].min(self.lap(control)?);
            }
            *extra = low[0] - low[1];
        }
        self.offsets = all;
        Ok(extra[1] < 0.6 * extra[0])
    }

    /// Some of the strangers, as many as `n`, none of them in `without`.
    pub(super) fn some(&mut self, strangers: &[u64], n: usize) -> Vec<u64> {
        let mut s = strangers.to_vec();
        for i in 0..n.min(s.len()) {
            let j = i + self.rng.below((s.len() - i) as u64) as usize;
            s.swap(i, j);
        }
        s.truncate(n);
        s
    }

    /// Do `pages` have a line too many in their sets, beside enough strangers to keep them out of the first level?
    pub(super) fn overfull(
        &mut self,
        pages: &[u64],
        strangers: &[u64],
    ) -> Result<bool, MeasureError> {
        let s = self.some(strangers, pages.len() + self.ballast);
        if s.len() < pages.len() + self.ballast {
            return Ok(false);
        }
        let (ballast, instead) = s.split_at(self.ballast);
        let group: Vec<u64> = pages.iter().chain(ballast).copied().collect();
        let control: Vec<u64> = instead.iter().chain(ballast).copied().collect();
        self.conflicts(&group, &control)
    }

    /// Do `known` and `more` have one, where `known` alone has none? The control keeps `known`.
    pub(super) fn joins(
        &mut self,
        known: &[u64],
        more: &[u64],
        strangers: &[u64],
    ) -> Result<bool, MeasureError> {
        let s = self.some(strangers, more.len() + self.ballast);
        if s.len() < more.len() + self.ballast {
            return Ok(false);
        }
        let (ballast, instead) = s.split_at(self.ballast);
        let with =
            |x: &[u64]| -> Vec<u64> { known.iter().chain(ballast).chain(x).copied().collect() };
        let (group, control) = (with(more), with(instead));
        self.conflicts(&group, &control)
    }
}

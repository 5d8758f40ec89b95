//! One question to a victim: was it thrown out by a group of pages?

use crate::measure::{Chase, Measure, MeasureError, Window};
use crate::probe::PAGE;
use crate::rng::Rng;

/// What is asked and how patiently.
pub(super) struct Test<'a> {
    pub(super) m: &'a mut dyn Measure,
    pub(super) colours: u64,
    pub(super) filler_count: usize,
    pub(super) offsets: Vec<u64>,
    pub(super) threshold: f64,
    pub(super) windows: u32,
    /// Walks over the group between loading the victim and timing it; each takes a slot of the line.
    pub(super) rounds: u64,
    /// How often a slow answer is asked for before it is believed.
    pub(super) tries: u32,
    pub(super) rng: &'a mut Rng,
}

impl Test<'_> {
    /// Cycles per load of the victim's lines after `group` and the fillers were walked.
    pub(super) fn time(
        &mut self,
        victim: u64,
        group: &[u64],
        fillers: &[u64],
    ) -> Result<f64, MeasureError> {
        self.time_at(victim, group, fillers, 0)
    }

    /// The same with the group's lines moved by `shift` bytes within their pages.
    pub(super) fn time_at(
        &mut self,
        victim: u64,
        group: &[u64],
        fillers: &[u64],
        shift: u64,
    ) -> Result<f64, MeasureError> {
        let mut prep: Vec<u64> = self.offsets.iter().map(|o| victim * PAGE + o).collect();
        let near: Vec<u64> = fillers
            .iter()
            .copied()
            .filter(|f| {
                *f != victim && f % self.colours == victim % self.colours && !group.contains(f)
            })
            .take(self.filler_count)
            .collect();
        // The order changes from place to place, so that no order can spare the victim everywhere; within
        // one place most rounds repeat it, because a queue only turns over when it is followed.
        let mut order: Vec<u64> = group.iter().copied().filter(|p| *p != victim).collect();
        let turn = order.len() / self.offsets.len().max(1) + 1;
        for (i, &o) in self.offsets.iter().enumerate() {
            let n = order.len().max(1);
            order.rotate_left(turn % n);
            if i % 2 == 1 {
                order.reverse();
            }
            for round in 0..self.rounds {
                if round == 3 {
                    order.reverse();
                }
                prep.extend(
                    order
                        .iter()
                        .map(|p| p * PAGE + (o + shift) % PAGE + 8 * round),
                );
                prep.extend(near.iter().map(|p| p * PAGE + o + 8 * round));
            }
        }
        // The victim's translation comes back through a line that is not timed.
        prep.push(victim * PAGE + (self.offsets[0] + 192) % PAGE);
        let timed: Vec<u64> = self.offsets.iter().map(|o| victim * PAGE + o + 8).collect();
        // The first windows bring the group in; the mean of the faster half of the rest leaves
        // disturbed ones out and still sees a victim that is evicted only sometimes.
        for _ in 0..2 {
            let w = self.m.chase(&Chase {
                prep: &prep,
                timed: &timed,
                windows: self.windows,
                ..Chase::default()
            })?;
            let skip = self.windows as usize / 3;
            // A switch during the long walk makes the answer slower at most, and slow answers are asked again.
            let mut cycles: Vec<f64> = w[skip..]
                .iter()
                .map(Window::cycles)
                .filter(|c| c.is_finite())
                .collect();
            if cycles.len() < 2 {
                continue;
            }
            cycles.sort_by(f64::total_cmp);
            cycles.truncate(cycles.len().div_ceil(2));
            return Ok(cycles.iter().sum::<f64>() / cycles.len() as f64);
        }
        Ok(f64::INFINITY)
    }

    /// The group evicts the victim; a slow answer is asked for `tries` times.
    pub(super) fn evicts(
        &mut self,
        victim: u64,
        group: &[u64],
        fillers: &[u64],
    ) -> Result<bool, MeasureError> {
        for _ in 0..self.tries {
            if self.time(victim, group, fillers)? < self.threshold {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

//! When samples are taken: each reference as likely as any other, and in clusters where they are sparse.

use super::{NO_SAMPLE, Observer};
use rand::Rng;

/// From this period on, samples come in clusters.
const CLUSTER_LEAST: u64 = 600;
/// Mean samples of a cluster, and mean references between two of them. (With 8 and 128 there are twice as many
/// stops for as many samples: the same errors of curves and instructions, and runs of a billion accesses and more take up to a quarter longer.)
const CLUSTER: f64 = 16.0;
const CLUSTER_GAP: f64 = 64.0;

impl Observer {
    /// Draws the distance to the next sample. With a short period it is geometric: every reference is
    /// sampled independently of the others. With a longer one it is a mixture of two such, so that
    /// samples come in clusters: a stationary renewal process, in which every reference is as likely to
    /// be sampled as any other, while an engine need look at addresses during clusters only.
    pub(super) fn draw(&mut self) {
        self.samples_left = self.samples_left.saturating_sub(1);
        if self.samples_left == 0 {
            self.until_sample = NO_SAMPLE;
            return;
        }
        self.until_sample = match self.of_cluster.pop() {
            Some(gap) => gap,
            None if self.period < CLUSTER_LEAST => self.geometric(self.period as f64),
            None => {
                self.draw_cluster();
                self.geometric(self.spacing())
            }
        };
    }

    /// Draws the distance to the first sample, from a place that knows nothing of those before: what
    /// is left of a gap is longer on average than a gap (renewal theory, the inspection paradox).
    pub(super) fn draw_first(&mut self) {
        let (period, spacing) = (self.period as f64, self.spacing());
        self.of_cluster.clear();
        if self.period < CLUSTER_LEAST {
            self.until_sample = self.geometric(period);
            return;
        }
        let share_of_long = (spacing / CLUSTER / period).min(1.0);
        let mean = match self.random.random_bool(share_of_long) {
            true => spacing,
            false => CLUSTER_GAP,
        };
        self.until_sample = self.geometric(mean);
        self.draw_cluster();
    }

    /// Draws how the cluster of the next sample goes on behind it.
    fn draw_cluster(&mut self) {
        while !self.random.random_bool(1.0 / CLUSTER) {
            let gap = self.geometric(CLUSTER_GAP);
            self.of_cluster.push(gap);
        }
    }

    /// 64-byte references from the next sample to the last of its cluster.
    pub fn left_of_cluster(&self) -> u64 {
        self.of_cluster.iter().sum()
    }

    /// Mean references between two samples of different clusters.
    pub fn spacing(&self) -> f64 {
        if self.period < CLUSTER_LEAST {
            self.period as f64
        } else {
            CLUSTER * self.period as f64 - (CLUSTER - 1.0) * CLUSTER_GAP
        }
    }

    fn geometric(&mut self, mean: f64) -> u64 {
        let uniform: f64 = self.random.random_range(f64::EPSILON..1.0);
        1 + (uniform.ln() / (1.0 - 1.0 / mean.max(1.000_001)).ln()) as u64
    }
}

//! When samples are taken: each reference as likely as any other, and in clusters where they are sparse.

use super::{NO_SAMPLE, Observer};
use rand::Rng;

/// From this period on, samples come in clusters.
const CLUSTER_LEAST: u64 = 600;
/// Samples of a cluster, and mean references between two of them. (With 8 and 128 there are twice as many
/// stops for as many samples: the same errors of curves and instructions, and runs of a billion accesses and more take up to a quarter longer.
/// Eight samples, or four, with 64 between them: the same errors, too, and up to a third longer.)
const CLUSTER: u64 = 16;
const CLUSTER_GAP: f64 = 64.0;

impl Observer {
    /// Draws the distance to the next sample. With a short period it is geometric: every reference is
    /// sampled independently of the others. With a longer one samples come in clusters, so that an engine need look at
    /// addresses during those only, and every reference is as likely to be sampled as any other. Clusters are all of one size (of geometric sizes some are
    /// much larger than others, and what an instruction has of the samples varies more); the gaps between them are geometric, so that two
    /// references far apart are sampled independently, which the model counts on (`pairs.rs`).
    pub(super) fn draw(&mut self) {
        self.samples_left = self.samples_left.saturating_sub(1);
        if self.samples_left == 0 {
            self.until_sample = NO_SAMPLE;
            return;
        }
        self.until_sample = match self.of_cluster.pop() {
            Some(gap) => gap,
            None => {
                if self.in_clusters() {
                    self.draw_cluster(CLUSTER - 1);
                }
                self.geometric(self.spacing() as f64)
            }
        };
    }

    /// Draws the distance to the first sample, from a place that knows nothing of those before: more likely in a long gap than in a short
    /// one (renewal theory, the inspection paradox).
    pub(super) fn draw_first(&mut self) {
        self.of_cluster.clear();
        let in_gap = self.spacing() as f64 / self.cycle() as f64;
        let (mean, left) = match self.random.random_bool(in_gap.min(1.0)) {
            true => (self.spacing() as f64, CLUSTER - 1),
            false => (CLUSTER_GAP, self.random.random_range(0..CLUSTER - 1)),
        };
        self.until_sample = self.geometric(mean);
        if self.in_clusters() {
            self.draw_cluster(left);
        }
    }

    fn in_clusters(&self) -> bool {
        self.period >= CLUSTER_LEAST
    }

    /// Draws so many more samples of the cluster of the next one.
    fn draw_cluster(&mut self, left: u64) {
        for _ in 0..left {
            let gap = self.geometric(CLUSTER_GAP);
            self.of_cluster.push(gap);
        }
    }

    /// 64-byte references from the next sample to the last of its cluster.
    pub fn left_of_cluster(&self) -> u64 {
        self.of_cluster.iter().sum()
    }

    /// Mean references from one cluster to the next, or from one sample to the next where there are none.
    fn cycle(&self) -> u64 {
        match self.in_clusters() {
            true => CLUSTER * self.period,
            false => self.period,
        }
    }

    /// Mean references between two samples of different clusters.
    pub fn spacing(&self) -> u64 {
        match self.in_clusters() {
            true => self.cycle() - (CLUSTER - 1) * CLUSTER_GAP as u64,
            false => self.period,
        }
    }

    fn geometric(&mut self, mean: f64) -> u64 {
        let uniform: f64 = self.random.random_range(f64::EPSILON..1.0);
        1 + (uniform.ln() / (1.0 - 1.0 / mean.max(1.000_001)).ln()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever in the program an observer begins, and however far behind: each reference has its part of the samples.
    #[test]
    fn every_reference_is_as_likely_to_be_sampled() {
        const PARTS: u64 = 8;
        // Samples of a cluster come together: four standard deviations of as many as there are, and more.
        for (period, seeds, within) in [
            (1, 1, 1e-9),
            (2, 20_000, 0.02),
            (7, 20_000, 0.03),
            (600, 20_000, 0.06),
        ] {
            let mut samples = [0.0; PARTS as usize];
            let mut part = 0;
            for seed in 0..seeds {
                let mut observer = Observer::new(period, seed);
                part = observer.cycle().max(2) / 2;
                let mut at = observer.until_sample - 1;
                while at < part * PARTS {
                    samples[(at / part) as usize] += 1.0;
                    observer.draw();
                    at += observer.until_sample;
                }
            }
            let expected = (seeds * part) as f64 / period as f64;
            for (at, found) in samples.iter().enumerate() {
                let off = found / expected - 1.0;
                assert!(off.abs() < within, "{period}: part {at} off by {off:.4}");
            }
        }
    }
}

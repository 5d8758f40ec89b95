//! Weights of reuses as shares of the references they end in.

use super::{Local, Segment, Timeline};
use std::ops::Range;

/// Distance of reuses that end within the cluster of samples they are of, most often: samples are taken close together over some hundred references.
pub(crate) const SHORT: f64 = 1000.0;

impl Local {
    fn is_short(&self) -> bool {
        self.distance < SHORT
    }
}

impl Segment {
    /// Of those that end within a cluster of samples.
    fn short_reuses(&self) -> f64 {
        let short = self.local.iter().filter(|l| l.is_short());
        short.map(|l| l.weight).sum()
    }

    fn scale(&mut self, short: f64, long: f64) {
        for l in &mut self.local {
            l.weight *= if l.is_short() { short } else { long };
        }
        self.cross.iter_mut().for_each(|c| c.weight *= long);
    }
}

impl Timeline {
    /// Scales the weights of reuses, in references, to what first touches leave of each block of segments: to shares of their segment's
    /// references. `block_of`: the number of each segment's block, which ascend.
    ///
    /// Not all of each segment: reuses count where they end, and samples come in clusters. Of a loop that misses now and then, a segment
    /// without a cluster has ends of long reuses only, and one with a cluster many of short ones: scaled apart, the short ones count too little.
    /// (A sweep was told 0.3 points of misses too many with segments of 50 samples, 512 at most, and 1.0 with up to 8,192.) So long ones keep their weights, and short ones ([`SHORT`]) fill what these leave of each segment: were no segment of a
    /// fixed sum, the noise of its samples would be one of the evictions in it, which small caches amplify.
    pub fn normalise(&mut self, block_of: Vec<usize>) {
        let mut from = 0;
        for to in 1..=block_of.len() {
            if to == block_of.len() || block_of[to] != block_of[from] {
                self.normalise_block(from..to);
                from = to;
            }
        }
        self.block_of = block_of;
    }

    /// Blocks of segments.
    pub fn blocks(&self) -> usize {
        self.block_of.last().map_or(0, |last| last + 1)
    }

    fn normalise_block(&mut self, block: Range<usize>) {
        let (mut reuses, mut left) = (0.0, 0.0);
        for j in block.clone() {
            reuses += self.segments[j].reuses();
            left += self.left(j);
        }
        if reuses <= 0.0 || left <= 0.0 {
            // All first touches.
            block.for_each(|j| self.segments[j].scale(0.0, 0.0));
            return;
        }
        let all = left / reuses;
        // References of long reuses, and room that they leave in segments with short ones.
        let (mut long, mut room) = (0.0, 0.0);
        let mut rooms = Vec::with_capacity(block.len());
        for j in block.clone() {
            let short = self.segments[j].short_reuses();
            let others = all * (self.segments[j].reuses() - short);
            let free = match short > 0.0 {
                true => (self.left(j) - others).max(0.0),
                false => 0.0,
            };
            rooms.push(if short > 0.0 { free / short } else { 0.0 });
            (long, room) = (long + others, room + free);
        }
        let (fill, keep) = match left > long && room > 0.0 {
            true => ((left - long) / room, all),
            // Nothing is left for short ones. (Without a long one there is room.)
            false => (0.0, all * left / long.max(f64::MIN_POSITIVE)),
        };
        for (j, room) in block.zip(rooms) {
            let refs = self.refs(j);
            self.segments[j].scale(fill * room / refs, keep / refs);
        }
    }

    /// References of a segment that are no first touches.
    pub(super) fn left(&self, segment: usize) -> f64 {
        (1.0 - self.segments[segment].cold) * self.refs(segment)
    }
}

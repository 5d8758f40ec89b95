//! What chance alone leaves of a list of instructions: the floor of any method that samples references.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Binomial, Distribution, Poisson};

/// Draws that the means are of.
const DRAWS: usize = 200;

/// An instruction as the tracer knows it.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// References to lines.
    pub references: f64,
    /// Those of them that miss.
    pub misses: f64,
}

/// What as many samples as a profile holds would tell if each were drawn by itself, of all references alike, and were known to
/// hit or miss: mean of 200 such draws. Instructions that the tracer does not list are left out, and of those with as many misses seen the one
/// with more true misses comes first, so that it flatters a little.
/// Lines that are drawn beside the samples (`observe/drawn`) may tell more of far reuses than this.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    /// Of the first by true misses, so many would be among the first by misses seen.
    pub found: f64,
    /// Mean absolute error of the miss ratio, weighted by true misses, over instructions with samples enough in the draw.
    pub weighted_error: f64,
}

/// `all` by falling misses; each reference is sampled with probability `rate`, of `top` instructions is asked which are found, and
/// `enough` samples are judged.
pub fn chance(all: &[Traced], rate: f64, top: usize, enough: u64) -> Chance {
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut found, mut errors, mut weights) = (0, 0.0, 0.0);
    for _ in 0..DRAWS {
        let drawn: Vec<(u64, u64)> = all.iter().map(|t| draw(t, rate, &mut rng)).collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(drawn[i].1));
        // Nothing was seen to miss: found by nobody.
        let first = order.iter().take(top).filter(|&&i| drawn[i].1 > 0);
        found += first.filter(|&&i| i < top && all[i].misses > 0.0).count();
        for (traced, &(samples, missed)) in all.iter().zip(&drawn) {
            if samples >= enough {
                let exact = traced.misses / traced.references;
                errors += traced.misses * (missed as f64 / samples as f64 - exact).abs();
                weights += traced.misses;
            }
        }
    }
    Chance {
        found: found as f64 / DRAWS as f64,
        weighted_error: errors / weights,
    }
}

/// Samples of an instruction, and those of them that miss.
fn draw(traced: &Traced, rate: f64, rng: &mut SmallRng) -> (u64, u64) {
    let samples = Poisson::new(rate * traced.references).map_or(0, |p| p.sample(rng) as u64);
    let exact = (traced.misses / traced.references).clamp(0.0, 1.0);
    let missed = Binomial::new(samples, exact).map_or(0, |b| b.sample(rng));
    (samples, missed)
}

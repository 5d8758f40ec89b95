//! Whether stack distances are what the segments' survival functions make of them, as the samples
//! taken inside reuses tell it.
//!
//! The distinct lines between the two touches of a line are the references in between whose own
//! next use lies beyond. LRU is solved with what the survival functions expect of them; the samples
//! inside the interval count them without any model, unbiased but few: mostly noise for one reuse,
//! evidence over thousands. Per octave, the counts give the mean of `true / expected` and its
//! variance beyond that of counting; that is the prior (gamma) of each reuse's own factor, and its
//! own count makes it a posterior, gamma again. Where counts and expectations agree within their
//! error the factor is one and nothing changes.
//!
//! The curve itself stays with what is expected: an octave's factor is a mean over phases, and
//! moved the knife edge of a phase that needed none (measured on real runs). What the counts would
//! change is the model part of the interval. Only reuses in which at least one sample is expected
//! are asked, several where they come in clusters: closer together, the sampler's own pattern shows.
//!
//! Source: moment estimates after DerSimonian & Laird 1986, gamma-Poisson shrinkage (Clayton &
//! Kaldor, Biometrics 43, 1987).

use crate::random::normal_cdf;

/// Octaves told apart.
const OCTAVES: usize = 48;
/// Blocks of the run whose spread gives the standard errors.
const BLOCKS: usize = 24;
/// Squared standard errors that a squared deviation has to exceed, and is shortened by.
const DOUBT: f64 = 3.0;
/// Standard errors that a variance has to exceed to be used; one to be allowed for.
const SURE: f64 = 2.5;
/// Part of a spread by which the reuses at one size can be off together (guessed).
const MISPLACED: f64 = 0.3;
/// Least mean and largest relative variance that are believed.
const LEAST: f64 = 0.05;
const MOST: f64 = 4.0;
/// Relative variance below which a factor counts as exact.
const EXACT: f64 = 1e-4;

/// One reuse and what the samples inside it counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Decides the octave: where reuses alike stand together.
    pub size: f64,
    /// What the model expects.
    pub expected: f64,
    /// What the samples inside say.
    pub counted: f64,
    /// Variance of the latter by counting.
    pub noise: f64,
    /// What one sample inside counts.
    pub one: f64,
    /// How much this reuse matters; 0 where nothing was counted.
    pub weight: f64,
}

/// A quantity known up to a gamma distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gamma {
    pub mean: f64,
    /// Infinite when known exactly.
    pub shape: f64,
}

impl Gamma {
    /// Known exactly.
    pub fn exact(mean: f64) -> Self {
        Self {
            mean,
            shape: f64::INFINITY,
        }
    }

    /// Probability of at least `x`. Source: Wilson & Hilferty 1931 (error below 0.02 for shapes
    /// of one and more).
    pub fn at_least(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 1.0;
        }
        if self.mean <= 0.0 || self.shape.is_infinite() {
            return f64::from(u8::from(self.mean >= x));
        }
        let ninth = 1.0 / (9.0 * self.shape);
        let z = ((x / self.mean).cbrt() - (1.0 - ninth)) / ninth.sqrt();
        1.0 - normal_cdf(z)
    }

    /// The value whose standard normal score is `z`.
    pub fn quantile(&self, z: f64) -> f64 {
        if self.shape.is_infinite() {
            return self.mean;
        }
        let ninth = 1.0 / (9.0 * self.shape);
        let root = (1.0 - ninth + z * ninth.sqrt()).max(0.0);
        self.mean * root * root * root
    }
}

/// Prior of `true / expected` in one octave.
#[derive(Clone, Copy, Debug)]
struct Prior {
    mean: f64,
    /// Standard error of what is believed of the mean.
    error: f64,
    /// Relative to the mean, squared.
    variance: f64,
    /// The same, less sure.
    doubtful: f64,
}

/// The priors of all octaves.
#[derive(Clone, Debug)]
pub(crate) struct Texture {
    priors: Vec<Prior>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    counted: f64,
    expected: f64,
    /// Variance of `counted` by counting alone.
    noise: f64,
    /// Of squares: deviations beyond noise, and expectations.
    excess: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.counted += other.counted;
        self.expected += other.expected;
        self.noise += other.noise;
        self.excess += other.excess;
        self.squares += other.squares;
    }
}

type Blocks = [Sums; BLOCKS];

fn octave(size: f64) -> usize {
    (size.max(1.0).log2() as usize).min(OCTAVES - 1)
}

impl Texture {
    /// From all reuses, in the run's order.
    pub fn fit(reuses: &[Counted]) -> Self {
        let mut sums = vec![[Sums::default(); BLOCKS]; OCTAVES];
        let block = |i: usize| i * BLOCKS / reuses.len();
        for (i, r) in reuses.iter().enumerate() {
            let s = &mut sums[octave(r.size)][block(i)];
            s.counted += r.weight * r.counted;
            s.expected += r.weight * r.expected;
            s.noise += r.weight * r.weight * r.noise;
        }
        let means: Vec<(f64, f64)> = with_neighbours(&sums).iter().map(mean).collect();
        for (i, r) in reuses.iter().enumerate() {
            let (mean, _) = means[octave(r.size)];
            let s = &mut sums[octave(r.size)][block(i)];
            let off = r.counted - mean * r.expected;
            s.excess += r.weight * (off * off - r.noise);
            s.squares += r.weight * (mean * r.expected).powi(2);
        }
        let prior = |(blocks, (mean, error)): (&Blocks, (f64, f64))| Prior {
            mean,
            error,
            variance: variance(blocks).0,
            doubtful: variance(blocks).1,
        };
        let priors = with_neighbours(&sums)
            .iter()
            .zip(means)
            .map(prior)
            .collect();
        Self { priors }
    }

    /// Relative standard error of what was corrected at a size.
    pub fn error(&self, size: f64) -> f64 {
        let prior = self.priors[octave(size)];
        (prior.error / prior.mean).hypot(MISPLACED * prior.doubtful.sqrt())
    }

    /// What is known of the factor of one reuse, times its expectation.
    pub fn posterior(&self, r: &Counted) -> Gamma {
        if r.weight <= 0.0 {
            return Gamma::exact(r.expected);
        }
        let prior = self.priors[octave(r.size)];
        if prior.variance < EXACT || r.expected <= 0.0 {
            return Gamma::exact(prior.mean * r.expected);
        }
        let shape = 1.0 / prior.variance;
        let rate = shape / (prior.mean * r.expected);
        // Counts of equal weight that would be as noisy.
        let one = if r.counted > 0.0 {
            r.noise / r.counted
        } else {
            r.one
        };
        let shape = shape + r.counted / one;
        Gamma {
            mean: shape / (rate + 1.0 / one),
            shape,
        }
    }
}

/// Each octave together with those next to it: what a run does changes slowly with the distance.
fn with_neighbours(sums: &[Blocks]) -> Vec<Blocks> {
    let around = |o: usize| {
        let mut blocks = Blocks::default();
        for other in &sums[o.saturating_sub(1)..(o + 2).min(sums.len())] {
            for (a, b) in blocks.iter_mut().zip(other) {
                a.add(b);
            }
        }
        blocks
    };
    (0..sums.len()).map(around).collect()
}

fn total(blocks: &Blocks) -> Sums {
    let mut sum = Sums::default();
    blocks.iter().for_each(|b| sum.add(b));
    sum
}

/// Standard error of a sum over blocks whose expectation is zero.
fn spread(blocks: &Blocks, of: impl Fn(&Sums) -> f64) -> f64 {
    blocks.iter().map(|s| of(s).powi(2)).sum::<f64>().sqrt()
}

/// Counted by expected, as far as it can be told from one, and the standard error of that.
fn mean(blocks: &Blocks) -> (f64, f64) {
    let all = total(blocks);
    if all.expected <= 0.0 {
        return (1.0, 0.0);
    }
    let ratio = all.counted / all.expected;
    let error = spread(blocks, |s| s.counted - ratio * s.expected);
    let error = error.max(all.noise.sqrt()) / all.expected;
    let off = ratio - 1.0;
    if all.counted <= 0.0 || off == 0.0 {
        return (1.0, 0.0);
    }
    let belief = (1.0 - DOUBT * (error / off).powi(2)).max(0.0);
    ((1.0 + belief * off).max(LEAST), belief * error)
}

/// Variance of the factor beyond counting, relative to its mean, as far as it can be told from zero.
fn variance(blocks: &Blocks) -> (f64, f64) {
    let all = total(blocks);
    if all.squares <= 0.0 {
        return (0.0, 0.0);
    }
    let variance = all.excess / all.squares;
    let error = spread(blocks, |s| s.excess - variance * s.squares) / all.squares;
    let sure = |errors: f64| (variance - errors * error).clamp(0.0, MOST);
    (sure(SURE), sure(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn gamma_tails() {
        // Shape 1 is the exponential distribution.
        let g = Gamma {
            mean: 2.0,
            shape: 1.0,
        };
        for x in [0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
            let exact = (-x / 2.0f64).exp();
            assert!(
                (g.at_least(x) - exact).abs() < 0.02,
                "{x}: {}",
                g.at_least(x)
            );
        }
        assert!((g.at_least(g.quantile(0.0)) - 0.5).abs() < 1e-6);
        assert_eq!(Gamma::exact(3.0).at_least(3.0), 1.0);
        assert_eq!(Gamma::exact(3.0).at_least(3.1), 0.0);
    }

    /// Reuses of 1,000 lines each, counted through one sample in 50 lines, `factor` times as many
    /// as expected.
    fn reuses(factor: impl Fn(&mut Rng) -> f64) -> Vec<Counted> {
        let mut rng = Rng::new(5);
        (0..4_000)
            .map(|_| {
                let share = factor(&mut rng) / 50.0;
                let samples = (0..1_000).filter(|_| rng.unit() < share).count() as f64;
                Counted {
                    size: 1_000.0,
                    expected: 1_000.0,
                    counted: 50.0 * samples,
                    noise: 2_500.0 * samples,
                    one: 50.0,
                    weight: 1.0,
                }
            })
            .collect()
    }

    #[test]
    fn only_what_exceeds_chance_is_believed() {
        let agree = reuses(|_| 1.0);
        let known = Texture::fit(&agree).posterior(&agree[0]);
        assert!(
            (known.mean - 1_000.0).abs() < 10.0 && known.shape > 1_000.0,
            "{known:?}"
        );
        let more = reuses(|_| 1.3);
        let texture = Texture::fit(&more);
        let known = texture.posterior(&more[0]);
        assert!(
            (known.mean - 1_300.0).abs() < 30.0 && known.shape > 1_000.0,
            "{known:?}"
        );
        assert!(texture.error(1_000.0) < 0.02);
        // Half of them with half the lines, half with half as many again: each leans to its own count.
        let spread = reuses(|rng| if rng.below(2) == 0 { 0.5 } else { 1.5 });
        let texture = Texture::fit(&spread);
        for r in &spread[..100] {
            let known = texture.posterior(r);
            assert!((known.mean - r.counted).abs() < 0.5 * (r.counted - 1_000.0).abs() + 1.0);
        }
        assert!(texture.error(1_000.0) > 0.1, "{}", texture.error(1_000.0));
    }
}

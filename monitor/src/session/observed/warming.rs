//! How much faster code becomes in the cache that only counts while it is there: caches, translations of addresses and
//! predictors know nothing of it at first, and natively they do.

use crate::engine::translate::window::Piece;

/// CPU seconds of a stay up to which code is cold, and from which on it is warm. (On two interpreters, a solver and a chess program
/// most of it was over after one to two milliseconds.)
const COLD_S: f64 = 1.5e-3;
const WARM_S: f64 = 2.5e-3;
/// What is believed before anything is measured: the factor, and the standard deviation of its logarithm. (Guessed between what was
/// seen on sweeps, 1.0, and on a solver, 1.35.)
const BELIEVED: f64 = 1.15;
const SPREAD: f64 = 0.15;
/// The same of one long stay's factor, where there are too few to tell: the program itself changes meanwhile.
const OF_ONE: f64 = 0.5;
/// Bounds of what is believed of a program.
const BOUNDS: (f64, f64) = (0.9, 2.0);

/// The rates of long stays: cold and warm, in accesses per second.
#[derive(Debug, Default)]
pub struct Warming {
    stays: Vec<(f64, f64)>,
}

impl Warming {
    /// Learns from a stay that began when the thread had used `begun_s` CPU seconds, a stop taking `stop_s` of it. Returns the laps
    /// of its cold part.
    pub fn learn(&mut self, laps: &[Piece], begun_s: f64, stop_s: f64) -> Vec<Piece> {
        let into = |lap: &Piece| lap.end_s - begun_s;
        let of = |which: &dyn Fn(&Piece) -> bool| -> Vec<Piece> {
            laps.iter().copied().filter(|lap| which(lap)).collect()
        };
        let cold = of(&|lap| into(lap) < COLD_S);
        let warm = of(&|lap| into(lap) - lap.cpu_s > WARM_S);
        if let (Some(cold), Some(warm)) = (rate(&cold, stop_s), rate(&warm, stop_s)) {
            self.stays.push((cold, warm));
        }
        cold
    }

    /// How many times faster the code is warm than cold.
    pub fn factor(&self) -> f64 {
        let n = self.stays.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.stays.iter().map(of).sum::<f64>() / n.max(1.0);
        let (cold, warm) = (mean(|s| s.0), mean(|s| s.1));
        if cold <= 0.0 || warm <= 0.0 {
            return BELIEVED;
        }
        // Ratio of means, and its error (Cochran, Sampling Techniques, 6.4); a belief of so many stays' worth in the beginning.
        let ratio = warm / cold;
        let off = |&(cold, warm): &(f64, f64)| (warm - ratio * cold).powi(2);
        let seen =
            self.stays.iter().map(off).sum::<f64>() / (n * (n - 1.0).max(1.0)) / warm.powi(2);
        let variance = seen.max(OF_ONE * OF_ONE / (n * n));
        let weight = SPREAD * SPREAD / (SPREAD * SPREAD + variance);
        let log = weight * ratio.ln() + (1.0 - weight) * BELIEVED.ln();
        log.exp().clamp(BOUNDS.0, BOUNDS.1)
    }
}

fn rate(laps: &[Piece], stop_s: f64) -> Option<f64> {
    let accesses: u64 = laps.iter().map(|lap| lap.accesses).sum();
    let cpu_s: f64 = laps.iter().map(|lap| (lap.cpu_s - stop_s).max(0.0)).sum();
    (accesses > 0 && cpu_s > 0.0).then(|| accesses as f64 / cpu_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Laps of 250 us, the code `factor` times faster from 2 ms on.
    fn stay(rate: f64, factor: f64) -> Vec<Piece> {
        let lap = |n: usize| Piece {
            accesses: (230e-6 * rate * if n < 8 { 1.0 } else { factor }) as u64,
            cpu_s: 250e-6,
            end_s: 7.0 + 250e-6 * (n + 1) as f64,
        };
        (0..17).map(lap).collect()
    }

    #[test]
    fn long_stays_tell_how_code_warms_up() {
        let mut warming = Warming::default();
        assert_eq!(warming.factor(), BELIEVED);
        for n in 0..12 {
            let cold = warming.learn(&stay(1e9 + 1e8 * f64::from(n % 3), 1.6), 7.0, 20e-6);
            assert!(cold.len() < 7 && cold.len() > 3, "{cold:?}");
        }
        assert!((warming.factor() - 1.6).abs() < 0.08, "{warming:?}");
        // One that says something else does not decide.
        let mut warming = Warming::default();
        warming.learn(&stay(1e9, 5.0), 7.0, 20e-6);
        assert!(warming.factor() < 1.5, "{}", warming.factor());
        // A short one says nothing.
        let mut warming = Warming::default();
        warming.learn(&stay(1e9, 5.0)[..5], 7.0, 20e-6);
        assert_eq!(warming.factor(), BELIEVED);
    }
}

//! What laps in the cache that only counts say, and how much faster code becomes while it is there: caches, translations of
//! addresses and predictors know nothing of it at first, and natively they do.

use crate::engine::translate::window::Piece;

/// A lap of fewer stops' time says nothing, nor does one of less than three quarters of that for each of its stops.
const SHORT: f64 = 4.0;
/// A lap that is this many times slower than the median one did not run all the time it was charged for: the hypervisor had
/// given its processor to others. (Laps of 0.03 ms were seen to be charged 9.5 ms on a crowded host.)
const STOLEN: f64 = 10.0;
/// CPU seconds of a stay up to which code is cold, and from which on it is warm. (On two interpreters, a solver and a chess program
/// most of it was over after one to two milliseconds; of a network simplex, mcf, the rate from 8 ms on was 1.3 times that of the second half
/// millisecond and 1.1 times that of the third and fourth.)
const COLD_S: f64 = 1.5e-3;
const WARM_S: f64 = 4e-3;
/// What is believed before anything is measured: the factor, and the standard deviation of its logarithm. (Guessed. Long
/// stays of one run each came to 1.0 on sweeps, 1.1 on a solver and on an interpreter.)
const BELIEVED: f64 = 1.15;
const SPREAD: f64 = 0.15;
/// The same of one long stay's factor, where there are too few to tell: the program itself changes meanwhile. (Guessed.)
const OF_ONE: f64 = 0.5;
/// Bounds of what is believed of a program.
const BOUNDS: (f64, f64) = (0.9, 2.0);
/// Standard deviations that the factor may be off.
const DEVIATIONS: f64 = 2.0;

/// A lap without its stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lap {
    /// Accesses, or what they would have been of warm code.
    pub accesses: f64,
    /// CPU seconds.
    pub cpu_s: f64,
    /// CPU seconds from the beginning of the stay to its end; not a number where that is unknown.
    into_s: f64,
    /// Addresses of the program's code that it began and ended at.
    pub ips: [u64; 2],
    /// Whether it ended in one instruction that made most of its accesses, in next to no time: those are left out.
    pub ran_on: bool,
}

impl Lap {
    fn is_cold(&self) -> bool {
        self.into_s - 0.5 * self.cpu_s < COLD_S
    }

    fn is_warm(&self) -> bool {
        self.into_s - self.cpu_s > WARM_S
    }

    /// As it would be of code that is `factor` times faster warm than cold.
    pub fn warm(&self, factor: f64) -> Lap {
        let factor = if self.is_cold() { factor } else { 1.0 };
        Lap {
            accesses: factor * self.accesses,
            ..*self
        }
    }
}

/// Whether the stops of a lap take too much of it for that to be told from the rest, where one takes `stop_s`.
pub fn says_little(piece: &Piece, stop_s: f64) -> bool {
    piece.cpu_s <= SHORT.max(0.75 * SHORT * piece.stops as f64) * stop_s
}

/// The laps of a stay that say something. It began when the thread had used `begun_s` CPU seconds; a stop takes `stop_s` of it, with what it drove from the caches.
pub fn clean(pieces: &[Piece], begun_s: f64, stop_s: f64) -> Vec<Lap> {
    let stops_s = |piece: &Piece| piece.stops as f64 * stop_s;
    let ran_on = |piece: &Piece| piece.beyond > piece.accesses / 2;
    let long = pieces
        .iter()
        .filter(|piece| piece.accesses > 0 && !says_little(piece, stop_s));
    let mut laps: Vec<Lap> = long
        .map(|piece| Lap {
            accesses: (piece.accesses - if ran_on(piece) { piece.beyond } else { 0 }) as f64,
            cpu_s: piece.cpu_s - stops_s(piece),
            into_s: piece.end_s - begun_s,
            ips: piece.ips,
            ran_on: ran_on(piece),
        })
        .collect();
    let mut each: Vec<f64> = laps.iter().map(|lap| lap.cpu_s / lap.accesses).collect();
    each.sort_by(f64::total_cmp);
    if let Some(median) = each.get(each.len() / 2) {
        laps.retain(|lap| lap.cpu_s <= STOLEN * median * lap.accesses);
    }
    laps
}

/// The rates of long stays: cold and warm, in accesses per second.
#[derive(Debug, Default)]
pub struct Warming {
    stays: Vec<(f64, f64)>,
}

impl Warming {
    /// Learns from a long stay.
    pub fn learn(&mut self, laps: &[Lap]) {
        let rate = |which: fn(&Lap) -> bool| {
            let laps = || laps.iter().filter(|lap| which(lap));
            let accesses: f64 = laps().map(|lap| lap.accesses).sum();
            let cpu_s: f64 = laps().map(|lap| lap.cpu_s).sum();
            (accesses > 0.0 && cpu_s > 0.0).then(|| accesses / cpu_s)
        };
        if let (Some(cold), Some(warm)) = (rate(Lap::is_cold), rate(Lap::is_warm)) {
            self.stays.push((cold, warm));
        }
    }

    /// How many times faster code is warm than cold, and by what factor that may be off.
    pub fn factor(&self) -> (f64, f64) {
        let n = self.stays.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.stays.iter().map(of).sum::<f64>() / n.max(1.0);
        let (cold, warm) = (mean(|s| s.0), mean(|s| s.1));
        if cold <= 0.0 || warm <= 0.0 {
            return (BELIEVED, (DEVIATIONS * SPREAD).exp());
        }
        // Ratio of means, and its error (Cochran, Sampling Techniques, 6.4), set against what is believed.
        let ratio = warm / cold;
        let off = |&(cold, warm): &(f64, f64)| (warm - ratio * cold).powi(2);
        let seen =
            self.stays.iter().map(off).sum::<f64>() / (n * (n - 1.0).max(1.0)) / warm.powi(2);
        let variance = seen.max(OF_ONE * OF_ONE / (n * n));
        let weight = SPREAD * SPREAD / (SPREAD * SPREAD + variance);
        let log = weight * ratio.ln() + (1.0 - weight) * BELIEVED.ln();
        let spread = (DEVIATIONS * (weight * variance).sqrt()).exp();
        (log.exp().clamp(BOUNDS.0, BOUNDS.1), spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP_S: f64 = 20e-6;

    /// Laps of 500 us, the code `factor` times faster from 2 ms on.
    fn stay(rate: f64, factor: f64) -> Vec<Piece> {
        let lap = |n: usize| Piece {
            stops: 1,
            misses: 0,
            accesses: ((500e-6 - STOP_S) * rate * if n < 4 { 1.0 } else { factor }) as u64,
            cpu_s: 500e-6,
            end_s: 7.0 + 500e-6 * (n + 1) as f64,
            ips: [0; 2],
            beyond: 0,
        };
        (0..17).map(lap).collect()
    }

    fn laps(rate: f64, factor: f64) -> Vec<Lap> {
        clean(&stay(rate, factor), 7.0, STOP_S)
    }

    #[test]
    fn laps_are_timed_without_stops_and_without_those_that_say_nothing() {
        let mut pieces = stay(1e9, 1.0);
        let all = clean(&pieces, 7.0, STOP_S).len();
        // Its time was somebody else's; the stop may have been all of it.
        pieces[3].cpu_s = 9.9e-3;
        pieces[5].cpu_s = 21e-6;
        let laps = clean(&pieces, 7.0, STOP_S);
        assert_eq!(laps.len(), all - 2);
        for lap in &laps {
            assert!(
                (lap.accesses / lap.cpu_s / 1e9 - 1.0).abs() < 1e-6,
                "{lap:?}"
            );
        }
        assert_eq!(clean(&[], 7.0, STOP_S), []);
    }

    /// Sums at a tenth of an access a nanosecond, most of which run into a copy.
    #[test]
    fn code_in_front_of_copies_is_not_as_fast_as_they_are() {
        let mut pieces = stay(0.1e9, 1.0);
        for piece in pieces.iter_mut().skip(4) {
            piece.beyond = 131_072;
            piece.accesses += piece.beyond;
        }
        let laps = clean(&pieces, 7.0, STOP_S);
        assert_eq!(laps.len(), pieces.len());
        assert!(
            laps.iter()
                .all(|lap| (lap.accesses / lap.cpu_s / 0.1e9 - 1.0).abs() < 1e-3)
        );
        assert_eq!(
            laps.iter().filter(|lap| lap.ran_on).count(),
            pieces.len() - 4
        );
    }

    #[test]
    fn long_stays_tell_how_code_warms_up() {
        let mut warming = Warming::default();
        let (factor, spread) = warming.factor();
        assert_eq!(factor, BELIEVED);
        assert!(spread > 1.2);
        for n in 0..12 {
            warming.learn(&laps(1e9 + 1e8 * f64::from(n % 3), 1.6));
        }
        let (factor, spread) = warming.factor();
        assert!(
            (factor - 1.6).abs() < 0.08 && spread < 1.15,
            "{factor} {spread}"
        );
        // One that says something else does not decide.
        let mut warming = Warming::default();
        warming.learn(&laps(1e9, 5.0));
        assert!(warming.factor().0 < 1.5, "{warming:?}");
        // A short one says nothing.
        let mut warming = Warming::default();
        warming.learn(&laps(1e9, 5.0)[..4]);
        assert_eq!(warming.factor().0, BELIEVED);
        // Nor does one of unknown beginning.
        warming.learn(&clean(&stay(1e9, 5.0), f64::NAN, STOP_S));
        assert_eq!(warming.factor().0, BELIEVED);
    }

    /// Of a stay of any length, what was timed cold alone is corrected.
    #[test]
    fn only_cold_laps_are_corrected() {
        let warm: Vec<Lap> = laps(1e9, 1.6).iter().map(|lap| lap.warm(1.6)).collect();
        let rate = |lap: &Lap| lap.accesses / lap.cpu_s / 1e9;
        assert!((rate(&warm[0]) - 1.6).abs() < 1e-6 && (rate(&warm[16]) - 1.6).abs() < 1e-6);
    }
}

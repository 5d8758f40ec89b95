//! Windows that begin where the program makes no accesses for a while.
//!
//! Windows and laps end after so many accesses. One that begins in a long stretch without any goes through what is left of that first, and all that
//! it sees is of what follows, whose rate is not that of the time it was opened in: a window is where it begins ([`super::looks`]). (Of a
//! program that spent nine tenths of its time in a loop without accesses, 36 ms at once, ten times too many were estimated.)

use super::recent::median;
use crate::engine::translate::window::Piece;

/// CPU seconds up to the first reading of a log that say nothing: code and data are cold.
const COLD_S: f64 = 0.3e-3;
/// The same for each miss of new code, and for each system call.
const MISS_S: f64 = 20e-6;
const CALL_S: f64 = 20e-6;
/// Share of the rate behind it from which on a beginning is merely slow, and that rate where nothing is known of it: lower than most.
const SLOW: f64 = 0.1;
const ANY_RATE: f64 = 100e6;
/// A piece behind it that is this many times slower than most has met another such stretch.
const ANOTHER: f64 = 10.0;
/// Share of the time behind it below which a stretch says little.
const LITTLE: f64 = 0.25;

/// How a stay in a code cache began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beginning {
    /// In code that makes accesses.
    Working,
    /// The same, but for so many CPU seconds at first.
    Paused(f64),
    /// In a stretch without: with so many accesses a second.
    Idle(f64),
}

/// What a stay met up to the first reading of its log.
#[derive(Clone, Copy, Debug)]
pub struct Lead {
    /// CPU seconds of the thread when it began.
    pub begun_s: f64,
    /// CPU seconds of the stay, for one that was over by then.
    pub stay_s: f64,
    /// Accesses.
    pub accesses: u64,
    /// Misses and system calls, up to there or of all of the stay.
    pub misses: u64,
    pub calls: u64,
}

impl Lead {
    /// How a stay of these pieces began with it.
    pub fn beginning(self, pieces: &[Piece]) -> Beginning {
        let all_s = match pieces.first() {
            Some(first) => first.end_s - first.cpu_s - self.begun_s,
            None => self.stay_s,
        };
        let idle_s = all_s - COLD_S - MISS_S * self.misses as f64 - CALL_S * self.calls as f64;
        let access_s = |piece: &Piece| piece.cpu_s / piece.accesses.max(1) as f64;
        // Others were slow because their code was new.
        let known = || pieces.iter().filter(|p| 2 * p.misses <= p.stops);
        let usual_s = median(known().map(access_s)).unwrap_or(1.0 / ANY_RATE);
        let usual = known().filter(|p| access_s(p) < ANOTHER * usual_s);
        let behind_s: f64 = usual.map(|piece| piece.cpu_s).sum();
        let rate = self.accesses as f64 / all_s;
        // Clocks that cannot be read are no numbers.
        let is_idle = idle_s > LITTLE * behind_s && rate < SLOW / usual_s;
        match is_idle {
            false => Beginning::Working,
            // A stretch that is shorter than what is seen behind it is in that, too, as often as it should be.
            true if idle_s < behind_s => Beginning::Paused(idle_s),
            true => Beginning::Idle(rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five pieces of half a millisecond with a million accesses each, behind a beginning of so many seconds with 5,000.
    fn begun(all_s: f64, misses: u64) -> Beginning {
        let pieces: Vec<Piece> = (1..=5)
            .map(|n| Piece {
                accesses: 1_000_000,
                beyond: 0,
                stops: 1,
                misses: 0,
                cpu_s: 0.5e-3,
                end_s: 7.0 + all_s + f64::from(n) * 0.5e-3,
                ips: [0; 2],
            })
            .collect();
        let lead = Lead {
            begun_s: 7.0,
            stay_s: all_s,
            accesses: 5_000,
            misses,
            calls: 0,
        };
        let is_idle = |began| matches!(began, Beginning::Idle(_));
        let began = lead.beginning(&pieces);
        // One that met more of it behind that is no other, nor one that ended there.
        let mut slower = pieces.clone();
        slower[3].cpu_s *= 100.0;
        assert_eq!(lead.beginning(&slower), began);
        // Nor one that met new code there.
        let mut new = pieces.clone();
        let cold = Piece {
            accesses: 2_000,
            stops: 10,
            misses: 9,
            cpu_s: 0.2e-3,
            ..pieces[0]
        };
        new.splice(1..1, [cold; 20]);
        assert_eq!(lead.beginning(&new), began);
        assert!(is_idle(lead.beginning(&[])) || !is_idle(began));
        began
    }

    #[test]
    fn long_stretches_without_accesses_are_told_from_cold_code() {
        assert_eq!(begun(0.2e-3, 0), Beginning::Working);
        assert_eq!(begun(3e-3, 120), Beginning::Working);
        assert_eq!(begun(f64::NAN, 0), Beginning::Working);
        let Beginning::Paused(idle_s) = begun(2e-3, 0) else {
            panic!("shorter than what is behind it");
        };
        assert!((idle_s - 1.7e-3).abs() < 1e-6, "{idle_s}");
        let Beginning::Idle(rate) = begun(20e-3, 10) else {
            panic!("longer");
        };
        assert!((rate - 250e3).abs() < 1.0, "{rate}");
    }
}

//! References beyond one for each access, where accesses are not looked at.
//!
//! An access that crosses a line refers to both. Between clusters of samples threads do not say where they go, and how often they
//! cross lines is told by the last clusters before: by accesses that were seen because all were, not by those that were seen because of
//! where they went. By the last ones: copies of a file at an odd address cross lines at one access in ten, and miss there, while
//! they last. Counted like the rest of the run (0.8 % of a chess program's), a tenth of their references had no samples. (A thread whose turn
//! begins is told by the others' at first: turns are long beside clusters.)

use crate::observe::DEFAULT_LINE;

/// Share of what was seen before that a cluster's accesses take the place of, and most that is left of it.
const TAKEN: f64 = 0.2;
const MOST_LEFT: f64 = 8_000.0;

/// Accesses seen that are a cluster's.
const CLUSTER: f64 = 256.0;

/// Bits behind the point of [`Crossings::due_by`].
const POINT: u32 = 20;

/// How often lines are crossed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crossings {
    /// Accesses seen of late, and their references beyond one each, by line size.
    accesses: f64,
    extra: [f64; 5],
    /// Those seen since some were forgotten.
    fresh: f64,
    /// References beyond one for each access that is not seen, by line size.
    rates: [f64; 5],
    /// The same at [`DEFAULT_LINE`], rounded up.
    fixed: u64,
}

impl Crossings {
    /// Accesses that were seen because all were, and their references beyond one each.
    pub fn add(&mut self, accesses: u64, extra: [u32; 5]) {
        self.accesses += accesses as f64;
        self.fresh += accesses as f64;
        for (all, extra) in self.extra.iter_mut().zip(extra) {
            *all += f64::from(extra);
        }
    }

    /// Takes what was seen of late for what is not seen from now on.
    pub fn settle(&mut self) {
        if self.accesses == 0.0 {
            return;
        }
        self.rates = self.extra.map(|extra| extra / self.accesses);
        self.fixed = (self.rates[DEFAULT_LINE] * f64::from(1 << POINT)).ceil() as u64;
        if self.fresh >= CLUSTER {
            let left = f64::min(1.0 - TAKEN, MOST_LEFT / self.accesses);
            self.fresh = 0.0;
            self.accesses *= left;
            self.extra = self.extra.map(|extra| extra * left);
        }
    }

    /// References beyond one for each access that is not seen, by line size.
    pub fn rates(&self) -> [f64; 5] {
        self.rates
    }

    /// References by which a sample may be due behind so many accesses that were not seen: never too few.
    #[inline(always)]
    pub fn due_by(&self, unseen: u64) -> u64 {
        match self.fixed {
            0 => unseen,
            fixed => unseen + (unseen.saturating_mul(fixed) >> POINT) + 2,
        }
    }

    /// Accesses that make so many references, none of them seen.
    pub fn accesses(&self, references: u64) -> u64 {
        (references as f64 / (1.0 + self.rates[DEFAULT_LINE])) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_lines_of_late_counts() {
        let mut crossings = Crossings::default();
        crossings.settle();
        assert_eq!(
            (crossings.due_by(1000), crossings.accesses(1000)),
            (1000, 1000)
        );
        crossings.add(1_000_000, [0; 5]);
        crossings.settle();
        for _ in 0..10 {
            crossings.add(1000, [0; 5]);
            crossings.settle();
        }
        for _ in 0..30 {
            crossings.add(1000, [300, 200, 100, 50, 25]);
            crossings.settle();
        }
        let rates = crossings.rates();
        for (rate, true_rate) in rates.iter().zip([0.3, 0.2, 0.1, 0.05, 0.025]) {
            assert!((rate / true_rate - 1.0).abs() < 0.02, "{rates:?}");
        }
        assert!(crossings.accesses(1_100_000).abs_diff(1_000_000) < 2_000);
        assert!((1_098_000..1_101_000).contains(&crossings.due_by(1_000_000)));
        // Never before the references that a caller counts.
        for unseen in [1, 7, 1000, 1 << 30] {
            assert!(crossings.due_by(unseen) as f64 > unseen as f64 * (1.0 + rates[DEFAULT_LINE]));
        }
    }
}

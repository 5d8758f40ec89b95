//! Accesses and how many of them miss, and how keys add them up.

use std::collections::BTreeMap;

use super::Sums;

/// First touches of a key in one window that count as independent of each other at most: they are of the same loops. (Guessed.)
const INDEPENDENT: u64 = 30;

/// Accesses of the run, and their misses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub weight: f64,
    pub misses: f64,
}

impl Part {
    pub fn of(weight: f64, miss: f64) -> Part {
        Part {
            weight,
            misses: weight * miss,
        }
    }

    pub fn add(&mut self, other: Part) {
        self.weight += other.weight;
        self.misses += other.misses;
    }

    pub fn ratio(&self) -> f64 {
        if self.weight > 0.0 {
            (self.misses / self.weight).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// First touches by window and key: what they come to, and how many they are.
#[derive(Debug, Default)]
pub(super) struct ByWindow(BTreeMap<(u32, u32), (Part, u64)>);

impl ByWindow {
    pub fn add(&mut self, window: u32, key: u32, part: Part) {
        let of_key = self.0.entry((window, key)).or_default();
        of_key.0.add(part);
        of_key.1 += 1;
    }

    /// Gives them to the keys.
    pub fn give(self, sums: &mut [Sums]) {
        for ((_, key), (part, seen)) in self.0 {
            sums[key as usize].before_window(part, seen);
        }
    }
}

impl Sums {
    /// Adds accesses that end reuses from before their window, of which so many were seen.
    fn before_window(&mut self, part: Part, seen: u64) {
        if part.weight > 0.0 {
            let independent = seen.min(INDEPENDENT);
            self.far(part);
            self.triggered += independent;
            self.weight_squares += part.weight * part.weight / independent as f64;
        }
    }

    /// Adds such accesses of which none was seen, and that are taken to be made here.
    pub(super) fn assume(&mut self, part: Part) {
        if part.weight > 0.0 {
            self.far(part);
            self.assumed += part.weight;
        }
    }

    fn far(&mut self, part: Part) {
        self.ends(part.weight, [part.ratio(); 4]);
        self.far_misses += part.misses;
    }
}

/// Has parts miss `misses` together, by one factor on the odds of all.
pub(super) fn come_to(parts: &mut [Part], misses: f64) {
    let all: f64 = parts.iter().map(|part| part.weight).sum();
    let wanted = misses.clamp(0.0, all);
    // Neither never nor always, so that every ratio can be reached.
    let odds = |part: &Part| {
        let ratio = part.ratio().clamp(1e-6, 1.0 - 1e-6);
        ratio / (1.0 - ratio)
    };
    let odds: Vec<f64> = parts.iter().map(odds).collect();
    let of = |factor: f64, odds: f64| 1.0 - 1.0 / (1.0 + factor * odds);
    let sum = |factor: f64| -> f64 {
        let of_part = |(part, &odds): (&Part, &f64)| part.weight * of(factor, odds);
        parts.iter().zip(&odds).map(of_part).sum()
    };
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if sum(f64::exp(middle)) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let factor = f64::exp(0.5 * (low + high));
    for (part, odds) in parts.iter_mut().zip(odds) {
        part.misses = part.weight * of(factor, odds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_to_what_they_shall() {
        let parts = [(1.0, 0.0), (2.0, 0.1), (3.0, 0.95), (0.0, 0.5), (4.0, 1.0)];
        for wanted in [0.0, 0.5, 3.0, 7.05, 9.9, 10.0, 20.0] {
            let mut parts = parts.map(|(weight, ratio)| Part::of(weight, ratio));
            come_to(&mut parts, wanted);
            let misses: f64 = parts.iter().map(|part| part.misses).sum();
            assert!(
                (misses - wanted.min(10.0)).abs() < 1e-3,
                "{wanted} {misses}"
            );
            let ratios = [0, 1, 2, 4].map(|at: usize| parts[at].ratio());
            assert!(ratios.is_sorted(), "{ratios:?}");
        }
        come_to(&mut [], 1.0);
    }
}

//! How many lines a set holds, by how the cost of random laps over more and more lines of it grows.

use crate::policy::{OneSet, Policy};
use crate::rng::Rng;

/// Associativities considered.
const WAYS: [u32; 9] = [1, 2, 3, 4, 6, 8, 10, 12, 16];

/// Share of misses when `n` lines are visited in a new random order every lap.
pub(super) fn shuffled_misses(ways: u32, n: u32) -> f64 {
    let mut rng = Rng::new(u64::from(ways * 100 + n));
    let mut set = OneSet::new(Policy::Lru, ways);
    let mut order: Vec<u32> = (0..n).collect();
    let mut misses = 0;
    for lap in 0..40 {
        rng.shuffle(&mut order);
        misses +=
            order.iter().filter(|&&b| !set.touch(b, &mut rng)).count() * usize::from(lap >= 4);
    }
    misses as f64 / (36.0 * f64::from(n))
}

/// Most lines of a set that a decoded-instruction cache holds, as full of instructions as the probe's are.
const DECODED: [u32; 4] = [1, 2, 3, 4];

/// Least cycles that a miss in the instruction cache must add to count as one.
const STEP: f64 = 3.0;

/// Apparent ways at one stride, with the share of unexplained variance: best fit of
/// `a + b / n + c x misses(A, n)`, with another step before it where that is needed to explain the curve.
///
/// `b` is the share of jumps that go right by chance among few blocks. The earlier step is that of decoded instructions.
pub(super) fn fit(curve: &[(u32, f64)]) -> Option<(u32, f64)> {
    let y: Vec<f64> = curve.iter().map(|c| c.1).collect();
    if curve.len() < 10 || y.iter().any(|v| !v.is_finite() || *v >= crate::raw::NEVER) {
        return None;
    }
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let var: f64 = y.iter().map(|v| (v - mean).powi(2)).sum();
    let column = |ways: u32| -> Vec<f64> {
        let of = curve.iter();
        of.map(|c| shuffled_misses(ways, c.0)).collect()
    };
    let common = [
        vec![1.0; y.len()],
        curve.iter().map(|c| 1.0 / f64::from(c.0)).collect(),
    ];
    let (mut single, mut double) = (None::<(u32, f64)>, None::<(u32, f64)>);
    for ways in WAYS.into_iter().chain([24, 32]) {
        // A step that only the last points could show would be their noise.
        if curve.iter().filter(|c| c.0 > ways).count() < 3 {
            continue;
        }
        let earlier = DECODED.into_iter().filter(|d| 2 * d <= ways).map(Some);
        for first in std::iter::once(None).chain(earlier) {
            let steps = first.into_iter().chain([ways]).map(column);
            let columns: Vec<Vec<f64>> = common.iter().cloned().chain(steps).collect();
            let Some((factors, rest)) = least_squares(&columns, &y) else {
                continue;
            };
            let best = if first.is_some() {
                &mut double
            } else {
                &mut single
            };
            if factors[2..].iter().all(|c| *c > STEP) && best.is_none_or(|b| rest / var < b.1) {
                *best = Some((ways, rest / var));
            }
        }
    }
    // One step unless two explain four times as much of what it leaves.
    let chosen = match (single, double) {
        (Some(s), Some(d)) if d.1 < 0.25 * s.1 => Some(d),
        (Some(s), _) => Some(s),
        (None, d) => d,
    };
    chosen.filter(|c| c.1 < 0.1)
}

/// Factors of `columns` whose sum comes nearest to `y`, and the squares left over; `None` where they are not independent.
fn least_squares(columns: &[Vec<f64>], y: &[f64]) -> Option<(Vec<f64>, f64)> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let n = columns.len();
    let mut rows: Vec<Vec<f64>> = columns
        .iter()
        .map(|c| {
            let left = columns.iter().map(|d| dot(c, d));
            left.chain(std::iter::once(dot(c, y))).collect()
        })
        .collect();
    for i in 0..n {
        let largest = (i..n).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs()))?;
        rows.swap(i, largest);
        if rows[i][i].abs() < 1e-9 {
            return None;
        }
        let pivot = rows[i].clone();
        let others = rows.iter_mut().enumerate().filter(|r| r.0 != i);
        for (_, row) in others {
            let factor = row[i] / pivot[i];
            for (x, p) in row.iter_mut().zip(&pivot) {
                *x -= factor * p;
            }
        }
    }
    let factors: Vec<f64> = (0..n).map(|i| rows[i][n] / rows[i][i]).collect();
    let rest = (0..y.len()).map(|j| {
        let sum: f64 = columns.iter().zip(&factors).map(|(c, f)| f * c[j]).sum();
        (y[j] - sum).powi(2)
    });
    let rest = rest.sum();
    Some((factors, rest))
}

#[cfg(test)]
mod tests {
    use super::super::COUNTS;
    use super::*;

    #[test]
    fn shuffled_laps_miss_beyond_the_ways_only() {
        assert_eq!(shuffled_misses(8, 8), 0.0);
        assert!(shuffled_misses(8, 9) > 0.05);
        assert!(shuffled_misses(8, 32) > 0.8);
    }

    fn curve(cost: impl Fn(u32) -> f64) -> Vec<(u32, f64)> {
        let noise = |n: u32| if n.is_multiple_of(2) { 0.3 } else { -0.3 };
        COUNTS.iter().map(|&n| (n, cost(n) + noise(n))).collect()
    }

    #[test]
    fn the_fit_names_the_ways() {
        for ways in [4, 8, 16] {
            let one = curve(|n| 36.0 - 7.0 / f64::from(n) + 11.0 * shuffled_misses(ways, n));
            assert_eq!(fit(&one).map(|f| f.0), Some(ways));
        }
        assert_eq!(fit(&curve(|n| 36.0 - 7.0 / f64::from(n))), None);
    }

    #[test]
    fn decoded_instructions_that_end_earlier_do_not_hide_the_cache() {
        for (decoded, ways) in [(1, 8), (2, 8), (1, 4), (2, 16)] {
            let two = curve(|n| {
                35.0 - 7.0 / f64::from(n)
                    + 9.0 * shuffled_misses(decoded, n)
                    + 11.0 * shuffled_misses(ways, n)
            });
            assert_eq!(fit(&two).map(|f| f.0), Some(ways), "{decoded} in front");
        }
    }

    /// Blocks of 50 one-byte instructions at 4 KiB from each other on a Zen 5 of 32 KiB of 8 ways, cycles per block.
    #[test]
    fn the_fit_reads_a_real_curve() {
        let measured = [
            37.8, 40.7, 41.9, 42.2, 42.4, 43.1, 43.1, 45.7, 48.0, 49.3, 49.9, 51.1, 52.5, 53.0,
            53.4, 53.8,
        ];
        let curve: Vec<(u32, f64)> = COUNTS.into_iter().zip(measured).collect();
        assert_eq!(fit(&curve).map(|f| f.0), Some(8));
    }
}

//! Random replacement: the StatCache equation on one distribution of distances.
//!
//! `R = E[ f(d R) ] + P(never)`, `f(n) = 1 - (1 - 1/L)^n`, `L` lines (Berg & Hagersten 2005,
//! equations 3 and 4). The right side is increasing and concave in `R`, so from
//! above Newton's method descends monotonically to the largest root; `R = 0` is a spurious one.
//! With random placement in sets the equation is the same: one eviction hits a given line of a
//! set with probability `1/sets * 1/ways = 1/L`.

use crate::survival::Survival;

/// `-ln(1 - 1/L)`: hazard of a line per eviction. A one-line cache loses its line at the first.
#[must_use]
pub(crate) fn hazard(lines: u64) -> f64 {
    if lines <= 1 {
        1e9
    } else {
        -(-1.0 / lines as f64).ln_1p()
    }
}

/// What to do with the undecided mass of a [`Survival`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Undecided {
    /// Reused as soon as the watch was cut: the lower bound.
    AtHorizon,
    /// Never reused: the upper bound.
    Never,
    /// At this distance, line references.
    At(f64),
}

/// `exp(-x)` for `x >= 0`, relative error below 1e-8: branch-free, so that loops vectorise.
#[inline(always)]
pub(crate) fn exp_neg(x: f64) -> f64 {
    // Beyond 2^-1000 it is 0 for every purpose here.
    let t = (x * std::f64::consts::LOG2_E).min(1000.0);
    let whole = t as i32;
    let y = (0.5 - (t - f64::from(whole))) * std::f64::consts::LN_2;
    let series = 1.0
        + y * (1.0
            + y * (1.0 / 2.0
                + y * (1.0 / 6.0
                    + y * (1.0 / 24.0
                        + y * (1.0 / 120.0 + y * (1.0 / 720.0 + y * (1.0 / 5040.0)))))));
    let scale = f64::from_bits(((1023 - whole) as u64) << 52);
    std::f64::consts::FRAC_1_SQRT_2 * series * scale
}

/// Largest root of `R = base + sum mass * (1 - exp(-hazard * distance * R))`, from above.
pub(crate) fn largest_root(points: &[(f64, f64)], base: f64, hazard: f64) -> f64 {
    let all: f64 = base + points.iter().map(|p| p.1).sum::<f64>();
    let mut r = 1.0f64;
    for _ in 0..64 {
        let rate = hazard * r;
        let (mut hits, mut slope) = (0.0, 0.0);
        for &(distance, mass) in points {
            let x = rate * distance;
            let kept = mass * exp_neg(x);
            hits += kept;
            slope += x * kept;
        }
        slope /= r;
        let gap = r - (all - hits);
        if gap <= 1e-9 || slope >= 1.0 {
            break;
        }
        let step = gap / (1.0 - slope);
        r -= step;
        if r <= 0.0 {
            return base.max(0.0);
        }
        if step < 1e-7 {
            break;
        }
    }
    r.clamp(0.0, 1.0)
}

/// Miss ratio of a random-replacement cache of `lines` lines.
#[must_use]
pub fn random_miss_ratio(survival: &Survival, lines: u64, undecided: Undecided) -> f64 {
    let mut points: Vec<(f64, f64)> = survival
        .steps
        .iter()
        .map(|s| (s.distance, s.mass))
        .collect();
    let mut base = survival.never;
    match undecided {
        Undecided::Never => base += survival.undecided,
        Undecided::AtHorizon => points.push((survival.horizon, survival.undecided)),
        Undecided::At(distance) => points.push((distance, survival.undecided)),
    }
    largest_root(&points, base, hazard(lines.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_exponential() {
        for i in 0..200_000 {
            let x = f64::from(i) * 0.002;
            let (got, want) = (exp_neg(x), (-x).exp());
            assert!((got / want - 1.0).abs() < 1e-8, "{x}: {got} {want}");
        }
        assert!(exp_neg(1e300) < 1e-290 && exp_neg(f64::INFINITY) < 1e-290);
    }
}

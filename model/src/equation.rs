//! Random replacement: the StatCache equation on one distribution of distances.
//!
//! `R = E[ f(d R) ] + P(never)`, `f(n) = 1 - (1 - 1/L)^n`, `L` lines (Berg & Hagersten 2005,
//! equations 3 and 4; DESIGN.md 7.2). The right side is increasing and concave in `R`, so from
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

/// Largest root of `R = base + sum mass * (1 - exp(-hazard * distance * R))`, from above.
pub(crate) fn largest_root(points: &[(f64, f64)], base: f64, hazard: f64) -> f64 {
    let mut r = 1.0f64;
    for _ in 0..64 {
        let (mut g, mut slope) = (base, 0.0);
        for &(distance, mass) in points {
            let x = hazard * distance;
            let kept = (-x * r).exp();
            g += mass * (1.0 - kept);
            slope += mass * x * kept;
        }
        let gap = r - g;
        if gap <= 1e-9 || slope >= 1.0 {
            break;
        }
        let step = gap / (1.0 - slope);
        r -= step;
        if r <= 0.0 {
            return base.max(0.0);
        }
        if step < 1e-8 {
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

//! One module per parameter: which experiments to run, and what their results mean.
//!
//! Each module has a vote type (raw figures as measured), a `collect` that asks a backend for one vote,
//! and a pure `infer` from votes to a [`Finding`](crate::finding::Finding), which can be rerun on stored votes.
//!
//! One rule runs through all: noise only ever adds time. A fast answer is proof that the lines were there;
//! a slow one is a suspicion, asked again before it counts.

pub mod code;
pub mod evict;
pub mod footprint;
pub mod inclusion;
pub mod l1;
pub mod latency;
pub mod line;
pub mod opcache;
pub mod policy;
pub mod prefetch;
pub mod tlb;
pub mod tlbways;
pub mod unified;
pub mod write;

use crate::measure::{Chase, Measure, MeasureError, Window};
use crate::rng::Rng;

/// Page size that the probes build on, in bytes.
pub const PAGE: u64 = 4096;

/// Smallest cycles per event among the clean windows; infinite when none is clean.
pub fn best(windows: &[Window]) -> f64 {
    windows
        .iter()
        .filter(|w| w.clean())
        .map(Window::cycles)
        .fold(f64::INFINITY, f64::min)
}

/// A random order without two equal steps in a row: a stride prefetcher would bring lines in that nobody asked for.
pub fn stir(places: &mut [u64], rng: &mut Rng) {
    for _ in 0..1000 {
        rng.shuffle(places);
        let even = |w: &[u64]| w[1].wrapping_sub(w[0]) == w[2].wrapping_sub(w[1]);
        if !places.windows(3).any(even) {
            return;
        }
    }
}

/// Windows long enough for the timer: loads such that one window lasts at least 60 timer steps.
pub fn loads_for(m: &dyn Measure, cycles_each: f64) -> u64 {
    let f = m.facts();
    let need = 60.0 * f.timer_step * f.clock.max(0.1) / cycles_each;
    (need.ceil() as u64).clamp(250, 20_000)
}

/// Best of twice `windows` short windows over a circle of lines; up to three times until one is clean.
///
/// # Errors
/// What the backend reports.
pub fn circle(m: &mut dyn Measure, ring: &[u64], windows: u32) -> Result<f64, MeasureError> {
    let loads = loads_for(m, 4.0)
        .max(ring.len() as u64)
        .next_multiple_of(ring.len() as u64);
    let mut low = f64::INFINITY;
    for _ in 0..3 {
        let chase = Chase {
            timed: ring,
            warm: 3 * ring.len() as u64,
            loads,
            windows: 2 * windows,
            ..Chase::default()
        };
        low = low.min(best(&m.chase(&chase)?));
        if low.is_finite() {
            break;
        }
    }
    Ok(low)
}

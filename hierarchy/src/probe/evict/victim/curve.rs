//! How many congruent pages evict a line.

use super::super::TRIALS;
use super::Test;
use crate::measure::MeasureError;

/// (Subset size, subsets that evicted, subsets tried) around the step, of random subsets of the class and a random victim
/// of it each time.
pub(super) fn curve(
    t: &mut Test<'_>,
    victim: u64,
    class: &[u64],
    others: &[u64],
) -> Result<Vec<(u32, u32, u32)>, MeasureError> {
    let most = class.len() - 1;
    // Other fillers each time: a congruent page among them blurs the step instead of moving it.
    let mut fillers = others.to_vec();
    let mut trial = |t: &mut Test<'_>, k: usize| -> Result<bool, MeasureError> {
        t.rng.shuffle(&mut fillers);
        let mut subset = class.to_vec();
        t.rng.shuffle(&mut subset);
        let v = subset.pop().unwrap_or(victim);
        subset.truncate(k);
        t.evicts(v, &subset, &fillers)
    };
    let (mut no, mut yes) = (0, most);
    while yes - no > 1 {
        let middle = (no + yes) / 2;
        let mut n = 0;
        for _ in 0..3 {
            n += u32::from(trial(t, middle)?);
        }
        if n >= 2 { yes = middle } else { no = middle }
    }
    let mut curve = Vec::new();
    for k in yes.saturating_sub(3).max(1)..=(yes + 2).min(most) {
        let mut n = 0;
        for _ in 0..TRIALS {
            n += u32::from(trial(t, k)?);
        }
        curve.push((k as u32, n, TRIALS));
    }
    Ok(curve)
}

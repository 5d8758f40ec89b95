//! The last few figures of a kind, and the middle one of them.

use std::collections::VecDeque;

/// Keeps one more, and of all of them the last `most`.
pub fn keep<T>(kept: &mut VecDeque<T>, most: usize, one: T) {
    if kept.len() >= most {
        kept.pop_front();
    }
    kept.push_back(one);
}

/// `None` of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let below = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(0.5 * (below + sorted[sorted.len() / 2]))
}

/// Of values and what each weighs: the lowest one with half of the weight, or more, at and below it. `None` of none.
pub fn weighted_median(values: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let mut sorted: Vec<(f64, f64)> = values.into_iter().collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    let is_half = |(value, weight): (f64, f64)| {
        below += weight;
        (below >= 0.5 * all).then_some(value)
    };
    sorted.into_iter().find_map(is_half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_weighs_half_of_all_is_in_the_middle() {
        assert_eq!(weighted_median([]), None);
        let light = [(1.0, 0.1), (2.0, 0.1), (3.0, 0.1)];
        assert_eq!(weighted_median(light), Some(2.0));
        assert_eq!(
            weighted_median([&light[..], &[(9.0, 1.0)]].concat()),
            Some(9.0)
        );
        assert_eq!(weighted_median([(4.0, 0.0), (7.0, 0.0)]), Some(4.0));
    }

    #[test]
    fn the_last_ones_are_kept_and_the_middle_one_is_told() {
        let mut kept = VecDeque::new();
        assert_eq!(median(kept.iter().copied()), None);
        for one in [9.0, 9.0, 4.0, 1.0, 3.0] {
            keep(&mut kept, 3, one);
        }
        assert_eq!(median(kept.iter().copied()), Some(3.0));
        keep(&mut kept, 4, 6.0);
        assert_eq!(median(kept.iter().copied()), Some(3.5));
    }
}

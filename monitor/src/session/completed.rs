//! What windows stand for, when all of a process's windows are known.
//!
//! Not every window could be timed: too much of its code was new, or the thread went elsewhere behind it. While the run
//! goes on such a window is taken to be like the others so far. At its end there are better ones to go by: those
//! that were timed in the same code; and otherwise those that missed as much, as it is for waits for memory that code is slow.

use super::weights::{ENOUGH_OTHERS, OTHERS_SPREAD, Rate, UNTIMED_SPREAD};
use crate::profile::types::{Estimate, LINE_SIZES, Outcome, TakenSample};

/// Line references between two touches of a line from which on they are far apart: few caches near a core hold as many lines.
const FAR: u64 = 10_000;
/// Share of far reuses up to which a window waits little, and from which on it tells what a wait costs.
const FEW: f64 = 0.01;
const MANY: f64 = 0.03;
/// Seconds that a far reuse is taken to cost where the run does not tell. (Guessed: neighbours in memory cost nothing, and
/// what depends on one another 30 ns and more.)
const WAIT_S: f64 = 15e-9;
/// Samples below which a window does not tell how many of its reuses are far.
const LEAST_SAMPLES: usize = 20;

/// A window that is written.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// Its number.
    pub index: u32,
    /// Accesses observed in it and counted beside it.
    pub own: f64,
    /// Native CPU seconds that it stands for.
    pub native_s: f64,
    pub rate: Rate,
    pub known: Known,
    /// Accesses that it was said to stand for.
    pub said: f64,
    /// See [`far`].
    pub far: Option<f64>,
}

/// What is known of a window's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was timed.
    Timed,
    /// It was seen in the window.
    Seen,
    /// Nothing: it goes by others.
    Nothing,
}

impl Completed {
    /// Accesses that it stands for.
    pub fn stands_for(&self) -> Estimate {
        self.rate.stands_for(self.own, self.native_s)
    }
}

/// All of them together.
pub fn sum(estimates: impl Iterator<Item = Estimate>) -> Estimate {
    estimates.fold(Estimate::default(), |sum, e| Estimate {
        value: sum.value + e.value,
        low: sum.low + e.low,
        high: sum.high + e.high,
    })
}

/// Share of the samples whose 64-byte line was not touched again for [`FAR`] references or longer, among those that were
/// watched for as long. `None` where those are few.
pub fn far(samples: &[TakenSample]) -> Option<f64> {
    let at_64 = LINE_SIZES.iter().position(|&bytes| bytes == 64)?;
    let (mut near, mut far) = (0_usize, 0_usize);
    for taken in samples {
        match taken.sample.own[at_64] {
            Outcome::Reused { distance, .. } if distance < FAR => near += 1,
            Outcome::Reused { .. } => far += 1,
            Outcome::Censored { at } | Outcome::NeverReused { at } if at >= FAR => far += 1,
            _ => {}
        }
    }
    (near + far >= LEAST_SAMPLES).then(|| far as f64 / (near + far) as f64)
}

/// Gives windows that were not timed, or of which nothing is known, the rate of others. `alike` gives those that a window is
/// like, and how much.
pub fn reconsider(windows: &mut [Completed], alike: impl Fn(usize) -> Vec<(usize, f64)>) {
    let waits = Waits::of(windows);
    for at in 0..windows.len() {
        let window = windows[at];
        if window.known == Known::Timed {
            continue;
        }
        // Mean time of an access.
        let (mut weight, mut access_s) = (0.0, 0.0);
        for (other, how) in alike(at) {
            if windows[other].known == Known::Timed {
                weight += how;
                access_s += how / windows[other].rate.value;
            }
        }
        let like_them = (weight > 0.0).then(|| Rate::within(weight / access_s, UNTIMED_SPREAD));
        let waits = waits.as_ref().filter(|_| window.known == Known::Nothing);
        let like_all = || waits.map(|waits| Rate::within(waits.rate(window.far), OTHERS_SPREAD));
        if let Some(rate) = like_them.or_else(like_all) {
            windows[at].rate = rate;
        }
    }
}

/// Seconds of an access by how many of them are far.
#[derive(Debug)]
struct Waits {
    /// Of one in windows with few far reuses, and what a far reuse adds.
    access_s: f64,
    far_s: f64,
    /// Of all windows, for those that do not tell.
    any_s: f64,
}

impl Waits {
    fn of(windows: &[Completed]) -> Option<Waits> {
        let known = || {
            let known = windows.iter().filter(|w| w.known != Known::Nothing);
            known.map(|w| (w.far, 1.0 / w.rate.value.max(1.0)))
        };
        let any_s = median(known().map(|(_, access_s)| access_s))?;
        let few = known().filter(|(far, _)| far.is_some_and(|far| far < FEW));
        let access_s = median(few.map(|(_, access_s)| access_s));
        let far_s = access_s.and_then(|near_s| {
            let many = known().filter_map(|(far, s)| Some((far.filter(|&far| far > MANY)?, s)));
            median(many.map(|(far, access_s)| ((access_s - near_s) / far).max(0.0)))
        });
        Some(match access_s {
            Some(access_s) => Waits {
                access_s,
                far_s: far_s.unwrap_or(WAIT_S),
                any_s,
            },
            // All of them wait, more or less.
            None => Waits {
                access_s: any_s,
                far_s: 0.0,
                any_s,
            },
        })
    }

    fn rate(&self, far: Option<f64>) -> f64 {
        match far {
            Some(far) => 1.0 / (self.access_s + far * self.far_s),
            None => 1.0 / self.any_s,
        }
    }
}

/// `None` of few.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    (sorted.len() >= ENOUGH_OTHERS).then(|| sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(known: Known, rate: f64, far: f64) -> Completed {
        Completed {
            index: 0,
            own: 0.0,
            native_s: 1.0,
            rate: Rate::within(rate, 1.1),
            known,
            said: rate,
            far: Some(far),
        }
    }

    #[test]
    fn windows_that_were_not_timed_go_by_those_of_the_same_code() {
        let mut windows = vec![
            window(Known::Timed, 1e9, 0.0),
            window(Known::Seen, 5e9, 0.0),
            window(Known::Timed, 3e9, 0.0),
            window(Known::Seen, 4e9, 0.0),
        ];
        let alike = |at: usize| match at {
            // The last is like one that was not timed either.
            1 => vec![(0, 1.0), (2, 1.0)],
            3 => vec![(1, 1.0)],
            _ => vec![(3, 1.0)],
        };
        reconsider(&mut windows, alike);
        let rates: Vec<f64> = windows
            .iter()
            .map(|w| (w.rate.value / 1e8).round())
            .collect();
        // As many accesses in the time of both.
        assert_eq!(rates, [10.0, 15.0, 30.0, 40.0]);
    }

    #[test]
    fn windows_of_which_nothing_is_known_go_by_what_they_miss() {
        let waits = |far: f64| 1.0 / (0.5e-9 + far * 20e-9);
        let mut windows: Vec<Completed> = [0.0, 0.005, 0.0, 0.05, 0.3, 0.1]
            .into_iter()
            .map(|far| window(Known::Timed, waits(far), far))
            .collect();
        windows.push(window(Known::Nothing, 1.5e9, 0.4));
        windows.push(window(Known::Nothing, 1.5e9, 0.0));
        windows.push(Completed {
            far: None,
            ..window(Known::Nothing, 7e9, 0.0)
        });
        reconsider(&mut windows, |_| Vec::new());
        let close = |at: usize, rate: f64| (windows[at].rate.value / rate - 1.0).abs() < 0.1;
        assert!(close(6, waits(0.4)) && close(7, waits(0.0)), "{windows:?}");
        assert!(windows[8].rate.value < 2e9, "{windows:?}");
        // Of two or three nothing is learnt.
        let mut few = vec![
            window(Known::Timed, 1e9, 0.0),
            window(Known::Nothing, 2e9, 0.5),
        ];
        reconsider(&mut few, |_| Vec::new());
        assert_eq!(few[1].rate.value, 2e9);
    }
}

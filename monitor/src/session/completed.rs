//! What windows stand for, when all of a process's windows are known.
//!
//! A window stands for the time around it, and its accesses are as many as its own code makes in that time. Not every window
//! could be timed: too much of its code was new, or the thread went elsewhere, before the window's end or behind it. While
//! the run goes on such a window is taken to be like the others so far. At its end there is better to go by: whatever was timed in
//! the same code, beside this window or another; otherwise windows that missed as much, as it is for waits for memory that code is slow, by the time that
//! these stand for; and
//! where next to none was timed because all code is new, what programs make of which that is so.

use super::content::{Content, Place, Speed, Speeds};
use super::rates::{HIGHEST_RATE, OTHERS_SPREAD, Rate};
use super::recent::weighted_median;
use super::weights::{ENOUGH_OTHERS, UNTIMED_SPREAD};
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
/// Share of a window's samples whose code must have been timed for that to tell its rate.
const COVERED: f64 = 0.5;

/// Part of a window's own rate below which what was timed near its code was other code: natively it is no slower, but for chance.
const REFUTED: f64 = 0.7;
/// How many times as fast as what a window that misses much took itself code may have been elsewhere: it was in a cache there, else. (Of a python's garbage collector, timed
/// early in the run, windows at its end went by 2.8e9 accesses a second for 0.1 to 0.5, and had a tenth of the run's accesses and half of the misses.)
const WAITS: f64 = 3.0;

/// Windows from which on it is no matter of the program's start that next to all code was new in each.
const NEW_AGAIN: usize = 5;
/// Native rate of such a program: what is new to us is seldom executed, and its caches and predictors know little of it, too. (Two compilers
/// on three inputs, on one host: 1.0 to 1.4e9. As fast as any program they were told to make 1.9 to 2.9 times as many accesses as they did.)
const NEW_CODE_RATE: f64 = 1.3e9;
/// What that weighs beside the windows of which more is known: this part of the time of which nothing is. (Of a chess program's two seconds all that
/// was known at times was of its first tenth, in which it clears memory. Chosen.)
const LIKE_OTHERS: f64 = 0.2;

/// A window that is written.
#[derive(Clone, Debug)]
pub struct Completed {
    /// Its number.
    pub index: u32,
    /// Accesses observed in it and counted beside it.
    pub own: f64,
    /// Native CPU seconds that it stands for.
    pub native_s: f64,
    pub rate: Rate,
    /// Accesses a second that it made in the window: natively it is no slower. 0 where that is not known.
    pub at_least: f64,
    /// See [`Inside::repeats`](super::rates::Inside::repeats).
    pub repeats: bool,
    pub known: Known,
    /// Accesses that it was said to stand for.
    pub said: Estimate,
    /// See [`far`].
    pub far: Option<f64>,
    pub content: Content,
    /// What was timed beside it.
    pub places: Vec<Place>,
    /// Whether it was opened where one was sought: no time around it is its own.
    pub sought: bool,
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
    /// It began in a stretch with next to no accesses: the time around it is of that.
    Idle,
    /// What it saw behind that: of time that is known to be of its code alone. Its rate is seen in it, or was timed.
    Behind,
}

impl Completed {
    /// The rate next to this one that it can have had.
    fn possible(&self, rate: f64) -> f64 {
        rate.min(HIGHEST_RATE).max(self.at_least)
    }

    /// Whether much of what it touches is not in caches near a core.
    fn waits(&self) -> bool {
        self.far.is_some_and(|far| far > MANY)
    }

    /// The two parts of one that began in a stretch with so few accesses.
    pub fn behind(self, idle: Rate) -> [Completed; 2] {
        let of_time = Completed {
            own: 0.0,
            rate: idle,
            known: Known::Idle,
            said: idle.stands_for(0.0, self.native_s),
            at_least: 0.0,
            far: None,
            content: Content::default(),
            places: Vec::new(),
            ..self
        };
        let seen = Completed {
            native_s: 0.0,
            known: Known::Behind,
            said: self.rate.stands_for(self.own, 0.0),
            ..self
        };
        [of_time, seen]
    }

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

/// Gives each window the rate of the code that it is of. In the order of time.
pub fn reconsider(windows: &mut [Completed]) {
    // Others stopped for their system calls, and are known to be slow.
    let is_new = |w: &Completed| w.known == Known::Nothing && w.rate.value > NEW_CODE_RATE;
    let new = windows.iter().filter(|w| is_new(w)).count();
    if new >= NEW_AGAIN && windows.len() - new < ENOUGH_OTHERS {
        for window in windows.iter_mut().filter(|w| is_new(w)) {
            window.rate = Rate {
                value: NEW_CODE_RATE,
                low: window.rate.low.min(NEW_CODE_RATE),
                ..window.rate
            };
        }
    }
    if windows.iter().filter(|w| w.known == Known::Timed).count() < ENOUGH_OTHERS {
        return;
    }
    let speeds = Speeds::new(windows.iter().map(|w| w.places.as_slice()).collect());
    let speeds: Vec<Speed> = windows
        .iter()
        .enumerate()
        .map(|(at, window)| speeds.of(at, &window.content, window.repeats))
        .collect();
    for (window, speed) in windows.iter_mut().zip(&speeds) {
        let rate = 1.0 / speed.access_s;
        match window.known {
            Known::Idle => {}
            Known::Timed | Known::Seen | Known::Behind if window.content.is_empty() => {}
            // What was timed beside it was other code.
            Known::Timed if speed.covered < COVERED => window.known = Known::Nothing,
            _ if speed.covered < COVERED => {}
            // What one instruction makes is not timed better than it was in the window.
            Known::Timed if window.repeats && window.at_least > HIGHEST_RATE => {
                window.rate = window.rate.about(window.at_least)
            }
            Known::Timed if speed.own => {
                let most = HIGHEST_RATE.max(window.rate.value);
                window.rate = window.rate.about(rate.min(most));
            }
            // Nor can code be of it that was faster in the window.
            Known::Seen | Known::Behind if rate < REFUTED * window.at_least => {}
            // It waits for memory as what was timed there did not.
            Known::Seen | Known::Behind if window.waits() && rate > WAITS * window.rate.value => {}
            _ => window.rate = Rate::within(window.possible(rate), UNTIMED_SPREAD),
        }
    }
    let unknown =
        |w: &Completed, speed: &Speed| w.known == Known::Nothing && speed.covered < COVERED;
    let seconds = windows.iter().zip(&speeds);
    let seconds = seconds.filter(|(w, speed)| unknown(w, speed));
    let unknown_s = seconds.map(|(w, _)| w.native_s).sum();
    let Some(waits) = Waits::of(windows, unknown_s) else {
        return;
    };
    for (window, speed) in windows.iter_mut().zip(&speeds) {
        if unknown(window, speed) {
            let rest_s = waits.access_s(window.far);
            let access_s = speed.covered * speed.access_s + (1.0 - speed.covered) * rest_s;
            window.rate = Rate::within(window.possible(1.0 / access_s), OTHERS_SPREAD);
        }
    }
}

/// Seconds of an access by how many of them are far.
#[derive(Debug)]
struct Waits {
    /// Of one in windows with few far reuses, and what a far reuse adds.
    near_s: f64,
    far_s: f64,
    /// Of all windows, for those that do not tell.
    any_s: f64,
}

impl Waits {
    /// Of windows of which nothing is known of some, which stand for `unknown_s`.
    fn of(windows: &[Completed], unknown_s: f64) -> Option<Waits> {
        let known = || {
            windows
                .iter()
                .filter(|w| matches!(w.known, Known::Timed | Known::Seen) && !w.repeats)
                // Those that were sought stand for no time.
                .filter(|w| w.native_s > 0.0)
                .map(|w| (w.far, 1.0 / w.rate.value.max(1.0), w.native_s))
        };
        let enough = |values: Vec<_>| (values.len() >= ENOUGH_OTHERS).then_some(values);
        let with_usual = |mut values: Vec<_>| {
            values.push((1.0 / NEW_CODE_RATE, LIKE_OTHERS * unknown_s));
            weighted_median(values)
        };
        let any = known().map(|(_, access_s, of_s)| (access_s, of_s));
        let any_s = enough(any.collect()).and_then(with_usual)?;
        let few = known().filter(|(far, ..)| far.is_some_and(|far| far < FEW));
        let few = few.map(|(_, access_s, of_s)| (access_s, of_s));
        let near_s = enough(few.collect()).and_then(with_usual);
        let far_s = near_s.and_then(|near_s| {
            let many = known().filter_map(|(far, access_s, of_s)| {
                let far = far.filter(|&far| far > MANY)?;
                Some((((access_s - near_s) / far).max(0.0), of_s))
            });
            enough(many.collect()).and_then(weighted_median)
        });
        Some(match near_s {
            Some(near_s) => Waits {
                near_s,
                far_s: far_s.unwrap_or(WAIT_S),
                any_s,
            },
            // All of them wait, more or less.
            None => Waits {
                near_s: any_s,
                far_s: 0.0,
                any_s,
            },
        })
    }

    fn access_s(&self, far: Option<f64>) -> f64 {
        far.map_or(self.any_s, |far| self.near_s + far * self.far_s)
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::granule;
    use super::super::rates::ANY_RATE;
    use super::*;

    fn window(known: Known, rate: f64, far: f64, place: u64) -> Completed {
        let ips: Vec<u64> = (0..200).map(|i| place + 8 * (i % 10)).collect();
        Completed {
            index: 0,
            own: 0.0,
            native_s: 1.0,
            rate: Rate::within(rate, 1.1),
            known,
            said: Rate::within(rate, 1.1).stands_for(0.0, 1.0),
            at_least: 0.0,
            repeats: false,
            far: Some(far),
            content: Content::new(0, &ips),
            places: match known {
                Known::Timed => laps(&[(place, rate)]),
                _ => Vec::new(),
            },
            sought: false,
        }
    }

    /// Four laps in each of these places, of these accesses a second.
    fn laps(places: &[(u64, f64)]) -> Vec<Place> {
        let of = |&(ip, rate): &(u64, f64)| {
            let place = Place {
                at: granule(0, ip),
                part: 0.5,
                access_s: 1.0 / rate,
                stays: false,
            };
            [place; 8]
        };
        places.iter().flat_map(of).collect()
    }

    fn close(window: &Completed, rate: f64) -> bool {
        (window.rate.value / rate - 1.0).abs() < 0.1
    }

    #[test]
    fn windows_that_were_not_timed_go_by_those_of_the_same_code() {
        let mut windows = vec![
            window(Known::Timed, 1e9, 0.0, 0x1000),
            window(Known::Seen, 5e9, 0.0, 0x1000),
            window(Known::Timed, 3e9, 0.0, 0x2000),
            window(Known::Seen, 4e9, 0.0, 0x3000),
            window(Known::Timed, 3e9, 0.0, 0x2000),
            window(Known::Timed, 5e9, 0.0, 0x7000),
        ];
        // It went on into fast code, and is of slow code mostly.
        let ips = [[0x1000; 300].as_slice(), &[0x2000; 100]].concat();
        windows[4].content = Content::new(0, &ips);
        windows[5] = window(Known::Timed, 1e9, 0.0, 0x1000);
        reconsider(&mut windows);
        assert!(
            close(&windows[0], 1e9) && close(&windows[1], 1e9),
            "{windows:?}"
        );
        assert!(close(&windows[3], 4e9), "{windows:?}");
        let access_s = 0.75 / 1e9 + 0.25 / 3e9;
        assert!(close(&windows[4], 1.0 / access_s), "{windows:?}");
        // No slower than it was seen.
        windows[1].at_least = 1.2e9;
        reconsider(&mut windows);
        assert!(close(&windows[1], 1.2e9), "{windows:?}");
    }

    /// Nor does what was timed near its code where the window itself was faster.
    #[test]
    fn windows_that_were_faster_than_what_was_timed_near_them_are_of_other_code() {
        let mut windows: Vec<Completed> = (0..6)
            .map(|_| window(Known::Timed, 7e6, 0.0, 0x1000))
            .collect();
        windows.push(Completed {
            at_least: 6e8,
            ..window(Known::Seen, 4e9, 0.0, 0x1040)
        });
        // By chance.
        windows.push(Completed {
            at_least: 8e6,
            ..window(Known::Seen, 4e9, 0.0, 0x1040)
        });
        reconsider(&mut windows);
        assert_eq!(windows[6].rate.value, 4e9);
        assert!(close(&windows[7], 8e6), "{windows:?}");
    }

    /// A copy of megabytes by one instruction is as fast as it was seen to be, whatever was timed before it.
    #[test]
    fn windows_in_copies_go_by_themselves() {
        let mut windows: Vec<Completed> = (0..6)
            .map(|_| window(Known::Timed, 3e9, 0.0, 0x1000))
            .collect();
        (windows[5].at_least, windows[5].repeats) = (2.5e10, true);
        // Of other code that is what its clock was off by.
        windows[4].at_least = 2.5e10;
        reconsider(&mut windows);
        assert!(close(&windows[5], 2.5e10), "{windows:?}");
        assert!(windows[..5].iter().all(|w| close(w, 3e9)), "{windows:?}");
    }

    /// A garbage collector walks through a small heap, and later through a large one.
    #[test]
    fn windows_that_wait_for_memory_are_not_as_fast_as_their_code_was_in_a_cache() {
        let mut windows: Vec<Completed> = (0..6)
            .map(|_| window(Known::Timed, 3e9, 0.0, 0x1000))
            .collect();
        windows.push(window(Known::Seen, 3e8, 0.3, 0x1000));
        // What hardly misses is, and what is about as fast anyway.
        windows.push(window(Known::Seen, 3e8, 0.01, 0x1000));
        windows.push(window(Known::Seen, 1.5e9, 0.3, 0x1000));
        reconsider(&mut windows);
        assert_eq!(windows[6].rate.value, 3e8);
        assert!(windows[7..].iter().all(|w| close(w, 3e9)), "{windows:?}");
    }

    /// What was timed beside a window says nothing of it where that is other code.
    #[test]
    fn windows_that_were_timed_elsewhere_go_by_what_they_miss() {
        let mut windows: Vec<Completed> = (0..6)
            .map(|_| window(Known::Timed, 1e9, 0.0, 0x1000))
            .collect();
        // However many there are: they do not teach that waiting takes no time.
        for at in 2..6 {
            windows.push(Completed {
                content: Content::new(0, &[0x8000 + 0x1000 * at; 100]),
                ..window(Known::Timed, 3e9, 0.5, 0x5000)
            });
        }
        // Nor do those that clear new memory by one instruction.
        for _ in 0..8 {
            windows.insert(
                0,
                Completed {
                    repeats: true,
                    ..window(Known::Timed, 5e7, 0.0, 0x9000)
                },
            );
        }
        reconsider(&mut windows);
        windows.drain(..8);
        let waits = 1.0 / (1e-9 + 0.5 * WAIT_S);
        assert!(windows[6..].iter().all(|w| close(w, waits)), "{windows:?}");
    }

    #[test]
    fn windows_of_which_nothing_is_known_go_by_what_they_miss() {
        let waits = |far: f64| 1.0 / (0.5e-9 + far * 20e-9);
        let mut windows: Vec<Completed> = [0.0, 0.005, 0.0, 0.05, 0.3, 0.1]
            .into_iter()
            .map(|far| window(Known::Timed, waits(far), far, 0x1000))
            .collect();
        windows.push(window(Known::Nothing, 1.5e9, 0.4, 0x2000));
        windows.push(window(Known::Nothing, 1.5e9, 0.0, 0x3000));
        windows.push(Completed {
            far: None,
            ..window(Known::Nothing, 7e9, 0.0, 0x4000)
        });
        reconsider(&mut windows);
        assert!(
            close(&windows[6], waits(0.4)) && close(&windows[7], waits(0.0)),
            "{windows:?}"
        );
        assert!(windows[8].rate.value < 2e9, "{windows:?}");
        // Of two or three nothing is learnt.
        let mut few = vec![
            window(Known::Timed, 1e9, 0.0, 0x1000),
            window(Known::Nothing, 2e9, 0.5, 0x2000),
        ];
        reconsider(&mut few);
        assert_eq!(few[1].rate.value, 2e9);
    }

    /// What is known of a program's first moments does not make the rest of it slow.
    #[test]
    fn windows_of_which_nothing_is_known_go_by_what_most_of_the_time_is_of() {
        let rate = |of_others_s: f64| {
            let mut windows = vec![window(Known::Timed, 5e7, 0.0, 0x1000); 4];
            windows.iter_mut().for_each(|w| w.native_s = 0.01);
            windows.extend(vec![window(Known::Timed, 3e9, 0.0, 0x2000); 3]);
            windows[4..]
                .iter_mut()
                .for_each(|w| w.native_s = of_others_s);
            windows.push(window(Known::Nothing, ANY_RATE, 0.0, 0x3000));
            reconsider(&mut windows);
            windows[7].rate.value
        };
        assert!((rate(1.0) / 3e9 - 1.0).abs() < 1e-9);
        assert!((rate(0.001) / NEW_CODE_RATE - 1.0).abs() < 1e-9);
    }

    /// Where a window was sought it stands for no time, however fast its far reuses were.
    #[test]
    fn windows_that_were_sought_do_not_tell_of_others() {
        let mut windows = vec![window(Known::Timed, 1e9, 0.0, 0x1000); 4];
        windows.extend(vec![window(Known::Timed, 1e9, 0.5, 0x2000); 3]);
        windows[4..].iter_mut().for_each(|w| w.native_s = 0.0);
        windows.push(window(Known::Nothing, ANY_RATE, 0.4, 0x3000));
        reconsider(&mut windows);
        assert!(
            close(&windows[7], 1.0 / (1e-9 + 0.4 * WAIT_S)),
            "{windows:?}"
        );
    }

    #[test]
    fn code_that_is_new_in_each_of_many_windows_is_slow() {
        let of = |known, count| {
            let mut windows = vec![window(known, ANY_RATE, 0.0, 0x1000); count];
            reconsider(&mut windows);
            windows
        };
        let was = Rate::within(ANY_RATE, 1.1);
        let slow = Rate {
            value: NEW_CODE_RATE,
            low: NEW_CODE_RATE,
            high: was.high,
        };
        let is_slow = |w: &Completed| w.rate == slow;
        assert!(of(Known::Nothing, NEW_AGAIN).iter().all(is_slow));
        // Fewer are of the program's start, and what was seen in a window counts.
        for others in [
            of(Known::Nothing, NEW_AGAIN - 1),
            of(Known::Seen, NEW_AGAIN),
        ] {
            assert!(others.iter().all(|w| w.rate == was));
        }
        let (seen, unknown) = (of(Known::Seen, 1), of(Known::Nothing, NEW_AGAIN - 1));
        let mut mixed = [seen, unknown, of(Known::Nothing, 1)].concat();
        reconsider(&mut mixed);
        assert_eq!(mixed[0].rate, was);
        assert!(mixed[1..].iter().all(is_slow));
        // Slow for its system calls: of no kind of code.
        let mut calls = vec![window(Known::Nothing, 2e8, 0.0, 0x1000); NEW_AGAIN];
        reconsider(&mut calls);
        assert!(calls.iter().all(|w| w.rate == Rate::within(2e8, 1.1)));
    }
}

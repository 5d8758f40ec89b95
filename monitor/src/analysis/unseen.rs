//! What no window saw, and how much of it the model is to allow for: the start of a run, and what may have been done between windows.

use crate::profile::Profile;

/// Accesses a second that a program may make before its first window, or between others, where it did not make as many in one. (Guessed: a third of what programs make
/// on the median, as the code is cold. Twenty passes over 8 MiB, 20 M accesses in the first hundredth of a run of 3 s, before as many of a
/// walk that waits for each line: 100 % told, 99.9 to 100, for 55.)
const STARTING_RATE: f64 = 1e9;
/// Looks that tell how much of the time was in code that windows met; and how many windows' part of the run may have been overlooked in any case. (With one
/// instead of two the same profiles had the same intervals, but for a tenth of a few widths.)
const ENOUGH_LOOKS: u32 = 300;
const OWN_WINDOWS: f64 = 2.0;

/// Accesses that may have been made before the first window besides those that it stands for, as a program that waits for memory in it may
/// have filled that fast before; and in so many CPU seconds.
pub(super) fn before_first(profile: &Profile) -> (f64, f64) {
    match profile.windows.first() {
        // A process that was attached to was not just starting: what it did before its first window is like what it does between others. Where
        // windows were left out of a long profile, what lies before the first one that is left was seen.
        Some(first) if !profile.header.full && first.index == 0 && !profile.is_attached() => {
            let seconds = first.cpu_start_s.min(first.start_s).max(0.0);
            (STARTING_RATE * seconds, seconds)
        }
        _ => (0.0, 0.0),
    }
}

/// Accesses that are likely to have been made where no window fell: in as long as one of them stands for, at that rate, too. What takes that part of the time is met by none in three runs of
/// eight, and windows that are drawn again do not tell. (brotli makes a tenth of its
/// accesses in a fiftieth of its time: 146 of 216 sizes of eight runs inside without this, 215 with it; 92.8 and 98.7 % of all of 47 runs of 15 programs, at widths of 2.9 and 3.4 points.)
///
/// Of a program that waits for memory that would be many times what it makes in that time. Of the time that looks tell of no more is allowed for than what may
/// have been in code that no window began with, and two windows' part at the program's own rate: two, as that is not known well, and code that windows met may
/// do something else at other times. (A walk through a hash table at 0.1e9 accesses a second: 26 to 37 points wide before, 12 since.)
pub(super) fn between_windows(profile: &Profile) -> f64 {
    let windows = profile.windows.len();
    let cpu_s = match &profile.footer {
        Some(footer) if !profile.header.full && windows > 1 => footer.cpu_s,
        _ => return 0.0,
    };
    let of_a_window = 1.0 / windows as f64;
    let any = STARTING_RATE * cpu_s * of_a_window;
    match profile.unmet {
        Some(unmet) if unmet.of >= ENOUGH_LOOKS && unmet.all_s > 0.0 => {
            // As many more as chance may have had fall elsewhere: a standard error, as this is one.
            let by_chance = 1.0 + (1.0 + f64::from(unmet.looks)).sqrt();
            let unmet_s = unmet.unmet_s + by_chance * unmet.of_s / f64::from(unmet.of);
            let all: f64 = profile.windows.iter().map(|w| w.stands_for.value).sum();
            let own = OWN_WINDOWS * all * of_a_window;
            let told = unmet.of_s / unmet.all_s;
            any * (1.0 - told) + told * any.min(own.max(STARTING_RATE * unmet_s))
        }
        _ => any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use crate::profile::types::{Estimate, Footer, Record, Unmet, WindowRecord};

    #[test]
    fn what_may_lie_before_the_first_window_was_not_seen() {
        let before = |index, cpu_start_s, start_s| {
            let window = WindowRecord {
                cpu_start_s,
                start_s,
                ..example::window(index, 1000, Estimate::default())
            };
            let records = example::beginning().into_iter();
            let records = records.chain([Record::Window(window)]);
            before_first(&Profile::from_records(records).unwrap())
        };
        assert_eq!(before(0, 0.02, 0.03), (0.02 * STARTING_RATE, 0.02));
        // Attached to after an hour.
        assert_eq!(before(0, 3600.0, 0.03), (0.0, 0.0));
        // Of a profile of days, whose first windows were left out.
        assert_eq!(before(7, 5000.0, 9000.0), (0.0, 0.0));
    }

    #[test]
    fn looks_bound_what_windows_overlooked_of_a_slow_program() {
        // Ten windows, each for a second with so many accesses.
        let overlooked = |rate: f64, unmet: Option<(u32, u32, f64)>| {
            let second = Estimate {
                value: rate,
                low: rate,
                high: rate,
            };
            let windows = (0..10).map(|at| Record::Window(example::window(at, 1000, second)));
            // So many looks of so many, which stand for so much of ten seconds.
            let unmet = unmet.map(|(looks, of, of_s)| {
                Record::Unmet(Unmet {
                    looks,
                    unmet_s: of_s * f64::from(looks) / f64::from(of),
                    of,
                    of_s,
                    all_s: 10.0,
                })
            });
            let footer = Footer {
                cpu_s: 10.0,
                ..Footer::default()
            };
            let records = example::beginning().into_iter().chain(windows);
            let records = records.chain(unmet).chain([Record::Footer(footer)]);
            between_windows(&Profile::from_records(records).unwrap())
        };
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9);
        // Without looks, or with too few: a second of any program's.
        near(overlooked(1e8, None), STARTING_RATE);
        near(overlooked(1e8, Some((0, 299, 10.0))), STARTING_RATE);
        // None in other code: two seconds of its own; and where looks tell of half of the time.
        near(overlooked(1e8, Some((0, 300, 10.0))), 2e8);
        near(overlooked(1e8, Some((0, 4000, 5.0))), 0.6 * STARTING_RATE);
        // Some of them elsewhere, and ten for chance: a second of four hundred looks.
        near(
            overlooked(1e8, Some((80, 4000, 10.0))),
            0.225 * STARTING_RATE,
        );
        near(overlooked(1e8, Some((2000, 4000, 10.0))), STARTING_RATE);
        // Others' own is as much.
        near(overlooked(8e8, Some((0, 4000, 10.0))), STARTING_RATE);
    }
}

//! What a thread did in a window, or beside it in a code cache that only counts, and the native rate that this tells.

use crate::profile::types::Estimate;

/// Error of a rate that its statistics do not show: what was timed is not what the window stands for, and inner loops that
/// need every register are slower counted than others. (With all that is allowed for, estimates of 0.65 to 1.3 of the truth were seen, of 0.45 to 1.7 where most code was new.)
const RATE_SPREAD: (f64, f64) = (1.1, 1.5);
/// What added instructions cost, for each time the program's own number of them: seconds per access, and the share of
/// its time that they take at the most. Low, best and high. Beside waits for memory they cost little, otherwise about as
/// much as the program's own. (Fitted to 279 windows of seven programs on one host: a share of 0.1 to 0.3 up to 0.35e9
/// accesses a second in the window, of 0.6 to 1.3 above.)
const ADDED_S: (f64, f64, f64) = (0.0, 0.4e-9, 1.5e-9);
const SHOWS: (f64, f64, f64) = (0.0, 0.8, 2.5);
/// The beginning of a window is slow, as caches and predictors know nothing of the code cache, and nothing of the program since we had the
/// processor: it takes the native time of so many accesses more, and so many seconds at the most. (In 672 timed windows of 35 programs on one host
/// the native rate was 5 times what this left out said where windows had 0.1 M accesses, the fewest there were, 2.7 times with 0.2 to 1 M, 0.9 times
/// above; with it 1.0, 1.1 and 0.8 times, of each program by a factor of 1.5 to 1.6 off.)
const BEGINNING: (f64, f64) = (600e3, 0.5e-3);
/// The same of what is behind each stop where threads have turns: others had theirs meanwhile. (Seconds as of a lap, see `cost.rs`. Of 52 timed
/// windows of five programs of two threads on one host the native rate was 3.2 times what this left out said, 2.0 to 7.0 in eight of ten, with it 2.2 times, 1.3 to 3.4.
/// A ring of buffers, which cannot be timed as its threads wait for each other every 30 us, was told to make 0.30 to 0.51 of its accesses.)
const BEHIND_STOP: (f64, f64) = (5e3, 14e-6);
/// Fewer instructions than this for each of the program's own are executed where nearly all of those are iterations of `rep` instructions. (A record of
/// other code, of 96 instructions at the most, takes three or more.)
const REPEATS: f64 = 1.02;
/// No window was seen to be slowed down by more than this share.
const MOST_ADDED: f64 = 3.0;
/// The same of those that counting adds, once the code is warm, as a share. (Of 23 programs kept in the counting cache for nearly all of a run, on one
/// host, what stops took of it left out: half of them 0.6 to 1.05, 0.85 in the middle; an interpreter of eight accesses a nanosecond 2.0, of regular expressions
/// and JSON 0.2 and 0.4, loops that happen to lie better there less than nothing. Before it was known what stops drive from the caches, programs seemed
/// slower there by 3 to 16 %. The ends are guessed.)
const SHOWS_COUNTING: (f64, f64, f64) = (0.0, 0.85, 3.0);
/// Seconds that an access takes longer for each instruction added beside one of the program's own, at the most: where the program waits for
/// memory they run meanwhile, but it waits for fewer things at once. (Chosen between 0.8, with which nine programs of which six wait for memory were
/// estimated at 0.66 to 1.04 of their accesses, on the mean 0.16 off, and 1.2: 0.72 to 1.08, 0.13 off; two to four runs each, on one host.)
const ADDED_COUNTING_S: f64 = 1e-9;
/// By what factor counting slows warm code down at the most. (Of 24 programs kept in the counting cache for all of a run, on one host, what stops drove from the caches
/// included: 0.6 to 2.0, but 2.2, 2.5 and 2.6 of jq and interpreters of Scheme and Tcl. What the window beside executed may say more: its code is not quite what was timed.)
const MOST_COUNTING: f64 = 2.5;
/// Native rate of a window that was nearly all stops, where there is no other to go by, and the highest; how far
/// off that of other windows may be. (Fourteen programs made 0.4 to 6.2e9, half of them more than 2.1e9, on one host, and 22 others 0.8 to 4.4e9,
/// half of them more than 2.5e9; thirteen more, half of them interpreters and compilers of generated code, 2.0 to 6.4e9, half of them more than 4.2e9.)
pub const ANY_RATE: f64 = 2.8e9;
/// See [`ANY_RATE`].
pub const HIGHEST_RATE: f64 = 8e9;
/// See [`ANY_RATE`].
pub const OTHERS_SPREAD: f64 = 3.0;

/// Accesses per native CPU second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Best value, and its bounds.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Rate {
    /// A rate that is off by this factor at the most.
    pub fn within(value: f64, factor: f64) -> Rate {
        Rate {
            value,
            low: value / factor,
            high: value * factor,
        }
    }

    /// As uncertain, about another value.
    pub fn about(self, value: f64) -> Rate {
        Rate {
            value,
            low: self.low / self.value * value,
            high: self.high / self.value * value,
        }
    }

    /// Accesses of so many seconds, beside so many that are known.
    pub fn stands_for(self, own: f64, native_s: f64) -> Estimate {
        Estimate {
            value: own + self.value * native_s,
            low: own + self.low * native_s,
            high: own + self.high * native_s,
        }
    }
}

/// How often a thread begins with cold caches: so many accesses come of it each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begins {
    /// That does not matter.
    Never,
    /// With its window.
    Once(f64),
    /// Behind each stop.
    Often(f64),
}

/// How the thread ran inside a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inside {
    /// Accesses per CPU second of the thread.
    pub per_second: f64,
    /// What of that was slow.
    pub begins: Begins,
    /// Instructions executed for each of the program's own.
    pub expansion: f64,
    /// System calls for each access.
    pub calls: f64,
    /// Whether several threads had turns in it.
    pub together: bool,
    /// Whether it was nearly all stops, so that its time says little.
    pub mostly_stops: bool,
    /// Whether it is of pieces of other windows, for that reason.
    pub of_others: bool,
}

impl Inside {
    /// A window without anything of note, for tests.
    #[cfg(test)]
    pub fn example(per_second: f64) -> Inside {
        Inside {
            per_second,
            begins: Begins::Never,
            expansion: 1.0,
            calls: 0.0,
            together: false,
            mostly_stops: false,
            of_others: false,
        }
    }

    /// Whether next to all of its accesses are those of `rep` instructions, which come to many times as many in the same time as other code's.
    pub fn repeats(self) -> bool {
        let told = !self.mostly_stops && !self.of_others && self.expansion > 1.0;
        told && self.expansion < REPEATS
    }

    /// Best guess of the native rate where none was ever measured.
    pub fn likely(self) -> f64 {
        possible(self.begun(self.native(ADDED_S.1, SHOWS.1)), self)
    }

    /// What a rate is without what was slow at the beginning.
    fn begun(self, rate: f64) -> f64 {
        let (own, (accesses, most_s)) = match self.begins {
            Begins::Once(own) => (own, BEGINNING),
            Begins::Often(own) => (own, BEHIND_STOP),
            Begins::Never => return rate,
        };
        if self.mostly_stops || self.of_others {
            return rate;
        }
        let own = own.max(1.0);
        let all_s = own / rate;
        let beginning_s = (all_s * accesses / (own + accesses)).min(most_s);
        own / (all_s - beginning_s)
    }

    /// What is believed where none was ever measured.
    pub fn rate(self) -> Rate {
        let value = self.likely();
        let began = value / self.native(ADDED_S.1, SHOWS.1);
        let within = 1.0 + (OTHERS_SPREAD - 1.0) * (1.0 - 1.0 / began.max(1.0));
        Rate {
            value,
            low: self.native(ADDED_S.0, SHOWS.0),
            high: self.native(ADDED_S.2, SHOWS.2).max(value * within),
        }
    }

    /// Native rate if added instructions cost so many seconds an access, but no more than this share of its time.
    fn native(self, added_s: f64, shows: f64) -> f64 {
        let added = (self.expansion - 1.0).max(0.0);
        let access_s = 1.0 / self.per_second.max(1.0);
        let most = access_s / (1.0 + (shows * added).min(MOST_ADDED));
        1.0 / (access_s - added_s * added).max(most)
    }
}

/// How fast a thread ran beside a window, in a code cache that only counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Accesses per CPU second of the thread, without stops.
    pub per_second: f64,
    /// Instructions executed there for each of the program's own.
    pub expansion: f64,
    /// By what factor it may be off because the code was cold in part (at least 1).
    pub spread: f64,
}

impl Timed {
    /// Accesses that would have been made natively in the time of one.
    pub fn native(self) -> f64 {
        self.rate().value / self.per_second
    }

    /// The native rate that this tells.
    pub fn rate(self) -> Rate {
        let added = self.expansion - 1.0;
        let native = |shows: f64| self.per_second * (1.0 + shows * added);
        let (low, value, high) = SHOWS_COUNTING;
        let access_s = 1.0 / self.per_second.max(1.0);
        let hidden = 1.0 / (access_s - ADDED_COUNTING_S * added).max(0.1 * access_s);
        // What was seen is true however fast: a `rep movs` over megabytes makes 20e9 a second.
        let most = (MOST_COUNTING * self.per_second).min(HIGHEST_RATE.max(self.per_second));
        let value = native(value).min(hidden).min(most);
        Rate {
            value,
            // One that is faster than threads can be (a `rep` over megabytes) would have it above.
            low: (native(low) / RATE_SPREAD.0 / self.spread).min(value),
            high: native(high) * RATE_SPREAD.1 * self.spread,
        }
    }
}

/// The rate next to `guess` that a thread can have which ran like this in a window: natively it is no slower.
pub fn possible(guess: f64, inside: Inside) -> f64 {
    guess.min(HIGHEST_RATE).max(inside.per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_instructions_cost_little_beside_waits() {
        let likely = |per_second: f64, expansion: f64| {
            let inside = Inside {
                expansion,
                ..Inside::example(per_second)
            };
            inside.likely() / per_second
        };
        // An access every 10 ns, of which 0.8 are added; one every nanosecond, of which most is.
        assert!((likely(1e8, 3.0) - 10.0 / 9.2).abs() < 1e-9);
        assert!((likely(1e9, 3.0) - 2.6).abs() < 1e-9);
        assert!((likely(1e9, 30.0) - 1.0 - MOST_ADDED).abs() < 1e-9);
        assert!((likely(1e9, 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn windows_of_repeated_instructions_are_told_by_what_was_executed_besides() {
        let with = |expansion: f64, mostly_stops: bool| Inside {
            expansion,
            mostly_stops,
            ..Inside::example(2e10)
        };
        assert!(with(1.001, false).repeats());
        // One that executed nothing of ours is not known, nor is one of other code, or of stops.
        assert!(
            ![with(1.0, false), with(1.1, false), with(1.001, true)]
                .map(Inside::repeats)
                .contains(&true)
        );
    }

    #[test]
    fn a_rate_lies_within_its_bounds_however_fast() {
        for (per_second, expansion) in [
            (1e6, 1.0),
            (1e9, 6.0),
            (2e9, 3.0),
            (2.0 * HIGHEST_RATE, 1.0),
        ] {
            let timed = Timed {
                per_second,
                expansion,
                spread: 1.0,
            };
            let rate = timed.rate();
            assert!(
                rate.low <= rate.value && rate.value <= rate.high,
                "{rate:?}"
            );
            // Nor is it what no code is counted that much slower for.
            assert!(rate.value <= MOST_COUNTING * per_second, "{rate:?}");
        }
    }
}

//! How long the laps of a stay in the cache that only counts are, and when they are enough.

use super::super::pace::{LONE_PATIENCE, PATIENCE};
use super::warming::says_little;
use crate::engine::translate::window::{Control, Piece, Waited};
use crate::observe::Observer;
use crate::session::signals::{NAP, Signals, Wait};
use crate::tracee::maps::Maps;
use crate::tracee::remote::restart_pending;
use crate::tracee::{Event, Result, Running, Stopped, hub};
use std::time::{Duration, Instant};

/// Time of a lap: many times that of the stop at its end and of what this drives from the caches, and short, so that code met for the first time
/// spoils few.
pub(super) const LAP: Duration = Duration::from_micros(500);
/// Laps behind the one that has settled their length, and warmed the caches.
pub(super) const LAPS: usize = 4;
/// Laps behind those, where no more misses were met before.
const LAPS_MORE: usize = 3;
/// Laps of a long stay, which tells how code warms up.
pub(super) const LAPS_LONG: usize = 17;
/// Fewest and most accesses of a lap. (Of 8 M, which a copy by one instruction makes in the time of one, the next would lead far into what follows.)
const LEAST: u64 = 2_000;
const MOST: u64 = 2_000_000;
/// Most of the first one: where the program has become a hundred times slower, more would lead it out of what it is doing. (Of rounds of 3 ms with
/// 10 M accesses and 17 ms with 100,000 no window began in the latter, with 400,000: 4 to 7 times as many accesses were estimated as were made.)
const MOST_FIRST: u64 = 10_000;
/// Laps of next to nothing in between, which tell what the stop at the end of one takes, and accesses of them.
const EMPTY_LAPS: usize = 3;
const EMPTY: u64 = 500;
/// Laps that met new code and do not count: so many, and for so long, at the most. (Chosen: as long as some windows.)
const COLD_LAPS: usize = 200;
const COLD: Duration = Duration::from_millis(50);
/// A first lap that took longer is of slow code, not of new code.
const SLOW: Duration = Duration::from_millis(20);
/// Longest stay in the cache of a lap: a loop without accesses comes to no end of one.
const LONGEST: Duration = Duration::from_secs(1);

/// How many accesses each lap has.
#[derive(Debug)]
pub(super) struct Lengths {
    /// Laps to come, empty ones likewise, whether none has begun, and whether this one is empty.
    left: usize,
    empty_left: usize,
    first: bool,
    empty: bool,
    /// Whether this one is the last, whatever it takes.
    once: bool,
    /// Laps that need not count yet.
    cold_left: usize,
    /// Laps that are over, and how many of these were there when their length was settled: one more than there are pieces, as the first is none.
    over: usize,
    pub settled: Option<usize>,
    /// Accesses of one.
    pub accesses: u64,
}

impl Lengths {
    /// Of so many laps, in code that makes about so many accesses in a second.
    pub fn new(laps: usize, rate: f64) -> Lengths {
        let accesses = (0.5 * LAP.as_secs_f64() * rate) as u64;
        Lengths {
            left: laps,
            empty_left: EMPTY_LAPS,
            first: true,
            empty: false,
            once: false,
            cold_left: COLD_LAPS,
            over: 0,
            settled: None,
            accesses: accesses.clamp(LEAST, MOST_FIRST),
        }
    }

    /// Some laps more.
    pub fn more(&mut self) {
        (self.left, self.first) = (LAPS_MORE, true);
    }

    /// So many accesses more, however long they take.
    pub fn once(&mut self, accesses: u64) {
        self.accesses = accesses.max(LEAST);
        (self.first, self.once) = (true, true);
    }

    /// A lap is over, but for the first time that this is asked, and took so long without its stops. `is_cold`: they were so many, for new code, that this says
    /// nothing. Returns the accesses of the next one; 0 if there is none.
    pub fn next(&mut self, lap: Duration, is_cold: bool) -> u64 {
        if std::mem::take(&mut self.first) {
            // How fast it is now is not known yet.
            return self.accesses;
        }
        self.over += 1;
        if self.once {
            return 0;
        }
        if is_cold && self.cold_left > 0 {
            // Another of the same length: by then code is known.
            self.cold_left -= 1;
            return if self.empty { EMPTY } else { self.accesses };
        }
        if !std::mem::take(&mut self.empty) {
            if lap < LAP / 2 && self.accesses < MOST {
                // Too fast to be timed.
                self.accesses = (4 * self.accesses).min(MOST);
                return self.accesses;
            }
            // This one was taken because it lasted long enough: it says of slow code more than of fast.
            self.settled.get_or_insert(self.over);
            if self.left == 0 {
                return 0;
            }
            if lap > 3 * LAP {
                let of_one = LAP.as_secs_f64() / lap.as_secs_f64();
                self.accesses = ((self.accesses as f64 * of_one) as u64).max(LEAST);
            }
            if self.empty_left > 0 {
                self.empty_left -= 1;
                self.empty = true;
                return EMPTY;
            }
        }
        self.left = self.left.saturating_sub(1);
        self.accesses = self.accesses.clamp(LEAST, MOST);
        self.accesses
    }
}

/// Paces a stay.
pub(super) struct Laps<'a> {
    pub signals: &'a mut Signals,
    pub until: Option<Instant>,
    /// Whether they end when the thread wakes another, which may write code.
    pub alone: bool,
    pub lengths: Lengths,
    /// CPU seconds of a stop.
    stop_s: f64,
    /// What is known of the lap that is over.
    piece: Option<Piece>,
    /// When the present lap began, and when the stay did or its last part.
    begun: Instant,
    started: Instant,
    /// Time of laps that did not count.
    cold: Duration,
}

impl<'a> Laps<'a> {
    /// Begins with a stay now, in which a stop takes so many CPU seconds.
    pub fn new(
        signals: &'a mut Signals,
        until: Option<Instant>,
        lengths: Lengths,
        stop_s: f64,
    ) -> Laps<'a> {
        Laps {
            signals,
            until,
            alone: false,
            lengths,
            stop_s,
            piece: None,
            begun: Instant::now(),
            started: Instant::now(),
            cold: Duration::ZERO,
        }
    }

    /// Whether all laps were made, and there may be more.
    pub fn goes_on(&self, stopped: &Stopped) -> bool {
        self.lengths.left == 0 && !self.signals.end_wanted && !sleeps(stopped)
    }

    /// So many accesses more, however long they take.
    pub fn once(&mut self, accesses: u64) {
        self.lengths.once(accesses);
        self.started = Instant::now();
    }
}

/// How long a lap took without its stops, of so many CPU seconds each, and whether these were so many, for new code, that this says nothing. Where there
/// is new code, by the thread's clock, as what is translated at a stop takes longer than the stop.
fn lasted(piece: &Piece, elapsed: Duration, stop_s: f64) -> (Duration, bool) {
    let little = says_little(piece, stop_s);
    let by_calls = little && 2 * piece.misses <= piece.stops;
    if piece.misses == 0 || by_calls {
        // Of calls, and of sleep in them, there would be as much in another.
        return (elapsed, false);
    }
    let own_s = piece.cpu_s - piece.stops as f64 * stop_s;
    (Duration::from_secs_f64(own_s.max(0.0)), little)
}

/// Whether it is on its way out of a call that starts over.
pub(super) fn sleeps(stopped: &Stopped) -> bool {
    stopped.regs().is_ok_and(|regs| restart_pending(&regs))
}

impl Control for Laps<'_> {
    fn wait(&mut self, running: Running) -> Result<Waited> {
        let patience = match hub::count() {
            0 | 1 => LONE_PATIENCE,
            _ => PATIENCE,
        };
        // That is for sleep, of which there is none while code is translated.
        let leave = self.started + self.cold + patience;
        let deadline = self.until.map_or(leave, |until| until.min(leave));
        Ok(match self.signals.wait(running, Some(deadline))? {
            Wait::Event(event) => Waited::Event(event),
            Wait::End(running) => Waited::User(running),
            Wait::Timeout(running) => Waited::Leave(running),
        })
    }

    fn wait_in_cache(&mut self, running: Running) -> Result<std::result::Result<Event, Running>> {
        let begun = Instant::now();
        let late = || begun.elapsed() > LONGEST;
        running.wait_near_or(|running| self.signals.wait_awake(running, NAP, late))
    }

    fn progress(&mut self, _: &mut Observer, _: &Maps) -> u64 {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        if late || self.signals.poll_end() {
            return 0;
        }
        let elapsed = self.begun.elapsed();
        let (lap, is_cold) = match self.piece.take() {
            Some(piece) => lasted(&piece, elapsed, self.stop_s),
            // Of the first one nothing else is known.
            None => (
                elapsed,
                self.lengths.over == 0 && (LAP / 2..SLOW).contains(&elapsed),
            ),
        };
        let is_cold = is_cold && self.cold < COLD;
        self.cold += if is_cold { elapsed } else { Duration::ZERO };
        self.begun = Instant::now();
        self.lengths.next(lap, is_cold)
    }

    fn piece_ended(&mut self, piece: &Piece) {
        self.piece = Some(*piece);
    }

    fn has_woken(&mut self) -> bool {
        self.alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// Accesses of the laps of a stay in code of so many a second, of which so many say nothing.
    fn stay(rate: f64, cold: Range<usize>) -> (Lengths, Vec<u64>) {
        let mut lengths = Lengths::new(LAPS, 1e9);
        let mut laps = vec![lengths.next(Duration::ZERO, false)];
        loop {
            let lap = Duration::from_secs_f64(*laps.last().unwrap() as f64 / rate);
            match lengths.next(lap, cold.contains(&laps.len())) {
                0 => return (lengths, laps),
                accesses => laps.push(accesses),
            }
        }
    }

    #[test]
    fn laps_grow_until_they_can_be_timed() {
        let (lengths, laps) = stay(1e9, 0..0);
        let grown = [10_000, 40_000, 160_000, 640_000];
        assert_eq!(laps[..4], grown);
        assert_eq!(lengths.settled, Some(4));
        let empty = laps.iter().filter(|&&accesses| accesses == EMPTY).count();
        assert_eq!(empty, EMPTY_LAPS);
        let timed = laps[4..].iter().filter(|&&accesses| accesses == 640_000);
        assert_eq!(timed.count(), LAPS);
        // A page fault each.
        let (slow, laps) = stay(1e5, 0..0);
        assert_eq!((slow.settled, laps[1]), (Some(1), EMPTY));
        assert!(laps[2..].iter().all(|&a| a == LEAST || a == EMPTY));
    }

    #[test]
    fn laps_are_as_long_as_the_thread_ran_besides_its_stops() {
        let lasted = |stops, misses, cpu_s| {
            let piece = Piece {
                accesses: 1000,
                beyond: 0,
                stops,
                misses,
                cpu_s,
                end_s: cpu_s,
                ips: [0; 2],
            };
            let (lap, is_cold) = lasted(&piece, Duration::from_millis(7), 20e-6);
            ((1e6 * lap.as_secs_f64()).round(), is_cold)
        };
        assert_eq!(lasted(5, 4, 500e-6), (400.0, false));
        assert_eq!(lasted(10, 9, 500e-6), (300.0, true));
        assert_eq!(lasted(10, 9, 150e-6), (0.0, true));
        // Calls come again, however many were new.
        assert_eq!(lasted(10, 1, 500e-6), (7000.0, false));
        // It may have slept.
        assert_eq!(lasted(1, 0, 500e-6), (7000.0, false));
    }

    #[test]
    fn laps_in_new_code_do_not_count() {
        let (known, all) = stay(1e9, 0..0);
        let (lengths, laps) = stay(1e9, 1..6);
        assert_eq!(laps[..6], [10_000; 6]);
        assert_eq!(laps[5..], all);
        assert_eq!(lengths.settled, known.settled.map(|settled| settled + 5));
        // But not for ever, where code is new all the time.
        let (_, laps) = stay(1e9, 0..usize::MAX);
        assert_eq!(laps.len(), COLD_LAPS + all.len());
        // Nor do those of next to nothing, which are to be had again.
        let (_, laps) = stay(1e9, 5..7);
        let count = |laps: &[u64], of: u64| laps.iter().filter(|&&lap| lap == of).count();
        assert_eq!(count(&laps, EMPTY), EMPTY_LAPS + 2);
        assert_eq!(count(&laps, 640_000), count(&all, 640_000));
    }
}

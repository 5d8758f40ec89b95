//! What a window took, in CPU time, and what of that its stops took.

use super::rates::Inside;
use super::recent::{keep, median};
use crate::engine::translate::window::Piece;
use std::collections::VecDeque;

/// CPU time of a window. Wall time would count the neighbours of a busy machine too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Seconds of the observed thread.
    pub thread_s: f64,
    /// Stops.
    pub stops: u64,
    /// Those among them for code that was not translated yet.
    pub misses: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, more: Cost) {
        self.thread_s += more.thread_s;
        self.stops += more.stops;
        self.misses += more.misses;
    }
}

/// CPU seconds that a stop takes on the side of the stopped thread, cold caches behind it included, before it is
/// known. (Measured, on one host: 17 to 25 us in windows of a compiler that were nearly all stops.)
const STOP_S: f64 = 18e-6;
/// CPU seconds of it that bring back what the monitor's work drove from the caches: laps of next to nothing, which tell what a stop takes, bring
/// back next to nothing. (Laps of 0.2 and of 0.75 ms by turns said 6 to 28 us, 16 on the mean of six programs; stops for new code up to 15. Without
/// it the shorter of these laps were 3 to 16 % too slow.)
const REFILL_S: f64 = 14e-6;
/// The same of a stop for new code, which is cold everywhere when it is executed. (Measured: 20 to 80 us in windows of a
/// chess program.)
const MISS_S: f64 = 50e-6;
/// Accesses for each stop of a turn up to which they take next to nothing beside it.
const BARE_ACCESSES: u64 = 100;
/// Part of a window's time that its code must be left with to say something.
const LEAST_PART: f64 = 0.6;
/// Pieces of a window that tell stops and accesses apart, and by how many times the long ones are longer than the short ones.
const ENOUGH_PIECES: usize = 12;
const CONTRAST: f64 = 2.0;
/// Accesses up to which a lap is an empty one, and how many laps of both kinds it takes.
const EMPTY_LAP: u64 = 5_000;
const LAPS_ENOUGH: usize = 2;
/// Windows whose stops are kept: the median is believed.
const KEPT: usize = 25;

/// What a stop costs the observed threads of a process, and an access in the code cache, learnt as the run goes on. From one window
/// at a time: in another one accesses may take a hundred times as long, and would pass for stops.
#[derive(Debug, Default)]
pub struct Stops {
    /// Seconds of a stop and of an access, by windows.
    windows: VecDeque<(f64, f64)>,
    /// Seconds of a stop where nothing but accesses is counted, by windows that were timed.
    timed: VecDeque<f64>,
    /// Seconds of a stop, by turns of little else.
    bare: VecDeque<f64>,
    /// Instructions executed for each of the program's own where accesses were learnt.
    expansion: f64,
}

impl Stops {
    /// Learns from the pieces of a window. (One that keeps every record has too few: what laps say stands in until there are others.)
    pub fn learn(&mut self, mut pieces: Vec<Piece>, expansion: f64) {
        pieces.retain(|piece| piece.stops == 1);
        if let Some(line) = line(&mut pieces) {
            self.expansion = expansion;
            keep(&mut self.windows, KEPT, line);
        }
    }

    /// Learns from long and short laps beside a window.
    pub fn learn_timed(&mut self, laps: &[Piece]) {
        let one_stop = laps.iter().filter(|lap| lap.stops == 1);
        let (empty, long): (Vec<&Piece>, Vec<&Piece>) =
            one_stop.partition(|lap| lap.accesses < EMPTY_LAP);
        if empty.len().min(long.len()) < LAPS_ENOUGH {
            return;
        }
        if let Some((stop_s, _)) = middle(&empty).zip(middle(&long)).and_then(through) {
            keep(&mut self.timed, KEPT, stop_s);
        }
    }

    /// Learns from a thread's turn if it was nearly all stops, none of them for new code: one that found nothing to do.
    pub fn learn_bare(&mut self, turn: Cost, accesses: u64) {
        if turn.misses == 0 && turn.stops > 0 && accesses < BARE_ACCESSES * turn.stops {
            keep(&mut self.bare, KEPT, turn.thread_s / turn.stops as f64);
        }
    }

    /// CPU seconds of a stop in a window.
    pub fn seconds(&self) -> f64 {
        let windows = self.windows.iter().map(|&(stop_s, _)| stop_s);
        let bare = || median(self.bare.iter().copied());
        let known = median(windows).or_else(bare);
        known.unwrap_or_else(|| self.seconds_timed())
    }

    /// CPU seconds that a thread was in the code cache for: less than none if its stops took less than most do.
    pub fn cache_s(&self, cost: Cost) -> f64 {
        let misses_s = MISS_S.max(self.seconds()) * cost.misses as f64;
        let stops_s = self.seconds() * (cost.stops - cost.misses) as f64;
        cost.thread_s - misses_s - stops_s
    }

    /// The same of one that ends a lap.
    pub fn seconds_timed(&self) -> f64 {
        median(self.timed.iter().copied()).unwrap_or(STOP_S)
    }

    /// CPU seconds by which a lap is longer for each of its stops.
    pub fn seconds_of_lap(&self) -> f64 {
        let known = median(self.timed.iter().copied());
        known.map_or(STOP_S, |stop_s| stop_s + REFILL_S)
    }

    /// How a thread ran that took `cost` for so many accesses, `inside` having been seen of the code it ran. Where
    /// stops are most of it, for code met for the first time as a rule, it says little of how fast the thread is
    /// otherwise: other windows tell.
    pub fn inside(&self, cost: Cost, accesses: u64, inside: Inside) -> Inside {
        let cache_s = self.cache_s(cost);
        let mostly_stops = cache_s < LEAST_PART * cost.thread_s;
        match median(self.windows.iter().map(|&(_, access_s)| access_s)) {
            Some(access_s) if mostly_stops => Inside {
                per_second: 1.0 / access_s,
                expansion: self.expansion,
                of_others: true,
                ..inside
            },
            _ => Inside {
                per_second: accesses as f64 / cache_s.max(0.2 * cost.thread_s).max(1e-6),
                mostly_stops,
                ..inside
            },
        }
    }
}

/// Seconds of a stop and of an access: the line through the medians of the short and of the long pieces, which those that
/// something else happened in do not move.
fn line(pieces: &mut [Piece]) -> Option<(f64, f64)> {
    if pieces.len() < ENOUGH_PIECES {
        return None;
    }
    pieces.sort_unstable_by_key(|piece| piece.accesses);
    let third = pieces.len() / 3;
    let pieces: Vec<&Piece> = pieces.iter().collect();
    let (short, long) = (&pieces[..third], &pieces[pieces.len() - third..]);
    middle(short).zip(middle(long)).and_then(through)
}

/// Accesses and seconds of the middle one.
fn middle(pieces: &[&Piece]) -> Option<(f64, f64)> {
    let of = |what: fn(&Piece) -> f64| median(pieces.iter().map(|piece| what(piece)));
    Some((of(|p| p.accesses as f64)?, of(|p| p.cpu_s)?))
}

/// Seconds of a stop and of an access by short and long pieces, if these differ enough.
fn through((short, long): ((f64, f64), (f64, f64))) -> Option<(f64, f64)> {
    if long.0 < CONTRAST * short.0.max(1.0) {
        return None;
    }
    let slope = (long.1 - short.1) / (long.0 - short.0);
    let stop_s = short.1 - slope * short.0;
    (slope > 0.0 && stop_s > 0.0).then_some((stop_s, slope))
}

/// CPU seconds of the calling thread (clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`).
pub fn monitor_cpu_s() -> f64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::super::rates::Begins;
    use super::*;

    #[test]
    fn stops_and_accesses_are_told_apart() {
        let piece = |n: u64| Piece {
            stops: 1,
            misses: 0,
            accesses: 500 + n * 1700 % 9000,
            // One in seven was held up by something else.
            cpu_s: 20e-6
                + (500 + n * 1700 % 9000) as f64 * 5e-9
                + if n.is_multiple_of(7) { 1e-3 } else { 0.0 },
            end_s: 0.0,
            ips: [0; 2],
            beyond: 0,
        };
        let seen = Inside {
            per_second: 0.0,
            begins: Begins::Never,
            expansion: 1.2,
            calls: 0.0,
            together: false,
            mostly_stops: false,
            of_others: false,
        };
        let cost = |thread_s| Cost {
            thread_s,
            stops: 20,
            misses: 0,
        };
        let mut stops = Stops::default();
        assert!(stops.inside(cost(0.5e-3), 20_000, seen).mostly_stops);
        stops.learn((0..40).map(piece).collect(), 3.0);
        assert!((stops.seconds() - 20e-6).abs() < 2e-6, "{stops:?}");
        let inside = stops.inside(cost(2e-3), 100_000, seen);
        assert!((inside.per_second / (1e5 / 1.6e-3) - 1.0).abs() < 0.05);
        assert!(!inside.mostly_stops);
        let inside = stops.inside(cost(0.5e-3), 20_000, seen);
        assert!((inside.per_second / 2e8 - 1.0).abs() < 0.1, "{inside:?}");
        assert_eq!(inside.expansion, 3.0);
        // Alike in length, they tell nothing.
        let before = stops.seconds();
        stops.learn(vec![piece(1); 400], 3.0);
        assert_eq!(stops.seconds(), before);
    }

    /// Long and short laps in code of any speed say the same of the stops between them.
    #[test]
    fn stops_are_told_within_one_code() {
        let mut stops = Stops::default();
        for turn in 0..20 {
            let access_s = if turn % 2 == 0 { 0.3e-9 } else { 70e-9 };
            let lap = |accesses: u64| Piece {
                stops: 1,
                misses: 0,
                accesses,
                cpu_s: 12e-6 + accesses as f64 * access_s,
                end_s: 0.0,
                ips: [0; 2],
                beyond: 0,
            };
            stops.learn_timed(
                &[
                    20_000, 500, 20_004, 500, 20_001, 500, 20_000, 20_000, 20_000, 20_000,
                ]
                .map(lap),
            );
        }
        assert!((stops.seconds_timed() - 12e-6).abs() < 1e-6, "{stops:?}");
        // Nothing else is known of windows.
        assert_eq!(stops.seconds(), stops.seconds_timed());
    }
}

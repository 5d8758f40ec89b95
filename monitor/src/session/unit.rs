//! Which instructions' executions tell the native rate, for how long they are counted, and what they tell.
//!
//! Executions of an instruction are counted natively for a while beside a window, and held against what the window before
//! and the window after that stretch make one expect: their executions per access, at the native rate guessed of
//! the first. The ratio of the sums over the run is how much faster the program is than all guesses say. Which
//! instruction that is has been settled before the first of the two windows: one chosen for what a window shows has more
//! of it there than elsewhere.

use super::engine::Engine;
use super::rate::Count;

/// Instructions tracked.
const TRACKED: usize = 24;
/// Accesses between two executions of one at least, as far as a window shows: natively a count costs microseconds.
const LEAST_BETWEEN: u64 = 30_000;
/// What a window said of an instruction counts so much less with every later window.
const FADES: f64 = 0.9;
/// Executions a window, faded, below which another instruction is tried instead.
const LEAST: f64 = 0.05;
/// Executions aimed at in one native stretch, and part of it that counting them may cost.
const HITS: f64 = 20.0;
const COST_SHARE: f64 = 0.4;
/// Shortest native stretch in seconds, and the longest.
const LEAST_S: f64 = 0.001;
const MOST_S: f64 = 0.05;
/// They are at most this share of the run so far.
const SHARE: f64 = 0.05;
/// Windows without anything to count after which one looks at every address again.
const BLIND: u32 = 9;
/// Executions come in bursts: variances are this many times those of independent ones. (Guessed.)
const CLUSTERING: f64 = 2.0;

#[derive(Debug)]
struct Tracked {
    ip: u64,
    /// In windows, faded.
    executions: f64,
    accesses: f64,
    windows: f64,
    stretches: u32,
}

impl Tracked {
    /// Executions per access.
    fn frequency(&self) -> f64 {
        self.executions / self.accesses.max(1.0)
    }
}

/// What windows say of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    ip: u64,
    executions: u64,
    accesses: u64,
}

/// A native stretch between two windows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    hits: f64,
    /// Accesses expected in it by the guess.
    accesses: f64,
    beside: Seen,
}

/// How much faster the program is natively than windows make one guess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// The factor.
    pub value: f64,
    /// Standard error of its logarithm.
    pub error: f64,
}

/// The instructions of one program image.
#[derive(Debug, Default)]
pub struct Units {
    tracked: Vec<Tracked>,
    /// The instruction settled on for the next window and the stretch after it, and its executions per access so far.
    next: Option<(u64, f64)>,
    /// What the last window said of the one settled on for it.
    last: Option<(Seen, f64)>,
    /// Whether anybody asks.
    wanted: bool,
    /// The stretch after the last window, and all whose other window has come too.
    open: Option<Stretch>,
    stretches: Vec<Stretch>,
    /// Windows since something was counted.
    without: u32,
}

impl Units {
    /// Books a window with so many accesses of the thread whose executions it counted, and prepares the engine for the next.
    pub fn book(&mut self, engine: &mut Engine, accesses: u64) {
        if !self.wanted {
            // No breakpoint is to be had, or this is the first window.
            return engine.count_executions(Vec::new());
        }
        let all: Vec<u64> = self.tracked.iter().map(|t| t.ip).collect();
        let (open, settled) = (self.open.take(), self.next.take());
        self.last = None;
        let Some(counts) = engine.executions(&all).filter(|_| accesses > 0) else {
            return;
        };
        let seen = |ip: u64| {
            Some(Seen {
                ip,
                executions: *counts.get(&ip)?,
                accesses,
            })
        };
        if let Some(mut stretch) = open {
            // Where it came too often to be counted to the end, the window before has to do.
            if let Some(after) = seen(stretch.beside.ip) {
                stretch.beside.executions += after.executions;
                stretch.beside.accesses += after.accesses;
            }
            self.stretches.push(stretch);
        }
        self.last = settled.and_then(|(ip, often)| Some((seen(ip)?, often)));
        // What turned out to come too often is not counted to its end.
        self.tracked.retain(|t| counts.contains_key(&t.ip));
        for tracked in &mut self.tracked {
            tracked.executions = FADES * tracked.executions + counts[&tracked.ip] as f64;
            tracked.accesses = FADES * tracked.accesses + accesses as f64;
            tracked.windows = FADES * tracked.windows + 1.0;
        }
        self.tracked
            .retain(|t| t.windows < 5.0 || t.executions > LEAST * t.windows);
        self.next = self.settle();
        self.without += 1;
        if self.without > BLIND {
            self.without = 0;
            engine.look_everywhere();
        } else if self.fill(engine, accesses) || engine.looked_everywhere() {
            engine.count_executions(self.tracked.iter().map(|t| t.ip).collect());
        }
    }

    /// All in turn, of those that are executed at all.
    fn settle(&mut self) -> Option<(u64, f64)> {
        let executed = self.tracked.iter_mut().filter(|t| t.executions > 0.0);
        let next = executed.min_by_key(|t| (t.stretches, (1e9 / t.frequency()) as u64))?;
        next.stretches += 1;
        Some((next.ip, next.frequency()))
    }

    /// Takes on instructions that the last window executed seldom. Whether there are others to track now.
    fn fill(&mut self, engine: &Engine, accesses: u64) -> bool {
        let vacant = TRACKED.saturating_sub(self.tracked.len());
        if vacant == 0 || accesses == 0 {
            return false;
        }
        let before = self.tracked.len();
        for ip in engine.seldom((accesses / LEAST_BETWEEN).max(1), vacant) {
            if self.tracked.iter().all(|t| t.ip != ip) {
                self.tracked.push(Tracked {
                    ip,
                    executions: 0.0,
                    accesses: 0.0,
                    windows: 0.0,
                    stretches: 0,
                });
            }
        }
        before != self.tracked.len()
    }

    /// The instruction to count beside the last window, which makes one guess `rate` accesses per second natively, and
    /// for how many seconds, `elapsed_s` into the run; a hit costs `hit_s`.
    pub fn pick(&mut self, rate: f64, hit_s: f64, elapsed_s: f64) -> Option<(u64, f64)> {
        self.wanted = true;
        let (last, often) = self.last?;
        let often = often * rate;
        let most_s = (SHARE * elapsed_s).clamp(LEAST_S, MOST_S);
        let fit = often * hit_s < COST_SHARE && often * most_s > 0.1 * HITS;
        fit.then(|| (last.ip, (HITS / often).clamp(LEAST_S, most_s)))
    }

    /// What was counted beside the last window, which made one guess `rate` accesses per second.
    pub fn counted(&mut self, rate: f64, count: &Count) {
        self.without = 0;
        self.open = self.last.take().map(|(beside, _)| Stretch {
            hits: count.hits,
            accesses: rate * count.native_s,
            beside,
        });
    }

    /// By all that was counted up to the last window.
    pub fn speedup(&self) -> Option<Speedup> {
        let (mut hits, mut expected, mut variance) = (0.0, 0.0, 0.0);
        for stretch in &self.stretches {
            let each = stretch.accesses / stretch.beside.accesses as f64;
            hits += stretch.hits;
            expected += each * stretch.beside.executions as f64;
            variance += each * each * stretch.beside.executions as f64;
        }
        (hits > 0.0 && expected > 0.0).then(|| Speedup {
            value: hits / expected,
            error: (CLUSTERING * (1.0 / hits + variance / (expected * expected))).sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice as fast as guessed; the instruction comes in one of two phases only.
    #[test]
    fn all_that_is_counted_tells_the_speed() {
        let mut units = Units::default();
        assert_eq!(units.speedup(), None);
        for window in 0..60u64 {
            units.tracked = vec![Tracked {
                ip: 7,
                executions: 10.0,
                accesses: 1e6,
                windows: 10.0,
                stretches: 0,
            }];
            // What `book` does of a window.
            let seen = Seen {
                ip: 7,
                executions: if window / 10 % 2 == 0 { window % 5 } else { 0 },
                accesses: 200_000,
            };
            if let Some(mut stretch) = units.open.take() {
                stretch.beside.executions += seen.executions;
                stretch.beside.accesses += seen.accesses;
                units.stretches.push(stretch);
            }
            units.last = Some((seen, 1e-5));
            let (ip, seconds) = units.pick(5e8, 10e-6, 10.0).expect("it is fit");
            assert!(ip == 7 && (LEAST_S..=MOST_S).contains(&seconds));
            let hits = if window / 10 % 2 == 0 {
                1e9 * 1e-5 * seconds
            } else {
                0.0
            };
            let count = Count {
                hits,
                native_s: seconds,
                cost_s: 0.0,
            };
            units.counted(5e8, &count);
        }
        let found = units.speedup().expect("counted");
        assert!((found.value.ln() - 2f64.ln()).abs() < 2.0 * found.error);
        assert!(found.error < 0.25, "{found:?}");
        // At the beginning of a run no stretch is long enough.
        units.last = Some((Seen::default(), 1e-7));
        assert_eq!(units.pick(5e8, 10e-6, 0.001), None);
    }
}

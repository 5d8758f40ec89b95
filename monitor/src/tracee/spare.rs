//! Whether a processor is left that nobody else wants.
//!
//! The number of runnable threads that proc_loadavg(5) gives does not tell: with one busy program on two processors Linux 6.18 was seen to say three
//! to five. So processors' idle times are asked, while the program runs natively: in windows most of its threads are held.

use super::near;
use nix::sched::CpuSet;
use std::time::{Duration, Instant};

/// Shortest time between two looks, and the same as a multiple of what the last one took: hosts of many processors
/// answer slowly.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_COSTS: u32 = 20;
/// Native time below which nothing is told, and from which on older looks count half.
const LEAST: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(200);
/// Share of a processor that must have been idle, or been used by ourselves meanwhile.
const ENOUGH: f64 = 0.7;

/// The idle time of the processors that the calling thread may use.
#[derive(Debug, Default)]
pub struct Spare {
    last: Option<Look>,
    /// Seconds that were looked at, and spare ones of them.
    over_s: f64,
    spare_s: f64,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    /// The next one is no sooner.
    next: Instant,
    idle_s: f64,
    own: Duration,
}

impl Spare {
    /// What passes until the next look is not to be counted.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Looks if it is time to, and returns whether it did. The calling thread has spent `own` of the run on what it does only where there
    /// is a processor to spare.
    pub fn look(&mut self, own: Duration) -> bool {
        let at = Instant::now();
        if self.last.as_ref().is_some_and(|last| at < last.next) {
            return false;
        }
        if let Some(idle_s) = near::allowed().and_then(|set| idle_s(&set)) {
            let next = at + LOOK.max(LOOK_COSTS * at.elapsed());
            self.add(Look {
                at,
                next,
                idle_s,
                own,
            });
        }
        true
    }

    fn add(&mut self, look: Look) {
        if let Some(last) = &self.last {
            if self.over_s > LONG.as_secs_f64() {
                self.over_s *= 0.5;
                self.spare_s *= 0.5;
            }
            self.over_s += (look.at - last.at).as_secs_f64();
            self.spare_s += (look.idle_s - last.idle_s).max(0.0);
            self.spare_s += look.own.saturating_sub(last.own).as_secs_f64();
        }
        self.last = Some(look);
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.over_s >= LEAST.as_secs_f64() && self.spare_s >= ENOUGH * self.over_s
    }

    /// How long there is nothing to look at.
    pub fn until_next(&self) -> Duration {
        let next = |last: &Look| last.next.saturating_duration_since(Instant::now());
        // Where idle times are not to be had there is none.
        self.last.as_ref().map_or(Duration::MAX, next)
    }
}

/// Seconds for which these processors have been idle together (proc_stat(5)).
fn idle_s(set: &CpuSet) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    idle_ticks(&text, set).map(|ticks| ticks as f64 / super::procinfo::clock_ticks())
}

fn idle_ticks(text: &str, set: &CpuSet) -> Option<u64> {
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu: usize = words.next()?.parse().ok()?;
        let idle = words.nth(3)?.parse::<u64>().ok()?;
        set.is_set(cpu).unwrap_or(false).then_some(idle)
    };
    text.lines().filter_map(of_line).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times_of_the_processors_asked_for_are_told() {
        let text = "cpu  9 9 9 100 9 0 9 9 0 0\ncpu0 1 2 3 40 5 0 0 0 0 0\ncpu10 1 2 3 60 5 0 0 0 0 0\nintr 7\n";
        let of = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|&cpu| set.set(cpu).unwrap());
            idle_ticks(text, &set)
        };
        assert_eq!(of(&[0]), Some(40));
        assert_eq!(of(&[0, 1, 10]), Some(100));
        assert_eq!(of(&[3]), None);
    }

    #[test]
    fn a_processor_is_spare_that_is_idle_or_used_by_us_alone() {
        let start = Instant::now();
        // Of each 20 ms, with so many idle on two processors and so many for us.
        let run = |spare: &mut Spare, looks: u32, idle_ms: u32, own_ms: u32| {
            spare.pause();
            for n in 0..=looks {
                let at = start + n * LOOK;
                let idle_s = 1e-3 * f64::from(n * idle_ms);
                let own = n * Duration::from_millis(own_ms.into());
                let next = at;
                spare.add(Look {
                    at,
                    next,
                    idle_s,
                    own,
                });
            }
            spare.is_there()
        };
        let mut spare = Spare::default();
        assert!(!run(&mut spare, 2, 20, 0), "too soon");
        assert!(run(&mut spare, 1, 20, 0));
        assert!(run(&mut spare, 10, 5, 14), "it is our own work");
        assert!(!run(&mut spare, 20, 5, 2), "others work");
        assert!(run(&mut spare, 20, 21, 0), "they do no more");
    }
}

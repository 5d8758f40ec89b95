//! Whether a processor is left that nobody else wants.
//!
//! The number of runnable threads that proc_loadavg(5) gives does not tell: with one busy program on two processors Linux 6.18 was seen to say three
//! to five. So processors' idle times are asked, while the program runs natively: in windows most of its threads are held.

use super::{near, procinfo};
use nix::sched::CpuSet;
use std::num::NonZero;
use std::time::{Duration, Instant};

/// Shortest time between two looks, and the same as a multiple of what the last one took: hosts of many processors
/// answer slowly.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_COSTS: u32 = 20;
/// Native time below which nothing is told, and from which on older looks count half.
const LEAST: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(200);
/// Share of a processor that must have been idle, or been used by ourselves meanwhile; and for each one there is: many that are nearly
/// always busy leave none.
const ENOUGH: f64 = 0.7;
const ENOUGH_OF_EACH: f64 = 0.02;

/// The idle time of the processors that the calling thread may use.
#[derive(Debug, Default)]
pub struct Spare {
    last: Option<Look>,
    /// The next look is no sooner, where idle times are to be had.
    next: Option<Instant>,
    /// Seconds that were looked at, and spare ones of them.
    over_s: f64,
    spare_s: f64,
    /// Processors, and whether fewer may be used at a time: others' idle ones are none of ours then.
    processors: usize,
    is_limited: bool,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    idle_s: f64,
    own: Duration,
}

impl Spare {
    /// Nothing is known yet. To be made before the calling thread has gone to any thread of the program.
    pub fn new() -> Spare {
        let processors = near::allowed().map_or(1, |set| procinfo::count(&set));
        // A group of processes may have fewer (cgroups(7)).
        let quota = std::thread::available_parallelism().map_or(1, NonZero::get);
        Spare {
            processors,
            is_limited: quota < processors,
            ..Spare::default()
        }
    }

    /// What passes until the next look is not to be counted.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Looks if it is time to, and returns whether it did. The calling thread has used `own` of a processor for what it does only where there
    /// is one to spare.
    pub fn look(&mut self, own: Duration) -> bool {
        let at = Instant::now();
        if self.next.is_some_and(|next| at < next) {
            return false;
        }
        self.next = None;
        self.last = near::allowed().and_then(|set| {
            let look = Look {
                at,
                idle_s: idle_s(&set)?,
                own,
            };
            self.next = Some(at + LOOK.max(LOOK_COSTS * at.elapsed()));
            self.add(&look);
            Some(look)
        });
        true
    }

    fn add(&mut self, look: &Look) {
        if let Some(last) = &self.last {
            if self.over_s > LONG.as_secs_f64() {
                self.over_s *= 0.5;
                self.spare_s *= 0.5;
            }
            self.over_s += (look.at - last.at).as_secs_f64();
            self.spare_s += (look.idle_s - last.idle_s).max(0.0);
            self.spare_s += look.own.saturating_sub(last.own).as_secs_f64();
        }
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        let enough = ENOUGH + ENOUGH_OF_EACH * self.processors as f64;
        !self.is_limited
            && self.over_s >= LEAST.as_secs_f64()
            && self.spare_s >= enough * self.over_s
    }

    /// How long there is nothing to look at.
    pub fn until_next(&self) -> Duration {
        // Where idle times are not to be had there is none.
        self.next.map_or(Duration::MAX, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }
}

/// Seconds for which these processors have been idle together (proc_stat(5)).
fn idle_s(set: &CpuSet) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    idle_ticks(&text, set).map(|ticks| ticks as f64 / procinfo::clock_ticks())
}

fn idle_ticks(text: &str, set: &CpuSet) -> Option<u64> {
    let of_line = |line: &str| {
        let numbered = line.strip_prefix("cpu")?;
        let is_one = numbered.starts_with(|c: char| c.is_ascii_digit());
        let mut words = numbered.split_ascii_whitespace().filter(|_| is_one);
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
        // The line of all of them.
        assert_eq!(of(&[9]), None);
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
                let look = Look { at, idle_s, own };
                spare.add(&look);
                spare.last = Some(look);
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

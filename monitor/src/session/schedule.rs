//! When to open a window and how long to keep it: a pure account of time spent.
//!
//! Windows may add `overhead` of the wall time, and some tenths of a second (`FLOOR_S`) in the first seconds of any run, so that short ones have some,
//! too. Most windows are short and spread evenly; now and then a long one, growing with the run,
//! sees the long reuse distances that decide large caches.

use super::spread::FULL_PERIOD;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Seconds that windows may add to a run besides their share of it: short runs would yield nothing
/// otherwise. They are granted as the run goes on: part of them soon, as it may soon be over, the rest later, because windows
/// at the very beginning pay for translating code that is run once.
const FLOOR_S: f64 = 0.24;
/// That part, and the time constants of both, in seconds. (Chosen by 57 runs of 19 programs of 0.03 to 0.6 s: with all of 0.2 s granted later, seven had no window and
/// half of them one at the most; with this, five, for 0.05 s more. A program that was there before us is in no hurry.)
const SOON: f64 = 0.33;
const SOON_S: f64 = 0.1;
const LATER_S: f64 = 1.5;
/// Part of the allowance that windows spend; the rest covers start-up, stops and what windows do to caches and predictors of the
/// program. (Chosen when threads were still moved between processors behind each window: with 0.4 sqlite took 1.12 times as long and two others 1.11
/// and 1.13, with this 1.07, 1.10 and 1.11; curves of seven programs were off by 0.72 and 0.79 points on the mean.)
const SPEND: f64 = 0.25;
/// Added seconds of a short window.
const SHORT_S: f64 = 0.003;
/// Short windows between two long ones.
const SHORTS_PER_LONG: u32 = 6;
/// A long window takes this share of all that windows may add to the run so far, every so many-th of them more.
const LONG_SHARE: f64 = 0.05;
const LONGS_PER_LONGEST: u32 = 4;
const LONGEST_SHARE: f64 = 0.2;
/// Most that is believed to go with a window.
const MOST_BESIDE_S: f64 = 0.02;
/// Weight of the last short window in what one adds on the mean: where code is met for the first time that is more than planned.
const USUAL: f64 = 0.1;
/// Windows whose cost the pace makes up for where more or less was spent than granted.
const CYCLE: f64 = 7.0;
/// How much sooner and later than on the mean the next window may come for that, logarithms of factors: windows behind long
/// gaps would stand for too much of the run.
const HURRY: (f64, f64) = (-0.7, 1.2);
/// Shortest native stretch between windows, in seconds.
const LEAST_GAP_S: f64 = 0.004;
/// Longest native stretch between windows, in seconds.
const LONGEST_GAP_S: f64 = 3600.0;
/// Windows are at least this fraction of the run apart, so that a long run does not collect ever more.
const GAP_FRACTION: f64 = 1.0 / 400.0;
/// Fewest accesses of a window: in the code cache, and when stepping.
const LEAST_ACCESSES: f64 = 100e3;
const LEAST_STEPPED: f64 = 1000.0;
/// Most accesses of a window.
const MOST_ACCESSES: f64 = 2e9;
/// Shortest sample period, in references; and where every record is kept anyway.
const DENSEST_PERIOD: f64 = 50.0;
const DENSEST_KEPT: f64 = 10.0;
/// Longest one of short windows: from some hundred more on samples come in clusters, and not every record is kept. To keep every one
/// makes an access up to twice as dear, and gives several times as many samples, independent of each other, because they need no stops. (Where
/// one in 3000 was drawn, z3 gave 3,000 samples in 27 windows and `bwa` 6,900 in 52; where one in 300, 19,700 in 22 and 36,400 in 40.)
const DENSE_PERIOD: f64 = 500.0;
/// Where accesses are dear, more samples of a window than this tell less than more windows do, which differ more from each other than the
/// samples of one.
const DENSE_SAMPLES: f64 = 600.0;
/// Until there are so many in all, short windows have more each, so that there is something to look at soon. (Three runs each of four programs on a
/// busy machine, with 1000 and with these: a python 0.9 to 1.2 and 0.7 to 0.8 s, `bwa` 1.6 to 1.9 and 0.9 to 1.3, z3 1.1 to 5.9 and 0.8 to 1.1, a chess
/// program 2.7 to 3.8 and 1.6 to 2.2.)
const FIRST: f64 = 10_000.0;
const FIRST_SAMPLES: f64 = 1700.0;
/// Weight of the last short window in how much of their accesses they come to. (Where code is new all the time they come to a quarter, and those of a
/// compiler for 10 s had 4,600 to 7,600 samples in all when that was not asked.)
const CAME_TO: f64 = 0.3;
/// Samples of a window beyond twice as many as are planned: most of them are then of what there was more of.
const SPARE_SAMPLES: u64 = 5_000;
/// Short windows that are all sampled so densely. Of later ones one in so many is, or profiles of long runs would be large; the others are sampled
/// as sparsely as long ones. (First touches are seen in dense windows only.)
const DENSE_WINDOWS: u32 = 200;
const DENSE_ONE_IN: u32 = 4;
/// Shortest period otherwise, and most samples aimed at in a window. A cluster of samples costs a stop or two.
const SPARSE_PERIOD: f64 = 3000.0;
const SHORT_SAMPLES: f64 = 384.0;
const LONG_SAMPLES: f64 = 4000.0;
/// Seconds that a sample adds to a window where every record is kept, and where samples are sparse. (Measured: 1.3 to 1.8 us on mcf,
/// z3 and `bwa`; 27 to 45 us on xz, mcf and python.)
const DENSE_S: f64 = 1.5e-6;
const SPARSE_S: f64 = 30e-6;
/// Share of a window's time that samples may take where it is dear for other reasons, as in code met for the first time: there
/// they are taken as densely as that allows; and of the first short windows.
const SAMPLES_SHARE: f64 = 0.25;
const FIRST_SHARE: f64 = 0.5;
/// In code met for the first time a window takes several times what it was meant to, as a target that is not translated yet
/// takes more than this many seconds, but no more than that; and the fewest of them. (Guessed.)
const MISS_S: f64 = 20e-6;
const LEAST_MISSES: f64 = 200.0;
/// A window may last this many times what it may add, and this many seconds in any case: where code has become slower
/// than it was in the windows before. (Guessed.)
const TIMES: f64 = 6.0;
const LEAST_TIME_S: f64 = 0.02;
/// The same where windows are stepped: they shall come to their fewest accesses, of a hundred instructions a millisecond.
const LEAST_TIME_STEPPED_S: f64 = 0.3;
/// Where so many short windows in a row were cut short, which is so in all of a large program that executes new code all the time, windows get
/// so many times as much: they are fewer then, and the longer one is the less of it is new. (In a compiler for 15 s, three and four runs each at
/// the same cost: 28 windows of 200 targets had 16,000 accesses on the mean, and curves were off by 0.3 to 1.7 points; 18 of 500 had
/// 25,000, and 0.1 to 0.4.)
const ALWAYS_NEW: u32 = 4;
const PATIENCE: f64 = 2.5;

/// What the next window shall be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Accesses after which it closes.
    pub accesses: u64,
    /// One sample in this many references.
    pub period: u64,
    /// Targets that are not translated yet after which it closes.
    pub misses: u64,
    /// Time after which it closes.
    pub time: Duration,
    /// Whether all of its accesses are looked at anyway, so that first touches of lines are seen.
    pub looks_at_all: bool,
}

impl Plan {
    /// Of a run that is observed as a whole.
    pub const WHOLE: Plan = Plan {
        accesses: u64::MAX,
        period: FULL_PERIOD,
        misses: u64::MAX,
        time: Duration::MAX,
        looks_at_all: false,
    };

    /// Most samples that are taken: one instruction (`repne scasb`) may make a hundred times the accesses planned, and would have a sample for
    /// each period of them.
    pub fn most_samples(&self) -> u64 {
        let planned = self.accesses / self.period.max(1);
        planned.saturating_mul(2).saturating_add(SPARE_SAMPLES)
    }
}

/// What a window has added to the run, in seconds of processors.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Its accesses.
    pub accesses: u64,
    /// In the window.
    pub inside_s: f64,
    /// With all that goes with one: stopping the thread, and timing it.
    pub all_s: f64,
}

/// How densely windows are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampling {
    /// As densely as there are accesses: they are few.
    Full,
    /// Short windows densely, the others sparsely.
    Dense,
    /// All of them sparsely.
    Sparse,
}

/// Account of the run so far.
#[derive(Debug)]
pub struct Schedule {
    overhead: f64,
    /// Part of the floor that is granted soon.
    soon: f64,
    random: SmallRng,
    /// Seconds the windows have added, as far as known.
    spent_s: f64,
    /// Added seconds per access inside short windows and inside long ones, as last seen.
    short_access_s: f64,
    long_access_s: Option<f64>,
    /// Whether the last window planned is a long one.
    long: bool,
    /// Seconds that go with a window and do not depend on its length, as last seen.
    beside_s: f64,
    /// Seconds that a short window has added on the mean, lately.
    usual_short_s: f64,
    /// Accesses of the last plan; short windows in a row that came to less than half of theirs.
    planned: f64,
    cut_short: u32,
    /// Part of the accesses planned that short windows come to.
    reached: f64,
    least_accesses: f64,
    least_time_s: f64,
    sampling: Sampling,
    /// Seconds from one window to the next, on the mean.
    gap_s: f64,
    /// Windows since the last long one; short and long ones so far.
    turn: u32,
    shorts: u32,
    longs: u32,
    /// Sample period of the last plan, and samples so far, about.
    period: f64,
    sampled: f64,
}

impl Schedule {
    /// An account for windows that may add `overhead` (0.1: 10 %) of wall time.
    pub fn new(overhead: f64, seed: u64) -> Schedule {
        Schedule {
            overhead,
            soon: SOON,
            random: SmallRng::seed_from_u64(seed ^ 0x5ced),
            spent_s: 0.0,
            // Guessed for the first window, which pays for translating its code.
            short_access_s: 20e-9,
            long_access_s: None,
            long: false,
            beside_s: 1e-3,
            usual_short_s: SHORT_S,
            planned: 0.0,
            cut_short: 0,
            reached: 1.0,
            least_accesses: LEAST_ACCESSES,
            least_time_s: LEAST_TIME_S,
            sampling: Sampling::Dense,
            gap_s: LEAST_GAP_S,
            turn: 0,
            shorts: 0,
            longs: 0,
            period: DENSE_PERIOD,
            sampled: 0.0,
        }
    }

    /// The same for windows of single steps.
    pub fn stepping(overhead: f64, seed: u64) -> Schedule {
        Schedule {
            // Windows cost much more than they are taken to.
            soon: 0.0,
            short_access_s: 30e-6,
            least_accesses: LEAST_STEPPED,
            least_time_s: LEAST_TIME_STEPPED_S,
            sampling: Sampling::Full,
            ..Self::new(overhead, seed)
        }
    }

    /// The same for windows in which each sample costs an interrupt and page faults.
    pub fn counting(overhead: f64, seed: u64) -> Schedule {
        Schedule {
            soon: 0.0,
            sampling: Sampling::Sparse,
            ..Self::new(overhead, seed)
        }
    }

    /// The program has been running for a while, and others may wait for it: nothing is hurried.
    pub fn begin_gently(&mut self) {
        self.soon = 0.0;
    }

    /// Seconds that windows may have added after so many, and by how many a second that grows.
    fn allowance(&self, elapsed_s: f64) -> (f64, f64) {
        let floor_s = FLOOR_S * (self.overhead / 0.1).min(1.0);
        let mut allowed = (SPEND * self.overhead * elapsed_s, SPEND * self.overhead);
        for (part, within_s) in [(self.soon, SOON_S), (1.0 - self.soon, LATER_S)] {
            let to_come_s = part * floor_s * (-elapsed_s / within_s).exp();
            allowed.0 += part * floor_s - to_come_s;
            allowed.1 += to_come_s / within_s;
        }
        allowed
    }

    /// Added seconds of a long window.
    fn long_s(&self, elapsed_s: f64, share: f64) -> f64 {
        (share * self.allowance(elapsed_s).0).max(2.0 * SHORT_S)
    }

    /// Added seconds of a window on the mean.
    fn mean_s(&self, elapsed_s: f64) -> f64 {
        let (longs, shorts) = (f64::from(LONGS_PER_LONGEST), f64::from(SHORTS_PER_LONG));
        let all = longs * shorts * self.usual_short_s.max(SHORT_S)
            + (longs - 1.0) * self.long_s(elapsed_s, LONG_SHARE)
            + self.long_s(elapsed_s, LONGEST_SHARE);
        self.beside_s + all / (longs * (shorts + 1.0))
    }

    /// Seconds to run natively before the next window, at `elapsed_s` seconds into the run; random, so that windows do
    /// not fall into step with the program, and the same whatever the next window is to be: it stands for them. (One that is sought may come
    /// sooner, and stands for none of it.)
    pub fn gap_s(&mut self, elapsed_s: f64) -> f64 {
        let (allowed_s, granted) = self.allowance(elapsed_s);
        let mean_s = self.mean_s(elapsed_s);
        let owed = (self.spent_s - allowed_s) / (CYCLE * mean_s);
        let least = LEAST_GAP_S.max(GAP_FRACTION * elapsed_s);
        let wait = mean_s / granted * owed.clamp(HURRY.0, HURRY.1).exp();
        self.gap_s = wait.max(least).min(LONGEST_GAP_S);
        self.gap_s * self.random.random_range(0.5..1.5)
    }

    /// Seconds from one window to the next, on the mean.
    pub fn usual_gap_s(&self) -> f64 {
        self.gap_s
    }

    /// Whether the next window is a long one.
    pub fn is_long_next(&self) -> bool {
        self.turn == SHORTS_PER_LONG
    }

    /// The next window, opened at `elapsed_s`.
    pub fn plan(&mut self, elapsed_s: f64) -> Plan {
        self.turn = (self.turn + 1) % (SHORTS_PER_LONG + 1);
        self.long = self.turn == 0;
        let (seconds, samples, access_s) = if self.long {
            self.longs += 1;
            let longest = self.longs % LONGS_PER_LONGEST == 1;
            let share = if longest { LONGEST_SHARE } else { LONG_SHARE };
            let access_s = self.long_access_s.unwrap_or(self.short_access_s);
            (self.long_s(elapsed_s, share), LONG_SAMPLES, access_s)
        } else {
            self.shorts += 1;
            (SHORT_S, SHORT_SAMPLES, self.short_access_s)
        };
        let accesses = (seconds / access_s).clamp(self.least_accesses, MOST_ACCESSES);
        let affordable = |sample_s: f64, share: f64| sample_s / (share * access_s);
        let few = self.shorts <= DENSE_WINDOWS || self.shorts.is_multiple_of(DENSE_ONE_IN);
        let dense = !self.long && few;
        let period = match self.sampling {
            Sampling::Full => (accesses / samples).clamp(1.0, DENSEST_PERIOD),
            Sampling::Dense if dense => {
                let (share, most) = match self.sampled < FIRST {
                    true => (FIRST_SHARE, FIRST_SAMPLES),
                    false => (SAMPLES_SHARE, DENSE_SAMPLES),
                };
                affordable(DENSE_S, share)
                    .max(self.reached * accesses / most)
                    .clamp(DENSEST_KEPT, DENSE_PERIOD)
            }
            _ => {
                let part = if self.long { 0.5 } else { 1.0 };
                (accesses / samples)
                    .max(part * SPARSE_PERIOD)
                    .min(affordable(SPARSE_S, SAMPLES_SHARE))
                    .max(DENSEST_PERIOD)
            }
        };
        (self.period, self.planned) = (period, accesses);
        let patience = match self.cut_short >= ALWAYS_NEW {
            true => PATIENCE,
            false => 1.0,
        };
        Plan {
            accesses: accesses as u64,
            period: period as u64,
            misses: (seconds / MISS_S).max(patience * LEAST_MISSES) as u64,
            time: Duration::from_secs_f64((TIMES * seconds).max(patience * self.least_time_s)),
            looks_at_all: match self.sampling {
                Sampling::Full => true,
                Sampling::Dense => dense,
                Sampling::Sparse => false,
            },
        }
    }

    /// Books a window.
    pub fn window_done(&mut self, spent: Spent) {
        self.spent_s += spent.all_s;
        self.sampled += spent.accesses as f64 / self.period;
        if spent.accesses > 500 {
            let cost = (spent.inside_s / spent.accesses as f64).clamp(2e-11, 1e-4);
            let last = match self.long {
                true => self.long_access_s.get_or_insert(cost),
                false => &mut self.short_access_s,
            };
            // The first ones pay for translation: down it goes faster than up.
            let weight = if cost < *last { 0.6 } else { 0.5 };
            *last += weight * (cost - *last);
        }
        if !self.long && self.sampling == Sampling::Dense {
            self.usual_short_s += USUAL * (spent.inside_s - self.usual_short_s);
            let reached = (spent.accesses as f64 / self.planned).min(1.0);
            self.reached += CAME_TO * (reached - self.reached);
            self.cut_short = match reached < 0.5 {
                true => self.cut_short + 1,
                false => 0,
            };
        }
        let beside_s = spent.all_s - spent.inside_s;
        self.beside_s = 0.8 * self.beside_s + 0.2 * beside_s.clamp(0.0, MOST_BESIDE_S);
    }

    /// Books any other time taken from the program.
    pub fn spend(&mut self, seconds: f64) {
        self.spent_s += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(accesses: u64, added_s: f64) -> Spent {
        Spent {
            accesses,
            inside_s: added_s,
            all_s: added_s + 1e-3,
        }
    }

    /// A program of `run_s` native seconds whose accesses cost `native` seconds and, in a window,
    /// `inside` seconds each, and a millisecond beside it: added seconds, windows, and the largest window.
    fn simulate(run_s: f64, native: f64, inside: f64, overhead: f64) -> (f64, usize, u64) {
        let mut schedule = Schedule::new(overhead, 1);
        let (mut done_s, mut wall_s, mut windows, mut largest) = (0.0, 0.0, 0, 0);
        loop {
            let gap = schedule.gap_s(wall_s);
            done_s += gap;
            wall_s += gap;
            if done_s >= run_s {
                return (wall_s - done_s, windows, largest);
            }
            let plan = schedule.plan(wall_s);
            largest = largest.max(plan.accesses);
            let n = plan.accesses as f64;
            schedule.window_done(spent(plan.accesses, n * (inside - native)));
            done_s += n * native;
            wall_s += n * inside + 1e-3;
            windows += 1;
        }
    }

    #[test]
    fn the_allowance_is_kept_and_used() {
        for (native, inside) in [(2e-10, 1.2e-9), (3e-9, 4e-9), (2e-10, 5e-9)] {
            for run_s in [2.0, 6.0, 60.0] {
                let (added, windows, _) = simulate(run_s, native, inside, 0.1);
                let (granted, _) = Schedule::new(0.1, 1).allowance(run_s);
                let used = added / granted;
                assert!(
                    (0.85..1.15).contains(&used),
                    "{run_s} s: added {added} of {granted}"
                );
                assert!(windows >= 15, "{run_s} s: {windows} windows");
            }
        }
    }

    fn after(windows: u32, access_s: f64) -> Schedule {
        let mut schedule = Schedule::new(0.1, 1);
        for _ in 0..windows {
            schedule.plan(10.0);
            schedule.window_done(spent(100_000, 1e5 * access_s));
        }
        schedule
    }

    /// A large program that executes new code all the time: each window ends long before it has the accesses planned.
    #[test]
    fn windows_that_are_always_cut_short_are_fewer_and_longer() {
        let mut schedule = Schedule::new(0.1, 1);
        let (mut wall_s, mut spent_s, mut windows) = (0.0, 0.0, 0);
        let mut last = schedule.plan(0.0);
        while wall_s < 30.0 {
            wall_s += schedule.gap_s(wall_s);
            last = schedule.plan(wall_s);
            let added_s = last.misses as f64 * 80e-6;
            schedule.window_done(Spent {
                accesses: 10 * last.misses,
                inside_s: added_s,
                all_s: added_s + 1e-3,
            });
            (wall_s, spent_s, windows) = (wall_s + added_s, spent_s + added_s, windows + 1);
        }
        assert!(last.misses as f64 >= PATIENCE * LEAST_MISSES, "{last:?}");
        let (granted, _) = schedule.allowance(wall_s);
        assert!(
            spent_s < 1.3 * granted,
            "{spent_s} of {granted} s in {windows}"
        );
        assert!(windows >= 15, "{windows}");
        // Each has as many samples as one that comes to its end.
        let samples = (10 * last.misses).checked_div(last.period);
        assert!(samples >= Some(DENSE_SAMPLES as u64 / 2), "{last:?}");
        // Until it comes to code that it knows.
        for _ in 0..14 {
            last = schedule.plan(wall_s);
            let accesses = last.accesses;
            schedule.window_done(spent(accesses, accesses as f64 * 2e-9));
        }
        let shorts = (0..7).map(|_| schedule.plan(wall_s).misses);
        assert_eq!(shorts.min(), Some(LEAST_MISSES as u64));
    }

    /// Windows that cost what they cost anyway give more samples.
    #[test]
    fn dear_windows_are_sampled_densely() {
        let period = |access_s: f64, sampled: f64| {
            let mut schedule = after(14, access_s);
            schedule.sampled = sampled;
            schedule.plan(10.0).period
        };
        assert_eq!(period(2e-9, FIRST), 500);
        assert!(period(15e-9, FIRST).abs_diff(400) < 10);
        assert_eq!(period(1e-6, FIRST), 166);
        // The first ones more so.
        assert!(period(15e-9, 0.9 * FIRST).abs_diff(200) < 10);
        assert_eq!(period(1e-6, 0.9 * FIRST), 58);
        // Long ones only if they are dear.
        let long = |access_s: f64| after(6, access_s).plan(10.0);
        assert!(long(2e-9).period >= 1500 && long(2e-9).accesses > 1_000_000);
        assert!(long(1e-6).period.abs_diff(120) < 5);
        // Whatever else a window turns out to be: no more than so many.
        let plan = after(14, 15e-9).plan(10.0);
        assert!(plan.most_samples() > 2 * plan.accesses / plan.period);
        assert!(plan.most_samples() < 10_000 && Plan::WHOLE.most_samples() > 1 << 50);
        // None where each sample costs page faults.
        let counting = Schedule::counting(0.1, 1).plan(10.0);
        assert!(counting.period >= 3000, "{counting:?}");
        // And of a long run, all of the first ones and some of the others.
        let windows = 2 * DENSE_WINDOWS;
        let mut late = after(windows - windows % 7, 15e-9);
        let plans: Vec<Plan> = (0..280).map(|_| late.plan(10.0)).collect();
        let dense = plans.iter().filter(|plan| plan.period < 1000);
        assert_eq!(dense.clone().count(), 60);
        assert!(dense.clone().all(|plan| plan.looks_at_all));
        let sparse = plans.iter().filter(|plan| plan.period >= 1000);
        assert!(sparse.clone().all(|plan| !plan.looks_at_all));
    }

    /// Where every record is kept an access costs more: long windows are not shorter for that.
    #[test]
    fn long_windows_go_by_what_long_windows_cost() {
        let mut schedule = Schedule::new(0.1, 1);
        let mut long = Vec::new();
        for turn in 1..=70 {
            let plan = schedule.plan(10.0);
            let is_long = turn % 7 == 0;
            let access_s = if is_long { 2e-9 } else { 15e-9 };
            schedule.window_done(spent(plan.accesses, plan.accesses as f64 * access_s));
            long.extend(is_long.then_some(plan.accesses as f64));
        }
        let least = LONG_SHARE * schedule.allowance(10.0).0 / 2e-9;
        assert!(long[1..].iter().all(|&n| n > 0.99 * least), "{long:?}");
    }

    /// A window of single steps is given the time that its fewest accesses take, also where a step takes thrice what it does
    /// elsewhere.
    #[test]
    fn stepped_windows_last_as_long_as_they_must() {
        let mut schedule = Schedule::stepping(0.1, 1);
        for _ in 0..30 {
            let plan = schedule.plan(1.0);
            assert!(plan.accesses as f64 >= LEAST_STEPPED, "{plan:?}");
            assert!(
                plan.time.as_secs_f64() > 3.0 * LEAST_STEPPED * 60e-6,
                "{plan:?}"
            );
        }
    }

    /// What windows stand for is the time around them: that must not depend on what they are.
    #[test]
    fn gaps_are_the_same_before_long_windows_and_short_ones() {
        let mut schedule = Schedule::new(0.1, 5);
        let mut before = [(0.0, 0); 2];
        for _ in 0..7000 {
            let gap = schedule.gap_s(10.0);
            let plan = schedule.plan(10.0);
            let long = usize::from(plan.accesses > 500_000);
            before[long] = (before[long].0 + gap, before[long].1 + 1);
        }
        let mean = before.map(|(sum, count)| sum / f64::from(count));
        assert!(
            before[0].1 > 5 * before[1].1 && before[1].1 > 500,
            "{before:?}"
        );
        assert!((mean[0] / mean[1] - 1.0).abs() < 0.05, "{mean:?}");
    }

    /// In the end as much is granted either way; at first less.
    #[test]
    fn a_program_that_has_been_running_is_not_slowed_down_at_once() {
        let new = Schedule::new(0.1, 1);
        let mut attached = Schedule::new(0.1, 1);
        attached.begin_gently();
        let ratio = |elapsed_s| new.allowance(elapsed_s).0 / attached.allowance(elapsed_s).0;
        assert!(ratio(0.1) > 3.0 && (1.0..1.02).contains(&ratio(10.0)));
        let grows = |schedule: &Schedule| {
            let (before, rate) = schedule.allowance(0.2);
            (schedule.allowance(0.2 + 1e-6).0 - before) / 1e-6 / rate
        };
        assert!((grows(&new) - 1.0).abs() < 1e-3 && (grows(&attached) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn short_runs_get_a_minimum_and_long_runs_long_windows() {
        for (run_s, least) in [(0.04, 4), (0.1, 8), (0.3, 15)] {
            let (added, windows, _) = simulate(run_s, 2e-10, 1.2e-9, 0.1);
            // At first a window more or less is much of it.
            let (granted, _) = Schedule::new(0.1, 1).allowance(run_s);
            assert!(
                windows >= least && added <= granted + 3.0 * SHORT_S,
                "{run_s} s: {windows} windows added {added} of {granted}"
            );
        }
        let (added, _, _) = simulate(0.3, 2e-10, 1.2e-9, 0.01);
        assert!(added <= 0.15 * FLOOR_S, "{added}");
        let (_, _, largest) = simulate(10.0, 2e-10, 1.2e-9, 0.1);
        assert!(largest >= 50_000_000, "largest window {largest}");
    }
}

//! What is done while the program runs natively and leaves a processor idle: code is translated that windows are likely to meet.

use super::cost::monitor_cpu_s;
use super::follow::Session;
use crate::tracee::spare::Spare;
use crate::tracee::{hub, near};
use std::time::{Duration, Instant};

/// Seconds that this may take besides as large a share of the run as windows may add to it.
const FLOOR_S: f64 = 0.25;
/// Most fragments of code that was not met, in the two caches of each process together: they take memory, the monitor's at about 5 KiB each with
/// their code, which it shares with the program. (Of a compiler of 17 s the monitor's peak was 298 and 304 MiB with 24,000 of them, 229 and 239 with these, for 6,300
/// and 6,900 stops for new code, 6,700 and 7,000.)
const MOST: usize = 12_000;
/// Time before a window in which what threads execute by now is translated.
const BEFORE_WINDOW: Duration = Duration::from_millis(8);

/// How much of it there was, and whether there may be more.
#[derive(Debug)]
pub struct Meantime {
    spent: Duration,
    /// CPU time of it.
    worked: Duration,
    spare: Spare,
    /// When it is to be looked where threads are.
    whereabouts: Option<Instant>,
}

impl Meantime {
    /// As [`Spare::new`].
    pub fn new() -> Meantime {
        Meantime {
            spent: Duration::ZERO,
            worked: Duration::ZERO,
            spare: Spare::new(),
            whereabouts: None,
        }
    }

    /// Looks whether a processor is left, if it is time to. Returns whether it did.
    fn look(&mut self) -> bool {
        let looked = self.spare.look(self.worked);
        near::note_spare(self.spare.is_there());
        looked
    }

    /// Whether a processor is idle and stops are rare: those who wait for us would wait longer.
    fn is_free(&self) -> bool {
        self.spare.is_there() && !hub::is_busy() && near::go_apart()
    }
}

impl Session<'_> {
    /// Threads run natively until `deadline`, and then there is a window.
    pub(super) fn begin_meantime(&mut self, deadline: Option<Instant>) {
        let before = |deadline: Instant| deadline.checked_sub(BEFORE_WINDOW);
        self.meantime.whereabouts = deadline.and_then(before);
        self.meantime.spare.pause();
    }

    /// Does some of what is to be done meanwhile. Returns how long there is nothing.
    pub(super) fn use_meantime(&mut self) -> Duration {
        if self.config.full || self.over || self.observed.is_empty() {
            return Duration::MAX;
        }
        let looked = self.meantime.look();
        let now = Instant::now();
        let is_near = self.meantime.whereabouts.take_if(|at| *at <= now).is_some();
        if is_near || looked && self.meantime.spare.is_there() {
            for observed in self.observed.values_mut() {
                observed.note_where_threads_are();
            }
        }
        if self.translate_around() {
            return Duration::ZERO;
        }
        let places = self.meantime.whereabouts;
        let places = places.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
        places.min(self.meantime.spare.until_next())
    }

    /// Has some code translated that windows are likely to meet. False when there is none, or it is not the time.
    fn translate_around(&mut self) -> bool {
        let share = self.config.overhead_percent / 100.0;
        let allowed_s = share * self.elapsed_s() + FLOOR_S;
        if self.meantime.spent.as_secs_f64() > allowed_s || !self.meantime.is_free() {
            return false;
        }
        let (begun, cpu_s) = (Instant::now(), monitor_cpu_s());
        let most = MOST / (2 * self.observed.len());
        let mut observed = self.observed.values_mut();
        let any = observed.any(|observed| observed.translate_around(most));
        self.meantime.spent += begun.elapsed();
        let worked_s = (monitor_cpu_s() - cpu_s).max(0.0);
        self.meantime.worked += Duration::from_secs_f64(worked_s);
        any
    }
}

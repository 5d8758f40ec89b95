//! What is done while the program runs natively and leaves a processor idle: code is translated that windows are likely to meet.

use super::follow::Session;
use super::observed::Observed;
use crate::tracee::{hub, near};
use std::num::NonZero;
use std::time::{Duration, Instant};

/// Seconds that this may take besides as large a share of the run as windows may add to it.
const FLOOR_S: f64 = 0.25;
/// Most fragments of code that was not met, in the two caches of each process together: they take memory, the monitor's at about 2.2 KiB each.
const MOST: usize = 24_000;
/// Time between two looks whether a processor is idle.
const LOOK: Duration = Duration::from_millis(2);
/// Time before a window in which what threads execute by now is translated.
const BEFORE_WINDOW: Duration = Duration::from_millis(8);

/// How much of it there was, and whether there may be more.
#[derive(Debug)]
pub struct Meantime {
    /// Processors that we and the program may use at a time.
    processors: usize,
    spent: Duration,
    looked: Option<Instant>,
    is_idle: bool,
    /// When it is to be looked where threads are.
    whereabouts: Option<Instant>,
}

impl Meantime {
    /// To be made before the calling thread has moved to any thread of the program.
    pub fn new() -> Meantime {
        Meantime {
            // A group of processes may have fewer than there are.
            processors: std::thread::available_parallelism().map_or(1, NonZero::get),
            spent: Duration::ZERO,
            looked: None,
            is_idle: false,
            whereabouts: None,
        }
    }

    /// Whether a processor is idle and stops are rare: those who wait for us would wait longer.
    fn is_free(&mut self) -> bool {
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            self.looked = Some(Instant::now());
            self.is_idle = near::is_processor_idle(self.processors) && !hub::is_busy();
        }
        self.is_idle
    }
}

impl Session<'_> {
    /// Threads run natively until `deadline`, and then there is a window.
    pub(super) fn begin_meantime(&mut self, deadline: Option<Instant>) {
        let before = |deadline: Instant| deadline.checked_sub(BEFORE_WINDOW);
        self.meantime.whereabouts = deadline.and_then(before);
    }

    /// Does some of what is to be done meanwhile. Returns how long there is nothing.
    pub(super) fn use_meantime(&mut self) -> Duration {
        let now = Instant::now();
        if self.meantime.whereabouts.take_if(|at| *at <= now).is_some() {
            let observed = self.observed.values_mut();
            observed.for_each(Observed::note_where_threads_are);
        }
        match (self.translate_around(), self.meantime.whereabouts) {
            (true, _) => Duration::ZERO,
            (false, Some(at)) => at.saturating_duration_since(now),
            (false, None) => Duration::MAX,
        }
    }

    /// Has some code translated that windows are likely to meet. False when there is none, or it is not the time.
    fn translate_around(&mut self) -> bool {
        let share = self.config.overhead_percent / 100.0;
        let allowed_s = share * self.elapsed_s() + FLOOR_S;
        let wanted = !self.config.full && !self.over && !self.observed.is_empty();
        if !wanted || self.meantime.spent.as_secs_f64() > allowed_s || !self.meantime.is_free() {
            return false;
        }
        let begun = Instant::now();
        let most = MOST / (2 * self.observed.len());
        let mut observed = self.observed.values_mut();
        let any = observed.any(|observed| observed.translate_around(most));
        self.meantime.spent += begun.elapsed();
        any
    }
}

//! What a window took, in CPU time.

/// CPU time of a window. Wall time would count the neighbours of a busy machine too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Seconds of the observed thread.
    pub thread_s: f64,
    /// Stops.
    pub stops: u64,
}

/// CPU seconds a stop takes on the side of the stopped thread. (Guessed as half of
/// a round trip, measured as 8 us on one processor.)
const STOP_S: f64 = 4e-6;

/// CPU seconds that a stop may take there. (Measured: 17 to 25 us in windows of a compiler that were nearly all stops.)
const DEAR_STOP_S: f64 = 18e-6;

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, more: Cost) {
        self.thread_s += more.thread_s;
        self.stops += more.stops;
    }
}

impl Cost {
    /// Accesses per CPU second while the thread was in the code cache.
    pub fn rate_in_cache(&self, accesses: u64) -> f64 {
        let cache_s = self.thread_s - STOP_S * self.stops as f64;
        accesses as f64 / cache_s.max(0.2 * self.thread_s).max(1e-6)
    }

    /// Whether stops took so much of it, for code met for the first time as a rule, that it says little of how fast
    /// the thread is otherwise.
    pub fn is_mostly_stops(&self) -> bool {
        DEAR_STOP_S * self.stops as f64 > 0.5 * self.thread_s
    }
}

/// CPU seconds of the calling thread (clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`).
pub fn monitor_cpu_s() -> f64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 * 1e-9)
}

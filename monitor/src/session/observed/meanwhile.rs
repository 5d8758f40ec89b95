//! What follows a window of the `counter` engine: the thread runs natively, with watches of the window still out.

use super::Observed;
use crate::engine::translate::window::{Control, Waited, WindowEnd};
use crate::observe::Observer;
use crate::session::signals::{Signals, Wait};
use crate::tracee::maps::Maps;
use crate::tracee::{Result, Running, near, procinfo};
use std::time::Instant;

/// Lets the thread run until then.
pub struct Meanwhile<'a> {
    signals: &'a mut Signals,
    until: Option<Instant>,
}

impl Control for Meanwhile<'_> {
    fn wait(&mut self, running: Running) -> Result<Waited> {
        if self.signals.end_wanted {
            return Ok(Waited::User(running));
        }
        Ok(match self.signals.wait(running, self.until)? {
            Wait::Event(event) => Waited::Event(event),
            Wait::End(running) => Waited::User(running),
            Wait::Timeout(running) => Waited::Leave(running),
        })
    }

    fn progress(&mut self, _: &mut Observer, _: &Maps) -> u64 {
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        match over || self.signals.poll_end() {
            true => 0,
            false => u64::MAX,
        }
    }
}

impl Observed {
    /// Behind a window that ended so: follows the watches it has left, if any, until then. Returns how that ended, and the seconds
    /// of the thread that it has cost.
    ///
    /// # Errors
    /// What ptrace refuses; the thread is gone.
    pub fn meanwhile(
        &mut self,
        end: WindowEnd,
        until: Option<Instant>,
        signals: &mut Signals,
    ) -> Result<(WindowEnd, f64)> {
        let engine = self.engine.as_mut().filter(|engine| engine.is_open());
        let (stopped, engine, lane) = match (end, engine, self.lanes.get_mut(&0)) {
            (WindowEnd::Closed(stopped), Some(engine), Some(lane)) => (stopped, engine, lane),
            (end, ..) => return Ok((end, 0.0)),
        };
        let (begun, stops) = (Instant::now(), engine.stats().stops);
        let (pid, tid) = (self.process.pid, stopped.tid());
        let cpu = procinfo::thread_cpu_s(pid, tid).unwrap_or(0.0);
        near::leave(std::slice::from_ref(&stopped));
        let mut control = Meanwhile { signals, until };
        let end = engine.beyond(stopped, &mut lane.observer, &mut control);
        lane.windows.followed += begun.elapsed();
        let took_s = procinfo::thread_cpu_s(pid, tid).unwrap_or(cpu) - cpu;
        let stops_s = (engine.stats().stops - stops) as f64 * self.stops.seconds();
        let cost_s = stops_s.min(took_s).max(0.0);
        self.in_windows_s += cost_s;
        Ok((end?, cost_s))
    }
}

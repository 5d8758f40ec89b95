//! Making a process ready for windows: an engine for its present image, made by one of its threads.

use super::{Beside, Observed};
use crate::engine::counter::window::Counter;
use crate::engine::translate::window::Translate;
use crate::observe::Ended;
use crate::profile::ProfileError;
use crate::session::cost::Stops;
use crate::session::engine::{Engine, Kind};
use crate::session::leave::{self, Left};
use crate::tracee::{Result, StopReason, Stopped, hub, procinfo};
use std::rc::Rc;
use std::time::Duration;

/// Why a process has no windows of the `counter` engine.
const NO_SHIM: &str = "it has not loaded the shim (child processes and statically linked programs do not; use --engine translate)";

/// How long a program may take to load the shim.
const LOADING: Duration = Duration::from_secs(1);

/// The code segment of 64-bit programs (linux/arch/x86, `__USER_CS`).
const CODE_64: u64 = 0x33;

impl Observed {
    /// Makes sure that there is an engine for the present image, made by `stopped`, which is in user
    /// mode at its own registers. `None`: it is gone, or goes on natively.
    ///
    /// # Errors
    /// When the process is gone, or the profile cannot be written.
    pub fn prepare(
        &mut self,
        stopped: Stopped,
        kind: &Kind,
    ) -> Result<(Stopped, Option<ProfileError>)> {
        let mut error = None;
        let now = hub::process(self.process.pid).filter(|now| now.id == self.process.id);
        if let Some(now) = now {
            if now.image != self.image {
                error = self.new_image(now.image).err();
            }
            self.process = now;
        }
        let wants_timing =
            self.timing.is_none() && self.times && !self.full && self.numbers.count() > 0;
        if let (Some(Engine::Translate(_)), true) = (&self.engine, wants_timing)
            && stopped.must_be_native().is_none()
        {
            return Ok((self.prepare_timing(stopped)?, error));
        }
        // No call could be made in it for us either.
        if self.engine.is_some() || self.refused.is_some() || stopped.must_be_native().is_some() {
            return Ok((stopped, error));
        }
        let pid = self.process.pid;
        // What this program's registers mean is told by its code segment.
        if stopped.regs()?.cs != CODE_64 {
            self.refused = Some("it is a 32-bit program".to_owned());
            return Ok((stopped, error));
        }
        // What a fork copied, or a monitor left that was killed.
        let left = Left::find(pid);
        if !left.is_empty() && leave::may_be_in_use(&self.process) {
            return Ok((stopped, error));
        }
        let stopped = match left.is_empty() {
            true => stopped,
            false => leave::remove(stopped, &left)?,
        };
        self.stale_gs.extend(left.ranges);
        if let StopReason::Signal(_) = stopped.reason {
            return Ok((stopped, error));
        }
        match kind {
            Kind::Translate => {}
            Kind::Step => {
                self.engine = Some(Engine::step(pid));
                return Ok((stopped, error));
            }
            Kind::Counter(shim, source) => {
                if shim.is_in(pid) {
                    let counter = Counter::new(Rc::clone(shim), *source, pid, self.seed);
                    self.engine = Some(Engine::Counter(Box::new(counter)));
                } else if self.process.id > 0 || self.process.born.elapsed() > LOADING {
                    self.refused = Some(NO_SHIM.to_owned());
                }
                return Ok((stopped, error));
            }
        }
        let (stopped, engine) = Translate::new(stopped, pid)?;
        match engine {
            Ok(engine) => {
                self.engine = Some(Engine::Translate(Box::new(engine)));
            }
            // Nothing wrong with the process: a signal came while it was being prepared.
            Err(_) if matches!(stopped.reason, StopReason::Signal(_)) => {}
            Err(reason) => self.refused = Some(reason.to_string()),
        }
        Ok((stopped, error))
    }

    fn new_image(&mut self, image: u32) -> std::result::Result<(), ProfileError> {
        // The old image's lines are gone: what was watched is never touched again.
        let closed = self.close_all(Ended::Exit);
        self.image = image;
        self.engine = None;
        (self.timing, self.times) = (None, true);
        self.beside = Beside::default();
        // What was learnt is of other code.
        self.stops = Stops::default();
        self.refused = None;
        self.stale_gs.clear();
        closed?;
        self.recorder.new_image(procinfo::command(self.process.pid))
    }

    /// Whether the thread leaves to windows what they need: the gs segment, that a refused system
    /// call is no more than that, and returns to where the stack says. What an earlier monitor left in the segment is cleared.
    ///
    /// # Errors
    /// [`crate::tracee::TraceError::Gone`].
    pub fn is_free(&mut self, stopped: &Stopped) -> Result<bool> {
        let native = match &self.engine {
            Some(Engine::Counter(counter)) => counter.must_be_native(stopped),
            _ => stopped.must_be_native(),
        };
        if let Some(reason) = native {
            *self.declined.entry(reason).or_default() += 1;
            return Ok(false);
        }
        let mut regs = stopped.regs()?;
        if regs.gs_base == 0 {
            return Ok(true);
        }
        let stale = self
            .stale_gs
            .iter()
            .any(|left| left.contains(&regs.gs_base));
        if stale {
            regs.gs_base = 0;
            stopped.set_regs(&regs)?;
        } else {
            *self
                .declined
                .entry("the program uses the gs segment")
                .or_default() += 1;
        }
        Ok(stale)
    }
}

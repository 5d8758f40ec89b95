//! Making a process ready for windows: an engine for its present image, made by one of its threads.

use super::{Beside, Observed};
use crate::engine::counter::inject;
use crate::engine::counter::live::FILTERED;
use crate::engine::counter::shim::Shim;
use crate::engine::counter::window::{Counter, Source};
use crate::engine::translate::window::{SPACE_LIMITED, Translate, UNMAPPED, WindowEnd};
use crate::observe::Ended;
use crate::profile::ProfileError;
use crate::session::cost::Stops;
use crate::session::engine::{Engine, Kind};
use crate::session::leave::{self, Left};
use crate::session::preload;
use crate::session::speeds::Speeds;
use crate::tracee::filters::{self, Filters};
use crate::tracee::maps::Maps;
use crate::tracee::remote::restart_pending;
use crate::tracee::sequence;
use crate::tracee::{CODE_64, Result, Resume, StopReason, Stopped, hub, procinfo, status};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a program that a linker starts may take to load the shim that it was given with that; after that it is given another, as static
/// programs are at once.
const LOADING: Duration = Duration::from_secs(1);

/// Whether a thread is at its own registers, with no signal to be delivered, no call to be made again, in 64-bit code and in no restartable
/// sequence: it may be made to make calls for us.
fn is_at_home(stopped: &Stopped) -> Result<bool> {
    let regs = stopped.regs()?;
    let in_sequence = || sequence::abort_of(stopped, &regs).is_some();
    let its_own = stopped.has_news() || restart_pending(&regs) || regs.cs != CODE_64;
    Ok(!its_own && !in_sequence())
}

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
            && is_at_home(&stopped)?
        {
            return Ok((self.prepare_timing(stopped)?, error));
        }
        if self.engine.is_some() || self.refused.is_some() || self.sandboxed {
            return Ok((stopped, error));
        }
        let pid = self.process.pid;
        // The other engines have it make other calls.
        let against = match (kind, filters::of(&stopped)) {
            (_, Filters::None | Filters::Inherited) | (Kind::Translate, Filters::Borne) => None,
            (_, Filters::Borne) => Some(FILTERED),
            (_, Filters::Against(reason)) => Some(reason),
        };
        if let Some(reason) = against {
            *self.declined.entry(reason).or_default() += 1;
            self.note_sandbox();
            return Ok((stopped, error));
        }
        let stopped = match leave::may_be_in_use(&self.process) {
            true => stopped,
            false => leave::free(stopped, pid)?,
        };
        // What this program's registers mean is told by its code segment; some 64-bit ones go to 32-bit code for a moment.
        if stopped.regs()?.cs != CODE_64 {
            if procinfo::is_32_bit(pid) {
                self.refused = Some("it is a 32-bit program".to_owned());
            }
            return Ok((stopped, error));
        }
        // No call could be made in it for us either; and one that it is to make again is its own.
        if stopped.must_be_native().is_some() || !is_at_home(&stopped)? {
            return Ok((stopped, error));
        }
        if leave::is_monitor(pid) {
            self.refused = Some("it is another statcache, at work".to_owned());
            return Ok((stopped, error));
        }
        // What a fork copied, or a monitor left that was killed.
        let left = Left::find(pid);
        if !left.is_empty() && leave::may_be_in_use(&self.process)
            || !left.is_unused(pid, Some(&stopped))
        {
            return Ok((stopped, error));
        }
        let stopped = match left.is_empty() {
            true => stopped,
            false => leave::remove(stopped, &left)?,
        };
        self.stale_gs.extend(left.ranges);
        if !is_at_home(&stopped)? {
            return Ok((stopped, error));
        }
        match kind {
            Kind::Translate => {}
            Kind::Step => {
                self.engine = Some(Engine::step(pid));
                return Ok((stopped, error));
            }
            Kind::Counter(preloaded, source) => {
                let stopped = self.prepare_counter(stopped, preloaded.as_ref(), *source)?;
                return Ok((stopped, error));
            }
        }
        let (stopped, engine) = Translate::new(stopped, pid)?;
        match engine {
            Ok(engine) => {
                self.engine = Some(Engine::Translate(Box::new(engine)));
            }
            // Nothing wrong with the process: a signal came while it was being prepared.
            Err(_) if stopped.has_news() => {}
            Err(reason) => self.refused = Some(reason.to_string()),
        }
        Ok((stopped, error))
    }

    /// An engine with the shim that the process has loaded, or is given now.
    fn prepare_counter(
        &mut self,
        stopped: Stopped,
        preloaded: Option<&Rc<Shim>>,
        source: Source,
    ) -> Result<Stopped> {
        let pid = self.process.pid;
        let maps = Maps::read(pid).unwrap_or_default();
        let loaded = preloaded.filter(|shim| shim.is_in(pid) && shim.is_mapped(&maps));
        let awaited = preloaded.is_some() && self.process.id == 0 && preload::is_linked(pid);
        let (stopped, shim) = match loaded {
            Some(shim) => (stopped, Ok(Rc::clone(shim))),
            None if awaited && self.since.elapsed() < LOADING => return Ok(stopped),
            // Forked while another thread came under that, which the child does not know yet.
            None if preloaded.is_some_and(|shim| shim.holds(&stopped, &maps)) => {
                return Ok(stopped);
            }
            None if procinfo::has_peer_in_memory(pid) => {
                self.refused = Some("its memory is another process's, too".to_owned());
                return Ok(stopped);
            }
            None => {
                let (stopped, shim) = inject::into(stopped, pid, &maps)?;
                (stopped, shim.map(Rc::new))
            }
        };
        match shim {
            Ok(shim) => {
                let counter = Counter::new(shim, source, pid, self.seed);
                self.engine = Some(Engine::Counter(Box::new(counter)));
            }
            // Nothing wrong with the process: a signal came while it was being prepared.
            Err(_) if stopped.has_news() => {}
            Err(reason) => self.refused = Some(reason.to_string()),
        }
        Ok(stopped)
    }

    /// Where `end` says that the process has no room for what is ours, or has taken it away: takes all that is ours out of it (no
    /// thread is in it), and leaves it alone from here on.
    ///
    /// # Errors
    /// [`crate::tracee::TraceError::Gone`].
    pub(super) fn leave_space(&mut self, end: WindowEnd) -> Result<WindowEnd> {
        let WindowEnd::Declined(stopped, reason @ (SPACE_LIMITED | UNMAPPED)) = end else {
            return Ok(end);
        };
        // What it borrows is its parent's.
        if self.process.borrows_memory {
            return Ok(WindowEnd::Declined(stopped, reason));
        }
        if !self.full {
            self.close(Ended::Cut);
        }
        if let Err(error) = self.close_all(Ended::Cut) {
            tracing::debug!(%error, "the last part of a process is not in the profile");
        }
        self.engine = None;
        (self.timing, self.times) = (None, false);
        self.beside = Beside::default();
        self.refused = Some(reason.to_owned());
        let stopped = leave::remove(stopped, &Left::find(self.process.pid))?;
        Ok(match stopped.reason {
            // What came meanwhile is the program's.
            StopReason::Signal(signal) => {
                WindowEnd::Left(stopped.resume(Resume::Continue, signal)?)
            }
            StopReason::Group => WindowEnd::Left(stopped.resume(Resume::Listen, 0)?),
            _ => WindowEnd::Declined(stopped, reason),
        })
    }

    fn new_image(&mut self, image: u32) -> std::result::Result<(), ProfileError> {
        // The old image's lines are gone: what was watched is never touched again.
        let closed = self.close_all(Ended::Exit);
        self.image = image;
        self.since = Instant::now();
        self.engine = None;
        (self.timing, self.times) = (None, true);
        self.beside = Beside::default();
        // What was learnt is of other code.
        self.stops = Stops::default();
        self.calls = (0, 0);
        self.speeds = Speeds::default();
        self.expansion = None;
        self.native_clock.forget();
        self.seek.begin_image();
        self.refused = None;
        self.sandboxed = false;
        self.stale_gs.clear();
        closed?;
        self.recorder.new_image(procinfo::command(self.process.pid))
    }

    /// A thread's filters leave no room for windows: where all threads have some the process is stopped no more.
    pub(super) fn note_sandbox(&mut self) {
        let tasks = procinfo::tasks(self.process.pid).unwrap_or_default();
        self.sandboxed = tasks.iter().all(|&tid| status::is_filtered(tid));
    }

    /// Whether the thread leaves to windows what they need: the gs segment, that a system
    /// call of ours is no more than that, and returns to where the stack says. What an earlier monitor left in the segment is cleared.
    ///
    /// # Errors
    /// [`crate::tracee::TraceError::Gone`].
    pub fn is_free(&mut self, stopped: &Stopped) -> Result<bool> {
        if self.sandboxed {
            return Ok(false);
        }
        let native = match &self.engine {
            Some(Engine::Counter(counter)) => counter.must_be_native(stopped),
            _ => stopped.must_be_native(),
        };
        if let Some(reason) = native {
            *self.declined.entry(reason).or_default() += 1;
            return Ok(false);
        }
        let mut regs = stopped.regs()?;
        if regs.cs != CODE_64 {
            *self.declined.entry("32-bit code").or_default() += 1;
            return Ok(false);
        }
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

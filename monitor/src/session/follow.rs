//! The event loop of a session: threads run natively, and now and then one goes through a window.

use super::EngineChoice;
use super::choose::Chooser;
use super::cost::monitor_cpu_s;
use super::engine::Kind;
use super::full::Pauses;
use super::meantime::Meantime;
use super::observed::Observed;
use super::output::Output;
use super::remains::{self, Remains, Unseen};
use super::schedule::Schedule;
use super::signals::Signals;
use super::{ProfileConfig, leave};
use crate::engine::counter::shim::Shim;
use crate::engine::counter::window::Source;
use crate::engine::translate::window::WindowEnd;
use crate::observe::Ended;
use crate::profile::ProfileError;
use crate::profile::types::Warning;
use crate::tracee::{Event, Result, Resume, StopReason, Stopped, TraceError, hub, near};
use nix::unistd::Pid;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Part of the usual time between two windows for which watches of the first are followed into it, where the engine can: gaps are no shorter, as a rule. (The
/// rest says where threads are: [`Observed::leave_alone`].)
const FOLLOWED: f64 = 0.5;
/// How long a thread that is asked to stop for a window is waited for.
const UNINTERRUPTED: Duration = Duration::from_millis(20);

/// What is followed, from the first process's birth or our arrival to its end or our leaving.
pub struct Session<'a> {
    pub(super) config: &'a ProfileConfig,
    pub(super) signals: &'a mut Signals,
    pub(super) output: Output,
    pub(super) start: Instant,
    /// The first process; the session ends with it.
    pub(super) first: Pid,
    /// Its shell status, once it has ended.
    pub(super) status: Option<i32>,
    /// Whether we came to a running program and go before it ends.
    pub(super) attached: bool,
    /// When we go.
    pub(super) until: Option<Instant>,
    /// No more windows: the user ended the profile, or it cannot be written.
    pub(super) over: bool,
    /// Live processes with windows.
    pub(super) observed: BTreeMap<u32, Observed>,
    /// Ended processes with windows.
    pub(super) remains: Vec<Remains>,
    /// Ended processes without, or of which nothing is kept.
    pub(super) unseen: Unseen,
    pub(super) schedule: Schedule,
    pub(super) chooser: Chooser,
    /// Whether the last window of one thread was where one was sought.
    pub(super) sought: bool,
    pub(super) pauses: Pauses,
    pub(super) meantime: Meantime,
    pub(super) error: Option<ProfileError>,
    pub(super) warnings: Vec<Warning>,
    /// What sees the accesses of windows.
    pub(super) kind: Kind,
    /// When the last window closed, where its watches were followed since.
    pub(super) closed: Option<Instant>,
    /// Draws the order of turns.
    pub(super) random: SmallRng,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        config: &'a ProfileConfig,
        signals: &'a mut Signals,
        output: Output,
        first: Pid,
        start: Instant,
    ) -> Session<'a> {
        let (overhead, seed) = (config.overhead_percent / 100.0, config.seed);
        Session {
            config,
            signals,
            output,
            start,
            first,
            status: None,
            attached: false,
            until: None,
            over: false,
            observed: BTreeMap::new(),
            remains: Vec::new(),
            unseen: Unseen::default(),
            schedule: match config.engine {
                EngineChoice::Step => Schedule::stepping(overhead, seed),
                _ => Schedule::new(overhead, seed),
            },
            chooser: Chooser::new(seed),
            sought: false,
            pauses: Pauses::default(),
            meantime: Meantime::new(),
            error: None,
            warnings: Vec::new(),
            kind: match config.engine {
                EngineChoice::Step => Kind::Step,
                _ => Kind::Translate,
            },
            closed: None,
            random: SmallRng::seed_from_u64(seed ^ 0x7042),
        }
    }

    /// Counts instructions instead of translating; `preloaded`: the shim that the first process loads.
    pub(super) fn count_with(&mut self, preloaded: Option<Rc<Shim>>, source: Source) {
        hub::note_calls();
        let overhead = self.config.overhead_percent / 100.0;
        self.schedule = match source.is_simulated() {
            true => Schedule::stepping(overhead, self.config.seed),
            false => Schedule::counting(overhead, self.config.seed),
        };
        self.kind = Kind::Counter(preloaded, source);
    }

    /// Follows everything until the first process has ended, or until we are to go.
    pub(super) fn follow(&mut self) {
        while self.status.is_none() && !self.is_time_to_go() {
            let step = if self.over {
                hub::set_hold(false);
                self.rest(None)
            } else if self.config.full {
                self.observe_next()
            } else {
                self.sample()
            };
            match step {
                Ok(()) | Err(TraceError::Gone(_)) => {}
                Err(error) => {
                    // The program goes on, unobserved.
                    self.over = true;
                    self.warnings.push(Warning {
                        what: format!("the profile ends early: {error}"),
                        remedy: "profile again, and report it if it happens twice".into(),
                    });
                }
            }
        }
        hub::set_hold(false);
        leave::tidy();
        self.sweep();
    }

    fn is_time_to_go(&self) -> bool {
        (self.attached || self.signals.leave)
            && (self.over || self.until.is_some_and(|until| Instant::now() >= until))
    }

    pub(super) fn elapsed_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Serves events until the deadline, the first process's end, or the user's wish to end.
    pub(super) fn rest(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.rest_until(deadline, Duration::MAX, |_| false)?;
        Ok(())
    }

    /// The same, but no longer than until `found`, which is asked once in `nap` or more often. Returns whether it was.
    pub(super) fn rest_until(
        &mut self,
        deadline: Option<Instant>,
        nap: Duration,
        mut found: impl FnMut(&mut Self) -> bool,
    ) -> Result<bool> {
        let wanted_before = self.signals.end_wanted;
        self.begin_meantime(deadline);
        loop {
            hub::serve()?;
            self.sweep();
            if self.status.is_some() || hub::any_held() {
                return Ok(false);
            }
            if found(self) {
                return Ok(true);
            }
            let deadline = [deadline, self.until].into_iter().flatten().min();
            let timeout = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if timeout.is_zero() {
                return Ok(false);
            }
            let idle = self.use_meantime();
            self.signals.take(idle.min(timeout).min(nap));
            if self.signals.leave || self.signals.end_wanted && !wanted_before {
                self.over = true;
                return Ok(false);
            }
        }
    }

    /// Books the processes that have ended.
    pub(super) fn sweep(&mut self) {
        for process in hub::take_ended() {
            if process.pid == self.first && process.id == 0 {
                self.status = process.status;
                self.signals.status = process.status;
            }
            match self.observed.remove(&process.id) {
                Some(mut observed) => {
                    observed.process = process;
                    let remains = observed.finish(self.over);
                    self.remains.push(remains);
                    if self.remains.len() > remains::MOST
                        && let Some(least) = remains::take_least(&mut self.remains)
                    {
                        self.output.forget(least.process.id);
                        self.unseen.left_out += 1;
                    }
                }
                None => self.unseen.add(process),
            }
        }
    }

    pub(super) fn failed(&mut self, error: Option<ProfileError>) {
        if let Some(error) = error {
            self.error.get_or_insert(error);
            self.over = true;
        }
    }

    /// The process of a thread, to be observed from now on.
    pub(super) fn observe(&mut self, tid: Pid) -> Option<u32> {
        let process = hub::process_of(tid)?;
        let id = process.id;
        let config = self.config;
        self.observed.entry(id).or_insert_with(|| {
            Observed::new(
                process,
                self.output.clone(),
                config.seed,
                config.full,
                self.start,
            )
        });
        Some(id)
    }

    /// Runs natively for a while, then one thread through one window, or all of its process's.
    fn sample(&mut self) -> Result<()> {
        let gap = self.schedule.gap_s(self.elapsed_s());
        // The gap does not depend on what was followed into it.
        let closed = self.closed.take().unwrap_or_else(Instant::now);
        let window = closed + Duration::from_secs_f64(gap);
        let found = self.rest_or_seek(window)?;
        if self.is_over() {
            if let Some(stopped) = found {
                hub::release(Event::Stopped(stopped));
            }
            return Ok(());
        }
        let own = monitor_cpu_s();
        if let Some(stopped) = found {
            let tid = stopped.tid();
            let end = self.sample_thread(stopped, true, own);
            if end.is_err() {
                hub::abandon(tid);
            }
            return end;
        }
        let observed = &self.observed;
        let tid = self.chooser.pick(|process| {
            !observed
                .get(&process.id)
                .is_some_and(|o| o.is_refused(process.image))
        });
        let stopped = match tid {
            Some(tid) => stop(tid)?,
            None => None,
        };
        let end = match stopped {
            Some(stopped) => self.sample_thread(stopped, false, own),
            None => {
                self.schedule.spend(monitor_cpu_s() - own);
                return Ok(());
            }
        };
        if let (Err(_), Some(tid)) = (&end, tid) {
            hub::abandon(tid);
        }
        end
    }

    pub(super) fn is_over(&self) -> bool {
        self.over || self.status.is_some() || self.is_time_to_go()
    }

    fn sample_thread(&mut self, stopped: Stopped, found: bool, own: f64) -> Result<()> {
        let tid = stopped.tid();
        let Some(id) = self.observe(tid) else {
            hub::release(Event::Stopped(stopped));
            return Ok(());
        };
        let Some(observed) = self.observed.get_mut(&id) else {
            return Ok(());
        };
        let (stopped, error) = observed.prepare(stopped, &self.kind)?;
        // Its preparation may have been cut short.
        if observed.engine.is_none()
            || stopped.has_news()
            || error.is_some()
            || !observed.is_free(&stopped)?
        {
            hub::release(Event::Stopped(stopped));
            self.failed(error);
            self.schedule.spend(monitor_cpu_s() - own);
            return Ok(());
        }
        // Before the window, which leaves little of what the caches held.
        let timed = match found {
            // It might have left by then where it was sought.
            true => {
                observed.go_untimed();
                Ok(WindowEnd::Closed(stopped))
            }
            false => observed.time(stopped, self.signals, self.until),
        };
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        let stopped = match timed {
            Ok(WindowEnd::Closed(stopped))
                if !late && !self.signals.end_wanted && observed.may_go_on(&stopped) =>
            {
                stopped
            }
            // It sleeps, or has ended; or the profile has.
            end => {
                let spent_s = observed.forget_timing(monitor_cpu_s() - own);
                observed.leave_alone(self.schedule.usual_gap_s());
                self.schedule.spend(spent_s);
                self.over |= self.signals.end_wanted;
                return end.and_then(resume_after);
            }
        };
        if observed.process.threads.len() > 1 && matches!(self.kind, Kind::Translate) {
            return self.sample_together(stopped, id, own);
        }
        let plan = self.schedule.plan(self.start.elapsed().as_secs_f64());
        let opened = observed.open(tid, plan, found);
        self.sought = found;
        let begun = monitor_cpu_s();
        let (end, accesses, error) =
            observed.window(stopped, Some(plan.accesses), None, self.signals, self.until)?;
        let inside_s = observed.cost.thread_s + monitor_cpu_s() - begun;
        let closed = Instant::now();
        let gap = Duration::from_secs_f64(FOLLOWED * self.schedule.usual_gap_s());
        let until = self.until.into_iter().chain([closed + gap]).min();
        let (end, followed_s) = observed.meanwhile(end, until, self.signals)?;
        self.closed = matches!(self.kind, Kind::Counter(..)).then_some(closed);
        let how = match end {
            WindowEnd::Exiting(_) | WindowEnd::Fatal(..) | WindowEnd::Gone(_) => Ended::Exit,
            _ => Ended::Cut,
        };
        observed.close(how);
        let inside = observed.inside();
        let spent =
            observed.end_timing(accesses, 1.0, inside_s, followed_s + monitor_cpu_s() - own);
        observed.leave_alone(self.schedule.usual_gap_s());
        let resumed = resume_after(end);
        self.schedule.window_done(spent);
        let cost = observed.cost;
        tracing::debug!(?plan, %tid, accesses, ?spent, ?inside, ?cost, "window");
        self.failed(error.or(opened.err()));
        self.over |= self.signals.end_wanted;
        resumed
    }
}

/// Stops a running thread at its own registers, in no system call. `None` where it sleeps by now or
/// something else happened first, which has been seen to.
pub(super) fn stop(tid: Pid) -> Result<Option<Stopped>> {
    if hub::is_in_call(tid) {
        return Ok(None);
    }
    // In a call that is not interrupted, as its parent's in vfork(2), it may be for long: that stop is served when it comes.
    let Some(event) = hub::stop_within(tid, UNINTERRUPTED)? else {
        return Ok(None);
    };
    match event {
        Event::Stopped(stopped)
            if stopped.reason == StopReason::Interrupt
                && hub::mend(&stopped).is_ok()
                && hub::leave_kernel(&stopped) =>
        {
            Ok(Some(stopped))
        }
        event => {
            hub::release(event);
            Ok(None)
        }
    }
}

/// Lets a thread go on natively after a window.
///
/// # Errors
/// [`TraceError::Gone`].
pub fn resume_after(end: WindowEnd) -> Result<()> {
    if let WindowEnd::Closed(stopped) | WindowEnd::Declined(stopped, _) = &end {
        near::leave(std::slice::from_ref(stopped));
    }
    let (stopped, signal) = match end {
        WindowEnd::Closed(stopped) | WindowEnd::Declined(stopped, _) | WindowEnd::Exec(stopped) => {
            (stopped, 0)
        }
        WindowEnd::Exiting(stopped) => {
            hub::release(Event::Stopped(stopped));
            return Ok(());
        }
        WindowEnd::Fatal(stopped, signal) => (stopped, signal),
        WindowEnd::Left(_) | WindowEnd::Gone(_) => return Ok(()),
    };
    stopped.resume(Resume::Continue, signal).map(|_| ())
}

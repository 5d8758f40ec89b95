//! A run observed as a whole: one thread after the other, each until it sleeps, ends or has had its
//! turn, while all others that could run are held.

use super::engine::Kind;
use super::follow::{Session, resume_after};
use super::observed::Observed;
use crate::engine::translate::window::{STORM, WindowEnd};
use crate::session::schedule::Plan;
use crate::tracee::{Event, Result, Resume, Stopped, hub, transfers};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Pause before a thread is observed again after something that must run natively.
const AFTER_DECLINED: Duration = Duration::from_micros(200);
/// The pause doubles up to this while less than [`LEAST_OBSERVED`] accesses come of it.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const LEAST_OBSERVED: u64 = 1000;

/// Time between two looks for threads that run natively, while none is held.
const LOOK: Duration = Duration::from_millis(5);

/// Threads that run natively for a while, though they are to be observed.
#[derive(Debug, Default)]
pub struct Pauses(Vec<Pause>);

#[derive(Debug)]
struct Pause {
    tid: Pid,
    /// `None` when it has been asked to stop.
    until: Option<Instant>,
    length: Duration,
}

impl Pauses {
    /// Lets a thread go natively after a turn with so many accesses that ended for `reason`; where they were few the pause
    /// doubles.
    pub(super) fn begin(&mut self, tid: Pid, accesses: u64, reason: &str) {
        let before = self.0.iter().position(|p| p.tid == tid);
        let before = before.map(|at| self.0.swap_remove(at).length);
        let length = match before {
            // The thread has got nowhere: it needs time of its own.
            _ if reason == STORM => LONGEST_PAUSE,
            Some(before) if accesses < LEAST_OBSERVED => (2 * before).min(LONGEST_PAUSE),
            _ => AFTER_DECLINED,
        };
        let until = Instant::now() + length;
        if reason == STORM {
            // Not at the end of each handler either.
            hub::spare(tid, until);
        }
        let until = Some(until);
        self.0.push(Pause { tid, until, length });
    }

    /// Whether any thread runs natively that is to stop when its pause is over.
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|p| p.until.is_some())
    }

    fn holds(&self, tid: Pid) -> bool {
        self.0.iter().any(|p| p.tid == tid && p.until.is_some())
    }

    /// Asks the threads whose pause is over to stop, to be held. When the next one is over.
    fn end_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.0.retain(|p| hub::knows(p.tid));
        for pause in &mut self.0 {
            if pause.until.is_some_and(|until| until <= now) {
                if transfers::would_be_cut(pause.tid) {
                    pause.until = Some(now + LOOK);
                    continue;
                }
                // One that sleeps is held when it wakes up.
                hub::interrupt(pause.tid);
                pause.until = None;
            }
        }
        self.0.iter().filter_map(|p| p.until).min()
    }
}

impl Session<'_> {
    /// The next thread's turn; waits for one where there is none.
    pub(super) fn observe_next(&mut self) -> Result<()> {
        hub::set_hold(true);
        hub::serve()?;
        self.sweep();
        if self.status.is_some() {
            return Ok(());
        }
        // Before any turn: while others wait for theirs there is always one.
        let due = self.pauses.end_due();
        match hub::take_held() {
            Some(stopped) => {
                let tid = stopped.tid();
                let turn = match self.is_one_of_several(tid) {
                    true => self.observe_round(stopped),
                    false => self.observe_turn(stopped),
                };
                if turn.is_err() {
                    hub::abandon(tid);
                }
                turn
            }
            None => {
                self.catch_one();
                let look = Instant::now() + LOOK;
                self.rest(Some(due.map_or(look, |due| due.min(look))))
            }
        }
    }

    /// Whether the thread's process has, or has had, others.
    fn is_one_of_several(&self, tid: Pid) -> bool {
        let Some(process) = hub::process_of(tid) else {
            return false;
        };
        let shared = |observed: &Observed| observed.is_shared();
        matches!(self.kind, Kind::Translate)
            && (process.threads.len() > 1 || self.observed.get(&process.id).is_some_and(shared))
    }

    /// Asks a thread to stop that runs natively for no reason: it ran before we came, or has been
    /// stopped and continued.
    fn catch_one(&mut self) {
        let observed = &self.observed;
        let tid = self.chooser.pick(|process| {
            !observed
                .get(&process.id)
                .is_some_and(|o| o.is_refused(process.image))
        });
        let may = |tid: &Pid| !self.pauses.holds(*tid) && !hub::is_in_call(*tid);
        if let Some(tid) = tid.filter(may) {
            hub::interrupt(tid);
        }
    }

    fn observe_turn(&mut self, stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        let Some(id) = self.observe(tid) else {
            return stopped.resume(Resume::Continue, 0).map(|_| ());
        };
        let Some(observed) = self.observed.get_mut(&id) else {
            return Ok(());
        };
        let (stopped, error) = observed.prepare(stopped, &self.kind)?;
        if stopped.has_news() {
            hub::release(Event::Stopped(stopped));
            self.failed(error);
            return Ok(());
        }
        let is_refused = observed.is_refused(observed.process.image);
        if observed.engine.is_some()
            && error.is_none()
            && !is_refused
            && !observed.is_free(&stopped)?
        {
            // Such as 32-bit code: for a moment, mostly.
            self.pauses.begin(tid, 0, "it must run natively");
            return stopped.resume(Resume::Continue, 0).map(|_| ());
        }
        if observed.engine.is_none() || error.is_some() || is_refused {
            self.failed(error);
            // Natively to its end, or to its next program.
            return stopped.resume(Resume::Continue, 0).map(|_| ());
        }
        let opened = observed.open(tid, Plan::WHOLE, false);
        let (end, accesses, error) =
            observed.window(stopped, None, None, self.signals, self.until)?;
        self.over |= self.signals.end_wanted;
        let mut lost = None;
        match end {
            _ if self.over => resume_after(end)?,
            WindowEnd::Closed(stopped) => hub::hold(stopped),
            WindowEnd::Declined(stopped, reason) => {
                self.pauses.begin(tid, accesses, reason);
                stopped.resume(Resume::Continue, 0)?;
            }
            WindowEnd::Exec(stopped) => hub::release(Event::Stopped(stopped)),
            WindowEnd::Left(_) => {}
            end @ (WindowEnd::Exiting(_) | WindowEnd::Fatal(..) | WindowEnd::Gone(_)) => {
                lost = observed.thread_ended(tid).err();
                resume_after(end)?;
            }
        }
        self.failed(error.or(opened.err()).or(lost));
        Ok(())
    }
}

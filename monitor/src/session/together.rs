//! Windows of several threads: in rounds, each thread has its turn.
//!
//! Between the turns all threads of the process that run are held at their own registers, and those that wake
//! up join at the next round. What rounds mean is in [`crate::observe`].

use super::cost::monitor_cpu_s;
use super::follow::{Session, resume_after};
use super::pace::Turn;
use crate::engine::translate::window::WindowEnd;
use crate::observe::Ended;
use crate::profile::ProfileError;
use crate::tracee::{Event, Result, Resume, Stopped, TraceError, hub, near, procinfo, transfers};
use rand::seq::SliceRandom;
use std::time::{Duration, Instant};

/// Accesses of a turn: shorter ones cost more than they run, longer ones blur who did what first.
pub(super) const TURN: u64 = 60_000;
/// Rounds of a window at least, so that each thread may lead.
const LEAST_ROUNDS: u64 = 4;
/// Fewest accesses of a turn.
const LEAST_TURN: u64 = 5_000;
/// Threads that sleep are made to join when they wake up where there are no more than this.
const MOST_SLEEPERS: usize = 8;
/// Rounds in which the same threads have the processors where there are not enough for all: some
/// milliseconds, as the kernel would let them run.
const SLICE_ROUNDS: u32 = 40;
/// How long to wait for running threads to stop, once.
const GATHER: Duration = Duration::from_millis(8);
/// How long a window waits while all threads sleep, and a look at that.
const PATIENCE: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_micros(200);

/// What rounds of turns came to.
#[derive(Debug, Default)]
struct Rounds {
    /// The process has ended, or become another program.
    ended: bool,
    error: Option<ProfileError>,
    /// Turns times accesses, and accesses: their ratio is the mean number of threads.
    crowd: (f64, f64),
}

impl Session<'_> {
    /// One window of all threads of process `id` that run, opened for `first`.
    pub(super) fn sample_together(&mut self, first: Stopped, id: u32, own: f64) -> Result<()> {
        let tid = first.tid();
        let plan = self.schedule.plan(self.elapsed_s());
        let Some(observed) = self.observed.get_mut(&id) else {
            hub::release(Event::Stopped(first));
            return Ok(());
        };
        let opened = observed.open(tid, plan, false);
        self.sought = false;
        observed.share(tid);
        hub::set_hold(true);
        let mut ready = vec![first];
        let mut rounds = Rounds::default();
        let begun = monitor_cpu_s();
        let result = self
            .gather(id, &mut ready)
            .and_then(|()| self.rounds(id, plan.accesses, &mut ready, &mut rounds));
        let how = if rounds.ended {
            Ended::Exit
        } else {
            Ended::Cut
        };
        let Some(observed) = self.observed.get_mut(&id) else {
            let_go(&mut ready);
            return result;
        };
        let accesses = observed.accesses();
        let inside_s = observed.cost.thread_s + monitor_cpu_s() - begun;
        observed.close(how);
        let inside = observed.inside();
        ready.retain(|stopped| observed.is_same(stopped));
        let_go(&mut ready);
        hub::set_hold(false);
        // What they did one after the other they would have done at once.
        let crowd = (rounds.crowd.0 / rounds.crowd.1.max(1.0)).max(1.0);
        let spent = observed.end_timing(accesses, crowd, inside_s, monitor_cpu_s() - own);
        observed.leave_alone(self.schedule.usual_gap_s());
        self.schedule.window_done(spent);
        let cost = observed.cost;
        tracing::debug!(?plan, %tid, accesses, crowd, ?spent, ?inside, ?cost, "window");
        self.failed(rounds.error.or(opened.err()));
        self.over |= self.signals.end_wanted;
        result
    }

    /// Stops the other threads of the process; those that sleep join when they wake up.
    fn gather(&mut self, id: u32, ready: &mut Vec<Stopped>) -> Result<()> {
        let Some(pid) = self.observed.get(&id).map(|observed| observed.process.pid) else {
            return Ok(());
        };
        let threads = hub::process(pid).map(|process| process.threads);
        let mut others = threads.unwrap_or_default();
        others.retain(|&tid| ready.iter().all(|stopped| stopped.tid() != tid));
        let few = others.len() <= MOST_SLEEPERS;
        let mut running = 0;
        for tid in others {
            // Held at the end of its call.
            if hub::is_in_call(tid) {
                continue;
            }
            let runs = procinfo::is_running(pid, tid);
            let may = runs || few && !transfers::is_better_left(pid, tid);
            if may && hub::interrupt(tid).is_some() {
                running += usize::from(runs);
            }
        }
        let begun = Instant::now();
        let wanted = ready.len() + running;
        loop {
            hub::serve()?;
            let Some(observed) = self.observed.get(&id) else {
                return Ok(());
            };
            if observed.take_held(ready) {
                return Ok(());
            }
            let left = GATHER.saturating_sub(begun.elapsed());
            if ready.len() >= wanted || left.is_zero() {
                return Ok(());
            }
            self.signals.take(left.min(LOOK));
        }
    }

    /// Rounds of turns, up to so many accesses. Threads that may go on are left in `ready`.
    fn rounds(
        &mut self,
        id: u32,
        accesses: u64,
        ready: &mut Vec<Stopped>,
        rounds: &mut Rounds,
    ) -> Result<()> {
        let mut idle = None;
        loop {
            hub::serve()?;
            let Some(observed) = self.observed.get(&id) else {
                return Ok(());
            };
            rounds.ended |= observed.take_held(ready);
            let left = accesses.saturating_sub(observed.accesses());
            let late =
                self.until.is_some_and(|until| Instant::now() >= until) || observed.is_long();
            if left == 0 || rounds.ended || rounds.error.is_some() || late {
                return Ok(());
            }
            if self.signals.poll_end() {
                return Ok(());
            }
            if ready.is_empty() {
                let since: &mut Instant = idle.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE || hub::process(observed.process.pid).is_none() {
                    return Ok(());
                }
                self.signals.take(LOOK);
                continue;
            }
            idle = None;
            let share = accesses / LEAST_ROUNDS / ready.len() as u64;
            let turn = TURN.min(share).max(LEAST_TURN);
            self.round(id, turn, ready, rounds)?;
        }
    }

    /// One round of a run observed as a whole: of all threads of `first`'s process that are held.
    pub(super) fn observe_round(&mut self, first: Stopped) -> Result<()> {
        let tid = first.tid();
        let Some(id) = self.observe(tid) else {
            return first.resume(Resume::Continue, 0).map(|_| ());
        };
        let Some(observed) = self.observed.get_mut(&id) else {
            return Ok(());
        };
        let (first, error) = observed.prepare(first, &self.kind)?;
        if first.has_news() {
            hub::release(Event::Stopped(first));
            self.failed(error);
            return Ok(());
        }
        if observed.engine.is_none() || error.is_some() {
            self.failed(error);
            // Natively to its end, or to its next program.
            return first.resume(Resume::Continue, 0).map(|_| ());
        }
        let mut ready = vec![first];
        observed.take_held(&mut ready);
        let error = observed.open_whole(tid).err();
        let mut rounds = Rounds {
            error,
            ..Rounds::default()
        };
        let result = self.round(id, TURN, &mut ready, &mut rounds);
        self.over |= self.signals.end_wanted;
        ready.retain(|stopped| {
            let observed = self.observed.get(&id);
            observed.is_some_and(|observed| observed.is_same(stopped))
        });
        if self.over {
            let_go(&mut ready);
        }
        for stopped in ready {
            hub::hold(stopped);
        }
        self.failed(rounds.error);
        result
    }

    fn round(
        &mut self,
        id: u32,
        most: u64,
        ready: &mut Vec<Stopped>,
        rounds: &mut Rounds,
    ) -> Result<()> {
        let waiting = self.draw(id, ready);
        let Some(observed) = self.observed.get_mut(&id) else {
            ready.extend(waiting);
            return Ok(());
        };
        let threads = waiting.len();
        let alone = threads == 1 && ready.is_empty() && !self.pauses.any() && !hub::any_held();
        observed.begin_round(&waiting);
        let mut gone = Vec::new();
        let mut result = Ok(());
        for stopped in waiting {
            let tid = stopped.tid();
            let turn = self.observed.get(&id);
            let turn = turn.map(|observed| observed.turn(tid, most, alone));
            let going_on = !rounds.ended && result.is_ok();
            let Some(turn) = turn.filter(|turn| going_on && turn.accesses > 0) else {
                ready.push(stopped);
                continue;
            };
            match self.turn(id, stopped, turn, ready, rounds) {
                Ok(Done { accesses, ended }) => {
                    rounds.crowd.0 += threads as f64 * accesses as f64;
                    rounds.crowd.1 += accesses as f64;
                    if ended {
                        gone.push(tid);
                    }
                }
                Err(TraceError::Gone(_)) => gone.push(tid),
                Err(error) => {
                    hub::abandon(tid);
                    result = Err(error);
                }
            }
        }
        let Some(observed) = self.observed.get_mut(&id) else {
            return result;
        };
        for tid in gone {
            observed.forget_thread(tid);
            rounds.error = rounds.error.take().or(observed.thread_ended(tid).err());
        }
        rounds.error = rounds.error.take().or(observed.end_round().err());
        result
    }

    /// Takes the threads of the next round, as many as there are processors for them, the same ones for about as long as the kernel would let them
    /// run. The first is drawn at random, of those that did not wait for others in their last turns where there are such.
    fn draw(&mut self, id: u32, ready: &mut Vec<Stopped>) -> Vec<Stopped> {
        let Some(observed) = self.observed.get_mut(&id) else {
            return std::mem::take(ready);
        };
        let most = procinfo::processors(observed.process.pid).max(1);
        if ready.len() > most {
            let running = observed.running();
            if running.rounds == 0 {
                ready.shuffle(&mut self.random);
            } else {
                ready.sort_by_key(|stopped| !running.threads.contains(&stopped.tid().as_raw()));
            }
            running.rounds = (running.rounds + 1) % SLICE_ROUNDS;
            let tids = ready[..most].iter().map(|stopped| stopped.tid().as_raw());
            running.threads = tids.collect();
        }
        let rest = ready.split_off(most.min(ready.len()));
        let mut waiting = std::mem::replace(ready, rest);
        waiting.shuffle(&mut self.random);
        waiting.sort_by_key(|stopped| observed.running().yields(stopped.tid()));
        waiting
    }

    /// The turn of one thread.
    fn turn(
        &mut self,
        id: u32,
        stopped: Stopped,
        turn: Turn,
        ready: &mut Vec<Stopped>,
        rounds: &mut Rounds,
    ) -> Result<Done> {
        let tid = stopped.tid();
        let Some(observed) = self.observed.get_mut(&id) else {
            ready.push(stopped);
            return Ok(Done::default());
        };
        if !observed.is_same(&stopped) {
            return Ok(Done::default());
        }
        if !observed.is_held(tid) && !observed.is_free(&stopped)? {
            observed.goes_natively(tid);
            stopped.resume(Resume::Continue, 0)?;
            return Ok(Done::default());
        }
        let (end, accesses, error) =
            observed.window(stopped, None, Some(turn), self.signals, self.until)?;
        rounds.error = rounds.error.take().or(error);
        let mut done = Done {
            accesses,
            ended: false,
        };
        // It has withdrawn.
        rounds.ended |= observed.engine.is_none();
        match end {
            WindowEnd::Closed(stopped) => ready.push(stopped),
            WindowEnd::Left(_) => {}
            WindowEnd::Declined(stopped, reason) if self.config.full => {
                self.pauses.begin(tid, accesses, reason);
                stopped.resume(Resume::Continue, 0)?;
            }
            WindowEnd::Declined(stopped, _) => {
                stopped.resume(Resume::Continue, 0)?;
            }
            WindowEnd::Exec(stopped) => {
                rounds.ended = true;
                hub::release(Event::Stopped(stopped));
            }
            end @ (WindowEnd::Exiting(_) | WindowEnd::Fatal(..) | WindowEnd::Gone(_)) => {
                done.ended = true;
                rounds.ended |= ends_all(&end);
                resume_after(end)?;
            }
        }
        Ok(done)
    }
}

/// What came of a turn.
#[derive(Debug, Default)]
struct Done {
    accesses: u64,
    /// The thread is no more.
    ended: bool,
}

/// Whether all other threads end too.
fn ends_all(end: &WindowEnd) -> bool {
    match end {
        WindowEnd::Fatal(..) => true,
        WindowEnd::Exiting(stopped) => stopped
            .regs()
            .is_ok_and(|regs| regs.orig_rax as i64 == libc::SYS_exit_group),
        _ => false,
    }
}

/// Lets threads go on natively.
fn let_go(ready: &mut Vec<Stopped>) {
    near::leave(ready);
    for stopped in ready.drain(..) {
        // One that was killed meanwhile is gone.
        let _ = stopped.resume(Resume::Continue, 0);
    }
}

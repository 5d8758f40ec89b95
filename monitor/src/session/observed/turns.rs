//! All threads of a process in turn, in one lane.

use super::Observed;
use crate::profile::ProfileError;
use crate::session::pace;
use crate::session::schedule::Plan;
use crate::tracee::{Stopped, hub};
use nix::unistd::Pid;

/// Threads that have the processors while others wait.
#[derive(Debug, Default)]
pub struct InTurn {
    /// The threads.
    pub threads: Vec<i32>,
    /// Rounds since they were drawn.
    pub rounds: u32,
}

impl Observed {
    /// The lane of a thread.
    pub(super) fn key(&self, tid: Pid) -> i32 {
        if self.full && !self.together {
            tid.as_raw()
        } else {
            0
        }
    }

    /// From now on all threads of the open window are observed in turn, of which `tid` was the first.
    pub fn share(&mut self, tid: Pid) {
        let before = self.key(tid);
        self.together = true;
        if let Some(mut lane) = self.lanes.remove(&before) {
            lane.observer.share(tid.as_raw());
            self.lanes.insert(0, lane);
        }
    }

    /// Opens the window of a run observed as a whole for all threads in turn, of which `tid` is one.
    ///
    /// # Errors
    /// As [`Observed::open`].
    pub fn open_whole(&mut self, tid: Pid) -> std::result::Result<(), ProfileError> {
        if self.together {
            return Ok(());
        }
        let first = self.lanes.keys().next().copied();
        let first = first.map_or(tid, Pid::from_raw);
        let opened = self.open(first, Plan::WHOLE);
        self.share(first);
        opened
    }

    /// Whether the thread has not run since its last turn of the open window.
    pub fn is_held(&self, tid: Pid) -> bool {
        self.held.contains_key(&tid.as_raw())
    }

    /// Whether they are.
    pub fn is_shared(&self) -> bool {
        self.together
    }

    /// Begins a round of the turns of these threads.
    pub fn begin_round(&mut self, threads: &[Stopped]) {
        self.speeds
            .begin_round(threads.iter().map(|stopped| stopped.tid().as_raw()));
        if let Some(lane) = self.lanes.get_mut(&0) {
            lane.observer.begin_round(threads.len() as u64);
        }
    }

    /// Takes the threads that are held, and lets go of those that have been killed, or replaced because another
    /// has executed a program. True: that has happened, and the new program's thread is held still.
    pub fn take_held(&self, ready: &mut Vec<Stopped>) -> bool {
        ready.retain(|stopped| self.is_same(stopped));
        let mut replaced = false;
        for stopped in hub::take_held_of(self.process.pid) {
            if self.is_same(&stopped) {
                ready.push(stopped);
            } else {
                replaced = true;
                hub::hold(stopped);
            }
        }
        replaced
    }

    /// Who has the processors, where there are fewer than threads.
    pub fn running(&mut self) -> &mut InTurn {
        &mut self.in_turn
    }

    /// The thread is no more.
    pub fn forget_speed(&mut self, tid: Pid) {
        self.speeds.forget(tid.as_raw());
    }

    /// Accesses of the thread's turn in the present round, of which the fastest thread has `most`.
    pub fn turn_length(&self, tid: Pid, most: u64) -> u64 {
        let pace = self.speeds.pace(tid.as_raw());
        let lane = self.lanes.get(&0);
        match lane.and_then(|lane| lane.observer.turn_length(pace)) {
            Some(accesses) => accesses,
            None => (most as f64 / pace) as u64,
        }
    }

    /// Ends the round; a run observed as a whole may be cut there.
    pub fn end_round(&mut self) -> std::result::Result<(), ProfileError> {
        let (Some(lane), Some(engine)) = (self.lanes.get_mut(&0), &self.engine) else {
            return Ok(());
        };
        lane.observer.end_round();
        if !self.full {
            return Ok(());
        }
        let (observer, recorder) = (&mut lane.observer, &mut self.recorder);
        pace::cut(&mut lane.windows, observer, recorder, engine.maps())
    }

    /// Accesses of the window so far.
    pub fn accesses(&self) -> u64 {
        let lane = self.lanes.get(&0);
        lane.map_or(0, |lane| lane.windows.accesses(&lane.observer))
    }
}

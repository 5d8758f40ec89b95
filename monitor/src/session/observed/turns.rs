//! All threads of a process in turn, in one lane.

use super::Observed;
use crate::profile::ProfileError;
use crate::session::pace::{self, Turn};
use crate::session::schedule::Plan;
use crate::tracee::{Stopped, hub};
use nix::unistd::Pid;
use rustc_hash::FxHashSet;

/// What is remembered from round to round.
#[derive(Debug, Default)]
pub struct InTurn {
    /// Threads that have the processors while others wait.
    pub threads: Vec<i32>,
    /// Rounds since they were drawn.
    pub rounds: u32,
    /// Those whose last turns ended because they left the processor to others.
    yielded: FxHashSet<i32>,
    /// Those that made no access in their last turns, and had to be asked to come out.
    spun: FxHashSet<i32>,
    /// Whether one of the present round has woken another.
    pub(super) woke: bool,
    /// Most accesses of a turn, where they do.
    briefly: Option<u64>,
}

/// Most accesses of turns behind one in which a thread has woken another, doubled with every round in which none does: what threads
/// do to each other's lines depends on how far one is behind the other, and who has turns longer than what is handed over runs ahead by them.
const BRIEF_TURN: u64 = 5_000;
/// Most accesses of the turn of a thread that is alone: its end costs little beside them. (A chess program that came to 14 times its own time
/// with turns like those of threads beside others came to 6.)
const LONE_TURN: u64 = 1_000_000;
/// It is no more than one part in so many of all so far: runs are cut between turns.
const LONE_FRACTION: u64 = 1000;

impl InTurn {
    pub(super) fn has_yielded(&mut self, tid: Pid, yielded: bool) {
        match yielded {
            true => self.yielded.insert(tid.as_raw()),
            false => self.yielded.remove(&tid.as_raw()),
        };
    }

    pub(super) fn has_spun(&mut self, tid: Pid, spun: bool) {
        match spun {
            true => self.spun.insert(tid.as_raw()),
            false => self.spun.remove(&tid.as_raw()),
        };
    }

    /// Whether the thread's next turn is likely to be of a few accesses: those of the others are as long as the first one.
    pub fn yields(&self, tid: Pid) -> bool {
        self.yielded.contains(&tid.as_raw()) || self.spun.contains(&tid.as_raw())
    }
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
        let opened = self.open(first, Plan::WHOLE, false);
        self.share(first);
        opened
    }

    /// Whether the thread has not run since its last turn of the open window.
    pub fn is_held(&self, tid: Pid) -> bool {
        self.held.contains_key(&tid.as_raw())
    }

    /// Whether all threads are held since their last turns, or in a system call since that does not end unnoticed, or held at its end.
    pub(super) fn is_at_rest(&self) -> bool {
        let threads = hub::process(self.process.pid).map(|process| process.threads);
        let back = |tid: Pid| self.left.contains(&tid.as_raw()) && hub::rests_since_call(tid);
        threads.is_some_and(|tids| {
            tids.iter()
                .all(|&tid| self.is_held(tid) || hub::is_in_call(tid) || back(tid))
        })
    }

    /// The thread goes on natively without having had a turn.
    pub fn goes_natively(&mut self, tid: Pid) {
        self.left.remove(&tid.as_raw());
    }

    /// Whether they are.
    pub fn is_shared(&self) -> bool {
        self.together
    }

    /// Begins a round of the turns of these threads.
    pub fn begin_round(&mut self, threads: &[Stopped]) {
        // Those were not held all the time.
        let let_gone = hub::let_gone();
        if std::mem::replace(&mut self.let_gone, let_gone) != let_gone {
            self.held.clear();
            self.left.clear();
        }
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
    pub fn forget_thread(&mut self, tid: Pid) {
        self.speeds.forget(tid.as_raw());
        self.in_turn.has_yielded(tid, false);
        self.in_turn.has_spun(tid, false);
    }

    /// The thread's turn in a round, in which the fastest thread makes `most` accesses. Of a run observed as a whole, one that is
    /// alone has longer turns where it made no system call in its last one, so that nothing of its own is about to wake others.
    pub fn turn(&self, tid: Pid, most: u64, alone: bool) -> Turn {
        let pace = self.speeds.pace(tid.as_raw());
        let observer = self.lanes.get(&0).map(|lane| &lane.observer);
        let most = self.in_turn.briefly.map_or(most, |few| few.min(most));
        let equal = observer.and_then(|observer| observer.turn_length(pace));
        let accesses = equal.unwrap_or((most as f64 / pace) as u64);
        let so_far = observer.map_or(0, |observer| observer.accesses());
        let longer = LONE_TURN.min(so_far / LONE_FRACTION);
        let calm = alone && self.full && self.calm == Some(tid) && longer > accesses;
        Turn {
            accesses: if calm { longer } else { accesses },
            alone,
            calm,
            spins: self.in_turn.spun.contains(&tid.as_raw()),
        }
    }

    /// Ends the round; a run observed as a whole may be cut there.
    pub fn end_round(&mut self) -> std::result::Result<(), ProfileError> {
        let (Some(lane), Some(engine)) = (self.lanes.get_mut(&0), &self.engine) else {
            return Ok(());
        };
        lane.observer.end_round();
        let longer = self.in_turn.briefly.map(|few| 2 * few);
        let longer = longer.filter(|&few| few < LONE_TURN);
        let woke = std::mem::take(&mut self.in_turn.woke);
        self.in_turn.briefly = if woke { Some(BRIEF_TURN) } else { longer };
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

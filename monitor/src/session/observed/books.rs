//! What the turn of a thread took, booked when it is over: processor time, stops, calls, accesses, and what they say of its
//! speed.

use super::Observed;
use crate::engine::translate::window::{Piece, Stats, WindowEnd};
use crate::session::cost::Cost;
use crate::session::engine::Engine;
use crate::session::idle::{Beginning, Lead};
use crate::session::pace;
use crate::session::rates::{Begins, Inside};
use crate::session::speeds::Clocked;
use crate::tracee::{Result, procinfo};
use nix::unistd::Pid;
use std::time::Instant;

/// Accesses of a run observed as a whole for which [`Engine::expansion`] is not asked again: it goes through all that was translated.
const EXPANSION_KEPT: u64 = 1_000_000;

/// How things were when a turn began.
pub(super) struct Began {
    pub(super) tid: Pid,
    pub(super) at: Instant,
    /// Processor time of the thread so far, seconds.
    pub(super) cpu_s: f64,
    /// Accesses of its lane so far.
    pub(super) accesses: u64,
    pub(super) stats: Stats,
    /// Whether it is the thread that the window was opened for.
    pub(super) first: bool,
    /// Whether its speed is learnt from this turn.
    pub(super) clocked: bool,
    /// Whether executions of its code are counted.
    pub(super) counts: bool,
}

impl Observed {
    /// Books a turn that ended so: its accesses.
    pub(super) fn book(&mut self, began: &Began, end: &Result<WindowEnd>) -> u64 {
        let tid = began.tid;
        self.window_wall_s += began.at.elapsed().as_secs_f64();
        // It may have another id by now, or none: its clock as of the last stop is lost then.
        let cpu_now = procinfo::thread_cpu_s(self.process.pid, tid).unwrap_or(began.cpu_s);
        let cpu_now = cpu_now.max(began.cpu_s);
        let stats = self.engine.as_ref().map_or(began.stats, Engine::stats);
        let cost = Cost {
            thread_s: cpu_now - began.cpu_s,
            stops: stats.stops - began.stats.stops,
            misses: stats.misses - began.stats.misses,
        };
        let calls = stats.syscalls - began.stats.syscalls;
        self.calm = (calls == 0).then_some(tid);
        let key = self.key(tid);
        let lane = self.lanes.get_mut(&key);
        let now = (lane.as_ref()).map_or(began.accesses, |lane| lane.observer.accesses());
        let accesses = now - began.accesses;
        self.calls.0 += calls;
        self.calls.1 += accesses;
        self.cost += cost;
        self.in_windows_s += cost.thread_s;
        if began.first {
            self.first.0 += cost;
            self.first.1 += accesses;
        }
        let has_spun = accesses == 0 && matches!(end, Ok(WindowEnd::Closed(_)));
        let has_spun = has_spun && cost.thread_s >= pace::SPIN.as_secs_f64();
        self.in_turn.has_spun(tid, has_spun);
        match end {
            Ok(WindowEnd::Closed(_)) if self.together => {
                self.held.insert(tid.as_raw(), cpu_now);
            }
            Ok(WindowEnd::Left(_)) => {
                self.left.insert(tid.as_raw());
            }
            Ok(WindowEnd::Declined(_, reason)) => {
                *self.declined.entry(reason).or_default() += 1;
                if let Some(lane) = lane {
                    lane.windows.declined += 1;
                }
                if self.full {
                    self.paused.insert(tid.as_raw(), cpu_now);
                }
            }
            _ => {}
        }
        let expansion = self.expansion_behind(began, now);
        // In windows of several, every turn tells (by the expansion of the thread that the window is for): threads are to be told apart soon.
        if began.clocked || self.together && !self.full {
            self.learn_speed(tid, cost, accesses, expansion);
        }
        let inside = self.inside_of(cost, accesses, expansion);
        self.native_s += accesses as f64 / self.weights.native_rate(inside).max(1.0);
        accesses
    }

    /// [`Engine::expansion`] behind that turn, with `now` accesses of its lane: as it was last asked where that will do.
    fn expansion_behind(&mut self, began: &Began, now: u64) -> f64 {
        let known = self.expansion.filter(|(_, at)| match self.full {
            true => !began.clocked && now.saturating_sub(*at) < EXPANSION_KEPT,
            false => !began.counts,
        });
        if let Some((known, _)) = known {
            return known;
        }
        let asked = self.engine.as_ref().map_or(1.0, Engine::expansion);
        self.expansion = Some((asked, now));
        asked
    }

    /// How the last window of these pieces began, or what was timed before it.
    pub(super) fn beginning(&self, pieces: &[Piece]) -> Beginning {
        if let Some(began) = self.beside.began() {
            return began;
        }
        // Threads that have turns have clocks of their own, and other engines' windows are slow all along.
        if self.together || !matches!(self.engine, Some(Engine::Translate(_))) {
            return Beginning::Working;
        }
        let (cost, accesses) = self.first;
        let of_pieces: u64 = pieces.iter().map(|piece| piece.accesses).sum();
        let lead = Lead {
            begun_s: self.began_s,
            stay_s: cost.thread_s,
            accesses: accesses.saturating_sub(of_pieces),
            misses: cost.misses,
            calls: self.calls.0 - self.calls_before,
        };
        lead.beginning(pieces)
    }

    /// How the last window ran: of several threads, the one it was opened for.
    pub fn inside(&self) -> Inside {
        let expansion = self.engine.as_ref().map_or(1.0, Engine::expansion);
        match self.first.1 {
            // It has not had its turn.
            0 => self.inside_of(self.cost, self.accesses(), expansion),
            accesses => self.inside_of(self.first.0, accesses, expansion),
        }
    }

    /// Learns from a turn what stops cost and how fast the thread is.
    fn learn_speed(&mut self, tid: Pid, cost: Cost, accesses: u64, expansion: f64) {
        self.stops.learn_bare(cost, accesses);
        let clocked = Clocked {
            // What new code took is too uncertain to say anything of the rest.
            accesses: if cost.misses == 0 { accesses } else { 0 },
            cache_s: self.stops.cache_s(cost),
            expansion,
        };
        self.speeds.clocked(tid.as_raw(), clocked);
    }

    fn inside_of(&self, cost: Cost, accesses: u64, expansion: f64) -> Inside {
        // Other engines' windows take nothing from caches, or all is slow in them.
        let begins = match &self.engine {
            Some(Engine::Translate(_)) if self.full => Begins::Never,
            Some(Engine::Translate(_)) if self.together => {
                Begins::Often(accesses as f64 / cost.stops.max(1) as f64)
            }
            Some(Engine::Translate(_)) => Begins::Once(accesses as f64),
            _ => Begins::Never,
        };
        let seen = Inside {
            per_second: 0.0,
            begins,
            expansion,
            calls: self.calls.0 as f64 / self.calls.1.max(1) as f64,
            together: self.together,
            mostly_stops: false,
            of_others: false,
        };
        self.stops.inside(cost, accesses, seen)
    }
}

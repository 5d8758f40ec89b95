//! The engine of a session: whatever sees the accesses of its windows.

use super::observed::Meanwhile;
use super::pace::Pace;
use crate::engine::counter::shim::Shim;
use crate::engine::counter::window::{Counter, Source};
use crate::engine::step::{After, End, Limits, Stepper};
use crate::engine::translate::window::{Control, GoesOn, Piece, Stats, Translate, WindowEnd};
use crate::observe::Observer;
use crate::tracee::Stopped;
use crate::tracee::maps::Maps;
use crate::tracee::{Event, Result};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::rc::Rc;

/// Accesses stepped between two looks at how far the window has come.
const STEP_CHUNK: u64 = 20_000;

/// One of the engines, for one program image.
pub enum Engine {
    /// Windows in the code cache.
    Translate(Box<Translate>),
    /// Windows of single steps.
    Step(Box<Step>),
    /// Windows of a counter of instructions.
    Counter(Box<Counter>),
}

/// Which engine a session has.
#[derive(Clone)]
pub enum Kind {
    /// [`Engine::Translate`].
    Translate,
    /// [`Engine::Step`].
    Step,
    /// [`Engine::Counter`], with the shim that the first process loads, if it is started with one.
    Counter(Option<Rc<Shim>>, Source),
}

/// Slowdown of single steps. (Measured: 20 to 60 us a step.)
const STEP_SLOWDOWN: f64 = 1e5;

/// The stepping engine with what it last knew of the address space.
pub struct Step {
    stepper: Stepper,
    maps: Maps,
    pid: Pid,
    stats: Stats,
}

impl Engine {
    /// The stepping engine for process `pid`.
    pub fn step(pid: Pid) -> Engine {
        let maps = Maps::read(pid).unwrap_or_default();
        Engine::Step(Box::new(Step {
            stepper: Stepper::new(),
            maps,
            pid,
            stats: Stats::default(),
        }))
    }

    /// The process's mappings as last read.
    pub fn maps(&self) -> &Maps {
        match self {
            Engine::Translate(engine) => engine.maps(),
            Engine::Step(engine) => &engine.maps,
            Engine::Counter(engine) => engine.maps(),
        }
    }

    /// What windows did so far.
    pub fn stats(&self) -> Stats {
        match self {
            Engine::Translate(engine) => engine.stats,
            Engine::Step(engine) => engine.stats,
            Engine::Counter(engine) => engine.stats,
        }
    }

    /// As [`Translate::go_on`].
    pub fn go_on(&mut self, how: GoesOn) {
        if let Engine::Translate(engine) = self {
            engine.go_on(how);
        }
    }

    /// As [`Translate::limit_misses`].
    pub fn limit_misses(&mut self, most: u64) {
        if let Engine::Translate(engine) = self {
            engine.limit_misses(most);
        }
    }

    /// As [`Translate::take_pieces`].
    pub fn take_pieces(&mut self) -> Vec<Piece> {
        match self {
            Engine::Translate(engine) => engine.take_pieces(),
            Engine::Step(_) | Engine::Counter(_) => Vec::new(),
        }
    }

    /// How much slower than native the last window's code may have run for its own sake.
    pub fn expansion(&self) -> f64 {
        match self {
            Engine::Translate(engine) => engine.expansion(),
            Engine::Step(_) => STEP_SLOWDOWN,
            Engine::Counter(engine) => match engine.source() {
                Source::Hardware => 1.0,
                Source::Simulated(_) => STEP_SLOWDOWN,
            },
        }
    }

    /// Runs one window.
    ///
    /// # Errors
    /// As [`Translate::window`] and [`Stepper::window`].
    pub fn window(
        &mut self,
        stopped: Stopped,
        observer: &mut Observer,
        pace: &mut Pace<'_>,
    ) -> Result<WindowEnd> {
        match self {
            Engine::Translate(engine) => engine.window(stopped, observer, pace),
            Engine::Step(engine) => engine.window(stopped, observer, pace),
            Engine::Counter(engine) => engine.window(stopped, observer, pace),
        }
    }

    /// Lets a thread go on natively behind its window while watches of that are out, and hands over its samples.
    ///
    /// # Errors
    /// As [`Counter::beyond`].
    pub fn beyond(
        &mut self,
        stopped: Stopped,
        observer: &mut Observer,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<WindowEnd> {
        match self {
            Engine::Counter(engine) => engine.beyond(stopped, observer, meanwhile),
            Engine::Translate(_) | Engine::Step(_) => Ok(WindowEnd::Closed(stopped)),
        }
    }

    /// Whether there are such watches.
    pub fn is_open(&self) -> bool {
        match self {
            Engine::Counter(engine) => engine.is_open(),
            Engine::Translate(_) | Engine::Step(_) => false,
        }
    }
}

impl Step {
    fn window(
        &mut self,
        mut stopped: Stopped,
        observer: &mut Observer,
        pace: &mut Pace<'_>,
    ) -> Result<WindowEnd> {
        loop {
            if let Ok(maps) = Maps::read(self.pid) {
                self.maps = maps;
            }
            let left = pace.progress(observer, &self.maps);
            if left == 0 {
                return self.release(stopped);
            }
            let pace = RefCell::new(&mut *pace);
            let is_over = || pace.borrow_mut().has_ended();
            let limits = Limits {
                accesses: left.min(STEP_CHUNK),
                // A loop may make no access.
                steps: 2 * STEP_CHUNK,
                stop: Some(&is_over),
                ..Limits::NONE
            };
            let window = self
                .stepper
                .window(stopped, &limits, |access| observer.access(access))?;
            self.stats.stops += window.steps;
            stopped = match window.after {
                After::Stopped(stopped, End::Limit) => stopped,
                After::Stopped(stopped, End::Interrupted | End::Trap) => {
                    return self.release(stopped);
                }
                After::Stopped(stopped, End::Exiting) => return Ok(WindowEnd::Exiting(stopped)),
                After::Stopped(stopped, End::Syscall(number)) => {
                    let number = number as i64;
                    let exits = number == libc::SYS_exit || number == libc::SYS_exit_group;
                    return Ok(if exits {
                        WindowEnd::Exiting(stopped)
                    } else {
                        WindowEnd::Declined(stopped, "a system call that is not stepped over")
                    });
                }
                After::Stopped(stopped, End::Declined(reason)) => {
                    return Ok(WindowEnd::Declined(stopped, reason));
                }
                After::Exited(status) => return Ok(WindowEnd::Gone(Event::Exited(status))),
                After::Killed(signal) => return Ok(WindowEnd::Gone(Event::Killed(signal))),
            };
        }
    }

    fn release(&mut self, stopped: Stopped) -> Result<WindowEnd> {
        Ok(match self.stepper.release(stopped)? {
            After::Stopped(stopped, _) => WindowEnd::Closed(stopped),
            After::Exited(status) => WindowEnd::Gone(Event::Exited(status)),
            After::Killed(signal) => WindowEnd::Gone(Event::Killed(signal)),
        })
    }
}

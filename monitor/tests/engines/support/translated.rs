//! Taking a tracee through windows of the `translate` engine.

use crate::support::tracee;
use statcache::arch::Fast;
use statcache::engine::translate::window::{Control, Piece, Stats, Translate, Waited, WindowEnd};
use statcache::observe::{Access, Observer};
use statcache::tracee::maps::Maps;
use statcache::tracee::{Event, Result, Resume, Running, StopReason, Stopped};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Which addresses are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looking {
    /// As the engine does on this processor.
    AsUsual,
    /// All of them.
    Everywhere,
    /// Those around samples and at watched lines, by `pext` and `loop`, as on newer processors of AMD's.
    Wide,
    /// The same without `loop`, as on Intel's.
    Jumping,
    /// The same with neither.
    Narrow,
    /// None: accesses are counted.
    Nowhere,
}

/// How windows are cut.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Accesses said to be wanted, which decides how long the log is.
    pub log: u64,
    /// A window is closed after the log has been full this many times.
    pub close_after: u64,
    /// And the program runs natively for this long then.
    pub native: Duration,
    /// No more windows, and no more of this one, from this many accesses on.
    pub most: u64,
    /// Which addresses are looked at.
    pub looking: Looking,
    /// Windows are said to be late behind every third system call.
    pub late: bool,
    /// What code leads to that was met is translated between windows.
    pub around: bool,
    /// An epoch of drawn lines begins where the log is read, so many references behind the last one at the least; 0: none does.
    pub epoch: u64,
}

impl Plan {
    /// One window over everything, with a log of the usual length.
    pub const WHOLE: Plan = Plan {
        log: u64::MAX,
        close_after: u64::MAX,
        native: Duration::ZERO,
        most: u64::MAX,
        looking: Looking::AsUsual,
        late: false,
        around: false,
        epoch: 0,
    };
    /// One window over everything, with the shortest log.
    pub const TINY: Plan = Plan {
        log: 1,
        ..Plan::WHOLE
    };
}

struct Paced {
    plan: Plan,
    full: u64,
    calls: Rc<Cell<u64>>,
    epochs: Vec<u64>,
    pieces: Vec<Piece>,
}

impl Control for Paced {
    fn wait(&mut self, running: Running) -> Result<Waited> {
        running.wait().map(Waited::Event)
    }

    fn progress(&mut self, observer: &mut Observer, _: &Maps) -> u64 {
        self.full += 1;
        if self.plan.epoch > 0 {
            self.epochs.push(observer.accesses());
            observer.begin_epoch(self.plan.epoch);
        }
        let over = self.full > self.plan.close_after || observer.accesses() >= self.plan.most;
        if over { 0 } else { self.plan.log }
    }

    fn piece_ended(&mut self, piece: &Piece) {
        self.pieces.push(*piece);
    }

    fn is_late(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.plan.late && self.calls.get().is_multiple_of(3)
    }
}

/// How a run through windows went.
pub struct Run {
    /// Every access, if they were asked for.
    pub accesses: Vec<Access>,
    /// What the observer made of them.
    pub observer: Observer,
    /// The program's end.
    pub event: Event,
    /// Windows that ended at code which must run natively.
    pub declined: Vec<&'static str>,
    /// Of the engine.
    pub stats: Stats,
    /// Windows.
    pub windows: u64,
    /// Accesses before which an epoch may have begun.
    pub epochs: Vec<u64>,
    /// What was timed, as it was told.
    pub pieces: Vec<Piece>,
}

/// Runs `stopped` (at its own registers) through windows to its end.
pub fn run(mut stopped: Stopped, plan: Plan, observer: Observer, tap: bool) -> Run {
    let pid = stopped.tid();
    let (mut observer, mut declined, mut windows) = (observer, Vec::new(), 0);
    let (mut epochs, mut pieces) = (Vec::new(), Vec::new());
    let accesses = Rc::new(RefCell::new(Vec::new()));
    let calls = Rc::default();
    // Either is slow on some, and as right.
    let by = |looping| Fast {
        pext: std::arch::is_x86_feature_detected!("bmi2"),
        looping,
    };
    let (back, engine) = match plan.looking {
        Looking::Wide => Translate::with_fast(stopped, pid, by(true)),
        Looking::Jumping => Translate::with_fast(stopped, pid, by(false)),
        Looking::Narrow => Translate::with_fast(stopped, pid, Fast::NOTHING),
        Looking::Nowhere => Translate::counting(stopped, pid),
        Looking::AsUsual | Looking::Everywhere => Translate::new(stopped, pid),
    }
    .expect("alive");
    let mut engine = engine.expect("this process can be observed");
    if plan.looking == Looking::Everywhere {
        engine.set_exact();
    }
    stopped = back;
    if tap {
        let accesses = Rc::clone(&accesses);
        engine.set_tap(Box::new(move |access| accesses.borrow_mut().push(access)));
    }
    let to_the_end = |stopped: Stopped, signal| {
        tracee::run_natively(stopped.resume(Resume::Continue, signal).expect("resumed"))
    };
    let event = loop {
        let mut paced = Paced {
            plan,
            full: 0,
            calls: Rc::clone(&calls),
            epochs: Vec::new(),
            pieces: Vec::new(),
        };
        windows += 1;
        let end = engine
            .window(stopped, &mut observer, &mut paced)
            .expect("observed");
        epochs.append(&mut paced.epochs);
        pieces.append(&mut paced.pieces);
        let native = match end {
            WindowEnd::Closed(back) if observer.accesses() >= plan.most => {
                break to_the_end(back, 0);
            }
            WindowEnd::Closed(back) if plan.native.is_zero() => {
                while plan.around && engine.translate_around(usize::MAX) {}
                stopped = back;
                continue;
            }
            WindowEnd::Closed(back) => back,
            WindowEnd::Declined(back, reason) => {
                declined.push(reason);
                back
            }
            WindowEnd::Exiting(back) => break to_the_end(back, 0),
            WindowEnd::Fatal(back, signal) => break to_the_end(back, signal),
            WindowEnd::Exec(_) => panic!("another program"),
            WindowEnd::Left(_) => panic!("nobody wanted to leave"),
            WindowEnd::Gone(event) => break event,
        };
        match natively(native, plan, &mut engine) {
            Ok(back) => stopped = back,
            Err(event) => break event,
        }
    };
    let stats = engine.stats;
    drop(engine);
    let accesses = Rc::into_inner(accesses)
        .expect("the engine is gone")
        .into_inner();
    Run {
        accesses,
        observer,
        event,
        declined,
        stats,
        windows,
        epochs,
        pieces,
    }
}

/// Lets the program run for a while; it is stopped at its own registers again, or has ended.
fn natively(
    stopped: Stopped,
    plan: Plan,
    engine: &mut Translate,
) -> std::result::Result<Stopped, Event> {
    let mut running = stopped.resume(Resume::Continue, 0).expect("resumed");
    loop {
        while plan.around && engine.translate_around(usize::MAX) {}
        std::thread::sleep(plan.native);
        // It may have exited.
        let _ = running.interrupt();
        let stopped = match running.wait().expect("waited") {
            Event::Stopped(stopped) => stopped,
            event => return Err(event),
        };
        match stopped.reason {
            StopReason::Interrupt => {
                let mut regs = stopped.regs().expect("registers");
                let in_call =
                    regs.orig_rax as i64 >= 0 && (512..=516).contains(&-(regs.rax as i64));
                if !in_call {
                    regs.orig_rax = u64::MAX;
                    stopped.set_regs(&regs).expect("registers");
                    return Ok(stopped);
                }
                running = stopped.resume(Resume::Continue, 0).expect("resumed");
            }
            StopReason::Signal(signal) => {
                running = stopped.resume(Resume::Continue, signal).expect("resumed");
            }
            _ => running = stopped.resume(Resume::Continue, 0).expect("resumed"),
        }
    }
}

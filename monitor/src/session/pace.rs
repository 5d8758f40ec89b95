//! How a window of the session is paced, and how a whole observed run is cut into model windows.

use super::recorder::Recorder;
use super::signals::{Signals, Wait};
use crate::engine::translate::window::{Control, Waited};
use crate::observe::{Ended, Observer, Sample};
use crate::profile::ProfileError;
use crate::profile::types::{Estimate, WindowRecord};
use crate::tracee::maps::Maps;
use crate::tracee::{Result, Running, procinfo};
use nix::unistd::Pid;
use std::time::Instant;

/// First model windows of an observed run, in accesses; later ones grow with the run, so that
/// their number stays in the hundreds.
const FIRST_CUT: u64 = 200_000;
/// A model window of an observed run is this fraction of the run before it.
const CUT_FRACTION: u64 = 150;
/// One 64-byte reference in this many is sampled at the beginning of an observed run.
pub const FULL_PERIOD: u64 = 150;
/// Later one in (accesses so far / this): samples grow with the logarithm of the run.
const FULL_SAMPLES_PER_E_FOLD: u64 = 50_000;

/// Where windows begin, for all that is recorded about them.
#[derive(Debug)]
pub struct Windows {
    /// The profiled process, whose first thread is observed.
    pub pid: Pid,
    /// Start of the run.
    pub start: Instant,
    /// For each window, the 64-byte references before it.
    pub first_refs: Vec<u64>,
    accesses: u64,
    refs: [u64; 5],
    opened: Instant,
    cpu_s: f64,
    contiguous: bool,
    /// Units declined in the present window.
    pub declined: u32,
}

impl Windows {
    /// No window yet.
    pub fn new(pid: Pid, start: Instant) -> Windows {
        Windows {
            pid,
            start,
            first_refs: Vec::new(),
            accesses: 0,
            refs: [0; 5],
            opened: start,
            cpu_s: 0.0,
            contiguous: false,
            declined: 0,
        }
    }

    /// Opens the next window; samples taken from now on are its own.
    pub fn open(&mut self, observer: &mut Observer, period: u64, contiguous: bool) {
        observer.set_window(self.first_refs.len() as u32, period);
        self.refs = observer.refs();
        self.first_refs
            .push(self.refs[crate::observe::DEFAULT_LINE]);
        self.accesses = observer.accesses();
        self.opened = Instant::now();
        self.cpu_s = procinfo::thread_cpu_s(self.pid, self.pid).unwrap_or(0.0);
        self.contiguous = contiguous;
        self.declined = 0;
    }

    /// Accesses observed in the open window.
    pub fn accesses(&self, observer: &Observer) -> u64 {
        observer.accesses() - self.accesses
    }

    /// CPU seconds of the thread when the window was opened.
    pub fn cpu_start_s(&self) -> f64 {
        self.cpu_s
    }

    /// The open window as a record, with `samples` of this or earlier windows that ended in it.
    /// It stands for itself until something better is known.
    pub fn close(
        &self,
        observer: &Observer,
        samples: Vec<Sample>,
        recorder: &mut Recorder,
        maps: &Maps,
    ) -> WindowRecord {
        let mut refs = observer.refs();
        for (refs, before) in refs.iter_mut().zip(self.refs) {
            *refs -= before;
        }
        let accesses = self.accesses(observer);
        let first_ref = |window: u32| self.first_refs[window as usize];
        let exact = accesses as f64;
        WindowRecord {
            index: self.first_refs.len() as u32 - 1,
            start_s: self.opened.duration_since(self.start).as_secs_f64(),
            cpu_start_s: self.cpu_s,
            wall_s: self.opened.elapsed().as_secs_f64(),
            contiguous_with_previous: self.contiguous,
            tid: self.pid.as_raw(),
            accesses,
            refs,
            stands_for: Estimate {
                value: exact,
                low: exact,
                high: exact,
            },
            samples: recorder.samples(samples, self.pid.as_raw(), &first_ref, maps),
            declined: self.declined,
        }
    }
}

/// Paces one window.
pub struct Pace<'a> {
    /// The monitor's signals.
    pub signals: &'a mut Signals,
    /// Where windows begin.
    pub windows: &'a mut Windows,
    /// Where they are recorded.
    pub recorder: &'a mut Recorder,
    /// Accesses after which the window closes; `None` to observe until the program ends, cut into
    /// model windows.
    pub accesses: Option<u64>,
    /// Set when a cut could not be written: the profile ends there.
    pub error: Option<ProfileError>,
}

impl Pace<'_> {
    /// Cuts an observed run where the present model window is long enough.
    fn cut(&mut self, observer: &mut Observer, maps: &Maps) {
        let total = observer.accesses();
        if self.windows.accesses(observer) < FIRST_CUT.max(total / CUT_FRACTION) {
            return;
        }
        let samples = observer.drain_finished();
        let record = self.windows.close(observer, samples, self.recorder, maps);
        if let Err(error) = self.recorder.window(record) {
            self.error = Some(error);
        }
        let period = FULL_PERIOD.max(total / FULL_SAMPLES_PER_E_FOLD);
        self.windows.open(observer, period, true);
    }
}

impl Control for Pace<'_> {
    fn wait(&mut self, running: Running) -> Result<Waited> {
        Ok(match self.signals.wait(running, None)? {
            Wait::Event(event) => Waited::Event(event),
            Wait::End(running) | Wait::Timeout(running) => Waited::User(running),
        })
    }

    fn progress(&mut self, observer: &mut Observer, maps: &Maps) -> u64 {
        if self.error.is_some() || self.signals.poll_end(self.windows.pid) {
            return 0;
        }
        match self.accesses {
            Some(accesses) => accesses.saturating_sub(self.windows.accesses(observer)),
            None => {
                self.cut(observer, maps);
                u64::MAX
            }
        }
    }
}

/// Ends every watch of the observer and closes the window.
pub fn end_window(
    windows: &Windows,
    observer: &mut Observer,
    how: Ended,
    recorder: &mut Recorder,
    maps: &Maps,
) -> WindowRecord {
    let samples = observer.end_all(how);
    windows.close(observer, samples, recorder, maps)
}

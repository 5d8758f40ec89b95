//! `statcache run`: the life of one profiled program.

use super::engine::Engine;
use super::pace::{self, FULL_PERIOD, Pace, Windows};
use super::program::{self, Refused};
use super::rate::{self, RateProbe, Unit};
use super::recorder::Recorder;
use super::schedule::Schedule;
use super::signals::{Signals, Wait};
use super::weights::Inside;
use super::{host, weights};
use crate::cli::run::EngineChoice;
use crate::cli::run::RunConfig;
use crate::engine::translate::window::{Translate, WindowEnd};
use crate::observe::{Ended, Observer};
use crate::profile::types::{Estimate, Footer, Header, Record, SCHEMA_VERSION, Warning};
use crate::profile::{ProfileError, Writer};
use crate::tracee::launch::{self, LaunchError};
use crate::tracee::{
    self, Event, Result, Resume, Running, StopReason, Stopped, TraceError, procinfo,
};
use nix::unistd::Pid;
use std::ffi::CString;
use std::time::{Duration, Instant, SystemTime};

/// Native stretches over which the access rate may be measured after a window, in seconds: the
/// shortest in which an instruction comes up some dozen times.
const RATE_S: [f64; 4] = [0.004, 0.02, 0.1, 0.4];
/// They are at most this share of the run so far.
const RATE_SHARE: f64 = 0.05;
/// Windows without an instruction to count, after which others are tried, and after which a window looks
/// at every address again.
const REMARK_AFTER: u32 = 3;
const LEAST_BLIND: u32 = 8;
/// Pause before an observed run goes on after something that must run natively.
const AFTER_DECLINED: Duration = Duration::from_micros(200);
/// The pause doubles up to this while less than [`LEAST_OBSERVED`] accesses come of it.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const LEAST_OBSERVED: u64 = 1000;

/// Why there is no profile, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program was refused before anything was started.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The profile cannot be written.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The program could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Tracing it failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// How a profiled run went.
#[derive(Debug)]
pub struct Outcome {
    /// The program's status as a shell sees it.
    pub status: i32,
    /// Windows recorded.
    pub windows: u32,
    /// Samples taken.
    pub samples: u64,
    /// Accesses observed.
    pub accesses: u64,
    /// Accesses of the whole run, estimated.
    pub accesses_estimated: f64,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// Set when the profile could not be written to its end.
    pub error: Option<ProfileError>,
}

/// Runs the program of `config` and writes its profile.
///
/// # Errors
/// [`RunError`]; from the launch on, whatever fails is reported in the [`Outcome`] instead, with the
/// program's own status.
pub fn run(config: &RunConfig) -> std::result::Result<Outcome, RunError> {
    let path = program::find(&config.program)?;
    let c_path = program::c_string(path.as_os_str())?;
    let words = std::iter::once(&config.program).chain(&config.args);
    let argv: Vec<CString> = words
        .clone()
        .map(|w| program::c_string(w))
        .collect::<std::result::Result<_, _>>()?;
    let mut writer = Writer::create(&config.output)?;
    let start = Instant::now();
    let (pid, running, exec_result) = launch::launch(&c_path, &argv)?;
    let signals = Signals::block();
    let header = Header {
        schema_version: SCHEMA_VERSION,
        statcache_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: words.map(|w| w.to_string_lossy().into_owned()).collect(),
        cwd: std::env::current_dir()
            .map(|d| d.display().to_string())
            .unwrap_or_default(),
        pid: pid.as_raw(),
        ppid: std::process::id() as i32,
        engine: match config.engine {
            EngineChoice::Step => "step".to_owned(),
            EngineChoice::Auto | EngineChoice::Translate => "translate".to_owned(),
        },
        seed: config.seed,
        overhead_percent: config.overhead_percent,
        full: config.full,
        start_unix_s: SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0.0, |d| d.as_secs_f64()),
        host_cpu: host::cpu_name(),
        host_caches: host::caches(),
    };
    let stopped = match running.wait()? {
        Event::Stopped(stopped) if stopped.reason == StopReason::Exec => stopped,
        Event::Stopped(stopped) => {
            // About to exit: the image could not be loaded.
            stopped.resume(Resume::Continue, 0)?;
            tracee::wait_untraced(pid)?;
            return Err(exec_error(&path, exec_result).into());
        }
        Event::Exited(_) | Event::Killed(_) => return Err(exec_error(&path, exec_result).into()),
    };
    let header_written = writer.append(&Record::Header(header));
    let mut session = Session {
        config,
        signals,
        recorder: Recorder::new(writer),
        engine: None,
        // Sampled from the first window on only: `Windows::open` sets the period.
        observer: Observer::new(FULL_PERIOD, config.seed),
        schedule: match config.engine {
            EngineChoice::Step => Schedule::stepping(config.overhead_percent / 100.0, config.seed),
            _ => Schedule::new(config.overhead_percent / 100.0, config.seed),
        },
        probe: if config.full { None } else { RateProbe::new() },
        windows: Windows::new(pid, start),
        weights: weights::Weights::default(),
        warnings: Vec::new(),
        error: header_written.err(),
        window_wall_s: 0.0,
        cost: Cost::default(),
        over: false,
        footprint_bytes: 0,
        program_cpu_s: (0.0, 0.0),
        declined: std::collections::BTreeMap::new(),
        pause: AFTER_DECLINED,
        breakpoint: 0,
        without_unit: 0,
        pid,
    };
    let status = session.follow(stopped);
    Ok(session.finish(status?, start.elapsed()))
}

fn exec_error(path: &std::path::Path, result: launch::ExecResult) -> LaunchError {
    let source = result
        .error()
        .unwrap_or_else(|| std::io::Error::other("it ended before its first instruction"));
    LaunchError::Exec {
        program: path.display().to_string(),
        source,
    }
}

struct Session<'a> {
    config: &'a RunConfig,
    signals: Signals,
    recorder: Recorder,
    engine: Option<Engine>,
    observer: Observer,
    schedule: Schedule,
    probe: Option<RateProbe>,
    windows: Windows,
    weights: weights::Weights,
    warnings: Vec<Warning>,
    /// The profile could not be written: no more windows.
    error: Option<ProfileError>,
    window_wall_s: f64,
    /// What the last window took.
    cost: Cost,
    /// No more windows: the user ended the profile, or the program cannot be observed.
    over: bool,
    /// Most memory the program had in use, in bytes.
    footprint_bytes: u64,
    /// CPU seconds: the first thread's, and the process's with its children.
    program_cpu_s: (f64, f64),
    declined: std::collections::BTreeMap<&'static str, u64>,
    /// How long an observed run goes on natively after the present decline.
    pause: Duration,
    /// Where the last breakpoint of the rate measurement was; 0 before the first.
    breakpoint: u64,
    /// Windows since one had an instruction fit for counting.
    without_unit: u32,
    pid: Pid,
}

/// CPU time of a window. Wall time would count the neighbours of a busy machine too.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Seconds of the observed thread.
    thread_s: f64,
    /// Seconds of the monitor.
    monitor_s: f64,
    /// Stops.
    stops: u64,
}

/// CPU seconds a stop takes on the side of the stopped thread. (Guessed as half of
/// a round trip, measured as 8 us on one processor.)
const STOP_S: f64 = 4e-6;

impl Cost {
    /// Accesses per CPU second while the thread was in the code cache.
    fn rate_in_cache(&self, accesses: u64) -> f64 {
        let cache_s = self.thread_s - STOP_S * self.stops as f64;
        accesses as f64 / cache_s.max(0.2 * self.thread_s).max(1e-6)
    }
}

/// What became of the program.
enum Next {
    /// Stopped in user mode at its own registers.
    Stopped(Stopped),
    /// Running natively.
    Running(Running),
    /// Ended with this status.
    Ended(i32),
}

impl Session<'_> {
    /// Follows the program from its first exec stop to its end.
    fn follow(&mut self, stopped: Stopped) -> Result<i32> {
        let mut next = self.new_image(stopped)?;
        loop {
            next = match next {
                Next::Ended(status) => return Ok(status),
                Next::Stopped(stopped) if self.over => {
                    Next::Running(stopped.resume(Resume::Continue, 0)?)
                }
                Next::Stopped(stopped) if self.config.full => self.observe_all(stopped)?,
                Next::Stopped(stopped) => Next::Running(stopped.resume(Resume::Continue, 0)?),
                Next::Running(running) if self.over || self.config.full => {
                    self.run_natively(running, None)?
                }
                Next::Running(running) => self.sample_windows(running)?,
            };
        }
    }

    fn elapsed_s(&self) -> f64 {
        self.windows.start.elapsed().as_secs_f64()
    }

    /// A program image has just been put in place: prepares to observe it.
    fn new_image(&mut self, stopped: Stopped) -> Result<Next> {
        self.engine = None;
        self.recorder.forget_addresses();
        if self.over {
            return Ok(Next::Stopped(stopped));
        }
        // The exec stop lies inside the system call; its exit is the first clean stop.
        let stopped = match stopped.resume(Resume::Syscall, 0)?.wait()? {
            Event::Stopped(stopped) if stopped.reason == StopReason::Syscall => stopped,
            Event::Stopped(stopped) => return self.any_stop(stopped),
            event => return Ok(Next::Ended(ended(&event))),
        };
        if self.config.engine == EngineChoice::Step {
            self.engine = Some(Engine::step(self.pid));
            return Ok(Next::Stopped(stopped));
        }
        let (stopped, engine) = Translate::new(stopped, self.pid)?;
        match engine {
            Ok(mut engine) => {
                if !self.config.full {
                    engine.count_executions(None);
                }
                self.engine = Some(Engine::Translate(Box::new(engine)));
            }
            Err(error) => {
                self.over = true;
                self.warnings.push(Warning {
                    what: format!("nothing was observed: {error}"),
                    remedy: "run 'statcache check' to see what this host allows".into(),
                });
            }
        }
        Ok(match stopped.reason {
            StopReason::Syscall => Next::Stopped(stopped),
            _ => return self.any_stop(stopped),
        })
    }

    /// Lets the program run natively until it ends, something happens that we must handle, or the
    /// deadline passes (then it is stopped).
    fn run_natively(&mut self, mut running: Running, deadline: Option<Instant>) -> Result<Next> {
        loop {
            let stopped = match self.signals.wait(running, deadline)? {
                Wait::Event(Event::Stopped(stopped)) => stopped,
                Wait::Event(event) => return Ok(Next::Ended(ended(&event))),
                Wait::End(same) => {
                    self.over = true;
                    running = same;
                    continue;
                }
                Wait::Timeout(same) => {
                    same.interrupt()?;
                    match same.wait()? {
                        Event::Stopped(stopped) => stopped,
                        event => return Ok(Next::Ended(ended(&event))),
                    }
                }
            };
            if stopped.reason == StopReason::Interrupt && deadline.is_some() {
                return Ok(Next::Stopped(stopped));
            }
            match self.any_stop(stopped)? {
                Next::Running(same) => running = same,
                other => return Ok(other),
            }
        }
    }

    /// Handles a stop that no window waits for: signals are passed on as they come.
    fn any_stop(&mut self, stopped: Stopped) -> Result<Next> {
        Ok(Next::Running(match stopped.reason {
            StopReason::Signal(libc::SIGTRAP)
                if rate::is_breakpoint(&stopped.siginfo()?, self.breakpoint) =>
            {
                stopped.resume(Resume::Continue, 0)?
            }
            StopReason::Signal(signal) => stopped.resume(Resume::Continue, signal)?,
            StopReason::Group => stopped.resume(Resume::Listen, 0)?,
            StopReason::Exec => return self.new_image(stopped),
            StopReason::Exiting => {
                self.note_cpu();
                stopped.resume(Resume::Continue, 0)?
            }
            _ => stopped.resume(Resume::Continue, 0)?,
        }))
    }

    fn note_cpu(&mut self) {
        let own = procinfo::thread_cpu_s(self.pid, self.pid).unwrap_or(0.0);
        let (process, children) = procinfo::process_cpu_s(self.pid).unwrap_or((own, 0.0));
        self.program_cpu_s = (own, process.max(own) + children);
        let footprint = procinfo::footprint_bytes(self.pid).unwrap_or(0);
        self.footprint_bytes = self.footprint_bytes.max(footprint);
    }

    /// Observes from here until something ends it.
    fn observe_all(&mut self, stopped: Stopped) -> Result<Next> {
        let contiguous = !self.windows.first_refs.is_empty();
        if !contiguous {
            self.windows.open(&mut self.observer, FULL_PERIOD, false);
        }
        let before = self.observer.accesses();
        let end = self.window(stopped, None)?;
        // Where nothing can be observed for long, asking again and again would only slow it down.
        self.pause = if self.observer.accesses() - before < LEAST_OBSERVED {
            (2 * self.pause).min(LONGEST_PAUSE)
        } else {
            AFTER_DECLINED
        };
        let next = self.after_window(end)?;
        match next {
            Next::Running(running) if !self.over => {
                let next = self.run_natively(running, Some(Instant::now() + self.pause))?;
                self.clean_stop(next)
            }
            other => Ok(other),
        }
    }

    /// One window of the engine; books its time.
    fn window(&mut self, stopped: Stopped, accesses: Option<u64>) -> Result<WindowEnd> {
        let Some(engine) = &mut self.engine else {
            return Ok(WindowEnd::Closed(stopped));
        };
        let begun = Instant::now();
        let cpu = procinfo::thread_cpu_s(self.pid, self.pid).unwrap_or(0.0);
        let own = monitor_cpu_s();
        let stops = engine.stats().stops;
        let mut pace = Pace {
            signals: &mut self.signals,
            windows: &mut self.windows,
            recorder: &mut self.recorder,
            accesses,
            error: None,
        };
        let end = engine.window(stopped, &mut self.observer, &mut pace);
        if let Some(error) = pace.error {
            self.error = Some(error);
            self.over = true;
        }
        self.over |= self.signals.end_wanted;
        self.window_wall_s += begun.elapsed().as_secs_f64();
        let cpu_now = procinfo::thread_cpu_s(self.pid, self.pid).unwrap_or(cpu);
        self.cost = Cost {
            thread_s: cpu_now - cpu,
            monitor_s: monitor_cpu_s() - own,
            stops: engine.stats().stops - stops,
        };
        end
    }

    /// Lets the program go on after a window.
    fn after_window(&mut self, end: WindowEnd) -> Result<Next> {
        Ok(match end {
            WindowEnd::Closed(stopped) => Next::Running(stopped.resume(Resume::Continue, 0)?),
            WindowEnd::Declined(stopped, reason) => {
                *self.declined.entry(reason).or_default() += 1;
                self.windows.declined += 1;
                Next::Running(stopped.resume(Resume::Continue, 0)?)
            }
            WindowEnd::Exiting(stopped) => {
                self.note_cpu();
                Next::Running(stopped.resume(Resume::Continue, 0)?)
            }
            WindowEnd::Fatal(stopped, signal) => {
                Next::Running(stopped.resume(Resume::Continue, signal)?)
            }
            WindowEnd::Exec(stopped) => self.new_image(stopped)?,
            WindowEnd::Gone(event) => Next::Ended(ended(&event)),
        })
    }

    /// From an interrupt to a stop in which a window can begin; a thread that sleeps in a system
    /// call is let be.
    fn clean_stop(&mut self, next: Next) -> Result<Next> {
        let Next::Stopped(stopped) = next else {
            return Ok(next);
        };
        if stopped.reason != StopReason::Interrupt {
            return Ok(Next::Stopped(stopped));
        }
        let mut regs = stopped.regs()?;
        let in_call = regs.orig_rax as i64 >= 0 && (512..=516).contains(&-(regs.rax as i64));
        if in_call || regs.gs_base != 0 {
            let running = stopped.resume(Resume::Continue, 0)?;
            if self.config.full {
                // Observed again when the call is over.
                let later = Some(Instant::now() + Duration::from_millis(1));
                let next = self.run_natively(running, later)?;
                return self.clean_stop(next);
            }
            return Ok(Next::Running(running));
        }
        regs.orig_rax = u64::MAX;
        stopped.set_regs(&regs)?;
        Ok(Next::Stopped(stopped))
    }

    /// Runs natively for a while, then through one window and a measurement of the native rate.
    fn sample_windows(&mut self, running: Running) -> Result<Next> {
        let elapsed = self.elapsed_s();
        let gap = self.schedule.gap_s(elapsed);
        let deadline = Instant::now() + Duration::from_secs_f64(gap.min(3600.0));
        let next = self.run_natively(running, Some(deadline))?;
        if self.over || self.engine.is_none() {
            return Ok(next);
        }
        match self.clean_stop(next)? {
            Next::Stopped(stopped) => self.sample_window(stopped),
            other => Ok(other),
        }
    }

    fn sample_window(&mut self, stopped: Stopped) -> Result<Next> {
        let plan = self.schedule.plan(self.elapsed_s());
        let begun = Instant::now();
        self.windows.open(&mut self.observer, plan.period, false);
        if let Some(before) = self.weights.open(self.windows.cpu_start_s()) {
            self.write(before);
        }
        let end = self.window(stopped, Some(plan.accesses))?;
        let accesses = self.windows.accesses(&self.observer);
        let how = match end {
            WindowEnd::Exiting(_) | WindowEnd::Fatal(..) | WindowEnd::Gone(_) => Ended::Exit,
            _ => Ended::Cut,
        };
        let own = monitor_cpu_s();
        self.close_window(how);
        let inside = self.inside(accesses);
        let rate = self.weights.native_rate(inside);
        let native_s = accesses as f64 / rate.max(1.0);
        let counting = match &end {
            WindowEnd::Closed(_) => self.start_counting(accesses, native_s),
            _ => None,
        };
        let next = self.after_window(end)?;
        let cost_s = self.cost.thread_s + self.cost.monitor_s + monitor_cpu_s() - own;
        self.schedule.window_done(cost_s, accesses, native_s);
        tracing::debug!(?plan, accesses, cost = ?self.cost, cost_s, rate, ?inside, wall_s = begun.elapsed().as_secs_f64(), "window");
        match (next, counting) {
            (Next::Running(running), Some(counting)) => self.measure_rate(running, counting),
            (next, _) => Ok(next),
        }
    }

    fn close_window(&mut self, how: Ended) {
        let Some(engine) = &self.engine else { return };
        let record = pace::end_window(
            &self.windows,
            &mut self.observer,
            how,
            &mut self.recorder,
            engine.maps(),
        );
        if self.config.full {
            self.write(record);
        } else {
            let cpu_s = procinfo::thread_cpu_s(self.pid, self.pid)
                .unwrap_or_else(|| self.windows.cpu_start_s());
            let inside = self.inside(record.accesses);
            self.weights
                .close(record, self.windows.cpu_start_s(), cpu_s, inside);
        }
    }

    /// How the last window ran, with this many accesses.
    fn inside(&self, accesses: u64) -> Inside {
        Inside {
            per_second: self.cost.rate_in_cache(accesses),
            expansion: self.engine.as_ref().map_or(1.0, Engine::expansion),
            everywhere: self.engine.as_ref().is_none_or(Engine::looked_everywhere),
        }
    }

    fn write(&mut self, record: crate::profile::types::WindowRecord) {
        if let Err(error) = self.recorder.window(record) {
            self.error.get_or_insert(error);
            self.over = true;
        }
    }

    /// Sets a breakpoint on an instruction that should come up often enough, but not too often, in one
    /// of [`RATE_S`].
    fn start_counting(
        &mut self,
        accesses: u64,
        native_s: f64,
    ) -> Option<(rate::Counting, Duration)> {
        let engine = self.engine.as_mut()?;
        let most_s = (RATE_SHARE * self.windows.start.elapsed().as_secs_f64()).max(RATE_S[0]);
        let wanted = |seconds: f64| rate::HITS * native_s / seconds;
        let unit = RATE_S
            .into_iter()
            .filter(|seconds| *seconds <= most_s)
            .find_map(|seconds| {
                let wanted = wanted(seconds).max(rate::LEAST_EXECUTIONS);
                let range = (0.4 * wanted) as u64..=(3.0 * wanted) as u64;
                let (ip, executions) = engine.executed(&range, 1).pop()?;
                Some((Unit { ip, executions }, seconds))
            });
        self.without_unit = match unit {
            Some(_) => 0,
            None => self.without_unit + 1,
        };
        if engine.looked_everywhere() || self.without_unit == REMARK_AFTER {
            // The next windows look at few addresses: they count these, so that one of them may do.
            let most = 12.0 * wanted(RATE_S[0]).max(rate::LEAST_EXECUTIONS);
            engine.count_executions(Some(engine.seldom(most as u64, rate::CANDIDATES)));
        } else if self.without_unit > LEAST_BLIND {
            self.without_unit = 0;
            engine.count_executions(None);
        }
        let (unit, seconds) = unit?;
        self.breakpoint = unit.ip;
        let counting = self.probe.as_ref()?.start(self.pid, &unit, accesses)?;
        Some((counting, Duration::from_secs_f64(seconds)))
    }

    fn measure_rate(
        &mut self,
        running: Running,
        (counting, time): (rate::Counting, Duration),
    ) -> Result<Next> {
        let before = procinfo::thread_cpu_s(self.pid, self.pid);
        let next = self.run_natively(running, Some(Instant::now() + time))?;
        let after = procinfo::thread_cpu_s(self.pid, self.pid);
        if let (Next::Stopped(_), Some(before), Some(after)) = (&next, before, after)
            && let Some((rate, error, cost_s)) = counting.finish(after - before)
        {
            tracing::debug!(rate, error, cost_s, cpu_s = after - before, "native rate");
            self.weights.measured(rate, error, cost_s);
            self.schedule.spend(cost_s);
        }
        Ok(next)
    }

    fn finish(mut self, status: i32, wall: Duration) -> Outcome {
        if self.config.full && self.engine.is_some() && !self.windows.first_refs.is_empty() {
            let how = if self.over { Ended::Cut } else { Ended::Exit };
            self.close_window(how);
        } else if let Some(last) = self.weights.finish(self.program_cpu_s.0) {
            self.write(last);
        }
        self.warn();
        let accesses = self.observer.accesses();
        let accesses_estimated = if self.config.full && !self.over {
            let exact = accesses as f64;
            Estimate {
                value: exact,
                low: exact,
                high: exact,
            }
        } else {
            self.weights.total()
        };
        let footer = Footer {
            exit_status: Some(status),
            wall_s: wall.as_secs_f64(),
            cpu_s: self.program_cpu_s.1,
            window_wall_s: self.window_wall_s,
            accesses_estimated,
            footprint_bytes: self.footprint_bytes,
            warnings: self.warnings.clone(),
        };
        if let Some(engine) = &self.engine {
            tracing::debug!(stats = ?engine.stats(), "engine");
        }
        let error = match self.error {
            Some(error) => Some(error),
            None => self.recorder.finish(footer).err(),
        };
        Outcome {
            status,
            windows: self.windows.first_refs.len() as u32,
            samples: self.observer.samples(),
            accesses,
            accesses_estimated: accesses_estimated.value,
            warnings: self.warnings,
            error,
        }
    }

    /// Collects what makes the result less sure.
    fn warn(&mut self) {
        let mut warn = |what: String, remedy: &str| {
            self.warnings.push(Warning {
                what,
                remedy: remedy.to_owned(),
            });
        };
        if self.windows.first_refs.is_empty() && self.engine.is_some() {
            warn(
                "the program ended before the first window: there is nothing to report".into(),
                "run it with --full, or on a larger input",
            );
        }
        if self.signals.end_wanted {
            warn(
                "the profile was ended before the program".into(),
                "let it run to its end",
            );
        }
        let (own, all) = self.program_cpu_s;
        // CPU times come in clock ticks: two of them are no evidence.
        if all > own + 0.03 && all > 1.02 * own {
            warn(
                format!(
                    "{:.0} % of the CPU time was spent in other threads or child processes, which were not observed",
                    100.0 * (all - own) / all
                ),
                "profile the child program itself, or read the result as the first thread's",
            );
        }
        let declined: u64 = self.declined.values().sum();
        if declined > 0 {
            let reasons: Vec<String> = self
                .declined
                .iter()
                .map(|(reason, n)| format!("{reason} ({n})"))
                .collect();
            warn(
                format!(
                    "windows ended {declined} times at code that must run natively: {}",
                    reasons.join(", ")
                ),
                "none: the code around it is less well covered",
            );
        }
    }
}

/// CPU seconds of the calling thread (clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`).
fn monitor_cpu_s() -> f64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 * 1e-9)
}

fn ended(event: &Event) -> i32 {
    match event {
        Event::Exited(status) => *status,
        Event::Killed(signal) => 128 + signal,
        Event::Stopped(_) => 0,
    }
}

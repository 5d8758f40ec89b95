//! `statcache run` and `statcache attach`: how a session begins, and what comes of it.

use super::attach::{self, NotAttached};
use super::counter::{self, NoCounter};
use super::finish::Ended;
use super::follow::Session;
use super::heap::HeapShim;
use super::limits;
use super::needs::{self, Lacking};
use super::output::Output;
use super::preload;
use super::program::{self, Refused};
use super::signals::Signals;
use super::{AttachConfig, EngineChoice, ProfileConfig, RunConfig, host};
use crate::control::{NoPlace, Server, Status};
use crate::engine::counter::shim::Inherited;
use crate::profile::types::{Header, Record, SCHEMA_VERSION, Warning};
use crate::profile::{ProfileError, Writer};
use crate::tracee::hub::{self, Follow};
use crate::tracee::launch::{self, LaunchError};
use crate::tracee::{Event, Stopped, TraceError, procinfo, status};
use nix::unistd::Pid;
use std::ffi::CString;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Why there is no profile, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program was refused before anything was started.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The process cannot be attached to.
    #[error(transparent)]
    NotAttached(#[from] NotAttached),
    /// The profile cannot be written.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The `counter` engine cannot be used here.
    #[error(transparent)]
    NoCounter(#[from] NoCounter),
    /// The program could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The shim that notes allocation sites cannot be made.
    #[error("the shim for --heap-sites cannot be made: {0}")]
    HeapShim(std::io::Error),
    /// Nobody could ask a profiler in the background anything.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// What it takes is not there.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// Tracing it failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A limit of the user's or the container's processes.
    #[error(
        "no thread can be made: {0}; the profiler needs some beside the program's: raise the limit (ulimit -u, or the container's of processes)"
    )]
    NoThread(std::io::Error),
    /// A fault of ours ended the profile. The program has gone on; its status as a shell sees it, where it is known.
    #[error(
        "a fault of statcache's own ended the profile; windows written before are kept, and the program went on without it: please report the lines above"
    )]
    Fault(Option<i32>),
}

/// How a profiled run went.
#[derive(Debug)]
pub struct Outcome {
    /// The first process's status as a shell sees it; `None` when it goes on.
    pub status: Option<i32>,
    /// Processes with windows.
    pub processes: usize,
    /// Windows recorded.
    pub windows: u32,
    /// Samples taken.
    pub samples: u64,
    /// Accesses observed.
    pub accesses: u64,
    /// Accesses of the whole run, estimated.
    pub accesses_estimated: f64,
    /// Whether there is no window because the first process's program could not be observed.
    pub refused: bool,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// Set when the profile could not be written to its end.
    pub error: Option<ProfileError>,
}

type Result<T> = std::result::Result<T, RunError>;

/// Runs the program of `config` and writes its profile; calls `started` with its process id once it
/// is under way.
///
/// # Errors
/// [`RunError`]; from the launch on, whatever fails is reported in the [`Outcome`] instead, with the
/// program's own status.
pub fn run(config: &RunConfig, started: impl FnOnce(Pid) + Send) -> Result<Outcome> {
    needs::check(config.profile.engine)?;
    limits::survive_file_limits();
    let path = program::find(&config.program)?;
    let c_path = program::c_string(path.as_os_str())?;
    let words = std::iter::once(&config.program).chain(&config.args);
    let argv: Vec<CString> = words
        .clone()
        .map(|w| program::c_string(w))
        .collect::<std::result::Result<_, _>>()?;
    let command = words.map(|w| w.to_string_lossy().into_owned()).collect();
    let cwd = std::env::current_dir();
    let cwd = cwd.map(|d| d.display().to_string()).unwrap_or_default();
    let source = match config.profile.engine {
        EngineChoice::Counter => Some(counter::source(&config.profile)?),
        _ => None,
    };
    let mut writer = Writer::create(&config.profile.output)?;
    if config.profile.background {
        crate::control::prepare()?;
    }
    let mut signals = Signals::block(config.profile.engine.hears_signals());
    let traced = on_own_thread(|| {
        let following = config.profile.follow();
        let _hub = hub::open(following);
        let start = Instant::now();
        let shim = source.map(|source| Ok((Rc::new(Inherited::create()?), source)));
        let shim = shim.transpose().map_err(NoCounter::Shim)?;
        let heap = config.heap_sites.then(HeapShim::create).transpose();
        let heap = heap.map_err(RunError::HeapShim)?;
        let environment = shim.as_ref().map(|_| counter::environment());
        let options = launch::options(following);
        let (pid, running, exec_result) = launch::launch_with(
            &c_path,
            &argv,
            environment.as_deref(),
            options,
            Some(signals.before()),
        )?;
        hub::add(pid);
        if let Some((shim, _)) = &shim {
            let shim = Rc::clone(shim);
            shim.hide();
            at_each_image(Some(pid), move |stopped| match shim.is_in(stopped.tid()) {
                true => preload::into(stopped, &shim.environment()),
                false => Ok(()),
            });
        }
        if let Some(shim) = heap {
            let first = Some(pid).filter(|_| following == hub::Follow::Threads);
            at_each_image(first, move |stopped| match shim.suits(stopped.tid()) {
                true => preload::into(stopped, &shim.environment()),
                false => Ok(()),
            });
        }
        limits::raise();
        let stopped = match launch::until_exec(running)? {
            Event::Stopped(stopped) => stopped,
            end => return Err(exec_error(&path, exec_result, &end).into()),
        };
        let header = header(&config.profile, command, cwd, pid, Pid::this());
        let server = open_server(&config.profile, &header, false);
        let header_written = writer.append(&Record::Header(header));
        signals.program = Some(pid);
        signals.control = server.as_ref().map(Server::control);
        let output = Output::new(writer, &config.profile, signals.control.clone());
        if config.heap_sites {
            output.want_heap_sites();
        }
        let mut session = Session::new(&config.profile, &mut signals, output, pid, start);
        session.failed(header_written.err());
        if let Some((shim, source)) = shim {
            session.count_with(Some(Rc::clone(shim.shim())), source);
        }
        hub::set_hold(config.profile.full);
        hub::release(Event::Stopped(stopped));
        started(pid);
        session.follow();
        Ok((session.end(), server))
    });
    let completed = traced.and_then(|(ended, server)| complete(ended, server));
    let waits = !config.profile.background;
    match (completed, signals.program) {
        (Err(RunError::Fault(_)), Some(pid)) if waits => {
            Err(RunError::Fault(signals.wait_for_program(pid)))
        }
        (Ok(outcome), Some(pid)) if waits && outcome.status.is_none() => Ok(Outcome {
            status: signals.wait_for_program(pid),
            ..outcome
        }),
        (completed, _) => completed,
    }
}

/// Has each new image of this process, or of all, be given a shim. One that could not be runs without.
fn at_each_image(
    pid: Option<Pid>,
    give: impl Fn(&Stopped) -> std::result::Result<(), TraceError> + 'static,
) {
    let visit = move |stopped: &Stopped| {
        if let Err(error) = give(stopped) {
            tracing::debug!(%error, "no shim");
        }
    };
    hub::at_exec(pid, Box::new(visit));
}

/// Watches the running process of `config` for a while and writes its profile; calls `started` once
/// it is attached to.
///
/// # Errors
/// [`RunError`]; once attached, whatever fails is reported in the [`Outcome`] instead.
pub fn attach(config: &AttachConfig, started: impl FnOnce(Pid) + Send) -> Result<Outcome> {
    let pid = Pid::from_raw(config.pid);
    needs::check(config.profile.engine)?;
    limits::survive_file_limits();
    attach::check(pid)?;
    let source = match config.profile.engine {
        EngineChoice::Counter => Some(counter::source(&config.profile)?),
        _ => None,
    };
    if config.profile.background {
        crate::control::prepare()?;
    }
    let mut writer = Writer::create(&config.profile.output)?;
    let mut signals = Signals::block(config.profile.engine.hears_signals());
    let (ended, server) = on_own_thread(|| {
        let following = config.profile.follow();
        let _hub = hub::open(following);
        let start = Instant::now();
        limits::raise();
        // All that takes time comes first: once seized, newborn threads wait for us.
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd"));
        let cwd = cwd.map(|d| d.display().to_string()).unwrap_or_default();
        let ppid = status::family(pid).map_or(Pid::from_raw(0), |(_, ppid)| ppid);
        let header = header(&config.profile, procinfo::command(pid), cwd, pid, ppid);
        attach::seize(pid, launch::options(following))?;
        let server = open_server(&config.profile, &header, true);
        let header_written = writer.append(&Record::Header(header));
        signals.control = server.as_ref().map(Server::control);
        let output = Output::new(writer, &config.profile, signals.control.clone());
        let mut session = Session::new(&config.profile, &mut signals, output, pid, start);
        session.failed(header_written.err());
        session.attached = true;
        if let Some(source) = source {
            session.count_with(None, source);
        }
        session.schedule.begin_gently();
        session.until = config.seconds.map(|s| start + Duration::from_secs_f64(s));
        started(pid);
        session.follow();
        Ok((session.end(), server))
    })?;
    complete(ended, server)
}

/// Completes the profile, and tells those who wait for that.
///
/// # Errors
/// [`RunError::Fault`].
fn complete(ended: Ended, server: Option<Server>) -> Result<Outcome> {
    on_own_thread(|| {
        let outcome = ended.write();
        if let Some(server) = server {
            server.complete(outcome.error.as_ref().map(ToString::to_string));
        }
        Ok(outcome)
    })
}

/// Listens for `ps`, `stop` and `report PID`. Where that is not possible the profile is none the worse.
fn open_server(config: &ProfileConfig, header: &Header, attached: bool) -> Option<Server> {
    let status = Status {
        pid: header.pid,
        monitor: Pid::this().as_raw(),
        command: header.command.clone(),
        output: std::path::absolute(&config.output).unwrap_or_else(|_| config.output.clone()),
        start_unix_s: header.start_unix_s,
        attached,
        background: config.background,
        ..Status::default()
    };
    let opened = Server::open(status);
    opened
        .inspect_err(|error| tracing::debug!(%error, "no control socket"))
        .ok()
}

/// Does it on a thread of its own, which a fault ends alone. Where that one traces, the kernel stops tracing whatever is still
/// traced when it ends, without a stop: nobody waits on us while names are resolved.
fn on_own_thread<T: Send>(what: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, what);
        match thread.map_err(RunError::NoThread)?.join() {
            Ok(result) => result,
            // What it was has been printed.
            Err(_) => Err(RunError::Fault(None)),
        }
    })
}

fn header(
    config: &ProfileConfig,
    command: Vec<String>,
    cwd: String,
    pid: Pid,
    ppid: Pid,
) -> Header {
    Header {
        schema_version: SCHEMA_VERSION,
        statcache_version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        cwd,
        pid: pid.as_raw(),
        ppid: ppid.as_raw(),
        engine: match config.engine {
            EngineChoice::Step => "step".to_owned(),
            EngineChoice::Counter => "counter".to_owned(),
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
    }
}

fn exec_error(path: &std::path::Path, result: launch::ExecResult, end: &Event) -> LaunchError {
    let source = result.error().unwrap_or_else(|| {
        let by = match end {
            Event::Killed(signal) => format!(" by signal {signal}"),
            _ => String::new(),
        };
        std::io::Error::other(format!("it ended{by} before its first instruction"))
    });
    LaunchError::Exec {
        program: path.display().to_string(),
        source,
    }
}

impl ProfileConfig {
    fn follow(&self) -> Follow {
        if self.follow {
            Follow::Children
        } else {
            Follow::Threads
        }
    }
}

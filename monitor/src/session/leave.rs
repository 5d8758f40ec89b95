//! Leaving no trace in a process that goes on without us.
//!
//! Threads need no stop to be let go: when the tracing thread of the monitor ends, the kernel stops
//! tracing all of its (ptrace(2), "Death under ptrace" aside, nothing happens to them). What is ours
//! in a process are its shared mappings; one thread is made to unmap them.

use crate::tracee::maps::{Backing, Maps};
use crate::tracee::remote::{self, CallSite, restart_pending, restarted};
use crate::tracee::{Event, Result, Resume, StopReason, Stopped, TraceError, hub, procinfo};
use nix::unistd::Pid;
use std::ops::Range;
use std::time::Duration;

/// Threads asked in turn to do it.
const ATTEMPTS: usize = 8;

/// The name the shared memory has in a memory map; [`remote`] gives it.
const NAME: &str = "/memfd:statcache";

/// What is ours in a process: of this monitor, of the parent it was forked from, or of a monitor that
/// was killed.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Mappings.
    pub ranges: Vec<Range<u64>>,
    /// File descriptors, where making a mapping was cut short.
    descriptors: Vec<u64>,
}

impl Left {
    /// Looks for it.
    pub fn find(pid: Pid) -> Left {
        let maps = Maps::read(pid).unwrap_or_default();
        let named = maps.0.iter().filter(|m| match &m.path {
            Backing::File(path) | Backing::Other(path) => path.contains(NAME),
            _ => false,
        });
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let descriptors = entries.into_iter().flatten().filter_map(|entry| {
            let entry = entry.ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            let ours = target.to_str()?.starts_with(NAME);
            ours.then(|| entry.file_name().to_str()?.parse().ok())?
        });
        Left {
            ranges: named.map(|m| m.start..m.end).collect(),
            descriptors: descriptors.collect(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.descriptors.is_empty()
    }
}

/// A thread whose monitor was killed leaves the code cache by itself, when its log is full at the
/// latest. (Milliseconds of its own time; taken with a good measure for a busy machine.)
const SETTLED: Duration = Duration::from_millis(200);

/// Whether a thread may still be in the code cache of a monitor that was killed before we came.
pub fn may_be_in_use(process: &hub::Process) -> bool {
    process.found && process.image == 0 && process.born.elapsed() < SETTLED
}

/// Takes `left` out of the process; no thread may be in it. The thread that does it may be asleep in a
/// system call: that is made again as if nothing had been.
///
/// # Errors
/// [`TraceError::Gone`]; where only the calls fail, what is left stays.
pub fn remove(stopped: Stopped, left: &Left) -> Result<Stopped> {
    let tid = stopped.tid();
    let exact = stopped.regs()?;
    let pid = hub::process_of(tid).map_or(tid, |process| process.pid);
    let maps = Maps::read(pid).unwrap_or_default();
    let Some(slack) = remote::find_slack(&stopped, &maps) else {
        return Ok(stopped);
    };
    // The stub's way home holds, should we be killed: a call that was interrupted is made again.
    let site = CallSite::open(&stopped, slack, restarted(&exact))?;
    let mut caller = site.caller(stopped);
    let unmap = |r: &Range<u64>| ("munmap", libc::SYS_munmap, [r.start, r.end - r.start]);
    let close = |&fd: &u64| ("close", libc::SYS_close, [fd, 0]);
    let calls = left.ranges.iter().map(unmap);
    for (what, number, [first, second]) in calls.chain(left.descriptors.iter().map(close)) {
        let args = [first, second, 0, 0, 0, 0];
        match caller.call(what, number, args) {
            Ok(_) | Err(TraceError::Remote { .. }) => {}
            // A signal came first: it is delivered, and what remains is for another time.
            Err(TraceError::Unsuitable { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    let stopped = caller.done().ok_or(TraceError::Gone(tid))?;
    site.close(&stopped)?;
    if !restart_pending(&exact) {
        return Ok(stopped);
    }
    // Only on its way through the signal code does the kernel make a call again (or let a handler
    // decide that); a thread that has a signal is there, any other is sent there.
    stopped.set_regs(&exact)?;
    if let StopReason::Signal(_) = stopped.reason {
        return Ok(stopped);
    }
    hub::interrupt(tid);
    match stopped.resume(Resume::Continue, 0)?.wait()? {
        Event::Stopped(stopped) => Ok(stopped),
        _ => Err(TraceError::Gone(tid)),
    }
}

/// Takes what is ours out of every live process. Nothing that fails here harms the program.
pub fn tidy() {
    hub::settle(SETTLED);
    for process in hub::processes() {
        if process.borrows_memory || Left::find(process.pid).is_empty() {
            continue;
        }
        while may_be_in_use(&process) && hub::serve().is_ok() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut threads = process.threads.clone();
        threads.sort_by_key(|&tid| !procinfo::is_running(process.pid, tid));
        for &tid in threads.iter().cycle().take(ATTEMPTS) {
            if let Ok(true) = tidy_by(process.pid, tid) {
                break;
            }
        }
    }
}

/// Lets one thread do it. False when something else happened to it first.
fn tidy_by(pid: Pid, tid: Pid) -> Result<bool> {
    let Some(event) = hub::stop(tid)? else {
        return Ok(false);
    };
    let stopped = match event {
        Event::Stopped(stopped)
            if stopped.reason == StopReason::Interrupt && stopped.must_be_native().is_none() =>
        {
            stopped
        }
        event => {
            hub::release(event);
            return Ok(false);
        }
    };
    hub::mend(&stopped)?;
    let stopped = remove(stopped, &Left::find(pid))?;
    hub::release(Event::Stopped(stopped));
    Ok(Left::find(pid).is_empty())
}

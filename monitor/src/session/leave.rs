//! Leaving no trace in a process that goes on without us.
//!
//! Threads need no stop to be let go: when the tracing thread of the monitor ends, the kernel stops
//! tracing all of its (ptrace(2), "Death under ptrace" aside, nothing happens to them). What is ours
//! in a process are its shared mappings, and those of a shim; one thread is made to unmap them.

use crate::engine::counter::live::let_go;
use crate::engine::counter::shim::Shim;
use crate::tracee::filters::{self, Filters};
use crate::tracee::maps::{Maps, NAME};
use crate::tracee::procinfo::Position;
use crate::tracee::remote::{self, CallSite, restart_pending, restarted};
use crate::tracee::sequence;
use crate::tracee::status;
use crate::tracee::{
    CODE_64, Event, Result, Resume, StopReason, Stopped, TraceError, hub, procinfo,
};
use nix::unistd::Pid;
use statcache_abi::{Block, MAGIC, PAGE_BYTES, VERSION};
use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

/// Threads asked in turn to do it.
const ATTEMPTS: usize = 8;

/// What is ours in a process: of this monitor, of the parent it was forked from, or of a monitor that
/// was killed.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Mappings.
    pub ranges: Vec<Range<u64>>,
    /// File descriptors, where making a mapping was cut short.
    descriptors: Vec<u64>,
    /// Shims.
    shims: Vec<LeftShim>,
}

/// A shim in a process.
#[derive(Clone, Debug)]
struct LeftShim {
    /// Where it lies, from its block on.
    range: Range<u64>,
    /// Address of a word that is 0 once nothing uses it.
    holds: u64,
    /// The process that it was mapped into: this one, or the one from which this was forked. 0 where that is not known.
    owner: i32,
}

/// Whether a process is another statcache at work, which maps what its programs do: that is in use. By its file, or as it is called.
pub fn is_monitor(pid: Pid) -> bool {
    let exe = |of: &str| format!("/proc/{of}/exe");
    let (its, own) = (exe(&pid.to_string()), exe("self"));
    let file = |path: &str| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let name = |path: &str| Some(std::fs::read_link(path).ok()?.file_name()?.to_owned());
    let is = file(&its).is_some_and(|its| Some(its) == file(&own));
    let is_called = name(&its).is_some_and(|its| Some(its) == name(&own));
    (is || is_called) && !Left::find(pid).is_empty()
}

impl Left {
    /// Looks for it.
    pub fn find(pid: Pid) -> Left {
        let maps = Maps::read(pid).unwrap_or_default();
        let named = maps.0.iter().filter(|m| m.path.is_ours());
        let mut left = Left::default();
        for mapping in named {
            if left.holds(mapping.start) {
                continue;
            }
            match shim_at(pid, mapping.start) {
                Some(shim) => {
                    left.ranges.push(shim.range.clone());
                    left.shims.push(shim);
                }
                None => left.ranges.push(mapping.start..mapping.end),
            }
        }
        left.descriptors = procinfo::descriptors_of(pid, NAME);
        left
    }

    fn holds(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// Whether no thread of process `pid` is in it, or will be; `stopped` is one of them. Threads that run are stopped for
    /// that, and go on. What cannot be told counts as in use.
    pub fn is_unused(&self, pid: Pid, stopped: Option<&Stopped>) -> bool {
        if self.ranges.is_empty() {
            return true;
        }
        let held = self.shims.iter().any(|shim| shim.is_held(pid));
        if held || !self.shims.is_empty() && procinfo::has_peer_in_memory(pid) {
            return false;
        }
        // From now on none comes there any more. One may still be on its way out, or in a loop of code in the cache that has no way out, as it
        // makes no access.
        let Ok(tasks) = procinfo::tasks(pid) else {
            return false;
        };
        let own = stopped.map(Stopped::tid);
        tasks.iter().all(|&tid| match procinfo::position(pid, tid) {
            Position::At(ip) => !self.holds(ip),
            Position::Gone => true,
            Position::Unknown if own == Some(tid) => stopped
                .and_then(|stopped| stopped.regs().ok())
                .is_some_and(|regs| !self.holds(regs.rip)),
            Position::Unknown => self.is_outside(tid),
        })
    }

    /// Whether a thread that runs is found outside.
    fn is_outside(&self, tid: Pid) -> bool {
        match hub::stop_within(tid, PATIENCE) {
            Ok(Some(Event::Stopped(stopped))) => {
                let outside = stopped.regs().is_ok_and(|regs| !self.holds(regs.rip));
                hub::release(Event::Stopped(stopped));
                outside
            }
            Ok(Some(event)) => {
                hub::release(event);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.descriptors.is_empty()
    }
}

/// Memory of a process that we trace.
fn peek<const N: usize>(pid: Pid, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// A shim that was mapped with its block at `at`. That of another version is taken for one in use, as is what cannot be read.
fn shim_at(pid: Pid, at: u64) -> Option<LeftShim> {
    let word = |offset: usize| Some(u64::from_le_bytes(peek(pid, at + offset as u64)?));
    let half = |offset: usize| Some(u32::from_le_bytes(peek(pid, at + offset as u64)?));
    if word(offset_of!(Block, magic)).is_some_and(|magic| magic != MAGIC) {
        return None;
    }
    let known = || {
        let same = half(offset_of!(Block, version))? == VERSION;
        (same && word(offset_of!(Block, base))? == at).then_some(LeftShim {
            range: at..at + word(offset_of!(Block, span))?,
            holds: word(offset_of!(Block, holds))?,
            owner: half(offset_of!(Block, owner))? as i32,
        })
    };
    Some(known().unwrap_or(LeftShim {
        range: at..at + PAGE_BYTES,
        holds: at,
        owner: 0,
    }))
}

impl LeftShim {
    fn is_held(&self, pid: Pid) -> bool {
        peek::<4>(pid, self.holds).is_none_or(|word| word != [0; 4])
    }
}

/// Has process `pid` leave shims that a monitor which was killed has left in use.
///
/// # Errors
/// What ptrace refuses; the thread is gone.
pub fn free(mut stopped: Stopped, pid: Pid) -> Result<Stopped> {
    let shims = Left::find(pid).shims;
    if shims.is_empty() {
        return Ok(stopped);
    }
    // What it filters it may kill for; the shim has left such a process by itself.
    let tasks = procinfo::tasks(pid).unwrap_or_default();
    if tasks.iter().any(|&tid| status::is_filtered(tid)) {
        return Ok(stopped);
    }
    for left in shims {
        // The child of a fork has a copy, which finds out by itself.
        if left.owner != pid.as_raw() || !left.is_held(pid) {
            continue;
        }
        let Ok(shim) = Shim::left_in(pid, left.range.start) else {
            continue;
        };
        stopped = let_go(stopped, pid, &shim, &[left.range])?;
        if stopped.has_news() {
            break;
        }
    }
    Ok(stopped)
}

/// How long a thread may take to stop.
const PATIENCE: Duration = Duration::from_millis(100);

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
    let exact = sequence::regs_outside(&stopped)?;
    if exact.cs != CODE_64 {
        // Calls of ours are of 64-bit code.
        return Ok(stopped);
    }
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
            Ok(_) if number == libc::SYS_munmap => hub::give_space_back(tid, second),
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
    if stopped.has_news() {
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
        // A thread that sleeps where the shim put it leaves when it wakes up. Until then the shim has to stay: the program does not
        // notice.
        let begun = Instant::now();
        let unused = loop {
            let unused = Left::find(process.pid).is_unused(process.pid, None);
            if unused || begun.elapsed() > SETTLED || hub::serve().is_err() {
                break unused;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if !unused {
            tracing::debug!(pid = %process.pid, "what is in use stays");
            continue;
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

/// Lets one thread do it. False when something else happened to it first. One that is stopped like all of its process is left where it does: the kernel
/// stops it again when it is traced no more (linux/kernel/ptrace.c, `__ptrace_unlink`).
fn tidy_by(pid: Pid, tid: Pid) -> Result<bool> {
    let Some(event) = hub::stop_within(tid, SETTLED)? else {
        return Ok(false);
    };
    let stopped = match event {
        Event::Stopped(stopped)
            if matches!(stopped.reason, StopReason::Interrupt | StopReason::Group)
                && stopped.must_be_native().is_none()
                && !matches!(filters::of(&stopped), Filters::Against(_)) =>
        {
            stopped
        }
        event => {
            hub::release(event);
            return Ok(false);
        }
    };
    let is_halted = stopped.reason == StopReason::Group;
    hub::mend(&stopped)?;
    let stopped = remove(stopped, &Left::find(pid))?;
    let signal = matches!(stopped.reason, StopReason::Signal(_));
    if !is_halted || signal {
        hub::release(Event::Stopped(stopped));
    }
    Ok(Left::find(pid).is_empty())
}

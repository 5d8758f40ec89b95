//! A kernel counter of one thread that stops it when it overflows: the plumbing of perf events under ptrace.
//!
//! The event is bound to the thread, and its overflow sends a signal to it, which is first a stop of the tracer: no ring, no sample
//! record, no second process. The signal is one whose default is to be ignored (SIGURG): a monitor that dies between
//! overflow and delivery leaves nothing behind, and with its descriptors the event goes. The count goes on behind the overflow, so
//! that it tells how late the stop came.
//!
//! Instructions need a PMU, which virtual machines seldom show. The same plumbing runs on any host by the thread's CPU time.
//!
//! Source: perf_event_open(2) "Overflow handling", fcntl(2) `F_SETSIG`.
//!
//! Unsafe invariant: the kernel is handed numbers, or a pointer to a live local as large as it
//! reads. A `siginfo_t` has 128 bytes, none of them padding: any word in it is an integer.

use crate::tracee::{Event, Resume, StopReason, Stopped, TraceError};
use nix::unistd::Pid;
use perf_event::events::{Hardware, Raw, Software};
use perf_event::{Builder, Counter};
use std::os::fd::AsRawFd;

/// The signal an overflow sends.
pub const SIGNAL: i32 = libc::SIGURG;
/// `POLL_IN`, the `si_code` of an overflow.
const POLL_IN: i32 = 1;
const IOC_RESET: libc::c_ulong = 0x2403;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
/// A period that is never reached.
pub const NEVER: u64 = 1 << 62;

/// What is counted, in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Retired instructions.
    Instructions,
    /// Nanoseconds of CPU time.
    CpuNanoseconds,
}

/// Why there is no counter.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The host has none.
    #[error(
        "this host has no counter of retired instructions (virtual machines and containers seldom do): use --engine translate"
    )]
    NoPmu,
    /// It has, and keeps it to itself.
    #[error(
        "performance counters are closed to this user: set kernel.perf_event_paranoid to 2 or less (it is {0}), or use --engine translate"
    )]
    Paranoid(String),
    /// It has, and something else than the kernel's setting keeps them away.
    #[error(
        "performance counters are closed to this process, though kernel.perf_event_paranoid is {0}: run outside of the container or sandbox (or give it CAP_PERFMON), or use --engine translate"
    )]
    Sandboxed(i32),
    /// Anything else.
    #[error("the performance counter cannot be opened: {0}")]
    Other(#[from] std::io::Error),
}

fn refused(error: std::io::Error) -> Refused {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    refused_at(error, level.unwrap_or_default().trim())
}

/// What an error means where `kernel.perf_event_paranoid` is `level`.
fn refused_at(error: std::io::Error, level: &str) -> Refused {
    /// Up to this, anybody may count their own user mode (perf_event_open(2)).
    const OPEN: i32 = 2;
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
            Refused::NoPmu
        }
        Some(libc::EACCES | libc::EPERM) => match level.parse() {
            Ok(level) if level <= OPEN => Refused::Sandboxed(level),
            Ok(level) => Refused::Paranoid(level.to_string()),
            Err(_) => Refused::Paranoid("unknown".to_owned()),
        },
        _ => Refused::Other(error),
    }
}

/// A counter that stops its thread, and one of memory instructions beside it, where the processor has that.
pub struct Overflow {
    counter: Counter,
    memory: Option<Counter>,
}

/// Retired instructions that access memory: event 0xd0 with umask 0x83 on Intel's processors (MEM_INST_RETIRED.ANY from Skylake on, before and
/// on the small cores MEM_UOPS_RETIRED.ALL). Not on AMD's, whose dispatch events count squashed work too.
/// Source: Intel SDM volume 3B, chapter "Performance Monitoring Events".
const MEMORY_INSTRUCTIONS: u64 = 0x83d0;

/// A counter of `tid`'s memory instructions, not counting yet.
fn memory_instructions(tid: Pid) -> Option<Counter> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    if !cpu
        .lines()
        .any(|line| line.starts_with("vendor_id") && line.ends_with("GenuineIntel"))
    {
        return None;
    }
    Builder::new(Raw::new(MEMORY_INSTRUCTIONS))
        .observe_pid(tid.as_raw())
        .any_cpu()
        .exclude_kernel(true)
        .exclude_hv(true)
        .build()
        .ok()
}

fn control(counter: &Counter, request: libc::c_ulong) -> std::io::Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::ioctl(counter.as_raw_fd(), request, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Overflow {
    /// A counter of `tid`'s, not armed.
    ///
    /// # Errors
    /// Why this host or this user has none.
    pub fn open(tid: Pid, unit: Unit) -> Result<Overflow, Refused> {
        let mut builder = match unit {
            Unit::Instructions => Builder::new(Hardware::INSTRUCTIONS),
            Unit::CpuNanoseconds => Builder::new(Software::TASK_CLOCK),
        };
        builder
            .observe_pid(tid.as_raw())
            .any_cpu()
            .exclude_kernel(unit == Unit::Instructions)
            .exclude_hv(unit == Unit::Instructions)
            .sample_period(NEVER)
            .wakeup_events(1);
        let counter = builder.build().map_err(refused)?;
        let fd = counter.as_raw_fd();
        let owner = Owner {
            kind: F_OWNER_TID,
            tid: tid.as_raw(),
        };
        // SAFETY: `owner` is a live `struct f_owner_ex`; the others take numbers.
        let set = unsafe {
            libc::fcntl(fd, F_SETOWN_EX, &raw const owner) == 0
                && libc::fcntl(fd, F_SETSIG, SIGNAL) == 0
                && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC) == 0
        };
        if !set {
            return Err(Refused::Other(std::io::Error::last_os_error()));
        }
        let memory = match unit {
            Unit::Instructions => memory_instructions(tid),
            Unit::CpuNanoseconds => None,
        };
        Ok(Overflow { counter, memory })
    }

    /// Sets the count to 0 and lets it overflow after `period`. The thread is stopped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn arm(&mut self, period: u64) -> std::io::Result<()> {
        let fd = self.counter.as_raw_fd();
        control(&self.counter, IOC_RESET)?;
        // SAFETY: `period` is a live u64.
        if unsafe { libc::ioctl(fd, IOC_PERIOD, &raw const period) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        if let Some(memory) = &self.memory {
            control(memory, IOC_RESET)?;
        }
        self.pause(false)
    }

    /// Ends the count and says how far it came since [`Overflow::arm`]. The thread is stopped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&mut self) -> std::io::Result<u64> {
        self.pause(true)?;
        self.counter.read()
    }

    /// Whether [`Overflow::memory`] says something.
    pub fn counts_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Instructions among those counted that access memory, where the processor counts them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn memory(&mut self) -> std::io::Result<Option<u64>> {
        self.memory.as_mut().map(Counter::read).transpose()
    }

    /// Stops counting for a while, or goes on. The thread is stopped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pause(&mut self, pause: bool) -> std::io::Result<()> {
        let request = if pause { IOC_DISABLE } else { IOC_ENABLE };
        if let Some(memory) = &self.memory {
            control(memory, request)?;
        }
        control(&self.counter, request)
    }

    /// Whether a signal with this description is this counter's overflow, and not the program's own.
    pub fn caused(&self, info: &libc::siginfo_t) -> bool {
        // `_sigpoll`: a long of events, then the descriptor.
        const BAND_AND_FD: usize = 16;
        // SAFETY: a siginfo_t has 128 bytes, all of which are initialised by the kernel.
        let fd = unsafe {
            (&raw const *info)
                .cast::<u8>()
                .add(BAND_AND_FD + 8)
                .cast::<i32>()
                .read()
        };
        info.si_signo == SIGNAL && info.si_code == POLL_IN && fd == self.counter.as_raw_fd()
    }
}

/// How late the stops of a counter come: the largest of `trials`, each after `period` units of a running program's.
/// `None` where that ended first. The program is killed.
///
/// # Errors
/// Why this host has no such counter.
pub fn largest_skid(
    mut stopped: Stopped,
    unit: Unit,
    period: u64,
    trials: u32,
) -> Result<Option<u64>, Refused> {
    let tid = stopped.tid();
    let other = |error: TraceError| Refused::Other(std::io::Error::other(error));
    let mut largest = 0;
    let mut counter = Overflow::open(tid, unit)?;
    for _ in 0..trials {
        counter.arm(period)?;
        loop {
            let running = stopped.resume(Resume::Continue, 0).map_err(other)?;
            stopped = match running.wait().map_err(other)? {
                Event::Stopped(stopped) => stopped,
                _ => return Ok(None),
            };
            if stopped.reason == StopReason::Exiting {
                return Ok(None);
            }
            if stopped.reason == StopReason::Signal(SIGNAL)
                && counter.caused(&stopped.siginfo().map_err(other)?)
            {
                break;
            }
        }
        largest = largest.max(counter.count()?.saturating_sub(period));
    }
    // SAFETY: a signal to a process that we trace, and that is stopped.
    unsafe { libc::kill(tid.as_raw(), libc::SIGKILL) };
    Ok(Some(largest))
}

const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    tid: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_cause_and_remedy() {
        let said = |errno, level| {
            let error = std::io::Error::from_raw_os_error(errno);
            refused_at(error, level).to_string()
        };
        for (errno, level, parts) in [
            (libc::ENOENT, "2", ["no counter", "--engine translate"]),
            (libc::ENOSYS, "", ["no counter", "--engine translate"]),
            (
                libc::EACCES,
                "3",
                [
                    "kernel.perf_event_paranoid to 2 or less (it is 3)",
                    "--engine translate",
                ],
            ),
            (libc::EACCES, "", ["it is unknown", "--engine translate"]),
            (
                libc::EPERM,
                "1",
                ["though kernel.perf_event_paranoid is 1", "CAP_PERFMON"],
            ),
            (libc::EMFILE, "2", ["cannot be opened", "24"]),
        ] {
            let said = said(errno, level);
            for part in parts {
                assert!(said.contains(part), "{errno} {level}: {said}");
            }
            assert!(!said.contains('\n'));
        }
    }

    /// Each thread has a counter of its own, one made later too: opened by its id, it counts nobody else.
    #[test]
    fn a_counter_counts_its_own_thread() {
        let own = nix::unistd::gettid();
        let mut mine = Overflow::open(own, Unit::CpuNanoseconds).expect("a clock");
        mine.arm(NEVER).expect("armed");
        let (send, receive) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::spawn(move || {
            send.send(nix::unistd::gettid()).expect("sent");
            wait.recv().expect("told");
            (0..20_000_000u64).fold(1, |sum, n| sum ^ std::hint::black_box(n * 3))
        });
        let mut theirs =
            Overflow::open(receive.recv().expect("an id"), Unit::CpuNanoseconds).expect("a clock");
        theirs.arm(NEVER).expect("armed");
        go.send(()).expect("sent");
        busy.join().expect("done");
        let (mine, theirs) = (mine.count().expect("mine"), theirs.count().expect("theirs"));
        assert!(
            theirs > mine,
            "{theirs} of the busy thread, {mine} of the one that waits"
        );
    }
}

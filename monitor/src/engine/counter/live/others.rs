//! The other threads of the process: each is put into the shim once, to come under it or to leave it.

use super::ring::{Rung, is_free, ring};
use super::{Result as Outcome, Stop};
use crate::engine::counter::shim::Shim;
use crate::tracee::{Event, Result, StopReason, Stopped, TraceError, hub, procinfo};
use nix::unistd::Pid;
use rustc_hash::FxHashSet;
use statcache_abi::{Request, op, result};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long another thread may take to stop where it can be put into the shim.
const PATIENCE: Duration = Duration::from_millis(100);
/// And between two tries.
const BREATH: Duration = Duration::from_micros(50);

/// Has the threads of `pid` other than `own` come under the shim, but for those that have been `brought`, or, without that, leave it; they
/// sleep on where they do. True where any came; and the stops that it took. `skipped`: these are seen to elsewhere.
///
/// # Errors
/// What ptrace refuses.
pub fn follow_all(
    pid: Pid,
    own: Pid,
    mut brought: Option<&mut FxHashSet<i32>>,
    (shim, image): (&Shim, &[Range<u64>]),
    skipped: &[Pid],
) -> Outcome<(bool, u64)> {
    let (mut any, mut stops) = (false, 0);
    let begun = Instant::now();
    // Those that have left, or will by themselves.
    let mut done = Vec::new();
    loop {
        let mut left = false;
        for tid in procinfo::tasks(pid).unwrap_or_default() {
            let came = brought.as_ref();
            let known = came.is_some_and(|brought| brought.contains(&tid.as_raw()));
            if tid == own || known || done.contains(&tid) || skipped.contains(&tid) {
                continue;
            }
            left = true;
            if !hub::knows(tid) {
                // Born just now. Its first stop is served when it comes.
                if begun.elapsed() > PATIENCE || hub::serve().is_err() {
                    done.push(tid);
                }
                continue;
            }
            stops += 1;
            match (follow(tid, shim, image), &mut brought) {
                (Ok(true), Some(brought)) => any |= brought.insert(tid.as_raw()),
                (Ok(false), _) if begun.elapsed() <= PATIENCE => {}
                (Ok(_) | Err(TraceError::Gone(_)), _) => done.push(tid),
                (Err(error), _) => return Err(Stop::Trace(error)),
            }
        }
        if !left {
            return Ok((any, stops));
        }
        std::thread::sleep(BREATH);
    }
}

/// Has another thread do what the state of the shim asks of it. False where it cannot now.
fn follow(tid: Pid, shim: &Shim, image: &[Range<u64>]) -> Result<bool> {
    let stopped = match hub::stop_within(tid, PATIENCE)? {
        Some(Event::Stopped(stopped)) => stopped,
        Some(event) => {
            hub::release(event);
            return Err(TraceError::Gone(tid));
        }
        // In a call that nothing interrupts.
        None => return Err(TraceError::Gone(tid)),
    };
    let clean = stopped.reason == StopReason::Interrupt && can_serve(&stopped, shim, image)?;
    if !clean {
        hub::release(Event::Stopped(stopped));
        return Ok(false);
    }
    follow_stopped(stopped, shim, |stopped| {
        hub::release(Event::Stopped(stopped));
    })
}

/// The same of one that is stopped and can serve; `then` has it behind that.
fn follow_stopped(stopped: Stopped, shim: &Shim, then: impl FnOnce(Stopped)) -> Result<bool> {
    let tid = stopped.tid();
    shim.ask(Request {
        op: op::FOLLOW,
        ..Request::default()
    });
    match ring(stopped, shim)? {
        Rung::Served(stopped) => {
            then(stopped);
            Ok(shim.answer() == Some(result::OK))
        }
        Rung::Signal(stopped, _) => {
            hub::release(Event::Stopped(stopped));
            Ok(false)
        }
        Rung::Gone(event) => {
            hub::release(event);
            Err(TraceError::Gone(tid))
        }
    }
}

/// Whether a stopped thread can be put into the shim now.
fn can_serve(stopped: &Stopped, shim: &Shim, image: &[Range<u64>]) -> Result<bool> {
    Ok(is_free(&stopped.regs()?, shim, image) && !super::in_critical_section(stopped))
}

/// Has a whole process leave a shim that a monitor which was killed has left in use there, as far as its threads can be had.
///
/// # Errors
/// What ptrace refuses; the thread is gone.
pub fn let_go(stopped: Stopped, pid: Pid, shim: &Shim, image: &[Range<u64>]) -> Result<Stopped> {
    let tid = stopped.tid();
    let gone = TraceError::Gone(tid);
    let mut thread = stopped;
    for op in [op::END, op::FOLLOW] {
        if !can_serve(&thread, shim, image)? {
            return Ok(thread);
        }
        shim.ask(Request {
            op,
            ..Request::default()
        });
        thread = match ring(thread, shim)? {
            Rung::Served(stopped) if stopped.reason != StopReason::Exiting => stopped,
            // It is delivered, and what remains is for another time.
            Rung::Signal(stopped, _) => return Ok(stopped),
            Rung::Served(stopped) => {
                hub::release(Event::Stopped(stopped));
                return Err(gone);
            }
            Rung::Gone(event) => {
                hub::release(event);
                return Err(gone);
            }
        };
        if let StopReason::Signal(_) = thread.reason {
            return Ok(thread);
        }
        if op == op::END {
            let held = hub::take_held_of(pid);
            let skipped: Vec<Pid> = held.iter().map(Stopped::tid).collect();
            let followed = follow_all(pid, tid, None, (shim, image), &skipped);
            for stopped in held {
                match can_serve(&stopped, shim, image) {
                    Ok(true) => {
                        let _ = follow_stopped(stopped, shim, hub::hold);
                    }
                    _ => hub::hold(stopped),
                }
            }
            if let Err(Stop::Trace(error)) = followed {
                tracing::debug!(%error, "threads left under a shim");
            }
        }
    }
    Ok(thread)
}

//! Requests: who asks, and what has to be true of every thread before a page may be protected.
//!
//! Before the first page is protected, every thread of the process must be under the shim: handler stack in place, system calls
//! dispatched, signals of faults open. One that cannot be reached, or that is in a call on the very page, makes the request
//! fail: it is the user's to count.
//!
//! Whoever traces the program puts one thread after the other, stopped, into the shim: [`rung`]. A program that arms watches by
//! itself asks by an `int3` ([`call`]), so that it is served on a handler stack with all signals blocked; there each other thread is
//! sent a doorbell (SIGURG) and does for itself what is to be done. A thread asleep in a system call is woken by it, and makes the call again from
//! its beginning, as after a stop.
//!
//! [`inside`]: how a thread comes under the shim and leaves it; [`others`]: what the kernel says of the other threads, and
//! waiting for them; [`watches`]: the requests themselves.
//!
//! Unsafe invariant: [`call`] is handed a request that the caller keeps until it returns; all other
//! access to requests is the kernel's (`user`).

mod inside;
mod others;
mod rung;
mod watches;

pub use inside::{cut_short, enter, leave_behind, leave_last, leave_place, make_again, seal};
pub use rung::rung;

use statcache_abi::{Request, op, result};

use crate::watchpoints::frame::{Context, SignalInfo, code, reg, sig};
use crate::watchpoints::state::{block, lock};
use crate::watchpoints::sys;
use crate::watchpoints::threads::{self, Current, TAKEN_IN};
use crate::watchpoints::{maps, process, signals, syscalls, text, user};
use core::sync::atomic::Ordering;
use inside::{leave, settle_down};
use others::everyone_inside;
use watches::{arm, disarm};

/// `si_errno` of a doorbell, by which it is told from the program's own signal.
const DOORBELL_MARK: i32 = 0x5ca0;

/// Whether a signal is one.
pub fn is_doorbell(info: &SignalInfo) -> bool {
    info.code == code::QUEUE && info.errno == DOORBELL_MARK
}

fn ring(tid: i32) {
    let info = SignalInfo {
        signo: sig::DOORBELL,
        errno: DOORBELL_MARK,
        code: code::QUEUE,
        ..SignalInfo::default()
    };
    sys::queue(tid, sig::DOORBELL, &info);
}

/// Serves `request`, from ordinary code of the program. The answer is also in its `result`.
///
/// The stack it runs on may be, or become, a watched page, which a system call of ours could not use: so it makes none while
/// the thread is under the shim, and asks by an `int3`, whose handler leaves with the state that is right then.
pub extern "C" fn call(request: *mut Request) -> i32 {
    if block().is_some_and(|block| block.sealed.load(Ordering::Acquire) != 0) {
        return result::SEALED;
    }
    let mut blocked = 0;
    if !under_shim(&threads::current()) {
        let before = sys::set_mask(!0);
        process::notice_fork();
        signals::answer_doorbells(&mut lock());
        blocked = before & sig::HELD | ASKED;
        sys::set_mask(before & !sig::HELD);
    }
    // SAFETY: the caller's request, alive until we return.
    unsafe { (&raw mut (*request).result).write_volatile(result::PENDING) };
    text::ask(request as u64, blocked)
}

/// Bit of [`text::ask`]'s mask: the caller was not under the shim, and is counted in `State::callers`. Signal 64 is no fault.
const ASKED: u64 = 1 << 63;

fn under_shim(current: &Option<Current>) -> bool {
    let inside = |thread: &Current| thread.shared.inside.load(Ordering::Relaxed) != 0;
    current
        .as_ref()
        .is_some_and(|thread| inside(thread) && !thread.shared.is_dormant())
}

/// The `int3` of [`call`].
pub fn asked(current: &mut Option<Current>, context: &mut Context) {
    let (at, blocked) = (context.regs[reg::RDI], context.regs[reg::RSI]);
    let was_inside = under_shim(current);
    if serve(current, at, context) {
        // Once more, on the new stack: this one may be on the very page.
        context.regs[reg::RIP] -= 1;
        return;
    }
    let answer = user::read::<Request>(&mut lock(), at).map_or(result::INVALID, |r| r.result);
    context.regs[reg::RAX] = answer as u64;
    if blocked & ASKED == 0 {
        return;
    }
    let blocked = blocked & sig::HELD;
    match threads::current().filter(|_| was_inside) {
        Some(mut thread) if thread.shared.inside.load(Ordering::Relaxed) != 0 => {
            thread.blocked |= blocked;
        }
        _ => context.mask |= blocked,
    }
    signals::answered(&mut lock());
}

/// A signal with a doorbell's mark: by another thread, which has changed what the state of the shim asks of this one.
pub fn doorbell(current: &mut Option<Current>, context: &mut Context) {
    let mut held = lock();
    let cut = cut_short(&mut held, current, context);
    syscalls::settle(&mut held, current.as_mut(), context);
    if let Some(number) = cut {
        make_again(&mut held, current.as_mut(), number, context);
    }
    drop(held);
    serve(current, 0, context);
}

/// Does what the request at `at` asks, and what the state of the shim asks of every thread. True where something had to be
/// put in place first, and the request is to be served again on the thread's new stack.
fn serve(current: &mut Option<Current>, at: u64, context: &mut Context) -> bool {
    let mut held = lock();
    let request = match at {
        0 => None,
        at => user::read::<Request>(&mut held, at).filter(|r| r.result == result::PENDING),
    };
    let arms = request.is_some_and(|request| request.op == op::ARM);
    if arms && held.barred != 0 {
        let reason = held.barred;
        drop(held);
        finish(at, reason);
        return false;
    }
    held.leaving &= !arms;
    if arms && !held.installed {
        signals::install(&mut held);
    }
    let wanted = held.installed && (arms || held.armed > 0 || held.arming > 0);
    if wanted && !under_shim(current) {
        // Still holding the state: else another thread could give the handlers back in between.
        if enter(&mut held, context) {
            return request.is_some();
        }
        drop(held);
        finish(at, result::UNSUPPORTED);
        settle_down();
        return false;
    }
    let sealing = held.barred == result::SEALED;
    drop(held);
    if arms && !lock().settled {
        lock().arming += 1;
        let all = everyone_inside(TAKEN_IN);
        let mut held = lock();
        held.arming -= 1;
        // From here on every call that makes one is seen.
        let ring = all && held.barred == 0 && maps::has_ring();
        if ring {
            held.barred = result::ASYNCHRONOUS;
        }
        if all && !ring {
            signals::settled(&mut held);
            return true;
        }
        let reason = if ring { held.barred } else { result::BUSY };
        drop(held);
        finish(at, reason);
        leave(current, context);
        settle_down();
        return false;
    }
    let Some(request) = request else {
        let inside = |thread: &Current| thread.shared.inside.load(Ordering::Relaxed) != 0;
        // Out there nobody could ring at one that blocks the doorbell (glibc's thread for timers blocks all signals): it is let
        // sleep first, and is dormant then. Before a filter all leave.
        let deaf = |thread: &Current| {
            signals::program_mask(thread, context) & sig::bit(sig::DOORBELL) != 0 && !sealing
        };
        let leaves = |thread: &Current| inside(thread) && !deaf(thread);
        if !wanted && current.as_ref().is_some_and(leaves) {
            leave(current, context);
        }
        return false;
    };
    let answer = match request.op {
        op::ARM => arm(&request),
        op::DISARM => disarm(Some(request.id)),
        op::DISARM_ALL => disarm(None),
        _ => result::INVALID,
    };
    finish(at, answer);
    let held = lock();
    let over = held.armed == 0 && held.arming == 0;
    drop(held);
    if over {
        if under_shim(current) {
            leave(current, context);
        }
        settle_down();
    }
    false
}

fn finish(at: u64, answer: i32) {
    if at == 0 {
        return;
    }
    let place = at + core::mem::offset_of!(Request, result) as u64;
    user::write(&mut lock(), place, &answer);
    if let Some(block) = block() {
        block.answered.store(1, Ordering::Release);
    }
}

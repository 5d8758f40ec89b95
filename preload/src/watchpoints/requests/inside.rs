//! A thread under the shim: how it comes there, leaves, and how all leave when nothing is watched any more.
//!
//! Unsafe invariant: the selector that the kernel reads at each dispatched call lies in a place of
//! `threads`, which is static.

use super::others::{InCall, ask, doorbells_pending, in_call, wait_for};
use crate::watchpoints::frame::{Context, SS_AUTODISARM, SS_DISABLE, reg};
use crate::watchpoints::state::{Held, Waiting, block, lock};
use crate::watchpoints::threads::{self, Current, NO_CALL, TAKEN_IN, Thread};
use crate::watchpoints::{pages, signals, sys, syscalls, text, user};
use core::sync::atomic::Ordering;
use statcache_abi::{ended, result};

pub(super) const EINTR: u64 = -4i64 as u64;

/// The number of the system call that this doorbell cut short, and that is to be made again; before [`syscalls::settle`].
///
/// Of a thread under the shim it is the one it went on to make. Of another only the kernel knows, and told whoever rang; what
/// it said must be what is found here, or the thread has been in another call since.
pub fn cut_short(held: &mut Held, current: &Option<Current>, context: &Context) -> Option<u64> {
    let noted = held.take_waiting(sys::gettid());
    if context.regs[reg::RAX] != EINTR {
        return None;
    }
    if let Some(thread) = current {
        let number = thread.shared.call.load(Ordering::Relaxed);
        let cut = matches!(text::inside(context.regs[reg::RIP]), Some((_, false)));
        return (cut && number != NO_CALL).then_some((number - 1) as u64);
    }
    let same = |noted: &Waiting| {
        noted.ip == context.regs[reg::RIP]
            && noted.sp == context.regs[reg::RSP]
            && noted.arguments == syscalls::arguments(context)
    };
    noted.filter(same).map(|noted| noted.number)
}

/// Makes the `syscall` before the instruction pointer again, which a signal has cut short that the program does not get.
pub fn make_again(
    held: &mut Held,
    current: Option<&mut Current>,
    number: u64,
    context: &mut Context,
) {
    let at = context.regs[reg::RIP].wrapping_sub(syscalls::SYSCALL_BYTES);
    if user::read::<[u8; 2]>(held, at) == Some([0x0f, 0x05]) {
        context.regs[reg::RIP] = at;
        context.regs[reg::RAX] = number;
        if let Some(thread) = current {
            thread.again = at;
        }
    }
}

/// Puts this thread under the shim, from the return of the handler on.
pub fn enter(held: &mut Held, context: &mut Context) -> bool {
    let mut alternate = context.stack;
    alternate.flags &= SS_AUTODISARM | SS_DISABLE;
    let ours = threads::current().is_some_and(|thread| thread.stack().sp == alternate.sp);
    if !ours && alternate.holds(context.regs[reg::RSP]) && alternate.flags & SS_AUTODISARM == 0 {
        // The kernel does not change an alternate stack in use. It will be left soon.
        return false;
    }
    let Some(mut thread) = threads::claim(held) else {
        return false;
    };
    // SAFETY: the place is static.
    if !unsafe { sys::dispatch(true, thread.shared.selector.as_ptr()) } {
        thread.shared.tid.store(0, Ordering::Release);
        return false;
    }
    crate::watchpoints::state::count(|counts| &counts.entered, 1);
    thread.step.pages = 0;
    thread.opened = 0;
    thread.exec = false;
    thread.births = false;
    thread.pending = 0;
    thread.again = 0;
    thread.blocked = 0;
    thread.releases = 0;
    // One that was dormant has been let out of its stub by a handler that did not return.
    let again = alternate.sp == thread.stack().sp;
    let kept = if again { thread.alternate } else { alternate };
    thread.set_alternate(kept);
    let mask = context.mask;
    signals::set_program_mask(&mut thread, context, mask);
    context.stack = thread.stack();
    thread.shared.call.store(NO_CALL, Ordering::Relaxed);
    thread.shared.fs.store(sys::fs_base(), Ordering::Relaxed);
    thread.shared.selector.store(1, Ordering::Relaxed);
    thread.shared.inside.store(TAKEN_IN, Ordering::Release);
    pages::share(held);
    true
}

/// Gives a thread back to itself.
pub(super) fn leave(current: &mut Option<Current>, context: &mut Context) {
    let Some(thread) = current.as_mut() else {
        return;
    };
    {
        let mut held = lock();
        crate::watchpoints::step::abandon(&mut held, thread, context);
        syscalls::settle(&mut held, Some(thread), context);
    }
    context.mask = signals::program_mask(thread, context);
    thread.send_kept(!0);
    context.stack = thread.alternate;
    leave_place(thread);
    *current = None;
}

/// Frees a thread's place.
pub fn leave_place(thread: &mut Current) {
    thread.shared.selector.store(0, Ordering::Relaxed);
    // SAFETY: only ends the dispatch.
    unsafe { sys::dispatch(false, core::ptr::null()) };
    thread.set_alternate(crate::watchpoints::frame::StackSetting::NONE);
    thread.shared.fs.store(0, Ordering::Relaxed);
    thread.shared.inside.store(0, Ordering::Release);
    thread.shared.tid.store(0, Ordering::Release);
}

/// A thread that slept when all others left makes its first system call since: it leaves as well, and makes that by itself.
pub fn leave_last(current: &mut Option<Current>, number: u64, context: &mut Context) {
    leave_before(current, number, context);
    settle_down();
}

/// The same behind the call in which it slept.
pub fn leave_behind(current: &mut Option<Current>, context: &mut Context) {
    leave(current, context);
    settle_down();
}

/// Leaves, to make the call it was dispatched for by itself.
fn leave_before(current: &mut Option<Current>, number: u64, context: &mut Context) {
    leave(current, context);
    context.regs[reg::RIP] -= syscalls::SYSCALL_BYTES;
    context.regs[reg::RAX] = number;
}

/// Before a call that puts a filter in front of system calls, which may kill for any of the shim's: the watches end, all threads
/// leave, those asleep too, and nobody is taken in again.
pub fn seal(mut held: Held, current: &mut Option<Current>, number: u64, context: &mut Context) {
    pages::bar(&mut held, result::SEALED, ended::UNMAPPED);
    // Nobody rings any more from now on.
    held.rings = false;
    held.arming = held.arming.saturating_sub(held.begun);
    held.begun = 0;
    drop(held);
    if let Some(block) = block() {
        block.sealed.store(1, Ordering::Release);
    }
    leave_before(current, number, context);
    // Whoever was arming is refused, and gone soon.
    wait_for(|_| lock().arming == 0);
    settle(true);
    // Who has left may still be in the handler in which it did, and there look whether others have: with system calls that the
    // filter would kill it for. Nobody comes there any more.
    let alone = || signals::at_work() <= 1;
    wait_for(|_| alone() && !doorbells_pending() && alone());
}

/// Nothing is armed: every thread leaves, and the dispositions are the program's again, once no doorbell is left on its way to
/// meet them. Who sleeps in a system call is let sleep, as a sleep that is cut begins again, and leaves with its next call.
///
/// Where threads are rung from outside they leave one after the other, and the last one sees to the rest.
pub(super) fn settle_down() {
    if !lock().rings {
        return settle(false);
    }
    for thread in threads::all() {
        if matches!(in_call(thread.tid.load(Ordering::Acquire)), InCall::Gone) {
            thread.inside.store(0, Ordering::Release);
            thread.tid.store(0, Ordering::Release);
        }
    }
    let mut held = lock();
    held.leaving = held.armed == 0 && held.arming == 0;
    if held.leaving && held.births == 0 && !threads::any_inside() {
        held.rings = false;
        signals::uninstall(&mut held);
    }
}

/// As [`settle_down`]; `all`: those asleep are woken.
fn settle(all: bool) {
    let inside = |thread: &&Thread| thread.inside.load(Ordering::Acquire) != 0;
    {
        let mut held = lock();
        held.leaving = held.armed == 0 && held.arming == 0;
    }
    let gone = wait_for(|asks| {
        if !lock().leaving {
            // Somebody arms again, and waits for this thread.
            return true;
        }
        let mut left = false;
        for thread in threads::all().filter(inside) {
            let tid = thread.tid.load(Ordering::Acquire);
            if matches!(in_call(tid), InCall::Gone) {
                // It ended without us, in a handler that it did not come back from.
                thread.inside.store(0, Ordering::Release);
                thread.tid.store(0, Ordering::Release);
                continue;
            }
            if !all && let InCall::Waiting(_) = in_call(tid) {
                let held = lock();
                // Looked at again while it could not get past the end of its stub.
                let here = matches!(in_call(tid), InCall::Waiting(at) if text::in_closing(at.ip));
                if here && held.leaving && !thread.is_dormant() {
                    thread.set_dormant(true);
                }
                continue;
            }
            left = true;
            if asks {
                ask(tid);
            }
        }
        !left && lock().births == 0 && (!asks || !doorbells_pending())
    });
    let mut held = lock();
    if held.armed > 0 || held.arming > 0 {
        return;
    }
    // Looked at again while holding the state, without which nobody is taken in.
    if gone && held.births == 0 && !threads::any_inside() && !doorbells_pending() {
        signals::uninstall(&mut held);
    } else {
        signals::unsettled(&mut held);
    }
}

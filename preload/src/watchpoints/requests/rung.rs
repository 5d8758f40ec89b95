//! Requests of another process that traces this one: a stopped thread is put here, and goes back to where it was.
//!
//! No signal is used for that, because every signal is the program's: one of ours would be merged by the kernel with one of the
//! program's that is pending, be seen by whoever has it blocked and waits for it, not be seen at all by who has
//! it blocked and does not, and cut sleeps short. Instead the thread's registers lie in the block, what it does here it does as ordinary code
//! on a stack of ours with all signals blocked, and at the end it is as it was: the kernel does not even forget how to go on
//! with a sleep that was interrupted by the stop, as it does at the return from a signal handler.
//!
//! Whoever rings must not be needed any more once the thread has been put here: it serves and goes home by itself.

use super::inside::{enter, leave};
use super::others::everyone_inside;
use super::watches::{arm, begin, disarm, end};
use super::{finish, settle_down, under_shim};
use crate::watchpoints::frame::{Context, SS_AUTODISARM, SS_DISABLE, StackSetting, reg};
use crate::watchpoints::state::{Held, block, block_raw, lock};
use crate::watchpoints::sys::{self, nr};
use crate::watchpoints::threads::{self, Current, READY, TAKEN_IN};
use crate::watchpoints::{maps, process, signals, syscalls, text, user};
use core::sync::atomic::Ordering;
use statcache_abi::{Block, Request, op, result};

/// Code and stack segment of user mode, as in a signal's frame.
const SEGMENTS: u64 = 0x2b_0000_0000_0033;

/// Serves [`Block::request`] for the thread whose registers are [`Block::home`].
pub extern "C" fn rung() {
    let mask = sys::set_mask(!0);
    process::notice_fork();
    // Who has no block cannot have been told the address of this.
    let Some(block) = block() else { return };
    let mut context = Context {
        flags: 0,
        link: 0,
        stack: sys::alternate(),
        regs: [0; 23],
        fpstate: 0,
        reserved: [0; 8],
        mask,
    };
    for (register, word) in context.regs.iter_mut().zip(&block.home) {
        *register = word.load(Ordering::Relaxed);
    }
    context.regs[reg::SEGMENTS] = SEGMENTS;
    let at = block_raw() as u64 + core::mem::offset_of!(Block, request) as u64;
    let request = user::read::<Request>(&mut lock(), at).unwrap_or_default();
    let call = block.home_call.load(Ordering::Relaxed).checked_sub(1);
    let mut current = threads::current();
    let again = current.as_ref().map_or(0, |thread| thread.again);
    let answer = serve(&mut current, &request, call, &mut context);
    set_stack(&context);
    // The shim does not see any more which signals come before that call is made.
    let left = again != 0 && again == context.regs[reg::RIP] && !under_shim(&current);
    let call = left.then(|| context.regs[reg::RAX].wrapping_add(1));
    block.home_call.store(call.unwrap_or(0), Ordering::Relaxed);
    for (word, register) in block.home.iter().zip(context.regs) {
        word.store(register, Ordering::Relaxed);
    }
    let registers = block.home.len();
    for (n, word) in text::home().iter().enumerate() {
        let value = match n < registers {
            true => context.regs.get(n).copied().unwrap_or(0),
            false => context.mask,
        };
        word.store(value, Ordering::Relaxed);
    }
    finish(at, answer);
}

/// Puts the alternate stack in place that a return from a handler would have. The thread is not on it: it runs on the ring's.
fn set_stack(context: &Context) {
    sys::sigaltstack(&StackSetting {
        flags: context.stack.flags & (SS_AUTODISARM | SS_DISABLE),
        ..context.stack
    });
}

fn serve(
    current: &mut Option<Current>,
    request: &Request,
    call: Option<u64>,
    context: &mut Context,
) -> i32 {
    let mut held = lock();
    match request.op {
        op::BEGIN => {
            if held.barred != 0 {
                return held.barred;
            }
            signals::install(&mut held);
            begin(&mut held);
            join(held, current, call, context)
        }
        op::FOLLOW => {
            if held.installed && (held.armed > 0 || held.arming > 0) {
                return join(held, current, call, context);
            }
            drop(held);
            go(current, context);
            result::OK
        }
        op::ALL => {
            let settled = held.settled;
            drop(held);
            if settled {
                return if everyone_inside(READY) {
                    result::OK
                } else {
                    result::BUSY
                };
            }
            if !everyone_inside(TAKEN_IN) {
                return result::BUSY;
            }
            let mut held = lock();
            // From here on every call that makes one is seen.
            if held.barred == 0 && maps::has_ring() {
                held.barred = result::ASYNCHRONOUS;
            }
            if held.barred == 0 {
                signals::settled(&mut held);
            }
            held.barred
        }
        op::END => {
            drop(held);
            end();
            let mut held = lock();
            held.leaving = held.armed == 0 && held.arming == 0;
            result::OK
        }
        op::ARM if held.barred != 0 => held.barred,
        op::ARM => {
            drop(held);
            arm(request)
        }
        op::DISARM | op::DISARM_ALL => {
            drop(held);
            disarm((request.op == op::DISARM).then_some(request.id))
        }
        _ => result::INVALID,
    }
}

/// Under the shim, where it is not. One that sleeps in a system call goes on with it in a stub, as if it had been dispatched.
fn join(
    mut held: Held,
    current: &mut Option<Current>,
    call: Option<u64>,
    context: &mut Context,
) -> i32 {
    if under_shim(current) {
        // The handler that took it in has returned, if it was one.
        if let Some(thread) = current {
            thread.shared.inside.store(READY, Ordering::Release);
        }
        return result::OK;
    }
    let here = context.regs[reg::RIP];
    if text::inside(here).is_some() {
        // Born under the shim and not yet at its first stop, or let sleep there when all others left: it comes by itself.
        return result::BUSY;
    }
    let behind = here.wrapping_add(syscalls::SYSCALL_BYTES);
    if call.is_some() && held.site(behind, false).is_none() {
        return result::BUSY;
    }
    if !enter(&mut held, context) {
        return result::UNSUPPORTED;
    }
    *current = threads::current();
    let Some(thread) = current.as_mut() else {
        return result::UNSUPPORTED;
    };
    set_stack(context);
    thread.shared.inside.store(READY, Ordering::Release);
    if let Some(number) = call {
        let with = context.regs[reg::RAX];
        context.regs[reg::RIP] = behind;
        thread.temporary = signals::temporary_mask(&mut held, number, syscalls::arguments(context));
        syscalls::go_on(&mut held, thread, number, 0, true, context);
        // `restart_syscall`, where it is not made all over again.
        context.regs[reg::RAX] = with;
    }
    result::OK
}

/// Not under the shim any more.
fn go(current: &mut Option<Current>, context: &mut Context) {
    let inside = |thread: &Current| thread.shared.inside.load(Ordering::Relaxed) != 0;
    if current.as_ref().is_some_and(inside) {
        leave(current, context);
    }
    settle_down();
}

/// Whether `number` only says that a call goes on which the kernel remembers.
pub fn goes_on(number: u64) -> bool {
    number == nr::RESTART
}

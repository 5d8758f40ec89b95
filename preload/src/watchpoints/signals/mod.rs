//! The program's signals while the shim is in charge: it has a handler for every signal the program handles, on a stack of its own,
//! and hands each on as the kernel would have done.
//!
//! Why all signals and not just those of faults: the kernel writes a signal frame to the program's stack and takes
//! it back, and where a page of that stack is watched it kills instead. So the kernel writes to the shim's stack, and
//! the shim makes the copy (`chain`) and takes it back (`sigreturn`). And a signal raised by an instruction while
//! blocked kills; so the kernel is never told that the program has blocked one, which is kept here instead.
//!
//! Dispositions are read when the shim takes charge and followed through dispatched system calls after. When it lets go
//! they are the program's again.
//!
//! [`dispositions`] takes charge of them and gives them back, [`frames`] builds the program's signal frames and takes them
//! back, [`calls`] answers its system calls about signals.
//!
//! Source: sigaction(2), sigaltstack(2), Linux kernel/signal.c and arch/x86/kernel/signal_64.c.
//!
//! Unsafe invariant: [`handler`] is entered by the kernel alone, with `SA_SIGINFO` and all signals
//! blocked: what it is handed lies in the signal's frame, and is nobody else's until it returns.

mod calls;
mod dispositions;
mod frames;

pub use calls::{awaits_pending, sigaction, sigaltstack, sigpending, sigprocmask, temporary_mask};
pub use dispositions::{
    HOLDS, after_exec, answer_doorbells, answered, before_exec, install, settled, uninstall,
    uninstall_in_child, unsettled,
};
pub use frames::sigreturn;

use crate::watchpoints::frame::{Context, DEFAULT, IGNORE, KernelAction, SignalInfo, reg, sa, sig};
use crate::watchpoints::state::{count, lock};
use crate::watchpoints::sys::nr;
use crate::watchpoints::threads::{Current, Own, READY, TAKEN_IN};
use crate::watchpoints::{pages, process, requests, step, sys, syscalls, threads};
use core::sync::atomic::{AtomicI32, Ordering};
use dispositions::stands_in;
use frames::enter_program_handler;
use statcache_abi::ended;

const EINTR: i64 = -4;

/// Threads in [`handler`]; none of them can be told from its place alone, as one that leaves the shim is still there for a while.
static AT_WORK: AtomicI32 = AtomicI32::new(0);

/// How many threads are in a handler of the shim, the caller included.
pub fn at_work() -> i32 {
    AT_WORK.load(Ordering::SeqCst)
}

/// In a new process, which has one thread, `here` or not.
pub fn forget_others(here: bool) {
    AT_WORK.store(i32::from(here), Ordering::SeqCst);
}

/// Every signal the shim stands in for comes here, with all signals blocked.
pub extern "C" fn handler(signal: i32, info: *mut SignalInfo, context: *mut Context) {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO, alive and unshared until it returns.
    let (info, context) = unsafe { (&*info, &mut *context) };
    process::notice_fork();
    AT_WORK.fetch_add(1, Ordering::SeqCst);
    let mut current = threads::current();
    if let Some(thread) = &current
        && thread.shared.inside.load(Ordering::Relaxed) == TAKEN_IN
        && thread.stack().holds((&raw const current) as u64)
    {
        thread.shared.inside.store(READY, Ordering::Release);
    }
    match signal {
        sig::SEGV => step::fault(&mut current, info, context),
        sig::TRAP => step::trap(&mut current, info, context),
        sig::DOORBELL if requests::is_doorbell(info) => requests::doorbell(&mut current, context),
        sig::SYS => syscalls::dispatched(&mut current, info, context),
        _ => chain(&mut current, signal, info, context),
    }
    if let Some(current) = threads::current()
        && current.shared.inside.load(Ordering::Relaxed) != 0
    {
        context.stack = current.stack();
    }
    AT_WORK.fetch_sub(1, Ordering::SeqCst);
}

/// The signal set as the program sees it.
pub fn program_mask(own: &Own, context: &Context) -> u64 {
    context.mask | own.blocked
}

/// Sets the program's signal set for after the handler; signals of faults stay open in the kernel.
pub fn set_program_mask(own: &mut Own, context: &mut Context, mask: u64) {
    own.blocked = mask & sig::HELD;
    context.mask = mask & !sig::HELD;
    own.send_kept(!mask);
}

/// Delivers a signal to the program, as the kernel would have.
pub fn chain(current: &mut Option<Current>, signal: i32, info: &SignalInfo, context: &mut Context) {
    let mut held = lock();
    if let Some(current) = current {
        step::abandon(&mut held, current, context);
    }
    let blocked = current
        .as_ref()
        .map_or(0, |own| own.temporary.unwrap_or(own.blocked));
    let cut = requests::cut_short(&mut held, current, context);
    syscalls::settle(&mut held, current.as_mut(), context);
    let raised = info.code > 0 && sig::FAULTS & sig::bit(signal) != 0;
    // Not in charge any more: the dispositions are those it gave back.
    let mut action = match (signal, held.trap_before, held.installed) {
        (sig::TRAP, Some(before), false) => before,
        _ => held
            .actions
            .get(signal as usize)
            .copied()
            .unwrap_or_default(),
    };
    if blocked & sig::HELD & sig::bit(signal) != 0 {
        if !raised {
            if let Some(current) = current {
                current.keep(signal, info);
                if cut == Some(nr::RT_SIGTIMEDWAIT) && calls::awaited(&mut held, current, context) {
                    return;
                }
            }
            // What the program does not get cuts no call of its short.
            if let Some(number) = cut {
                requests::make_again(&mut held, current.as_mut(), number, context);
            }
            return;
        }
        action.handler = DEFAULT;
    }
    let ignored = action.handler == IGNORE || action.handler == DEFAULT && signal == sig::DOORBELL;
    if ignored && !raised {
        if let Some(number) = cut {
            requests::make_again(&mut held, current.as_mut(), number, context);
        }
        return;
    }
    if action.handler == DEFAULT || action.handler == IGNORE {
        // The kernel releases locks at the end; see `process::exit`.
        pages::disarm(&mut held, ended::DISARMED, |_| true);
        return die(signal, info, context);
    }
    count(|counts| &counts.chained, 1);
    if action.flags & sa::RESETHAND != 0 {
        let reset = KernelAction {
            handler: DEFAULT,
            ..action
        };
        if let Some(entry) = held.actions.get_mut(signal as usize) {
            *entry = reset;
        }
        if !stands_in(signal, &reset) {
            sys::sigaction(signal, Some(&reset));
        }
    }
    // It comes before a call that another one has cut short is made again: this one cuts it.
    if let Some(thread) = current.as_mut()
        && thread.again != 0
        && thread.again == context.regs[reg::RIP]
    {
        context.regs[reg::RIP] += syscalls::SYSCALL_BYTES;
        syscalls::answer(context, EINTR);
        thread.again = 0;
    }
    if !enter_program_handler(&mut held, current.as_mut(), signal, &action, info, context) {
        // No room for the frame: what the kernel does then.
        die(sig::SEGV, info, context);
    }
}

/// Lets the default action happen, by the very fault or, where the instruction does not run again, by a signal to oneself.
fn die(signal: i32, info: &SignalInfo, context: &mut Context) {
    sys::sigaction(signal, Some(&KernelAction::default()));
    let again = matches!(signal, sig::SEGV | sig::BUS | sig::FPE | sig::ILL)
        && info.signo == signal
        && info.code > 0;
    if !again {
        context.mask &= !sig::bit(signal);
        let info = SignalInfo {
            signo: signal,
            ..*info
        };
        if sys::queue(sys::gettid(), signal, &info) < 0 {
            sys::raise(signal);
        }
    }
}

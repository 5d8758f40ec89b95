//! The program's dispositions: the shim's handler in their place, and they back in its.

use super::handler;
use crate::watchpoints::frame::{DEFAULT, IGNORE, KernelAction, sa, sig};
use crate::watchpoints::state::Held;
use crate::watchpoints::{sys, text};
use core::sync::atomic::{AtomicU32, Ordering};

/// Not 0 while a handler of ours may stand in the kernel; no thread is under the shim otherwise.
pub static HOLDS: AtomicU32 = AtomicU32::new(0);

pub(super) fn ours(signal: i32, theirs: &KernelAction, settled: bool) -> KernelAction {
    let passed = sa::RESTART | sa::NOCLDSTOP | sa::NOCLDWAIT;
    let restart = match sig::HELD & sig::bit(signal) {
        0 => 0,
        _ => sa::RESTART,
    };
    // A thread is taken in by one of these two. It must not run on the thread's alternate stack, which is being exchanged.
    let stack = match (signal == sig::TRAP || signal == sig::DOORBELL) && !settled {
        true => 0,
        false => sa::ONSTACK,
    };
    KernelAction {
        handler: handler as *const () as u64,
        flags: sa::SIGINFO | stack | sa::RESTORER | restart | theirs.flags & passed,
        restorer: text::restorer(),
        mask: !0,
    }
}

/// Whether the shim stands in for a signal with this disposition.
pub(super) fn stands_in(signal: i32, action: &KernelAction) -> bool {
    sig::HELD & sig::bit(signal) != 0 || (action.handler != DEFAULT && action.handler != IGNORE)
}

pub(super) fn is_ours(action: &KernelAction) -> bool {
    action.handler == handler as *const () as u64
}

pub(super) fn changeable() -> impl Iterator<Item = i32> {
    (1..=sig::COUNT).filter(|signal| *signal != sig::KILL && *signal != sig::STOP)
}

/// Makes the shim's handler the one for SIGTRAP, until [`answered`].
pub fn answer_doorbells(held: &mut Held) {
    held.callers += 1;
    take_trap(held);
}

pub(super) fn take_trap(held: &mut Held) {
    if held.installed || held.trap_before.is_some() {
        return;
    }
    let action = sys::sigaction(sig::TRAP, None).unwrap_or_default();
    if !is_ours(&action) {
        held.trap_before = Some(action);
        HOLDS.store(1, Ordering::Release);
        sys::sigaction(sig::TRAP, Some(&ours(sig::TRAP, &action, false)));
    }
}

/// All dispositions are the program's again, except for SIGTRAP's where somebody waits for an answer.
fn given_back(held: &Held) {
    HOLDS.store(u32::from(held.trap_before.is_some()), Ordering::Release);
}

/// Ends what [`answer_doorbells`] began.
pub fn answered(held: &mut Held) {
    held.callers = held.callers.saturating_sub(1);
    if held.callers == 0
        && !held.installed
        && let Some(before) = held.trap_before.take()
    {
        give_back(sig::TRAP, &before);
        given_back(held);
    }
}

/// Takes charge of the program's dispositions.
pub fn install(held: &mut Held) {
    if held.installed {
        if held.armed == 0 {
            adopt(held);
        }
        return;
    }
    HOLDS.store(1, Ordering::Release);
    take_trap(held);
    for signal in changeable() {
        let action = match (signal, held.trap_before) {
            (sig::TRAP, Some(before)) => before,
            _ => sys::sigaction(signal, None).unwrap_or_default(),
        };
        if let Some(entry) = held.actions.get_mut(signal as usize) {
            *entry = action;
        }
        if stands_in(signal, &action) {
            sys::sigaction(signal, Some(&ours(signal, &action, false)));
        }
    }
    held.installed = true;
}

/// Every thread has its handler stack: the signals that take threads in use it too from now on, as the steps over watched stacks need.
pub fn settled(held: &mut Held) {
    adopt(held);
    held.settled = true;
    for signal in [sig::TRAP, sig::DOORBELL] {
        if let Some(action) = held.actions.get(signal as usize) {
            sys::sigaction(signal, Some(&ours(signal, action, true)));
        }
    }
}

/// Nobody is under the shim any more, but its handlers cannot go yet: as before [`settled`].
pub fn unsettled(held: &mut Held) {
    if !held.installed || !held.settled {
        return;
    }
    held.settled = false;
    for signal in [sig::TRAP, sig::DOORBELL] {
        let action = held.actions.get(signal as usize).copied();
        let ours = ours(signal, &action.unwrap_or_default(), false);
        if sys::sigaction(signal, None).is_some_and(|action| is_ours(&action)) {
            sys::sigaction(signal, Some(&ours));
        }
    }
}

/// Takes over what the program has set by itself while some of its threads were not yet, or not any more, under the shim.
pub(super) fn adopt(held: &mut Held) {
    for signal in changeable() {
        let action = sys::sigaction(signal, None).unwrap_or_default();
        if is_ours(&action) {
            continue;
        }
        if let Some(entry) = held.actions.get_mut(signal as usize) {
            *entry = action;
        }
        if stands_in(signal, &action) {
            sys::sigaction(signal, Some(&ours(signal, &action, false)));
        }
    }
}

/// Gives the program its disposition of a signal back, unless it has set one by itself meanwhile.
pub(super) fn give_back(signal: i32, action: &KernelAction) {
    if let Some(found) = sys::sigaction(signal, Some(action))
        && !is_ours(&found)
    {
        sys::sigaction(signal, Some(&found));
    }
}

/// In the child of a fork that the shim had no part in, at any point of what another thread was doing here.
pub fn uninstall_in_child(held: &mut Held) {
    for signal in changeable() {
        let ours = sys::sigaction(signal, None).is_some_and(|action| is_ours(&action));
        let action = match (signal, held.trap_before) {
            (sig::TRAP, Some(before)) => Some(before),
            _ => held.actions.get(signal as usize).copied(),
        };
        if let (true, Some(action)) = (ours, action) {
            sys::sigaction(signal, Some(&action));
        }
    }
    held.settled = false;
    held.installed = false;
    held.trap_before = None;
    given_back(held);
}

/// Gives the program its dispositions back.
pub fn uninstall(held: &mut Held) {
    if !held.installed {
        return;
    }
    held.settled = false;
    held.installed = false;
    held.trap_before = None;
    for signal in changeable() {
        let Some(action) = held.actions.get(signal as usize).copied() else {
            continue;
        };
        if signal == sig::TRAP && held.callers > 0 {
            held.trap_before = Some(action);
        } else if stands_in(signal, &action) {
            give_back(signal, &action);
        }
    }
    given_back(held);
}

/// What an `execve` carries over but the shim hides: ignored faults stay ignored. Undone by [`after_exec`] if it fails.
pub fn before_exec(held: &mut Held) {
    for signal in changeable() {
        if let Some(action) = held.actions.get(signal as usize)
            && action.handler == IGNORE
            && stands_in(signal, action)
        {
            sys::sigaction(signal, Some(action));
        }
    }
}

/// See [`before_exec`].
pub fn after_exec(held: &mut Held) {
    for signal in changeable() {
        if let Some(action) = held.actions.get(signal as usize)
            && action.handler == IGNORE
            && stands_in(signal, action)
        {
            sys::sigaction(signal, Some(&ours(signal, action, held.settled)));
        }
    }
}

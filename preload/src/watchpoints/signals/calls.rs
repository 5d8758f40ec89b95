//! The program's system calls about signals, answered as the kernel would.
//!
//! Source: sigaction(2), sigaltstack(2), sigprocmask(2).
//!
//! Unsafe invariant: the kernel is handed the address of a live word and at most its 8 bytes.

use super::dispositions::{is_ours, ours, stands_in};
use super::{program_mask, set_program_mask};
use crate::watchpoints::frame::{
    Context, KernelAction, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, StackSetting, reg, sig,
};
use crate::watchpoints::state::Held;
use crate::watchpoints::sys::nr;
use crate::watchpoints::threads::Current;
use crate::watchpoints::user::EFAULT;
use crate::watchpoints::{sys, syscalls, text, user};

pub(super) const EINVAL: i64 = -22;

pub(super) const EPERM: i64 = -1;

pub(super) const ENOMEM: i64 = -12;

pub(super) const MINSIGSTKSZ: u64 = 2048;

pub(super) fn set_alternate(current: &mut Current, setting: StackSetting, sp: u64) -> i64 {
    let mode = setting.flags & !SS_AUTODISARM;
    if current.alternate.holds(sp) && current.alternate.flags & SS_AUTODISARM == 0 {
        return EPERM;
    }
    if mode & !(SS_ONSTACK | SS_DISABLE) != 0 {
        return EINVAL;
    }
    if mode == SS_DISABLE {
        current.set_alternate(StackSetting::NONE);
    } else if setting.size < MINSIGSTKSZ {
        return ENOMEM;
    } else {
        current.set_alternate(StackSetting {
            flags: setting.flags & SS_AUTODISARM,
            ..setting
        });
    }
    0
}

/// `sigaltstack` of the program.
pub fn sigaltstack(held: &mut Held, current: &mut Current, context: &Context) -> i64 {
    let (new, old) = (context.regs[reg::RDI], context.regs[reg::RSI]);
    let sp = context.regs[reg::RSP];
    let mut before = current.alternate;
    before.flags |= match (before.enabled(), before.holds(sp)) {
        (false, _) => SS_DISABLE,
        (true, true) => SS_ONSTACK,
        (true, false) => 0,
    };
    if new != 0 {
        let Some(setting) = user::read::<StackSetting>(held, new) else {
            return EFAULT;
        };
        let answer = set_alternate(current, setting, sp);
        if answer != 0 {
            return answer;
        }
    }
    if old != 0 && !user::write(held, old, &before) {
        return EFAULT;
    }
    0
}

/// `rt_sigaction` of the program.
pub fn sigaction(held: &mut Held, context: &Context) -> i64 {
    let [signal, new, old, size] =
        [reg::RDI, reg::RSI, reg::RDX, reg::R10].map(|place| context.regs[place]);
    let signal = signal as i32;
    let fixed = signal == sig::KILL || signal == sig::STOP;
    if size != 8 || !(1..=sig::COUNT).contains(&signal) || (fixed && new != 0) {
        return EINVAL;
    }
    let before = held
        .actions
        .get(signal as usize)
        .copied()
        .unwrap_or_default();
    if new != 0 {
        let Some(mut action) = user::read::<KernelAction>(held, new) else {
            return EFAULT;
        };
        action.mask &= !(sig::bit(sig::KILL) | sig::bit(sig::STOP));
        if is_ours(&action) {
            // What a thread not under the shim was told, set again by one that is.
            action = before;
        }
        let kernel = match stands_in(signal, &action) {
            true => ours(signal, &action, held.settled),
            false => action,
        };
        if sys::sigaction(signal, Some(&kernel)).is_none() {
            return EINVAL;
        }
        if let Some(entry) = held.actions.get_mut(signal as usize) {
            *entry = action;
        }
    }
    if old != 0 && !user::write(held, old, &before) {
        return EFAULT;
    }
    0
}

/// `rt_sigprocmask` of the program.
pub fn sigprocmask(held: &mut Held, current: &mut Current, context: &mut Context) -> i64 {
    let [how, new, old, size] =
        [reg::RDI, reg::RSI, reg::RDX, reg::R10].map(|place| context.regs[place]);
    if size != 8 {
        return EINVAL;
    }
    let before = program_mask(current, context);
    if new != 0 {
        let Some(set) = user::read::<u64>(held, new) else {
            return EFAULT;
        };
        let mask = match how as u32 {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return EINVAL,
        };
        let mask = mask & !(sig::bit(sig::KILL) | sig::bit(sig::STOP));
        set_program_mask(current, context, mask);
    }
    if old != 0 && !user::write(held, old, &before) {
        return EFAULT;
    }
    0
}

/// `rt_sigpending` of the program: the kernel's answer, and what is kept from it.
pub fn sigpending(held: &mut Held, current: &Current, context: &Context) -> i64 {
    const MOST: u64 = 8;
    let [at, size] = [reg::RDI, reg::RSI].map(|place| context.regs[place]);
    if size > MOST {
        return EINVAL;
    }
    let mut set = 0u64;
    // SAFETY: a live word.
    unsafe { text::syscall(nr::RT_SIGPENDING, [&raw mut set as u64, MOST, 0, 0, 0, 0]) };
    set |= current.pending;
    // SAFETY: at most the word.
    match unsafe { user::write_bytes(held, at, &raw const set as u64, size) } {
        true => 0,
        false => EFAULT,
    }
}

/// Answers an `rt_sigtimedwait` for a signal that is kept from the kernel. True where it is answered.
pub fn awaits_pending(held: &mut Held, current: &mut Current, context: &mut Context) -> bool {
    current.pending != 0 && awaited(held, current, context)
}

/// The same behind the call, where it was cut short.
pub(super) fn awaited(held: &mut Held, current: &mut Current, context: &mut Context) -> bool {
    let [set, info, size] = [reg::RDI, reg::RSI, reg::R10].map(|place| context.regs[place]);
    let Some(set) = user::read::<u64>(held, set).filter(|_| size == 8) else {
        return false;
    };
    let Some(taken) = current.take_kept(set) else {
        return false;
    };
    let written = info == 0 || user::write(held, info, &taken);
    let value = if written {
        i64::from(taken.signo)
    } else {
        EFAULT
    };
    syscalls::answer(context, value);
    true
}

/// The signal set that a call puts in place for its own length, where it names one.
pub fn temporary_mask(held: &mut Held, number: u64, a: [u64; 6]) -> Option<u64> {
    let at = match number {
        nr::RT_SIGSUSPEND => a[0],
        nr::PPOLL => a[3],
        // A pointer to the set, and its size.
        nr::PSELECT6 => user::read::<u64>(held, a[5])?,
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => a[4],
        _ => return None,
    };
    user::read::<u64>(held, at)
}

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
//! Source: sigaction(2), sigaltstack(2), Linux kernel/signal.c and arch/x86/kernel/signal_64.c.

use crate::frame::{
    Context, DEFAULT, DF_RF, Frame, IGNORE, KernelAction, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK,
    SignalInfo, StackSetting, TF, fp_bytes, fp_initial, reg, sa, sig,
};
use crate::state::{Held, block, count, lock};
use crate::threads::{Current, Own, READY, TAKEN_IN};
use crate::user::EFAULT;
use crate::{process, requests, step, sys, syscalls, text, threads, user};
use core::sync::atomic::Ordering;

const EINVAL: i64 = -22;
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const MINSIGSTKSZ: u64 = 2048;
/// Below the stack pointer, what a function may use without moving it (System V ABI).
const RED_ZONE: u64 = 128;
/// Two addresses no further apart than this, above a signal frame and below it, are on one stack.
const SAME_STACK: u64 = 32 << 10;
/// Below the frame of a function that builds a frame, what its callees use.
const OWN_FRAMES: u64 = 4096;

/// Every signal the shim stands in for comes here, with all signals blocked.
pub extern "C" fn handler(signal: i32, info: *mut SignalInfo, context: *mut Context) {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO, alive and unshared until it returns.
    let (info, context) = unsafe { (&*info, &mut *context) };
    process::notice_fork();
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
        sig::DOORBELL if requests::is_doorbell(info) => {
            requests::doorbell(&mut current, info, context)
        }
        sig::SYS => syscalls::dispatched(&mut current, info, context),
        _ => chain(&mut current, signal, info, context),
    }
    if let Some(current) = threads::current()
        && current.shared.inside.load(Ordering::Relaxed) != 0
    {
        context.stack = current.stack();
    }
}

fn ours(signal: i32, theirs: &KernelAction, settled: bool) -> KernelAction {
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

/// What answers the first doorbell; see `Block::knock`.
pub fn knock() -> [u64; 4] {
    let action = ours(sig::DOORBELL, &KernelAction::default(), false);
    [action.handler, action.flags, action.restorer, action.mask]
}

/// The program's disposition of the doorbell's signal, where [`knock`] has taken its place.
fn knocked() -> KernelAction {
    let Some(block) = block() else {
        return KernelAction::default();
    };
    let [handler, flags, restorer, mask] = &block.before;
    KernelAction {
        handler: handler.load(Ordering::Relaxed),
        flags: flags.load(Ordering::Relaxed),
        restorer: restorer.load(Ordering::Relaxed),
        mask: mask.load(Ordering::Relaxed),
    }
}

/// Whether the shim stands in for a signal with this disposition.
fn stands_in(signal: i32, action: &KernelAction) -> bool {
    sig::HELD & sig::bit(signal) != 0 || (action.handler != DEFAULT && action.handler != IGNORE)
}

fn is_ours(action: &KernelAction) -> bool {
    action.handler == handler as *const () as u64
}

fn changeable() -> impl Iterator<Item = i32> {
    (1..=sig::COUNT).filter(|signal| *signal != sig::KILL && *signal != sig::STOP)
}

/// Makes the shim's handler the one for SIGTRAP, until [`answered`].
pub fn answer_doorbells(held: &mut Held) {
    held.callers += 1;
    take_trap(held);
}

fn take_trap(held: &mut Held) {
    if held.installed || held.trap_before.is_some() {
        return;
    }
    let action = sys::sigaction(sig::TRAP, None).unwrap_or_default();
    if !is_ours(&action) {
        held.trap_before = Some(action);
        sys::sigaction(sig::TRAP, Some(&ours(sig::TRAP, &action, false)));
    }
}

/// Ends what [`answer_doorbells`] began.
pub fn answered(held: &mut Held) {
    held.callers = held.callers.saturating_sub(1);
    if held.callers == 0
        && !held.installed
        && let Some(before) = held.trap_before.take()
    {
        give_back(sig::TRAP, &before);
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
    take_trap(held);
    for signal in changeable() {
        let action = match (signal, held.trap_before) {
            (sig::TRAP, Some(before)) => before,
            _ => sys::sigaction(signal, None).unwrap_or_default(),
        };
        let action = match signal == sig::DOORBELL && is_ours(&action) {
            true => knocked(),
            false => action,
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
fn adopt(held: &mut Held) {
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
fn give_back(signal: i32, action: &KernelAction) {
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

/// The signal set as the program sees it.
pub fn program_mask(own: &Own, context: &Context) -> u64 {
    context.mask | own.blocked
}

/// Sets the program's signal set for after the handler; signals of faults stay open in the kernel.
pub fn set_program_mask(own: &mut Own, context: &mut Context, mask: u64) {
    own.blocked = mask & sig::HELD;
    context.mask = mask & !sig::HELD;
    let due = own.pending & !mask;
    own.pending &= mask;
    for signal in changeable().filter(|signal| due & sig::bit(*signal) != 0) {
        sys::raise(signal);
    }
}

/// Delivers a signal to the program, as the kernel would have.
pub fn chain(current: &mut Option<Current>, signal: i32, info: &SignalInfo, context: &mut Context) {
    let mut held = lock();
    if let Some(current) = current {
        step::abandon(&mut held, current, context);
    }
    syscalls::settle(&mut held, current.as_mut(), context);
    let own = current.as_deref_mut();
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
    if let Some(own) = &own
        && own.blocked & sig::bit(signal) != 0
    {
        if !raised {
            if let Some(current) = current {
                current.pending |= sig::bit(signal);
            }
            return;
        }
        action.handler = DEFAULT;
    }
    let ignored = action.handler == IGNORE || action.handler == DEFAULT && signal == sig::DOORBELL;
    if ignored && !raised {
        return;
    }
    if action.handler == DEFAULT || action.handler == IGNORE {
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

/// Builds the program handler's frame where the kernel would have, and makes the return from ours enter it.
fn enter_program_handler(
    held: &mut Held,
    mut current: Option<&mut Current>,
    signal: i32,
    action: &KernelAction,
    info: &SignalInfo,
    context: &mut Context,
) -> bool {
    let sp = context.regs[reg::RSP];
    let alternate = match &current {
        Some(current) => current.alternate,
        None => context.stack,
    };
    let mut top = sp.wrapping_sub(RED_ZONE);
    if action.flags & sa::ONSTACK != 0 && alternate.enabled() && !alternate.holds(sp) {
        top = alternate.sp + alternate.size;
    }
    // A thread without a handler stack of ours: we run on the very stack, and the new frame goes below what we use of it.
    let here = (&raw const top) as u64;
    let ours = current
        .as_ref()
        .is_some_and(|thread| thread.stack().holds(here));
    if !ours && here < top && top - here < SAME_STACK {
        top = here - OWN_FRAMES;
    }
    // SAFETY: the kernel's frame.
    let fp = unsafe { fp_bytes(context.fpstate) };
    let fp_at = top.wrapping_sub(fp) & !63;
    let base = if fp > 0 { fp_at } else { top };
    let at = (base.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
    let mask = match &current {
        Some(current) => program_mask(current, context),
        None => context.mask,
    };
    let mut frame = Frame {
        restorer: action.restorer,
        context: *context,
        info: *info,
    };
    frame.context.mask = mask;
    frame.context.stack = alternate;
    frame.context.stack.flags &= SS_AUTODISARM | SS_DISABLE;
    frame.context.fpstate = if fp > 0 { fp_at } else { 0 };
    // SAFETY: the kernel's floating-point state, of that many bytes.
    let copied = fp == 0 || unsafe { user::write_bytes(held, fp_at, context.fpstate, fp) };
    if !copied || !user::write(held, at, &frame) {
        return false;
    }
    context.regs[reg::RIP] = action.handler;
    context.regs[reg::RSP] = at;
    context.regs[reg::RDI] = signal as u64;
    context.regs[reg::RSI] = at + core::mem::offset_of!(Frame, info) as u64;
    context.regs[reg::RDX] = at + core::mem::offset_of!(Frame, context) as u64;
    context.regs[reg::RAX] = 0;
    context.regs[reg::FLAGS] &= !(TF | DF_RF);
    // SAFETY: the kernel's floating-point state.
    unsafe { fp_initial(context.fpstate) };
    let itself = match action.flags & sa::NODEFER {
        0 => sig::bit(signal),
        _ => 0,
    };
    let mask = mask | action.mask | itself;
    match &mut current {
        Some(current) => {
            if alternate.flags & SS_AUTODISARM != 0 {
                current.set_alternate(StackSetting::NONE);
            }
            set_program_mask(current, context, mask);
        }
        None => context.mask = mask,
    }
    true
}

/// `rt_sigreturn` of the program: its frame becomes ours, from which the kernel restores. False where the frame is bad.
pub fn sigreturn(held: &mut Held, current: &mut Current, context: &mut Context) -> bool {
    let at = context.regs[reg::RSP].wrapping_sub(8);
    let mut frame = Frame {
        restorer: 0,
        context: *context,
        info: SignalInfo::default(),
    };
    let bytes = size_of::<Frame>() as u64;
    // SAFETY: a live local of that size, any bytes of which are valid.
    if !unsafe { user::read_bytes(held, at, &raw mut frame as u64, bytes) } {
        return false;
    }
    let from = frame.context;
    if from.fpstate == 0 {
        // SAFETY: the kernel's floating-point state.
        unsafe { fp_initial(context.fpstate) };
    } else {
        // SAFETY: the kernel's floating-point state, and room for as much of the program's as it holds itself.
        let copied = unsafe {
            let room = fp_bytes(context.fpstate);
            user::read_bytes(held, from.fpstate, context.fpstate, room)
        };
        if !copied {
            return false;
        }
    }
    let segments = context.regs[reg::SEGMENTS];
    context.regs = from.regs;
    context.regs[reg::SEGMENTS] = segments;
    set_program_mask(current, context, from.mask);
    let setting = StackSetting {
        pad: 0,
        ..from.stack
    };
    set_alternate(current, setting, context.regs[reg::RSP]);
    true
}

fn set_alternate(current: &mut Current, setting: StackSetting, sp: u64) -> i64 {
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

//! The frames of the program's own handlers: built where the kernel would have, and taken back.
//!
//! Source: Linux arch/x86/kernel/signal_64.c.
//!
//! Unsafe invariant: the context handed in lies in the kernel's signal frame; its `fpstate`, never
//! changed here, is 0 or points at the floating-point state there. A frame of the program's is read
//! and written by the kernel alone (`user`).

use super::calls::set_alternate;
use super::{program_mask, set_program_mask};
use crate::watchpoints::frame::{
    Context, DF_RF, Frame, KernelAction, SS_AUTODISARM, SS_DISABLE, SignalInfo, StackSetting, TF,
    fp_bytes, fp_initial, reg, sa, sig,
};
use crate::watchpoints::state::Held;
use crate::watchpoints::threads::Current;
use crate::watchpoints::user;

/// Below the stack pointer, what a function may use without moving it (System V ABI).
pub(super) const RED_ZONE: u64 = 128;

/// Two addresses no further apart than this, above a signal frame and below it, are on one stack.
pub(super) const SAME_STACK: u64 = 32 << 10;

/// Below the frame of a function that builds a frame, what its callees use.
pub(super) const OWN_FRAMES: u64 = 4096;

/// Builds the program handler's frame where the kernel would have, and makes the return from ours enter it.
pub(super) fn enter_program_handler(
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

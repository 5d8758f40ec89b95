//! Faults: whose they are, and letting the access happen exactly once.
//!
//! The access is done by the program's own instruction, on the page with its own protection, under the single-step
//! flag: nothing is emulated, so an atomic operation stays one, and an instruction with two watched pages faults
//! twice and still runs once. While it steps, the thread has every signal blocked except those of faults. Other threads
//! may use the page meanwhile without being seen, for some ten microseconds; `Counts::blind_ticks` says how long in all.
//!
//! What an instruction has touched is reported once it has run; if it raises a fault of its own instead, it
//! reports nothing, because it will run again or not at all.
//!
//! Unsafe invariant: code is copied by the kernel, into a live array and no more than fits.

use statcache_abi::{Event, PAGE_BYTES, access, kind};

use crate::watchpoints::frame::{Context, SignalInfo, TF, code, reg, sig};
use crate::watchpoints::insn::{LONGEST, shape};
use crate::watchpoints::state::{Held, block, count, lock};
use crate::watchpoints::threads::{Current, STEP_EVENTS};
use crate::watchpoints::{pages, process, requests, signals, sys, text, threads, user};

/// Bits of the page fault error code, and of a protection.
const ERROR_WRITE: u64 = 2;
const ERROR_FETCH: u64 = 16;
const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
/// No single operand that is not `several` is wider.
const WIDEST: u64 = 64;

/// SIGSEGV.
pub fn fault(current: &mut Option<Current>, info: &SignalInfo, context: &mut Context) {
    if info.code != code::SEGV_ACCERR {
        return own_fault(current, info, context);
    }
    let mut held = lock();
    if current.is_none() {
        *current = threads::claim(&mut held);
    }
    let Some(thread) = current.as_mut() else {
        drop(held);
        return own_fault(current, info, context);
    };
    let place = held.find_page(info.address());
    let Some(page) = place.and_then(|place| held.pages.get(place).copied()) else {
        // The page may have been let go between the fault and now: then the access succeeds this time.
        let seen = core::mem::replace(&mut thread.releases, held.releases);
        let again = seen != held.releases;
        drop(held);
        return match again {
            true => (),
            false => own_fault(current, info, context),
        };
    };
    let place = place.unwrap_or_default();
    let error = context.regs[reg::ERROR];
    let needed = match error & (ERROR_WRITE | ERROR_FETCH) {
        0 => PROT_READ,
        ERROR_WRITE => PROT_WRITE,
        _ => PROT_EXEC,
    };
    // A writable page can be read on x86, whatever its protection says.
    let allowed =
        page.protection & needed != 0 || needed == PROT_READ && page.protection & PROT_WRITE != 0;
    let stepping = thread.step.pages != 0;
    if !allowed || thread.step.pages >> place & 1 == 1 {
        drop(held);
        return own_fault(current, info, context);
    }
    pages::open(&mut held, 1 << place);
    if !stepping {
        thread.step.code = read_code(&mut held, context.regs[reg::RIP]);
        let shape = shape(thread.step.code.get(..LONGEST).unwrap_or(&[]));
        thread.step.mask = context.mask;
        thread.step.rip = context.regs[reg::RIP];
        thread.step.program_steps = context.regs[reg::FLAGS] & TF != 0;
        thread.step.pushes_flags = shape.pushes_flags;
        thread.step.count = 0;
        note(&held, thread, context, info.address(), place, shape.several);
        context.mask = !sig::FAULTS;
        context.regs[reg::FLAGS] |= TF;
    } else {
        note(&held, thread, context, info.address(), place, true);
    }
    thread.step.pages |= 1 << place;
}

/// Bytes of code, as far as they can be read.
fn read_code(held: &mut Held, at: u64) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    let on_page = (PAGE_BYTES - at % PAGE_BYTES).min(LONGEST as u64);
    let into = bytes.as_mut_ptr() as u64;
    // SAFETY: `bytes` has room for either.
    let whole = unsafe { user::read_bytes(held, at, into, LONGEST as u64) };
    if !whole {
        // SAFETY: a shorter part of it.
        unsafe { user::read_bytes(held, at, into, on_page) };
    }
    bytes
}

/// Notes which watches on the page the instruction touches, or may.
fn note(
    held: &Held,
    thread: &mut Current,
    context: &Context,
    address: u64,
    place: usize,
    several: bool,
) {
    let mut touched = false;
    for watch in held
        .watches
        .iter()
        .filter(|w| w.bytes != 0 && w.page == place)
    {
        let end = watch.line + u64::from(watch.bytes);
        let kind = if (watch.line..end).contains(&address) {
            kind::HIT
        } else if several || (address < watch.line && watch.line - address < WIDEST) {
            kind::MAYBE
        } else {
            continue;
        };
        touched = true;
        let at = thread.step.count;
        if at >= STEP_EVENTS {
            count(|counts| &counts.lost, 1);
            continue;
        }
        let noted = Event {
            kind,
            id: watch.id,
            tid: sys::gettid(),
            detail: match context.regs[reg::ERROR] & ERROR_WRITE {
                0 => 0,
                _ => access::WRITE,
            },
            address,
            line: watch.line,
            tsc: sys::tsc(),
            gpr: reg::BY_NUMBER.map(|place| context.regs.get(place).copied().unwrap_or(0)),
            rip: context.regs[reg::RIP],
            rflags: context.regs[reg::FLAGS] & !TF,
            fs: thread.shared.fs.load(core::sync::atomic::Ordering::Relaxed),
            blind: pages::blind(held, watch, sys::tsc()),
            code: thread.step.code,
        };
        if let Some(place) = thread.step.events.get_mut(at) {
            *place = noted;
        }
        thread.step.count += 1;
    }
    if !touched {
        count(|counts| &counts.false_hits, 1);
    }
}

fn own_fault(current: &mut Option<Current>, info: &SignalInfo, context: &mut Context) {
    count(|counts| &counts.own_faults, 1);
    signals::chain(current, sig::SEGV, info, context);
}

fn restore(thread: &mut Current, context: &mut Context) {
    context.mask = thread.step.mask;
    if !thread.step.program_steps {
        context.regs[reg::FLAGS] &= !TF;
    }
}

/// The instruction did not run to its end: as if it had not been tried.
pub fn abandon(held: &mut Held, thread: &mut Current, context: &mut Context) {
    let pages = core::mem::take(&mut thread.step.pages);
    if pages != 0 {
        thread.step.count = 0;
        restore(thread, context);
        pages::close(held, pages);
    }
}

/// The instruction has run.
fn finish(held: &mut Held, thread: &mut Current, context: &mut Context) {
    if thread.step.pushes_flags && !thread.step.program_steps {
        let at = context.regs[reg::RSP] + 1;
        if let Some(byte) = user::read::<u8>(held, at) {
            user::write(held, at, &(byte & !1));
        }
    }
    let pages = core::mem::take(&mut thread.step.pages);
    restore(thread, context);
    pages::report_step(held, thread);
    pages::close(held, pages);
}

/// SIGTRAP: a step done, a system call done, a request, or the program's own.
pub fn trap(current: &mut Option<Current>, info: &SignalInfo, context: &mut Context) {
    if let Some(thread) = current.as_mut()
        && thread.step.pages != 0
    {
        // Virtual machines have been seen to lose the reason of a debug exception now and then: the kernel then reports a
        // breakpoint. An `int3`, which would be another matter, has a code of its own.
        let traced = matches!(info.code, code::TRAP_TRACE | code::TRAP_BRKPT);
        let ran = context.regs[reg::RIP] != thread.step.rip;
        let mut held = lock();
        let program_steps = thread.step.program_steps;
        if traced || ran {
            finish(&mut held, thread, context);
        } else {
            abandon(&mut held, thread, context);
        }
        if traced && !program_steps {
            return;
        }
    }
    if info.code > 0 && text::inside(context.regs[reg::RIP]).is_some() {
        return process::after_call(current, context);
    }
    if info.code > 0 && text::asked(context.regs[reg::RIP]) {
        return requests::asked(current, context);
    }
    if matches!(info.code, code::TRAP_TRACE | code::TRAP_BRKPT) && monitor_steps() {
        context.regs[reg::FLAGS] &= !TF;
        return;
    }
    signals::chain(current, sig::TRAP, info, context);
}

/// See `Block::stepping`.
fn monitor_steps() -> bool {
    block().is_some_and(|block| block.stepping.load(core::sync::atomic::Ordering::Relaxed) != 0)
}

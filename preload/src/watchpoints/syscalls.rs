//! System calls of the program while pages are protected: Syscall User Dispatch brings each here before it is made.
//!
//! Most go on unchanged in a stub (`text`) with nothing of ours on the stack, so that a call that blocks does so
//! where a signal finds the program's own state. Those that may use a watched page have it opened before and closed
//! after. No call is ever repeated because it failed. Calls about signals are answered from the shim's own books, calls about
//! memory let go of the watches they concern, calls that make processes and threads are `process`'s.
//!
//! Before the program sees a signal, a stub it was interrupted in is left (`settle`): then the way back from the
//! handler leads through the dispatcher again, whatever was armed meanwhile.
//!
//! Where the kernel uses memory on its own account after a call has returned (`io_uring`), or could not stand what the shim does (a
//! filter of system calls), the watches end before the call and none is armed any more (`State::barred`).
//!
//! Not caught: `int 0x80`, which is refused as on a kernel without it, and what the kernel does for another process
//! (`process_vm_readv` of ours).
//!
//! Unsafe invariant: what is made from here is the program's own call with its own arguments, or
//! `brk(0)`, which only asks; no memory of ours is in it.

use statcache_abi::{PAGE_BYTES, ended, result};

use crate::watchpoints::frame::{Context, SignalInfo, code, reg, sig};
use crate::watchpoints::state::{Held, count, lock};
use crate::watchpoints::sys::{self, nr};
use crate::watchpoints::threads::{Current, NO_CALL};
use crate::watchpoints::touch::{Touch, is_quick, touch};
use crate::watchpoints::{pages, process, requests, signals, text};
use core::sync::atomic::Ordering;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const ENOSYS: i64 = -38;
const EBUSY: i64 = -16;
const EINTR: i64 = -4;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const PR_SET_SECCOMP: u64 = 22;
/// Operations of `seccomp`: strict, by a filter.
const SECCOMP_SET_MODE: [u64; 2] = [0, 1];
const ARCH_SET_FS: u64 = 0x1002;
const MAP_FIXED: u64 = 0x10;
const MADV_POPULATE: [u64; 2] = [22, 23];
const PROT_MASK: u64 = 7;
/// Length of `syscall`.
pub const SYSCALL_BYTES: u64 = 2;

/// The arguments in the registers.
pub fn arguments(context: &Context) -> [u64; 6] {
    [reg::RDI, reg::RSI, reg::RDX, reg::R10, reg::R8, reg::R9].map(|place| context.regs[place])
}

/// The call is done, with this answer.
pub fn answer(context: &mut Context, value: i64) {
    context.regs[reg::RAX] = value as u64;
    context.regs[reg::RCX] = context.regs[reg::RIP];
    context.regs[reg::R11] = context.regs[reg::FLAGS];
}

/// SIGSYS.
pub fn dispatched(current: &mut Option<Current>, info: &SignalInfo, context: &mut Context) {
    if info.code != code::SYS_USER_DISPATCH {
        return signals::chain(current, sig::SYS, info, context);
    }
    let (number, architecture) = info.call();
    let Some(thread) = current.as_mut() else {
        // SAFETY: the program's own call; nothing of the shim's concerns a thread that it does not know.
        let value = unsafe { text::syscall(number, arguments(context)) };
        return answer(context, value);
    };
    if architecture != AUDIT_ARCH_X86_64 {
        return answer(context, ENOSYS);
    }
    count(|counts| &counts.syscalls, 1);
    let a = arguments(context);
    let mut held = lock();
    thread.shared.call.store(NO_CALL, Ordering::Relaxed);
    thread.temporary = None;
    if thread.again.wrapping_add(SYSCALL_BYTES) != context.regs[reg::RIP] {
        thread.again = 0;
    }
    let over = held.leaving && held.armed == 0 && held.arming == 0;
    // Not before a call that is made again: a signal that comes before the kernel has it would not cut it.
    if over && thread.blocked == 0 && thread.again == 0 && number != nr::RT_SIGRETURN {
        drop(held);
        return requests::leave_last(current, number, context);
    }
    let value = match number {
        nr::RT_SIGRETURN => {
            if !signals::sigreturn(&mut held, thread, context) {
                drop(held);
                let bad = SignalInfo {
                    signo: sig::SEGV,
                    code: 0x80,
                    ..SignalInfo::default()
                };
                signals::chain(current, sig::SEGV, &bad, context);
            }
            return;
        }
        nr::RT_SIGACTION => signals::sigaction(&mut held, context),
        nr::RT_SIGPROCMASK => signals::sigprocmask(&mut held, thread, context),
        nr::SIGALTSTACK => signals::sigaltstack(&mut held, thread, context),
        nr::CLONE | nr::FORK | nr::VFORK | nr::CLONE3 => {
            return process::clone(held, thread, number, context);
        }
        nr::EXECVE | nr::EXECVEAT => return process::exec(held, thread, context),
        nr::EXIT | nr::EXIT_GROUP => return process::exit(held, thread, number, context),
        nr::PRCTL if a[0] == PR_SET_SYSCALL_USER_DISPATCH => EBUSY,
        nr::PRCTL if a[0] == PR_SET_SECCOMP => {
            return requests::seal(held, current, number, context);
        }
        nr::SECCOMP if SECCOMP_SET_MODE.contains(&a[0]) => {
            return requests::seal(held, current, number, context);
        }
        nr::RT_SIGPENDING => signals::sigpending(&mut held, thread, context),
        nr::RT_SIGSUSPEND | nr::PSELECT6 | nr::PPOLL | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => {
            thread.temporary = signals::temporary_mask(&mut held, number, a);
            let due = thread.temporary.and_then(|mask| thread.take_kept(!mask));
            let Some(info) = due else {
                return ordinary(held, thread, number, context);
            };
            drop(held);
            answer(context, EINTR);
            return signals::chain(current, info.signo, &info, context);
        }
        nr::RT_SIGTIMEDWAIT if signals::awaits_pending(&mut held, thread, context) => return,
        nr::IO_URING_SETUP | nr::IO_URING_ENTER | nr::IO_URING_REGISTER => {
            pages::bar(&mut held, result::ASYNCHRONOUS, ended::UNMAPPED);
            return ordinary(held, thread, number, context);
        }
        nr::ARCH_PRCTL if a[0] == ARCH_SET_FS => {
            let (low, bytes) = pages::near_control_block(a[1]);
            pages::release(&mut held, low, bytes, ended::UNMAPPED);
            thread.shared.fs.store(a[1], Ordering::Relaxed);
            return ordinary(held, thread, number, context);
        }
        // As the dynamic loader does when it has set up the first thread.
        nr::RSEQ => {
            pages::release(&mut held, a[0], pages::RSEQ_BYTES, ended::UNMAPPED);
            pages::note_rseq(a[0].wrapping_sub(sys::fs_base()));
            return ordinary(held, thread, number, context);
        }
        nr::MPROTECT => mprotect(&mut held, a),
        nr::MUNMAP | nr::MLOCK | nr::MLOCK2 | nr::PKEY_MPROTECT => {
            let_go(&mut held, number, a, a[0], a[1])
        }
        nr::MREMAP => {
            if a[3] & 2 != 0 {
                pages::release(&mut held, a[4], a[2], ended::UNMAPPED);
            }
            let_go(&mut held, number, a, a[0], a[1].max(PAGE_BYTES))
        }
        nr::MMAP if a[3] & MAP_FIXED != 0 => let_go(&mut held, number, a, a[0], a[1]),
        nr::MADVISE if MADV_POPULATE.contains(&a[2]) => let_go(&mut held, number, a, a[0], a[1]),
        // The rest of them may last, or concern memory that is not watched.
        nr::BRK if a[0] != 0 => let_go(&mut held, number, a, a[0], brk_bytes(a[0])),
        nr::BRK | nr::MADVISE | nr::MMAP => raw(number, a),
        nr::SHMAT | nr::SHMDT | nr::MLOCKALL => let_go(&mut held, number, a, 0, u64::MAX),
        _ => return ordinary(held, thread, number, context),
    };
    answer(context, value);
}

fn raw(number: u64, a: [u64; 6]) -> i64 {
    // SAFETY: the program's own call.
    unsafe { text::syscall(number, a) }
}

/// Bytes that a new break gives back.
fn brk_bytes(to: u64) -> u64 {
    (raw(nr::BRK, [0; 6]) as u64).saturating_sub(to)
}

/// A call that a protected page would change: the watches there end first.
fn let_go(held: &mut Held, number: u64, a: [u64; 6], begin: u64, bytes: u64) -> i64 {
    pages::release(held, begin, bytes, ended::UNMAPPED);
    raw(number, a)
}

/// The program's `mprotect`: done as asked, noted for its watched pages, and these closed again.
fn mprotect(held: &mut Held, a: [u64; 6]) -> i64 {
    let concerned = pages::overlapping(held, a[0], a[1]);
    if concerned == 0 {
        return raw(nr::MPROTECT, a);
    }
    if a[2] & !PROT_MASK != 0 {
        return let_go(held, nr::MPROTECT, a, a[0], a[1]);
    }
    let value = raw(nr::MPROTECT, a);
    if value < 0 {
        // It may have been done in part: which one cannot be told, so the watches end and it is done once more.
        for place in pages::places(concerned) {
            if let Some(page) = held.pages.get(place).copied() {
                pages::lift(held, page.address, page.protection);
            }
        }
        return let_go(held, nr::MPROTECT, a, a[0], a[1]);
    }
    for place in pages::places(concerned) {
        if let Some(page) = held.pages.get_mut(place) {
            page.protection = (a[2] & PROT_MASK) as u32;
        }
    }
    pages::protect_again(held, concerned);
    value
}

fn ordinary(mut held: Held, thread: &mut Current, number: u64, context: &mut Context) {
    let a = arguments(context);
    let concerned = match touch(number, a) {
        Touch::All => pages::all(&held),
        Touch::Ranges(ranges) => ranges
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .fold(0, |set, (at, bytes)| {
                set | pages::overlapping(&held, *at, *bytes)
            }),
    };
    // Who sleeps when all others leave, leaves behind the call: see `requests::settle_down`.
    let closes = concerned != 0 || thread.temporary.is_some() || !is_quick(number);
    go_on(&mut held, thread, number, concerned, closes, context);
}

/// Opens `concerned` and sends the call on through a stub.
pub fn go_on(
    held: &mut Held,
    thread: &mut Current,
    number: u64,
    concerned: u64,
    closes: bool,
    context: &mut Context,
) {
    let a = arguments(context);
    if concerned != 0 {
        count(|counts| &counts.syscalls_opened, 1);
        pages::open(held, concerned);
    }
    let makes = matches!(
        number,
        nr::CLONE | nr::CLONE3 | nr::VFORK | nr::EXECVE | nr::EXECVEAT
    );
    let Some(site) = held.site(context.regs[reg::RIP], makes) else {
        // More places than stubs: made from here. A signal then finds the thread in the shim.
        let value = raw(number, a);
        pages::close(held, concerned);
        return answer(context, value);
    };
    for (word, value) in thread.shared.arguments.iter().zip(a) {
        word.store(value, Ordering::Relaxed);
    }
    thread
        .shared
        .call
        .store(number as i64 + 1, Ordering::Release);
    thread.opened = concerned;
    context.regs[reg::RAX] = number;
    context.regs[reg::RIP] = match closes {
        true => text::closing(site),
        false => text::direct(site),
    };
}

/// Leaves the stub that the thread is in, if it is in one: to behind the call in the program where it was made, to the
/// call itself where it is still to be made.
pub fn settle(held: &mut Held, current: Option<&mut Current>, context: &mut Context) {
    let Some((site, unmade)) = text::inside(context.regs[reg::RIP]) else {
        return;
    };
    let returns = text::returns(site).load(Ordering::Relaxed);
    context.regs[reg::RIP] = match unmade {
        true => returns - SYSCALL_BYTES,
        false => returns,
    };
    context.regs[reg::RCX] = context.regs[reg::RIP];
    let Some(thread) = current else { return };
    thread.shared.call.store(NO_CALL, Ordering::Relaxed);
    thread.temporary = None;
    if !unmade {
        thread.again = 0;
    }
    let opened = core::mem::take(&mut thread.opened);
    let gave_birth = core::mem::take(&mut thread.births);
    if gave_birth {
        context.mask &= !sig::HELD;
    }
    if gave_birth && (unmade || (context.regs[reg::RAX] as i64) < 0) {
        held.births = held.births.saturating_sub(1);
    }
    pages::close(held, opened);
    if core::mem::take(&mut thread.exec) {
        signals::after_exec(held);
        let mask = signals::program_mask(thread, context);
        signals::set_program_mask(thread, context, mask);
    }
}

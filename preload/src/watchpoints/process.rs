//! Threads and processes that the program makes while pages are protected, and its own end.
//!
//! A thread: its parent returns through a closing stub, and so does it: the `int3` there, its first instruction, is where the
//! shim takes it in. A forked process gets a copy of everything; before it runs its first instruction its pages are
//! opened, and it is left alone from then on. A child that borrows the memory (`vfork`, `posix_spawn`) runs while its parent
//! waits in the call, with all pages open. `execve` starts afresh: the shim in the new image connects again.
//!
//! Unsafe invariant: the only fork made from here is one without `CLONE_VM`: the child has this
//! stack and the held state as copies of its own. Otherwise the kernel is handed the address of
//! [`HERE`], a page that holds nothing else, or of a live local and no more than its size.

use statcache_abi::{PAGE_BYTES, ended, result};

use crate::watchpoints::frame::{Context, StackSetting, reg, sig};
use crate::watchpoints::state::{Held, connect, count, lock, lock_in_child};
use crate::watchpoints::sys::nr;
use crate::watchpoints::threads::Current;
use crate::watchpoints::{pages, requests, signals, sys, syscalls, text, threads, user};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const GET_ROBUST_LIST: u64 = 274;
/// Stack of a new thread on which the kernel may have to write before the thread has a handler stack.
const FIRST_STACK: u64 = 32 << 10;
/// `struct clone_args`, as long as any known version of it.
const CLONE_ARGS_WORDS: usize = 11;

/// See [`note_pid`].
pub static PID: AtomicI32 = AtomicI32::new(0);

/// Notes which process this is.
pub fn note_pid() {
    PID.store(sys::getpid(), Ordering::Relaxed);
}

/// A page whose first word is [`STARTED`] in the process the shim has started in, and [`FORKED`] in the children of its forks: the
/// kernel sees to that. It is part of the shim's image, so nobody watches it.
#[repr(C, align(4096))]
pub struct Here {
    word: AtomicU32,
    rest: [u8; PAGE_BYTES as usize - 4],
}

const FORKED: u32 = 0;
const STARTED: u32 = 1;
/// A thread of the child is at it.
const TIDYING: u32 = 2;

/// See [`Here`].
pub static HERE: Here = Here {
    word: AtomicU32::new(0),
    rest: [0; PAGE_BYTES as usize - 4],
};
/// The kernel knows of it.
pub static WIPES: AtomicBool = AtomicBool::new(false);

/// Prepares [`notice_fork`].
pub fn mark() {
    const WIPE_ON_FORK: u64 = 18;
    let page = &raw const HERE as u64;
    // SAFETY: advice on a page of ours that holds nothing else.
    let wipes =
        unsafe { text::syscall(nr::MADVISE, [page, PAGE_BYTES, WIPE_ON_FORK, 0, 0, 0]) } == 0;
    HERE.word.store(STARTED, Ordering::Release);
    WIPES.store(wipes, Ordering::Relaxed);
}

/// Tidies up in the child of a fork by a thread that was not under the shim, while another thread may have been at anything here: the
/// spin word may be taken for ever, and the shim's handlers be in place. Only with all signals blocked.
pub fn notice_fork() {
    if !WIPES.load(Ordering::Relaxed) {
        return;
    }
    // The child may have started threads of its own before the first signal in it: one of them tidies up, the others wait.
    let word = &HERE.word;
    while let Err(found) =
        word.compare_exchange(FORKED, TIDYING, Ordering::Acquire, Ordering::Acquire)
    {
        if found == STARTED {
            return;
        }
        sys::sched_yield();
    }
    let mut held = lock_in_child();
    signals::uninstall_in_child(&mut held);
    begin_child(&mut held, None);
}

/// What the child of a fork starts with.
fn begin_child(held: &mut Held, on: Option<&threads::Thread>) {
    connect(core::ptr::null_mut());
    note_pid();
    pages::forget_all(held);
    held.callers = 0;
    held.arming = 0;
    held.begun = 0;
    held.rings = false;
    held.births = 0;
    signals::uninstall(held);
    threads::forget_all(on);
    signals::forget_others(on.is_some());
    mark();
}

/// Behind a call made through a stub: the parent's and any child's first stop.
pub fn after_call(current: &mut Option<Current>, context: &mut Context) {
    let mut held = lock();
    syscalls::settle(&mut held, current.as_mut(), context);
    let borrowed = sys::getpid() != PID.load(Ordering::Relaxed);
    if let Some(thread) = current.as_ref().filter(|thread| thread.shared.is_dormant()) {
        let over = held.leaving && held.armed == 0 && held.arming == 0;
        if over && thread.blocked == 0 && !borrowed {
            drop(held);
            return requests::leave_behind(current, context);
        }
        thread.shared.set_dormant(false);
    }
    if current.is_some() || borrowed {
        return;
    }
    held.births = held.births.saturating_sub(1);
    if held.installed && !requests::enter(&mut held, context) {
        pages::disarm(&mut held, ended::THREADS, |_| true);
    }
}

/// `clone`, `clone3`, `fork`, `vfork`.
pub fn clone(mut held: Held, thread: &mut Current, number: u64, context: &mut Context) {
    let a = syscalls::arguments(context);
    let everything = pages::all(&held);
    let mut words = [0u64; CLONE_ARGS_WORDS];
    let bytes = a[1].min(size_of_val(&words) as u64);
    let (flags, top) = match number {
        nr::FORK => (0, 0),
        nr::VFORK => (CLONE_VM | CLONE_VFORK, 0),
        nr::CLONE => (a[0], a[1]),
        _ => {
            let into = words.as_mut_ptr() as u64;
            // SAFETY: `words` has room for `bytes`.
            if !unsafe { user::read_bytes(&mut held, a[0], into, bytes) } {
                return syscalls::answer(context, user::EFAULT);
            }
            let [flags, _, _, _, _, low, size, ..] = words;
            (flags, if low == 0 { 0 } else { low.wrapping_add(size) })
        }
    };
    if flags & CLONE_VM != 0 {
        if flags & (CLONE_THREAD | CLONE_VFORK) == 0 {
            // Another process in the same memory, whose system calls nobody dispatches.
            pages::bar(&mut held, result::BORROWED, ended::UNMAPPED);
        }
        if top != 0 {
            let low = top.saturating_sub(FIRST_STACK);
            pages::release(&mut held, low, FIRST_STACK, ended::STACK);
        }
        // Of a thread only what the kernel writes for it: all pages open would be open to it too, until its parent has the processor
        // again.
        let [_, pidfd, child, parent, _, _, _, _, sets_tid, ..] = words;
        let concerned = match number {
            nr::CLONE if flags & CLONE_THREAD != 0 => {
                touched(&held, [(a[2], 4), (a[3], 4), (0, 0), (0, 0)])
            }
            nr::CLONE3 if flags & CLONE_THREAD != 0 && sets_tid == 0 => {
                touched(&held, [(a[0], bytes), (pidfd, 4), (child, 4), (parent, 4)])
            }
            _ => pages::all(&held),
        };
        syscalls::go_on(&mut held, thread, number, concerned, true, context);
        if flags & CLONE_THREAD != 0 && text::inside(context.regs[reg::RIP]).is_some() {
            thread.births = true;
            held.births += 1;
            // The new thread inherits what its parent has blocked; not SIGTRAP, with which it begins. Undone by `settle`.
            context.mask |= thread.blocked & !sig::bit(sig::TRAP);
        }
        return;
    }
    count(|counts| &counts.forks, 1);
    pages::open(&mut held, everything);
    let mut arguments = a;
    match number {
        nr::CLONE => arguments[1] = 0,
        nr::CLONE3 => {
            // The child comes back here, on a copy of this stack; its own is put in place below.
            if let Some(low) = words.get_mut(5) {
                *low = 0;
            }
            if let Some(size) = words.get_mut(6) {
                *size = 0;
            }
            arguments[0] = words.as_ptr() as u64;
            arguments[1] = bytes;
        }
        _ => {}
    }
    // SAFETY: the program's own call; no memory is shared with the child except what the program shares.
    let value = unsafe { text::syscall(number, arguments) };
    syscalls::answer(context, value);
    if value != 0 {
        pages::close(&mut held, everything);
        return;
    }
    let mask = signals::program_mask(thread, context);
    context.mask = mask;
    context.stack = thread.alternate;
    thread.blocked = 0;
    thread.pending = 0;
    thread.set_alternate(StackSetting::NONE);
    if top != 0 {
        context.regs[reg::RSP] = top;
    }
    begin_child(&mut held, Some(thread.shared));
}

/// The pages that these stretches of memory lie on.
fn touched(held: &Held, stretches: [(u64, u64); 4]) -> u64 {
    let used = stretches
        .iter()
        .filter(|(at, bytes)| *at != 0 && *bytes > 0);
    used.fold(0, |set, (at, bytes)| {
        set | pages::overlapping(held, *at, *bytes)
    })
}

/// `execve`, `execveat`. The new image inherits the signal mask and what is ignored, so both are the program's own
/// for the length of the call.
pub fn exec(mut held: Held, thread: &mut Current, context: &mut Context) {
    let number = context.regs[reg::RAX];
    let everything = pages::all(&held);
    signals::before_exec(&mut held);
    syscalls::go_on(&mut held, thread, number, everything, true, context);
    if text::inside(context.regs[reg::RIP]).is_some() {
        thread.exec = true;
        // The stub's `int3` must be able to report that the call failed.
        context.mask = signals::program_mask(thread, context) & !sig::bit(sig::TRAP);
    } else {
        signals::after_exec(&mut held);
    }
}

/// `exit` and `exit_group`.
pub fn exit(mut held: Held, thread: &mut Current, number: u64, context: &mut Context) {
    context.regs[reg::RAX] = number;
    context.regs[reg::RIP] = text::plain();
    context.mask = !0;
    if number == nr::EXIT_GROUP {
        // Locks shared with other processes are released by the kernel, for each thread, in the program's memory.
        return pages::bar(&mut held, result::BUSY, ended::DISARMED);
    }
    // The kernel clears a word when the thread ends, and releases the locks that it still holds.
    match sys::tid_address() {
        Some(0) => {}
        Some(word) => pages::release(&mut held, word, 4, ended::UNMAPPED),
        None => pages::release(&mut held, 0, u64::MAX, ended::UNMAPPED),
    }
    let (mut head, mut bytes) = (0u64, 0u64);
    let query = [0, &raw mut head as u64, &raw mut bytes as u64, 0, 0, 0];
    // SAFETY: two live words.
    unsafe { text::syscall(GET_ROBUST_LIST, query) };
    if head != 0 && user::read::<u64>(&mut held, head) != Some(head) {
        pages::release(&mut held, 0, u64::MAX, ended::UNMAPPED);
    }
    requests::leave_place(thread);
}

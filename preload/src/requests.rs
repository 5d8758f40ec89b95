//! Requests: who asks, and what has to be true of every thread before a page may be protected.
//!
//! A request arrives by a signal, so that it is served on a handler stack with all signals blocked, whoever asks. Before the
//! first page is protected, every thread of the process must be under the shim: handler stack in place, system calls dispatched,
//! signals of faults open. Each is sent a doorbell and does this for itself. A thread asleep in a system call is
//! woken by it, and makes the call again from its beginning, as after a stop. One that cannot be reached, or that is in
//! a call on the very page, makes the request fail: it is the user's to count.

use statcache_abi::{Block, DOORBELL, PAGE_BYTES, Request, ended, op, result};

use crate::frame::{Context, SS_AUTODISARM, SS_DISABLE, SignalInfo, code, reg, sig};
use crate::state::{Held, Waiting, block, block_raw, lock};
use crate::sys::{self, File, nr};
use crate::threads::{self, Current, NO_CALL, READY, TAKEN_IN, Thread};
use crate::touch::uses;
use crate::{pages, process, signals, syscalls, text, user};
use core::sync::atomic::Ordering;

/// `si_errno` of a doorbell, by which it is told from the program's own signal.
const DOORBELL_MARK: i32 = 0x5ca0;
/// How long a thread may take to answer.
const PATIENCE_TICKS: u64 = 1 << 29;
const RESEND_TICKS: u64 = 1 << 21;
const EINTR: u64 = -4i64 as u64;

/// Whether a signal is one.
pub fn is_doorbell(info: &SignalInfo) -> bool {
    info.code == code::QUEUE && (info.errno == DOORBELL_MARK || info.value() == DOORBELL)
}

fn ring(tid: i32, request: u64) {
    let mut info = SignalInfo {
        signo: sig::DOORBELL,
        errno: DOORBELL_MARK,
        code: code::QUEUE,
        ..SignalInfo::default()
    };
    info.fields[1] = request;
    sys::queue(tid, sig::DOORBELL, &info);
}

/// Serves `request`, from ordinary code of the program. The answer is also in its `result`.
///
/// The stack it runs on may be, or become, a watched page, which a system call of ours could not use: so it makes none while
/// the thread is under the shim, and asks by an `int3`, whose handler leaves with the state that is right then.
pub extern "C" fn call(request: *mut Request) -> i32 {
    let mut blocked = 0;
    if !under_shim(&threads::current()) {
        let before = sys::set_mask(!0);
        process::notice_fork();
        signals::answer_doorbells(&mut lock());
        blocked = before & sig::HELD | ASKED;
        sys::set_mask(before & !sig::HELD);
    }
    // SAFETY: the caller's request, alive until we return.
    unsafe { (&raw mut (*request).result).write_volatile(result::PENDING) };
    text::ask(request as u64, blocked)
}

/// Bit of [`text::ask`]'s mask: the caller was not under the shim, and is counted in `State::callers`. Signal 64 is no fault.
const ASKED: u64 = 1 << 63;

fn under_shim(current: &Option<Current>) -> bool {
    current
        .as_ref()
        .is_some_and(|thread| thread.shared.inside.load(Ordering::Relaxed) != 0)
}

/// The `int3` of [`call`].
pub fn asked(current: &mut Option<Current>, context: &mut Context) {
    let (at, blocked) = (context.regs[reg::RDI], context.regs[reg::RSI]);
    let was_inside = under_shim(current);
    if serve(current, at, context) {
        // Once more, on the new stack: this one may be on the very page.
        context.regs[reg::RIP] -= 1;
        return;
    }
    let answer = user::read::<Request>(&mut lock(), at).map_or(result::INVALID, |r| r.result);
    context.regs[reg::RAX] = answer as u64;
    if blocked & ASKED == 0 {
        return;
    }
    let blocked = blocked & sig::HELD;
    match threads::current().filter(|_| was_inside) {
        Some(mut thread) if thread.shared.inside.load(Ordering::Relaxed) != 0 => {
            thread.blocked |= blocked;
        }
        _ => context.mask |= blocked,
    }
    signals::answered(&mut lock());
}

/// A signal with a doorbell's mark.
pub fn doorbell(current: &mut Option<Current>, info: &SignalInfo, context: &mut Context) {
    let mut held = lock();
    let cut = cut_short(&mut held, current, context);
    syscalls::settle(&mut held, current.as_mut(), context);
    if let Some(number) = cut {
        make_again(&mut held, number, context);
    }
    drop(held);
    let at = match info.value() {
        DOORBELL => block_raw() as u64 + core::mem::offset_of!(Block, request) as u64,
        at => at,
    };
    if serve(current, at, context) {
        ring(sys::gettid(), info.value());
    }
}

/// Does what the request at `at` asks, and what the state of the shim asks of every thread. True where something had to be
/// put in place first, and the request is to be served again on the thread's new stack.
fn serve(current: &mut Option<Current>, at: u64, context: &mut Context) -> bool {
    let mut held = lock();
    let request = match at {
        0 => None,
        at => user::read::<Request>(&mut held, at).filter(|r| r.result == result::PENDING),
    };
    let arms = request.is_some_and(|request| matches!(request.op, op::ARM | op::BEGIN));
    held.leaving &= !arms;
    if arms && !held.installed {
        signals::install(&mut held);
    }
    let wanted = held.installed && (arms || held.armed > 0 || held.arming > 0);
    if wanted && !under_shim(current) {
        // Still holding the state: else another thread could give the handlers back in between.
        if enter(&mut held, context) {
            return request.is_some();
        }
        drop(held);
        finish(at, result::UNSUPPORTED);
        settle_down();
        return false;
    }
    drop(held);
    if arms && !lock().settled {
        lock().arming += 1;
        let all = everyone_inside(TAKEN_IN);
        let mut held = lock();
        held.arming -= 1;
        if all {
            signals::settled(&mut held);
            return true;
        }
        drop(held);
        finish(at, result::BUSY);
        leave(current, context);
        settle_down();
        return false;
    }
    let Some(request) = request else {
        if !wanted && under_shim(current) {
            leave(current, context);
        }
        return false;
    };
    let answer = match request.op {
        op::ARM => arm(&request),
        op::DISARM => disarm(Some(request.id)),
        op::DISARM_ALL => disarm(None),
        op::BEGIN => begin(),
        op::END => end(),
        _ => result::INVALID,
    };
    finish(at, answer);
    let held = lock();
    let over = held.armed == 0 && held.arming == 0;
    drop(held);
    if over {
        if under_shim(current) {
            leave(current, context);
        }
        settle_down();
    }
    false
}

fn finish(at: u64, answer: i32) {
    if at == 0 {
        return;
    }
    let place = at + core::mem::offset_of!(Request, result) as u64;
    user::write(&mut lock(), place, &answer);
    if let Some(block) = block() {
        block.answered.store(1, Ordering::Release);
    }
}

/// The number of the system call that this doorbell cut short, and that is to be made again; before [`syscalls::settle`].
///
/// Of a thread under the shim it is the one it went on to make. Of another only the kernel knows, and told whoever rang; what
/// it said must be what is found here, or the thread has been in another call since.
fn cut_short(held: &mut Held, current: &Option<Current>, context: &Context) -> Option<u64> {
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

/// Makes the `syscall` before the instruction pointer again.
fn make_again(held: &mut Held, number: u64, context: &mut Context) {
    let at = context.regs[reg::RIP] - 2;
    if user::read::<[u8; 2]>(held, at) == Some([0x0f, 0x05]) {
        context.regs[reg::RIP] = at;
        context.regs[reg::RAX] = number;
    }
}

/// Puts this thread under the shim, from the return of the handler on.
pub fn enter(held: &mut Held, context: &mut Context) -> bool {
    let mut alternate = context.stack;
    alternate.flags &= SS_AUTODISARM | SS_DISABLE;
    if alternate.holds(context.regs[reg::RSP]) && alternate.flags & SS_AUTODISARM == 0 {
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
    crate::state::count(|counts| &counts.entered, 1);
    thread.step.pages = 0;
    thread.opened = 0;
    thread.exec = false;
    thread.births = false;
    thread.pending = 0;
    thread.blocked = 0;
    thread.releases = 0;
    thread.set_alternate(alternate);
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
fn leave(current: &mut Option<Current>, context: &mut Context) {
    let Some(thread) = current.as_mut() else {
        return;
    };
    {
        let mut held = lock();
        crate::step::abandon(&mut held, thread, context);
        syscalls::settle(&mut held, Some(thread), context);
    }
    context.mask = signals::program_mask(thread, context);
    for signal in 1..=sig::COUNT {
        if thread.pending & sig::bit(signal) != 0 {
            sys::raise(signal);
        }
    }
    context.stack = thread.alternate;
    leave_place(thread);
    *current = None;
}

/// Frees a thread's place.
pub fn leave_place(thread: &mut Current) {
    thread.shared.selector.store(0, Ordering::Relaxed);
    // SAFETY: only ends the dispatch.
    unsafe { sys::dispatch(false, core::ptr::null()) };
    thread.set_alternate(crate::frame::StackSetting::NONE);
    thread.shared.fs.store(0, Ordering::Relaxed);
    thread.shared.inside.store(0, Ordering::Release);
    thread.shared.tid.store(0, Ordering::Release);
}

/// A thread that slept when all others left makes its first system call since: it leaves as well, and makes that by itself.
pub fn leave_last(current: &mut Option<Current>, number: u64, context: &mut Context) {
    leave(current, context);
    context.regs[reg::RIP] -= 2;
    context.regs[reg::RAX] = number;
    settle_down();
}

/// Nothing is armed: every thread leaves, and the dispositions are the program's again, once no doorbell is left on its way to
/// meet them. Who sleeps in a system call is let sleep, as a sleep that is cut begins again, and leaves with its next call.
fn settle_down() {
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
            if matches!(in_call(tid), InCall::Waiting(_)) {
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

/// Whether a doorbell waits for another thread of the process: `SigPnd` of `/proc/self/task/TID/status`.
fn doorbells_pending() -> bool {
    let own = sys::gettid();
    let mut pending = false;
    let listed = each_thread(|tid| {
        if tid != own {
            pending |= pending_set(tid) & sig::bit(sig::DOORBELL) != 0;
        }
    });
    pending || listed.is_none()
}

fn pending_set(tid: i32) -> u64 {
    const FIELD: &[u8] = b"SigPnd:\t";
    let mut text = [0u8; 2048];
    let got = task_file(tid, b"/status").map_or(0, |file| file.fill(nr::READ, &mut text));
    let text = text.get(..got).unwrap_or(&[]);
    let mut lines = text.split(|byte| *byte == b'\n');
    lines
        .find_map(|line| line.strip_prefix(FIELD))
        .map_or(0, parse_hex)
}

/// Repeats `done` until it holds or patience ends; it is told when it is time to ask (again).
fn wait_for(mut done: impl FnMut(bool) -> bool) -> bool {
    let begin = sys::tsc();
    let mut ask_at = 0;
    loop {
        let passed = sys::tsc().saturating_sub(begin);
        let asks = passed >= ask_at;
        if asks {
            ask_at = passed + RESEND_TICKS;
        }
        if done(asks) {
            return true;
        }
        if passed > PATIENCE_TICKS {
            return false;
        }
        sys::sched_yield();
    }
}

/// Rings at another thread, which does what the state of the shim asks of it.
fn ask(tid: i32) {
    if threads::find(tid).is_none()
        && let InCall::Waiting(waiting) = in_call(tid)
    {
        lock().note_waiting(waiting);
    }
    ring(tid, 0);
}

enum InCall {
    Running,
    Waiting(Waiting),
    Gone,
}

/// What the kernel says a thread is in: `/proc/self/task/TID/syscall`.
fn in_call(tid: i32) -> InCall {
    let Some(file) = task_file(tid, b"/syscall") else {
        return InCall::Gone;
    };
    let mut text = [0u8; 256];
    let got = file.fill(nr::READ, &mut text);
    let text = text.get(..got).unwrap_or(&[]);
    let mut words = text.split(|byte| *byte == b' ' || *byte == b'\n');
    let Some(number) = words.next().and_then(parse_decimal) else {
        return InCall::Running;
    };
    let mut next = || words.next().map_or(0, parse_hex);
    InCall::Waiting(Waiting {
        tid,
        number,
        arguments: core::array::from_fn(|_| next()),
        sp: next(),
        ip: next(),
    })
}

/// `/proc/self/task/TID` and `name`.
fn task_file(tid: i32, name: &[u8]) -> Option<File> {
    let mut path = [0u8; 48];
    let parts: [&[u8]; 3] = [b"/proc/self/task/", &decimal(tid), name];
    let mut at = 0;
    for part in parts {
        for byte in part.iter().filter(|byte| **byte != 0) {
            if let Some(place) = path.get_mut(at) {
                *place = *byte;
            }
            at += 1;
        }
    }
    File::open(&path, 0)
}

fn decimal(value: i32) -> [u8; 10] {
    let mut digits = [0u8; 10];
    let mut left = value.max(0);
    for place in digits.iter_mut().rev() {
        *place = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    digits
}

fn parse_decimal(word: &[u8]) -> Option<u64> {
    word.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => Some(value * 10 + u64::from(byte - b'0')),
        _ => None,
    })
}

fn parse_hex(word: &[u8]) -> u64 {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    digits.iter().fold(0, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return value,
        };
        value << 4 | u64::from(digit)
    })
}

/// Calls `each` with every thread of the process.
fn each_thread(mut each: impl FnMut(i32)) -> Option<()> {
    const DIRECTORY: u64 = 0o200_000;
    let file = File::open(b"/proc/self/task\0", DIRECTORY)?;
    let mut entries = [0u8; 2048];
    loop {
        let got = file.fill(nr::GETDENTS64, &mut entries);
        if got == 0 {
            return Some(());
        }
        let mut rest = entries.get(..got)?;
        // struct linux_dirent64: two words, a length, a type, a name.
        while let (Some([low, high]), Some(name)) = (rest.get(16..18), rest.get(19..)) {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let name = name.split(|byte| *byte == 0).next()?;
            if let Some(tid) = parse_decimal(name).filter(|tid| *tid > 0) {
                each(tid as i32);
            }
            rest = match rest.get(length..) {
                Some(rest) if length > 0 => rest,
                _ => break,
            };
        }
    }
}

/// Waits until every thread is under the shim, as far as `level` says.
fn everyone_inside(level: u32) -> bool {
    let listed = |asks: bool| {
        let mut all = true;
        let listed = each_thread(|tid| {
            let there = threads::find(tid)
                .is_some_and(|thread| thread.inside.load(Ordering::Acquire) >= level);
            if !there {
                all = false;
                if asks {
                    ask(tid);
                }
            }
        });
        all && listed.is_some()
    };
    // Twice: a thread found inside may have made another after the list was drawn up and before it came inside. From
    // there on it is counted.
    wait_for(|asks| listed(asks) && listed(false) && lock().births == 0)
}

/// Whether another thread is, or may be, in a system call that uses the page.
fn in_use(page: u64) -> bool {
    let own = sys::gettid();
    threads::all().any(|thread| {
        let tid = thread.tid.load(Ordering::Acquire);
        let noted = thread.call.load(Ordering::Acquire);
        if tid == own || tid < 0 {
            return false;
        }
        let end = page + PAGE_BYTES;
        match in_call(tid) {
            InCall::Gone => false,
            InCall::Waiting(call) => uses(call.number, call.arguments, page, end),
            // Between the dispatcher and the kernel, or long done: both look alike.
            InCall::Running => {
                noted != NO_CALL && uses((noted - 1) as u64, thread.arguments(), page, end)
            }
        }
    })
}

fn arm(request: &Request) -> i32 {
    let bytes = u64::from(request.length);
    let sound = bytes.is_power_of_two() && (16..=256).contains(&bytes);
    if !sound || !request.address.is_multiple_of(bytes) {
        return result::INVALID;
    }
    lock().arming += 1;
    let answer = match everyone_inside(READY) {
        true => arm_here(request),
        false => result::BUSY,
    };
    lock().arming -= 1;
    answer
}

fn begin() -> i32 {
    lock().arming += 1;
    let all = everyone_inside(READY);
    let mut held = lock();
    if all {
        held.begun += 1;
        return result::OK;
    }
    held.arming -= 1;
    result::BUSY
}

fn end() -> i32 {
    {
        let mut held = lock();
        if held.begun > 0 {
            held.begun -= 1;
            held.arming = held.arming.saturating_sub(1);
        }
    }
    disarm(None)
}

fn arm_here(request: &Request) -> i32 {
    let page = request.address & !(PAGE_BYTES - 1);
    let mut held = lock();
    let protection = match held.find_page(page).and_then(|at| held.pages.get(at)) {
        Some(page) => page.protection,
        None => {
            let protection = crate::maps::protection(page);
            let Some(protection) = protection else {
                return result::UNSUITABLE;
            };
            if pages::reserved(page) {
                return result::UNSUITABLE;
            }
            if in_use(page) {
                return result::BUSY;
            }
            protection
        }
    };
    pages::arm(
        &mut held,
        request.address,
        request.length,
        request.id,
        request.flags,
        protection,
    )
}

fn disarm(id: Option<u32>) -> i32 {
    let mut held: Held = lock();
    pages::disarm(&mut held, ended::DISARMED, |watch| {
        id.is_none_or(|id| id == watch.id)
    });
    result::OK
}

//! The other threads of the process: what the kernel says of them, and waiting for them.
//!
//! Source: proc(5), `/proc/self/task`.

use super::ring;
use super::rung::goes_on;
use crate::watchpoints::frame::sig;
use crate::watchpoints::state::{Waiting, lock};
use crate::watchpoints::sys::{self, File, nr};
use crate::watchpoints::text;
use crate::watchpoints::threads::{self, NO_CALL};
use crate::watchpoints::touch::uses;
use core::sync::atomic::Ordering;
use statcache_abi::PAGE_BYTES;

/// How long a thread may take to answer.
pub(super) const PATIENCE_TICKS: u64 = 1 << 29;

pub(super) const RESEND_TICKS: u64 = 1 << 21;

/// Whether a doorbell waits for another thread of the process: `SigPnd` of `/proc/self/task/TID/status`.
pub(super) fn doorbells_pending() -> bool {
    let own = sys::gettid();
    let mut pending = false;
    let listed = each_thread(|tid| {
        if tid != own {
            pending |= pending_set(tid) & sig::bit(sig::DOORBELL) != 0;
        }
    });
    pending || listed.is_none()
}

pub(super) fn pending_set(tid: i32) -> u64 {
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
pub(super) fn wait_for(mut done: impl FnMut(bool) -> bool) -> bool {
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

/// Rings at another thread, which does what the state of the shim asks of it. Where threads are rung from outside it is not for
/// us to do so.
pub(super) fn ask(tid: i32) {
    if lock().rings {
        return;
    }
    if threads::find(tid).is_none()
        && let InCall::Waiting(waiting) = in_call(tid)
    {
        lock().note_waiting(waiting);
    }
    ring(tid);
}

pub(super) enum InCall {
    Running,
    Waiting(Waiting),
    Gone,
}

/// What the kernel says a thread is in: `/proc/self/task/TID/syscall`.
pub(super) fn in_call(tid: i32) -> InCall {
    let Some(file) = task_file(tid, b"/syscall") else {
        // Of a process that has given up rights, or sees no `/proc`, or has no descriptor left, the kernel does not say.
        return match sys::alive(tid) {
            true => InCall::Running,
            false => InCall::Gone,
        };
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
pub(super) fn task_file(tid: i32, name: &[u8]) -> Option<File> {
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

pub(super) fn decimal(value: i32) -> [u8; 10] {
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

pub(super) fn parse_decimal(word: &[u8]) -> Option<u64> {
    word.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => Some(value * 10 + u64::from(byte - b'0')),
        _ => None,
    })
}

pub(super) fn parse_hex(word: &[u8]) -> u64 {
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
pub(super) fn each_thread(mut each: impl FnMut(i32)) -> Option<()> {
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
pub(super) fn everyone_inside(level: u32) -> bool {
    let listed = |asks: bool| {
        let mut all = true;
        let listed = each_thread(|tid| {
            let there = threads::find(tid).is_some_and(|thread| {
                let inside = thread.inside.load(Ordering::Acquire) >= level;
                inside && (!thread.is_dormant() || wakes(thread, tid))
            });
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

/// Ends a thread's dormancy without waking it, where it still sleeps in its stub: what the kernel knows of it is as it was.
fn wakes(thread: &threads::Thread, tid: i32) -> bool {
    let _held = lock();
    let sleeps = matches!(in_call(tid), InCall::Waiting(at) if text::in_closing(at.ip));
    if sleeps {
        thread.set_dormant(false);
    }
    !thread.is_dormant()
}

/// Whether another thread is, or may be, in a system call that uses the page.
pub(super) fn in_use(page: u64) -> bool {
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
            // It sleeps on in the call that it was made for.
            InCall::Waiting(call) if goes_on(call.number) && noted != NO_CALL => {
                uses((noted - 1) as u64, thread.arguments(), page, end)
            }
            InCall::Waiting(call) => uses(call.number, call.arguments, page, end),
            // Between the dispatcher and the kernel, or long done: both look alike.
            InCall::Running => {
                noted != NO_CALL && uses((noted - 1) as u64, thread.arguments(), page, end)
            }
        }
    })
}

//! Watches and the protection of their pages: arming, opening and closing, letting go.
//!
//! Unsafe invariant: protections are changed of whole pages: of a watched one to none, which
//! handler and dispatcher answer for, or back to the program's; and of `RESERVE`, of which only the
//! address is used.

use statcache_abi::{Event, MAX_PAGES, PAGE_BYTES, ended, flag, kind, result};

use crate::watchpoints::state::{Held, State, Watch, block, count, publish};
use crate::watchpoints::sys;
use crate::watchpoints::threads::{self, Current};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

const READABLE: u32 = 1;

/// Writable pages that nobody uses. A protected page does not count as data, so a program at its limit (`RLIMIT_DATA`) may have
/// taken the room: then one of these gives up its own.
#[repr(C, align(4096))]
struct Reserve(UnsafeCell<[[u8; PAGE_BYTES as usize]; MAX_PAGES]>);
// SAFETY: only its address is used.
unsafe impl Sync for Reserve {}
static RESERVE: Reserve = Reserve(UnsafeCell::new([[0; PAGE_BYTES as usize]; MAX_PAGES]));
/// How many of them have given it up. Changed by who holds the state.
static SPENT: AtomicUsize = AtomicUsize::new(0);

/// Gives a page its protection by the program.
pub fn lift(_held: &mut Held, page: u64, protection: u32) {
    const ENOMEM: i64 = -12;
    // SAFETY: the program's own protection.
    while unsafe { sys::mprotect(page, PAGE_BYTES, protection) } == ENOMEM {
        let spent = SPENT.load(Ordering::Relaxed);
        if spent == MAX_PAGES {
            return;
        }
        SPENT.store(spent + 1, Ordering::Relaxed);
        // SAFETY: a page of the reserve.
        unsafe { sys::mprotect(reserve(spent), PAGE_BYTES, 0) };
    }
}

/// Protects a page; false where the kernel has no room for one more mapping.
pub fn protect(_held: &mut Held, page: u64) -> bool {
    // SAFETY: whoever touches the page meets the handler, or the dispatcher at a system call.
    if unsafe { sys::mprotect(page, PAGE_BYTES, 0) } < 0 {
        return false;
    }
    const READ_WRITE: u32 = 3;
    if let Some(last) = SPENT.load(Ordering::Relaxed).checked_sub(1)
        // SAFETY: a page of the reserve.
        && unsafe { sys::mprotect(reserve(last), PAGE_BYTES, READ_WRITE) } >= 0
    {
        SPENT.store(last, Ordering::Relaxed);
    }
    true
}

fn reserve(place: usize) -> u64 {
    RESERVE.0.get() as u64 + place as u64 * PAGE_BYTES
}

/// Every place in `set`.
pub fn places(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |place| set >> place & 1 == 1)
}

/// The places of all pages in use.
pub fn all(state: &State) -> u64 {
    which(state, |_| true)
}

/// The places of the pages that `wanted` holds for, by their address.
pub fn which(state: &State, wanted: impl Fn(u64) -> bool) -> u64 {
    let pages = state.pages.iter().enumerate();
    pages.fold(0, |set, (place, page)| {
        set | u64::from(page.address != 0 && wanted(page.address)) << place
    })
}

/// The places of the pages that overlap `[begin, begin + bytes)`.
pub fn overlapping(state: &State, begin: u64, bytes: u64) -> u64 {
    let end = begin.saturating_add(bytes);
    which(state, |page| {
        page < end && begin < page.saturating_add(PAGE_BYTES)
    })
}

/// Lifts the protection of pages for this thread, until [`close`].
pub fn open(held: &mut Held, set: u64) {
    let (now, others) = (sys::tsc(), threads::all().nth(1).is_some());
    for place in places(set) {
        let Some(page) = held.pages.get_mut(place) else {
            continue;
        };
        page.openers += 1;
        if page.openers == 1 {
            page.opened = now;
            page.shared = others;
            let (address, protection) = (page.address, page.protection);
            lift(held, address, protection);
        }
    }
}

/// There is another thread from now on: what is open is open to it too.
pub fn share(held: &mut Held) {
    for page in held.pages.iter_mut().filter(|page| page.openers > 0) {
        page.shared = true;
    }
}

/// Ends what [`open`] began; a page that nobody holds open any more is protected again, or forgotten if it has
/// no watch left.
pub fn close(held: &mut Held, set: u64) {
    let others = threads::all().nth(1).is_some();
    for place in places(set) {
        let Some(page) = held.pages.get_mut(place) else {
            continue;
        };
        page.openers = page.openers.saturating_sub(1);
        if page.openers > 0 {
            continue;
        }
        if others || page.shared {
            let spell = sys::tsc().saturating_sub(page.opened);
            page.blind = page.blind.saturating_add(spell);
            count(|counts| &counts.blind_ticks, spell);
        }
        if page.watches == 0 {
            page.address = 0;
        }
    }
    protect_again(held, set);
}

/// Protects those of the pages that have watches and that nobody holds open. Where the kernel refuses, the watches end.
pub fn protect_again(held: &mut Held, set: u64) {
    for place in places(set) {
        let Some(page) = held.pages.get(place).copied() else {
            continue;
        };
        let due = page.address != 0 && page.watches > 0 && page.openers == 0;
        if due && !protect(held, page.address) {
            disarm(held, ended::UNMAPPED, |watch| watch.page == place);
        }
    }
}

/// Arms a watch on a page whose protection by the program is `protection`.
pub fn arm(held: &mut Held, line: u64, bytes: u32, id: u32, flags: u32, protection: u32) -> i32 {
    if held.barred != 0 {
        return held.barred;
    }
    if protection & READABLE == 0 {
        return result::UNSUITABLE;
    }
    let Some(free) = held.watches.iter().position(|watch| watch.bytes == 0) else {
        return result::FULL;
    };
    let page = line & !(PAGE_BYTES - 1);
    let place = match held.find_page(page) {
        Some(place) => place,
        None => match held.pages.iter().position(|page| page.address == 0) {
            Some(place) => place,
            None => return result::FULL,
        },
    };
    let free_page = held.pages.get(place).is_some_and(|page| page.address == 0);
    if free_page && !protect(held, page) {
        return result::UNSUITABLE;
    }
    let Some(entry) = held.pages.get_mut(place) else {
        return result::FULL;
    };
    if free_page {
        entry.address = page;
        entry.openers = 0;
        entry.watches = 0;
        entry.blind = 0;
    }
    entry.protection = protection;
    entry.watches += 1;
    let blind = entry.blind;
    if let Some(watch) = held.watches.get_mut(free) {
        watch.line = line;
        watch.bytes = bytes;
        watch.id = id;
        watch.flags = flags;
        watch.page = place;
        watch.armed = sys::tsc();
        watch.blind = blind;
    }
    held.armed += 1;
    result::OK
}

/// Drops the watch in place `at`; its page is let go with its last watch.
fn drop_watch(held: &mut Held, at: usize) {
    let Some(watch) = held.watches.get_mut(at) else {
        return;
    };
    watch.bytes = 0;
    let place = watch.page;
    held.armed = held.armed.saturating_sub(1);
    held.releases = held.releases.wrapping_add(1);
    let Some(page) = held.pages.get_mut(place) else {
        return;
    };
    page.watches = page.watches.saturating_sub(1);
    if page.watches == 0 && page.openers == 0 {
        let address = core::mem::take(&mut page.address);
        let protection = page.protection;
        lift(held, address, protection);
    }
}

/// Drops the watches that `wanted` holds for, reporting each as ended by `why`.
pub fn disarm(held: &mut Held, why: u32, wanted: impl Fn(&Watch) -> bool) -> u32 {
    let mut dropped = 0;
    for at in 0..held.watches.len() {
        let Some(watch) = held.watches.get(at).copied() else {
            continue;
        };
        if watch.bytes == 0 || !wanted(&watch) {
            continue;
        }
        let now = sys::tsc();
        let blind = blind(held, &watch, now);
        drop_watch(held, at);
        dropped += 1;
        publish(
            held,
            Event {
                kind: kind::ENDED,
                id: watch.id,
                tid: sys::gettid(),
                detail: why,
                address: watch.line,
                line: watch.line,
                tsc: now,
                blind,
                ..Event::NONE
            },
        );
    }
    dropped
}

/// Drops all watches on pages that overlap a range.
pub fn release(held: &mut Held, begin: u64, bytes: u64, why: u32) {
    let end = begin.saturating_add(bytes);
    disarm(held, why, |watch| {
        let page = watch.line & !(PAGE_BYTES - 1);
        page < end && begin < page + PAGE_BYTES
    });
}

/// Ends all watches, for `why` of `statcache_abi::ended`, and refuses new ones by `reason` of `statcache_abi::result`.
pub fn bar(held: &mut Held, reason: i32, why: u32) {
    held.barred = reason;
    disarm(held, why, |_| true);
}

/// For how many ticks of a watch's life its page has been open to other threads.
pub fn blind(held: &Held, watch: &Watch, now: u64) -> u64 {
    let Some(page) = held.pages.get(watch.page) else {
        return 0;
    };
    let before = page.blind.saturating_sub(watch.blind);
    if page.openers == 0 || !(page.shared || threads::all().nth(1).is_some()) {
        return before;
    }
    before + now.saturating_sub(page.opened.max(watch.armed))
}

/// Reports what the instruction just let through has touched. A watch that another thread's hit ended meanwhile reports
/// nothing; one without `flag::KEEP` ends with its hit.
pub fn report_step(held: &mut Held, current: &mut Current) {
    let count = core::mem::take(&mut current.step.count);
    for n in 0..count {
        let Some(event) = current.step.events.get(n).copied() else {
            return;
        };
        let watch = held
            .watches
            .iter()
            .position(|watch| watch.bytes != 0 && watch.line == event.line && watch.id == event.id);
        let Some(at) = watch else { continue };
        publish(held, event);
        let keep = held
            .watches
            .get(at)
            .is_some_and(|watch| watch.flags & flag::KEEP != 0);
        if event.kind == kind::HIT && !keep {
            drop_watch(held, at);
        }
    }
}

/// In the child of a fork: lifts every protection, and forgets the watches, which are the parent's.
pub fn forget_all(held: &mut Held) {
    for place in 0..held.pages.len() {
        let Some(page) = held.pages.get_mut(place) else {
            continue;
        };
        let address = core::mem::take(&mut page.address);
        let protection = page.protection;
        if address != 0 {
            lift(held, address, protection);
        }
    }
    for watch in &mut held.watches {
        watch.bytes = 0;
    }
    held.armed = 0;
}

/// Of a `struct rseq`, with room for what newer kernels add.
pub const RSEQ_BYTES: u64 = 256;

/// Where each thread's `struct rseq` lies from the base of its fs segment.
pub fn note_rseq(from_fs: u64) {
    if let Some(block) = block() {
        block.rseq.store(from_fs, Ordering::Relaxed);
    }
}

/// Begin and length of what lies near the control block of a thread with this base of `fs`.
pub fn near_control_block(fs: u64) -> (u64, u64) {
    (fs.saturating_sub(PAGE_BYTES), 2 * PAGE_BYTES)
}

/// Whether some thread's memory near its control block, or its alternate stack, lies on the page: the kernel writes to the
/// one at any time (rseq), handlers of ours may have to run on the other.
pub fn reserved(page: u64) -> bool {
    let rseq = block().map_or(0, |block| block.rseq.load(Ordering::Relaxed));
    let overlaps = |low: u64, bytes: u64| {
        bytes > 0 && page < low.saturating_add(bytes) && low < page + PAGE_BYTES
    };
    threads::all().any(|thread| {
        let fs = thread.fs.load(Ordering::Relaxed);
        let [stack, size] = &thread.alternate;
        let (low, bytes) = near_control_block(fs);
        fs != 0 && overlaps(low, bytes)
            || fs != 0 && rseq != 0 && overlaps(fs.wrapping_add(rseq), RSEQ_BYTES)
            || overlaps(stack.load(Ordering::Relaxed), size.load(Ordering::Relaxed))
    })
}

//! What the shim knows of this process: watched pages, watches, the program's signal dispositions, system call sites.
//!
//! All of it is private memory of a fixed size, so that `fork` gives the child a copy of its own, and one spin word
//! guards it. That word is no lock in the sense that matters in a handler: it is only ever held with all signals blocked,
//! by code that cannot fault and makes no call that blocks; its holder cannot be interrupted by anything that waits for it. It
//! cannot be done without: a page's count of openers and its protection must change together, or a page
//! could be closed under another thread's system call, which would then fail. `fork` is made while holding it, so
//! a child never finds it taken by a thread that it does not have.
//!
//! Unsafe invariant: the state is reached through a [`Held`] alone, of which there is one at a
//! time: by the spin word, and in the child of a fork ([`lock_in_child`]) by one thread of it.
//! [`BLOCK`] is null or a mapping of a whole block, which stays while any code of the shim may run.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use statcache_abi::{Block, Counts, EVENTS, Event, MAX_PAGES, MAX_WATCHES, kind};

use crate::watchpoints::frame::{KernelAction, sig};
use crate::watchpoints::sys;
use crate::watchpoints::text::SITES;

/// A page with at least one watch, or still open in a thread that has not closed it yet.
#[derive(Clone, Copy)]
pub struct Page {
    /// Its address; 0 where the place is free.
    pub address: u64,
    /// Watches on it.
    pub watches: u32,
    /// Threads that are stepping over, or in a system call on, the page. Protected while this is 0.
    pub openers: u32,
    /// The program's protection of it.
    pub protection: u32,
    /// Time stamp when `openers` left 0.
    pub opened: u64,
    /// There were other threads at some time since.
    pub shared: bool,
    /// Ticks that it has been open to other threads, since its first watch.
    pub blind: u64,
}

/// A watched line.
#[derive(Clone, Copy)]
pub struct Watch {
    /// First byte.
    pub line: u64,
    /// Bytes; 0 where the place is free.
    pub bytes: u32,
    /// The user's name for it.
    pub id: u32,
    /// Bits of `statcache_abi::flag`.
    pub flags: u32,
    /// Place of its page.
    pub page: usize,
    /// Time stamp when it was armed.
    pub armed: u64,
    /// `Page::blind` then.
    pub blind: u64,
}

/// A system call in which a thread that is not under the shim was found waiting, as the kernel describes it.
#[derive(Clone, Copy)]
pub struct Waiting {
    /// The thread; 0 where the place is free.
    pub tid: i32,
    /// Number of the call.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Stack pointer.
    pub sp: u64,
    /// Address behind the call.
    pub ip: u64,
}

/// Threads that can be noted as waiting.
const NOTES: usize = 64;

/// See the module.
pub struct State {
    /// Pages by place; a set of places is a word.
    pub pages: [Page; MAX_PAGES],
    /// Watches.
    pub watches: [Watch; MAX_WATCHES],
    /// Watches armed.
    pub armed: u32,
    /// The program's dispositions, by signal number; meaningful while `installed`.
    pub actions: [KernelAction; sig::COUNT as usize + 1],
    /// The shim's handlers stand in the kernel.
    pub installed: bool,
    /// Every thread has been seen under the shim, so that SIGTRAP too may use their handler stacks.
    pub settled: bool,
    /// The program's SIGTRAP action, where the shim's stands in the kernel for the sake of a doorbell only.
    pub trap_before: Option<KernelAction>,
    /// Threads between `signals::answer_doorbells` and the answer: SIGTRAP stays the shim's for them.
    pub callers: u32,
    /// Threads arming a watch, and users who have begun: others are to come under the shim though nothing is armed yet.
    pub arming: u32,
    /// Of these, the users who have begun.
    pub begun: u32,
    /// Threads are brought here and let go by whoever rings, so that none is asked by a signal.
    pub rings: bool,
    /// Nothing is armed, nor will be soon: who makes a system call leaves.
    pub leaving: bool,
    /// Threads that their parents have asked for and that have not had their first stop: SIGTRAP stays the shim's for them.
    pub births: u32,
    /// Threads in system calls that a doorbell is about to cut short.
    pub waiting: [Waiting; NOTES],
    /// Addresses behind `syscall` instructions of the program; see `text`.
    pub sites: [u64; SITES],
    /// Of these, those in use.
    pub sites_used: usize,
    /// Why no watch may be armed any more: one of `statcache_abi::result`, 0 for no reason.
    pub barred: i32,
    /// Grows when a page loses its protection for good: a fault from before may arrive after.
    pub releases: u32,
}

struct Guarded {
    busy: AtomicU32,
    state: UnsafeCell<State>,
}

// SAFETY: `state` is reached through `lock` alone, which excludes other threads.
unsafe impl Sync for Guarded {}

static STATE: Guarded = Guarded {
    busy: AtomicU32::new(0),
    state: UnsafeCell::new(State {
        pages: [Page {
            address: 0,
            watches: 0,
            openers: 0,
            protection: 0,
            opened: 0,
            shared: false,
            blind: 0,
        }; MAX_PAGES],
        watches: [Watch {
            line: 0,
            bytes: 0,
            id: 0,
            flags: 0,
            page: 0,
            armed: 0,
            blind: 0,
        }; MAX_WATCHES],
        armed: 0,
        actions: [KernelAction {
            handler: 0,
            flags: 0,
            restorer: 0,
            mask: 0,
        }; sig::COUNT as usize + 1],
        installed: false,
        settled: false,
        trap_before: None,
        callers: 0,
        arming: 0,
        begun: 0,
        rings: false,
        leaving: false,
        births: 0,
        waiting: [Waiting {
            tid: 0,
            number: 0,
            arguments: [0; 6],
            sp: 0,
            ip: 0,
        }; NOTES],
        sites: [0; SITES],
        sites_used: 0,
        barred: 0,
        releases: 0,
    }),
};

/// The right to the state, given back when dropped.
pub struct Held(());

/// Waits for the state. Only with all signals blocked, and never twice.
pub fn lock() -> Held {
    let mut spins = 0u32;
    while STATE
        .busy
        .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        spins += 1;
        if spins.is_multiple_of(64) {
            sys::sched_yield();
        }
        core::hint::spin_loop();
    }
    Held(())
}

/// The state again, in the child of a fork that the shim had no part in: whoever held it then is not in the child.
pub fn lock_in_child() -> Held {
    STATE.busy.store(1, Ordering::Release);
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        STATE.busy.store(0, Ordering::Release);
    }
}

impl core::ops::Deref for Held {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: holding is exclusive, and the borrow is tied to it.
        unsafe { &*STATE.state.get() }
    }
}

impl core::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: holding is exclusive, and the borrow is tied to it.
        unsafe { &mut *STATE.state.get() }
    }
}

impl State {
    /// The place of the page that holds `address`.
    pub fn find_page(&self, address: u64) -> Option<usize> {
        let wanted = address & !(statcache_abi::PAGE_BYTES - 1);
        self.pages
            .iter()
            .position(|page| page.address == wanted && wanted != 0)
    }

    /// Notes a thread that is about to be interrupted.
    pub fn note_waiting(&mut self, waiting: Waiting) {
        let taken = |place: &&mut Waiting| place.tid == waiting.tid;
        let place = match self.waiting.iter_mut().find(taken) {
            Some(place) => Some(place),
            // Full of threads that were interrupted in something else: the first gives way.
            None => {
                let free = self.waiting.iter().position(|place| place.tid == 0);
                self.waiting.get_mut(free.unwrap_or(0))
            }
        };
        if let Some(place) = place {
            *place = waiting;
        }
    }

    /// What was noted of a thread, once.
    pub fn take_waiting(&mut self, tid: i32) -> Option<Waiting> {
        let place = self.waiting.iter_mut().find(|place| place.tid == tid)?;
        let noted = *place;
        place.tid = 0;
        Some(noted)
    }

    /// The stub pair for the system call that ends before `rip`; `None` when all are taken. Some are kept for calls
    /// that `cannot_return` to the shim, as a new thread's first one.
    pub fn site(&mut self, rip: u64, cannot_return: bool) -> Option<usize> {
        const KEPT: usize = 32;
        let start = (rip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        for step in 0..SITES {
            let place = (start + step) % SITES;
            let entry = self.sites.get_mut(place)?;
            if *entry == rip {
                return Some(place);
            }
            if *entry == 0 {
                if !cannot_return && self.sites_used + KEPT >= SITES {
                    return None;
                }
                self.sites_used += 1;
                *entry = rip;
                crate::watchpoints::text::returns(place).store(rip, Ordering::Relaxed);
                return Some(place);
            }
        }
        None
    }
}

/// The control block, or null.
pub static BLOCK: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the control block of this process; null for none.
pub fn connect(block: *mut Block) {
    BLOCK.store(block, Ordering::Release);
}

/// The control block, where there is one.
pub fn block() -> Option<&'static Block> {
    let block = BLOCK.load(Ordering::Acquire);
    // SAFETY: null, or a mapping that is made before this code runs and stays as long as it may; all fields that change are atomics, except
    // `request` and `events`, which are reached by raw pointers alone.
    unsafe { block.as_ref() }
}

/// The control block as a raw pointer.
pub fn block_raw() -> *mut Block {
    BLOCK.load(Ordering::Acquire)
}

/// Adds to a count of the block.
pub fn count(of: impl FnOnce(&Counts) -> &core::sync::atomic::AtomicU64, by: u64) {
    if let Some(block) = block() {
        of(&block.counts).fetch_add(by, Ordering::Relaxed);
    }
}

/// Appends an event. One writer at a time, which holding the state sees to.
pub fn publish(_held: &mut Held, event: Event) {
    let Some(shared) = block() else { return };
    count(
        |counts| match event.kind {
            kind::HIT => &counts.hits,
            _ => &counts.maybes,
        },
        u64::from(event.kind != kind::ENDED),
    );
    let head = shared.head.load(Ordering::Relaxed);
    if head.wrapping_sub(shared.tail.load(Ordering::Acquire)) >= EVENTS as u64 {
        count(|counts| &counts.lost, 1);
        return;
    }
    let place = (head % EVENTS as u64) as usize;
    // SAFETY: inside the ring; the reader does not look at it before `head` has passed it.
    unsafe {
        (&raw mut (*block_raw()).events)
            .cast::<Event>()
            .add(place)
            .write(event)
    };
    shared.head.store(head.wrapping_add(1), Ordering::Release);
}

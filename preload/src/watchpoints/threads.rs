//! What the shim knows of each thread, and where it runs its handlers: one stack a thread, in memory nobody watches.
//!
//! A thread finds its place by its id, as thread-local storage belongs to the program. A place is used by its own thread
//! only, except for the atomics.
//!
//! Unsafe invariant: only the thread with a place's `tid` gets a [`Current`] of it, and borrows
//! through it with all signals blocked, one access at a time. Of stacks only addresses are used.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use statcache_abi::Event;

use crate::watchpoints::frame::{SS_AUTODISARM, SignalInfo, StackSetting, sig};
use crate::watchpoints::state::Held;
use crate::watchpoints::sys;

/// Threads that can be under the shim at a time.
pub const THREADS: usize = 256;
/// Bytes of a handler stack: a signal frame with all vector and tile state, and some frames of ours.
const STACK_BYTES: usize = 32 << 10;
/// Events of one instruction.
pub const STEP_EVENTS: usize = 16;

/// One instruction being let through.
#[derive(Clone, Copy)]
pub struct Step {
    /// Pages this thread holds open for it; 0 when none is being let through.
    pub pages: u64,
    /// Its address.
    pub rip: u64,
    /// The signal mask to go back to.
    pub mask: u64,
    /// The program was single-stepping itself.
    pub program_steps: bool,
    /// The instruction pushes the flags, ours with them.
    pub pushes_flags: bool,
    /// Its bytes.
    pub code: [u8; 16],
    /// Watches that were touched, for when it is done.
    pub events: [Event; STEP_EVENTS],
    /// How many.
    pub count: usize,
}

/// What only the thread itself uses.
pub struct Own {
    /// Signals of `sig::FAULTS` that the program has blocked; the kernel is not told.
    pub blocked: u64,
    /// Those of them that were sent meanwhile; [`Own::keep`].
    pub pending: u64,
    /// What the kernel said of each of these, by its place in [`KEPT`].
    kept: [SignalInfo; KEPT.len()],
    /// The program's signal set for the length of the call it is making (`sigsuspend` and relatives).
    pub temporary: Option<u64>,
    /// Address of the `syscall` at which the program is to make a call again that was cut short by a signal it does not get; 0 for
    /// none. To the program it is in that call all the time.
    pub again: u64,
    /// The program's alternate stack.
    pub alternate: StackSetting,
    /// The instruction being let through.
    pub step: Step,
    /// Pages held open for the system call it is making.
    pub opened: u64,
    /// That call is an `execve`.
    pub exec: bool,
    /// That call makes a thread, which is counted in `State::births`.
    pub births: bool,
    /// `State::releases` as this thread last saw it.
    pub releases: u32,
}

/// The signals of `sig::HELD`.
const KEPT: [i32; 7] = [
    sig::ILL,
    sig::TRAP,
    sig::BUS,
    sig::FPE,
    sig::SEGV,
    sig::SYS,
    sig::DOORBELL,
];

impl Own {
    /// Keeps a signal that the program has blocked. The first of a kind stays, as in the kernel.
    pub fn keep(&mut self, signal: i32, info: &SignalInfo) {
        let place = KEPT.iter().position(|kept| *kept == signal);
        if self.pending & sig::bit(signal) == 0
            && let Some(place) = place.and_then(|place| self.kept.get_mut(place))
        {
            *place = *info;
            self.pending |= sig::bit(signal);
        }
    }

    /// Takes one of the kept signals in `set` out.
    pub fn take_kept(&mut self, set: u64) -> Option<SignalInfo> {
        let due = |signal: &&i32| self.pending & set & sig::bit(**signal) != 0;
        let (place, signal) = KEPT.iter().enumerate().find(|(_, signal)| due(signal))?;
        self.pending &= !sig::bit(*signal);
        self.kept.get(place).copied()
    }

    /// Has the kernel deliver the kept signals in `set`.
    pub fn send_kept(&mut self, set: u64) {
        while let Some(info) = self.take_kept(set) {
            if sys::queue(sys::gettid(), info.signo, &info) < 0 {
                sys::raise(info.signo);
            }
        }
    }
}

/// No system call. Calls are kept as number plus one, so that all of this is zero to begin with and takes no room in the file.
pub const NO_CALL: i64 = 0;

/// Under the shim: system calls dispatched, and a handler stack in place from the return of the handler that did it. That
/// one runs on the thread's own stack, which must not be watched yet.
pub const TAKEN_IN: u32 = 1;
/// Seen on its handler stack since.
pub const READY: u32 = 2;

/// A thread's place.
pub struct Thread {
    /// Thread id; 0 where nobody is under the shim.
    pub tid: AtomicI32,
    /// Thread whose handler stack it is; 0 for none. It outlasts `tid`: the handler that takes a thread out still runs there,
    /// and the kernel takes the frame from there after it.
    owner: AtomicI32,
    /// 0; [`TAKEN_IN`]; [`READY`].
    pub inside: AtomicU32,
    /// What the kernel reads at each system call: 0 lets it pass, 1 dispatches.
    pub selector: AtomicU8,
    /// The last system call it went on to make and its arguments, plus one; [`NO_CALL`] when it is known to be over.
    pub call: AtomicI64,
    /// See `call`.
    pub arguments: [AtomicU64; 6],
    /// Base of `fs`: the kernel writes to the rseq area near it at any time.
    pub fs: AtomicU64,
    /// Lowest address and size of the program's alternate stack, for others to see.
    pub alternate: [AtomicU64; 2],
    own: UnsafeCell<Own>,
}

// SAFETY: `own` is reached by the thread of the place alone (`current`), the rest is atomic.
unsafe impl Sync for Thread {}

impl Thread {
    const fn new() -> Thread {
        Thread {
            tid: AtomicI32::new(0),
            owner: AtomicI32::new(0),
            inside: AtomicU32::new(0),
            selector: AtomicU8::new(0),
            call: AtomicI64::new(NO_CALL),
            arguments: [const { AtomicU64::new(0) }; 6],
            fs: AtomicU64::new(0),
            alternate: [const { AtomicU64::new(0) }; 2],
            own: UnsafeCell::new(Own {
                blocked: 0,
                pending: 0,
                kept: [SignalInfo::NONE; KEPT.len()],
                temporary: None,
                again: 0,
                alternate: StackSetting {
                    sp: 0,
                    flags: 0,
                    pad: 0,
                    size: 0,
                },
                step: Step {
                    pages: 0,
                    rip: 0,
                    mask: 0,
                    program_steps: false,
                    pushes_flags: false,
                    code: [0; 16],
                    events: [Event::NONE; STEP_EVENTS],
                    count: 0,
                },
                opened: 0,
                exec: false,
                births: false,
                releases: 0,
            }),
        }
    }

    /// Under the shim by the books, but its system calls pass: it sleeps in a closing stub since all others left, and will leave at that
    /// stub's end. Meanwhile the program may set handlers without the shim, and one of these must not be dispatched in.
    pub fn is_dormant(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0 && self.selector.load(Ordering::Relaxed) == 0
    }

    /// Makes it so, or ends it.
    pub fn set_dormant(&self, dormant: bool) {
        self.selector.store(u8::from(!dormant), Ordering::Relaxed);
    }

    /// The arguments of `call`.
    pub fn arguments(&self) -> [u64; 6] {
        core::array::from_fn(|n| match self.arguments.get(n) {
            Some(word) => word.load(Ordering::Relaxed),
            None => 0,
        })
    }
}

static THREAD: [Thread; THREADS] = [const { Thread::new() }; THREADS];

#[repr(align(64))]
struct Stacks<const N: usize>(UnsafeCell<[[u8; STACK_BYTES]; N]>);
// SAFETY: only their addresses are used here; the kernel, or who rings, gives each to one thread.
unsafe impl<const N: usize> Sync for Stacks<N> {}
static STACKS: Stacks<THREADS> = Stacks(UnsafeCell::new([[0; STACK_BYTES]; THREADS]));

/// What a rung thread runs on; one at a time.
static RING_STACK: Stacks<1> = Stacks(UnsafeCell::new([[0; STACK_BYTES]]));

/// Its top.
pub const RING_STACK_TOP: *const () = (&raw const RING_STACK)
    .cast::<()>()
    .wrapping_byte_add(STACK_BYTES);

/// A thread's place and what is its own.
pub struct Current {
    /// What others may see.
    pub shared: &'static Thread,
    place: usize,
}

impl core::ops::Deref for Current {
    type Target = Own;
    fn deref(&self) -> &Own {
        // SAFETY: only the thread of the place has a `Current` of it, and a handler has one only.
        unsafe { &*self.shared.own.get() }
    }
}

impl core::ops::DerefMut for Current {
    fn deref_mut(&mut self) -> &mut Own {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.shared.own.get() }
    }
}

impl Current {
    /// Its handler stack, as an alternate stack that is off while in use: kernels from 6.12 on restore the setting at the
    /// return from a handler while they still see the handler's stack pointer, and refuse to change a stack in use.
    pub fn stack(&self) -> StackSetting {
        StackSetting {
            sp: STACKS.0.get() as u64 + (self.place * STACK_BYTES) as u64,
            flags: SS_AUTODISARM,
            pad: 0,
            size: STACK_BYTES as u64,
        }
    }

    /// Remembers the program's alternate stack.
    pub fn set_alternate(&mut self, setting: StackSetting) {
        self.alternate = setting;
        let [low, size] = &self.shared.alternate;
        let bytes = if setting.enabled() { setting.size } else { 0 };
        low.store(setting.sp, Ordering::Relaxed);
        size.store(bytes, Ordering::Relaxed);
    }
}

fn search(tid: i32, wanted: impl Fn(&'static Thread) -> bool) -> Option<(usize, &'static Thread)> {
    let start = tid as usize % THREADS;
    (0..THREADS).find_map(|step| {
        let place = (start + step) % THREADS;
        let thread = THREAD.get(place)?;
        wanted(thread).then_some((place, thread))
    })
}

fn used_by(tid: i32) -> Option<(usize, &'static Thread)> {
    search(tid, |thread| thread.tid.load(Ordering::Acquire) == tid)
}

/// The place of thread `tid`.
pub fn find(tid: i32) -> Option<&'static Thread> {
    used_by(tid).map(|(_, thread)| thread)
}

/// This thread's place, where it has one. The caller runs with all signals blocked and has no other.
pub fn current() -> Option<Current> {
    let (place, shared) = used_by(sys::gettid())?;
    Some(Current { shared, place })
}

/// This thread's place, made where there is none; `None` when all are taken. The one it had before comes first, then one
/// that never was another's, then one whose thread is dead.
pub fn claim(_held: &mut Held) -> Option<Current> {
    if let Some(current) = current() {
        return Some(current);
    }
    let tid = sys::gettid();
    let owner = |thread: &Thread| thread.owner.load(Ordering::Relaxed);
    let (place, shared) = search(tid, |thread| owner(thread) == tid)
        .or_else(|| search(tid, |thread| owner(thread) == 0))
        .or_else(|| search(tid, |thread| !sys::alive(owner(thread))))?;
    shared.owner.store(tid, Ordering::Relaxed);
    shared.inside.store(0, Ordering::Relaxed);
    shared.tid.store(tid, Ordering::Release);
    Some(Current { shared, place })
}

/// The places of all threads.
pub fn all() -> impl Iterator<Item = &'static Thread> {
    THREAD
        .iter()
        .filter(|thread| thread.tid.load(Ordering::Acquire) > 0)
}

/// Whether any thread is under the shim.
pub fn any_inside() -> bool {
    all().any(|thread| thread.inside.load(Ordering::Acquire) != 0)
}

/// Forgets all threads: after a fork, in the child. Its only thread may be running on the stack that its parent's copy was `on`.
pub fn forget_all(on: Option<&Thread>) {
    let tid = sys::gettid();
    for thread in &THREAD {
        let ours = on.is_some_and(|on| core::ptr::eq(on, thread));
        thread
            .owner
            .store(if ours { tid } else { 0 }, Ordering::Relaxed);
        thread.inside.store(0, Ordering::Relaxed);
        thread.selector.store(0, Ordering::Relaxed);
        thread.call.store(NO_CALL, Ordering::Relaxed);
        thread.tid.store(0, Ordering::Release);
    }
}

//! Keeping a thread that stops often on our processor.
//!
//! The kernel wakes a resumed thread on an idle processor if there is one, and the one that its tracer occupies is not
//! (`select_idle_sibling` in kernel/sched/fair.c): each stop then costs two wake-ups across processors. A processor
//! that executes nothing but `SCHED_IDLE` threads counts as idle (sched(7)). So the tracer is one such while it
//! resumes: the thread takes its place at once, and gives it back when it stops. Measured on an idle two-processor
//! virtual machine, a stop with 18 us of work in it: 100 us before, 33 with this; pinned together, 27.
//!
//! Where others compete for the processor no way is given, as they would hardly get it (`rivals`). Until that is seen the tracer may be kept waiting: a second thread, the *keeper*, looks after it. Where it sees no
//! others it looks seldom, as each time it falls asleep its processor looks for other work, and takes a thread that has just stopped for us for such
//! (a hundred times a second where it looks every millisecond). Nor does a tracer that could run tell of others by itself: the thread has
//! its place before it falls asleep, as a rule. Going back takes the right to (`CAP_SYS_NICE`, `RLIMIT_NICE`); without it the tracer polls for a while
//! before it sleeps, which saves one of the two wake-ups (55 us).
//!
//! A thread that goes on natively for long is to stay where it is instead, with what its caches hold: the tracer leaves its
//! processor before it resumes it ([`leave`]). Otherwise it was moved in nearly every sampled window, 60 times in 10 s on two
//! processors; with this, 7 to 11 times.
//!
//! `unsafe` here: system calls that take plain numbers or a pointer to a live local.

use super::rivals::Rivals;
use super::{Stopped, procinfo};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often the keeper looks, and how often once nobody else was seen in so many looks.
const LOOK: Duration = Duration::from_millis(1);
const CALM_LOOK: Duration = Duration::from_millis(8);
const CALM: u32 = 100;
/// Looks without anything to see after which it sleeps.
const PATIENCE: u32 = 20;
/// For how long no way is given after it had to help, at first and at the most.
const RESPITE: (Duration, Duration) = (Duration::from_millis(30), Duration::from_millis(500));
/// How long to poll for a stop where no way can be given.
const POLL: Duration = Duration::from_micros(100);
/// A yield that takes longer shows that others want the processor.
const LONG_YIELD: Duration = Duration::from_micros(200);

thread_local! {
    static NEAR: RefCell<Option<Near>> = const { RefCell::new(None) };
    /// The processor that the thread last went to.
    static AT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether a processor is left that nobody else wants, as far as known.
    static SPARE: Cell<bool> = const { Cell::new(false) };
    static ALLOWED: OnceCell<Option<CpuSet>> = const { OnceCell::new() };
}

/// Source: sched(7), linux/sched.h.
const SCHED_DEADLINE: i32 = 6;

/// The calling thread itself, as sched_setaffinity(2) takes it.
const SELF: Pid = Pid::from_raw(0);

/// Moves the calling thread to the processor that a stopped thread ran on, if it may run there: a wake-up across processors
/// costs tens to hundreds of microseconds in a virtual machine, one on the same processor a few.
pub fn go_to(tid: Pid) {
    // Before it is narrowed.
    let allowed = allowed();
    // It would keep us from the processor, and we it from what it waits for us to do.
    if is_real_time(tid) {
        // It may have been narrowed by leaving another processor, too.
        AT.set(None);
        if let Some(allowed) = allowed {
            let _ = sched_setaffinity(SELF, &allowed);
        }
        return;
    }
    let mut set = CpuSet::new();
    if let Some(cpu) = procinfo::processor(tid, tid)
        && AT.get() != Some(cpu)
        && set.set(cpu).is_ok()
    {
        // Where we may not run there the only loss is time.
        let _ = sched_setaffinity(SELF, &set);
        AT.set(Some(cpu));
    }
}

/// Whether a thread is scheduled before any that is not (sched(7)).
fn is_real_time(tid: Pid) -> bool {
    // SAFETY: a system call that takes a number.
    let policy = unsafe { libc::sched_getscheduler(tid.as_raw()) } & !libc::SCHED_RESET_ON_FORK;
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | SCHED_DEADLINE)
}

/// After how many stops it is worth a look whether a thread is still where [`go_to`] went. Where no way can be given it goes elsewhere at the next resume
/// again. (A python observed whole where way is given, moved a hundred times a second, took 6.6 s with 64, 5.7 with 16, 5.6 with 4; 5.0 with both on one
/// processor. A z3 where none can be: 15.5 s with 16, 18.4 with 4.)
pub fn follow_every() -> u64 {
    let gives = NEAR.with_borrow_mut(|near| near.get_or_insert_with(Near::new).may_give());
    if gives { 4 } else { 16 }
}

/// Moves the calling thread away from the processors that stopped threads ran on, if there is an idle one: they are about to go
/// on natively for long, and the kernel would have them go elsewhere from one that we are on.
pub fn leave(threads: &[Stopped]) {
    let Some(mut others) = allowed() else { return };
    for stopped in threads {
        if let Some(cpu) = procinfo::processor(stopped.tid(), stopped.tid()) {
            let _ = others.unset(cpu);
        }
    }
    // Where all are busy nothing is moved, and we would have to wait for our turn meanwhile.
    if SPARE.get() {
        // Without any left this is refused.
        if sched_setaffinity(SELF, &others).is_ok() {
            AT.set(None);
        }
    }
}

/// Says whether a processor is left that nobody else wants ([`super::spare`]), for [`leave`].
pub fn note_spare(is_spare: bool) {
    SPARE.set(is_spare);
}

/// Moves the calling thread away from the processor that it last went to, for what it does while the program runs natively. False where it may
/// run nowhere else.
pub fn go_apart() -> bool {
    let Some(at) = AT.get() else { return true };
    let Some(mut others) = allowed() else {
        return false;
    };
    let _ = others.unset(at);
    let moved = sched_setaffinity(SELF, &others).is_ok();
    if moved {
        AT.set(None);
    }
    moved
}

/// Where the calling thread might run before it first went anywhere.
pub(super) fn allowed() -> Option<CpuSet> {
    ALLOWED.with(|allowed| *allowed.get_or_init(|| sched_getaffinity(SELF).ok()))
}

/// What the tracer and its keeper share. Each value says all by itself, so that orderings are relaxed, but where the keeper
/// falls asleep.
#[derive(Default)]
struct Shared {
    /// Number of the present giving way, odd while it lasts.
    given: AtomicU64,
    /// The thread that it is for.
    to: AtomicI32,
    /// The last one that the keeper ended.
    ended: AtomicU64,
    asleep: AtomicBool,
    over: AtomicBool,
    /// Others want the processor, as [`Rivals`] sees it: they would hardly get it.
    crowded: AtomicBool,
    /// Way would have been given, else.
    wanted: AtomicBool,
}

/// The tracer's side.
struct Near {
    shared: Arc<Shared>,
    /// `None` where we may not come back.
    keeper: Option<Thread>,
    respite: Duration,
    not_before: Instant,
}

impl Drop for Near {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(keeper) = &self.keeper {
            keeper.unpark();
        }
    }
}

impl Near {
    fn new() -> Near {
        let shared = Arc::new(Shared::default());
        let tracer = nix::unistd::gettid();
        let may = policy(0) == Some(libc::SCHED_OTHER) && may_come_back();
        let keeper = may.then(|| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("keeper".into())
                .spawn(move || keep(&shared, tracer))
        });
        Near {
            shared,
            keeper: keeper.and_then(|started| Some(started.ok()?.thread().clone())),
            respite: RESPITE.0,
            not_before: Instant::now(),
        }
    }

    fn may_give(&self) -> bool {
        self.keeper.is_some()
            && !self.shared.crowded.load(Ordering::Relaxed)
            && Instant::now() >= self.not_before
    }

    /// Whether that has begun here: what one wait has begun another one inside it is not to end.
    fn give(&mut self, to: Pid) -> bool {
        let is_given = !self.shared.given.load(Ordering::Relaxed).is_multiple_of(2);
        if self.shared.crowded.load(Ordering::Relaxed) {
            self.shared.wanted.store(true, Ordering::Relaxed);
        }
        let Some(keeper) = self
            .keeper
            .as_ref()
            .filter(|_| !is_given && self.may_give())
        else {
            return false;
        };
        self.shared.to.store(to.as_raw(), Ordering::Relaxed);
        self.shared.given.fetch_add(1, Ordering::SeqCst);
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            keeper.unpark();
        }
        set_policy(SELF, libc::SCHED_IDLE);
        true
    }

    fn take(&mut self) {
        let given = self.shared.given.load(Ordering::Relaxed);
        if given.is_multiple_of(2) {
            return;
        }
        set_policy(SELF, libc::SCHED_OTHER);
        self.shared.given.fetch_add(1, Ordering::Relaxed);
        if self.shared.ended.load(Ordering::Relaxed) == given {
            // Somebody else was there.
            self.not_before = Instant::now() + self.respite;
            self.respite = (2 * self.respite).min(RESPITE.1);
        } else if self.respite > RESPITE.0 && Instant::now() > self.not_before + self.respite {
            self.respite = RESPITE.0;
        }
    }
}

/// The keeper: helps a tracer that could run in two looks at one giving. Where the thread that it is for could run, too, that is all there is to it (it has its
/// place, or waits for one as well): the tracer is to fall asleep, or to look at what it woke up for. Where that has stopped others are in the way.
fn keep(shared: &Shared, tracer: Pid) {
    // The tracer's processor, which is ours by birth, may be the busy one.
    let mut anywhere = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        let _ = anywhere.set(cpu);
    }
    let _ = sched_setaffinity(SELF, &anywhere);
    let (mut seen, mut idle, mut kept_from, mut calm) = (0, 0, 0, 0u32);
    let mut rivals = Rivals::new();
    while !shared.over.load(Ordering::Relaxed) {
        let given = shared.given.load(Ordering::Relaxed);
        let (same, over) = (given == seen, given.is_multiple_of(2));
        idle = if same && over { idle + 1 } else { 0 };
        // One that sleeps waits for a thread that is in no hurry to stop.
        let waits = !over && is_runnable("self/task", tracer);
        let to = Pid::from_raw(shared.to.load(Ordering::Relaxed));
        let others = waits && !is_runnable("", to);
        // Twice: one that has just been woken up looks so, too.
        let twice = others && kept_from == given;
        kept_from = if same && others { given } else { 0 };
        let helps = same && waits && (twice || !others);
        // It may have come back meanwhile, and given way anew.
        if helps && shared.given.load(Ordering::Relaxed) == given {
            if others {
                shared.ended.store(given, Ordering::Relaxed);
            }
            set_policy(tracer, libc::SCHED_OTHER);
        }
        calm = match same && others {
            true => 0,
            false => calm.saturating_add(u32::from(!over)),
        };
        // Between windows nothing depends on it, and one that waits is not to wait for this.
        let matters = !same || shared.wanted.load(Ordering::Relaxed);
        if matters
            && !waits
            && let Some(crowded) = rivals.look(tracer, to)
        {
            shared.wanted.store(false, Ordering::Relaxed);
            shared.crowded.store(crowded, Ordering::Relaxed);
        } else if rivals.is_old() {
            shared.crowded.store(false, Ordering::Relaxed);
        }
        let look = match calm < CALM || others || helps {
            true => LOOK,
            false => CALM_LOOK,
        };
        seen = given;
        if idle > PATIENCE {
            // Either we see what was given meanwhile, or who gives sees that we sleep.
            shared.asleep.store(true, Ordering::SeqCst);
            if shared.given.load(Ordering::SeqCst) == given {
                std::thread::park_timeout(Duration::from_millis(200));
            }
            shared.asleep.store(false, Ordering::Relaxed);
        } else {
            std::thread::sleep(look);
        }
    }
}

/// Before a thread is resumed that is expected to stop soon. Whether way has been given, and was not before.
pub(super) fn give_way(to: Pid) -> bool {
    NEAR.with_borrow_mut(|near| near.get_or_insert_with(Near::new).give(to))
}

/// When it has stopped, or where it is to be looked at again soon.
pub fn come_back() {
    NEAR.with_borrow_mut(|near| near.get_or_insert_with(Near::new).take());
}

/// How long to poll for its stop before sleeping.
pub(super) fn poll_time() -> Duration {
    NEAR.with_borrow(|near| match near {
        Some(near) if near.keeper.is_none() && Instant::now() >= near.not_before => POLL,
        _ => Duration::ZERO,
    })
}

/// Between two looks for its stop.
pub(super) fn step_aside() {
    let begun = Instant::now();
    std::thread::yield_now();
    if begun.elapsed() > LONG_YIELD {
        // Somebody else is there, behind whom one that slept would not have to queue.
        NEAR.with_borrow_mut(|near| {
            if let Some(near) = near {
                near.not_before = Instant::now() + RESPITE.1;
            }
        });
    }
}

/// Whether a thread of ours that became `SCHED_IDLE` can be an ordinary one again: tried out, as capabilities may be those
/// of a user namespace, which do not count.
fn may_come_back() -> bool {
    let tried = std::thread::Builder::new()
        .spawn(|| set_policy(SELF, libc::SCHED_IDLE) && set_policy(SELF, libc::SCHED_OTHER));
    tried.is_ok_and(|tried| tried.join().unwrap_or(false))
}

/// By the state that proc_pid_stat(5) tells, in this directory of `/proc`; if it does not, it may be.
fn is_runnable(directory: &str, tid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{directory}/{tid}/stat"));
    let state = stat
        .ok()
        .and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state.is_none_or(|state| state == 'R')
}

fn policy(tid: i32) -> Option<i32> {
    // SAFETY: takes a number.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    (policy >= 0).then_some(policy)
}

fn set_policy(tid: Pid, policy: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters live here; the call keeps no pointer to them.
    unsafe { libc::sched_setscheduler(tid.as_raw(), policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracer_is_an_ordinary_thread_again() {
        // Way is given to one that sleeps, and to one that does not.
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid()).unwrap();
            let _ = wait.recv();
        });
        let to = told.recv().unwrap();
        give_way(to);
        if NEAR.with_borrow(|near| near.as_ref().is_none_or(|near| near.keeper.is_none())) {
            println!("SKIP the_tracer_is_an_ordinary_thread_again: it may not come back here");
            return;
        }
        come_back();
        for _ in 0..3 {
            // Inside another one nothing is given, and nothing ended by who gave nothing.
            if give_way(to) {
                assert!(!give_way(to));
            }
            come_back();
            assert_eq!(policy(0), Some(libc::SCHED_OTHER));
        }
        // When it would run and does not come back, it is helped. (It may have been just now: as long as a respite is at the most.)
        std::thread::sleep(RESPITE.1);
        let helped = |to| {
            give_way(to);
            let begun = Instant::now();
            while policy(0) == Some(libc::SCHED_IDLE) && begun.elapsed() < Duration::from_secs(20) {
                std::hint::spin_loop();
            }
            assert_eq!(policy(0), Some(libc::SCHED_OTHER));
            come_back();
            NEAR.with_borrow(|near| {
                near.as_ref()
                    .map(|n| n.not_before.saturating_duration_since(begun))
            })
        };
        // By one that runs itself: us.
        assert_eq!(helped(nix::unistd::gettid()), Some(Duration::ZERO));
        // Where others are in the way it is given again only after a respite. (The keeper may help late, and a giving that is not its own.)
        let respite = (0..5).find_map(|_| helped(to).filter(|respite| *respite >= RESPITE.0));
        assert!(respite.is_some());
        drop(end);
        sleeper.join().unwrap();
    }
}

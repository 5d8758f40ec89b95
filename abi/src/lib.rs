//! What the shim in the target and its user agree on: the control block in shared memory, requests, events.
//!
//! Plain data with a version; no code that knows a process. The block is a `memfd` made by the user of the shim,
//! inherited under the descriptor named in [`ENV_FD`], and mapped by both sides. Into a running process the user maps block and shim
//! itself, and does by [`Places`] what the shim would do at its start. The shim writes events and
//! counts, the other side moves [`Block::tail`] and reads; requests go either through the shim's exported
//! `statcache_shim_call` or through [`Block::request`] and a stopped thread that is put at [`Block::ring`].
#![no_std]

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// First word of a block that belongs to this project.
pub const MAGIC: u64 = 0x5741_5443_4845_5301;
/// Changes with any change of layout or meaning.
pub const VERSION: u32 = 5;
/// Environment variable with the number of the block's descriptor.
pub const ENV_FD: &str = "STATCACHE_SHIM_FD";
/// Events that the ring holds.
pub const EVENTS: usize = 1024;
/// Pages that can be watched at a time: one bit each in the shim's masks.
pub const MAX_PAGES: usize = 64;
/// Watches at a time.
pub const MAX_WATCHES: usize = 256;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// What a request asks for.
pub mod op {
    /// Watch [`super::Request::address`] for [`super::Request::length`] bytes under [`super::Request::id`].
    pub const ARM: u32 = 1;
    /// Drop the watches named [`super::Request::id`].
    pub const DISARM: u32 = 2;
    /// Drop all watches.
    pub const DISARM_ALL: u32 = 3;
    /// By [`super::Block::ring`] only, as all that follow. Take this thread under the shim, and keep there all that come with
    /// [`FOLLOW`], so that watches come and go at once.
    pub const BEGIN: u32 = 4;
    /// Drop all watches and undo [`BEGIN`]. Threads go with [`FOLLOW`], or with their next system call.
    pub const END: u32 = 5;
    /// Come under the shim or leave it, as begun or ended by another thread.
    pub const FOLLOW: u32 = 6;
    /// Whether every thread of the process is under the shim, after which watches may be armed.
    pub const ALL: u32 = 7;
}

/// Bits of [`Request::flags`].
pub mod flag {
    /// Keep the watch after a hit; without it the first hit ends the watch.
    pub const KEEP: u32 = 1;
}

/// Answers to a request, in [`Request::result`].
pub mod result {
    /// Done.
    pub const OK: i32 = 0;
    /// Not yet looked at.
    pub const PENDING: i32 = 1;
    /// Length not a power of two in 16..=256, address not aligned to it, or an unknown operation.
    pub const INVALID: i32 = -1;
    /// The memory cannot be watched: not mapped, not readable, or the kernel writes there at any time (rseq).
    pub const UNSUITABLE: i32 = -2;
    /// No room for another watch, page or thread.
    pub const FULL: i32 = -3;
    /// A thread is inside a system call that uses that page or might, or could not be reached.
    pub const BUSY: i32 = -4;
    /// The kernel has no Syscall User Dispatch.
    pub const UNSUPPORTED: i32 = -5;
    /// The process uses `io_uring`: the kernel reads and writes memory when nobody is in a system call.
    pub const ASYNCHRONOUS: i32 = -6;
    /// The process is about to filter its system calls, or does.
    pub const SEALED: i32 = -7;
    /// A process that is not under the shim has been made to share the memory.
    pub const BORROWED: i32 = -8;
}

/// One request. Words, so that it can be written by a C program and by `process_vm_writev`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// One of [`op`].
    pub op: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// First byte watched; a multiple of `length`.
    pub address: u64,
    /// Bytes watched: 16, 32, 64, 128 or 256.
    pub length: u32,
    /// The caller's name for the watch.
    pub id: u32,
    /// One of [`result`].
    pub result: i32,
    /// Zero.
    pub reserved: u32,
}

/// What an event reports.
pub mod kind {
    /// The first byte of the access lies in the line.
    pub const HIT: u32 = 1;
    /// The access may touch the line: it begins before it, or its instruction makes several. The registers decide.
    pub const MAYBE: u32 = 2;
    /// The watch ended without a hit; [`super::Event::detail`] is one of [`super::ended`].
    pub const ENDED: u32 = 3;
}

impl Event {
    /// No event.
    pub const NONE: Event = Event {
        kind: 0,
        id: 0,
        tid: 0,
        detail: 0,
        address: 0,
        line: 0,
        tsc: 0,
        gpr: [0; 16],
        rip: 0,
        rflags: 0,
        fs: 0,
        blind: 0,
        code: [0; 16],
    };
}

/// Why a watch ended without a hit.
pub mod ended {
    /// The program unmapped or moved the page, or did with it what a protected page does not allow.
    pub const UNMAPPED: u32 = 1;
    /// The user of the shim asked for it.
    pub const DISARMED: u32 = 2;
    /// The stack of a new thread begins on that page.
    pub const STACK: u32 = 3;
    /// There was no room to take a new thread under the shim.
    pub const THREADS: u32 = 4;
}

/// Bits of [`Event::detail`] of a [`kind::HIT`] or [`kind::MAYBE`].
pub mod access {
    /// The access writes.
    pub const WRITE: u32 = 1;
}

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// One of [`kind`].
    pub kind: u32,
    /// The watch.
    pub id: u32,
    /// The thread.
    pub tid: i32,
    /// Bits of [`access`], or one of [`ended`].
    pub detail: u32,
    /// First byte of the access that lies on the page.
    pub address: u64,
    /// The watched line.
    pub line: u64,
    /// Time stamp counter at the fault.
    pub tsc: u64,
    /// General registers before the instruction, by their number in the encoding (rax, rcx, rdx, rbx, rsp, ...).
    pub gpr: [u64; 16],
    /// Address of the instruction.
    pub rip: u64,
    /// Flags before the instruction, without the single-step flag of ours.
    pub rflags: u64,
    /// Base of the fs segment.
    pub fs: u64,
    /// Time stamp ticks since the watch was armed during which the page was open to other threads than the one it was opened for: what
    /// these did to the line meanwhile was not seen. Some ten thousand for each false hit; up to a hundred million where
    /// the one it was opened for lost the processor.
    pub blind: u64,
    /// The instruction, as far as its bytes could be read, then zeroes.
    pub code: [u8; 16],
}

/// Counts since the block was made. Only grow.
#[repr(C)]
pub struct Counts {
    /// Faults whose access begins in a watched line.
    pub hits: AtomicU64,
    /// Faults reported as [`kind::MAYBE`].
    pub maybes: AtomicU64,
    /// Faults on a watched page that touch no watched line.
    pub false_hits: AtomicU64,
    /// Faults that were the program's own.
    pub own_faults: AtomicU64,
    /// Signals handed on to handlers of the program.
    pub chained: AtomicU64,
    /// System calls seen by the shim.
    pub syscalls: AtomicU64,
    /// Those for which pages were opened.
    pub syscalls_opened: AtomicU64,
    /// Events that found the ring full.
    pub lost: AtomicU64,
    /// Time stamp ticks during which a watched page was open while the process had other threads: what these did
    /// on the page then went unseen.
    pub blind_ticks: AtomicU64,
    /// Forks, which leave the child without watches.
    pub forks: AtomicU64,
    /// Times a thread was put under Syscall User Dispatch.
    pub entered: AtomicU64,
}

/// Name of the shim's exported [`Places`].
pub const PLACES: &str = "statcache_shim_places";

/// Where parts of the shim lie: pointers, in its image; addresses (`u64`) for whoever reads that.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Places<T> {
    /// See [`Block::call`].
    pub call: T,
    /// See [`Block::handler`].
    pub handler: T,
    /// See [`Block::restorer`].
    pub restorer: T,
    /// See [`Block::ring`].
    pub ring: [T; 3],
    /// See [`Block::stubs`].
    pub stubs: [T; 2],
    /// See [`Block::holds`].
    pub holds: T,
    /// Where the shim keeps the address of the block: a word, 0 for none.
    pub block: T,
    /// The process's id in its own namespace: 32 bits.
    pub pid: T,
    /// A page of its own, advised to be wiped in the children of forks (madvise(2), `MADV_WIPEONFORK`), whose first 32 bits are 1 ...
    pub here: T,
    /// ... and whether the kernel does so: a byte, 1.
    pub wipes: T,
}

impl<T> Places<T> {
    /// Each part's place by another measure.
    pub fn map<U>(self, to: impl Fn(T) -> U) -> Places<U> {
        Places {
            call: to(self.call),
            handler: to(self.handler),
            restorer: to(self.restorer),
            ring: self.ring.map(&to),
            stubs: self.stubs.map(&to),
            holds: to(self.holds),
            block: to(self.block),
            pid: to(self.pid),
            here: to(self.here),
            wipes: to(self.wipes),
        }
    }
}

/// The shared memory.
#[repr(C)]
pub struct Block {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Process whose shim uses the block; 0 before.
    pub owner: AtomicI32,
    /// Program images in which the shim has started: more than one after `exec`.
    pub images: AtomicU32,
    /// 1 once `Block::request` was answered; set to 0 by who asks.
    pub answered: AtomicU32,
    /// Address of the shim's `statcache_shim_call` in the target.
    pub call: AtomicU64,
    /// Address of the shim's signal handler in the target.
    pub handler: AtomicU64,
    /// Address of the shim's signal restorer in the target.
    pub restorer: AtomicU64,
    /// Address of this block in the target.
    pub base: AtomicU64,
    /// Bytes from `base` on that block and shim take, one behind the other; 0 where a loader has mapped the shim.
    pub span: AtomicU64,
    /// Address, in memory of the target that no child of it shares, of 32 bits that are not 0 while handlers of the shim stand in the
    /// kernel, or any thread is under it.
    pub holds: AtomicU64,
    /// Not 0 while the other side may be single-stepping threads of the target: a trap that nobody in the target expects is
    /// the last it asked for, and goes no further, should it be gone by then.
    pub stepping: AtomicU32,
    /// Not 0 once the process filters its system calls: the shim has gone for good, and answers nobody.
    pub sealed: AtomicU32,
    /// Where each thread's `struct rseq`, which the kernel writes at any time, lies from the base of its fs segment; 0 where that is
    /// not known. Within a page on either side nothing is watched anyway.
    pub rseq: AtomicU64,
    /// Not 0 where the program is to find its environment as it was before the shim was named there; children do not load the shim
    /// then, and an `execve` only by whoever asked for this.
    pub hides: AtomicU64,
    /// How a stopped thread is made to serve `request` (one at a time): its registers go to `home`, it to `ring[0]` with
    /// `ring[1]` for its stack pointer. There it blocks all signals, serves, puts what its registers are to be into `home`, and
    /// takes its signals back by its last system call, which ends at `ring[2]`: from there the thread goes home by itself, or is
    /// put there.
    pub ring: [AtomicU64; 3],
    /// Where the stubs lie in which the program's system calls are made: begin and end. A thread in any other place of the shim must
    /// not be put at `ring`.
    pub stubs: [AtomicU64; 2],
    /// General registers in the order of `struct sigcontext`: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags. Of a
    /// thread that sleeps in a system call they are those with which it makes the call (again).
    pub home: [AtomicU64; 18],
    /// That call's number and one; 0 for none. Once the request is served: of the call that the thread is at and was in already as
    /// far as the program knows, where the shim, which it has left, was about to make it again.
    pub home_call: AtomicU64,
    /// What a thread at `ring` is asked.
    pub request: Request,
    /// Counts.
    pub counts: Counts,
    /// Events written; its remainder by [`EVENTS`] is the next place.
    pub head: AtomicU64,
    /// Events read.
    pub tail: AtomicU64,
    /// The ring.
    pub events: [Event; EVENTS],
}

impl Block {
    /// Notes that the shim lies at these places, in one more image, and the block itself at `base`.
    pub fn settle(&self, places: &Places<u64>, base: u64) {
        self.base.store(base, Relaxed);
        for (word, place) in [
            (&self.call, places.call),
            (&self.handler, places.handler),
            (&self.restorer, places.restorer),
            (&self.holds, places.holds),
        ] {
            word.store(place, Relaxed);
        }
        let ring = self.ring.iter().zip(places.ring);
        for (word, place) in ring.chain(self.stubs.iter().zip(places.stubs)) {
            word.store(place, Relaxed);
        }
        self.images.fetch_add(1, Release);
    }
}

/// Bytes to map for a block, whole pages.
pub const BLOCK_BYTES: usize =
    size_of::<Block>().div_ceil(PAGE_BYTES as usize) * PAGE_BYTES as usize;

pub mod heap;

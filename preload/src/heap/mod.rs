//! The heap shim: which call made each block of the heap.
//!
//! A shared object of its own beside the one for watchpoints, loaded into a program by `LD_PRELOAD`, that needs the dynamic
//! linker of glibc 2.35 or newer. It stands before the next allocator in the linker's order (`interpose`), which makes each block; and notes it
//! (`table`) under the calls that led there (`unwind`, `memo`, `sites`). Nothing is sent to anybody: whoever profiles the program reads its memory
//! (`statcache_abi::heap`), and where nobody does, nothing else happens. All of it is the process's own memory, so that the child of a
//! fork goes on with a copy.
//!
//! **Invariants.** No locks, no thread-local storage, no allocation but by `mmap`, no panic; a place that is full or cannot be had
//! loses notes, never the program's memory. `errno` is not touched.

mod interpose;
mod memo;
mod resolve;
mod sites;
mod table;
mod unwind;

#[cfg(feature = "heap")]
pub use interpose::start;

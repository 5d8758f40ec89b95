//! The shim for watchpoints: page protection from inside the program.
//!
//! A shared object that needs nothing but the kernel: no standard library, no C library, no allocation, no thread-local storage. It
//! is loaded into a program by `LD_PRELOAD`, and connects to the control block whose descriptor it inherits
//! (`statcache_abi`), or is mapped into a running one by whoever traces that. It does nothing further until it is asked to
//! watch a line. Then the line's page is protected, and each access to the page faults:
//!
//! * `step`: whose fault it is, and how the access happens exactly once;
//! * `syscalls`, `touch`: how the kernel can still use the page in the program's system calls;
//! * `signals`: how the program's own signal handling goes on as if nothing were there;
//! * `process`: new threads, `fork`, `execve`, the end;
//! * `requests`: how a watch comes and goes, and what must be true of every thread first.
//!
//! When the last watch goes, so does all of this: the program's signal dispositions, masks and alternate stacks are its own
//! again, and its system calls are not dispatched.
//!
//! **Invariants.** Handlers run with all signals blocked, on stacks of ours, touch the program's memory only through the kernel
//! (`user`), change neither `errno` nor vector state that the kernel does not restore, and do not panic. The
//! one spin word is held only there (`state`). Limits are named where they arise: a PMU's counts and other
//! threads' unseen accesses in `step`, calls that cannot be caught in `syscalls`.
//!
//! Source: StatCache (Berg & Hagersten 2005) section 3.6, with mprotect(2) in place of Solaris watchpoints.

mod frame;
mod insn;
mod maps;
mod pages;
mod process;
mod requests;
mod signals;
pub mod start;
mod state;
mod step;
mod sys;
mod syscalls;
mod text;
mod threads;
mod touch;
mod user;

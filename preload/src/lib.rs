//! The shims: what is loaded into a program, by `LD_PRELOAD`.
//!
//! Two shared objects that need nothing but the kernel and the dynamic linker: no standard library, no C library, no allocation, no thread-local
//! storage. `watchpoints` watches lines by page protection; `heap` notes which call made each block of the heap. They share how
//! they begin.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(any(feature = "shim", feature = "heap")), allow(dead_code))]

mod environment;
#[cfg(any(feature = "shim", feature = "heap"))]
mod freestanding;
#[cfg(not(feature = "shim"))]
pub mod heap;
mod raw;
#[cfg(not(feature = "heap"))]
pub mod watchpoints;

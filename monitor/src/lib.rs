//! `statcache`: launch, observe and report. The binary is a thin shell around this library.
//!
//! Dependencies point one way: views (`cli`, `report`, `export`) -> `session` -> engines ->
//! (`tracee`, `arch`, `symbols`); `profile` is plain data that all of them share.

#![deny(clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::print_stdout))]

pub mod analysis;
pub mod arch;
pub mod cli;
pub mod control;
pub mod diff;
pub mod engine;
mod exit;
pub mod export;
pub mod observe;
pub mod pool;
pub mod profile;
pub mod report;
pub mod session;
mod sizes;
pub mod symbols;
pub mod top;
pub mod tracee;
mod varint;

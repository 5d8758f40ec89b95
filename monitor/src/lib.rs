//! `statcache`: launch, observe and report. The binary is a thin shell around this library.
//!
//! Dependencies point one way: views (`cli`, `report`, `export`) -> `session` -> engines ->
//! (`tracee`, `arch`, `symbols`); `profile` is plain data that all of them share.

pub mod arch;
pub mod engine;
pub mod observe;
pub mod profile;
pub mod tracee;

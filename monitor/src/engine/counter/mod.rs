//! The 2005 paper's own mechanism: a count of instructions picks the sample, page protection finds its reuse.
//!
//! * [`shim`]: the shim in the target, from the monitor's side: loading it, its control block, its events.
//! * [`hits`]: which of the accesses that the shim was not sure of are hits.
//!
//! Source: StatCache (Berg & Hagersten 2005) sections 3.4 to 3.7.

pub mod hits;
pub mod shim;

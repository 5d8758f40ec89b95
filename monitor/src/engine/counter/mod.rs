//! The 2005 paper's own mechanism: a count of instructions picks the sample, page protection finds its reuse.
//!
//! * [`shim`]: the shim in the target, from the monitor's side: loading it, its control block, its events.
//! * [`inject`]: the shim mapped into a process that runs already.
//! * [`hits`]: which of the accesses that the shim was not sure of are hits.
//! * [`sampler`]: which access is sampled, over any counter behind one trait, and skid compensation.
//! * [`live`]: a thread as such a counter, stopped and stepped by ptrace, with the shim's watchpoints.
//! * [`window`]: a sampling window of such a thread.
//! * [`overflow`]: the kernel's counters, where the host has them.
//! * [`simulated`]: such a counter for any host, with the weaknesses of real ones.
//!
//! Source: StatCache (Berg & Hagersten 2005) sections 3.4 to 3.7.

pub mod hits;
pub mod inject;
pub mod live;
pub mod overflow;
pub mod sampler;
pub mod shim;
pub mod simulated;
pub mod window;

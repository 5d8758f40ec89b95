//! Programs to observe, and observers of them.

pub mod blocks;
#[path = "../../support/placed.rs"]
pub mod placed;
pub mod shimmed;
pub mod tracee;
#[path = "../../support/tracees.rs"]
mod tracees;
pub mod translated;

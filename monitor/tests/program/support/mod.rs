//! Programs to run `statcache` on, and ways to run it.

pub mod attached;
pub mod c;
pub mod cli;
pub mod counted;
pub mod forbidden;
#[path = "../../support/placed.rs"]
pub mod placed;
#[path = "../../support/tracees.rs"]
pub mod tracees;

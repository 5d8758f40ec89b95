//! The engines: ways to see the accesses of a sampling window. Everything after them is engine-blind.

pub mod counter;
pub mod step;
pub mod translate;

//! From sampled reuse distances to miss ratios with honest intervals.
//!
//! Pure: no IO, no clock, no operating system; deterministic for a seed.
#![forbid(unsafe_code)]

//! `statcache`: a data-locality profiler for Linux on x86-64.
fn main() {}

//! A profiling session.

//! The program from the outside: each test runs `statcache` as its users do.

mod support;

mod attach;
mod attach_refused;
mod background;
mod check;
mod completion;
mod cores;
mod counter_attach;
mod counter_run;
mod counter_session;
mod cpython;
mod daemons;
mod doomed;
mod estimates;
mod follow;
mod generated;
mod heap_sites;
mod languages;
mod line_sizes;
mod readme;
mod run;
mod run_killed;
mod run_refused;
mod run_signals;
mod servers;
mod sharing;
mod shim_truth;
mod stress;
mod surroundings;

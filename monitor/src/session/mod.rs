//! One profiled run: launch, windows, the record of them, and the program's own end.
//!
//! The session owns the only event loop. Between windows the program runs natively, traced but
//! without stops; whatever fails here, the program goes on.

pub mod host;
pub mod program;
pub mod rate;
pub mod recorder;
pub mod schedule;
pub mod signals;
pub mod weights;

mod engine;
mod pace;
mod run;

pub use run::{Outcome, RunError, run};

//! One profiled run: launch or attach, windows, the record of them, and the program's own end.
//!
//! The session owns the only event loop. Between windows all threads of all processes run natively,
//! traced but without stops; whatever fails here, the program goes on.

pub mod attach;
pub mod counter;
pub mod host;
pub mod program;
pub mod rates;
pub mod recorder;
pub mod schedule;
pub mod signals;
mod speeds;
mod spread;
mod together;
pub mod weights;

mod ahead;
mod choose;
mod completed;
mod content;
mod cost;
mod engine;
mod finish;
mod follow;
mod full;
mod leave;
mod limits;
mod looks;
mod meantime;
mod names;
mod needs;
mod observed;
mod output;
mod pace;
mod preload;
mod recent;
mod remains;
mod root;
mod run;

use crate::cli::run::EngineChoice;
use std::path::PathBuf;

pub use root::{ForeignFiles, is_foreign};
pub use run::{Outcome, RunError, attach, run};

/// How a profile is taken, of a program started for it or of one that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileConfig {
    /// Where the profile goes.
    pub output: PathBuf,
    /// How samples are taken.
    pub engine: EngineChoice,
    /// Per cent of wall time that windows may add; more than 0.
    pub overhead_percent: f64,
    /// Observe the whole run.
    pub full: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Follow child processes.
    pub follow: bool,
    /// Nobody waits for the end: how the program ends is no matter of ours.
    pub background: bool,
    /// Size of the profile in bytes from which on older windows are thinned out.
    pub most_bytes: u64,
}

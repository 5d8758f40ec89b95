//! One profiled run: launch or attach, windows, the record of them, and the program's own end.
//!
//! The session owns the only event loop. Between windows all threads of all processes run natively,
//! traced but without stops; whatever fails here, the program goes on.

pub mod attach;
mod config;
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
mod heap;
mod idle;
mod leave;
mod limits;
mod looks;
mod meantime;
pub mod memory;
mod names;
mod needs;
mod observed;
mod output;
mod overlooked;
mod pace;
mod preload;
mod recent;
mod remains;
mod root;
mod run;
mod seek;

pub use config::{AttachConfig, EngineChoice, ProfileConfig, RunConfig};
pub use needs::MOST_MEMORY;
pub use root::{ForeignFiles, is_foreign};
pub use run::{Outcome, RunError, attach, run};

//! The profile: its data types, its file, and the tables that make it self-contained.
//!
//! [`Writer`] appends [`types::Record`]s to a file that is valid after every one of them;
//! [`Profile`] folds such a file back into tables. Neither knows a process or a model.

mod columns;
mod error;
#[cfg(test)]
pub(crate) mod example;
mod fold;
mod frame;
#[cfg(test)]
mod oldest;
mod reader;
mod tables;
mod thin;
pub mod types;
mod writer;

pub use error::ProfileError;
pub use reader::{DataSymbol, Profile};
pub use thin::{Thinned, thin};
pub use writer::{Replacement, Writer, old_name};

//! `statcache top`: a profile to walk about in, while it is written or afterwards.
//!
//! A worker reads the profile and works out what is asked for ([`worker`]); the state of the screen changes with keys alone
//! ([`state`]); drawing ([`draw`]) is a function of both. None of them has the terminal: `cli` does. All figures and most of the text are
//! the report's.

pub mod content;
pub mod draw;
pub mod state;
pub mod worker;

pub use content::{Content, Request, View};
pub use draw::draw;
pub use state::{Action, State};
pub use worker::{Answer, Profiles, work};

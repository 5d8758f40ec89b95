//! The `translate` engine: a window runs inside a code cache of translated copies that log enough
//! register values for every address to be computed later.

pub mod asm;
pub mod cache;
pub mod code;
pub mod crossings;
pub mod duty;
pub mod expand;
pub mod filter;
pub mod fragment;
pub mod group;
pub mod layout;
pub mod log;
pub mod memory;
pub mod room;
pub mod runtime;
pub mod sequence;
pub mod state;
pub mod states;
pub mod target;
pub mod trace;
pub mod values;
pub mod window;

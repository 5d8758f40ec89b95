//! The `translate` engine: a window runs inside a code cache of translated copies that log enough
//! register values for every address to be computed later.

pub mod asm;
pub mod layout;
pub mod trace;
pub mod values;

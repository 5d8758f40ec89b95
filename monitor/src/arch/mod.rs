//! What one x86-64 instruction does to memory, control flow, flags and registers.
//!
//! Every engine asks here, so that all of them count the same accesses: `step` evaluates the accesses with the
//! registers of a stopped thread, `translate` turns the same list into code. Pure functions over decoded
//! instructions; nothing here knows a process.
//!
//! An *access* is one memory operand of one executed instruction, by its effective address: a
//! read-modify-write operand is one, the implicit stack slot of push/pop/call/ret/enter/leave is one, each iteration of
//! a `rep` string instruction has one per memory side, a gather or scatter one per active lane (neighbours that
//! adjoin are merged), a masked or multi-register operand (`fxsave`, `xsave`) one of full width. `cmov` from memory counts
//! whether or not it moves. `lea`, `nop`, prefetches, cache-line flushes and instruction fetch do not count.
//!
//! What is not certain is refused: [`accesses`] returns [`Unsupported`] and [`classify`] returns
//! [`Flow::Decline`], and the caller lets the program run natively over it.
//!
//! Source: Intel SDM volume 2 (operation sections), AMD APM volume 3; decoding by `iced-x86`.

mod access;
mod describe;
mod evaluate;
mod fast;
mod flow;
mod gpr;
mod liveness;
mod multiple;
mod widths;

#[cfg(test)]
mod tests;

pub use access::{Access, AddressExpr, Kind, Mask, RepCondition, Shape, Unsupported};
pub use describe::accesses;
pub use evaluate::{Expansion, Registers, evaluate};
pub use fast::Fast;
pub use flow::{Flow, HINDERING_FLAGS, classify};
pub use gpr::{Gpr, GprSet};
pub use liveness::{
    STATUS_FLAGS, flags_killed, flags_live_before, flags_modified, flags_read, gprs_killed,
    gprs_live_before, gprs_read, gprs_read_and_written, gprs_written,
};
pub use widths::{xrstor_bytes, xsave_bytes};

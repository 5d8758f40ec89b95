//! Looking one instruction ahead, for the sake of a death of the monitor right there.
//!
//! A thread stopped after a step has the trap flag in its flags. If the monitor dies before it carries out a `pushf`, or
//! runs a `syscall` unstepped, the thread executes the instruction with the flag, and it shows in the word pushed or in r11. The
//! guard's handler repairs that: it runs right after, and finds written in its page which instruction that was. This
//! has to be there before the step that leads to the instruction.

use super::decode::{Decoded, Decoder};
use super::flags::FlagsWord;
use super::registers::View;
use crate::arch::{Flow, Kind, evaluate};
use crate::tracee::{Regs, Stopped};

/// What the handler repairs, and how it recognises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revealing {
    /// A `pushf`.
    PushFlags {
        /// Address behind it.
        behind: u64,
        /// The stack pointer after it, where it tells that it was executed; 0 where arriving behind it tells as much.
        rsp: u64,
    },
    /// A `syscall`.
    Syscall {
        /// Address behind it, which it puts into rcx.
        behind: u64,
    },
}

/// The instruction that shows flags, if a step of `decoded` may lead to one.
pub fn revealing(
    decoder: &mut Decoder,
    decoded: &Decoded,
    stopped: &Stopped,
    regs: &Regs,
) -> Option<Revealing> {
    let behind = regs.rip + decoded.len;
    let (flow, indirect) = (decoded.flow, target_in_memory(decoded, stopped, regs));
    let (successors, conditional) = match flow {
        Flow::Jump { target } | Flow::Call { target } => ([Some(target), None], false),
        Flow::CondJump { target } | Flow::LoopOrJrcxz { target } => {
            ([Some(target), Some(behind)], true)
        }
        Flow::IndirectJump | Flow::IndirectCall | Flow::Ret { .. } => {
            let in_register = decoded
                .target
                .map(|gpr| View::new(stopped, regs).value(gpr));
            ([in_register.or(indirect), None], false)
        }
        Flow::Next | Flow::PopFlags | Flow::Syscall | Flow::Decline(_) => {
            ([Some(behind), None], false)
        }
    };
    successors.into_iter().flatten().find_map(|ip| {
        let next = decoder.at(stopped, ip).ok()?;
        let behind = ip + next.len;
        match (next.flags_word, next.flow) {
            (Some(FlagsWord::Push(bytes)), _) => Some(Revealing::PushFlags {
                behind,
                // A branch may also go right behind it, but leaves the stack alone.
                rsp: if conditional {
                    regs.rsp.wrapping_sub(bytes)
                } else {
                    0
                },
            }),
            (_, Flow::Syscall) => Some(Revealing::Syscall { behind }),
            _ => None,
        }
    })
}

/// Where an indirect transfer through memory, or a return, goes.
fn target_in_memory(decoded: &Decoded, stopped: &Stopped, regs: &Regs) -> Option<u64> {
    let load = decoded
        .accesses
        .first()
        .filter(|access| access.kind == Kind::Load)?;
    match decoded.flow {
        Flow::IndirectJump | Flow::IndirectCall | Flow::Ret { .. } => {}
        _ => return None,
    }
    let (address, _) = evaluate(load, &View::new(stopped, regs)).next()?;
    let mut target = [0; 8];
    stopped.read(address, &mut target).ok()?;
    Some(u64::from_le_bytes(target))
}

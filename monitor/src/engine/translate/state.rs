//! What the registers mean at each address of the code cache.
//!
//! The program's context can be rebuilt at every instruction of the cache, so that a signal or the
//! user can stop a thread anywhere: only original addresses are ever on its stack, and what the
//! cache borrowed lies in known words of the state block. (But for what the program overwrites before it reads it: `room.rs`.)

use super::duty::Duty;
use super::layout::state;
use crate::arch::{Gpr, GprSet};
use crate::tracee::Regs;

/// Where the original instruction pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// Known to the translator.
    At(u64),
    /// In rcx.
    InRcx,
    /// In the state block's `TARGET`.
    InTarget,
}

/// What the register is used for that a trace leaves alone; the program's value of it is in its slot meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// It holds the state block's address, with the log pointer in the block.
    Block(Gpr),
    /// It holds the count of a code cache that only counts.
    Count(Gpr),
    /// Nothing: the registers are the program's.
    Unused,
}

impl Spare {
    /// Its use where fragments have this duty.
    pub fn of(duty: Duty, gpr: Gpr) -> Spare {
        match duty {
            Duty::Observe { .. } => Spare::Block(gpr),
            Duty::Count => Spare::Count(gpr),
        }
    }
}

/// Meaning of the registers from one address of the cache up to the next boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The original instruction pointer.
    pub ip: Ip,
    /// Registers whose program values are in their slots.
    pub spilled: GprSet,
    /// The register that the trace leaves alone.
    pub spare: Spare,
    /// Items of the fragment executed since the record was begun; `None` when it is complete and the log pointer is behind it.
    pub open: Option<u16>,
    /// Whether the accesses of the open record are in [`state::COUNT`] already.
    pub counted: bool,
    /// Whether part of a `rep` instruction is being executed, or was: [`state::REST`] is to be added to its counter.
    pub cut: bool,
}

/// That register on the way through the table of jumps: the one that fragments choose as a rule.
pub const CARRIER: Gpr = Gpr::R11;

impl State {
    /// On the way through the table of jumps: bound for `TARGET`, rcx free, [`CARRIER`] used as in fragments.
    pub fn bound(duty: Duty) -> State {
        State {
            ip: Ip::InTarget,
            spilled: [Gpr::Rcx, CARRIER].into_iter().collect(),
            spare: Spare::of(duty, CARRIER),
            open: None,
            counted: false,
            cut: false,
        }
    }
}

/// A view of the state block in shared memory.
pub trait StateBlock {
    /// Word at `offset`.
    fn word(&self, offset: i32) -> u64;
}

/// The program's context at a stop inside the cache.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The program's registers, instruction pointer included; gs as the program had it (zero).
    pub regs: Regs,
    /// Log pointer, behind the last complete record; the count where nothing else is done.
    pub log: u64,
    /// Items done of the open record.
    pub open: Option<u16>,
}

impl State {
    /// Rebuilds the program's context from the registers at a stop.
    pub fn rebuild(&self, stopped: &Regs, block: &impl StateBlock) -> Context {
        let mut regs = *stopped;
        let log = match self.spare {
            Spare::Count(gpr) => get(stopped, gpr),
            Spare::Block(_) | Spare::Unused => block.word(state::LOG),
        };
        regs.rip = match self.ip {
            Ip::At(ip) => ip,
            Ip::InRcx => stopped.rcx,
            Ip::InTarget => block.word(state::TARGET),
        };
        for gpr in self.spilled.iter() {
            *get_mut(&mut regs, gpr) = block.word(state::slot(gpr));
        }
        if self.cut {
            regs.rcx = regs.rcx.wrapping_add(block.word(state::REST));
        }
        regs.gs_base = 0;
        regs.orig_rax = u64::MAX;
        Context {
            regs,
            log,
            open: self.open,
        }
    }
}

/// Value of a general register.
pub fn get(regs: &Regs, gpr: Gpr) -> u64 {
    let mut copy = *regs;
    *get_mut(&mut copy, gpr)
}

/// A general register, to be set.
pub fn get_mut(regs: &mut Regs, gpr: Gpr) -> &mut u64 {
    match gpr {
        Gpr::Rax => &mut regs.rax,
        Gpr::Rcx => &mut regs.rcx,
        Gpr::Rdx => &mut regs.rdx,
        Gpr::Rbx => &mut regs.rbx,
        Gpr::Rsp => &mut regs.rsp,
        Gpr::Rbp => &mut regs.rbp,
        Gpr::Rsi => &mut regs.rsi,
        Gpr::Rdi => &mut regs.rdi,
        Gpr::R8 => &mut regs.r8,
        Gpr::R9 => &mut regs.r9,
        Gpr::R10 => &mut regs.r10,
        Gpr::R11 => &mut regs.r11,
        Gpr::R12 => &mut regs.r12,
        Gpr::R13 => &mut regs.r13,
        Gpr::R14 => &mut regs.r14,
        Gpr::R15 => &mut regs.r15,
    }
}

//! What the registers mean at each address of the code cache.
//!
//! The program's context can be rebuilt at every instruction of the cache, so that a signal or the
//! user can stop a thread anywhere: only original addresses are ever on its stack, and what the
//! cache borrowed lies in known words of the state block.

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

/// Where the log pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// In this register; the program's value of it is in its slot.
    Register(Gpr),
    /// In the state block.
    Slot,
}

/// Meaning of the registers from one address of the cache up to the next boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The original instruction pointer.
    pub ip: Ip,
    /// Registers whose program values are in their slots.
    pub spilled: GprSet,
    /// The log pointer.
    pub log: Log,
    /// Items of the fragment executed since the log pointer's record was begun; `None` when the
    /// record is complete and the pointer is behind it.
    pub open: Option<u16>,
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
    /// Log pointer: behind the last complete record, at the open one if there is one.
    pub log: u64,
    /// Items done of the open record.
    pub open: Option<u16>,
}

impl State {
    /// Rebuilds the program's context from the registers at a stop.
    pub fn rebuild(&self, stopped: &Regs, block: &impl StateBlock) -> Context {
        let mut regs = *stopped;
        let log = match self.log {
            Log::Register(gpr) => get(stopped, gpr),
            Log::Slot => block.word(state::LOG),
        };
        regs.rip = match self.ip {
            Ip::At(ip) => ip,
            Ip::InRcx => stopped.rcx,
            Ip::InTarget => block.word(state::TARGET),
        };
        for gpr in self.spilled.iter() {
            *get_mut(&mut regs, gpr) = block.word(state::slot(gpr));
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

/// The boundaries of one stretch of code, in address order.
#[derive(Clone, Debug, Default)]
pub struct StateMap(Vec<(u64, State)>);

impl StateMap {
    /// From `address` on, the registers mean `state`.
    pub fn mark(&mut self, address: u64, state: State) {
        match self.0.last_mut() {
            Some((at, last)) if *at == address => *last = state,
            Some((_, last)) if *last == state => {}
            _ => self.0.push((address, state)),
        }
    }

    /// The meaning at `address`, which must lie in the stretch.
    pub fn at(&self, address: u64) -> Option<State> {
        let after = self.0.partition_point(|(at, _)| *at <= address);
        self.0[..after].last().map(|(_, state)| *state)
    }

    /// Adds the boundaries of code at higher addresses.
    pub fn append(&mut self, later: StateMap) {
        self.0.extend(later.0);
    }

    /// Gives back memory that was allocated ahead.
    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}

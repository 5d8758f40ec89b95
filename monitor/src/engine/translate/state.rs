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

/// The boundaries of the code of one fragment, in address order. There are tens of them for each of
/// many thousand fragments, so they are packed.
#[derive(Clone, Debug)]
pub struct StateMap {
    /// Addresses in the cache are kept relative to this one.
    base: u64,
    /// Original addresses are kept relative to this one.
    ip: u64,
    boundaries: Vec<Boundary>,
}

#[derive(Clone, Copy, Debug)]
struct Boundary {
    address: u32,
    /// Of [`Ip::At`].
    ip: i32,
    spilled: GprSet,
    /// [`NOT_OPEN`] for none.
    open: u16,
    kind: IpKind,
    spare: Spare,
    counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IpKind {
    At,
    InRcx,
    InTarget,
}

const NOT_OPEN: u16 = u16::MAX;
const _: () = assert!(size_of::<Boundary>() <= 16);

impl StateMap {
    /// For code at `base` and above, made of the original code around `ip`.
    pub fn new(base: u64, ip: u64) -> StateMap {
        StateMap {
            base,
            ip,
            boundaries: Vec::new(),
        }
    }

    /// From `address` on, the registers mean `state`. An arena is smaller than 4 GiB, and a trace stays
    /// within 1 GiB of its head.
    pub fn mark(&mut self, address: u64, state: State) {
        let (kind, ip) = match state.ip {
            Ip::At(ip) => (IpKind::At, ip.wrapping_sub(self.ip) as i32),
            Ip::InRcx => (IpKind::InRcx, 0),
            Ip::InTarget => (IpKind::InTarget, 0),
        };
        let boundary = Boundary {
            address: (address - self.base) as u32,
            ip,
            spilled: state.spilled,
            open: state.open.unwrap_or(NOT_OPEN),
            kind,
            spare: state.spare,
            counted: state.counted,
        };
        match self.boundaries.last_mut() {
            Some(last) if last.address == boundary.address => *last = boundary,
            Some(last) if last.same_state(&boundary) => {}
            _ => self.boundaries.push(boundary),
        }
    }

    /// The meaning at `address`, which must lie in the code.
    pub fn at(&self, address: u64) -> Option<State> {
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let after = self.boundaries.partition_point(|b| b.address <= offset);
        let boundary = self.boundaries[..after].last()?;
        Some(State {
            ip: match boundary.kind {
                IpKind::At => Ip::At(self.ip.wrapping_add_signed(i64::from(boundary.ip))),
                IpKind::InRcx => Ip::InRcx,
                IpKind::InTarget => Ip::InTarget,
            },
            spilled: boundary.spilled,
            spare: boundary.spare,
            open: (boundary.open != NOT_OPEN).then_some(boundary.open),
            counted: boundary.counted,
        })
    }

    /// Adds the boundaries of code of the same fragment at higher addresses.
    pub fn append(&mut self, later: &StateMap) {
        let moved = later.base - self.base;
        debug_assert_eq!(self.ip, later.ip);
        // Each is kept for long, and few grow again and again.
        self.boundaries.reserve_exact(later.boundaries.len());
        self.boundaries
            .extend(later.boundaries.iter().map(|b| Boundary {
                address: b.address + moved as u32,
                ..*b
            }));
    }

    /// Gives back memory that was allocated ahead.
    pub fn shrink(&mut self) {
        self.boundaries.shrink_to_fit();
    }
}

impl Boundary {
    fn same_state(&self, other: &Boundary) -> bool {
        self.ip == other.ip
            && self.spilled == other.spilled
            && self.open == other.open
            && self.kind == other.kind
            && self.spare == other.spare
            && self.counted == other.counted
    }
}

//! A translated trace: its code, the records it logs and the ways out of it.
//!
//! Layout: the hot part holds copies of the program's instructions with stores of register values
//! in between, and at its end, or before the comparison that the last branch goes by, the decision whether the record is kept ([`close`]); the cold part
//! holds what is rarely run (ways back to the monitor, literals). A side exit gets its
//! code when it is first taken ([`build::side`]), beside what is hot at that time.

mod build;
mod changing;
mod checked;
mod close;
mod count;
mod lookup;
mod scratch;
mod seldom;

pub use build::{Wanted, side, spare_candidates, translate};
pub use checked::{checked, lead_far};

use super::asm::Asm;
use super::duty::Duty;
use super::runtime::Runtime;
use super::state::{Ip, Spare, State, StateMap};
use super::values::Term;
use crate::arch::{Gpr, GprSet, Kind};
use std::ops::Range;

/// Index of a fragment.
pub type FragmentId = u32;

/// How the number or address of an access depends on more than base and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// One access.
    No,
    /// As many as the counter says: its term before, and the word of its value after where a
    /// condition may have stopped it early (0: it cannot).
    Rep {
        /// Counter before.
        count: Term,
        /// Word of the counter after.
        after: u8,
        /// Whether only ecx counts.
        counter32: bool,
        /// Bytes between elements.
        step: u8,
    },
    /// One per active lane.
    Gather {
        /// First word of the index vector.
        index: u8,
        /// Lanes.
        lanes: u8,
        /// Bytes of an index element.
        index_bytes: u8,
        /// Bytes of a data element.
        element_bytes: u8,
        /// Factor of the index.
        scale: u8,
        /// First word of the mask.
        mask: u8,
        /// Whether the mask is a vector of signs, not a bit mask.
        vector_mask: bool,
    },
    /// Moved by a bit offset.
    Bit {
        /// The offset register.
        offset: Term,
        /// Bytes of the operand.
        operand_bytes: u8,
    },
    /// Moved by al.
    Xlat {
        /// rax.
        rax: Term,
    },
}

/// One access of a trace, with the words of the record that give its address:
/// `word[base] + word[index]*scale + disp`, truncated to 32 bits if `addr32`, plus fs if `fs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedAccess {
    /// Constant part.
    pub disp: u64,
    /// Bytes.
    pub size: u32,
    /// Item of the trace.
    pub item: u16,
    /// Word of the base, 0 for none.
    pub base: u8,
    /// Word of the index, 0 for none.
    pub index: u8,
    /// Factor of the index.
    pub scale: u8,
    /// Whether the fs base is added.
    pub fs: bool,
    /// Whether the sum is truncated.
    pub addr32: bool,
    /// Direction.
    pub kind: Kind,
    /// What else there is to it.
    pub dynamic: Dynamic,
}

/// Why a fragment leaves the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// To a direct target without a fragment yet.
    Direct {
        /// Original address.
        target: u64,
        /// Displacement field to point at the target's warm entry (same spare register).
        warm_field: u64,
        /// Displacement field to point at the target's cold entry.
        cold_field: u64,
    },
    /// A side exit taken for the first time, the record still open.
    Side {
        /// Items done.
        done: u16,
        /// Words of the record so far.
        words: u16,
        /// Original address it leads to; `None`: in `TARGET`, as a return that the trace follows led elsewhere.
        target: Option<u64>,
        /// Displacement field of the branch to it; 0 once that has code of its own.
        field: u64,
    },
    /// The program's code is no longer what the fragment was made of; nothing of it has run. Fields as of
    /// `Direct`, to point at the fragment of what is there now.
    Changed {
        /// As of `Direct`.
        warm_field: u64,
        /// As of `Direct`.
        cold_field: u64,
    },
    /// The log is full; go on at `resume` in the cache.
    Full {
        /// Cache address to go on at.
        resume: u64,
    },
    /// At a `syscall` instruction.
    Syscall,
    /// At something that must run natively.
    Declined(&'static str),
}

/// One way out, known by its number.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The fragment it belongs to.
    pub fragment: FragmentId,
    /// Why.
    pub kind: ExitKind,
}

/// What a record adds to [`super::layout::state::COUNT`] when it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// Its accesses, always as many.
    Fixed(u16),
    /// Its accesses, as many as the counters of its `rep` instructions say.
    Expanded,
    /// Nothing: all records that follow are kept up to the next stop.
    Nothing,
}

/// What a record in the log stands for: the first `items` items of a fragment.
#[derive(Clone, Copy, Debug)]
pub struct RecordShape {
    /// The fragment.
    pub fragment: FragmentId,
    /// Items executed.
    pub items: u16,
    /// Length in 8-byte words, header included.
    pub words: u16,
    /// What it counts.
    pub adds: Adds,
}

/// Numbers given out across all fragments.
#[derive(Debug, Default)]
pub struct Tables {
    /// Ways out, by exit number minus one.
    pub exits: Vec<Exit>,
    /// Record shapes, by record number.
    pub records: Vec<RecordShape>,
}

impl Tables {
    /// The exit with number `id`; `None` for [`super::runtime::EXIT_INDIRECT`].
    pub fn exit(&self, id: u32) -> Option<&Exit> {
        self.exits.get((id as usize).checked_sub(1)?)
    }

    /// Notes that side exit `id` has code of its own: nothing comes out by it any more.
    pub fn set_built(&mut self, id: u32) {
        if let Some(Exit {
            kind: ExitKind::Side { field, .. },
            ..
        }) = self.exits.get_mut(id as usize - 1)
        {
            *field = 0;
        }
    }
}

/// A translated trace.
#[derive(Debug)]
pub struct Fragment {
    /// Original address of its head.
    pub ip: u64,
    /// Address of its hot code.
    pub hot: u64,
    /// Entry for canonical registers.
    pub entry: u64,
    /// Address of its cold code.
    pub cold: u64,
    /// Entry with [`Fragment::spare`] in use already.
    pub warm_entry: u64,
    /// The register that it leaves alone, for ours.
    pub spare: Gpr,
    /// Whether it ends where no register is left alone.
    pub starved: bool,
    /// Whether it ends in an indirect transfer.
    pub indirect: bool,
    /// Whether it is the target of one.
    pub targeted: bool,
    /// Entry for threads that may be bound for another address (`checked.rs`); made where it is a target.
    pub checked: Option<u64>,
    /// Displacement field of the jump that those take from there; `None` without such an entry, and once it leads to another's.
    pub elsewhere: Option<u64>,
    /// Where the code lies that it compares at every entry: nowhere if that cannot change.
    pub compared: Vec<Range<u64>>,
    /// The hot code that compares it.
    pub comparison: Range<u64>,
    /// Address of the byte by which the way out is skipped where the first of these are the same: with 0 there it is
    /// always taken. `None` when that is so.
    pub skips_exit: Option<u64>,
    /// Original address of each item.
    pub item_ips: Vec<u64>,
    /// Accesses in program order.
    pub accesses: Vec<LoggedAccess>,
    /// For each item, and one past the last, the index of its first access.
    pub first_access: Vec<u16>,
    /// Items up to and with each return that it follows.
    pub returns: Vec<u16>,
    /// Numbers of its exits.
    pub exits: Vec<u32>,
    /// Meaning of registers in the hot code.
    pub hot_states: StateMap,
    /// Meaning of registers in the cold code.
    pub cold_states: StateMap,
}

/// Code of a fragment, to be put at its addresses.
#[derive(Debug)]
pub struct FragmentCode {
    /// For [`Fragment::hot`].
    pub hot: Vec<u8>,
    /// For [`Fragment::cold`].
    pub cold: Vec<u8>,
}

/// Code being written, with the meaning of the registers in it.
#[derive(Debug)]
struct Stretch {
    asm: Asm,
    states: StateMap,
    duty: Duty,
}

impl Stretch {
    fn new(base: u64, ip: u64, duty: Duty) -> Stretch {
        Stretch {
            asm: Asm::new(base),
            states: StateMap::new(base, ip),
            duty,
        }
    }

    /// From here on, the registers mean `state`, and the state block is named as they allow.
    fn mark(&mut self, state: State) {
        self.asm.set_block(match state.spare {
            Spare::Block(gpr) => Some(gpr),
            Spare::Count(_) | Spare::Unused => None,
        });
        self.states.mark(self.asm.here(), state);
    }

    /// What registers mean inside a trace that leaves `spare` alone.
    fn inside(&self, spare: Gpr, ip: Ip, open: Option<usize>) -> State {
        State {
            ip,
            spilled: [spare].into_iter().collect(),
            spare: Spare::of(self.duty, spare),
            open: open.map(|done| done as u16),
            counted: false,
        }
    }
}

/// A displacement field, and the address it is to lead to.
type Patch = (u64, u64);

/// Bytes of a jump.
const JUMP_BYTES: i8 = 5;

/// Where the ways out of a fragment are written down.
struct Exits<'a> {
    id: FragmentId,
    runtime: &'a Runtime,
    tables: &'a mut Tables,
    numbers: Vec<u32>,
}

impl Exits<'_> {
    /// Code that puts the spare register back, tells why and leaves, at `state` (that register in use);
    /// returns its address and the exit's number. A direct exit can be patched twice: to skip
    /// all of it, or after the register is back. `target` is `None` where it is in its word already.
    fn pad(
        &mut self,
        out: &mut Stretch,
        spare: Gpr,
        mut state: State,
        target: Option<u64>,
        kind: ExitKind,
    ) -> (u64, u32) {
        let start = out.asm.here();
        out.mark(state);
        if out.duty == Duty::Count {
            out.asm.save(super::layout::state::LOG, spare);
        }
        out.asm.unspill(spare);
        state.spilled = GprSet::EMPTY;
        state.spare = Spare::Unused;
        out.mark(state);
        let field = out.asm.here() + 1;
        if matches!(kind, ExitKind::Direct { .. } | ExitKind::Changed { .. }) {
            out.asm.jump(field + 4);
        }
        out.asm.spill(Gpr::Rax);
        state.spilled.insert(Gpr::Rax);
        if let Some(target) = target {
            out.asm.constant(Gpr::Rax, target);
            out.mark(state);
            out.asm.save(super::layout::state::TARGET, Gpr::Rax);
        } else {
            out.mark(state);
        }
        let mut exit = Exit {
            fragment: self.id,
            kind,
        };
        if let ExitKind::Direct { cold_field, .. } | ExitKind::Changed { cold_field, .. } =
            &mut exit.kind
        {
            *cold_field = field;
        }
        self.tables.exits.push(exit);
        let number = self.tables.exits.len() as u32;
        out.asm.constant32(Gpr::Rax, number);
        out.asm.save(super::layout::state::EXIT, Gpr::Rax);
        out.asm.jump(self.runtime.exit);
        self.numbers.push(number);
        (start, number)
    }

    /// A pad for the end of the log, or of the count; a thread goes on at `resume` in the cache.
    fn full(&mut self, out: &mut Stretch, spare: Gpr, state: State, resume: u64) {
        let target = match state.ip {
            Ip::At(ip) => Some(ip),
            Ip::InRcx | Ip::InTarget => None,
        };
        self.pad(out, spare, state, target, ExitKind::Full { resume });
    }

    /// A pad for a direct target, whose jump at `field` is to skip it once there is a fragment.
    fn direct(&mut self, out: &mut Stretch, spare: Gpr, target: u64) -> (u64, u32) {
        let kind = ExitKind::Direct {
            target,
            warm_field: 0,
            cold_field: 0,
        };
        let state = out.inside(spare, Ip::At(target), None);
        self.pad(out, spare, state, Some(target), kind)
    }

    fn set_warm_field(&mut self, exit: u32, at: u64) {
        if let ExitKind::Direct { warm_field, .. } | ExitKind::Changed { warm_field, .. } =
            &mut self.tables.exits[exit as usize - 1].kind
        {
            *warm_field = at;
        }
    }

    fn set_side_field(&mut self, exit: u32, at: u64) {
        if let ExitKind::Side { field, .. } = &mut self.tables.exits[exit as usize - 1].kind {
            *field = at;
        }
    }
}

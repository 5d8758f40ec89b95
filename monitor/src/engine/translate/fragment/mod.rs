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
mod exits;
mod lookup;
mod scratch;
mod seldom;

pub use build::{Wanted, side, spare_candidates, translate};
pub use checked::{checked, lead_far};
pub use exits::{Adds, Exit, ExitKind, RecordShape, Tables};

use super::asm::Asm;
use super::duty::Duty;
use super::state::{Ip, Spare, State};
use super::states::{StateMap, States};
use super::values::Term;
use crate::arch::{Gpr, Kind};
use exits::Exits;
use std::ops::Range;

/// Index of a fragment.
pub type FragmentId = u32;

/// How the number or address of an access depends on more than base and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
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
/// `word[base] + word[index]*scale + disp`, as its [`Space`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedAccess {
    /// Constant part.
    pub disp: u64,
    /// What else there is to it.
    pub dynamic: Option<Box<Dynamic>>,
    /// Bytes.
    pub size: u16,
    /// Item of the trace.
    pub item: u8,
    /// Word of the base, 0 for none.
    pub base: u8,
    /// Word of the index, 0 for none.
    pub index: u8,
    /// Factor of the index.
    pub scale: u8,
    /// Where it is an address.
    pub space: Space,
    /// Direction.
    pub kind: Kind,
}

// There are a million of them in code caches of compilers.
const _: () = assert!(size_of::<LoggedAccess>() <= 24);

/// What becomes of the sum of an address's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// It is the address.
    Flat,
    /// The fs base is added.
    Fs,
    /// It is truncated to 32 bits.
    Low,
    /// Both, in this order.
    LowFs,
}

impl Space {
    /// The one of an instruction that names `fs`, or has 32-bit addresses.
    pub fn of(fs: bool, addr32: bool) -> Space {
        match (fs, addr32) {
            (false, false) => Space::Flat,
            (true, false) => Space::Fs,
            (false, true) => Space::Low,
            (true, true) => Space::LowFs,
        }
    }

    /// Whether the fs base is added.
    pub fn fs(self) -> bool {
        matches!(self, Space::Fs | Space::LowFs)
    }

    /// Whether the sum is truncated.
    pub fn wraps(self) -> bool {
        matches!(self, Space::Low | Space::LowFs)
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
    /// What it compares at every entry; `None` if its code cannot change.
    pub changing: Option<Box<Changing>>,
    /// Original address of each item, from its head on.
    pub items: Box<[i32]>,
    /// Accesses in program order.
    pub accesses: Box<[LoggedAccess]>,
    /// For each item, and one past the last, the index of its first access.
    pub first_access: Box<[u16]>,
    /// Items up to and with each return that it follows.
    pub returns: Box<[u16]>,
    /// Numbers of its exits.
    pub exits: Vec<u32>,
    /// Meaning of registers in the hot code.
    pub hot_states: States,
    /// Meaning of registers in the cold code.
    pub cold_states: States,
}

/// Code that a fragment compares with what it was made of.
#[derive(Debug)]
pub struct Changing {
    /// Where the code lies.
    pub compared: Vec<Range<u64>>,
    /// The hot code that compares it.
    pub comparison: Range<u64>,
    /// Address of the byte by which the way out is skipped where the first of these are the same: with 0 there it is
    /// always taken. `None` when that is so.
    pub skips_exit: Option<u64>,
}

impl Fragment {
    /// Original address of an item.
    pub fn item_ip(&self, item: usize) -> u64 {
        self.ip.wrapping_add_signed(i64::from(self.items[item]))
    }

    /// Original addresses of all of them.
    pub fn item_ips(&self) -> impl Iterator<Item = u64> {
        let ip = self.ip;
        self.items
            .iter()
            .map(move |&from| ip.wrapping_add_signed(i64::from(from)))
    }

    /// [`Changing::skips_exit`].
    pub fn skips_exit(&self) -> Option<u64> {
        self.changing.as_ref()?.skips_exit
    }

    /// What the registers mean at an address of its code, hot or cold.
    pub fn state(&self, is_hot: bool, address: u64) -> Option<State> {
        match is_hot {
            true => self.hot_states.at((self.hot, self.ip), address),
            false => self.cold_states.at((self.cold, self.ip), address),
        }
    }
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
            cut: false,
        }
    }
}

/// A displacement field, and the address it is to lead to.
type Patch = (u64, u64);

/// Bytes of a jump.
const JUMP_BYTES: i8 = 5;

//! What an instruction in the code cache is there for, told by its form and by what its registers hold.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, MemorySize, Mnemonic, Register};
use statcache::engine::translate::layout::{self, state};
use std::ops::Range;

/// What processor time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The program outside of the cache.
    Native,
    /// Copies of the program's own instructions.
    Own,
    /// Values written to the log.
    Records,
    /// Is the record kept: the filter, counts, and registers put away for it.
    Checks,
    /// From one fragment to the next: indirect branches, and jumps that the program does not have.
    Transfers,
    /// The kernel, for the program: its own calls, and its stops.
    Kernel,
    /// The profiler: fragments.
    Translation,
    /// The profiler: records read, addresses computed, samples and watches.
    Reading,
    /// The profiler: all else but the kernel.
    Rest,
    /// The kernel, for the profiler: mostly stops.
    Stops,
}

impl Class {
    pub const ALL: [(Class, &str); 10] = [
        (Class::Native, "native"),
        (Class::Own, "own"),
        (Class::Records, "records"),
        (Class::Checks, "checks"),
        (Class::Transfers, "transfers"),
        (Class::Kernel, "kernel"),
        (Class::Translation, "translation"),
        (Class::Reading, "reading"),
        (Class::Rest, "rest"),
        (Class::Stops, "stops"),
    ];
}

/// Instructions looked at to see what registers are put away for.
const AHEAD: usize = 12;
/// The same for a sum of registers, which programs use as well.
const AHEAD_OF_SUM: usize = 3;

/// Class of the instruction at the beginning of `code`, in the code cache, whose data lies in `data`; `register` gives
/// what general registers hold.
pub fn in_cache(
    code: &[u8],
    data: &[Range<u64>],
    register: impl Fn(Register) -> Option<u64>,
) -> Class {
    let ours = |at: Register| {
        register(at.full_register()).is_some_and(|value| data.iter().any(|r| r.contains(&value)))
    };
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let first = decoder.decode();
    if first.flow_control() == FlowControl::UnconditionalBranch {
        return Class::Transfers;
    }
    let is_sum = first.mnemonic() == Mnemonic::Lea;
    let ahead = if is_sum { AHEAD_OF_SUM } else { AHEAD };
    let mut at = first;
    for _ in 0..ahead {
        let block = is_block(register(at.memory_base().full_register()));
        match purpose(&at, &ours, block) {
            Purpose::Told(class) => return class,
            Purpose::Open => at = decoder.decode(),
            Purpose::None => break,
        }
    }
    // Registers put back, and the count, behind a check: most of what is left.
    let state = first.memory_segment() == Register::GS
        || matches!(first.mnemonic(), Mnemonic::Jrcxz | Mnemonic::Loop)
        || has_memory(&first) && is_block(register(first.memory_base().full_register()));
    if state { Class::Checks } else { Class::Own }
}

enum Purpose {
    Told(Class),
    /// To be seen by what follows.
    Open,
    /// The program's.
    None,
}

fn has_memory(instr: &Instruction) -> bool {
    instr.memory_size() != MemorySize::Unknown && instr.mnemonic() != Mnemonic::Lea
}

/// Whether a register of this value points to the state block: that lies so far behind a multiple of 4 GiB (`layout.rs`).
fn is_block(value: Option<u64>) -> bool {
    value.is_some_and(|value| value % layout::END_ALIGN == layout::SLACK)
}

/// `block`: the register that its memory goes by points to the state block.
fn purpose(instr: &Instruction, ours: &impl Fn(Register) -> bool, block: bool) -> Purpose {
    let has_memory = has_memory(instr);
    if has_memory && instr.memory_segment() == Register::GS {
        let indexed = instr.memory_base() != Register::None;
        return match (instr.mnemonic(), instr.memory_size()) {
            (Mnemonic::Pext, _) => Purpose::Told(Class::Checks),
            (Mnemonic::Movzx, MemorySize::UInt8) => Purpose::Told(Class::Checks),
            (Mnemonic::Movzx, _) | (Mnemonic::Jmp, _) => Purpose::Told(Class::Transfers),
            _ if indexed => Purpose::Told(Class::Transfers),
            _ => Purpose::Open,
        };
    }
    if has_memory && ours(instr.memory_base()) {
        let is_store = instr.op0_register() == Register::None;
        let at = instr.memory_displacement64() as i32;
        let record = state::record(0)..state::record(layout::MAX_RECORD_QWORDS);
        if block && !record.contains(&at) {
            return match at {
                state::TARGET => Purpose::Told(Class::Transfers),
                _ if is_store => Purpose::Open,
                _ => Purpose::Told(Class::Checks),
            };
        }
        let class = if is_store {
            Class::Records
        } else {
            Class::Checks
        };
        return Purpose::Told(class);
    }
    match instr.mnemonic() {
        Mnemonic::Lea | Mnemonic::Jrcxz | Mnemonic::Loop => Purpose::Open,
        _ => Purpose::None,
    }
}

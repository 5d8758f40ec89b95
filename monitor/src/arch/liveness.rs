//! Which flags and general-purpose registers an instruction reads, changes and surely overwrites.
//!
//! "Killed" means: after the instruction the old value is gone whatever the data, so it may be destroyed before. It
//! is stricter than "written": a shift by `cl` or a `rep` may leave the flags alone, and flags that the manuals
//! call undefined may in fact be left alone, so neither kills.
//!
//! All of it holds for an instruction that completes. Where one faults, the old values are visible to a signal
//! handler: whoever destroyed them must be able to rebuild them.

use super::{Flow, Gpr, GprSet, classify};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, RflagsBits};

/// The arithmetic flags: OF, SF, ZF, AF, CF, PF, as [`RflagsBits`].
pub const STATUS_FLAGS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// Every flag that [`RflagsBits`] knows of in rflags itself.
const ALL_FLAGS: u32 = STATUS_FLAGS | RflagsBits::DF | RflagsBits::IF | RflagsBits::AC;

/// Flags the instruction reads, as [`RflagsBits`]. All of them where control leaves user code (`syscall` puts them
/// into r11) or is not understood.
pub fn flags_read(instruction: &Instruction) -> u32 {
    match instruction.mnemonic() {
        Mnemonic::Pushf | Mnemonic::Pushfq => ALL_FLAGS,
        _ if leaves(instruction) => ALL_FLAGS,
        _ => instruction.rflags_read(),
    }
}

/// Flags that may differ afterwards, undefined ones included.
pub fn flags_modified(instruction: &Instruction) -> u32 {
    if leaves(instruction) {
        ALL_FLAGS
    } else {
        instruction.rflags_modified()
    }
}

/// Flags that are surely overwritten with a defined value.
pub fn flags_killed(instruction: &Instruction) -> u32 {
    if leaves(instruction) || conditional_flags(instruction) {
        return 0;
    }
    let defined =
        instruction.rflags_written() | instruction.rflags_cleared() | instruction.rflags_set();
    defined & !instruction.rflags_undefined()
}

/// Flags live before `instruction`, given those live after it. A flag outside of the result may be destroyed there.
pub fn flags_live_before(instruction: &Instruction, live_after: u32) -> u32 {
    live_after & !flags_killed(instruction) | flags_read(instruction)
}

/// Registers whose old value the instruction uses: operands, address registers, implicit ones, and the
/// destinations of partial (8- and 16-bit) and conditional writes. All where control leaves user code or is not understood.
pub fn gprs_read(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> GprSet {
    gprs_read_and_written(instruction, factory).0
}

/// Registers that may have another value afterwards. A 32-bit write is one of the full register.
pub fn gprs_written(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> GprSet {
    gprs_read_and_written(instruction, factory).1
}

/// Registers that are surely overwritten without being read: their old value is dead before.
pub fn gprs_killed(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> GprSet {
    let (read, written) = gprs_read_and_written(instruction, factory);
    written.without(read)
}

/// Registers live before `instruction`, given those live after it.
pub fn gprs_live_before(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    live_after: GprSet,
) -> GprSet {
    let (read, written) = gprs_read_and_written(instruction, factory);
    live_after.without(written).union(read)
}

/// As [`gprs_read`] and [`gprs_written`], at the price of one.
pub fn gprs_read_and_written(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
) -> (GprSet, GprSet) {
    if leaves(instruction) {
        return (GprSet::ALL, GprSet::ALL);
    }
    // Where shadow stacks are off these do nothing (Intel SDM vol. 2, RDSSPD/RDSSPQ).
    let may_do_nothing = matches!(instruction.mnemonic(), Mnemonic::Rdsspd | Mnemonic::Rdsspq);
    let (mut read, mut written) = (GprSet::EMPTY, GprSet::EMPTY);
    for used in factory.info(instruction).used_registers() {
        let Some(gpr) = Gpr::containing(used.register()) else {
            continue;
        };
        let (reads, writes, certain) = match used.access() {
            OpAccess::None | OpAccess::NoMemAccess => (false, false, true),
            OpAccess::Read | OpAccess::CondRead => (true, false, true),
            OpAccess::Write => (false, true, true),
            OpAccess::CondWrite => (false, true, false),
            OpAccess::ReadWrite => (true, true, true),
            OpAccess::ReadCondWrite => (true, true, false),
        };
        let partial = used.register().size() < 4 || may_do_nothing;
        if reads || writes && (partial || !certain) {
            read.insert(gpr);
        }
        if writes {
            written.insert(gpr);
        }
    }
    (read, written)
}

fn leaves(instruction: &Instruction) -> bool {
    matches!(classify(instruction), Flow::Syscall | Flow::Decline(_))
}

/// Whether the instruction may leave all its flags as they were.
fn conditional_flags(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    match instruction.mnemonic() {
        // Rotates through carry take their count modulo the width plus one, which may be zero as well.
        Rcl | Rcr => true,
        Shl | Shr | Sar | Sal | Rol | Ror | Shld | Shrd => {
            let count = instruction.op_count() - 1;
            // A count of zero (after masking by 31, or 63 for 64-bit operands) changes no flag. Masking by 31 for all
            // takes a 64-bit shift by 32 for one by 0, which errs on the safe side.
            !(instruction.op_kind(count) == OpKind::Immediate8
                && instruction.immediate8() & 0x1f != 0)
        }
        _ => {
            instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
        }
    }
}

//! The accesses of string, gather and scatter instructions.

use super::describe::{memory_operand, segment, unsupported};
use super::{Access, AddressExpr, Gpr, Kind, Mask, RepCondition, Shape, Unsupported};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// `[rsi]` or `[rdi]` of a string instruction, in the width that the operand kind says.
pub(super) fn string_operand(
    instruction: &Instruction,
    kind: OpKind,
) -> Result<AddressExpr, Unsupported> {
    // The segment of the destination of a string instruction cannot be overridden; that of `maskmov` can.
    let (base, addr32, fs) = match kind {
        OpKind::MemorySegRSI => (Gpr::Rsi, false, segment(instruction)?),
        OpKind::MemorySegESI => (Gpr::Rsi, true, segment(instruction)?),
        OpKind::MemorySegRDI => (Gpr::Rdi, false, segment(instruction)?),
        OpKind::MemorySegEDI => (Gpr::Rdi, true, segment(instruction)?),
        OpKind::MemoryESRDI => (Gpr::Rdi, false, false),
        OpKind::MemoryESEDI => (Gpr::Rdi, true, false),
        _ => return unsupported("string operand"),
    };
    Ok(AddressExpr {
        fs,
        addr32,
        ..AddressExpr::of(base, 0)
    })
}

pub(super) fn string(instruction: &Instruction, out: &mut Vec<Access>) -> Result<(), Unsupported> {
    use Mnemonic::*;
    let size = instruction.memory_size().size() as u32;
    let mnemonic = instruction.mnemonic();
    let compares = matches!(
        mnemonic,
        Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq
    );
    let rep = match (instruction.has_rep_prefix(), instruction.has_repne_prefix()) {
        (false, false) => None,
        _ if !compares => Some(RepCondition::None),
        (true, _) => Some(RepCondition::WhileEqual),
        _ => Some(RepCondition::WhileNotEqual),
    };
    for (operand, is_destination) in [
        (source_operand(instruction), false),
        (destination_operand(instruction), true),
    ] {
        let Some(operand) = operand else { continue };
        let address = string_operand(instruction, operand)?;
        let stores = is_destination && !compares;
        out.push(Access {
            address,
            size,
            kind: if stores { Kind::Store } else { Kind::Load },
            shape: match rep {
                None => Shape::Plain,
                Some(condition) => Shape::Rep {
                    counter32: address.addr32,
                    condition,
                    step: size as u8,
                },
            },
        });
    }
    Ok(())
}

fn source_operand(instruction: &Instruction) -> Option<OpKind> {
    instruction.op_kinds().find(|kind| {
        matches!(
            kind,
            OpKind::MemorySegRSI | OpKind::MemorySegESI | OpKind::MemorySegSI
        )
    })
}

fn destination_operand(instruction: &Instruction) -> Option<OpKind> {
    instruction.op_kinds().find(|kind| {
        matches!(
            kind,
            OpKind::MemoryESRDI | OpKind::MemoryESEDI | OpKind::MemoryESDI
        )
    })
}

pub(super) fn gather(instruction: &Instruction, out: &mut Vec<Access>) -> Result<(), Unsupported> {
    use Mnemonic::*;
    let (index_bytes, element_bytes) = match instruction.mnemonic() {
        Vgatherdps | Vpgatherdd | Vscatterdps | Vpscatterdd => (4, 4),
        Vgatherdpd | Vpgatherdq | Vscatterdpd | Vpscatterdq => (4, 8),
        Vgatherqps | Vpgatherqd | Vscatterqps | Vpscatterqd => (8, 4),
        _ => (8, 8),
    };
    let scatter = instruction.op0_kind() == OpKind::Memory;
    let data = if scatter {
        instruction.op1_register()
    } else {
        instruction.op0_register()
    };
    let mask = if instruction.op_mask() != Register::None {
        Mask::K(instruction.op_mask().number() as u8)
    } else if instruction.op_count() == 3 && instruction.op2_kind() == OpKind::Register {
        Mask::Vector(instruction.op2_register().number() as u8)
    } else {
        return unsupported("gather without mask");
    };
    let index = instruction.memory_index();
    if !index.is_vector_register() || !data.is_vector_register() {
        return unsupported("gather without vector index");
    }
    // The wider of the two vectors is full; a vector of narrower elements has the same number of lanes.
    let widest = index.size().max(data.size());
    let lanes = (widest / usize::from(index_bytes.max(element_bytes))) as u8;
    out.push(Access {
        address: AddressExpr {
            scale: 1,
            ..memory_operand(instruction)?
        },
        size: u32::from(element_bytes),
        kind: if scatter { Kind::Store } else { Kind::Load },
        shape: Shape::Gather {
            index: index.number() as u8,
            lanes,
            index_bytes,
            element_bytes,
            scale: instruction.memory_index_scale() as u8,
            mask,
            scatter,
        },
    });
    Ok(())
}

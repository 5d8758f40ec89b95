//! Which memory accesses one instruction makes.
//!
//! Most are its explicit memory operands; the others are spelled out here. A last check compares the number found with
//! the decoder library's own list, so that an implicit operand nobody thought of is refused, not lost.
//!
//! Source: Intel SDM volume 2, the operation section of each instruction.

use super::multiple::{gather, string, string_operand};
use super::{Access, AddressExpr, Gpr, Kind, Shape, Unsupported, xrstor_bytes, xsave_bytes};
use iced_x86::{
    Code, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};

pub(super) const fn unsupported<T>(reason: &'static str) -> Result<T, Unsupported> {
    Err(Unsupported { reason })
}

/// Replaces the content of `out` by the accesses of `instruction`, in program order: what it loads before what it
/// stores.
///
/// `factory` is the decoder library's scratch space. The instruction must have been decoded in 64-bit mode at its
/// own address.
///
/// # Errors
/// [`Unsupported`] for invalid and privileged instructions, far transfers, gs-relative operands, writes of segment
/// registers, and the rare operands whose width or place depends on state that is not visible from user mode. `out` is
/// then empty.
pub fn accesses(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    out: &mut Vec<Access>,
) -> Result<(), Unsupported> {
    out.clear();
    let result = describe(instruction, factory, out);
    if result.is_err() {
        out.clear();
    }
    result
}

fn describe(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    out: &mut Vec<Access>,
) -> Result<(), Unsupported> {
    use Mnemonic::*;
    if instruction.is_invalid() {
        return unsupported("invalid instruction");
    }
    if instruction.is_privileged() {
        return unsupported("privileged instruction");
    }
    let stack_move = instruction.stack_pointer_increment();
    match instruction.mnemonic() {
        Push | Pushf | Pushfq => {
            explicit(instruction, factory, 0, out)?;
            out.push(stack(Kind::Store, i64::from(stack_move), -stack_move));
        }
        Pop | Popf | Popfq => pop(instruction, stack_move, out)?,
        Call => {
            if !matches!(instruction.code(), Code::Call_rel32_64 | Code::Call_rm64) {
                return unsupported("far or 16-bit call");
            }
            explicit(instruction, factory, 0, out)?;
            out.push(stack(Kind::Store, -8, 8));
        }
        Ret => {
            if !matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) {
                return unsupported("16-bit return");
            }
            out.push(stack(Kind::Load, 0, 8));
        }
        Enter => {
            if instruction.code() != Code::Enterq_imm16_imm8 || instruction.immediate8_2nd() != 0 {
                return unsupported("enter with nesting level or 16-bit operand");
            }
            out.push(stack(Kind::Store, -8, 8));
        }
        Leave => {
            let size = if instruction.code() == Code::Leavew {
                2
            } else {
                8
            };
            out.push(Access {
                address: AddressExpr::of(Gpr::Rbp, 0),
                ..stack(Kind::Load, 0, size)
            });
        }
        Movsb | Movsw | Movsd | Movsq | Cmpsb | Cmpsw | Cmpsd | Cmpsq | Stosb | Stosw | Stosd
        | Stosq | Lodsb | Lodsw | Lodsd | Lodsq | Scasb | Scasw | Scasd | Scasq
            if instruction.is_string_instruction() =>
        {
            string(instruction, out)?
        }
        Bt | Bts | Btr | Btc
            if instruction.op0_kind() == OpKind::Memory
                && instruction.op1_kind() == OpKind::Register =>
        {
            explicit(instruction, factory, 0, out)?;
            let offset = instruction.op1_register();
            let Some(gpr) = Gpr::containing(offset) else {
                return unsupported("bit offset not in a general register");
            };
            out[0].shape = Shape::BitOffset {
                offset: gpr,
                operand_bytes: offset.size() as u8,
            };
        }
        Xlatb => {
            let address = AddressExpr {
                index: None,
                ..memory_operand(instruction)?
            };
            out.push(Access {
                address,
                size: 1,
                kind: Kind::Load,
                shape: Shape::Xlat,
            });
        }
        Maskmovq | Maskmovdqu | Vmaskmovdqu => {
            let address = string_operand(instruction, instruction.op0_kind())?;
            let size = if instruction.mnemonic() == Maskmovq {
                8
            } else {
                16
            };
            out.push(Access {
                address,
                size,
                kind: Kind::Store,
                shape: Shape::MaskMov,
            });
        }
        Movdir64b => {
            let pointer = instruction.op0_register();
            let address = AddressExpr {
                addr32: pointer.size() == 4,
                ..AddressExpr::of(Gpr::containing(pointer).expect("a general register"), 0)
            };
            out.push(Access {
                address: memory_operand(instruction)?,
                ..stack(Kind::Load, 0, 64)
            });
            out.push(Access {
                address,
                ..stack(Kind::Store, 0, 64)
            });
        }
        Vgatherdps | Vgatherdpd | Vgatherqps | Vgatherqpd | Vpgatherdd | Vpgatherdq
        | Vpgatherqd | Vpgatherqq | Vscatterdps | Vscatterdpd | Vscatterqps | Vscatterqpd
        | Vpscatterdd | Vpscatterdq | Vpscatterqd | Vpscatterqq => gather(instruction, out)?,
        // Hints to the cache: no data reference.
        Prefetch | Prefetchw | Prefetchwt1 | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2
        | Prefetchit0 | Prefetchit1 | Cldemote => {}
        // No more these, but they fault where there is no memory, and so may not go by another base of `gs`.
        Clflush | Clflushopt | Clwb => {
            memory_operand(instruction)?;
        }
        _ => other(instruction, factory, out)?,
    }
    Ok(())
}

/// Everything whose accesses are its explicit memory operands.
fn other(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    out: &mut Vec<Access>,
) -> Result<(), Unsupported> {
    if let Some(reason) = refused(instruction) {
        return unsupported(reason);
    }
    for operand in 0..instruction.op_count() {
        explicit(instruction, factory, operand, out)?;
    }
    // The safety net: an implicit operand that nobody described above.
    let known = factory
        .info(instruction)
        .used_memory()
        .iter()
        .filter(|memory| kind_of(memory.access()).is_some())
        .count();
    if known != out.len() {
        return unsupported("implicit memory operand");
    }
    Ok(())
}

/// Instructions that decode and are not privileged, but whose effect on memory or segments is not followed.
fn refused(instruction: &Instruction) -> Option<&'static str> {
    use Mnemonic::*;
    let segment_written =
        instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register && {
            let register = instruction.op0_register();
            register.is_segment_register()
        };
    Some(match instruction.mnemonic() {
        Mov if segment_written => "segment register written",
        Lfs | Lgs | Lss => "segment register written",
        Jmp if !matches!(
            instruction.code(),
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Jmp_rm64
        ) =>
        {
            "far or 16-bit jump"
        }
        Iret | Iretd | Iretq | Retf | Sysexit | Sysexitq | Sysret | Sysretq | Uiret => "far return",
        Sgdt | Sidt | Sldt | Str | Smsw => "descriptor table read",
        Bndldx | Bndstx | Bndmov | Bndcl | Bndcn | Bndcu | Bndmk => "bound register",
        Incsspd | Incsspq | Saveprevssp | Rstorssp | Wrssd | Wrssq | Wrussd | Wrussq | Setssbsy
        | Clrssbsy => "shadow stack",
        Monitor | Monitorx | Umonitor | Clzero | Enqcmd | Enqcmds => {
            "operand placed by an address register"
        }
        Tileloadd | Tileloaddt1 | Tilestored | Ldtilecfg | Sttilecfg => "tile register",
        Llwpcb | Slwpcb | Lwpins | Lwpval => "lightweight profiling",
        Enclu | Getsec | Vmcall | Vmmcall | Vmfunc | Vmgexit => "enclave or hypervisor call",
        Senduipi | Clui | Stui | Testui => "user interrupt",
        _ => return None,
    })
}

/// Appends operand `index` of `instruction` if it is an accessed memory operand.
fn explicit(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    index: u32,
    out: &mut Vec<Access>,
) -> Result<(), Unsupported> {
    if index >= instruction.op_count() || instruction.op_kind(index) != OpKind::Memory {
        return Ok(());
    }
    let Some(kind) = kind_of(factory.info(instruction).op_access(index)) else {
        return Ok(());
    };
    let size = operand_bytes(instruction)?;
    out.push(Access {
        address: memory_operand(instruction)?,
        size,
        kind,
        shape: Shape::Plain,
    });
    Ok(())
}

/// `None` for operands that are addressed but not accessed (`lea`, `nop`).
fn kind_of(access: OpAccess) -> Option<Kind> {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => None,
        OpAccess::Read | OpAccess::CondRead => Some(Kind::Load),
        OpAccess::Write | OpAccess::CondWrite => Some(Kind::Store),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Kind::ReadWrite),
    }
}

fn operand_bytes(instruction: &Instruction) -> Result<u32, Unsupported> {
    let size = match instruction.memory_size() {
        MemorySize::Xsave | MemorySize::Xsave64 => {
            use Mnemonic::*;
            match instruction.mnemonic() {
                Xrstor | Xrstor64 => xrstor_bytes(),
                Xsavec | Xsavec64 | Xsaves | Xsaves64 | Xrstors | Xrstors64 => xsave_bytes(true),
                _ => xsave_bytes(false),
            }
        }
        memory_size => memory_size.size() as u32,
    };
    if size == 0 {
        return unsupported("operand of unknown width");
    }
    Ok(size)
}

/// The address of the explicit memory operand, without a vector index.
pub(super) fn memory_operand(instruction: &Instruction) -> Result<AddressExpr, Unsupported> {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let relative = instruction.is_ip_rel_memory_operand();
    let addr32 = base.is_gpr32()
        || index.is_gpr32()
        || base == Register::EIP
        || (base == Register::None && instruction.memory_displ_size() == 4);
    let disp = if relative {
        instruction.ip_rel_memory_address()
    } else {
        instruction.memory_displacement64()
    };
    Ok(AddressExpr {
        base: Gpr::containing(base),
        index: Gpr::containing(index),
        scale: if index == Register::None {
            1
        } else {
            instruction.memory_index_scale() as u8
        },
        // The decoder zero-extends displacements of 32-bit addresses; the truncation makes both the same.
        disp: if addr32 {
            i64::from(disp as i32)
        } else {
            disp as i64
        },
        fs: segment(instruction)?,
        addr32,
    })
}

/// Whether the fs base is part of the address of operands that a segment prefix applies to.
pub(super) fn segment(instruction: &Instruction) -> Result<bool, Unsupported> {
    match instruction.memory_segment() {
        Register::GS => unsupported("gs-relative operand"),
        Register::FS => Ok(true),
        _ => Ok(false),
    }
}

fn stack(kind: Kind, disp: i64, size: i32) -> Access {
    Access {
        address: AddressExpr::of(Gpr::Rsp, disp),
        size: size as u32,
        kind,
        shape: Shape::Plain,
    }
}

fn pop(
    instruction: &Instruction,
    stack_move: i32,
    out: &mut Vec<Access>,
) -> Result<(), Unsupported> {
    if instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_segment_register()
    {
        return unsupported("segment register written");
    }
    out.push(stack(Kind::Load, 0, stack_move));
    if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory {
        // The address is computed after the stack pointer moved (SDM, POP).
        let mut address = memory_operand(instruction)?;
        if address.base == Some(Gpr::Rsp) {
            address.disp += i64::from(stack_move);
        }
        out.push(Access {
            address,
            ..stack(Kind::Store, 0, stack_move)
        });
    }
    Ok(())
}

//! Where control goes after an instruction, and which instructions no engine takes over.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};

/// Flags that would hinder the code of a code cache, or that it does not allow for: traps (TF), strings downwards (DF), nested tasks (NT) and
/// checks of alignment (AC); Intel SDM vol. 1, 3.4.3.
pub const HINDERING_FLAGS: u32 = 1 << 8 | 1 << 10 | 1 << 14 | 1 << 18;

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// To the following instruction.
    Next,
    /// To `target`.
    Jump {
        /// Address in the process.
        target: u64,
    },
    /// To `target` or to the following instruction, by flags.
    CondJump {
        /// Address in the process.
        target: u64,
    },
    /// As `CondJump`, for `loop`, `loope`, `loopne`, `jrcxz`, `jecxz`: decided by rcx or ecx, short range only.
    LoopOrJrcxz {
        /// Address in the process.
        target: u64,
    },
    /// To `target`, the address of the following instruction pushed.
    Call {
        /// Address in the process.
        target: u64,
    },
    /// To where a register or memory operand says.
    IndirectJump,
    /// To where a register or memory operand says, the address of the following instruction pushed.
    IndirectCall,
    /// To the address popped from the stack.
    Ret {
        /// Bytes of arguments dropped from the stack besides.
        pop: u16,
    },
    /// To the following instruction, where the flags popped have none of [`HINDERING_FLAGS`]; else to be executed natively.
    PopFlags,
    /// Into the kernel by `syscall`.
    Syscall,
    /// To be executed natively, outside of any engine; the reason as a lower-case fragment.
    Decline(&'static str),
}

/// Where control goes after `instruction`, or that it must be executed natively.
///
/// What [`super::accesses`] refuses is another matter: callers ask both.
pub fn classify(instruction: &Instruction) -> Flow {
    if let Some(reason) = declined(instruction) {
        return Flow::Decline(reason);
    }
    let near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    let target = if near { instruction.near_branch64() } else { 0 };
    match instruction.flow_control() {
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Popfq => Flow::PopFlags,
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch if near => Flow::Jump { target },
        FlowControl::ConditionalBranch if near => {
            if instruction.is_jcc_short_or_near() {
                Flow::CondJump { target }
            } else if instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short()
            {
                match instruction.code() {
                    Code::Loop_rel8_64_ECX
                    | Code::Loop_rel8_64_RCX
                    | Code::Loope_rel8_64_ECX
                    | Code::Loope_rel8_64_RCX
                    | Code::Loopne_rel8_64_ECX
                    | Code::Loopne_rel8_64_RCX
                    | Code::Jecxz_rel8_64
                    | Code::Jrcxz_rel8_64 => Flow::LoopOrJrcxz { target },
                    _ => Flow::Decline("16-bit branch"),
                }
            } else {
                Flow::Decline("unknown branch")
            }
        }
        FlowControl::IndirectBranch if instruction.code() == Code::Jmp_rm64 => Flow::IndirectJump,
        FlowControl::IndirectCall if instruction.code() == Code::Call_rm64 => Flow::IndirectCall,
        FlowControl::Call if near && instruction.mnemonic() == Mnemonic::Call => {
            Flow::Call { target }
        }
        FlowControl::Call if instruction.code() == Code::Syscall => Flow::Syscall,
        FlowControl::Return => match instruction.code() {
            Code::Retnq => Flow::Ret { pop: 0 },
            Code::Retnq_imm16 => Flow::Ret {
                pop: instruction.immediate16(),
            },
            _ => Flow::Decline("far or 16-bit return"),
        },
        FlowControl::Interrupt => Flow::Decline("software interrupt"),
        FlowControl::Exception => Flow::Decline("invalid instruction"),
        _ => Flow::Decline("far or 16-bit transfer"),
    }
}

/// Instructions that do something to the thread which outlives them and which an engine would have to hide or follow.
fn declined(instruction: &Instruction) -> Option<&'static str> {
    use Mnemonic::*;
    if instruction.is_privileged() {
        return Some("privileged instruction");
    }
    let writes_segment = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_segment_register();
    Some(match instruction.mnemonic() {
        Rdgsbase | Wrgsbase | Wrfsbase | Swapgs => "segment base",
        Mov | Pop if writes_segment => "segment register written",
        Lfs | Lgs | Lss => "segment register written",
        Popf => "flags popped",
        Std => "direction flag set",
        Xbegin | Xend | Xabort | Xtest => "memory transaction",
        Bndldx | Bndstx | Bndmov | Bndcl | Bndcn | Bndcu | Bndmk => "bound register",
        Incsspd | Incsspq | Saveprevssp | Rstorssp | Wrssd | Wrssq | Wrussd | Wrussq | Setssbsy
        | Clrssbsy => "shadow stack",
        Enclu | Getsec | Vmfunc => "enclave or hypervisor call",
        Uiret | Senduipi | Clui | Stui | Testui => "user interrupt",
        Llwpcb | Slwpcb | Lwpins | Lwpval => "lightweight profiling",
        _ => return None,
    })
}

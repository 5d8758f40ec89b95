//! `pushf` and `popf`, carried out in the thread's stead.
//!
//! Stepped, `pushf` would store our trap flag. And after a stepped `popf` the kernel takes the trap flag of the steps that
//! follow for the program's own, and leaves it set when the window is over (`enable_single_step` and
//! `is_setting_trap_flag` in arch/x86/kernel/step.c).

use super::decode::{LONGEST, read_code};
use crate::tracee::{Regs, Result, Stopped, is_fault};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// TF.
const TRAP: u64 = 0x100;
/// ID, which user code may change but a tracer cannot.
const ID: u64 = 0x20_0000;
/// What both `popf` and a tracer may set: CF, PF, AF, ZF, SF, DF, OF, NT, AC. Source: Intel SDM volume 2, POPF;
/// `FLAG_MASK` in arch/x86/kernel/ptrace.c.
const SETTABLE: u64 = 0x4_4cd5;
/// RF and VM, stored as zero. Source: Intel SDM volume 2, PUSHF.
const NOT_STORED: u64 = 0x3_0000;

/// Which of the two, with the bytes of its operand.
#[derive(Clone, Copy, Debug)]
pub enum FlagsWord {
    /// `pushf`
    Push(u64),
    /// `popf`
    Pop(u64),
}

/// Whether a thread that stopped for `signal` can be single-stepped to the start of its handler; a `popf` that it stands at is carried
/// out for that.
///
/// For the same reason as above the trap flag of a step into a handler is not taken out of the flags that the kernel saves where the
/// interrupted instruction is `popf` or `iret`: the handler would return with it set, and the program die by it.
pub fn may_be_stepped_into_handler(stopped: &Stopped, signal: i32) -> Result<bool> {
    let regs = stopped.regs()?;
    let mut bytes = [0; LONGEST];
    let read = read_code(stopped, regs.rip, &mut bytes);
    let code = bytes.get(..read).unwrap_or(&[]);
    let instruction = Decoder::with_ip(64, code, regs.rip, DecoderOptions::NONE).decode();
    let word = match instruction.mnemonic() {
        Mnemonic::Popfq => FlagsWord::Pop(8),
        Mnemonic::Popf => FlagsWord::Pop(2),
        Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => return Ok(false),
        _ => return Ok(true),
    };
    // Behind a system call that may be made again it is not yet its turn.
    let is_behind_call = regs.orig_rax as i64 >= 0;
    Ok(!is_fault(signal)
        && !is_behind_call
        && word.carry_out(stopped, &regs, instruction.len() as u64)?)
}

impl FlagsWord {
    /// Carries out the instruction of `len` bytes at `regs.rip`. Tells whether it could: the stack may be unreachable, or the
    /// word hold something that only the processor can do.
    pub fn carry_out(self, stopped: &Stopped, regs: &Regs, len: u64) -> Result<bool> {
        let mut after = *regs;
        after.rip += len;
        after.orig_rax = u64::MAX;
        match self {
            FlagsWord::Push(bytes) => {
                let word = (regs.eflags & !(NOT_STORED | TRAP)).to_le_bytes();
                after.rsp = after.rsp.wrapping_sub(bytes);
                // Memory first: if the monitor dies in between, the instruction is executed again and stores the same.
                if stopped.write(after.rsp, &word[..bytes as usize]).is_err() {
                    return Ok(false);
                }
            }
            FlagsWord::Pop(bytes) => {
                let mut word = [0; 8];
                if stopped.read(regs.rsp, &mut word[..bytes as usize]).is_err() {
                    return Ok(false);
                }
                let word = u64::from_le_bytes(word);
                let changed = if bytes == 8 { word ^ regs.eflags } else { 0 };
                if word & TRAP != 0 || changed & ID != 0 {
                    return Ok(false);
                }
                let settable = if bytes == 8 {
                    SETTABLE
                } else {
                    SETTABLE & 0xffff
                };
                after.rsp = after.rsp.wrapping_add(bytes);
                after.eflags = regs.eflags & !settable | word & settable;
            }
        }
        stopped.set_regs(&after)?;
        Ok(true)
    }
}

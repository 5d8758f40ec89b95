//! Which registers the code around an address uses: the spare register is to be one that the traces to come leave alone
//! too, for to bring it from one to another, and the program's own values back, takes round trips through memory at every
//! turn of a loop. (Random look-ups in a table took 1.48 times their native time in copies that only count where a sum and the
//! spare register changed, 1.21 times without; an interpreter and a solver 1.5 to 1.6 times either way.)

use super::super::trace::Code;
use crate::arch::{Gpr, GprSet};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use rustc_hash::FxHashMap;

/// Bytes of code from one look to the next; how many before and behind are looked at too.
const GRANULE: u64 = 1024;
const BEFORE: u64 = 128;
const BEHIND: u64 = 128;
/// Bytes after which decoding from anywhere has fallen into step, as a rule.
const IN_STEP: u64 = 32;

/// By code, how many instructions near it name each register.
#[derive(Debug, Default)]
pub struct Usage {
    by_granule: FxHashMap<u64, [u16; 16]>,
}

impl Usage {
    /// For each register how many of the instructions around `ip`, in the order of their addresses, name it. Not all of it
    /// need be code: whatever it is, only the choice of a register depends on it.
    pub fn near(&mut self, ip: u64, code: &mut impl Code) -> &[u16; 16] {
        let granule = ip - ip % GRANULE;
        self.by_granule
            .entry(granule)
            .or_insert_with(|| match code.changes(ip) {
                // To be read again at every look.
                true => [0; 16],
                false => look(granule, code),
            })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.by_granule.clear();
    }
}

fn look(granule: u64, code: &mut impl Code) -> [u16; 16] {
    let mut usage = [0; 16];
    let mut instruction = Instruction::default();
    let begin = granule.saturating_sub(BEFORE);
    let mut ip = begin;
    while ip < granule + GRANULE + BEHIND {
        let bytes = code.bytes(ip);
        if bytes.is_empty() {
            // Where code ends or has not begun.
            ip += IN_STEP;
            continue;
        }
        let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            ip += 1;
            continue;
        }
        if ip >= begin + IN_STEP {
            for gpr in named(&instruction).iter() {
                usage[gpr as usize] += 1;
            }
        }
        ip = instruction.next_ip();
    }
    usage
}

/// Registers among its operands.
fn named(instruction: &Instruction) -> GprSet {
    let operands = (0..instruction.op_count())
        .filter(|&op| instruction.op_kind(op) == OpKind::Register)
        .map(|op| instruction.op_register(op));
    operands
        .chain([instruction.memory_base(), instruction.memory_index()])
        .filter_map(Gpr::containing)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::trace::tests::{AT, Bytes};
    use super::*;

    /// `add r11, rax`, `mov r9, [r10+8*rbx]`, and what is no instruction, again and again.
    fn code() -> Vec<u8> {
        [0x49, 0x01, 0xc3, 0x4d, 0x8b, 0x0c, 0xda, 0x06].repeat(32)
    }

    #[test]
    fn registers_are_counted_where_code_begins_ends_and_is_none() {
        let mut usage = Usage::default();
        let near = usage.near(AT + 0x90, &mut Bytes(code(), false));
        let of = |gpr: Gpr| near[gpr as usize];
        assert_eq!(
            [Gpr::R11, Gpr::Rax, Gpr::R9, Gpr::R10, Gpr::Rbx].map(of),
            [32, 32, 32, 32, 32]
        );
        assert_eq!([Gpr::R15, Gpr::Rcx, Gpr::Rsp].map(of), [0, 0, 0]);
        // Looked at once, until all is forgotten.
        let nothing = &mut Bytes(Vec::new(), false);
        assert_eq!(usage.near(AT, nothing)[Gpr::R11 as usize], 32);
        usage.clear();
        assert_eq!(usage.near(AT, nothing), &[0; 16]);
        usage.clear();
        assert_eq!(usage.near(AT, &mut Bytes(code(), true)), &[0; 16]);
    }
}

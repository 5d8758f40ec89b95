//! Restartable sequences (rseq(2)) by how code names them: the address of a description goes into the thread's `rseq_cs` word by the
//! instruction before the sequence, from a register that it was loaded into right before.

use iced_x86::{Instruction, Mnemonic, OpKind};

/// Bytes of a description (linux/rseq.h, `struct rseq_cs`): version, flags, first address, length, where to go where it is broken off.
/// It lies at a multiple of as many.
pub const BYTES: usize = 32;
/// Lowest address of one: programs have nothing below (`/proc/sys/vm/mmap_min_addr`).
const LOWEST: u64 = 0x1_0000;
/// Most bytes of code from where a description's address is loaded to the sequence, and of a sequence: far more than there are.
const NEAR: u64 = 64;
const LONGEST: u64 = 1 << 16;

/// Whether a description may lie there.
pub fn may_lie_at(address: u64) -> bool {
    address >= LOWEST && address.is_multiple_of(BYTES as u64)
}

/// The address that a description may have which the instruction loads or stores.
pub fn named(instruction: &Instruction) -> Option<u64> {
    let address = match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
            instruction.ip_rel_memory_address()
        }
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64) => {
            instruction.immediate(1)
        }
        _ => return None,
    };
    may_lie_at(address).then_some(address)
}

/// The first address of the sequence that these bytes describe, if they describe one that code at `ip` leads to.
pub fn begins(bytes: &[u8; BYTES], ip: u64) -> Option<u64> {
    let words = bytes.as_chunks::<8>().0;
    let [head, start, length, abort] = [0, 1, 2, 3].map(|n| u64::from_le_bytes(words[n]));
    let version = head as u32;
    let inside = start..start.wrapping_add(length);
    let is_one = version == 0
        && start.wrapping_sub(ip) <= NEAR
        && (1..=LONGEST).contains(&length)
        && abort != 0
        && !inside.contains(&abort);
    is_one.then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    const AT: u64 = 0x40_1000;

    fn decoded(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE).decode()
    }

    fn description(words: [u64; 4]) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    #[test]
    fn what_names_a_description() {
        // lea rax,[rip+0x19]: 7 bytes, so 0x401020; a byte beside.
        assert_eq!(named(&decoded(b"\x48\x8d\x05\x19\0\0\0")), Some(0x40_1020));
        assert_eq!(named(&decoded(b"\x48\x8d\x05\x1a\0\0\0")), None);
        // mov eax,0x401020; mov qword ptr [rdi+8],0x401020; mov eax,0x20.
        assert_eq!(named(&decoded(b"\xb8\x20\x10\x40\0")), Some(0x40_1020));
        let stored = b"\x48\xc7\x47\x08\x20\x10\x40\0";
        assert_eq!(named(&decoded(stored)), Some(0x40_1020));
        assert_eq!(named(&decoded(b"\xb8\x20\0\0\0")), None);
        // lea rax,[rdi+0x20]; mov rax,[rip+0x19].
        assert_eq!(named(&decoded(b"\x48\x8d\x47\x20")), None);
        assert_eq!(named(&decoded(b"\x48\x8b\x05\x19\0\0\0")), None);
    }

    #[test]
    fn what_describes_a_sequence() {
        let one = [0, AT + 12, 30, AT + 0x900];
        let begins = |words| begins(&description(words), AT);
        assert_eq!(begins(one), Some(AT + 12));
        // With flags, in the upper half of the first word.
        assert_eq!(begins([3 << 32, one[1], one[2], one[3]]), Some(AT + 12));
        for other in [
            [1, one[1], one[2], one[3]],
            [0, AT - 1, one[2], one[3]],
            [0, AT + 4096, one[2], one[3]],
            [0, one[1], 0, one[3]],
            [0, one[1], 1 << 40, one[3]],
            [0, one[1], one[2], 0],
            [0, one[1], one[2], AT + 20],
            [0; 4],
        ] {
            assert_eq!(begins(other), None, "{other:x?}");
        }
    }
}

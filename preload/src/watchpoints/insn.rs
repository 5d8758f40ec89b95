//! As much of an instruction as the shim must know itself; all else is left to the monitor, which has a decoder.
//!
//! Source: Intel SDM volume 2, appendix A (opcode maps).

/// What matters of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// It may touch memory at other places than right behind its first byte touched: several operands, or a wide
    /// one. Which lines it touches, its registers decide.
    pub several: bool,
    /// It pushes the flags.
    pub pushes_flags: bool,
}

const SEVERAL: Shape = Shape {
    several: true,
    pushes_flags: false,
};

/// Longest instruction.
pub const LONGEST: usize = 15;

/// The shape of the instruction that begins `bytes`. What it does not know it calls `several`.
pub fn shape(bytes: &[u8]) -> Shape {
    let mut at = 0;
    let next = |at: &mut usize| {
        let byte = bytes.get(*at).copied();
        *at += 1;
        byte
    };
    let opcode = loop {
        match next(&mut at) {
            Some(0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65) => {}
            Some(0x40..=0x4f) => {}
            Some(byte) => break byte,
            None => return SEVERAL,
        }
    };
    let extension = |at: usize| bytes.get(at).map(|modrm| modrm >> 3 & 7);
    let several = match opcode {
        0x9c => {
            return Shape {
                several: false,
                pushes_flags: true,
            };
        }
        // movs, cmps; enter.
        0xa4..=0xa7 | 0xc8 => true,
        // pop to memory; call, far call and jump, push from memory.
        0x8f => true,
        0xff => !matches!(extension(at), Some(0 | 1 | 4)),
        // x87 environment and state.
        0xd9 => matches!(extension(at), Some(4 | 6)),
        0xdd => matches!(extension(at), Some(4 | 6)),
        // VEX and EVEX: map 2 has the gathers and scatters.
        0xc4 => match (bytes.get(at).map(|byte| byte & 0x1f), bytes.get(at + 2)) {
            (Some(2), Some(opcode)) => matches!(opcode, 0x49 | 0x4b | 0x8c | 0x8e | 0x90..=0x93),
            (Some(1 | 3), Some(_)) => false,
            _ => true,
        },
        0x62 => match (bytes.get(at).map(|byte| byte & 7), bytes.get(at + 3)) {
            (Some(2), Some(opcode)) => matches!(opcode, 0x90..=0x93 | 0xa0..=0xa3 | 0xc6 | 0xc7),
            (Some(1 | 3 | 5 | 6), Some(_)) => false,
            _ => true,
        },
        0x0f => match next(&mut at) {
            // Bit strings: the offset register moves the operand, but it is one. maskmovq likewise.
            // fxsave, xsave and relatives; xsavec, xsaves.
            Some(0xae) => !matches!(extension(at), Some(2 | 3 | 7)),
            Some(0xc7) => !matches!(extension(at), Some(1 | 6 | 7)),
            // movdir64b, enqcmd and enqcmds.
            Some(0x38) => bytes.get(at) == Some(&0xf8),
            Some(_) => false,
            None => true,
        },
        _ => false,
    };
    Shape {
        several,
        pushes_flags: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let several = |bytes: &[u8]| shape(bytes).several;
        // mov rax, [rbx]; add [rbx], eax with lock; vmovdqu ymm0, [rax]; vmovups zmm0, [rax]
        assert!(!several(&[0x48, 0x8b, 0x03]));
        assert!(!several(&[0xf0, 0x01, 0x03]));
        assert!(!several(&[0xc5, 0xfe, 0x6f, 0x00]));
        assert!(!several(&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x00]));
        // inc dword [rbx]; cmpxchg16b [rbx]
        assert!(!several(&[0xff, 0x03]));
        assert!(!several(&[0x48, 0x0f, 0xc7, 0x0b]));
        // rep movsb; call [rbx]; push [rbx]; pop [rbx]; vpgatherdd; fxsave; xsavec
        assert!(several(&[0xf3, 0xa4]));
        assert!(several(&[0xff, 0x13]));
        assert!(several(&[0xff, 0x33]));
        assert!(several(&[0x8f, 0x03]));
        assert!(several(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x08]));
        assert!(several(&[0x62, 0xf2, 0x7d, 0x49, 0x90, 0x04, 0x08]));
        assert!(several(&[0x0f, 0xae, 0x00]));
        assert!(several(&[0x0f, 0xc7, 0x20]));
        assert!(several(&[0x66, 0x0f, 0x38, 0xf8, 0x07]));
        assert!(!several(&[0x66, 0x0f, 0x38, 0x00, 0x07]));
        // pushfq; and what has no end
        assert!(shape(&[0x9c]).pushes_flags && shape(&[0x66, 0x9c]).pushes_flags);
        assert!(several(&[0x66, 0x48]));
    }
}

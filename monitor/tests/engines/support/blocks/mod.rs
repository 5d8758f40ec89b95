//! Programs made of random blocks.

pub mod generate;
pub mod templates;

use crate::support::placed;
use generate::{Place, block, layout};
use iced_x86::code_asm::CodeAssembler;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::path::Path;

/// Where the data file is mapped; 4 KiB for the fs base, then the blocks' memory.
const DATA: u64 = 0x2000_0000;
const FS_BYTES: u64 = 4096;
/// Where in the data file the number of the block under way is.
const UNDER_WAY: u64 = 2048;

/// A program of random blocks.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Seed of its first block; the others follow.
    pub seed: u64,
    /// Blocks.
    pub blocks: u64,
    /// How often it goes through them all: code is met again, and linked, from the second time on.
    pub rounds: u32,
    /// Whether its code is far from its data, as that of libraries is.
    pub far: bool,
    /// Whether its code lies where it may be written, and so may change.
    pub writable: bool,
}

impl Program {
    fn base(&self) -> u64 {
        if self.far {
            0x5555_5540_0000
        } else {
            0x40_0000
        }
    }

    fn place(&self, index: u64) -> Place {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("adx")
            && is_x86_feature_detected!("movbe");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        Place {
            memory: DATA + FS_BYTES + index * layout::BYTES,
            near: !self.far,
            vectors: (avx2, avx512),
        }
    }

    /// What its data file holds at first.
    pub fn data(&self) -> Vec<u8> {
        let mut bytes = vec![0; (FS_BYTES + self.blocks * layout::BYTES) as usize];
        SmallRng::seed_from_u64(self.seed).fill_bytes(&mut bytes[FS_BYTES as usize..]);
        bytes
    }

    /// The block that was under way when this was written to the data file.
    pub fn under_way(data: &[u8]) -> u64 {
        let word = data[UNDER_WAY as usize..][..8].try_into().expect("8 bytes");
        u64::from_le_bytes(word)
    }

    /// One block's part of the data file, without what may differ: the address of the last x87
    /// instruction, which the processor records wherever it runs.
    pub fn outcome<'a>(&self, data: &'a mut [u8], index: u64) -> &'a [u8] {
        let start = (FS_BYTES + index * layout::BYTES) as usize;
        let block = &mut data[start..][..layout::BYTES as usize];
        let fxsave = layout::FXSAVE.next_multiple_of(64) as usize;
        block[fxsave + 8..fxsave + 16].fill(0);
        block
    }

    /// Writes the program to `path`. Its argument is the data file.
    pub fn write(&self, path: &Path) {
        const HEADERS: u64 = 0x1000;
        let code = self.assemble(self.base() + HEADERS);
        let mut elf = vec![0u8; HEADERS as usize];
        let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
        let length = HEADERS + code.len() as u64;
        // System V ABI, "ELF Header" and "Program Header".
        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &[2, 0, 62, 0, 1]);
        put(24, &(self.base() + HEADERS).to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(
            52,
            &[64, 0, 56, 0, if self.writable { 2 } else { 1 }, 0, 64, 0],
        );
        // PF_X, PF_W and PF_R are 1, 2 and 4.
        put(
            64,
            &[1, 0, 0, 0, if self.writable { 7 } else { 5 }, 0, 0, 0],
        );
        put(80, &self.base().to_le_bytes());
        put(88, &self.base().to_le_bytes());
        put(96, &length.to_le_bytes());
        put(104, &length.to_le_bytes());
        put(112, &HEADERS.to_le_bytes());
        if self.writable {
            // Ends in bytes of code that nothing uses: the monitor's calls need some.
            let apart = self.base() + (64 << 20);
            put(120, &[1, 0, 0, 0, 5, 0, 0, 0]);
            put(136, &apart.to_le_bytes());
            put(144, &apart.to_le_bytes());
            put(152, &HEADERS.to_le_bytes());
            put(160, &HEADERS.to_le_bytes());
            put(168, &HEADERS.to_le_bytes());
        }
        elf.extend_from_slice(&code);
        placed::written(&elf, path, 0o755);
    }

    fn assemble(&self, at: u64) -> Vec<u8> {
        let mut a = CodeAssembler::new(64).expect("64 bits");
        (|| {
            let argument = MemoryOperand::with_base_displ(Register::RSP, 16);
            a.add_instruction(Instruction::with2(
                Code::Mov_r64_rm64,
                Register::RDI,
                argument,
            )?)?;
            system_call(
                &mut a,
                libc::SYS_open,
                &[(Register::RSI, libc::O_RDWR as u64)],
            )?;
            let length = FS_BYTES + self.blocks * layout::BYTES;
            a.add_instruction(Instruction::with2(
                Code::Mov_rm64_r64,
                Register::R8,
                Register::RAX,
            )?)?;
            let map = [
                (Register::RDI, DATA),
                (Register::RSI, length),
                (Register::RDX, (libc::PROT_READ | libc::PROT_WRITE) as u64),
                (Register::R10, (libc::MAP_SHARED | libc::MAP_FIXED) as u64),
                (Register::R9, 0),
            ];
            system_call(&mut a, libc::SYS_mmap, &map)?;
            const ARCH_SET_FS: u64 = 0x1002;
            let fs = [(Register::RDI, ARCH_SET_FS), (Register::RSI, DATA)];
            system_call(&mut a, libc::SYS_arch_prctl, &fs)?;
            system_call(&mut a, 0x5ca0, &[])?;
            let word = |at: u64| {
                let none = Register::None;
                MemoryOperand::new(none, none, 1, (DATA + at) as i64, 8, false, none)
            };
            let rounds = word(UNDER_WAY + 8);
            a.add_instruction(Instruction::with2(
                Code::Mov_rm32_imm32,
                rounds,
                self.rounds,
            )?)?;
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            for index in 0..self.blocks {
                let number = word(UNDER_WAY);
                a.add_instruction(Instruction::with2(
                    Code::Mov_rm32_imm32,
                    number,
                    index as u32,
                )?)?;
                block(&mut a, self.seed + index, self.place(index))?;
            }
            a.add_instruction(Instruction::with1(Code::Dec_rm32, rounds)?)?;
            a.jne(again)?;
            system_call(&mut a, libc::SYS_exit_group, &[(Register::RDI, 0)])?;
            a.assemble(at)
        })()
        .expect("assembled")
    }

    /// The instructions of one block.
    pub fn listing(&self, index: u64) -> String {
        use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
        let mut a = CodeAssembler::new(64).expect("64 bits");
        block(&mut a, self.seed + index, self.place(index)).expect("generated");
        let code = a.assemble(self.base() + 0x1000).expect("assembled");
        let (mut text, mut formatter) = (String::new(), GasFormatter::new());
        for i in &mut Decoder::with_ip(64, &code, self.base() + 0x1000, DecoderOptions::NONE) {
            text += &format!("{:x}  ", i.ip());
            formatter.format(&i, &mut text);
            text.push('\n');
        }
        text
    }
}

/// Loads `arguments` and makes a system call.
fn system_call(
    a: &mut CodeAssembler,
    number: i64,
    arguments: &[(Register, u64)],
) -> Result<(), iced_x86::IcedError> {
    for &(register, value) in arguments.iter().chain(&[(Register::RAX, number as u64)]) {
        a.add_instruction(Instruction::with2(Code::Mov_r64_imm64, register, value)?)?;
    }
    a.syscall()
}

/// What differs between two outcomes of one block.
pub fn difference(native: &[u8], other: &[u8]) -> String {
    let mut text = String::new();
    for offset in (0..native.len()).step_by(8) {
        let (a, b) = (&native[offset..offset + 8], &other[offset..offset + 8]);
        if a != b {
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            text += &format!(
                "{}: {:x} became {:x}\n",
                name(offset as u64),
                word(a),
                word(b)
            );
        }
    }
    text
}

fn name(offset: u64) -> String {
    use statcache::arch::Gpr;
    match offset {
        layout::VECTORS.. => format!("vector {}", (offset - layout::VECTORS) / 64),
        layout::FXSAVE.. => format!("fxsave {}", offset - layout::FXSAVE),
        n if (layout::GPRS..layout::GPRS + 128).contains(&n) => {
            format!("{:?}", Gpr::ALL[((n - layout::GPRS) / 8) as usize])
        }
        n if n == layout::GPRS + 128 => "flags".into(),
        n => format!("memory {n}"),
    }
}

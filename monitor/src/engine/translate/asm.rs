//! Machine code for the code cache: the few instructions the runtime is made of, and copies of the
//! program's own, encoded at a known address.

use super::layout::state;
use crate::arch::Gpr;
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

/// An instruction could not be encoded where it was wanted (for instance an address out of reach).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfReach;

/// Code being written for addresses from `base` on.
pub struct Asm {
    base: u64,
    /// Holds the code so far.
    encoder: Encoder,
    length: usize,
    /// The register that holds the state block's address, if any does.
    block: Option<Gpr>,
    /// Bytes to be put over others in the end: where, how many, which.
    patches: Vec<(usize, usize, [u8; 4])>,
}

impl std::fmt::Debug for Asm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Asm({:#x}, {} bytes)", self.base, self.length)
    }
}

impl Asm {
    /// Nothing yet, to run at `base`.
    pub fn new(base: u64) -> Asm {
        let mut encoder = Encoder::new(64);
        encoder.set_buffer(Vec::with_capacity(1024));
        Asm {
            base,
            encoder,
            length: 0,
            block: None,
            patches: Vec::new(),
        }
    }

    /// From here on the state block is at the address in `gpr`, or without such a register at gs. (A word that is put away and brought back by the
    /// same register and displacement does not wait for memory on newer processors; by an absolute address it takes 7 cycles on Zen 4, measured.)
    pub fn set_block(&mut self, gpr: Option<Gpr>) {
        self.block = gpr;
    }

    /// A word of the state block.
    fn in_state(&self, offset: i32) -> MemoryOperand {
        match self.block {
            Some(block) => at(block, i64::from(offset)),
            None => gs(offset),
        }
    }

    /// Address of the next byte.
    pub fn here(&self) -> u64 {
        self.base + self.length as u64
    }

    /// The code.
    pub fn into_bytes(mut self) -> Vec<u8> {
        let mut bytes = self.encoder.take_buffer();
        for (at, count, patch) in self.patches {
            bytes[at..at + count].copy_from_slice(&patch[..count]);
        }
        bytes
    }

    /// Encodes `instruction` here. What it names beside itself below 4 GiB is named by its address where it is out of reach.
    ///
    /// # Errors
    /// [`OutOfReach`] when an address in it cannot be reached from here; nothing is written then.
    pub fn put(&mut self, instruction: &Instruction) -> Result<(), OutOfReach> {
        match absolute(instruction, self.here()) {
            Some(absolute) => self.encode(&absolute),
            None => self.encode(instruction),
        }
    }

    fn encode(&mut self, instruction: &Instruction) -> Result<(), OutOfReach> {
        match self.encoder.encode(instruction, self.here()) {
            Ok(length) => {
                self.length += length;
                Ok(())
            }
            Err(_) => {
                // What was written before the error was met goes again.
                let mut bytes = self.encoder.take_buffer();
                bytes.truncate(self.length);
                self.encoder.set_buffer(bytes);
                Err(OutOfReach)
            }
        }
    }

    /// As [`Asm::put`] for instructions of ours without far addresses.
    fn own(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        let instruction = instruction.expect("operands of our own instructions fit their code");
        self.put(&instruction)
            .expect("our own operands are in reach");
    }

    fn two(&mut self, code: Code, to: Register, from: MemoryOperand) {
        self.own(Instruction::with2(code, to, from));
    }

    /// The instruction `opcode` on a register, 64 bits of it if `wide`, and `offset` in the state block: most of what is ours in
    /// a fragment, so written without the library's way round. (Intel SDM vol. 2, 2.1.5, tables 2-2 and 2-3: by gs a SIB without
    /// base and index, by a register a displacement of 8 or 32 bits.)
    fn in_block(&mut self, wide: bool, opcode: &[u8], gpr: Gpr, offset: i32) {
        const GS: u8 = 0x65;
        let (number, mut rex) = (gpr as u8, 0x40);
        rex |= if wide { 8 } else { 0 };
        rex |= if number > 7 { 4 } else { 0 };
        let reg = (number & 7) << 3;
        let Some(block) = self.block.map(|block| block as u8) else {
            self.raw(&[GS]);
            if rex != 0x40 {
                self.raw(&[rex]);
            }
            self.raw(opcode);
            self.raw(&[reg | 4, 0x25]);
            return self.raw(&offset.to_le_bytes());
        };
        rex |= if block > 7 { 1 } else { 0 };
        if rex != 0x40 {
            self.raw(&[rex]);
        }
        self.raw(opcode);
        let small = i8::try_from(offset);
        let mode = if small.is_ok() { 0x40 } else { 0x80 };
        self.raw(&[mode | reg | block & 7]);
        if block & 7 == 4 {
            self.raw(&[0x24]);
        }
        match small {
            Ok(small) => self.raw(&small.to_le_bytes()),
            Err(_) => self.raw(&offset.to_le_bytes()),
        }
    }

    /// `mov block[offset], register`
    pub fn save(&mut self, offset: i32, gpr: Gpr) {
        self.in_block(true, &[0x89], gpr, offset);
    }

    /// `mov register, block[offset]`
    pub fn load(&mut self, gpr: Gpr, offset: i32) {
        self.in_block(true, &[0x8b], gpr, offset);
    }

    /// Saves a register to its own slot.
    pub fn spill(&mut self, gpr: Gpr) {
        self.save(state::slot(gpr), gpr);
    }

    /// Loads a register from its own slot.
    pub fn unspill(&mut self, gpr: Gpr) {
        self.load(gpr, state::slot(gpr));
    }

    /// `mov block[record word], register`
    pub fn log(&mut self, word: usize, gpr: Gpr) {
        self.save(state::record(word), gpr);
    }

    /// `mov [log + 8*word], register`
    pub fn store(&mut self, log: Gpr, word: usize, gpr: Gpr) {
        let to = at(log, 8 * word as i64);
        self.own(Instruction::with2(Code::Mov_rm64_r64, to, gpr.register()));
    }

    /// `mov dword [log], id; mov dword [log + 4], count32`
    pub fn log_header(&mut self, log: Gpr, id: u32, count: Gpr) {
        self.own(Instruction::with2(Code::Mov_rm32_imm32, at(log, 0), id));
        self.own(Instruction::with2(
            Code::Mov_rm32_r32,
            at(log, 4),
            low32(count),
        ));
    }

    /// `mov register, block[record word]`
    pub fn load_logged(&mut self, gpr: Gpr, word: usize) {
        self.load(gpr, state::record(word));
    }

    /// `lea register, [base + index*scale + displacement]`, either register optional.
    ///
    /// # Errors
    /// [`OutOfReach`] when the displacement does not fit into 32 bits.
    pub fn lea_address(
        &mut self,
        gpr: Gpr,
        base: Option<Gpr>,
        index: Option<(Gpr, u8)>,
        displacement: i64,
    ) -> Result<(), OutOfReach> {
        i32::try_from(displacement).map_err(|_| OutOfReach)?;
        let size = match (base, displacement) {
            (Some(_), 0) => 0,
            (Some(_), -128..=127) => 1,
            _ => 8,
        };
        let (index, scale) = index.map_or((Register::None, 1), |(gpr, scale)| {
            (gpr.register(), u32::from(scale))
        });
        let from = MemoryOperand::new(
            base.map_or(Register::None, Gpr::register),
            index,
            scale,
            displacement,
            size,
            false,
            Register::None,
        );
        self.two(Code::Lea_r64_m, gpr.register(), from);
        Ok(())
    }

    /// `pext register, from, block[offset]`
    pub fn extract(&mut self, gpr: Gpr, from: Gpr, offset: i32) {
        let mask = self.in_state(offset);
        self.own(Instruction::with3(
            Code::VEX_Pext_r64_r64_rm64,
            gpr.register(),
            from.register(),
            mask,
        ));
    }

    /// `pext register, from, mask`
    pub fn extract_by(&mut self, gpr: Gpr, from: Gpr, mask: Gpr) {
        let (gpr, from, mask) = (gpr.register(), from.register(), mask.register());
        self.own(Instruction::with3(
            Code::VEX_Pext_r64_r64_rm64,
            gpr,
            from,
            mask,
        ));
    }

    /// `or register8, byte gs:[index + offset]`
    pub fn or_byte_indexed(&mut self, gpr: Gpr, index: Gpr, offset: i32) {
        self.two(Code::Or_r8_rm8, low8(gpr), byte_at(index, offset));
    }

    /// `cmp byte gs:[index + offset], 0`
    pub fn is_byte_zero(&mut self, index: Gpr, offset: i32) {
        self.own(Instruction::with2(
            Code::Cmp_rm8_imm8,
            byte_at(index, offset),
            0u32,
        ));
    }

    /// `add qword block[offset], value`
    pub fn add_to(&mut self, offset: i32, value: i32) {
        let code = match i8::try_from(value) {
            Ok(_) => Code::Add_rm64_imm8,
            Err(_) => Code::Add_rm64_imm32,
        };
        let to = self.in_state(offset);
        self.own(Instruction::with2(code, to, value));
    }

    /// `test register32, bits`
    pub fn test(&mut self, gpr: Gpr, bits: u32) {
        self.own(Instruction::with2(Code::Test_rm32_imm32, low32(gpr), bits));
    }

    /// `test dword [rsp], bits`
    pub fn test_top(&mut self, bits: u32) {
        let top = MemoryOperand::with_base(Register::RSP);
        self.own(Instruction::with2(Code::Test_rm32_imm32, top, bits));
    }

    /// `shr register, bits`
    pub fn shift_right(&mut self, gpr: Gpr, bits: u32) {
        self.own(Instruction::with2(
            Code::Shr_rm64_imm8,
            gpr.register(),
            bits,
        ));
    }

    /// `movzx register32, word block[offset]`
    pub fn load_word16(&mut self, gpr: Gpr, offset: i32) {
        self.in_block(false, &[0x0f, 0xb7], gpr, offset);
    }

    /// `mov register32, block[offset]`
    pub fn load_word32(&mut self, gpr: Gpr, offset: i32) {
        self.in_block(false, &[0x8b], gpr, offset);
    }

    /// `movzx register32, byte gs:[index + offset]`
    pub fn load_byte_indexed(&mut self, gpr: Gpr, index: Gpr, offset: i32) {
        self.two(Code::Movzx_r32_rm8, low32(gpr), byte_at(index, offset));
    }

    /// `mov byte gs:[index + offset], register8`
    pub fn store_byte_indexed(&mut self, index: Gpr, offset: i32, gpr: Gpr) {
        let to = byte_at(index, offset);
        self.own(Instruction::with2(Code::Mov_rm8_r8, to, low8(gpr)));
    }

    /// `mov byte block[offset], value`
    pub fn set_byte(&mut self, offset: i32, value: u8) {
        let (to, value) = (self.in_state(offset), u32::from(value));
        self.own(Instruction::with2(Code::Mov_rm8_imm8, to, value));
    }

    /// Stores vector register `number` of `bytes` bytes to that word of the record.
    pub fn log_vector(&mut self, word: usize, number: u8, bytes: usize, evex: bool) {
        let n = u32::from(number);
        let (code, register) = match (bytes, evex) {
            (16, false) => (Code::VEX_Vmovdqu_xmmm128_xmm, Register::XMM0 + n),
            (32, false) => (Code::VEX_Vmovdqu_ymmm256_ymm, Register::YMM0 + n),
            (16, true) => (Code::EVEX_Vmovdqu64_xmmm128_k1z_xmm, Register::XMM0 + n),
            (32, true) => (Code::EVEX_Vmovdqu64_ymmm256_k1z_ymm, Register::YMM0 + n),
            _ => (Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, Register::ZMM0 + n),
        };
        let to = self.in_state(state::record(word));
        self.own(Instruction::with2(code, to, register));
    }

    /// Stores the low 16 bits of mask register `number` to that word of the record.
    pub fn log_mask(&mut self, word: usize, number: u8) {
        let k = Register::K0 + u32::from(number);
        let to = self.in_state(state::record(word));
        self.own(Instruction::with2(Code::VEX_Kmovw_m16_kr, to, k));
    }

    /// `lea register, [base + displacement]`
    pub fn lea(&mut self, gpr: Gpr, base: Gpr, displacement: i64) {
        self.two(Code::Lea_r64_m, gpr.register(), at(base, displacement));
    }

    /// `mov register, other`
    pub fn copy(&mut self, gpr: Gpr, other: Gpr) {
        let (gpr, other) = (gpr.register(), other.register());
        self.own(Instruction::with2(Code::Mov_r64_rm64, gpr, other));
    }

    /// `lea register, [base + index]`
    pub fn lea_sum(&mut self, gpr: Gpr, base: Gpr, index: Gpr) {
        self.lea_scaled(gpr, base, (index, 1));
    }

    /// `lea register, [base + index*scale]`
    pub fn lea_scaled(&mut self, gpr: Gpr, base: Gpr, (index, scale): (Gpr, u32)) {
        let (base, index) = (base.register(), index.register());
        let sum = MemoryOperand::with_base_index_scale(base, index, scale);
        self.two(Code::Lea_r64_m, gpr.register(), sum);
    }

    /// `mov register, imm64`
    pub fn constant(&mut self, gpr: Gpr, value: u64) {
        self.own(Instruction::with2(
            Code::Mov_r64_imm64,
            gpr.register(),
            value,
        ));
    }

    /// `mov register32, imm32`
    pub fn constant32(&mut self, gpr: Gpr, value: u32) {
        self.own(Instruction::with2(Code::Mov_r32_imm32, low32(gpr), value));
    }

    /// `movzx register32, byte block[offset]`
    pub fn load_byte(&mut self, gpr: Gpr, offset: i32) {
        self.in_block(false, &[0x0f, 0xb6], gpr, offset);
    }

    /// `movzx register32, low 16 bits of other`
    pub fn low_word(&mut self, gpr: Gpr, other: Gpr) {
        let word = Register::AX + other as u32;
        self.own(Instruction::with2(Code::Movzx_r32_rm16, low32(gpr), word));
    }

    /// `mov register, gs:[index*8 + offset]`
    pub fn load_indexed(&mut self, gpr: Gpr, index: Gpr, offset: i32) {
        self.two(Code::Mov_r64_rm64, gpr.register(), indexed(index, offset));
    }

    /// `mov register, [rip -> address]` of 8 bytes, or of 4, 2 or 1 with zeros above.
    ///
    /// # Errors
    /// [`OutOfReach`] when the address is.
    pub fn load_at(&mut self, gpr: Gpr, address: u64, bytes: usize) -> Result<(), OutOfReach> {
        let from = MemoryOperand::with_base_displ(Register::RIP, address as i64);
        let (code, register) = match bytes {
            8 => (Code::Mov_r64_rm64, gpr.register()),
            4 => (Code::Mov_r32_rm32, low32(gpr)),
            2 => (Code::Movzx_r32_rm16, low32(gpr)),
            _ => (Code::Movzx_r32_rm8, low32(gpr)),
        };
        let load = Instruction::with2(code, register, from).map_err(|_| OutOfReach)?;
        self.put(&load)
    }

    /// `push value`, its sign extended.
    pub fn push(&mut self, value: i32) {
        self.own(Instruction::with1(Code::Pushq_imm32, value));
    }

    /// `push qword [rip -> address]`
    ///
    /// # Errors
    /// [`OutOfReach`] when the address is.
    pub fn push_word_at(&mut self, address: u64) -> Result<(), OutOfReach> {
        let from = MemoryOperand::with_base_displ(Register::RIP, address as i64);
        let push = Instruction::with1(Code::Push_rm64, from).map_err(|_| OutOfReach)?;
        self.put(&push)
    }

    /// `jmp qword block[offset]`
    pub fn jump_through(&mut self, offset: i32) {
        let from = self.in_state(offset);
        self.own(Instruction::with1(Code::Jmp_rm64, from));
    }

    /// `jmp qword gs:[index*8 + offset]`
    pub fn jump_indexed(&mut self, index: Gpr, offset: i32) {
        self.own(Instruction::with1(Code::Jmp_rm64, indexed(index, offset)));
    }

    /// `syscall`
    pub fn syscall(&mut self) {
        self.raw(&[0x0f, 0x05]);
    }

    /// A jump or conditional jump with a 32-bit displacement; returns the address of the displacement.
    pub fn branch(&mut self, code: Code, target: u64) -> u64 {
        self.own(Instruction::with_branch(code, target));
        self.here() - 4
    }

    /// `jmp target`; returns the address of the displacement.
    pub fn jump(&mut self, target: u64) -> u64 {
        self.branch(Code::Jmp_rel32_64, target)
    }

    /// `jrcxz` forward by `distance` bytes after itself.
    pub fn jrcxz(&mut self, distance: i8) {
        self.raw(&[0xe3, distance as u8]);
    }

    /// `jmp target` by a word behind it, from any distance.
    pub fn jump_far(&mut self, target: u64) {
        self.raw(&[0xff, 0x25, 0, 0, 0, 0]);
        self.raw(&target.to_le_bytes());
    }

    /// `jmp` by `distance` bytes from behind it.
    pub fn short_jump(&mut self, distance: i8) {
        self.raw(&[0xeb, distance as u8]);
    }

    /// `loop` by `distance` bytes from behind it: takes one from rcx, and jumps unless that leaves nothing. Like `jrcxz`, it touches no flag.
    pub fn loop_by(&mut self, distance: i8) {
        self.raw(&[0xe2, distance as u8]);
    }

    /// The bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.encoder.write_u8(*byte);
        }
        self.length += bytes.len();
    }

    /// Pads to a multiple of `align` (a power of two) with one-byte `nop`s, never run.
    pub fn align(&mut self, align: u64) {
        while !self.here().is_multiple_of(align) {
            self.raw(&[0x90]);
        }
    }

    /// Rewrites the 32-bit displacement at `field` (an address written before) to reach `target`.
    pub fn patch(&mut self, field: u64, target: u64) {
        let displacement = target.wrapping_sub(field + 4) as i64;
        let displacement = i32::try_from(displacement).expect("patches stay within an arena");
        let at = (field - self.base) as usize;
        self.patches.push((at, 4, displacement.to_le_bytes()));
    }

    /// Rewrites the byte at `at` (an address written before).
    pub fn patch_byte(&mut self, at: u64, byte: u8) {
        let at = (at - self.base) as usize;
        self.patches.push((at, 1, [byte, 0, 0, 0]));
    }
}

fn low32(gpr: Gpr) -> Register {
    Register::EAX + gpr as u32
}

fn low8(gpr: Gpr) -> Register {
    // The library has the high bytes of the first four between these and the others.
    Register::AL + gpr as u32 + if gpr.number() < 4 { 0 } else { 4 }
}

/// `gs:[index + offset]`
fn byte_at(index: Gpr, offset: i32) -> MemoryOperand {
    MemoryOperand::new(
        index.register(),
        Register::None,
        1,
        i64::from(offset),
        8,
        false,
        Register::GS,
    )
}

fn at(base: Gpr, displacement: i64) -> MemoryOperand {
    let size = match displacement {
        0 => 0,
        -128..=127 => 1,
        _ => 8,
    };
    MemoryOperand::new(
        base.register(),
        Register::None,
        1,
        displacement,
        size,
        false,
        Register::None,
    )
}

/// `gs:[index*8 + offset]`
fn indexed(index: Gpr, offset: i32) -> MemoryOperand {
    MemoryOperand::new(
        Register::None,
        index.register(),
        8,
        i64::from(offset),
        4,
        false,
        Register::GS,
    )
}

fn gs(offset: i32) -> MemoryOperand {
    MemoryOperand::new(
        Register::None,
        Register::None,
        1,
        i64::from(offset),
        8,
        false,
        Register::GS,
    )
}

/// The same by an absolute address of 32 bits, where it names one beside itself that is out of reach from `here`. Below 2 GiB its sign is extended
/// (Intel SDM vol. 2, 2.2.1.3), from there to 4 GiB the address size is 32 bits.
fn absolute(instruction: &Instruction, here: u64) -> Option<Instruction> {
    /// Longer than any instruction.
    const LONGEST: u64 = 16;
    const SIGNED: u64 = i32::MAX as u64;
    if !instruction.is_ip_rel_memory_operand() {
        return None;
    }
    let address = instruction.ip_rel_memory_address();
    let size = match address {
        _ if address.abs_diff(here) < SIGNED - LONGEST => return None,
        0..=SIGNED => 8,
        _ if u32::try_from(address).is_ok() => 4,
        _ => return None,
    };
    let mut absolute = *instruction;
    absolute.set_memory_base(Register::None);
    absolute.set_memory_displacement64(address);
    absolute.set_memory_displ_size(size);
    Some(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, OpKind};

    #[test]
    fn low_bytes_are_of_their_registers() {
        for gpr in Gpr::ALL {
            assert_eq!(low8(gpr).full_register(), gpr.register());
            assert_eq!(low8(gpr).size(), 1);
        }
        assert!(![Gpr::Rsp, Gpr::Rdi].map(low8).contains(&Register::AH));
    }

    /// What an instruction names beside itself it names wherever it is copied to, or is refused.
    #[test]
    fn what_is_out_of_reach_is_named_by_its_address() {
        const FAR: u64 = 0x7e90_8000_0000;
        // mov rax,[rip]; add dword [rip],imm8; lea rcx,[rip]; vaddps ymm0,ymm1,[rip]; call [rip]; push [rip]
        let all: [&[u8]; 6] = [
            &[0x48, 0x8b, 0x05, 0, 0, 0, 0],
            &[0x83, 0x05, 0, 0, 0, 0, 7],
            &[0x48, 0x8d, 0x0d, 0, 0, 0, 0],
            &[0xc5, 0xf4, 0x58, 0x05, 0, 0, 0, 0],
            &[0xff, 0x15, 0, 0, 0, 0],
            &[0xff, 0x35, 0, 0, 0, 0],
        ];
        for bytes in all {
            for (named, reached) in [
                (0x40_2000, true),
                (0x7fff_ffff, true),
                (0x8000_0000, true),
                (0xffff_ffff, true),
                (0x1_0000_0000, false),
            ] {
                let mut from =
                    Decoder::with_ip(64, bytes, 0x4000_0000, DecoderOptions::NONE).decode();
                from.set_memory_displacement64(named);
                let mut asm = Asm::new(FAR);
                assert_eq!(asm.put(&from).is_ok(), reached, "{named:x} {from}");
                let written = asm.into_bytes();
                let copy = Decoder::with_ip(64, &written, FAR, DecoderOptions::NONE).decode();
                if !reached {
                    assert!(written.is_empty());
                    continue;
                }
                assert_eq!(copy.len(), written.len());
                assert_eq!(
                    (copy.code(), copy.memory_base()),
                    (from.code(), Register::None)
                );
                let operand = (0..copy.op_count()).find(|&op| copy.op_kind(op) == OpKind::Memory);
                let found = copy.virtual_address(operand.expect("memory"), 0, |_, _, _| Some(0));
                assert_eq!(found, Some(named), "{copy}");
            }
            // In reach it is as it was.
            let near = Decoder::with_ip(64, bytes, 0x4000_0000, DecoderOptions::NONE).decode();
            let mut asm = Asm::new(0x5000_0000);
            assert_eq!(asm.put(&near), Ok(()));
            let written = asm.into_bytes();
            let copy = Decoder::with_ip(64, &written, 0x5000_0000, DecoderOptions::NONE).decode();
            assert!(copy.is_ip_rel_memory_operand());
        }
    }

    #[test]
    fn what_is_written_by_hand_decodes_as_meant() {
        type Write = fn(&mut Asm, Gpr, i32);
        let kinds: [(Write, Code, bool); 4] = [
            (|a, g, at| a.save(at, g), Code::Mov_rm64_r64, true),
            (|a, g, at| a.load(g, at), Code::Mov_r64_rm64, true),
            (|a, g, at| a.load_byte(g, at), Code::Movzx_r32_rm8, false),
            (|a, g, at| a.load_word16(g, at), Code::Movzx_r32_rm16, false),
        ];
        let blocks = Gpr::ALL.map(Some).into_iter().chain([None]);
        for (block, gpr) in blocks.flat_map(|block| Gpr::ALL.map(|gpr| (block, gpr))) {
            for (write, code, wide) in kinds {
                for offset in [0, 0x7f, 0x80, 0x1234] {
                    let mut asm = Asm::new(0x10_0000);
                    asm.set_block(block);
                    write(&mut asm, gpr, offset);
                    let length = asm.here() - 0x10_0000;
                    let bytes = asm.into_bytes();
                    assert_eq!(bytes.len() as u64, length);
                    let mut decoder = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE);
                    let found = decoder.decode();
                    assert_eq!((found.code(), found.len()), (code, bytes.len()));
                    let operand = u32::from(code != Code::Mov_rm64_r64);
                    assert_eq!(found.op_kind(operand), OpKind::Memory);
                    assert_eq!(found.memory_displacement64(), offset as u64);
                    let (base, segment) = match block {
                        Some(block) => (block.register(), Register::None),
                        None => (Register::None, Register::GS),
                    };
                    assert_eq!(
                        (found.memory_base(), found.segment_prefix()),
                        (base, segment)
                    );
                    assert_eq!(found.memory_index(), Register::None);
                    let register = if wide { gpr.register() } else { low32(gpr) };
                    assert_eq!(found.op_register(1 - operand), register);
                }
            }
        }
    }
}

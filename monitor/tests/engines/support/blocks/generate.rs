//! Random blocks of instructions that stay within memory of their own.

mod control;
mod operands;
mod special;

use super::templates::{AVX, AVX512, FLOATING, INTEGER, Operand, SSE};
use iced_x86::code_asm::{CodeAssembler, CodeLabel, ptr, registers::gpr64::get_gpr64};
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, IcedError, Instruction, InstructionInfoFactory,
    MemoryOperand, OpKind, Register,
};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use statcache::arch::{Gpr, GprSet, gprs_written};

/// Where a block's memory lies, and what it may use.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First byte of the block's memory (see [`super::layout`]).
    pub memory: u64,
    /// Whether the memory is within reach of the instruction pointer.
    pub near: bool,
    /// Whether there are AVX2, BMI and FMA; and AVX-512 F, BW, DQ and VL.
    pub vectors: (bool, bool),
}

/// Offsets in a block's memory.
pub mod layout {
    /// Bytes the block works on; its base register points to the middle.
    pub const SCRATCH: u64 = 4096;
    /// End of the stack, which begins where the scratch bytes end.
    pub const STACK_END: u64 = SCRATCH + 1024;
    /// Words for the sixteen registers, and one for the flags.
    pub const GPRS: u64 = STACK_END;
    /// The `fxsave` image.
    pub const FXSAVE: u64 = GPRS + 192;
    /// Thirty-two vector registers of 64 bytes.
    pub const VECTORS: u64 = FXSAVE + 512 + 64;
    /// Eight mask registers.
    pub const MASKS: u64 = VECTORS + 32 * 64;
    /// All of it.
    pub const BYTES: u64 = MASKS + 64;
}

/// Writes one block.
pub struct Generator<'a> {
    a: &'a mut CodeAssembler,
    rng: SmallRng,
    factory: InstructionInfoFactory,
    place: Place,
    base: Gpr,
    /// Registers that must keep their values.
    reserved: GprSet,
    /// How deep in loops and calls.
    depth: u32,
    /// Functions to be written, with the registers they must keep.
    functions: Vec<(CodeLabel, GprSet)>,
}

/// Writes block `seed`: it loads every register, does what it does, and stores every register.
pub fn block(a: &mut CodeAssembler, seed: u64, place: Place) -> Result<(), IcedError> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let bases = [
        Gpr::Rbp,
        Gpr::R8,
        Gpr::R11,
        Gpr::R12,
        Gpr::R13,
        Gpr::R15,
        Gpr::Rdx,
        Gpr::Rdi,
    ];
    let base = *bases.choose(&mut rng).expect("not empty");
    let mut reserved = GprSet::EMPTY;
    reserved.insert(Gpr::Rsp);
    reserved.insert(base);
    let factory = InstructionInfoFactory::new();
    let mut g = Generator {
        a,
        rng,
        factory,
        place,
        base,
        reserved,
        depth: 0,
        functions: Vec::new(),
    };
    g.prologue()?;
    let length = g.rng.random_range(3..30);
    g.body(length)?;
    g.epilogue()?;
    let mut over = g.a.create_label();
    g.a.jmp(over)?;
    while let Some((mut function, reserved)) = g.functions.pop() {
        g.reserved = reserved;
        g.a.set_label(&mut function)?;
        // No calls from within, or it might never end.
        g.depth = 3;
        let length = g.rng.random_range(1..6);
        g.body(length)?;
        match g.rng.random_range(0..4) {
            0 => g.a.ret_1(8)?,
            _ => g.a.ret()?,
        }
    }
    g.a.set_label(&mut over)?;
    // A label needs an instruction.
    g.a.nop()
}

fn decode(bytes: &[u8]) -> Vec<Instruction> {
    let mut all: Vec<Instruction> = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE)
        .iter()
        .collect();
    for instruction in &mut all {
        assert!(!instruction.is_invalid(), "{bytes:02x?}");
        instruction.set_ip(0);
    }
    all
}

fn sized(gpr: Gpr, bytes: usize) -> Register {
    let n = gpr as u32;
    match bytes {
        1 if n < 4 => Register::AL + n,
        1 => Register::SPL + (n - 4),
        2 => Register::AX + n,
        4 => Register::EAX + n,
        _ => Register::RAX + n,
    }
}

fn full(gpr: Gpr) -> Register {
    sized(gpr, 8)
}

impl Generator<'_> {
    fn add(&mut self, instruction: Instruction) -> Result<(), IcedError> {
        self.a.add_instruction(instruction)
    }

    fn two(&mut self, code: Code, to: Register, from: Register) -> Result<(), IcedError> {
        self.add(Instruction::with2(code, to, from)?)
    }

    fn constant(&mut self, gpr: Gpr, value: u64) -> Result<(), IcedError> {
        self.add(Instruction::with2(Code::Mov_r64_imm64, full(gpr), value)?)
    }

    fn absolute(&self, offset: u64) -> MemoryOperand {
        MemoryOperand::new(
            Register::None,
            Register::None,
            1,
            (self.place.memory + offset) as i64,
            8,
            false,
            Register::None,
        )
    }

    fn prologue(&mut self) -> Result<(), IcedError> {
        self.a.fninit()?;
        let vector = |n: u32| MemoryOperand::with_base_displ(Register::RAX, i64::from(64 * n));
        self.constant(Gpr::Rax, self.place.memory)?;
        for n in 0..if self.place.vectors.1 { 32 } else { 16 } {
            let (code, register) = match self.place.vectors {
                (_, true) => (Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512, Register::ZMM0 + n),
                (true, _) => (Code::VEX_Vmovdqu_ymm_ymmm256, Register::YMM0 + n),
                _ => (Code::Movdqu_xmm_xmmm128, Register::XMM0 + n),
            };
            self.add(Instruction::with2(code, register, vector(n))?)?;
        }
        if self.place.vectors.1 {
            for n in 0..8 {
                let k = Register::K0 + n;
                self.add(Instruction::with2(
                    Code::VEX_Kmovq_kr_km64,
                    k,
                    vector(n + 1),
                )?)?;
            }
        }
        // Overflow, then the other flags; what follows leaves them.
        let overflow = if self.rng.random() { 0x7f } else { 0 };
        self.add(Instruction::with2(
            Code::Mov_r8_imm8,
            Register::AL,
            overflow,
        )?)?;
        self.add(Instruction::with2(Code::Add_AL_imm8, Register::AL, 1)?)?;
        let flags = u32::from(self.rng.random::<u8>());
        self.add(Instruction::with2(Code::Mov_r8_imm8, Register::AH, flags)?)?;
        self.a.sahf()?;
        for gpr in Gpr::ALL {
            let value = match self.rng.random_range(0..4) {
                _ if gpr == Gpr::Rsp => self.place.memory + layout::STACK_END - 256,
                _ if gpr == self.base => self.place.memory + layout::SCRATCH / 2,
                0 => u64::from(self.rng.random_range(0..4u32)).wrapping_sub(2),
                1 => u64::from(self.rng.next_u32()),
                _ => self.rng.next_u64(),
            };
            self.constant(gpr, value)?;
        }
        Ok(())
    }

    fn epilogue(&mut self) -> Result<(), IcedError> {
        for gpr in Gpr::ALL {
            let to = self.absolute(layout::GPRS + 8 * gpr as u64);
            self.add(Instruction::with2(Code::Mov_rm64_r64, to, full(gpr))?)?;
        }
        self.a.pushfq()?;
        let flags = self.absolute(layout::GPRS + 128);
        self.add(Instruction::with1(Code::Pop_rm64, flags)?)?;
        let to = self.absolute(layout::FXSAVE.next_multiple_of(64));
        self.add(Instruction::with1(Code::Fxsave64_m512byte, to)?)?;
        for n in 0..if self.place.vectors.1 { 32u64 } else { 16 } {
            let to = self.absolute(layout::VECTORS + 64 * n);
            let (code, register) = match self.place.vectors {
                (_, true) => (
                    Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
                    Register::ZMM0 + n as u32,
                ),
                (true, _) => (Code::VEX_Vmovdqu_ymmm256_ymm, Register::YMM0 + n as u32),
                _ => (Code::Movdqu_xmmm128_xmm, Register::XMM0 + n as u32),
            };
            self.add(Instruction::with2(code, to, register)?)?;
        }
        if self.place.vectors.1 {
            for n in 0..8u64 {
                let to = self.absolute(layout::MASKS + 8 * n);
                let k = Register::K0 + n as u32;
                self.add(Instruction::with2(Code::VEX_Kmovq_m64_kr, to, k)?)?;
            }
        }
        Ok(())
    }

    fn body(&mut self, length: u32) -> Result<(), IcedError> {
        for _ in 0..length {
            self.one()?;
        }
        Ok(())
    }

    fn one(&mut self) -> Result<(), IcedError> {
        match self.rng.random_range(0..100) {
            0..45 => {
                let (bytes, operand, sizes) = *INTEGER.choose(&mut self.rng).expect("not empty");
                let bytes = if sizes {
                    self.resize(bytes)
                } else {
                    bytes.to_vec()
                };
                self.template(&bytes, operand)
            }
            45..50 => self.pick(FLOATING),
            50..56 => self.pick(SSE),
            56..62 if self.place.vectors.0 => self.pick(AVX),
            62..67 if self.place.vectors.1 => self.pick(AVX512),
            67..70 => self.gather(),
            70..73 => self.string(),
            73..75 => self.bits(),
            75..76 => self.divide(),
            76..81 => self.stack(),
            81..86 => self.skip(),
            86..89 => self.repeat(),
            89..92 => self.call(),
            92..95 => self.indirect(),
            95..96 => self.table(),
            _ => self.move_base(),
        }
    }

    fn pick(&mut self, list: &[(&[u8], Operand)]) -> Result<(), IcedError> {
        let (bytes, operand) = *list.choose(&mut self.rng).expect("not empty");
        self.template(bytes, operand)
    }

    /// The 8-, 16-, 32- or 64-bit form of a 32-bit encoding.
    fn resize(&mut self, bytes: &[u8]) -> Vec<u8> {
        let lock = usize::from(bytes[0] == 0xf0);
        let mut all = bytes.to_vec();
        match self.rng.random_range(0..4) {
            0 => {
                let opcode = lock + usize::from(all[lock] == 0x0f);
                all[opcode] -= 1;
            }
            1 => all.insert(0, 0x66),
            2 => {}
            _ => all.insert(lock, 0x48),
        }
        all
    }

    fn reads(&mut self) -> Gpr {
        *Gpr::ALL.choose(&mut self.rng).expect("not empty")
    }

    fn free(&mut self) -> Gpr {
        loop {
            let gpr = self.reads();
            if !self.reserved.contains(gpr) {
                return gpr;
            }
        }
    }
}

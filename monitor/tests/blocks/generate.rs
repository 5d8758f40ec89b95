//! Random blocks of instructions that stay within memory of their own.

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

type Jcc = fn(&mut CodeAssembler, CodeLabel) -> Result<(), IcedError>;

const CONDITIONS: [Jcc; 16] = [
    CodeAssembler::jo::<CodeLabel>,
    CodeAssembler::jno::<CodeLabel>,
    CodeAssembler::jb::<CodeLabel>,
    CodeAssembler::jae::<CodeLabel>,
    CodeAssembler::je::<CodeLabel>,
    CodeAssembler::jne::<CodeLabel>,
    CodeAssembler::jbe::<CodeLabel>,
    CodeAssembler::ja::<CodeLabel>,
    CodeAssembler::js::<CodeLabel>,
    CodeAssembler::jns::<CodeLabel>,
    CodeAssembler::jp::<CodeLabel>,
    CodeAssembler::jnp::<CodeLabel>,
    CodeAssembler::jl::<CodeLabel>,
    CodeAssembler::jge::<CodeLabel>,
    CodeAssembler::jle::<CodeLabel>,
    CodeAssembler::jg::<CodeLabel>,
];

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

    /// Draws operands for an example until they harm nothing.
    fn template(&mut self, bytes: &[u8], operand: Operand) -> Result<(), IcedError> {
        let examples = decode(bytes);
        if operand == Operand::Fixed {
            let mut written = GprSet::EMPTY;
            for instruction in &examples {
                written = written.union(gprs_written(instruction, &mut self.factory));
            }
            let mut reserved = self.reserved;
            if matches!(bytes[0], 0x9c) {
                reserved = reserved.without([Gpr::Rsp].into_iter().collect());
            }
            if Gpr::ALL
                .iter()
                .any(|g| written.contains(*g) && reserved.contains(*g))
            {
                return Ok(());
            }
            return examples.into_iter().try_for_each(|i| self.add(i));
        }
        let aligned = matches!(operand, Operand::Aligned | Operand::VectorAligned);
        let memory_only = matches!(operand, Operand::Memory | Operand::Aligned);
        for _ in 0..20 {
            let mut instruction = examples[0];
            let memory = memory_only || self.rng.random_range(0..5) < 3;
            let evex = bytes[0] == 0x62;
            for i in 0..instruction.op_count() {
                match instruction.op_kind(i) {
                    OpKind::Register => {
                        let register = self.same_class(instruction.op_register(i), evex);
                        instruction.set_op_register(i, register);
                    }
                    OpKind::Memory if !memory => {
                        let register = self.in_place_of_memory(&instruction, operand, evex);
                        instruction.set_op_kind(i, OpKind::Register);
                        instruction.set_op_register(i, register);
                    }
                    OpKind::Immediate8 => instruction.set_immediate8(self.rng.random()),
                    OpKind::Immediate32 => instruction.set_immediate32(self.rng.random()),
                    _ => {}
                }
            }
            if instruction.op_mask() != Register::None {
                instruction.set_op_mask(Register::K1 + self.rng.random_range(0..7));
            }
            if !memory {
                instruction.set_memory_base(Register::None);
            }
            let written = gprs_written(&instruction, &mut self.factory);
            if Gpr::ALL
                .iter()
                .any(|g| written.contains(*g) && self.reserved.contains(*g))
            {
                continue;
            }
            if memory {
                let place = if aligned {
                    self.aligned()
                } else {
                    self.memory(true)?
                };
                set_memory(&mut instruction, &place);
            }
            if Encoder::new(64)
                .encode(&instruction, self.place.memory)
                .is_ok()
            {
                return self.add(instruction);
            }
        }
        Ok(())
    }

    fn same_class(&mut self, register: Register, evex: bool) -> Register {
        let vectors = if evex { 32 } else { 16 };
        if register == Register::CL {
            return register;
        }
        if register.is_gpr() {
            let gpr = self.reads();
            return sized(gpr, register.size());
        }
        let first = match register {
            r if r.is_xmm() => (Register::XMM0, vectors),
            r if r.is_ymm() => (Register::YMM0, vectors),
            r if r.is_zmm() => (Register::ZMM0, vectors),
            r if r.is_k() => (Register::K0, 8),
            r if r.is_mm() => (Register::MM0, 8),
            other => return other,
        };
        first.0 + self.rng.random_range(0..first.1)
    }

    fn in_place_of_memory(&mut self, i: &Instruction, operand: Operand, evex: bool) -> Register {
        if operand == Operand::General {
            let gpr = self.reads();
            return sized(gpr, i.memory_size().size());
        }
        let others = (0..i.op_count()).filter(|&n| i.op_kind(n) == OpKind::Register);
        let vector = others
            .map(|n| i.op_register(n))
            .find(|r| r.is_vector_register());
        self.same_class(vector.unwrap_or(Register::XMM0), evex)
    }

    fn aligned(&mut self) -> MemoryOperand {
        let displacement = 64 * self.rng.random_range(-4..4);
        MemoryOperand::with_base_displ(full(self.base), displacement)
    }

    /// A place in the block's memory, at most 255*4+128+64 bytes from the middle. May use an index,
    /// prepared by an instruction before.
    fn memory(&mut self, index: bool) -> Result<MemoryOperand, IcedError> {
        let near = self.rng.random_range(-128..128i64);
        let base = full(self.base);
        let middle = self.place.memory as i64 + layout::SCRATCH as i64 / 2;
        let (none, fs) = (Register::None, Register::FS);
        Ok(match self.rng.random_range(0..14) {
            0 => self.absolute((layout::SCRATCH as i64 / 2 + near) as u64),
            1 => MemoryOperand::new(
                none,
                none,
                1,
                self.rng.random_range(512..1536),
                8,
                false,
                fs,
            ),
            2 => {
                // Of the stack below, which nobody uses.
                let displacement = self.rng.random_range(-320..-128);
                MemoryOperand::with_base_displ(Register::RSP, displacement)
            }
            3 => {
                let ebase = sized(self.base, 4);
                MemoryOperand::new(ebase, none, 1, near, 4, false, none)
            }
            4 if self.place.near => {
                MemoryOperand::new(Register::RIP, none, 1, middle + near, 8, false, none)
            }
            5..10 if index && self.reserved.iter().count() < 8 => {
                let gpr = self.free();
                if self.rng.random() {
                    // Leaves the flags alone.
                    self.two(Code::Movzx_r32_rm8, sized(gpr, 4), sized(gpr, 1))?;
                } else {
                    let mask = self.rng.random_range(1..=0xffu32);
                    self.add(Instruction::with2(
                        Code::And_rm32_imm32,
                        sized(gpr, 4),
                        mask,
                    )?)?;
                    if self.rng.random() {
                        self.add(Instruction::with1(Code::Neg_rm64, full(gpr))?)?;
                    }
                }
                let scale = *[1, 2, 4].choose(&mut self.rng).expect("not empty");
                MemoryOperand::new(base, full(gpr), scale, near, 8, false, none)
            }
            _ => MemoryOperand::new(base, none, 1, near, 8, false, none),
        })
    }

    /// The base register moves by a constant and back, as stack and array pointers do.
    fn move_base(&mut self) -> Result<(), IcedError> {
        let by = self.rng.random_range(-64..64i32);
        let base = full(self.base);
        let lea = |by: i32| {
            let at = MemoryOperand::with_base_displ(base, i64::from(by));
            Instruction::with2(Code::Lea_r64_m, base, at)
        };
        let plain = self.rng.random();
        if plain {
            self.add(Instruction::with2(Code::Add_rm64_imm32, base, by)?)?;
        } else {
            self.add(lea(by)?)?;
        }
        self.template(&[0x48, 0x8b, 0x00], Operand::Memory)?;
        self.template(&[0x48, 0x01, 0x00], Operand::Memory)?;
        self.add(lea(-by)?)
    }

    fn gather(&mut self) -> Result<(), IcedError> {
        let evex = self.place.vectors.1 && self.rng.random();
        if !self.place.vectors.0 {
            return Ok(());
        }
        let opcode = *[0x90u8, 0x91, 0x92, 0x93]
            .choose(&mut self.rng)
            .expect("not empty");
        let wide = u8::from(self.rng.random::<bool>()) << 7;
        let scatter = evex && self.rng.random();
        let bytes = if evex {
            let length = *[0x09, 0x29, 0x49].choose(&mut self.rng).expect("not empty");
            vec![
                0x62,
                0xf2,
                0x7d | wide,
                length,
                opcode + if scatter { 0x10 } else { 0 },
                0x04,
                0x08,
            ]
        } else {
            let long = u8::from(self.rng.random::<bool>()) << 2;
            vec![0xc4, 0xe2, 0x69 | wide | long, opcode, 0x04, 0x08]
        };
        let mut instruction = decode(&bytes)[0];
        let limit = if evex { 32 } else { 16 };
        let mut numbers: Vec<u32> = (0..limit).collect();
        let mut draw = |rng: &mut SmallRng| numbers.swap_remove(rng.random_range(0..numbers.len()));
        let (value, index, mask) = (
            draw(&mut self.rng),
            draw(&mut self.rng),
            draw(&mut self.rng),
        );
        let index_register = instruction.memory_index();
        let kind = |r: Register| match r {
            r if r.is_zmm() => Register::ZMM0,
            r if r.is_ymm() => Register::YMM0,
            _ => Register::XMM0,
        };
        let index = kind(index_register) + index;
        // Small indices: the high bits of what is there.
        let shift = if matches!(opcode, 0x90 | 0x92) {
            26u32
        } else {
            58
        };
        let code = match (shift, kind(index)) {
            (26, Register::ZMM0) => Code::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8,
            (58, Register::ZMM0) => Code::EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8,
            (26, Register::YMM0) if evex => Code::EVEX_Vpsrld_ymm_k1z_ymmm256b32_imm8,
            (58, Register::YMM0) if evex => Code::EVEX_Vpsrlq_ymm_k1z_ymmm256b64_imm8,
            (26, _) if evex => Code::EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8,
            (58, _) if evex => Code::EVEX_Vpsrlq_xmm_k1z_xmmm128b64_imm8,
            (26, Register::YMM0) => Code::VEX_Vpsrld_ymm_ymm_imm8,
            (58, Register::YMM0) => Code::VEX_Vpsrlq_ymm_ymm_imm8,
            (26, _) => Code::VEX_Vpsrld_xmm_xmm_imm8,
            _ => Code::VEX_Vpsrlq_xmm_xmm_imm8,
        };
        self.add(Instruction::with3(code, index, index, shift)?)?;
        let register_at = if scatter { 1 } else { 0 };
        let own = kind(instruction.op_register(register_at));
        instruction.set_op_register(register_at, own + value);
        if !evex {
            let own = kind(instruction.op_register(2));
            instruction.set_op_register(2, own + mask);
        } else {
            instruction.set_op_mask(Register::K1 + mask % 7);
        }
        instruction.set_memory_base(full(self.base));
        instruction.set_memory_index(index);
        instruction.set_memory_index_scale(*[1, 2, 4, 8].choose(&mut self.rng).expect("not empty"));
        instruction.set_memory_displacement64(self.rng.random_range(0..128));
        instruction.set_memory_displ_size(8);
        self.add(instruction)
    }

    fn string(&mut self) -> Result<(), IcedError> {
        let used = [Gpr::Rsi, Gpr::Rdi, Gpr::Rcx, Gpr::Rax];
        if used.iter().any(|gpr| self.reserved.contains(*gpr)) {
            return Ok(());
        }
        for gpr in [Gpr::Rsi, Gpr::Rdi] {
            let at =
                MemoryOperand::with_base_displ(full(self.base), self.rng.random_range(-300..300));
            self.add(Instruction::with2(Code::Lea_r64_m, full(gpr), at)?)?;
        }
        self.add(Instruction::with2(
            Code::And_rm32_imm8,
            Register::ECX,
            0x1f,
        )?)?;
        if self.rng.random_range(0..4) == 0 {
            // Comparisons that run for a while need equal bytes.
            self.two(Code::Mov_rm64_r64, Register::RSI, Register::RDI)?;
        }
        let opcode = *[0xa4u8, 0xa6, 0xaa, 0xac, 0xae]
            .choose(&mut self.rng)
            .expect("not empty");
        let bytes: &[u8] = &match self.rng.random_range(0..4) {
            0 => vec![opcode],
            1 => vec![0x66, opcode + 1],
            2 => vec![opcode + 1],
            _ => vec![0x48, opcode + 1],
        };
        let prefix: &[u8] = match self.rng.random_range(0..4) {
            0 => &[],
            1 => &[0xf2],
            _ => &[0xf3],
        };
        let instruction = decode(&[prefix, bytes].concat())[0];
        self.add(instruction)
    }

    /// A bit test whose offset register reaches beyond the operand.
    fn bits(&mut self) -> Result<(), IcedError> {
        let gpr = self.free();
        self.two(Code::Movsx_r64_rm8, full(gpr), sized(gpr, 1))?;
        if self.rng.random() {
            let by = self.rng.random_range(1..4);
            self.add(Instruction::with2(Code::Shl_rm64_imm8, full(gpr), by)?)?;
        }
        let code = *[
            (Code::Bt_rm32_r32, 4),
            (Code::Bts_rm64_r64, 8),
            (Code::Btr_rm16_r16, 2),
            (Code::Btc_rm32_r32, 4),
        ]
        .choose(&mut self.rng)
        .expect("not empty");
        let at = self.memory(false)?;
        let mut instruction = Instruction::with2(code.0, at, sized(gpr, code.1))?;
        instruction.set_has_lock_prefix(code.0 != Code::Bt_rm32_r32 && self.rng.random());
        self.add(instruction)
    }

    fn divide(&mut self) -> Result<(), IcedError> {
        let divisor = self.free();
        let used = [Gpr::Rax, Gpr::Rdx];
        if used.contains(&divisor) || used.iter().any(|gpr| self.reserved.contains(*gpr)) {
            return Ok(());
        }
        self.add(Instruction::with2(
            Code::Or_rm32_imm8,
            sized(divisor, 4),
            1,
        )?)?;
        self.two(Code::Xor_rm32_r32, Register::EDX, Register::EDX)?;
        let signed = self.rng.random::<bool>();
        if signed {
            self.add(Instruction::with2(Code::Shr_rm64_imm8, Register::RAX, 1)?)?;
        }
        let code = if signed {
            Code::Idiv_rm64
        } else {
            Code::Div_rm64
        };
        self.add(Instruction::with1(code, full(divisor))?)
    }

    fn stack(&mut self) -> Result<(), IcedError> {
        if self.depth > 2 {
            return Ok(());
        }
        self.depth += 1;
        match self.rng.random_range(0..5) {
            0 => {
                let at = self.memory(true)?;
                self.add(Instruction::with1(Code::Push_rm64, at)?)?;
            }
            1 => {
                let value: i32 = self.rng.random();
                self.add(Instruction::with1(Code::Pushq_imm32, value)?)?;
            }
            2 => self.a.pushfq()?,
            _ => {
                let gpr = self.reads();
                self.add(Instruction::with1(Code::Push_r64, full(gpr))?)?;
            }
        }
        let length = self.rng.random_range(0..3);
        self.body(length)?;
        if self.rng.random_range(0..3) == 0 {
            let at = self.memory(true)?;
            self.add(Instruction::with1(Code::Pop_rm64, at)?)?;
        } else {
            let gpr = self.free();
            self.add(Instruction::with1(Code::Pop_r64, full(gpr))?)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// A forward branch over a few instructions.
    fn skip(&mut self) -> Result<(), IcedError> {
        let mut over = self.a.create_label();
        if self.rng.random_range(0..8) == 0 {
            self.a.jrcxz(over)?;
            self.a.nop()?;
        } else {
            let jump = *CONDITIONS.choose(&mut self.rng).expect("not empty");
            jump(self.a, over)?;
            let length = self.rng.random_range(0..4);
            self.depth += 1;
            self.body(length)?;
            self.depth -= 1;
        }
        self.a.set_label(&mut over)?;
        self.a.nop()
    }

    /// A loop of a few rounds.
    fn repeat(&mut self) -> Result<(), IcedError> {
        if self.depth > 1 {
            return Ok(());
        }
        let by_rcx = !self.reserved.contains(Gpr::Rcx) && self.rng.random_range(0..4) == 0;
        let counter = if by_rcx { Gpr::Rcx } else { self.free() };
        let rounds = *[2u32, 5, 12, 60].choose(&mut self.rng).expect("not empty");
        self.add(Instruction::with2(
            Code::Mov_r32_imm32,
            sized(counter, 4),
            rounds,
        )?)?;
        let reserved = self.reserved;
        self.reserved.insert(counter);
        self.depth += 1;
        let mut head = self.a.create_label();
        self.a.set_label(&mut head)?;
        self.a.nop()?;
        let length = self.rng.random_range(1..5);
        self.body(length)?;
        if by_rcx {
            // `loop` is short.
            let (mut out, mut again) = (self.a.create_label(), self.a.create_label());
            self.a.loop_(again)?;
            self.a.jmp(out)?;
            self.a.set_label(&mut again)?;
            self.a.jmp(head)?;
            self.a.set_label(&mut out)?;
            self.a.nop()?;
        } else {
            self.add(Instruction::with1(Code::Dec_rm64, full(counter))?)?;
            self.a.jne(head)?;
        }
        self.depth -= 1;
        self.reserved = reserved;
        Ok(())
    }

    fn call(&mut self) -> Result<(), IcedError> {
        if self.depth > 2 {
            return Ok(());
        }
        let function = self.a.create_label();
        self.functions.push((function, self.reserved));
        // The function may return with 8 more bytes gone, so that rsp needs to be put right.
        let keep = self.free();
        self.two(Code::Mov_rm64_r64, full(keep), Register::RSP)?;
        let word = self.absolute(layout::GPRS + 160);
        self.add(Instruction::with2(Code::Mov_rm64_r64, word, full(keep))?)?;
        self.add(Instruction::with1(Code::Pushq_imm8, 7)?)?;
        match self.rng.random_range(0..3) {
            0 => {
                let gpr = self.free();
                let own = get_gpr64(full(gpr)).expect("64 bits");
                self.a.lea(own, ptr(function))?;
                self.add(Instruction::with1(Code::Call_rm64, full(gpr))?)?;
            }
            1 => {
                let gpr = self.free();
                let own = get_gpr64(full(gpr)).expect("64 bits");
                self.a.lea(own, ptr(function))?;
                let at = self.memory(false)?;
                self.add(Instruction::with2(Code::Mov_rm64_r64, at, full(gpr))?)?;
                self.add(Instruction::with1(Code::Call_rm64, at)?)?;
            }
            _ => self.a.call(function)?,
        }
        self.add(Instruction::with2(Code::Mov_r64_rm64, Register::RSP, word)?)
    }

    /// A jump to one of two places, through a register, memory or a return.
    fn indirect(&mut self) -> Result<(), IcedError> {
        let (first, second) = (self.free(), self.free());
        let (mut one, mut other) = (self.a.create_label(), self.a.create_label());
        let own = |gpr: Gpr| get_gpr64(full(gpr)).expect("64 bits");
        self.a.lea(own(first), ptr(one))?;
        self.a.lea(own(second), ptr(other))?;
        let codes = [
            Code::Cmovb_r64_rm64,
            Code::Cmove_r64_rm64,
            Code::Cmovs_r64_rm64,
        ];
        let code = *codes.choose(&mut self.rng).expect("not empty");
        self.two(code, full(first), full(second))?;
        match self.rng.random_range(0..3) {
            0 => self.add(Instruction::with1(Code::Jmp_rm64, full(first))?)?,
            1 => {
                let at = self.memory(false)?;
                self.add(Instruction::with2(Code::Mov_rm64_r64, at, full(first))?)?;
                self.add(Instruction::with1(Code::Jmp_rm64, at)?)?;
            }
            _ => {
                self.add(Instruction::with1(Code::Push_r64, full(first))?)?;
                self.a.ret()?;
            }
        }
        self.a.set_label(&mut one)?;
        self.a.nop()?;
        self.one_flat()?;
        self.a.set_label(&mut other)?;
        self.a.nop()
    }

    fn one_flat(&mut self) -> Result<(), IcedError> {
        self.depth += 1;
        let done = self.one();
        self.depth -= 1;
        done
    }

    /// `xlat` where rbx can be the base, else `enter` and `leave`.
    fn table(&mut self) -> Result<(), IcedError> {
        if !self.reserved.contains(Gpr::Rbx) && !self.reserved.contains(Gpr::Rax) {
            self.two(Code::Mov_rm64_r64, Register::RBX, full(self.base))?;
            return self.a.xlatb();
        }
        if self.reserved.contains(Gpr::Rbp) || self.depth > 2 {
            return Ok(());
        }
        self.add(Instruction::with2(Code::Enterq_imm16_imm8, 16, 0)?)?;
        let reserved = self.reserved;
        self.reserved.insert(Gpr::Rbp);
        self.one_flat()?;
        self.reserved = reserved;
        self.a.leave()
    }
}

fn set_memory(instruction: &mut Instruction, place: &MemoryOperand) {
    instruction.set_memory_base(place.base);
    instruction.set_memory_index(place.index);
    instruction.set_memory_index_scale(place.scale);
    instruction.set_memory_displacement64(place.displacement as u64);
    instruction.set_memory_displ_size(place.displ_size);
    instruction.set_segment_prefix(place.segment_prefix);
}

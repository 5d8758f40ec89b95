//! Instructions that need more than operands: gathers, strings, bit offsets, divisions, the stack, tables.

use super::*;

impl Generator<'_> {
    pub(super) fn gather(&mut self) -> Result<(), IcedError> {
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

    pub(super) fn string(&mut self) -> Result<(), IcedError> {
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
    pub(super) fn bits(&mut self) -> Result<(), IcedError> {
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

    pub(super) fn divide(&mut self) -> Result<(), IcedError> {
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

    pub(super) fn stack(&mut self) -> Result<(), IcedError> {
        if self.depth > 2 {
            return Ok(());
        }
        self.depth += 1;
        let pushed = self.rng.random_range(0..5);
        match pushed {
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
        if pushed == 2 && self.rng.random() {
            self.a.popfq()?;
        } else if self.rng.random_range(0..3) == 0 {
            let at = self.memory(true)?;
            self.add(Instruction::with1(Code::Pop_rm64, at)?)?;
        } else {
            let gpr = self.free();
            self.add(Instruction::with1(Code::Pop_r64, full(gpr))?)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// `xlat` where rbx can be the base, else `enter` and `leave`.
    pub(super) fn table(&mut self) -> Result<(), IcedError> {
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

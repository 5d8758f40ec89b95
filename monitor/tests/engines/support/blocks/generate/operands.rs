//! Instructions of the templates with operands of their own: registers of the same class, memory of the block.

use super::*;

impl Generator<'_> {
    /// Draws operands for an example until they harm nothing.
    pub(super) fn template(&mut self, bytes: &[u8], operand: Operand) -> Result<(), IcedError> {
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

    pub(super) fn same_class(&mut self, register: Register, evex: bool) -> Register {
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

    pub(super) fn in_place_of_memory(
        &mut self,
        i: &Instruction,
        operand: Operand,
        evex: bool,
    ) -> Register {
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

    pub(super) fn aligned(&mut self) -> MemoryOperand {
        let displacement = 64 * self.rng.random_range(-4..4);
        MemoryOperand::with_base_displ(full(self.base), displacement)
    }

    /// A place in the block's memory, at most 255*4+128+64 bytes from the middle. May use an index,
    /// prepared by an instruction before.
    pub(super) fn memory(&mut self, index: bool) -> Result<MemoryOperand, IcedError> {
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
    pub(super) fn move_base(&mut self) -> Result<(), IcedError> {
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
}

fn set_memory(instruction: &mut Instruction, place: &MemoryOperand) {
    instruction.set_memory_base(place.base);
    instruction.set_memory_index(place.index);
    instruction.set_memory_index_scale(place.scale);
    instruction.set_memory_displacement64(place.displacement as u64);
    instruction.set_memory_displ_size(place.displ_size);
    instruction.set_segment_prefix(place.segment_prefix);
}

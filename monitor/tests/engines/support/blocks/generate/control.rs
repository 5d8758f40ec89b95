//! Branches, loops, calls and indirect jumps.

use super::*;

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

impl Generator<'_> {
    /// A forward branch over a few instructions.
    pub(super) fn skip(&mut self) -> Result<(), IcedError> {
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
    pub(super) fn repeat(&mut self) -> Result<(), IcedError> {
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

    pub(super) fn call(&mut self) -> Result<(), IcedError> {
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
    pub(super) fn indirect(&mut self) -> Result<(), IcedError> {
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

    pub(super) fn one_flat(&mut self) -> Result<(), IcedError> {
        self.depth += 1;
        let done = self.one();
        self.depth -= 1;
        done
    }
}

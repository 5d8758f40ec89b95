//! Calls, returns and indirect jumps. Only original addresses are ever on the program's stack.

use super::super::super::asm::OutOfReach;
use super::super::super::duty::Duty;
use super::super::super::layout::{JUMPS, state};
use super::super::super::room::Room;
use super::super::super::state::{CARRIER, Ip, State};
use super::super::super::trace::Item;
use super::super::scratch::Scratch;
use super::super::{ExitKind, JUMP_BYTES, Stretch};
use super::Builder;
use crate::arch::{self, Gpr, GprSet};
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

/// Sends a thread to `TARGET` by the table of jumps, its record complete, `spare` in use and rcx spilled.
pub(super) fn by_table(out: &mut Stretch, spare: Gpr) {
    if spare != CARRIER {
        out.asm.spill(CARRIER);
        out.asm.copy(CARRIER, spare);
        let mut bound = State::bound(out.duty);
        bound.spilled.insert(spare);
        out.mark(bound);
        out.asm.unspill(spare);
    }
    out.mark(State::bound(out.duty));
    // From here, not from a place that all transfers share: processors guess by the place where a jump leads.
    match out.duty {
        // All of the word that was stored, which does not wait for memory as a part of it would.
        Duty::Observe { .. } => {
            out.asm.load(Gpr::Rcx, state::TARGET);
            out.asm.low_word(Gpr::Rcx, Gpr::Rcx);
        }
        Duty::Count => out.asm.load_word16(Gpr::Rcx, state::TARGET),
    }
    out.asm.jump_indexed(Gpr::Rcx, JUMPS);
}

impl Builder<'_> {
    /// Emits the push of a return address.
    pub(super) fn push_return(&mut self, address: u64) -> Result<(), OutOfReach> {
        if let Ok(address) = i32::try_from(address) {
            self.hot.asm.push(address);
            return Ok(());
        }
        let literal = self.literal(address);
        self.hot.asm.push_word_at(literal)
    }

    /// Emits an indirect transfer: its target goes to the state block, and the thread to where the table of jumps says.
    pub(super) fn indirect(&mut self, item: &Item, done: usize) -> Result<(), OutOfReach> {
        let instruction = &item.instruction;
        let ip = instruction.ip();
        let mut at = self.inside(ip, done - 1);
        self.hot.mark(at);
        self.hot.asm.spill(Gpr::Rcx);
        at.spilled.insert(Gpr::Rcx);
        match arch::classify(instruction) {
            arch::Flow::Ret { pop } => {
                if pop == 0 {
                    self.pop_target()?;
                } else {
                    // Target first, then both moves of the stack pointer at once: at every
                    // instruction in between, the return has either not happened or happened.
                    let top = MemoryOperand::with_base(Register::RSP);
                    let load = Instruction::with2(Code::Mov_r64_rm64, Register::RCX, top);
                    self.hot.asm.put(&load.map_err(|_| OutOfReach)?)?;
                    self.hot.mark(at);
                    self.hot.asm.lea(Gpr::Rsp, Gpr::Rsp, 8 + i64::from(pop));
                }
                at.ip = Ip::InRcx;
                at.open = Some(done as u16);
                self.hot.mark(at);
            }
            flow => {
                self.load_target(instruction)?;
                self.hot.mark(at);
                if flow == arch::Flow::IndirectCall {
                    self.push_return(instruction.next_ip())?;
                }
                at.ip = Ip::InRcx;
                at.open = Some(done as u16);
                self.hot.mark(at);
            }
        }
        self.hot.asm.save(state::TARGET, Gpr::Rcx);
        self.values.execute(instruction, item.gprs.1);
        self.close(Ip::InTarget, done, true, Room::NONE);
        Ok(())
    }

    fn pop_target(&mut self) -> Result<(), OutOfReach> {
        let pop = Instruction::with1(Code::Pop_r64, Register::RCX);
        self.hot.asm.put(&pop.map_err(|_| OutOfReach)?)
    }

    /// Emits a return that is to lead to `to`, where the trace goes on, and the program does not need `room`. The address is compared where it
    /// lies; leads it elsewhere, the record ends with it. No flag is touched: who returns elsewhere may need them.
    pub(super) fn follow_return(
        &mut self,
        i: usize,
        item: &Item,
        to: u64,
        room: Room,
    ) -> Result<(), OutOfReach> {
        let done = i + 1;
        let mut at = self.inside(item.instruction.ip(), i);
        // What is needed elsewhere is not needed less.
        let room = Room {
            dead: GprSet::EMPTY,
            ..room
        };
        let mut scratch = Scratch::new(self.spare, room, at.spilled, GprSet::EMPTY);
        let rcx = scratch.take_this(&mut self.hot, at, Gpr::Rcx);
        let top = MemoryOperand::with_base(Register::RSP);
        let load = Instruction::with2(Code::Mov_r64_rm64, Register::RCX, top);
        self.hot.asm.put(&load.map_err(|_| OutOfReach)?)?;
        let negated = (to as i64).wrapping_neg();
        if i32::try_from(negated).is_ok() {
            self.hot.asm.lea(rcx, rcx, negated);
        } else {
            let mut other = scratch.clone();
            let constant = other.take(&mut self.hot, at);
            self.hot.asm.constant(constant, negated as u64);
            self.hot.asm.lea_sum(rcx, rcx, constant);
            other.give_back_but(&mut self.hot, at, &scratch);
        }
        self.hot.asm.jrcxz(JUMP_BYTES);
        let out = self.cold.asm.here();
        self.hot.asm.jump(out);
        scratch.give_back(&mut self.hot, at);
        self.hot.asm.lea(Gpr::Rsp, Gpr::Rsp, 8);
        self.returns.push(done as u16);
        // Nothing has happened yet where it leads elsewhere.
        at.spilled = scratch.spilled();
        self.cold.mark(at);
        let pop = Instruction::with1(Code::Pop_r64, Register::RCX);
        self.cold.asm.put(&pop.map_err(|_| OutOfReach)?)?;
        at.ip = Ip::InRcx;
        at.open = Some(done as u16);
        self.cold.mark(at);
        self.cold.asm.save(state::TARGET, Gpr::Rcx);
        at.ip = Ip::InTarget;
        self.cold.mark(at);
        // To the code of this way out, once it has some.
        let field = self.cold.asm.jump(self.cold.asm.here() + 5);
        self.return_elsewhere(at, done, field);
        Ok(())
    }

    /// The way out where a return leads elsewhere, which has no code yet: rcx as the program has it, and a pad. `field` leads here.
    fn return_elsewhere(&mut self, at: State, done: usize, field: u64) {
        self.cold.mark(at);
        self.cold.asm.unspill(Gpr::Rcx);
        let kind = ExitKind::Side {
            done: done as u16,
            words: self.words as u16,
            target: None,
            field: 0,
        };
        let mut leaving = at;
        leaving.spilled.remove(Gpr::Rcx);
        let (_, number) = self
            .exits
            .pad(&mut self.cold, self.spare, leaving, None, kind);
        self.exits.set_side_field(number, field);
    }

    /// `mov rcx, operand` with the operand of an indirect jump or call.
    fn load_target(&mut self, instruction: &Instruction) -> Result<(), OutOfReach> {
        let mut load = *instruction;
        load.set_code(Code::Mov_r64_rm64);
        let (kind, register) = (instruction.op0_kind(), instruction.op0_register());
        load.set_op0_kind(OpKind::Register);
        load.set_op0_register(Register::RCX);
        load.set_op1_kind(kind);
        if kind == OpKind::Register {
            load.set_op1_register(register);
        }
        self.hot.asm.put(&load)
    }
}

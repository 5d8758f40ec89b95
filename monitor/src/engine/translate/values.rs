//! Which register values must be logged so that every address of a trace can be computed later.
//!
//! Value numbering over the general registers: two accesses through the same base, or through
//! bases that differ by a constant, need one logged value. Nothing is approximated: the log gives
//! every address exactly.

use crate::arch::{Gpr, GprSet};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// What is known of a register: `value(number) + offset`, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Constant(u64),
    Number { number: u32, offset: i64 },
}

/// A term of an address: a constant, or a logged word plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Word of the record, 1 and up; 0 when the term is a constant.
    pub slot: u8,
    /// Constant to add.
    pub add: u64,
}

/// A register from which a logged word can be had: the word is the register plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Word of the record.
    pub slot: u8,
    /// The register.
    pub gpr: Gpr,
    /// Constant to add.
    pub add: i64,
}

/// Values of the registers at one point of a trace.
#[derive(Debug)]
pub struct Values {
    registers: [Value; 16],
    /// For each number, the word it was logged in and `number - word`.
    logged: Vec<Option<(u8, i64)>>,
}

impl Default for Values {
    fn default() -> Self {
        Self::new()
    }
}

impl Values {
    /// Nothing known: every register holds a value of its own.
    pub fn new() -> Values {
        let mut n = 0;
        let registers = [(); 16].map(|()| {
            n += 1;
            Value::Number {
                number: n - 1,
                offset: 0,
            }
        });
        Values {
            registers,
            logged: vec![None; 16],
        }
    }

    fn fresh(&mut self) -> Value {
        self.logged.push(None);
        Value::Number {
            number: self.logged.len() as u32 - 1,
            offset: 0,
        }
    }

    /// The present value of `gpr` where it is known.
    pub fn constant(&self, gpr: Gpr) -> Option<u64> {
        match self.registers[gpr.number()] {
            Value::Constant(value) => Some(value),
            Value::Number { .. } => None,
        }
    }

    /// From here on `gpr` holds something else.
    pub fn forget(&mut self, gpr: Gpr) {
        self.registers[gpr.number()] = self.fresh();
    }

    /// The term for `gpr`'s present value. Where it is not in the log yet, `log` is called and
    /// must store the register in the word it returns.
    pub fn term(&mut self, gpr: Gpr, log: impl FnOnce(Gpr) -> u8) -> Term {
        match self.registers[gpr.number()] {
            Value::Constant(value) => Term {
                slot: 0,
                add: value,
            },
            Value::Number { number, offset } => {
                let entry = &mut self.logged[number as usize];
                let (slot, delta) = *entry.get_or_insert_with(|| (log(gpr), -offset));
                Term {
                    slot,
                    add: (delta + offset) as u64,
                }
            }
        }
    }

    /// Registers that hold logged words at this point.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        Gpr::ALL.into_iter().filter_map(|gpr| {
            let Value::Number { number, offset } = self.registers[gpr.number()] else {
                return None;
            };
            let (slot, delta) = self.logged[number as usize]?;
            let add = delta.wrapping_add(offset).wrapping_neg();
            Some(Holder { slot, gpr, add })
        })
    }

    /// Follows what `instruction` does to the registers, of which it may change `written`.
    pub fn execute(&mut self, instruction: &Instruction, written: GprSet) {
        if self.derive(instruction) {
            return;
        }
        let rsp = self.registers[Gpr::Rsp.number()];
        written.iter().for_each(|gpr| self.forget(gpr));
        let pops_rsp = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RSP;
        if instruction.is_stack_instruction()
            && !pops_rsp
            && !matches!(instruction.mnemonic(), Mnemonic::Enter | Mnemonic::Leave)
        {
            self.registers[Gpr::Rsp.number()] =
                moved(rsp, i64::from(instruction.stack_pointer_increment()));
        }
    }

    /// Registers whose values differ from others by constants: true when fully handled.
    fn derive(&mut self, instruction: &Instruction) -> bool {
        if let Some((to, constant)) = short_constant(instruction) {
            self.registers[to.number()] = Value::Constant(constant);
            return true;
        }
        let Some(to) = register(instruction, 0).and_then(full) else {
            return false;
        };
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => register(instruction, 1)
                .and_then(full)
                .map(|from| self.registers[from.number()]),
            Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub if immediate(instruction).is_some() => {
                let constant = immediate(instruction).unwrap_or_default();
                match instruction.mnemonic() {
                    Mnemonic::Mov => Some(Value::Constant(constant as u64)),
                    Mnemonic::Add => Some(moved(self.registers[to.number()], constant)),
                    _ => Some(moved(self.registers[to.number()], constant.wrapping_neg())),
                }
            }
            Mnemonic::Inc => Some(moved(self.registers[to.number()], 1)),
            Mnemonic::Dec => Some(moved(self.registers[to.number()], -1)),
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                let displacement = instruction.memory_displacement64() as i64;
                match instruction.memory_base() {
                    Register::RIP | Register::None => Some(Value::Constant(displacement as u64)),
                    base => full(base).map(|b| moved(self.registers[b.number()], displacement)),
                }
            }
            _ => None,
        };
        let handled = value.is_some();
        if let Some(value) = value {
            self.registers[to.number()] = value;
        }
        handled
    }
}

fn moved(value: Value, by: i64) -> Value {
    match value {
        Value::Constant(c) => Value::Constant(c.wrapping_add(by as u64)),
        Value::Number { number, offset } => Value::Number {
            number,
            offset: offset.wrapping_add(by),
        },
    }
}

fn register(instruction: &Instruction, operand: u32) -> Option<Register> {
    (instruction.op_count() > operand && instruction.op_kind(operand) == OpKind::Register)
        .then(|| instruction.op_register(operand))
}

/// What `mov register32, immediate` leaves in the whole register.
fn short_constant(instruction: &Instruction) -> Option<(Gpr, u64)> {
    let is_short = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Immediate32
        && instruction.op0_register().is_gpr32();
    let to = Gpr::containing(register(instruction, 0).filter(|_| is_short)?)?;
    Some((to, u64::from(instruction.immediate32())))
}

/// The register as a 64-bit general register; `None` for its parts and for other kinds.
fn full(register: Register) -> Option<Gpr> {
    (register.is_gpr64())
        .then(|| Gpr::containing(register))
        .flatten()
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    let operand = instruction.op_count().checked_sub(1)?;
    match instruction.op_kind(operand) {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            Some(instruction.immediate(operand) as i64)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    fn run(values: &mut Values, bytes: &[u8]) {
        let mut factory = InstructionInfoFactory::new();
        for instruction in Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).iter() {
            let written = crate::arch::gprs_written(&instruction, &mut factory);
            values.execute(&instruction, written);
        }
    }

    #[test]
    fn short_constants_are_those_of_whole_registers() {
        let mut values = Values::new();
        // mov ecx,0x80000000; mov r9d,7; mov dl,1
        run(
            &mut values,
            &[0xb9, 0, 0, 0, 0x80, 0x41, 0xb9, 7, 0, 0, 0, 0xb2, 1],
        );
        assert_eq!(values.constant(Gpr::Rcx), Some(0x8000_0000));
        assert_eq!(values.constant(Gpr::R9), Some(7));
        assert_eq!(values.constant(Gpr::Rdx), None);
        values.forget(Gpr::Rcx);
        assert_eq!(values.constant(Gpr::Rcx), None);
    }

    #[test]
    fn constant_differences_share_one_logged_value() {
        let mut values = Values::new();
        let first = values.term(Gpr::Rsp, |_| 1);
        // push rbp; mov rbp,rsp; sub rsp,0x20; lea rax,[rbp-8]; inc rax
        run(
            &mut values,
            &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20],
        );
        run(&mut values, &[0x48, 0x8d, 0x45, 0xf8, 0x48, 0xff, 0xc0]);
        let no_log = |_: Gpr| -> u8 { panic!("logged twice") };
        assert_eq!(first, Term { slot: 1, add: 0 });
        assert_eq!(
            values.term(Gpr::Rbp, no_log),
            Term {
                slot: 1,
                add: -8i64 as u64
            }
        );
        assert_eq!(
            values.term(Gpr::Rsp, no_log),
            Term {
                slot: 1,
                add: -40i64 as u64
            }
        );
        assert_eq!(
            values.term(Gpr::Rax, no_log),
            Term {
                slot: 1,
                add: -15i64 as u64
            }
        );
    }

    #[test]
    fn loads_and_narrow_writes_make_new_values() {
        let mut values = Values::new();
        values.term(Gpr::Rax, |_| 1);
        run(&mut values, &[0x48, 0x8b, 0x00]); // mov rax,[rax]
        assert_eq!(values.term(Gpr::Rax, |_| 2).slot, 2);
        run(&mut values, &[0x83, 0xc0, 0x01]); // add eax,1
        assert_eq!(values.term(Gpr::Rax, |_| 3).slot, 3);
        run(&mut values, &[0xb0, 0x01]); // mov al,1
        assert_eq!(values.term(Gpr::Rax, |_| 4).slot, 4);
        run(&mut values, &[0x48, 0x8d, 0x05, 0x10, 0, 0, 0]); // lea rax,[rip+0x10]
        assert_eq!(
            values.term(Gpr::Rax, |_| 5),
            Term {
                slot: 0,
                add: 0x1017
            }
        );
        run(&mut values, &[0xc9]); // leave
        assert_eq!(values.term(Gpr::Rsp, |_| 6).slot, 6);
        run(&mut values, &[0x5c]); // pop rsp
        assert_eq!(values.term(Gpr::Rsp, |_| 7).slot, 7);
    }

    #[test]
    fn words_are_held_by_registers_that_differ_by_constants() {
        let mut values = Values::new();
        run(&mut values, &[0x48, 0x83, 0xc3, 0x08]); // add rbx,8
        values.term(Gpr::Rbx, |_| 1);
        values.term(Gpr::Rdi, |_| 2);
        // lea rax,[rbx+4]; add rbx,16; mov rdi,[rdi]
        run(&mut values, &[0x48, 0x8d, 0x43, 0x04]);
        run(&mut values, &[0x48, 0x83, 0xc3, 0x10, 0x48, 0x8b, 0x3f]);
        let held: Vec<Holder> = values.holders().collect();
        let holder = |gpr, add| Holder { slot: 1, gpr, add };
        assert_eq!(held, [holder(Gpr::Rax, -4), holder(Gpr::Rbx, -16)]);
    }
}

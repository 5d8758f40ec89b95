//! One instruction of the program: what it is about to access, and its execution.

use super::{Live, MOST_ITERATIONS, Result, Stop, is_step};
use crate::arch::{Kind, Shape, evaluate};
use crate::engine::step::registers::View;
use crate::engine::translate::window::Control;
use crate::observe::Access;
use crate::tracee::{Resume, StopReason, Stopped};

impl<C: Control> Live<'_, C> {
    /// The accesses of the instruction about to run; `None` where they cannot be told.
    pub(super) fn accesses_of(&mut self, stopped: &Stopped) -> Result<Option<Vec<Access>>> {
        let regs = stopped.regs()?;
        if self.vdso.contains(&regs.rip) {
            return Ok(Some(Vec::new()));
        }
        let Ok(decoded) = self.decoder.at(stopped, regs.rip) else {
            return Ok(None);
        };
        let view = View::new(stopped, &regs);
        let mut list = Vec::new();
        let repeated = |shape: &Shape| matches!(shape, Shape::Rep { .. });
        let mut iterations = 1;
        if let Some(Shape::Rep {
            counter32,
            condition,
            ..
        }) = decoded
            .accesses
            .iter()
            .map(|access| &access.shape)
            .find(|shape| repeated(shape))
        {
            let left = match counter32 {
                true => regs.rcx & 0xffff_ffff,
                false => regs.rcx,
            };
            let conditional = *condition != crate::arch::RepCondition::None;
            if left > MOST_ITERATIONS || (conditional && left > 1) {
                return Ok(None);
            }
            iterations = left;
        }
        for iteration in 0..iterations {
            for access in &decoded.accesses {
                for (address, size) in evaluate(access, &view) {
                    let moved = match access.shape {
                        Shape::Rep { step, .. } => {
                            const DIRECTION: u64 = 0x400;
                            let by = iteration * u64::from(step);
                            match regs.eflags & DIRECTION {
                                0 => address.wrapping_add(by),
                                _ => address.wrapping_sub(by),
                            }
                        }
                        _ => address,
                    };
                    list.push(Access {
                        ip: regs.rip,
                        address: moved,
                        size,
                        load: access.kind != Kind::Store,
                        store: access.kind != Kind::Load,
                    });
                }
            }
        }
        view.result()?;
        Ok(Some(list))
    }

    /// Executes one instruction of the program.
    pub(super) fn execute(&mut self) -> Result<()> {
        self.leave_stub()?;
        let regs = self.regs()?;
        loop {
            let stopped = self.take();
            let decoded = match self.decoder.at(&stopped, regs.rip) {
                Ok(decoded) => decoded,
                Err(reason) => {
                    self.thread = Some(stopped);
                    return Err(Stop::Close(reason));
                }
            };
            if let Some(word) = &decoded.flags_word {
                self.accessed = true;
                let done = word.carry_out(&stopped, &regs, decoded.len)?;
                self.thread = Some(stopped);
                return match done {
                    true => Ok(()),
                    false => Err(Stop::Close("flags word out of reach")),
                };
            }
            self.accessed = !decoded.accesses.is_empty() && !self.vdso.contains(&regs.rip);
            let stopped = self.go(stopped, Resume::IntoHandler, 0)?;
            let repeats = decoded
                .accesses
                .iter()
                .any(|access| matches!(access.shape, Shape::Rep { .. }));
            let ran = match stopped.reason {
                StopReason::Signal(libc::SIGTRAP) if is_step(&stopped)? => {
                    self.thread = Some(stopped);
                    true
                }
                StopReason::Signal(signal) => {
                    let dispatched = signal == libc::SIGSYS;
                    self.deliver(stopped, signal)? || dispatched
                }
                _ => {
                    self.thread = Some(stopped);
                    true
                }
            };
            let now = self.regs()?.rip;
            if now != regs.rip || (ran && !repeats) {
                return Ok(());
            }
        }
    }
}

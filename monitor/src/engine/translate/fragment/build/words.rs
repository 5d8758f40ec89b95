//! The words of a record: what gives the addresses of its accesses, each logged once.

use super::super::super::duty::Duty;
use super::super::super::trace::Item;
use super::super::super::values::Term;
use super::super::{Dynamic, LoggedAccess, Space, count};
use super::Builder;
use crate::arch::{Gpr, Mask, RepCondition, Shape};
use iced_x86::Instruction;

impl Builder<'_> {
    /// Emits the stores that the accesses of an item need.
    pub(super) fn log_accesses(&mut self, i: usize, item: &Item) {
        if self.exits.runtime.duty == Duty::Count {
            let counted = item
                .accesses
                .iter()
                .flat_map(|a| count::counted(a, i as u8));
            self.accesses.extend(counted);
            return;
        }
        for access in &item.accesses {
            let zero = Term { slot: 0, add: 0 };
            let base = access.address.base.map_or(zero, |gpr| self.term(gpr));
            let index = access.address.index.map_or(zero, |gpr| self.term(gpr));
            let scale = access.address.scale;
            let dynamic = self.dynamic(&access.shape, &item.instruction);
            let disp = (access.address.disp as u64)
                .wrapping_add(base.add)
                .wrapping_add(index.add.wrapping_mul(u64::from(scale)));
            debug_assert!(u16::try_from(access.size).is_ok() && u8::try_from(i).is_ok());
            self.accesses.push(LoggedAccess {
                disp,
                dynamic: dynamic.map(Box::new),
                size: access.size as u16,
                item: i as u8,
                base: base.slot,
                index: index.slot,
                scale,
                space: Space::of(access.address.fs, access.address.addr32),
                kind: access.kind,
            });
        }
    }

    fn term(&mut self, gpr: Gpr) -> Term {
        let (hot, words) = (&mut self.hot, &mut self.words);
        self.values.term(gpr, |gpr| {
            hot.asm.log(*words, gpr);
            *words += 1;
            (*words - 1) as u8
        })
    }

    fn vector(&mut self, number: u8, bytes: usize, evex: bool) -> u8 {
        let word = self.words;
        self.hot.asm.log_vector(word, number, bytes, evex);
        self.words += bytes / 8;
        word as u8
    }

    fn dynamic(&mut self, shape: &Shape, instruction: &Instruction) -> Option<Dynamic> {
        Some(match *shape {
            Shape::Plain | Shape::MaskMov => return None,
            Shape::Rep {
                counter32,
                condition,
                step,
            } => {
                let count = self.term(Gpr::Rcx);
                // Where a condition may stop it, `copy` logs the counter behind it too.
                let after = u8::from(condition != RepCondition::None);
                Dynamic::Rep {
                    count,
                    after,
                    counter32,
                    step,
                }
            }
            Shape::Gather {
                index,
                lanes,
                index_bytes,
                element_bytes,
                scale,
                mask,
                ..
            } => {
                let evex = matches!(mask, Mask::K(_));
                let bytes = |element: u8| {
                    (usize::from(lanes) * usize::from(element))
                        .next_power_of_two()
                        .max(16)
                };
                let index = self.vector(index, bytes(index_bytes), evex);
                let (mask, vector_mask) = match mask {
                    Mask::Vector(n) => (self.vector(n, bytes(element_bytes), evex), true),
                    Mask::K(n) => {
                        self.hot.asm.log_mask(self.words, n);
                        self.words += 1;
                        ((self.words - 1) as u8, false)
                    }
                };
                debug_assert!(instruction.is_vsib());
                Dynamic::Gather {
                    index,
                    lanes,
                    index_bytes,
                    element_bytes,
                    scale,
                    mask,
                    vector_mask,
                }
            }
            Shape::BitOffset {
                offset,
                operand_bytes,
            } => Dynamic::Bit {
                offset: self.term(offset),
                operand_bytes,
            },
            Shape::Xlat => Dynamic::Xlat {
                rax: self.term(Gpr::Rax),
            },
        })
    }
}

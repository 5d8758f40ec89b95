//! The addresses that a described access has in a stopped thread.

use super::{Access, AddressExpr, Gpr, Mask, Shape};

/// Direction flag in `rflags`.
const DIRECTION: u64 = 1 << 10;
/// Most lanes of a gather or scatter.
const MAX_LANES: usize = 16;

/// Registers of a thread just before it executes the instruction in question.
pub trait Registers {
    /// Value of a general-purpose register.
    fn gpr(&self, gpr: Gpr) -> u64;
    /// `rflags`.
    fn rflags(&self) -> u64;
    /// Base address of the fs segment.
    fn fs_base(&self) -> u64;
    /// All 64 bytes of vector register `number` (0 to 31), zero above what the host has. Asked for gathers only.
    fn vector(&self, number: u8) -> [u8; 64];
    /// Mask register `k number`. Asked for gathers only.
    fn mask(&self, number: u8) -> u64;
}

/// The accesses `(address, bytes)` of one evaluated [`Access`], in the order of its lanes.
#[derive(Clone, Debug)]
pub struct Expansion {
    items: [(u64, u32); MAX_LANES],
    next: usize,
    len: usize,
}

impl Expansion {
    fn new() -> Self {
        Expansion {
            items: [(0, 0); MAX_LANES],
            next: 0,
            len: 0,
        }
    }

    fn push(&mut self, address: u64, size: u32) {
        self.items[self.len] = (address, size);
        self.len += 1;
    }

    /// Appends a lane: one that begins where the one before ended is the same access.
    fn push_lane(&mut self, address: u64, size: u32) {
        if self.len > 0 {
            let (start, bytes) = &mut self.items[self.len - 1];
            if start.wrapping_add(u64::from(*bytes)) == address {
                *bytes += size;
                return;
            }
        }
        self.push(address, size);
    }
}

impl Iterator for Expansion {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        if self.next == self.len {
            return None;
        }
        self.next += 1;
        Some(self.items[self.next - 1])
    }
}

/// What `access` touches with these registers: nothing, one operand, or the active lanes of a gather with adjoining
/// neighbours merged.
///
/// For [`Shape::Rep`] it is the *next iteration* alone (nothing where the counter is zero), which is what one single
/// step of the processor executes.
pub fn evaluate(access: &Access, registers: &impl Registers) -> Expansion {
    let mut expansion = Expansion::new();
    let size = access.size;
    match access.shape {
        Shape::Plain | Shape::MaskMov => {
            expansion.push(address(&access.address, 0, registers), size)
        }
        Shape::Xlat => {
            let al = registers.gpr(Gpr::Rax) & 0xff;
            expansion.push(address(&access.address, al, registers), size);
        }
        Shape::BitOffset {
            offset,
            operand_bytes,
        } => {
            let bits = u32::from(operand_bytes) * 8;
            let moved = operands_away(registers.gpr(offset), bits) * i64::from(operand_bytes);
            expansion.push(address(&access.address, moved as u64, registers), size);
        }
        Shape::Rep { counter32, .. } => {
            let rcx = registers.gpr(Gpr::Rcx);
            let count = if counter32 { rcx & 0xffff_ffff } else { rcx };
            if count != 0 {
                expansion.push(address(&access.address, 0, registers), size);
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
            let indices = registers.vector(index);
            let active = active_lanes(mask, lanes, element_bytes, registers);
            for lane in (0..lanes).filter(|lane| active >> lane & 1 != 0) {
                let offset = signed_element(&indices, lane, index_bytes) * i64::from(scale);
                expansion.push_lane(address(&access.address, offset as u64, registers), size);
            }
        }
    }
    expansion
}

impl Shape {
    /// Bytes by which the address register of a `rep` instruction moves per iteration: negative where the direction
    /// flag is set; 0 for any other shape.
    pub fn rep_stride(&self, rflags: u64) -> i64 {
        match self {
            Shape::Rep { step, .. } if rflags & DIRECTION != 0 => -i64::from(*step),
            Shape::Rep { step, .. } => i64::from(*step),
            _ => 0,
        }
    }
}

/// `expr` with `extra` added before any truncation.
fn address(expr: &AddressExpr, extra: u64, registers: &impl Registers) -> u64 {
    let value = |gpr: Option<Gpr>| gpr.map_or(0, |gpr| registers.gpr(gpr));
    let mut sum = value(expr.base)
        .wrapping_add(value(expr.index).wrapping_mul(u64::from(expr.scale)))
        .wrapping_add(expr.disp as u64)
        .wrapping_add(extra);
    if expr.addr32 {
        sum &= 0xffff_ffff;
    }
    if expr.fs {
        sum = sum.wrapping_add(registers.fs_base());
    }
    sum
}

/// How many operands of `bits` bits a bit offset lies away, rounded down. Source: Intel SDM, BT, table 3-2.
fn operands_away(register: u64, bits: u32) -> i64 {
    let signed = match bits {
        16 => i64::from(register as i16),
        32 => i64::from(register as i32),
        _ => register as i64,
    };
    signed.div_euclid(i64::from(bits))
}

fn active_lanes(mask: Mask, lanes: u8, element_bytes: u8, registers: &impl Registers) -> u64 {
    match mask {
        Mask::K(number) => registers.mask(number),
        Mask::Vector(number) => {
            let vector = registers.vector(number);
            (0..lanes)
                .filter(|lane| signed_element(&vector, *lane, element_bytes) < 0)
                .fold(0, |active, lane| active | 1 << lane)
        }
    }
}

fn signed_element(vector: &[u8; 64], lane: u8, bytes: u8) -> i64 {
    let at = usize::from(lane) * usize::from(bytes);
    match bytes {
        4 => i64::from(i32::from_le_bytes(
            vector[at..at + 4].try_into().expect("4 bytes"),
        )),
        _ => i64::from_le_bytes(vector[at..at + 8].try_into().expect("8 bytes")),
    }
}

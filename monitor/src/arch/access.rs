//! The form in which memory accesses are described: before they are executed, in terms of registers.
//!
//! Plain data; `describe` makes it from an instruction, `evaluate` makes addresses of it.

use super::Gpr;

/// Direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The operand is read.
    Load,
    /// The operand is written.
    Store,
    /// The operand is read and (perhaps) written by the same instruction; one access.
    ReadWrite,
}

/// Effective address `base + index * scale + disp`, plus the fs base where `fs`.
///
/// With `addr32` the sum is truncated to 32 bits before the fs base is added. An address relative to the instruction
/// pointer is resolved into `disp`, without base. `base` and `index` are the registers' full values: the truncation
/// makes `[eax+ecx]` and `[rax+rcx]` with `addr32` the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressExpr {
    /// Base register.
    pub base: Option<Gpr>,
    /// Index register (never the vector register of a gather: see [`Shape::Gather`]).
    pub index: Option<Gpr>,
    /// Factor of `index`: 1, 2, 4 or 8.
    pub scale: u8,
    /// Displacement in bytes.
    pub disp: i64,
    /// Whether the fs base is added.
    pub fs: bool,
    /// Whether the sum is truncated to 32 bits.
    pub addr32: bool,
}

impl AddressExpr {
    /// `base + disp`.
    pub(super) fn of(base: Gpr, disp: i64) -> Self {
        AddressExpr {
            base: Some(base),
            index: None,
            scale: 1,
            disp,
            fs: false,
            addr32: false,
        }
    }
}

/// Which further condition than its counter ends a `rep` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepCondition {
    /// The counter alone (`rep movs`, `stos`, `lods`).
    None,
    /// Ends after an iteration that clears ZF (`repe cmps`, `scas`).
    WhileEqual,
    /// Ends after an iteration that sets ZF (`repne cmps`, `scas`).
    WhileNotEqual,
}

/// Which register decides the active lanes of a gather or scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// The sign bit of each element of vector register `n` (AVX2), elements as wide as the data.
    Vector(u8),
    /// Bit `i` of mask register `k n` (AVX-512).
    K(u8),
}

/// How the address and number of an access depend on more than its [`AddressExpr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One access at the address.
    Plain,
    /// A `rep` string instruction: one access per iteration; the address register moves by `step` bytes, down where the
    /// direction flag is set.
    Rep {
        /// Whether the iterations are counted in ecx instead of rcx.
        counter32: bool,
        /// What ends it early.
        condition: RepCondition,
        /// Bytes of an element.
        step: u8,
    },
    /// One access per active lane, at the address plus the sign-extended index element times `scale`.
    Gather {
        /// Vector register with the indices.
        index: u8,
        /// Lanes.
        lanes: u8,
        /// Bytes of an index element: 4 or 8.
        index_bytes: u8,
        /// Bytes of a data element: 4 or 8.
        element_bytes: u8,
        /// Factor of the index.
        scale: u8,
        /// Which lanes are active.
        mask: Mask,
        /// Whether it stores (scatter).
        scatter: bool,
    },
    /// `bt`, `bts`, `btr`, `btc` with a register bit offset: the address moves by the signed register, in units of the
    /// operand.
    BitOffset {
        /// Register with the bit offset; its low `operand_bytes` count, signed.
        offset: Gpr,
        /// Bytes of the operand: 2, 4 or 8.
        operand_bytes: u8,
    },
    /// `xlat`: `al` is added to the address.
    Xlat,
    /// `maskmovq`, `maskmovdqu`: as plain; one access of full width whatever the byte mask says.
    MaskMov,
}

/// One memory access of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Where.
    pub address: AddressExpr,
    /// Bytes of the operand: of one element for [`Shape::Rep`] and [`Shape::Gather`], else of all of it.
    pub size: u32,
    /// Load, store or both.
    pub kind: Kind,
    /// What else decides address and number.
    pub shape: Shape,
}

/// The accesses of an instruction cannot be told with certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unsupported {
    /// Why, as a lower-case fragment for the list of what was declined.
    pub reason: &'static str,
}

//! The sixteen general-purpose registers, and sets of them.

use iced_x86::Register;
use std::fmt;

/// A full 64-bit general-purpose register, numbered as instructions encode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Gpr {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl Gpr {
    /// All sixteen, in encoding order.
    pub const ALL: [Gpr; 16] = [
        Gpr::Rax,
        Gpr::Rcx,
        Gpr::Rdx,
        Gpr::Rbx,
        Gpr::Rsp,
        Gpr::Rbp,
        Gpr::Rsi,
        Gpr::Rdi,
        Gpr::R8,
        Gpr::R9,
        Gpr::R10,
        Gpr::R11,
        Gpr::R12,
        Gpr::R13,
        Gpr::R14,
        Gpr::R15,
    ];

    /// The register that `register` is a part of (`al`, `ax`, `eax` -> `rax`); `None` for any other kind.
    pub fn containing(register: Register) -> Option<Gpr> {
        if register.is_gpr() {
            Some(Self::ALL[register.full_register().number()])
        } else {
            None
        }
    }

    /// Encoding number, 0 (`rax`) to 15 (`r15`).
    pub fn number(self) -> usize {
        self as usize
    }

    /// The decoder's name for the 64-bit register.
    pub fn register(self) -> Register {
        Register::RAX + self as u32
    }
}

impl fmt::Display for Gpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        f.write_str(NAMES[self.number()])
    }
}

/// A set of general-purpose registers; bit `n` is the register with encoding number `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GprSet(pub u16);

impl GprSet {
    /// No register.
    pub const EMPTY: GprSet = GprSet(0);
    /// All sixteen.
    pub const ALL: GprSet = GprSet(0xffff);

    /// Adds one register.
    pub fn insert(&mut self, gpr: Gpr) {
        self.0 |= 1 << gpr.number();
    }

    /// Takes a register out.
    pub fn remove(&mut self, gpr: Gpr) {
        self.0 &= !(1 << gpr as u16);
    }

    /// Whether `gpr` is in the set.
    pub fn contains(self, gpr: Gpr) -> bool {
        self.0 >> gpr.number() & 1 != 0
    }

    /// Registers in either set.
    pub fn union(self, other: GprSet) -> GprSet {
        GprSet(self.0 | other.0)
    }

    /// Registers in both sets.
    pub fn intersection(self, other: GprSet) -> GprSet {
        GprSet(self.0 & other.0)
    }

    /// Registers of this set that are not in `other`.
    pub fn without(self, other: GprSet) -> GprSet {
        GprSet(self.0 & !other.0)
    }

    /// The members in encoding order.
    pub fn iter(self) -> impl Iterator<Item = Gpr> {
        Gpr::ALL.into_iter().filter(move |gpr| self.contains(*gpr))
    }
}

impl FromIterator<Gpr> for GprSet {
    fn from_iter<I: IntoIterator<Item = Gpr>>(gprs: I) -> Self {
        let mut set = GprSet::EMPTY;
        gprs.into_iter().for_each(|gpr| set.insert(gpr));
        set
    }
}

//! Looking up a group of accesses in the filter, and taking back there that drawn lines are looked for.

use super::super::group::Group;
use super::super::layout::{FILTER, NOT_DUE, state};
use super::super::values::Holder;
use super::{JUMP_BYTES, Stretch};
use crate::arch::{Gpr, GprSet};

/// Where a part of an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A register holds the logged word, less a constant: both.
    Held(Gpr, u8, i64),
    /// This word of the record.
    Logged(u8),
    /// The base of the `fs` segment.
    Fs,
}

impl Source {
    /// Where a word comes from; rsp cannot be an index.
    fn of(word: u8, held: &[Holder], index: bool) -> Source {
        let holds = |holder: &&Holder| holder.slot == word && !(index && holder.gpr == Gpr::Rsp);
        match held.iter().find(holds) {
            Some(holder) => Source::Held(holder.gpr, word, holder.add),
            None => Source::Logged(word),
        }
    }
}

/// The look-up of one group: `base + index*scale + low`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookUp {
    base: Option<Source>,
    index: Option<(Source, u8)>,
    low: u64,
    /// Last byte, relative to the first.
    extent: u8,
}

/// Registers for it.
pub(super) struct Place {
    pub(super) address: Gpr,
    pub(super) third: Gpr,
    /// Holds the filter's mask.
    pub(super) mask: Option<Gpr>,
    pub(super) wide: bool,
}

impl LookUp {
    pub(super) fn new(group: &Group, held: &[Holder]) -> LookUp {
        let of = |word, index| (word != 0).then(|| Source::of(word, held, index));
        // With fs there is no index.
        let fs = group.fs.then_some((Source::Fs, 1));
        let index = of(group.index, true).map(|source| (source, group.scale));
        LookUp {
            base: of(group.base, false),
            index: index.or(fs),
            low: group.low,
            extent: group.extent,
        }
    }

    /// That of its last byte.
    fn end(&self) -> LookUp {
        LookUp {
            low: self.low.wrapping_add(u64::from(self.extent)),
            extent: 0,
            ..*self
        }
    }

    /// Registers of the program's that it uses.
    pub(super) fn registers(&self) -> GprSet {
        let sources = self.base.into_iter().chain(self.index.map(|(s, _)| s));
        sources
            .filter_map(|source| match source {
                Source::Held(gpr, ..) => Some(gpr),
                _ => None,
            })
            .collect()
    }

    /// The same where registers `gone` hold something else.
    pub(super) fn without(self, gone: GprSet) -> LookUp {
        let logged = |source| match source {
            Source::Held(gpr, word, _) if gone.contains(gpr) => Source::Logged(word),
            source => source,
        };
        LookUp {
            base: self.base.map(logged),
            index: self.index.map(|(source, scale)| (logged(source), scale)),
            ..self
        }
    }

    /// Constant part, what registers differ from words by included.
    fn constant(&self) -> i64 {
        let add = |source: Option<Source>| match source {
            Some(Source::Held(_, _, add)) => add,
            _ => 0,
        };
        let (index, scale) = self.index.map_or((None, 0), |(s, scale)| (Some(s), scale));
        (self.low as i64)
            .wrapping_add(add(self.base))
            .wrapping_add(add(index).wrapping_mul(i64::from(scale)))
    }

    /// Whether it takes another register besides that of the address.
    pub(super) fn needs_third(&self) -> bool {
        let sources = self.base.into_iter().chain(self.index.map(|(s, _)| s));
        let (mut registers, mut loads) = (0, 0);
        for source in sources {
            registers += 1;
            loads += usize::from(!matches!(source, Source::Held(..)));
        }
        loads == 2 || registers > 0 && i32::try_from(self.constant()).is_err()
    }

    /// Writes code that finds the filter's place; returns the register it is in.
    pub(super) fn place(&self, out: &mut Stretch, to: &Place, flags: bool) -> Gpr {
        let asm = &mut out.asm;
        let mut low = self.constant();
        let mut load = |source: Source, gpr: Gpr| match source {
            Source::Held(held, ..) => held,
            Source::Logged(word) => {
                asm.load_logged(gpr, usize::from(word));
                gpr
            }
            Source::Fs => {
                asm.load(gpr, state::FS);
                gpr
            }
        };
        let mut base = self.base.map(|source| load(source, to.address));
        let free = match base {
            Some(base) if base == to.address => to.third,
            _ => to.address,
        };
        let mut index = self
            .index
            .map(|(source, scale)| (load(source, free), scale));
        let mut from = to.address;
        if base.is_none() && index.is_none() {
            match u32::try_from(low) {
                Ok(low) => asm.constant32(to.address, low),
                Err(_) => asm.constant(to.address, low as u64),
            }
        } else {
            if i32::try_from(low).is_err() {
                if index.is_some() {
                    asm.lea_address(to.address, base, index, 0)
                        .expect("no displacement");
                    base = Some(to.address);
                }
                asm.constant(to.third, low as u64);
                (index, low) = (Some((to.third, 1)), 0);
            }
            match base {
                Some(base) if index.is_none() && low == 0 && to.wide => from = base,
                _ => asm
                    .lea_address(to.address, base, index, low)
                    .expect("the displacement was made to fit"),
            }
        }
        match to.mask {
            Some(mask) => asm.extract_by(to.address, from, mask),
            None if to.wide => asm.extract(to.address, from, state::MASK),
            None if flags => {
                // Bits 8 to 23 of the address.
                asm.shift_right(to.address, 8);
                asm.low_word(to.address, to.address);
            }
            None => {
                // The same by a store and a load at an offset.
                asm.save(state::SCRATCH, to.address);
                asm.load_word16(to.address, state::SCRATCH + 1);
            }
        }
        to.address
    }
}

/// Writes the code by which a thread that is not to keep every record sees what it has found in the filter. That drawn lines are looked for
/// where groups begin and end is taken back: they are touched. Who only begins before such a line and does not reach it need not be kept.
/// `given` have not the program's values, `scratch` (rcx first) are free. No flag is touched. Returns the jumps to where the record is kept; what is
/// behind is for one that is not.
pub(super) fn spend(
    out: &mut Stretch,
    looked_up: &[LookUp],
    given: GprSet,
    scratch: [Gpr; 3],
) -> [u64; 2] {
    let [rcx, byte, sum] = scratch;
    // While every record is kept, the reader of the log does it.
    out.asm.load_byte(rcx, state::DUE);
    out.asm.lea(rcx, rcx, -i64::from(NOT_DUE));
    out.asm.jrcxz(JUMP_BYTES);
    let due = out.asm.jump(out.asm.here());
    out.asm.constant32(sum, 0);
    let to = Place {
        address: rcx,
        third: byte,
        mask: None,
        wide: true,
    };
    for look in looked_up {
        for (at, worth) in [(*look, state::NOT_BEFORE), (look.end(), state::DRAWN)] {
            let place = at.without(given).place(out, &to, false);
            out.asm.load_byte_indexed(byte, place, FILTER);
            out.asm.extract(byte, byte, worth);
            out.asm.lea_sum(sum, sum, byte);
            out.asm.load_byte_indexed(byte, place, FILTER);
            out.asm.extract(byte, byte, state::NOT_DRAWN);
            out.asm.store_byte_indexed(place, FILTER, byte);
        }
    }
    out.asm.lea(rcx, sum, 0);
    out.asm.jrcxz(JUMP_BYTES);
    [due, out.asm.jump(out.asm.here())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_from_registers_that_can_be_where_they_are_needed() {
        let holder = |gpr, add| Holder { slot: 2, gpr, add };
        let held = [holder(Gpr::Rsp, 16), holder(Gpr::Rdi, 0)];
        assert_eq!(Source::of(2, &held, false), Source::Held(Gpr::Rsp, 2, 16));
        assert_eq!(Source::of(2, &held, true), Source::Held(Gpr::Rdi, 2, 0));
        assert_eq!(Source::of(2, &held[..1], true), Source::Logged(2));
        assert_eq!(Source::of(1, &held, false), Source::Logged(1));
    }

    #[test]
    fn what_is_not_held_any_more_takes_registers() {
        let held = |gpr| Source::Held(gpr, 1, 0);
        let look = LookUp {
            base: Some(held(Gpr::R8)),
            index: Some((held(Gpr::Rdi), 8)),
            low: 0,
            extent: 0,
        };
        let gone = |gprs: &[Gpr]| look.without(gprs.iter().copied().collect());
        assert!(!gone(&[]).needs_third());
        assert!(!gone(&[Gpr::Rdi]).needs_third());
        assert!(gone(&[Gpr::Rdi, Gpr::R8]).needs_third());
        // Far from what holds it.
        let far = LookUp {
            base: Some(Source::Held(Gpr::R8, 1, 1 << 40)),
            index: None,
            low: 0,
            extent: 0,
        };
        assert!(far.needs_third());
        assert!(!far.without([Gpr::R8].into_iter().collect()).needs_third());
    }
}

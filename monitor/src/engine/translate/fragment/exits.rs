//! The ways out of fragments, and what their records stand for: numbers that generated code gives to the monitor.

use super::super::duty::Duty;
use super::super::layout::state;
use super::super::runtime::Runtime;
use super::super::state::{Ip, Spare, State};
use super::{FragmentId, Stretch};
use crate::arch::{Gpr, GprSet};

/// Why a fragment leaves the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// To a direct target without a fragment yet.
    Direct {
        /// Original address.
        target: u64,
        /// Displacement field to point at the target's warm entry (same spare register).
        warm_field: u64,
        /// Displacement field to point at the target's cold entry.
        cold_field: u64,
    },
    /// A side exit taken for the first time, the record still open.
    Side {
        /// Items done.
        done: u16,
        /// Words of the record so far.
        words: u16,
        /// Original address it leads to; `None`: in `TARGET`, as a return that the trace follows led elsewhere.
        target: Option<u64>,
        /// Displacement field of the branch to it; 0 once that has code of its own.
        field: u64,
    },
    /// The program's code is no longer what the fragment was made of; nothing of it has run. Fields as of
    /// `Direct`, to point at the fragment of what is there now.
    Changed {
        /// As of `Direct`.
        warm_field: u64,
        /// As of `Direct`.
        cold_field: u64,
    },
    /// The log is full; go on at `resume` in the cache.
    Full {
        /// Cache address to go on at.
        resume: u64,
    },
    /// At a `syscall` instruction.
    Syscall,
    /// At something that must run natively.
    Declined(&'static str),
}

/// One way out, known by its number.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The fragment it belongs to.
    pub fragment: FragmentId,
    /// Why.
    pub kind: ExitKind,
}

/// What a record adds to [`state::COUNT`] when it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// Its accesses, always as many.
    Fixed(u16),
    /// Its accesses, as many as the counters of its `rep` instructions say.
    Expanded,
    /// Nothing: all records that follow are kept up to the next stop.
    Nothing,
}

/// What a record in the log stands for: the first `items` items of a fragment.
#[derive(Clone, Copy, Debug)]
pub struct RecordShape {
    /// The fragment.
    pub fragment: FragmentId,
    /// Items executed.
    pub items: u16,
    /// Length in 8-byte words, header included.
    pub words: u16,
    /// What it counts.
    pub adds: Adds,
}

/// An exit as it is kept, half as long: code caches of compilers have half a million. Addresses in the cache are those of user space,
/// below 2^47.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Of `Direct` and `Side`.
    target: u64,
    fragment: FragmentId,
    /// The cold field, the field of the branch, or where to resume.
    place_low: u32,
    /// From the cold field to the warm one; words of the record; number of the reason.
    more: i32,
    place_high: u16,
    done: u8,
    tag: Tag,
}

const _: () = assert!(size_of::<Kept>() <= 24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Direct,
    Side,
    SideReturn,
    Changed,
    Full,
    Syscall,
    Declined,
}

impl Kept {
    fn place(&self) -> u64 {
        u64::from(self.place_high) << 32 | u64::from(self.place_low)
    }

    fn set_place(&mut self, place: u64) {
        debug_assert!(place < 1 << 47);
        (self.place_low, self.place_high) = (place as u32, (place >> 32) as u16);
    }
}

/// Numbers given out across all fragments.
#[derive(Debug, Default)]
pub struct Tables {
    /// Ways out, by exit number minus one.
    exits: Vec<Kept>,
    /// Reasons to decline.
    reasons: Vec<&'static str>,
    /// Record shapes, by record number.
    pub records: Vec<RecordShape>,
}

impl Tables {
    /// The exit with number `id`; `None` for [`EXIT_INDIRECT`](super::super::runtime::EXIT_INDIRECT).
    pub fn exit(&self, id: u32) -> Option<Exit> {
        let kept = self.exits.get((id as usize).checked_sub(1)?)?;
        let place = kept.place();
        let warm_field = place.wrapping_add_signed(i64::from(kept.more));
        let kind = match kept.tag {
            Tag::Direct => ExitKind::Direct {
                target: kept.target,
                warm_field,
                cold_field: place,
            },
            Tag::Side | Tag::SideReturn => ExitKind::Side {
                done: u16::from(kept.done),
                words: kept.more as u16,
                target: (kept.tag == Tag::Side).then_some(kept.target),
                field: place,
            },
            Tag::Changed => ExitKind::Changed {
                warm_field,
                cold_field: place,
            },
            Tag::Full => ExitKind::Full { resume: place },
            Tag::Syscall => ExitKind::Syscall,
            Tag::Declined => ExitKind::Declined(self.reasons[kept.more as usize]),
        };
        let fragment = kept.fragment;
        Some(Exit { fragment, kind })
    }

    /// Adds an exit; gives its number.
    fn add(&mut self, Exit { fragment, kind }: Exit) -> u32 {
        let mut kept = Kept {
            target: 0,
            fragment,
            place_low: 0,
            more: 0,
            place_high: 0,
            done: 0,
            tag: Tag::Syscall,
        };
        match kind {
            ExitKind::Direct {
                target,
                warm_field,
                cold_field,
            } => {
                (kept.tag, kept.target) = (Tag::Direct, target);
                kept.set_place(cold_field);
                kept.more = warm_field.wrapping_sub(cold_field) as i32;
            }
            ExitKind::Side {
                done,
                words,
                target,
                field,
            } => {
                kept.tag = target.map_or(Tag::SideReturn, |_| Tag::Side);
                kept.target = target.unwrap_or(0);
                (kept.done, kept.more) = (done as u8, i32::from(words));
                kept.set_place(field);
            }
            ExitKind::Changed {
                warm_field,
                cold_field,
            } => {
                kept.tag = Tag::Changed;
                kept.set_place(cold_field);
                kept.more = warm_field.wrapping_sub(cold_field) as i32;
            }
            ExitKind::Full { resume } => {
                kept.tag = Tag::Full;
                kept.set_place(resume);
            }
            ExitKind::Syscall => {}
            ExitKind::Declined(reason) => {
                kept.tag = Tag::Declined;
                let known = self.reasons.iter().position(|known| *known == reason);
                kept.more = known.unwrap_or(self.reasons.len()) as i32;
                if known.is_none() {
                    self.reasons.push(reason);
                }
            }
        }
        self.exits.push(kept);
        self.exits.len() as u32
    }

    /// Notes that side exit `id` has code of its own: nothing comes out by it any more.
    pub fn set_built(&mut self, id: u32) {
        self.set_side_field(id, 0);
    }

    /// Says where the jump of a direct exit, or of one of code that has changed, is to be patched with the spare register in use.
    fn set_warm_field(&mut self, id: u32, at: u64) {
        let kept = &mut self.exits[id as usize - 1];
        if matches!(kept.tag, Tag::Direct | Tag::Changed) {
            kept.more = at.wrapping_sub(kept.place()) as i32;
        }
    }

    fn set_side_field(&mut self, id: u32, at: u64) {
        let kept = &mut self.exits[id as usize - 1];
        if matches!(kept.tag, Tag::Side | Tag::SideReturn) {
            kept.set_place(at);
        }
    }
}

/// Where the ways out of a fragment are written down.
pub(super) struct Exits<'a> {
    pub(super) id: FragmentId,
    pub(super) runtime: &'a Runtime,
    pub(super) tables: &'a mut Tables,
    pub(super) numbers: Vec<u32>,
}

impl Exits<'_> {
    /// Code that puts the spare register back, tells why and leaves, at `state` (that register in use);
    /// returns its address and the exit's number. A direct exit can be patched twice: to skip
    /// all of it, or after the register is back. `target` is `None` where it is in its word already.
    pub(super) fn pad(
        &mut self,
        out: &mut Stretch,
        spare: Gpr,
        mut state: State,
        target: Option<u64>,
        kind: ExitKind,
    ) -> (u64, u32) {
        let start = out.asm.here();
        out.mark(state);
        if out.duty == Duty::Count {
            out.asm.save(state::LOG, spare);
        }
        out.asm.unspill(spare);
        state.spilled = GprSet::EMPTY;
        state.spare = Spare::Unused;
        out.mark(state);
        let field = out.asm.here() + 1;
        if matches!(kind, ExitKind::Direct { .. } | ExitKind::Changed { .. }) {
            out.asm.jump(field + 4);
        }
        out.asm.spill(Gpr::Rax);
        state.spilled.insert(Gpr::Rax);
        if let Some(target) = target {
            out.asm.constant(Gpr::Rax, target);
            out.mark(state);
            out.asm.save(state::TARGET, Gpr::Rax);
        } else {
            out.mark(state);
        }
        let mut exit = Exit {
            fragment: self.id,
            kind,
        };
        if let ExitKind::Direct { cold_field, .. } | ExitKind::Changed { cold_field, .. } =
            &mut exit.kind
        {
            *cold_field = field;
        }
        let number = self.tables.add(exit);
        out.asm.constant32(Gpr::Rax, number);
        out.asm.save(state::EXIT, Gpr::Rax);
        out.asm.jump(self.runtime.exit);
        self.numbers.push(number);
        (start, number)
    }

    /// A pad for the end of the log, or of the count; a thread goes on at `resume` in the cache.
    pub(super) fn full(&mut self, out: &mut Stretch, spare: Gpr, state: State, resume: u64) {
        let target = match state.ip {
            Ip::At(ip) => Some(ip),
            Ip::InRcx | Ip::InTarget => None,
        };
        self.pad(out, spare, state, target, ExitKind::Full { resume });
    }

    /// A pad for a direct target, whose jump at `field` is to skip it once there is a fragment.
    pub(super) fn direct(&mut self, out: &mut Stretch, spare: Gpr, target: u64) -> (u64, u32) {
        let kind = ExitKind::Direct {
            target,
            warm_field: 0,
            cold_field: 0,
        };
        let state = out.inside(spare, Ip::At(target), None);
        self.pad(out, spare, state, Some(target), kind)
    }

    pub(super) fn set_warm_field(&mut self, exit: u32, at: u64) {
        self.tables.set_warm_field(exit, at);
    }

    pub(super) fn set_side_field(&mut self, exit: u32, at: u64) {
        self.tables.set_side_field(exit, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_kept_as_they_are() {
        let (near, far) = (0x7ef0_1234_5678, 0x7ef0_0aaa_0001);
        let kinds = [
            ExitKind::Direct {
                target: 0x7fff_ffff_f123,
                warm_field: near,
                cold_field: far,
            },
            ExitKind::Direct {
                target: u64::MAX - 4,
                warm_field: far,
                cold_field: near,
            },
            ExitKind::Side {
                done: 240,
                words: 96,
                target: Some(0),
                field: near,
            },
            ExitKind::Side {
                done: 1,
                words: 2,
                target: None,
                field: far,
            },
            ExitKind::Changed {
                warm_field: far,
                cold_field: near,
            },
            ExitKind::Full { resume: near },
            ExitKind::Syscall,
            ExitKind::Declined("one reason"),
            ExitKind::Declined("another"),
            ExitKind::Declined("one reason"),
        ];
        let mut tables = Tables::default();
        for (fragment, kind) in (7..).zip(kinds) {
            let number = tables.add(Exit { fragment, kind });
            let exit = tables.exit(number).unwrap();
            assert_eq!((exit.fragment, exit.kind), (fragment, kind));
        }
        assert_eq!(tables.reasons.len(), 2);
        assert!(tables.exit(0).is_none() && tables.exit(11).is_none());
        // Their fields are told later; others have none.
        tables.set_warm_field(1, far + 5);
        tables.set_side_field(4, near);
        tables.set_built(3);
        tables.set_warm_field(6, far);
        let field = |number| match tables.exit(number).unwrap().kind {
            ExitKind::Direct { warm_field, .. } => warm_field,
            ExitKind::Side { field, .. } => field,
            ExitKind::Full { resume } => resume,
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 4, 3, 6].map(field), [far + 5, near, 0, near]);
    }
}

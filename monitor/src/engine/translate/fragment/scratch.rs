//! Registers borrowed, most of all where a record is closed: those that the program does not need first, then those that it does not
//! read soon, since who waits for one to come back from memory waits for several cycles.

use super::super::room::Room;
use super::super::state::State;
use super::Stretch;
use crate::arch::{Gpr, GprSet};

/// The order among equals. Behind a return or an indirect call, where nobody knows what is read, it is least likely these that hold
/// neither a result nor an argument nor what callees keep (System V ABI, AMD64 supplement, figure 3.4).
const ORDER: [Gpr; 15] = [
    Gpr::R10,
    Gpr::R11,
    Gpr::R9,
    Gpr::R8,
    Gpr::Rsi,
    Gpr::Rdx,
    Gpr::Rdi,
    Gpr::Rcx,
    Gpr::R15,
    Gpr::R14,
    Gpr::R13,
    Gpr::R12,
    Gpr::Rbp,
    Gpr::Rax,
    Gpr::Rbx,
];

/// Who may be borrowed, and who is.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    /// In the order in which they are taken.
    order: Vec<Gpr>,
    /// Those that need not be put back.
    free: GprSet,
    /// Those whose program values were in their slots before.
    outside: GprSet,
    taken: GprSet,
    /// Those put in their slots here.
    saved: Vec<Gpr>,
}

impl Scratch {
    /// Where the program does not need `room`, the values of `outside` are in their slots already, `spare` is in use, and what `named` hold is of use.
    pub(super) fn new(spare: Gpr, room: Room, outside: GprSet, named: GprSet) -> Scratch {
        let mut free = room.dead;
        if outside.contains(Gpr::Rcx) {
            free.insert(Gpr::Rcx);
        }
        free.remove(spare);
        let mut order: Vec<Gpr> = ORDER.into_iter().filter(|gpr| *gpr != spare).collect();
        order.sort_by_key(|&gpr| {
            let is_free = free.contains(gpr);
            (
                !is_free,
                named.contains(gpr),
                !is_free && room.soon.contains(gpr),
            )
        });
        Scratch {
            order,
            free,
            outside,
            taken: GprSet::EMPTY,
            saved: Vec::new(),
        }
    }

    /// The same registers, none of them taken, those put in their slots still there.
    pub(super) fn again(&self) -> Scratch {
        let mut again = self.clone();
        let saved = self.saved.iter().copied().collect::<GprSet>();
        again.free = self.free.union(saved);
        again.order.sort_by_key(|gpr| !again.free.contains(*gpr));
        again.taken = GprSet::EMPTY;
        again
    }

    /// Registers taken so far.
    pub(super) fn taken(&self) -> GprSet {
        self.taken
    }

    /// Registers whose program values are in their slots.
    pub(super) fn spilled(&self) -> GprSet {
        self.saved
            .iter()
            .copied()
            .collect::<GprSet>()
            .union(self.outside)
    }

    /// Those that were before anything was taken.
    pub(super) fn outside(&self) -> GprSet {
        self.outside
    }

    /// Takes a register; `state` is what registers mean otherwise.
    pub(super) fn take(&mut self, out: &mut Stretch, state: State) -> Gpr {
        let gpr = self
            .order
            .iter()
            .copied()
            .find(|gpr| !self.taken.contains(*gpr))
            .expect("there are fourteen");
        self.take_this(out, state, gpr)
    }

    /// Takes a register that need not be put back and is not one of `named`, if there is one.
    pub(super) fn take_free(&mut self, named: GprSet) -> Option<Gpr> {
        let left = self.free.without(self.taken).without(named);
        let gpr = self.order.iter().copied().find(|gpr| left.contains(*gpr))?;
        self.taken.insert(gpr);
        Some(gpr)
    }

    /// Takes this one.
    pub(super) fn take_this(&mut self, out: &mut Stretch, mut state: State, gpr: Gpr) -> Gpr {
        debug_assert!(!self.taken.contains(gpr));
        self.taken.insert(gpr);
        if !self.free.contains(gpr) {
            out.asm.spill(gpr);
            self.saved.push(gpr);
            state.spilled = self.spilled();
            out.mark(state);
        }
        gpr
    }

    /// Puts back what was put in slots; `state` as with [`Scratch::take`].
    pub(super) fn give_back(&self, out: &mut Stretch, state: State) {
        self.put_back(out, state, 0);
    }

    /// Puts back what was put in slots since `before` was cloned.
    pub(super) fn give_back_but(&self, out: &mut Stretch, state: State, before: &Scratch) {
        self.put_back(out, state, before.saved.len());
    }

    fn put_back(&self, out: &mut Stretch, mut state: State, keep: usize) {
        state.spilled = self.spilled();
        for &gpr in self.saved[keep..].iter().rev() {
            out.asm.unspill(gpr);
            state.spilled.remove(gpr);
            out.mark(state);
        }
    }
}

//! Ways from fragment to fragment.

use super::super::fragment::{self, Exit, ExitKind, FragmentId};
use super::super::layout::{JUMP_ENTRIES, JUMPS, PROBES, TABLE, first_entry};
use super::super::memory::Shared;
use super::super::trace::Code;
use super::CodeCache;

/// Most entries that lead on to each other before the table of indirect targets is asked.
const LONGEST_CHAIN: usize = 8;

/// Key of an entry of the table of indirect targets that is free, as 0 is: of the highest address, where there is no code of a program's.
const NOWHERE: u64 = 1;

impl CodeCache {
    /// Gives a side exit that has been taken its own code. (Without room the next flush makes some.)
    pub fn build_side(&mut self, exit: u32, code: &mut impl Code) {
        let Some(id) = self.tables.exit(exit).map(|e| e.fragment) else {
            return;
        };
        let fragment = &mut self.fragments[id as usize];
        let Some(arena) = self.arenas.iter_mut().find(|a| a.contains(fragment.hot)) else {
            return;
        };
        if arena.full() {
            return;
        }
        let places = (arena.hot_next, arena.cold_next);
        let before = fragment.exits.len();
        let (runtime, tables) = (&arena.runtime, &mut self.tables);
        let mut room = self.rooms.by(code, &mut self.factory);
        let side = fragment::side(fragment, id, exit, places, &mut room, runtime, tables);
        drop(room);
        let Some((field, code)) = side else {
            return;
        };
        self.tables.set_built(exit);
        // Beside what it leads to, as a rule: that is translated next.
        let at = arena.put_hot(id, &code.hot);
        arena.put_cold(id, &code.cold);
        let displacement =
            i32::try_from(at.wrapping_sub(field + 4) as i64).expect("both lie in one arena");
        arena.memory.write(field, &displacement.to_le_bytes());
        self.link_exits(id, before);
    }

    /// Links the exits of a new fragment, and those that waited for it.
    pub(super) fn link_new(&mut self, id: FragmentId) {
        self.link_exits(id, 0);
        let ip = self.fragments[id as usize].ip;
        for exit in self.waiting.remove(&ip).unwrap_or_default() {
            self.link(exit, id);
        }
        self.relink_changed(ip, id);
    }

    /// Links the exits of a fragment from the `first` one on.
    fn link_exits(&mut self, id: FragmentId, first: usize) {
        for place in first..self.fragments[id as usize].exits.len() {
            let exit = self.fragments[id as usize].exits[place];
            let Some(Exit {
                kind: ExitKind::Direct { target, .. },
                ..
            }) = self.tables.exit(exit)
            else {
                continue;
            };
            match self.by_ip.get(&target) {
                Some(&to) => self.link(exit, to),
                None => self.waiting.entry(target).or_default().push(exit),
            }
        }
    }

    /// Points an exit at a fragment of its target: a direct one, or one of code that has changed.
    pub(super) fn link(&mut self, exit: u32, to: FragmentId) {
        let Some(Exit { fragment, kind }) = self.tables.exit(exit) else {
            return;
        };
        let (warm_field, cold_field, again) = match kind {
            ExitKind::Direct {
                warm_field,
                cold_field,
                ..
            } => (warm_field, cold_field, false),
            ExitKind::Changed {
                warm_field,
                cold_field,
            } => (warm_field, cold_field, true),
            _ => return,
        };
        let (from, to) = (
            &self.fragments[fragment as usize],
            &self.fragments[to as usize],
        );
        let (field, target) = if from.spare == to.spare {
            (warm_field, to.warm_entry)
        } else {
            (cold_field, to.entry)
        };
        // Out of reach it stays an exit through the monitor: slow, but right.
        if let Ok(displacement) = i32::try_from(target.wrapping_sub(field + 4) as i64)
            && let Some(arena) = self.arenas.iter_mut().find(|a| a.contains(field))
        {
            if again && field == cold_field {
                // It may have led to another fragment by the warm way: on to the cold one.
                arena.memory.write(warm_field, &[0; 4]);
            }
            arena.memory.write(field, &displacement.to_le_bytes());
        }
    }

    /// Makes every entry of the table of jumps, at `gs` in `data`, lead to the table of indirect targets, and what is empty there not
    /// look as if it were of address 0, which is its own negation.
    pub fn clear_jumps(&self, data: &mut Shared, gs: u64) {
        if let Some(arena) = self.arenas.first() {
            data.fill(gs + JUMPS as u64, arena.runtime.lookup, JUMP_ENTRIES);
            let first = gs + TABLE as u64 + 16 * first_entry(0);
            for probe in 0..PROBES as u64 {
                data.write_word(first + 16 * probe, NOWHERE);
            }
        }
    }

    /// Enters `ip` into a thread's tables of indirect targets and of jumps, at `gs` in `data`: into the latter, if it is not
    /// executed yet (`ahead`), only where that has room.
    pub fn learn_indirect(&mut self, ip: u64, data: &mut Shared, gs: u64, ahead: bool) {
        let Some(&id) = self.by_ip.get(&ip) else {
            return;
        };
        if !std::mem::replace(&mut self.fragments[id as usize].targeted, true) {
            self.indirect.push(ip);
        }
        let first = gs + TABLE as u64 + 16 * first_entry(ip);
        // Its own from before, where the code there was replaced, or a free one.
        let key = ip.wrapping_neg();
        let place = (0..PROBES as u64)
            .find(|probe| [0, NOWHERE, key].contains(&data.word(first + 16 * probe)));
        let entry = first + 16 * place.unwrap_or(PROBES as u64 - 1);
        data.write_word(entry, key);
        data.write_word(entry + 8, self.fragments[id as usize].entry);
        let jump = gs + JUMPS as u64 + 8 * (ip & (JUMP_ENTRIES as u64 - 1));
        let vacant = self.arenas[0].runtime.lookup;
        if (!ahead || data.word(jump) == vacant)
            && let Some(checked) = self.checked(id)
        {
            let first = self.chain(id, checked);
            data.write_word(jump, first);
        }
    }

    /// Puts the entry `checked` of a fragment in front of those of fragments whose addresses have the same low bits: threads that are bound
    /// elsewhere are led on to these. Returns the first of them all.
    fn chain(&mut self, id: FragmentId, checked: u64) -> u64 {
        let low = self.fragments[id as usize].ip as u16;
        let chain = self.chains.entry(low).or_default();
        if chain.contains(&checked) {
            return chain[chain.len() - 1];
        }
        if chain.len() == LONGEST_CHAIN {
            chain.clear();
        }
        let next = chain.last().copied();
        chain.push(checked);
        if let Some(next) = next
            && !self.lead_on(id, next)
        {
            self.chains.insert(low, vec![checked]);
        }
        checked
    }

    /// Leads threads that are bound elsewhere from the entry of a fragment on to the one at `next`, of another. False where that
    /// cannot be, or they are led on to another already.
    fn lead_on(&mut self, id: FragmentId, next: u64) -> bool {
        let fragment = &mut self.fragments[id as usize];
        let Some(field) = fragment.elsewhere.take() else {
            return false;
        };
        let Some(arena) = self.arenas.iter_mut().find(|a| a.contains(field)) else {
            return false;
        };
        let displacement = |to: u64| i32::try_from(to.wrapping_sub(field + 4) as i64).ok();
        let displacement = displacement(next).or_else(|| {
            // In another arena, too far away.
            let at = (!arena.full()).then_some(arena.hot_next)?;
            let code = fragment::lead_far(fragment, at, next, &arena.runtime);
            arena.put_hot(id, &code);
            displacement(at)
        });
        let Some(displacement) = displacement else {
            return false;
        };
        arena.memory.write(field, &displacement.to_le_bytes());
        true
    }

    /// The entry of a fragment for threads that may be bound elsewhere; `None` without room.
    fn checked(&mut self, id: FragmentId) -> Option<u64> {
        let fragment = &mut self.fragments[id as usize];
        if fragment.checked.is_some() {
            return fragment.checked;
        }
        let arena = self.arenas.iter_mut().find(|a| a.contains(fragment.hot))?;
        if arena.full() {
            return None;
        }
        let code = fragment::checked(fragment, arena.hot_next, &arena.runtime);
        arena.put_hot(id, &code);
        fragment.checked
    }
}

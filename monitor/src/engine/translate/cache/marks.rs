//! Instructions whose every execution is to be seen.

use super::super::fragment::{DROP, Fragment, FragmentId, KEEP};
use super::CodeCache;
use rustc_hash::FxHashSet;

impl CodeCache {
    pub(super) fn holds_marked(&self, fragment: &Fragment) -> bool {
        !self.marked.is_empty() && fragment.item_ips.iter().any(|ip| self.marked.contains(ip))
    }

    /// Keeps every record of fragments that hold any of these instructions, so that executions of them
    /// can be counted; those marked before no longer.
    pub fn mark(&mut self, ips: impl Iterator<Item = u64>) {
        for id in std::mem::take(&mut self.marked_fragments) {
            self.keep_records(id, DROP);
        }
        self.marked = ips.collect();
        if self.marked.is_empty() {
            return;
        }
        let held: Vec<FragmentId> = (0..self.fragments.len() as FragmentId)
            .filter(|id| self.holds_marked(&self.fragments[*id as usize]))
            .collect();
        for id in &held {
            self.keep_records(*id, KEEP);
        }
        self.marked_fragments = held;
    }

    /// Takes the marks off whatever these fragments hold: their records come too often to be kept.
    pub fn unmark(&mut self, frequent: &[FragmentId]) {
        for id in frequent {
            for ip in &self.fragments[*id as usize].item_ips {
                self.marked.remove(ip);
            }
        }
        let (held, others) = std::mem::take(&mut self.marked_fragments)
            .into_iter()
            .partition(|id| self.holds_marked(&self.fragments[*id as usize]));
        self.marked_fragments = held;
        let others: Vec<FragmentId> = others;
        for id in others {
            self.keep_records(id, DROP);
        }
    }

    /// Fragments that hold a marked instruction.
    pub fn marked_fragments(&self) -> &[FragmentId] {
        &self.marked_fragments
    }

    /// Instructions marked at present.
    pub fn marked(&self) -> &FxHashSet<u64> {
        &self.marked
    }

    pub(super) fn keep_records(&mut self, id: FragmentId, how: u8) {
        let fragment = &self.fragments[id as usize];
        if let Some(arena) = self.arenas.iter_mut().find(|a| a.contains(fragment.hot)) {
            for &decision in &fragment.decisions {
                arena.memory.write(decision, &[how]);
            }
        }
    }
}

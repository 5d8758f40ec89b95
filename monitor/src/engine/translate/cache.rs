//! The code cache: fragments by original address, the arenas they lie in, the links between them.

use super::fragment::{self, DROP, Exit, ExitKind, Fragment, FragmentId, KEEP, Tables};
use super::layout::{PROBES, TABLE};
use super::memory::Shared;
use super::runtime::{self, Runtime};
use super::state::State;
use super::trace::{self, Code, Trace};
use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Bytes of an arena. Within reach of every 32-bit displacement from the module it serves.
pub const ARENA_BYTES: u64 = 320 << 20;
/// Share of an arena for hot code.
const HOT_BYTES: u64 = 96 << 20;
/// Room a fragment needs at the most, hot or cold.
const FRAGMENT_ROOM: u64 = 32 << 10;
/// Times that the code at an address is translated anew in a window because it has changed; the next time the window
/// ends there.
const MOST_REPLACED: u32 = 64;
/// Most fragments of code that has changed that are gone through one after the other.
const LONGEST_CHAIN: usize = 4;
/// Fragments translated ahead at one stop. (Of 0, 1, 3 and 6, 1 took the least CPU time on a compiler, where nearly
/// all time is translation: `cc1 -O2` observed whole on a busy machine, 14.4, 11.6, 12.2 and 12.9 s.)
const AHEAD: usize = 1;
/// Fragments held before everything is flushed: bounds the monitor's memory, at about 2.2 KiB each.
const MAX_FRAGMENTS: usize = 70_000;
/// How far code may lie from its arena for 32-bit displacements to reach all of it.
pub const REACH: u64 = (1 << 31) - ARENA_BYTES - (64 << 20);

/// One stretch of the cache.
#[derive(Debug)]
pub struct Arena {
    memory: Shared,
    runtime: Runtime,
    hot_next: u64,
    cold_next: u64,
    /// Fragments by hot address, ascending.
    hot_index: Vec<(u64, FragmentId)>,
    /// Fragments by cold address, ascending.
    cold_index: Vec<(u64, FragmentId)>,
}

impl Arena {
    fn new(mut memory: Shared, wide: bool) -> Arena {
        let (code, runtime) = runtime::generate(memory.remote(), wide);
        memory.write(memory.remote(), &code);
        let mut arena = Arena {
            memory,
            runtime,
            hot_next: 0,
            cold_next: 0,
            hot_index: Vec::new(),
            cold_index: Vec::new(),
        };
        arena.reset();
        arena
    }

    fn reset(&mut self) {
        self.hot_next = self.runtime.end.next_multiple_of(64);
        self.cold_next = self.memory.remote() + HOT_BYTES;
        self.hot_index.clear();
        self.cold_index.clear();
    }

    fn full(&self) -> bool {
        self.hot_next + FRAGMENT_ROOM > self.memory.remote() + HOT_BYTES
            || self.cold_next + FRAGMENT_ROOM > self.memory.remote() + self.memory.bytes()
    }

    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.memory.remote()) < self.memory.bytes()
    }

    fn reaches(&self, ip: u64) -> bool {
        self.memory.remote().abs_diff(ip) < REACH
    }
}

/// What lies at an address of the cache.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A fragment, with the meaning of the registers.
    Fragment(FragmentId, State),
    /// The shared stubs.
    Runtime(State),
}

/// Something that must be done before translation can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// No arena is near enough to this address.
    NeedArena(u64),
    /// The cache is full: flush it.
    NeedFlush,
    /// There is no code at this address, or none that may be read.
    NoCode,
}

/// All translated code of one process.
pub struct CodeCache {
    arenas: Vec<Arena>,
    fragments: Vec<Fragment>,
    by_ip: FxHashMap<u64, FragmentId>,
    /// Direct exits whose targets have no fragment yet.
    waiting: FxHashMap<u64, Vec<u32>>,
    /// Fragments that compare their source, and the exits by which those at an address were left when it had changed.
    comparing: Vec<FragmentId>,
    left: FxHashMap<u64, Vec<u32>>,
    /// How often the code at an address was found changed in this window.
    replaced: FxHashMap<u64, u32>,
    tables: Tables,
    factory: InstructionInfoFactory,
    /// Whether fragments look lines up by `pext`.
    wide: bool,
    /// Instructions whose every execution is to be seen, and the fragments that hold any.
    marked: FxHashSet<u64>,
    marked_fragments: Vec<FragmentId>,
    /// Fragments translated since the start, flushed ones included.
    pub translated: u64,
    /// Times everything was thrown away.
    pub flushes: u64,
}

impl CodeCache {
    /// An empty cache; `wide`: for a processor with a fast `pext`.
    pub fn new(wide: bool) -> CodeCache {
        CodeCache {
            arenas: Vec::new(),
            fragments: Vec::new(),
            by_ip: FxHashMap::default(),
            waiting: FxHashMap::default(),
            comparing: Vec::new(),
            left: FxHashMap::default(),
            replaced: FxHashMap::default(),
            tables: Tables::default(),
            factory: InstructionInfoFactory::new(),
            wide,
            marked: FxHashSet::default(),
            marked_fragments: Vec::new(),
            translated: 0,
            flushes: 0,
        }
    }

    /// Adds an arena.
    pub fn add_arena(&mut self, memory: Shared) {
        self.arenas.push(Arena::new(memory, self.wide));
    }

    /// The fragment with this number.
    pub fn fragment(&self, id: FragmentId) -> &Fragment {
        &self.fragments[id as usize]
    }

    /// Exits and record shapes.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Cache address to enter at for original address `ip`, with canonical registers; translates
    /// it and its likely successors when it is new.
    ///
    /// # Errors
    /// [`Blocked`] when the caller has to make room first.
    pub fn entry(&mut self, ip: u64, code: &mut impl Code) -> Result<u64, Blocked> {
        if let Some(&id) = self.by_ip.get(&ip) {
            return Ok(self.fragments[id as usize].hot);
        }
        // Not kept as a fragment: there may be code later.
        if code.bytes(ip).is_empty() {
            return Err(Blocked::NoCode);
        }
        let first = self.translate(ip, code)?;
        // Breadth first, ends before side exits: exits are stored in emission order, sides first.
        let mut next = vec![first];
        let mut done = 0;
        while let Some(id) = next.pop() {
            let targets: Vec<u64> = self.fragments[id as usize]
                .exits
                .iter()
                .filter_map(|&exit| match self.tables.exit(exit)?.kind {
                    ExitKind::Direct { target, .. } => Some(target),
                    _ => None,
                })
                .collect();
            for target in targets.into_iter().rev() {
                if done == AHEAD {
                    return Ok(self.fragments[first as usize].hot);
                }
                if !self.by_ip.contains_key(&target) && !code.bytes(target).is_empty() {
                    match self.translate(target, code) {
                        Ok(id) => next.insert(0, id),
                        Err(_) => return Ok(self.fragments[first as usize].hot),
                    }
                    done += 1;
                }
            }
        }
        Ok(self.fragments[first as usize].hot)
    }

    fn translate(&mut self, ip: u64, code: &mut impl Code) -> Result<FragmentId, Blocked> {
        let arena = self
            .arenas
            .iter()
            .position(|a| a.reaches(ip))
            .ok_or(Blocked::NeedArena(ip))?;
        if self.arenas[arena].full() || self.fragments.len() >= MAX_FRAGMENTS {
            return Err(Blocked::NeedFlush);
        }
        let id = self.fragments.len() as FragmentId;
        let trace = trace::form(code, ip, &mut self.factory);
        let arena = &mut self.arenas[arena];
        let places = (arena.hot_next, arena.cold_next);
        let translated = fragment::translate(trace, id, places, &arena.runtime, &mut self.tables);
        let (fragment, bytes) = translated.unwrap_or_else(|_| {
            let nothing = Trace::declined(ip, "an address out of the code cache's reach");
            fragment::translate(nothing, id, places, &arena.runtime, &mut self.tables)
                .expect("a fragment without instructions reaches nothing")
        });
        arena.memory.write(fragment.hot, &bytes.hot);
        arena.memory.write(fragment.cold, &bytes.cold);
        arena.hot_next = (fragment.hot + bytes.hot.len() as u64).next_multiple_of(16);
        arena.cold_next = (fragment.cold + bytes.cold.len() as u64).next_multiple_of(16);
        arena.hot_index.push((fragment.hot, id));
        arena.cold_index.push((fragment.cold, id));
        self.translated += 1;
        self.by_ip.insert(ip, id);
        let marked = self.holds_marked(&fragment);
        if fragment.skips_exit.is_some() {
            self.comparing.push(id);
        }
        self.fragments.push(fragment);
        if marked {
            self.keep_records(id, KEEP);
            self.marked_fragments.push(id);
        }
        self.link_new(id);
        Ok(id)
    }

    fn holds_marked(&self, fragment: &Fragment) -> bool {
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

    fn keep_records(&mut self, id: FragmentId, how: u8) {
        let fragment = &self.fragments[id as usize];
        if let Some(arena) = self.arenas.iter_mut().find(|a| a.contains(fragment.hot)) {
            for &decision in &fragment.decisions {
                arena.memory.write(decision, &[how]);
            }
        }
    }

    /// Gives a side exit that has been taken its own code. (Without room the next flush makes some.)
    pub fn build_side(&mut self, exit: u32) {
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
        let at = arena.cold_next;
        let before = fragment.exits.len();
        let Some((field, code)) =
            fragment::side(fragment, id, exit, at, &arena.runtime, &mut self.tables)
        else {
            return;
        };
        arena.memory.write(at, &code);
        arena.cold_next = (at + code.len() as u64).next_multiple_of(16);
        arena.cold_index.push((at, id));
        let displacement =
            i32::try_from(at.wrapping_sub(field + 4) as i64).expect("both lie in one arena");
        arena.memory.write(field, &displacement.to_le_bytes());
        if self.holds_marked(&self.fragments[id as usize]) {
            self.keep_records(id, KEEP);
        }
        self.link_exits(id, before);
    }

    /// The fragment that leaves by `exit` has found that the program's code is not what it was made of: what is
    /// there now gets a fragment when it is next asked for, to which that exit will lead. False where that has
    /// been so too often in this window.
    pub fn replace(&mut self, exit: u32) -> bool {
        let Some(id) = self.tables.exit(exit).map(|e| e.fragment) else {
            return true;
        };
        let fragment = &self.fragments[id as usize];
        let ip = fragment.ip;
        if let Some(&now) = self.by_ip.get(&ip).filter(|now| **now != id) {
            self.link(exit, now);
            return true;
        }
        if fragment.skips_exit.is_some() {
            let times = self.replaced.entry(ip).or_default();
            *times += 1;
            if *times > MOST_REPLACED {
                return false;
            }
        }
        self.by_ip.remove(&ip);
        self.left.entry(ip).or_default().push(exit);
        true
    }

    /// A window begins: what changed too often in the one before may have come to rest.
    pub fn begin_window(&mut self) {
        self.replaced.clear();
    }

    /// Makes all fragments of changing code in these ranges leave at their next entry: it may not be executed any more.
    pub fn invalidate(&mut self, ranges: &[Range<u64>]) {
        let fragments = &mut self.fragments;
        let (arenas, by_ip) = (&mut self.arenas, &mut self.by_ip);
        self.comparing.retain(|&id| {
            let fragment = &mut fragments[id as usize];
            let meets = |r: &Range<u64>| {
                let gone = |lost: &Range<u64>| lost.start < r.end && r.start < lost.end;
                ranges.iter().any(gone)
            };
            if !fragment.compared.iter().any(meets) {
                return true;
            }
            let skip = fragment.skips_exit.take();
            let arena = skip.and_then(|skip| arenas.iter_mut().find(|a| a.contains(skip)));
            if let (Some(skip), Some(arena)) = (skip, arena) {
                arena.memory.write(skip, &[0]);
            }
            if by_ip.get(&fragment.ip) == Some(&id) {
                by_ip.remove(&fragment.ip);
            }
            false
        });
    }

    /// Links the exits of a new fragment, and those that waited for it.
    fn link_new(&mut self, id: FragmentId) {
        self.link_exits(id, 0);
        let ip = self.fragments[id as usize].ip;
        for exit in self.waiting.remove(&ip).unwrap_or_default() {
            self.link(exit, id);
        }
        // The last one leads here. Some may lead to each other, as there is code that goes back and forth; many would
        // be a long way.
        let left = self.left.get(&ip).map_or(&[][..], Vec::as_slice);
        let first = match left.len() <= LONGEST_CHAIN {
            true => left.len().saturating_sub(1),
            false => 0,
        };
        let relinked: Vec<u32> = left[first..].into();
        for exit in relinked {
            self.link(exit, id);
        }
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
            match self.by_ip.get(target) {
                Some(&to) => self.link(exit, to),
                None => self.waiting.entry(*target).or_default().push(exit),
            }
        }
    }

    /// Points an exit at a fragment of its target: a direct one, or one of code that has changed.
    fn link(&mut self, exit: u32, to: FragmentId) {
        let Some(&Exit { fragment, kind }) = self.tables.exit(exit) else {
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
        let (field, target) = if from.log == to.log {
            (warm_field, to.warm_entry)
        } else {
            (cold_field, to.hot)
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

    /// What lies at cache address `address`; `None` outside of the cache.
    pub fn place(&self, address: u64) -> Option<Place> {
        let arena = self.arenas.iter().find(|a| a.contains(address))?;
        if address < arena.runtime.end {
            return arena.runtime.states.at(address).map(Place::Runtime);
        }
        let hot = address < arena.memory.remote() + HOT_BYTES;
        let index = if hot {
            &arena.hot_index
        } else {
            &arena.cold_index
        };
        let after = index.partition_point(|(start, _)| *start <= address);
        let id = index[..after].last()?.1;
        let fragment = &self.fragments[id as usize];
        let states = if hot {
            &fragment.hot_states
        } else {
            &fragment.cold_states
        };
        Some(Place::Fragment(id, states.at(address)?))
    }

    /// `length` bytes of the cache at `address`.
    pub fn bytes_at(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let arena = self.arenas.iter().find(|a| a.contains(address))?;
        let words = (0..length as u64).map(|i| arena.memory.word(address + i) as u8);
        Some(words.collect())
    }

    /// Whether `address` is where a thread that leaves the cache is seen by the monitor.
    pub fn is_exit_stop(&self, address: u64) -> bool {
        self.arenas
            .iter()
            .any(|a| a.runtime.after_syscall == address)
    }

    /// Whether `address` lies in the stub by which threads leave the cache.
    pub fn is_in_exit(&self, address: u64) -> bool {
        self.arenas
            .iter()
            .any(|a| (a.runtime.exit..a.runtime.indirect).contains(&address))
    }

    /// Whether `address` lies in the cache.
    pub fn contains(&self, address: u64) -> bool {
        self.arenas.iter().any(|a| a.contains(address))
    }

    /// Enters `ip` into a thread's table of indirect targets, at `gs` in `data`.
    pub fn learn_indirect(&self, ip: u64, data: &mut Shared, gs: u64) {
        let Some(&id) = self.by_ip.get(&ip) else {
            return;
        };
        let first = gs + TABLE as u64 + 16 * (ip & 0xffff);
        let free = (0..PROBES as u64).find(|probe| data.word(first + 16 * probe) == 0);
        let entry = first + 16 * free.unwrap_or(PROBES as u64 - 1);
        data.write_word(entry, ip.wrapping_neg());
        data.write_word(entry + 8, self.fragments[id as usize].hot);
    }

    /// Throws all fragments away. No thread may be inside; tables of indirect targets must be
    /// cleared by the caller.
    pub fn flush(&mut self) {
        self.fragments.clear();
        self.marked_fragments.clear();
        self.by_ip.clear();
        self.waiting.clear();
        self.comparing.clear();
        self.left.clear();
        self.replaced.clear();
        self.tables = Tables::default();
        for arena in &mut self.arenas {
            arena.reset();
        }
        self.flushes += 1;
    }

    /// Drops the arenas too: the address space they were in is gone.
    pub fn forget(&mut self) {
        self.flush();
        self.arenas.clear();
    }
}

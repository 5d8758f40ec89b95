//! The code cache: fragments by original address, the arenas they lie in ([`arena`]), the links between them
//! ([`links`], and [`changed`] where their source has), and what it is to have before it is met ([`known`], [`around`]).

mod arena;
mod around;
mod changed;
mod known;
mod links;
mod usage;

pub use arena::{ARENA_BYTES, Arena, FAR, LOW, REACH, serves};
pub use known::Followed;

use super::duty::Duty;
use super::fragment::{self, ExitKind, Fragment, FragmentId, Tables, Wanted};
use super::memory::Shared;
use super::room::Rooms;
use super::state::State;
use super::trace::{self, Code, Trace};
use crate::tracee::maps::Maps;
use arena::HOT_BYTES;
use around::Around;
use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use usage::Usage;

/// Fragments translated ahead at one stop. (Of 0, 1, 3 and 6, 1 took the least CPU time on a compiler, where nearly
/// all time is translation: `cc1 -O2` observed whole on a busy machine, 14.4, 11.6, 12.2 and 12.9 s.)
const AHEAD: usize = 1;
/// Fragments held before everything is flushed: bounds the monitor's memory, at about 1.5 KiB each. (`cc1 -O2` observed whole
/// has 105,000 with the returns translated ahead: with room for 70,000 it was flushed again and again, 287 s instead of 15.)
const MAX_FRAGMENTS: usize = 140_000;
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
    usage: Usage,
    rooms: Rooms,
    duty: Duty,
    /// Entries for the table of jumps that lead on to each other, by the low 16 bits of their targets: each to the one before it here.
    chains: FxHashMap<u16, Vec<u64>>,
    /// Targets of indirect transfers, in the order they were met.
    indirect: Vec<u64>,
    /// Return addresses of calls in fragments, those of the newest last, and whether these are of code that was not met.
    returns: Vec<(u64, bool)>,
    /// Whether it has been full: there is no room for what may never execute.
    crowded: bool,
    /// Where another cache of the same code has fragments: likely to be executed.
    known: FxHashSet<u64>,
    around: Around,
    /// Fragments translated since the start, flushed ones included.
    pub translated: u64,
    /// Times everything was thrown away.
    pub flushes: u64,
}

impl CodeCache {
    /// An empty cache of fragments with this duty.
    pub fn new(duty: Duty) -> CodeCache {
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
            usage: Usage::default(),
            rooms: Rooms::default(),
            duty,
            chains: FxHashMap::default(),
            indirect: Vec::new(),
            returns: Vec::new(),
            crowded: false,
            known: FxHashSet::default(),
            around: Around::default(),
            translated: 0,
            flushes: 0,
        }
    }

    /// Adds an arena. Returns whether it is the first: then the table of jumps is still to be cleared.
    pub fn add_arena(&mut self, memory: Shared) -> bool {
        self.arenas.push(Arena::new(memory, self.duty));
        self.arenas.len() == 1
    }

    /// The fragment with this number.
    pub fn fragment(&self, id: FragmentId) -> &Fragment {
        &self.fragments[id as usize]
    }

    /// Whether any fragment is of code that may change.
    pub fn compares(&self) -> bool {
        !self.comparing.is_empty()
    }

    /// Exits and record shapes.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Cache address to enter at for original address `ip`, with canonical registers; translates
    /// it and its likely successors when it is new. `targeted`: by an indirect transfer.
    ///
    /// # Errors
    /// [`Blocked`] when the caller has to make room first.
    pub fn entry(&mut self, ip: u64, code: &mut impl Code, targeted: bool) -> Result<u64, Blocked> {
        if let Some(&id) = self.by_ip.get(&ip) {
            return Ok(self.fragments[id as usize].entry);
        }
        // Not kept as a fragment: there may be code later.
        if code.bytes(ip).is_empty() {
            return Err(Blocked::NoCode);
        }
        let first = self.translate(ip, code, targeted)?;
        if !self.known.is_empty() {
            // What is ahead may not fit; the first one is there.
            let _ = self.translate_known(first, code);
            return Ok(self.fragments[first as usize].entry);
        }
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
                    return Ok(self.fragments[first as usize].entry);
                }
                if !self.by_ip.contains_key(&target) && !code.bytes(target).is_empty() {
                    match self.translate(target, code, false) {
                        Ok(id) => next.insert(0, id),
                        Err(_) => return Ok(self.fragments[first as usize].entry),
                    }
                    done += 1;
                }
            }
        }
        Ok(self.fragments[first as usize].entry)
    }

    fn translate(
        &mut self,
        ip: u64,
        code: &mut impl Code,
        targeted: bool,
    ) -> Result<FragmentId, Blocked> {
        let arena = self
            .arenas
            .iter()
            .position(|a| a.reaches(ip))
            .ok_or(Blocked::NeedArena(ip))?;
        if self.arenas[arena].full() || self.fragments.len() >= MAX_FRAGMENTS {
            self.crowded = true;
            return Err(Blocked::NeedFlush);
        }
        let id = self.fragments.len() as FragmentId;
        // The same register is left alone as by a fragment that leads here.
        let exits = self.waiting.get(&ip).and_then(|exits| exits.last());
        let before = exits.and_then(|&exit| self.tables.exit(exit));
        let wished = before.map(|exit| self.fragments[exit.fragment as usize].spare);
        // What is observed gains nothing by it that could be measured.
        let spares = match self.duty {
            Duty::Count => fragment::spare_candidates(wished, self.usage.near(ip, code)),
            Duty::Observe { .. } => fragment::spare_candidates(wished, &[0; 16]),
        };
        let (lengths, begins) = (self.duty.lengths(), |ip| self.by_ip.contains_key(&ip));
        let trace = trace::form(code, ip, lengths, begins, &mut self.factory);
        let is_ahead = self.around.is_ahead;
        let returns = trace.awaited_returns();
        self.returns.extend(returns.map(|ip| (ip, is_ahead)));
        let arena = &mut self.arenas[arena];
        let places = (arena.hot_next, arena.cold_next);
        let (runtime, tables) = (&arena.runtime, &mut self.tables);
        let mut room = self.rooms.by(code, &mut self.factory);
        let mut translate = |trace| {
            let wanted = Wanted {
                spares: &spares,
                targeted,
                room: &mut room,
            };
            fragment::translate(trace, id, places, wanted, runtime, tables)
        };
        let (fragment, bytes) = translate(trace).unwrap_or_else(|_| {
            let nothing = Trace::declined(ip, "an address out of the code cache's reach");
            translate(nothing).expect("a fragment without instructions reaches nothing")
        });
        drop(room);
        arena.put_hot(id, &bytes.hot);
        arena.put_cold(id, &bytes.cold);
        self.translated += 1;
        self.by_ip.insert(ip, id);
        if fragment.changing.is_some() {
            self.comparing.push(id);
        }
        self.fragments.push(fragment);
        self.around.add(id);
        self.link_new(id);
        Ok(id)
    }

    /// What lies at cache address `address`; `None` outside of the cache.
    pub fn place(&self, address: u64) -> Option<Place> {
        let arena = self.arenas.iter().find(|a| a.contains(address))?;
        if address < arena.runtime.end {
            return arena.runtime.state(address).map(Place::Runtime);
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
        Some(Place::Fragment(id, fragment.state(hot, address)?))
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

    /// Where the target has its arenas.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.arenas.iter().map(|arena| arena.memory.range())
    }

    /// Whether all of them are there.
    pub fn is_mapped(&self, maps: &Maps) -> bool {
        self.arenas.iter().all(|a| a.memory.is_mapped(maps, true))
    }

    /// Whether `address` lies in the cache.
    pub fn contains(&self, address: u64) -> bool {
        self.arenas.iter().any(|a| a.contains(address))
    }

    /// Throws all fragments away. No thread may be inside; the tables of indirect targets and of jumps must be
    /// cleared by the caller.
    pub fn flush(&mut self) {
        self.fragments.clear();
        self.usage.clear();
        self.rooms.clear();
        self.by_ip.clear();
        self.chains.clear();
        self.indirect.clear();
        self.known.clear();
        self.around = Around::default();
        self.returns.clear();
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
}

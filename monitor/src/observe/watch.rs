//! The sampled lines and what becomes of them.
//!
//! A sample is watched at its 256-byte line; the first touch of each smaller line inside is
//! recorded for that size, and the watch narrows with each (a hot neighbour is met once, not for
//! ever). Watches are registered by 64-byte line.

use super::filter::LineFilter;
use super::{Access, LINE_SHIFTS, last_byte};
use rustc_hash::FxHashMap;

/// How the watch of a sample ended at one line size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Touched again: line references strictly between, and by whom.
    Reused {
        /// References strictly between, at this line size.
        distance: u64,
        /// Address of the instruction.
        trigger: u64,
        /// Whether it wrote.
        store: bool,
    },
    /// Cut off by us after this many references without a touch.
    Censored(u64),
    /// Not touched until the process ended, this many references later.
    NeverReused(u64),
    /// Not followed at this size.
    NotFollowed,
}

/// Why all watches end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The window closed and the program goes on.
    Cut,
    /// The process exited.
    Exit,
}

/// A sample whose watch is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The sampled access.
    pub access: Access,
    /// Window it was taken in.
    pub window: u32,
    /// 64-byte line references before it since the observer began.
    pub position: u64,
    /// Outcome for each line size.
    pub outcomes: [Outcome; 5],
    /// A watch of it was given up for a reason of its line (the `counter` engine's alone can be).
    pub given_up: bool,
}

#[derive(Debug)]
struct Watch {
    sample: Sample,
    /// A byte of the sampled reference: its line at every size is the watched line.
    byte: u64,
    /// Number of the sampled reference at each size.
    index: [u64; 5],
    /// Bit k: still waiting at `LINE_SIZES[k]`.
    open: u8,
    /// First and last registered 64-byte line.
    lines: (u64, u64),
}

#[derive(Debug)]
pub(super) struct WatchTable {
    watches: Vec<Watch>,
    free: Vec<u32>,
    by_line: FxHashMap<u64, Vec<u32>>,
    filter: LineFilter,
    finished: Vec<Sample>,
    hits: u64,
    /// Who follows the changes, and those it has not taken yet.
    changes: Option<(u64, Vec<(u64, bool)>)>,
}

/// Sizes of 64 bytes and more.
const COARSE: u8 = 0b11100;

impl WatchTable {
    pub(super) fn new(seed: u64) -> WatchTable {
        WatchTable {
            watches: Vec::new(),
            free: Vec::new(),
            by_line: FxHashMap::default(),
            filter: LineFilter::new(seed),
            finished: Vec::new(),
            hits: 0,
            changes: None,
        }
    }

    pub(super) fn take_changes(&mut self, reader: u64) -> Option<Vec<(u64, bool)>> {
        match &mut self.changes {
            Some((by, changes)) if *by == reader => Some(std::mem::take(changes)),
            _ => {
                self.changes = Some((reader, Vec::new()));
                None
            }
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = u64> {
        self.by_line
            .iter()
            .flat_map(|(&line, ids)| std::iter::repeat_n(line, ids.len()))
    }

    fn changed(&mut self, line: u64, watched: bool) {
        if let Some((_, changes)) = &mut self.changes {
            changes.push((line, watched));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.watches.len() - self.free.len()
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    pub(super) fn filter(&self) -> &LineFilter {
        &self.filter
    }

    pub(super) fn arm(
        &mut self,
        access: &Access,
        byte: u64,
        refs: &[u64; 5],
        window: u32,
        fine: bool,
    ) {
        let mut index = *refs;
        for (index, shift) in index.iter_mut().zip(LINE_SHIFTS) {
            *index += (byte >> shift) - (access.address >> shift);
        }
        let sample = Sample {
            access: *access,
            window,
            position: index[super::DEFAULT_LINE],
            outcomes: [Outcome::NotFollowed; 5],
            given_up: false,
        };
        let open = if fine { COARSE | 0b11 } else { COARSE };
        let group = byte >> 8 << 2;
        let watch = Watch {
            sample,
            byte,
            index,
            open,
            lines: (group, group + 3),
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.watches[id as usize] = watch;
                id
            }
            None => {
                self.watches.push(watch);
                self.watches.len() as u32 - 1
            }
        };
        for line in group..=group + 3 {
            self.register(line, id);
        }
    }

    fn register(&mut self, line: u64, id: u32) {
        self.filter.add(line);
        self.changed(line, true);
        self.by_line.entry(line).or_default().push(id);
    }

    fn unregister(&mut self, line: u64, id: u32) {
        self.filter.remove(line);
        self.changed(line, false);
        if let Some(ids) = self.by_line.get_mut(&line) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.by_line.remove(&line);
            }
        }
    }

    /// Records an access to 64-byte lines `first..=last`; `refs` counts the references before it.
    pub(super) fn touch(&mut self, access: &Access, first: u64, last: u64, refs: &[u64; 5]) {
        for line in first..=last {
            let Some(ids) = self.by_line.get(&line) else {
                continue;
            };
            self.hits += 1;
            for id in ids.clone() {
                self.touch_watch(id, access, refs);
            }
        }
    }

    fn touch_watch(&mut self, id: u32, access: &Access, refs: &[u64; 5]) {
        let watch = &mut self.watches[id as usize];
        let last = last_byte(access);
        for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
            let line = watch.byte >> shift;
            let first_line = access.address >> shift;
            if watch.open & 1 << k == 0 || line < first_line || line > last >> shift {
                continue;
            }
            let distance = refs[k] + (line - first_line) - watch.index[k] - 1;
            watch.sample.outcomes[k] = Outcome::Reused {
                distance,
                trigger: access.ip,
                store: access.store,
            };
            watch.open &= !(1 << k);
        }
        self.narrow(id);
    }

    /// Lets go of the lines that no open size needs any more.
    fn narrow(&mut self, id: u32) {
        let watch = &mut self.watches[id as usize];
        let own = watch.byte >> 6;
        let needed = match watch.open {
            0 => None,
            open if open & 0b10000 != 0 => Some((own & !3, own | 3)),
            open if open & 0b01000 != 0 => Some((own & !1, own | 1)),
            _ => Some((own, own)),
        };
        let before = watch.lines;
        let (low, high) = needed.unwrap_or((1, 0));
        watch.lines = (low, high);
        for line in before.0..=before.1 {
            if line < low || line > high {
                self.unregister(line, id);
            }
        }
        if needed.is_none() {
            self.finished.push(self.watches[id as usize].sample.clone());
            self.free.push(id);
        }
    }

    pub(super) fn finish(&mut self, sample: Sample) {
        self.finished.push(sample);
    }

    pub(super) fn drain_finished(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn end_all(&mut self, how: Ended, refs: &[u64; 5]) -> Vec<Sample> {
        let mut ended = self.drain_finished();
        let free: rustc_hash::FxHashSet<u32> = self.free.iter().copied().collect();
        for (id, watch) in self.watches.drain(..).enumerate() {
            if free.contains(&(id as u32)) {
                continue;
            }
            let mut sample = watch.sample;
            for (k, outcome) in sample.outcomes.iter_mut().enumerate() {
                if watch.open & 1 << k != 0 {
                    let at = refs[k].saturating_sub(watch.index[k] + 1);
                    *outcome = match how {
                        Ended::Cut => Outcome::Censored(at),
                        Ended::Exit => Outcome::NeverReused(at),
                    };
                }
            }
            ended.push(sample);
        }
        self.free.clear();
        for (line, ids) in std::mem::take(&mut self.by_line) {
            for _ in ids {
                self.filter.remove(line);
                self.changed(line, false);
            }
        }
        ended
    }

    /// Places the lines anew.
    pub(super) fn rehash(&mut self, seed: u64) {
        let mut filter = LineFilter::new(seed);
        for (&line, ids) in &self.by_line {
            for _ in ids {
                filter.add(line);
            }
        }
        self.filter = filter;
    }
}

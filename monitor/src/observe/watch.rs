//! The sampled lines and what becomes of them.
//!
//! A sample is watched at its 256-byte line; the first touch of each smaller line inside is
//! recorded for that size, and the watch narrows with each (a hot neighbour is met once, not for
//! ever). Watches are registered by 64-byte line.

use super::filter::LineFilter;
use super::turns::{Lane, Matters, Moment, Remotely, Round, Together};
use super::{Access, LINE_SHIFTS, last_byte};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

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
    /// Outcome for each line size, in the references of the thread that made it.
    pub outcomes: [Outcome; 5],
    /// What all threads did, where several were observed; positions are in the references of all then.
    pub remotely: Option<Box<Remotely>>,
    /// A watch of it was given up for a reason of its line: its page had too many faults (`counter`), or what is beside it is used
    /// too often.
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
    /// First and last registered 64-byte line; none if that is empty.
    lines: (u64, u64),
    /// Touches of those lines that were of no line it waits for.
    vain: u32,
    /// With several threads in turn.
    together: Option<Box<Together>>,
}

impl Watch {
    /// The lines that are needed for these sizes.
    fn needed(&self, open: u8) -> (u64, u64) {
        let own = self.byte >> 6;
        match open {
            0 => NO_LINES,
            open if open & 0b10000 != 0 => (own & !3, own | 3),
            open if open & 0b01000 != 0 => (own & !1, own | 1),
            _ => (own, own),
        }
    }
}

/// An empty range.
const NO_LINES: (u64, u64) = (1, 0);

/// The watches of a line: seldom more than one.
type Ids = SmallVec<[u32; 4]>;

#[derive(Debug)]
pub(super) struct WatchTable {
    watches: Vec<Watch>,
    free: Vec<u32>,
    by_line: FxHashMap<u64, Ids>,
    filter: LineFilter,
    finished: Vec<Sample>,
    hits: u64,
    /// Who follows the changes, and those it has not taken yet.
    changes: Option<(u64, Vec<(u64, bool)>)>,
    /// With several threads in turn: watches about which the round's end concludes something, and
    /// those of which the present turn looks for less than others do.
    busy: Vec<u32>,
    aside: Vec<u32>,
    /// By line, how often accesses before it were taken for touches of it.
    suspected: FxHashMap<u64, u32>,
}

/// Suspicions after which the watches of a line end: each stands for some microseconds.
const MOST_SUSPICIONS: u32 = 512;

/// Touches in vain after which a watch ends: those beside a line of 16 or 32 bytes, in the same 64. (Without, a run of a solver, z3, kept and read
/// two of its 46 million records for such watches.)
const MOST_IN_VAIN: u32 = 1 << 14;

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
            busy: Vec::new(),
            aside: Vec::new(),
            suspected: FxHashMap::default(),
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

    pub(super) fn filter_mut(&mut self) -> &mut LineFilter {
        &mut self.filter
    }

    pub(super) fn arm(
        &mut self,
        access: &Access,
        byte: u64,
        refs: &[u64; 5],
        window: u32,
        fine: bool,
        moment: Option<&Moment>,
    ) {
        let mut index = own_refs(refs, moment);
        for (index, shift) in index.iter_mut().zip(LINE_SHIFTS) {
            *index += (byte >> shift) - (access.address >> shift);
        }
        let sample = Sample {
            access: *access,
            window,
            position: index[super::DEFAULT_LINE],
            outcomes: [Outcome::NotFollowed; 5],
            remotely: None,
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
            vain: 0,
            together: moment.map(|moment| Box::new(Together::new(moment, open))),
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
        if moment.is_some() {
            self.busy.push(id);
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
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_line.remove(&line);
                self.suspected.remove(&line);
            }
        }
    }

    /// Records an access to 64-byte lines `first..=last`; `refs` counts the references before it, of all
    /// threads.
    pub(super) fn touch(
        &mut self,
        access: &Access,
        first: u64,
        last: u64,
        refs: &[u64; 5],
        moment: Option<&Moment>,
    ) {
        for line in first..=last {
            let Some(ids) = self.by_line.get(&line) else {
                continue;
            };
            self.hits += 1;
            for id in ids.clone() {
                match (moment, &self.watches[id as usize].together) {
                    (Some(moment), Some(together)) if together.lane != moment.lane => {
                        self.remote_touch(id, access, moment);
                    }
                    _ => self.touch_watch(id, access, refs, moment),
                }
            }
        }
    }

    fn touch_watch(&mut self, id: u32, access: &Access, refs: &[u64; 5], moment: Option<&Moment>) {
        let watch = &mut self.watches[id as usize];
        let own_refs = own_refs(refs, moment);
        let last = last_byte(access);
        let open = watch.open;
        for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
            let line = watch.byte >> shift;
            let first_line = access.address >> shift;
            if watch.open & 1 << k == 0 || line < first_line || line > last >> shift {
                continue;
            }
            let distance = own_refs[k] + (line - first_line) - watch.index[k] - 1;
            watch.sample.outcomes[k] = Outcome::Reused {
                distance,
                trigger: access.ip,
                store: access.store,
            };
            watch.open &= !(1 << k);
            if let (Some(together), Some(moment)) = (&mut watch.together, moment) {
                together.own_touch(k, access, moment, distance);
            }
        }
        if watch.open == open && watch.together.is_none() {
            watch.vain += 1;
            if watch.vain == MOST_IN_VAIN {
                self.give_up(id, refs);
            }
            return;
        }
        // Lets go of the lines that no open size needs any more.
        let needed = watch.needed(watch.open);
        self.set_lines(id, needed);
        self.note_busy(id);
        let watch = &self.watches[id as usize];
        if watch.open == 0 && watch.together.is_none() {
            self.finished.push(watch.sample.clone());
            self.free.push(id);
        }
    }

    /// Another thread than the one that was sampled touches it.
    fn remote_touch(&mut self, id: u32, access: &Access, moment: &Moment) {
        let watch = &mut self.watches[id as usize];
        let open = watch.open;
        let Some(together) = &mut watch.together else {
            return;
        };
        let matters = together.remote_touch(access, watch.byte, moment, open);
        let line = watch.byte >> LINE_SHIFTS[super::DEFAULT_LINE];
        self.note_busy(id);
        match matters {
            Matters::All => {}
            Matters::Line => self.set_lines(id, (line, line)),
            Matters::Nothing => self.set_lines(id, NO_LINES),
        }
    }

    fn note_busy(&mut self, id: u32) {
        if let Some(together) = &mut self.watches[id as usize].together
            && !std::mem::replace(&mut together.busy, true)
        {
            self.busy.push(id);
        }
    }

    /// Looks for touches of these lines from now on.
    fn set_lines(&mut self, id: u32, (low, high): (u64, u64)) {
        let watch = &mut self.watches[id as usize];
        let (before_low, before_high) = watch.lines;
        if (before_low, before_high) == (low, high) {
            return;
        }
        watch.lines = (low, high);
        if let Some(together) = &mut watch.together
            && !std::mem::replace(&mut together.aside, true)
        {
            self.aside.push(id);
        }
        for line in before_low..=before_high {
            if line < low || line > high {
                self.unregister(line, id);
            }
        }
        for line in low..=high {
            if line < before_low || line > before_high {
                self.register(line, id);
            }
        }
    }

    /// From now on several threads are observed in turn; so far it was one.
    pub(super) fn share(&mut self) {
        let free: rustc_hash::FxHashSet<u32> = self.free.iter().copied().collect();
        for (id, watch) in self.watches.iter_mut().enumerate() {
            if !free.contains(&(id as u32)) {
                let mut together = Together::of_lone(watch.index, watch.open);
                for (k, outcome) in watch.sample.outcomes.iter().enumerate() {
                    together.known(k, *outcome);
                }
                watch.together = Some(Box::new(together));
            }
        }
    }

    /// The turn of thread `lane` begins: looks for all that it may do. Returns the watches of samples of this round
    /// with their virtual times: what it does before does not matter.
    pub(super) fn begin_turn(&mut self, lane: u32) -> Vec<(u64, u32)> {
        let mut pending = Vec::new();
        for id in self.busy.clone() {
            self.put_aside(id);
        }
        for id in std::mem::take(&mut self.aside) {
            let watch = &mut self.watches[id as usize];
            let open = watch.open;
            let needed = match &mut watch.together {
                Some(together) => {
                    together.aside = false;
                    let own = together.lane == lane;
                    match together.sampled() {
                        Some(clock) if !own => {
                            pending.push((clock, id));
                            NO_LINES
                        }
                        _ if own => watch.needed(open),
                        _ => {
                            let before = together.open_before;
                            watch.needed(before)
                        }
                    }
                }
                None => continue,
            };
            self.set_lines(id, needed);
            self.put_aside(id);
        }
        pending
    }

    /// From now on looks for what another thread does to a line that was sampled in this round.
    pub(super) fn look_for(&mut self, id: u32) {
        let watch = &self.watches[id as usize];
        if let Some(together) = &watch.together {
            let needed = watch.needed(together.open_before);
            self.set_lines(id, needed);
        }
    }

    /// Whoever has the next turn may need other lines of it than the present one.
    fn put_aside(&mut self, id: u32) {
        if let Some(together) = &mut self.watches[id as usize].together
            && !std::mem::replace(&mut together.aside, true)
        {
            self.aside.push(id);
        }
    }

    /// Concludes what the turns of a round mean together.
    pub(super) fn end_round(&mut self, round: &Round, lanes: &[Lane], refs: &[u64; 5]) {
        for id in std::mem::take(&mut self.busy) {
            let watch = &mut self.watches[id as usize];
            let (open, byte) = (watch.open, watch.byte);
            let Some(together) = &mut watch.together else {
                continue;
            };
            together.conclude(round, &watch.sample.access, byte, open);
            watch.sample.position = together.position();
            if open == 0 {
                let remotely = together.outcome(lanes, refs, Outcome::Censored);
                watch.sample.remotely = Some(Box::new(remotely));
                let finished = watch.sample.clone();
                self.set_lines(id, NO_LINES);
                self.watches[id as usize].together = None;
                self.finished.push(finished);
                self.free.push(id);
            }
        }
        for id in std::mem::take(&mut self.aside) {
            let watch = &mut self.watches[id as usize];
            let needed = watch.needed(watch.open);
            if let Some(together) = &mut watch.together {
                together.aside = false;
                self.set_lines(id, needed);
            }
        }
    }

    /// A thread has ended: it touches its lines no more.
    pub(super) fn thread_ended(&mut self, lane: u32, refs: &[u64; 5]) {
        for id in 0..self.watches.len() as u32 {
            let watch = &mut self.watches[id as usize];
            let is_its = watch.together.as_ref().is_some_and(|t| t.lane == lane);
            if !is_its || watch.open == 0 {
                continue;
            }
            for (k, &refs) in refs.iter().enumerate() {
                if watch.open & 1 << k != 0 {
                    let at = refs.saturating_sub(watch.index[k] + 1);
                    watch.sample.outcomes[k] = Outcome::NeverReused(at);
                }
            }
            watch.open = 0;
            self.note_busy(id);
        }
    }

    /// Accesses that begin in the line before `line` are looked at because they might reach it. Where these are very many its watches
    /// are given up, as the looking would take longer than the run. (Not where several threads are observed.)
    pub(super) fn suspect(&mut self, line: u64, refs: &[u64; 5]) {
        self.suspect_by(line, 1, refs);
    }

    /// Accesses to `line`, which is not watched, are looked at because it shares its place in the filter with lines that are: the same for these.
    pub(super) fn suspect_sharing(&mut self, line: u64, refs: &[u64; 5]) {
        if self.by_line.contains_key(&line) || !self.filter.may_hold(line) {
            return;
        }
        let filter = &self.filter;
        let watched = self.by_line.keys().copied();
        let sharing = watched.filter(|&it| filter.share(it, line));
        let sharing = sharing.map(|it| (it, 1)).collect();
        self.suspect_often(sharing, refs);
    }

    /// Accesses are looked at for nothing, so many of them perhaps for a watched line as `times` says: the same.
    pub(super) fn suspect_where(&mut self, times: impl Fn(u64) -> u32, refs: &[u64; 5]) {
        let watched = self.by_line.keys().map(|&line| (line, times(line)));
        let suspected = watched.filter(|(_, times)| *times > 0).collect();
        self.suspect_often(suspected, refs);
    }

    /// Each time that this is told stands for many.
    fn suspect_often(&mut self, lines: Vec<(u64, u32)>, refs: &[u64; 5]) {
        for (line, times) in lines {
            self.suspect_by(line, times * (MOST_SUSPICIONS / 8), refs);
        }
    }

    fn suspect_by(&mut self, line: u64, more: u32, refs: &[u64; 5]) {
        let Some(ids) = self.by_line.get(&line) else {
            return;
        };
        let alone = |&id: &u32| self.watches[id as usize].together.is_none();
        if !ids.iter().all(alone) {
            return;
        }
        let times = self.suspected.entry(line).or_default();
        *times += more;
        if *times < MOST_SUSPICIONS {
            return;
        }
        for id in ids.clone() {
            self.give_up(id, refs);
        }
    }

    /// Ends a watch, as it takes longer than it is worth. (Not where several threads are observed.)
    fn give_up(&mut self, id: u32, refs: &[u64; 5]) {
        self.set_lines(id, NO_LINES);
        let watch = &mut self.watches[id as usize];
        for (k, refs) in refs.iter().enumerate() {
            if watch.open & 1 << k != 0 {
                let seen = refs.saturating_sub(watch.index[k] + 1);
                watch.sample.outcomes[k] = Outcome::Censored(seen);
            }
        }
        watch.open = 0;
        watch.sample.given_up = true;
        self.finished.push(watch.sample.clone());
        self.free.push(id);
    }

    pub(super) fn finish(&mut self, sample: Sample) {
        self.finished.push(sample);
    }

    pub(super) fn drain_finished(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.finished)
    }

    /// Ends every watch; with several threads, after the last round has ended.
    pub(super) fn end_all(&mut self, how: Ended, refs: &[u64; 5], lanes: &[Lane]) -> Vec<Sample> {
        let ending = |at| match how {
            Ended::Cut => Outcome::Censored(at),
            Ended::Exit => Outcome::NeverReused(at),
        };
        let mut ended = self.drain_finished();
        let free: rustc_hash::FxHashSet<u32> = self.free.iter().copied().collect();
        for (id, watch) in self.watches.drain(..).enumerate() {
            if free.contains(&(id as u32)) {
                continue;
            }
            let mut sample = watch.sample;
            let own = watch
                .together
                .as_ref()
                .map(|t| &lanes[t.lane as usize].refs);
            for (k, outcome) in sample.outcomes.iter_mut().enumerate() {
                if watch.open & 1 << k != 0 {
                    let refs = own.unwrap_or(refs)[k];
                    *outcome = ending(refs.saturating_sub(watch.index[k] + 1));
                }
            }
            if let Some(together) = watch.together {
                sample.remotely = Some(Box::new(together.outcome(lanes, refs, ending)));
            }
            ended.push(sample);
        }
        self.free.clear();
        self.suspected.clear();
        self.busy.clear();
        self.aside.clear();
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
        let mut filter = self.filter.elsewhere(seed);
        for (&line, ids) in &self.by_line {
            for _ in ids {
                filter.add(line);
            }
        }
        self.filter = filter;
    }
}

/// The references of the thread whose turn it is.
fn own_refs(refs: &[u64; 5], moment: Option<&Moment>) -> [u64; 5] {
    match moment {
        Some(moment) => std::array::from_fn(|k| refs[k] - moment.foreign[k]),
        None => *refs,
    }
}

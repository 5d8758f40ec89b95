//! Reading the access log: from logged register values to accesses.
//!
//! Most records are disposed of by group: accesses through the same registers within one line's
//! length are looked up together in the observer's filter. Only records that may touch a watched
//! line, in which a sample is due, or whose number of accesses varies are expanded.

use super::cache::CodeCache;
use super::crossings::Crossings;
use super::expand::{expand, expand_from};
use super::fragment::{Adds, LoggedAccess, RecordShape};
use super::group;
use super::layout::{MAX_RECORD_QWORDS, split_header};
use crate::observe::filter::LineFilter;
use crate::observe::{Access, DEFAULT_LINE, LINE_SHIFTS, Observer};
use rustc_hash::FxHashSet;

/// Accesses at constant distances from one computed address.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Constant part of the address of the first byte.
    low: u64,
    /// Last byte, relative to the first.
    extent: u8,
    base: u8,
    /// 1, or 0 without a base: a factor, as compilers make a jump of a mask, which is guessed wrong often.
    based: u8,
    index: u8,
    scale: u8,
    /// Bit a: no member crosses a 16-byte line when the first byte is at a modulo 16.
    no_span: u16,
}

impl Group {
    /// Address of its first byte.
    #[inline(always)]
    fn address(&self, view: &[u64; VIEW]) -> u64 {
        let word = |word: u8| view[usize::from(word) % VIEW];
        self.low
            .wrapping_add(word(self.base).wrapping_mul(u64::from(self.based)))
            .wrapping_add(word(self.index).wrapping_mul(u64::from(self.scale)))
    }
}

/// What there is to know about one record number; the zero value: nothing yet.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// Its groups, in the reader's list.
    first_group: u32,
    /// Times the record was seen in the present window: here, so that one record costs one line.
    seen: u32,
    groups: u8,
    kind: Kinds,
    accesses: u16,
    /// What it adds to the thread's count, if that is fixed.
    adds: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kinds {
    #[default]
    Unknown,
    /// Every access is in a group.
    Grouped,
    /// The number or place of some access varies otherwise.
    Dynamic,
}

/// Turns logs into accesses.
#[derive(Debug, Default)]
pub struct LogReader {
    /// By record number.
    shapes: Vec<Shape>,
    groups: Vec<Group>,
    /// For each group, where its members begin and end in `members`.
    ranges: Vec<(u32, u32)>,
    /// Offset from a group's first byte, and size.
    members: Vec<(u8, u8)>,
    /// Groups whose constant part holds the base of the `fs` segment.
    in_fs: Vec<u32>,
    false_hits: u64,
    /// Those since the start.
    sharing: u64,
    /// Whether records are counted.
    counting: bool,
    /// Accesses that `rep` instructions made beyond those of one iteration, in the records counted.
    repeated: u64,
    /// Records read since the start.
    pub records: u64,
    /// Those of them that were kept for their own sake: before the count at which all are, whose low half is 0.
    pub waiting: u64,
    /// Those of them that held nothing to be looked at.
    suspected: u64,
    /// The lines in which some of those begin.
    suspects: Vec<u64>,
    /// Records expanded since the start.
    pub expanded: u64,
    /// How often accesses cross lines that are not seen.
    pub crossings: Crossings,
    /// Low half of the thread's count behind what was read.
    count: u32,
    fs_base: u64,
}

/// Words that can be looked at from the start of any record in the log, whatever its length.
pub const VIEW: usize = 128;
const _: () = assert!(VIEW >= MAX_RECORD_QWORDS && VIEW.is_power_of_two());
const _: () = assert!(VIEW * 8 <= super::layout::SLACK as usize);

/// Instructions a record takes besides one store for each of its words: pointer and check. (As they were when what instructions cost was fitted, in
/// `session/rates.rs`; where it is kept, a word takes a load and a store more since.)
const RECORD_INSTRUCTIONS: f64 = 3.0;
/// Instructions of the decision whether to keep a record, and of one look into the filter, at the most (where no flag may be touched).
const DECISION_INSTRUCTIONS: f64 = 10.0;
const GROUP_INSTRUCTIONS: f64 = 5.0;
/// Instructions added to a trace that only counts: one, and where the program goes back two more, or five. (The mean is guessed.)
const COUNT_INSTRUCTIONS: f64 = 3.0;
/// Instructions that could be executed while the count goes from one register to another through memory, and values of
/// the program's the other way, where loops use every register and are cut into traces for that. (Fitted to one
/// such program, whose loops take 1.6 to 1.7 times as long counted as natively: with 50 its accesses were estimated 18 % too high.)
const HAND_OVER_INSTRUCTIONS: f64 = 32.0;
/// Instructions an indirect transfer takes to find its fragment by the table of jumps (counted in the generated code).
const LOOKUP_INSTRUCTIONS: f64 = 10.0;
/// Instructions in place of a return that is followed: 6 in the generated code where the program lies below 2 GiB, 9 elsewhere.
const RETURN_INSTRUCTIONS: f64 = 7.0;

/// One in so many records that were kept for nothing is asked for which line: a prime, as loops keep theirs in turn.
const SUSPECT_ONE_IN: u64 = 61;

/// The same where every watched line is asked: of those and of records that the observer's filter held for nothing.
const SHARING_ONE_IN: u64 = 4093;

/// Their lines that are seen to at once. (One by one, z3 took 3.5 % longer.)
const SUSPECTS_AT_ONCE: usize = 16;

/// False hits of one log after which the filter is rehashed.
const REHASH_AFTER: u64 = 2_000;

impl LogReader {
    /// Forgets what it knows of records: the code cache was flushed.
    pub fn flush(&mut self) {
        self.shapes.clear();
        self.repeated = 0;
        self.groups.clear();
        self.ranges.clear();
        self.members.clear();
        self.in_fs.clear();
    }

    /// Begins to count records anew.
    pub fn reset(&mut self) {
        for shape in &mut self.shapes {
            shape.seen = 0;
        }
        self.counting = true;
        self.repeated = 0;
        self.suspects.clear();
    }

    /// Filters are others than before: who was suspected of what no longer holds.
    pub fn forget_suspects(&mut self) {
        self.suspects.clear();
    }

    /// Goes on without counting records, or counting them again.
    pub fn count_records(&mut self, counting: bool) {
        self.counting = counting;
    }

    /// Instructions executed in the code cache for each of the program's own since the last reset:
    /// how much slower the cache can be where execution is what limits it.
    pub fn expansion(&self, cache: &CodeCache, quiet: bool) -> f64 {
        self.expanded_by(cache, |record, shape| {
            let decision = if quiet {
                DECISION_INSTRUCTIONS + GROUP_INSTRUCTIONS * f64::from(shape.groups)
            } else {
                0.0
            };
            f64::from(record.words) + RECORD_INSTRUCTIONS + decision
        })
    }

    /// Instructions that the same would take for each of the program's own in a code cache that only counts.
    pub fn expansion_counting(&self, cache: &CodeCache) -> f64 {
        self.expanded_by(cache, |record, _| {
            let fragment = cache.fragment(record.fragment);
            let last = usize::from(record.items) == fragment.items.len();
            let hand_over = if fragment.starved && last {
                HAND_OVER_INSTRUCTIONS
            } else {
                0.0
            };
            COUNT_INSTRUCTIONS + hand_over
        })
    }

    /// The same where a record takes so many instructions of ours, the way to the next fragment aside.
    fn expanded_by(&self, cache: &CodeCache, takes: impl Fn(&RecordShape, &Shape) -> f64) -> f64 {
        let (mut own, mut ours) = (self.repeated as f64, 0.0);
        let records = cache.tables().records.iter().zip(&self.shapes);
        for (record, shape) in records.filter(|(_, shape)| shape.seen > 0) {
            let fragment = cache.fragment(record.fragment);
            let last = usize::from(record.items) == fragment.items.len();
            let lookup = if fragment.indirect && last {
                LOOKUP_INSTRUCTIONS
            } else {
                0.0
            };
            let returns = fragment.returns.partition_point(|n| *n <= record.items);
            let lookup = lookup + RETURN_INSTRUCTIONS * returns as f64;
            let seen = f64::from(shape.seen);
            own += seen * f64::from(record.items);
            ours += seen * (takes(record, shape) + lookup);
        }
        if own > 0.0 { 1.0 + ours / own } else { 1.0 }
    }

    /// Instructions of the program that were executed since the last reset on a way through a fragment that one of `ips` is on, some of them several
    /// times over.
    pub fn executed_with(&self, cache: &CodeCache, ips: &FxHashSet<u64>) -> Vec<u64> {
        let records = cache.tables().records.iter().zip(&self.shapes);
        let seen = records.filter(|(_, shape)| shape.seen > 0);
        let mut executed = Vec::new();
        for (record, _) in seen {
            let fragment = cache.fragment(record.fragment);
            let items = fragment.items.iter().take(usize::from(record.items));
            let mut way = items.map(|offset| fragment.ip.wrapping_add_signed(i64::from(*offset)));
            if way.clone().any(|ip| ips.contains(&ip)) {
                executed.extend(&mut way);
            }
        }
        executed
    }

    /// Reads the complete records in the first `length` words of `log`, in order; at least
    /// [`VIEW`] words more can be looked at behind them.
    pub fn read(
        &mut self,
        log: &[u64],
        length: usize,
        fs_base: u64,
        cache: &CodeCache,
        observer: &mut Observer,
    ) {
        let mut at = 0;
        // Not told to the observer yet: accesses seen to be harmless, and those of records that were not kept.
        let (mut harmless, mut unseen) = (0u64, 0u64);
        // Seen because all are, crossing nothing, and not told of yet.
        let mut typical = 0;
        let mut until_sample = observer.until_sample();
        let rates = self.crossings.rates();
        self.false_hits = 0;
        if fs_base != self.fs_base {
            let moved = fs_base.wrapping_sub(self.fs_base);
            for &group in &self.in_fs {
                let low = &mut self.groups[group as usize].low;
                *low = low.wrapping_add(moved);
            }
            self.fs_base = fs_base;
        }
        let draws = observer.draws_lines();
        let records = &cache.tables().records;
        if self.shapes.len() < records.len() {
            self.shapes.resize(records.len(), Shape::default());
        }
        // Looked up while the record before is read: it is seldom in the first-level cache. (Behind the last one lies no header.)
        let shape_at = |shapes: &[Shape], at: usize| {
            let shape = shapes.get(split_header(log[at]).0);
            shape.copied().unwrap_or_default()
        };
        let mut next = shape_at(&self.shapes, at);
        while at < length {
            let view: &[u64; VIEW] = log[at..at + VIEW]
                .try_into()
                .expect("a slice of that length");
            let (id, words) = split_header(view[0]);
            at += words;
            self.records += 1;
            let mut shape = std::mem::replace(&mut next, shape_at(&self.shapes, at));
            if shape.kind == Kinds::Unknown {
                // It may be known since it was looked up.
                shape = match self.shapes[id] {
                    Shape {
                        kind: Kinds::Unknown,
                        ..
                    } => self.learn(id, cache),
                    known => known,
                };
            }
            let count = (view[0] >> 32) as u32;
            unseen += u64::from(count.wrapping_sub(self.count));
            self.count = count.wrapping_add(u32::from(shape.adds));
            let all_kept = count >> 31 == 0;
            // Those kept for their own sake, `rep` above all, would stand beside a few of the others.
            let counted = self.counting && all_kept;
            let seen = &mut self.shapes[id].seen;
            *seen = seen.saturating_add(u32::from(counted));
            let dynamic = shape.kind == Kinds::Dynamic;
            // Of others nothing was found in the filter: they are always kept.
            self.waiting += u64::from(!all_kept && !dynamic);
            let accesses = u64::from(shape.accesses);
            let due = harmless + self.crossings.due_by(unseen) + accesses >= until_sample;
            let mut extra = [0u32; 5];
            let clear = !dynamic
                && (self.clear(shape, view, observer.filter(), &mut extra)
                    || all_kept && draws && self.settled(shape, view, observer, &mut extra));
            if clear && !due {
                if !all_kept {
                    if draws {
                        self.beside(shape, view, observer);
                    }
                    self.suspected += 1;
                    if self.suspected.is_multiple_of(SUSPECT_ONE_IN) {
                        // A watch may end here: with the references so far.
                        observer.skip(std::mem::take(&mut harmless));
                        observer.skip_unseen(std::mem::take(&mut unseen), rates);
                        until_sample = observer.until_sample();
                        self.suspect(shape, view, observer);
                    }
                    if self.suspected.is_multiple_of(SHARING_ONE_IN) {
                        let suspects: Vec<u64> = self.lines(shape, view).collect();
                        self.suspects.extend(suspects);
                    }
                }
                if extra[0] == 0 {
                    harmless += accesses;
                    typical += if all_kept { accesses } else { 0 };
                    continue;
                }
                // Crossing references are counted with their record.
                let before = harmless + self.crossings.due_by(unseen) + accesses;
                if before + u64::from(extra[DEFAULT_LINE]) < until_sample {
                    if all_kept {
                        self.crossings.add(accesses, extra);
                    }
                    observer.skip(harmless + accesses);
                    observer.skip_unseen(std::mem::take(&mut unseen), rates);
                    observer.skip_crossings(extra);
                    harmless = 0;
                    until_sample = observer.until_sample();
                    continue;
                }
            }
            // Nothing before the access that is due needs to be looked at. (By the crossings allowed for one may look due that is not.)
            let up_to_due = match clear && unseen == 0 && extra[0] == 0 {
                true if harmless + accesses >= until_sample => until_sample - 1 - harmless,
                _ => 0,
            };
            observer.skip(harmless);
            observer.skip_unseen(std::mem::take(&mut unseen), rates);
            harmless = 0;
            self.expanded += 1;
            let record = &records[id];
            let hits = observer.filter_hits();
            let (before, refs) = (observer.accesses(), observer.refs());
            observer.skip(up_to_due);
            expand_from(
                up_to_due as usize,
                cache.fragment(record.fragment),
                record.items,
                view,
                fs_base,
                observer,
            );
            let made = observer.accesses() - before;
            if record.adds == Adds::Expanded {
                self.count = count.wrapping_add(made as u32);
                // Each is work of the program's own, in one instruction of a record.
                self.repeated += u64::from(counted) * made.saturating_sub(accesses);
            } else if all_kept && matches!(record.adds, Adds::Fixed(_)) {
                let behind = observer.refs();
                let extra = std::array::from_fn(|k| (behind[k] - refs[k] - made) as u32);
                self.crossings.add(made, extra);
            }
            if !due && !dynamic && observer.filter_hits() == hits {
                self.false_hits += 1;
                self.sharing += 1;
                if self.sharing.is_multiple_of(SHARING_ONE_IN) {
                    self.suspect_sharing(shape, view, observer);
                }
            }
            until_sample = observer.until_sample();
        }
        observer.skip(harmless);
        observer.skip_unseen(unseen, rates);
        self.crossings.add(typical, [0; 5]);
        if self.false_hits > REHASH_AFTER {
            observer.rehash();
        }
    }

    /// The lines in which records begin that were kept for nothing, one of very many, once there are some: to look for what they were kept for
    /// takes a walk through all watched lines.
    pub fn take_suspects(&mut self) -> Vec<u64> {
        match self.suspects.len() < SUSPECTS_AT_ONCE {
            true => Vec::new(),
            false => std::mem::take(&mut self.suspects),
        }
    }

    /// Says what the thread's count of accesses was set to.
    pub fn set_count(&mut self, count: u64) {
        self.count = count as u32;
    }

    /// Accounts for accesses of records that were not kept, up to the thread's present count.
    pub fn read_count(&mut self, count: u64, observer: &mut Observer) {
        let unseen = (count as u32).wrapping_sub(self.count);
        // Stopped after its last record was kept and before that was counted: the record was read.
        if unseen as i32 > 0 {
            observer.skip_unseen(u64::from(unseen), self.crossings.rates());
            self.count = count as u32;
        }
    }

    /// Hands every access of complete records to `each`, in order: the long way round, which the
    /// short cuts of [`LogReader::read`] are tested against.
    pub fn every(log: &[u64], fs_base: u64, cache: &CodeCache, each: &mut impl FnMut(Access)) {
        let mut at = 0;
        while at < log.len() {
            let (id, words) = split_header(log[at]);
            let (shape, end) = (cache.tables().records[id], at + words);
            let fragment = cache.fragment(shape.fragment);
            expand(fragment, shape.items, &log[at..end], fs_base, None, each);
            at = end;
        }
    }

    #[cold]
    fn learn(&mut self, id: usize, cache: &CodeCache) -> Shape {
        let record = cache.tables().records[id];
        let fragment = cache.fragment(record.fragment);
        let count = usize::from(fragment.first_access[usize::from(record.items)]);
        let accesses = &fragment.accesses[..count];
        let first_group = self.groups.len();
        self.group(accesses);
        let groups = u8::try_from(self.groups.len() - first_group);
        let grouped = accesses.iter().all(group::groupable) && groups.is_ok();
        let shape = Shape {
            first_group: first_group as u32,
            seen: 0,
            groups: groups.unwrap_or(0),
            kind: if grouped {
                Kinds::Grouped
            } else {
                Kinds::Dynamic
            },
            accesses: count as u16,
            adds: match record.adds {
                Adds::Fixed(n) => n,
                Adds::Expanded | Adds::Nothing => 0,
            },
        };
        self.shapes[id] = shape;
        shape
    }

    /// Whether no group of the record can touch a watched line. Adds the references beyond one per
    /// access to `extra`, by line size.
    #[inline(always)]
    fn clear(
        &self,
        shape: Shape,
        view: &[u64; VIEW],
        filter: &LineFilter,
        extra: &mut [u32; 5],
    ) -> bool {
        let (mut held, mut crossing) = (false, false);
        for group in self.groups_of(shape) {
            let address = group.address(view);
            held |= filter.may_hold_bytes(address, u64::from(group.extent));
            crossing |= group.no_span >> (address & 15) & 1 == 0;
        }
        if crossing && !held {
            self.count_crossings(shape, view, extra);
        }
        !held
    }

    /// The same where lines are drawn that the present epoch has touched before, as lines of the stack are all the time.
    #[inline(never)]
    fn settled(
        &self,
        shape: Shape,
        view: &[u64; VIEW],
        observer: &Observer,
        extra: &mut [u32; 5],
    ) -> bool {
        let shift = LINE_SHIFTS[DEFAULT_LINE];
        let settled = self.groups_of(shape).iter().all(|group| {
            let address = group.address(view);
            let last = address.wrapping_add(u64::from(group.extent));
            [address >> shift, last >> shift]
                .into_iter()
                .all(|line| observer.is_settled(line))
        });
        if settled {
            self.count_crossings(shape, view, extra);
        }
        settled
    }

    /// A record was kept for nothing: perhaps for drawn lines behind those it touches.
    #[inline(never)]
    fn beside(&self, shape: Shape, view: &[u64; VIEW], observer: &mut Observer) {
        for line in self.lines(shape, view) {
            observer.beside(line);
        }
    }

    /// A record was kept for nothing: perhaps for watched lines behind those it touches.
    #[inline(never)]
    fn suspect(&self, shape: Shape, view: &[u64; VIEW], observer: &mut Observer) {
        for line in self.lines(shape, view) {
            observer.suspect(line + 1);
        }
    }

    /// A record was looked at for nothing: perhaps for watched lines that share their places with those it touches.
    #[inline(never)]
    fn suspect_sharing(&self, shape: Shape, view: &[u64; VIEW], observer: &mut Observer) {
        for line in self.lines(shape, view) {
            observer.suspect_sharing(line);
        }
    }

    /// The lines in which the groups of a record begin.
    fn lines(&self, shape: Shape, view: &[u64; VIEW]) -> impl Iterator<Item = u64> {
        let address = |group: &Group| group.address(view) >> LINE_SHIFTS[DEFAULT_LINE];
        self.groups_of(shape).iter().map(address)
    }

    #[inline(always)]
    fn groups_of(&self, shape: Shape) -> &[Group] {
        let first = shape.first_group as usize;
        &self.groups[first..first + usize::from(shape.groups)]
    }

    /// Adds the references of a record beyond one per access to `extra`, by line size.
    #[inline(never)]
    fn count_crossings(&self, shape: Shape, view: &[u64; VIEW], extra: &mut [u32; 5]) {
        let ranges = &self.ranges[shape.first_group as usize..];
        for (group, &(from, to)) in self.groups_of(shape).iter().zip(ranges) {
            let first = group.address(view);
            for &(offset, size) in &self.members[from as usize..to as usize] {
                let start = first.wrapping_add(u64::from(offset));
                let end = start.wrapping_add(u64::from(size) - 1);
                for (extra, shift) in extra.iter_mut().zip(LINE_SHIFTS) {
                    *extra += ((end >> shift) - (start >> shift)) as u32;
                }
            }
        }
    }

    /// Puts the groups of a record's accesses into the lists.
    fn group(&mut self, accesses: &[LoggedAccess]) {
        for group in group::groups(accesses) {
            let start = self.members.len() as u32;
            self.members.extend(&group.members);
            let mut low = group.low;
            if group.fs {
                low = low.wrapping_add(self.fs_base);
                self.in_fs.push(self.groups.len() as u32);
            }
            self.ranges.push((start, self.members.len() as u32));
            self.groups.push(Group {
                low,
                extent: group.extent,
                base: group.base,
                based: u8::from(group.base != 0),
                index: group.index,
                scale: group.scale,
                no_span: group.no_span,
            });
        }
    }
}

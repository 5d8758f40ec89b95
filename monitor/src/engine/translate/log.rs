//! Reading the access log: from logged register values to accesses.
//!
//! Most records are disposed of by group: accesses through the same registers within one line's
//! length are looked up together in the observer's filter. Only records that may touch a watched
//! line, in which a sample is due, or whose number of accesses varies are expanded.

use super::cache::CodeCache;
use super::fragment::{Dynamic, Fragment, FragmentId, LoggedAccess};
use crate::arch::Kind;
use crate::observe::{Access, LINE_SHIFTS, Observer};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;

/// Most bytes from the first to the last byte of a group: it then lies in at most two lines.
const GROUP_BYTES: u64 = 64;

/// Accesses at constant distances from one computed address.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Constant part of the address of the first byte.
    low: u64,
    /// Last byte, relative to the first.
    extent: u8,
    base: u8,
    index: u8,
    scale: u8,
    fs: bool,
    /// Bit a: no member crosses a 16-byte line when the first byte is at a modulo 16.
    no_span: u16,
    /// Members, in the shape's list.
    members: (u16, u16),
}

/// What there is to know about one record number.
#[derive(Debug)]
struct Shape {
    words: u32,
    accesses: u32,
    /// Whether the number or place of some access varies otherwise.
    dynamic: bool,
    groups: Box<[Group]>,
    /// Offset from the group's first byte, and size.
    members: Box<[(u8, u8)]>,
    fragment: FragmentId,
    items: u16,
    /// Times seen in the present window.
    seen: Cell<u32>,
}

/// Turns logs into accesses.
#[derive(Debug, Default)]
pub struct LogReader {
    shapes: Vec<Option<Box<Shape>>>,
    false_hits: u64,
    /// Records expanded since the start.
    pub expanded: u64,
    /// Records read since the start.
    pub records: u64,
}

/// False hits of one log after which the filter is rehashed.
const REHASH_AFTER: u64 = 2_000;

impl LogReader {
    /// Forgets what it knows of records: the code cache was flushed.
    pub fn flush(&mut self) {
        self.shapes.clear();
    }

    /// Begins to count executions anew.
    pub fn reset_executions(&mut self) {
        for shape in self.shapes.iter().flatten() {
            shape.seen.set(0);
        }
    }

    /// Up to `most` instructions with how often they were executed since the last reset, a number
    /// within `range` and as near to its geometric middle as there are.
    pub fn executed(
        &self,
        cache: &CodeCache,
        range: &std::ops::RangeInclusive<u64>,
        most: usize,
    ) -> Vec<(u64, u64)> {
        let middle = ((*range.start() * *range.end()) as f64).sqrt();
        let seen = || self.shapes.iter().flatten().filter(|shape| shape.seen.get() > 0);
        let mut heads: Vec<(u64, u64)> = seen()
            .map(|shape| (u64::from(shape.seen.get()), cache.fragment(shape.fragment).ip))
            .filter(|(count, _)| range.contains(count))
            .collect();
        let off = |count: u64| ((count as f64 / middle).ln().abs() * 1e6) as u64;
        heads.sort_by_key(|&(count, ip)| (off(count), ip));
        heads.truncate(8 * most);
        // Other fragments may hold the same instruction in their middle.
        let wanted: FxHashSet<u64> = heads.iter().map(|&(_, ip)| ip).collect();
        let mut total: FxHashMap<u64, u64> = FxHashMap::default();
        for shape in seen() {
            let ips = &cache.fragment(shape.fragment).item_ips;
            for ip in ips[..usize::from(shape.items)].iter().filter(|ip| wanted.contains(ip)) {
                *total.entry(*ip).or_default() += u64::from(shape.seen.get());
            }
        }
        let mut found: Vec<(u64, u64)> =
            total.into_iter().filter(|(_, count)| range.contains(count)).collect();
        found.sort_by_key(|&(ip, count)| (off(count), ip));
        found.truncate(most);
        found
    }

    /// Reads complete records, in order.
    pub fn read(&mut self, log: &[u64], fs_base: u64, cache: &CodeCache, observer: &mut Observer) {
        let mut at = 0;
        let mut harmless = 0u64;
        self.false_hits = 0;
        while at < log.len() {
            let id = log[at] as u32 as usize;
            if self.shapes.get(id).is_none_or(Option::is_none) {
                self.learn(id, cache);
            }
            let Some(shape) = self.shapes[id].as_deref() else { unreachable!("just learnt") };
            let record = &log[at..at + shape.words as usize];
            at += shape.words as usize;
            self.records += 1;
            shape.seen.set(shape.seen.get().saturating_add(1));
            let due = harmless + u64::from(shape.accesses) >= observer.until_sample();
            let mut extra = [0u32; 5];
            if !due && !shape.dynamic && clear(shape, record, fs_base, observer, &mut extra) {
                harmless += u64::from(shape.accesses);
                if extra[0] == 0 {
                    continue;
                }
                // Crossing references are counted with their record.
                if harmless + u64::from(extra[2]) < observer.until_sample() {
                    observer.skip(harmless);
                    observer.skip_crossings(extra);
                    harmless = 0;
                    continue;
                }
                harmless -= u64::from(shape.accesses);
            }
            observer.skip(harmless);
            harmless = 0;
            self.expanded += 1;
            let (fragment, items) = (cache.fragment(shape.fragment), shape.items);
            let watching = observer.filter_hits();
            expand(fragment, items, record, fs_base, None, &mut |access| observer.access(access));
            if !due && !shape.dynamic && observer.filter_hits() == watching {
                self.false_hits += 1;
            }
        }
        observer.skip(harmless);
        if self.false_hits > REHASH_AFTER {
            observer.rehash();
        }
    }

    /// Hands every access of complete records to `each`, in order: the long way round, which the
    /// short cuts of [`LogReader::read`] are tested against.
    pub fn every(log: &[u64], fs_base: u64, cache: &CodeCache, each: &mut impl FnMut(Access)) {
        let mut at = 0;
        while at < log.len() {
            let shape = cache.tables().records[log[at] as u32 as usize];
            let end = at + usize::from(shape.words);
            let fragment = cache.fragment(shape.fragment);
            expand(fragment, shape.items, &log[at..end], fs_base, None, each);
            at = end;
        }
    }

    fn learn(&mut self, id: usize, cache: &CodeCache) {
        if self.shapes.len() <= id {
            self.shapes.resize_with(cache.tables().records.len().max(id + 1), || None);
        }
        let record = cache.tables().records[id];
        let fragment = cache.fragment(record.fragment);
        let count = usize::from(fragment.first_access[usize::from(record.items)]);
        let accesses = &fragment.accesses[..count];
        let (groups, members) = group(accesses, id as u64);
        self.shapes[id] = Some(Box::new(Shape {
            words: u32::from(record.words),
            accesses: count as u32,
            dynamic: accesses.iter().any(|a| !groupable(a)),
            groups,
            members,
            fragment: record.fragment,
            items: record.items,
            seen: Cell::new(0),
        }));
    }
}

/// Whether no group of the record can touch a watched line. Adds the references beyond one per
/// access to `extra`, by line size.
#[inline(always)]
fn clear(
    shape: &Shape,
    record: &[u64],
    fs_base: u64,
    observer: &Observer,
    extra: &mut [u32; 5],
) -> bool {
    let filter = observer.filter();
    for group in &shape.groups {
        let mut first = group.low.wrapping_add(record[usize::from(group.base)]).wrapping_add(
            record[usize::from(group.index)].wrapping_mul(u64::from(group.scale)),
        );
        if group.fs {
            first = first.wrapping_add(fs_base);
        }
        let last = first.wrapping_add(u64::from(group.extent));
        if filter.may_hold(first >> 6) | filter.may_hold(last >> 6) {
            return false;
        }
        if group.no_span >> (first & 15) & 1 == 0 {
            count_crossings(first, shape, group, extra);
        }
    }
    true
}

#[cold]
#[inline(never)]
fn count_crossings(first: u64, shape: &Shape, group: &Group, extra: &mut [u32; 5]) {
    let (from, to) = group.members;
    for &(offset, size) in &shape.members[usize::from(from)..usize::from(to)] {
        let start = first.wrapping_add(u64::from(offset));
        let end = start.wrapping_add(u64::from(size) - 1);
        for (extra, shift) in extra.iter_mut().zip(LINE_SHIFTS) {
            *extra += ((end >> shift) - (start >> shift)) as u32;
        }
    }
}

fn groupable(access: &LoggedAccess) -> bool {
    access.dynamic == Dynamic::No
        && !access.addr32
        && access.size >= 1
        && u64::from(access.size) <= GROUP_BYTES
}

/// Sorts accesses into groups. Word 0 of a record is its number `id`, which stands for "no
/// register" once it is subtracted.
fn group(accesses: &[LoggedAccess], id: u64) -> (Box<[Group]>, Box<[(u8, u8)]>) {
    let mut by_registers: FxHashMap<(u8, u8, u8, bool), Vec<(i64, u32)>> = FxHashMap::default();
    let mut order = Vec::new();
    for access in accesses.iter().filter(|a| groupable(a)) {
        let scale = if access.index == 0 { 0 } else { access.scale };
        let key = (access.base, access.index, scale, access.fs);
        let members = by_registers.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        members.push((access.disp as i64, access.size));
    }
    let (mut groups, mut list) = (Vec::new(), Vec::new());
    for key in order {
        let mut members = by_registers.remove(&key).unwrap_or_default();
        members.sort_unstable();
        let mut rest = &members[..];
        while let Some(&(low, _)) = rest.first() {
            let fits = |&(disp, size): &(i64, u32)| {
                disp.wrapping_sub(low) as u64 + u64::from(size) <= GROUP_BYTES
            };
            let count = rest.iter().position(|m| !fits(m)).unwrap_or(rest.len());
            let (these, others) = rest.split_at(count);
            rest = others;
            let start = list.len();
            list.extend(these.iter().map(|&(disp, size)| ((disp - low) as u8, size as u8)));
            let extent = list[start..].iter().map(|&(o, s)| o + s - 1).max().unwrap_or(0);
            let no_span = (0..16u16).fold(0, |bits, a| {
                let stays = |&(o, s): &(u8, u8)| (a + u16::from(o)) % 16 + u16::from(s) <= 16;
                bits | u16::from(list[start..].iter().all(stays)) << a
            });
            let (base, index, scale, fs) = key;
            let low = if base == 0 { (low as u64).wrapping_sub(id) } else { low as u64 };
            let members = (start as u16, list.len() as u16);
            groups.push(Group { low, extent, base, index, scale, fs, no_span, members });
        }
    }
    (groups.into(), list.into())
}

/// Calls `each` with every access of the first `items` items of `fragment`, whose record is
/// `record` (at least as long as those items need). `partial_rep`: the counter left of a `rep`
/// item that follows them and was interrupted; its iterations so far are included.
pub fn expand(
    fragment: &Fragment,
    items: u16,
    record: &[u64],
    fs_base: u64,
    partial_rep: Option<u64>,
    each: &mut impl FnMut(Access),
) {
    let done = usize::from(fragment.first_access[usize::from(items)]);
    let mut i = 0;
    while i < done {
        let item = fragment.accesses[i].item;
        let mut end = i + 1;
        while end < done && fragment.accesses[end].item == item {
            end += 1;
        }
        let ip = fragment.item_ips[usize::from(item)];
        expand_item(&fragment.accesses[i..end], ip, record, fs_base, None, each);
        i = end;
    }
    if let Some(left) = partial_rep
        && let Some(&next) = fragment.first_access.get(usize::from(items) + 1)
    {
        let accesses = &fragment.accesses[done..usize::from(next)];
        if accesses.iter().any(|a| matches!(a.dynamic, Dynamic::Rep { .. })) {
            let ip = fragment.item_ips[usize::from(items)];
            expand_item(accesses, ip, record, fs_base, Some(left), each);
        }
    }
}

fn expand_item(
    accesses: &[LoggedAccess],
    ip: u64,
    record: &[u64],
    fs_base: u64,
    left: Option<u64>,
    each: &mut impl FnMut(Access),
) {
    if let Some(LoggedAccess { dynamic: Dynamic::Rep { count, after, counter32, step }, .. }) =
        accesses.first()
    {
        let mask = if *counter32 { 0xffff_ffff } else { u64::MAX };
        let before = term(count.slot, count.add, record) & mask;
        let after = match (left, after) {
            (Some(left), _) => left & mask,
            (None, 0) => 0,
            (None, word) => record[usize::from(*word)] & mask,
        };
        for iteration in 0..before.wrapping_sub(after) {
            for access in accesses {
                let moved = iteration.wrapping_mul(u64::from(*step));
                each(at(access, ip, address(access, record, fs_base, moved), access.size));
            }
        }
        return;
    }
    for access in accesses {
        match access.dynamic {
            Dynamic::No | Dynamic::Rep { .. } => {
                each(at(access, ip, address(access, record, fs_base, 0), access.size));
            }
            Dynamic::Bit { offset, operand_bytes } => {
                let bytes = i64::from(operand_bytes);
                let value = term(offset.slot, offset.add, record) as i64;
                // Intel SDM vol. 2, BT: the offset is signed and of the operand's size.
                let signed = value << (64 - 8 * bytes) >> (64 - 8 * bytes);
                let moved = signed.div_euclid(8 * bytes) * bytes;
                each(at(access, ip, address(access, record, fs_base, moved as u64), access.size));
            }
            Dynamic::Xlat { rax } => {
                let al = term(rax.slot, rax.add, record) & 0xff;
                each(at(access, ip, address(access, record, fs_base, al), access.size));
            }
            Dynamic::Gather { .. } => expand_gather(access, ip, record, fs_base, each),
        }
    }
}

/// Active lanes, adjoining ones merged into one access.
fn expand_gather(
    access: &LoggedAccess,
    ip: u64,
    record: &[u64],
    fs_base: u64,
    each: &mut impl FnMut(Access),
) {
    let Dynamic::Gather { index, lanes, index_bytes, element_bytes, scale, mask, vector_mask } =
        access.dynamic
    else {
        return;
    };
    let mut last: Option<(u64, u32)> = None;
    for lane in 0..usize::from(lanes) {
        let active = if vector_mask {
            signed_element(record, mask, lane, element_bytes) < 0
        } else {
            record[usize::from(mask)] >> lane & 1 != 0
        };
        if !active {
            continue;
        }
        let offset = signed_element(record, index, lane, index_bytes) * i64::from(scale);
        let start = address(access, record, fs_base, offset as u64);
        last = match last {
            Some((first, size)) if first.wrapping_add(u64::from(size)) == start => {
                Some((first, size + u32::from(element_bytes)))
            }
            other => {
                if let Some((first, size)) = other {
                    each(at(access, ip, first, size));
                }
                Some((start, u32::from(element_bytes)))
            }
        };
    }
    if let Some((first, size)) = last {
        each(at(access, ip, first, size));
    }
}

fn signed_element(record: &[u64], word: u8, lane: usize, bytes: u8) -> i64 {
    let word = usize::from(word);
    match bytes {
        4 => i64::from((record[word + lane / 2] >> (32 * (lane % 2))) as i32),
        _ => record[word + lane] as i64,
    }
}

fn term(slot: u8, add: u64, record: &[u64]) -> u64 {
    match slot {
        0 => add,
        slot => record[usize::from(slot)].wrapping_add(add),
    }
}

fn address(access: &LoggedAccess, record: &[u64], fs_base: u64, extra: u64) -> u64 {
    let mut sum = term(access.base, access.disp, record)
        .wrapping_add(term(access.index, 0, record).wrapping_mul(u64::from(access.scale)))
        .wrapping_add(extra);
    if access.addr32 {
        sum &= 0xffff_ffff;
    }
    if access.fs { sum.wrapping_add(fs_base) } else { sum }
}

fn at(access: &LoggedAccess, ip: u64, address: u64, size: u32) -> Access {
    Access {
        ip,
        address,
        size,
        load: access.kind != Kind::Store,
        store: access.kind != Kind::Load,
    }
}

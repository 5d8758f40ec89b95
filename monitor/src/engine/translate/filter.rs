//! The filter of watched lines that translated code looks into: one byte for every class of addresses,
//! the number of watched lines that an access there may touch, and whether it touches a drawn one. The thread itself takes the latter back
//! once it has kept a record for it (`fragment/lookup.rs`): its next accesses, which are many as a rule, need not be looked at.
//!
//! Translated code looks up the first byte of up to [`GROUP_BYTES`] bytes only, so that a watched line
//! is entered under the line before it too. No line is ever missed; a class shared with other lines
//! costs records that need not have been kept.

use super::group::GROUP_BYTES;
use super::layout::{BEFORE_DRAWN, DRAWN, FILTER, FILTER_BITS, WATCHED, state};
use super::memory::Shared;
use crate::observe::{CLASS_BITS, Mark, PLACE_BITS, REGION_SHIFT};
use rustc_hash::FxHashMap;

/// log2 of the lines that lie side by side in the filter. As many as there are classes: with fewer (16 bits), lines of sixteen classes
/// shared their places as soon as the bits from elsewhere were others than those next to them. A quarter of all lines was looked at
/// then, and the filter placed anew at every eighth log.
const LOW_BITS: u32 = CLASS_BITS;
/// Bits of the address from further up, beside the one that tells regions apart.
const HIGH_BITS: u32 = FILTER_BITS - LOW_BITS - 1;
const _: () = assert!(HIGH_BITS == PLACE_BITS);
/// log2 of the bytes of a line.
const LINE_SHIFT: u32 = 6;
/// Where those bits may be taken from.
const HIGH_SHIFTS: std::ops::Range<u32> = LINE_SHIFT + LOW_BITS..36;
const _: () = assert!(HIGH_SHIFTS.end + HIGH_BITS <= REGION_BIT);
/// The bit of an address that is set where the kernel maps libraries and stacks, at 0x7fff_ffff_ffff and below, and not set where it
/// loads programs, with the heap of brk(2) behind them: at 0x5555_5555_4000 and above, or where they ask to be. (With 32 random bits,
/// vm.mmap_rnd_bits, a third of programs come to lie so far above that it is set there, too, and tells nothing. Without it watched
/// lines of libraries, touched once, shared their places with lines of z3's heap, always the same without address randomization: half of
/// what was kept between samples was kept for that, and z3 took a quarter longer.)
const REGION_BIT: u32 = LINE_SHIFT + REGION_SHIFT;

/// Places remembered to be set to zero one by one.
const MOST_TOUCHED: usize = 1 << 16;

/// Where the filter has a line.
#[derive(Clone, Debug)]
pub struct TargetFilter {
    /// Whether the processor has a fast `pext`; without, bits 8 to 23 of the address choose.
    wide: bool,
    high_shift: u32,
    /// Places that may not be zero; more than [`MOST_TOUCHED`]: any.
    touched: Vec<u32>,
    /// Classes of drawn lines whose places are entered, a bit each, and those of which the places before are; empty before the first.
    marked: Vec<u64>,
    before: Vec<u64>,
    /// How many bits are set.
    marks: usize,
}

impl TargetFilter {
    /// A filter without lines.
    pub fn new(wide: bool) -> TargetFilter {
        TargetFilter {
            wide,
            high_shift: HIGH_SHIFTS.start,
            touched: Vec::new(),
            marked: Vec::new(),
            before: Vec::new(),
            marks: 0,
        }
    }

    fn mask(&self) -> u64 {
        ((1 << LOW_BITS) - 1) << LINE_SHIFT
            | ((1 << HIGH_BITS) - 1) << self.high_shift
            | 1 << REGION_BIT
    }

    fn place(&self, address: u64) -> u64 {
        if self.wide {
            (address >> LINE_SHIFT & ((1 << LOW_BITS) - 1))
                | (address >> self.high_shift & ((1 << HIGH_BITS) - 1)) << LOW_BITS
                | (address >> REGION_BIT & 1) << (LOW_BITS + HIGH_BITS)
        } else {
            address >> 8 & 0xffff
        }
    }

    /// Empties the filter at `gs` in `data` and enters `lines`.
    pub fn fill(&mut self, data: &mut Shared, gs: u64, lines: impl Iterator<Item = u64>) {
        data.write_word(gs + state::MASK as u64, self.mask());
        if self.touched.len() > MOST_TOUCHED {
            data.zero(gs + FILTER as u64, 1 << FILTER_BITS);
        } else {
            for place in &self.touched {
                data.write(gs + FILTER as u64 + u64::from(*place), &[0]);
            }
        }
        self.touched.clear();
        self.marked.fill(0);
        self.before.fill(0);
        self.marks = 0;
        for line in lines {
            self.change(data, gs, line, true);
        }
    }

    /// Enters a line or takes one away.
    pub fn change(&mut self, data: &mut Shared, gs: u64, line: u64, watched: bool) {
        let address = line << LINE_SHIFT;
        for address in [address, address.wrapping_sub(GROUP_BYTES)] {
            self.count(data, gs, self.place(address), watched);
        }
    }

    /// How many accesses that begin in `lines` are kept because of a watched line, in or behind which they do not begin.
    pub fn shared_by(&self, lines: &[u64]) -> impl Fn(u64) -> u32 {
        let mut by_place: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
        for &line in lines {
            let at = by_place.entry(self.place(line << LINE_SHIFT));
            at.or_default().push(line);
        }
        move |watched| {
            let address = watched << LINE_SHIFT;
            let places = [address, address.wrapping_sub(GROUP_BYTES)].map(|at| self.place(at));
            let lines = |place| by_place.get(&place).into_iter().flatten();
            let second = (places[1] != places[0]).then(|| lines(places[1]));
            lines(places[0])
                .chain(second.into_iter().flatten())
                .filter(|&&line| watched != line && watched != line + 1)
                .count() as u32
        }
    }

    /// Whether it can hold drawn lines: without fast `pext` too many share a place.
    pub fn can_mark(&self) -> bool {
        self.wide
    }

    /// Whether it holds any.
    pub fn has_marks(&self) -> bool {
        self.marks > 0
    }

    /// Follows what of drawn lines is to be looked at.
    pub fn mark(&mut self, data: &mut Shared, gs: u64, mark: Mark) {
        if self.marked.is_empty() {
            let words = (1 << CLASS_BITS) / 64;
            (self.marked, self.before) = (vec![0; words], vec![0; words]);
        }
        let (class_or_place, drawn, before) = match mark {
            Mark::Lines(class, drawn) => (class, drawn, false),
            Mark::Before(class, drawn) => (class, drawn, true),
            Mark::LinesAt(place) => (place, true, false),
            Mark::BeforeAt(place, drawn) => (place, drawn, true),
        };
        let class = class_or_place & ((1 << CLASS_BITS) - 1);
        let of_class = matches!(mark, Mark::Lines(..) | Mark::Before(..));
        if of_class && !self.is_news(class, drawn, before) {
            return;
        }
        // A group that begins in the line before has the same bits above the class's.
        let (back, bit) = match before {
            true => (1, BEFORE_DRAWN),
            false => (0, DRAWN),
        };
        let all = 0..1u64 << (FILTER_BITS - LOW_BITS);
        // Where other bits are gone by, which of the places it is cannot be told.
        let is_told = !of_class && self.high_shift == HIGH_SHIFTS.start;
        let at = u64::from(class_or_place >> CLASS_BITS);
        for above in if is_told { at..at + 1 } else { all } {
            let place = (u64::from(class) | above << LOW_BITS) - back;
            self.change_byte(data, gs, place, |byte| match drawn {
                true => byte | bit,
                false => byte & !bit,
            });
        }
    }

    /// Notes that the places of a class, or those before, are entered or not. Whether that is news.
    fn is_news(&mut self, class: u32, drawn: bool, before: bool) -> bool {
        let bits = match before {
            true => &mut self.before,
            false => &mut self.marked,
        };
        let (word, mask) = (&mut bits[class as usize / 64], 1u64 << (class % 64));
        if (*word & mask != 0) == drawn {
            return false;
        }
        *word ^= mask;
        match drawn {
            true => self.marks += 1,
            false => self.marks -= 1,
        }
        true
    }

    fn count(&mut self, data: &mut Shared, gs: u64, place: u64, more: bool) {
        self.change_byte(data, gs, place, |byte| match (more, byte & WATCHED) {
            // A count that has reached its limit stays there.
            (_, WATCHED) | (false, 0) => byte,
            (true, _) => byte + 1,
            (false, _) => byte - 1,
        });
    }

    fn change_byte(
        &mut self,
        data: &mut Shared,
        gs: u64,
        place: u64,
        change: impl FnOnce(u8) -> u8,
    ) {
        let at = gs + FILTER as u64 + place;
        let byte = data.byte(at);
        if byte == 0 && self.touched.len() <= MOST_TOUCHED {
            self.touched.push(place as u32);
        }
        data.write(at, &[change(byte)]);
    }

    /// Chooses other bits.
    pub fn rehash(&mut self) {
        self.high_shift += 1;
        if !HIGH_SHIFTS.contains(&self.high_shift) {
            self.high_shift = HIGH_SHIFTS.start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::translate::layout::STATE_BYTES;
    use crate::observe::place_of;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::{BTreeMap, BTreeSet};

    /// Whatever comes and goes: what is watched or marked is found, and at the end nothing is.
    #[test]
    fn no_watched_line_is_lost() {
        const GS: u64 = 1 << 30;
        let path = std::env::temp_dir().join(format!("statcache-filter-{}", std::process::id()));
        let mut options = std::fs::File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).expect("a file");
        std::fs::remove_file(&path).expect("our own");
        file.set_len(STATE_BYTES).expect("room");
        let mut data = Shared::map(&file, 0, STATE_BYTES, GS).expect("a mapping");
        let mut random = SmallRng::seed_from_u64(1);
        let mut filter = TargetFilter::new(true);
        let mut watched: BTreeMap<u64, u32> = BTreeMap::new();
        let mut marks: BTreeSet<(u32, bool)> = BTreeSet::new();
        let mark = |class, before, drawn| match before {
            true => Mark::Before(class, drawn),
            false => Mark::Lines(class, drawn),
        };
        for step in 0..20_000u32 {
            // Few low bits, so that they meet.
            let line = random.random_range(4..12) | random.random_range(0..64u64) << 18;
            let line = line | u64::from(random.random::<bool>()) << REGION_SHIFT;
            match random.random_range(0..6) {
                // Not so many that a count reaches its limit.
                0 if watched.values().sum::<u32>() < 60 => {
                    filter.change(&mut data, GS, line, true);
                    *watched.entry(line).or_default() += 1;
                }
                1 => {
                    if let Some(count) = watched.get_mut(&line).filter(|count| **count > 0) {
                        *count -= 1;
                        filter.change(&mut data, GS, line, false);
                    }
                }
                2 => {
                    let class = line as u32 & ((1 << CLASS_BITS) - 1);
                    // As a thread does that has kept an access.
                    let place = GS + FILTER as u64 + filter.place(line << LINE_SHIFT);
                    let byte = data.byte(place);
                    data.write(place, &[byte & !DRAWN]);
                    let place = place_of(line);
                    if marks.contains(&(class, false)) {
                        filter.mark(&mut data, GS, Mark::LinesAt(place));
                    }
                    if marks.contains(&(class, true)) {
                        filter.mark(&mut data, GS, Mark::BeforeAt(place, false));
                        let at = filter.place((line << LINE_SHIFT) - GROUP_BYTES);
                        let byte = data.byte(GS + FILTER as u64 + at);
                        assert_eq!(byte & BEFORE_DRAWN, 0);
                        filter.mark(&mut data, GS, Mark::BeforeAt(place, true));
                    }
                }
                _ => {
                    let class = line as u32 & ((1 << CLASS_BITS) - 1);
                    let (before, drawn) = (random.random(), random.random());
                    filter.mark(&mut data, GS, mark(class, before, drawn));
                    match drawn {
                        true => marks.insert((class, before)),
                        false => marks.remove(&(class, before)),
                    };
                }
            }
            if step % 3000 == 2999 {
                filter.rehash();
                let lines = watched.iter();
                let lines = lines.flat_map(|(&line, &n)| std::iter::repeat_n(line, n as usize));
                filter.fill(&mut data, GS, lines);
                assert!(!filter.has_marks());
                for &(class, before) in &marks {
                    filter.mark(&mut data, GS, mark(class, before, true));
                }
            }
            if step % 100 != 0 {
                continue;
            }
            assert_eq!(filter.has_marks(), !marks.is_empty());
            let byte = |place: u64| data.byte(GS + FILTER as u64 + place);
            let holds = |place: u64| byte(place) & WATCHED != 0;
            for (&line, _) in watched.iter().filter(|(_, count)| **count > 0) {
                let address = line << LINE_SHIFT;
                assert!(holds(filter.place(address)));
                assert!(holds(filter.place(address - GROUP_BYTES)));
            }
            for &(class, before) in &marks {
                let line = u64::from(class) | random.random_range(0..1u64 << 20) << CLASS_BITS;
                let (back, bit) = match before {
                    true => (GROUP_BYTES, BEFORE_DRAWN),
                    false => (0, DRAWN),
                };
                let place = filter.place((line << LINE_SHIFT) - back);
                assert!(byte(place) & bit != 0, "{class:x} {before}");
            }
        }
        for (line, count) in watched {
            for _ in 0..count {
                filter.change(&mut data, GS, line, false);
            }
        }
        for (class, before) in marks {
            filter.mark(&mut data, GS, mark(class, before, false));
        }
        assert!(!filter.has_marks());
        let left = (0..1u64 << FILTER_BITS).filter(|&p| data.byte(GS + FILTER as u64 + p) != 0);
        assert_eq!(left.count(), 0);
    }

    /// Of lines in which nothing that is watched lies or follows, those are told that are looked up in a place of its.
    #[test]
    fn lines_that_share_a_place_are_told() {
        let mut random = SmallRng::seed_from_u64(2);
        for wide in [true, false] {
            let mut filter = TargetFilter::new(wide);
            let mut shared = 0;
            for _ in 0..20_000 {
                let watched = random.random_range(8..1u64 << 30);
                // Few other bits, so that they meet.
                let line =
                    watched ^ random.random_range(0..4) ^ random.random_range(0..16u64) << LOW_BITS;
                let line = line - random.random_range(0..2);
                let places = [watched << LINE_SHIFT, (watched << LINE_SHIFT) - GROUP_BYTES];
                let is_held = places
                    .map(|at| filter.place(at))
                    .contains(&filter.place(line << LINE_SHIFT));
                let is_its = line == watched || line + 1 == watched;
                assert!(is_held || !is_its);
                let times = filter.shared_by(&[line, line])(watched);
                assert_eq!(times, if is_held && !is_its { 2 } else { 0 });
                shared += times;
                filter.rehash();
            }
            assert!(shared > 100, "{shared}");
        }
    }
}

//! Lines that a window touches for the first time.
//!
//! An access ends a reuse that began in its window, or it is the first touch of its line there. The former are followed
//! forwards, from samples; who makes the latter is seen here, for lines drawn at random. Together they are all accesses of the
//! window, by the instruction that would miss.

use super::filter::{LineFilter, MARKED, MARKED_ONE_IN};
use super::{Access, DEFAULT_LINE, LINE_SHIFTS, Observer};
use crate::profile::types::Since;
use rand::Rng;
use rand::rngs::SmallRng;
use rustc_hash::FxHashSet;

/// Most of them that are kept, a random choice: a window may touch a line with each access.
const MOST: usize = 1000;

/// The first touch of a line in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouch {
    /// Address of the instruction.
    pub ip: u64,
    /// First byte touched in the line.
    pub address: u64,
    /// References at 64-byte lines before it, since the observer was made.
    pub position: u64,
    /// Its thread, where there are several: for each of them there is a first touch.
    pub tid: Option<i32>,
    /// Whether no other thread has touched the line before.
    pub of_all: bool,
    /// How far away the line's last touch is.
    pub since: Since,
}

/// Those that a window's drawn lines had.
#[derive(Clone, Debug, Default)]
pub struct FirstTouches {
    /// Those kept.
    pub kept: Vec<FirstTouch>,
    /// First touches of drawn lines, kept or not; an estimate, as of two lines that share an entry of the filter only one is seen.
    pub seen: f64,
    /// The same as they were seen.
    found: u32,
    /// With several threads: lines that were touched, and by whom.
    lines: Vec<u64>,
    touched: FxHashSet<(u64, u32)>,
}

/// Stands for all threads.
const ALL: u32 = u32::MAX;

impl FirstTouches {
    /// One line in so many is drawn.
    pub const ONE_IN: u32 = MARKED_ONE_IN;

    /// Draws the lines of a window: every one is as likely as any other.
    pub(super) fn begin(filter: &mut LineFilter, random: &mut SmallRng) -> FirstTouches {
        filter.mark(random);
        FirstTouches::default()
    }

    /// Whether none was found so far.
    pub(super) fn is_new(&self) -> bool {
        self.found == 0
    }

    /// The only thread touches a drawn line for the first time.
    pub(super) fn by_one(&mut self) {
        let left = 1.0 - f64::from(self.found) / f64::from(MARKED);
        self.seen += 1.0 / left.max(0.1);
    }

    /// The turn of one of several begins: lines that others have touched are marked for it, and its own are not.
    pub(super) fn begin_turn(&self, filter: &mut LineFilter, lane: u32) {
        for &line in &self.lines {
            match self.touched.contains(&(line, lane)) {
                true => filter.unmark(line),
                false => filter.mark_line(line),
            }
        }
    }

    /// One of several does: whether it is for the first time by this thread, and by any.
    pub(super) fn by_lane(&mut self, line: u64, lane: u32) -> (bool, bool) {
        let new = self.touched.insert((line, lane));
        self.seen += f64::from(u8::from(new));
        let of_all = new && self.touched.insert((line, ALL));
        if of_all {
            self.lines.push(line);
        }
        (new, of_all)
    }

    /// Takes one; all that are kept are equally likely to be (reservoir sampling, Knuth, The Art of Computer Programming, 3.4.2).
    pub(super) fn take(&mut self, touch: FirstTouch, random: &mut SmallRng) {
        self.found += 1;
        keep(touch, &mut self.kept, MOST, self.found, random);
    }
}

/// Keeps at most `most` of the touches so far, of which this one is number `number`.
pub(super) fn keep(
    touch: FirstTouch,
    kept: &mut Vec<FirstTouch>,
    most: usize,
    number: u32,
    random: &mut SmallRng,
) {
    if kept.len() < most {
        kept.push(touch);
        return;
    }
    let place = random.random_range(0..number);
    if let Some(kept) = kept.get_mut(place as usize) {
        *kept = touch;
    }
}

impl Observer {
    /// From now on, first touches of lines are looked for, up to [`Observer::end_first_touches`]. Until then engines must
    /// hand over all accesses.
    pub fn await_first_touches(&mut self) {
        if self.turns.is_none() {
            let nothing_watched = self.watches.len() == 0;
            let filter = self.watches.filter_mut();
            if nothing_watched {
                // Else the same lines would share entries, and one of them lose its first touches, in every window.
                filter.place(self.random.random());
            }
            self.first = Some(FirstTouches::begin(filter, &mut self.random));
        }
    }

    /// Whether first touches are looked for.
    pub fn awaits_first_touches(&self) -> bool {
        self.first.is_some()
    }

    /// Those found; `None` where they were not looked for, or some accesses were not seen.
    pub fn end_first_touches(&mut self) -> Option<FirstTouches> {
        let first = self.first.take()?;
        self.watches.filter_mut().unmark_all();
        Some(first)
    }

    /// Takes the first touch that this access may be of a drawn line.
    pub(super) fn touch_first(&mut self, access: &Access, first_line: u64, last_line: u64) {
        let Some(first) = &mut self.first else { return };
        let lane = self.turns.as_ref().map(|turns| turns.current());
        for line in first_line..=last_line {
            let filter = self.watches.filter_mut();
            if !filter.is_marked(line) {
                continue;
            }
            self.drawn_hits += 1;
            filter.unmark(line);
            let (new, of_all) = match lane {
                Some((lane, _)) => first.by_lane(line, lane),
                None => {
                    first.by_one();
                    (true, true)
                }
            };
            if new {
                let touch = FirstTouch {
                    ip: access.ip,
                    address: access.address.max(line << LINE_SHIFTS[DEFAULT_LINE]),
                    position: self.refs[DEFAULT_LINE] + (line - first_line),
                    tid: lane.map(|(_, tid)| tid),
                    of_all,
                    since: Since::AtLeast(0),
                };
                first.take(touch, &mut self.random);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashMap;

    fn access(ip: u64, address: u64, size: u32) -> Access {
        Access {
            ip,
            address,
            size,
            load: true,
            store: false,
        }
    }

    /// Of lines touched again and again, some of them across a border, each drawn one is told once, and where it came first.
    #[test]
    fn the_first_touch_of_every_drawn_line_is_told() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut observer = Observer::new(1000, 2);
        let (mut lines, mut drawn) = (0, 0);
        for _ in 0..20 {
            observer.await_first_touches();
            let mut first: HashMap<u64, (u64, u64)> = HashMap::new();
            for ip in 0..60_000u64 {
                let line = random.random_range(0..10_000u64);
                let crosses = ip % 5 == 0;
                let position = observer.refs()[2];
                observer.access(access(ip, 64 * line + 56, if crosses { 16 } else { 8 }));
                first.entry(line).or_insert((ip, position));
                if crosses {
                    first.entry(line + 1).or_insert((ip, position + 1));
                }
            }
            let told = observer.end_first_touches().unwrap();
            assert!((told.seen / told.kept.len() as f64 - 1.0).abs() < 0.05);
            for touch in &told.kept {
                let expected = Some((touch.ip, touch.position));
                assert_eq!(first.remove(&(touch.address / 64)), expected);
                drawn += 1;
            }
            lines += 10_000;
        }
        let one_in = f64::from(lines) / f64::from(drawn);
        assert!(
            (one_in / f64::from(FirstTouches::ONE_IN) - 1.0).abs() < 0.1,
            "{one_in}"
        );
        assert!(observer.end_first_touches().is_none());
    }

    /// Each of two threads has a first touch of a line; the first of the two is that of all.
    #[test]
    fn threads_have_first_touches_of_their_own() {
        let mut observer = Observer::new(1000, 2);
        observer.await_first_touches();
        observer.share(7);
        for round in 0..4 {
            observer.begin_round(2);
            for tid in [7, 8] {
                observer.begin_turn(tid, 1.0);
                for line in 0..10_000 {
                    // The first half is everybody's.
                    let private = if line < 5_000 { 0 } else { tid as u64 };
                    observer.access(access(round, (private << 32) | (64 * line), 8));
                }
                observer.end_turn();
            }
            observer.end_round();
        }
        let told = observer.end_first_touches().unwrap();
        assert!(told.kept.iter().all(|touch| touch.ip == 0));
        let of = |tid: i32, everybodys: bool| {
            let of = told.kept.iter().filter(move |touch| touch.tid == Some(tid));
            of.filter(move |touch| (touch.address >> 32 == 0) == everybodys)
        };
        assert_eq!(of(7, true).count(), of(8, true).count());
        assert!(of(7, true).all(|touch| touch.of_all) && of(8, true).all(|touch| !touch.of_all));
        assert!(of(8, false).all(|touch| touch.of_all));
        let lines = told.seen * f64::from(FirstTouches::ONE_IN);
        assert!((lines / 20e3 - 1.0).abs() < 0.1, "{lines}");
        observer.end_all(crate::observe::Ended::Cut);
        observer.end_share();
        assert!((0..100_000).all(|line| !observer.filter().may_hold(line)));
    }

    /// As many as there may be, each as likely to be kept as any other.
    #[test]
    fn of_many_a_random_choice_is_kept() {
        let (mut lines, mut late) = (0.0, 0);
        for seed in 0..20 {
            let mut observer = Observer::new(1000, seed);
            observer.await_first_touches();
            let mut random = SmallRng::seed_from_u64(seed);
            for _ in 0..400_000 {
                let line = random.random_range(0..1u64 << 36);
                observer.access(access(1, 64 * line, 8));
            }
            let told = observer.end_first_touches().unwrap();
            assert_eq!(told.kept.len(), MOST);
            lines += told.seen * f64::from(FirstTouches::ONE_IN);
            let of_late = told.kept.iter().filter(|touch| touch.position > 200_000);
            late += of_late.count();
        }
        let of_all = lines / 20.0 / 400e3;
        assert!((of_all - 1.0).abs() < 0.05, "{of_all}");
        // Fewer are seen when many marks are gone.
        let late = late as f64 / (20 * MOST) as f64;
        assert!((0.4..0.51).contains(&late), "{late}");
    }

    /// What was not seen might have been the first touch.
    #[test]
    fn windows_with_unseen_accesses_tell_nothing() {
        let mut observer = Observer::new(1_000_000, 4);
        observer.await_first_touches();
        observer.access(access(1, 0, 8));
        observer.skip_unseen(5, [0.0; 5]);
        assert!(!observer.awaits_first_touches());
        assert!(observer.end_first_touches().is_none());
        // Marks of it do not disturb the next one.
        assert!((0..100_000).all(|line| !observer.filter().may_hold(line)));
    }
}

//! Far reuses of a run that is observed as a whole.
//!
//! Of few samples the next touch is far away, and in a large cache they alone miss. Many more such reuses are seen by the lines:
//! some are drawn at random, and looked at where they are touched for the first time in an *epoch*, a part of the run. That is
//! cheap, as the next touches in the epoch, most of all, need not be looked at. Every reuse that began in an epoch and ends in
//! another one is seen so, by the instruction that ends it, and that the line was not touched in the epochs between says how far it
//! is. (Lines drawn in space: Waldspurger et al., SHARDS, FAST 2015.) Others are told by samples; see `attribute/whole.rs` of the model.

use super::filter::LineFilter;
use super::{Access, DEFAULT_LINE, FirstTouch, LINE_SHIFTS, Observer};
use crate::profile::types::Since;
use rand::Rng;
use rand::rngs::SmallRng;
use rustc_hash::{FxHashMap, FxHashSet};

/// Lines whose numbers have the same low bits are of one class, which is drawn as a whole: the first touch of a second one in an epoch passes
/// unseen, where the next [`PLACE_BITS`] bits and the one at [`REGION_SHIFT`] are the same, too.
pub const CLASS_BITS: u32 = super::filter::BITS;
const CLASSES: usize = 1 << CLASS_BITS;
/// Bits above those of the class that the threads' filters tell apart (without them, of two arrays 64 MiB apart the one that is touched a bit
/// earlier hid the other). Where a filter had to be placed anew it goes by bits further up, and some pass unseen all the same.
pub const PLACE_BITS: u32 = 2;
/// A bit far above that they tell apart, too: the program and its heap from libraries and stacks.
pub const REGION_SHIFT: u32 = 39;
const PLACES: usize = 1 << (PLACE_BITS + 1);
/// The lowest class that may be drawn: the lines before its own have the same bits above.
const FIRST: u32 = 4;
/// Drawn at the start, at least and at most.
const AT_START: usize = CLASSES / 64;
const LEAST: usize = CLASSES / 4096;
const MOST_CLASSES: usize = CLASSES / 32;
/// Returns of a window that are wanted at least, and at most; as many are kept, a random choice.
const WANTED: u32 = 400;
const MOST: usize = 2000;
/// One class in so many is replaced with each window, so that no line speaks for a whole run. (With one in 256, of 72 small arrays of one miss ratio
/// 18 were outside their intervals; with one in 32 whole runs took 17 % longer.)
const REPLACED_ONE_IN: usize = 64;
/// An epoch ends when a greater share of the classes than this has been touched. Of earlier first touches as many are left out as of later ones
/// are hidden by their class, so that each line is as likely to be seen as any other.
const TOUCHED_MOST: f64 = 0.125;
/// Epochs remembered.
const EPOCHS_KEPT: usize = 1 << 16;
/// Lines remembered before those of classes that are drawn no more are forgotten.
const FORGET_FROM: usize = 1 << 16;

fn both(class: u32, drawn: bool) -> [Mark; 2] {
    [Mark::Lines(class, drawn), Mark::Before(class, drawn)]
}

fn class_of(line: u64) -> u32 {
    line as u32 & (CLASSES as u32 - 1)
}

/// Its class and the bits above that tell places apart, as threads' filters do that were not placed anew.
pub(crate) fn place_of(line: u64) -> u32 {
    let region = (line >> REGION_SHIFT) as u32 & 1;
    line as u32 & ((1 << (CLASS_BITS + PLACE_BITS)) - 1) | region << (CLASS_BITS + PLACE_BITS)
}

/// What is to be looked at, or is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Lines of a class: at each of its places no more once the thread has kept an access to one, until the epoch ends.
    Lines(u32, bool),
    /// Accesses that begin in the line before one of the class: at each place no more once such a line has been touched alone, until the epoch ends.
    Before(u32, bool),
    /// Lines at one place of a drawn class (its number and the bits above that tell places apart): again, where a thread may have taken it back.
    LinesAt(u32),
    /// Accesses that begin in the line before one at such a place.
    BeforeAt(u32, bool),
}

/// Returns to drawn lines, of one window.
#[derive(Clone, Debug, Default)]
pub struct Returns {
    /// Those kept.
    pub kept: Vec<FirstTouch>,
    /// How many were seen.
    pub seen: u32,
    /// One line in so many was drawn.
    pub one_in: u32,
    /// References before each of the epochs that began in the window.
    pub begins: Vec<u64>,
}

/// Lines drawn, and when they were touched.
#[derive(Debug)]
pub(super) struct Drawn {
    /// Classes drawn.
    classes: Vec<u32>,
    /// References before each of them was.
    since: FxHashMap<u32, u64>,
    /// A bit for each class, set if it is drawn: asked for every group of a record that was kept for nothing.
    is_drawn: Vec<u64>,
    /// References before each epoch.
    begins: Vec<u64>,
    /// The first of them that began in the open window.
    of_window: usize,
    /// By line, references before its first touch in the last epoch that touched it.
    last: FxHashMap<u64, u64>,
    forget_from: usize,
    /// Lines that the present epoch has touched.
    fresh: FxHashSet<u64>,
    /// Places that the present epoch has touched, and how many there are by the bits above the class.
    touched: FxHashSet<u32>,
    by_place: [usize; PLACES],
    /// Places beside lines that it has touched without them.
    beside: FxHashSet<u32>,
    kept: Vec<FirstTouch>,
    seen: u32,
    marks: Vec<Mark>,
}

impl Drawn {
    /// Before reference `now`.
    fn new(now: u64, filter: &mut LineFilter, random: &mut SmallRng) -> Drawn {
        let mut drawn = Drawn {
            classes: Vec::new(),
            since: FxHashMap::default(),
            is_drawn: vec![0; CLASSES / 64],
            begins: vec![now],
            of_window: 0,
            last: FxHashMap::default(),
            forget_from: FORGET_FROM,
            fresh: FxHashSet::default(),
            touched: FxHashSet::default(),
            by_place: [0; PLACES],
            beside: FxHashSet::default(),
            kept: Vec::new(),
            seen: 0,
            marks: Vec::new(),
        };
        drawn.draw(AT_START, now, filter, random);
        drawn
    }

    fn draw(&mut self, more: usize, now: u64, filter: &mut LineFilter, random: &mut SmallRng) {
        let wanted = self.classes.len() + more;
        while self.classes.len() < wanted {
            let class = random.random_range(0..CLASSES as u32);
            if class < FIRST || self.since.contains_key(&class) {
                continue;
            }
            self.since.insert(class, now);
            self.is_drawn[class as usize / 64] |= 1 << (class % 64);
            self.classes.push(class);
            filter.mark_line(u64::from(class));
            self.marks.extend(both(class, true));
        }
    }

    fn holds(&self, class: u32) -> bool {
        self.is_drawn[class as usize / 64] >> (class % 64) & 1 != 0
    }

    fn drop_some(&mut self, fewer: usize, filter: &mut LineFilter, random: &mut SmallRng) {
        for _ in 0..fewer.min(self.classes.len()) {
            let at = random.random_range(0..self.classes.len());
            let class = self.classes.swap_remove(at);
            self.since.remove(&class);
            self.is_drawn[class as usize / 64] &= !(1 << (class % 64));
            filter.unmark(u64::from(class));
            self.marks.extend(both(class, false));
        }
    }

    fn begin_epoch(&mut self, now: u64) {
        if self.begins.len() >= EPOCHS_KEPT {
            // Touches before are taken for later ones.
            self.begins.drain(..EPOCHS_KEPT / 2);
            self.of_window = self.of_window.saturating_sub(EPOCHS_KEPT / 2);
        }
        self.begins.push(now);
        self.fresh.clear();
        if self.last.len() > self.forget_from {
            let since = &self.since;
            self.last
                .retain(|&line, at| since.get(&class_of(line)).is_some_and(|from| *at >= *from));
            self.forget_from = FORGET_FROM.max(2 * self.last.len());
        }
        let since = &self.since;
        self.by_place = [0; PLACES];
        let is_drawn = |place: &u32| since.contains_key(&class_of((*place).into()));
        let touched = self.touched.drain().filter(is_drawn);
        self.marks.extend(touched.map(Mark::LinesAt));
        let beside = self.beside.drain().filter(is_drawn);
        self.marks
            .extend(beside.map(|place| Mark::BeforeAt(place, true)));
    }

    /// A drawn line is touched: how far the last touch is, unless it was in this epoch.
    fn touch(&mut self, line: u64, now: u64) -> Option<Since> {
        if self.fresh.contains(&line) {
            return None;
        }
        let from = *self.since.get(&class_of(line))?;
        self.fresh.insert(line);
        let before = self.last.insert(line, now).filter(|&at| at >= from);
        let place = place_of(line);
        if !self.touched.insert(place) {
            return None;
        }
        self.by_place[place as usize / CLASSES] += 1;
        Some(match before {
            Some(first) => {
                let ended = self.begins[self.begins.partition_point(|&b| b <= first)];
                Since::Between(now - ended, now - first)
            }
            None => Since::AtLeast(now - from),
        })
    }

    fn take(&mut self, touch: FirstTouch, random: &mut SmallRng) {
        let alike =
            self.by_place[place_of(touch.address >> LINE_SHIFTS[DEFAULT_LINE]) as usize / CLASSES];
        let left = 1.0 - alike.saturating_sub(1) as f64 / self.classes.len() as f64;
        if !random.random_bool(((1.0 - TOUCHED_MOST) / left).min(1.0)) {
            return;
        }
        self.seen += 1;
        super::first::keep(touch, &mut self.kept, MOST, self.seen, random);
    }
}

impl Observer {
    /// From now on, until several threads are observed or [`Observer::end_drawn`], far reuses are looked for at drawn lines.
    pub fn draw_lines(&mut self) {
        if self.turns.is_none() && self.drawn.is_none() && self.watches.len() == 0 {
            let now = self.refs[DEFAULT_LINE];
            let filter = self.watches.filter_mut();
            filter.place_in_order();
            self.drawn = Some(Box::new(Drawn::new(now, filter, &mut self.random)));
        }
    }

    /// Begins an epoch, where the present one has been as long as `length` references, or much has been touched.
    pub fn begin_epoch(&mut self, length: u64) {
        let now = self.refs[DEFAULT_LINE];
        if let Some(drawn) = &mut self.drawn
            && (now - drawn.begins[drawn.begins.len() - 1] >= length.max(1)
                || drawn
                    .by_place
                    .iter()
                    .max()
                    .is_some_and(|&most| most as f64 > TOUCHED_MOST * drawn.classes.len() as f64))
        {
            drawn.begin_epoch(now);
        }
    }

    /// Returns of the window that ends here; with the next one an epoch begins.
    pub fn take_returns(&mut self) -> Option<Returns> {
        let drawn = self.drawn.as_mut()?;
        let returns = Returns {
            kept: std::mem::take(&mut drawn.kept),
            seen: std::mem::take(&mut drawn.seen),
            one_in: (CLASSES / drawn.classes.len().max(1)) as u32,
            begins: drawn.begins[drawn.of_window..].to_vec(),
        };
        drawn.of_window = drawn.begins.len();
        let now = self.refs[DEFAULT_LINE];
        let (filter, random) = (self.watches.filter_mut(), &mut self.random);
        let classes = drawn.classes.len();
        if returns.seen as usize > MOST && classes > LEAST {
            drawn.drop_some(classes / 2, filter, random);
        } else if returns.seen < WANTED && classes < MOST_CLASSES {
            drawn.draw(classes.min(MOST_CLASSES - classes), now, filter, random);
        }
        let replaced = drawn.classes.len() / REPLACED_ONE_IN;
        drawn.drop_some(replaced, filter, random);
        drawn.draw(replaced, now, filter, random);
        drawn.begin_epoch(now);
        Some(returns)
    }

    /// They are not looked for any more.
    pub fn end_drawn(&mut self) {
        if self.drawn.take().is_some() {
            let nothing_watched = self.watches.len() == 0;
            let filter = self.watches.filter_mut();
            filter.unmark_all();
            if nothing_watched {
                filter.place(self.random.random());
            }
        }
    }

    /// What has changed of what is to be looked at since the last call.
    pub fn take_marks(&mut self) -> Vec<Mark> {
        let marks = self.drawn.as_mut().map(|drawn| &mut drawn.marks);
        marks.map(std::mem::take).unwrap_or_default()
    }

    /// All that is to be looked at now.
    pub fn marks(&self) -> Vec<Mark> {
        let Some(drawn) = &self.drawn else {
            return Vec::new();
        };
        let classes = drawn.classes.iter();
        let all = classes.flat_map(|&class| both(class, true));
        let beside = drawn.beside.iter();
        all.chain(beside.map(|&place| Mark::BeforeAt(place, false)))
            .collect()
    }

    /// An access that began in `line` was kept, and touched nothing to be looked at: it may have been for a drawn line, which had been
    /// touched by then or is the one behind.
    pub fn beside(&mut self, line: u64) {
        let Some(drawn) = &mut self.drawn else { return };
        let is_behind = drawn.holds(class_of(line + 1));
        let behind = place_of(line + 1);
        if is_behind && drawn.beside.insert(behind) {
            drawn.marks.push(Mark::BeforeAt(behind, false));
        }
        let known = is_behind || drawn.holds(class_of(line));
        self.drawn_hits += u64::from(known);
    }

    /// Whether nothing is to be looked at in `line`: it is not watched, and if it is drawn the present epoch has touched it.
    pub fn is_settled(&self, line: u64) -> bool {
        let filter = self.watches.filter();
        let is_fresh = |drawn: &Drawn| drawn.fresh.contains(&line);
        !filter.may_be_watched(line)
            && (!filter.is_marked(line) || self.drawn.as_deref().is_some_and(is_fresh))
    }

    /// Whether lines are drawn.
    pub fn draws_lines(&self) -> bool {
        self.drawn.is_some()
    }

    /// Takes the returns that this access may be to drawn lines.
    pub(super) fn return_to(&mut self, access: &Access, first_line: u64, last_line: u64) {
        let Some(drawn) = &mut self.drawn else { return };
        for line in first_line..=last_line {
            let filter = self.watches.filter_mut();
            if !filter.is_marked(line) {
                continue;
            }
            self.drawn_hits += 1;
            let position = self.refs[DEFAULT_LINE] + (line - first_line);
            if let Some(since) = drawn.touch(line, position) {
                let touch = FirstTouch {
                    ip: access.ip,
                    address: access.address.max(line << LINE_SHIFTS[DEFAULT_LINE]),
                    position,
                    tid: None,
                    of_all: true,
                    since,
                };
                drawn.take(touch, &mut self.random);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// By line and position, the window (its instruction) and when the line was touched before, if ever.
    type Firsts = FxHashMap<(u64, u64), (u64, Option<u64>)>;

    /// Reads lines at random, some often and some seldom, in windows of several epochs; for each window the returns, the first touches
    /// of all lines in its epochs, and when each of these lines was touched before.
    fn observe(rehashes: bool) -> Vec<(Returns, Firsts)> {
        let mut random = SmallRng::seed_from_u64(1);
        let mut observer = Observer::new(1000, 2);
        observer.draw_lines();
        let mut touched: FxHashMap<u64, u64> = FxHashMap::default();
        let mut epoch = 0;
        let mut windows = Vec::new();
        for window in 0..60 {
            let mut firsts = FxHashMap::default();
            for access in 0..60_000u64 {
                if access % 500 == 0 && access > 0 {
                    let begins = |o: &Observer| o.drawn.as_ref().map_or(0, |d| d.begins.len());
                    let before = begins(&observer);
                    observer.begin_epoch(20_000);
                    if begins(&observer) > before {
                        epoch = observer.refs()[DEFAULT_LINE];
                    }
                }
                if rehashes && access % 7_000 == 0 {
                    observer.rehash();
                }
                let often = random.random_range(0..3) > 0;
                let line = random.random_range(0..if often { 300 } else { 100_000u64 });
                let now = observer.refs()[DEFAULT_LINE];
                let before = touched.insert(line, now);
                if before.is_none_or(|at| at < epoch) {
                    firsts.insert((line, now), (window, before));
                }
                observer.access(Access {
                    ip: window,
                    address: 64 * line,
                    size: 8,
                    load: true,
                    store: false,
                });
            }
            windows.push((observer.take_returns().unwrap(), firsts));
            epoch = observer.refs()[DEFAULT_LINE];
            observer.take_marks();
        }
        assert!(observer.filter_hits() > 0);
        observer.end_all(crate::observe::Ended::Cut);
        observer.end_drawn();
        assert!((0..1 << 21).all(|line| !observer.filter().may_hold(line)));
        windows
    }

    #[test]
    fn returns_to_drawn_lines_are_told_with_their_distances() {
        for rehashes in [false, true] {
            let (mut all, mut told, mut near) = (0.0, 0.0, 0);
            for (returns, firsts) in observe(rehashes) {
                assert!(returns.begins.len() >= 3);
                all += firsts.len() as f64;
                told += f64::from(returns.seen) * f64::from(returns.one_in);
                for touch in &returns.kept {
                    let &(ip, before) = firsts
                        .get(&(touch.address / 64, touch.position))
                        .expect("a first touch of its epoch");
                    assert_eq!(touch.ip, ip);
                    let distance = before.map(|at| touch.position - at);
                    match touch.since {
                        Since::AtLeast(least) => assert!(distance.is_none_or(|d| d >= least)),
                        Since::Between(least, most) => {
                            let distance = distance.expect("a touch before");
                            assert!((least..=most).contains(&distance), "{distance} {touch:?}");
                            near += u64::from(most - least <= 20_000);
                        }
                    }
                }
            }
            // Between the last epoch's end and its beginning.
            assert!(near > 1000, "{near}");
            told /= 1.0 - TOUCHED_MOST;
            assert!((told / all - 1.0).abs() < 0.1, "{told} {all}");
        }
    }

    /// A sweep over more memory than there are classes, beside a hot set that touches a quarter of them again and again.
    #[test]
    fn lines_that_share_a_class_with_hot_ones_are_seen_as_often() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut observer = Observer::new(1 << 40, 2);
        observer.draw_lines();
        let (mut sweep, mut told, mut swept) = (1u64 << 24, 0.0, 0.0);
        for _ in 0..12 {
            for access in 0..1_200_000u64 {
                let line = match access % 4 {
                    0 => {
                        sweep += 1;
                        sweep
                    }
                    _ => random.random_range(0..CLASSES as u64 / 4),
                };
                observer.access(Access {
                    ip: u64::from(access % 4 == 0),
                    address: 64 * line,
                    size: 8,
                    load: true,
                    store: false,
                });
                if access % 1000 == 0 {
                    observer.begin_epoch(1 << 20);
                }
            }
            let returns = observer.take_returns().unwrap();
            let of_sweep = returns.kept.iter().filter(|touch| touch.ip == 1).count();
            let each = f64::from(returns.seen) / returns.kept.len() as f64;
            told += of_sweep as f64 * each * f64::from(returns.one_in) / (1.0 - TOUCHED_MOST);
            swept += 300_000.0;
        }
        // Each line of the sweep is touched once.
        assert!((told / swept - 1.0).abs() < 0.08, "{told} {swept}");
    }

    /// Of two arrays 64 MiB apart each line is seen, whichever is touched first; of two 256 MiB apart the first, unless the region is another.
    #[test]
    fn lines_of_one_class_that_filters_tell_apart_are_seen() {
        let mut observer = Observer::new(1 << 40, 3);
        observer.draw_lines();
        let classes = observer.drawn.as_ref().expect("drawn").classes.clone();
        let seen = |observer: &Observer| observer.drawn.as_ref().expect("drawn").by_place;
        let touch = |observer: &mut Observer, line: u64| {
            observer.access(Access {
                ip: 1,
                address: 64 * line,
                size: 8,
                load: true,
                store: false,
            });
        };
        for &class in &classes[..100] {
            for above in [1, 0, 3, 5, 0, 1 << 19] {
                touch(&mut observer, u64::from(class) + above * CLASSES as u64);
            }
        }
        assert_eq!(seen(&observer), [100, 100, 0, 100, 100, 0, 0, 0]);
        observer.begin_epoch(1);
        assert_eq!(seen(&observer), [0; PLACES]);
        touch(&mut observer, u64::from(classes[0]));
        assert_eq!(seen(&observer), [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// Touched once an epoch, a line is to be looked at once an epoch.
    #[test]
    fn marks_follow_the_epochs() {
        let mut observer = Observer::new(1 << 40, 3);
        observer.draw_lines();
        let drawn = observer.take_marks();
        let Mark::Lines(class, true) = drawn[0] else {
            panic!("{drawn:?}")
        };
        let line = u64::from(class);
        let access = |line: u64| Access {
            ip: 1,
            address: 64 * line,
            size: 8,
            load: true,
            store: false,
        };
        observer.access(access(line));
        observer.access(access(line));
        assert_eq!(observer.take_marks(), [], "the thread took it back itself");
        observer.begin_epoch(1);
        assert_eq!(observer.take_marks(), [Mark::LinesAt(class)]);
        let hits = observer.filter_hits();
        observer.beside(line - 1);
        observer.beside(line - 1);
        assert_eq!(observer.take_marks(), [Mark::BeforeAt(class, false)]);
        assert_eq!(observer.filter_hits() - hits, 2);
        assert_eq!(observer.marks().last(), Some(&Mark::BeforeAt(class, false)));
        observer.begin_epoch(1);
        assert_eq!(observer.take_marks(), [], "too short");
        observer.access(access(line + 1));
        observer.begin_epoch(1);
        assert_eq!(observer.take_marks(), [Mark::BeforeAt(class, true)]);
        // Several threads are not followed.
        observer.share(7);
        assert!(!observer.draws_lines() && observer.marks().is_empty());
    }
}

//! From a stream of accesses to samples with reuse distances.
//!
//! Every engine ends here: it hands over each access of a window in order ([`Observer::access`]),
//! or counts accesses it has proved harmless in bulk ([`Observer::skip`]). What is sampled, what is
//! watched and how distances are counted is decided in this module alone, so that engines can be
//! compared access by access. No process is known here.

mod clusters;
mod drawn;
pub mod filter;
mod first;
mod turns;
mod watch;

#[cfg(test)]
pub(crate) use drawn::place_of;
pub use drawn::{CLASS_BITS, Mark, PLACE_BITS, REGION_SHIFT, Returns};
pub use first::{FirstTouch, FirstTouches};
pub use turns::{Lane, Remotely};
pub use watch::{Ended, Outcome, Sample};

use crate::profile::types::LINE_SIZES;
use drawn::Drawn;
use filter::LineFilter;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};
use turns::Turns;
use watch::WatchTable;

/// log2 of [`LINE_SIZES`].
pub(crate) const LINE_SHIFTS: [u32; 5] = [4, 5, 6, 7, 8];
/// Index of the 64-byte line in [`LINE_SIZES`]: its references are what is sampled.
pub const DEFAULT_LINE: usize = 2;
const _: () = assert!(LINE_SIZES[DEFAULT_LINE] == 64 && 1 << LINE_SHIFTS[4] == LINE_SIZES[4]);

/// One sample in this many is followed at 16 and 32 bytes too. A hot neighbour inside the same
/// 64-byte line makes such a watch expensive, and a random choice keeps it unbiased. (Guessed.)
const FINE_ONE_IN: u32 = 8;

/// One access as an engine reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the instruction.
    pub ip: u64,
    /// First byte touched.
    pub address: u64,
    /// Bytes touched, at least 1.
    pub size: u32,
    /// Whether it reads.
    pub load: bool,
    /// Whether it writes.
    pub store: bool,
}

/// Counts references, draws samples and follows the sampled lines.
#[derive(Debug)]
pub struct Observer {
    accesses: u64,
    /// References so far at each line size, since the observer was made: never reset, so that
    /// distances can cross the borders of contiguous windows.
    refs: [u64; 5],
    until_sample: u64,
    /// Distances between samples behind the next one that are of its cluster, the last one first.
    of_cluster: Vec<u64>,
    /// Samples that may still be taken.
    samples_left: u64,
    period: u64,
    random: SmallRng,
    watches: WatchTable,
    window: u32,
    samples: u64,
    /// Fractions of references that unseen accesses are still owed.
    owed: [f64; 5],
    id: u64,
    /// With several threads.
    turns: Option<Box<Turns>>,
    /// Where first touches are looked for.
    first: Option<FirstTouches>,
    /// Where far reuses are looked for.
    drawn: Option<Box<Drawn>>,
    /// Accesses that touched drawn lines.
    drawn_hits: u64,
}

/// Samples are this far away while the thread whose turn it is is not sampled, and when there have been enough.
const NO_SAMPLE: u64 = 1 << 60;
/// A longer period is as good as none.
const LONGEST_PERIOD: u64 = 1 << 48;
/// Accesses before the virtual time of a sample from which on other threads are looked at.
const EARLY: u64 = 8;

/// Numbers observers.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Observer {
    /// An observer that samples one 64-byte line reference in `period`, at random.
    pub fn new(period: u64, seed: u64) -> Observer {
        let mut observer = Observer {
            accesses: 0,
            refs: [0; 5],
            until_sample: 0,
            of_cluster: Vec::new(),
            samples_left: u64::MAX,
            period: period.clamp(1, LONGEST_PERIOD),
            random: SmallRng::seed_from_u64(seed),
            watches: WatchTable::new(seed),
            window: 0,
            samples: 0,
            owed: [0.0; 5],
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            turns: None,
            first: None,
            drawn: None,
            drawn_hits: 0,
        };
        observer.draw_first();
        observer
    }

    /// Names the window that samples taken from now on belong to, and its sample period.
    pub fn set_window(&mut self, window: u32, period: u64) {
        self.window = window;
        if let Some(turns) = &mut self.turns {
            // From the next round on.
            turns.period = period.clamp(1, LONGEST_PERIOD);
            return;
        }
        let period = period.clamp(1, LONGEST_PERIOD);
        if self.period != period {
            self.period = period;
            self.draw_first();
        }
    }

    /// No more samples than this are taken up to the next call, those of the beginning.
    pub fn limit_samples(&mut self, most: u64) {
        let none_came = std::mem::replace(&mut self.samples_left, most) == 0;
        if none_came && self.turns.is_none() {
            self.draw_first();
        }
    }

    /// From now on several threads are observed in turn, of which `tid` is the one observed so far: every
    /// access is made in a turn, and every turn in a round, up to [`Observer::end_all`] or [`Observer::end_share`].
    pub fn share(&mut self, tid: i32) {
        if self.turns.is_none() {
            self.end_drawn();
            if self.first.as_ref().is_some_and(|first| !first.is_new()) {
                // What others would have touched first is not looked for any more.
                self.end_first_touches();
            }
            let (until, period) = (self.until_sample, self.period);
            let turns = Turns::new(tid, self.accesses, self.refs, until, period);
            self.turns = Some(Box::new(turns));
            self.watches.share();
        }
    }

    /// Whether several threads are observed in turn.
    pub fn is_shared(&self) -> bool {
        self.turns.is_some()
    }

    /// Begins a round of the turns of `threads` threads. Its first turn is to be given to one of them drawn
    /// at random: it alone is sampled, as many times more often.
    pub fn begin_round(&mut self, threads: u64) {
        if let Some(turns) = &mut self.turns {
            turns.begin_round(threads, self.refs);
        }
    }

    /// The turn of thread `tid` begins, to which an access takes `pace` units of virtual time: 1 for the fastest.
    pub fn begin_turn(&mut self, tid: i32, pace: f64) {
        let Some(turns) = &mut self.turns else { return };
        let lane = turns.lane(tid);
        turns.begin_turn(lane, pace.max(1.0), self.accesses, self.refs);
        if let Some(first) = &self.first {
            first.begin_turn(self.watches.filter_mut(), lane);
        }
        let pending = self.watches.begin_turn(lane);
        turns.pending = pending
            .into_iter()
            .map(|(clock, id)| (turns.of_round(clock).saturating_sub(EARLY), id))
            .collect();
        turns.pending.sort_unstable_by(|a, b| b.cmp(a));
        if !turns.leads() {
            self.until_sample = turns.until_pending(self.accesses);
            return;
        }
        self.until_sample = turns.until_sample;
        let period = turns.period_of_first();
        let none_came = self.until_sample > NO_SAMPLE / 2;
        if self.samples_left > 0 && (period != self.period || none_came) {
            self.period = period;
            self.draw_first();
        }
    }

    /// The turn is over.
    pub fn end_turn(&mut self) {
        if let Some(turns) = &mut self.turns {
            if turns.leads() {
                turns.until_sample = self.until_sample;
            }
            turns.end_turn(self.accesses, self.refs);
        }
    }

    /// The round is over.
    pub fn end_round(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        let round = turns.end_round(self.refs);
        self.watches.end_round(&round, &turns.lanes, &self.refs);
    }

    /// A thread is no more, between two rounds.
    pub fn thread_ended(&mut self, tid: i32) {
        let Some(turns) = &mut self.turns else { return };
        let lane = turns.lane(tid);
        turns.lanes[lane as usize].ended = true;
        let refs = turns.lanes[lane as usize].refs;
        self.watches.thread_ended(lane, &refs);
    }

    /// How many accesses the turn of a thread of this pace is to have; `None` for the first of a round.
    pub fn turn_length(&self, pace: f64) -> Option<u64> {
        self.turns.as_ref()?.accesses_left(pace.max(1.0))
    }

    /// What each thread did so far; none where one alone is observed.
    pub fn lanes(&self) -> &[Lane] {
        self.turns.as_ref().map_or(&[], |turns| &turns.lanes)
    }

    /// One thread alone is observed from now on; all watches have ended.
    pub fn end_share(&mut self) {
        if let Some(turns) = self.turns.take() {
            debug_assert_eq!(self.watches.len(), 0);
            self.until_sample = turns.until_sample;
            if self.period != turns.period {
                self.period = turns.period;
                self.draw_first();
            }
        }
    }

    /// Accesses seen so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Line references so far, for each of [`LINE_SIZES`].
    pub fn refs(&self) -> [u64; 5] {
        self.refs
    }

    /// Samples taken so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// 64-byte references until the next sample is due: an engine may [`Observer::skip`] fewer
    /// than this many.
    pub fn until_sample(&self) -> u64 {
        self.until_sample
    }

    /// The filter that tells which 64-byte lines may be watched.
    pub fn filter(&self) -> &LineFilter {
        self.watches.filter()
    }

    /// Counts `accesses` accesses, none of which touches a line that the filter knows, none of
    /// which is due to be sampled and none of which crosses a line of any size.
    pub fn skip(&mut self, accesses: u64) {
        debug_assert!(accesses < self.until_sample);
        self.accesses += accesses;
        self.until_sample -= accesses;
        for refs in &mut self.refs {
            *refs += accesses;
        }
    }

    /// Counts rounds of the accesses in `first` at once, each `step` bytes above where it was in the round before: those of
    /// at most `most` that stay in the lines of the first round, where nothing is watched, cross no line of any size, and are
    /// not due to be sampled. Returns how many; 0 where the first round must be looked at access by access.
    pub fn skip_rounds(
        &mut self,
        first: impl Iterator<Item = Access>,
        step: u64,
        most: u64,
    ) -> u64 {
        let (mut rounds, mut each) = (most, 0);
        let (least, line_bytes) = (1 << LINE_SHIFTS[0], 1 << LINE_SHIFTS[DEFAULT_LINE]);
        for access in first {
            let size = u64::from(access.size);
            let aligned = size == step && size.is_power_of_two() && access.address % size == 0;
            let line = access.address >> LINE_SHIFTS[DEFAULT_LINE];
            if !aligned || size > least || self.filter().may_hold(line) {
                return 0;
            }
            let left: u64 = line_bytes - access.address % line_bytes;
            rounds = rounds.min(left / size);
            each += 1;
        }
        rounds = rounds.min((self.until_sample - 1) / u64::max(each, 1));
        self.skip(rounds * each);
        rounds
    }

    /// Counts `accesses` accesses whose addresses nobody knows, none of which touches a watched line or
    /// is due to be sampled. They are taken to make `extra` references beyond one each, by line size: as the gap to
    /// the next sample is memoryless, that leaves every reference equally likely to be sampled. Where more lines were
    /// crossed than the thread was told to expect, and the sample is due by now, it is the next access.
    pub fn skip_unseen(&mut self, accesses: u64, extra: [f64; 5]) {
        if accesses == 0 {
            return;
        }
        self.end_first_touches();
        self.accesses += accesses;
        self.until_sample = self.until_sample.saturating_sub(accesses);
        for (k, extra) in extra.into_iter().enumerate() {
            self.owed[k] += extra * accesses as f64;
            let whole = self.owed[k] as u64;
            self.owed[k] -= whole as f64;
            self.refs[k] += accesses + whole;
            if k == DEFAULT_LINE {
                self.until_sample = self.until_sample.saturating_sub(whole);
            }
        }
        self.until_sample = self.until_sample.max(1);
    }

    /// Counts accesses and references that a mechanism with samples of its own has counted.
    pub fn count(&mut self, accesses: u64, refs: [u64; 5]) {
        if accesses > 0 {
            self.end_first_touches();
            self.end_drawn();
        }
        self.accesses += accesses;
        for (all, refs) in self.refs.iter_mut().zip(refs) {
            *all += refs;
        }
    }

    /// Takes a sample that such a mechanism has followed to its end.
    pub fn add(&mut self, sample: Sample) {
        self.watches.finish(sample);
        self.samples += 1;
    }

    /// Mean references between two samples.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The window that samples belong to.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Lines that came to be watched (true) or ceased to be since the last call, in order; `None` at
    /// the first call of another `reader` than before, which begins with [`Observer::watched_lines`].
    pub fn take_changes(&mut self, reader: u64) -> Option<Vec<(u64, bool)>> {
        self.watches.take_changes(reader)
    }

    /// Tells observers apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Every watched 64-byte line, as often as it is watched.
    pub fn watched_lines(&self) -> impl Iterator<Item = u64> {
        self.watches.lines()
    }

    /// Counts references beyond one per access, by line size: accesses just counted with
    /// [`Observer::skip`] that cross lines.
    pub fn skip_crossings(&mut self, extra: [u32; 5]) {
        self.until_sample -= u64::from(extra[DEFAULT_LINE]);
        for (k, extra) in extra.into_iter().enumerate() {
            self.refs[k] += u64::from(extra);
        }
    }

    /// Accesses so far that touched a line which is watched, or drawn.
    pub fn filter_hits(&self) -> u64 {
        self.watches.hits() + self.drawn_hits
    }

    /// Takes one access, in program order.
    pub fn access(&mut self, access: Access) {
        let first = access.address >> LINE_SHIFTS[DEFAULT_LINE];
        let last = last_byte(&access) >> LINE_SHIFTS[DEFAULT_LINE];
        let mut hit = self.watches.filter().may_hold(first);
        if last != first {
            hit |= (first + 1..=last).any(|line| self.watches.filter().may_hold(line));
        }
        if hit {
            self.touch_first(&access, first, last);
            self.return_to(&access, first, last);
            let moment = self.turns.as_ref().map(|turns| turns.moment(self.accesses));
            self.watches
                .touch(&access, first, last, &self.refs, moment.as_ref());
        }
        let lines = last - first + 1;
        if self.until_sample <= lines {
            self.take(&access, first, last);
        } else {
            self.until_sample -= lines;
        }
        self.accesses += 1;
        let last_byte = last_byte(&access);
        for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
            let crossings = (last_byte >> shift) - (access.address >> shift);
            self.refs[k] += crossings + 1;
        }
    }

    /// Arms every reference of this access that is due.
    fn take(&mut self, access: &Access, first: u64, last: u64) {
        if let Some(turns) = &mut self.turns
            && !turns.leads()
        {
            let into = turns.turn_so_far(self.accesses);
            while let Some((_, id)) = turns.pending.pop_if(|(from, _)| *from <= into) {
                self.watches.look_for(id);
            }
            // The references of this access are yet to be counted.
            self.until_sample = turns.until_pending(self.accesses + 1);
            return;
        }
        let mut line = first;
        loop {
            let left = last - line + 1;
            if self.until_sample > left {
                self.until_sample -= left;
                return;
            }
            line += self.until_sample - 1;
            let fine = self.random.random_ratio(1, FINE_ONE_IN);
            let byte = self.byte_of(access, line);
            let moment = self.turns.as_ref().map(|turns| turns.moment(self.accesses));
            let moment = moment.as_ref();
            self.watches
                .arm(access, byte, &self.refs, self.window, fine, moment);
            self.samples += 1;
            self.draw();
            line += 1;
            if line > last {
                return;
            }
        }
    }

    /// A byte of an access in a 64-byte line, in any of the smaller lines that it covers there: what is watched.
    fn byte_of(&mut self, access: &Access, line: u64) -> u64 {
        let (finest, whole) = (LINE_SHIFTS[0], LINE_SHIFTS[DEFAULT_LINE]);
        let from = access.address.max(line << whole);
        let last = last_byte(access).min((line << whole) | ((1 << whole) - 1));
        let covered = (last >> finest) - (from >> finest) + 1;
        match covered {
            1 => from,
            _ => from.max(((from >> finest) + self.random.random_range(0..covered)) << finest),
        }
    }

    /// The samples whose watches have ended at every line size since the last call.
    pub fn drain_finished(&mut self) -> Vec<Sample> {
        self.watches.drain_finished()
    }

    /// Ends every watch: cut off by us, or because the process has ended.
    pub fn end_all(&mut self, how: Ended) -> Vec<Sample> {
        let lanes = self.turns.as_ref().map_or(&[][..], |turns| &turns.lanes);
        self.watches.end_all(how, &self.refs, lanes)
    }

    /// An access that begins in the line before `line` was looked at for nothing; one in many such is told.
    pub fn suspect(&mut self, line: u64) {
        self.watches.suspect(line, &self.refs);
    }

    /// An access to `line` or the line behind was looked at for nothing, as [`Observer::filter`] may hold it; one in very many such is told.
    pub fn suspect_sharing(&mut self, line: u64) {
        for line in [line, line + 1] {
            self.watches.suspect_sharing(line, &self.refs);
        }
    }

    /// Accesses were looked at for nothing, so many of them perhaps for a watched line as `times` says; one in very many such is told.
    pub fn suspect_where(&mut self, times: impl Fn(u64) -> u32) {
        self.watches.suspect_where(times, &self.refs);
    }

    /// Says that the filter matched without a watch behind it `false_hits` times; the filter moves
    /// its lines to other places when a hot line shares one with a watched line.
    pub fn rehash(&mut self) {
        self.end_first_touches();
        self.watches.rehash(self.random.random());
    }
}

fn last_byte(access: &Access) -> u64 {
    access
        .address
        .saturating_add(u64::from(access.size.max(1)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(observer: &mut Observer, accesses: u64) -> u64 {
        let before = observer.samples;
        for at in 0..accesses {
            observer.access(Access {
                ip: 0x1000,
                address: 0x10_0000 + 64 * at,
                size: 8,
                load: true,
                store: false,
            });
        }
        observer.samples - before
    }

    #[test]
    fn a_window_that_grows_beyond_its_plan_takes_no_more_samples() {
        let mut observer = Observer::new(100, 7);
        assert!(walk(&mut observer, 100_000) > 800);
        observer.limit_samples(50);
        assert!(walk(&mut observer, 100_000) <= 50);
        assert_eq!(walk(&mut observer, 100_000), 0);
        // The next one is sampled again.
        observer.limit_samples(5_000);
        assert!(walk(&mut observer, 100_000) > 800);
    }

    #[test]
    fn lines_that_share_their_place_with_much_used_ones_are_given_up() {
        // In this filter, and in one that only another knows.
        for elsewhere in [false, true] {
            let mut observer = Observer::new(1, 3);
            observer.draw_lines();
            observer.limit_samples(1);
            observer.access(Access {
                ip: 0x1000,
                address: 0x10_0000,
                size: 8,
                load: true,
                store: false,
            });
            let (line, other) = (0x10_0000 >> 6, (0x10_0000 >> 6) + (1 << CLASS_BITS));
            assert!(observer.filter().may_hold(other));
            let mut suspicions = 0;
            while observer.filter().may_hold(other) && suspicions < 1000 {
                match elsewhere {
                    false => observer.suspect_sharing(other),
                    true => observer.suspect_where(|watched| u32::from(watched == line)),
                }
                suspicions += 1;
                observer.suspect_where(|watched| u32::from(watched == other));
            }
            assert!((2..1000).contains(&suspicions), "{suspicions}");
            assert!(!observer.watched_lines().any(|watched| watched == line));
            let ended = observer.drain_finished();
            assert!(ended.len() == 1 && ended[0].given_up);
        }
    }

    #[test]
    fn fine_lines_beside_much_used_ones_are_given_up() {
        // Which samples are followed at 16 and 32 bytes is drawn.
        let mut given_up = 0;
        for seed in 0..64 {
            let mut observer = Observer::new(1, seed);
            let touch = |observer: &mut Observer, address: u64| {
                observer.access(Access {
                    ip: 0x1000,
                    address,
                    size: 8,
                    load: true,
                    store: false,
                });
            };
            observer.limit_samples(1);
            touch(&mut observer, 0x10_0000);
            // The same line of 64 bytes, another one of 32.
            for _ in 0..100_000 {
                touch(&mut observer, 0x10_0020);
            }
            assert_eq!(observer.watched_lines().count(), 0);
            let ended = observer.drain_finished();
            assert_eq!(ended.len(), 1);
            let outcomes = ended[0].outcomes;
            let reused = |k: usize| matches!(outcomes[k], Outcome::Reused { distance: 0, .. });
            assert!((DEFAULT_LINE..5).all(reused));
            match (outcomes[0], outcomes[1]) {
                (Outcome::NotFollowed, Outcome::NotFollowed) => assert!(!ended[0].given_up),
                (Outcome::Censored(a), Outcome::Censored(b)) => {
                    assert!(ended[0].given_up && a == b && (1_000..100_000).contains(&a));
                    given_up += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((1..32).contains(&given_up), "{given_up}");
    }

    #[test]
    fn lines_behind_much_used_ones_are_given_up() {
        let mut observer = Observer::new(1, 7);
        let touch = |observer: &mut Observer, line: u64| {
            observer.access(Access {
                ip: 0x1000,
                address: 64 * line,
                size: 8,
                load: true,
                store: false,
            });
        };
        observer.limit_samples(1);
        touch(&mut observer, 0x4002);
        assert_eq!(observer.samples(), 1);
        // Narrows the watch to its own line.
        touch(&mut observer, 0x4000);
        let watched = |observer: &Observer| {
            let mut lines: Vec<u64> = observer.watched_lines().collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(watched(&observer), [0x4002, 0x4003]);
        touch(&mut observer, 0x4003);
        assert_eq!(watched(&observer), [0x4002]);
        let mut suspicions = 0;
        while !watched(&observer).is_empty() && suspicions < 1_000_000 {
            observer.suspect(0x4002);
            suspicions += 1;
        }
        assert!((100..1_000_000).contains(&suspicions));
        assert!(!observer.filter().may_hold(0x4002));
        let ended = observer.drain_finished();
        assert!(ended.len() == 1 && ended[0].given_up);
        assert_eq!(ended[0].outcomes[DEFAULT_LINE], Outcome::Censored(2));
        assert!(matches!(
            ended[0].outcomes[4],
            Outcome::Reused { distance: 0, .. }
        ));
        assert!(observer.end_all(Ended::Cut).is_empty());
    }
}

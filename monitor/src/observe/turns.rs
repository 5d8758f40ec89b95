//! Several threads in turn: what they do to each other's lines.
//!
//! Threads run at once, but are observed one after the other: in *rounds*, in which each of them has a
//! *turn* as long as the others'. The turns of a round stand for the same stretch of *virtual time*, in which
//! an access takes each thread its own *pace*; what lies between two touches is told by it,
//! not by the order in which we happened to see them. Only the thread whose turn is the first, drawn at
//! random by the caller, is sampled: so every touch of a watched line by the others within the same stretch is
//! seen, because they come after it. What became of a line is concluded at the end of the round.
//!
//! What threads wait for each other for shows, since one that waits for another sleeps in its turn or is
//! held up by what the other has not done yet.

use super::watch::Outcome;
use super::{Access, DEFAULT_LINE, LINE_SHIFTS, last_byte};
use crate::profile::types::remote_flags;

/// What one thread did so far.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// The thread.
    pub tid: i32,
    /// Its accesses.
    pub accesses: u64,
    /// Its line references, for each line size.
    pub refs: [u64; 5],
    /// Whether it is no more.
    pub ended: bool,
    /// References of its last turns: mean of one, those that were to be in the first turns of their rounds, and those that were.
    mean: f64,
    due: f64,
    led: f64,
}

impl Lane {
    fn new(tid: i32) -> Lane {
        Lane {
            tid,
            accesses: 0,
            refs: [0; 5],
            ended: false,
            mean: 0.0,
            due: 0.0,
            led: 0.0,
        }
    }
}

/// First turns of a thread that are remembered, those for which an even share is believed, and by what factor it may be uneven.
const REMEMBERED: f64 = 100.0;
const BELIEVED: f64 = 2.0;
const UNEVEN: f64 = 4.0;

/// What all threads did to a sampled line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remotely {
    /// The thread that was sampled.
    pub tid: i32,
    /// Outcome for each line size in the references of all threads, whoever touches it next.
    pub all: [Outcome; 5],
    /// See [`remote_flags`].
    pub remote: [u8; 5],
    /// Instruction and thread of the last remote write to the 64-byte line before its own thread's next touch.
    pub writer: Option<(u64, i32)>,
}

/// Touches of one line by another thread within one turn that are looked at, and as many of what is beside it in longer lines.
const MOST_TOUCHES: u32 = 16;
/// Different remote writes kept to be compared with what the line's own thread touches next.
const MOST_WRITES: usize = 2 * MOST_TOUCHES as usize;

/// Fractions of a unit of virtual time.
const TICKS: u64 = 64;

/// Where in a round an access is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Index of the thread.
    pub lane: u32,
    /// Virtual time, in fractions of [`TICKS`].
    pub clock: u64,
    /// References of other threads, for each line size: what is left is the thread's own.
    pub foreign: [u64; 5],
}

/// The turns of several threads.
#[derive(Debug)]
pub(super) struct Turns {
    pub lanes: Vec<Lane>,
    /// The lane whose turn it is.
    current: usize,
    /// References of the others when its turn began.
    foreign: [u64; 5],
    /// Accesses and references of all when its turn began.
    begun: (u64, [u64; 5]),
    /// Virtual time at the beginning of the round, and references of all.
    clock: u64,
    refs: [u64; 5],
    /// Rounds so far.
    rounds: u64,
    /// Threads in it.
    threads: u64,
    /// How long the round is in virtual time, once its first turn is over.
    length: Option<u64>,
    /// Virtual time of an access in the present turn.
    pace: f64,
    /// References up to the next sample, while others than the first have their turns.
    pub until_sample: u64,
    /// Watches of this round's samples with the accesses into the present turn from which on this thread's touches
    /// matter, last first.
    pub pending: Vec<(u64, u32)>,
    /// Mean references of all threads between two samples.
    pub period: u64,
}

impl Turns {
    pub fn new(tid: i32, accesses: u64, refs: [u64; 5], until_sample: u64, period: u64) -> Turns {
        Turns {
            lanes: vec![Lane {
                accesses,
                refs,
                ..Lane::new(tid)
            }],
            current: 0,
            foreign: [0; 5],
            begun: (accesses, refs),
            clock: 0,
            refs,
            rounds: 0,
            threads: 1,
            length: None,
            pace: 1.0,
            until_sample,
            pending: Vec::new(),
            period,
        }
    }

    pub fn begin_round(&mut self, threads: u64, refs: [u64; 5]) {
        (self.refs, self.length, self.threads) = (refs, None, threads.max(1));
        self.rounds += 1;
    }

    /// The lane of a thread.
    pub fn lane(&mut self, tid: i32) -> u32 {
        let known = self.lanes.iter().position(|l| l.tid == tid && !l.ended);
        let at = known.unwrap_or_else(|| {
            self.lanes.push(Lane::new(tid));
            self.lanes.len() - 1
        });
        at as u32
    }

    /// Whether the next turn is the first of its round.
    pub fn leads(&self) -> bool {
        self.length.is_none()
    }

    pub fn begin_turn(&mut self, lane: u32, pace: f64, accesses: u64, refs: [u64; 5]) {
        self.current = lane as usize;
        self.pace = pace;
        self.begun = (accesses, refs);
        let own = self.lanes[self.current].refs;
        self.foreign = std::array::from_fn(|k| refs[k] - own[k]);
    }

    /// Mean references between two samples of the present thread, whose turn is the first of its round: so many that all threads'
    /// references are sampled alike. Threads that wait for each other make more of theirs in first turns, or fewer, than
    /// one in as many as there are threads.
    pub fn period_of_first(&self) -> u64 {
        let lane = &self.lanes[self.current];
        let believed = BELIEVED * lane.mean;
        let uneven = match believed > 0.0 {
            true => (lane.led + believed) / (lane.due + believed),
            false => 1.0,
        };
        let first = uneven.clamp(1.0 / UNEVEN, UNEVEN) / self.threads as f64;
        ((self.period as f64 * first) as u64).max(1)
    }

    /// Accesses of this turn until the first of [`Turns::pending`] is due; references are no fewer.
    pub fn until_pending(&self, accesses: u64) -> u64 {
        let into = self.turn_so_far(accesses);
        let next = self.pending.last();
        next.map_or(super::NO_SAMPLE, |&(from, _)| from.saturating_sub(into) + 1)
    }

    /// Accesses into the present turn.
    pub fn turn_so_far(&self, accesses: u64) -> u64 {
        accesses - self.begun.0
    }

    /// How many accesses into the present turn a moment of this round is.
    pub fn of_round(&self, clock: u64) -> u64 {
        ((clock / TICKS).saturating_sub(self.clock) as f64 / self.pace) as u64
    }

    /// Accesses that make the present round's turns equally long for a thread of this pace; `None` for the first turn.
    pub fn accesses_left(&self, pace: f64) -> Option<u64> {
        Some((self.length? as f64 / pace) as u64)
    }

    /// Virtual time since the turn began.
    fn passed(&self, accesses: u64) -> u64 {
        (self.turn_so_far(accesses) as f64 * self.pace) as u64
    }

    /// Books the turn; the first one says how long the round is.
    pub fn end_turn(&mut self, accesses: u64, refs: [u64; 5]) {
        let done = accesses - self.begun.0;
        let leads = self.leads();
        let lane = &mut self.lanes[self.current];
        let made = (refs[DEFAULT_LINE] - self.begun.1[DEFAULT_LINE]) as f64;
        if made > 0.0 {
            // It has the first turn once in as many as there are threads.
            let threads = self.threads as f64;
            let kept = 1.0 - 1.0 / (REMEMBERED * threads);
            lane.due = kept * lane.due + made / threads;
            lane.led = kept * lane.led + if leads { made } else { 0.0 };
            lane.mean = match lane.mean > 0.0 {
                true => lane.mean + (made - lane.mean) / (REMEMBERED * threads),
                false => made,
            };
        }
        lane.accesses += done;
        for (k, own) in lane.refs.iter_mut().enumerate() {
            *own += refs[k] - self.begun.1[k];
        }
        let passed = self.passed(accesses);
        self.length.get_or_insert(passed);
    }

    /// The lane whose turn it is, and its thread.
    pub fn current(&self) -> (u32, i32) {
        (self.current as u32, self.lanes[self.current].tid)
    }

    pub fn moment(&self, accesses: u64) -> Moment {
        let into = self.passed(accesses);
        let last = self
            .length
            .map_or(u64::MAX, |length| length.saturating_sub(1));
        // Threads in step do the same thing at the same time, but not at once: in an order that is another
        // one in every round.
        let order = (self.current as u64 * 37 + self.rounds * 11) % TICKS;
        Moment {
            lane: self.current as u32,
            clock: (self.clock + into.min(last)) * TICKS + order,
            foreign: self.foreign,
        }
    }

    /// The round that ends with `refs` of all threads.
    pub fn end_round(&mut self, refs: [u64; 5]) -> Round {
        let length = self.length.take().unwrap_or(0);
        let round = Round {
            clock: self.clock,
            length: length.max(1),
            begun: self.refs,
            refs: std::array::from_fn(|k| refs[k] - self.refs[k]),
        };
        self.clock += length;
        self.refs = refs;
        round
    }
}

/// A round that is over.
#[derive(Debug)]
pub(super) struct Round {
    clock: u64,
    length: u64,
    /// References of all threads before it and in it.
    begun: [u64; 5],
    refs: [u64; 5],
}

impl Round {
    /// References of all threads up to its end.
    fn ended(&self, k: usize) -> u64 {
        self.begun[k] + self.refs[k]
    }

    /// References of all threads up to a moment of it.
    fn refs_at(&self, k: usize, clock: u64) -> u64 {
        let share = (clock / TICKS).saturating_sub(self.clock) as f64 / self.length as f64;
        self.begun[k] + (share * self.refs[k] as f64) as u64
    }
}

/// A touch of a watched line by another thread than the one that was sampled.
#[derive(Clone, Copy, Debug)]
struct Touch {
    clock: u64,
    lane: u32,
    ip: u64,
    load: bool,
    store: bool,
    first: u64,
    last: u64,
}

/// The next touch by the thread that was sampled.
#[derive(Clone, Copy, Debug)]
struct Own {
    clock: u64,
    ip: u64,
    store: bool,
    first: u64,
    last: u64,
    distance: u64,
}

/// Touches by one thread in its turn.
#[derive(Clone, Copy, Debug, Default)]
struct InTurn {
    lane: Option<u32>,
    /// Of the 64-byte line that was sampled.
    line: u32,
    /// Of the longer ones around it alone. (Counted by themselves: a thread that fills a buffer is here often before it comes to the line.)
    beside: u32,
}

/// What another thread may yet do in its turn that matters to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matters {
    /// All that is looked for.
    All,
    /// Touches of the 64-byte line.
    Line,
    /// None of it.
    Nothing,
}

/// What is known of a watch with several threads.
#[derive(Debug)]
pub(super) struct Together {
    pub lane: u32,
    /// When it was sampled; `None` once that round is over.
    sampled: Option<u64>,
    /// References of all threads before it.
    index: [u64; 5],
    followed: u8,
    own: [Option<Own>; 5],
    all: [Option<Outcome>; 5],
    remote: [u8; 5],
    writer: Option<(u64, u32)>,
    /// First and last byte of remote writes so far with the virtual time of the first to them, and whether
    /// there were more.
    writes: Vec<(u64, u64, u64)>,
    many_writes: bool,
    touches: Vec<Touch>,
    /// Touches in the present turn.
    in_turn: InTurn,
    /// Whether the round's end has something to conclude about it.
    pub busy: bool,
    /// Whether less of it is looked for than it needs, for the present turn or the thread's own.
    pub aside: bool,
    /// Sizes at which its own thread had not touched it at the beginning of the round.
    pub open_before: u8,
}

impl Together {
    pub fn new(moment: &Moment, open: u8) -> Together {
        Together {
            lane: moment.lane,
            sampled: Some(moment.clock),
            index: [0; 5],
            followed: open,
            own: [None; 5],
            all: [None; 5],
            remote: [0; 5],
            writer: None,
            writes: Vec::new(),
            many_writes: false,
            touches: Vec::new(),
            in_turn: InTurn::default(),
            busy: true,
            aside: false,
            open_before: open,
        }
    }

    /// When it was sampled, if that was in this round.
    pub fn sampled(&self) -> Option<u64> {
        self.sampled
    }

    /// A watch that was begun when there was one thread, with this many references before it.
    pub fn of_lone(index: [u64; 5], open: u8) -> Together {
        let moment = Moment {
            lane: 0,
            clock: 0,
            foreign: [0; 5],
        };
        Together {
            sampled: None,
            index,
            busy: false,
            ..Together::new(&moment, open)
        }
    }

    /// What became of it at line size `k` before there were several threads.
    pub fn known(&mut self, k: usize, outcome: Outcome) {
        if let Outcome::Reused { .. } = outcome {
            self.followed |= 1 << k;
            self.all[k] = Some(outcome);
        }
    }

    /// Its own thread has touched it again, for the first time at line size `k`.
    pub fn own_touch(&mut self, k: usize, access: &Access, moment: &Moment, distance: u64) {
        self.own[k] = Some(Own {
            clock: moment.clock,
            ip: access.ip,
            store: access.store,
            first: access.address,
            last: last_byte(access),
            distance,
        });
    }

    /// Another thread touches the lines around `byte`, a byte of what was sampled.
    pub fn remote_touch(
        &mut self,
        access: &Access,
        byte: u64,
        moment: &Moment,
        open: u8,
    ) -> Matters {
        if self.sampled.is_some_and(|sampled| moment.clock <= sampled) {
            return Matters::All;
        }
        let over = open == 0
            && self
                .own
                .iter()
                .flatten()
                .all(|own| own.clock <= moment.clock);
        if over {
            return Matters::Nothing;
        }
        if self.in_turn.lane != Some(moment.lane) {
            self.in_turn = InTurn {
                lane: Some(moment.lane),
                ..InTurn::default()
            };
        }
        let shift = LINE_SHIFTS[super::DEFAULT_LINE];
        let lines = access.address >> shift..=last_byte(access) >> shift;
        let so_far = match lines.contains(&(byte >> shift)) {
            true => &mut self.in_turn.line,
            false => &mut self.in_turn.beside,
        };
        if *so_far < MOST_TOUCHES {
            *so_far += 1;
            self.touches.push(Touch {
                clock: moment.clock,
                lane: moment.lane,
                ip: access.ip,
                load: access.load,
                store: access.store,
                first: access.address,
                last: last_byte(access),
            });
        }
        match self.in_turn {
            InTurn { line, .. } if line >= MOST_TOUCHES => Matters::Nothing,
            InTurn { beside, .. } if beside >= MOST_TOUCHES => Matters::Line,
            _ => Matters::All,
        }
    }

    /// What the round that has ended means for it; `access` was sampled, at `byte`.
    pub fn conclude(&mut self, round: &Round, access: &Access, byte: u64, open: u8) {
        if let Some(sampled) = self.sampled.take() {
            for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
                let crossed = (byte >> shift) - (access.address >> shift);
                self.index[k] = (round.refs_at(k, sampled) + crossed).min(round.ended(k));
            }
        }
        let mut touches = std::mem::take(&mut self.touches);
        touches.sort_by_key(|touch| touch.clock);
        for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
            if self.open_before & 1 << k == 0 && self.all[k].is_some() {
                continue;
            }
            self.conclude_size(k, shift, round, &touches, byte);
        }
        self.note_writes(&touches);
        for k in 0..LINE_SHIFTS.len() {
            if self.open_before & 1 << k != 0
                && let Some(own) = self.own[k]
                && self.remote[k] & remote_flags::WRITTEN != 0
                && self.is_disjoint(access, &own)
            {
                self.remote[k] |= remote_flags::DISJOINT;
            }
        }
        touches.clear();
        self.touches = touches;
        self.open_before = open;
        self.busy = false;
        self.in_turn = InTurn::default();
    }

    fn conclude_size(&mut self, k: usize, shift: u32, round: &Round, touches: &[Touch], byte: u64) {
        let line = byte >> shift;
        let until = self.own[k].map_or(u64::MAX, |own| own.clock);
        let relevant = touches
            .iter()
            .take_while(|t| t.clock < until)
            .filter(|t| t.first >> shift <= line && line <= t.last >> shift);
        for touch in relevant {
            let distance = round
                .refs_at(k, touch.clock)
                .saturating_sub(self.index[k] + 1);
            self.all[k].get_or_insert(Outcome::Reused {
                distance,
                trigger: touch.ip,
                store: touch.store,
            });
            self.remote[k] |= if touch.load { remote_flags::READ } else { 0 };
            if touch.store {
                self.remote[k] |= remote_flags::WRITTEN;
                if k == super::DEFAULT_LINE {
                    self.writer = Some((touch.ip, touch.lane));
                }
            }
        }
        if let Some(own) = self.own[k] {
            let all = round
                .refs_at(k, own.clock)
                .saturating_sub(self.index[k] + 1);
            self.all[k].get_or_insert(Outcome::Reused {
                distance: all.max(own.distance),
                trigger: own.ip,
                store: own.store,
            });
        }
    }

    fn note_writes(&mut self, touches: &[Touch]) {
        for touch in touches.iter().filter(|t| t.store) {
            let known =
                |&(first, last, _): &(u64, u64, u64)| (first, last) == (touch.first, touch.last);
            if self.writes.iter().any(known) {
                continue;
            }
            if self.writes.len() == MOST_WRITES {
                self.many_writes = true;
                return;
            }
            self.writes.push((touch.first, touch.last, touch.clock));
        }
    }

    /// Whether no remote write before its own thread's next touch was to bytes that thread touched.
    fn is_disjoint(&self, access: &Access, own: &Own) -> bool {
        let touched = [(access.address, last_byte(access)), (own.first, own.last)];
        let mut before = self.writes.iter().filter(|write| write.2 < own.clock);
        let meets = |&(first, last, _): &(u64, u64, u64)| {
            touched
                .iter()
                .any(|&(low, high)| first <= high && low <= last)
        };
        !self.many_writes && !before.any(meets)
    }

    /// References of all threads before the sample at 64-byte lines.
    pub fn position(&self) -> u64 {
        self.index[super::DEFAULT_LINE]
    }

    /// What became of it, with `refs` of all threads by now; what is open yet has ended as `how` says.
    pub fn outcome(
        &self,
        lanes: &[Lane],
        refs: &[u64; 5],
        how: impl Fn(u64) -> Outcome,
    ) -> Remotely {
        let tid = |lane: u32| lanes[lane as usize].tid;
        Remotely {
            tid: tid(self.lane),
            all: std::array::from_fn(|k| match self.all[k] {
                _ if self.followed & 1 << k == 0 => Outcome::NotFollowed,
                Some(outcome) => outcome,
                None => how(refs[k].saturating_sub(self.index[k] + 1)),
            }),
            remote: self.remote,
            writer: self.writer.map(|(ip, lane)| (ip, tid(lane))),
        }
    }
}

#[cfg(test)]
mod tests;

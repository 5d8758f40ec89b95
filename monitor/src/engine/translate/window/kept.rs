//! What is kept in the log up to the next stop, and what is read from it there.

use super::super::duty::Duty;
use super::super::expand::expand;
use super::super::fragment::FragmentId;
use super::super::layout::{
    COUNT_DUE, COUNT_END, LOG_BYTES, MAX_RECORD_ACCESSES, MAX_RECORD_QWORDS, NO_END, SLACK, state,
};
use super::super::log::{LogReader, VIEW};
use super::super::memory::Block;
use super::super::state::{StateBlock, get_mut};
use super::{
    At, BURST, Control, END_AT_LEAST, FALSE_LEAST, LOG_AT_LEAST, LOG_IN_USE, LOG_QUIET,
    MOST_PATIENCE, Next, QUIET_LEAST, QUIET_MOST, REHASH_AFTER, Translate,
};
use crate::observe::Observer;
use crate::tracee::{Regs, Result, Resume, Stopped, hub};

/// More than is ever counted between two stops: what is left, and a part of a `rep` (all of one under a condition counts as one).
const MOST_COUNTED: u64 = 1 << 40;

impl Translate {
    pub(super) fn log_pointer(&self) -> u64 {
        self.block().word(state::LOG)
    }

    pub(super) fn block(&self) -> Block<'_> {
        Block {
            data: &self.data.memory,
            gs: self.data.gs,
        }
    }

    pub(super) fn set_word(&mut self, offset: i32, value: u64) {
        self.data
            .memory
            .write_word(self.data.gs + offset as u64, value);
    }

    /// Empties the log and sets what is kept in it, up to the next sample or the end of the window.
    pub(super) fn prepare(&mut self, left: u64, observer: &mut Observer) {
        self.limit = observer.accesses().saturating_add(left);
        if self.duty == Duty::Count {
            self.log_start = COUNT_END - left.min(COUNT_END);
            self.set_word(state::LOG, self.log_start);
            return;
        }
        let next = observer.until_sample().min(left);
        self.reader.crossings.settle();
        // Samples are so many references away, the end so many accesses.
        let quiet = observer.until_sample().saturating_sub(MAX_RECORD_ACCESSES);
        let quiet = self.reader.crossings.accesses(quiet);
        let quiet = quiet.min(left.saturating_sub(MAX_RECORD_ACCESSES));
        let all = self.exact || observer.awaits_first_touches();
        self.quiet = !all && quiet >= QUIET_LEAST;
        self.looked_everywhere &= !self.quiet;
        let bytes = |accesses: u64| (accesses as f64 * self.words_per_access * 8.0) as u64;
        let end = |accesses: u64| COUNT_DUE.wrapping_add(accesses).wrapping_neg();
        let behind = (observer.left_of_cluster() + BURST).min(left - next);
        let (count, end, bytes) = if self.quiet {
            let count = COUNT_DUE.wrapping_sub(quiet.min(QUIET_MOST));
            (count, end(MAX_RECORD_ACCESSES + behind), LOG_QUIET)
        } else if all || observer.spacing() < QUIET_LEAST {
            // A log full of words says only roughly how long that was, and nothing of `rep` instructions, which take a record for each
            // part. (After a record that does not count what it stands for no end is seen, and the log's is all there is.)
            let end = match observer.is_shared() {
                _ if left >= QUIET_MOST => NO_END,
                true => end(left),
                false => end(left.max(END_AT_LEAST)),
            };
            (COUNT_DUE, end, bytes(left))
        } else {
            // At most one word an access as a rule; where there are more the log is full before.
            (COUNT_DUE, end(next + behind), LOG_QUIET)
        };
        let bytes = bytes.clamp(LOG_AT_LEAST, LOG_IN_USE.min(LOG_BYTES)) & !7;
        self.log_start = self.data.end - bytes;
        self.set_word(state::LOG, self.log_start);
        self.set_word(state::COUNT, count);
        self.set_word(state::END, end);
        self.reader.set_count(count);
        if !self.exact {
            self.follow_watches(observer);
        }
    }

    /// Brings the filter up to date.
    pub(super) fn follow_watches(&mut self, observer: &mut Observer) {
        let (filter, data, gs) = (&mut self.filter, &mut self.data.memory, self.data.gs);
        let same = self.filter_of.replace(observer.id()) == Some(observer.id());
        if !filter.can_mark() {
            observer.end_drawn();
        }
        let left_over = filter.has_marks() && !observer.draws_lines();
        match observer.take_changes(self.filter_id) {
            Some(changes) if same && !left_over && self.false_logs < self.patience => {
                for (line, watched) in changes {
                    filter.change(data, gs, line, watched);
                }
                for mark in observer.take_marks() {
                    filter.mark(data, gs, mark);
                }
                return;
            }
            Some(_) if same && !left_over => {
                self.false_logs = 0;
                self.patience = MOST_PATIENCE.min(2 * self.patience);
                filter.rehash();
            }
            _ => {}
        }
        self.reader.forget_suspects();
        filter.fill(data, gs, observer.watched_lines());
        observer.take_marks();
        for mark in observer.marks() {
            filter.mark(data, gs, mark);
        }
    }

    /// Reads the log up to `pointer`, and the open record there: `open` is its fragment, the items
    /// done and the counter of a `rep` in progress.
    pub(super) fn drain(
        &mut self,
        pointer: u64,
        open: Option<(FragmentId, u16, Option<u64>)>,
        observer: &mut Observer,
    ) {
        if self.duty == Duty::Count {
            let items = |(id, items, _): (FragmentId, u16, Option<u64>)| {
                self.cache.fragment(id).first_access[usize::from(items)]
            };
            // Far beyond where no count comes to: our pages were replaced under the thread, as below.
            let counts = self.log_start..=self.log_start + MOST_COUNTED;
            let (pointer, open) = match counts.contains(&pointer) {
                true => (pointer, open.map_or(0, items)),
                false => (self.log_start, 0),
            };
            let seen = pointer - self.log_start + u64::from(open);
            self.log_start = pointer;
            return observer.count(seen, [seen; 5]);
        }
        let before = observer.accesses();
        // A program that unmaps what it finds in its address space may have had our pages replaced under the thread.
        let in_log = (self.log_start..=self.data.end + SLACK).contains(&pointer)
            && pointer.is_multiple_of(8);
        let (pointer, open) = match in_log {
            true => (pointer, open),
            false => (self.log_start, None),
        };
        let count = ((pointer - self.log_start) / 8) as usize;
        let words = self.data.memory.words(self.log_start, count + VIEW);
        if let Some(tap) = &mut self.tap {
            LogReader::every(&words[..count], self.fs_base, &self.cache, tap);
        }
        self.reader
            .read(words, count, self.fs_base, &self.cache, observer);
        self.stats.records = self.reader.records;
        let suspects = self.reader.take_suspects();
        if !suspects.is_empty() {
            observer.suspect_where(self.filter.shared_by(&suspects));
        }
        let counted = self.block().word(state::COUNT);
        if in_log {
            self.reader.read_count(counted, observer);
        }
        let closed = observer.accesses();
        if let Some((fragment, items, rep)) = open {
            let record = self.data.gs + state::record(0) as u64;
            let record = self.data.memory.words(record, MAX_RECORD_QWORDS);
            let fragment = self.cache.fragment(fragment);
            match &mut self.tap {
                None => expand(fragment, items, record, self.fs_base, rep, observer),
                Some(tap) => {
                    expand(fragment, items, record, self.fs_base, rep, &mut |access| {
                        tap(access);
                        observer.access(access);
                    });
                }
            }
        }
        // The open record was counted by us, not by the thread.
        let counted = counted.wrapping_add(observer.accesses() - closed);
        self.set_word(state::COUNT, counted);
        self.reader.set_count(counted);
        let seen = observer.accesses() - before;
        if seen > 1000 && !self.quiet {
            let ratio = count as f64 / seen as f64;
            self.words_per_access = 0.5 * self.words_per_access + 0.5 * ratio.max(0.01);
        }
        self.log_start = pointer;
    }

    pub(super) fn log_full(
        &mut self,
        stopped: Stopped,
        mut regs: Regs,
        (fragment, resume): (FragmentId, u64),
        observer: &mut Observer,
        control: &mut impl Control,
    ) -> Result<Next> {
        let (hits, waiting) = (observer.filter_hits(), self.reader.waiting);
        self.drain(self.log_pointer(), None, observer);
        if !self.exact {
            let ip = self.cache.fragment(fragment).ip;
            let all = observer.accesses();
            let beyond = all.saturating_sub(self.limit);
            let stops = (self.stats.stops, self.stats.misses);
            if let Some(piece) = self.pieces.read(stops, (all, beyond), ip) {
                control.piece_ended(&piece);
            }
        }
        let waiting = self.reader.waiting - waiting;
        let observes = self.duty != Duty::Count;
        let suspect =
            observes && waiting >= FALSE_LEAST && observer.filter_hits() - hits <= waiting / 8;
        if suspect {
            self.false_logs += 1;
        } else {
            self.false_logs = 0;
            self.patience = REHASH_AFTER.max(self.patience - 1);
        }
        let left = control.progress(observer, self.code.maps());
        if left == 0 || hub::is_wanted_out(stopped.tid()) {
            return self.close(stopped, regs);
        }
        self.prepare(left, observer);
        let spare = self.cache.fragment(fragment).spare;
        *get_mut(&mut regs, spare) = match self.duty {
            Duty::Observe { .. } => self.data.gs,
            Duty::Count => self.log_start,
        };
        regs.rip = resume;
        regs.gs_base = self.data.gs;
        regs.orig_rax = u64::MAX;
        stopped.set_regs(&regs)?;
        self.by_syscall = false;
        Ok(Next::Go(At::Cache(
            stopped.resume_near(Resume::SyscallEmulated, 0)?,
        )))
    }
}

//! The way into the cache, with all that must be there first; or out of the window, where there is no way in.

use super::super::cache::{Blocked, Followed};
use super::super::layout::{PROBES, TABLE, TABLE_ENTRIES, state};
use super::super::target;
use super::native::stopped_with_its_process;
use super::signal::STORM;
use super::{At, Next, Translate, UNMAPPED, WindowEnd};
use crate::arch::HINDERING_FLAGS;
use crate::observe::Observer;
use crate::tracee::{CODE_64, Event, Regs, Result, Resume, StopReason, Stopped, TraceError, hub};

/// Places to return to translated at one entry. (Of 0, 2, 8 and 32, on a python that imports modules: 34,300, 26,000, 25,300 and 25,200
/// stops for new code; of 0, 1, 2 and 8, on a compiler of one second observed whole: 88,900, 75,600, 74,300 and 74,100, in the same time.
/// In sampled windows of a compiler of 15 s, which are over before most calls return, 8 were 11,500 fragments at 23 us for 6,700 stops, 2
/// were 6,300 for 8,300.)
const RETURNS_AHEAD: usize = 2;
/// Targets learnt at one entry.
const LEARNT_AHEAD: usize = 8;

impl Translate {
    /// Sends the thread, stopped at `regs` of its own, into the cache.
    pub(super) fn enter(
        &mut self,
        mut stopped: Stopped,
        mut regs: Regs,
        observer: &mut Observer,
        how: Resume,
    ) -> Result<Next> {
        const DIRECTION: u64 = 1 << 10;
        if regs.gs_base != 0 {
            return self.decline(stopped, regs, observer, "the program uses the gs segment");
        }
        if regs.cs != CODE_64 {
            return self.decline(stopped, regs, observer, "32-bit code");
        }
        if regs.eflags & DIRECTION != 0 {
            return self.decline(stopped, regs, observer, "direction flag set");
        }
        // As behind a handler that returns to single steps: each instruction of the copy would trap, too.
        if regs.eflags & u64::from(HINDERING_FLAGS) != 0 {
            return self.decline(stopped, regs, observer, "a flag that traps");
        }
        if self.storm.take() {
            return self.decline(stopped, regs, observer, STORM);
        }
        self.code.set_unseen_if_old();
        let reads = self.code.is_stale();
        if self.code.refresh()? {
            self.flush(observer);
        }
        if reads && !self.is_mapped() {
            return self.decline(stopped, regs, observer, UNMAPPED);
        }
        let lost = self.code.take_lost();
        if !lost.is_empty() {
            self.cache.invalidate(&lost);
        }
        if regs.fs_base != self.fs_base {
            // Records logged so far belong to the old base.
            self.drain(self.log_pointer(), None, observer);
            self.fs_base = regs.fs_base;
            self.set_word(state::FS, regs.fs_base);
        }
        let entry = loop {
            match self.cache.entry(regs.rip, &mut self.code, self.learn) {
                Ok(entry) => break entry,
                Err(Blocked::NeedFlush) => self.flush(observer),
                Err(Blocked::NoCode) => {
                    let reason = "no code at this address that may be read";
                    return self.decline(stopped, regs, observer, reason);
                }
                Err(Blocked::NeedArena(ip)) => {
                    let (back, arena) = self.add_arena(stopped, &regs, ip)?;
                    stopped = back;
                    if let StopReason::Signal(signal) = stopped.reason {
                        // It came while the arena was made: the thread is at its own registers.
                        self.stats.signals += 1;
                        self.storm.came(observer.accesses());
                        return self.deliver(stopped, signal, observer);
                    }
                    if stopped.reason == StopReason::Group {
                        self.drain(self.log_pointer(), None, observer);
                        return stopped_with_its_process(stopped);
                    }
                    match arena {
                        Ok(()) => {}
                        Err(error) => {
                            tracing::debug!(%error, ip, "no arena");
                            return self.decline(stopped, regs, observer, "no room near this code");
                        }
                    }
                }
            }
        };
        if std::mem::take(&mut self.learn) {
            self.enter_in_table(regs.rip, false);
        }
        self.learn_ahead();
        if hub::is_wanted_out(stopped.tid()) {
            self.drain(self.log_pointer(), None, observer);
            return self.close(stopped, regs);
        }
        // At the entry of a call, where it could be made another, filters would be shown that of leaving, or none: what they return for it would
        // take the place of a register of the program's. An emulated one they are not shown.
        let how = match self.is_filtered(stopped.tid()) {
            true => Resume::SyscallEmulated,
            false => how,
        };
        regs.rip = entry;
        regs.gs_base = self.data.gs;
        regs.orig_rax = u64::MAX;
        stopped.set_regs(&regs)?;
        self.by_syscall = how == Resume::Syscall;
        Ok(Next::Go(At::Cache(stopped.resume_near(how, 0)?)))
    }

    /// Enters a target into the tables, while the thread is stopped: it reads them without any synchronisation.
    fn enter_in_table(&mut self, ip: u64, ahead: bool) {
        self.cache
            .learn_indirect(ip, &mut self.data.memory, self.data.gs, ahead);
    }

    /// Translates some of the targets that another engine has met, and of the places that calls will return to, and enters
    /// them into the table.
    fn learn_ahead(&mut self) {
        for _ in 0..LEARNT_AHEAD.min(self.to_learn.len()) {
            if let Some(ip) = self.to_learn.pop_front()
                && self.cache.entry(ip, &mut self.code, true).is_ok()
            {
                self.enter_in_table(ip, true);
            }
        }
        for _ in 0..RETURNS_AHEAD {
            let Some(ip) = self.cache.translate_return(&mut self.code) else {
                return;
            };
            self.enter_in_table(ip, true);
        }
    }

    /// Says that code was met at these addresses outside of the cache.
    pub fn note_met(&mut self, ips: impl Iterator<Item = u64>) {
        self.cache.note_met(ips);
    }

    /// Translates some of what code leads to that was met, while no thread is in the cache, up to `most` fragments in all. False when there is
    /// nothing more to do.
    pub fn translate_around(&mut self, most: usize) -> bool {
        self.learn_ahead();
        self.cache.translate_around(&mut self.code, most) || !self.to_learn.is_empty()
    }

    fn add_arena(
        &mut self,
        stopped: Stopped,
        regs: &Regs,
        ip: u64,
    ) -> Result<(Stopped, Result<()>)> {
        // A thread stopped at the call that leaves must leave the kernel first: its exit is a clean stop.
        let mut home = *regs;
        home.orig_rax = u64::MAX;
        stopped.set_regs(&home)?;
        let tid = stopped.tid();
        let stopped = match stopped.reason {
            StopReason::Syscall => match stopped.resume_near(Resume::Syscall, 0)?.wait_near()? {
                Event::Stopped(stopped) if !stopped.is_replaced() => stopped,
                gone => {
                    hub::release(gone);
                    return Err(TraceError::Gone(tid));
                }
            },
            // A stop at the start of a handler looks like a signal; only a new one is one.
            _ => Stopped::of(tid, StopReason::Other(0)),
        };
        if stopped.has_news() {
            return Ok((stopped, Ok(())));
        }
        let (stopped, arena) = target::map_arena(stopped, self.code.maps(), ip)?;
        let arena = arena.map(|arena| {
            let first = self.cache.add_arena(arena);
            if first {
                let (data, gs) = (&mut self.data.memory, self.data.gs);
                self.cache.clear_jumps(data, gs);
            }
        });
        Ok((stopped, arena))
    }

    /// Ends the window with the thread at `regs` of its own.
    pub(super) fn close(&mut self, stopped: Stopped, mut regs: Regs) -> Result<Next> {
        regs.orig_rax = u64::MAX;
        stopped.set_regs(&regs)?;
        Ok(Next::End(WindowEnd::Closed(stopped)))
    }

    pub(super) fn flush(&mut self, observer: &mut Observer) {
        self.drain(self.log_pointer(), None, observer);
        self.cache.flush();
        self.reader.flush();
        self.followed = Followed::default();
        self.to_learn.clear();
        let table = self.data.gs + TABLE as u64;
        self.data.memory.zero(table, 16 * (TABLE_ENTRIES + PROBES));
        let (data, gs) = (&mut self.data.memory, self.data.gs);
        self.cache.clear_jumps(data, gs);
    }

    pub(super) fn decline(
        &mut self,
        stopped: Stopped,
        mut regs: Regs,
        observer: &mut Observer,
        reason: &'static str,
    ) -> Result<Next> {
        self.drain(self.log_pointer(), None, observer);
        self.stats.declined += 1;
        regs.orig_rax = u64::MAX;
        stopped.set_regs(&regs)?;
        Ok(Next::End(WindowEnd::Declined(stopped, reason)))
    }
}

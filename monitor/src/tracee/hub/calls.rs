//! The system call that a thread is in when it is stopped: mended where the stop has cut it, gone on with where it has moved less than it was to.

use super::super::completion::{Completion, Progress};
use super::super::{Regs, StopReason, Stopped, remote, status, transfers};
use super::steer::is_anothers;
use super::{Thread, mend};

impl Thread {
    /// Mends what a stop of ours has done to a call, and books whether the thread is in one that is let come to its end: it would never,
    /// were it stopped each time. `in_cache`: it was in the code cache, where it makes none.
    pub(super) fn note_call_at(&mut self, stopped: &Stopped, in_cache: bool) {
        let asked = std::mem::take(&mut self.interrupted) | std::mem::take(&mut self.spent);
        // Any stop uses the request up, but the kernel's mark of it stays until the thread is back in user mode: the call about to be made
        // is cut by it all the same (linux/kernel/signal.c, `ptrace_stop`: recalc_sigpending_tsk never clears).
        self.spent = asked && stopped.reason == StopReason::Syscall && !stopped.is_behind_call();
        let ours = match stopped.reason {
            _ if in_cache && self.completion.is_none() => asked,
            // It uses up the request, but is not for it.
            StopReason::Signal(_) => self.was_cut_by_ignored_signals(stopped),
            _ => asked || self.was_cut_by_ignored_signals(stopped),
        };
        let stays = self.in_call && stopped.reason == StopReason::Syscall;
        if stopped.is_replaced() {
            // What the thread was is no more, and there may be something else in the stub's place.
            self.completion = None;
        }
        if let Some(completion) = &mut self.completion {
            match completion.at_stop(stopped, ours) {
                Ok(Progress::Busy) => return self.in_call = true,
                Ok(Progress::Home) => {
                    (self.completion, self.in_call) = (None, stays);
                    return;
                }
                Ok(Progress::Elsewhere) | Err(_) => {}
            }
        }
        self.in_call = match stopped.reason {
            StopReason::Interrupt | StopReason::Syscall | StopReason::Signal(_) if ours => {
                mend(stopped).unwrap_or(false) || self.complete(stopped) || stays
            }
            _ => stays,
        };
    }

    /// Whether a call was cut, if it was, by signals only that the program ignores, or that are another thread's: they stop no thread that is not traced. Looked up only
    /// where that may be: it is read from a file.
    fn was_cut_by_ignored_signals(&self, stopped: &Stopped) -> bool {
        let told = match stopped.reason {
            StopReason::Signal(signal) => Some(signal),
            StopReason::Syscall => None,
            _ => return false,
        };
        let may_be_cut = |regs: Regs| {
            regs.rax as i64 == -i64::from(libc::EINTR)
                || regs.rax as i64 == -i64::from(libc::EAGAIN)
                    && regs.orig_rax as i64 == libc::SYS_bpf
                || transfers::has_fallen_short(&regs) && !remote::is_made_again(stopped, &regs)
        };
        if self.completion.is_none() && !stopped.regs().is_ok_and(may_be_cut) {
            return false;
        }
        let (tid, first) = (stopped.tid(), self.pid);
        let sets = status::signal_sets(tid);
        sets.is_some_and(|sets| match told {
            Some(signal) => sets.ignores(signal),
            None => sets.awaits_only(|signal| {
                let sent_on = || !sets.waits_for(signal) && is_anothers(tid, first, signal);
                sets.ignores(signal) || sent_on()
            }),
        })
    }

    /// Goes on with a call that has moved less than it was to, if it is one of those.
    fn complete(&mut self, stopped: &Stopped) -> bool {
        let regs = stopped.regs().ok();
        let Some(completion) = regs.and_then(|regs| Completion::begin(stopped, &regs)) else {
            return false;
        };
        if let Some(former) = self.completion.replace(Box::new(completion)) {
            // The thread is through with it.
            let _ = former.give_up(stopped);
        }
        true
    }
}

//! Signals that arrive during a window: delivered at the stop they came with, in the original context.
//!
//! Unsafe invariant: a `siginfo_t` has 128 bytes, all of which `PTRACE_GETSIGINFO` fills whatever
//! the signal; the word at byte 16, where a fault has its address, is taken for an integer.

use super::super::cache::Place;
use super::super::fragment::{ExitKind, FragmentId};
use super::super::layout::state;
use super::super::state::{Context, StateBlock};
use super::{At, Next, Translate, WindowEnd};
use crate::engine::step::flags::may_be_stepped_into_handler;
use crate::observe::Observer;
use crate::tracee::{self, Regs, Result, Resume, StopReason, Stopped, hub, status};
use nix::unistd::Pid;

/// Why a window ends in a [`Storm`].
pub const STORM: &str = "signals faster than they can be followed";

/// Whether signals come faster than they can be followed, so that the thread gets nowhere: a timer of less than some
/// hundreds of microseconds.
#[derive(Debug, Default)]
pub(super) struct Storm {
    /// Accesses up to the last signal, or to where the thread went on.
    last: u64,
    signals: u32,
    /// Whether no signal has come since the window or turn began.
    fresh: bool,
}

impl Storm {
    /// Signals with next to nothing between them that make one; and what that is, in accesses.
    const SIGNALS: u32 = 16;
    const NEXT_TO_NOTHING: u64 = 200;

    /// A signal has interrupted the thread, after so many accesses.
    pub(super) fn came(&mut self, accesses: u64) {
        if std::mem::take(&mut self.fresh) {
            // It may have come long ago, while the thread was held.
            self.last = accesses;
            return;
        }
        self.signals = match accesses.saturating_sub(self.last) < Self::NEXT_TO_NOTHING {
            true => self.signals + 1,
            false => self.signals.saturating_sub(1),
        };
        self.last = accesses;
    }

    /// A window or turn begins after so many accesses.
    pub(super) fn begins(&mut self, accesses: u64) {
        self.fresh = true;
        self.last = accesses;
    }

    /// The thread goes on after so many, as a handler has returned.
    pub(super) fn goes_on(&mut self, accesses: u64) {
        self.fresh = false;
        self.last = accesses;
    }

    /// Whether there is one; the next is a new one.
    pub(super) fn take(&mut self) -> bool {
        let storm = self.signals >= Self::SIGNALS;
        if storm {
            self.signals = 0;
        }
        storm
    }
}

impl Translate {
    /// Delivers a signal to a thread at its own registers.
    pub(super) fn deliver(
        &mut self,
        stopped: Stopped,
        signal: i32,
        observer: &mut Observer,
    ) -> Result<Next> {
        match disposition(stopped.tid(), signal) {
            Disposition::Caught if may_be_stepped_into_handler(&stopped, signal)? => {
                let running = stopped.resume_here(Resume::IntoHandler, signal)?;
                Ok(Next::Go(At::Native {
                    running,
                    syscall: None,
                    handler: true,
                }))
            }
            Disposition::Fatal => {
                self.drain(self.log_pointer(), None, observer);
                Ok(Next::End(WindowEnd::Fatal(stopped, signal)))
            }
            // A handler that cannot be stepped into runs natively up to its end, a system call.
            Disposition::Harmless | Disposition::Caught => {
                let running = stopped.resume_here(Resume::Syscall, signal)?;
                Ok(Next::Go(At::Native {
                    running,
                    syscall: None,
                    handler: false,
                }))
            }
        }
    }

    pub(super) fn signal_in_cache(
        &mut self,
        stopped: Stopped,
        regs: Regs,
        signal: i32,
        observer: &mut Observer,
    ) -> Result<Next> {
        self.stats.signals += 1;
        let harmless = disposition(stopped.tid(), signal) == Disposition::Harmless;
        if harmless && !tracee::is_fault(signal) && !hub::is_wanted_out(stopped.tid()) {
            let how = if self.by_syscall {
                Resume::Syscall
            } else {
                Resume::SyscallEmulated
            };
            return Ok(Next::Go(At::Cache(stopped.resume_near(how, signal)?)));
        }
        let cache_ip = regs.rip;
        // Code that may be executed but not read, or no longer: the program has not read it, and gets to it itself.
        let unreadable = self.compares_at(cache_ip) && is_from_kernel(&stopped)?;
        let Some(context) = self.observe_interrupted(&regs, observer) else {
            // Not in the cache after all: these are its own registers.
            return self.deliver(stopped, signal, observer);
        };
        if unreadable && tracee::is_fault(signal) {
            let stopped = Stopped::of(stopped.tid(), StopReason::Other(0));
            let reason = "code that cannot be read";
            return self.decline(stopped, context.regs, observer, reason);
        }
        if !tracee::is_fault(signal) {
            self.storm.came(observer.accesses());
        }
        stopped.set_regs(&context.regs)?;
        if tracee::is_fault(signal) {
            hide_cache_address(&stopped, cache_ip, context.regs.rip)?;
        }
        self.deliver(stopped, signal, observer)
    }

    /// Whether a fragment's comparison of its source is at cache address `ip`.
    fn compares_at(&self, ip: u64) -> bool {
        match self.cache.place(ip) {
            Some(Place::Fragment(id, _)) => {
                let changing = self.cache.fragment(id).changing.as_ref();
                changing.is_some_and(|changing| changing.comparison.contains(&ip))
            }
            _ => false,
        }
    }

    /// Rebuilds the context of a thread stopped anywhere in the cache, and observes everything it
    /// did up to there. `None` when it is not in the cache.
    pub(super) fn observe_interrupted(
        &mut self,
        regs: &Regs,
        observer: &mut Observer,
    ) -> Option<Context> {
        let place = self.cache.place(regs.rip)?;
        let (fragment, state) = match place {
            Place::Fragment(id, state) => (Some(id), state),
            Place::Runtime(state) => (None, state),
        };
        let context = state.rebuild(regs, &self.block());
        let mut open = match (fragment, context.open) {
            // Of the part that is being executed.
            (Some(id), Some(items)) => Some((id, items, Some(regs.rcx))),
            _ => None,
        };
        if let (true, Some((id, items, _))) = (state.counted, open) {
            // Those of the open record are counted by us.
            let accesses = self.cache.fragment(id).first_access[usize::from(items)];
            let count = self.block().word(state::COUNT);
            self.set_word(state::COUNT, count.wrapping_sub(u64::from(accesses)));
        }
        if self.cache.is_in_exit(regs.rip) {
            // On its way out with a record still open?
            let number = self.block().word(state::EXIT) as u32;
            if let Some(exit) = self.cache.tables().exit(number)
                && let ExitKind::Side { done, .. } = exit.kind
                && self.block().word(state::TARGET) == context.regs.rip
            {
                open = Some((exit.fragment, done, None));
            }
        }
        // A `rep` has begun only if its copy is what the thread is stopped at; before, its counter
        // may not even be logged.
        if let Some((id, items, rep)) = &mut open
            && !self.at_item(*id, *items, regs.rip)
        {
            *rep = None;
        }
        self.drain(context.log, open, observer);
        let left = self.limit.saturating_sub(observer.accesses());
        self.prepare(left, observer);
        Some(context)
    }

    /// Whether cache address `ip` is the copy of item `items` itself.
    pub(super) fn at_item(&mut self, id: FragmentId, items: u16, ip: u64) -> bool {
        let fragment = self.cache.fragment(id);
        if usize::from(items) >= fragment.items.len() {
            return false;
        }
        let original = fragment.item_ip(usize::from(items));
        use crate::engine::translate::trace::Code;
        let length = {
            let bytes = self.code.bytes(original);
            let mut decoder =
                iced_x86::Decoder::with_ip(64, bytes, original, iced_x86::DecoderOptions::NONE);
            let instruction = decoder.decode();
            if !instruction.is_string_instruction() {
                return false;
            }
            instruction.len()
        };
        let want = self.code.bytes(original)[..length].to_vec();
        self.cache
            .bytes_at(ip, length)
            .is_some_and(|bytes| bytes == want)
    }
}

pub(super) fn stopped_by_signal(stopped: Stopped, signal: i32) -> WindowEnd {
    // Delivered at the resume, fatal or not.
    WindowEnd::Fatal(stopped, signal)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Caught,
    Fatal,
    /// Ignored, or stops or continues the process: nothing of its own runs.
    Harmless,
}

/// What delivering `signal` will do (signal(7), "Signal dispositions").
pub(super) fn disposition(tid: Pid, signal: i32) -> Disposition {
    let sets = status::signal_sets(tid).unwrap_or_default();
    if sets.catches(signal) {
        return Disposition::Caught;
    }
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let ignored = sets.ignores(signal) && !tracee::is_fault(signal);
    if ignored || stopping.contains(&signal) {
        Disposition::Harmless
    } else {
        Disposition::Fatal
    }
}

/// Replaces an instruction address in a fault's information by the original one.
pub(super) fn hide_cache_address(stopped: &Stopped, cache_ip: u64, original: u64) -> Result<()> {
    let mut info = stopped.siginfo()?;
    // SAFETY: the word 16 bytes into siginfo_t lies inside the structure and is initialised. In a fault it is the
    // address (sigaction(2), "si_addr"); of a signal that was sent, a process and a user.
    unsafe {
        let address = (&raw mut info).cast::<u64>().add(2);
        if *address == cache_ip {
            *address = original;
            stopped.set_siginfo(&info)?;
        }
    }
    Ok(())
}

/// Whether the thread itself caused the signal it is stopped with, by an instruction (sigaction(2), `si_code`).
fn is_from_kernel(stopped: &Stopped) -> Result<bool> {
    Ok(stopped.siginfo()?.si_code > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_signals_with_nothing_between_them() {
        // A handler of a thousand accesses each time, and next to nothing behind it.
        let mut storm = Storm::default();
        let mut accesses = 50_000;
        for _ in 0..=Storm::SIGNALS {
            assert!(!storm.take());
            storm.came(accesses);
            storm.goes_on(accesses + 1_000);
            accesses += 1_003;
        }
        assert!(storm.take() && !storm.take());
        // One that had to wait for each turn of the thread.
        for turn in 0..100 {
            storm.begins(1_000 * turn);
            storm.came(1_000 * turn);
            storm.goes_on(1_000 * turn + 100);
            assert!(!storm.take());
        }
        // Every other one finds the thread further on.
        for signal in 0..1_000 {
            accesses += if signal % 2 == 0 { 3 } else { 300 };
            storm.came(accesses);
            assert!(!storm.take());
        }
    }
}

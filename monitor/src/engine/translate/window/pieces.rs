//! Processor time between two readings of the log: what a stop costs the thread and what an access does are told
//! apart by pieces of different lengths.

use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// From one stop that read the log to the next one that did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Accesses of the thread.
    pub accesses: u64,
    /// Those behind its limit, which one instruction made that it ended in: part of a `rep movs`, mostly.
    pub beyond: u64,
    /// Stops, the last one included.
    pub stops: u64,
    /// Those among them for code that was not translated yet.
    pub misses: u64,
    /// CPU seconds, those of its stops included.
    pub cpu_s: f64,
    /// CPU seconds of the thread at its end.
    pub end_s: f64,
    /// Addresses of the program's code that it began and ended at.
    pub ips: [u64; 2],
}

/// Pieces of a window, and of a thread's turn: each costs a look at the thread's clock. And of one that is there to be timed: more than it may have.
const MOST: usize = 96;
const MOST_IN_TURN: usize = 44;
const MOST_TIMED: usize = 500;

/// The pieces of the present window.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    tid: Option<Pid>,
    /// Its clock, once that has been looked at.
    clock: Option<File>,
    /// Stops and misses, accesses, CPU seconds and place at the last reading.
    last: Option<((u64, u64), u64, f64, u64)>,
    in_turn: usize,
    is_timed: bool,
    list: Vec<Piece>,
}

impl Pieces {
    /// A thread begins a window, or its turn in one. `is_timed`: the window is there for that.
    pub fn begin(&mut self, tid: Pid, is_timed: bool) {
        (self.last, self.in_turn, self.is_timed) = (None, 0, is_timed);
        if self.tid.replace(tid) != Some(tid) {
            self.clock = None;
        }
    }

    /// The log has been read at stop number `stops`, behind so many misses, up to this access, so many of them behind the limit, in the code at `ip`.
    /// Returns the piece that ends there, unless none does.
    pub fn read(
        &mut self,
        (stops, misses): (u64, u64),
        (accesses, beyond): (u64, u64),
        ip: u64,
    ) -> Option<Piece> {
        let (most, most_in_turn) = match self.is_timed {
            true => (MOST_TIMED, MOST_TIMED),
            false => (MOST, MOST_IN_TURN),
        };
        if self.list.len() >= most || self.in_turn >= most_in_turn {
            return None;
        }
        if let (None, Some(tid)) = (&self.clock, self.tid) {
            self.clock = File::open(format!("/proc/{tid}/schedstat")).ok();
            // Not to be tried again at every stop.
            self.tid = None;
        }
        let now = self.clock.as_ref().and_then(cpu_s)?;
        let last = self.last.replace(((stops, misses), accesses, now, ip));
        let ((before, missed), from, cpu_s, from_ip) = last?;
        let piece = (before < stops).then(|| Piece {
            accesses: accesses - from,
            beyond,
            stops: stops - before,
            misses: misses - missed,
            cpu_s: now - cpu_s,
            end_s: now,
            ips: [from_ip, ip],
        })?;
        self.in_turn += 1;
        self.list.push(piece);
        Some(piece)
    }

    /// Those of the window that is over.
    pub fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.list)
    }
}

/// First number of `schedstat`: nanoseconds, up to date while the thread is stopped.
fn cpu_s(file: &File) -> Option<f64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let ns: u64 = text.split(' ').next()?.parse().ok()?;
    (ns > 0).then_some(ns as f64 * 1e-9)
}

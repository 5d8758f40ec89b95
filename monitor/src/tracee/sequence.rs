//! A stopped thread in a restartable sequence (rseq(2)): the kernel sends one that was interrupted in it to where it is broken off, as far as
//! its address tells that when it goes on. Where it is made to do something else first the kernel takes the sequence for left, and what it was to
//! guard is lost.
//!
//! Source: linux/rseq.h, `struct rseq` and `struct rseq_cs`; linux/kernel/rseq.c.

use super::{Regs, Result, Stopped, procinfo};
use nix::unistd::Pid;

/// Offset of `rseq_cs` in the area that the thread has registered.
const RSEQ_CS: u64 = 8;

/// Address of the thread's word that names the sequence it is in.
pub fn word(tid: Pid) -> Option<u64> {
    procinfo::rseq_area(tid).map(|area| area + RSEQ_CS)
}

/// Where the sequence is broken off that the thread is inside of at `regs`. The word may name one long left behind: only one
/// around the thread's address counts.
pub fn abort_of(stopped: &Stopped, regs: &Regs) -> Option<u64> {
    let mut pointer = [0; 8];
    stopped.read(word(stopped.tid())?, &mut pointer).ok()?;
    let mut description = [0; 32];
    let at = u64::from_le_bytes(pointer);
    stopped
        .read(at, &mut description)
        .ok()
        .filter(|()| at != 0)?;
    let words = description.as_chunks::<8>().0;
    // Version and flags are not asked for.
    let [_, start, length, abort] = [0, 1, 2, 3].map(|n| u64::from_le_bytes(words[n]));
    (regs.rip.wrapping_sub(start) < length).then_some(abort)
}

/// The thread's registers, behind a sequence that it was inside of: broken off, as by anything else that interrupts it.
///
/// # Errors
/// [`super::TraceError::Gone`].
pub fn regs_outside(stopped: &Stopped) -> Result<Regs> {
    let mut regs = stopped.regs()?;
    if let Some(abort) = abort_of(stopped, &regs) {
        regs.rip = abort;
        regs.orig_rax = u64::MAX;
    }
    Ok(regs)
}

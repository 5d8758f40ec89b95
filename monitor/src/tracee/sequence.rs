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
    let [start, length, abort] = named(stopped)?;
    (regs.rip.wrapping_sub(start) < length).then_some(abort)
}

/// Whether the thread at `regs` is inside of a sequence, or so near before one that it may just have named it.
pub fn is_near(stopped: &Stopped, regs: &Regs) -> bool {
    /// Bytes of code between the store of the name and the first instruction that it guards.
    const BEFORE: u64 = 32;
    named(stopped).is_some_and(|[start, length, _]| {
        regs.rip.wrapping_sub(start.wrapping_sub(BEFORE)) < length.saturating_add(BEFORE)
    })
}

/// Start, length and abort address of the sequence that the thread's word names.
fn named(stopped: &Stopped) -> Option<[u64; 3]> {
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
    Some([1, 2, 3].map(|n| u64::from_le_bytes(words[n])))
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

//! Whether a newborn process runs in the memory of its parent, as after `vfork`: nothing of ours there is its own.

use super::super::procinfo;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::os::unix::fs::FileExt;

/// Whether process `tid`, which is at its first stop, runs in the memory of `parent`.
///
/// The kernel is asked first. Where it does not tell, a word is written in the newborn and looked for in its parent. If there is no
/// place for that, it is taken to be so: such a process is left alone until it executes a program, and no more is lost. One that is not stopped
/// was there before us, and has its own.
pub(super) fn borrows_memory(parent: Pid, tid: Pid) -> bool {
    if let Some(shared) = procinfo::share_memory(parent, tid) {
        return shared;
    }
    let Ok(regs) = ptrace::getregs(tid) else {
        return false;
    };
    is_seen_by(parent, tid, regs.rsp).unwrap_or(true)
}

/// Whether a word that is written below the stack of a stopped thread is seen by another process. Below the red zone (System V ABI, 3.2.2), where
/// signals write too: nobody misses it, were we killed in between.
fn is_seen_by(other: Pid, tid: Pid, stack: u64) -> std::io::Result<bool> {
    const BELOW: u64 = 256;
    /// No address, and no number that programs use.
    const MARK: u64 = 0x9e37_79b9_7f4a_7c15;
    let address = stack.wrapping_sub(BELOW) & !7;
    let (own, others) = (
        procinfo::memory(tid, true)?,
        procinfo::memory(other, false)?,
    );
    let mut word = [0; 8];
    own.read_exact_at(&mut word, address)?;
    let before = word;
    let mark = MARK ^ u64::from_le_bytes(before).rotate_left(32);
    own.write_all_at(&mark.to_le_bytes(), address)?;
    // A parent that has nothing there has memory of its own.
    let seen = others.read_exact_at(&mut word, address).is_ok() && word == mark.to_le_bytes();
    own.write_all_at(&before, address)?;
    Ok(seen)
}

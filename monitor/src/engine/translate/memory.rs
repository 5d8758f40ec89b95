//! Memory shared with the target: the monitor's view of the code cache and of the data region.
//!
//! Unsafe invariant: `view..view+length` is one page-aligned mapping, readable and writable, until
//! drop; each access is checked against `length`. The one thread of the target that uses it at a
//! time is stopped, or out of the code cache, while the monitor reads and writes.

use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use super::state::StateBlock;
use crate::tracee::maps::Maps;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

/// A stretch of shared memory, mapped here and at `remote` in the target.
#[derive(Debug)]
pub struct Shared {
    view: NonNull<u8>,
    length: usize,
    remote: u64,
    /// The number of its file.
    inode: u64,
}

impl Shared {
    /// Maps `length` bytes of `file` at `offset`, which the target has at `remote`.
    ///
    /// # Errors
    /// The operating system's.
    pub fn map(file: &File, offset: u64, length: u64, remote: u64) -> std::io::Result<Shared> {
        let size = NonZeroUsize::new(length as usize)
            .ok_or_else(|| std::io::Error::other("empty shared mapping"))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let view = unsafe {
            mmap(
                None,
                size,
                protection,
                MapFlags::MAP_SHARED,
                file,
                offset as libc::off_t,
            )
        }?;
        Ok(Shared {
            view: view.cast(),
            length: size.get(),
            remote,
            inode: file.metadata()?.ino(),
        })
    }

    /// Where the target has it.
    pub fn remote(&self) -> u64 {
        self.remote
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.length as u64
    }

    /// Whether the target has it there, and may execute it, or write to it where it is no code.
    pub fn is_mapped(&self, maps: &Maps, code: bool) -> bool {
        maps.all(&self.range(), |m| {
            m.file.2 == self.inode
                && m.path.is_ours()
                && m.read
                && (m.exec || !code)
                && (m.write || code)
        })
    }

    /// Where the target has it.
    pub fn range(&self) -> Range<u64> {
        self.remote..self.remote + self.bytes()
    }

    fn offset(&self, remote: u64, length: usize) -> usize {
        let offset = remote.wrapping_sub(self.remote) as usize;
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length),
            "address {remote:#x} (+{length}) is not in the shared memory at {:#x}",
            self.remote
        );
        offset
    }

    /// Copies `bytes` to the target's address `remote`.
    pub fn write(&mut self, remote: u64, bytes: &[u8]) {
        let offset = self.offset(remote, bytes.len());
        // SAFETY: `offset` has checked that the destination lies in the mapping; `bytes` is memory
        // of ours and cannot overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.view.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    /// Writes a word.
    pub fn write_word(&mut self, remote: u64, word: u64) {
        self.write(remote, &word.to_le_bytes());
    }

    /// Reads a byte.
    pub fn byte(&self, remote: u64) -> u8 {
        let offset = self.offset(remote, 1);
        // SAFETY: in the mapping, by `offset`; any bits are a valid u8.
        unsafe { self.view.as_ptr().add(offset).read() }
    }

    /// Reads a word.
    pub fn word(&self, remote: u64) -> u64 {
        let offset = self.offset(remote, 8);
        // SAFETY: in the mapping, by `offset`; any bits are a valid u64.
        unsafe {
            self.view
                .as_ptr()
                .add(offset)
                .cast::<u64>()
                .read_unaligned()
        }
    }

    /// `count` words from `remote` on, which must be aligned to 8.
    pub fn words(&self, remote: u64, count: usize) -> &[u64] {
        let offset = self.offset(remote, 8 * count);
        assert!(offset.is_multiple_of(8));
        // SAFETY: in the mapping and aligned (the mapping is page-aligned); the borrow of `self`
        // keeps it mapped, and the target's thread is stopped while the monitor looks.
        unsafe { std::slice::from_raw_parts(self.view.as_ptr().add(offset).cast(), count) }
    }

    /// Writes `word` to `count` words from `remote` on.
    pub fn fill(&mut self, remote: u64, word: u64, count: usize) {
        let bytes = word.to_le_bytes().repeat(count);
        self.write(remote, &bytes);
    }

    /// Lets go of whole pages that will hardly be looked at again: they are the target's alone until then.
    pub fn let_go(&mut self, remote: u64, length: usize) {
        let offset = self.offset(remote, length);
        // SAFETY: in the mapping, and no borrow of it is alive. Of memory shared with others nothing is lost: pages are mapped
        // again where they are touched (madvise(2), MADV_DONTNEED).
        let _ = unsafe {
            madvise(
                self.view.add(offset).cast(),
                length,
                MmapAdvise::MADV_DONTNEED,
            )
        };
    }

    /// Sets a range to zero.
    pub fn zero(&mut self, remote: u64, length: usize) {
        let offset = self.offset(remote, length);
        // SAFETY: in the mapping.
        unsafe { std::ptr::write_bytes(self.view.as_ptr().add(offset), 0, length) };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.view.cast(), self.length) };
    }
}

/// A view of the state block at `gs` in a region.
pub struct Block<'a> {
    /// The data region.
    pub data: &'a Shared,
    /// The target's gs base while in the cache.
    pub gs: u64,
}

impl StateBlock for Block<'_> {
    fn word(&self, offset: i32) -> u64 {
        self.data
            .word(self.gs.wrapping_add_signed(i64::from(offset)))
    }
}

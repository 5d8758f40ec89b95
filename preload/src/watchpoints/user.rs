//! The program's memory, read and written without trusting its pointers: a bad one is an answer, not a fault in a handler.
//!
//! Source: process_vm_readv(2), which obeys the protection of pages as the kernel does in a system call.
//!
//! Unsafe invariant: our side of a transfer is a live value of the size told, or the caller's to
//! vouch for; the kernel checks the program's side. A type that is read is made of integers, so
//! that any bits are valid.

use crate::watchpoints::pages;
use crate::watchpoints::state::Held;
use crate::watchpoints::sys;
use crate::watchpoints::text::syscall;

const PROCESS_VM_READV: u64 = 310;
const PROCESS_VM_WRITEV: u64 = 311;
/// `-EFAULT`.
pub const EFAULT: i64 = -14;

fn transfer(held: &mut Held, number: u64, ours: u64, theirs: u64, bytes: u64) -> bool {
    let pages = pages::overlapping(held, theirs, bytes);
    pages::open(held, pages);
    let local = [ours, bytes];
    let remote = [theirs, bytes];
    // SAFETY: `ours` is valid for `bytes` by the callers below; the kernel checks `theirs`.
    let moved = unsafe {
        syscall(
            number,
            [
                sys::getpid() as u64,
                local.as_ptr() as u64,
                1,
                remote.as_ptr() as u64,
                1,
                0,
            ],
        )
    };
    pages::close(held, pages);
    moved == bytes as i64
}

/// A value at `address` in the program's memory.
pub fn read<T: Copy + Default>(held: &mut Held, address: u64) -> Option<T> {
    let mut value = T::default();
    transfer(
        held,
        PROCESS_VM_READV,
        &raw mut value as u64,
        address,
        size_of::<T>() as u64,
    )
    .then_some(value)
}

/// Writes a value to `address` in the program's memory.
pub fn write<T: Copy>(held: &mut Held, address: u64, value: &T) -> bool {
    transfer(
        held,
        PROCESS_VM_WRITEV,
        value as *const T as u64,
        address,
        size_of::<T>() as u64,
    )
}

/// Copies memory of ours to `address` in the program's.
///
/// # Safety
/// `ours` must be readable for `bytes`.
pub unsafe fn write_bytes(held: &mut Held, address: u64, ours: u64, bytes: u64) -> bool {
    transfer(held, PROCESS_VM_WRITEV, ours, address, bytes)
}

/// Copies the program's memory at `address` to ours.
///
/// # Safety
/// `ours` must be writable for `bytes`.
pub unsafe fn read_bytes(held: &mut Held, address: u64, ours: u64, bytes: u64) -> bool {
    transfer(held, PROCESS_VM_READV, ours, address, bytes)
}

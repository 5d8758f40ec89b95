//! The environment that a program is started with.
//!
//! Unsafe invariant: it is read by the kernel (`peek`), into integers; who writes it vouches that it is the list.

use statcache_abi::ENV_FD;

#[cfg(not(feature = "heap"))]
use crate::raw::syscall;

/// A word or bytes of this process, read as far as they can be: what a C library passes to constructors is not the same for all.
#[cfg(not(feature = "heap"))]
fn peek<T: Copy + Default>(at: u64) -> Option<T> {
    const GETPID: u64 = 39;
    const PROCESS_VM_READV: u64 = 310;
    let mut value = T::default();
    // SAFETY: getpid(2) never fails.
    let own = unsafe { syscall(GETPID, [0; 6]) } as u64;
    let bytes = size_of::<T>() as u64;
    let local = [&raw mut value as u64, bytes];
    let remote = [at, bytes];
    let (local, remote) = (local.as_ptr() as u64, remote.as_ptr() as u64);
    let arguments = [own, local, 1, remote, 1, 0];
    // SAFETY: `value` is live and of that size; the kernel checks `at`.
    let moved = unsafe { syscall(PROCESS_VM_READV, arguments) };
    (moved == bytes as i64).then_some(value)
}

/// The same where only linkers are that pass the environment: no call has to be allowed by a filter that the program is under already.
#[cfg(feature = "heap")]
fn peek<T: Copy + Default>(at: u64) -> Option<T> {
    // SAFETY: the list, or one of its strings, not beyond its end.
    Some(unsafe { (at as *const T).read_unaligned() })
}

/// Place of the variable `name` in a list of strings as `execve` passes it, and its value.
pub(crate) fn variable(environment: u64, name: &str) -> Option<(u64, u64)> {
    const MOST: u64 = 1 << 16;
    for place in (0..MOST).map(|n| environment.wrapping_add(8 * n)) {
        let string = peek::<u64>(place).filter(|string| *string != 0)?;
        let mut at = string;
        let mut next = || {
            let byte = peek::<u8>(at);
            at += 1;
            byte
        };
        if name.bytes().all(|wanted| next() == Some(wanted)) && next() == Some(b'=') {
            return Some((place, at));
        }
    }
    None
}

/// The number that a string begins with, up to its end.
pub(crate) fn number(mut at: u64) -> Option<u64> {
    let mut value = 0u64;
    loop {
        match peek::<u8>(at)? {
            digit @ b'0'..=b'9' => value = value.wrapping_mul(10) + u64::from(digit - b'0'),
            0 => return Some(value),
            _ => return None,
        }
        at += 1;
    }
}

/// Takes the shim out of the environment: the variable with its descriptor, and the first of the preloaded objects.
///
/// # Safety
/// The list must be the process's own, at its start.
pub(crate) unsafe fn hide(environment: u64) {
    if let Some((place, _)) = variable(environment, ENV_FD) {
        // SAFETY: the caller's contract.
        unsafe { remove(place) };
    }
    let Some((place, value)) = variable(environment, "LD_PRELOAD") else {
        return;
    };
    let mut rest = value;
    loop {
        match peek::<u8>(rest) {
            None | Some(0) => {
                // SAFETY: the caller's contract.
                return unsafe { remove(place) };
            }
            Some(b':' | b' ') => break,
            Some(_) => rest += 1,
        }
    }
    let mut to = value as *mut u8;
    while let Some(byte) = peek::<u8>(rest + 1) {
        // SAFETY: in the string, before what is read.
        unsafe {
            to.write(byte);
            to = to.add(1);
        }
        rest += 1;
        if byte == 0 {
            return;
        }
    }
}

/// Takes the pointer at `place` out of a list that ends in null.
///
/// # Safety
/// The list must be writable from there to its end.
unsafe fn remove(place: u64) {
    let mut at = place as *mut u64;
    // SAFETY: the caller's contract.
    unsafe {
        while at.read() != 0 {
            at.write(at.add(1).read());
            at = at.add(1);
        }
    }
}

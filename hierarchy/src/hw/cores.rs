//! Which CPUs the process may use, and pinning to one.
//!
//! Unsafe invariant: the kernel is handed a live set and its size; a set is plain bits, for which
//! all zero is valid, and `libc` checks each index into it.

use crate::measure::MeasureError;
use std::mem;

fn get() -> Option<libc::cpu_set_t> {
    // SAFETY: an all-zero set is valid; the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        (libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) == 0).then_some(set)
    }
}

/// The calling thread's CPU mask.
pub fn current_mask() -> Option<libc::cpu_set_t> {
    get()
}

/// CPUs the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<usize> {
    let Some(set) = get() else { return Vec::new() };
    // SAFETY: CPU_ISSET reads within the set for indices below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&c| unsafe { libc::CPU_ISSET(c, &set) })
        .collect()
}

/// The CPU the calling thread runs on now.
pub fn running_on() -> Option<usize> {
    // SAFETY: the call reads no memory of ours.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// [`MeasureError::System`] when the kernel refuses, for instance because the cpuset has changed.
pub fn pin(cpu: usize) -> Result<(), MeasureError> {
    // SAFETY: the set is ours; CPU_SET writes inside it for cpu < CPU_SETSIZE, which allowed_cpus ensures.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), &set)
    };
    if rc == 0 {
        return Ok(());
    }
    Err(MeasureError::System {
        operation: "sched_setaffinity",
        cause: std::io::Error::last_os_error().to_string(),
    })
}

/// Puts a mask back; a mask the cpuset no longer allows is left alone.
pub fn restore(mask: &libc::cpu_set_t) {
    // SAFETY: mask is a valid set.
    unsafe { libc::sched_setaffinity(0, mem::size_of_val(mask), mask) };
}

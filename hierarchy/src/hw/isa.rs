//! What the process may execute: timer, CPUID, register encodings.

/// The time-stamp counter is not disabled for this process.
pub fn tsc_readable() -> bool {
    let mut mode: libc::c_int = libc::PR_TSC_ENABLE;
    // SAFETY: PR_GET_TSC writes one int. An error leaves the default: readable.
    unsafe { libc::prctl(libc::PR_GET_TSC, &mut mode) };
    mode == libc::PR_TSC_ENABLE
}

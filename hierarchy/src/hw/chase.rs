//! The inner loops: dependent loads, flushes, stores.
//!
//! Unsafe invariant: every pointer handed in comes from an [`super::arena::Arena`] whose chain was linked
//! before, so following it stays inside the mapping.

use std::arch::asm;

/// Follows the chain for `n` loads.
#[inline(never)]
pub fn walk(mut at: *mut u8, n: u64) -> *mut u8 {
    if n > 0 {
        // SAFETY: a linked chain's slots hold addresses of slots.
        unsafe {
            asm!("2:", "mov {p}, [{p}]", "dec {n}", "jnz 2b",
                p = inout(reg) at, n = inout(reg) n => _, options(readonly, nostack));
        }
    }
    at
}

/// Follows the chain for `warm` loads, then times `n` more; ticks, and where it ended.
///
/// One block, so that no stack access of ours falls between the two.
#[inline(never)]
pub fn timed_walk(mut at: *mut u8, warm: u64, n: u64) -> (f64, *mut u8) {
    let (start, end): (u64, u64);
    // SAFETY: as walk(); the timer reads change rax and rdx, both declared.
    unsafe {
        asm!(
            "test {w}, {w}", "jz 3f",
            "2:", "mov {p}, [{p}]", "dec {w}", "jnz 2b",
            "3:",
            "mfence", "lfence", "rdtsc", "lfence",
            "shl rdx, 32", "or rax, rdx", "mov {s}, rax",
            "4:", "mov {p}, [{p}]", "dec {n}", "jnz 4b",
            "lfence", "rdtsc", "lfence",
            "shl rdx, 32", "or rax, rdx",
            p = inout(reg) at, w = inout(reg) warm => _, n = inout(reg) n.max(1) => _,
            s = out(reg) start, out("rax") end, out("rdx") _,
            options(readonly, nostack)
        );
    }
    ((end - start) as f64, at)
}

/// Flushes lines from every cache and waits for it.
pub fn flush(lines: &[*mut u8]) {
    for &p in lines {
        // SAFETY: p lies in a live mapping; clflush is part of the x86-64 baseline.
        unsafe { asm!("clflush [{p}]", p = in(reg) p, options(nostack)) };
    }
    // SAFETY: fences touch nothing.
    unsafe { asm!("mfence", "lfence", options(nostack)) };
}

/// Flushes lines one after the other; ticks for all.
#[inline(never)]
pub fn timed_flush(lines: &[*mut u8]) -> f64 {
    let start = super::window::ticks();
    flush(lines);
    (super::window::ticks() - start) as f64
}

/// Plain 8-byte stores.
pub fn store(slots: &[*mut u8]) {
    for &p in slots {
        // SAFETY: p has 8 writable bytes in a live mapping.
        unsafe { p.cast::<u64>().write_volatile(1) };
    }
    // SAFETY: a fence touches nothing.
    unsafe { asm!("mfence", options(nostack)) };
}

/// Plain 8-byte stores; ticks for all, the last one's way to the cache included.
#[inline(never)]
pub fn timed_store(slots: &[*mut u8]) -> f64 {
    let start = super::window::ticks();
    store(slots);
    (super::window::ticks() - start) as f64
}

/// Non-temporal 8-byte stores.
pub fn store_nt(slots: &[*mut u8]) {
    for &p in slots {
        // SAFETY: p has 8 writable bytes in a live mapping.
        unsafe { asm!("movnti [{p}], {v}", p = in(reg) p, v = in(reg) 1u64, options(nostack)) };
    }
    // SAFETY: a fence touches nothing.
    unsafe { asm!("mfence", options(nostack)) };
}

/// Follows up to 16 chains at once for `steps` loads each; ticks for all.
#[inline(never)]
pub fn parallel_walk(heads: &[*mut u8], steps: u64) -> f64 {
    let mut at = [std::ptr::null_mut::<u8>(); 32];
    let n = heads.len().min(32);
    at[..n].copy_from_slice(&heads[..n]);
    let start = super::window::ticks();
    for _ in 0..steps {
        for p in &mut at[..n] {
            // SAFETY: linked chains only hold addresses of their own slots.
            *p = unsafe { p.cast::<*mut u8>().read_volatile() };
        }
    }
    std::hint::black_box(&at);
    (super::window::ticks() - start) as f64
}

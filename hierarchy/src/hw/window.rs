//! Timer, core clock and context-switch counter.
//!
//! The core clock is read as the time of a chain of 32-bit multiplications, 3 cycles each on every
//! x86-64 core since 2008 (Intel optimisation manual; Agner Fog, instruction tables) and not folded by
//! renaming, as additions are. Everything here leaves the measured buffers alone.
//!
//! Unsafe invariant: the assembly changes declared registers and flags, and no memory; the kernel
//! fills live locals of its own types.

use std::arch::asm;
use std::time::Instant;

const CYCLES_PER_MUL: f64 = 3.0;

/// The time-stamp counter between two fences.
#[inline(always)]
pub fn ticks() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: reads the counter; changes only rax and rdx.
    unsafe { asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high, options(nostack)) };
    high << 32 | low
}

/// Core cycles per tick, from `muls` dependent multiplications (a multiple of 8).
#[inline(never)]
pub fn clock(muls: u64) -> f64 {
    let start = ticks();
    multiply(16);
    let middle = ticks();
    multiply(16 + muls);
    let end = ticks();
    // The difference of the two stretches takes the timer's own cost off.
    let spent = (end - middle) as f64 - (middle - start) as f64;
    muls as f64 * CYCLES_PER_MUL / spent.max(1.0)
}

#[inline(always)]
fn multiply(n: u64) {
    // SAFETY: arithmetic on declared registers only; n >= 8.
    unsafe {
        asm!(
            "2:",
            "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}", "imul {x:e}, {x:e}",
            "dec {n}", "jnz 2b",
            x = inout(reg) 3u64 => _, n = inout(reg) n / 8 => _, options(nomem, nostack)
        );
    }
}

/// Multiplications per look at the clock: about 1 microsecond, and at least 80 timer steps.
pub fn clock_length(timer_step: f64) -> u64 {
    let short = 512u64;
    let spent = (0..20)
        .map(|_| {
            let start = ticks();
            multiply(short);
            ticks() - start
        })
        .min()
        .unwrap_or(1) as f64;
    let factor = (80.0 * timer_step / spent).max(1.5).ceil();
    (short as f64 * factor) as u64 / 8 * 8
}

/// The greatest step that all timer differences are multiples of, in ticks.
pub fn timer_step() -> f64 {
    let mut step = 0u64;
    let mut seed = 1u32;
    for _ in 0..4000 {
        let start = ticks();
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        multiply(16 + u64::from(seed >> 25));
        step = gcd(step, ticks() - start);
    }
    step.max(1) as f64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Nanoseconds per tick against the kernel's monotonic clock, over 10 ms.
pub fn ns_per_tick() -> f64 {
    let best = (0..2).map(|_| {
        let (a, wall) = (ticks(), Instant::now());
        while wall.elapsed().as_millis() < 5 {}
        let ns = wall.elapsed().as_nanos() as f64;
        ns / (ticks() - a) as f64
    });
    best.fold(f64::INFINITY, f64::min)
}

/// Busy-waits.
pub fn spin_ns(ns: u128) {
    let start = Instant::now();
    while start.elapsed().as_nanos() < ns {
        std::hint::spin_loop();
    }
}

/// Times this thread was switched away since it began.
pub fn switches() -> i64 {
    // SAFETY: an all-zero rusage is a valid value, and the call only writes to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw + usage.ru_nivcsw
    }
}

/// Nanoseconds of processor time this thread has had.
pub fn cpu_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: t is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

//! Which CPUs share a cache level with this one: both walk, and does it hurt?
//!
//! The other CPU walks its own memory in a helper thread while this one walks three quarters of the level.
//! With and without alternate, so that unrelated load hits both alike.

use super::{Host, cores, window};
use crate::measure::{Buffer, MeasureError};
use crate::probe;
use crate::raw::Corun;
use crate::rng::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Measures pairs against one other CPU.
///
/// # Errors
/// What pinning or the chase report.
pub fn corun(
    host: &mut Host,
    cpu: usize,
    level: u32,
    bytes: u64,
    pairs: u32,
) -> Result<Corun, MeasureError> {
    let mut rng = Rng::new(u64::from(level));
    let mut ring: Vec<u64> = (0..bytes * 3 / 4 / 64).map(|i| i * 64).collect();
    rng.shuffle(&mut ring);
    host.arena(Buffer::Small)?;
    let mut out = Corun {
        cpu,
        level,
        bytes: bytes * 3 / 4,
        pairs: Vec::new(),
    };
    let windows = if bytes > 1 << 20 { 6 } else { 10 };
    for _ in 0..pairs {
        let alone = probe::circle(host, &ring, windows)?;
        let stop = AtomicBool::new(false);
        let together = thread::scope(|scope| {
            let walk = || {
                let pinned = cores::pin(cpu).is_ok();
                // A whole level's worth, so that half of it belongs to the other side if it is shared.
                let mut memory = vec![1u8; bytes as usize];
                let mut sum = 0u64;
                while pinned && !stop.load(Ordering::Relaxed) {
                    for line in memory.chunks_mut(64) {
                        sum = sum.wrapping_add(u64::from(line[0]));
                        line[0] = sum as u8;
                    }
                }
                std::hint::black_box(sum);
                pinned
            };
            let aggressor = thread::Builder::new()
                .spawn_scoped(scope, walk)
                .map_err(|error| MeasureError::System {
                    operation: "making a thread",
                    cause: error.to_string(),
                })?;
            window::spin_ns(1_500_000);
            let r = probe::circle(host, &ring, windows);
            stop.store(true, Ordering::Relaxed);
            let pinned = aggressor.join().unwrap_or(false);
            r.map(|t| pinned.then_some(t))
        })?;
        if let Some(together) = together
            && alone.is_finite()
            && together.is_finite()
        {
            out.pairs.push((alone, together));
        }
    }
    Ok(out)
}

/// The CPUs other than the measuring one that may be used.
pub fn others(host: &Host) -> Vec<usize> {
    host.allowed
        .iter()
        .copied()
        .filter(|&c| c != host.cpu())
        .collect()
}

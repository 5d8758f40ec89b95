//! Performance counters as a cross-check, where the host has them: misses per load inside and beyond a level.
//!
//! Nothing is inferred from them. Virtual machines and containers seldom have them; then the reason is told.
//! Source: perf_event_open(2), `PERF_TYPE_HW_CACHE`; the comparison inside and beyond is AMP's
//! (Coleman & Davidson 2001).

use super::{Host, chase};
use crate::measure::{Buffer, MeasureError};
use crate::probe::PAGE;
use crate::raw::Counted;
use crate::rng::Rng;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult};
use perf_event::{Builder, Counter};

const LOADS: u64 = 50_000;

fn open(which: CacheId) -> Result<Counter, MeasureError> {
    let event = Cache {
        which,
        operation: CacheOp::READ,
        result: CacheResult::MISS,
    };
    Builder::new(event)
        .exclude_kernel(true)
        .exclude_hv(true)
        .build()
        .map_err(|e| {
            MeasureError::Unsupported(format!(
                "no counters for a cross-check: perf_event_open: {e}"
            ))
        })
}

/// Misses per load of a walk over a ring.
fn misses(host: &mut Host, counter: &mut Counter, ring: &[u64]) -> Result<f64, MeasureError> {
    let system = |operation: &'static str| {
        move |e: std::io::Error| MeasureError::System {
            operation,
            cause: e.to_string(),
        }
    };
    let head = host.arena(Buffer::Small)?.link_circle(ring)?;
    let head = chase::walk(head, 3 * ring.len() as u64);
    counter.reset().map_err(system("perf_event reset"))?;
    counter.enable().map_err(system("perf_event enable"))?;
    chase::walk(head, LOADS);
    counter.disable().map_err(system("perf_event disable"))?;
    let n = counter.read().map_err(system("perf_event read"))?;
    Ok(n as f64 / LOADS as f64)
}

/// Counts misses of the first level at three quarters and at twice its capacity, and of the first translation
/// level at three quarters and at twice its entries.
///
/// # Errors
/// [`MeasureError::Unsupported`] without counters.
pub fn check(
    host: &mut Host,
    l1_bytes: Option<u64>,
    entries: Option<u64>,
) -> Result<Vec<Counted>, MeasureError> {
    let mut rng = Rng::new(5);
    let mut out = Vec::new();
    let mut ring = |n: u64, apart: u64| {
        let mut r: Vec<u64> = (0..n)
            .map(|i| {
                i * apart
                    + if apart >= PAGE {
                        (i + i / 64) * 64 % PAGE
                    } else {
                        0
                    }
            })
            .collect();
        rng.shuffle(&mut r);
        r
    };
    for (what, which, count, apart) in [
        ("L1d", CacheId::L1D, l1_bytes.map(|b| b / 64), 64),
        ("DTLB1", CacheId::DTLB, entries, PAGE),
    ] {
        let mut counter = open(which)?;
        let Some(n) = count else { continue };
        out.push(Counted {
            what: what.into(),
            inside: misses(host, &mut counter, &ring(n * 3 / 4, apart))?,
            beyond: misses(host, &mut counter, &ring(n * 2, apart))?,
        });
    }
    Ok(out)
}

//! Where the threads of a process are natively: samples of their instruction pointers by the kernel's task clock.
//!
//! They take no stop, as a thread that is stopped inside the kernel may come back from a system call with less than it would
//! have got alone. Where the kernel does not let us have them, in many containers, there are none.
//!
//! Source: perf_event_open(2), `PERF_COUNT_SW_TASK_CLOCK`.

use nix::unistd::Pid;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Samples between two windows that are aimed at, and the shortest time between two: one takes about a microsecond.
const PER_GAP: f64 = 16.0;
const LEAST_S: f64 = 0.001;
/// Bytes of a thread's samples that are kept for us, a power of two of pages: 16 each.
const RING: usize = 4 << 12;
/// Threads of a process that are sampled, or none of them is, and of all processes: each takes a descriptor.
const MOST_THREADS: usize = 16;
const MOST: usize = 200;

/// Samplers of all processes.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The sampled threads of a process.
#[derive(Default)]
pub struct Whereabouts {
    threads: BTreeMap<i32, Sampled>,
    period_s: f64,
    /// The kernel refuses.
    closed: bool,
}

struct Sampled(Sampler);

impl Drop for Sampled {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Whereabouts {
    /// Samples these threads from now on, windows being `gap_s` apart on the mean. What there was is forgotten.
    pub fn follow(&mut self, threads: &[Pid], gap_s: f64) {
        let _ = self.take();
        if self.closed || threads.len() > MOST_THREADS {
            self.threads.clear();
            return;
        }
        let period_s = (gap_s / PER_GAP).max(LEAST_S);
        if period_s > 2.0 * self.period_s {
            self.threads.clear();
            self.period_s = period_s;
        }
        self.threads
            .retain(|tid, _| threads.contains(&Pid::from_raw(*tid)));
        for tid in threads {
            if !self.threads.contains_key(&tid.as_raw()) && OPEN.load(Ordering::Relaxed) < MOST {
                match sampler(*tid, self.period_s) {
                    Ok(sampler) => {
                        OPEN.fetch_add(1, Ordering::Relaxed);
                        self.threads.insert(tid.as_raw(), Sampled(sampler));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "no samples of the task clock");
                        // A thread that is gone says nothing of others.
                        self.closed |= error.raw_os_error() != Some(libc::ESRCH);
                    }
                }
            }
        }
    }

    /// The instruction pointers sampled since last asked, of each thread in their order.
    pub fn take(&mut self) -> Vec<Vec<u64>> {
        let mut all = Vec::new();
        for Sampled(sampler) in self.threads.values_mut() {
            let mut ips = Vec::new();
            while let Some(record) = sampler.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record() {
                    ips.extend(sample.ip());
                }
            }
            all.push(ips);
        }
        all
    }
}

fn sampler(tid: Pid, period_s: f64) -> std::io::Result<Sampler> {
    let counter = Builder::new(Software::TASK_CLOCK)
        .observe_pid(tid.as_raw())
        .any_cpu()
        .exclude_kernel(true)
        .exclude_hv(true)
        .sample_period((period_s * 1e9) as u64)
        .sample(SampleFlag::IP)
        .wakeup_watermark(RING)
        .enabled(true)
        .build()?;
    counter.sampled(RING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_is_where_it_spends_its_time() {
        let mut whereabouts = Whereabouts::default();
        let own = nix::unistd::gettid();
        whereabouts.follow(&[own], 0.0);
        if whereabouts.closed {
            println!("SKIP a_thread_is_where_it_spends_its_time: the kernel gives no samples");
            return;
        }
        let begun = Instant::now();
        let mut ips = Vec::new();
        while ips.len() < 20 && begun.elapsed() < Duration::from_secs(20) {
            std::hint::black_box((0..10_000u64).fold(1, |a, b| (a * 31) ^ std::hint::black_box(b)));
            ips.extend(whereabouts.take().into_iter().flatten());
        }
        assert!(ips.len() >= 20, "{}", ips.len());
        // In user mode.
        assert!(ips.iter().all(|&ip| ip >> 47 == 0), "{ips:x?}");
        // Nothing of a thread that is left alone.
        whereabouts.follow(&[], 0.0);
        assert!(whereabouts.take().is_empty());
    }
}

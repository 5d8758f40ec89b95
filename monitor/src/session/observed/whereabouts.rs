//! Where the threads of a process are natively: samples of their instruction pointers by the kernel's task clock.
//!
//! They take no stop, as a thread that is stopped inside the kernel may come back from a system call with less than it would
//! have got alone. Where the kernel does not let us have them, in many containers, there are none. A thread may execute another
//! program between two times that we ask: the kernel puts that into the same ring, in order, so each sample's image is known.
//!
//! Source: perf_event_open(2), `PERF_COUNT_SW_TASK_CLOCK`.

use nix::unistd::Pid;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Samples between two windows that are aimed at, and the shortest time between two. (In a virtual machine one takes 12 to 30
/// us, so that a thousand a second took 1.2 to 3 % of a program's time.)
const PER_GAP: f64 = 64.0;
const LEAST_S: f64 = 0.002;
/// Samples of a short gap, where the shortest time would leave fewer.
const FEWEST_PER_GAP: f64 = 6.0;
/// Bytes of a thread's samples that are kept for us, a power of two of pages: 16 each.
const RING: usize = 4 << 12;
/// Threads of a process that are sampled, or none of them is, and of all processes: each takes a descriptor.
const MOST_THREADS: usize = 16;
const MOST: usize = 200;

/// In the `misc` of a record that a task has another name: because it has executed a program (`PERF_RECORD_MISC_COMM_EXEC`).
const BY_EXEC: u16 = 1 << 13;

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

/// Where a thread was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its instruction, and the program image it is of, as the hub counts them.
    pub ip: u64,
    pub image: u32,
}

struct Sampled {
    sampler: Sampler,
    /// The thread's program image as of the last record read.
    image: u32,
    /// What has been read and not taken.
    read: Vec<Place>,
}

impl Sampled {
    /// Reads what there is. Returns how much had been read before.
    fn read(&mut self) -> usize {
        let before = self.read.len();
        let places = &mut self.read;
        while let Some(record) = self.sampler.next_record() {
            let by_exec = record.misc() & BY_EXEC != 0;
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    let image = self.image;
                    places.extend(sample.ip().map(|ip| Place { ip, image }));
                }
                Ok(Record::Comm(_)) if by_exec => self.image += 1,
                _ => {}
            }
        }
        before
    }
}

impl Drop for Sampled {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Whereabouts {
    /// Samples these threads of program image `image` from now on, windows being `gap_s` apart on the mean. What there was is
    /// forgotten.
    pub fn follow(&mut self, threads: &[Pid], image: u32, gap_s: f64) {
        let _ = self.take();
        if self.closed || threads.len() > MOST_THREADS {
            self.threads.clear();
            return;
        }
        let least_s = LEAST_S.min(gap_s / FEWEST_PER_GAP).max(LEAST_S / 2.0);
        let period_s = (gap_s / PER_GAP).max(least_s);
        if period_s > 2.0 * self.period_s {
            self.threads.clear();
            self.period_s = period_s;
        }
        // One of another image is of a thread that is gone, whose id went to the one that executed a program; or its ring was full
        // when that happened.
        self.threads.retain(|tid, sampled| {
            threads.contains(&Pid::from_raw(*tid)) && sampled.image == image
        });
        for tid in threads {
            if !self.threads.contains_key(&tid.as_raw()) && OPEN.load(Ordering::Relaxed) < MOST {
                match sampler(*tid, self.period_s) {
                    Ok(sampler) => {
                        OPEN.fetch_add(1, Ordering::Relaxed);
                        self.threads.insert(
                            tid.as_raw(),
                            Sampled {
                                sampler,
                                image,
                                read: Vec::new(),
                            },
                        );
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

    /// Where threads were since last asked, of each thread in order.
    pub fn take(&mut self) -> Vec<Vec<Place>> {
        let take = |sampled: &mut Sampled| {
            sampled.read();
            std::mem::take(&mut sampled.read)
        };
        self.threads.values_mut().map(take).collect()
    }

    /// Where threads were since this was last asked, or all was taken; it is still to be taken.
    pub fn news(&mut self) -> Vec<Place> {
        let news = |sampled: &mut Sampled| {
            let before = sampled.read();
            sampled.read[before..].to_vec()
        };
        self.threads.values_mut().flat_map(news).collect()
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
        .comm(true)
        .comm_exec(true)
        .wakeup_watermark(RING)
        .enabled(true)
        .build()?;
    counter.sampled(RING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::maps::{Backing, Mapping, Maps};
    use std::ops::Range;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_is_where_it_spends_its_time() {
        let mut whereabouts = Whereabouts::default();
        let own = nix::unistd::gettid();
        whereabouts.follow(&[own], 0, 0.0);
        if whereabouts.closed {
            println!("SKIP a_thread_is_where_it_spends_its_time: the kernel gives no samples");
            return;
        }
        let begun = Instant::now();
        let mut ips = Vec::new();
        while ips.len() < 20 && begun.elapsed() < Duration::from_secs(20) {
            std::hint::black_box(
                (0..10_000u64).fold(1, |a: u64, b| a.wrapping_mul(31) ^ std::hint::black_box(b)),
            );
            ips.extend(whereabouts.take().into_iter().flatten());
        }
        assert!(ips.len() >= 20, "{}", ips.len());
        // In user mode.
        assert!(ips.iter().all(|place| place.ip >> 47 == 0), "{ips:x?}");
        // Nothing of a thread that is left alone.
        whereabouts.follow(&[], 0, 0.0);
        assert!(whereabouts.take().is_empty());
    }

    /// A shell that works, executes another and works on. The kernel puts either at an address of its own.
    #[test]
    fn what_was_before_another_program_is_of_the_image_before() {
        const TEST: &str = "what_was_before_another_program_is_of_the_image_before";
        const WORKS: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        const FIRST: u32 = 3;
        // Not before it is followed.
        let script =
            format!("read line; {WORKS}; exec sh -c '{WORKS}; {WORKS}; while :; do :; done'");
        let mut command = Command::new("sh");
        let command = command.args(["-c", &script]).stdin(Stdio::piped());
        let mut shell = Killed(command.spawn().unwrap());
        let pid = shell.0.id() as i32;
        // Where the shell itself is, once it is mapped whole: its segments one after the other, what may be written last.
        let program = || {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
            let maps = Maps::read(Pid::from_raw(pid)).ok()?;
            let own =
                |m: &&Mapping| matches!(&m.path, Backing::File(path) if exe == Path::new(path));
            let own: Vec<&Mapping> = maps.0.iter().filter(own).collect();
            let whole = own.iter().any(|m| m.exec) && own.iter().any(|m| m.write);
            let starts = own.iter().map(|m| m.start);
            let ends = own.iter().map(|m| m.end);
            whole.then_some(starts.min()?..ends.max()?)
        };
        let begun = Instant::now();
        let before = loop {
            assert!(begun.elapsed() < Duration::from_secs(60));
            if let Some(before) = program() {
                break before;
            }
        };
        let mut whereabouts = Whereabouts::default();
        whereabouts.follow(&[Pid::from_raw(pid)], FIRST, 0.0);
        if whereabouts.closed {
            println!("SKIP {TEST}: the kernel gives no samples");
            return;
        }
        drop(shell.0.stdin.take());
        let mut places = Vec::new();
        let of = |places: &[Place], image| places.iter().filter(|p| p.image == image).count();
        while of(&places, FIRST + 1) < 20 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{}",
                places.len()
            );
            assert_eq!(shell.0.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(5));
            places.extend(whereabouts.take().into_iter().flatten());
        }
        let after = program().unwrap();
        if before.start < after.end && after.start < before.end {
            println!("SKIP {TEST}: both shells are at the same address");
            return;
        }
        let inside = |range: &Range<u64>, image| {
            let there = places.iter().filter(|p| range.contains(&p.ip));
            let (right, wrong): (Vec<&Place>, Vec<&Place>) = there.partition(|p| p.image == image);
            let counts = (right.len(), wrong.len());
            assert!(
                counts.0 > 0 && counts.1 == 0,
                "{image} {range:x?}: {counts:?}"
            );
        };
        inside(&before, FIRST);
        inside(&after, FIRST + 1);
        // Still the same thread: its sampler goes on, of the image it is of now.
        whereabouts.follow(&[Pid::from_raw(pid)], FIRST + 1, 0.0);
        let mut more = Vec::new();
        while more.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
            more.extend(whereabouts.take().into_iter().flatten());
        }
        assert_eq!(of(&more, FIRST + 1), more.len());
    }

    /// A child process that does not outlive its test.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

//! The real host: an x86-64 machine timed from an ordinary process.
//!
//! The measuring thread is pinned to one CPU. Every window is bracketed by a chain of multiplications
//! (the core clock, seen from inside) and checked for context switches; the buffers are ordinary memory.
//! It does not interpret what it times.
//!
//! Unsafe invariants of this folder: a buffer's mapping lives as long as its owner, offsets are checked
//! against its size before they become pointers, generated code touches only the registers it declares.

pub mod arena;
pub mod chase;
pub mod code;
pub mod cores;
pub mod counters;
pub mod isa;
pub mod share;
pub mod window;

use crate::measure::{Buffer, Chase, CodeChase, Facts, Measure, MeasureError, Window};
use arena::Arena;
use std::time::Instant;

/// The host, ready to be measured from one pinned thread.
pub struct Host {
    facts: Facts,
    started: Instant,
    small: Option<Arena>,
    huge: Option<Arena>,
    code: Option<code::CodeBuffer>,
    /// Ticks that an empty timed stretch costs, by its number of loads.
    overhead: Vec<(u64, f64)>,
    /// Multiplications per look at the clock.
    clock_len: u64,
    switches: i64,
    cpu: usize,
    allowed: Vec<usize>,
    previous: Option<libc::cpu_set_t>,
    /// Times that the thread was found on another CPU: (from, to).
    moves: Vec<(usize, usize)>,
}

impl Host {
    /// Pins the calling thread to the last allowed CPU and calibrates the timer.
    ///
    /// # Errors
    /// [`MeasureError::System`] when the thread cannot be pinned, [`MeasureError::Unsupported`] when the
    /// time-stamp counter cannot be read.
    pub fn open() -> Result<Self, MeasureError> {
        if !isa::tsc_readable() {
            return Err(MeasureError::Unsupported(
                "the time-stamp counter is disabled for this process (prctl PR_SET_TSC)".into(),
            ));
        }
        let allowed = cores::allowed_cpus();
        let cpu = *allowed.last().ok_or(MeasureError::System {
            operation: "sched_getaffinity",
            cause: "no CPU is allowed".into(),
        })?;
        let previous = cores::current_mask();
        cores::pin(cpu)?;
        // The chosen CPU needs a while at full clock before the calibration means anything.
        window::spin_ns(3_000_000);
        let timer_step = window::timer_step();
        let ns_per_tick = window::ns_per_tick();
        let clock_len = window::clock_length(timer_step);
        let mut host = Host {
            facts: Facts {
                ns_per_tick,
                timer_step,
                clock: 0.0,
                page_bytes: arena::page_bytes(),
                memory_bytes: arena::memory_limit(),
                can_flush: true,
            },
            started: Instant::now(),
            small: None,
            huge: None,
            code: None,
            overhead: Vec::new(),
            clock_len,
            switches: window::switches(),
            cpu,
            allowed,
            previous,
            moves: Vec::new(),
        };
        let mut clocks: Vec<f64> = (0..31).map(|_| window::clock(clock_len)).collect();
        clocks.sort_by(f64::total_cmp);
        host.facts.clock = clocks[15];
        host.calibrate()?;
        Ok(host)
    }

    /// The CPU the measuring thread is pinned to.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Times that the thread was taken to another CPU, from and to: the allowed CPUs changed.
    pub fn moves(&self) -> &[(usize, usize)] {
        &self.moves
    }

    /// Notices that the thread was moved and holds on to a CPU again: the old one, or else where it is now.
    fn stay(&mut self) -> bool {
        let Some(now) = cores::running_on().filter(|c| *c != self.cpu) else {
            return false;
        };
        self.moves.push((self.cpu, now));
        if cores::pin(self.cpu).is_err() {
            self.cpu = now;
            // Refused as well: then the next window will tell where the thread is.
            let _ = cores::pin(now);
        }
        true
    }

    /// Kilobytes the kernel backs with huge pages in the buffer that asked for them.
    pub fn huge_kib(&self) -> Option<u64> {
        self.huge.as_ref().and_then(Arena::huge_kib)
    }

    /// Cost of an empty stretch for several lengths: the time of n first-level hits less n times the slope.
    ///
    /// Short loops are predicted to their end and long ones are not, so one figure would not do.
    fn calibrate(&mut self) -> Result<(), MeasureError> {
        const LENGTHS: [u64; 6] = [4, 8, 16, 32, 64, 128];
        let arena = self.arena(Buffer::Small)?;
        let ring: Vec<u64> = (0..8).map(|i| i * 64).collect();
        let head = arena.link_circle(&ring)?;
        let mut best = [f64::INFINITY; LENGTHS.len()];
        for _ in 0..300 {
            for (b, n) in best.iter_mut().zip(LENGTHS) {
                *b = b.min(chase::timed_walk(head, 64, n).0);
            }
        }
        let slope = (best[5] - best[4]) / 64.0;
        self.overhead = LENGTHS
            .iter()
            .zip(best)
            .map(|(n, b)| (*n, (b - slope * *n as f64).max(0.0)))
            .collect();
        Ok(())
    }

    /// The code buffer, taken out so that windows can be timed while it is borrowed; the caller puts it back.
    fn code_buffer(&mut self) -> Result<code::CodeBuffer, MeasureError> {
        match self.code.take() {
            Some(buffer) => Ok(buffer),
            None => code::CodeBuffer::map(),
        }
    }

    fn overhead(&self, events: u64) -> f64 {
        let longer = self
            .overhead
            .iter()
            .find(|o| o.0 >= events)
            .or(self.overhead.last());
        longer.map_or(0.0, |o| o.1)
    }

    fn arena(&mut self, which: Buffer) -> Result<&mut Arena, MeasureError> {
        let bytes = self.facts.memory_bytes;
        let slot = match which {
            Buffer::Small => &mut self.small,
            Buffer::Huge => &mut self.huge,
        };
        match slot {
            Some(arena) => Ok(arena),
            None => {
                let bytes = if which == Buffer::Huge {
                    bytes.min(64 << 20)
                } else {
                    bytes
                };
                Ok(slot.insert(Arena::map(bytes, which == Buffer::Huge)?))
            }
        }
    }

    /// Runs `timed` between two looks at the clock and one at the switch counter.
    fn window(&mut self, events: u64, timed: impl FnOnce() -> f64) -> Window {
        let before = window::clock(self.clock_len);
        let ticks = timed();
        let after = window::clock(self.clock_len);
        let switches = window::switches();
        let moved = self.stay();
        let switched = moved || switches != self.switches;
        self.switches = switches;
        Window {
            ticks: (ticks - self.overhead(events)).max(0.0),
            events: events as u32,
            clock: (before as f32, after as f32),
            switched,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mask) = &self.previous {
            cores::restore(mask);
        }
    }
}

impl Measure for Host {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn cpu_ns(&self) -> u64 {
        window::cpu_ns()
    }

    fn chase(&mut self, c: &Chase<'_>) -> Result<Vec<Window>, MeasureError> {
        if c.timed.is_empty() {
            return Ok(Vec::new());
        }
        let arena = self.arena(c.buffer)?;
        let line_mode = !(c.prep.is_empty()
            && c.flush.is_empty()
            && c.stores.is_empty()
            && c.nt_stores.is_empty());
        let mut out = Vec::with_capacity(c.windows as usize);
        if !line_mode {
            let mut at = arena.link_circle(c.timed)?;
            at = chase::walk(at, c.warm);
            // The clock and the switch check disturb a small working set; without true LRU it takes some laps
            // until the strangers are out again.
            let lap = c.timed.len() as u64;
            let again = match lap {
                0..=1024 => 4 * lap,
                1025..=8192 => lap,
                _ => 64,
            };
            for _ in 0..c.windows {
                let w = self.window(c.loads, || {
                    let (ticks, end) = chase::timed_walk(at, again, c.loads);
                    at = end;
                    ticks
                });
                out.push(w);
            }
            return Ok(out);
        }
        let head = arena.link_line(c.prep, c.timed)?;
        let (flush, stores, nt) = (
            arena.pointers(c.flush)?,
            arena.pointers(c.stores)?,
            arena.pointers(c.nt_stores)?,
        );
        for _ in 0..c.windows {
            let w = self.window(c.timed.len() as u64, || {
                chase::flush(&flush);
                let at = if stores.is_empty() && nt.is_empty() {
                    return chase::timed_walk(head, c.prep.len() as u64, c.timed.len() as u64).0;
                } else {
                    chase::walk(head, c.prep.len() as u64)
                };
                chase::store(&stores);
                chase::store_nt(&nt);
                window::spin_ns(2_000);
                chase::timed_walk(at, 0, c.timed.len() as u64).0
            });
            out.push(w);
        }
        Ok(out)
    }

    fn code(&mut self, c: &CodeChase<'_>) -> Result<Vec<Window>, MeasureError> {
        let mut buffer = self.code_buffer()?;
        let result = buffer.prepare(c).map(|mut run| {
            (0..c.windows)
                .map(|_| self.window(run.events(), || run.time()))
                .collect()
        });
        self.code = Some(buffer);
        result
    }

    fn after_code(
        &mut self,
        lines: &[u64],
        c: &CodeChase<'_>,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        let head = self.arena(Buffer::Small)?.link_circle(lines)?;
        let n = lines.len() as u64;
        let mut buffer = self.code_buffer()?;
        let result = buffer.prepare(c).map(|mut run| {
            (0..windows)
                .map(|_| {
                    self.window(n, || {
                        chase::walk(head, 3 * n);
                        run.time();
                        chase::timed_walk(head, 0, n).0
                    })
                })
                .collect()
        });
        self.code = Some(buffer);
        result
    }

    fn straight(
        &mut self,
        bytes: u64,
        length: u64,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        let mut buffer = self.code_buffer()?;
        let result = buffer.prepare_straight(bytes, length).map(|mut run| {
            (0..windows)
                .map(|_| self.window(run.events(), || run.time()))
                .collect()
        });
        self.code = Some(buffer);
        result
    }

    fn stores(&mut self, lines: &[u64], windows: u32) -> Result<Vec<Window>, MeasureError> {
        const LAPS: usize = 40;
        let arena = self.arena(Buffer::Small)?;
        let head = arena.link_circle(lines)?;
        let n = lines.len() as u64;
        let slots: Vec<u64> = lines.iter().map(|l| l + 8).collect();
        let slots = arena.pointers(&slots)?.repeat(LAPS);
        Ok((0..windows)
            .map(|_| {
                self.window(slots.len() as u64, || {
                    chase::walk(head, 2 * n);
                    chase::timed_store(&slots)
                })
            })
            .collect())
    }

    fn flush(
        &mut self,
        lines: &[u64],
        dirty: bool,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        let arena = self.arena(Buffer::Small)?;
        let head = arena.link_circle(lines)?;
        let n = lines.len() as u64;
        let starts = arena.pointers(lines)?;
        let slots: Vec<u64> = lines.iter().map(|l| l + 8).collect();
        let slots = arena.pointers(&slots)?;
        Ok((0..windows)
            .map(|_| {
                self.window(n, || {
                    chase::walk(head, 2 * n);
                    if dirty {
                        chase::store(&slots);
                    }
                    window::spin_ns(2_000);
                    chase::timed_flush(&starts)
                })
            })
            .collect())
    }

    fn parallel(
        &mut self,
        lines: &[u64],
        chains: usize,
        windows: u32,
    ) -> Result<Vec<Window>, MeasureError> {
        let arena = self.arena(Buffer::Small)?;
        let heads = arena.link_parallel(lines, chains)?;
        let flush = arena.pointers(lines)?;
        let steps = (lines.len() / chains) as u64;
        Ok((0..windows)
            .map(|_| {
                self.window(steps * chains as u64, || {
                    chase::flush(&flush);
                    chase::parallel_walk(&heads, steps)
                })
            })
            .collect())
    }
}

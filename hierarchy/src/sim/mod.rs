//! A simulated host: caches, translation buffers, prefetchers and a noisy world, behind [`Measure`].
//!
//! It exists so that inference can be tested blind on machines whose truth is known. It counts latencies,
//! not instructions; there is no overlap between loads, as in a pointer chase.

pub mod cache;
pub mod grid;
pub mod judge;
pub mod random;
mod translate;

use crate::measure::{Buffer, Chase, CodeChase, Facts, Measure, MeasureError, Window};
use crate::rng::Rng;
use cache::{Cache, Inclusion, Shape};
use serde::{Deserialize, Serialize};
use translate::Translations;

/// A translation buffer: fully associative when `ways` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tlb {
    /// Number of translations held.
    pub entries: u64,
    /// Associativity, 0 for full.
    pub ways: u32,
    /// Cycles that a miss here adds.
    pub miss_cycles: f64,
}

/// Prefetchers of the simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Prefetch {
    /// A second-level fill brings the other half of its 128-byte pair.
    pub pair: bool,
    /// Two equal strides in a row fetch the next line of the stream into the first level.
    pub stride: bool,
}

/// The world around the machine. Times in nanoseconds of simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Mean time between bursts; a burst lasts a twentieth of it. 0 for none.
    pub burst_every: f64,
    /// Mean time between context switches; 0 for none.
    pub switch_every: f64,
    /// Share of the switches that the guest cannot see.
    pub hidden_switches: f64,
    /// Core clock wanders within this share.
    pub drift: f64,
    /// Timer step in ticks.
    pub timer_step: f64,
}

/// The truth about a simulated machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Data cache levels from the core outwards.
    pub levels: Vec<Shape>,
    /// Memory latency in cycles.
    pub memory: f64,
    /// First- and second-level data translation buffers.
    pub tlbs: Vec<Tlb>,
    /// A store that misses brings the line in.
    pub write_allocate: bool,
    /// Stored lines stay until they are thrown out; otherwise every store goes through to memory.
    pub write_back: bool,
    /// The first-level instruction cache.
    pub code: Shape,
    /// Prefetchers.
    pub prefetch: Prefetch,
    /// Noise.
    pub noise: Noise,
    /// Seed of the page mapping and of everything random.
    pub seed: u64,
}

/// A machine built from a [`Truth`].
pub struct Machine {
    truth: Truth,
    facts: Facts,
    caches: Vec<Cache>,
    code: Cache,
    tlbs: Vec<Translations>,
    rng: Rng,
    /// Physical frame by page for each buffer, 0 where none was given yet.
    frames: [Vec<u64>; 2],
    cycles: f64,
    now: f64,
    next_burst: f64,
    next_switch: f64,
    switched: bool,
    clock: f64,
    /// Nanoseconds per cycle.
    period: f64,
    last: (u64, i64),
}

const GHZ: f64 = 3.0;
const TICKS_PER_NS: f64 = 2.0;

impl Machine {
    /// Builds the machine.
    pub fn new(truth: Truth) -> Self {
        let mut rng = Rng::new(truth.seed);
        let caches = truth.levels.iter().map(|&s| Cache::new(s)).collect();
        let tlbs = truth.tlbs.iter().map(|&t| Translations::new(t)).collect();
        let facts = Facts {
            ns_per_tick: 1.0 / TICKS_PER_NS,
            timer_step: truth.noise.timer_step,
            clock: GHZ / TICKS_PER_NS,
            page_bytes: 4096,
            memory_bytes: 256 << 20,
            can_flush: true,
        };
        let mut machine = Machine {
            code: Cache::new(truth.code),
            facts,
            caches,
            tlbs,
            frames: [Vec::new(), Vec::new()],
            cycles: 0.0,
            now: 0.0,
            next_burst: f64::INFINITY,
            next_switch: f64::INFINITY,
            switched: false,
            clock: GHZ,
            period: GHZ.recip(),
            last: (0, 0),
            rng: rng.clone(),
            truth,
        };
        if machine.truth.noise.burst_every > 0.0 {
            machine.next_burst = rng.unit() * machine.truth.noise.burst_every;
        }
        if machine.truth.noise.switch_every > 0.0 {
            machine.next_switch = rng.unit() * machine.truth.noise.switch_every;
        }
        machine
    }

    /// The same machine with a limit on the memory it gives out, bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.facts.memory_bytes = bytes;
        self
    }

    /// The truth, for judging answers.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    fn physical(&mut self, buffer: Buffer, at: u64) -> u64 {
        let frames = &mut self.frames[usize::from(buffer == Buffer::Huge)];
        let page = (at >> 12) as usize;
        if page >= frames.len() {
            frames.resize(page + 1, 0);
        }
        if frames[page] == 0 {
            frames[page] = 1 + self.rng.below(1 << 24);
        }
        frames[page] << 12 | at & 4095
    }

    /// Physical page behind a page of the ordinary buffer, for tests that judge what was taken for congruent.
    pub fn frame(&mut self, page: u64) -> u64 {
        self.physical(Buffer::Small, page << 12) >> 12
    }

    fn spend(&mut self, cycles: f64) {
        self.cycles += cycles;
        self.now += cycles * self.period;
    }

    /// One load; the first level is indexed by virtual address, the others by physical.
    fn load(&mut self, buffer: Buffer, at: u64) {
        let mut cost = 0.0;
        for i in 0..self.tlbs.len() {
            // The huge buffer's pages follow the other's.
            let page =
                (at >> 12) + (self.facts.memory_bytes >> 12) * u64::from(buffer == Buffer::Huge);
            if self.tlbs[i].touch(page) {
                break;
            }
            cost += self.truth.tlbs[i].miss_cycles;
        }
        let physical = self.physical(buffer, at);
        let hit = self.access(at, physical);
        cost += hit;
        if self.truth.prefetch.stride {
            let stride = at as i64 - self.last.0 as i64;
            if stride == self.last.1 && stride != 0 && stride.abs() <= 2048 {
                let ahead = at.wrapping_add_signed(stride);
                if ahead >> 12 == at >> 12 {
                    let p = self.physical(buffer, ahead);
                    self.access(ahead, p);
                }
            }
            self.last = (at, stride);
        }
        self.disturb();
        self.spend(cost);
    }

    fn key(&self, level: usize, virt: u64, phys: u64) -> u64 {
        if level == 0 { virt } else { phys }
    }

    fn access(&mut self, virt: u64, phys: u64) -> f64 {
        let hit = (0..self.caches.len()).find(|&k| {
            let key = if k == 0 { virt } else { phys };
            self.caches[k].lookup(key)
        });
        let depth = hit.unwrap_or(self.caches.len());
        if let Some(k) = hit
            && k > 0
            && self.caches[k].shape.inclusion == Inclusion::Victim
        {
            self.caches[k].drop_line(phys);
        }
        for k in (0..depth).rev() {
            if k > 0 && self.caches[k].shape.inclusion == Inclusion::Victim {
                continue;
            }
            let key = self.key(k, virt, phys);
            let out = self.caches[k].fill_missing(key, &mut self.rng);
            if let Some(out) = out {
                self.evicted(k, out);
            }
        }
        if depth > 1
            && self.truth.prefetch.pair
            && self.caches.len() > 1
            && self.caches[1].shape.line == 64
        {
            let out = self.caches[1].fill(phys ^ 64, &mut self.rng);
            if let Some(out) = out {
                self.evicted(1, out);
            }
        }
        match hit {
            Some(k) => self.caches[k].shape.latency,
            None => self.truth.memory,
        }
    }

    fn evicted(&mut self, level: usize, line: u64) {
        // The first level is virtually tagged here, so what it loses cannot be handed on; the second
        // level holds it already. From there on tags are physical.
        if level >= 1
            && let Some(next) = self.caches.get_mut(level + 1)
            && next.shape.inclusion == Inclusion::Victim
        {
            next.fill(line, &mut self.rng);
        }
        if level >= 2 && self.caches[level].shape.inclusion == Inclusion::Inclusive {
            self.caches[1].drop_line(line);
        }
    }

    fn disturb(&mut self) {
        if self.now <= self.next_burst.min(self.next_switch) {
            return;
        }
        let noise = self.truth.noise;
        if self.now > self.next_burst {
            if self.now > self.next_burst + noise.burst_every / 20.0 {
                self.next_burst = self.now - noise.burst_every * (1.0 - self.rng.unit()).ln();
            } else if self.rng.chance(0.01) {
                let extra = 100.0 + 900.0 * self.rng.unit();
                self.spend(extra);
                self.pollute(8);
            }
        }
        if self.now > self.next_switch {
            self.next_switch = self.now - noise.switch_every * (1.0 - self.rng.unit()).ln();
            self.switched |= !self.rng.chance(noise.hidden_switches);
            self.spend(20_000.0);
            self.pollute(400);
        }
    }

    fn pollute(&mut self, lines: u32) {
        for _ in 0..lines {
            // Beyond every frame, and below what a tag holds.
            let stray = 1 << 36 | self.rng.below(1 << 35);
            for cache in &mut self.caches {
                cache.fill(stray, &mut self.rng);
            }
            self.code.fill(stray, &mut self.rng);
        }
    }

    fn window(&mut self, events: u64, run: impl FnOnce(&mut Self) -> f64) -> Window {
        let drift = self.truth.noise.drift;
        let seen =
            |m: &mut Self| (m.clock / TICKS_PER_NS * (1.0 + 0.002 * (m.rng.unit() - 0.5))) as f32;
        self.clock = GHZ * (1.0 + drift * (self.rng.unit() - 0.5));
        self.period = self.clock.recip();
        let before = seen(self);
        let cycles = run(self);
        let step = self.truth.noise.timer_step;
        let exact = cycles / self.clock * TICKS_PER_NS + self.rng.unit() * step;
        let ticks = (exact / step).floor() * step;
        let after = seen(self);
        self.spend(3_000.0);
        let switched = std::mem::take(&mut self.switched);
        Window {
            ticks,
            events: events as u32,
            clock: (before, after),
            switched,
        }
    }

    fn timed(&mut self, run: impl FnOnce(&mut Self)) -> f64 {
        let start = self.cycles;
        run(self);
        self.cycles - start
    }
}

impl Measure for Machine {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now_ns(&self) -> u64 {
        self.now as u64
    }

    fn chase(&mut self, c: &Chase<'_>) -> Result<Vec<Window>, MeasureError> {
        let far = c.timed.iter().chain(c.prep).max().copied().unwrap_or(0);
        if far + 8 > self.facts.memory_bytes {
            return Err(MeasureError::Memory {
                needed: far + 8,
                allowed: self.facts.memory_bytes,
            });
        }
        let line_mode = !(c.prep.is_empty()
            && c.flush.is_empty()
            && c.stores.is_empty()
            && c.nt_stores.is_empty());
        if !line_mode {
            let mut ring = c.timed.iter().cycle();
            let mut walk = |m: &mut Self, n: u64| {
                for &at in ring.by_ref().take(n as usize) {
                    m.load(c.buffer, at);
                }
            };
            walk(self, c.warm);
            let again = if c.timed.len() <= 8192 {
                c.timed.len() as u64
            } else {
                64
            };
            return Ok((0..c.windows)
                .map(|_| {
                    self.window(c.loads, |m| {
                        walk(m, again);
                        m.timed(|m| walk(m, c.loads))
                    })
                })
                .collect());
        }
        Ok((0..c.windows)
            .map(|_| {
                self.window(c.timed.len() as u64, |m| {
                    for &at in c.flush {
                        let p = m.physical(c.buffer, at);
                        m.drop_everywhere(at, p);
                    }
                    for &at in c.prep {
                        m.load(c.buffer, at);
                    }
                    for &at in c.stores {
                        if m.truth.write_allocate {
                            m.load(c.buffer, at);
                        }
                    }
                    for &at in c.nt_stores {
                        let p = m.physical(c.buffer, at);
                        m.drop_everywhere(at, p);
                    }
                    m.timed(|m| c.timed.iter().for_each(|&at| m.load(c.buffer, at)))
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
        // Guessed from what one host did: a flush costs some tens of cycles, a write half as much again.
        let each = 40.0
            + if dirty && self.truth.write_back {
                20.0
            } else {
                0.0
            };
        Ok((0..windows)
            .map(|_| {
                self.window(lines.len() as u64, |m| {
                    lines.iter().for_each(|&at| m.load(Buffer::Small, at));
                    m.timed(|m| {
                        for &at in lines {
                            let p = m.physical(Buffer::Small, at);
                            m.drop_everywhere(at, p);
                            m.disturb();
                            m.spend(each);
                        }
                    })
                })
            })
            .collect())
    }

    fn code(&mut self, c: &CodeChase<'_>) -> Result<Vec<Window>, MeasureError> {
        // Twenty cycles of misprediction, the padding at four a cycle, and what the instruction cache adds.
        let base = if c.indirect { 20.0 } else { 1.0 } + f64::from(c.pad) / 4.0;
        let extra = self
            .truth
            .levels
            .get(1)
            .map_or(self.truth.memory, |l| l.latency);
        let mut order = c.blocks.to_vec();
        let size = u64::from(c.pad) + 9;
        Ok((0..c.windows)
            .map(|_| {
                self.window(c.jumps, |m| {
                    let mut run = |m: &mut Self| {
                        for i in 0..c.jumps as usize {
                            let at = i % order.len();
                            if at == 0 && c.indirect {
                                m.rng.shuffle(&mut order);
                            }
                            let mut cost = base;
                            let mut line = order[at];
                            while line < order[at] + size {
                                if !m.code.lookup(line) {
                                    m.code.fill(line, &mut m.rng);
                                    cost += extra;
                                }
                                line = (line / m.truth.code.line + 1) * m.truth.code.line;
                            }
                            m.disturb();
                            m.spend(cost);
                        }
                    };
                    run(m);
                    m.timed(run)
                })
            })
            .collect())
    }
}

impl Machine {
    fn drop_everywhere(&mut self, virt: u64, phys: u64) {
        for k in 0..self.caches.len() {
            let key = self.key(k, virt, phys);
            self.caches[k].drop_line(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_costs_what_the_levels_say() -> Result<(), MeasureError> {
        let mut truth = random::machine(0);
        truth.noise = Noise {
            burst_every: 0.0,
            switch_every: 0.0,
            hidden_switches: 0.0,
            drift: 0.0,
            timer_step: 1.0,
        };
        let latency = truth.levels[0].latency;
        let mut m = Machine::new(truth);
        let w = m.chase(&Chase {
            timed: &[0, 64, 128],
            warm: 9,
            loads: 30_000,
            windows: 1,
            ..Chase::default()
        })?;
        assert!(
            (w[0].cycles() / latency - 1.0).abs() < 0.003,
            "{}",
            w[0].cycles()
        );
        Ok(())
    }
}

//! A simulated host: caches, translation buffers, prefetchers and a noisy world, behind [`Measure`].
//!
//! It exists so that inference can be tested blind on machines whose truth is known. It counts latencies,
//! not instructions; there is no overlap between loads, as in a pointer chase.

pub mod cache;
pub mod grid;
pub mod judge;
mod questions;
pub mod random;
mod translate;
mod truth;

use crate::measure::{Buffer, Facts, Window};
use crate::rng::Rng;
use cache::{Cache, Inclusion};
use translate::Translations;
pub use truth::{Noise, Prefetch, Tlb, Truth};

/// A machine built from a [`Truth`].
pub struct Machine {
    truth: Truth,
    facts: Facts,
    caches: Vec<Cache>,
    code: Cache,
    code_tlb: Translations,
    tlbs: Vec<Translations>,
    rng: Rng,
    /// Physical frame by page for each buffer, 0 where none was given yet.
    frames: [Vec<u64>; 2],
    cycles: f64,
    now: f64,
    next_burst: f64,
    next_switch: f64,
    /// The earlier of both.
    next_event: f64,
    switched: bool,
    clock: f64,
    /// Nanoseconds per cycle.
    period: f64,
    last: (u64, i64),
}

/// Cache levels a machine may have.
const MOST_LEVELS: usize = 4;

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
            code_tlb: Translations::new(truth.code_tlb),
            facts,
            caches,
            tlbs,
            frames: [Vec::new(), Vec::new()],
            cycles: 0.0,
            now: 0.0,
            next_burst: f64::INFINITY,
            next_switch: f64::INFINITY,
            next_event: 0.0,
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
        // Each level's set is worked out once, for the look and for the fill.
        let mut sets = [0; MOST_LEVELS];
        let mut hit = None;
        for (k, cache) in self.caches.iter_mut().enumerate() {
            let key = if k == 0 { virt } else { phys };
            sets[k] = cache.set_of(key);
            if cache.lookup_in(sets[k], key) {
                hit = Some(k);
                break;
            }
        }
        if hit == Some(0) {
            return self.caches[0].shape.latency;
        }
        let depth = hit.unwrap_or(self.caches.len());
        if let Some(k) = hit
            && self.caches[k].shape.inclusion == Inclusion::Victim
        {
            self.caches[k].drop_line(phys);
        }
        for k in (0..depth).rev() {
            if k > 0 && self.caches[k].shape.inclusion == Inclusion::Victim {
                continue;
            }
            let key = self.key(k, virt, phys);
            let out = self.caches[k].fill_missing(sets[k], key, &mut self.rng);
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

    #[inline]
    fn disturb(&mut self) {
        if self.now > self.next_event {
            self.disturbed();
        }
    }

    #[cold]
    fn disturbed(&mut self) {
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
        self.next_event = self.next_burst.min(self.next_switch);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Chase, Measure, MeasureError};

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

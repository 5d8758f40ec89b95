//! What can be asked of a simulated machine.

use super::Machine;
use crate::measure::{Buffer, Chase, CodeChase, Facts, Measure, MeasureError, Window};

/// Cycles that a jump takes longer whose target is not in the predictor's fast table. (Seen on one host.)
const SLOW_JUMP: f64 = 1.2;

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
        // Predictors' fast tables hold so many targets in other pages.
        let count = order.len() as f64;
        let pairs = order.iter().zip(order.iter().cycle().skip(1));
        let far = pairs.filter(|(from, to)| *from >> 12 != *to >> 12).count() as f64;
        let known = self.truth.far_jumps as f64;
        let base = base + SLOW_JUMP * (far / known - 1.0).clamp(0.0, 1.0) * far / count;
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
                            if !m.code_tlb.touch(order[at] >> 12) {
                                cost += m.truth.code_tlb.miss_cycles;
                            }
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

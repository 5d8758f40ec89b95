//! A performance counter that every host has: instructions recorded once, one by one, and run again with an interrupt that
//! comes late the way real ones do.
//!
//! The recording is a real program's ([`record`]: `PTRACE_SINGLESTEP`, with a `rep` as one instruction), so that code, accesses and
//! addresses are what the processor made of them. Run in a circle, it lasts for as many samples as a statistical test
//! wants, which stepping a process (tens of microseconds an instruction) does not. It is for tests: nothing puts a
//! SIGTRAP handler behind the steps of [`record`], as `step` does.

use super::sampler::{Hit, Machine, REFERENCE_SHIFT, Ran, Watching, references};
use crate::arch::{Kind, Shape, accesses, evaluate};
use crate::engine::step::registers::View;
use crate::observe::Access;
use crate::tracee::{Event, Resume, StopReason, Stopped};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic};
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;

/// One recorded instruction.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Its address.
    pub ip: u64,
    /// Its accesses, in [`Recording::accesses`].
    pub accesses: Range<usize>,
    /// It takes long: divisions, square roots, locked operations, `cpuid`.
    pub slow: bool,
}

/// A stretch of a run.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In order.
    pub instructions: Vec<Executed>,
    /// In order.
    pub accesses: Vec<Access>,
}

const LONGEST: usize = 15;

/// Steps `stopped` up to the system call `end` and records what it executes.
///
/// # Errors
/// A lower-case fragment: why it could not be recorded.
pub fn record(mut stopped: Stopped, end: u64) -> Result<(Recording, Stopped), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut recording = Recording::default();
    let mut factory = InstructionInfoFactory::new();
    loop {
        let regs = stopped.regs().map_err(|e| text(&e))?;
        let mut code = [0; LONGEST];
        stopped.read(regs.rip, &mut code).map_err(|e| text(&e))?;
        let instruction = Decoder::with_ip(64, &code, regs.rip, DecoderOptions::NONE).decode();
        if instruction.mnemonic() == Mnemonic::Syscall && regs.rax == end {
            return Ok((recording, stopped));
        }
        let mut list = Vec::new();
        accesses(&instruction, &mut factory, &mut list).map_err(|e| e.reason.to_owned())?;
        let repeats = list
            .iter()
            .any(|access| matches!(access.shape, Shape::Rep { .. }));
        let again = recording.instructions.last_mut().filter(|last| {
            repeats && last.ip == regs.rip && last.accesses.end == recording.accesses.len()
        });
        let view = View::new(&stopped, &regs);
        let before = recording.accesses.len();
        for access in &list {
            for (address, size) in evaluate(access, &view) {
                recording.accesses.push(Access {
                    ip: regs.rip,
                    address,
                    size,
                    load: access.kind != Kind::Store,
                    store: access.kind != Kind::Load,
                });
            }
        }
        view.result().map_err(|e| text(&e))?;
        match again {
            Some(last) => last.accesses.end = recording.accesses.len(),
            None => recording.instructions.push(Executed {
                ip: regs.rip,
                accesses: before..recording.accesses.len(),
                slow: is_slow(instruction.mnemonic()) || instruction.has_lock_prefix(),
            }),
        }
        let running = stopped
            .resume(Resume::IntoHandler, 0)
            .map_err(|e| text(&e))?;
        stopped = match running.wait().map_err(|e| text(&e))? {
            Event::Stopped(stopped) if stopped.reason == StopReason::Signal(libc::SIGTRAP) => {
                stopped
            }
            event => return Err(format!("stepping ended: {event:?}")),
        };
    }
}

fn is_slow(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Div | Idiv | Divsd | Sqrtsd | Sqrtps | Cpuid | Fsqrt | Xchg
    )
}

/// How late the interrupt comes, in instructions after the overflow.
#[derive(Clone, Copy, Debug)]
pub enum Skid {
    /// Always by so many.
    Fixed(u64),
    /// By any number up to this.
    Uniform(u64),
    /// Each further instruction with probability `1 - 1 / mean`, up to `most`.
    Geometric {
        /// Mean.
        mean: u64,
        /// Most.
        most: u64,
    },
    /// Before the next slow instruction, or after so many if there is none: where retirement waits, the interrupt is taken.
    AtSlow(u64),
    /// Before the next execution of the instruction at this address, or after so many: the paper's worst case (3.4).
    Always {
        /// Its address.
        ip: u64,
        /// Most.
        most: u64,
    },
}

/// The counter, the interrupt, the step and the watchpoints of a [`Recording`] run in a circle.
pub struct Simulated<'a> {
    recording: &'a Recording,
    skid: Skid,
    random: SmallRng,
    /// Instructions executed since the beginning.
    executed: u64,
    references: u64,
    watches: HashMap<(u32, u64), Vec<u64>>,
    hits: Vec<Hit>,
}

impl<'a> Simulated<'a> {
    /// At the recording's beginning.
    pub fn new(recording: &'a Recording, skid: Skid, random: SmallRng) -> Self {
        Simulated {
            recording,
            skid,
            random,
            executed: 0,
            references: 0,
            watches: HashMap::new(),
            hits: Vec::new(),
        }
    }

    /// The instruction about to execute, by its place in the recording.
    pub fn place(&self) -> usize {
        (self.executed % self.recording.instructions.len() as u64) as usize
    }

    fn next(&self, ahead: u64) -> &'a Executed {
        let instructions = &self.recording.instructions;
        &instructions[((self.executed + ahead) % instructions.len() as u64) as usize]
    }

    fn execute(&mut self) {
        let range = self.next(0).accesses.clone();
        let recording = self.recording;
        for access in &recording.accesses[range] {
            self.touch(access);
        }
        self.executed += 1;
    }

    fn touch(&mut self, access: &Access) {
        if !self.watches.is_empty() {
            let last = access.address + u64::from(access.size.max(1)) - 1;
            let shifts: Vec<u32> = self.watches.keys().map(|(shift, _)| *shift).collect();
            for shift in shifts {
                for line in access.address >> shift..=last >> shift {
                    let before = line - (access.address >> shift);
                    for id in self.watches.remove(&(shift, line)).unwrap_or_default() {
                        self.hits.push(Hit {
                            id,
                            references: self.references + before,
                            ip: access.ip,
                        });
                    }
                }
            }
        }
        self.references += references(access, REFERENCE_SHIFT);
    }

    fn skid(&mut self) -> u64 {
        match self.skid {
            Skid::Fixed(skid) => skid,
            Skid::Uniform(most) => self.random.random_range(0..=most),
            Skid::Geometric { mean, most } => {
                let goes_on = 1.0 - 1.0 / mean.max(1) as f64;
                (0..most)
                    .take_while(|_| self.random.random_bool(goes_on))
                    .count() as u64
            }
            Skid::AtSlow(most) => (0..most)
                .find(|ahead| self.next(*ahead).slow)
                .unwrap_or(most),
            Skid::Always { ip, most } => (0..most)
                .find(|ahead| self.next(*ahead).ip == ip)
                .unwrap_or(most),
        }
    }
}

impl Machine for Simulated<'_> {
    type Error = Infallible;

    fn run(&mut self, instructions: u64) -> Result<Ran, Infallible> {
        for _ in 0..instructions {
            self.execute();
        }
        let skid = self.skid();
        for _ in 0..skid {
            self.execute();
        }
        Ok(Ran::Stopped(instructions + skid))
    }

    fn step(&mut self) -> Result<bool, Infallible> {
        self.execute();
        Ok(true)
    }

    fn upcoming(&mut self) -> Result<Option<Vec<Access>>, Infallible> {
        let range = self.next(0).accesses.clone();
        Ok(Some(self.recording.accesses[range].to_vec()))
    }

    fn references(&self) -> u64 {
        self.references
    }
}

impl Watching for Simulated<'_> {
    fn watch(&mut self, id: u64, address: u64, shift: u32) -> Result<(), Infallible> {
        let line = (shift, address >> shift);
        self.watches.entry(line).or_default().push(id);
        Ok(())
    }

    fn hits(&mut self) -> Vec<Hit> {
        std::mem::take(&mut self.hits)
    }
}

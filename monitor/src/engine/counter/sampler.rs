//! Which access is sampled, and how far away its line is touched again: the paper's mechanism over any counter.
//!
//! A count of retired instructions picks an *instruction* at random; a sample is taken there if it accesses memory, and
//! then every access of it is one. So each access of the run is equally likely, which no other rule gives: to go on to the next
//! memory instruction favours those behind long arithmetic, and to take the instruction at which the overflow stopped the
//! thread favours slow ones. The overflow is set `SkidComp` early, and the thread is stepped to the instruction that was
//! drawn. A stop already beyond it is declined, never replaced.
//!
//! What the host does is behind [`Machine`]. Distances count references as the machine counts them, where that is exact.
//!
//! Source: StatCache (Berg & Hagersten 2005) sections 3.4 (samples, equations 3 and 4) and 3.6.

use crate::observe::Access;
use rand::Rng;
use rand::rngs::SmallRng;

/// How far [`Machine::run`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Stopped, this many instructions after the start; at least as many as asked for.
    Stopped(u64),
    /// The program ended.
    Ended,
}

/// A line of a machine's that was watched and has been touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The watch.
    pub id: u64,
    /// References before the one that touched it, since the machine's beginning.
    pub references: u64,
    /// The instruction.
    pub ip: u64,
}

/// A thread with a counter of retired instructions that can interrupt it, and a single step. A `rep` is one instruction.
pub trait Machine {
    /// What can go wrong.
    type Error;

    /// Lets it run and stops it once the counter has passed `instructions` and the interrupt has arrived.
    ///
    /// # Errors
    /// The machine's.
    fn run(&mut self, instructions: u64) -> Result<Ran, Self::Error>;

    /// Executes one instruction; false where the program ended.
    ///
    /// # Errors
    /// The machine's.
    fn step(&mut self) -> Result<bool, Self::Error>;

    /// The accesses the next instruction is about to make, in order. `None` where they cannot be told.
    ///
    /// # Errors
    /// The machine's.
    fn upcoming(&mut self) -> Result<Option<Vec<Access>>, Self::Error>;

    /// Line references so far, as well as the machine knows them.
    fn references(&self) -> u64;
}

/// A machine that watches lines by itself.
pub trait Watching: Machine {
    /// Watches the line of `1 << shift` bytes that holds `address`, until it is touched.
    ///
    /// # Errors
    /// The machine's.
    fn watch(&mut self, id: u64, address: u64, shift: u32) -> Result<(), Self::Error>;

    /// The hits since the last call.
    fn hits(&mut self) -> Vec<Hit>;
}

/// Instructions by which an overflow is set early. Larger than the skid of the host, see [`calibrate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkidComp(pub u64);

/// Instructions added to twice the largest skid that calibration saw. (Guessed: a stop beyond it is declined, so it
/// costs samples and no accuracy to be too small, steps to be too large.)
pub const SKID_MARGIN: u64 = 8;

/// Finds a [`SkidComp`] by `trials` overflows, each after `instructions`. `None` where the program ended first.
///
/// # Errors
/// The machine's.
pub fn calibrate<M: Machine>(
    machine: &mut M,
    trials: u32,
    instructions: u64,
) -> Result<Option<SkidComp>, M::Error> {
    let mut largest = 0;
    for _ in 0..trials {
        match machine.run(instructions)? {
            Ran::Stopped(retired) => largest = largest.max(retired.saturating_sub(instructions)),
            Ran::Ended => return Ok(None),
        }
    }
    Ok(Some(SkidComp(2 * largest + SKID_MARGIN)))
}

/// One access that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The access.
    pub access: Access,
    /// References before it since the machine's beginning: which one of the run it is.
    pub number: u64,
}

/// What one draw came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Draw {
    /// An instruction with these accesses.
    Samples(Vec<Drawn>),
    /// An instruction without.
    NoAccess,
    /// The stop came after the instruction drawn.
    SkidBeyond,
    /// The instruction's accesses cannot be told.
    Untold,
    /// The program ended.
    Ended,
}

/// Draws instructions at random distances.
#[derive(Debug)]
pub struct Sampler {
    /// See [`SkidComp`].
    pub skid_comp: SkidComp,
    /// Mean number of instructions between two draws; at least `skid_comp`.
    pub mean: u64,
    random: SmallRng,
}

impl Sampler {
    /// A sampler; its draws follow from `random` alone.
    pub fn new(skid_comp: SkidComp, mean: u64, random: SmallRng) -> Sampler {
        Sampler {
            skid_comp,
            mean,
            random,
        }
    }

    /// `NextSample`: exponential above the least that compensation needs.
    fn next_sample(&mut self) -> u64 {
        let least = self.skid_comp.0 + 1;
        let more = self.mean.saturating_sub(least) as f64;
        let uniform: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        least + (-uniform.ln() * more) as u64
    }

    /// Runs to the next instruction drawn, which is the one about to execute when this returns.
    ///
    /// # Errors
    /// The machine's.
    pub fn draw<M: Machine>(&mut self, machine: &mut M) -> Result<Draw, M::Error> {
        let next = self.next_sample();
        let retired = match machine.run(next - self.skid_comp.0)? {
            Ran::Stopped(retired) => retired,
            Ran::Ended => return Ok(Draw::Ended),
        };
        // `InstrRem` of equation 4.
        let Some(left) = next.checked_sub(retired) else {
            return Ok(Draw::SkidBeyond);
        };
        for _ in 0..left {
            if !machine.step()? {
                return Ok(Draw::Ended);
            }
        }
        let Some(accesses) = machine.upcoming()? else {
            return Ok(Draw::Untold);
        };
        if accesses.is_empty() {
            return Ok(Draw::NoAccess);
        }
        let mut number = machine.references();
        let numbered = accesses.into_iter().map(|access| {
            let drawn = Drawn { access, number };
            number += references(&access, REFERENCE_SHIFT);
            drawn
        });
        Ok(Draw::Samples(numbered.collect()))
    }

    /// Lets the instruction drawn execute and watches the lines its samples touched; watch `first_id + n` is sample `n`'s. A line
    /// that the same instruction touches again is reused at once: those are returned, as hits of their watches.
    ///
    /// # Errors
    /// The machine's.
    pub fn follow<M: Watching>(
        machine: &mut M,
        samples: &[Drawn],
        first_id: u64,
        shift: u32,
    ) -> Result<Vec<Hit>, M::Error> {
        if !machine.step()? {
            return Ok(Vec::new());
        }
        let mut at_once = Vec::new();
        for (n, sample) in samples.iter().enumerate() {
            let id = first_id + n as u64;
            let line = sample.access.address >> shift;
            let later = samples[n + 1..].iter().find(|later| {
                let last = later.access.address + u64::from(later.access.size) - 1;
                (later.access.address >> shift..=last >> shift).contains(&line)
            });
            match later {
                Some(later) => at_once.push(Hit {
                    id,
                    references: later.number + (line - (later.access.address >> shift)),
                    ip: later.access.ip,
                }),
                None => machine.watch(id, sample.access.address, shift)?,
            }
        }
        Ok(at_once)
    }
}

/// log2 of the line whose references are counted.
pub const REFERENCE_SHIFT: u32 = 6;

/// Lines that an access touches.
pub fn references(access: &Access, shift: u32) -> u64 {
    let last = access.address + u64::from(access.size.max(1)) - 1;
    (last >> shift) - (access.address >> shift) + 1
}

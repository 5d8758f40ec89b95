//! The thread as the sampler's [`Machine`]: run until the counter stops it, stepped from there.

use super::{Counting, Live, Result, Stop, add};
use crate::engine::counter::overflow::{NEVER, Overflow};
use crate::engine::counter::sampler::{Machine, Ran, SKID_MARGIN};
use crate::engine::translate::window::Control;
use crate::observe::Access;
use crate::tracee::{Resume, StopReason, TraceError};
use rand::Rng;

/// What a counter's failure is to thread `tid`.
fn failed(tid: nix::unistd::Pid) -> impl Fn(std::io::Error) -> Stop + Copy {
    move |source| {
        Stop::Trace(TraceError::Os {
            operation: "performance counter",
            tid,
            source,
        })
    }
}

/// Instructions that the simulated counter goes on for at a time.
const STRETCH: u64 = 64;

impl<C: Control> Live<'_, C> {
    fn counter(&mut self) -> Result<&mut Overflow> {
        let counter = match &mut *self.counting {
            Counting::Hardware(counter) => Some(counter),
            Counting::Simulated { clock, .. } => clock.as_mut(),
        };
        counter.ok_or(Stop::Close("no counter"))
    }

    /// Lets it run until the counter stops it; handlers of the shim are not counted, what they let through is.
    fn run_hardware(&mut self, instructions: u64) -> Result<Ran> {
        let os = failed(self.tid);
        let mut beside = 0;
        self.counter()?.arm(instructions).map_err(os)?;
        loop {
            let stopped = self.take();
            let stopped = self.go(stopped, Resume::Continue, 0)?;
            let StopReason::Signal(signal) = stopped.reason else {
                self.thread = Some(stopped);
                continue;
            };
            let info = stopped.siginfo()?;
            let counter = self.counter()?;
            let so_far = counter.count().map_err(os)?;
            let due = counter.caused(&info);
            // What the shim has stepped accesses memory.
            let now = counter.memory().map_err(os)?.unwrap_or(so_far) + beside;
            if due {
                self.thread = Some(stopped);
                self.mark.native += now;
                return Ok(Ran::Stopped(so_far + beside));
            }
            // Watches met on the way are told where the thread is now.
            self.mark.native += now;
            let delivered = self.deliver(stopped, signal);
            if let Ok(true) = delivered {
                beside += 1;
            }
            delivered?;
            self.mark.native -= now;
            self.counter()?.pause(false).map_err(os)?;
        }
    }

    /// Whether single steps are all it goes on by.
    pub fn steps(&self) -> bool {
        matches!(&*self.counting, Counting::Simulated { clock: None, .. })
    }

    /// Runs natively up to the next stop that matters; false where that is the end of it, as [`Control::wait`] says.
    pub fn go_on(&mut self) -> Result<bool> {
        if self.steps() {
            for _ in 0..STRETCH {
                self.pass()?;
            }
            return Ok(true);
        }
        let os = failed(self.tid);
        self.counter()?.arm(NEVER).map_err(os)?;
        let (stopped, more) = self.meanwhile()?;
        let reason = stopped.reason;
        self.thread = Some(stopped);
        let counter = self.counter()?;
        let so_far = counter.count().map_err(os)?;
        self.mark.native += counter.memory().map_err(os)?.unwrap_or(so_far);
        if let StopReason::Signal(signal) = reason {
            let stopped = self.take();
            // What the shim has stepped accesses memory.
            self.mark.native += u64::from(self.deliver(stopped, signal)?);
        }
        Ok(more)
    }

    /// Executes one instruction without looking at what it accesses.
    fn pass(&mut self) -> Result<()> {
        self.execute()?;
        if self.accessed || !self.counts_memory() {
            self.mark.native += 1;
        }
        Ok(())
    }
}

impl<C: Control> Machine for Live<'_, C> {
    type Error = Stop;

    fn run(&mut self, instructions: u64) -> Result<Ran> {
        self.recent.clear();
        let skid = match &mut *self.counting {
            Counting::Hardware(_) => return self.run_hardware(instructions),
            Counting::Simulated { random, skid, .. } => random.random_range(0..=*skid),
        };
        for _ in 0..instructions + skid {
            self.pass()?;
        }
        Ok(Ran::Stopped(instructions + skid))
    }

    fn step(&mut self) -> Result<bool> {
        let Some(accesses) = self.upcoming()? else {
            self.pass()?;
            return Ok(true);
        };
        self.execute()?;
        let mut refs = [0; 5];
        for access in &accesses {
            add(&mut refs, access);
            self.add(access);
        }
        self.recent.push_back((accesses.len() as u64, refs));
        if self.recent.len() as u64 > SKID_MARGIN {
            self.recent.pop_front();
        }
        Ok(true)
    }

    fn upcoming(&mut self) -> Result<Option<Vec<Access>>> {
        self.leave_stub()?;
        let stopped = self.take();
        let accesses = self.accesses_of(&stopped);
        self.thread = Some(stopped);
        accesses
    }

    fn references(&self) -> u64 {
        self.mark.refs[crate::observe::DEFAULT_LINE]
    }
}

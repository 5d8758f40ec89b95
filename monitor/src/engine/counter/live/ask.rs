//! Requests to the shim: of the thread in its window, and of the others, which come under the shim and leave it with that.

use super::others::follow_all;
use super::ring::{Rung, is_free, ring};
use super::{DELIVERIES, FILTERED, Live, Result, Stop};
use crate::engine::translate::window::{Control, WindowEnd};
use crate::tracee::{Event, StopReason, procinfo, status};
use statcache_abi::{Request, op, result};

/// How often a request that must be served is made.
const TRIES: u32 = 3;

impl<C: Control> Live<'_, C> {
    /// Asks the shim for something; its answer.
    pub fn call(&mut self, request: Request) -> Result<i32> {
        let answer = self.ask(request)?;
        if request.op == op::ARM && answer == result::BUSY && self.follow_all(true)? {
            // Threads have been born since.
            return self.ask(request);
        }
        Ok(answer)
    }

    /// Brings the process under the shim.
    pub fn begin(&mut self) -> Result<i32> {
        let of = |op| Request {
            op,
            ..Request::default()
        };
        match self.ask(of(op::BEGIN))? {
            result::OK => {}
            refused => return Ok(refused),
        }
        self.brought.clear();
        self.follow_all(true)?;
        self.ask(of(op::ALL))
    }

    /// Lets the process go; this thread, which is stopped meanwhile, last: the handlers of the shim go with it, and until then a signal
    /// that the program ignores would cut its sleep.
    pub fn end(&mut self) -> Result<()> {
        let of = |op| Request {
            op,
            ..Request::default()
        };
        self.insist(of(op::END))?;
        let others = self.follow_all(false);
        self.insist(of(op::FOLLOW))?;
        others.map(|_| ())
    }

    /// Asks for what must be done, though the thread was about to make a call before which windows end, or in which it would sleep: it has
    /// been put back before that, or taken out of it.
    fn insist(&mut self, request: Request) -> Result<()> {
        for _ in 1..TRIES {
            match self.ask(request) {
                Err(Stop::Close(_)) => {}
                other => return other.map(|_| ()),
            }
        }
        self.ask(request).map(|_| ())
    }

    fn ask(&mut self, request: Request) -> Result<i32> {
        if self.shim.sealed() {
            return Err(Stop::Close(FILTERED));
        }
        for _ in 0..DELIVERIES {
            if self.in_critical_section() {
                // A signal would make it start over; what we do to its registers would not. A step does.
                self.execute()?;
                continue;
            }
            let stopped = self.take();
            self.shim.ask(request);
            self.stops += 1;
            match ring(stopped, self.shim)? {
                Rung::Served(stopped) => {
                    let reason = stopped.reason;
                    self.thread = Some(stopped);
                    self.collect(None);
                    let answer = self.shim.answer().unwrap_or(result::BUSY);
                    if let StopReason::Signal(signal) = reason {
                        let stopped = self.take();
                        self.deliver(stopped, signal)?;
                    }
                    return Ok(answer);
                }
                Rung::Signal(stopped, signal) => {
                    self.deliver(stopped, signal)?;
                }
                Rung::Gone(Event::Stopped(stopped)) => {
                    return Err(Stop::End(match stopped.reason {
                        StopReason::Exec => WindowEnd::Exec(stopped),
                        _ => WindowEnd::Exiting(stopped),
                    }));
                }
                Rung::Gone(event) => return Err(Stop::End(WindowEnd::Gone(event))),
            }
        }
        Err(Stop::Close("the shim does not answer"))
    }

    /// As [`follow_all`].
    fn follow_all(&mut self, come: bool) -> Result<bool> {
        let pid = status::family(self.tid).map_or(self.tid, |(pid, _)| pid);
        let brought = come.then_some(&mut self.brought);
        let found = follow_all(pid, self.tid, brought, (self.shim, self.image), &[])?;
        self.stops += found.1;
        Ok(found.0)
    }

    /// Whether the thread is in a handler of the shim's, or in a stub.
    pub fn in_shim(&self) -> Result<bool> {
        let regs = self.regs()?;
        Ok(self.image.iter().any(|part| part.contains(&regs.rip)))
    }

    /// Whether the thread can be put into the shim; see [`is_free`].
    pub fn is_free(&self) -> Result<bool> {
        Ok(is_free(&self.regs()?, self.shim, self.image))
    }

    /// Tells the shim where the kernel writes at any time.
    pub fn note_rseq(&self) -> Result<()> {
        if let Some(area) = procinfo::rseq_area(self.tid) {
            self.shim.set_rseq(area.wrapping_sub(self.regs()?.fs_base));
        }
        Ok(())
    }

    /// Whether the thread is in, or about to be in, a restartable sequence, which is aborted at every step.
    pub fn in_critical_section(&self) -> bool {
        self.thread.as_ref().is_some_and(super::in_critical_section)
    }
}

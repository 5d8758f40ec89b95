//! Requests to the shim of a stopped thread: the doorbell, which it answers in a handler of its own.

use super::{DELIVERIES, FILTERED, Live, Result, Stop};
use crate::engine::translate::window::Control;
use crate::tracee::remote::{self, CallSite, restarted};
use crate::tracee::{Resume, StopReason, TraceError, maps::Maps, procinfo};
use statcache_abi::{Block, DOORBELL, Request};
use std::sync::atomic::Ordering;

impl<C: Control> Live<'_, C> {
    /// Asks the shim for something; its answer.
    pub fn call(&mut self, request: Request) -> Result<i32> {
        if self.shim.sealed() {
            return Err(Stop::Close(FILTERED));
        }
        self.shim.ask(request);
        self.ring()?;
        for _ in 0..DELIVERIES {
            let stopped = self.take();
            let stopped = self.go(stopped, Resume::Syscall, 0)?;
            match stopped.reason {
                StopReason::Signal(libc::SIGURG) => {
                    let stopped = self.through(stopped, libc::SIGURG)?;
                    self.thread = Some(stopped);
                    if let Some(answer) = self.shim.answer() {
                        self.collect(None);
                        return Ok(answer);
                    }
                }
                StopReason::Signal(signal) => {
                    self.deliver(stopped, signal)?;
                }
                _ => self.thread = Some(stopped),
            }
        }
        Err(Stop::Close("the shim does not answer"))
    }

    fn ring(&self) -> Result<()> {
        const SI_QUEUE: i32 = -1;
        // `siginfo_t`: number, errno, code; the value behind sender and user.
        let mut info = [0u64; 16];
        info[0] = libc::SIGURG as u64;
        info[1] = u64::from(SI_QUEUE as u32);
        info[3] = DOORBELL;
        let pid = procinfo::family(self.tid).map_or(self.tid, |(pid, _)| pid);
        // SAFETY: `info` is live and as large as a siginfo_t.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                pid.as_raw(),
                self.tid.as_raw(),
                libc::SIGURG,
                info.as_ptr(),
            )
        };
        match sent {
            0 => Ok(()),
            _ => Err(Stop::Trace(TraceError::Os {
                operation: "rt_tgsigqueueinfo",
                tid: self.tid,
                source: std::io::Error::last_os_error(),
            })),
        }
    }

    /// Makes the shim answer the first doorbell.
    pub fn knock(&mut self, maps: &Maps) -> Result<()> {
        let stopped = self.take();
        let block = self.shim.block();
        let base = block.base.load(Ordering::Relaxed);
        let at = |offset: usize| base + offset as u64;
        let args = [
            libc::SIGURG as u64,
            at(std::mem::offset_of!(Block, knock)),
            at(std::mem::offset_of!(Block, before)),
            8,
            0,
            0,
        ];
        let Some(slack) = remote::find_slack(&stopped, maps) else {
            self.thread = Some(stopped);
            return Err(Stop::Close("no place for an injected call"));
        };
        let site = CallSite::open(&stopped, slack, restarted(&stopped.regs()?))?;
        let mut caller = site.caller(stopped);
        let called = caller.call("rt_sigaction", libc::SYS_rt_sigaction, args);
        let stopped = caller
            .done()
            .ok_or(Stop::Trace(TraceError::Gone(self.tid)))?;
        let signal = match stopped.reason {
            StopReason::Signal(signal) => Some(signal),
            _ => None,
        };
        site.close(&stopped)?;
        match (called, signal) {
            (Ok(_), _) => {
                self.thread = Some(stopped);
                Ok(())
            }
            (Err(_), Some(signal)) => {
                self.deliver(stopped, signal)?;
                Err(Stop::Close("a signal came first"))
            }
            (Err(error), None) => {
                self.thread = Some(stopped);
                Err(Stop::Trace(error))
            }
        }
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
        let (Some(area), Some(stopped)) = (procinfo::rseq_area(self.tid), &self.thread) else {
            return false;
        };
        let mut word = [0; 8];
        stopped.read(area + 8, &mut word).is_ok() && word != [0; 8]
    }
}

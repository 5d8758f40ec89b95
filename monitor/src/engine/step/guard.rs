//! The SIGTRAP handler that stands behind every single step, in a page of its own in the stepped process.
//!
//! A thread that is being stepped keeps its trap flag when its tracer dies, and the trap that follows is then a SIGTRAP
//! to the program. The handler makes that harmless: it clears the flag in the interrupted context, puts the
//! disposition of SIGTRAP back to what it was, and returns; the program goes on natively. A SIGTRAP that is no
//! single step's is raised again for the disposition put back. The page stays mapped between windows, the handler is installed
//! for a window only.
//!
//! Calls injected here come back by themselves if the monitor dies (`tracee::remote`).

use super::ahead::Revealing;
use super::signals::{self, Delivered, SIGTRAP_BIT};
use super::syscalls::restarted;
use super::{After, End, Turn};
use crate::observe::Access;
use crate::tracee::maps::Maps;
use crate::tracee::remote::{STUB_BYTES, find_slack, stub};
use crate::tracee::{Event, Result, Resume, StopReason, Stopped, procinfo, status};
use iced_x86::code_asm::{CodeAssembler, byte_ptr, dword_ptr, qword_ptr};
use iced_x86::code_asm::{eax, edi, edx, esi, r8d, r9, r10d, rax, rcx, rdx, rsi};

/// Bytes of the page.
const PAGE: usize = 4096;
/// What tells a later monitor whose page this is.
const MAGIC: &[u8; 16] = b"statcache step 1";
/// Offsets in the page: the disposition installed, the one put back, the magic number, what is to be repaired
/// (address behind the instruction, stack pointer, 1 for `syscall`), the place of injected calls.
const INSTALLED: usize = 0x200;
const BEFORE: usize = 0x220;
const MARK: usize = 0x240;
const REVEALING: usize = 0x260;
const CALLS: usize = 0x280;
const _: () = assert!(CALLS + STUB_BYTES <= PAGE);

/// Bytes of the kernel's signal set.
const SET_BYTES: u64 = 8;
/// `SA_RESTORER` of asm/signal.h.
const SA_RESTORER: u64 = 0x0400_0000;

/// The handler in one process.
pub struct Guard {
    page: Option<u64>,
    installed: bool,
    announced: Option<Revealing>,
    /// Address of the thread's `rseq_cs` word once looked up, 0 where there is none.
    critical_section: Option<u64>,
}

/// Outcome of an injected call.
enum Called {
    /// Its result; the thread is stopped at its own registers.
    Done(Stopped, i64),
    Over(After),
}

impl Guard {
    /// Not in the process yet.
    pub fn new() -> Guard {
        Guard {
            page: None,
            installed: false,
            announced: None,
            critical_section: None,
        }
    }

    /// Installs the handler, or declines the window.
    pub fn install(&mut self, stopped: Stopped, maps: &Maps) -> Result<Turn> {
        self.forget_critical_section();
        self.installed = false;
        let sets = status::signal_sets(stopped.tid()).unwrap_or_default();
        let refused = if sets.caught & SIGTRAP_BIT != 0 {
            Some("the program handles SIGTRAP")
        } else if sets.blocked & SIGTRAP_BIT != 0 {
            Some("the program blocks SIGTRAP")
        } else if status::is_filtered(stopped.tid()) {
            Some("the program runs under a seccomp filter")
        } else if self.in_critical_section(&stopped)? {
            Some("restartable sequence")
        } else {
            None
        };
        if let Some(reason) = refused {
            return Ok(declined(stopped, reason));
        }
        let (stopped, page) = match self.page {
            Some(page) => (stopped, page),
            None => {
                let Some(slack) = find_slack(&stopped, maps) else {
                    return Ok(declined(stopped, "no place for an injected call"));
                };
                match map_page(stopped, slack)? {
                    Called::Done(stopped, page) if page > 0 => (stopped, page as u64),
                    Called::Done(stopped, _) => {
                        return Ok(declined(stopped, "no memory for the SIGTRAP handler"));
                    }
                    Called::Over(after) => return Ok(Turn::Over(after)),
                }
            }
        };
        self.page = Some(page);
        let ignored = sets.ignored & SIGTRAP_BIT != 0;
        stopped.write(page, &contents(page, ignored))?;
        self.announced = None;
        let args = [
            libc::SIGTRAP as u64,
            page + INSTALLED as u64,
            0,
            SET_BYTES,
            0,
            0,
        ];
        match call(
            stopped,
            page + CALLS as u64,
            libc::SYS_rt_sigaction,
            args,
            false,
        )? {
            Called::Done(stopped, 0) => {
                self.installed = true;
                // A signal may have been delivered on the way.
                Ok(signals::unless_blocked(stopped))
            }
            Called::Done(stopped, _) => {
                Ok(declined(stopped, "SIGTRAP handler refused by the kernel"))
            }
            Called::Over(after) => Ok(Turn::Over(after)),
        }
    }

    /// Says which instruction the handler is to repair if it comes to that (see `ahead`).
    pub fn announce(&mut self, stopped: &Stopped, revealing: Option<Revealing>) -> Result<()> {
        let Some(page) = self.page.filter(|_| self.announced != revealing) else {
            return Ok(());
        };
        let words = match revealing {
            None => [0, 0, 0],
            Some(Revealing::PushFlags { behind, rsp }) => [behind, rsp, 0],
            Some(Revealing::Syscall { behind }) => [behind, 0, 1],
        };
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        stopped.write(page + REVEALING as u64, &bytes)?;
        self.announced = revealing;
        Ok(())
    }

    /// Puts the disposition of SIGTRAP back, if the handler is installed.
    pub fn remove(&mut self, stopped: Stopped, end: End) -> Result<After> {
        let Some(page) = self.page.filter(|_| self.installed) else {
            return Ok(After::Stopped(stopped, end));
        };
        self.installed = false;
        let args = [
            libc::SIGTRAP as u64,
            page + BEFORE as u64,
            0,
            SET_BYTES,
            0,
            0,
        ];
        let calls = page + CALLS as u64;
        let called = call(
            stopped,
            calls,
            libc::SYS_rt_sigaction,
            args,
            end == End::Trap,
        )?;
        Ok(match called {
            Called::Done(stopped, _) => After::Stopped(stopped, end),
            Called::Over(after) => after,
        })
    }

    /// Unmaps the page.
    pub fn unmap(&mut self, stopped: Stopped, maps: &Maps) -> Result<After> {
        let slack = find_slack(&stopped, maps);
        let (Some(page), Some(slack)) = (self.page.take(), slack) else {
            return Ok(After::Stopped(stopped, End::Limit));
        };
        let args = [page, PAGE as u64, 0, 0, 0, 0];
        Ok(match call(stopped, slack, libc::SYS_munmap, args, false)? {
            Called::Done(stopped, _) => {
                stopped.write(slack, &[0; STUB_BYTES])?;
                After::Stopped(stopped, End::Limit)
            }
            Called::Over(after) => after,
        })
    }

    /// Looks the thread's `rseq` area up anew when it is next asked for.
    pub fn forget_critical_section(&mut self) {
        self.critical_section = None;
    }

    /// Whether `store` announces a restartable sequence, which the kernel aborts at every step, so that it would
    /// never get done. Source: rseq(2).
    pub fn starts_critical_section(&mut self, stopped: &Stopped, store: &Access) -> bool {
        let word = self.critical_section_word(stopped);
        word != 0 && store.address < word + 8 && store.address + u64::from(store.size) > word
    }

    /// Whether the thread is in a restartable sequence. The word may be left over from one that is done.
    fn in_critical_section(&mut self, stopped: &Stopped) -> Result<bool> {
        let word = self.critical_section_word(stopped);
        if word == 0 {
            return Ok(false);
        }
        let mut descriptor = [0; 8];
        stopped.read(word, &mut descriptor)?;
        let descriptor = u64::from_le_bytes(descriptor);
        // struct rseq_cs: version and flags, then start and length of the sequence.
        let mut range = [0; 16];
        if descriptor == 0 || stopped.read(descriptor + 8, &mut range).is_err() {
            return Ok(false);
        }
        let start = u64::from_le_bytes(range[..8].try_into().expect("8 bytes"));
        let length = u64::from_le_bytes(range[8..].try_into().expect("8 bytes"));
        Ok(stopped.regs()?.rip.wrapping_sub(start) < length)
    }

    fn critical_section_word(&mut self, stopped: &Stopped) -> u64 {
        let tid = stopped.tid();
        *self
            .critical_section
            .get_or_insert_with(|| procinfo::rseq_area(tid).map_or(0, |area| area + 8))
    }
}

fn declined(stopped: Stopped, reason: &'static str) -> Turn {
    Turn::Over(After::Stopped(stopped, End::Declined(reason)))
}

/// Maps the page by a call made at `slack`.
fn map_page(stopped: Stopped, slack: u64) -> Result<Called> {
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let args = [0, PAGE as u64, protection, flags, u64::MAX, 0];
    let called = call(stopped, slack, libc::SYS_mmap, args, false)?;
    if let Called::Done(stopped, _) = &called {
        stopped.write(slack, &[0; STUB_BYTES])?;
    }
    Ok(called)
}

/// Makes a system call in the thread, which must be stopped in user mode, by a stub at `site`. The thread is then where
/// it was, or at the start of the handler of a signal that came meanwhile.
///
/// A SIGTRAP that its stop took off the queue, before (`raise`) or under way, is raised again at the end.
fn call(
    mut stopped: Stopped,
    site: u64,
    number: i64,
    args: [u64; 6],
    mut raise: bool,
) -> Result<Called> {
    let home = restarted(&stopped.regs()?);
    let tid = stopped.tid();
    stopped.write(site, &stub(&home))?;
    let mut regs = home;
    regs.rip = site;
    regs.rax = number as u64;
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
    stopped.set_regs(&regs)?;
    let mut entered = false;
    loop {
        stopped = match stopped.resume(Resume::Syscall, 0)?.wait()? {
            Event::Stopped(stopped) => stopped,
            Event::Exited(status) => return Ok(Called::Over(After::Exited(status))),
            Event::Killed(signal) => return Ok(Called::Over(After::Killed(signal))),
        };
        match stopped.reason {
            StopReason::Syscall if entered => {
                let result = stopped.regs()?.rax as i64;
                stopped.set_regs(&home)?;
                if !raise {
                    return Ok(Called::Done(stopped, result));
                }
                let args = [tid.as_raw() as u64, libc::SIGTRAP as u64, 0, 0, 0, 0];
                return Ok(match call(stopped, site, libc::SYS_tkill, args, false)? {
                    Called::Done(stopped, _) => Called::Done(stopped, result),
                    over => over,
                });
            }
            StopReason::Syscall => entered = true,
            StopReason::Signal(libc::SIGTRAP) if !entered => {
                raise |= !signals::is_step(&stopped)?;
                stopped.set_regs(&regs)?;
            }
            StopReason::Signal(signal) if !entered => {
                stopped.set_regs(&home)?;
                return match signals::deliver(stopped, signal)? {
                    Delivered::InHandler(stopped) | Delivered::NotHandled(stopped) => {
                        call(stopped, site, number, args, raise)
                    }
                    Delivered::Over(after) => Ok(Called::Over(after)),
                };
            }
            StopReason::Exiting => {
                return Ok(Called::Over(After::Stopped(stopped, End::Exiting)));
            }
            _ => {}
        }
    }
}

/// The page: handler code, dispositions, magic number.
fn contents(page: u64, ignored: bool) -> Vec<u8> {
    let (code, restorer) = handler(page + BEFORE as u64, page).expect("a fixed program assembles");
    let mut bytes = vec![0; CALLS];
    bytes[..code.len()].copy_from_slice(&code);
    let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | SA_RESTORER;
    let before = if ignored {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    } as u64;
    // struct kernel_sigaction: handler, flags, restorer, mask.
    let words = [
        (INSTALLED, [page, flags, restorer, 0]),
        (BEFORE, [before, 0, 0, 0]),
    ];
    for (at, words) in words {
        for (index, word) in words.iter().enumerate() {
            bytes[at + 8 * index..at + 8 * index + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes[MARK..MARK + MAGIC.len()].copy_from_slice(MAGIC);
    bytes
}

/// The handler's code at `page`, and the address of its restorer. Runs only when no monitor is there any more.
fn handler(before: u64, page: u64) -> std::result::Result<(Vec<u8>, u64), iced_x86::IcedError> {
    /// Offset of register `index` (`REG_*` of sys/ucontext.h) in `ucontext_t`.
    const fn register(index: i32) -> i32 {
        40 + index * 8
    }
    let (r11, rcx_saved, rsp) = (register(3), register(14), register(15));
    let (rip, flags) = (register(16), register(17));
    /// Offset of `si_code` in `siginfo_t`.
    const SI_CODE: i32 = 8;
    const NOT_TRAP: i32 = !0x100;
    let mut code = CodeAssembler::new(64)?;
    let [
        mut system_call,
        mut pushed,
        mut repaired,
        mut done,
        mut restorer,
    ] = std::array::from_fn(|_| code.create_label());
    code.and(dword_ptr(rdx + flags), NOT_TRAP)?;
    // The instruction that showed the trap flag.
    code.mov(r9, page + REVEALING as u64)?;
    code.mov(rax, qword_ptr(rdx + rip))?;
    code.cmp(rax, qword_ptr(r9))?;
    code.jne(repaired)?;
    code.cmp(qword_ptr(r9 + 16), 0)?;
    code.jne(system_call)?;
    code.mov(rcx, qword_ptr(rdx + rsp))?;
    code.cmp(qword_ptr(r9 + 8), 0)?;
    code.je(pushed)?;
    code.cmp(rcx, qword_ptr(r9 + 8))?;
    code.jne(repaired)?;
    code.set_label(&mut pushed)?;
    code.and(byte_ptr(rcx + 1), !1)?;
    code.jmp(repaired)?;
    code.set_label(&mut system_call)?;
    code.cmp(rax, qword_ptr(rdx + rcx_saved))?;
    code.jne(repaired)?;
    code.and(dword_ptr(rdx + r11), NOT_TRAP)?;
    code.set_label(&mut repaired)?;
    // The disposition of SIGTRAP.
    code.mov(r8d, dword_ptr(rsi + SI_CODE))?;
    code.mov(rsi, before)?;
    code.mov(edi, libc::SIGTRAP)?;
    code.xor(edx, edx)?;
    code.mov(r10d, SET_BYTES as i32)?;
    code.mov(eax, libc::SYS_rt_sigaction as i32)?;
    code.syscall()?;
    for step in [signals::TRAP_TRACE, signals::TRAP_BRKPT] {
        code.cmp(r8d, step)?;
        code.je(done)?;
    }
    // A signal of somebody else's: blocked until the handler returns, then delivered.
    code.mov(eax, libc::SYS_gettid as i32)?;
    code.syscall()?;
    code.mov(edi, eax)?;
    code.mov(esi, libc::SIGTRAP)?;
    code.mov(eax, libc::SYS_tkill as i32)?;
    code.syscall()?;
    code.set_label(&mut done)?;
    code.ret()?;
    code.set_label(&mut restorer)?;
    code.mov(eax, libc::SYS_rt_sigreturn as i32)?;
    code.syscall()?;
    let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let assembled = code.assemble_options(page, options)?;
    let restorer = assembled.label_ip(&restorer)?;
    let bytes = assembled.inner.code_buffer;
    assert!(bytes.len() <= INSTALLED);
    Ok((bytes, restorer))
}

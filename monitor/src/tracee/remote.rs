//! System calls made by the tracee on our behalf.
//!
//! A remote call must survive the death of the monitor at any instruction, so the way back lies in
//! the tracee's own memory: a small stub makes the call, restores every register it was given from
//! words beside it, and jumps to where the thread was. The stub first lies in the unused tail of
//! an executable page (the vDSO's, usually); once our own mapping exists, it lies there.
//!
//! x86-64 system calls clobber rax, rcx and r11 only and keep the flags (Intel SDM vol. 2,
//! SYSCALL/SYSRET), so vector state needs no saving.
//!
//! Unsafe invariant: `unsafe` is in the tests alone, which zero a `user_regs_struct`: integers.

use super::maps::Maps;
use super::{Event, Regs, Result, Resume, StopReason, Stopped, TraceError, hub, is_fault, status};
use std::ops::RangeInclusive;

/// Results by which the kernel remembers that an interrupted call may start over. Source: linux/errno.h.
const RESTARTS: RangeInclusive<i64> = -516..=-512;
/// `ERESTART_RESTARTBLOCK`: starts over as `restart_syscall`.
pub const RESTART_BLOCK: i64 = -516;

/// Whether the thread is stopped in the return from a call that a signal interrupted, and that starts over unless a
/// handler runs.
pub fn restart_pending(regs: &Regs) -> bool {
    regs.orig_rax as i64 >= 0 && RESTARTS.contains(&(regs.rax as i64))
}

/// `syscall`.
pub const SYSCALL_CODE: [u8; 2] = [0x0f, 0x05];

/// Whether the kernel has already seen to it that an interrupted call is made again, and another stop came before the thread's next instruction:
/// rax has the call's number, and says nothing of a result. Source: linux/arch/x86/kernel/signal.c, `arch_do_signal_or_restart`.
pub fn is_made_again(stopped: &Stopped, regs: &Regs) -> bool {
    let made = (regs.orig_rax as i64) >= 0 && regs.rax == regs.orig_rax;
    (made || regs.rax == libc::SYS_restart_syscall as u64) && executes_call(stopped, regs)
}

/// Whether the thread's next instruction is `syscall`.
pub fn is_at_call(stopped: &Stopped) -> bool {
    stopped
        .regs()
        .is_ok_and(|regs| executes_call(stopped, &regs))
}

fn executes_call(stopped: &Stopped, regs: &Regs) -> bool {
    let mut code = [0; SYSCALL_CODE.len()];
    // Where there is nothing to be read nothing is executed either.
    stopped.read(regs.rip, &mut code).is_ok() && code == SYSCALL_CODE
}

/// Registers as the kernel would set them to start the call over: at the `syscall` instruction. Where nothing is
/// to be started over, the same registers. Either way `orig_rax` says that the thread is in no system call.
pub fn restarted(regs: &Regs) -> Regs {
    let mut regs = *regs;
    if restart_pending(&regs) {
        let restart_block = regs.rax as i64 == RESTART_BLOCK;
        regs.rip -= 2;
        regs.rax = if restart_block {
            libc::SYS_restart_syscall as u64
        } else {
            regs.orig_rax
        };
    }
    regs.orig_rax = u64::MAX;
    regs
}

/// Machine code of the stub; the words it reads follow at [`WORDS`].
///
/// `syscall; mov rax,[rip+..] .. mov r11,[rip+..]; jmp [rip+..]`
const STUB_LEN: usize = 2 + 9 * 7 + 6;
/// Offset of the saved words: rax, rcx, r11, rdi, rsi, rdx, r10, r8, r9, rip.
const WORDS: usize = (STUB_LEN + 7) & !7;
/// Offset of a short string calls can point at.
const NAME: usize = WORDS + 10 * 8;
/// The string: names the shared memory in the tracee's `/proc/PID/maps`.
const NAME_BYTES: &[u8; 10] = b"statcache\0";
/// Flags of memfd_create(2).
const MFD_CLOEXEC: u64 = 1;
/// Since Linux 6.3; asks for what older kernels gave without asking.
const MFD_EXEC: u64 = 0x10;
/// Bytes a stub needs, words included.
pub const STUB_BYTES: usize = NAME + 16;

/// Opcode bytes of `mov r64, [rip+disp32]` for each restored register.
pub(super) const LOADS: [[u8; 3]; 9] = [
    [0x48, 0x8b, 0x05], // rax
    [0x48, 0x8b, 0x0d], // rcx
    [0x4c, 0x8b, 0x1d], // r11
    [0x48, 0x8b, 0x3d], // rdi
    [0x48, 0x8b, 0x35], // rsi
    [0x48, 0x8b, 0x15], // rdx
    [0x4c, 0x8b, 0x15], // r10
    [0x4c, 0x8b, 0x05], // r8
    [0x4c, 0x8b, 0x0d], // r9
];

/// The stub for a thread whose registers are `regs`.
pub fn stub(regs: &Regs) -> [u8; STUB_BYTES] {
    let mut bytes = [0x90u8; STUB_BYTES];
    bytes[..2].copy_from_slice(&[0x0f, 0x05]);
    for (i, load) in LOADS.iter().enumerate() {
        let at = 2 + 7 * i;
        let disp = (WORDS + 8 * i) as i32 - (at as i32 + 7);
        bytes[at..at + 3].copy_from_slice(load);
        bytes[at + 3..at + 7].copy_from_slice(&disp.to_le_bytes());
    }
    let jump = 2 + 9 * 7;
    let disp = (WORDS + 72) as i32 - (jump as i32 + 6);
    bytes[jump..jump + 2].copy_from_slice(&[0xff, 0x25]);
    bytes[jump + 2..jump + 6].copy_from_slice(&disp.to_le_bytes());
    let words = [
        regs.rax, regs.rcx, regs.r11, regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9,
        regs.rip,
    ];
    for (i, word) in words.iter().enumerate() {
        bytes[WORDS + 8 * i..WORDS + 8 * i + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes[NAME..NAME + NAME_BYTES.len()].copy_from_slice(NAME_BYTES);
    bytes
}

/// An executable place of at least [`STUB_BYTES`] that the program does not use: zeros at the very
/// end of an executable page that belongs to a file or the vDSO.
pub fn find_slack(stopped: &Stopped, maps: &Maps) -> Option<u64> {
    find_slack_of(stopped, maps, STUB_BYTES)
}

/// The same of so many bytes.
pub(super) fn find_slack_of(stopped: &Stopped, maps: &Maps, bytes: usize) -> Option<u64> {
    maps.0
        .iter()
        .rev()
        .filter(|m| m.is_stable_code())
        .find_map(|m| {
            let address = m.end - bytes as u64 - 16;
            let mut tail = vec![0u8; bytes + 16];
            let readable = stopped.read(address, &mut tail).is_ok();
            (readable && tail.iter().all(|&b| b == 0)).then_some(address + 16)
        })
}

/// A place in the tracee where remote calls are made. The bytes there before are put back by
/// [`CallSite::close`].
#[derive(Debug)]
pub struct CallSite {
    address: u64,
    before: [u8; STUB_BYTES],
    /// The registers to return to.
    home: Regs,
}

impl CallSite {
    /// Prepares `address` for calls by a thread that is stopped in user mode with registers `home`.
    ///
    /// # Errors
    /// When the memory cannot be written.
    pub fn open(stopped: &Stopped, address: u64, home: Regs) -> Result<CallSite> {
        let mut before = [0; STUB_BYTES];
        stopped.read(address, &mut before)?;
        stopped.write(address, &stub(&home))?;
        Ok(CallSite {
            address,
            before,
            home,
        })
    }

    /// Address of the NUL-terminated string `statcache`.
    pub fn name(&self) -> u64 {
        self.address + NAME as u64
    }

    /// Lets `stopped`, which is stopped in user mode, make calls here.
    pub fn caller(&self, stopped: Stopped) -> Caller<'_> {
        Caller {
            site: self,
            tid: stopped.tid(),
            stopped: Some(stopped),
            news: None,
        }
    }

    /// Puts the thread's registers and the place's bytes back.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn close(self, stopped: &Stopped) -> Result<()> {
        let mut home = self.home;
        home.orig_rax = u64::MAX;
        stopped.set_regs(&home)?;
        stopped.write(self.address, &self.before)
    }
}

/// A stopped thread that makes calls at a [`CallSite`].
#[derive(Debug)]
pub struct Caller<'a> {
    site: &'a CallSite,
    tid: nix::unistd::Pid,
    /// `None` once it has died.
    stopped: Option<Stopped>,
    /// What came first and waits to be passed on: a further call would lose it.
    news: Option<StopReason>,
}

impl Caller<'_> {
    fn stopped(&self) -> Result<&Stopped> {
        self.stopped.as_ref().ok_or(TraceError::Gone(self.tid))
    }

    /// The thread.
    pub fn tid(&self) -> nix::unistd::Pid {
        self.tid
    }

    /// Gives the thread back; `None` when it died meanwhile. When its stop is for a signal, that
    /// must be delivered at its resume, and sat out when all of its process is stopped. The exit of a call of ours is no stop for a call of the program's.
    pub fn done(mut self) -> Option<Stopped> {
        self.stopped.take().map(Stopped::without_call)
    }

    /// Makes system call `number` in the tracee and returns its result. What a filtered program may be asked for is in `filters.rs`: a new call
    /// has to be named there.
    ///
    /// # Errors
    /// [`TraceError::Gone`] when the thread has died, now or before. [`TraceError::Remote`] when the call
    /// failed. [`TraceError::Unsuitable`] when a signal came
    /// first, or a stop of its process: the thread is back at its own registers and the call has not been made, nor will any other be.
    pub fn call(&mut self, what: &'static str, number: i64, args: [u64; 6]) -> Result<u64> {
        let tid = self.tid();
        let came_first = |news| TraceError::Unsuitable {
            tid,
            reason: format!("{news:?} came first"),
        };
        if let Some(news) = self.news {
            return Err(came_first(news));
        }
        let mut regs = self.site.home;
        regs.rip = self.site.address;
        regs.rax = number as u64;
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        self.stopped()?.set_regs(&regs)?;
        let (mut syscall_stops, mut harmless) = (0, 0);
        let mut most = MOST_HARMLESS;
        while syscall_stops < 2 {
            let stopped = self.stopped.take().ok_or(TraceError::Gone(tid))?;
            let running = stopped.resume_near(Resume::Syscall, std::mem::take(&mut harmless))?;
            match running.wait_near()? {
                // Another thread has executed a program: this one is on its way out, or what is stopped is the
                // new program under its id, in which nothing of ours may be done.
                Event::Stopped(stopped) if stopped.is_replaced() => {
                    hub::release(Event::Stopped(stopped));
                    return Err(TraceError::Gone(tid));
                }
                // It has it, and nothing comes of it.
                Event::Stopped(stopped) if most > 0 && does_nothing(&stopped) => {
                    most -= 1;
                    if let StopReason::Signal(signal) = stopped.reason {
                        harmless = signal;
                    }
                    self.stopped = Some(stopped);
                }
                // Never held back: the thread goes home and the caller passes it on.
                Event::Stopped(stopped) if stopped.has_news() => {
                    let news = stopped.reason;
                    stopped.set_regs(&self.site.home)?;
                    (self.stopped, self.news) = (Some(stopped), Some(news));
                    return Err(came_first(news));
                }
                Event::Stopped(stopped) => {
                    syscall_stops += u32::from(stopped.reason == StopReason::Syscall);
                    self.stopped = Some(stopped);
                }
                Event::Exited(_) | Event::Killed(_) => return Err(TraceError::Gone(tid)),
            }
        }
        let result = self.stopped()?.regs()?.rax;
        let error = -(result as i64);
        if (1..4096).contains(&error) {
            let source = std::io::Error::from_raw_os_error(error as i32);
            return Err(TraceError::Remote { what, tid, source });
        }
        Ok(result)
    }
}

/// Signals that do nothing, during one call, for which the thread does not go home.
const MOST_HARMLESS: u32 = 100;

/// Whether it is about to get a signal that it ignores.
fn does_nothing(stopped: &Stopped) -> bool {
    let StopReason::Signal(signal) = stopped.reason else {
        return false;
    };
    let sets = status::signal_sets(stopped.tid());
    !is_fault(signal) && sets.is_some_and(|sets| sets.ignores(signal))
}

impl Caller<'_> {
    /// Makes memory that the tracee can share with us and execute; its descriptor there.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub fn shared_memory(&mut self) -> Result<u64> {
        let memfd = |flags| [self.site.name(), flags, 0, 0, 0, 0];
        let [modern, old] = [memfd(MFD_CLOEXEC | MFD_EXEC), memfd(MFD_CLOEXEC)];
        let what = "memfd_create";
        match self.call(what, libc::SYS_memfd_create, modern) {
            Err(TraceError::Remote { source, .. })
                if source.raw_os_error() == Some(libc::EINVAL) =>
            {
                self.call(what, libc::SYS_memfd_create, old)
            }
            other => other,
        }
    }

    /// A core dump of the program has nothing of ours: it would be a thousand times as long, and cut off by a limit that was
    /// meant for the program alone.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub fn leave_out_of_dumps(&mut self, address: u64, bytes: u64) -> Result<()> {
        let args = [address, bytes, libc::MADV_DONTDUMP as u64, 0, 0, 0];
        match self.call("madvise", libc::SYS_madvise, args) {
            // Without it the dump is long, and as right.
            Ok(_) | Err(TraceError::Remote { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};

    #[test]
    fn stub_restores_every_register_from_its_own_word() {
        // SAFETY: plain integers; all zero is valid.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        regs.rip = 0x1234;
        let bytes = stub(&regs);
        let mut decoder = Decoder::with_ip(64, &bytes[..STUB_LEN], 0, DecoderOptions::NONE);
        let list: Vec<Instruction> = decoder.iter().collect();
        assert_eq!(list[0].mnemonic(), Mnemonic::Syscall);
        use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
        for (i, reg) in [RAX, RCX, R11, RDI, RSI, RDX, R10, R8, R9]
            .iter()
            .enumerate()
        {
            assert_eq!(list[1 + i].op0_register(), *reg);
            assert_eq!(list[1 + i].memory_displacement64(), (WORDS + 8 * i) as u64);
        }
        assert_eq!(list[10].mnemonic(), Mnemonic::Jmp);
        assert_eq!(list[10].memory_displacement64(), (WORDS + 72) as u64);
        assert_eq!(bytes[WORDS + 72..][..2], [0x34, 0x12]);
    }
}

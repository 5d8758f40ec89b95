//! Completing a transfer that a stop of ours has cut: the rest is moved by another call, and the program is told the sum.
//!
//! A thread that sleeps in such a call is left alone ([`super::transfers`]); of one that runs nobody can tell where it is, and a stop that
//! finds it in the middle of a write to a pipe has it return early. So the call is gone on with, in a stub in the tracee's own memory that adds up,
//! puts the program's registers back and jumps to where the program was, whether we are still there or not. Where the program gives a
//! buffer in several pieces each takes a call; were we killed in between, it would be told what has been moved by then.
//!
//! Seen to are `write` and `writev` to pipes and sockets, `sendto`, `recvfrom` with `MSG_WAITALL`, and `read` at a terminal that waits for several bytes. Not `sendmsg` and its like, which
//! have more to say than bytes, nor `sendfile`, `splice` and `copy_file_range`.
//! Source: signal(7), pipe(7), send(2), termios(3); linux/fs/pipe.c, `pipe_write`; linux/drivers/tty/n_tty.c, `n_tty_read`.
//!
//! Unsafe invariant: `unsafe` is in the tests alone, which zero a `user_regs_struct`: integers.

use super::maps::Maps;
use super::remote::{self, LOADS, is_made_again, restart_pending};
use super::stops::ERESTARTNOINTR;
use super::{Regs, Result, StopReason, Stopped, status, transfers};
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::collections::VecDeque;

/// Offset of the words behind the code.
const WORDS: usize = 96;
/// The words: moved before, rcx, r11, rdi, rsi, rdx, r10, r8, r9, rip.
const WORD_COUNT: usize = 10;
const DONE: usize = 0;
const REGISTERS: usize = 1;
const RIP: usize = 9;
/// Bytes of the stub.
const BYTES: usize = WORDS + 8 * WORD_COUNT;
/// Bytes of `syscall`.
const SYSCALL: u64 = 2;
/// A stretch of the program's memory: where, and how many bytes.
type Piece = (u64, u64);

/// What is left of a thread's call.
#[derive(Debug)]
pub struct Completion {
    /// Where the stub is.
    site: u64,
    /// The program's registers behind its call, but for the result.
    home: Regs,
    call: Call,
    /// What is being moved, and what then.
    piece: Piece,
    pieces: VecDeque<Piece>,
    /// Bytes moved.
    done: u64,
}

/// What moves a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: i64,
    descriptor: u64,
    flags: u64,
}

/// Where the thread is after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The call goes on, or is about to.
    Busy,
    /// At the program's own registers.
    Home,
    /// Not in the stub: it is through, or makes a call for us and comes back to it.
    Elsewhere,
}

impl Completion {
    /// Begins where an interrupted thread has moved less than it was asked to: it goes on with the rest as a thread does whose call the kernel makes
    /// again. `None` where that cannot be, or nothing is left.
    pub fn begin(stopped: &Stopped, regs: &Regs) -> Option<Completion> {
        let moved = regs.rax as i64;
        if (regs.orig_rax as i64) < 0 || moved <= 0 || restart_pending(regs) {
            return None;
        }
        let call = Call::of(stopped.tid(), regs)?;
        if is_made_again(stopped, regs) {
            return None;
        }
        // Who looks at the program's calls may not like one from elsewhere, nor another than it has made.
        if status::is_filtered(stopped.tid()) || stopped.dispatcher().is_some() {
            return None;
        }
        let mut pieces = left(pieces(stopped, regs)?, moved as u64);
        let piece = pieces.pop_front()?;
        let maps = Maps::read(stopped.tid()).ok()?;
        let completion = Completion {
            site: remote::find_slack_of(stopped, &maps, BYTES)?,
            home: *regs,
            call,
            piece,
            pieces,
            done: moved as u64,
        };
        match completion.go_on(stopped) {
            Ok(()) => Some(completion),
            Err(_) => {
                // As it was, and as cut.
                let _ = completion.go_home(stopped);
                None
            }
        }
    }

    /// What a stop of the thread, which is of the same program image, means for it; `asked`: it is for us alone, as we had asked for one, or
    /// as the signal is ignored.
    ///
    /// # Errors
    /// [`super::TraceError::Gone`].
    pub fn at_stop(&mut self, stopped: &Stopped, asked: bool) -> Result<Progress> {
        let regs = stopped.regs()?;
        if !self.is_in_stub(&regs) {
            return Ok(Progress::Elsewhere);
        }
        let is_told = matches!(stopped.reason, StopReason::Signal(_) if !asked)
            || stopped.reason == StopReason::Group;
        if is_told && self.is_before_call(&regs) {
            return self.go_home(stopped).map(|()| Progress::Home);
        }
        let at_call = stopped.reason == StopReason::Syscall;
        let at_entry = at_call && !stopped.is_behind_call();
        // Before the call, or behind all that is left to do: either goes by itself.
        if at_entry || self.is_before_call(&regs) || !self.is_in_call(&regs) {
            return Ok(Progress::Busy);
        }
        let moved = regs.rax as i64;
        if moved > 0 {
            self.done += moved as u64;
            self.piece.0 += moved as u64;
            self.piece.1 -= (moved as u64).min(self.piece.1);
        }
        let is_all = self.piece.1 == 0;
        if is_all && let Some(next) = self.pieces.pop_front() {
            self.piece = next;
        }
        // What a signal has cut is the program's affair: it stops the thread before the next call is made. (One that the program ignores may have been
        // taken by another thread since.)
        let more = self.piece.1 > 0 && (is_all || moved > 0);
        if !more || is_told {
            return self.go_home(stopped).map(|()| Progress::Home);
        }
        self.go_on(stopped)?;
        if at_call && !asked {
            // Where nobody has asked for a stop the kernel does not look whether the call is to be made again.
            let _ = ptrace::interrupt(stopped.tid());
        }
        Ok(Progress::Busy)
    }

    fn is_in_stub(&self, regs: &Regs) -> bool {
        regs.rip.wrapping_sub(self.site) < WORDS as u64
    }

    fn is_in_call(&self, regs: &Regs) -> bool {
        regs.rip == self.site + SYSCALL && regs.orig_rax as i64 >= 0
    }

    fn is_before_call(&self, regs: &Regs) -> bool {
        regs.rip == self.site || self.is_in_call(regs) && restart_pending(regs)
    }

    /// Gives the rest up, if it has not been begun with; takes the stub away, unless the thread needs it to come home.
    ///
    /// # Errors
    /// [`super::TraceError::Gone`].
    pub fn give_up(&self, stopped: &Stopped) -> Result<()> {
        let regs = stopped.regs()?;
        if self.is_before_call(&regs) {
            return self.go_home(stopped);
        }
        match self.is_in_stub(&regs) {
            true => Ok(()),
            false => self.clear(stopped),
        }
    }

    /// Has the thread at the program's registers, which are told what has been moved, and nothing of ours left.
    ///
    /// # Errors
    /// [`super::TraceError::Gone`].
    fn go_home(&self, stopped: &Stopped) -> Result<()> {
        let mut regs = self.home;
        regs.rax = self.done;
        regs.orig_rax = u64::MAX;
        stopped.set_regs(&regs)?;
        self.clear(stopped)
    }

    fn clear(&self, stopped: &Stopped) -> Result<()> {
        stopped.write(self.site, &[0; BYTES])
    }

    /// Sends the thread, at the end of a call, into the next one.
    fn go_on(&self, stopped: &Stopped) -> Result<()> {
        stopped.write(self.site, &self.stub())?;
        let mut regs = self.home;
        // As the kernel leaves it in a call that it makes again: who looks sees that it is in one.
        regs.rip = self.site + SYSCALL;
        regs.orig_rax = self.call.number as u64;
        regs.rax = (-ERESTARTNOINTR) as u64;
        regs.rdi = self.call.descriptor;
        (regs.rsi, regs.rdx) = self.piece;
        if !matches!(self.call.number, libc::SYS_read | libc::SYS_write) {
            (regs.r10, regs.r8, regs.r9) = (self.call.flags, 0, 0);
        }
        stopped.set_regs(&regs)
    }

    /// `syscall`; the sum, or what was moved before if the call has failed, into rax; all registers from the words; back. It touches no flags, and
    /// writes nothing: its page is code.
    fn stub(&self) -> [u8; BYTES] {
        let mut code = Vec::with_capacity(BYTES);
        let mut put = |opcode: &[u8], word: usize| {
            code.extend_from_slice(opcode);
            let displacement = (WORDS + 8 * word) as i32 - (code.len() as i32 + 4);
            code.extend_from_slice(&displacement.to_le_bytes());
        };
        // syscall; mov rcx, rax; bswap rcx; movzx ecx, cl: 0 unless it has failed; jrcxz sum; mov rax, [done]
        put(
            &[
                0x0f, 0x05, 0x48, 0x89, 0xc1, 0x48, 0x0f, 0xc9, 0x0f, 0xb6, 0xc9, 0xe3, 9, 0x48,
                0x8b, 0x05,
            ],
            DONE,
        );
        // jmp over; sum: mov rcx, [done]
        put(&[0xeb, 11, 0x48, 0x8b, 0x0d], DONE);
        // lea rax, [rax+rcx]; over: mov rcx, [its word]
        put(&[0x48, 0x8d, 0x04, 0x08, 0x48, 0x8b, 0x0d], REGISTERS);
        // All others but rax, which is the result, and rcx.
        for (word, load) in LOADS[2..].iter().enumerate() {
            put(load, REGISTERS + 1 + word);
        }
        // jmp [rip]
        put(&[0xff, 0x25], RIP);
        debug_assert!(code.len() <= WORDS);
        code.resize(WORDS, 0x90);
        let home = &self.home;
        let words = [
            self.done, home.rcx, home.r11, home.rdi, home.rsi, home.rdx, home.r10, home.r8,
            home.r9, home.rip,
        ];
        code.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        code.try_into().expect("code and words")
    }
}

impl Call {
    /// What moves the rest of a call; `None` for those that are not gone on with.
    fn of(tid: Pid, regs: &Regs) -> Option<Call> {
        let descriptor = regs.rdi;
        let (no_signal, all) = (libc::MSG_NOSIGNAL as u64, libc::MSG_WAITALL as u64);
        let send = |flags| Call {
            number: libc::SYS_sendto,
            descriptor,
            flags,
        };
        let plain = |number| Call {
            number,
            descriptor,
            flags: 0,
        };
        match regs.orig_rax as i64 {
            libc::SYS_read if transfers::has_fallen_short(regs) => {
                transfers::is_terminal(tid, descriptor).then(|| plain(libc::SYS_read))
            }
            libc::SYS_write | libc::SYS_writev => match transfers::kind_of(tid, descriptor)? {
                libc::S_IFIFO => Some(plain(libc::SYS_write)),
                // Who closes the other end now has not done so for the program.
                libc::S_IFSOCK => Some(send(no_signal)),
                _ => None,
            },
            // Each send without a copy is told of by a number of its own. Source: linux/Documentation/networking/msg_zerocopy.rst.
            libc::SYS_sendto if regs.r8 == 0 && regs.r10 & libc::MSG_ZEROCOPY as u64 == 0 => {
                Some(send(regs.r10 | no_signal))
            }
            libc::SYS_recvfrom
                if regs.r8 == 0 && regs.r10 & all != 0 && regs.r10 & libc::MSG_PEEK as u64 == 0 =>
            {
                Some(Call {
                    number: libc::SYS_recvfrom,
                    descriptor,
                    flags: regs.r10,
                })
            }
            _ => None,
        }
    }
}

/// What a call was to move, at least.
fn pieces(stopped: &Stopped, regs: &Regs) -> Option<VecDeque<Piece>> {
    /// Most pieces of one call (`UIO_MAXIOV`, linux/uio.h), and bytes of a `struct iovec`.
    const MOST: u64 = 1024;
    const IOVEC: usize = 16;
    match regs.orig_rax as i64 {
        libc::SYS_writev => {}
        // More is taken if it is there, but not waited for.
        libc::SYS_read => {
            let fewest = transfers::fewest_at_terminal(stopped.tid(), regs.rdi)?;
            return Some([(regs.rsi, regs.rdx.min(fewest))].into());
        }
        _ => return Some([(regs.rsi, regs.rdx)].into()),
    }
    let mut bytes = vec![0; IOVEC * regs.rdx.min(MOST) as usize];
    stopped.read(regs.rsi, &mut bytes).ok()?;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let pieces = bytes.chunks_exact(IOVEC);
    Some(pieces.map(|p| (word(&p[..8]), word(&p[8..]))).collect())
}

/// What is left of them when so many bytes have been moved.
fn left(mut pieces: VecDeque<Piece>, mut moved: u64) -> VecDeque<Piece> {
    while let Some((at, bytes)) = pieces.pop_front() {
        if bytes > moved {
            pieces.push_front((at + moved, bytes - moved));
            break;
        }
        moved -= bytes;
    }
    pieces.retain(|&(_, bytes)| bytes > 0);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

    fn completion() -> Completion {
        // SAFETY: plain integers; all zero is valid.
        let mut home: Regs = unsafe { std::mem::zeroed() };
        home.rip = 0x1234;
        Completion {
            site: 0,
            home,
            call: Call {
                number: libc::SYS_write,
                descriptor: 1,
                flags: 0,
            },
            piece: (0, 1),
            pieces: VecDeque::new(),
            done: 77,
        }
    }

    #[test]
    fn the_stub_adds_up_and_restores_every_register_from_its_own_word() {
        let bytes = completion().stub();
        let mut decoder = Decoder::with_ip(64, &bytes[..WORDS], 0, DecoderOptions::NONE);
        let mut next = || decoder.decode();
        let word = |n: usize| (WORDS + 8 * n) as u64;
        for expected in [
            Mnemonic::Syscall,
            Mnemonic::Mov,
            Mnemonic::Bswap,
            Mnemonic::Movzx,
        ] {
            let instruction = next();
            assert_eq!(instruction.mnemonic(), expected);
            // Nothing is written: the page is code.
            assert!(expected != Mnemonic::Mov || instruction.op0_register() == Register::RCX);
        }
        let has_moved = next();
        assert_eq!(has_moved.mnemonic(), Mnemonic::Jrcxz);
        let failed = next();
        assert_eq!(failed.op0_register(), Register::RAX);
        assert_eq!(failed.memory_displacement64(), word(DONE));
        let over = next();
        let sum = next();
        assert_eq!(has_moved.near_branch_target(), sum.ip());
        assert_eq!(sum.memory_displacement64(), word(DONE));
        let sum = next();
        assert_eq!(sum.mnemonic(), Mnemonic::Lea);
        assert_eq!(over.near_branch_target(), sum.next_ip());
        use Register::{R8, R9, R10, R11, RCX, RDI, RDX, RSI};
        for (n, register) in [RCX, R11, RDI, RSI, RDX, R10, R8, R9]
            .into_iter()
            .enumerate()
        {
            let load = next();
            assert_eq!(load.op0_register(), register);
            assert_eq!(load.memory_displacement64(), word(REGISTERS + n));
        }
        let back = next();
        assert_eq!(back.mnemonic(), Mnemonic::Jmp);
        assert_eq!(back.memory_displacement64(), word(RIP));
        assert!(back.next_ip() <= WORDS as u64);
        assert_eq!(bytes[word(RIP) as usize..][..2], [0x34, 0x12]);
        assert_eq!(bytes[word(DONE) as usize], 77);
    }

    #[test]
    fn what_is_left_begins_where_the_call_stopped() {
        let pieces = || VecDeque::from([(100, 10), (200, 0), (300, 20)]);
        assert_eq!(left(pieces(), 4), [(104, 6), (300, 20)]);
        assert_eq!(left(pieces(), 10), [(300, 20)]);
        assert_eq!(left(pieces(), 29), [(319, 1)]);
        assert!(left(pieces(), 30).is_empty());
    }
}

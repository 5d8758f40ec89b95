//! Stops that only we have caused must not show: what a stopped thread is told so that it goes on as if
//! it had not been. Source: ptrace(2), signal(7).

use super::remote::{is_made_again, restart_pending};
use super::{Result, Stopped, transfers};

/// Whether an interrupted thread is at its own registers, and if so tells the kernel that it is in no
/// system call. One that sleeps in a call is not, nor one that is about to sleep on: the call is made again, or fails, at its resume.
pub fn leave_kernel(stopped: &Stopped) -> bool {
    let Ok(mut regs) = stopped.regs() else {
        return false;
    };
    if restart_pending(&regs) || is_made_again(stopped, &regs) {
        return false;
    }
    regs.orig_rax = u64::MAX;
    stopped.set_regs(&regs).is_ok()
}

/// `ERESTARTNOINTR`: made again, whatever comes. Source: linux/errno.h.
pub const ERESTARTNOINTR: i64 = 513;

/// `ERESTARTNOHAND`: made again, unless a handler runs. Source: linux/errno.h.
pub const ERESTARTNOHAND: i64 = 514;

/// Command to load a program. Source: linux/bpf.h.
const BPF_PROG_LOAD: u64 = 5;

/// Request to run a processor of a virtual machine. Source: linux/kvm.h, `_IO(KVMIO, 0x80)`.
const KVM_RUN: u64 = 0xae80;

/// Some calls fail with `EINTR` when the thread is stopped, handler or not (signal(7),
/// "Interruption of system calls by stop signals"). Where only we stopped it, and nothing has been
/// done yet, the kernel is told to make the call again unless a handler runs. So it is where a file server was asked, or a
/// virtual machine or the verifier of a program for the kernel was interrupted (linux/virt/kvm/kvm_main.c, `KVM_RUN`; linux/kernel/bpf/verifier.c, `do_check`: `EAGAIN`).
/// And where less was done than was asked for, and all of it can be had again. Returns whether the call is not to be cut again.
///
/// # Errors
/// [`TraceError::Gone`].
pub fn mend(stopped: &Stopped) -> Result<bool> {
    const AGAIN: [i64; 30] = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_io_getevents,
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_msgrcv,
        libc::SYS_msgsnd,
        transfers::SYS_IO_PGETEVENTS,
        libc::SYS_io_uring_enter,
        // With a time limit of their own (socket(7), `SO_SNDTIMEO`).
        libc::SYS_connect,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
    ];
    let mut regs = stopped.regs()?;
    let failed = |error: i32| regs.rax as i64 == -i64::from(error);
    let is_interrupted = failed(libc::EINTR);
    // It begins anew, with all its work: once more cut, and again, it would never be over.
    let is_anew = match regs.orig_rax as i64 {
        libc::SYS_bpf => failed(libc::EAGAIN) && regs.rdi == BPF_PROG_LOAD,
        libc::SYS_fallocate => is_interrupted,
        _ => false,
    };
    let again = match regs.orig_rax as i64 {
        libc::SYS_ioctl => is_interrupted && regs.rsi == KVM_RUN,
        number => is_interrupted && (AGAIN.contains(&number) || transfers::names_file(number)),
    };
    if is_anew || again {
        regs.rax = (-ERESTARTNOHAND) as u64;
        stopped.set_regs(&regs)?;
        return Ok(is_anew);
    } else if transfers::starts_over(stopped.tid(), &regs) && !is_made_again(stopped, &regs) {
        regs.rax = (-ERESTARTNOINTR) as u64;
        stopped.set_regs(&regs)?;
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::completion::Completion;
    use crate::tracee::remote::restarted;
    use crate::tracee::{Event, Regs, Resume, StopReason, launch, procinfo};

    /// A thread that is to make its `write` again has the number of the call, 1, where a result would be: it has not written one byte.
    #[test]
    fn a_call_that_is_about_to_be_made_again_has_no_result() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let fifo = place.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
        let mut both = std::fs::OpenOptions::new();
        let full = both.read(true).write(true).open(&fifo).expect("opened");
        let script = format!("exec yes > {}", fifo.display());
        let words = [
            c"sh".into(),
            c"-c".into(),
            std::ffi::CString::new(script).expect("no NUL"),
        ];
        let (_, running, _) = launch::launch(&c"/bin/sh".into(), &words).expect("launched");
        let (mut at, mut executed) = (running.wait_to_stop(), 0);
        loop {
            executed += u32::from(at.reason == StopReason::Exec);
            if executed == 2 {
                break;
            }
            at = at
                .resume(Resume::Continue, 0)
                .expect("resumed")
                .wait_to_stop();
        }
        let tid = at.tid();
        let running = at.resume(Resume::Continue, 0).expect("resumed");
        while procinfo::sleeps_in(tid).is_none_or(|(number, _)| number != libc::SYS_write) {
            std::thread::yield_now();
        }
        running.interrupt().expect("asked");
        let at = running.wait_to_stop();
        let found = at.regs().expect("read");
        assert!(restart_pending(&found) && !is_made_again(&at, &found));
        let again = Regs {
            orig_rax: found.orig_rax,
            ..restarted(&found)
        };
        at.set_regs(&again).expect("set");
        assert!(transfers::has_fallen_short(&again), "so it looks");
        assert!(is_made_again(&at, &again));
        assert!(!mend(&at).expect("read") && !leave_kernel(&at));
        assert!(Completion::begin(&at, &again).is_none());
        assert_eq!(at.regs().expect("read"), again);
        // Behind the call it is a result.
        assert!(!is_made_again(
            &at,
            &Regs {
                rip: found.rip,
                ..again
            }
        ));
        // It goes on, and ends when nobody is left to read.
        let running = at.resume(Resume::Continue, 0).expect("resumed");
        nix::sys::signal::kill(tid, nix::sys::signal::Signal::SIGTERM).expect("sent");
        let at = running.wait_to_stop();
        assert_eq!(at.reason, StopReason::Signal(libc::SIGTERM));
        let mut event = at
            .resume(Resume::Continue, libc::SIGTERM)
            .expect("resumed")
            .wait();
        while let Ok(Event::Stopped(at)) = event {
            event = at.resume(Resume::Continue, 0).expect("resumed").wait();
        }
        assert!(
            matches!(event, Ok(Event::Killed(libc::SIGTERM))),
            "{event:?}"
        );
        drop(full);
    }
}

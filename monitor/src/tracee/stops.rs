//! Stops that only we have caused must not show: what a stopped thread is told so that it goes on as if
//! it had not been. Source: ptrace(2), signal(7).

use super::remote::restart_pending;
use super::{Result, Stopped, transfers};

/// Whether an interrupted thread is at its own registers, and if so tells the kernel that it is in no
/// system call. One that sleeps in a call is not: the call is made again, or fails, at its resume.
pub fn leave_kernel(stopped: &Stopped) -> bool {
    let Ok(mut regs) = stopped.regs() else {
        return false;
    };
    if restart_pending(&regs) {
        return false;
    }
    regs.orig_rax = u64::MAX;
    stopped.set_regs(&regs).is_ok()
}

/// `ERESTARTNOINTR`: made again, whatever comes. Source: linux/errno.h.
pub const ERESTARTNOINTR: i64 = 513;

/// `ERESTARTNOHAND`: made again, unless a handler runs. Source: linux/errno.h.
pub const ERESTARTNOHAND: i64 = 514;

/// Some calls fail with `EINTR` when the thread is stopped, handler or not (signal(7),
/// "Interruption of system calls by stop signals"). Where only we stopped it, and nothing has been
/// done yet, the kernel is told to make the call again unless a handler runs. So it is where less was done than was asked for and
/// all of it can be had again; whether that was the case.
///
/// # Errors
/// [`TraceError::Gone`].
pub fn mend(stopped: &Stopped) -> Result<bool> {
    const AGAIN: [i64; 24] = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_io_getevents,
        libc::SYS_read,
        libc::SYS_readv,
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
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
    ];
    let mut regs = stopped.regs()?;
    if regs.rax as i64 == -i64::from(libc::EINTR) && AGAIN.contains(&(regs.orig_rax as i64)) {
        regs.rax = (-ERESTARTNOHAND) as u64;
        stopped.set_regs(&regs)?;
    } else if transfers::starts_over(stopped.tid(), &regs) {
        regs.rax = (-ERESTARTNOINTR) as u64;
        stopped.set_regs(&regs)?;
        return Ok(true);
    }
    Ok(false)
}

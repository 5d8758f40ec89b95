//! System calls that move many bytes. One that a stop interrupts on the way returns what it has moved so far, as it would for
//! a signal; a program that gets no signal need not reckon with that.
//!
//! Who sleeps in such a call, in one that looks for a file, or in one that writes to memory what time is left of it, is left asleep ([`would_be_cut`], [`is_better_left`]). Of those that run, what can be had again is asked for again
//! ([`starts_over`]), and what goes through pipes and sockets is gone on with (`completion`). Not seen to: `sendmsg`, `sendfile` and their like.
//! Source: signal(7), pipe(7), recv(2), random(4), nanosleep(2), termios(3), socket(7), inode(7); linux/drivers/char/mem.c, `read_zero`.
//!
//! Unsafe invariant: `unsafe` is in the tests alone, which zero a `user_regs_struct`: integers.

use super::{Regs, procinfo, status};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::termios::{LocalFlags, SpecialCharacterIndices, tcgetattr};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use std::path::Path;

/// `io_pgetevents`, which the library `libc` does not name. Source: linux/arch/x86/entry/syscalls/syscall_64.tbl.
pub const SYS_IO_PGETEVENTS: i64 = 333;

/// Whether a thread sleeps in a call that would return early if it were stopped now.
pub fn would_be_cut(tid: Pid) -> bool {
    procinfo::sleeps_in(tid).is_some_and(|(number, args)| is_cut(tid, number, args))
}

/// Whether a stop shows in what a call that a thread sleeps in returns, or leaves in memory.
fn is_cut(tid: Pid, number: i64, args: [u64; 6]) -> bool {
    may_return_early(number, args)
        || writes_what_is_left(number, args)
        // Who waits for a disk is in another state, and hears of no stop.
        || names_file(number) && procinfo::is_asleep(tid)
        || matches!(number, libc::SYS_read | libc::SYS_readv) && is_terminal(tid, args[0])
}

/// Whether a call writes to memory what is left of its time, whatever has interrupted it (nanosleep(2)).
fn writes_what_is_left(number: i64, args: [u64; 6]) -> bool {
    match number {
        libc::SYS_nanosleep => args[1] != 0,
        libc::SYS_clock_nanosleep => args[1] & libc::TIMER_ABSTIME as u64 == 0 && args[3] != 0,
        _ => false,
    }
}

/// Whether a descriptor is of a terminal: a read there may wait for several bytes, or for some time (termios(3), `VMIN` and `VTIME`).
pub fn is_terminal(tid: Pid, descriptor: u64) -> bool {
    // Virtual and serial ones, those of processes, and what stands for any. Source: linux/Documentation/admin-guide/devices.txt.
    device(tid, descriptor)
        .is_some_and(|(major, _)| matches!(major, 4 | 5 | 136..=143 | 166 | 188 | 204))
}

/// Whether a thread sleeps in a call that a stop would cut, that waits for signals, or whose time limit would begin anew behind one: were it stopped again
/// and again, it would never be over.
pub fn is_better_left(pid: Pid, tid: Pid) -> bool {
    procinfo::sleeps_in(tid).is_some_and(|(number, args)| {
        // Its filters may not know the call by which the kernel goes on with another (restart_syscall(2)).
        status::is_filtered(tid)
            || is_cut(tid, number, args)
            || waits_for_signals(number, args)
            || begins_anew(number, args)
            || waits_at_socket(number).is_some_and(|sends| has_limit(pid, tid, args[0], sends))
    })
}

/// Whether a call looks for, makes or tells of a file. One that sleeps there has asked somebody else's program, which is told of a stop as it is of a signal,
/// and may answer that it was interrupted (fuse(4), `FUSE_INTERRUPT`); or it waits for the other end of a FIFO, which does not find it there meanwhile.
pub fn names_file(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_creat
            | libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_fstat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_statfs
            | libc::SYS_fstatfs
            | libc::SYS_access
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_chdir
            | libc::SYS_fchdir
            | libc::SYS_readlink
            | libc::SYS_readlinkat
            | libc::SYS_getdents
            | libc::SYS_getdents64
            | libc::SYS_mkdir
            | libc::SYS_mkdirat
            | libc::SYS_mknod
            | libc::SYS_mknodat
            | libc::SYS_rmdir
            | libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_link
            | libc::SYS_linkat
            | libc::SYS_symlink
            | libc::SYS_symlinkat
            | libc::SYS_chmod
            | libc::SYS_fchmod
            | libc::SYS_fchmodat
            | libc::SYS_chown
            | libc::SYS_fchown
            | libc::SYS_lchown
            | libc::SYS_fchownat
            | libc::SYS_utime
            | libc::SYS_utimes
            | libc::SYS_utimensat
            | libc::SYS_futimesat
            | libc::SYS_truncate
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_getxattr
            | libc::SYS_lgetxattr
            | libc::SYS_fgetxattr
            | libc::SYS_setxattr
            | libc::SYS_lsetxattr
            | libc::SYS_fsetxattr
            | libc::SYS_listxattr
            | libc::SYS_llistxattr
            | libc::SYS_flistxattr
            | libc::SYS_removexattr
            | libc::SYS_lremovexattr
            | libc::SYS_fremovexattr
    )
}

/// Whether a call waits for signals, or takes some while it waits that the thread has blocked else: out of it, it would miss them, and they might end the process.
fn waits_for_signals(number: i64, args: [u64; 6]) -> bool {
    match number {
        libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => true,
        libc::SYS_ppoll => args[3] != 0,
        libc::SYS_pselect6 => args[5] != 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => args[4] != 0,
        _ => false,
    }
}

/// Whether a call has a time limit of its own that the kernel forgets when it is to be made again, as it does not of `poll`, `nanosleep` and their
/// like (signal(7); restart_syscall(2)).
fn begins_anew(number: i64, args: [u64; 6]) -> bool {
    match number {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => args[3] as i32 > 0,
        // A limit in memory, if any.
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => args[3] != 0,
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => args[4] != 0,
        // One that may be in the extended argument. Source: io_uring_enter(2), `IORING_ENTER_EXT_ARG`.
        libc::SYS_io_uring_enter => args[3] & 8 != 0,
        _ => false,
    }
}

/// Whether a call may wait at a socket, and if so whether for sending, or a connection.
fn waits_at_socket(number: i64) -> Option<bool> {
    match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_accept
        | libc::SYS_accept4 => Some(false),
        libc::SYS_connect => Some(true),
        _ => None,
    }
}

/// Whether a descriptor is of a socket with a time limit for what is done at it (socket(7), `SO_RCVTIMEO`): who waits there is told that it was
/// interrupted, whatever has interrupted it (signal(7)).
fn has_limit(pid: Pid, tid: Pid, descriptor: u64, sends: bool) -> bool {
    let link = std::fs::read_link(format!("/proc/{tid}/fd/{}", descriptor as i32));
    let is_socket = |link: &Path| link.as_os_str().as_encoded_bytes().starts_with(b"socket:");
    if !link.is_ok_and(|link| is_socket(&link)) {
        return false;
    }
    let Some(socket) = procinfo::borrow_descriptor(pid, tid, descriptor as i32) else {
        return false;
    };
    let limit = match sends {
        true => getsockopt(&socket, sockopt::SendTimeout),
        false => getsockopt(&socket, sockopt::ReceiveTimeout),
    };
    limit.is_ok_and(|limit| limit != TimeVal::zero())
}

/// Whether a sleep in this call may be in the middle of what the call is to move or to wait for.
fn may_return_early(number: i64, args: [u64; 6]) -> bool {
    let waits_for_all = |flags: u64| flags & libc::MSG_WAITALL as u64 != 0;
    match number {
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_vmsplice
        | libc::SYS_copy_file_range
        // What is to be sent before a socket is closed (socket(7), `SO_LINGER`).
        | libc::SYS_close => true,
        libc::SYS_recvfrom => waits_for_all(args[3]),
        libc::SYS_recvmsg => waits_for_all(args[2]),
        // The fewest events that it waits for; what it has submitted, which it returns instead of `EINTR`.
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => args[1] > 1,
        libc::SYS_io_uring_enter => args[1] > 0,
        _ => false,
    }
}

/// Whether a call behind which a thread is stopped has done less than it was asked to, or may have.
pub fn has_fallen_short(regs: &Regs) -> bool {
    let less_than = |asked: u64| (1..asked as i64).contains(&(regs.rax as i64));
    match regs.orig_rax as i64 {
        // How much that is lies in memory.
        libc::SYS_writev | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
            regs.rax as i64 > 0
        }
        libc::SYS_write
        | libc::SYS_sendto
        | libc::SYS_recvfrom
        | libc::SYS_read
        | libc::SYS_pread64 => less_than(regs.rdx),
        libc::SYS_getrandom => less_than(regs.rsi),
        _ => false,
    }
}

/// Whether a call that has returned less than it was asked for may be made again from its beginning, and nobody can tell: it
/// reads zeros or random bytes.
pub fn starts_over(tid: Pid, regs: &Regs) -> bool {
    let is_endless = || match regs.orig_rax as i64 {
        libc::SYS_getrandom => true,
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2 => is_endless(tid, regs.rdi),
        _ => false,
    };
    has_fallen_short(regs) && is_endless()
}

/// Whether a descriptor is one of the kernel's devices that give as many zeros or random bytes as are asked for.
fn is_endless(tid: Pid, descriptor: u64) -> bool {
    /// `/dev/zero`, `/dev/random`, `/dev/urandom`. Source: linux/Documentation/admin-guide/devices.txt.
    const DEVICES: [(u32, u32); 3] = [(1, 5), (1, 8), (1, 9)];
    device(tid, descriptor).is_some_and(|device| DEVICES.contains(&device))
}

/// Major and minor number of a descriptor of a character device.
fn device(tid: Pid, descriptor: u64) -> Option<(u32, u32)> {
    let found = file(tid, descriptor)?;
    (kind(&found) == libc::S_IFCHR).then_some((found.stx_rdev_major, found.stx_rdev_minor))
}

/// What kind of file a descriptor is of (inode(7), `S_IFMT`).
pub fn kind_of(tid: Pid, descriptor: u64) -> Option<u32> {
    file(tid, descriptor).map(|found| kind(&found))
}

fn kind(found: &Statx) -> u32 {
    u32::from(found.stx_mode) & libc::S_IFMT
}

/// By what is known without asking anybody: a file server may take its time.
fn file(tid: Pid, descriptor: u64) -> Option<Statx> {
    let name = format!("/proc/{tid}/fd/{}", descriptor as i32);
    statx(CWD, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()
}

/// Fewest bytes that a read at a terminal waits for, if it does for more than one and as long as it takes (termios(3), `VMIN` without `VTIME`).
pub fn fewest_at_terminal(tid: Pid, descriptor: u64) -> Option<u64> {
    // The other end of one has its settings, and waits for nothing but the first byte: `/dev/ptmx`.
    if !is_terminal(tid, descriptor) || device(tid, descriptor) == Some((5, 2)) {
        return None;
    }
    let (process, _) = status::family(tid)?;
    let terminal = procinfo::borrow_descriptor(process, tid, descriptor as i32)?;
    let how = tcgetattr(terminal).ok()?;
    let character = |which: SpecialCharacterIndices| how.control_chars[which as usize];
    let by_lines = how.local_flags.contains(LocalFlags::ICANON);
    let fewest = u64::from(character(SpecialCharacterIndices::VMIN));
    let waits = !by_lines && fewest > 1 && character(SpecialCharacterIndices::VTIME) == 0;
    waits.then_some(fewest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_that_a_stop_would_cut() {
        let with = |at: usize, value: u64| {
            let mut args = [0; 6];
            args[at] = value;
            args
        };
        assert!(may_return_early(libc::SYS_write, [0; 6]));
        assert!(!may_return_early(libc::SYS_read, [0; 6]));
        assert!(!may_return_early(libc::SYS_futex, [1; 6]));
        let wait_all = libc::MSG_WAITALL as u64;
        assert!(may_return_early(libc::SYS_recvfrom, with(3, wait_all)));
        assert!(!may_return_early(libc::SYS_recvfrom, [0; 6]));
        assert!(may_return_early(libc::SYS_recvmsg, with(2, wait_all)));
        assert!(!may_return_early(libc::SYS_io_getevents, with(1, 1)));
        assert!(may_return_early(libc::SYS_io_getevents, with(1, 2)));
    }

    #[test]
    fn what_is_left_of_sleeps() {
        assert!(writes_what_is_left(libc::SYS_nanosleep, [8, 8, 0, 0, 0, 0]));
        assert!(!writes_what_is_left(
            libc::SYS_nanosleep,
            [8, 0, 8, 8, 8, 8]
        ));
        let absolute = libc::TIMER_ABSTIME as u64;
        let clock =
            |flags, left| writes_what_is_left(libc::SYS_clock_nanosleep, [1, flags, 8, left, 0, 0]);
        assert!(clock(0, 8) && !clock(0, 0) && !clock(absolute, 8));
    }

    #[test]
    fn limits_that_begin_anew() {
        let epoll = |limit: i64| begins_anew(libc::SYS_epoll_wait, [3, 1, 1, limit as u64, 0, 8]);
        // The kernel takes an int: what lies above is anything.
        assert!(epoll(20) && epoll(20 | 7 << 32) && !epoll(0) && !epoll(-1) && !epoll(0xffff_ffff));
        assert!(begins_anew(libc::SYS_semtimedop, [1, 1, 1, 8, 0, 0]));
        assert!(!begins_anew(libc::SYS_semtimedop, [1, 1, 1, 0, 0, 0]));
        assert!(!begins_anew(libc::SYS_poll, [1; 6]) && !begins_anew(libc::SYS_futex, [1; 6]));
    }

    #[test]
    fn masks_of_waits_are_seen() {
        assert!(waits_for_signals(libc::SYS_pause, [0; 6]));
        assert!(waits_for_signals(
            libc::SYS_rt_sigtimedwait,
            [1, 0, 0, 8, 0, 0]
        ));
        assert!(waits_for_signals(libc::SYS_ppoll, [1, 1, 0, 1, 8, 0]));
        assert!(!waits_for_signals(libc::SYS_ppoll, [1, 1, 1, 0, 8, 0]));
        assert!(!waits_for_signals(libc::SYS_poll, [1; 6]));
    }

    #[test]
    fn limits_of_sockets_are_seen() {
        use std::os::fd::AsRawFd;
        use std::os::unix::net::UnixDatagram;
        use std::time::Duration;
        let us = Pid::this();
        let (socket, _other) = UnixDatagram::pair().expect("a pair");
        let descriptor = socket.as_raw_fd() as u64;
        let limits = || [true, false].map(|sends| has_limit(us, us, descriptor, sends));
        assert_eq!(limits(), [false, false]);
        let limit = Some(Duration::from_secs(1));
        socket.set_read_timeout(limit).expect("set");
        if procinfo::borrow_descriptor(us, us, descriptor as i32).is_none() {
            println!("SKIP limits_of_sockets_are_seen: no pidfd_getfd(2) here");
            return;
        }
        assert_eq!(limits(), [false, true]);
        socket.set_write_timeout(limit).expect("set");
        assert_eq!(limits(), [true, true]);
        assert!(!has_limit(us, us, u64::MAX, false), "no descriptor");
    }

    #[test]
    fn terminals_that_are_read_by_several_bytes() {
        use nix::sys::termios::{SetArg, cfmakeraw, tcsetattr};
        use std::os::fd::AsRawFd;
        let us = Pid::this();
        let Ok(pair) = nix::pty::openpty(None, None) else {
            println!("SKIP terminals_that_are_read_by_several_bytes: no terminal to be had");
            return;
        };
        let descriptor = pair.slave.as_raw_fd() as u64;
        if procinfo::borrow_descriptor(us, us, descriptor as i32).is_none() {
            println!("SKIP terminals_that_are_read_by_several_bytes: no pidfd_getfd(2) here");
            return;
        }
        let fewest = || fewest_at_terminal(us, descriptor);
        assert_eq!(fewest(), None, "by lines");
        let mut how = tcgetattr(&pair.slave).expect("a terminal");
        cfmakeraw(&mut how);
        let mut with = |least, tenths| {
            how.control_chars[SpecialCharacterIndices::VMIN as usize] = least;
            how.control_chars[SpecialCharacterIndices::VTIME as usize] = tenths;
            tcsetattr(&pair.slave, SetArg::TCSANOW, &how).expect("set");
            fewest()
        };
        assert_eq!([with(1, 0), with(8, 1), with(8, 0)], [None, None, Some(8)]);
        let other_end = pair.master.as_raw_fd() as u64;
        assert!(is_terminal(us, other_end));
        assert_eq!(fewest_at_terminal(us, other_end), None);
        let (end, _other) = nix::unistd::pipe().expect("a pipe");
        assert_eq!(fewest_at_terminal(us, end.as_raw_fd() as u64), None);
        assert_eq!(kind_of(us, end.as_raw_fd() as u64), Some(libc::S_IFIFO));
    }

    #[test]
    fn only_what_is_endless_starts_over() {
        use std::os::fd::AsRawFd;
        let tid = Pid::this();
        // SAFETY: plain integers; all zero is valid.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        let zero = std::fs::File::open("/dev/zero").expect("a device");
        regs.orig_rax = libc::SYS_read as u64;
        (regs.rdi, regs.rdx, regs.rax) = (zero.as_raw_fd() as u64, 8192, 4096);
        assert!(starts_over(tid, &regs));
        regs.rax = 8192;
        assert!(!starts_over(tid, &regs), "all of it");
        regs.rax = -4i64 as u64;
        assert!(!starts_over(tid, &regs), "an error");
        regs.rax = 4096;
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        regs.rdi = file.as_raw_fd() as u64;
        assert!(!starts_over(tid, &regs), "a file has a position");
        regs.orig_rax = libc::SYS_getrandom as u64;
        regs.rsi = 8192;
        assert!(starts_over(tid, &regs));
    }
}

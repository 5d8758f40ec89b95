//! Which memory a system call of the program uses, as far as it can be told from its registers.
//!
//! What is not in the table, or uses memory behind pointers in memory, uses all: every watched page is opened for it. An
//! entry may be too wide, never too narrow.
//!
//! Source: section 2 of the man pages; Linux include/linux/syscalls.h.

/// Memory of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Any.
    All,
    /// At most these: address and bytes, 0 bytes for none.
    Ranges([(u64, u64); 5]),
}

const PATH: u64 = 4096;
const STAT: u64 = 144;
const TIME: u64 = 16;
/// `fcntl` commands whose argument is a number.
const FCNTL_PLAIN: [u64; 6] = [0, 1, 2, 3, 4, 1030];

/// What call `number` uses.
pub fn touch(number: u64, a: [u64; 6]) -> Touch {
    let none = (0, 0);
    let mut ranges = [none; 5];
    let mut used = 0;
    let mut add = |address: u64, bytes: u64| {
        if address != 0
            && let Some(range) = ranges.get_mut(used)
        {
            *range = (address, bytes);
            used += 1;
        }
    };
    match number {
        // restart_syscall: nanosleep, clock_nanosleep, poll, futex, in the registers of that call.
        219 => {
            const MOST_POLLED: u64 = 1 << 20;
            match a[1] {
                0..=MOST_POLLED => add(a[0], (8 * a[1]).max(TIME)),
                _ => add(a[0], TIME),
            }
            add(a[1], TIME);
            add(a[3], TIME);
        }
        // close, sched_yield, dup, dup2, pause, alarm, getpid, shutdown, listen, exit's relatives, ids, fsync and others.
        3
        | 8
        | 24
        | 32
        | 33
        | 34
        | 37
        | 39
        | 41
        | 48
        | 50
        | 62
        | 74
        | 75
        | 77
        | 81
        | 91
        | 93
        | 95
        | 102
        | 104..=112
        | 119
        | 121
        | 124
        | 186
        | 200
        | 218
        | 233
        | 234
        | 273
        | 284
        | 285
        | 290
        | 291
        | 292
        | 436
        | 439 => {
            // epoll_ctl: an event. set_robust_list and set_tid_address note an address only. faccessat2: a path.
            if number == 233 {
                add(a[3], 12);
            }
            if number == 439 {
                add(a[1], PATH);
            }
        }
        // read, write, pread64, pwrite64
        0 | 1 | 17 | 18 => add(a[1], a[2]),
        // open, access, chdir, rmdir, unlink, mkdir, creat, chmod, truncate
        2 | 21 | 76 | 80 | 83 | 84 | 85 | 87 | 90 => add(a[0], PATH),
        // stat, lstat; fstat
        4 | 6 => {
            add(a[0], PATH);
            add(a[1], STAT);
        }
        5 => add(a[1], STAT),
        // poll, lseek is above
        7 => add(a[0], a[1].saturating_mul(8)),
        // rt_sigpending
        127 => add(a[0], 8),
        // pipe, pipe2
        22 | 293 => add(a[0], 8),
        // nanosleep
        35 => {
            add(a[0], TIME);
            add(a[1], TIME);
        }
        // getitimer, setitimer
        36 => add(a[1], 32),
        38 => {
            add(a[1], 32);
            add(a[2], 32);
        }
        // connect, bind
        42 | 49 => add(a[1], a[2]),
        // accept, accept4; recvfrom
        43 | 288 => {
            add(a[1], 128);
            add(a[2], 4);
        }
        45 => {
            add(a[1], a[2]);
            add(a[4], 128);
            add(a[5], 4);
        }
        // select
        23 => {
            let bytes = (a[0] & 0xffff_ffff).div_ceil(64) * 8;
            add(a[1], bytes);
            add(a[2], bytes);
            add(a[3], bytes);
            add(a[4], TIME);
        }
        // sendfile; rt_sigtimedwait; rt_sigsuspend; waitid
        40 => add(a[2], 8),
        128 => {
            add(a[0], 8);
            add(a[1], 128);
            add(a[2], TIME);
        }
        130 => add(a[0], 8),
        247 => {
            add(a[2], 128);
            add(a[4], 144);
        }
        // sendto
        44 => {
            add(a[1], a[2]);
            add(a[4], a[5]);
        }
        // wait4
        61 => {
            add(a[1], 4);
            add(a[3], 144);
        }
        // uname
        63 => add(a[0], 390),
        // fcntl
        72 if FCNTL_PLAIN.contains(&a[1]) => {}
        72 => add(a[2], 64),
        // getcwd
        79 => add(a[0], a[1]),
        // rename, link, symlink
        82 | 86 | 88 => {
            add(a[0], PATH);
            add(a[1], PATH);
        }
        // readlink
        89 => {
            add(a[0], PATH);
            add(a[1], a[2]);
        }
        // gettimeofday
        96 => {
            add(a[0], TIME);
            add(a[1], 8);
        }
        // getrlimit, setrlimit, getrusage, sysinfo, times
        97 | 160 => add(a[1], TIME),
        98 => add(a[1], 144),
        99 => add(a[0], 112),
        100 => add(a[0], 32),
        // arch_prctl
        158 => add(a[1], 8),
        // time
        201 => add(a[0], 8),
        // futex
        202 => {
            add(a[0], 4);
            add(a[3], TIME);
            add(a[4], 4);
        }
        // sched_setaffinity, sched_getaffinity
        203 | 204 => add(a[2], a[1]),
        // getdents64
        217 => add(a[1], a[2]),
        // clock_gettime, clock_getres
        228 | 229 => add(a[1], TIME),
        // clock_nanosleep
        230 => {
            add(a[2], TIME);
            add(a[3], TIME);
        }
        // epoll_wait, epoll_pwait
        232 | 281 => {
            add(a[1], a[2].saturating_mul(12));
            if number == 281 {
                add(a[4], 8);
            }
        }
        // openat, mkdirat, unlinkat, faccessat
        257 | 258 | 263 | 269 => add(a[1], PATH),
        // newfstatat, readlinkat
        262 => {
            add(a[1], PATH);
            add(a[2], STAT);
        }
        267 => {
            add(a[1], PATH);
            add(a[2], a[3]);
        }
        // ppoll
        271 => {
            add(a[0], a[1].saturating_mul(8));
            add(a[2], TIME);
            add(a[3], 8);
        }
        // prlimit64
        302 => {
            add(a[2], TIME);
            add(a[3], TIME);
        }
        // getrandom, memfd_create
        318 => add(a[0], a[1]),
        319 => add(a[0], 256),
        // rseq
        334 => add(a[0], a[1]),
        // statx
        332 => {
            add(a[1], PATH);
            add(a[4], 256);
        }
        _ => return Touch::All,
    }
    Touch::Ranges(ranges)
}

/// Whether a call never sleeps: about ids, clocks, descriptors and other threads.
pub fn is_quick(number: u64) -> bool {
    const QUICK: [u64; 20] = [
        8, 24, 39, 62, 96, 98, 102, 104, 107, 108, 110, 111, 121, 124, 186, 200, 201, 228, 229, 234,
    ];
    QUICK.contains(&number)
}

/// Whether a call uses the bytes `[low, high)`.
pub fn uses(number: u64, arguments: [u64; 6], low: u64, high: u64) -> bool {
    match touch(number, arguments) {
        Touch::All => true,
        Touch::Ranges(ranges) => ranges.iter().any(|(address, bytes)| {
            *bytes > 0 && *address < high && low < address.saturating_add(*bytes)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_all() {
        let read = |address, bytes| uses(0, [3, address, bytes, 0, 0, 0], 0x1000, 0x2000);
        assert!(read(0x0fff, 2) && read(0x1fff, 1));
        assert!(!read(0, u64::MAX));
        assert!(!read(0x0fff, 1) && !read(0x2000, 64));
        // recvmsg and whatever has no entry; getpid
        assert!(uses(47, [0; 6], 0x1000, 0x2000) && uses(9999, [0; 6], 0x1000, 0x2000));
        assert!(!uses(39, [0x1000; 6], 0x1000, 0x2000));
        // poll and nanosleep, gone on with
        let restart = |arguments| uses(219, arguments, 0x1000, 0x2000);
        assert!(restart([0x0ff0, 3, 0, 0, 0, 0]) && !restart([0x0ff0, 2, 0, 0, 0, 0]));
        assert!(restart([0x9000, 0x1800, 0, 0, 0, 0]) && restart([1, 0, 0x9000, 0x1800, 0, 0]));
        assert!(!restart([0x100, 0x900_0000, 0, 0, 0, 0]));
        // futex wakes a second word
        assert!(uses(202, [0x9000, 4, 1, 0, 0x1ff0, 0], 0x1000, 0x2000));
    }
}

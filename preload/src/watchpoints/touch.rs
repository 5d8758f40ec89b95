//! Which memory a system call of the program uses, as far as it can be told from its registers.
//!
//! What is not in the table, or uses memory behind pointers in memory, uses all: every watched page is opened for it. An
//! entry may be too wide, never too narrow.
//!
//! Source: section 2 of the man pages; Linux include/linux/syscalls.h, arch/x86/entry/syscalls/syscall_64.tbl.

/// Most ranges of one call.
const RANGES: usize = 5;

/// Memory of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Any.
    All,
    /// At most these: address and bytes, 0 bytes for none.
    Ranges([(u64, u64); RANGES]),
}

/// Memory that one argument points to; arguments count from 0.
#[derive(Clone, Copy)]
enum Part {
    /// At argument `.0`, so many bytes.
    Fixed(usize, u64),
    /// At argument `.0`, as many bytes as argument `.1` says.
    Sized(usize, usize),
    /// At argument `.0`, as many elements as argument `.1` says, each of so many bytes.
    Counted(usize, usize, u64),
}
use Part::{Counted, Fixed, Sized};

const PATH: u64 = 4096;
const STAT: u64 = 144;
const RUSAGE: u64 = 144;
const SIGINFO: u64 = 128;
const SOCKADDR: u64 = 128;
const STATX: u64 = 256;
/// `timespec`, `timeval`, `rlimit`.
const TIME: u64 = 16;
const INTERVAL_TIMER: u64 = 32;
/// A word of signals.
const SIGSET: u64 = 8;
const POLLFD: u64 = 8;
const EPOLL_EVENT: u64 = 12;
const SOCKLEN: u64 = 4;

const SELECT: u64 = 23;
const FCNTL: u64 = 72;
const RESTART: u64 = 219;

/// `fcntl` commands whose argument is a number: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC.
const FCNTL_PLAIN: [u64; 6] = [0, 1, 2, 3, 4, 1030];

/// Calls by number, but for those above, which [`touch`] itself knows.
const CALLS: &[(u64, &[Part])] = &[
    (0, &[Sized(1, 2)]),                                           // read
    (1, &[Sized(1, 2)]),                                           // write
    (2, &[Fixed(0, PATH)]),                                        // open
    (3, &[]),                                                      // close
    (4, &[Fixed(0, PATH), Fixed(1, STAT)]),                        // stat
    (5, &[Fixed(1, STAT)]),                                        // fstat
    (6, &[Fixed(0, PATH), Fixed(1, STAT)]),                        // lstat
    (7, &[Counted(0, 1, POLLFD)]),                                 // poll
    (8, &[]),                                                      // lseek
    (17, &[Sized(1, 2)]),                                          // pread64
    (18, &[Sized(1, 2)]),                                          // pwrite64
    (21, &[Fixed(0, PATH)]),                                       // access
    (22, &[Fixed(0, 8)]),                                          // pipe
    (24, &[]),                                                     // sched_yield
    (32, &[]),                                                     // dup
    (33, &[]),                                                     // dup2
    (34, &[]),                                                     // pause
    (35, &[Fixed(0, TIME), Fixed(1, TIME)]),                       // nanosleep
    (36, &[Fixed(1, INTERVAL_TIMER)]),                             // getitimer
    (37, &[]),                                                     // alarm
    (38, &[Fixed(1, INTERVAL_TIMER), Fixed(2, INTERVAL_TIMER)]),   // setitimer
    (39, &[]),                                                     // getpid
    (40, &[Fixed(2, 8)]),                                          // sendfile
    (41, &[]),                                                     // socket
    (42, &[Sized(1, 2)]),                                          // connect
    (43, &[Fixed(1, SOCKADDR), Fixed(2, SOCKLEN)]),                // accept
    (44, &[Sized(1, 2), Sized(4, 5)]),                             // sendto
    (45, &[Sized(1, 2), Fixed(4, SOCKADDR), Fixed(5, SOCKLEN)]),   // recvfrom
    (48, &[]),                                                     // shutdown
    (49, &[Sized(1, 2)]),                                          // bind
    (50, &[]),                                                     // listen
    (61, &[Fixed(1, 4), Fixed(3, RUSAGE)]),                        // wait4
    (62, &[]),                                                     // kill
    (63, &[Fixed(0, 390)]),                                        // uname
    (74, &[]),                                                     // fsync
    (75, &[]),                                                     // fdatasync
    (76, &[Fixed(0, PATH)]),                                       // truncate
    (77, &[]),                                                     // ftruncate
    (79, &[Sized(0, 1)]),                                          // getcwd
    (80, &[Fixed(0, PATH)]),                                       // chdir
    (81, &[]),                                                     // fchdir
    (82, &[Fixed(0, PATH), Fixed(1, PATH)]),                       // rename
    (83, &[Fixed(0, PATH)]),                                       // mkdir
    (84, &[Fixed(0, PATH)]),                                       // rmdir
    (85, &[Fixed(0, PATH)]),                                       // creat
    (86, &[Fixed(0, PATH), Fixed(1, PATH)]),                       // link
    (87, &[Fixed(0, PATH)]),                                       // unlink
    (88, &[Fixed(0, PATH), Fixed(1, PATH)]),                       // symlink
    (89, &[Fixed(0, PATH), Sized(1, 2)]),                          // readlink
    (90, &[Fixed(0, PATH)]),                                       // chmod
    (91, &[]),                                                     // fchmod
    (93, &[]),                                                     // fchown
    (95, &[]),                                                     // umask
    (96, &[Fixed(0, TIME), Fixed(1, 8)]),                          // gettimeofday
    (97, &[Fixed(1, TIME)]),                                       // getrlimit
    (98, &[Fixed(1, RUSAGE)]),                                     // getrusage
    (99, &[Fixed(0, 112)]),                                        // sysinfo
    (100, &[Fixed(0, 32)]),                                        // times
    (102, &[]),                                                    // getuid
    (104, &[]),                                                    // getgid
    (105, &[]),                                                    // setuid
    (106, &[]),                                                    // setgid
    (107, &[]),                                                    // geteuid
    (108, &[]),                                                    // getegid
    (109, &[]),                                                    // setpgid
    (110, &[]),                                                    // getppid
    (111, &[]),                                                    // getpgrp
    (112, &[]),                                                    // setsid
    (119, &[]),                                                    // setresgid
    (121, &[]),                                                    // getpgid
    (124, &[]),                                                    // getsid
    (127, &[Fixed(0, SIGSET)]),                                    // rt_sigpending
    (128, &[Fixed(0, SIGSET), Fixed(1, SIGINFO), Fixed(2, TIME)]), // rt_sigtimedwait
    (130, &[Fixed(0, SIGSET)]),                                    // rt_sigsuspend
    (158, &[Fixed(1, 8)]),                                         // arch_prctl
    (160, &[Fixed(1, TIME)]),                                      // setrlimit
    (186, &[]),                                                    // gettid
    (200, &[]),                                                    // tkill
    (201, &[Fixed(0, 8)]),                                         // time
    (202, &[Fixed(0, 4), Fixed(3, TIME), Fixed(4, 4)]),            // futex
    (203, &[Sized(2, 1)]),                                         // sched_setaffinity
    (204, &[Sized(2, 1)]),                                         // sched_getaffinity
    (217, &[Sized(1, 2)]),                                         // getdents64
    (218, &[]),                                                    // set_tid_address: noted only
    (228, &[Fixed(1, TIME)]),                                      // clock_gettime
    (229, &[Fixed(1, TIME)]),                                      // clock_getres
    (230, &[Fixed(2, TIME), Fixed(3, TIME)]),                      // clock_nanosleep
    (232, &[Counted(1, 2, EPOLL_EVENT)]),                          // epoll_wait
    (233, &[Fixed(3, EPOLL_EVENT)]),                               // epoll_ctl
    (234, &[]),                                                    // tgkill
    (247, &[Fixed(2, SIGINFO), Fixed(4, RUSAGE)]),                 // waitid
    (257, &[Fixed(1, PATH)]),                                      // openat
    (258, &[Fixed(1, PATH)]),                                      // mkdirat
    (262, &[Fixed(1, PATH), Fixed(2, STAT)]),                      // newfstatat
    (263, &[Fixed(1, PATH)]),                                      // unlinkat
    (267, &[Fixed(1, PATH), Sized(2, 3)]),                         // readlinkat
    (269, &[Fixed(1, PATH)]),                                      // faccessat
    (
        271,
        &[Counted(0, 1, POLLFD), Fixed(2, TIME), Fixed(3, SIGSET)],
    ), // ppoll
    (273, &[]),                                                    // set_robust_list: noted only
    (281, &[Counted(1, 2, EPOLL_EVENT), Fixed(4, SIGSET)]),        // epoll_pwait
    (284, &[]),                                                    // eventfd
    (285, &[]),                                                    // fallocate
    (288, &[Fixed(1, SOCKADDR), Fixed(2, SOCKLEN)]),               // accept4
    (290, &[]),                                                    // eventfd2
    (291, &[]),                                                    // epoll_create1
    (292, &[]),                                                    // dup3
    (293, &[Fixed(0, 8)]),                                         // pipe2
    (302, &[Fixed(2, TIME), Fixed(3, TIME)]),                      // prlimit64
    (318, &[Sized(0, 1)]),                                         // getrandom
    (319, &[Fixed(0, 256)]),                                       // memfd_create
    (332, &[Fixed(1, PATH), Fixed(4, STATX)]),                     // statx
    (334, &[Sized(0, 1)]),                                         // rseq
    (436, &[]),                                                    // close_range
    (439, &[Fixed(1, PATH)]),                                      // faccessat2
];

/// Numbers that [`CALLS`] may have.
const NUMBERS: usize = 440;

/// [`CALLS`] by number: looked at in the handler of a signal, at every call of the program.
static BY_NUMBER: [Option<&[Part]>; NUMBERS] = {
    let mut table = [None; NUMBERS];
    let mut i = 0;
    while i < CALLS.len() {
        table[CALLS[i].0 as usize] = Some(CALLS[i].1);
        i += 1;
    }
    table
};

/// Ranges of memory as they are found, as many as a call may have.
struct Ranges {
    found: [(u64, u64); RANGES],
    used: usize,
}

impl Ranges {
    /// Nothing where the address is null.
    fn add(&mut self, address: u64, bytes: u64) {
        if address != 0
            && let Some(range) = self.found.get_mut(self.used)
        {
            *range = (address, bytes);
            self.used += 1;
        }
    }
}

/// What call `number` with arguments `a` uses.
pub fn touch(number: u64, a: [u64; 6]) -> Touch {
    let mut ranges = Ranges {
        found: [(0, 0); RANGES],
        used: 0,
    };
    match number {
        RESTART => restarted(&mut ranges, a),
        SELECT => {
            // Three sets of bits, in words; the number of descriptors is an int.
            let bytes = (a[0] & 0xffff_ffff).div_ceil(64) * 8;
            for set in &a[1..4] {
                ranges.add(*set, bytes);
            }
            ranges.add(a[4], TIME);
        }
        FCNTL if FCNTL_PLAIN.contains(&a[1]) => {}
        // Its largest structures are below this size (struct flock, struct f_owner_ex, a hint).
        FCNTL => ranges.add(a[2], 64),
        _ => {
            let parts = usize::try_from(number).ok().and_then(|n| BY_NUMBER.get(n));
            let Some(Some(parts)) = parts else {
                return Touch::All;
            };
            for part in *parts {
                match *part {
                    Fixed(at, bytes) => ranges.add(a[at], bytes),
                    Sized(at, bytes) => ranges.add(a[at], a[bytes]),
                    Counted(at, count, bytes) => ranges.add(a[at], a[count].saturating_mul(bytes)),
                }
            }
        }
    }
    Touch::Ranges(ranges.found)
}

/// restart_syscall: nanosleep, clock_nanosleep, poll or futex goes on, with the registers of that call.
fn restarted(ranges: &mut Ranges, a: [u64; 6]) {
    const MOST_POLLED: u64 = 1 << 20;
    match a[1] {
        0..=MOST_POLLED => ranges.add(a[0], (POLLFD * a[1]).max(TIME)),
        _ => ranges.add(a[0], TIME),
    }
    ranges.add(a[1], TIME);
    ranges.add(a[3], TIME);
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

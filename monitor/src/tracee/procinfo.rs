//! What `/proc` tells about a process, but for its `status` ([`super::status`]): CPU time, processor, system call, memory file.
//!
//! Unsafe invariant: the kernel is handed numbers, or a live array and its length in bytes.

use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The memory file of a process (proc(5), `/proc/pid/mem`).
pub(crate) fn memory(tid: Pid, write: bool) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .open(format!("/proc/{tid}/mem"))
}

/// Whether the process executes a 32-bit program: by the class of its file (elf(5), `EI_CLASS`), or where that cannot be read.
pub fn is_32_bit(pid: Pid) -> bool {
    const EI_CLASS: usize = 4;
    const ELFCLASS64: u8 = 2;
    let mut head = [0; EI_CLASS + 1];
    let file = File::open(format!("/proc/{pid}/exe"));
    let read = file.and_then(|mut file| file.read_exact(&mut head));
    read.is_err() || head[EI_CLASS] != ELFCLASS64
}

/// CPU seconds the thread has run, by `schedstat` (nanoseconds), else by `stat` (clock ticks).
pub fn thread_cpu_s(pid: Pid, tid: Pid) -> Option<f64> {
    let first = |text: &str| text.split(' ').next()?.parse::<u64>().ok();
    match short(&format!("/proc/{pid}/task/{tid}/schedstat"), first) {
        Some(ns) if ns > 0 => Some(ns as f64 * 1e-9),
        _ => short(&format!("/proc/{pid}/task/{tid}/stat"), |text| {
            Some((number(text, 14)? + number(text, 15)?) as f64 / clock_ticks())
        }),
    }
}

/// Processors that the first thread of a process may run on (sched_getaffinity(2)).
pub fn processors(pid: Pid) -> usize {
    nix::sched::sched_getaffinity(pid).map_or(1, |set| count(&set))
}

/// Processors in a set.
pub fn count(set: &nix::sched::CpuSet) -> usize {
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..nix::sched::CpuSet::count()).filter(is_set).count()
}

/// CPU seconds of the whole process, ended threads included, to the nanosecond
/// (clock_getcpuclockid(3)).
pub fn process_clock_s(pid: Pid) -> Option<f64> {
    let clock = nix::time::clock_getcpuclockid(pid).ok()?;
    let time = nix::time::clock_gettime(clock).ok()?;
    Some(time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}

/// What the kernel counts of a process, ended threads included (proc(5), `stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// CPU seconds in user mode, by ticks.
    pub user_s: f64,
    /// CPU seconds in the kernel, by ticks.
    pub system_s: f64,
    /// Page faults without input or output.
    pub faults: f64,
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            user_s: self.user_s - before.user_s,
            system_s: self.system_s - before.system_s,
            faults: self.faults - before.faults,
        }
    }
}

/// [`Counts`] so far.
pub fn counts(pid: Pid) -> Option<Counts> {
    short(&format!("/proc/{pid}/stat"), |text| {
        let seconds = |of_field| Some(number(text, of_field)? as f64 / clock_ticks());
        Some(Counts {
            user_s: seconds(14)?,
            system_s: seconds(15)?,
            faults: number(text, 10)? as f64,
        })
    })
}

/// Whether two processes run in the same memory (kcmp(2)); `None` where the kernel does not tell: it may have been built without, and containers
/// refuse the call to whoever has not `CAP_SYS_PTRACE`.
pub fn share_memory(one: Pid, other: Pid) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: plain numbers.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, one.as_raw(), other.as_raw(), KCMP_VM, 0, 0) };
    match (order, nix::Error::last()) {
        (-1, nix::Error::ESRCH) => Some(false),
        (-1, _) => None,
        (order, _) => Some(order == 0),
    }
}

/// Whether a thread is running or ready to run: not asleep in a system call (proc(5),
/// `/proc/pid/syscall`).
pub fn is_running(pid: Pid, tid: Pid) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => text.starts_with("running"),
        Err(_) => short(&format!("/proc/{pid}/task/{tid}/stat"), |text| {
            Some(field(text, 3)? == "R")
        })
        .unwrap_or(false),
    }
}

/// Descriptors of the thread whose files' names begin like this.
pub fn descriptors_of(tid: Pid, name: &str) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{tid}/fd"));
    let of_name = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        let is_it = target.to_str()?.starts_with(name);
        is_it.then(|| entry.file_name().to_str()?.parse().ok())?
    };
    entries.into_iter().flatten().filter_map(of_name).collect()
}

/// Number of the file that a descriptor of the thread is of (proc(5), `/proc/pid/fdinfo`, since Linux 5.14).
pub fn inode(tid: Pid, descriptor: i32) -> Option<u64> {
    short(&format!("/proc/{tid}/fdinfo/{descriptor}"), |text| {
        let line = text.lines().find_map(|line| line.strip_prefix("ino:"));
        line?.trim().parse().ok()
    })
}

/// Whether a thread sleeps, in whatever: a signal would wake it.
pub fn sleeps(tid: Pid) -> bool {
    is_in_state(tid, "S")
}

/// Whether a thread runs or is ready to.
pub fn is_ready(tid: Pid) -> bool {
    is_in_state(tid, "R")
}

/// Whether a process is stopped by a signal (SIGSTOP and the like); of one that we trace, of which none of its threads is held by us.
pub fn is_halted(pid: Pid) -> bool {
    // As a tracee that listens is told (ptrace(2), PTRACE_LISTEN).
    is_in_state(pid, "T") || is_in_state(pid, "t")
}

/// Whether a thread sleeps, and a signal would wake it (proc(5), state `S`).
pub fn is_asleep(tid: Pid) -> bool {
    is_in_state(tid, "S")
}

/// Whether a thread has ended, and may be there only as others of its process are.
pub fn has_ended(tid: Pid) -> bool {
    is_in_state(tid, "Z") || is_in_state(tid, "X")
}

/// Whether a thread is stopped by who traces it.
pub fn is_traced_stopped(tid: Pid) -> bool {
    is_in_state(tid, "t")
}

/// By proc_pid_stat(5).
fn is_in_state(tid: Pid, state: &str) -> bool {
    let is = |text: &str| Some(field(text, 3)? == state);
    short(&format!("/proc/{tid}/stat"), is).unwrap_or(false)
}

/// The system call that a thread sleeps in, and its arguments; `None` when it does not sleep, or that cannot be read.
pub fn sleeps_in(tid: Pid) -> Option<(i64, [u64; 6])> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    parse_call(&text)
}

/// Where a thread is in its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It runs, or is ready to, or nobody tells.
    Unknown,
    /// It sleeps, or is stopped, with this instruction pointer.
    At(u64),
    /// There is no such thread.
    Gone,
}

/// Where a thread is, without a stop (proc(5), `/proc/pid/syscall`: the program counter comes last).
pub fn position(pid: Pid, tid: Pid) -> Position {
    let directory = format!("/proc/{pid}/task/{tid}");
    let Ok(text) = std::fs::read_to_string(format!("{directory}/syscall")) else {
        return match std::fs::exists(&directory) {
            Ok(false) => Position::Gone,
            _ => Position::Unknown,
        };
    };
    let last = text.split_whitespace().last();
    let ip = last.and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    ip.map_or(Position::Unknown, Position::At)
}

/// Whether another process runs in the memory of this one, as far as the kernel tells.
pub fn has_peer_in_memory(pid: Pid) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return false;
    };
    let others = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw);
    others
        .filter(|&other| other != pid)
        .any(|other| share_memory(pid, other) == Some(true))
}

/// A number and at least six words in hexadecimal (proc(5), `/proc/pid/syscall`); outside a call there are fewer words.
fn parse_call(text: &str) -> Option<(i64, [u64; 6])> {
    let (number, words) = text.split_once(' ')?;
    let mut words = words.split_whitespace();
    let mut args = [0; 6];
    for arg in &mut args {
        let digits = words.next()?.strip_prefix("0x")?;
        *arg = u64::from_str_radix(digits, 16).ok()?;
    }
    Some((number.parse().ok()?, args))
}

/// The command line of a process, or its name where it has none.
pub fn command(pid: Pid) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words(&bytes);
    if words.iter().all(String::is_empty) {
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        return vec![String::from_utf8_lossy(&name).trim_end().to_owned()];
    }
    words
}

/// The words of a command line as the kernel has it, each ended by a zero. Servers write what they do over the first one, and zeros or spaces
/// over all others.
fn words(line: &[u8]) -> Vec<String> {
    let mut words: Vec<String> = line
        .split(|&b| b == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    // Of a line that goes on into the environment there may be no end.
    if line.is_empty() || line.ends_with(&[0]) {
        words.pop();
    }
    let is_title = words.first().is_some_and(|first| first.contains(' '));
    if is_title && words[1..].iter().all(String::is_empty) {
        words.truncate(1);
    }
    match words.as_mut_slice() {
        [title] => vec![title.trim_end().to_owned()],
        _ => words,
    }
}

/// Flags that the kernel has for a process (proc(5), `stat`, field 9).
pub(super) fn flags(pid: Pid) -> Option<u64> {
    short(&format!("/proc/{pid}/stat"), |text| number(text, 9))
}

/// Children of a process (proc(5), `children`); none where the kernel does not tell.
pub fn children(pid: Pid) -> Vec<Pid> {
    let of = |tid: Pid| {
        let path = format!("/proc/{pid}/task/{tid}/children");
        let listed = std::fs::read_to_string(path).unwrap_or_default();
        let ids = listed
            .split_ascii_whitespace()
            .filter_map(|id| id.parse().ok());
        ids.map(Pid::from_raw).collect::<Vec<_>>()
    };
    tasks(pid)
        .unwrap_or_default()
        .into_iter()
        .flat_map(of)
        .collect()
}

/// Threads of a process, but for those that the kernel has in it for itself (io_uring(7)): they never stop.
pub fn tasks(pid: Pid) -> std::io::Result<Vec<Pid>> {
    /// `PF_IO_WORKER`, `PF_USER_WORKER` (linux/sched.h).
    const KERNELS_OWN: u64 = 0x10 | 0x4000;
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let tids = entries.flatten().filter_map(number).map(Pid::from_raw);
    let is_programs = |tid: &Pid| flags(*tid).is_none_or(|flags| flags & KERNELS_OWN == 0);
    Ok(tids.filter(is_programs).collect())
}

/// Threads that run, or could, on a processor (proc_pid_stat(5), states, `processor` and `policy`), those of some processes and such as want it only when
/// nobody else does left out.
pub fn ready_on(processor: usize, but: &[Pid]) -> Vec<i32> {
    let numbers = |path: &str| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        entries.filter_map(number).collect::<Vec<i32>>()
    };
    let is_ready = move |pid: i32, tid: i32| {
        let is = |text: &str| {
            let here = number(text, 39)? as usize == processor;
            let idles = number(text, 41)? == libc::SCHED_IDLE as u64;
            Some(here && !idles && field(text, 3)? == "R")
        };
        short(&format!("/proc/{pid}/task/{tid}/stat"), is) == Some(true)
    };
    let processes = numbers("/proc").into_iter();
    let others = processes.filter(|&pid| !but.contains(&Pid::from_raw(pid)));
    let ready = |pid: i32| {
        let tids = numbers(&format!("/proc/{pid}/task")).into_iter();
        tids.filter(move |&tid| is_ready(pid, tid))
    };
    others.flat_map(ready).collect()
}

/// The processor the thread last ran on.
pub fn processor(pid: Pid, tid: Pid) -> Option<usize> {
    let of = |text: &str| number(text, 39).map(|cpu| cpu as usize);
    short(&format!("/proc/{pid}/task/{tid}/stat"), of)
}

/// Address of the thread's `struct rseq`, if it has registered one. Source: ptrace(2),
/// `PTRACE_GET_RSEQ_CONFIGURATION`.
pub fn rseq_area(tid: Pid) -> Option<u64> {
    const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    /// `struct ptrace_rseq_configuration`: address, size, signature, flags, padding.
    const BYTES: usize = 24;
    let mut configuration = [0u64; BYTES / 8];
    // SAFETY: the kernel writes at most `BYTES` bytes to the array, which is that large.
    let rc = unsafe {
        libc::ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION,
            tid.as_raw(),
            BYTES,
            configuration.as_mut_ptr(),
        )
    };
    (rc > 0 && configuration[0] != 0).then_some(configuration[0])
}

/// A descriptor of our own of what one of a thread's is (before Linux 6.9 its process's), where the kernel lets us have it. Source: pidfd_getfd(2), Linux 5.6.
pub fn borrow_descriptor(pid: Pid, tid: Pid, descriptor: i32) -> Option<OwnedFd> {
    /// Source: pidfd_open(2).
    const PIDFD_THREAD: i32 = libc::O_EXCL;
    let owned = |number: libc::c_long| {
        let number = i32::try_from(number).ok().filter(|number| *number >= 0)?;
        // SAFETY: the kernel has just made it for us, and nobody else knows of it.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    };
    // SAFETY: the call takes numbers.
    let open =
        |id: Pid, flags: i32| unsafe { libc::syscall(libc::SYS_pidfd_open, id.as_raw(), flags) };
    let process = owned(open(tid, PIDFD_THREAD)).or_else(|| owned(open(pid, 0)))?;
    let process = process.as_raw_fd();
    // SAFETY: as above.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, descriptor, 0) })
}

/// What a short file says: one read, which is how often `/proc` is asked when threads have thousands of turns.
fn short<T>(path: &str, says: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0; 1024];
    let length = File::open(path).ok()?.read(&mut bytes).ok()?;
    says(&String::from_utf8_lossy(&bytes[..length]))
}

/// A field of a `stat` file, from the third on, by its number in proc(5).
fn field(stat: &str, number: usize) -> Option<&str> {
    // The name in parentheses may hold anything, so fields are counted from the last one.
    let rest = stat.rsplit_once(") ")?.1;
    rest.split_ascii_whitespace().nth(number - 3)
}

fn number(stat: &str, of_field: usize) -> Option<u64> {
    field(stat, of_field)?.parse().ok()
}

/// Ticks a second in `/proc`.
pub fn clock_ticks() -> f64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .unwrap_or(100) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_and_what_servers_make_of_them() {
        for (line, expected) in [
            (&b"a\0b c\0\0"[..], &["a", "b c", ""][..]),
            (b"a\0\0", &["a", ""]),
            (b"a\0\0\0", &["a", "", ""]),
            (b"", &[]),
            (b"worker: idle\0\0\0\0\0", &["worker: idle"]),
            (b"worker: idle        \0", &["worker: idle"]),
            (
                b"worker: on into the environment",
                &["worker: on into the environment"],
            ),
        ] {
            assert_eq!(words(line), expected, "{line:?}");
        }
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) R (b) S 1 2 3 4 5 4194304 9\n";
        assert_eq!(
            (field(stat, 3), number(stat, 9)),
            (Some("S"), Some(4194304))
        );
        assert_eq!((field(stat, 11), number("7 (a", 3)), (None, None));
    }

    #[test]
    fn calls_are_told_from_other_places() {
        let text = "44 0x3 0xff 0x10 0x0 0x0 0x0 0x7ffd00 0x7f00\n";
        assert_eq!(parse_call(text), Some((44, [3, 255, 16, 0, 0, 0])));
        assert_eq!(parse_call("running\n"), None);
        assert_eq!(parse_call("-1 0x7ffdcdc55c20 0x7fef752a3f16\n"), None);
    }
}

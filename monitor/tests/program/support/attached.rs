//! Running programs that are attached to.

use crate::support::cli::awaited;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use statcache::tracee::status::seccomp_filters;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// `statcache attach` with these options, to its end.
pub fn attach(profile: &Path, options: &[&str], pid: u32) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    command
        .args(["attach", "--seed", "1", "-o"])
        .arg(profile)
        .args(options)
        .arg(pid.to_string());
    command.output().expect("run")
}

/// The server tracee, past its start; for minutes, if it is not asked to end ([`ask`]).
pub fn server(program: &Path) -> (Child, BufReader<ChildStdout>) {
    server_of(&mut Command::new(program))
}

/// The same begun by a command.
pub fn server_of(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command
        .arg("300")
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    (child, output)
}

/// Asks the server to end, and gives what it says at its end.
pub fn ask(child: &mut Child, output: &mut impl Read) -> String {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).expect("sent");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("read");
    rest
}

/// Waits until the process is in this state (proc_pid_stat(5): `S` sleeps, `T` is stopped, `Z` has ended).
pub fn await_state(pid: u32, state: char) {
    let is = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("there");
        stat.contains(&format!(") {state} "))
    };
    assert!(awaited(is), "{pid} does not come to {state}");
}

/// Waits until the first thread of the process sleeps in a system call of this number (proc_pid_syscall(5)), and not on its way there; where
/// the kernel does not tell, until it sleeps.
pub fn await_call(pid: u32, number: u32) {
    let path = format!("/proc/{pid}/syscall");
    if std::fs::read_to_string(&path).is_err() {
        return await_state(pid, 'S');
    }
    let sleeps = || {
        let told = std::fs::read_to_string(&path).expect("there");
        told.split(' ').next() == Some(&number.to_string())
    };
    assert!(awaited(sleeps), "{pid} does not come to call {number}");
}

/// What an attached monitor could leave in a process.
pub fn traces(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("alive");
    let mut found: Vec<String> = maps
        .lines()
        .filter(|l| l.contains("statcache"))
        .map(str::to_owned)
        .collect();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("alive") {
        let status = task.expect("a task").path().join("status");
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let tracer = status.lines().find(|l| l.starts_with("TracerPid:"));
        found.extend(tracer.filter(|l| !l.ends_with("\t0")).map(str::to_owned));
    }
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("alive");
    let links = descriptors.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    found.extend(
        links
            .map(|l| l.display().to_string())
            .filter(|l| l.contains("statcache")),
    );
    found
}

/// Whether filters of other programs can be read: for that it takes root of the first user namespace, and no filter of one's own.
pub fn reads_filters(test: &str) -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let capable = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let capable = capable.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let users = std::fs::read_to_string("/proc/self/uid_map").expect("there");
    let reads = capable.is_some_and(|mask| mask & SYS_ADMIN != 0)
        && users.split_whitespace().eq(["0", "0", "4294967295"])
        && seccomp_filters(Pid::this()) == 0;
    if !reads {
        println!("SKIP {test}: filters can not be read here");
    }
    reads
}

//! Building the tracees of `tests/tracees` and bringing them to the place where observation begins.

// Each test program uses its part.
#![allow(dead_code)]

use statcache::tracee::launch::launch;
use statcache::tracee::{Event, Resume, Running, StopReason, Stopped};
use std::ffi::CString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// System calls, unknown to any kernel, between which a tracee is to be observed (`tracee.inc`).
pub const MARK_BEGIN: u64 = 0x5ca0;
/// See [`MARK_BEGIN`].
pub const MARK_END: u64 = 0x5ca1;

/// A directory with built tracees.
pub struct Tracees {
    directory: tempfile::TempDir,
}

impl Tracees {
    /// Builds `name`. `None`, after saying so, where there is no assembler.
    pub fn build(name: &str) -> Option<(Tracees, PathBuf)> {
        let tracees = Tracees {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees");
        let program = tracees.directory.path().join(name);
        let output = Command::new("cc")
            .current_dir(sources)
            .args(["-nostdlib", "-static", "-Wa,-I,."])
            .args(["-Wl,-z,noexecstack", "-Wl,--no-warn-rwx-segments", "-o"])
            .arg(&program)
            .args([format!("{name}.s"), "report.s".into()])
            .output();
        match output {
            Ok(output) if output.status.success() => Some((tracees, program)),
            other => {
                println!("SKIP {name}: cannot be built here: {other:?}");
                None
            }
        }
    }
}

/// A tracee whose standard output is captured, unless it was launched without.
pub struct Tracee {
    output: Option<OwnedFd>,
}

/// How a tracee ended, and what it printed.
#[derive(Debug)]
pub struct Ending {
    pub event: Event,
    pub printed: String,
}

impl Ending {
    /// The number of accesses a successful tracee printed; `None` where it skipped itself.
    pub fn expected_accesses(&self, name: &str) -> Option<u64> {
        assert!(matches!(self.event, Event::Exited(0)), "{name}: {self:?}");
        if self.printed == format!("skip {name}\n") {
            println!("SKIP {name}: this processor lacks what it is about");
            return None;
        }
        let number = self.printed.strip_prefix(&format!("ok {name} accesses "));
        Some(
            number
                .and_then(|n| n.trim().parse().ok())
                .unwrap_or_else(|| panic!("{self:?}")),
        )
    }
}

impl Tracee {
    /// Starts `program` and stops it at the return from `execve`, before its first instruction.
    pub fn launch(program: &Path, args: &[&str]) -> (Tracee, Stopped) {
        // The child inherits our standard output: it is the pipe for the moment of the fork (see `exclusive`).
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        let saved = nix::unistd::dup(std::io::stdout()).expect("a descriptor");
        nix::unistd::dup2_stdout(&write).expect("a descriptor");
        let stopped = Self::launch_uncaptured(program, args);
        nix::unistd::dup2_stdout(&saved).expect("a descriptor");
        let output = Some(read);
        (Tracee { output }, stopped)
    }

    /// As `launch`, with our standard output.
    pub fn launch_uncaptured(program: &Path, args: &[&str]) -> Stopped {
        let path = CString::new(program.as_os_str().as_encoded_bytes()).expect("no NUL");
        let mut argv = vec![path.clone()];
        argv.extend(args.iter().map(|arg| CString::new(*arg).expect("no NUL")));
        let (_, mut running, _) = launch(&path, &argv).expect("launched");
        let mut exec_seen = false;
        loop {
            match running.wait().expect("waited") {
                Event::Stopped(stopped) => match stopped.reason {
                    StopReason::Exec => {
                        exec_seen = true;
                        running = stopped.resume(Resume::Syscall, 0).expect("resumed");
                    }
                    StopReason::Syscall if exec_seen => return stopped,
                    _ => running = stopped.resume(Resume::Continue, 0).expect("resumed"),
                },
                other => panic!("{program:?} did not start: {other:?}"),
            }
        }
    }

    /// Runs natively until the system call `mark` has returned. `None` where the program ended before.
    pub fn run_past(stopped: Stopped, mark: u64) -> Result<Stopped, Event> {
        let mut inside = false;
        let mut marked = false;
        let mut stopped = stopped;
        loop {
            let signal = match stopped.reason {
                StopReason::Signal(signal) => signal,
                _ => 0,
            };
            let running = stopped.resume(Resume::Syscall, signal).expect("resumed");
            stopped = match running.wait().expect("waited") {
                Event::Stopped(stopped) => stopped,
                event => return Err(event),
            };
            if stopped.reason == StopReason::Syscall {
                inside = !inside;
                if inside {
                    marked = stopped.regs().expect("registers").orig_rax == mark;
                } else if marked {
                    return Ok(stopped);
                }
            }
        }
    }

    /// Runs natively to the end.
    pub fn finish(self, stopped: Stopped) -> Ending {
        let event = run_natively(stopped.resume(Resume::Continue, 0).expect("resumed"));
        self.ended(event)
    }

    /// What it printed, once it has ended by `event`.
    pub fn ended(self, event: Event) -> Ending {
        let mut printed = String::new();
        if let Some(output) = self.output {
            let mut output = std::fs::File::from(output);
            output.read_to_string(&mut printed).expect("text");
        }
        Ending { event, printed }
    }
}

/// Runs to the end, handing over every signal.
pub fn run_natively(mut running: Running) -> Event {
    loop {
        match running.wait().expect("waited") {
            Event::Stopped(stopped) => {
                let signal = match stopped.reason {
                    StopReason::Signal(signal) => signal,
                    _ => 0,
                };
                let how = match stopped.reason {
                    StopReason::Group => Resume::Listen,
                    _ => Resume::Continue,
                };
                running = stopped.resume(how, signal).expect("resumed");
            }
            event => return event,
        }
    }
}

/// Standard output is lent to tracees: one test at a time.
pub fn exclusive() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

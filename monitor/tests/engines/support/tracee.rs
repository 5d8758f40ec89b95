//! Bringing the tracees of `tests/tracees` to the place where observation begins, and to their end.

pub use super::tracees::{Tracees, exclusive};
use statcache::tracee::launch::launch;
use statcache::tracee::{Event, Resume, Running, StopReason, Stopped};
use std::ffi::CString;
use std::path::Path;

/// System calls, unknown to any kernel, between which a tracee is to be observed (`tracee.inc`).
pub const MARK_BEGIN: u64 = 0x5ca0;
/// See [`MARK_BEGIN`].
pub const MARK_END: u64 = 0x5ca1;

/// A tracee whose standard output goes to a file.
pub struct Tracee {
    output: tempfile::NamedTempFile,
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
        let output = tempfile::NamedTempFile::new().expect("a temporary file");
        // A shell redirects the output and becomes the program: our own standard output is the test harness's.
        let redirect = format!("exec \"$0\" \"$@\" >'{}'", output.path().display());
        let program = program.to_str().expect("text");
        let words = [&["sh", "-c", &redirect, program], args].concat();
        let stopped = launch_to_exec(Path::new("/bin/sh"), &words, 2);
        (Tracee { output }, stopped)
    }

    /// As `launch`, with our standard output.
    pub fn launch_uncaptured(program: &Path, args: &[&str]) -> Stopped {
        let name = program.to_str().expect("text");
        launch_to_exec(program, &[&[name], args].concat(), 1)
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
        let printed = std::fs::read(self.output.path()).expect("its output");
        let printed = String::from_utf8_lossy(&printed).into_owned();
        Ending { event, printed }
    }
}

/// Starts `path` with `words` and stops it at the return from its `execve` number `execs`.
fn launch_to_exec(path: &Path, words: &[&str], mut execs: u32) -> Stopped {
    let path_text = CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
    let argv: Vec<CString> = words
        .iter()
        .map(|word| CString::new(*word).expect("no NUL"))
        .collect();
    let (_, mut running, _) = launch(&path_text, &argv).expect("launched");
    loop {
        match running.wait().expect("waited") {
            Event::Stopped(stopped) => {
                if stopped.reason == StopReason::Exec {
                    execs -= 1;
                }
                let how = match (execs, stopped.reason) {
                    (0, StopReason::Syscall) => return stopped,
                    (0, _) => Resume::Syscall,
                    _ => Resume::Continue,
                };
                running = stopped.resume(how, 0).expect("resumed");
            }
            other => panic!("{path:?} did not start: {other:?}"),
        }
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

//! The side of whoever asks: `ps`, `stop`, and `report` of a process.

use super::{Status, directory, named, socket};
use crate::tracee::procinfo;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a monitor may take to say how far it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a monitor said, or that there is none.
#[derive(Debug)]
pub enum Answer {
    /// It said this.
    Live(Status),
    /// No monitor of that process listens.
    Nobody,
}

/// A monitor that is there and gives no answer.
#[derive(Debug, thiserror::Error)]
#[error("the profiler of process {pid} does not answer: {source}")]
pub struct AskError {
    /// The profiled process.
    pub pid: i32,
    /// What failed.
    pub source: io::Error,
}

/// Asks the monitor of `pid` how far it is.
///
/// # Errors
/// [`AskError`].
pub fn ask(pid: i32) -> Result<Answer, AskError> {
    request(pid, "status", Some(PATIENCE))
}

/// Tells the monitor of `pid` to end the profile, and waits until it is complete, however long
/// names take to be resolved.
///
/// # Errors
/// [`AskError`]: it was killed meanwhile, for instance.
pub fn stop(pid: i32) -> Result<Answer, AskError> {
    // One that does nothing now would not end either.
    match ask(pid)? {
        Answer::Live(_) => request(pid, "stop", None),
        Answer::Nobody => Ok(Answer::Nobody),
    }
}

/// All live profiles of this user, oldest process id first, and what gives no answer. They are asked side by side.
#[must_use]
pub fn live() -> Vec<Result<Status, AskError>> {
    let pids = named(&directory());
    let answers = std::thread::scope(|scope| {
        let start = |pid| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || ask(pid));
            (pid, thread)
        };
        let started: Vec<_> = pids.into_iter().map(start).collect();
        let answers = started
            .into_iter()
            .filter_map(|(pid, thread)| match thread {
                Ok(thread) => thread.join().ok(),
                // No more threads may be made.
                Err(_) => Some(ask(pid)),
            });
        answers.collect::<Vec<_>>()
    });
    let live = answers.into_iter().filter_map(|answer| match answer {
        Ok(Answer::Live(status)) if !status.complete => Some(Ok(status)),
        Ok(_) => None,
        // It ended just now.
        Err(error) if has_left(&error.source) => None,
        Err(error) => Some(Err(error)),
    });
    live.collect()
}

fn has_left(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Whether nobody listens at `path` any more.
pub(super) fn is_dead(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

fn request(pid: i32, what: &str, patience: Option<Duration>) -> Result<Answer, AskError> {
    exchange(pid, what, patience).map_err(|source| AskError { pid, source })
}

fn exchange(pid: i32, what: &str, patience: Option<Duration>) -> io::Result<Answer> {
    use io::ErrorKind::{ConnectionRefused, NotFound, UnexpectedEof, WouldBlock};
    let mut stream = match UnixStream::connect(socket(&directory(), pid)) {
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => {
            return Ok(Answer::Nobody);
        }
        connected => connected?,
    };
    // Who listens, not who answers: it may do neither.
    let peer = getsockopt(&stream, PeerCredentials)?;
    let monitor = peer.pid();
    // In a directory that everybody may write to, others may have been first.
    if ![0, nix::unistd::geteuid().as_raw()].contains(&peer.uid()) {
        return Ok(Answer::Nobody);
    }
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{what}")?;
    let mut line = String::new();
    match BufReader::new(&stream).read_line(&mut line) {
        Ok(0) => {
            let ended = "it ended; its profile is valid up to its last complete window";
            Err(io::Error::new(UnexpectedEof, ended))
        }
        Ok(_) => Ok(Answer::Live(serde_json::from_str(&line)?)),
        Err(error) if error.kind() == WouldBlock => Err(silent(Pid::from_raw(monitor))),
        Err(error) => Err(error),
    }
}

/// What keeps a monitor from answering.
fn silent(monitor: Pid) -> io::Error {
    let what = match procinfo::is_halted(monitor) {
        true => {
            format!("it is stopped (signal(7), SIGSTOP): have it go on, by kill -CONT {monitor}")
        }
        false => "it takes too long: try again".to_owned(),
    };
    io::Error::new(io::ErrorKind::TimedOut, what)
}

//! The side of whoever asks: `ps`, `stop`, and `report` of a process.

use super::{Status, directory, named, socket};
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
    request(pid, "stop", None)
}

/// All live profiles of this user, oldest process id first.
#[must_use]
pub fn live() -> Vec<Status> {
    let asked = named(&directory()).into_iter().map(ask);
    asked
        .filter_map(|answer| match answer {
            Ok(Answer::Live(status)) if !status.complete => Some(status),
            _ => None,
        })
        .collect()
}

/// Whether nobody listens at `path` any more.
pub(super) fn is_dead(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

fn request(pid: i32, what: &str, patience: Option<Duration>) -> Result<Answer, AskError> {
    let mut stream = match UnixStream::connect(socket(&directory(), pid)) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(Answer::Nobody),
                _ => Err(AskError { pid, source: error }),
            };
        }
    };
    let exchange = || -> io::Result<Status> {
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        writeln!(stream, "{what}")?;
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line)? == 0 {
            let ended = "it ended; its profile is valid up to its last complete window";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ended));
        }
        Ok(serde_json::from_str(&line)?)
    };
    let mut exchange = exchange;
    exchange()
        .map(Answer::Live)
        .map_err(|source| AskError { pid, source })
}

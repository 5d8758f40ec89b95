//! The monitor's side: a thread that answers while the session works.
//!
//! Unsafe invariant: the calls take numbers, and the signal is to ourselves.

use super::{NoPlace, SOCKET_MODE, Status, prepare, socket, sockets};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time to wait for a line from a client, or for it to take its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request.
const REQUEST_BYTES: u64 = 64;
/// Clients answered at a time; more are turned away.
const MOST_CLIENTS: usize = 32;

/// What session and server know of each other.
#[derive(Debug, Default)]
pub struct Control {
    status: Mutex<Status>,
    changed: Condvar,
    stop: AtomicBool,
    answering: AtomicUsize,
}

impl Control {
    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody wants the profile to end.
    pub fn stop_wanted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Books a window.
    pub fn window(&self, samples: usize, bytes: u64) {
        let mut status = self.status();
        status.windows += 1;
        status.samples += samples as u64;
        status.bytes = bytes;
    }

    /// Asks the session to end. It sleeps until a signal comes: one that means nothing else wakes it.
    fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // SAFETY: plain numbers; SIGCHLD is ignored where nobody waits for it.
        unsafe { libc::kill(libc::getpid(), libc::SIGCHLD) };
    }

    fn wait_until_complete(&self) -> Status {
        let mut status = self.status();
        while !status.complete {
            status = self
                .changed
                .wait(status)
                .unwrap_or_else(PoisonError::into_inner);
        }
        status.clone()
    }
}

/// The listening socket; gone when this is.
#[derive(Debug)]
pub struct Server {
    control: Arc<Control>,
    path: PathBuf,
    /// The socket's identity: another monitor may have its own there by now.
    identity: Option<Identity>,
}

impl Server {
    /// Listens for `status.pid`. Signals that the session waits for must be blocked already: the
    /// threads started here inherit that.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn open(status: Status) -> Result<Server, NoPlace> {
        let directory = prepare()?;
        sweep(&directory);
        let path = socket(&directory, status.pid);
        let refuse = |error: std::io::Error| NoPlace {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        // Under a name that is not looked for until it listens: others take one that does not for a dead monitor's. One process has one
        // tracer, which is us: whatever has the name it gets then belongs to a dead one.
        let unready = path.with_extension("new");
        let _ = std::fs::remove_file(&unready);
        let listener = UnixListener::bind(&unready).map_err(refuse)?;
        let ours = std::fs::Permissions::from_mode(SOCKET_MODE);
        std::fs::set_permissions(&unready, ours)
            .and_then(|()| std::fs::rename(&unready, &path))
            .inspect_err(|_| drop(std::fs::remove_file(&unready)))
            .map_err(refuse)?;
        let control = Arc::new(Control {
            status: Mutex::new(status),
            ..Control::default()
        });
        let shared = Arc::clone(&control);
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, &shared))
            .map_err(refuse)?;
        let identity = identify(&path);
        Ok(Server {
            control,
            path,
            identity,
        })
    }

    /// What the session shares with it.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Says that the profile is complete, and waits until those who wanted to know have been told.
    pub fn complete(self, error: Option<String>) {
        self.end(error);
        let until = Instant::now() + PATIENCE;
        while self.control.answering.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(&self, error: Option<String>) {
        let mut status = self.control.status();
        if !status.complete {
            status.complete = true;
            status.error = error;
        }
        drop(status);
        self.control.changed.notify_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Who waits must not wait for ever; nor may the program, where a fault of ours ends the thread that traces it.
        self.end(Some("the profile ended before it was complete".to_owned()));
        if self.identity.is_some() && identify(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Inode and change time: inodes are used again.
type Identity = (u64, i64, i64);

fn identify(path: &std::path::Path) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Removes the sockets that killed monitors left.
fn sweep(directory: &std::path::Path) {
    for path in sockets(directory) {
        if !super::client::is_dead(&path) {
            continue;
        }
        // Another that begins just now may have put its own there: what is removed is looked at where nobody else goes.
        let aside = path.with_extension(format!("{}.dead", std::process::id()));
        if std::fs::rename(&path, &aside).is_err() {
            continue;
        }
        let removed = match super::client::is_dead(&aside) {
            true => std::fs::remove_file(&aside),
            false => std::fs::rename(&aside, &path),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, path = %aside.display(), "a socket stays");
        }
    }
}

fn serve(listener: &UnixListener, control: &Arc<Control>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, for instance: others may close some.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if control.answering.fetch_add(1, Ordering::AcqRel) >= MOST_CLIENTS || !may_ask(&stream) {
            control.answering.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let shared = Arc::clone(control);
        let answering = std::thread::Builder::new().spawn(move || {
            let _ = answer(&stream, &shared);
            shared.answering.fetch_sub(1, Ordering::AcqRel);
        });
        if answering.is_err() {
            control.answering.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whether the client is the same user, or root (unix(7), `SO_PEERCRED`). The directory's mode says
/// so already; it may have been changed.
fn may_ask(stream: &UnixStream) -> bool {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw())
}

fn answer(stream: &UnixStream, control: &Control) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    BufReader::new(stream.take(REQUEST_BYTES)).read_line(&mut request)?;
    let status = match request.trim_end() {
        "status" => control.status().clone(),
        "stop" => {
            control.request_stop();
            control.wait_until_complete()
        }
        _ => return Ok(()),
    };
    let mut line = serde_json::to_string(&status)?;
    line.push('\n');
    let mut stream = stream;
    stream.write_all(line.as_bytes())
}

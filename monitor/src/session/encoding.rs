//! Windows of a run that is observed as a whole are encoded on another thread: the one that traces has its program wait meanwhile. (6 to 8 % of
//! the processor time of short runs.) One at a time, so that a monitor that is killed has lost no more than the last two.

use super::output::Open;
use crate::profile::types::{ProcessRecord, Record};
use crate::profile::{ProfileError, encode};
use crate::tracee::procinfo;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError, Weak};

/// Hands windows over.
#[derive(Debug)]
pub(super) struct Encoding {
    windows: SyncSender<(ProcessRecord, Record)>,
    results: Receiver<Result<(), ProfileError>>,
    /// Whether one has no result yet.
    busy: bool,
    /// The profile.
    path: PathBuf,
}

impl Encoding {
    /// Starts the thread, where it can have a processor that the program does not need.
    pub(super) fn start(open: Weak<Mutex<Open>>, path: PathBuf) -> Option<Encoding> {
        if procinfo::processors(nix::unistd::Pid::from_raw(0)) < 2 {
            return None;
        }
        let (windows, received) = sync_channel::<(ProcessRecord, Record)>(1);
        let (done, results) = sync_channel(1);
        let work = move || {
            for (of, window) in received {
                let bytes = encode(&window);
                // Gone with the session.
                let Some(open) = open.upgrade() else { return };
                let result = {
                    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                    open.append(&of, &window, Some(bytes))
                };
                // Who waits for the result may close the profile.
                drop(open);
                if done.send(result).is_err() {
                    return;
                }
            }
        };
        let builder = std::thread::Builder::new().name("encoding".to_owned());
        builder.spawn(work).ok()?;
        Some(Encoding {
            windows,
            results,
            busy: false,
            path,
        })
    }

    /// Waits until what was handed over is in the profile.
    ///
    /// # Errors
    /// When it could not be written.
    pub(super) fn wait(&mut self) -> Result<(), ProfileError> {
        if !std::mem::take(&mut self.busy) {
            return Ok(());
        }
        self.results.recv().unwrap_or_else(|_| {
            Err(ProfileError::Encode {
                path: self.path.clone(),
                what: "the thread for it has died".to_owned(),
            })
        })
    }

    /// Has a window of process `of` put into the profile, behind the one before; gives it back where there is no thread any more. And
    /// what became of the one before.
    pub(super) fn hand(
        &mut self,
        of: &ProcessRecord,
        window: Record,
    ) -> (Option<Record>, Result<(), ProfileError>) {
        let before = self.wait();
        match self.windows.send((of.clone(), window)) {
            Ok(()) => {
                self.busy = true;
                (None, before)
            }
            Err(unsent) => (Some(unsent.0.1), before),
        }
    }
}

impl Drop for Encoding {
    /// The profile is open still: what was handed over is to be in it.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

//! Windows of a run that is observed as a whole are encoded on another thread: the one that traces has its program wait meanwhile. (A fourteenth
//! of the processor time of a short run.) One at a time, so that a monitor that is killed has lost no more than the last.

use super::output::Open;
use crate::profile::types::{ProcessRecord, Record};
use crate::profile::{ProfileError, encode};
use crate::tracee::procinfo;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError, Weak};

/// Hands windows over.
#[derive(Debug)]
pub(super) struct Encoding {
    windows: SyncSender<(ProcessRecord, Record)>,
    results: Receiver<Result<(), ProfileError>>,
    /// Whether one has no result yet.
    busy: bool,
}

impl Encoding {
    /// Starts the thread, where it can have a processor that the program does not need.
    pub(super) fn start(open: Weak<Mutex<Open>>) -> Option<Encoding> {
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
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                let result = open.append(&of, &window, Some(bytes));
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
        // A thread that is gone has left the profile as it was.
        self.results.recv().unwrap_or(Ok(()))
    }

    /// Has a window of process `of` put into the profile, behind the one before. Gives it back where there is no thread any more.
    ///
    /// # Errors
    /// When the one before could not be written.
    pub(super) fn hand(
        &mut self,
        of: &ProcessRecord,
        window: Record,
    ) -> Result<Option<Record>, ProfileError> {
        self.wait()?;
        match self.windows.send((of.clone(), window)) {
            Ok(()) => {
                self.busy = true;
                Ok(None)
            }
            Err(unsent) => Ok(Some(unsent.0.1)),
        }
    }
}

//! The one profile file that all processes of a run are recorded in.

use crate::profile::types::{ProcessRecord, Record};
use crate::profile::{ProfileError, Writer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file, shared by the recorders of all processes.
#[derive(Clone, Debug)]
pub struct Output(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    writer: Writer,
    /// The process that the last record belongs to.
    current: u32,
}

impl Output {
    /// Records to `writer`, which has its header already.
    pub fn new(writer: Writer) -> Output {
        Output(Arc::new(Mutex::new(Open { writer, current: 0 })))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a record of process `of`, said to be that process's where the last one was not.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn append(&self, of: &ProcessRecord, record: &Record) -> Result<(), ProfileError> {
        let mut open = self.open();
        if open.current != of.id {
            open.writer.append(&Record::Process(of.clone()))?;
            open.current = of.id;
        }
        open.writer.append(record)
    }

    /// Says that process `of` is another program now.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn renamed(&self, of: &ProcessRecord) -> Result<(), ProfileError> {
        let mut open = self.open();
        open.writer.append(&Record::Process(of.clone()))?;
        open.current = of.id;
        Ok(())
    }
}

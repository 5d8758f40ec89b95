//! Source files on this machine.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::profile::Profile;
use crate::report::{Source, Sources};
use crate::symbols;

/// Sources on this machine, relative paths taken from where the program ran.
pub(super) struct Disk<'a> {
    /// Where it ran, and when.
    pub(super) profile: &'a Profile,
}

impl Sources for Disk<'_> {
    fn read(&self, path: &str) -> Option<Source> {
        let path = Path::new(&self.profile.header.cwd).join(path);
        let mut bytes = Vec::new();
        symbols::open_regular(&path)?.read_to_end(&mut bytes).ok()?;
        let started = Duration::try_from_secs_f64(self.profile.header.start_unix_s).ok()?;
        let newer = fs::metadata(&path)
            .and_then(|m| m.modified())
            .is_ok_and(|modified| {
                UNIX_EPOCH
                    .checked_add(started)
                    .is_some_and(|t| modified > t)
            });
        Some(Source {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            newer,
        })
    }
}

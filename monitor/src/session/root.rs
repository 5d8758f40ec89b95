//! The files of a process in a container, which has mounts of its own.

use crate::symbols::{Files, SystemFiles, open_ordinary};
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Whether process `pid` has mounts of its own, so that paths mean other files there than here.
pub fn is_foreign(pid: Pid) -> bool {
    let mounts = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    let (there, here) = (mounts(&pid.to_string()), mounts("self"));
    there.is_some() && there != here
}

/// Files that processes with mounts of their own have mapped, by their paths there. They are held
/// open, because their mounts may be gone with the process; all other files are ours.
#[derive(Debug, Default)]
pub struct ForeignFiles(FxHashMap<PathBuf, File>);

impl ForeignFiles {
    /// Opens what process `pid`, alive, calls `path`, unless a file of that path is here already.
    pub fn add(&mut self, pid: Pid, path: &str) {
        let key = PathBuf::from(path);
        if self.0.contains_key(&key) {
            return;
        }
        let Ok(relative) = key.strip_prefix("/") else {
            return;
        };
        let place = Path::new("/proc").join(pid.to_string()).join("root");
        // A container's files are as it likes.
        if let Some(file) = open_ordinary(&place.join(relative)) {
            self.0.insert(key, file);
        }
    }

    /// Whether this path is one of them.
    pub fn holds(&self, path: &str) -> bool {
        self.0.contains_key(Path::new(path))
    }

    /// Where the file is to be had, seen from here.
    pub fn find(&self, path: &str) -> PathBuf {
        match self.0.get(Path::new(path)) {
            Some(file) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => PathBuf::from(path),
        }
    }

    /// Takes over the files of another, where there is none of the same path here.
    pub fn merge(&mut self, other: &ForeignFiles) {
        for (path, file) in &other.0 {
            if let Ok(file) = file.try_clone() {
                self.0.entry(path.clone()).or_insert(file);
            }
        }
    }
}

impl Files for ForeignFiles {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        if self.0.contains_key(path) {
            return std::fs::read(self.find(path.to_str()?)).ok();
        }
        SystemFiles::default().read(path)
    }
}

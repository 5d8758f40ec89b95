//! The files of a process in a container, which has mounts of its own.

use crate::symbols::{self, Files, SystemFiles, open_ordinary};
use crate::tracee::status;
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
            return symbols::read_object(&self.find(path.to_str()?));
        }
        SystemFiles::default().read(path)
    }

    fn size(&self, path: &Path) -> u64 {
        match path.to_str() {
            Some(of_theirs) if self.0.contains_key(path) => {
                SystemFiles::default().size(&self.find(of_theirs))
            }
            _ => SystemFiles::default().size(path),
        }
    }
}

/// Where a process's compiler leaves the names of its code, perhaps only at its end. What it calls `/tmp` is held open
/// where that is another directory than ours: its mounts may be gone with it.
#[derive(Debug)]
pub struct PerfMap {
    temporary: Option<File>,
    name: String,
    user: u32,
}

impl PerfMap {
    /// Of process `pid`, alive. The file has the number that the process knows itself by, and is its user's.
    pub fn of(pid: Pid) -> Option<PerfMap> {
        let (inner, user) = status::identity(pid)?;
        let mut directory = OpenOptions::new();
        directory
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
        let open = |path: String| {
            let file = directory.open(path).ok()?;
            let data = file.metadata().ok()?;
            Some((file, (data.dev(), data.ino())))
        };
        let ours = open("/tmp".to_owned()).map(|(_, which)| which);
        let temporary = open(format!("/proc/{pid}/root/tmp"))
            .filter(|(_, which)| Some(*which) != ours)
            .map(|(file, _)| file);
        Some(PerfMap {
            temporary,
            name: format!("perf-{inner}.map"),
            user,
        })
    }

    /// The functions at these addresses.
    pub fn names(&self, addresses: &[u64]) -> Option<Vec<Option<String>>> {
        let place = match &self.temporary {
            Some(directory) => PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())),
            None => PathBuf::from("/tmp"),
        };
        let file = open_ordinary(&place.join(&self.name))?;
        Some(symbols::names_of_generated(file, self.user, addresses))
    }
}

//! Writing a profile so that nothing is lost: not the older file, not what was written so far.
//!
//! The file is created under a temporary name beside its place, so that an unwritable place is
//! refused before the program starts, and is put in place with its first record; an older file is
//! then kept as `NAME.old`. From there on every record is appended whole or not at all, so the
//! file in place is valid at any moment, whatever ends the monitor.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::ProfileError;
use super::frame::{self, Effort};
use super::types::Record;

/// Bytes from which on a profile is packed harder.
const SMALL: u64 = 4 << 20;

/// Appends records to a profile file.
#[derive(Debug)]
pub struct Writer {
    /// Where the profile is to be.
    path: PathBuf,
    /// Where it is now, until it is put in place.
    temporary: Option<PathBuf>,
    sink: Sink,
    records: u64,
}

impl Writer {
    /// Creates the profile that will be put at `path`.
    ///
    /// # Errors
    /// [`ProfileError::Create`] when nothing can be written there, or what is no profile would be lost.
    pub fn create(path: &Path) -> Result<Self, ProfileError> {
        let refuse = |source| ProfileError::Create {
            path: path.to_owned(),
            source,
        };
        // A link is followed, so that the rename does not replace the link by a file.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let kind = fs::metadata(&target).map(|m| m.file_type()).ok();
        if kind.is_some_and(|k| k.is_dir()) {
            return Err(refuse(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let special = kind.is_some_and(|k| {
            k.is_char_device() || k.is_fifo() || k.is_block_device() || k.is_socket()
        });
        let (file, temporary) = if special {
            // A fifo that nobody reads would keep us here for ever.
            let file = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&target)
                .map_err(refuse)?;
            fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).map_err(|e| refuse(e.into()))?;
            (file, None)
        } else {
            // What is there is kept in the place of what was kept before: that is to be no more than a profile.
            let old = old_name(&target);
            if is_filled(&target) && is_foreign(&old) {
                let what = format!("{} is no profile, and would be lost", old.display());
                return Err(refuse(io::Error::other(what)));
            }
            if let Some(held) = [&target, &old].into_iter().find(|file| is_held(file)) {
                let what = format!("{} is another user's, whose it stays", held.display());
                return Err(refuse(io::Error::other(what)));
            }
            if is_being_written(&target) {
                let what =
                    "another profile is being written there ('statcache ps' lists those that are)";
                return Err(refuse(io::Error::other(what)));
            }
            let (file, temporary) = temporary(&target).map_err(refuse)?;
            mark_being_written(&file);
            (file, Some(temporary))
        };
        let mut writer = Self {
            path: target,
            temporary,
            sink: Sink {
                file,
                end: 0,
                limit: None,
            },
            records: 0,
        };
        writer.sink.append(&frame::preamble()).map_err(refuse)?;
        Ok(writer)
    }

    /// Appends one record: wholly, or the file stays as it was. After an error the writer may be
    /// used again (a smaller record may still fit on a full disk).
    ///
    /// # Errors
    /// [`ProfileError::Write`] when it cannot be written, [`ProfileError::Encode`] for a record no
    /// reader could hold.
    pub fn append(&mut self, record: &Record) -> Result<(), ProfileError> {
        // Who gathers little is short, and waits for it.
        let effort = match self.sink.end < SMALL {
            true => Effort::Low,
            false => Effort::High,
        };
        let bytes = frame::encode(record, effort).map_err(|what| ProfileError::Encode {
            path: self.path.clone(),
            what,
        })?;
        self.sink.append(&bytes).map_err(|e| self.failed(e))?;
        if self.temporary.is_some() {
            self.put_in_place().map_err(|e| self.failed(e))?;
        }
        self.records += 1;
        Ok(())
    }

    /// Where the profile is, or will be with the first record.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sink.end
    }

    /// The complete records so far as a file open for reading; `None` where the profile is no file of
    /// ours any more: a pipe, moved away, replaced.
    #[must_use]
    pub fn reopen(&self) -> Option<File> {
        if self.temporary.is_some() {
            return None;
        }
        let own = self.sink.file.metadata().ok()?;
        let file = File::open(&self.path).ok()?;
        let there = file.metadata().ok()?;
        let same = own.is_file() && (own.dev(), own.ino()) == (there.dev(), there.ino());
        same.then_some(file)
    }

    /// Puts `newer`, followed by what was written from position `from` on, in the place of the
    /// profile, at once: whoever reads it meanwhile has the older or the newer one, whole.
    ///
    /// # Errors
    /// The operating system's; the profile is as it was, and goes on.
    pub fn replace(&mut self, mut newer: Replacement, from: u64) -> io::Result<()> {
        let Some(mut older) = self.reopen() else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        older.seek(SeekFrom::Start(from))?;
        let mut since = older.take(self.sink.end.saturating_sub(from));
        let since = io::copy(&mut since, &mut newer.file)?;
        newer
            .file
            .set_permissions(self.sink.file.metadata()?.permissions())?;
        let file = newer.file.try_clone()?;
        fs::rename(&newer.temporary, &self.path)?;
        (self.sink.file, self.sink.end) = (file, newer.bytes + since);
        Ok(())
    }

    /// Asks the file system for what it only tells when a file is closed: quotas, disks of other hosts (close(2), "Dealing with error
    /// returns"). The writer may be used on.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn finish(&self) -> Result<(), ProfileError> {
        // Closing any descriptor of the file does it.
        let copy = self.sink.file.try_clone().map_err(|e| self.failed(e))?;
        nix::unistd::close(copy).map_err(|e| self.failed(e.into()))
    }

    /// Moves the older file to `NAME.old` and the new one to its place.
    fn put_in_place(&mut self) -> io::Result<()> {
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        if is_filled(&self.path) {
            let old = old_name(&self.path);
            // A second name and then one rename leaves no moment without a file at `path`; file
            // systems without hard links get the two renames.
            let _ = fs::remove_file(&old);
            if fs::hard_link(&self.path, &old).is_err() {
                fs::rename(&self.path, &old)?;
            }
        }
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> ProfileError {
        let remedy = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::WriteZero => {
                "free some space, or write elsewhere with -o FILE"
            }
            io::ErrorKind::QuotaExceeded => {
                "your disk quota is used up: free some space, or write elsewhere with -o FILE"
            }
            io::ErrorKind::FileTooLarge => {
                "raise the file size limit (ulimit -f), or write elsewhere with -o FILE"
            }
            _ => "write elsewhere with -o FILE",
        };
        ProfileError::Write {
            path: self.path.clone(),
            records: self.records,
            remedy,
            source,
        }
    }
}

/// What is to stand in a profile's place, written beside it; gone again where nothing came of it.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    temporary: PathBuf,
    bytes: u64,
}

impl Replacement {
    /// Writes `bytes` beside the profile at `path`, which takes its time on a slow disk; who may read this one may read them.
    ///
    /// # Errors
    /// The operating system's.
    pub fn write(path: &Path, mode: Permissions, bytes: &[u8]) -> io::Result<Replacement> {
        let (file, temporary) = temporary(path)?;
        mark_being_written(&file);
        let mut replacement = Replacement {
            file,
            temporary,
            bytes: bytes.len() as u64,
        };
        replacement.file.set_permissions(mode)?;
        replacement.file.write_all(bytes)?;
        Ok(replacement)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // Nothing is there under this name any more where it was put in place.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Drop for Writer {
    /// A profile without a record is no profile: what was only prepared is removed.
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Whether there is a file, and something in it: not the room that somebody has made for a profile, as mktemp(1) does.
fn is_filled(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.len() > 0)
}

/// Locks a profile (flock(2)) for as long as it is open for writing, in this process and those it forks. Some file systems have no locks.
fn mark_being_written(file: &File) {
    let _ = file.try_lock();
}

/// Whether somebody has done so with what is there.
fn is_being_written(file: &Path) -> bool {
    let filled = is_filled(file).then(|| File::open(file).ok()).flatten();
    filled.is_some_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Whether only others may move what is there: it is theirs, and its directory is one for all (inode(7), `S_ISVTX`).
fn is_held(file: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    let directory = file.parent().map(fs::metadata);
    let (Ok(of_file), Some(Ok(of_directory))) = (fs::symlink_metadata(file), directory) else {
        return false;
    };
    let user = nix::unistd::geteuid();
    let owners = [0, of_file.uid(), of_directory.uid()];
    of_directory.mode() & STICKY != 0 && !owners.contains(&user.as_raw())
}

/// Whether something else than a profile is there, as far as we may read it.
fn is_foreign(file: &Path) -> bool {
    if file.is_dir() {
        return true;
    }
    // Not one that is waited for, as a pipe.
    if !is_filled(file) {
        return false;
    }
    let mut first = [0; frame::MAGIC.len()];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut first));
    match read {
        Ok(()) => first != frame::MAGIC,
        Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
    }
}

/// The name an older profile at `path` is kept under.
#[must_use]
pub fn old_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    PathBuf::from(name)
}

/// A new, hidden file beside `path`. What has its name already is not touched: it may be a link that somebody laid there, or belong to a
/// process of our id in another container.
fn temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))?;
    let mut taken = None;
    for attempt in 0..100 {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.{attempt}", std::process::id()));
        let temporary = path.with_file_name(hidden);
        match File::create_new(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// A file that grows by whole pieces.
#[derive(Debug)]
struct Sink {
    file: File,
    /// Bytes that are whole.
    end: u64,
    /// Size at which the disk plays full; tests only.
    limit: Option<u64>,
}

impl Sink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = match self.limit {
            Some(limit) if self.end + bytes.len() as u64 > limit => {
                let room = (limit - self.end) as usize;
                self.file
                    .write_all(&bytes[..room])
                    .and(Err(io::Error::from(io::ErrorKind::StorageFull)))
            }
            _ => self.file.write_all(bytes),
        };
        match result {
            Ok(()) => self.end += bytes.len() as u64,
            Err(_) => {
                // Cut the piece off again. Where that fails too (a pipe), the torn piece is the
                // end of the file and readers stop before it.
                let _ = self.file.set_len(self.end);
                let _ = self.file.seek(SeekFrom::Start(self.end));
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::profile::types::{Footer, Header, Module};
    use std::os::unix::fs::PermissionsExt;

    fn header() -> Record {
        Record::Header(Header::example(&["true"]))
    }

    fn modules(path: &str) -> Record {
        Record::Modules(vec![Module {
            path: path.to_owned(),
            bias: 0,
            build_id: String::new(),
        }])
    }

    #[test]
    fn what_is_no_profile_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        // What a test beside this one forks may hold the lock on a file for a while.
        let named = |name: &str| (dir.path().join(name), old_name(&dir.path().join(name)));
        let profile = [&frame::MAGIC[..], b"..."].concat();
        for (name, text) in [
            ("one", "x"),
            ("two", "a text as long as a profile's first bytes"),
        ] {
            let (path, old) = named(name);
            // Kept, and then not for a profile's sake.
            fs::write(&path, text).unwrap();
            let mut w = Writer::create(&path).unwrap();
            w.append(&header()).unwrap();
            assert_eq!(fs::read_to_string(&old).unwrap(), text);
            let refused = Writer::create(&path).unwrap_err().to_string();
            assert!(
                refused.contains("is no profile") && refused.contains("-o FILE"),
                "{refused}"
            );
            assert_eq!(fs::read_to_string(&old).unwrap(), text);
        }
        // Nor is there any place for what is kept.
        let (path, old) = named("four");
        fs::write(&path, &profile).unwrap();
        fs::create_dir(&old).unwrap();
        assert!(Writer::create(&path).is_err() && old.is_dir());
        assert_eq!(fs::read(&path).unwrap(), profile);
        let (path, old) = named("three");
        // As mktemp(1) leaves it: there is nothing to be kept in the place of an older one.
        fs::write(&path, "").unwrap();
        fs::write(&old, &profile).unwrap();
        let mut w = Writer::create(&path).unwrap();
        w.append(&header()).unwrap();
        assert_eq!(fs::read(&old).unwrap(), profile);
    }

    #[test]
    fn an_older_file_is_kept_and_only_replaced_once_there_is_something_to_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.prof");
        let precious = [&frame::MAGIC[..], b"precious"].concat();
        fs::write(&path, &precious).unwrap();
        drop(Writer::create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), precious);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary left"
        );

        let mut w = Writer::create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), precious);
        w.append(&header()).unwrap();
        assert_eq!(fs::read(old_name(&path)).unwrap(), precious);
        assert_eq!(Profile::read(&path).unwrap().header.command, ["true"]);
        w.append(&Record::Footer(Footer::default())).unwrap();
        w.finish().unwrap();
        assert!(Profile::read(&path).unwrap().footer.is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [
            dir.path().to_owned(),
            dir.path().join("missing/p.prof"),
            PathBuf::from("/proc/p.prof"),
            PathBuf::from("/dev/full"),
        ] {
            let text = Writer::create(&bad).unwrap_err().to_string();
            assert!(text.contains(&bad.display().to_string()), "{text}");
            assert!(text.contains("-o FILE") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_full_disk_costs_one_record_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.prof");
        let mut w = Writer::create(&path).unwrap();
        w.append(&header()).unwrap();
        w.append(&modules("/bin/kept")).unwrap();
        w.sink.limit = Some(w.bytes() + 60);
        // Incompressible enough not to fit.
        let long: String = (0..500u32)
            .map(|i| char::from(33 + (i * i % 89) as u8))
            .collect();
        let text = w.append(&modules(&long)).unwrap_err().to_string();
        assert!(
            text.contains("free some space") && text.contains("(records: 2)"),
            "{text}"
        );
        let p = Profile::read(&path).unwrap();
        assert_eq!(p.modules.len(), 1);
        // What still fits is still taken, and the file is valid behind the failure.
        w.append(&modules("/bin/small")).unwrap();
        w.finish().unwrap();
        assert_eq!(Profile::read(&path).unwrap().modules[1].path, "/bin/small");
    }

    #[test]
    fn a_replacement_has_what_was_written_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.prof");
        let mut w = Writer::create(&path).unwrap();
        w.append(&header()).unwrap();
        let begun = fs::read(&path).unwrap();
        w.append(&modules("/bin/left/out")).unwrap();
        let end = w.bytes();
        let private = Permissions::from_mode(0o600);
        fs::set_permissions(&path, private.clone()).unwrap();

        // One that comes to nothing leaves nothing.
        let none = Replacement::write(&path, private.clone(), b"x").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        drop(none);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        let newer = Replacement::write(&path, private, &begun).unwrap();
        w.append(&modules("/bin/meanwhile")).unwrap();
        w.replace(newer, end).unwrap();
        w.append(&modules("/bin/later")).unwrap();
        w.finish().unwrap();
        let profile = Profile::read(&path).unwrap();
        let paths: Vec<&str> = profile.modules.iter().map(|m| &m.path[..]).collect();
        assert_eq!(paths, ["/bin/meanwhile", "/bin/later"]);
        assert_eq!(w.bytes(), fs::metadata(&path).unwrap().len());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_profile_behind_a_link_is_written_and_the_link_stays() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.prof");
        let link = dir.path().join("link.prof");
        fs::write(&real, frame::MAGIC).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut w = Writer::create(&link).unwrap();
        w.append(&header()).unwrap();
        w.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(Profile::read(&real).unwrap().header.command, ["true"]);
    }
}

//! `statcache export`: a profile for other tools.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::disk::Disk;
use super::run::DEFAULT_FILE;
use super::working::Working;
use super::{Exit, caches};
use crate::analysis::Analysis;
use crate::export::{Format, Options};

/// Raw options of `export`.
#[derive(Clone, Debug, Args)]
pub(super) struct ExportArgs {
    /// The profile, or the process id of a live one.
    #[arg(value_name = "FILE|PID", default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    format: Format,
    /// Cache sizes that misses are given at, of html the one to rank by first (default: this profile's host; of json and
    /// csv besides theirs).
    #[arg(long, value_name = "32K,1M,32M", value_delimiter = ',', value_parser = caches::parse, allow_negative_numbers = true)]
    cache: Option<Vec<u64>>,
    /// This process of the run alone: by its id, or by the name of its program (default: all of them).
    #[arg(long, value_name = "PID|NAME")]
    process: Option<String>,
    /// Write here; `-` is standard output.
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,
}

pub(super) fn execute(args: &ExportArgs) -> anyhow::Result<Exit> {
    let same = |a: &Path, b: &Path| {
        a.canonicalize()
            .is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
    };
    let place = super::find(&args.file)?;
    if same(&args.output, &place.path) {
        anyhow::bail!(
            "{} is the profile itself; choose another place with -o OUT",
            args.output.display()
        );
    }
    let profile = super::load(&place)?;
    // Opened before the work, so that a wrong place costs no waiting, and only for what can be read.
    let target = Target::open(&args.output)?;
    let working = Working::on("working out miss ratios".to_owned());
    let of = match &args.process {
        Some(wanted) => super::process(&profile, wanted, &args.file)?,
        None => &profile,
    };
    let analysis = Analysis::new(of)?;
    // Whole before it is put in its place: a failure leaves an older export as it was.
    let mut bytes = Vec::new();
    let options = Options {
        caches: args.cache.clone().map(caches::each_once),
        alone: args.process.is_some(),
        // All processes have where and when the first one ran.
        sources: &Disk { profile: &profile },
    };
    let exporter = args.format.exporter();
    exporter.export(&analysis, &options, &mut bytes)?;
    drop(working);
    target.write(&bytes)?;
    Ok(Exit::Success)
}

/// Where an export goes.
enum Target {
    Stdout,
    /// What is no file, as a device or a pipe, or lies where no other file can be made.
    Direct(File, PathBuf),
    /// A new file, to be put in the place of an older one only when it is whole.
    New(Pending),
}

/// A file that goes again unless it is put in its place.
struct Pending {
    file: File,
    here: PathBuf,
    place: PathBuf,
    placed: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.placed {
            // What cannot be removed is left.
            let _ = fs::remove_file(&self.here);
        }
    }
}

impl Pending {
    /// Beside `path`; `None` where that cannot be, or would not be the same as to write to it.
    fn beside(path: &Path) -> Option<Self> {
        let ours = nix::unistd::geteuid().as_raw();
        let place = match fs::metadata(path) {
            // A new file has no other names, and is ours.
            Ok(found) if found.is_file() && found.nlink() == 1 && found.uid() == ours => {
                path.canonicalize().ok()?
            }
            Ok(_) => return None,
            // A link to nowhere?
            Err(_) if fs::symlink_metadata(path).is_ok() => return None,
            Err(_) => path.to_owned(),
        };
        let mut name = place.file_name()?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let here = place.with_file_name(name);
        let file = File::create_new(&here).ok()?;
        let pending = Self {
            file,
            here,
            place,
            placed: false,
        };
        if let Ok(older) = fs::metadata(&pending.place) {
            // May it be written to at all?
            OpenOptions::new().write(true).open(&pending.place).ok()?;
            pending.file.set_permissions(older.permissions()).ok()?;
        }
        Some(pending)
    }
}

impl Target {
    fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        if let Some(pending) = Pending::beside(path) {
            return Ok(Self::New(pending));
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| {
                format!(
                    "cannot create {}; choose another place with -o OUT",
                    path.display()
                )
            })?;
        Ok(Self::Direct(file, path.to_owned()))
    }

    fn write(self, bytes: &[u8]) -> anyhow::Result<()> {
        let cannot = |path: &Path| {
            format!(
                "cannot write {}; free some space or choose another place with -o OUT",
                path.display()
            )
        };
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()?;
            }
            Self::Direct(mut file, path) => {
                let regular = file.metadata().is_ok_and(|m| m.is_file());
                let mut write = || -> io::Result<()> {
                    if regular {
                        file.set_len(0)?;
                    }
                    file.write_all(bytes)
                };
                write().with_context(|| cannot(&path))?;
            }
            Self::New(mut pending) => {
                let written = pending.file.write_all(bytes);
                let placed = written.and_then(|()| fs::rename(&pending.here, &pending.place));
                placed.with_context(|| cannot(&pending.place))?;
                pending.placed = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(of: &Path) -> Vec<String> {
        let entries = fs::read_dir(of).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_older_export_stays_until_the_new_one_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let [path, link] = ["out", "link"].map(|name| place.path().join(name));
        // Given up: nothing is left, of the new one either.
        drop(Target::open(&path).unwrap());
        assert!(names(place.path()).is_empty());
        Target::open(&path).unwrap().write(b"first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        drop(Target::open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        let target = Target::open(&link).unwrap();
        assert!(matches!(target, Target::New(_)));
        target.write(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (names(place.path()), mode),
            (vec!["link".into(), "out".into()], 0o640)
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // Under two names it is one file, and stays one; a device is none.
        fs::hard_link(&path, place.path().join("other")).unwrap();
        for direct in [path.as_path(), Path::new("/dev/null")] {
            let target = Target::open(direct).unwrap();
            assert!(matches!(target, Target::Direct(..)), "{direct:?}");
            target.write(b"n").unwrap();
        }
        assert_eq!(fs::read(place.path().join("other")).unwrap(), b"n");
    }
}

//! Finding the bytes: the object, its separate debug file and that one's shared part.
//!
//! Source: GDB manual, "Debugging Information in Separate Files" (build-id and debuglink paths);
//! DWARF 5 section 7.3.6 and the `dwz` manual for `.gnu_debugaltlink`; debuginfod-client-config(7) for what its clients have fetched.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::object_file::{self, Links};
use crate::profile::types::Module;

/// Where the bytes of objects come from.
pub trait Files: Sync {
    /// The whole file, or `None` where it cannot be had.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
    /// Bytes of an object file; 0 of any other, of which hardly anything is read, or where it is not known.
    fn size(&self, _path: &Path) -> u64 {
        0
    }
}

/// The files of this machine.
#[derive(Clone, Debug, Default)]
pub struct SystemFiles {
    /// Put before every path; `/proc/PID/root` for a process of another mount namespace.
    pub root: Option<PathBuf>,
}

impl Files for SystemFiles {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        if path == Path::new("[vdso]") {
            return own_vdso();
        }
        read_object(&self.place(path)?)
    }

    fn size(&self, path: &Path) -> u64 {
        let file = self.place(path).and_then(|at| open_object(&at));
        let found = file.and_then(|file| file.metadata().ok());
        found.map_or(0, |found| found.len())
    }
}

impl SystemFiles {
    fn place(&self, path: &Path) -> Option<PathBuf> {
        Some(match &self.root {
            Some(root) => root.join(path.strip_prefix("/").ok()?),
            None => path.to_owned(),
        })
    }
}

/// Opens an ordinary file. Programs map devices, too, some of which have no end and some of which do something when they are opened, and
/// by now a path may lead to somebody's pipe, which would keep us waiting.
#[must_use]
pub fn open_regular(path: &Path) -> Option<fs::File> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The bytes of an object file. Of others, which programs map as data and which may be of any size, only the first four are looked at.
#[must_use]
pub fn read_object(path: &Path) -> Option<Vec<u8>> {
    let file = open_object(path)?;
    let mut bytes = ELF.to_vec();
    let length = file.metadata().ok()?.len();
    // One that grows meanwhile is not waited for.
    file.take(length).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

const ELF: [u8; 4] = *b"\x7fELF";

/// An object file, behind its first four bytes.
fn open_object(path: &Path) -> Option<fs::File> {
    let mut file = open_regular(path)?;
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes).ok()?;
    (bytes == ELF).then_some(file)
}

/// The vdso has no file; every process of a kernel maps the same, so ours will do.
fn own_vdso() -> Option<Vec<u8>> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut file = fs::File::open("/proc/self/mem").ok()?;
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// What could be found of a module.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The object itself, unless it is gone or was replaced since the run.
    pub(super) object: Option<Vec<u8>>,
    /// Its separate debug file.
    pub(super) debug: Option<Vec<u8>>,
    /// The supplementary file of whichever of the two has the DWARF.
    pub(super) supplement: Option<Vec<u8>>,
}

/// Reads what there is of `module`. Files whose build id contradicts the profile's are not used:
/// names of another version are worse than none.
pub(super) fn load(files: &dyn Files, module: &Module) -> Loaded {
    let path = module
        .path
        .strip_suffix(" (deleted)")
        .unwrap_or(&module.path);
    let path = Path::new(path);
    let fits = |bytes: &[u8]| {
        object_file::build_id(bytes)
            .is_none_or(|id| module.build_id.is_empty() || id == module.build_id)
    };
    let is_debug_file = |bytes: &[u8], id: &str, links: &Links| match object_file::build_id(bytes) {
        Some(its) if !id.is_empty() => its == id,
        // By name alone it may be of any version (the GDB manual, "Separate Debug Files").
        _ => links.debug_crc == Some(crc32fast::hash(bytes)),
    };
    let object = files.read(path).filter(|b| fits(b));
    let links = object
        .as_deref()
        .map(object_file::links)
        .unwrap_or_default();
    let debug = if links.has_dwarf {
        None
    } else {
        let id = match module.build_id.as_str() {
            "" => &links.build_id,
            id => id,
        };
        debug_candidates(path, id, &links)
            .iter()
            .chain(&fetched(id))
            .filter_map(|p| files.read(p).map(|b| (p, b)))
            .find(|(_, bytes)| {
                is_debug_file(bytes, id, &links) && object_file::links(bytes).has_dwarf
            })
            .map(|(p, bytes)| (p.clone(), bytes))
    };
    let (with_dwarf_at, with_dwarf) = match (&debug, &object) {
        (Some((at, bytes)), _) => (at.as_path(), Some(bytes)),
        (None, object) => (path, object.as_ref()),
    };
    let supplement = with_dwarf.and_then(|bytes| {
        let links = object_file::links(bytes);
        supplement_candidates(with_dwarf_at, &links)
            .iter()
            .chain(&fetched(&links.supplement_id))
            .filter_map(|p| files.read(p))
            .find(|found| object_file::build_id(found).is_none_or(|id| id == links.supplement_id))
    });
    Loaded {
        object,
        debug: debug.map(|(_, bytes)| bytes),
        supplement,
    }
}

const DEBUG_ROOT: &str = "/usr/lib/debug";

fn by_build_id(id: &str) -> Option<PathBuf> {
    let (head, tail) = (id.get(..2)?, id.get(2..)?);
    (!tail.is_empty()).then(|| PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{head}/{tail}.debug")))
}

/// Where clients of debuginfod (`debuginfod-find`, gdb, perf) keep the debug file of a build id that they have fetched. Nothing is fetched here.
fn fetched(id: &str) -> Option<PathBuf> {
    let cache = cache_of_debuginfod(|name| std::env::var_os(name).map(PathBuf::from))?;
    fetched_to(&cache, id)
}

fn fetched_to(cache: &Path, id: &str) -> Option<PathBuf> {
    // It is a profile's, which may be anybody's.
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| cache.join(id).join("debuginfo"))
}

fn cache_of_debuginfod(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.as_os_str().is_empty());
    let home = set("HOME");
    let old = home.as_ref().map(|at| at.join(".debuginfod_client_cache"));
    set("DEBUGINFOD_CACHE_PATH")
        .or_else(|| old.filter(|at| at.is_dir()))
        .or_else(|| {
            let caches = set("XDG_CACHE_HOME").or_else(|| home.map(|at| at.join(".cache")));
            caches.map(|at| at.join("debuginfod_client"))
        })
}

fn debug_candidates(path: &Path, id: &str, links: &Links) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = by_build_id(id).into_iter().collect();
    if let (Some(name), Some(dir)) = (&links.debug_link, path.parent()) {
        all.push(dir.join(name));
        all.push(dir.join(".debug").join(name));
        all.push(under_debug_root(&dir.join(name)));
        // Merged-/usr systems map /lib where packages ship their debug file under /usr/lib.
        all.push(under_debug_root(
            &Path::new("/usr")
                .join(dir.strip_prefix("/").unwrap_or(dir))
                .join(name),
        ));
    }
    // A debug file may itself lie where the object is: never take the object for it.
    all.retain(|p| p != path);
    all
}

fn under_debug_root(path: &Path) -> PathBuf {
    Path::new(DEBUG_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

fn supplement_candidates(from: &Path, links: &Links) -> Vec<PathBuf> {
    let Some(name) = &links.supplement else {
        return Vec::new();
    };
    let mut all = vec![from.parent().unwrap_or(Path::new("/")).join(name)];
    // Relative names are relative to the real place of the debug file, whatever link led to it.
    if let Some(tail) = name.to_str().and_then(|n| n.rsplit_once(".dwz/")) {
        all.push(Path::new(DEBUG_ROOT).join(".dwz").join(tail.1));
    }
    all.extend(by_build_id(&links.supplement_id));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_debuggers_look() {
        let links = Links {
            debug_link: Some("x.debug".into()),
            ..Links::default()
        };
        let found = debug_candidates(Path::new("/lib/x.so"), "abcdef", &links);
        let expected = [
            "/usr/lib/debug/.build-id/ab/cdef.debug",
            "/lib/x.debug",
            "/lib/.debug/x.debug",
            "/usr/lib/debug/lib/x.debug",
            "/usr/lib/debug/usr/lib/x.debug",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(debug_candidates(Path::new("/x"), "a", &Links::default()).is_empty());
    }

    #[test]
    fn what_debuginfod_has_fetched_is_found() {
        let home = tempfile::tempdir().expect("a directory");
        let at = |set: &[(&str, PathBuf)]| {
            cache_of_debuginfod(|name| {
                let (_, value) = set.iter().find(|(known, _)| *known == name)?;
                Some(value.clone())
            })
        };
        let own = ("HOME", home.path().to_owned());
        let other = ("XDG_CACHE_HOME", PathBuf::from("/c"));
        let chosen = ("DEBUGINFOD_CACHE_PATH", PathBuf::from("/d"));
        assert_eq!(at(&[]), None);
        let usual = home.path().join(".cache/debuginfod_client");
        assert_eq!(at(std::slice::from_ref(&own)), Some(usual));
        let elsewhere = Some(PathBuf::from("/c/debuginfod_client"));
        assert_eq!(at(&[own.clone(), other.clone()]), elsewhere);
        let old = home.path().join(".debuginfod_client_cache");
        fs::create_dir(&old).expect("made");
        assert_eq!(at(&[own.clone(), other.clone()]), Some(old));
        assert_eq!(at(&[own, other, chosen]), Some(PathBuf::from("/d")));
        let file = fetched_to(Path::new("/d"), "ab12");
        assert_eq!(file, Some(PathBuf::from("/d/ab12/debuginfo")));
        assert_eq!(fetched_to(Path::new("/d"), "../x"), None);
        assert_eq!(fetched_to(Path::new("/d"), ""), None);
    }

    /// Programs map devices and data, too.
    #[test]
    fn nothing_but_objects_is_read() {
        let files = SystemFiles::default();
        assert_eq!(files.read(Path::new("/dev/zero")), None);
        let own = std::env::current_exe().expect("we have one");
        let bytes = files.read(&own).expect("an object");
        assert_eq!(bytes, fs::read(&own).expect("readable"));
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        fs::write(&data, [0; 100]).expect("room");
        assert_eq!(files.read(&data), None);
        assert!(open_regular(&data).is_some());
        assert!(open_regular(place.path()).is_none());
        let pipe = place.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert!(open_regular(&pipe).is_none());
    }

    #[test]
    fn the_vdso_is_read_from_ourselves() {
        let bytes = SystemFiles::default().read(Path::new("[vdso]"));
        match bytes {
            Some(b) => assert_eq!(&b[..4], b"\x7fELF"),
            None => println!("SKIP the_vdso_is_read_from_ourselves: no vdso here"),
        }
    }
}

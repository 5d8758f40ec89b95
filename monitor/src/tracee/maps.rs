//! The address space of a process, as `/proc/PID/maps` shows it (proc(5)).

use nix::unistd::Pid;
use procfs::FromBufRead;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps};
use rustc_hash::FxHashSet;
use std::ops::Range;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode; (0, 0, 0) when anonymous.
    pub file: FileId,
    /// What lies behind it.
    pub path: Backing,
    /// May be executed.
    pub exec: bool,
    /// May be written.
    pub write: bool,
    /// May be read.
    pub read: bool,
    /// Shared with other processes.
    pub shared: bool,
    /// Whether it is code, and the process may write to its file through another mapping, which shows here where it has no copy of its own.
    pub follows: bool,
}

/// What backs a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file, by the path the kernel gives.
    File(String),
    /// Anonymous memory.
    Anonymous,
    /// The break heap.
    Heap,
    /// The main thread's stack.
    Stack,
    /// The virtual dynamic shared object.
    Vdso,
    /// Anything else the kernel names.
    Other(String),
}

impl Backing {
    /// Whether it is shared memory of ours, or of an earlier monitor's; [`super::remote`] gives it its name.
    pub fn is_ours(&self) -> bool {
        matches!(self, Backing::File(path) | Backing::Other(path) if path.contains(NAME))
    }

    /// Whether it is our shim for the heap.
    pub fn is_heap_shim(&self) -> bool {
        let name = |path: &String| {
            let name = path.strip_prefix("/memfd:");
            name.is_some_and(|name| name.starts_with(statcache_abi::heap::IMAGE))
        };
        matches!(self, Backing::File(path) if name(path))
    }
}

impl Mapping {
    /// Whether its code is what the file says and cannot change under us: private, file-backed,
    /// executable and not writable, here or elsewhere in the process.
    pub fn is_stable_code(&self) -> bool {
        self.exec
            && !self.write
            && !self.shared
            && !self.follows
            && matches!(self.path, Backing::File(_) | Backing::Vdso)
    }

    /// Whether its code can be read, and may become other code at any moment: what a just-in-time compiler
    /// writes, and all else that is executable and not [stable](Mapping::is_stable_code).
    pub fn is_changing_code(&self) -> bool {
        self.exec && self.read && !self.is_stable_code()
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The name that shared memory of ours has among mappings and descriptors.
pub const NAME: &str = "/memfd:statcache";

/// [`Mapping::file`]: device, major and minor, and inode.
pub type FileId = (i32, i32, u64);

/// [`Mapping::file`] of memory without one.
const NO_FILE: FileId = (0, 0, 0);

/// All mappings of a process, ordered by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(pub Vec<Mapping>);

impl Maps {
    /// Reads them.
    ///
    /// # Errors
    /// When the process is gone or not ours to look at.
    pub fn read(pid: Pid) -> Result<Maps, procfs::ProcError> {
        let maps = MemoryMaps::from_buf_read(text(pid)?.as_bytes())?;
        let mut maps: Vec<Mapping> = maps.into_iter().map(convert).collect();
        let is_code = |m: &&Mapping| m.exec && !m.shared && m.file != NO_FILE;
        let code: FxHashSet<_> = maps.iter().filter(is_code).map(|m| m.file).collect();
        let written = |m: &&Mapping| m.shared && m.write && code.contains(&m.file);
        let written: FxHashSet<_> = maps.iter().filter(written).map(|m| m.file).collect();
        for mapping in maps.iter_mut().filter(|m| m.exec && !m.shared) {
            mapping.follows = written.contains(&mapping.file);
        }
        Ok(Maps(maps))
    }

    /// Where code lies that [may change](Mapping::is_changing_code), adjacent mappings as one, in order.
    pub fn changing_code(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for m in self.0.iter().filter(|m| m.is_changing_code()) {
            match ranges.last_mut() {
                Some(last) if last.end == m.start => last.end = m.end,
                _ => ranges.push(m.start..m.end),
            }
        }
        ranges
    }

    /// Whether some code lies at the same place in both.
    pub fn share_code(&self, other: &Maps) -> bool {
        let code = self.0.iter().filter(|m| m.is_stable_code());
        let mut files = code.filter(|m| matches!(m.path, Backing::File(_)));
        files.any(|m| {
            other
                .find(m.start)
                .is_some_and(|o| o.start == m.start && o.path == m.path)
        })
    }

    /// Where code lies whose accesses are not the program's: the kernel's vDSO, and our shim for the heap.
    pub fn uncounted(&self) -> Vec<Range<u64>> {
        let is = |m: &&Mapping| match &m.path {
            Backing::Vdso => true,
            path => m.exec && path.is_heap_shim(),
        };
        let found = self.0.iter().filter(is);
        found.map(|m| m.start..m.end).collect()
    }

    /// The mapping that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|m| m.start <= address);
        self.0[..after].last().filter(|m| m.contains(address))
    }

    /// Whether all of the range is mapped, and such.
    pub fn all(&self, range: &Range<u64>, is_such: impl Fn(&Mapping) -> bool) -> bool {
        let mut from = range.start;
        while from < range.end {
            match self.find(from) {
                Some(mapping) if is_such(mapping) => from = mapping.end,
                _ => return false,
            }
        }
        true
    }

    /// A free, aligned range of `length` bytes that starts as near as possible to `wish` and lies
    /// within `[low, high)`.
    pub fn hole(&self, wish: u64, length: u64, align: u64, low: u64, high: u64) -> Option<u64> {
        let mut best: Option<u64> = None;
        let mut free_from = low;
        let starts = self
            .0
            .iter()
            .map(|m| (m.start, m.end))
            .chain([(high, high)]);
        for (start, end) in starts {
            let first = free_from.next_multiple_of(align);
            let limit = start.min(high);
            if limit >= length && first <= limit - length {
                let last = (limit - length) / align * align;
                let candidate = (wish / align * align).clamp(first, last.max(first));
                if best.is_none_or(|b| b.abs_diff(wish) > candidate.abs_diff(wish)) {
                    best = Some(candidate);
                }
            }
            free_from = free_from.max(end);
            if free_from >= high {
                break;
            }
        }
        best
    }

    /// The address of a file's first byte as mapped around `mapping`: the lowest mapping of the
    /// same file that precedes it without another file in between.
    pub fn file_start(&self, mapping: &Mapping) -> u64 {
        let index = self.0.partition_point(|m| m.start < mapping.start);
        let mut start = mapping.start.saturating_sub(mapping.offset);
        for m in self.0[..index].iter().rev() {
            if m.file == mapping.file && m.path == mapping.path {
                start = m.start.saturating_sub(m.offset);
                if m.offset == 0 {
                    break;
                }
            } else if matches!(m.path, Backing::File(_)) {
                break;
            }
        }
        start
    }
}

/// What of `old` lies in none of `new`, which are in order and apart.
pub fn without(old: &Range<u64>, new: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut from = old.start;
    for range in new
        .iter()
        .filter(|r| r.end > old.start && r.start < old.end)
    {
        if range.start > from {
            left.push(from..range.start);
        }
        from = range.end;
    }
    if from < old.end {
        left.push(from..old.end);
    }
    left
}

/// `/proc/PID/maps` as text, with replacements in paths that are no UTF-8: for one such file the parser would give up all.
fn text(pid: Pid) -> std::io::Result<String> {
    const SHARED: &str = " /SYSV";
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let text = String::from_utf8_lossy(&text);
    if !text.contains(SHARED) {
        return Ok(text.into_owned());
    }
    let is_key = |rest: &str| {
        let key = rest.as_bytes().get(..8);
        key.is_some_and(|key| key.iter().all(u8::is_ascii_hexdigit))
    };
    // It takes any path that begins so for System V shared memory, and panics where there is no key.
    let lines = text.lines().map(|line| match line.split_once(SHARED) {
        Some((head, rest)) if !is_key(rest) => format!("{head} //SYSV{rest}\n"),
        _ => format!("{line}\n"),
    });
    Ok(lines.collect())
}

fn convert(map: MemoryMap) -> Mapping {
    let path = match map.pathname {
        MMapPath::Path(p) => Backing::File(p.to_string_lossy().into_owned()),
        MMapPath::Heap => Backing::Heap,
        MMapPath::Stack | MMapPath::TStack(_) => Backing::Stack,
        MMapPath::Vdso => Backing::Vdso,
        MMapPath::Anonymous => Backing::Anonymous,
        other => Backing::Other(format!("{other:?}")),
    };
    Mapping {
        start: map.address.0,
        end: map.address.1,
        offset: map.offset,
        file: (map.dev.0, map.dev.1, map.inode),
        path,
        exec: map.perms.contains(MMPermissions::EXECUTE),
        write: map.perms.contains(MMPermissions::WRITE),
        read: map.perms.contains(MMPermissions::READ),
        shared: map.perms.contains(MMPermissions::SHARED),
        follows: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_maps_hold_this_function() {
        let maps = Maps::read(Pid::this()).unwrap();
        let here = own_maps_hold_this_function as *const () as u64;
        let mapping = maps.find(here).unwrap();
        assert!(mapping.is_stable_code());
        assert!(maps.find(8).is_none());
    }

    #[test]
    fn what_is_left_of_a_range() {
        let left = |new: &[Range<u64>]| -> Vec<(u64, u64)> {
            let parts = without(&(10..50), new);
            parts.iter().map(|r| (r.start, r.end)).collect()
        };
        assert_eq!(left(&[]), [(10, 50)]);
        assert_eq!(left(&[0..10, 50..60]), [(10, 50)]);
        assert_eq!(left(&[0..20, 30..40, 45..99]), [(20, 30), (40, 45)]);
        assert_eq!(left(&[0..30, 30..60]), []);
    }

    #[test]
    fn hole_is_free_aligned_and_near() {
        let maps = Maps::read(Pid::this()).unwrap();
        let here = own_maps_hold_this_function as *const () as u64;
        let hole = maps.hole(here, 1 << 26, 1 << 16, 1 << 16, 1 << 47).unwrap();
        assert_eq!(hole % (1 << 16), 0);
        assert!(
            maps.0
                .iter()
                .all(|m| m.end <= hole || m.start >= hole + (1 << 26))
        );
        assert!(
            hole.abs_diff(here) < 1 << 30,
            "no hole within a GiB of a PIE is unheard of"
        );
    }
}

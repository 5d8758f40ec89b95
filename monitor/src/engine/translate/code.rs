//! The target's code as the translator reads it: what may be executed, what of it may change, and what has.

use super::sequence;
use super::trace::Code;
use crate::arch::AddressExpr;
use crate::tracee::maps::{self, Backing, FileId, Mapping, Maps};
use crate::tracee::{Result, TraceError, procinfo};
use iced_x86::Instruction;
use nix::unistd::Pid;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// After so long it is looked whether somebody else has changed code, and after so many times as long as that takes.
const OLD: Duration = Duration::from_millis(200);
const TIMES_AS_LONG: u32 = 50;

type Pages = FxHashMap<u64, Option<Box<[u8; PAGE as usize]>>>;

/// The target's code: what is private, file-backed, executable, not writable and has never been written is read
/// once, all else that may be executed and read is read anew for each fragment, which then watches it
/// (`fragment/changing.rs`).
#[derive(Debug)]
pub struct TargetCode {
    pid: Pid,
    memory: File,
    /// `/proc/PID/pagemap`, where that may be read.
    pagemap: Option<File>,
    maps: Maps,
    uncounted: Vec<Range<u64>>,
    pages: Pages,
    /// Code that may change, pages of a file's code that were written (they may be again), and all such pages as they
    /// were a moment ago.
    changing: Vec<Range<u64>>,
    written: FxHashSet<u64>,
    changing_pages: Pages,
    /// Where there was such code, and is none now.
    lost: Vec<Range<u64>>,
    /// Instruction bytes that straddle two pages.
    straddling: [u8; 16],
    stale: bool,
    /// Displacement from fs of the thread's `rseq_cs` word.
    rseq_from_fs: Option<i64>,
    /// First addresses of restartable sequences, as far as met.
    sequences: FxHashSet<u64>,
    /// Whether the program has run where we did not see it, and when the files of code that was read were last changed, as far as that is known.
    unseen: bool,
    /// When it was last looked whether somebody else has changed code, and what that took.
    looked: (Instant, Duration),
    changes: FxHashMap<FileId, Option<Change>>,
    /// Whether code was mapped or written over other code.
    replaced: bool,
    /// See [`local_devices`].
    local: FxHashSet<(i32, i32)>,
}

/// Time of the last change of a file's content or status, and its length.
type Change = (i64, i64, u64);

impl TargetCode {
    /// Opens the code of a process.
    ///
    /// # Errors
    /// When the process is gone or may not be read.
    pub fn open(pid: Pid) -> Result<TargetCode> {
        let memory = procinfo::memory(pid, false).map_err(|source| match source.kind() {
            // Source: ptrace(2), access mode checking: a program that may be executed but not read is not dumpable.
            ErrorKind::PermissionDenied => TraceError::Unsuitable {
                tid: pid,
                reason: "its memory may not be read, as a rule because its executable may not be (make that readable, or run as root)".into(),
            },
            _ => TraceError::Os {
                operation: "open memory",
                tid: pid,
                source,
            },
        })?;
        let mut code = TargetCode {
            pid,
            memory,
            pagemap: File::open(format!("/proc/{pid}/pagemap")).ok(),
            maps: Maps::default(),
            uncounted: Vec::new(),
            pages: Pages::default(),
            changing: Vec::new(),
            written: FxHashSet::default(),
            changing_pages: Pages::default(),
            lost: Vec::new(),
            straddling: [0; 16],
            stale: true,
            rseq_from_fs: None,
            sequences: FxHashSet::default(),
            unseen: true,
            looked: (Instant::now(), Duration::ZERO),
            changes: FxHashMap::default(),
            replaced: false,
            local: local_devices(),
        };
        code.refresh()?;
        Ok(code)
    }

    /// The mappings as last read.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Says where the thread's `rseq_cs` word is, seen from its fs base: stores to it are found in
    /// code that is translated from now on.
    pub fn set_rseq(&mut self, from_fs: Option<i64>) {
        self.rseq_from_fs = from_fs;
    }

    /// Whether the next [refresh](Self::refresh) reads the mappings.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Says that the mappings have changed: they are read again before they are needed.
    pub fn set_stale(&mut self) {
        self.stale = true;
    }

    /// Says that the program has run where what it did was not seen: that mappings and files may have changed.
    pub fn set_unseen(&mut self) {
        (self.stale, self.unseen) = (true, true);
    }

    /// Says that somebody else may have changed code meanwhile, where it is long since that was looked at: what another process writes to a file, or to the
    /// program's memory, nobody tells.
    pub fn set_unseen_if_old(&mut self) {
        let (at, took) = self.looked;
        if at.elapsed() >= OLD.max(TIMES_AS_LONG * took) {
            self.set_unseen();
        }
    }

    /// Says that something was mapped or written over code: the same pages of the same file may hold something else by now.
    pub fn set_replaced(&mut self) {
        (self.stale, self.replaced) = (true, true);
    }

    /// Whether any byte of the range is executable code that may have been translated.
    pub fn holds_code(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        self.maps
            .0
            .iter()
            .any(|m| m.exec && m.start < end && start < m.end)
    }

    /// Whether any byte of the range is code that was taken to be a file's own.
    pub fn holds_stable_code(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let mut stable = self.maps.0.iter().filter(|m| m.is_stable_code());
        stable.any(|m| m.start < end && start < m.end)
    }

    /// Where code that may change was found before and is none now, since the last call.
    pub fn take_lost(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.lost)
    }

    /// To be called before anything is translated, with all threads at rest: reads the mappings again if they are
    /// stale. True when stable code that was there is gone or has changed, so that nothing translated may be kept.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn refresh(&mut self) -> Result<bool> {
        self.changing_pages.clear();
        if !std::mem::take(&mut self.stale) {
            return Ok(false);
        }
        let begun = Instant::now();
        let looks = self.unseen;
        let maps = Maps::read(self.pid).map_err(|e| TraceError::Unsuitable {
            tid: self.pid,
            reason: format!("its memory map cannot be read: {e}"),
        })?;
        /// Start, end, offset in the file, the file.
        type Placed = (u64, u64, u64, FileId);
        let code = |maps: &Maps| -> Vec<Placed> {
            let stable = maps.0.iter().filter(|m| m.is_stable_code());
            stable.map(|m| (m.start, m.end, m.offset, m.file)).collect()
        };
        let now = code(&maps);
        let moved = code(&self.maps).iter().any(|old| !now.contains(old));
        let rewritten = std::mem::take(&mut self.unseen) && self.is_any_file_changed(&maps);
        let replaced = std::mem::take(&mut self.replaced);
        let changed = moved || rewritten || replaced || self.is_any_written();
        if looks {
            self.looked = (Instant::now(), begun.elapsed());
        }
        self.uncounted = maps.uncounted();
        let changing = maps.changing_code();
        for old in &self.changing {
            self.lost.extend(maps::without(old, &changing));
        }
        self.changing = changing;
        self.maps = maps;
        if changed {
            self.pages.clear();
            self.written.clear();
        } else {
            self.pages.retain(|_, page| page.is_some());
        }
        Ok(changed)
    }

    /// Whether that descriptor of the thread is of a file that code is mapped from, or of memory (proc(5), `/proc/pid/mem`). By its number (since Linux
    /// 5.14) or name: to ask for more may mean to ask a process that is stopped (fuse(4)). A file of another device that has the same number costs time.
    pub fn is_of(&self, tid: Pid, descriptor: u64) -> bool {
        let descriptor = descriptor as i32;
        let Ok(name) = std::fs::read_link(format!("/proc/{tid}/fd/{descriptor}")) else {
            return false;
        };
        // No pipe, socket or the like.
        if !name.is_absolute() {
            return false;
        }
        let number = procinfo::inode(tid, descriptor);
        let is_of = |m: &Mapping| match &m.path {
            Backing::File(path) => Some(m.file.2) == number || Path::new(path) == name,
            _ => false,
        };
        let mut stable = self.maps.0.iter().filter(|m| m.is_stable_code());
        stable.any(is_of) || name.ends_with("mem")
    }

    /// Whether any of the range shows a file, through a shared mapping, that code is privately mapped from.
    pub fn shows_code(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let stable = || self.maps.0.iter().filter(|m| m.is_stable_code());
        let shared = self.maps.0.iter().filter(|m| m.shared);
        let mut here = shared.filter(|m| m.start < end && start < m.end);
        here.any(|m| stable().any(|code| code.file == m.file))
    }

    /// Notes the restartable sequence whose description lies at `value`, if one does, and that code at `ip` leads to. It lies in the data of
    /// the file whose code that is; other memory is not looked at.
    pub fn note_description(&mut self, value: u64, ip: u64) {
        const REACH: u64 = 1 << 31;
        let mut words = [0; sequence::BYTES];
        let is_data = |m: &Mapping| !m.shared && matches!(m.path, Backing::File(_));
        if sequence::may_lie_at(value)
            && value.abs_diff(ip) < REACH
            && self.maps.find(value).is_some_and(is_data)
            && self.memory.read_exact_at(&mut words, value).is_ok()
            && let Some(start) = sequence::begins(&words, ip)
        {
            self.sequences.insert(start);
        }
    }

    /// Whether a file of code has been changed since the last call: mapped privately it still shows what is written to it, and a library
    /// that is loaded again may have the number of the one before.
    fn is_any_file_changed(&mut self, maps: &Maps) -> bool {
        let mut changed = false;
        let mut asked = FxHashSet::default();
        for mapping in maps.0.iter().filter(|m| m.is_stable_code()) {
            if let Some(before) = self.changes.get_mut(&mapping.file)
                && asked.insert(mapping.file)
            {
                let now = last_change(self.pid, mapping, &self.local);
                changed |= before.is_some() && now.is_some() && *before != now;
                *before = now;
            }
        }
        changed
    }

    /// Whether a page that was read as a file's own, never to change, has been written since.
    fn is_any_written(&self) -> bool {
        let read = self.pages.iter().filter(|(_, page)| page.is_some());
        let mut numbers: Vec<u64> = read.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        let near = |a: &u64, b: &u64| b - a < 64;
        numbers.chunk_by(near).any(|pages| {
            let (first, last) = (pages[0], pages[pages.len() - 1]);
            let entries = self.page_entries(first, (last - first + 1) as usize);
            let entry = |number: &u64| entries.get((number - first) as usize);
            pages
                .iter()
                .any(|number| entry(number).is_some_and(is_written))
        })
    }

    /// Words of `/proc/PID/pagemap` for `count` pages; none where they cannot be read.
    fn page_entries(&self, first: u64, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; 8 * count];
        let file = self.pagemap.as_ref();
        if file.is_none_or(|file| file.read_exact_at(&mut bytes, 8 * first).is_err()) {
            return Vec::new();
        }
        let words = bytes.chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect()
    }

    /// Whether the page's code may change: a compiler's, or a file's that has been written (it may be again).
    fn page_changes(&mut self, number: u64) -> bool {
        let address = number * PAGE;
        if is_in(&self.changing, address) || self.written.contains(&number) {
            return true;
        }
        if self.pages.contains_key(&number) {
            return false;
        }
        let stable = self.maps.find(address).is_some_and(Mapping::is_stable_code);
        let written = stable && self.page_entries(number, 1).iter().any(is_written);
        if written {
            self.written.insert(number);
        }
        written
    }

    fn page(&mut self, number: u64) -> Option<&[u8; PAGE as usize]> {
        let address = number * PAGE;
        let changes = self.page_changes(number);
        let (memory, maps) = (&self.memory, &self.maps);
        if !changes
            && !self.pages.contains_key(&number)
            && let Some(mapping) = maps.find(address).filter(|m| m.is_stable_code())
        {
            let change = self.changes.entry(mapping.file);
            change.or_insert_with(|| last_change(self.pid, mapping, &self.local));
        }
        let pages = match changes {
            true => &mut self.changing_pages,
            false => &mut self.pages,
        };
        let page = pages.entry(number).or_insert_with(|| {
            let code = |m: &Mapping| m.is_stable_code() || m.is_changing_code();
            let mut page = Box::new([0; PAGE as usize]);
            let read = maps.find(address).is_some_and(code)
                && memory.read_exact_at(&mut page[..], address).is_ok();
            read.then_some(page)
        });
        page.as_deref()
    }
}

/// File systems whose files can be asked about without waiting for anybody who may be stopped.
const LOCAL: [&str; 8] = [
    "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs",
];

/// Devices of such (proc(5), `/proc/pid/mountinfo`).
fn local_devices() -> FxHashSet<(i32, i32)> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts);
    let device = |line: &str| {
        let (mount, system) = line.split_once(" - ")?;
        let kind = system.split(' ').next()?;
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        LOCAL.contains(&kind).then_some(device)
    };
    mounts.lines().filter_map(device).collect()
}

/// When the file of a mapping was last changed; `None` where it cannot be found, as one that was removed by those who may not look behind
/// mappings (proc(5), `/proc/pid/map_files`), or may have to be waited for.
fn last_change(pid: Pid, mapping: &Mapping, local: &FxHashSet<(i32, i32)>) -> Option<Change> {
    let Backing::File(path) = &mapping.path else {
        return None;
    };
    let ask = |name: String| {
        let wanted = StatxFlags::CTIME | StatxFlags::SIZE | StatxFlags::INO;
        rustix::fs::statx(rustix::fs::CWD, name, AtFlags::STATX_DONT_SYNC, wanted).ok()
    };
    let mapped = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    let (major, minor, inode) = mapping.file;
    let found = ask(mapped).or_else(|| {
        let named = local.contains(&(major, minor));
        let named = named.then(|| ask(format!("/proc/{pid}/root{path}")));
        named.flatten().filter(|found| found.stx_ino == inode)
    })?;
    Some((
        found.stx_ctime.tv_sec,
        i64::from(found.stx_ctime.tv_nsec),
        found.stx_size,
    ))
}

/// Whether a page is the process's own copy of a file's, made when it was written (linux
/// Documentation/admin-guide/mm/pagemap.rst: bit 63 present, bit 62 swapped, bit 61 a file's page).
fn is_written(entry: &u64) -> bool {
    const FILE: u64 = 1 << 61;
    const THERE: u64 = 1 << 63 | 1 << 62;
    entry & FILE == 0 && entry & THERE != 0
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    let after = ranges.partition_point(|r| r.start <= address);
    ranges[..after].last().is_some_and(|r| address < r.end)
}

impl Code for TargetCode {
    fn bytes(&mut self, ip: u64) -> &[u8] {
        let (number, offset) = (ip / PAGE, (ip % PAGE) as usize);
        let left = PAGE as usize - offset;
        if left < 15 {
            let mut both = [0; 16];
            let mut length = 0;
            if let Some(page) = self.page(number) {
                both[..left].copy_from_slice(&page[offset..]);
                length = left;
                if let Some(next) = self.page(number + 1) {
                    both[left..15].copy_from_slice(&next[..15 - left]);
                    length = 15;
                }
            }
            self.straddling = both;
            return &self.straddling[..length];
        }
        self.page(number)
            .map_or(&[], |page| &page[offset..offset + 15])
    }

    fn changes(&mut self, ip: u64) -> bool {
        // The longest instruction has 15 bytes.
        let (first, last) = (ip / PAGE, (ip + 14) / PAGE);
        self.page_changes(first) || last != first && self.page_changes(last)
    }

    fn counted(&self, ip: u64) -> bool {
        !self.uncounted.iter().any(|code| code.contains(&ip))
    }

    fn note_sequence(&mut self, instruction: &Instruction) {
        if let Some(value) = sequence::named(instruction) {
            self.note_description(value, instruction.ip());
        }
    }

    fn begins_sequence(&self, address: &AddressExpr, next: u64) -> bool {
        // However the word is addressed: librseq has its displacement in a register, others a pointer to it.
        let known = self.sequences.contains(&next);
        known
            || address.fs
                && address.base.is_none()
                && address.index.is_none()
                && Some(address.disp) == self.rseq_from_fs
    }
}

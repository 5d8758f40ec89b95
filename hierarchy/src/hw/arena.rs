//! Buffers and the pointer chains written into them.
//!
//! Memory is reserved, not committed: only pages that a chain visits exist.
//! Unsafe invariant: `base..base+bytes` is one private mapping, readable and writable, until drop.

use crate::measure::MeasureError;
use std::fs;
use std::path::Path;
use std::ptr;

/// A private mapping that holds pointer chains.
pub struct Arena {
    base: *mut u8,
    bytes: u64,
}

/// The page size the kernel reports, in bytes.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf reads no memory of ours.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(n).unwrap_or(4096)
}

/// How much a buffer may take: a quarter of what is available, of the cgroup's limit and of the
/// address-space limit, at most 1 GiB. The quarter is a choice: others live here too.
pub fn memory_limit() -> u64 {
    let mut limit = 4u64 << 30;
    if let Ok(text) = fs::read_to_string("/proc/meminfo") {
        let kib = text.lines().find_map(|l| {
            l.strip_prefix("MemAvailable:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        limit = limit.min(kib.map_or(limit, |k| k * 1024));
    }
    for file in [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ] {
        if let Some(n) = fs::read_to_string(file)
            .ok()
            .and_then(|t| t.trim().parse::<u64>().ok())
        {
            limit = limit.min(n);
        }
    }
    if let Some(n) = own_cgroup_limit() {
        limit = limit.min(n);
    }
    let mut rl = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: rl is a valid rlimit to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut rl) } == 0
        && rl.rlim_cur != libc::RLIM_INFINITY
    {
        limit = limit.min(rl.rlim_cur);
    }
    (limit / 4).clamp(1 << 20, 1 << 30) & !0xf_ffff
}

/// The least limit of the process's own cgroup and of those that it is in, where version 2 is mounted at the usual place.
fn own_cgroup_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let limit = |group: &Path| -> Option<u64> {
        let file = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    Path::new(path).ancestors().filter_map(limit).min()
}

impl Arena {
    /// Reserves `bytes`, with huge pages asked for or declined.
    ///
    /// # Errors
    /// [`MeasureError::System`] when the kernel refuses the mapping.
    pub fn map(bytes: u64, huge: bool) -> Result<Self, MeasureError> {
        const ALIGN: u64 = 2 << 20;
        let len = (bytes + ALIGN) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private anonymous mapping overlaps nothing.
        let raw = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return Err(MeasureError::System {
                operation: "mmap",
                cause: std::io::Error::last_os_error().to_string(),
            });
        }
        let lead = (ALIGN - raw as u64 % ALIGN) % ALIGN;
        // SAFETY: lead < ALIGN, and the mapping is ALIGN longer than what is used from there on.
        let base = unsafe { raw.cast::<u8>().add(lead as usize) };
        // SAFETY: unmaps only the unused head and tail of our own mapping; advice on the rest.
        unsafe {
            if lead > 0 {
                libc::munmap(raw, lead as usize);
            }
            let tail = len - lead as usize - bytes as usize;
            if tail > 0 {
                libc::munmap(base.add(bytes as usize).cast(), tail);
            }
            let advice = if huge {
                libc::MADV_HUGEPAGE
            } else {
                libc::MADV_NOHUGEPAGE
            };
            libc::madvise(base.cast(), bytes as usize, advice);
        }
        Ok(Arena { base, bytes })
    }

    /// The addresses of some offsets.
    ///
    /// # Errors
    /// [`MeasureError::Memory`] when one lies outside.
    pub fn pointers(&self, offsets: &[u64]) -> Result<Vec<*mut u8>, MeasureError> {
        offsets.iter().map(|&o| self.at(o)).collect()
    }

    fn at(&self, offset: u64) -> Result<*mut u8, MeasureError> {
        if offset + 8 > self.bytes {
            return Err(MeasureError::Memory {
                needed: offset + 8,
                allowed: self.bytes,
            });
        }
        // SAFETY: offset + 8 <= bytes, checked above.
        Ok(unsafe { self.base.add(offset as usize) })
    }

    fn put(&mut self, at: u64, to: u64) -> Result<(), MeasureError> {
        let (slot, target) = (self.at(at)?, self.at(to)?);
        // SAFETY: slot has 8 writable bytes; unaligned writes are allowed by write_unaligned.
        unsafe { slot.cast::<*mut u8>().write_unaligned(target) };
        Ok(())
    }

    /// Links the offsets into a circle and returns its first element.
    ///
    /// # Errors
    /// [`MeasureError::Memory`] when an offset lies outside.
    pub fn link_circle(&mut self, ring: &[u64]) -> Result<*mut u8, MeasureError> {
        for (i, &at) in ring.iter().enumerate() {
            self.put(at, ring[(i + 1) % ring.len()])?;
        }
        self.at(ring[0])
    }

    /// Links `prep` followed by `timed` and returns the head; the last points back to it.
    ///
    /// # Errors
    /// [`MeasureError::Memory`] when an offset lies outside.
    pub fn link_line(&mut self, prep: &[u64], timed: &[u64]) -> Result<*mut u8, MeasureError> {
        let head = prep.first().or(timed.first()).copied().unwrap_or(0);
        let mut all = prep.iter().chain(timed).copied().peekable();
        while let Some(at) = all.next() {
            self.put(at, all.peek().copied().unwrap_or(head))?;
        }
        self.at(head)
    }

    /// Deals the offsets to `chains` circles and returns their heads.
    ///
    /// # Errors
    /// [`MeasureError::Memory`] when an offset lies outside.
    pub fn link_parallel(
        &mut self,
        lines: &[u64],
        chains: usize,
    ) -> Result<Vec<*mut u8>, MeasureError> {
        let steps = lines.len() / chains;
        lines
            .chunks_exact(steps)
            .take(chains)
            .map(|c| self.link_circle(c))
            .collect()
    }

    /// Kilobytes of this buffer that the kernel holds in huge pages (`AnonHugePages` of smaps).
    pub fn huge_kib(&self) -> Option<u64> {
        let text = fs::read_to_string("/proc/self/smaps").ok()?;
        let (start, end) = (self.base as u64, self.base as u64 + self.bytes);
        let mut inside = false;
        let mut total = 0;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            if let Some((a, b)) = range
                && let (Ok(a), Ok(b)) = (u64::from_str_radix(a, 16), u64::from_str_radix(b, 16))
            {
                inside = a < end && b > start;
            } else if inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
                total += rest
                    .split_whitespace()
                    .next()
                    .and_then(|n| n.parse::<u64>().ok())
                    .unwrap_or(0);
            }
        }
        Some(total)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: base and bytes are the mapping that map() left; nothing points into it after the owner.
        unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
    }
}

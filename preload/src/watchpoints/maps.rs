//! The program's protection of a page, from `/proc/self/maps`, and whether it is fit to be watched.
//!
//! Unsafe invariant: of the linker's symbols only the addresses are used; `mprotect` is given the
//! protection that the page has.

use statcache_abi::PAGE_BYTES;

use crate::watchpoints::state::block_raw;
use crate::watchpoints::sys::{self, File, nr};

const EXEC: u32 = 4;

unsafe extern "C" {
    #[link_name = "__ehdr_start"]
    static IMAGE_BEGIN: u8;
    #[link_name = "_end"]
    static IMAGE_END: u8;
}

/// The protection of `page`; `None` where it is not mapped, or is code, the kernel's, or the shim's own, or the end at which a stack
/// grows: the kernel grows it with the protection of its lowest page.
pub fn protection(page: u64) -> Option<u32> {
    let end = page + PAGE_BYTES;
    let image = (&raw const IMAGE_BEGIN as u64, &raw const IMAGE_END as u64);
    let block = block_raw() as u64;
    let shared = (block, block + statcache_abi::BLOCK_BYTES as u64);
    for (low, high) in [image, shared] {
        if page < high && low < end {
            return None;
        }
    }
    let line = find(|line| line.low <= page && page < line.high)?;
    let protection = line.fit()?;
    (line.low != page || !grows_down(page, protection)).then_some(protection)
}

/// Whether the process has an `io_uring`, by which the kernel reads and writes memory when nobody is in a system call.
pub fn has_ring() -> bool {
    find(|line| line.ring == RING.len()).is_some()
}

/// How `/proc/self/maps` names the memory of one.
const RING: &[u8] = b"anon_inode:[io_uring]";

/// The first mapping that `wanted` holds for.
fn find(wanted: impl Fn(&Line) -> bool) -> Option<Line> {
    let file = File::open(b"/proc/self/maps\0", 0)?;
    let mut buffer = [0u8; 1024];
    let mut line = Line::default();
    loop {
        let got = file.fill(nr::READ, &mut buffer);
        if got == 0 {
            return None;
        }
        for byte in buffer.get(..got)? {
            line.take(*byte);
            if *byte == b'\n' {
                let done = core::mem::take(&mut line);
                if wanted(&done) {
                    return Some(done);
                }
            }
        }
    }
}

/// Whether the mapping that begins with `page` grows downwards: `mprotect` takes this flag for no other (mprotect(2)), and the protection
/// stays what it is.
fn grows_down(page: u64, protection: u32) -> bool {
    const PROT_GROWSDOWN: u32 = 0x0100_0000;
    // SAFETY: the protection that the page has.
    unsafe { sys::mprotect(page, PAGE_BYTES, protection | PROT_GROWSDOWN) >= 0 }
}

/// A line of it, read byte by byte: `low-high rwxp offset device inode path`.
#[derive(Default)]
struct Line {
    field: u32,
    low: u64,
    high: u64,
    protection: u32,
    bracket: bool,
    vdata: bool,
    previous: u8,
    /// Bytes of [`RING`] that the end of what was read agrees with.
    ring: usize,
}

impl Line {
    fn take(&mut self, byte: u8) {
        let digit = match byte {
            b'0'..=b'9' => Some(u64::from(byte - b'0')),
            b'a'..=b'f' => Some(u64::from(byte - b'a') + 10),
            _ => None,
        };
        match (self.field, byte, digit) {
            (0, b'-', _) => self.field = 1,
            (0, _, Some(digit)) => self.low = self.low << 4 | digit,
            (1, b' ', _) => self.field = 2,
            (1, _, Some(digit)) => self.high = self.high << 4 | digit,
            (2, b' ', _) => self.field = 3,
            (2, b'r', _) => self.protection |= 1,
            (2, b'w', _) => self.protection |= 2,
            (2, b'x', _) => self.protection |= EXEC,
            // Whatever a path holds is no name of the kernel's.
            (3, b'/', _) => self.field = 4,
            (3, b'[', _) => self.bracket = true,
            // [vvar], [vdso], [vsyscall]
            (3, b'v', _) if self.previous == b'[' => self.vdata = true,
            _ => {}
        }
        self.previous = byte;
        if byte != b'\n' {
            self.ring = match RING.get(self.ring) == Some(&byte) {
                true => self.ring + 1,
                false => 0,
            };
        }
    }

    fn fit(&self) -> Option<u32> {
        let special = self.bracket && self.vdata;
        (self.protection & EXEC == 0 && self.protection & 1 != 0 && !special)
            .then_some(self.protection)
    }
}

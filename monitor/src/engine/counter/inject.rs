//! The shim in a process that was started without it: block and image mapped there, as a loader would, by system calls that one of
//! its threads makes for us.
//!
//! Both lie in one stretch, the block first, whose file has the name of all that is ours in a process: `session::leave`
//! finds it by that, and by [`Block::span`](statcache_abi::Block::span) how long it is. Nothing of it runs before a thread is put
//! there (`live::ring`), so a monitor that dies on the way leaves memory that nobody uses.
//!
//! Source: System V ABI, "Program Loading" and "Dynamic Linking"; mmap(2), madvise(2).

use super::shim::{IMAGE, Shim};
use crate::tracee::maps::Maps;
use crate::tracee::remote::{self, CallSite, Caller};
use crate::tracee::{Result, Stopped, TraceError, hub};
use nix::unistd::Pid;
use object::elf::{FileHeader64, PF_W, PT_LOAD, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_RELATIVE};
use object::read::elf::{ElfFile, ProgramHeader};
use object::{
    Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget,
};
use statcache_abi::{BLOCK_BYTES, PAGE_BYTES, PLACES, Places};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// What the memory is called in mappings of the process; [`remote`] gives it.
const NAME: &str = "memfd:statcache";
/// Places to lie at: multiples of this, well away from where programs and libraries live.
const APART: u64 = 1 << 32;
const MADV_WIPEONFORK: u64 = 18;

/// The shim as it is to lie in memory.
struct Image {
    /// Its first bytes, which are not written to: whole pages.
    text: Vec<u8>,
    /// The others as far as they are not zero.
    data: Vec<u8>,
    /// All bytes: whole pages.
    bytes: u64,
    /// Words of `data`, by their offset in the image, that are addresses: by the offset of what they point to.
    pointers: Vec<(u64, u64)>,
    /// Offset of its [`Places`].
    places: u64,
}

impl Image {
    /// [`IMAGE`] in its parts; `None` where it has any that a loader must know more of.
    fn read() -> Option<Image> {
        let elf = ElfFile::<FileHeader64<Endianness>>::parse(IMAGE).ok()?;
        let endian = elf.endian();
        let mut image = Image {
            text: Vec::new(),
            data: Vec::new(),
            bytes: 0,
            pointers: Vec::new(),
            places: 0,
        };
        let mut written = false;
        for header in elf.elf_program_headers() {
            if header.p_type(endian) != PT_LOAD {
                continue;
            }
            let at = header.p_vaddr(endian);
            let bytes = header.data(endian, IMAGE).ok()?;
            if header.p_flags(endian) & PF_W == 0 {
                if written {
                    return None;
                }
                image.text.resize(at as usize, 0);
                image.text.extend(bytes);
            } else {
                if !written {
                    let pages = image.text.len().next_multiple_of(PAGE_BYTES as usize);
                    image.text.resize(pages, 0);
                }
                written = true;
                let offset = (at as usize).checked_sub(image.text.len())?;
                image.data.resize(offset, 0);
                image.data.extend(bytes);
            }
            let end = at + header.p_memsz(endian);
            image.bytes = image.bytes.max(end.next_multiple_of(PAGE_BYTES));
        }
        let symbols = elf.dynamic_symbol_table()?;
        for (offset, relocation) in elf.dynamic_relocations()? {
            let to = match (relocation.flags(), relocation.target()) {
                (
                    RelocationFlags::Elf {
                        r_type: R_X86_64_RELATIVE,
                    },
                    _,
                ) => relocation.addend() as u64,
                (
                    RelocationFlags::Elf {
                        r_type: R_X86_64_GLOB_DAT | R_X86_64_64,
                    },
                    RelocationTarget::Symbol(symbol),
                ) => {
                    let symbol = symbols.symbol_by_index(symbol).ok()?;
                    symbol.address().wrapping_add_signed(relocation.addend())
                }
                _ => return None,
            };
            image.pointers.push((offset, to));
        }
        let places = symbols.symbols().find(|s| s.name() == Ok(PLACES))?;
        image.places = places.address();
        Some(image)
    }

    /// What is written to, for an image at `base`, and where everything is there.
    fn at(&self, base: u64) -> Option<(Vec<u8>, Places<u64>)> {
        let mut data = self.data.clone();
        let place = |offset: u64| (offset as usize).checked_sub(self.text.len());
        for (offset, to) in &self.pointers {
            let word = data.get_mut(place(*offset)?..)?.first_chunk_mut::<8>()?;
            *word = (base + to).to_le_bytes();
        }
        let bytes = data.get(place(self.places)?..)?;
        let mut words = bytes.as_chunks::<8>().0.iter();
        let mut next = || words.next().map(|word| u64::from_le_bytes(*word));
        let places = Places {
            call: next()?,
            handler: next()?,
            restorer: next()?,
            ring: [next()?, next()?, next()?],
            stubs: [next()?, next()?],
            holds: next()?,
            block: next()?,
            pid: next()?,
            here: next()?,
            wipes: next()?,
        };
        Some((data, places))
    }
}

/// Maps the shim into process `pid`, that of `stopped`, which is stopped in user mode at its own registers and is so again afterwards, or
/// for a signal. The outer error means that the thread is gone, the inner one that it could not be done.
///
/// # Errors
/// See above.
pub fn into(stopped: Stopped, pid: Pid, maps: &Maps) -> Result<(Stopped, Result<Shim>)> {
    let tid = stopped.tid();
    let unsuitable = |reason: &str| TraceError::Unsuitable {
        tid,
        reason: reason.to_owned(),
    };
    let Some(slack) = remote::find_slack(&stopped, maps) else {
        let reason = "no unused executable bytes to make a system call from";
        return Ok((stopped, Err(unsuitable(reason))));
    };
    let Some(image) = Image::read() else {
        return Ok((
            stopped,
            Err(unsuitable("the shim's image is not as expected")),
        ));
    };
    let span = BLOCK_BYTES as u64 + image.bytes;
    let Some(base) = place(maps, span) else {
        return Ok((stopped, Err(unsuitable("no room for the shim"))));
    };
    let home = stopped.regs()?;
    let site = CallSite::open(&stopped, slack, home)?;
    let mut caller = site.caller(stopped);
    let mapped = map(&mut caller, &image, base);
    let stopped = caller.done().ok_or(TraceError::Gone(tid))?;
    // Whatever happened: the thread goes back to where it was, the bytes too.
    site.close(&stopped)?;
    let shim = mapped.and_then(|(shim, writes)| {
        for (at, bytes) in writes {
            stopped.write(at, &bytes)?;
        }
        shim.block().owner.store(pid.as_raw(), Ordering::Release);
        Ok(shim)
    });
    Ok((stopped, shim))
}

/// Where `span` bytes are free.
fn place(maps: &Maps, span: u64) -> Option<u64> {
    let is_free = |&at: &u64| maps.0.iter().all(|m| m.end <= at || m.start >= at + span);
    (0x1000..0x4000).map(|n| n * APART).find(is_free)
}

/// What is to be written where.
type Writes = Vec<(u64, Vec<u8>)>;

/// Maps block and image at `base`, and says what is still to be written there. Where that cannot be done the process has what it had before,
/// unless a signal came first.
fn map(caller: &mut Caller<'_>, image: &Image, base: u64) -> Result<(Shim, Writes)> {
    let text = base + BLOCK_BYTES as u64;
    let (data, places) = image.at(text).ok_or_else(|| TraceError::Unsuitable {
        tid: caller.tid(),
        reason: "the shim's image is not as expected".to_owned(),
    })?;
    let fd = caller.shared_memory()?;
    let shared = share(caller, fd, image, (base, &places));
    caller.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    let shim = shared?;
    match divide(caller, image, (base, &places)) {
        Ok((wipes, pid)) => {
            let writes = vec![
                (text + image.text.len() as u64, data),
                (places.block, base.to_le_bytes().to_vec()),
                (places.pid, pid.to_le_bytes().to_vec()),
                (places.here, 1u32.to_le_bytes().to_vec()),
                (places.wipes, vec![u8::from(wipes)]),
            ];
            Ok((shim, writes))
        }
        Err(error) => {
            let span = BLOCK_BYTES as u64 + image.bytes;
            caller.call("munmap", libc::SYS_munmap, [base, span, 0, 0, 0, 0])?;
            hub::give_space_back(caller.tid(), span);
            Err(error)
        }
    }
}

/// Maps the memory behind `fd` in the tracee, there and here, with the text in it.
fn share(
    caller: &mut Caller<'_>,
    fd: u64,
    image: &Image,
    (base, places): (u64, &Places<u64>),
) -> Result<Shim> {
    let tid = caller.tid();
    let local = |operation, source| TraceError::Os {
        operation,
        tid,
        source,
    };
    let span = BLOCK_BYTES as u64 + image.bytes;
    let file = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{tid}/fd/{fd}"))
        .map_err(|e| local("open shared memory", e))?;
    // By us, not by the target: a file size limit there would kill it (setrlimit(2), SIGXFSZ).
    file.set_len(span)
        .and_then(|()| file.write_all_at(&image.text, BLOCK_BYTES as u64))
        .map_err(|e| local("write shared memory", e))?;
    let shim = Shim::map(&file, 0, NAME).map_err(|e| local("map shared memory", e))?;
    let shared = shim.block();
    shared.span.store(span, Ordering::Relaxed);
    // From the first call on it can be found, and taken away, as a whole.
    shared.settle(places, base);
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
    let whole = [base, span, protection, flags, fd, 0];
    hub::take_space(tid, span)?;
    let at = caller
        .call("mmap", libc::SYS_mmap, whole)
        .inspect_err(|_| hub::give_space_back(tid, span))?;
    if at != base {
        caller.call("munmap", libc::SYS_munmap, [at, span, 0, 0, 0, 0])?;
        hub::give_space_back(tid, span);
        let reason = "the kernel is too old to map at a chosen address".into();
        return Err(TraceError::Unsuitable { tid, reason });
    }
    Ok(shim)
}

/// Makes code of the text, and memory that no child of the process shares of what is behind it. Gives whether the kernel wipes the page that tells
/// of forks, and the process's id in its own namespace.
fn divide(
    caller: &mut Caller<'_>,
    image: &Image,
    (base, places): (u64, &Places<u64>),
) -> Result<(bool, u32)> {
    let (text, text_bytes) = (base + BLOCK_BYTES as u64, image.text.len() as u64);
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let args = [text, text_bytes, code, 0, 0, 0];
    caller.call("mprotect", libc::SYS_mprotect, args)?;
    let own = [
        text + text_bytes,
        image.bytes - text_bytes,
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
        u64::MAX,
        0,
    ];
    caller.call("mmap", libc::SYS_mmap, own)?;
    caller.leave_out_of_dumps(base, BLOCK_BYTES as u64 + image.bytes)?;
    let here = [places.here, PAGE_BYTES, MADV_WIPEONFORK, 0, 0, 0];
    let wipes = match caller.call("madvise", libc::SYS_madvise, here) {
        Ok(_) => true,
        // Linux before 4.14.
        Err(TraceError::Remote { .. }) => false,
        Err(error) => return Err(error),
    };
    let pid = caller.call("getpid", libc::SYS_getpid, [0; 6])?;
    Ok((wipes, pid as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_a_part_of_the_image() {
        let image = Image::read().expect("as expected");
        assert!(image.text.starts_with(b"\x7fELF"));
        assert!(image.text.len() as u64 + image.data.len() as u64 <= image.bytes);
        let base = 5 << 32;
        let (_, places) = image.at(base).expect("addresses");
        let code = base..base + image.text.len() as u64;
        let data = code.end..base + image.bytes;
        for place in [places.call, places.handler, places.restorer] {
            assert!(code.contains(&place), "{places:x?}");
        }
        let [ring, stack, rung] = places.ring;
        assert!(code.contains(&ring) && rung > ring && code.contains(&rung));
        assert!(data.contains(&(stack - 8)) && stack.is_multiple_of(16));
        let [begin, end] = places.stubs;
        assert!(code.contains(&begin) && end > begin && end <= code.end);
        for place in [places.holds, places.block, places.pid, places.wipes] {
            assert!(data.contains(&place), "{places:x?}");
        }
        assert!(data.contains(&places.here) && places.here.is_multiple_of(PAGE_BYTES));
    }

    #[test]
    fn a_place_is_free() {
        let maps = Maps::read(nix::unistd::Pid::this()).expect("read");
        let at = place(&maps, 12 << 20).expect("room");
        assert!(maps.find(at).is_none() && at.is_multiple_of(PAGE_BYTES));
    }
}

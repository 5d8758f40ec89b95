//! The shim from the monitor's side: the object itself, the control block shared with it, and the events it reports.
//!
//! What the shim does is said in `preload/src/watchpoints/mod.rs`; the layout of the block is `statcache_abi`'s. Nothing here stops or traces the target.
//!
//! Unsafe invariant: `block` is a shared mapping of `BLOCK_BYTES` of a file at least as long, until drop, and only one thread here uses it
//! (`Shim` is not `Send`). It is made of integers, any bits of which are valid. What the target changes in it is atomic, or else written
//! before `answered` (`request`) or `head` (`events`) says so. A descriptor is taken over where it was made.

use std::ffi::CString;
use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::tracee::Stopped;
use crate::tracee::maps::{Backing, Maps};
use nix::unistd::Pid;
use statcache_abi::{BLOCK_BYTES, Block, ENV_FD, EVENTS, Event, MAGIC, Request, VERSION, result};

/// The shim, an ELF shared object.
pub static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libstatcache_shim.so"));

/// A control block, and with it the shim of one process.
pub struct Shim {
    block: NonNull<Block>,
    /// How the block's file is named in mappings of the process.
    name: &'static str,
    /// Where the block is a copy, the process's memory and the address there.
    original: Option<(File, u64)>,
}

/// A control block and the shim's image, both inherited by the processes we start.
pub struct Inherited {
    shim: Rc<Shim>,
    memory: OwnedFd,
    image: OwnedFd,
}

/// Registers of [`Block::home`].
pub const HOME: usize = 18;

/// What the shim has counted; see `statcache_abi::Counts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counted {
    pub hits: u64,
    pub maybes: u64,
    pub false_hits: u64,
    pub own_faults: u64,
    pub chained: u64,
    pub syscalls: u64,
    pub syscalls_opened: u64,
    pub lost: u64,
    pub blind_ticks: u64,
    pub forks: u64,
    pub entered: u64,
}

/// Bytes of a block before its counts: what requests and their answers are made of.
const HEAD_BYTES: usize = offset_of!(Block, counts);

/// Name of the block's file, as mappings show it.
const BLOCK: &str = "block-of-statcache";

/// Lowest number for descriptors that programs inherit; below the usual limit of 1024.
const HIGH_FD: i32 = 900;

/// A new file in memory, which processes that we start inherit.
///
/// # Errors
/// The operating system's.
pub fn memory_file(name: &std::ffi::CStr) -> std::io::Result<OwnedFd> {
    // SAFETY: a NUL-terminated name; no other memory is involved.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    let low = unsafe { OwnedFd::from_raw_fd(fd) };
    // The name does not begin as that of the code cache does, which `session::leave` looks for. And out of the way: a program finds its own descriptors where it does without us.
    // SAFETY: no memory is involved.
    let high = unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD, HIGH_FD) };
    if high < 0 {
        return Ok(low);
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(high) })
}

impl Inherited {
    /// Makes the block and a file with the image. Their descriptors pass to every child process.
    ///
    /// # Errors
    /// The operating system's, for memory or descriptors.
    pub fn create() -> std::io::Result<Inherited> {
        let image = memory_file(c"shim-of-statcache")?;
        let file = File::from(image);
        file.write_all_at(IMAGE, 0)?;
        let image = OwnedFd::from(file);
        let memory = memory_file(&CString::new(BLOCK)?)?;
        let file = File::from(memory);
        file.set_len(BLOCK_BYTES as u64)?;
        let shim = Rc::new(Shim::map(&file, 0, BLOCK)?);
        let memory = OwnedFd::from(file);
        Ok(Inherited {
            shim,
            memory,
            image,
        })
    }

    /// The shim, once a process has loaded it.
    pub fn shim(&self) -> &Rc<Shim> {
        &self.shim
    }

    /// The variables with which a program loads the shim.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.path().display().to_string()),
            (ENV_FD, self.memory.as_raw_fd().to_string()),
        ]
    }

    /// Whether `pid` still has both descriptors as it inherited them.
    pub fn is_in(&self, pid: Pid) -> bool {
        [&self.image, &self.memory].into_iter().all(|fd| {
            let theirs = std::fs::metadata(format!("/proc/{pid}/fd/{}", fd.as_raw_fd()));
            let ours = std::fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd()));
            matches!((theirs, ours), (Ok(theirs), Ok(ours))
                if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()))
        })
    }

    /// Has the shim take itself out of the program's environment once it is loaded.
    pub fn hide(&self) {
        self.shim.block().hides.store(1, Ordering::Relaxed);
    }

    /// The image as a file, in any process that inherits our descriptors.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.image.as_raw_fd()).into()
    }
}

impl Shim {
    /// Maps the block at `offset` of a file, whose name in mappings holds `name`, and makes it one.
    ///
    /// # Errors
    /// The operating system's.
    pub fn map(file: &File, offset: u64, name: &'static str) -> std::io::Result<Shim> {
        // SAFETY: a new shared mapping of a file of that length.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset as i64,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let block = NonNull::new(at.cast::<Block>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let shim = Shim {
            block,
            name,
            original: None,
        };
        let shared = shim.block();
        shared.version.store(VERSION, Ordering::Relaxed);
        shared.magic.store(MAGIC, Ordering::Release);
        Ok(shim)
    }

    /// The block at `at` in process `pid`, which is traced: of a monitor that was killed. It is no memory of ours, so that
    /// requests and answers are copied there and back; events are not.
    ///
    /// # Errors
    /// The operating system's.
    pub fn left_in(pid: Pid, at: u64) -> std::io::Result<Shim> {
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        let copy = File::from(memory_file(c"copy-of-statcache")?);
        copy.set_len(BLOCK_BYTES as u64)?;
        let mut shim = Shim::map(&copy, 0, BLOCK)?;
        shim.original = Some((memory, at));
        shim.fetch();
        Ok(shim)
    }

    /// Has the copy say what the original does, where it is one.
    fn fetch(&self) {
        if let Some((memory, at)) = &self.original {
            // SAFETY: inside the mapping, whose only user is this thread; any bytes are valid for what is read of it.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().cast(), HEAD_BYTES) };
            // Where the process is gone there is nobody to do any harm to.
            let _ = memory.read_exact_at(bytes, *at);
        }
    }

    /// Has the original say what the copy does in these bytes.
    fn send(&self, bytes: Range<usize>) {
        if let Some((memory, at)) = &self.original {
            let place = *at + bytes.start as u64;
            // SAFETY: as in `fetch`.
            let all = unsafe { std::slice::from_raw_parts(self.block.as_ptr().cast(), HEAD_BYTES) };
            let _ = memory.write_all_at(&all[bytes], place);
        }
    }

    /// The control block.
    pub fn block(&self) -> &Block {
        // SAFETY: the mapping lives as long as `self`; what changes in it are atomics, `request`, written by `ask` alone, and `events`, read by `events` alone.
        unsafe { self.block.as_ref() }
    }

    /// Whether process `pid` has loaded the shim and uses this block.
    pub fn is_in(&self, pid: Pid) -> bool {
        let shared = self.block();
        shared.images.load(Ordering::Acquire) > 0
            && shared.owner.load(Ordering::Relaxed) == pid.as_raw()
    }

    /// Whether a process with these mappings has the block in its place: after an `execve` it has none until the shim is loaded again.
    pub fn is_mapped(&self, maps: &Maps) -> bool {
        let base = self.block().base.load(Ordering::Relaxed);
        let path = maps.find(base).map(|mapping| &mapping.path);
        matches!(path, Some(Backing::File(path) | Backing::Other(path)) if path.contains(self.name))
    }

    /// Whether handlers of the shim may stand in the process of `stopped`, with these mappings, which is the block's or a child
    /// of that.
    pub fn holds(&self, stopped: &Stopped, maps: &Maps) -> bool {
        let at = self.block().holds.load(Ordering::Relaxed);
        let mut word = [0; 4];
        self.is_mapped(maps) && stopped.read(at, &mut word).is_ok() && word != [0; 4]
    }

    /// Leaves a request for the thread that is put into the shim next.
    pub fn ask(&self, request: Request) {
        self.block().answered.store(0, Ordering::Relaxed);
        // SAFETY: inside the mapping; the target does not look at it before a doorbell announces it.
        unsafe {
            let place = &raw mut (*self.block.as_ptr()).request;
            place.write_volatile(Request {
                result: result::PENDING,
                ..request
            })
        };
        let answered = offset_of!(Block, answered);
        self.send(answered..answered + size_of::<u32>());
        let request = offset_of!(Block, request);
        self.send(request..request + size_of::<Request>());
    }

    /// Where threads are put to serve a request, the top of the stack they run on there, and the end of their last system call.
    pub fn ring(&self) -> [u64; 3] {
        self.block()
            .ring
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed))
    }

    /// The addresses at which threads of the target are in its system calls, though in the shim's code.
    pub fn stubs(&self) -> Range<u64> {
        let [begin, end] = &self.block().stubs;
        begin.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)
    }

    /// Leaves the registers of the thread that is about to serve a request, which is to make system call `call` (again).
    pub fn set_home(&self, registers: &[u64; HOME], call: Option<u64>) {
        let shared = self.block();
        for (word, register) in shared.home.iter().zip(registers) {
            word.store(*register, Ordering::Relaxed);
        }
        let call = call.map_or(0, |number| number + 1);
        shared.home_call.store(call, Ordering::Release);
        let home = offset_of!(Block, home);
        self.send(home..offset_of!(Block, home_call) + size_of::<u64>());
    }

    /// The call that the thread, once it has served, is to be in as if it had been interrupted there.
    pub fn home_call(&self) -> Option<u64> {
        self.fetch();
        self.block()
            .home_call
            .load(Ordering::Acquire)
            .checked_sub(1)
    }

    /// The registers of that thread, as they are to be once it has served.
    pub fn home(&self) -> [u64; HOME] {
        self.fetch();
        self.block()
            .home
            .each_ref()
            .map(|word| word.load(Ordering::Acquire))
    }

    /// The answer to the last request, once there is one.
    pub fn answer(&self) -> Option<i32> {
        self.fetch();
        let shared = self.block();
        if shared.answered.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: inside the mapping, written before `answered`.
        let request = unsafe { (&raw const shared.request).read_volatile() };
        Some(request.result)
    }

    /// Says whether threads of the target may be single-stepped; see `statcache_abi::Block::stepping`.
    pub fn set_stepping(&self, stepping: bool) {
        let shared = self.block();
        shared
            .stepping
            .store(u32::from(stepping), Ordering::Release);
    }

    /// Whether the target filters its system calls, so that the shim has gone for good.
    pub fn sealed(&self) -> bool {
        self.block().sealed.load(Ordering::Acquire) != 0
    }

    /// Says where each thread's `struct rseq` lies from its fs base, as one thread shows; see `statcache_abi::Block::rseq`.
    pub fn set_rseq(&self, from_fs: u64) {
        self.block().rseq.store(from_fs, Ordering::Relaxed);
    }

    /// The events since the last call, in order.
    pub fn events(&self) -> Vec<Event> {
        let shared = self.block();
        let head = shared.head.load(Ordering::Acquire);
        let tail = shared.tail.load(Ordering::Relaxed);
        let first = (&raw const shared.events).cast::<Event>();
        let events = (tail..head)
            .map(|n| {
                // SAFETY: inside the ring; written before `head` passed it, and not written again before `tail` does.
                unsafe { first.add((n % EVENTS as u64) as usize).read_volatile() }
            })
            .collect();
        shared.tail.store(head, Ordering::Release);
        events
    }

    /// The shim's counts.
    pub fn counted(&self) -> Counted {
        let counts = &self.block().counts;
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            hits: of(&counts.hits),
            maybes: of(&counts.maybes),
            false_hits: of(&counts.false_hits),
            own_faults: of(&counts.own_faults),
            chained: of(&counts.chained),
            syscalls: of(&counts.syscalls),
            syscalls_opened: of(&counts.syscalls_opened),
            lost: of(&counts.lost),
            blind_ticks: of(&counts.blind_ticks),
            forks: of(&counts.forks),
            entered: of(&counts.entered),
        }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, not used after.
        unsafe { libc::munmap(self.block.as_ptr().cast(), BLOCK_BYTES) };
    }
}

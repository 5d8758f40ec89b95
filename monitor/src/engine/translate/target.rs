//! The runtime's memory in the target: its data region and the arenas.

use super::cache::{ARENA_BYTES, FAR, LOW, REACH, serves};
use super::layout::{
    BEFORE_DRAWN, DATA_BYTES, DRAWN, END_ALIGN, HIGH_BITS, LOG_BYTES, MAGIC, SLACK, state,
};
use super::memory::Shared;
use crate::tracee::filters::{self, Filters};
use crate::tracee::maps::{Mapping, Maps, NAME};
use crate::tracee::remote::{self, CallSite};
use crate::tracee::{Result, Stopped, TraceError, hub, procinfo, status};
use std::fs::File;

/// A region to be mapped into the target.
#[derive(Clone, Copy, Debug)]
struct Request {
    address: u64,
    bytes: u64,
    protection: i32,
}

/// The data region of one thread.
#[derive(Debug)]
pub struct Data {
    /// The memory.
    pub memory: Shared,
    /// End of the log.
    pub end: u64,
    /// The thread's gs base while it is in the cache.
    pub gs: u64,
}

/// What is mapped into a target: its data region and the arenas.
pub type Runtime = (Data, Vec<Shared>);

/// Maps the data region and an arena for the code at each of `near` into the target, which is stopped in user
/// mode at its own registers and is so again afterwards.
///
/// # Errors
/// When the target cannot host us; it is left as it was.
pub fn map_runtime(
    stopped: Stopped,
    maps: &Maps,
    near: &[u64],
) -> Result<(Stopped, Result<Runtime>)> {
    let tid = stopped.tid();
    let no_room = |what: &str| TraceError::Unsuitable {
        tid,
        reason: format!("no room for {what}"),
    };
    let plan = |maps: &Maps| {
        let end = data_end(maps).ok_or_else(|| no_room("the access log"))?;
        let mut requests = vec![Request {
            address: end - LOG_BYTES,
            bytes: DATA_BYTES,
            protection: libc::PROT_READ | libc::PROT_WRITE,
        }];
        let mut places: Vec<u64> = Vec::new();
        for &ip in near {
            if places.iter().any(|&place| serves(place, ip)) {
                continue;
            }
            let place = arena_place(maps, ip).ok_or_else(|| no_room("a code cache"))?;
            places.push(place);
            requests.push(arena_request(place));
        }
        Ok(requests)
    };
    let (stopped, mapped) = map_shared(stopped, maps, plan)?;
    let result = mapped.and_then(|mut mapped| {
        let arenas = mapped.split_off(1);
        let memory = mapped.pop().ok_or_else(|| no_room("the access log"))?;
        let end = memory.remote() + LOG_BYTES;
        let gs = end + SLACK;
        let mut data = Data { memory, end, gs };
        data.memory.write_word(gs + state::MAGIC as u64, MAGIC);
        data.memory.write_word(gs + state::SELF as u64, gs);
        data.memory.write_word(gs + state::HIGH as u64, HIGH_BITS);
        let masks = [
            (state::NOT_DRAWN, !DRAWN),
            (state::NOT_BEFORE, !BEFORE_DRAWN),
            (state::DRAWN, DRAWN),
        ];
        for (at, mask) in masks {
            data.memory.write_word(gs + at as u64, u64::from(mask));
        }
        Ok((data, arenas))
    });
    Ok((stopped, result))
}

/// Maps one more arena, for code at `ip`.
///
/// # Errors
/// As [`map_runtime`].
pub fn map_arena(stopped: Stopped, maps: &Maps, ip: u64) -> Result<(Stopped, Result<Shared>)> {
    let tid = stopped.tid();
    let no_room = || TraceError::Unsuitable {
        tid,
        reason: "no room for a code cache".into(),
    };
    let plan = |maps: &Maps| {
        let place = arena_place(maps, ip).ok_or_else(no_room)?;
        Ok(vec![arena_request(place)])
    };
    let (stopped, mapped) = map_shared(stopped, maps, plan)?;
    Ok((
        stopped,
        mapped.and_then(|mut mapped| mapped.pop().ok_or_else(no_room)),
    ))
}

fn arena_request(address: u64) -> Request {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    Request {
        address,
        bytes: ARENA_BYTES,
        protection,
    }
}

/// Where data regions are looked for, in multiples of 4 GiB: below the libraries (mmap(2) fills the address space downwards
/// from at least 0x7efc_0000_0000 with 28 random bits of page number), where it does not split what they leave free, and
/// where programs built with sanitizers suffer it: below 0x1000_8000_0000 lies the shadow of AddressSanitizer, and
/// ThreadSanitizer ends programs that have something mapped at more than 0x5680_0000_0000 and less than
/// 0x7e80_0000_0000 (compiler-rt, `tsan_platform.h`; MemorySanitizer: less than 0x7000_0000_0000).
const DATA_PLACES: [std::ops::Range<u64>; 2] =
    [FAR.start / END_ALIGN..FAR.end / END_ALIGN, 0x2000..0x4000];

/// First multiple of 4 GiB in [`DATA_PLACES`] around which the region is free.
fn data_end(maps: &Maps) -> Option<u64> {
    let mut ends = DATA_PLACES.into_iter().flatten().map(|k| k * END_ALIGN);
    ends.find(|end| {
        let (low, high) = (end - LOG_BYTES, end + DATA_BYTES - LOG_BYTES);
        maps.0.iter().all(|m| m.end <= low || m.start >= high)
    })
}

/// A place for an arena of code at `ip`: within reach of it, far enough below that the libraries that come later below the loader are not in its
/// way. That of a program at a low address lies far away: the break heap, which may grow from its end for gigabytes, has all of what is near.
fn arena_place(maps: &Maps, ip: u64) -> Option<u64> {
    let reach = REACH - (256 << 20);
    let low = ip.saturating_sub(reach).max(1 << 20);
    let high = ip.saturating_add(reach).min(1 << 47);
    let wish = if ip < LOW {
        // In the way of its heap, where nothing far away is free.
        ip + (1 << 30) + (512 << 20)
    } else {
        ip - (1 << 30)
    };
    let far = far_place(maps).filter(|_| ip < LOW);
    far.or_else(|| maps.hole(wish, ARENA_BYTES, 1 << 21, low, high))
}

/// The first one free between data regions.
fn far_place(maps: &Maps) -> Option<u64> {
    let mut places = DATA_PLACES[0]
        .clone()
        .map(|k| k * END_ALIGN + END_ALIGN / 2);
    places.find(|&place| {
        let taken = |m: &Mapping| m.end > place && m.start < place + ARENA_BYTES;
        !maps.0.iter().any(taken)
    })
}

/// Times that places are looked for, when other threads of the target take them for themselves in between.
const ATTEMPTS: usize = 16;

/// Lets the target create shared memory and map it at the places that `plan` chooses among its mappings. The outer
/// error means that the thread is gone, the inner one that it could not be done.
fn map_shared(
    mut stopped: Stopped,
    maps: &Maps,
    plan: impl Fn(&Maps) -> Result<Vec<Request>>,
) -> Result<(Stopped, Result<Vec<Shared>>)> {
    let tid = stopped.tid();
    // It may have got one since its process was made ready.
    if let Filters::Against(reason) = filters::of(&stopped) {
        let reason = reason.into();
        return Ok((stopped, Err(TraceError::Unsuitable { tid, reason })));
    }
    let Some(slack) = remote::find_slack(&stopped, maps) else {
        let reason = "no unused executable bytes to make a system call from".into();
        return Ok((stopped, Err(TraceError::Unsuitable { tid, reason })));
    };
    let home = stopped.regs()?;
    let site = CallSite::open(&stopped, slack, home)?;
    // Left open as a signal came first, or copied by a fork just then.
    let left_open = procinfo::descriptors_of(tid, NAME);
    if !left_open.is_empty() {
        let mut caller = site.caller(stopped);
        let mut close = |&fd: &u64| caller.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        let closed = left_open.iter().try_for_each(|fd| close(fd).map(|_| ()));
        stopped = caller.done().ok_or(TraceError::Gone(tid))?;
        // The program may have closed it itself.
        if let Err(error) = closed
            && !matches!(error, TraceError::Remote { .. })
        {
            site.close(&stopped)?;
            return Ok((stopped, Err(error)));
        }
    }
    let mut result = plan(maps);
    let mut mapped = Err(TraceError::Gone(tid));
    for attempt in 1..=ATTEMPTS {
        let requests = match result {
            Ok(requests) => requests,
            Err(error) => {
                mapped = Err(error);
                break;
            }
        };
        let (back, now) = call_all(stopped, &site, &requests);
        stopped = back.ok_or(TraceError::Gone(tid))?;
        mapped = now;
        if attempt == ATTEMPTS || !mapped.as_ref().is_err_and(is_taken) {
            break;
        }
        let read = Maps::read(tid).map_err(|_| TraceError::Gone(tid));
        result = read.and_then(|maps| plan(&maps));
    }
    // Whatever happened: the thread goes back to where it was, the bytes too.
    site.close(&stopped)?;
    Ok((stopped, mapped))
}

/// Whether something was mapped where we wanted to (mmap(2), `MAP_FIXED_NOREPLACE`).
fn is_taken(error: &TraceError) -> bool {
    let TraceError::Remote { source, .. } = error else {
        return false;
    };
    source.raw_os_error() == Some(libc::EEXIST)
}

fn call_all(
    stopped: Stopped,
    site: &CallSite,
    requests: &[Request],
) -> (Option<Stopped>, Result<Vec<Shared>>) {
    let mut caller = site.caller(stopped);
    let result = (|| {
        let fd = caller.shared_memory()?;
        let mapped = map_requests(&mut caller, fd, requests);
        // Where a signal comes first it is closed before the next attempt.
        caller.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        mapped
    })();
    (caller.done(), result)
}

fn map_requests(
    caller: &mut remote::Caller<'_>,
    fd: u64,
    requests: &[Request],
) -> Result<Vec<Shared>> {
    let tid = caller.tid();
    let local = |operation, source| TraceError::Os {
        operation,
        tid,
        source,
    };
    let total: u64 = requests.iter().map(|r| r.bytes).sum();
    let path = format!("/proc/{tid}/fd/{fd}");
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| local("open shared memory", e))?;
    // By us, not by the target: a file size limit there would kill it (setrlimit(2), SIGXFSZ).
    file.set_len(total)
        .map_err(|e| local("size shared memory", e))?;
    let mut offset = 0;
    let mut shared: Vec<Shared> = Vec::new();
    // A process that locks all it maps (mlockall(2), `MCL_FUTURE`) would have hundreds of megabytes of it allocated at once; what nobody
    // may touch is not.
    let locks = status::locks_memory(tid);
    hub::take_space(tid, total)?;
    for request in requests {
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
        let protection = match locks {
            true => libc::PROT_NONE as u64,
            false => request.protection as u64,
        };
        let args = [
            request.address,
            request.bytes,
            protection,
            flags,
            fd,
            offset,
        ];
        let at = match caller.call("mmap", libc::SYS_mmap, args) {
            Ok(at) => at,
            Err(error) => {
                hub::give_space_back(tid, total - offset);
                // All or nothing, but where a signal came first: then it stays until all of ours is taken away.
                let failed = matches!(error, TraceError::Remote { .. });
                for mapped in shared.iter().filter(|_| failed) {
                    let (address, bytes) = (mapped.remote(), mapped.bytes());
                    caller.call("munmap", libc::SYS_munmap, [address, bytes, 0, 0, 0, 0])?;
                    hub::give_space_back(tid, bytes);
                }
                return Err(error);
            }
        };
        if at != request.address {
            caller.call("munmap", libc::SYS_munmap, [at, request.bytes, 0, 0, 0, 0])?;
            hub::give_space_back(tid, total - offset);
            let reason = "the kernel is too old to map at a chosen address".into();
            return Err(TraceError::Unsuitable { tid, reason });
        }
        if locks {
            let (address, bytes) = (request.address, request.bytes);
            caller.call("munlock", libc::SYS_munlock, [address, bytes, 0, 0, 0, 0])?;
            let protect = [address, bytes, request.protection as u64, 0, 0, 0];
            caller.call("mprotect", libc::SYS_mprotect, protect)?;
        }
        caller.leave_out_of_dumps(request.address, request.bytes)?;
        let view = Shared::map(&file, offset, request.bytes, request.address);
        shared.push(view.map_err(|e| local("map shared memory", e))?);
        offset += request.bytes;
    }
    Ok(shared)
}

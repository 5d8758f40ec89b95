//! The bytes of one record: `postcard`, with the samples of a window laid out by column.
//!
//! A sample repeats itself: its five outcomes differ by a few references, its neighbours share
//! thread, instructions and memory. Columns of differences put the like beside the like, so that
//! deflate (in [`super::frame`]) finds it; measured sizes are in the tests of `tests/profile.rs`.
//! Empty columns at the end are left out: what only windows of several threads have costs others nothing.

use serde::{Deserialize, Serialize};

use super::types::{
    Estimate, FirstTouch, FirstTouches, Footer, Frame, Header, Instr, InstrId, Memory, Module,
    ModuleId, Outcome, ProcessRecord, Record, SampleRecord, Shared, Since, TakenSample,
    ThreadShare, WindowRecord, remote_flags,
};
use super::varint::{difference, narrow, put_varint, sum, take_varint, unzigzag, zigzag};

/// [`Record`] as stored; the variants' order is the format.
#[derive(Serialize, Deserialize)]
enum Stored {
    Header(Header),
    Modules(Vec<Module>),
    Instrs(Vec<Instr>),
    Window(StoredWindow),
    Symbols(Vec<Vec<Frame>>),
    DataSymbols(Vec<(ModuleId, u64, u64, String)>),
    Footer(Footer),
    Process(ProcessRecord),
    Shares(Vec<(u32, Estimate)>),
    Looks(Vec<(u32, f64)>),
}

/// [`WindowRecord`] with its samples as columns.
#[derive(Serialize, Deserialize)]
struct StoredWindow {
    index: u32,
    start_s: f64,
    cpu_start_s: f64,
    wall_s: f64,
    contiguous_with_previous: bool,
    tid: i32,
    accesses: u64,
    refs: [u64; 5],
    stands_for: Estimate,
    declined: u32,
    threads: Vec<ThreadShare>,
    count: u32,
    columns: Vec<Vec<u8>>,
}

/// Columns of a window, in stored order.
#[derive(Clone, Copy)]
enum Column {
    TakenIn,
    Ip,
    Address,
    Size,
    Flags,
    Tid,
    Position,
    MemoryKind,
    MemoryModule,
    MemoryBias,
    OutcomeKind,
    Distance,
    Trigger,
    /// What a sample has of the next ones; empty where no sample of the window has any.
    Shared,
    AllKind,
    AllDistance,
    AllTrigger,
    Remote,
    WriterInstr,
    WriterTid,
    /// Of first touches: how many were seen and one line in how many was drawn; then of each. Empty where they were not looked for.
    FirstSeen,
    FirstIp,
    FirstPosition,
    FirstMemoryKind,
    FirstMemoryModule,
    FirstMemoryOffset,
    /// Difference to the window's thread, and a bit for those that come after another thread's.
    FirstThread,
    /// Number and places of the epochs that began in the window, and of each first touch since when its line was not touched. Empty where
    /// first touches are those of the window.
    Epoch,
    FirstSince,
}
const COLUMNS: usize = Column::FirstSince as usize + 1;

/// The columns of outcomes: kind, distance, trigger.
type OutcomeColumns = [Column; 3];
const OWN: OutcomeColumns = [Column::OutcomeKind, Column::Distance, Column::Trigger];
const ALL: OutcomeColumns = [Column::AllKind, Column::AllDistance, Column::AllTrigger];

/// Bits of [`Column::Shared`].
const SHARED: u8 = 1;
/// Some flag of [`Shared::remote`] is set, and all are stored.
const REMOTE_BIT: u8 = 2;
/// The writer is stored.
const WRITER_BIT: u8 = 4;

/// Kinds of an outcome, with the bits beside them.
const REUSED: u8 = 0;
const CENSORED: u8 = 1;
const NEVER: u8 = 2;
const NOT_FOLLOWED: u8 = 3;
const STORE_BIT: u8 = 4;
/// The trigger is the one of the line size before (the usual case).
const SAME_TRIGGER_BIT: u8 = 8;

pub(super) fn encode_record(record: &Record) -> Result<Vec<u8>, String> {
    // Cloned but for windows: the other records are small and written once.
    let stored = match record {
        Record::Header(h) => Stored::Header(h.clone()),
        Record::Modules(m) => Stored::Modules(m.clone()),
        Record::Instrs(i) => Stored::Instrs(i.clone()),
        Record::Window(w) => Stored::Window(pack(w)?),
        Record::Symbols(s) => Stored::Symbols(s.clone()),
        Record::DataSymbols(s) => Stored::DataSymbols(s.clone()),
        Record::Footer(f) => Stored::Footer(f.clone()),
        Record::Process(p) => Stored::Process(p.clone()),
        Record::Shares(s) => Stored::Shares(s.clone()),
        Record::Looks(looks) => Stored::Looks(looks.clone()),
    };
    postcard::to_stdvec(&stored).map_err(|e| e.to_string())
}

pub(super) fn decode_record(bytes: &[u8]) -> Result<Record, String> {
    let (stored, rest): (Stored, _) =
        postcard::take_from_bytes(bytes).map_err(|e| e.to_string())?;
    if !rest.is_empty() {
        return Err(format!("{} bytes behind a record", rest.len()));
    }
    Ok(match stored {
        Stored::Header(h) => Record::Header(h),
        Stored::Modules(m) => Record::Modules(m),
        Stored::Instrs(i) => Record::Instrs(i),
        Stored::Window(w) => Record::Window(unpack(&w)?),
        Stored::Symbols(s) => Record::Symbols(s),
        Stored::DataSymbols(s) => Record::DataSymbols(s),
        Stored::Footer(f) => Record::Footer(f),
        Stored::Process(p) => Record::Process(p),
        Stored::Shares(s) => Record::Shares(s),
        Stored::Looks(looks) => Record::Looks(looks),
    })
}

fn pack(w: &WindowRecord) -> Result<StoredWindow, String> {
    let mut columns = vec![Vec::new(); COLUMNS];
    let mut put = |c: Column, v: u64| put_varint(&mut columns[c as usize], v);
    let mut before = Before::default();
    let shares = w.samples.iter().any(|taken| taken.sample.shared.is_some());
    for taken in &w.samples {
        let s = &taken.sample;
        put(
            Column::TakenIn,
            zigzag(i64::from(w.index) - i64::from(taken.taken_in)),
        );
        put(Column::Ip, u64::from(s.ip));
        put(Column::Address, difference(s.address, &mut before.address));
        put(Column::Size, u64::from(s.size));
        put(Column::Flags, u64::from(s.flags));
        put(Column::Tid, zigzag(i64::from(s.tid) - i64::from(w.tid)));
        put(
            Column::Position,
            difference(s.position, &mut before.position),
        );
        put(Column::MemoryKind, memory_kind(&s.memory));
        if let Memory::Static { module, offset } = s.memory {
            put(Column::MemoryModule, u64::from(module));
            // Address minus offset is the load bias: the same for all of a module.
            let bias = s.address.wrapping_sub(offset);
            put(Column::MemoryBias, difference(bias, &mut before.bias));
        }
        put_outcomes(&mut put, OWN, s.ip, &s.own);
        if shares {
            put_shared(&mut put, w.tid, s);
        }
    }
    if let Some(first) = &w.first_touches {
        put_first(&mut put, w.tid, first);
    }
    while columns.last().is_some_and(Vec::is_empty) {
        columns.pop();
    }
    Ok(StoredWindow {
        index: w.index,
        start_s: w.start_s,
        cpu_start_s: w.cpu_start_s,
        wall_s: w.wall_s,
        contiguous_with_previous: w.contiguous_with_previous,
        tid: w.tid,
        accesses: w.accesses,
        refs: w.refs,
        stands_for: w.stands_for,
        declined: w.declined,
        threads: w.threads.clone(),
        count: u32::try_from(w.samples.len()).map_err(|_| "too many samples in a window")?,
        columns,
    })
}

fn unpack(w: &StoredWindow) -> Result<WindowRecord, String> {
    if w.columns.len() > COLUMNS {
        return Err(format!("a window of {} columns", w.columns.len()));
    }
    // Every sample takes at least a byte of the first column.
    let first = w.columns.first().map_or(0, Vec::len);
    if w.count as usize > first {
        return Err(format!("a window announces {} samples", w.count));
    }
    let mut cursors: Vec<&[u8]> = w.columns.iter().map(Vec::as_slice).collect();
    cursors.resize(COLUMNS, &[]);
    let shares = !cursors[Column::Shared as usize].is_empty();
    let looks_for_first = !cursors[Column::FirstSeen as usize].is_empty();
    let whole = !cursors[Column::Epoch as usize].is_empty();
    let mut get = |c: Column| {
        take_varint(&mut cursors[c as usize]).ok_or_else(|| format!("column {} is short", c as u8))
    };
    let mut window = WindowRecord {
        index: w.index,
        start_s: w.start_s,
        cpu_start_s: w.cpu_start_s,
        wall_s: w.wall_s,
        contiguous_with_previous: w.contiguous_with_previous,
        tid: w.tid,
        accesses: w.accesses,
        refs: w.refs,
        threads: w.threads.clone(),
        stands_for: w.stands_for,
        declined: w.declined,
        samples: Vec::with_capacity(w.count as usize),
        first_touches: None,
    };
    let mut before = Before::default();
    for _ in 0..w.count {
        let taken_in = narrow(i64::from(w.index).wrapping_sub(unzigzag(get(Column::TakenIn)?)))?;
        let ip = narrow(get(Column::Ip)?)?;
        let address = sum(get(Column::Address)?, &mut before.address);
        let size = narrow(get(Column::Size)?)?;
        let flags = narrow(get(Column::Flags)?)?;
        let tid = narrow(i64::from(w.tid).wrapping_add(unzigzag(get(Column::Tid)?)))?;
        let position = sum(get(Column::Position)?, &mut before.position);
        let memory = match get(Column::MemoryKind)? {
            0 => {
                let module = narrow(get(Column::MemoryModule)?)?;
                let bias = sum(get(Column::MemoryBias)?, &mut before.bias);
                Memory::Static {
                    module,
                    offset: address.wrapping_sub(bias),
                }
            }
            kind => memory_of_kind(kind)?,
        };
        let own = get_outcomes(&mut get, OWN, ip)?;
        let shared = if shares {
            get_shared(&mut get, w.tid, ip)?
        } else {
            None
        };
        window.samples.push(TakenSample {
            taken_in,
            sample: SampleRecord {
                ip,
                address,
                size,
                flags,
                tid,
                position,
                memory,
                own,
                shared,
            },
        });
    }
    if looks_for_first {
        window.first_touches = Some(get_first(&mut get, w.tid, whole)?);
    }
    if cursors.iter().any(|c| !c.is_empty()) {
        return Err("a window's columns are longer than its samples".to_owned());
    }
    Ok(window)
}

/// Values of the sample before, which the next is stored relative to.
#[derive(Default)]
struct Before {
    address: u64,
    position: u64,
    bias: u64,
}

fn memory_kind(memory: &Memory) -> u64 {
    match memory {
        Memory::Static { .. } => 0,
        Memory::Heap => 1,
        Memory::Stack => 2,
        Memory::Mapping => 3,
    }
}

/// Undoes [`memory_kind`] where that says all.
fn memory_of_kind(kind: u64) -> Result<Memory, String> {
    Ok(match kind {
        1 => Memory::Heap,
        2 => Memory::Stack,
        3 => Memory::Mapping,
        other => return Err(format!("memory kind {other}")),
    })
}

/// Appends the outcomes at the five line sizes, each relative to the one before.
fn put_outcomes(
    put: &mut impl FnMut(Column, u64),
    [kinds, distances, triggers]: OutcomeColumns,
    ip: InstrId,
    outcomes: &[Outcome; 5],
) {
    let mut trigger_before = ip;
    let mut distance_before = 0;
    for outcome in outcomes {
        let (kind, distance) = match *outcome {
            Outcome::Reused {
                distance,
                trigger,
                store,
            } => {
                let mut kind = REUSED | if store { STORE_BIT } else { 0 };
                if trigger == trigger_before {
                    kind |= SAME_TRIGGER_BIT;
                } else {
                    put(triggers, u64::from(trigger));
                    trigger_before = trigger;
                }
                (kind, Some(distance))
            }
            Outcome::Censored { at } => (CENSORED, Some(at)),
            Outcome::NeverReused { at } => (NEVER, Some(at)),
            Outcome::NotFollowed => (NOT_FOLLOWED, None),
        };
        put(kinds, u64::from(kind));
        if let Some(d) = distance {
            put(distances, difference(d, &mut distance_before));
        }
    }
}

/// Undoes [`put_outcomes`].
fn get_outcomes(
    get: &mut impl FnMut(Column) -> Result<u64, String>,
    [kinds, distances, triggers]: OutcomeColumns,
    ip: InstrId,
) -> Result<[Outcome; 5], String> {
    let mut outcomes = [Outcome::NotFollowed; 5];
    let mut trigger = ip;
    let mut distance_before = 0;
    for outcome in &mut outcomes {
        let kind: u8 = narrow(get(kinds)?)?;
        if kind == NOT_FOLLOWED {
            continue;
        }
        if kind & 3 == REUSED && kind & SAME_TRIGGER_BIT == 0 {
            trigger = narrow(get(triggers)?)?;
        }
        let distance = sum(get(distances)?, &mut distance_before);
        *outcome = match kind & 3 {
            REUSED => Outcome::Reused {
                distance,
                trigger,
                store: kind & STORE_BIT != 0,
            },
            CENSORED => Outcome::Censored { at: distance },
            NEVER => Outcome::NeverReused { at: distance },
            _ => return Err(format!("outcome kind {kind}")),
        };
    }
    Ok(outcomes)
}

/// Appends what other threads did to the line of `sample`.
fn put_shared(put: &mut impl FnMut(Column, u64), window_tid: i32, sample: &SampleRecord) {
    let Some(shared) = &sample.shared else {
        put(Column::Shared, 0);
        return;
    };
    let remote = shared.remote.iter().any(|&flags| flags != 0);
    let mut has = SHARED;
    if remote {
        has |= REMOTE_BIT;
    }
    if shared.writer.is_some() {
        has |= WRITER_BIT;
    }
    put(Column::Shared, u64::from(has));
    put_outcomes(put, ALL, sample.ip, &shared.all);
    if remote {
        for &flags in &shared.remote {
            put(Column::Remote, u64::from(flags));
        }
    }
    if let Some((instr, tid)) = shared.writer {
        put(Column::WriterInstr, u64::from(instr));
        let tid = i64::from(tid) - i64::from(window_tid);
        put(Column::WriterTid, zigzag(tid));
    }
}

/// Undoes [`put_shared`].
fn get_shared(
    get: &mut impl FnMut(Column) -> Result<u64, String>,
    window_tid: i32,
    ip: InstrId,
) -> Result<Option<Box<Shared>>, String> {
    const KNOWN: u8 = remote_flags::READ | remote_flags::WRITTEN | remote_flags::DISJOINT;
    let has: u8 = narrow(get(Column::Shared)?)?;
    if has == 0 {
        return Ok(None);
    }
    if has & SHARED == 0 || has > SHARED | REMOTE_BIT | WRITER_BIT {
        return Err(format!("what other threads did: {has}"));
    }
    let all = get_outcomes(get, ALL, ip)?;
    let mut remote = [0; 5];
    if has & REMOTE_BIT != 0 {
        for flags in &mut remote {
            *flags = narrow(get(Column::Remote)?)?;
            if *flags > KNOWN {
                return Err(format!("remote accesses of kind {flags}"));
            }
        }
    }
    let writer = if has & WRITER_BIT != 0 {
        let instr = narrow(get(Column::WriterInstr)?)?;
        let tid = unzigzag(get(Column::WriterTid)?);
        Some((instr, narrow(i64::from(window_tid).wrapping_add(tid))?))
    } else {
        None
    };
    Ok(Some(Box::new(Shared {
        all,
        remote,
        writer,
    })))
}

/// Appends first touches.
fn put_first(put: &mut impl FnMut(Column, u64), window_tid: i32, first: &FirstTouches) {
    put(Column::FirstSeen, first.seen);
    put(Column::FirstSeen, u64::from(first.one_in));
    put(Column::FirstSeen, first.touches.len() as u64);
    let whole = !first.epochs.is_empty();
    if whole {
        put(Column::Epoch, first.epochs.len() as u64);
        for &epoch in &first.epochs {
            put(Column::Epoch, epoch);
        }
    }
    let (mut position, mut offset) = (0, 0);
    for touch in &first.touches {
        put(Column::FirstIp, u64::from(touch.ip));
        put(
            Column::FirstPosition,
            difference(touch.position, &mut position),
        );
        put(Column::FirstMemoryKind, memory_kind(&touch.memory));
        if let Memory::Static { module, offset: at } = touch.memory {
            put(Column::FirstMemoryModule, u64::from(module));
            put(Column::FirstMemoryOffset, difference(at, &mut offset));
        }
        let thread = zigzag(i64::from(touch.tid) - i64::from(window_tid));
        put(Column::FirstThread, thread << 1 | u64::from(!touch.of_all));
        if whole {
            let (least, width) = match touch.since {
                Since::AtLeast(least) => (least, 0),
                // Never 0: the last touch was not this one.
                Since::Between(least, most) => (least, most.saturating_sub(least).max(1)),
            };
            put(Column::FirstSince, least);
            put(Column::FirstSince, width);
        }
    }
}

/// Undoes [`put_first`].
fn get_first(
    get: &mut impl FnMut(Column) -> Result<u64, String>,
    window_tid: i32,
    whole: bool,
) -> Result<FirstTouches, String> {
    let seen = get(Column::FirstSeen)?;
    let one_in = narrow(get(Column::FirstSeen)?)?;
    let count = get(Column::FirstSeen)?;
    let mut epochs = Vec::new();
    if whole {
        for _ in 0..get(Column::Epoch)? {
            epochs.push(get(Column::Epoch)?);
        }
    }
    let (mut before, mut offset) = (0, 0);
    let mut touches = Vec::new();
    for _ in 0..count {
        let (ip, position) = (get(Column::FirstIp)?, get(Column::FirstPosition)?);
        let memory = match get(Column::FirstMemoryKind)? {
            0 => Memory::Static {
                module: narrow(get(Column::FirstMemoryModule)?)?,
                offset: sum(get(Column::FirstMemoryOffset)?, &mut offset),
            },
            kind => memory_of_kind(kind)?,
        };
        let thread = get(Column::FirstThread)?;
        let since = match whole {
            true => (get(Column::FirstSince)?, get(Column::FirstSince)?),
            false => (0, 0),
        };
        touches.push(FirstTouch {
            ip: narrow(ip)?,
            position: sum(position, &mut before),
            memory,
            tid: narrow(i64::from(window_tid).wrapping_add(unzigzag(thread >> 1)))?,
            of_all: thread & 1 == 0,
            since: match since {
                (least, 0) => Since::AtLeast(least),
                (least, width) => Since::Between(least, least.saturating_add(width)),
            },
        });
    }
    Ok(FirstTouches {
        touches,
        seen,
        one_in,
        epochs,
    })
}

#[cfg(test)]
mod tests;

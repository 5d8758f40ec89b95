//! The bytes of one record: `postcard`, with the samples of a window laid out by column.
//!
//! A sample repeats itself: its five outcomes differ by a few references, its neighbours share
//! thread, instructions and memory. Columns of differences put the like beside the like, so that
//! deflate (in [`super::frame`]) finds it; measured sizes are in the tests of `tests/profiles/profile.rs`.
//! Empty columns at the end are left out: what only windows of several threads have costs others nothing.

mod first;
mod outcomes;

use first::{get_first, put_first};
use outcomes::{OWN, get_outcomes, get_shared, put_outcomes, put_shared};
use serde::{Deserialize, Serialize};

use super::types::{
    Estimate, Footer, Frame, Header, Instr, InstrId, Memory, Module, ModuleId, ProcessRecord,
    Record, SampleRecord, TakenSample, ThreadShare, Unmet, WindowRecord,
};
use crate::varint::{difference, narrow, put_varint, sum, take_varint, unzigzag, zigzag};

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
    Sites(Vec<Vec<InstrId>>),
    Unmet(Unmet),
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
    /// Up to format 7; the same by where the epochs end since then, which are few, in `FirstEnded`.
    FirstSince,
    FirstEnded,
    /// Kinds of the five outcomes of a sample, since format 8 instead of one by one in `OutcomeKind` and `AllKind`.
    OutcomeKinds,
    AllKinds,
}
const COLUMNS: usize = Column::AllKinds as usize + 1;

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
        Record::Sites(sites) => Stored::Sites(sites.clone()),
        Record::Unmet(unmet) => Stored::Unmet(*unmet),
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
        Stored::Sites(sites) => Record::Sites(sites),
        Stored::Unmet(unmet) => Record::Unmet(unmet),
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
        if let Memory::Allocated { site } = s.memory {
            put(Column::MemoryModule, u64::from(site));
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
    let old = !cursors[Column::OutcomeKind as usize].is_empty();
    let old_since = !cursors[Column::FirstSince as usize].is_empty();
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
            ALLOCATED => Memory::Allocated {
                site: narrow(get(Column::MemoryModule)?)?,
            },
            kind => memory_of_kind(kind)?,
        };
        let own = get_outcomes(&mut get, OWN, old.then_some(Column::OutcomeKind), ip)?;
        let shared = if shares {
            get_shared(&mut get, w.tid, old.then_some(Column::AllKind), ip)?
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
        window.first_touches = Some(get_first(&mut get, w.tid, whole, old_since)?);
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
        Memory::Allocated { .. } => ALLOCATED,
    }
}

/// The kind of memory whose site is said in the module's column.
const ALLOCATED: u64 = 4;

/// Undoes [`memory_kind`] where that says all.
fn memory_of_kind(kind: u64) -> Result<Memory, String> {
    Ok(match kind {
        1 => Memory::Heap,
        2 => Memory::Stack,
        3 => Memory::Mapping,
        other => return Err(format!("memory kind {other}")),
    })
}

#[cfg(test)]
mod tests;

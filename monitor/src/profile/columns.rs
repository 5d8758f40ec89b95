//! The bytes of one record: `postcard`, with the samples of a window laid out by column.
//!
//! A sample repeats itself: its five outcomes differ by a few references, its neighbours share
//! thread, instructions and memory. Columns of differences put the like beside the like, so that
//! deflate (in [`super::frame`]) finds it; measured sizes are in the tests of `tests/profile.rs`.

use serde::{Deserialize, Serialize};

use super::types::{
    Estimate, Footer, Frame, Header, Instr, Memory, Module, ModuleId, Outcome, ProcessRecord,
    Record, SampleRecord, TakenSample, WindowRecord,
};

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
}
const COLUMNS: usize = Column::Trigger as usize + 1;

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
    })
}

fn pack(w: &WindowRecord) -> Result<StoredWindow, String> {
    let mut columns = vec![Vec::new(); COLUMNS];
    let mut put = |c: Column, v: u64| put_varint(&mut columns[c as usize], v);
    let mut before = Before::default();
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
        let mut trigger_before = s.ip;
        let mut distance_before = 0;
        for outcome in &s.own {
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
                        put(Column::Trigger, u64::from(trigger));
                        trigger_before = trigger;
                    }
                    (kind, Some(distance))
                }
                Outcome::Censored { at } => (CENSORED, Some(at)),
                Outcome::NeverReused { at } => (NEVER, Some(at)),
                Outcome::NotFollowed => (NOT_FOLLOWED, None),
            };
            put(Column::OutcomeKind, u64::from(kind));
            if let Some(d) = distance {
                put(Column::Distance, difference(d, &mut distance_before));
            }
        }
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
        count: u32::try_from(w.samples.len()).map_err(|_| "too many samples in a window")?,
        columns,
    })
}

fn unpack(w: &StoredWindow) -> Result<WindowRecord, String> {
    if w.columns.len() != COLUMNS {
        return Err(format!("a window of {} columns", w.columns.len()));
    }
    // Every sample takes at least a byte of the first column.
    if w.count as usize > w.columns[Column::TakenIn as usize].len() {
        return Err(format!("a window announces {} samples", w.count));
    }
    let mut cursors: Vec<&[u8]> = w.columns.iter().map(Vec::as_slice).collect();
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
        threads: Vec::new(),
        stands_for: w.stands_for,
        declined: w.declined,
        samples: Vec::with_capacity(w.count as usize),
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
            1 => Memory::Heap,
            2 => Memory::Stack,
            3 => Memory::Mapping,
            other => return Err(format!("memory kind {other}")),
        };
        let mut own = [Outcome::NotFollowed; 5];
        let mut trigger = ip;
        let mut distance_before = 0;
        for outcome in &mut own {
            let kind = get(Column::OutcomeKind)? as u8;
            if kind == NOT_FOLLOWED {
                continue;
            }
            if kind & 3 == REUSED && kind & SAME_TRIGGER_BIT == 0 {
                trigger = narrow(get(Column::Trigger)?)?;
            }
            let distance = sum(get(Column::Distance)?, &mut distance_before);
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
                shared: None,
            },
        });
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

/// Difference to the value before, as a small number whatever its sign.
fn difference(value: u64, before: &mut u64) -> u64 {
    let d = value.wrapping_sub(*before) as i64;
    *before = value;
    zigzag(d)
}

fn sum(stored: u64, before: &mut u64) -> u64 {
    *before = before.wrapping_add(unzigzag(stored) as u64);
    *before
}

fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

fn narrow<T, S: Copy + std::fmt::Display + TryInto<T>>(value: S) -> Result<T, String> {
    value
        .try_into()
        .map_err(|_| format!("value {value} is out of range"))
}

fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let (&b, rest) = bytes.split_first()?;
        *bytes = rest;
        v |= u64::from(b & 0x7f) << shift;
        if b < 0x80 {
            return Some(v);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_and_differences_return_what_was_put() {
        for v in [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, v);
            assert_eq!(take_varint(&mut bytes.as_slice()), Some(v));
            let (mut a, mut b) = (12345, 12345);
            let d = difference(v, &mut a);
            assert_eq!(sum(d, &mut b), v);
        }
    }

    #[test]
    fn outcomes_of_every_kind_survive() {
        let r = |distance, trigger, store| Outcome::Reused {
            distance,
            trigger,
            store,
        };
        let sample = |own, memory| TakenSample {
            taken_in: 3,
            sample: SampleRecord {
                ip: 9,
                address: 0x7fff_dead_beef,
                size: 64,
                flags: 3,
                tid: 77,
                position: 1 << 41,
                memory,
                own,
                shared: None,
            },
        };
        let window = WindowRecord {
            index: 5,
            start_s: 0.5,
            cpu_start_s: 0.4,
            wall_s: 0.1,
            contiguous_with_previous: true,
            tid: 70,
            accesses: 1 << 40,
            refs: [1, 2, 3, 4, u64::MAX],
            threads: Vec::new(),
            stands_for: Estimate {
                value: 1e12,
                low: 1.0,
                high: f64::INFINITY,
            },
            samples: vec![
                sample(
                    [
                        r(7, 9, true),
                        r(7, 9, false),
                        r(5, 8, true),
                        r(5, 8, true),
                        r(0, 2, false),
                    ],
                    Memory::Static {
                        module: 4,
                        offset: 0x4010,
                    },
                ),
                sample(
                    [
                        Outcome::NotFollowed,
                        Outcome::NotFollowed,
                        Outcome::Censored { at: 1 << 50 },
                        Outcome::Censored { at: 4 },
                        r(u64::MAX, 0, false),
                    ],
                    Memory::Heap,
                ),
                sample([Outcome::NeverReused { at: 12 }; 5], Memory::Stack),
                sample([Outcome::NotFollowed; 5], Memory::Mapping),
            ],
            declined: 2,
        };
        let record = Record::Window(window);
        let bytes = encode_record(&record).unwrap();
        assert_eq!(decode_record(&bytes).unwrap(), record);
    }
}

//! Windows through their columns and back; bytes nobody wrote.

use super::*;
use crate::profile::types::{FirstTouch, FirstTouches, InstrId, Outcome, Shared, Since};

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
            sample(
                [Outcome::NotFollowed; 5],
                Memory::Allocated { site: u32::MAX },
            ),
            sample([Outcome::NotFollowed; 5], Memory::Allocated { site: 0 }),
        ],
        declined: 2,
        first_touches: None,
    };
    let record = Record::Window(window);
    let bytes = encode_record(&record).unwrap();
    assert_eq!(decode_record(&bytes).unwrap(), record);
}

/// A window of two threads, its samples with every kind of what others did.
fn of_threads() -> WindowRecord {
    let r = |distance, trigger| Outcome::Reused {
        distance,
        trigger,
        store: trigger % 2 == 0,
    };
    let shared = |all, remote, writer| {
        Some(Box::new(Shared {
            all,
            remote,
            writer,
        }))
    };
    let whats = [
        None,
        shared([r(3, 9); 5], [0; 5], None),
        shared(
            [r(9, 1), r(8, 2), r(8, 2), r(0, 3), Outcome::NotFollowed],
            [0, 1, 3, 7, 6],
            Some((4, 71)),
        ),
        shared(
            [Outcome::Censored { at: u64::MAX }; 5],
            [2; 5],
            Some((u32::MAX, i32::MIN)),
        ),
        shared([Outcome::NeverReused { at: 0 }; 5], [1; 5], None),
        shared([Outcome::NotFollowed; 5], [0; 5], Some((0, i32::MAX))),
    ];
    let thread = |tid, accesses| ThreadShare {
        tid,
        accesses,
        refs: [accesses + 1; 5],
    };
    WindowRecord {
        index: 0,
        start_s: 0.0,
        cpu_start_s: 0.0,
        wall_s: 1.0,
        contiguous_with_previous: false,
        tid: 70,
        accesses: 300,
        refs: [302; 5],
        threads: vec![thread(70, 100), thread(71, 200)],
        stands_for: Estimate::default(),
        samples: whats
            .into_iter()
            .enumerate()
            .map(|(i, shared)| TakenSample {
                taken_in: 0,
                sample: SampleRecord {
                    ip: 9,
                    address: 0x1000 + i as u64,
                    size: 8,
                    flags: 1,
                    tid: 70 + i as i32 % 2,
                    position: i as u64,
                    memory: Memory::Heap,
                    own: [r(1, 9); 5],
                    shared,
                },
            })
            .collect(),
        declined: 0,
        first_touches: None,
    }
}

#[test]
fn what_other_threads_did_survives() {
    let record = Record::Window(of_threads());
    assert_eq!(
        decode_record(&encode_record(&record).unwrap()).unwrap(),
        record
    );
}

#[test]
fn first_touches_survive() {
    let touch = |n: u64, whole: bool| FirstTouch {
        since: match n % 3 {
            _ if !whole => Since::AtLeast(0),
            0 => Since::AtLeast(u64::MAX - n),
            1 => Since::Between(n, u64::MAX),
            _ => Since::Between(n, n + 1),
        },
        ip: n as InstrId,
        position: 1000 - n,
        memory: match n % 5 {
            0 => Memory::Static {
                module: 3,
                offset: n.wrapping_sub(2),
            },
            1 => Memory::Heap,
            2 => Memory::Stack,
            3 => Memory::Allocated { site: n as u32 },
            _ => Memory::Mapping,
        },
        tid: if n.is_multiple_of(3) {
            70
        } else {
            i32::MIN + n as i32
        },
        of_all: !n.is_multiple_of(5),
    };
    for (count, whole) in [(0, false), (1, false), (100, false), (0, true), (100, true)] {
        let mut window = of_threads();
        window.first_touches = Some(FirstTouches {
            touches: (0..count).map(|n| touch(n, whole)).collect(),
            seen: u64::MAX,
            one_in: 32,
            epochs: if whole {
                vec![0, 7, u64::MAX]
            } else {
                Vec::new()
            },
        });
        let record = Record::Window(window);
        let bytes = encode_record(&record).unwrap();
        assert_eq!(decode_record(&bytes).unwrap(), record);
        // Cut anywhere or changed: an answer or an error.
        for at in 0..bytes.len() {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 0x55;
            let _ = (decode_record(&spoilt), decode_record(&bytes[..at]));
        }
    }
}

#[test]
fn windows_of_one_thread_pay_nothing_a_sample() {
    let mut window = of_threads();
    window.threads.clear();
    for taken in &mut window.samples {
        taken.sample.shared = None;
    }
    let packed = pack(&window).unwrap();
    let mut others = packed.columns[Column::Shared as usize..].iter().enumerate();
    let kinds = Column::OutcomeKinds as usize - Column::Shared as usize;
    assert!(others.all(|(i, column)| i == kinds || column.is_empty()));
}

#[test]
fn bytes_nobody_wrote_are_refused_or_read_and_never_more() {
    let good = pack(&of_threads()).unwrap();
    let spoilt = |column: Column, bytes: &[u8]| {
        let mut window = pack(&of_threads()).unwrap();
        window.columns[column as usize] = bytes.to_vec();
        unpack(&window)
    };
    let mut wide = pack(&of_threads()).unwrap();
    wide.columns.resize(COLUMNS + 1, Vec::new());
    assert!(unpack(&wide).unwrap_err().contains("33 columns"));
    let none = StoredWindow {
        columns: Vec::new(),
        ..wide
    };
    assert!(unpack(&none).unwrap_err().contains("announces 6 samples"));
    assert!(unpack(&good).is_ok());
    let mut huge = Vec::new();
    put_varint(&mut huge, u64::MAX);
    for (column, bytes, says) in [
        (Column::Shared, &[2, 0, 0, 0, 0, 0][..], "did: 2"),
        (Column::Shared, &[9, 0, 0, 0, 0, 0], "did: 9"),
        (Column::Shared, &[0, 1], "short"),
        (Column::Shared, &[], "longer"),
        (Column::Remote, &[8; 15], "kind 8"),
        (Column::Remote, &[0xff, 0xff, 1], "out of range"),
        (Column::AllKinds, &[0xff, 0xff, 0xff, 1], "kinds 0x3fffff"),
        (Column::AllDistance, &[], "short"),
        (Column::WriterTid, &huge, "out of range"),
        (Column::WriterInstr, &huge, "out of range"),
        (Column::WriterInstr, &[0xff; 12], "short"),
    ] {
        let error = spoilt(column, bytes).unwrap_err();
        assert!(error.contains(says), "column {}: {error}", column as u8);
    }
    // Any one byte changed, and cut anywhere: an answer or an error, no panic.
    let bytes = encode_record(&Record::Window(of_threads())).unwrap();
    for at in 0..bytes.len() {
        assert!(decode_record(&bytes[..at]).is_err(), "cut at {at}");
        for change in [1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            let _ = decode_record(&changed);
        }
    }
}

/// All that there are; what follows as usual takes no room.
#[test]
fn kinds_are_joined_and_parted() {
    use super::outcomes::{join_kinds, part_kinds};
    let of = |mut n: u32| {
        [(); 5].map(|()| {
            let kind = n % 10;
            n /= 10;
            match kind {
                0..4 => kind as u8 * 4,
                _ => (kind as u8 - 4) % 3 + 1,
            }
        })
    };
    for n in 0..100_000 {
        assert_eq!(part_kinds(join_kinds(of(n))), Ok(of(n)));
    }
    for usual in [[0, 8, 8, 8, 8], [4, 12, 12, 12, 12], [2; 5], [3; 5]] {
        assert!(join_kinds(usual) < 16);
    }
    assert!(part_kinds(1 << 20).is_err());
}

/// A window as formats 4 to 7 had it: kinds one by one, and how far first touches are instead of where epochs end.
fn as_before_format_8(window: &WindowRecord) -> StoredWindow {
    let mut stored = pack(window).unwrap();
    stored.columns.resize(COLUMNS, Vec::new());
    let mut moved = |from: Column, to: Column, parts: &dyn Fn(u64) -> Vec<u64>| {
        let bytes = std::mem::take(&mut stored.columns[from as usize]);
        let mut bytes = &bytes[..];
        while let Some(value) = take_varint(&mut bytes) {
            for part in parts(value) {
                put_varint(&mut stored.columns[to as usize], part);
            }
        }
    };
    let kinds = |joined| {
        outcomes::part_kinds(joined)
            .unwrap()
            .map(u64::from)
            .to_vec()
    };
    moved(Column::OutcomeKinds, Column::OutcomeKind, &kinds);
    moved(Column::AllKinds, Column::AllKind, &kinds);
    stored.columns[Column::FirstEnded as usize].clear();
    let first = window.first_touches.as_ref();
    for touch in first.into_iter().flat_map(|first| &first.touches) {
        let (least, width) = match touch.since {
            Since::AtLeast(least) => (least, 0),
            Since::Between(least, most) => (least, most - least),
        };
        for value in [least, width] {
            put_varint(&mut stored.columns[Column::FirstSince as usize], value);
        }
    }
    while stored.columns.last().is_some_and(Vec::is_empty) {
        stored.columns.pop();
    }
    stored
}

#[test]
fn windows_of_older_formats_are_read() {
    let mut window = of_threads();
    window.first_touches = Some(FirstTouches {
        touches: (0..9)
            .map(|n| FirstTouch {
                since: match n % 2 {
                    0 => Since::AtLeast(100 * n),
                    _ => Since::Between(7 * n, 1 << (40 + n)),
                },
                ip: n as InstrId,
                position: 5000 + 3 * n,
                memory: Memory::Heap,
                tid: 70,
                of_all: true,
            })
            .collect(),
        seen: 9,
        one_in: 1,
        epochs: vec![3, 4],
    });
    let stored = as_before_format_8(&window);
    assert_eq!(stored.columns.len(), Column::FirstSince as usize + 1);
    assert_eq!(unpack(&stored).unwrap(), window);
}

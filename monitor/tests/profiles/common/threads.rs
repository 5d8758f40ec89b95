//! Synthetic programs of several threads, sampled exactly: own and all-thread distances, and what
//! remote threads did to each sampled line.

use std::collections::HashMap;

use statcache::profile::types::{
    Estimate, Footer, Frame, Header, Instr, LINE_SIZES, Memory, Module, Outcome, Record,
    SampleRecord, Shared, TakenSample, ThreadShare, WindowRecord, remote_flags, sample_flags,
};

use super::Rng;

/// Instructions: a counter and a private array on one source line; a total that is added to and
/// read elsewhere.
pub const COUNT: u32 = 0;
pub const ARRAY: u32 = 1;
pub const ADD: u32 = 2;
pub const SNAPSHOT: u32 = 3;

/// First thread; the others follow.
pub const TID: i32 = 4242;

const COUNTERS: u64 = 0x7f00_0000_1000;
const ARRAYS: u64 = 0x7f10_0000_0000;
const BIAS: u64 = 0x5555_5555_4000;
const TOTALS: u64 = 0x4100;

/// What the threads do.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Each increments a counter of its own, so many bytes from its neighbour's.
    Counters(u64),
    /// All add to one static total, and the first reads it now and then.
    Total,
    /// Each sweeps an array of so many bytes, and nothing else.
    Sweep(u64),
}

/// A program and how it is observed.
#[derive(Clone, Copy)]
pub struct Plan {
    pub kind: Kind,
    pub threads: i32,
    /// Accesses of a window, by all its threads.
    pub window: u64,
    pub windows: u32,
    /// One access in so many is sampled.
    pub period: u64,
    /// Windows follow each other without a gap.
    pub full: bool,
}

impl Plan {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            threads: 2,
            window: 100_000,
            windows: 5,
            period: 50,
            full: true,
        }
    }
}

#[derive(Clone, Copy)]
struct Access {
    tid: i32,
    ip: u32,
    address: u64,
    flags: u8,
    memory: Memory,
}

/// The accesses of all threads in the order they happen: each runs for some of its own, drawn at
/// random, before it is another's turn.
struct Program {
    kind: Kind,
    rng: Rng,
    threads: u64,
    at: Vec<u64>,
    turn: usize,
    left: u64,
}

impl Program {
    fn new(plan: &Plan) -> Self {
        Self {
            kind: plan.kind,
            rng: Rng::new(3),
            threads: plan.threads as u64,
            at: vec![0; plan.threads as usize],
            turn: 0,
            left: 0,
        }
    }

    fn heap(&self, ip: u32, address: u64) -> Access {
        Access {
            tid: TID + self.turn as i32,
            ip,
            address,
            flags: sample_flags::LOAD | sample_flags::STORE,
            memory: Memory::Heap,
        }
    }
}

impl Iterator for Program {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if self.left == 0 {
            self.turn = self.rng.below(self.threads) as usize;
            self.left = 1 + self.rng.below(12);
        }
        self.left -= 1;
        let step = self.at[self.turn];
        self.at[self.turn] += 1;
        let array = ARRAYS + ((self.turn as u64) << 32);
        Some(match self.kind {
            Kind::Counters(apart) if step.is_multiple_of(3) => {
                self.heap(COUNT, COUNTERS + self.turn as u64 * apart)
            }
            // The array of the kernel that this is modelled on: 64 KiB, a line a step.
            Kind::Counters(_) => self.heap(ARRAY, array + (step * 64) % (64 << 10)),
            Kind::Sweep(bytes) => self.heap(ARRAY, array + (step * 8) % bytes),
            Kind::Total if step.is_multiple_of(4) => Access {
                ip: ADD,
                memory: Memory::Static {
                    module: 0,
                    offset: TOTALS,
                },
                ..self.heap(ADD, BIAS + TOTALS)
            },
            Kind::Total if self.turn == 0 && step % 16 == 1 => Access {
                ip: SNAPSHOT,
                flags: sample_flags::LOAD,
                memory: Memory::Static {
                    module: 0,
                    offset: TOTALS,
                },
                ..self.heap(SNAPSHOT, BIAS + TOTALS)
            },
            Kind::Total => self.heap(ARRAY, array + (step * 8) % (16 << 10)),
        })
    }
}

/// Every `period`th access of a stretch that is observed without a gap, with its index.
fn sampled(
    stretch: &[Access],
    period: u64,
    ended: fn(u64) -> Outcome,
) -> Vec<(usize, SampleRecord)> {
    let mut counts: HashMap<i32, u64> = HashMap::new();
    let own: Vec<u64> = stretch
        .iter()
        .map(|a| {
            let count = counts.entry(a.tid).or_default();
            *count += 1;
            *count - 1
        })
        .collect();
    let mut touches: [HashMap<u64, Vec<usize>>; 5] = Default::default();
    for (i, a) in stretch.iter().enumerate() {
        for (at, line) in LINE_SIZES.iter().enumerate() {
            let list = touches[at].entry(a.address / u64::from(*line)).or_default();
            list.push(i);
        }
    }
    let mut rng = Rng::new(11);
    let mut samples = Vec::new();
    let mut i = rng.below(period) as usize;
    while i < stretch.len() {
        let a = stretch[i];
        let end = (stretch.len() - 1 - i) as u64;
        let mut shared = Shared {
            all: [ended(end); 5],
            remote: [0; 5],
            writer: None,
        };
        let mut outcomes = [ended(counts[&a.tid] - own[i] - 1); 5];
        for (at, line) in LINE_SIZES.iter().enumerate() {
            let list = &touches[at][&(a.address / u64::from(*line))];
            let later = &list[list.partition_point(|&j| j <= i)..];
            let reused = |distance, by: &Access| Outcome::Reused {
                distance,
                trigger: by.ip,
                store: by.flags & sample_flags::STORE != 0,
            };
            if let Some(&j) = later.first() {
                shared.all[at] = reused((j - i - 1) as u64, &stretch[j]);
            }
            let mut written = Vec::new();
            let mut back = None;
            for &j in later {
                let b = stretch[j];
                if b.tid == a.tid {
                    outcomes[at] = reused(own[j] - own[i] - 1, &b);
                    back = Some(b.address);
                    break;
                }
                if b.flags & sample_flags::LOAD != 0 {
                    shared.remote[at] |= remote_flags::READ;
                }
                if b.flags & sample_flags::STORE != 0 {
                    shared.remote[at] |= remote_flags::WRITTEN;
                    written.push(b.address);
                    if *line == 64 {
                        shared.writer = Some((b.ip, b.tid));
                    }
                }
            }
            // All accesses are of 8 aligned bytes.
            let touched = |w: &u64| *w == a.address || Some(*w) == back;
            if !written.is_empty() && !written.iter().any(touched) {
                shared.remote[at] |= remote_flags::DISJOINT;
            }
        }
        samples.push((
            i,
            SampleRecord {
                ip: a.ip,
                address: a.address,
                size: 8,
                flags: a.flags,
                tid: a.tid,
                position: i as u64,
                memory: a.memory,
                own: outcomes,
                shared: Some(Box::new(shared)),
            },
        ));
        i += 1 + rng.below(2 * period - 1) as usize;
    }
    samples
}

/// The records of a profile.
pub fn records(plan: Plan) -> Vec<Record> {
    let window = plan.window as usize;
    let stretches: Vec<Vec<Access>> = {
        let mut program = Program::new(&plan);
        let lengths = match plan.full {
            true => vec![window * plan.windows as usize],
            false => vec![window; plan.windows as usize],
        };
        let mut take = |n: usize| program.by_ref().take(n).collect();
        lengths.into_iter().map(&mut take).collect()
    };
    let mut windows = Vec::new();
    for stretch in &stretches {
        let ended: fn(u64) -> Outcome = match plan.full {
            true => |at| Outcome::NeverReused { at },
            false => |at| Outcome::Censored { at },
        };
        let first = windows.len();
        for accesses in stretch.chunks(window) {
            windows.push(record(&plan, windows.len() as u32, accesses));
        }
        for (i, mut sample) in sampled(stretch, plan.period, ended) {
            let at = first + i / window;
            sample.position = (i % window) as u64;
            windows[at].samples.push(TakenSample {
                taken_in: at as u32,
                sample,
            });
        }
    }
    let mut out = vec![
        Record::Header(Header {
            full: plan.full,
            ..Header::example(&["./falseshare", &plan.threads.to_string()])
        }),
        Record::Modules(vec![Module {
            path: "/opt/demo/falseshare".to_owned(),
            bias: BIAS,
            build_id: String::new(),
        }]),
        Record::Instrs(
            [0x1188, 0x1190, 0x1204, 0x1230]
                .map(|offset| Instr {
                    module: Some(0),
                    offset,
                })
                .to_vec(),
        ),
    ];
    out.extend(windows.into_iter().map(Record::Window));
    let frame = |file: &str, line, function: &str| {
        vec![Frame {
            function: function.to_owned(),
            file: format!("/opt/demo/{file}"),
            line,
        }]
    };
    out.push(Record::Symbols(vec![
        frame("falseshare.c", 10, "work"),
        frame("falseshare.c", 10, "work"),
        frame("stats.c", 21, "add"),
        frame("stats.c", 34, "snapshot"),
    ]));
    let totals = (0, TOTALS, 64, "totals".to_owned());
    out.push(Record::DataSymbols(vec![totals]));
    let accesses = (plan.window * u64::from(plan.windows)) as f64;
    out.push(Record::Footer(Footer {
        exit_status: Some(0),
        wall_s: 1.0,
        cpu_s: f64::from(plan.threads),
        window_wall_s: 0.1,
        accesses_estimated: estimate(accesses * if plan.full { 1.0 } else { 4.0 }),
        footprint_bytes: 0,
        warnings: Vec::new(),
    }));
    out
}

fn estimate(value: f64) -> Estimate {
    Estimate {
        value,
        low: value,
        high: value,
    }
}

fn record(plan: &Plan, index: u32, accesses: &[Access]) -> WindowRecord {
    let mut threads: Vec<ThreadShare> = Vec::new();
    for a in accesses {
        let thread = match threads.iter_mut().find(|t| t.tid == a.tid) {
            Some(known) => known,
            None => {
                threads.push(ThreadShare {
                    tid: a.tid,
                    accesses: 0,
                    refs: [0; 5],
                });
                let last = threads.len() - 1;
                &mut threads[last]
            }
        };
        thread.accesses += 1;
        thread.refs = [thread.accesses; 5];
    }
    let n = accesses.len() as u64;
    WindowRecord {
        index,
        start_s: f64::from(index) * 0.1,
        cpu_start_s: f64::from(index) * 0.1,
        wall_s: 0.05,
        contiguous_with_previous: plan.full && index > 0,
        tid: TID,
        accesses: n,
        refs: [n; 5],
        threads: if threads.len() > 1 {
            threads
        } else {
            Vec::new()
        },
        stands_for: estimate(if plan.full { n as f64 } else { 4.0 * n as f64 }),
        samples: Vec::new(),
        declined: 0,
        first_touches: None,
    }
}

/// Misses per access of the whole run in caches with random replacement and lines of 64 bytes: one
/// a thread, which lose what others write (`private`), or one for all.
pub fn simulate(plan: Plan, cache_bytes: u64, private: bool) -> f64 {
    let lines = (cache_bytes / 64) as usize;
    let n = plan.window * u64::from(plan.windows);
    let caches = if private { plan.threads as usize } else { 1 };
    let mut held: Vec<Vec<u64>> = vec![Vec::new(); caches];
    let mut places: Vec<HashMap<u64, usize>> = vec![HashMap::new(); caches];
    let mut rng = Rng::new(17);
    let mut misses = 0;
    for a in Program::new(&plan).take(n as usize) {
        let line = a.address / 64;
        let mine = if private { (a.tid - TID) as usize } else { 0 };
        let writes = a.flags & sample_flags::STORE != 0;
        for other in (0..caches).filter(|&c| writes && c != mine) {
            if let Some(place) = places[other].remove(&line) {
                held[other].swap_remove(place);
                if let Some(&moved) = held[other].get(place) {
                    places[other].insert(moved, place);
                }
            }
        }
        if places[mine].contains_key(&line) {
            continue;
        }
        misses += 1;
        let mut place = held[mine].len();
        if place < lines {
            held[mine].push(line);
        } else {
            place = rng.below(lines as u64) as usize;
            places[mine].remove(&held[mine][place]);
            held[mine][place] = line;
        }
        places[mine].insert(line, place);
    }
    misses as f64 / n as f64
}

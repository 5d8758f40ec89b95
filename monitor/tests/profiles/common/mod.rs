//! A synthetic program: its accesses are generated, sampled exactly, and simulated exactly, so
//! that what a profile leads to can be held against what is true.

pub mod page;
pub mod threads;

use std::collections::HashMap;
use std::path::Path;

use statcache::profile::Writer;
use statcache::profile::types::{
    Estimate, Footer, Frame, Header, Instr, LINE_SIZES, Memory, Module, Outcome, ProcessRecord,
    Record, SampleRecord, TakenSample, Warning, WindowRecord, sample_flags,
};

/// Instructions of the synthetic program.
pub const SWEEP: u32 = 0;
pub const LOOKUP: u32 = 1;
pub const SPILL: u32 = 2;
pub const COPY: u32 = 3;
pub const INSERT: u32 = 4;

/// splitmix64: the same stream on every machine and in every version of any crate.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One access.
#[derive(Clone, Copy)]
pub struct Access {
    pub ip: u32,
    pub address: u64,
    pub store: bool,
    pub memory: Memory,
}

const GRID: u64 = 0x4000;
const GRID_BYTES: u64 = 512 << 10;
const HEAP: u64 = 0x7f00_0000_0000;
const TABLE_BYTES: u64 = 6 << 20;
const STREAM: u64 = 0x7f10_0000_0000;
const STACK: u64 = 0x7fff_ffff_0000;
const BIAS: u64 = 0x5555_5555_4000;

/// The accesses: a static array swept in order, a hash table looked up at random (two fields of
/// an entry of 64 bytes, of which the second always hits), a hot stack and a stream never seen again.
pub struct Program {
    rng: Rng,
    sweep: u64,
    stream: u64,
    entry: Option<u64>,
}

impl Program {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            sweep: 0,
            stream: 0,
            entry: None,
        }
    }
}

impl Iterator for Program {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if let Some(entry) = self.entry.take() {
            return Some(Access {
                ip: INSERT,
                address: entry + 8,
                store: true,
                memory: Memory::Heap,
            });
        }
        Some(match self.rng.below(100) {
            0..45 => Access {
                ip: SPILL,
                address: STACK + self.rng.below(64) * 8,
                store: self.rng.below(2) == 0,
                memory: Memory::Stack,
            },
            45..75 => {
                self.sweep = (self.sweep + 8) % GRID_BYTES;
                let offset = GRID + self.sweep;
                Access {
                    ip: SWEEP,
                    address: BIAS + offset,
                    store: false,
                    memory: Memory::Static { module: 0, offset },
                }
            }
            75..95 => {
                let entry = HEAP + self.rng.below(TABLE_BYTES / 64) * 64;
                self.entry = Some(entry);
                Access {
                    ip: LOOKUP,
                    address: entry,
                    store: false,
                    memory: Memory::Heap,
                }
            }
            _ => {
                self.stream += 32;
                Access {
                    ip: COPY,
                    address: STREAM + self.stream,
                    store: true,
                    memory: Memory::Mapping,
                }
            }
        })
    }
}

/// How to observe the program.
#[derive(Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    /// Accesses of the whole run.
    pub accesses: u64,
    /// One access in so many is sampled.
    pub period: u64,
    /// Accesses of a window; the run is all windows when `full`, else every fourth.
    pub window: u64,
    pub full: bool,
}

impl Plan {
    pub fn small() -> Self {
        Self {
            seed: 7,
            accesses: 2_000_000,
            period: 200,
            window: 250_000,
            full: true,
        }
    }
}

struct Watch {
    window: u32,
    sample: SampleRecord,
    /// Reference number at which it was taken.
    taken: u64,
    open: usize,
}

/// The records of a profile of the synthetic program. No access of it spans lines, so the
/// references are the accesses at every line size.
pub fn records(plan: Plan) -> Vec<Record> {
    let mut out = vec![
        Record::Header(Header {
            full: plan.full,
            seed: plan.seed,
            ..Header::example(&["./grind", "--size", "large", "input.dat"])
        }),
        Record::Modules(modules()),
        Record::Instrs(instrs()),
    ];
    let mut rng = Rng::new(plan.seed ^ 0xabc);
    let mut watches: Vec<Watch> = Vec::new();
    let mut by_line: [HashMap<u64, Vec<usize>>; 5] = Default::default();
    let mut done: Vec<TakenSample> = Vec::new();
    let mut window = 0;
    let mut start = 0;
    let mut due = rng.below(2 * plan.period);
    for (n, access) in Program::new(plan.seed)
        .take(plan.accesses as usize)
        .enumerate()
    {
        let n = n as u64;
        let inside = plan.full || (n / plan.window).is_multiple_of(4);
        if !inside {
            continue;
        }
        for (at, line) in LINE_SIZES.iter().enumerate() {
            let Some(hit) = by_line[at].remove(&(access.address / u64::from(*line))) else {
                continue;
            };
            for id in hit {
                let w = &mut watches[id];
                w.sample.own[at] = Outcome::Reused {
                    distance: n - w.taken - 1,
                    trigger: access.ip,
                    store: access.store,
                };
                w.open -= 1;
                if w.open == 0 {
                    done.push(TakenSample {
                        taken_in: w.window,
                        sample: w.sample.clone(),
                    });
                }
            }
        }
        due = due.saturating_sub(1);
        if due == 0 {
            due = 1 + rng.below(2 * plan.period);
            let id = watches.len();
            for (at, line) in LINE_SIZES.iter().enumerate() {
                by_line[at]
                    .entry(access.address / u64::from(*line))
                    .or_default()
                    .push(id);
            }
            watches.push(Watch {
                window,
                taken: n,
                open: 5,
                sample: SampleRecord {
                    ip: access.ip,
                    address: access.address,
                    size: 8,
                    flags: if access.store {
                        sample_flags::STORE
                    } else {
                        sample_flags::LOAD
                    },
                    tid: 4242,
                    position: n - start,
                    memory: access.memory,
                    own: [Outcome::NotFollowed; 5],
                    shared: None,
                },
            });
        }
        let last = n + 1 == plan.accesses;
        if last || (n + 1).is_multiple_of(plan.window) {
            if last || !plan.full {
                let open = by_line
                    .iter()
                    .enumerate()
                    .flat_map(|(at, m)| m.values().flatten().map(move |&id| (at, id)));
                for (at, id) in open.collect::<Vec<_>>() {
                    let w = &mut watches[id];
                    let gone = n - w.taken;
                    w.sample.own[at] = if plan.full {
                        Outcome::NeverReused { at: gone }
                    } else {
                        Outcome::Censored { at: gone }
                    };
                    w.open -= 1;
                    if w.open == 0 {
                        done.push(TakenSample {
                            taken_in: w.window,
                            sample: w.sample.clone(),
                        });
                    }
                }
                by_line = Default::default();
            }
            let accesses = n + 1 - start;
            let stands_for = if plan.full {
                accesses as f64
            } else {
                (accesses * 4) as f64
            };
            out.push(Record::Window(WindowRecord {
                index: window,
                start_s: start as f64 * 1e-6,
                cpu_start_s: start as f64 * 1e-6,
                wall_s: accesses as f64 * 4e-6,
                contiguous_with_previous: plan.full && window > 0,
                tid: 4242,
                accesses,
                refs: [accesses; 5],
                threads: Vec::new(),
                stands_for: Estimate {
                    value: stands_for,
                    low: stands_for * 0.97,
                    high: stands_for * 1.03,
                },
                samples: std::mem::take(&mut done),
                declined: u32::from(window == 1),
                first_touches: None,
            }));
            window += 1;
        }
        if (n + 1).is_multiple_of(plan.window) {
            start = if plan.full {
                n + 1
            } else {
                n + 1 + 3 * plan.window
            };
        }
    }
    out.push(Record::Symbols(symbols()));
    out.push(Record::DataSymbols(vec![(
        0,
        GRID,
        GRID_BYTES,
        "grid".to_owned(),
    )]));
    out.push(Record::Footer(Footer {
        exit_status: Some(0),
        wall_s: plan.accesses as f64 * 1.08e-6,
        cpu_s: plan.accesses as f64 * 1e-6,
        window_wall_s: 0.08 * plan.accesses as f64 * 1e-6,
        accesses_estimated: Estimate {
            value: plan.accesses as f64,
            low: plan.accesses as f64 * 0.97,
            high: plan.accesses as f64 * 1.03,
        },
        footprint_bytes: 0,
        warnings: vec![Warning {
            what: "2 threads ran unobserved: only the first thread was sampled".to_owned(),
            remedy: "the curve describes the first thread; run single-threaded to see all"
                .to_owned(),
        }],
    }));
    out
}

fn modules() -> Vec<Module> {
    vec![
        Module {
            path: "/opt/demo/grind".to_owned(),
            bias: BIAS,
            build_id: "00ff".to_owned(),
        },
        Module {
            path: "/usr/lib/libc.so.6".to_owned(),
            bias: 0x7fff_f7c0_0000,
            build_id: String::new(),
        },
    ]
}

fn instrs() -> Vec<Instr> {
    [
        (0, 0x1130),
        (0, 0x1188),
        (0, 0x1204),
        (1, 0x16_0a40),
        (0, 0x118c),
    ]
    .map(|(module, offset)| Instr {
        module: Some(module),
        offset,
    })
    .to_vec()
}

fn symbols() -> Vec<Vec<Frame>> {
    let frame = |function: &str, file: &str, line| Frame {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    };
    vec![
        vec![frame("smooth", "/opt/demo/src/grid.c", 14)],
        vec![
            frame("lookup", "/opt/demo/src/hash.h", 31),
            frame("run", "/opt/demo/src/main.c", 52),
        ],
        vec![frame("run", "/opt/demo/src/main.c", 47)],
        vec![frame("__memmove_avx_unaligned_erms", "", 0)],
        vec![
            frame("lookup", "/opt/demo/src/hash.h", 32),
            frame("run", "/opt/demo/src/main.c", 52),
        ],
    ]
}

/// A process of a run, as it is told before its records.
pub fn process(id: u32, command: &str) -> Record {
    Record::Process(ProcessRecord {
        id,
        pid: 4242 + id as i32,
        ppid: 4241,
        command: vec![command.to_owned()],
    })
}

/// Writes records as a profile file.
pub fn write(path: &Path, records: &[Record]) -> u64 {
    let mut writer = Writer::create(path).unwrap();
    for record in records {
        writer.append(record).unwrap();
    }
    let bytes = writer.bytes();
    writer.finish().unwrap();
    bytes
}

/// Misses of the program in one simulated cache: overall ratio, and per instruction its misses.
pub struct Truth {
    pub accesses: u64,
    pub misses: HashMap<u32, u64>,
}

impl Truth {
    pub fn miss_ratio(&self) -> f64 {
        self.misses.values().sum::<u64>() as f64 / self.accesses as f64
    }

    pub fn miss_share(&self, ip: u32) -> f64 {
        let all: u64 = self.misses.values().sum();
        self.misses.get(&ip).copied().unwrap_or(0) as f64 / all as f64
    }
}

/// Simulates a fully associative cache with random replacement, one array of lines.
pub fn simulate_random(plan: Plan, cache_bytes: u64, line_bytes: u64) -> Truth {
    let capacity = (cache_bytes / line_bytes) as usize;
    let mut lines: Vec<u64> = Vec::with_capacity(capacity);
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut rng = Rng::new(99);
    let mut misses: HashMap<u32, u64> = HashMap::new();
    for access in Program::new(plan.seed).take(plan.accesses as usize) {
        let line = access.address / line_bytes;
        if places.contains_key(&line) {
            continue;
        }
        *misses.entry(access.ip).or_default() += 1;
        if lines.len() < capacity {
            places.insert(line, lines.len());
            lines.push(line);
        } else {
            let victim = rng.below(capacity as u64) as usize;
            places.remove(&lines[victim]);
            places.insert(line, victim);
            lines[victim] = line;
        }
    }
    Truth {
        accesses: plan.accesses,
        misses,
    }
}

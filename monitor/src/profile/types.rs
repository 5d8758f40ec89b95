//! What a profile holds: the contract between the engines that measure and the views that report.
//!
//! Nothing here does IO or knows a process; everything is plain data in the units its name says.
//! A profile is a stream of [`Record`]s; readers fold it into a [`Profile`].

use serde::{Deserialize, Serialize};

/// The five line sizes followed by every sample, in bytes, smallest first.
pub const LINE_SIZES: [u32; 5] = [16, 32, 64, 128, 256];

/// Version of the record layout below, and the oldest that it holds all of; a reader refuses any other.
pub const SCHEMA_VERSION: u32 = 10;
/// See [`SCHEMA_VERSION`].
pub const OLDEST_SCHEMA_VERSION: u32 = 3;

/// Index of a module in the profile's module table.
pub type ModuleId = u32;
/// Index of an instruction in the profile's instruction table.
pub type InstrId = u32;
/// Index of an allocation site in the profile's table of them.
pub type SiteId = u32;

/// First record of every profile: what was run, where and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// `CARGO_PKG_VERSION` of the writer.
    pub statcache_version: String,
    /// The command line as given.
    pub command: Vec<String>,
    /// Working directory of the program at its start.
    pub cwd: String,
    /// Process id of the profiled process, and of its parent.
    pub pid: i32,
    /// Parent process id.
    pub ppid: i32,
    /// `translate`, `counter` or `step`.
    pub engine: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Requested overhead, per cent of wall time.
    pub overhead_percent: f64,
    /// Whether the whole run was observed (`--full`).
    pub full: bool,
    /// Start of the run, seconds since the Unix epoch.
    pub start_unix_s: f64,
    /// Processor model name of the host.
    pub host_cpu: String,
    /// Data-cache levels of the host, nearest first.
    pub host_caches: Vec<HostCache>,
}

impl Header {
    /// File name of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        let path = self.command.first().map_or("", String::as_str);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// A header for tests and documentation: `command` run with seed 1 on a host of three levels.
    #[must_use]
    pub fn example(command: &[&str]) -> Self {
        let level = |level, bytes, ways| HostCache {
            level,
            bytes,
            line_bytes: 64,
            ways,
        };
        Self {
            schema_version: SCHEMA_VERSION,
            statcache_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.iter().map(|&s| s.to_owned()).collect(),
            cwd: "/home/user".to_owned(),
            pid: 4242,
            ppid: 4241,
            engine: "translate".to_owned(),
            seed: 1,
            overhead_percent: 10.0,
            full: false,
            start_unix_s: 1_700_000_000.0,
            host_cpu: "Example CPU".to_owned(),
            host_caches: vec![
                level(1, 48 << 10, 12),
                level(2, 2 << 20, 16),
                level(3, 32 << 20, 16),
            ],
        }
    }
}

/// One data or unified cache level of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCache {
    /// 1 for the cache nearest to the core.
    pub level: u8,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Ways; 0 when unknown.
    pub ways: u32,
}

/// A mapped object the program executed from or touched data in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// Path as the kernel gives it in `/proc/PID/maps` (`[vdso]` included).
    pub path: String,
    /// Address in the process minus address in the object file (the load bias).
    pub bias: u64,
    /// GNU build id in lower-case hexadecimal, empty when there is none.
    pub build_id: String,
}

/// An instruction that was a sample or a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instr {
    /// The module it lies in; `None` for anonymous (generated) code.
    pub module: Option<ModuleId>,
    /// Address in the object file, or the process address where `module` is `None`.
    pub offset: u64,
}

/// How the watch of a sample ended at one line size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The line was touched again.
    Reused {
        /// Line references strictly between, at this line size.
        distance: u64,
        /// The instruction that touched it.
        trigger: InstrId,
        /// Whether the trigger wrote.
        store: bool,
    },
    /// The watch was ended by us after this many line references without a touch.
    Censored {
        /// Line references after the sampled one, all without a touch (`d >= at`).
        at: u64,
    },
    /// The process ended and the line had not been touched.
    NeverReused {
        /// Line references after the sampled one until the end.
        at: u64,
    },
    /// Not followed at this line size.
    NotFollowed,
}

/// What kind of memory a sampled address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Memory {
    /// A file-backed data segment (or its .bss) of a module; the symbol is found from the offset.
    Static {
        /// The module.
        module: ModuleId,
        /// Address in the object file.
        offset: u64,
    },
    /// The `[heap]` mapping or an anonymous mapping; of no block that is known.
    Heap,
    /// A block of the heap.
    Allocated {
        /// Where it was allocated.
        site: SiteId,
    },
    /// The stack of a thread, with what it has for itself in the same mapping (thread-local data, the C library's own).
    Stack,
    /// Any other mapping.
    Mapping,
}

/// Bits of [`SampleRecord::flags`].
pub mod sample_flags {
    /// The sampled access wrote.
    pub const STORE: u8 = 1;
    /// The sampled access also read (read-modify-write), or only read when `STORE` is clear.
    pub const LOAD: u8 = 2;
    /// The touched-byte mask of this sample is valid (bytes used per fetched line).
    pub const FOOTPRINT: u8 = 4;
    /// A watch was given up for a reason of its line: where this sample's outcomes are censored, they
    /// are so in dependence on the distance.
    pub const GIVEN_UP: u8 = 8;
}

/// One sampled line reference and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// The instruction that made the sampled access.
    pub ip: InstrId,
    /// Effective address of the access.
    pub address: u64,
    /// Size of the access in bytes.
    pub size: u16,
    /// See [`sample_flags`].
    pub flags: u8,
    /// Thread that made it.
    pub tid: i32,
    /// Position of the sample: references at 64-byte lines since the window's start, by all its threads.
    pub position: u64,
    /// What kind of memory it lies in.
    pub memory: Memory,
    /// Own-thread outcome for each of [`LINE_SIZES`].
    pub own: [Outcome; 5],
    /// What the other threads of its window did; `None` where the window had one thread, whose own
    /// outcomes are those of all threads.
    pub shared: Option<Box<Shared>>,
}

/// Bits of [`Shared::remote`].
pub mod remote_flags {
    /// Another thread read the line before its own thread touched it again.
    pub const READ: u8 = 1;
    /// Another thread wrote it: the copy in a private cache was lost.
    pub const WRITTEN: u8 = 2;
    /// All those writes were to bytes that neither of the thread's two accesses touched.
    pub const DISJOINT: u8 = 4;
}

/// What all threads of a window did to a sampled line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Outcome for each of [`LINE_SIZES`], whoever touches the line next, counted in the references of all threads.
    pub all: [Outcome; 5],
    /// See [`remote_flags`]; up to the thread's own next touch, or as long as it was watched.
    pub remote: [u8; 5],
    /// Instruction and thread of the last remote write to the 64-byte line before its own thread's next touch.
    pub writer: Option<(InstrId, i32)>,
}

/// One sampling window, complete when written. With `contiguous_with_previous`, the window
/// continues the previous one without a gap and watches cross the border: a sample belongs to the
/// window in which it was taken and is written with the window in which its watch ended, `taken_in`
/// naming the former.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowRecord {
    /// Number of the window, from 0.
    pub index: u32,
    /// Seconds since the start of the run.
    pub start_s: f64,
    /// CPU seconds of the thread at its start.
    pub cpu_start_s: f64,
    /// Wall seconds the window took, our own work included.
    pub wall_s: f64,
    /// Whether it continues the window before it.
    pub contiguous_with_previous: bool,
    /// The thread it observed, or the first of several.
    pub tid: i32,
    /// Accesses executed inside the window, by all its threads.
    pub accesses: u64,
    /// Line references inside the window for each of [`LINE_SIZES`], by all its threads.
    pub refs: [u64; 5],
    /// The share of each of its threads, where it had several.
    pub threads: Vec<ThreadShare>,
    /// Native accesses this window stands for (rate around it times the CPU time represented), with bounds.
    pub stands_for: Estimate,
    /// Samples whose watches ended (or were cut) in this window.
    pub samples: Vec<TakenSample>,
    /// Units declined while it was open.
    pub declined: u32,
    /// First touches of lines in it, where all of its accesses were looked at.
    pub first_touches: Option<FirstTouches>,
}

/// First touches in a window of lines drawn at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstTouches {
    /// Some of those seen, a random choice, in any order.
    pub touches: Vec<FirstTouch>,
    /// How many were seen.
    pub seen: u64,
    /// One 64-byte line in so many was drawn.
    pub one_in: u32,
    /// Empty where they are those of the window. In a run observed as a whole, references at 64-byte lines since the window's start
    /// before each *epoch* that began in it: touches are the first in their epoch.
    pub epochs: Vec<u64>,
}

/// The first touch of a 64-byte line in its window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstTouch {
    /// The instruction.
    pub ip: InstrId,
    /// References at 64-byte lines since the window's start, before it.
    pub position: u64,
    /// What kind of memory the line lies in.
    pub memory: Memory,
    /// The thread; in windows of several each of them has a first touch of the line.
    pub tid: i32,
    /// Whether no other thread of the window touched it before.
    pub of_all: bool,
    /// References at 64-byte lines since the line was touched before, where there are epochs.
    pub since: Since,
}

/// How far away the last touch of a line is, in references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Since {
    /// So far at least, if ever it was.
    AtLeast(u64),
    /// So far at least, and at most.
    Between(u64, u64),
}

/// What one thread did in a window that observed several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// The thread.
    pub tid: i32,
    /// Accesses it executed.
    pub accesses: u64,
    /// Its line references for each of [`LINE_SIZES`].
    pub refs: [u64; 5],
}

/// A sample with the window it was taken in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakenSample {
    /// Index of the window in which the sample was taken.
    pub taken_in: u32,
    /// The sample.
    pub sample: SampleRecord,
}

/// A value with the bounds we can vouch for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Best value.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Estimate {
    /// So many times as much.
    #[must_use]
    pub fn times(self, factor: f64) -> Estimate {
        Estimate {
            value: factor * self.value,
            low: factor * self.low,
            high: factor * self.high,
        }
    }
}

/// What a warning says of a profile that was ended before its program.
pub const ENDED_EARLY: &str = "the profile was ended before the program";

/// Something the user should know about the result, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What happened.
    pub what: String,
    /// What the user can do.
    pub remedy: String,
}

/// One resolved source position; an instruction may have several (inline chain, innermost first).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Demangled function, or nearest symbol `+0x..`; empty when unknown.
    pub function: String,
    /// Source file; empty when unknown.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
}

/// Last record: how the run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// Exit status as a shell would see it (128+n for signal n); `None` when it was detached alive.
    pub exit_status: Option<i32>,
    /// Wall seconds of the whole run.
    pub wall_s: f64,
    /// CPU seconds of the program.
    pub cpu_s: f64,
    /// Wall seconds spent in windows.
    pub window_wall_s: f64,
    /// Accesses of the whole run, estimated (exact with `--full`).
    pub accesses_estimated: Estimate,
    /// Most memory the program had in use at a time, in bytes (its peak resident set, without what
    /// is ours): bounds the lines it can touch. 0 when unknown.
    pub footprint_bytes: u64,
    /// Everything that makes the result less sure.
    pub warnings: Vec<Warning>,
}

/// A process of the run. The first one, number 0, is the header's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Number in the order of birth; process ids may come back.
    pub id: u32,
    /// Process id.
    pub pid: i32,
    /// Parent process id.
    pub ppid: i32,
    /// The command line of the program it executed last.
    pub command: Vec<String>,
}

/// One record of the profile stream, in the order the monitor writes them. What follows a
/// [`Record::Process`] is of that process, up to the next: each has its own tables, windows and footer. Tables grow: a record
/// appends to the table of its kind, and what is referred to comes before the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Always first.
    Header(Header),
    /// Appended to the module table.
    Modules(Vec<Module>),
    /// Appended to the instruction table.
    Instrs(Vec<Instr>),
    /// A complete window.
    Window(WindowRecord),
    /// Source positions of instructions, resolved before the file is closed; index = [`InstrId`].
    Symbols(Vec<Vec<Frame>>),
    /// Names of static objects: module, start offset, size, name.
    DataSymbols(Vec<(ModuleId, u64, u64, String)>),
    /// More allocation sites: the calls that led to each, the one of the allocator first.
    Sites(Vec<Vec<InstrId>>),
    /// Last of its process in a finished profile; the first process's comes last of all.
    Footer(Footer),
    /// Says which process the records behind it belong to. A later one of the same number replaces
    /// what an earlier one said.
    Process(ProcessRecord),
    /// Factors by which windows, given by their numbers, stand for more or less of the run than was known when they were
    /// written.
    Shares(Vec<(u32, Estimate)>),
    /// How many looks at where the program was between windows these, given by their numbers, stand for.
    Looks(Vec<(u32, f64)>),
    /// What looks between windows tell of the time in code that no window began with.
    Unmet(Unmet),
}

/// See [`Record::Unmet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unmet {
    /// Looks into such code, and the CPU seconds that they stand for.
    pub looks: u32,
    /// See `looks`.
    pub unmet_s: f64,
    /// All looks, and the same of those.
    pub of: u32,
    /// See `of`.
    pub of_s: f64,
    /// CPU seconds outside of windows, with those that no look stands for.
    pub all_s: f64,
}

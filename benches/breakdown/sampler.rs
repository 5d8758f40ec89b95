//! Runs a profiler with its program below it and samples both by the kernel's task clock.
//!
//! Source: perf_event_open(2), `PERF_COUNT_SW_TASK_CLOCK`: an event of our own that everything started from here inherits,
//! one for each processor, as inherited events of all processors have no ring.

use super::classes::{Class, in_cache};
use super::common::Result;
use iced_x86::Register;
use nix::unistd::Pid;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use procfs::process::Process;
use rustc_hash::FxHashMap;
use statcache::profile::types::{Instr, Module};
use statcache::symbols;
use statcache::tracee::maps::{Backing, Maps};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use std::{env, fs, io, thread};

/// First argument that makes this benchmark the wrapper of one run.
pub const SAMPLE: &str = "--sample";
/// Nanoseconds between two samples: no divisor of the clock ticks of common kernels.
const PERIOD_NS: u64 = 997_000;
/// Bytes of a processor's samples until they are read.
const RING: usize = 4 << 20;
const READ_EVERY: Duration = Duration::from_millis(40);
/// General registers of a sample, in the kernel's order (`asm/perf_regs.h`).
const REGISTERS: [(u64, Register); 16] = [
    (0, Register::RAX),
    (1, Register::RBX),
    (2, Register::RCX),
    (3, Register::RDX),
    (4, Register::RSI),
    (5, Register::RDI),
    (6, Register::RBP),
    (7, Register::RSP),
    (16, Register::R8),
    (17, Register::R9),
    (18, Register::R10),
    (19, Register::R11),
    (20, Register::R12),
    (21, Register::R13),
    (22, Register::R14),
    (23, Register::R15),
];

/// Acts as the wrapper `--sample FILE STATCACHE ...` of one run, when this process was started as that; does not return then.
/// FILE gets a line for each class with its number of samples.
pub fn sample_if_asked() {
    let words: Vec<std::ffi::OsString> = env::args_os().skip(1).collect();
    let [first, report, program, rest @ ..] = words.as_slice() else {
        return;
    };
    if first != SAMPLE {
        return;
    }
    let mut command = Command::new(program);
    command.args(rest);
    let code = match sample(Path::new(report), Path::new(program), &mut command) {
        Ok(status) => status.code().unwrap_or(128),
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            127
        }
    };
    std::process::exit(code)
}

fn events(with_kernel: bool) -> io::Result<Vec<Sampler>> {
    let processors = thread::available_parallelism()?.get();
    let mask = REGISTERS.iter().map(|r| 1 << r.0).sum();
    let one = |cpu| {
        let sampled = Builder::new(Software::TASK_CLOCK)
            .observe_self()
            .one_cpu(cpu)
            .inherit(true)
            .exclude_kernel(!with_kernel)
            .exclude_hv(true)
            .sample_period(PERIOD_NS)
            .sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::REGS_USER)
            .sample_regs_user(mask)
            .enabled(true)
            .build()?;
        sampled.sampled(RING)
    };
    (0..processors).map(one).collect()
}

fn sample(report: &Path, profiler: &Path, command: &mut Command) -> Result<ExitStatus> {
    let mut rings = match events(true) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => events(false)?,
        other => other?,
    };
    let mut child = command.spawn()?;
    let mut counts = Counts::new(profiler);
    let status = loop {
        let status = child.try_wait()?;
        counts.begin();
        for ring in &mut rings {
            while let Some(record) = ring.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record()
                    && let (Some(pid), Some(ip)) = (sample.pid(), sample.ip())
                {
                    let values = sample.regs_user().map(|r| r.regs.to_vec());
                    counts.add(pid as i32, ip, &values.unwrap_or_default());
                }
            }
        }
        if let Some(status) = status {
            break status;
        }
        thread::sleep(READ_EVERY);
    };
    fs::write(report, counts.table())?;
    Ok(status)
}

/// Samples so far.
struct Counts<'a> {
    profiler: &'a Path,
    classes: FxHashMap<Class, u64>,
    /// Of the profiler: by address in its file.
    profilers: FxHashMap<u64, u64>,
    processes: FxHashMap<i32, Option<Seen>>,
}

/// A process as it is now.
struct Seen {
    /// Where the profiler is loaded, if it is one: address in the process minus address in the file.
    bias: Option<u64>,
    cache: Vec<Range<u64>>,
    data: Vec<Range<u64>>,
    memory: fs::File,
}

impl<'a> Counts<'a> {
    fn new(profiler: &'a Path) -> Self {
        Counts {
            profiler,
            classes: FxHashMap::default(),
            profilers: FxHashMap::default(),
            processes: FxHashMap::default(),
        }
    }

    /// Processes may have changed.
    fn begin(&mut self) {
        self.processes.clear();
    }

    fn add(&mut self, pid: i32, ip: u64, values: &[u64]) {
        if pid == std::process::id() as i32 {
            return;
        }
        let profiler = self.profiler;
        let seen = self
            .processes
            .entry(pid)
            .or_insert_with(|| look(pid, profiler));
        let Some(seen) = seen else {
            // It is gone.
            return;
        };
        let in_kernel = ip >> 63 != 0;
        let class = match seen.bias {
            Some(_) if in_kernel => Class::Stops,
            Some(bias) => {
                *self.profilers.entry(ip.wrapping_sub(bias)).or_default() += 1;
                return;
            }
            None if in_kernel => Class::Kernel,
            None if seen.cache.iter().any(|r| r.contains(&ip)) => {
                let mut code = [0; 96];
                if seen.memory.read_at(&mut code, ip).is_err() {
                    return;
                }
                in_cache(&code, &seen.data, |register| {
                    let at = REGISTERS.iter().position(|r| r.1 == register)?;
                    values.get(at).copied()
                })
            }
            None => Class::Native,
        };
        *self.classes.entry(class).or_default() += 1;
    }

    /// A line for each class.
    fn table(mut self) -> String {
        let module = Module {
            path: self.profiler.to_string_lossy().into_owned(),
            bias: 0,
            build_id: String::new(),
        };
        let (instrs, counts): (Vec<_>, Vec<_>) = self
            .profilers
            .into_iter()
            .map(|(offset, count)| {
                let module = Some(0);
                (Instr { module, offset }, count)
            })
            .unzip();
        let chains = symbols::resolve(&[module], &instrs);
        for (chain, count) in chains.into_iter().zip(counts) {
            let class = chain.iter().find_map(|f| of_source(&f.file, &f.function));
            *self
                .classes
                .entry(class.unwrap_or(Class::Rest))
                .or_default() += count;
        }
        let line = |(class, name): &(Class, &str)| {
            format!("{name}\t{}\n", self.classes.get(class).unwrap_or(&0))
        };
        Class::ALL.iter().map(line).collect()
    }
}

/// What a function of the profiler is for; `None` where others that called it say.
fn of_source(file: &str, function: &str) -> Option<Class> {
    const TRANSLATION: [&str; 8] = [
        "translate/cache",
        "translate/fragment",
        "translate/trace.rs",
        "translate/asm.rs",
        "translate/values.rs",
        "translate/group.rs",
        "src/arch/",
        "iced-x86",
    ];
    const READING: [&str; 4] = [
        "translate/log.rs",
        "translate/expand.rs",
        "translate/filter.rs",
        "src/observe/",
    ];
    let is_in = |places: &[&str]| places.iter().any(|place| file.contains(place));
    if is_in(&TRANSLATION) || function.starts_with("iced_x86") {
        Some(Class::Translation)
    } else if is_in(&READING) {
        Some(Class::Reading)
    } else if file.contains("monitor/src/") {
        Some(Class::Rest)
    } else {
        None
    }
}

fn look(pid: i32, profiler: &Path) -> Option<Seen> {
    let maps = Maps::read(Pid::from_raw(pid)).ok()?;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let is_profiler = Process::new(pid)
        .and_then(|p| p.exe())
        .is_ok_and(|exe| exe == profiler);
    let first = maps
        .0
        .iter()
        .find(|m| matches!(&m.path, Backing::File(path) if Path::new(path) == profiler));
    let ours = |exec: bool| {
        let parts = maps.0.iter().filter(|m| {
            matches!(&m.path, Backing::File(path) if path.starts_with("/memfd:statcache"))
                && m.exec == exec
        });
        parts.map(|m| m.start..m.end).collect()
    };
    Some(Seen {
        bias: if is_profiler {
            first.map(|m| m.start - m.offset)
        } else {
            None
        },
        cache: ours(true),
        data: ours(false),
        memory,
    })
}

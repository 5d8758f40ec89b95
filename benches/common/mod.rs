//! Running the workloads of a ground-truth harness, natively and under the profiler, and what benchmarks without one share.
//!
//! The harness is a directory named by `STATCACHE_TRUTH`: `workloads.tsv`, `run.sh` (which builds
//! programs and inputs, and runs one in the environment its results were made in) and `results/`.
//! Nothing here judges figures; `score` does.

// Each benchmark uses its part.
#![allow(dead_code)]

pub mod chance;
pub mod score;

use nix::unistd::Pid;
use statcache::engine::counter::overflow::{Overflow, Unit};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// First argument that makes a benchmark the wrapper of one run.
const MEASURE: &str = "--measure";

/// The harness.
pub struct Truth {
    directory: PathBuf,
    scratch: tempfile::TempDir,
}

/// One line of `workloads.tsv`.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    pub kind: String,
}

/// One measured run.
#[derive(Clone, Debug)]
pub struct Ran {
    pub wall_s: f64,
    /// Of the program and, where it was profiled, the profiler.
    pub cpu_s: f64,
    /// Peak resident memory of the outermost process, as last seen while it ran.
    pub peak_kib: u64,
    pub status: i32,
    /// The harness's digest of the standard output.
    pub output: String,
}

impl Truth {
    /// The harness, or a line that says why `bench` is skipped.
    pub fn find(bench: &str) -> Result<Option<Truth>> {
        let Some(directory) = env::var_os("STATCACHE_TRUTH").map(PathBuf::from) else {
            println!("SKIP {bench}: STATCACHE_TRUTH is not set");
            return Ok(None);
        };
        if !directory.join("workloads.tsv").is_file() {
            println!("SKIP {bench}: no workloads.tsv in {}", directory.display());
            return Ok(None);
        }
        Ok(Some(Truth {
            directory,
            scratch: tempfile::tempdir()?,
        }))
    }

    /// Public programs of one thread: those named, or all.
    pub fn workloads(&self, named: &[String]) -> Result<Vec<Workload>> {
        self.public(named, |kind| kind != "mt", "one thread")
    }

    /// The same of several threads.
    pub fn threaded(&self, named: &[String]) -> Result<Vec<Workload>> {
        self.public(named, |kind| kind == "mt", "several threads")
    }

    fn public(
        &self,
        named: &[String],
        wanted: impl Fn(&str) -> bool,
        of: &str,
    ) -> Result<Vec<Workload>> {
        let table = fs::read_to_string(self.directory.join("workloads.tsv"))?;
        let all: Vec<Workload> = table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let mut fields = line.split('\t').map(str::to_owned);
                let (name, class, kind) = (fields.next()?, fields.next()?, fields.next()?);
                (class == "public" && wanted(&kind)).then_some(Workload { name, kind })
            })
            .collect();
        if let Some(unknown) = named.iter().find(|n| all.iter().all(|w| w.name != **n)) {
            return Err(format!("{unknown} is no public program of {of}").into());
        }
        Ok(all
            .into_iter()
            .filter(|w| named.is_empty() || named.contains(&w.name))
            .collect())
    }

    /// What the exact tracer found, where it was run.
    pub fn result(&self, name: &str, long: bool) -> Option<serde_json::Value> {
        let file = format!("{name}{}.json", if long { ".long" } else { "" });
        let text = fs::read(self.directory.join("results").join(file)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Mean error of the equation itself over all sizes, as the harness states it.
    pub fn model_floor(&self, name: &str, long: bool) -> Option<f64> {
        let text = fs::read_to_string(self.directory.join("results/MODEL_FLOOR.txt")).ok()?;
        let wanted = format!("{name}{}", if long { ".long" } else { "" });
        let line = text
            .lines()
            .find(|l| l.split_whitespace().next() == Some(&wanted))?;
        line.rsplit_once("mean ")?.1.trim().parse().ok()
    }

    /// A file of this benchmark's own, gone when it ends.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Runs a workload below `wrapper` (empty: natively) in the harness's environment.
    pub fn run(&self, name: &str, long: bool, wrapper: &[String]) -> Result<Ran> {
        let report = self.scratch("measured");
        let this = env::current_exe()?;
        let mut pre = vec![shown(&this)?, MEASURE.to_owned(), shown(&report)?];
        pre.extend_from_slice(wrapper);
        if let Some(blank) = pre.iter().find(|word| word.contains(char::is_whitespace)) {
            return Err(format!("the harness splits its wrapper at blanks: {blank:?}").into());
        }
        let mut command = Command::new("sh");
        command
            .arg(self.directory.join("run.sh"))
            .args([name, "--mode", "cmd"]);
        if long {
            command.arg("--long");
        }
        let out = command.args(["--pre", &pre.join(" ")]).output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let word = |key: &str| {
            let mut words = text
                .lines()
                .last()?
                .split_whitespace()
                .skip_while(|w| *w != key);
            words.nth(1).map(str::to_owned)
        };
        let (Some(status), Some(output)) = (word("rc"), word("sha")) else {
            let error = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(format!("{name}: the harness failed: {text}{error}").into());
        };
        let measured = fs::read_to_string(&report)?;
        let mut fields = measured.split_whitespace();
        let mut next = || fields.next().ok_or("the wrapper wrote too little");
        Ok(Ran {
            wall_s: next()?.parse()?,
            cpu_s: next()?.parse()?,
            peak_kib: next()?.parse()?,
            status: status.parse()?,
            output,
        })
    }
}

/// The wrapper that profiles into `profile`.
pub fn profiler(profile: &Path, options: &[&str]) -> Result<Vec<String>> {
    let mut words = vec![env!("CARGO_BIN_EXE_statcache").to_owned(), "run".to_owned()];
    words.extend(["-o".to_owned(), shown(profile)?]);
    words.extend(options.iter().map(|&o| o.to_owned()));
    words.push("--".to_owned());
    Ok(words)
}

/// A profile's JSON export.
pub fn export(profile: &Path) -> Result<serde_json::Value> {
    let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .arg("export")
        .arg(profile)
        .args(["--format", "json"])
        .output()?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

fn shown(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .ok_or_else(|| format!("{}: not UTF-8", path.display()))?;
    Ok(text.to_owned())
}

/// Acts as the wrapper of one run, when this process was started as that; does not return then.
pub fn measure_if_asked() {
    let words: Vec<std::ffi::OsString> = env::args_os().skip(1).collect();
    let [first, report, program, rest @ ..] = words.as_slice() else {
        return;
    };
    if first != MEASURE {
        return;
    }
    let code = match measure(Path::new(report), Command::new(program).args(rest)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            127
        }
    };
    process::exit(code)
}

fn measure(report: &Path, command: &mut Command) -> io::Result<i32> {
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = child.id();
    let peak = thread::spawn(move || peak_kib(pid));
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right types; the child is ours.
    let got = unsafe { libc::wait4(pid as i32, &raw mut status, 0, &raw mut usage) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let wall_s = start.elapsed().as_secs_f64();
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    let cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    let peak = peak.join().unwrap_or(0);
    fs::write(report, format!("{wall_s} {cpu_s} {peak}\n"))?;
    Ok(match libc::WIFSIGNALED(status) {
        true => 128 + libc::WTERMSIG(status),
        false => libc::WEXITSTATUS(status),
    })
}

/// Highest resident size of a process until it is gone (proc(5), `VmHWM`). wait4(2) is no help: what
/// it tells includes the process's own children.
fn peak_kib(pid: u32) -> u64 {
    let mut peak = 0;
    while let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let Some(kib) = line.and_then(|l| l.split_whitespace().next()?.parse().ok()) else {
            return peak;
        };
        peak = kib;
        thread::sleep(Duration::from_millis(10));
    }
    peak
}

/// Names, flags (`--flag`) and numbers (`--runs=5`) given to a benchmark.
pub struct Arguments {
    pub names: Vec<String>,
    flags: Vec<String>,
}

/// Whether this host has the counter that `--engine counter` needs; a line that says why `bench` is skipped where not.
pub fn may_count(bench: &str) -> bool {
    match Overflow::open(Pid::from_raw(0), Unit::Instructions) {
        Ok(_) => true,
        Err(refused) => {
            println!("SKIP {bench} of --engine counter: {refused}");
            false
        }
    }
}

impl Arguments {
    /// Those of this process; refuses flags that are not `known`.
    pub fn parse(known: &[&str]) -> Result<Arguments> {
        // Cargo adds `--bench`.
        let (flags, names): (Vec<_>, Vec<_>) = env::args()
            .skip(1)
            .filter(|a| a != "--bench")
            .partition(|a| a.starts_with("--"));
        for flag in &flags {
            let name = flag.split('=').next().unwrap_or(flag);
            if !known.contains(&name) {
                return Err(format!("unknown option {flag}; there are {}", known.join(" ")).into());
            }
        }
        Ok(Arguments { names, flags })
    }

    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    pub fn value(&self, flag: &str) -> Option<&str> {
        self.flags
            .iter()
            .find_map(|f| f.strip_prefix(flag)?.strip_prefix('='))
    }

    pub fn number(&self, flag: &str, default: usize) -> Result<usize> {
        Ok(self.value(flag).map_or(Ok(default), str::parse)?)
    }
}

/// Writes the raw figures of a benchmark under `benches/runs`, one row a measurement.
pub fn keep(bench: &str, header: &str, rows: &[String]) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/runs");
    fs::create_dir_all(&directory)?;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let file = directory.join(format!("{bench}-{now}.tsv"));
    fs::write(&file, format!("{header}\n{}\n", rows.join("\n")))?;
    println!("\nraw figures: benches/runs/{bench}-{now}.tsv");
    Ok(())
}

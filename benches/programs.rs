//! Programs that no ground truth covers, against themselves: `cargo bench -p statcache --bench programs -- LIST`.
//!
//! LIST is a file with a program a line: its name, a tab, and its command as words between blanks, ` < FILE` at the
//! end for its standard input (a line that begins with `#` is none). Each runs alone twice, once under `--full`, and
//! `--runs=N` (2) times at default settings, in the directory and environment of the benchmark. Told: whether output
//! and exit status are those of the program alone (where these are the same twice), the times, and how far default
//! runs are from the whole one: curves of 64-byte lines, and the estimate of all accesses. Of several processes
//! it is the one with most accesses; where several ran the same command, nothing is compared. Names after LIST choose from it. Raw figures go to `benches/runs`.

mod common;

use common::score::{Curve, beside, process_with_most};
use common::{Arguments, Result, export, keep, profiler};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(900);

/// One line of the list.
struct Program {
    name: String,
    words: Vec<String>,
    input: Option<PathBuf>,
}

/// What a run left.
struct Ran {
    wall_s: f64,
    /// Wait status (wait(2)); nothing for a run that did not end.
    status: Option<i32>,
    output: u64,
}

impl Ran {
    fn same(&self, other: &Ran) -> bool {
        self.status.is_some() && (self.status, self.output) == (other.status, other.output)
    }
}

impl Program {
    /// Nothing where there is none on the line.
    fn parse(line: &str) -> Result<Option<Program>> {
        if line.starts_with('#') || line.trim().is_empty() {
            return Ok(None);
        }
        let (name, command) = line
            .split_once('\t')
            .ok_or_else(|| format!("no name and tab before a command: {line}"))?;
        let (command, input) = match command.rsplit_once(" < ") {
            Some((command, input)) => (command, Some(PathBuf::from(input.trim()))),
            None => (command, None),
        };
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(format!("no command: {line}").into());
        }
        Ok(Some(Program {
            name: name.to_owned(),
            words,
            input,
        }))
    }

    /// Runs it below `wrapper` (empty: alone), its output in files in `place`.
    fn run(&self, wrapper: &[String], place: &Path) -> Result<Ran> {
        let words: Vec<&String> = wrapper.iter().chain(&self.words).collect();
        let (out, err) = (place.join("out"), place.join("err"));
        let input = match &self.input {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        };
        let start = Instant::now();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(input)
            .stdout(File::create(&out)?)
            .stderr(File::create(err)?)
            .process_group(0)
            .spawn()?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status.into_raw());
            }
            if start.elapsed() > LIMIT {
                // What is profiled goes on when the profiler is gone.
                killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL)?;
                child.wait()?;
                break None;
            }
            thread::sleep(Duration::from_millis(2));
        };
        let wall_s = start.elapsed().as_secs_f64();
        let mut hasher = DefaultHasher::new();
        fs::read(out)?.hash(&mut hasher);
        Ok(Ran {
            wall_s,
            status,
            output: hasher.finish(),
        })
    }
}

/// A default run beside the whole one.
struct Beside {
    random: Curve,
    lru: Curve,
    /// Estimated accesses over those that the whole run counted.
    estimate: f64,
}

/// What the same runs of all programs make together.
#[derive(Default)]
struct Together {
    all: Vec<Beside>,
    rows: Vec<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse(&["--runs"])?;
    let Some((list, names)) = arguments.names.split_first() else {
        println!("SKIP programs: no LIST is given");
        return Ok(());
    };
    let runs = arguments.number("--runs", 2)?;
    let list = fs::read_to_string(list)?;
    let programs: Result<Vec<Option<Program>>> = list.lines().map(Program::parse).collect();
    let programs: Vec<Program> = programs?.into_iter().flatten().collect();
    if let Some(unknown) = names
        .iter()
        .find(|n| programs.iter().all(|p| p.name != **n))
    {
        return Err(format!("{unknown} is not in the list").into());
    }
    println!(
        "{:14} {:>8} {:>7}  {:9} {:>7}  {:9} {:>6} {:>6} {:>7} {:>6} {:>8}",
        "program",
        "alone s",
        "--full",
        "as alone",
        "default",
        "as alone",
        "error",
        "LRU",
        "inside",
        "width",
        "estimate"
    );
    let mut together = Together::default();
    let wanted = |p: &&Program| names.is_empty() || names.contains(&p.name);
    for program in programs.iter().filter(wanted) {
        // One failure must not cost the results of an hour.
        if let Err(error) = judge(program, runs, &mut together) {
            println!("{:14} FAILED: {error}", program.name);
        }
    }
    together.print();
    keep(
        "programs",
        "program\trun\tpolicy\tcache_bytes\twhole\tmiss_ratio\tlow\thigh",
        &together.rows,
    )
}

fn judge(program: &Program, runs: usize, together: &mut Together) -> Result<()> {
    let place = tempfile::tempdir()?;
    let alone = program.run(&[], place.path())?;
    let again = program.run(&[], place.path())?;
    let steady = alone.same(&again);
    let native_s = alone.wall_s.min(again.wall_s);
    let verdict = |ran: &Ran| match ran {
        Ran { status: None, .. } => "HUNG",
        ran if ran.same(&alone) => "yes",
        ran if steady || ran.status != alone.status => "NO",
        _ => "not twice",
    };
    let profile = place.path().join("profile");
    let whole = program.run(&profiler(&profile, &["--quiet", "--full"])?, place.path())?;
    let exact = export(&profile);
    let exact = exact.as_ref().map_err(ToString::to_string);
    let exact = exact.and_then(|all| whole_of(all).map_err(|error| error.to_string()));
    let mut head = format!(
        "{:14} {native_s:>8.2} {:>7.1}  {:9}",
        program.name,
        whole.wall_s / native_s,
        verdict(&whole)
    );
    for run in 0..runs {
        let profile = place.path().join(format!("default-{run}"));
        let ran = program.run(&profiler(&profile, &["--quiet"])?, place.path())?;
        let times = format!("{:>7.2}  {:9}", ran.wall_s / native_s, verdict(&ran));
        let found = exact.clone().map_err(Into::into);
        match found.and_then(|exact| against(&export(&profile)?, exact)) {
            Ok(found) => {
                println!(
                    "{head} {times} {:>6.2} {:>6.2} {:>3}/{:<3} {:>6.2} {:>8.2}",
                    100.0 * found.random.mean_error(),
                    100.0 * found.lru.mean_error(),
                    found.random.inside(),
                    found.random.points.len(),
                    100.0 * found.random.median_width(),
                    found.estimate
                );
                together.add(&program.name, run, found);
            }
            Err(error) => println!("{head} {times} {error}"),
        }
        head = " ".repeat(head.len());
    }
    Ok(())
}

/// The process of a whole run that all are compared with: all of it was observed.
fn whole_of(export: &Value) -> Result<&Value> {
    /// Told to the access, but for what little is out of the engine's reach.
    const UNOBSERVED: f64 = 0.02;
    let most = process_with_most(export, None)?;
    let total = |key: &str| most["totals"][key].as_f64().unwrap_or(0.0);
    let (observed, all) = (total("accesses_observed"), total("accesses_estimated"));
    match most["complete"] == true && observed >= (1.0 - UNOBSERVED) * all {
        true => Ok(most),
        false => Err("not observed as a whole".into()),
    }
}

fn against(export: &Value, exact: &Value) -> Result<Beside> {
    let ours = process_with_most(export, Some(&exact["command"]))?;
    let estimated = ours["totals"]["accesses_estimated"].as_f64();
    let observed = exact["totals"]["accesses_observed"].as_f64();
    let (estimated, observed) = estimated.zip(observed).ok_or("no totals")?;
    Ok(Beside {
        random: beside(ours, exact, "random")?,
        lru: beside(ours, exact, "lru")?,
        estimate: estimated / observed,
    })
}

impl Together {
    fn add(&mut self, name: &str, run: usize, found: Beside) {
        for (policy, curve) in [("random", &found.random), ("lru", &found.lru)] {
            self.rows.extend(curve.points.iter().map(|p| {
                format!(
                    "{name}\t{run}\t{policy}\t{}\t{}\t{}\t{}\t{}",
                    p.cache_bytes, p.exact, p.got, p.low, p.high
                )
            }));
        }
        self.all.push(found);
    }

    fn print(&self) {
        if self.all.is_empty() {
            return;
        }
        let runs = self.all.len() as f64;
        for (policy, pick) in [
            ("random", (|b| &b.random) as fn(&Beside) -> &Curve),
            ("LRU", |b| &b.lru),
        ] {
            let curves = || self.all.iter().map(pick);
            let sizes: usize = curves().map(|c| c.points.len()).sum();
            let inside: usize = curves().map(Curve::inside).sum();
            println!(
                "{policy:6} mean error {:.2} points, inside the interval at {inside} of {sizes} sizes ({:.1} %)",
                100.0 * curves().map(Curve::mean_error).sum::<f64>() / runs,
                100.0 * inside as f64 / sizes as f64
            );
        }
        let mut widths: Vec<f64> = self.all.iter().map(|b| b.random.median_width()).collect();
        widths.sort_by(f64::total_cmp);
        let logs = self.all.iter().map(|b| b.estimate.ln()).sum::<f64>();
        let near = self
            .all
            .iter()
            .filter(|b| (b.estimate - 1.0).abs() <= 0.1)
            .count();
        println!(
            "median width {:.2} points; all accesses estimated at {:.2} of the whole run's (geometric mean), {near} of {} within 10 %",
            100.0 * widths[widths.len() / 2],
            (logs / runs).exp(),
            self.all.len()
        );
    }
}

//! Options of `statcache run`, parsed and checked.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::Exit;
use super::background::{self, Entered};
use crate::analysis::Analysis;
use crate::profile::Profile;
use crate::report;
use crate::session::{self, EngineChoice, Outcome, ProfileConfig, RunConfig, RunError};
use crate::sizes::parse_size;
use crate::tracee::launch::LaunchError;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, ValueEnum};

/// Where a profile is written and read when no file is named.
pub const DEFAULT_FILE: &str = "statcache.prof";

/// How samples are taken, as it is named on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// What suits the host: 'translate', so far on all.
    #[default]
    Auto,
    /// Windows of translated code; needs no hardware counters.
    Translate,
    /// Windows of single steps: exact and very slow.
    Step,
    /// The processor's counter of instructions and page protection; needs hardware counters.
    Counter,
}

impl From<EngineArg> for EngineChoice {
    fn from(named: EngineArg) -> Self {
        match named {
            EngineArg::Auto => Self::Auto,
            EngineArg::Translate => Self::Translate,
            EngineArg::Step => Self::Step,
            EngineArg::Counter => Self::Counter,
        }
    }
}

/// Raw options that `run` and `attach` share.
#[derive(Clone, Debug, Args)]
pub struct ProfileArgs {
    /// Write the profile here; an older file is kept as FILE.old.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE, value_parser = output_parser())]
    pub output: PathBuf,
    /// How samples are taken.
    #[arg(long, value_enum, default_value_t, hide_possible_values = false)]
    pub engine: EngineArg,
    /// Wall time that windows may add, in per cent of the run; the first seconds of any run have 0.24 s besides; without effect on --full.
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse_percent, allow_negative_numbers = true)]
    pub overhead: f64,
    /// Observe the whole run, whatever it costs: one thread after the other.
    #[arg(long)]
    pub full: bool,
    /// Seed of every random choice; drawn afresh when not given, and recorded in the profile.
    #[arg(long, value_name = "N", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Leave child processes alone.
    #[arg(long)]
    pub no_follow: bool,
    /// Leave the profiler in the background: 'statcache ps', 'report PID' and 'stop PID' find it.
    #[arg(long)]
    pub background: bool,
    /// Thin out older windows when the profile gets to about this size, however long the run; without effect on --full.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_most_bytes)]
    pub max_size: u64,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
}

impl From<ProfileArgs> for ProfileConfig {
    fn from(raw: ProfileArgs) -> Self {
        Self {
            output: raw.output,
            engine: raw.engine.into(),
            overhead_percent: raw.overhead,
            full: raw.full,
            seed: raw.seed.unwrap_or_else(fresh_seed),
            follow: !raw.no_follow,
            background: raw.background,
            most_bytes: raw.max_size,
            kept: true,
        }
    }
}

/// Raw options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    profile: ProfileArgs,
    /// Tell data in the heap by the call that allocated it, at a cost for each block; with the engine 'translate' only.
    #[arg(long)]
    heap_sites: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]"
    )]
    command: Vec<OsString>,
}

impl From<RunArgs> for RunConfig {
    fn from(raw: RunArgs) -> Self {
        let mut command = raw.command.into_iter();
        Self {
            // The parser requires one word; an empty name is not found like any other.
            program: command.next().unwrap_or_default(),
            args: command.collect(),
            quiet: raw.profile.quiet,
            heap_sites: raw.heap_sites,
            profile: raw.profile.into(),
        }
    }
}

/// Runs the program and tells how it went; the exit code is the program's own.
pub fn execute(args: RunArgs) -> Exit {
    let mut config = RunConfig::from(args);
    let engine = config.profile.engine;
    if config.heap_sites && !matches!(engine, EngineChoice::Auto | EngineChoice::Translate) {
        let what = "'--heap-sites' needs the engine 'translate': leave '--engine' out";
        super::Cli::command()
            .error(ErrorKind::ArgumentConflict, what)
            .exit();
    }
    let started = match background::enter(&mut config.profile, config.quiet) {
        Entered::Go(started) => started,
        Entered::Left(exit) => return exit,
    };
    let result = session::run(&config, |pid| started.tell(pid));
    conclude(result, &config.profile.output, config.quiet)
}

/// Tells how a session went; its exit code.
pub(super) fn conclude(result: Result<Outcome, RunError>, output: &Path, quiet: bool) -> Exit {
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            tell!("statcache: {error}");
            return match error {
                RunError::Refused(refused) => refused.exit,
                RunError::NoCounter(_) => Exit::Failure,
                RunError::NotAttached(refused) => refused.exit,
                RunError::Launch(LaunchError::Exec { .. }) => Exit::CannotExecute,
                // The program's own failure says more than ours.
                RunError::Fault(Some(status)) if status != 0 => Exit::Program(status as u8),
                _ => Exit::Failure,
            };
        }
    };
    if !quiet {
        summarize(output, &outcome);
    }
    let status = outcome.status.unwrap_or(0);
    if let Some(error) = &outcome.error {
        tell!("statcache: {error}");
        // The program's own failure says more than ours.
        if status == 0 {
            return Exit::Failure;
        }
    }
    Exit::Program(status as u8)
}

fn summarize(output: &Path, outcome: &Outcome) {
    for warning in &outcome.warnings {
        tell!("statcache: warning: {} ({})", warning.what, warning.remedy);
    }
    if outcome.windows == 0 || outcome.error.is_some() {
        return;
    }
    // The curve takes a moment to compute: for somebody who looks, not for a script. What went into a pipe is gone.
    if std::io::stderr().is_terminal()
        && std::fs::metadata(output).is_ok_and(|m| m.is_file())
        && let Ok(place) = super::find(output)
        // Without names, which may not be there for want of memory, and are not told.
        && crate::pool::is_there()
        && let Ok(profile) = Profile::read(&place.path)
        && let Ok(analysis) = Analysis::new(report::processes::default(&profile))
        && let Ok(summary) = report::summary(&analysis, &super::terminal::stderr())
    {
        tell!("{}", summary.trim_end());
    }
    let share = 100.0 * outcome.accesses as f64 / outcome.accesses_estimated.max(1.0);
    let file = report::shell_file(output);
    let show = if output == Path::new(DEFAULT_FILE) {
        "statcache report".to_owned()
    } else {
        format!("statcache report {file}")
    };
    let about = if share < 99.95 { "about " } else { "" };
    let of = match outcome.processes {
        0 | 1 => String::new(),
        n => format!(" of {n} processes"),
    };
    tell!(
        "statcache: {} in {}{of}, {} of {about}{} accesses observed; profile in {file} ({show})",
        report::plural(outcome.samples, "sample"),
        report::plural(outcome.windows.into(), "window"),
        report::percent(share / 100.0),
        report::count(outcome.accesses_estimated)
    );
}

fn output_parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("a profile is a file, not a stream: name one"),
        false => Ok(path),
    })
}

/// The smallest limit that leaves room for a useful profile.
const LEAST_BYTES: u64 = 256 << 10;

fn parse_most_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes >= LEAST_BYTES => Ok(bytes),
        _ => Err("give 256K or more".to_owned()),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 10_000.0 => Ok(p),
        _ => Err("give a percentage above 0, such as 10 or 2.5".to_owned()),
    }
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = text.trim().parse();
    seed.map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

/// A number nobody chose, small enough to type again.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(words: &[&str]) -> Result<RunConfig, String> {
        let line = Line::try_parse_from([&["run"], words].concat()).map_err(|e| e.to_string())?;
        Ok(line.run.into())
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let c = parse(&["--seed", "7", "-o", "x.prof", "app", "-o", "y", "--full"]).unwrap();
        assert_eq!(
            (c.program, c.args),
            ("app".into(), vec!["-o".into(), "y".into(), "--full".into()])
        );
        assert_eq!(
            (c.profile.output, c.profile.seed, c.profile.full),
            (PathBuf::from("x.prof"), 7, false)
        );
        let c = parse(&["--full", "--overhead", "2.5%", "--", "-odd-name", "--", "a"]).unwrap();
        assert_eq!(
            (c.program, c.args),
            ("-odd-name".into(), vec!["--".into(), "a".into()])
        );
        assert_eq!(
            (c.profile.overhead_percent, c.profile.full, c.profile.engine),
            (2.5, true, EngineChoice::Auto)
        );
    }

    #[test]
    fn wrong_values_are_named() {
        for (words, part) in [
            (&["-o", "-", "app"][..], "not a stream"),
            (&["--overhead", "0", "app"], "above 0"),
            (&["--overhead", "lots", "app"], "above 0"),
            (&["--engine", "magic", "app"], "translate"),
            (&["--seed", "x", "app"], "x"),
            (&["--max-size", "10K", "app"], "256K"),
            (&[], "PROGRAM"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }
}

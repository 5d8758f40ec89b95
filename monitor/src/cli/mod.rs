//! The command line: raw options in, checked configurations out, one function a verb.
//!
//! Errors end here as one line on stderr and a named exit code.

/// A line on standard error; where that is closed or full nobody is told, and all goes on.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub mod attach;
mod background;
mod caches;
mod check;
mod diff;
mod disk;
mod export;
mod limit;
mod live;
mod report;
pub mod run;
pub mod terminal;
mod top;
mod values;
mod working;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::pool;
use crate::profile::Profile;
use crate::profile::types::Instr;
use crate::report::processes;
use crate::session::{self, ForeignFiles};
use crate::symbols;
use nix::unistd::Pid;

pub use crate::exit::Exit;

/// A data-locality profiler: which lines and which data miss in caches, at which sizes, and why.
#[derive(Debug, Parser)]
#[command(name = "statcache", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a program and record a profile of it.
    Run(run::RunArgs),
    /// Watch a running process for a while and record a profile of it.
    Attach(attach::AttachArgs),
    /// List the live profiles: processes that are profiled now.
    Ps,
    /// End the profile of a process and write it; the process goes on.
    Stop(live::StopArgs),
    /// Show a profile: its miss-ratio curve, and the lines, functions and data that miss.
    Report(report::ReportArgs),
    /// Compare two profiles: whether locality got better, how sure that is, and where.
    Diff(diff::DiffArgs),
    /// Measure this host's memory hierarchy by timing alone.
    Machine(statcache_hierarchy::cli::MachineArgs),
    /// Walk about in a profile on the whole terminal, while it is written or afterwards.
    Top(top::TopArgs),
    /// Write a profile in a format other tools read.
    Export(export::ExportArgs),
    /// Tell what this host allows, and what to do about what it does not.
    Check(check::CheckArgs),
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::from_env("STATCACHE_LOG");
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .log_internal_errors(false);
    match io::stderr().is_terminal() {
        true => log.init(),
        false => log.with_ansi(false).init(),
    }
    // Wrong usage ends in here, with code 2.
    let cli = Cli::parse();
    let result = match cli.verb {
        Verb::Run(args) => Ok(run::execute(args)),
        Verb::Attach(args) => Ok(attach::execute(args)),
        Verb::Ps => live::list(),
        Verb::Stop(args) => live::stop(&args),
        Verb::Report(args) => report::execute(&args),
        Verb::Diff(args) => diff::execute(&args),
        Verb::Machine(args) => {
            let code = statcache_hierarchy::cli::run(&args);
            return ExitCode::from(u8::try_from(code).unwrap_or(Exit::Failure.code()));
        }
        Verb::Top(args) => top::execute(&args),
        Verb::Export(args) => export::execute(&args),
        Verb::Check(args) => check::execute(&args),
    };
    match result {
        Ok(exit) => exit.into(),
        // Whoever read our output has seen enough: `statcache report | head`.
        Err(error) if is_broken_pipe(&error) => Exit::Success.into(),
        Err(error) => {
            tell!("statcache: {}", line(&error));
            match error.is::<live::Nobody>() {
                true => Exit::NotFound.into(),
                false => Exit::Failure.into(),
            }
        }
    }
}

/// The process of a run that is asked for by its id or by the name of its program.
fn process<'p>(profile: &'p Profile, wanted: &str, file: &Path) -> anyhow::Result<&'p Profile> {
    processes::select(profile, wanted).with_context(|| {
        let text = processes::none_such(wanted, profile);
        format!("{}: {text}", file.display())
    })
}

/// An error and its causes in one line; without those that it names itself.
fn line(error: &anyhow::Error) -> String {
    // One that says nothing of a file is of standard output: all others are opened and named.
    let bare = error
        .is::<io::Error>()
        .then(|| "cannot write the answer".to_owned());
    let causes = error.chain().map(ToString::to_string);
    bare.into_iter()
        .chain(causes)
        .reduce(|said, cause| match said.contains(&cause) {
            true => said,
            false => format!("{said}: {cause}"),
        })
        .unwrap_or_default()
        .replace(char::is_control, " ")
}

/// Where a profile lies that was named by its path, or by the id of a process with a live one.
struct Place {
    path: PathBuf,
    is_live: bool,
}

/// Finds the profile that `named` means.
///
/// # Errors
/// When it is a number, and there is neither such a file nor such a live profile.
fn find(named: &Path) -> anyhow::Result<Place> {
    let live = live::profile_of(named)?;
    Ok(Place {
        is_live: live.is_some(),
        path: live.unwrap_or_else(|| named.to_owned()),
    })
}

/// Reads a profile; where its run broke off before names were resolved, or is live, resolves them from
/// the objects that are here.
fn load(place: &Place) -> anyhow::Result<Profile> {
    anyhow::ensure!(
        pool::is_there(),
        "no thread can be made: raise the limit of processes or of memory (ulimit -u, -v, or the container's)"
    );
    let mut profile = Profile::read(&place.path)?;
    let is_live = place.is_live;
    if is_live {
        live::mark(&mut profile);
    }
    name(&mut profile, is_live);
    for other in &mut profile.others {
        name(other, is_live);
    }
    Ok(profile)
}

fn name(profile: &mut Profile, is_live: bool) {
    let mut files = ForeignFiles::default();
    // Of a live process it is known whose id that is.
    let pid = Pid::from_raw(profile.header.pid);
    if is_live && session::is_foreign(pid) {
        for module in &profile.modules {
            files.add(pid, &module.path);
        }
    }
    profile.symbols.resize(profile.instrs.len(), Vec::new());
    // Those of generated code that have no name cannot be told one any more.
    let (instrs, symbols) = (&profile.instrs, &profile.symbols);
    let unnamed = instrs.iter().zip(symbols).enumerate();
    let unnamed =
        unnamed.filter(|(_, (instr, frames))| frames.is_empty() && instr.module.is_some());
    let (places, wanted): (Vec<usize>, Vec<Instr>) =
        unnamed.map(|(place, (&instr, _))| (place, instr)).unzip();
    let is_unnamed = !wanted.is_empty();
    if is_unnamed {
        let found = symbols::resolve_with(&files, &profile.modules, &wanted);
        for (place, frames) in places.into_iter().zip(found) {
            profile.symbols[place] = frames;
        }
    }
    // Names of a whole profile that has none were not looked up, or there are none to be had.
    if profile.data_symbols.is_empty() && (profile.footer.is_none() || is_unnamed) {
        let touched = profile.static_data();
        let names = symbols::resolve_data_with(&files, &profile.modules, touched);
        profile.name_data(names);
    }
}

/// Whether whoever reads our answer has seen enough. (A profiler that goes while it is asked is another matter.)
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    if error.is::<crate::control::AskError>() {
        return false;
    }
    let kinds = error.chain().filter_map(|e| e.downcast_ref::<io::Error>());
    kinds
        .map(io::Error::kind)
        .any(|k| k == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::types::{Footer, Frame, Header, Module};
    use clap::CommandFactory;

    /// A whole profile whose names were left out, for want of memory, but for one; the last instruction is generated code's.
    #[test]
    fn what_has_no_name_is_looked_up() {
        let known = vec![Frame {
            function: "known".into(),
            file: String::new(),
            line: 7,
        }];
        let instr = |module, offset| Instr { module, offset };
        let mut profile = Profile {
            header: Header::example(&["a"]),
            modules: vec![Module {
                path: "/proc/self/exe".into(),
                bias: 0,
                build_id: String::new(),
            }],
            instrs: vec![instr(Some(0), 64), instr(Some(0), 65), instr(None, 66)],
            windows: Vec::new(),
            looks: std::collections::BTreeMap::new(),
            unmet: None,
            symbols: vec![Vec::new(), known.clone(), Vec::new()],
            data_symbols: Vec::new(),
            sites: Vec::new(),
            footer: Some(Footer::default()),
            is_live: false,
            read_warnings: Vec::new(),
            others: Vec::new(),
        };
        name(&mut profile, false);
        let [first, second, third] = &profile.symbols[..] else {
            panic!("{:?}", profile.symbols)
        };
        assert!(!first.is_empty());
        assert_eq!(*second, known);
        assert!(third.is_empty());
        // As where a run broke off.
        profile.symbols.clear();
        name(&mut profile, false);
        assert_eq!(profile.symbols[0].len(), profile.symbols[1].len());
        assert!(!profile.symbols[0].is_empty());
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

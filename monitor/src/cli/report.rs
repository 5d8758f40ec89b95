//! `statcache report`: a profile as text.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use statcache_model::Stream;

use super::disk::Disk;
use super::run::DEFAULT_FILE;
use super::values::{PolicyArg, parse_line_size, parse_rows};
use super::working::Working;
use super::{Exit, caches, terminal};
use crate::analysis::{Analysis, By};
use crate::report::{self, Options};

/// Raw options of `report`.
#[derive(Clone, Debug, Args)]
pub(super) struct ReportArgs {
    /// The profile, or the process id of a live one.
    #[arg(value_name = "FILE|PID", default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// Cache sizes, the one to rank by first (default: this profile's host).
    #[arg(long, value_name = "32K,1M,32M", value_delimiter = ',', value_parser = caches::parse, allow_negative_numbers = true)]
    cache: Option<Vec<u64>>,
    /// Line size in bytes: 16, 32, 64, 128 or 256.
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_line_size, allow_negative_numbers = true)]
    line_size: u32,
    /// Replacement policy.
    #[arg(long, value_enum, default_value_t = PolicyArg::Random)]
    policy: PolicyArg,
    /// Whose references a cache sees, where threads ran together (default: private caches up to the
    /// last level, which all share).
    #[arg(long, value_enum, value_name = "WHOSE")]
    stream: Option<StreamArg>,
    /// Show one ranking alone.
    #[arg(long, value_enum, value_name = "KIND")]
    by: Option<ByArg>,
    /// Show so many rows of a ranking.
    #[arg(long, value_name = "N", value_parser = parse_rows, allow_negative_numbers = true)]
    top: Option<u32>,
    /// Show this process of the run: by its id, or by the name of its program.
    #[arg(long, value_name = "PID|NAME")]
    process: Option<String>,
    /// Show the source of a file or function with the figures of its lines; all of them, so without --by and --top.
    #[arg(long, value_name = "FILE|FUNCTION", conflicts_with_all = ["by", "top"])]
    source: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StreamArg {
    /// Each thread's own, as if nobody else wrote.
    Own,
    /// Each thread's own, losing lines to other threads' writes.
    Private,
    /// All threads'.
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ByArg {
    /// Source lines.
    Line,
    /// Functions as compiled.
    Function,
    /// Machine instructions.
    Instruction,
    /// Static objects, heap, stack, mappings.
    Data,
    /// Executables and shared libraries.
    Object,
    /// Sampling windows, over the time of the run.
    Window,
}

impl ReportArgs {
    fn options(&self) -> Options {
        Options {
            caches: self.cache.clone().map(caches::each_once),
            line_bytes: self.line_size,
            policy: self.policy.into(),
            stream: self.stream.map(|stream| match stream {
                StreamArg::Own => Stream::Own,
                StreamArg::Private => Stream::Private,
                StreamArg::All => Stream::All,
            }),
            by: self.by.map(|by| match by {
                ByArg::Line => By::Line,
                ByArg::Function => By::Function,
                ByArg::Instruction => By::Instruction,
                ByArg::Data => By::Data,
                ByArg::Object => By::Object,
                ByArg::Window => By::Window,
            }),
            top: self.top.map(|n| n as usize),
            source: self.source.clone(),
        }
    }
}

pub(super) fn execute(args: &ReportArgs) -> anyhow::Result<Exit> {
    let place = super::find(&args.file)?;
    let working = Working::on(format!("reading {}", place.path.display()));
    let profile = super::load(&place)?;
    drop(working);
    let shown = match &args.process {
        None => report::processes::default(&profile),
        Some(wanted) => super::process(&profile, wanted, &args.file)?,
    };
    let working = Working::on("working out miss ratios".to_owned());
    let analysis = Analysis::new(shown)?;
    let sources = Disk { profile: shown };
    let style = terminal::stdout();
    let part = args.by.is_some() || args.source.is_some();
    let text = report::render(&analysis, &args.options(), &sources, &style);
    let mut text = match profile.others.is_empty() {
        true => text?,
        false => text.with_context(|| format!("in {}", report::processes::called(shown)))?,
    };
    if part {
        text.insert_str(0, &report::processes::heading(&profile, shown, &style));
    } else if let Some(wanted) = &args.process {
        let said = report::processes::namesakes(&profile, shown, wanted, &style);
        text.insert_str(
            0,
            &(said + &report::processes::of_run(&profile, shown, &style)),
        );
    } else {
        text.insert_str(0, &report::processes::list(&profile, shown, &style));
    }
    drop(working);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Success)
}

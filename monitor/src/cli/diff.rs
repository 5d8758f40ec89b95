//! `statcache diff`: two profiles compared.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::values::{PolicyArg, parse_line_size, parse_rows};
use super::working::Working;
use super::{Exit, caches, limit, terminal};
use crate::analysis::{Analysis, By};
use crate::diff::limit::{Judged, Limit, Outcome};
use crate::diff::{Diff, Doubt, Options};
use crate::export;
use crate::profile::Profile;
use crate::profile::types::Header;
use crate::report::diff::{self as text, Side};
use crate::report::processes;

/// Rows of the table of subjects unless told otherwise.
const ROWS: usize = 10;

/// Raw options of `diff`.
#[derive(Clone, Debug, Args)]
pub(super) struct DiffArgs {
    /// The profile that changes are counted from, or the process id of a live one.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The profile that is held against it.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Cache sizes, the one to rank by first (default: the levels of AFTER's host).
    #[arg(long, value_name = "32K,1M,32M", value_delimiter = ',', value_parser = caches::parse, allow_negative_numbers = true)]
    cache: Option<Vec<u64>>,
    /// Line size in bytes: 16, 32, 64, 128 or 256.
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_line_size, allow_negative_numbers = true)]
    line_size: u32,
    /// Replacement policy.
    #[arg(long, value_enum, default_value_t = PolicyArg::Random)]
    policy: PolicyArg,
    /// What to look for changes in.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = ByArg::Line)]
    by: ByArg,
    /// Show so many rows of them (10).
    #[arg(long, value_name = "N", value_parser = parse_rows, allow_negative_numbers = true)]
    top: Option<u32>,
    /// Compare this process of the runs: by the name of its program, or by its id in one of them.
    #[arg(long, value_name = "PID|NAME")]
    process: Option<String>,
    /// As text, or as one JSON document, of all that changed.
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    format: FormatArg,
    /// Exit with 1 if this is so, beyond all doubt that intervals leave: 'miss_ratio>+0.5%' (the miss ratio rose by more than half a point, at
    /// any of the sizes), 'miss_ratio@1M>5%' (AFTER's is above 5 % in 1M), 'misses>+10%', 'accesses>+10%' (there are a tenth more); or with <. Of runs of several processes it is of the one that is compared.
    #[arg(long, value_name = "EXPR", value_parser = limit::parse)]
    fail_if: Vec<Limit>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ByArg {
    /// Source lines.
    Line,
    /// Functions as compiled.
    Function,
    /// Static objects, heap, stack, mappings.
    Data,
    /// Executables and shared libraries.
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// For people.
    Text,
    /// For programs, with a schema version.
    Json,
}

impl DiffArgs {
    fn options(&self) -> Options {
        Options {
            caches: self.cache.clone().map(caches::each_once),
            besides: self.fail_if.iter().filter_map(|l| l.cache_bytes).collect(),
            line_bytes: self.line_size,
            policy: self.policy.into(),
            by: match self.by {
                ByArg::Line => By::Line,
                ByArg::Function => By::Function,
                ByArg::Data => By::Data,
                ByArg::Object => By::Object,
            },
        }
    }
}

pub(super) fn execute(args: &DiffArgs) -> anyhow::Result<Exit> {
    let before = load(&args.before)?;
    let after = load(&args.after)?;
    let (shown_before, shown_after) = match &args.process {
        None => defaults(&before, &after),
        Some(wanted) => (
            process(&before, &after, wanted)
                .with_context(|| none(&args.before, &before, wanted))?,
            process(&after, &before, wanted).with_context(|| none(&args.after, &after, wanted))?,
        ),
    };
    let working = Working::on("working out miss ratios".to_owned());
    let analysed =
        |path: &Path, shown| Analysis::new(shown).with_context(|| format!("in {}", path.display()));
    let side = |path: &Path, whole, analysis| Side {
        file: path.display().to_string(),
        whole,
        analysis,
    };
    let analysis_before = analysed(&args.before, shown_before)?;
    let analysis_after = analysed(&args.after, shown_after)?;
    let diff = Diff::new(&analysis_before, &analysis_after, &args.options())?;
    let limits = args.fail_if.iter();
    let judged: Vec<(Limit, Vec<Judged>)> = limits
        .map(|limit| (limit.clone(), limit.judge(&diff)))
        .collect();
    let rendered = match args.format {
        FormatArg::Text => text::render(
            &side(&args.before, &before, &analysis_before),
            &side(&args.after, &after, &analysis_after),
            &diff,
            args.top.map_or(ROWS, |rows| rows as usize),
            &terminal::stdout(),
        )
        .into_bytes(),
        FormatArg::Json => {
            let files = [&args.before, &args.after].map(|path| path.to_string_lossy());
            let runs = [&analysis_before, &analysis_after];
            let top = args.top.map_or(usize::MAX, |rows| rows as usize);
            let mut bytes = Vec::new();
            let files = [&*files[0], &*files[1]];
            export::diff::write(files, runs, &diff, &judged, top, &mut bytes)?;
            bytes
        }
    };
    drop(working);
    let mut out = io::stdout().lock();
    let written = out.write_all(&rendered).and_then(|()| out.flush());
    // Whoever reads has seen enough, and is still to know how it ends.
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !args.fail_if.is_empty() => {}
        written => written?,
    }
    told(&judged, &diff, &shown_after.header)
}

fn load(named: &Path) -> anyhow::Result<Profile> {
    let place = super::find(named)?;
    let working = Working::on(format!("reading {}", place.path.display()));
    let profile = super::load(&place)?;
    drop(working);
    Ok(profile)
}

/// What is compared unless told otherwise: the process that a report of the second shows, and the one of that program in the first; where there
/// is none, the one that a report of it shows.
fn defaults<'p>(before: &'p Profile, after: &'p Profile) -> (&'p Profile, &'p Profile) {
    let after = processes::default(after);
    let shown = processes::default(before);
    let same = match shown.header.program() == after.header.program() {
        true => None,
        false => processes::select(before, after.header.program()),
    };
    (same.unwrap_or(shown), after)
}

/// The process that `wanted` names; where that is the id of one in the other run, that of the same program.
fn process<'p>(of: &'p Profile, other: &Profile, wanted: &str) -> Option<&'p Profile> {
    processes::select(of, wanted).or_else(|| {
        wanted.parse::<i32>().ok()?;
        processes::select(of, processes::select(other, wanted)?.header.program())
    })
}

fn none(path: &Path, whole: &Profile, wanted: &str) -> String {
    format!(
        "{}: {}",
        path.display(),
        processes::none_such(wanted, whole)
    )
}

/// Says which limits are met, and which may be.
///
/// # Errors
/// When one of the profiles has no samples, or broke off: a check that never fails is to be noticed, and one that fails for that.
fn told(limits: &[(Limit, Vec<Judged>)], diff: &Diff, header: &Header) -> anyhow::Result<Exit> {
    for doubt in diff.doubts.iter().filter(|_| !limits.is_empty()) {
        match doubt {
            Doubt::Empty(which) => {
                anyhow::bail!("--fail-if: {} has no samples to judge by", which.name());
            }
            Doubt::Live(which) | Doubt::Incomplete(which) => anyhow::bail!(
                "--fail-if: {} is not complete, and what is missing may be what differs: profile again",
                which.name()
            ),
            _ => {}
        }
    }
    let mut exit = Exit::Success;
    for (limit, judged) in limits {
        for judged in judged {
            match judged.outcome {
                Outcome::Met => {
                    exit = Exit::LimitMet;
                    tell!("statcache: {}", text::met(limit, judged, header));
                }
                Outcome::NotSure => {
                    tell!("statcache: {}", text::not_sure(limit, judged, header));
                }
                Outcome::Unknown => {
                    tell!("statcache: {}", text::unknown(limit, judged, header));
                }
                Outcome::NotMet => {}
            }
        }
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::change::Figure;
    use crate::diff::{Counts, Which};

    /// A check is not to pass, or to fail, for what a profile lacks.
    #[test]
    fn limits_are_held_against_whole_profiles_only() {
        let header = Header::example(&["app"]);
        let limit = limit::parse("accesses>+10%").unwrap();
        let exit = |doubts: Vec<Doubt>, limits: &[(Limit, Vec<Judged>)]| {
            let counts = Counts {
                before: Figure::default(),
                after: Figure::default(),
                change: None,
            };
            let diff = Diff {
                doubts,
                accesses: counts,
                sizes: Vec::new(),
                primary: 0,
                subjects: Vec::new(),
                options: Options {
                    caches: None,
                    besides: Vec::new(),
                    line_bytes: 64,
                    policy: statcache_model::Policy::RANDOM,
                    by: By::Line,
                },
            };
            told(limits, &diff, &header).ok()
        };
        let limits = [(limit, Vec::new())];
        assert_eq!(exit(vec![Doubt::Arguments], &limits), Some(Exit::Success));
        for which in [Which::Before, Which::After] {
            for doubt in [Doubt::Live, Doubt::Incomplete, Doubt::Empty] {
                assert_eq!(exit(vec![doubt(which)], &limits), None);
                assert_eq!(exit(vec![doubt(which)], &[]), Some(Exit::Success));
            }
        }
    }
}

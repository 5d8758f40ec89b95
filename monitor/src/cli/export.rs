//! `statcache export`: a profile for other tools.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::Exit;
use super::run::DEFAULT_FILE;
use crate::analysis::Analysis;
use crate::export::Format;

/// Raw options of `export`.
#[derive(Clone, Debug, Args)]
pub(super) struct ExportArgs {
    /// The profile, or the process id of a live one.
    #[arg(value_name = "FILE|PID", default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    format: Format,
    /// Write here; `-` is standard output.
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,
}

pub(super) fn execute(args: &ExportArgs) -> anyhow::Result<Exit> {
    let same = |a: &Path, b: &Path| {
        a.canonicalize()
            .is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
    };
    let place = super::find(&args.file)?;
    if same(&args.output, &place.path) {
        anyhow::bail!(
            "{} is the profile itself; choose another place with -o OUT",
            args.output.display()
        );
    }
    let profile = super::load(&place)?;
    // Opened before the work, so that a wrong place costs no waiting, and only for what can be read.
    let mut target = Target::open(&args.output)?;
    let analysis = Analysis::new(&profile)?;
    // Whole in memory first: a failure leaves an older export as it was.
    let mut bytes = Vec::new();
    args.format.exporter().export(&analysis, &mut bytes)?;
    target.write(&bytes)?;
    Ok(Exit::Success)
}

enum Target {
    Stdout,
    File(File, PathBuf),
}

impl Target {
    fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| {
                format!(
                    "cannot create {}; choose another place with -o OUT",
                    path.display()
                )
            })?;
        Ok(Self::File(file, path.to_owned()))
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()?;
            }
            Self::File(file, path) => {
                let regular = file.metadata().is_ok_and(|m| m.is_file());
                let write = |file: &mut File| -> io::Result<()> {
                    if regular {
                        file.set_len(0)?;
                    }
                    let mut out = BufWriter::new(file);
                    out.write_all(bytes)?;
                    out.flush()
                };
                write(file).with_context(|| {
                    format!(
                        "cannot write {}; free some space or choose another place with -o OUT",
                        path.display()
                    )
                })?;
            }
        }
        Ok(())
    }
}

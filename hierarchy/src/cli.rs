//! The verb `machine`: arguments, progress bar, output. It holds no logic of its own.

use crate::live::{Mode, Options, measure, store};
use crate::view::{render_svg, render_text};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Our own failure.
pub const EXIT_FAILURE: i32 = 125;

/// Measure this host's memory hierarchy by timing alone.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Print JSON with all raw samples.
    #[arg(long)]
    pub json: bool,
    /// Take at most 3 seconds.
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Take up to 60 seconds.
    #[arg(long)]
    pub full: bool,
    /// Write the curve of latency over footprint to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Infer again from a report written with --json instead of measuring.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "full"])]
    pub from: Option<PathBuf>,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs the verb and returns the exit code.
pub fn run(args: &MachineArgs) -> i32 {
    match work(args) {
        Ok(()) => 0,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&*error) => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "statcache: {error}");
            EXIT_FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn work(args: &MachineArgs) -> Result<(), Box<dyn std::error::Error>> {
    // The target is opened first: a minute of measuring must not end in a wrong path.
    let svg = match &args.svg {
        Some(path) => {
            Some(File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?)
        }
        None => None,
    };
    let mut kept = None;
    let report = match &args.from {
        Some(path) => {
            let text =
                std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            let old: crate::MachineReport = serde_json::from_slice(&text)
                .map_err(|e| format!("{} holds no report: {e}", path.display()))?;
            crate::MachineReport::new(old.host, old.measured_at, &old.mode, old.declared, old.raw)
        }
        None => {
            let mode = match (args.quick, args.full) {
                (true, _) => Mode::Quick,
                (_, true) => Mode::Full,
                _ => Mode::Standard,
            };
            let bar = bar();
            let report = measure(Options {
                mode,
                seed: args.seed,
                progress: &mut |what, share| {
                    bar.set_position((share * 100.0) as u64);
                    bar.set_message(what.to_string());
                },
            })?;
            bar.finish_and_clear();
            // Better a longer session's result than a quick one's in its place.
            let keep = mode != Mode::Quick || crate::cached().is_none();
            match keep.then(|| store(&report)) {
                Some(Ok(path)) => kept = Some(path),
                Some(Err(error)) => {
                    let _ = writeln!(
                        std::io::stderr(),
                        "statcache: warning: {error}; the next run will measure again"
                    );
                }
                None => {}
            }
            report
        }
    };
    if let Some(mut file) = svg {
        file.write_all(render_svg(&report).as_bytes())?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(render_text(&report).as_bytes())?;
    }
    // For somebody who looks, not for a script.
    if let Some(path) = kept
        && std::io::stderr().is_terminal()
    {
        out.flush()?;
        let _ = writeln!(
            std::io::stderr(),
            "statcache: profiles recorded from now on have these sizes marked; kept in {}",
            path.display()
        );
    }
    Ok(())
}

fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(100);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}") {
        bar.set_style(style);
    }
    bar
}

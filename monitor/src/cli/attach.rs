//! Options of `statcache attach`, parsed and checked.

use super::Exit;
use super::background::{self, Entered};
use super::run::{ProfileArgs, conclude};
use crate::session::{self, AttachConfig};
use clap::Args;

/// Raw options of `attach`.
#[derive(Clone, Debug, Args)]
pub struct AttachArgs {
    #[command(flatten)]
    profile: ProfileArgs,
    /// Watch it for so long; without, until it ends or Ctrl-C.
    #[arg(long = "for", value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// The process to watch; it goes on when we leave.
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pid: i32,
}

impl From<AttachArgs> for AttachConfig {
    fn from(raw: AttachArgs) -> Self {
        Self {
            pid: raw.pid,
            seconds: raw.seconds,
            quiet: raw.profile.quiet,
            profile: raw.profile.into(),
        }
    }
}

/// Watches the process and tells how it went.
pub(super) fn execute(args: AttachArgs) -> Exit {
    let mut config = AttachConfig::from(args);
    let started = match background::enter(&mut config.profile, config.quiet) {
        Entered::Go(started) => started,
        Entered::Left(exit) => return exit,
    };
    let result = session::attach(&config, |pid| started.tell(pid));
    let refused = result.as_ref().is_ok_and(|outcome| outcome.refused);
    let lost = result.as_ref().is_ok_and(|outcome| outcome.error.is_some());
    match conclude(result, &config.profile.output, config.quiet) {
        Exit::Program(_) if refused => Exit::CannotExecute,
        Exit::Program(_) if lost => Exit::Failure,
        // Its status is its parent's to know.
        Exit::Program(_) => Exit::Success,
        failed => failed,
    }
}

pub(super) fn parse_pid(text: &str) -> Result<i32, String> {
    let pid = text.trim().parse();
    pid.map_err(|_| "give the id of a process, as 'pidof NAME' or 'ps' tells it".to_owned())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 1e9 => Ok(s),
        _ => Err("give seconds above 0, such as 10 or 0.5".to_owned()),
    }
}

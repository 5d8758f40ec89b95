//! `statcache ps`, `statcache stop PID`, and what `report PID` needs to know.

use super::Exit;
use super::attach::parse_pid;
use crate::control::{self, Answer, Status};
use crate::profile::Profile;
use crate::report::{self, Style, fit};
use clap::Args;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Raw options of `stop`.
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// The profiled process, as 'statcache ps' lists it.
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pid: i32,
}

/// Lists the live profiles.
pub(super) fn list() -> anyhow::Result<Exit> {
    let (mut live, mut silent) = (Vec::new(), Vec::new());
    for answer in control::live() {
        match answer {
            Ok(status) => live.push(status),
            Err(error) => silent.push(error),
        }
    }
    for error in &silent {
        tell!("statcache: {error}");
    }
    if live.is_empty() && silent.is_empty() {
        tell!("statcache: no process is profiled by this user now");
        return Ok(Exit::Success);
    }
    if !live.is_empty() {
        let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs_f64();
        let text = table(&live, now, &super::terminal::stdout());
        std::io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(match silent.is_empty() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn table(live: &[Status], now: f64, style: &Style) -> String {
    let mut text = format!(
        "{:>8} {:>8} {:>8} {:>8} {:>9}  {}\n",
        "pid", "for", "windows", "samples", "size", "command, profile"
    );
    for status in live {
        let figures = format!(
            "{:>8} {:>8} {:>8} {:>8} {:>5} KiB",
            status.pid,
            lasting(now - status.start_unix_s),
            status.windows,
            status.samples,
            status.bytes.div_ceil(1024),
        );
        let output = plain(&status.output.display().to_string());
        // Where the profile is must be there in full, to be copied.
        let taken = figures.len() + output.chars().count() + 4;
        let room = style.width.saturating_sub(taken).max(COMMAND);
        let command = fit(&plain(&status.command.join(" ")), room, style);
        let _ = writeln!(text, "{figures}  {command}  {output}");
    }
    text
}

/// Without what a terminal would take for more than text.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Columns that a command has at least.
const COMMAND: usize = 16;

/// A length of time, in its largest fitting units.
fn lasting(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Ends a live profile.
pub(super) fn stop(args: &StopArgs) -> anyhow::Result<Exit> {
    let Answer::Live(status) = control::stop(args.pid)? else {
        return Err(Nobody(args.pid).into());
    };
    let output = plain(&status.output.display().to_string());
    if let Some(error) = &status.error {
        tell!("statcache: {error}");
        return Ok(Exit::Failure);
    }
    if is_gone(&status.output) {
        tell!(
            "statcache: the profile of process {} is complete, and gone: {output} was removed or renamed while it was written",
            status.pid
        );
        return Ok(Exit::Failure);
    }
    let file = report::shell_file(&status.output);
    writeln!(
        io::stdout().lock(),
        "the profile of process {} is complete: {} in {}, in {file} (statcache report {file})",
        status.pid,
        report::plural(status.samples, "sample"),
        report::plural(status.windows, "window")
    )?;
    Ok(Exit::Success)
}

/// A process was named, and has none.
#[derive(Debug, thiserror::Error)]
#[error("process {0} has no live profile of this user: 'statcache ps' lists those there are")]
pub(super) struct Nobody(i32);

/// Whether a live profile is not where it was written to any more.
fn is_gone(output: &Path) -> bool {
    matches!(output.try_exists(), Ok(false))
}

/// The profile that `named` means where it is no file but the id of a process with a live profile.
///
/// # Errors
/// When it is a number, and there is neither such a file nor such a profile.
pub(super) fn profile_of(named: &Path) -> anyhow::Result<Option<PathBuf>> {
    let pid = named.to_str().and_then(|text| text.parse().ok());
    let Some(pid) = pid.filter(|_| !named.exists()) else {
        return Ok(None);
    };
    match control::ask(pid)? {
        Answer::Live(status) if is_gone(&status.output) => anyhow::bail!(
            "the profile of process {pid} is gone: {} was removed or renamed while it is written ('statcache stop {pid}' ends it)",
            status.output.display()
        ),
        Answer::Live(status) => Ok(Some(status.output)),
        Answer::Nobody => Err(Nobody(pid).into()),
    }
}

/// Says that a profile is read while it is being written.
pub(super) fn mark(profile: &mut Profile) {
    profile.others.iter_mut().for_each(mark);
    profile.is_live = profile.footer.is_none();
    let windows = profile.windows.len();
    for warning in &mut profile.read_warnings {
        warning.what = format!("the profile is live: what its {windows} windows so far show");
        "look again later, or end it with 'statcache stop PID'".clone_into(&mut warning.remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_live_profile() {
        let status = Status {
            pid: 77,
            command: vec!["redis-server".to_owned(), "*:6379".to_owned()],
            output: PathBuf::from("/home/user/a.prof"),
            start_unix_s: 1000.0,
            windows: 12,
            samples: 3456,
            bytes: 1500,
            ..Status::default()
        };
        let style = Style {
            width: 120,
            colour: false,
            unicode: false,
        };
        let text = table(&[status], 1000.0 + 7265.0, &style);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            [
                "77",
                "2h01m",
                "12",
                "3456",
                "2",
                "KiB",
                "redis-server",
                "*:6379",
                "/home/user/a.prof"
            ]
        );
        assert_eq!(lasting(200_000.0), "2d07h");
    }
}

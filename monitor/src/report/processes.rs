//! The processes of a run, busiest first.

use std::fmt::Write;

use super::format::{count, percent, plural};
use super::style::{Ink, Style, fit, wrap};
use crate::profile::Profile;

/// Rows at most.
const ROWS: usize = 12;
/// A first process that made less than this share of the accesses of the busiest only started it, as a script's shell does.
const STARTER: f64 = 0.1;

/// The first process and all others.
fn all(profile: &Profile) -> impl Iterator<Item = &Profile> {
    std::iter::once(profile).chain(&profile.others)
}

/// All of them, the one with most CPU time first.
pub(crate) fn busiest_first(profile: &Profile) -> Vec<&Profile> {
    let mut processes: Vec<&Profile> = all(profile).collect();
    processes.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    processes
}

/// What a process weighs: CPU seconds, or what was seen of it where the profile has no end.
pub(crate) fn weight(process: &Profile) -> f64 {
    match &process.footer {
        Some(footer) => footer.cpu_s,
        None => process.windows.iter().map(|w| w.wall_s).sum(),
    }
}

fn base_name(process: &Profile) -> &str {
    process.header.program()
}

/// The process that `wanted` names: by process id, or by the name of its program, the busiest of
/// that name; `None` when there is none.
#[must_use]
pub fn select<'p>(profile: &'p Profile, wanted: &str) -> Option<&'p Profile> {
    let pid = wanted.parse::<i32>().ok();
    all(profile)
        .filter(|p| Some(p.header.pid) == pid || base_name(p) == super::format::base_name(wanted))
        .max_by(|a, b| accesses(a).total_cmp(&accesses(b)))
}

/// Accesses that the windows of a process stand for.
fn accesses(process: &Profile) -> f64 {
    process.windows.iter().map(|w| w.stands_for.value).sum()
}

/// The process that a report shows unless told otherwise: the first, or where nothing of that was
/// seen, or next to nothing was done by it, the busiest of which something was. (By accesses: where a run is observed whole what most processor
/// time of a short process is spent on is its start, which we slow down.)
#[must_use]
pub fn default(profile: &Profile) -> &Profile {
    let seen = profile.others.iter().filter(|p| !p.windows.is_empty());
    let busiest = seen.max_by(|a, b| accesses(a).total_cmp(&accesses(b)));
    let is_starter = |busiest: &&Profile| {
        profile.windows.is_empty() || accesses(profile) < STARTER * accesses(busiest)
    };
    busiest.filter(is_starter).unwrap_or(profile)
}

/// Most that an error message names.
const NAMED: usize = 10;

/// Their ids and names, busiest first, for an error message.
#[must_use]
pub fn names(profile: &Profile) -> String {
    let mut processes: Vec<&Profile> = all(profile).collect();
    processes.sort_by(|a, b| accesses(b).total_cmp(&accesses(a)));
    let more = processes.len().saturating_sub(NAMED);
    let named = processes.iter().take(NAMED);
    let mut names: Vec<String> = named
        .map(|process| format!("{} {}", process.header.pid, base_name(process)))
        .collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// An error's text where a process that was asked for is in none of them.
#[must_use]
pub fn none_such(wanted: &str, profile: &Profile) -> String {
    format!("no process {wanted} in it; there are: {}", names(profile))
}

/// A process by its id and command.
#[must_use]
pub fn called(process: &Profile) -> String {
    let header = &process.header;
    format!("process {} ({})", header.pid, header.command.join(" "))
}

/// Which process a part of a report is about; empty where there is one only.
#[must_use]
pub fn heading(profile: &Profile, shown: &Profile, style: &Style) -> String {
    if profile.others.is_empty() {
        return String::new();
    }
    let line = fit(&called(shown), style.width, style);
    format!("{}\n\n", style.paint(Ink::Faint, &line))
}

/// That others have the name by which `shown` was asked for, and how they are seen; empty where none has, or it was asked for by its id.
#[must_use]
pub fn namesakes(profile: &Profile, shown: &Profile, wanted: &str, style: &Style) -> String {
    if wanted.parse() == Ok(shown.header.pid) {
        return String::new();
    }
    let named = |p: &&Profile| base_name(p) == base_name(shown);
    match all(profile).filter(named).count() {
        0 | 1 => String::new(),
        n => {
            let line = format!(
                "process {}, the busiest of {n} of this name; --process PID shows another\n\n",
                shown.header.pid
            );
            style.paint(Ink::Faint, &line)
        }
    }
}

/// The list; empty where there is one process only. `shown` is the one the report is about.
#[must_use]
pub fn list(profile: &Profile, shown: &Profile, style: &Style) -> String {
    if profile.others.is_empty() {
        return String::new();
    }
    let rows = busiest_first(profile);
    let total: f64 = rows.iter().map(|p| weight(p)).sum();
    let note = "share of their CPU time; --process PID or NAME shows one";
    let mut out = style.heading("Processes", note);
    for process in rows.iter().take(ROWS) {
        let here = std::ptr::eq(*process, shown);
        let mark = if here { style.glyph("▸", ">") } else { " " };
        let share = percent(weight(process) / total.max(1e-12));
        let accesses: f64 = process.windows.iter().map(|w| w.accesses as f64).sum();
        let seen = format!(
            "{} seen in {}",
            count(accesses),
            plural(process.windows.len() as u64, "window")
        );
        let line = format!(
            "{mark}{share:>7}  {:>7}  {:<28}  {}",
            process.header.pid,
            seen,
            process.header.command.join(" ")
        );
        let line = fit(&line.replace(char::is_control, " "), style.width, style);
        let ink = if here { Ink::Strong } else { Ink::Plain };
        let _ = writeln!(out, "{}", style.paint(ink, &line));
    }
    if rows.len() > ROWS {
        let more = format!(" and {} more", rows.len() - ROWS);
        let _ = writeln!(out, "{}", style.paint(Ink::Faint, &more));
    }
    out.push('\n');
    out + &of_run(profile, shown, style)
}

/// What is to be known of the run as a whole, which the results of the first process hold, where those of another are shown.
#[must_use]
pub fn of_run(profile: &Profile, shown: &Profile, style: &Style) -> String {
    if std::ptr::eq(profile, shown) {
        return String::new();
    }
    let mut out = String::new();
    for warning in profile.warnings() {
        let text = format!(
            "of the run, or of process {}: {}: {}",
            profile.header.pid, warning.what, warning.remedy
        );
        out.push_str(&warning_lines(&text, style));
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// A warning, wrapped beside its name.
pub(super) fn warning_lines(text: &str, style: &Style) -> String {
    let wrapped = wrap(text, style.width, 9);
    let tag = style.paint(Ink::Warm, "warning");
    format!("{tag}  {}", wrapped.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use crate::profile::types::{Estimate, Record, Warning};

    fn process(windows: u32) -> Profile {
        let stands_for = Estimate {
            value: 1e6,
            low: 1e6,
            high: 1e6,
        };
        let window = |index| Record::Window(example::window(index, 1000, stands_for));
        let windows = (0..windows).map(window);
        let records: Vec<Record> = example::beginning().into_iter().chain(windows).collect();
        Profile::from_records(records).unwrap()
    }

    #[test]
    fn the_first_is_shown_unless_it_only_started_the_others() {
        for (first, others, shown) in [
            (1, &[][..], 1),
            (2, &[15, 3], 2),
            (1, &[3, 15], 15),
            (0, &[3, 4], 4),
            (0, &[0], 0),
        ] {
            let mut profile = process(first);
            profile.others = others.iter().map(|&windows| process(windows)).collect();
            assert_eq!(default(&profile).windows.len(), shown, "{first} {others:?}");
            let style = Style {
                width: 30,
                colour: false,
                unicode: false,
            };
            let heading = heading(&profile, default(&profile), &style);
            assert_eq!(heading.is_empty(), others.is_empty(), "{heading}");
            assert!(heading.lines().all(|line| line.len() <= 30), "{heading}");
        }
    }

    #[test]
    fn what_is_to_be_known_of_the_run_is_told_with_any_process() {
        let mut profile = process(1);
        profile.others = vec![process(15)];
        profile.read_warnings = vec![Warning {
            what: "some were not observed".to_owned(),
            remedy: "run it with --full".to_owned(),
        }];
        let style = Style {
            width: 100,
            colour: false,
            unicode: false,
        };
        assert_eq!(
            of_run(&profile, &profile, &style),
            "",
            "its own report has it"
        );
        let list = list(&profile, &profile.others[0], &style);
        let told = "some were not observed: run it with --full";
        assert!(list.contains(told), "{list}");
    }
}

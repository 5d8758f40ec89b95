//! Which two profiles are compared, and what makes that hard.

use std::fmt::Write;

use super::{Side, words};
use crate::diff::{Diff, Doubt, Which};
use crate::report::format::{count, plural, seconds};
use crate::report::run::{shell_word, without_windows};
use crate::report::style::{Ink, Style, fit, notes, wrap};
use crate::sizes::format_size;

/// Columns of the names of both.
const NAME: usize = 8;

pub(super) fn head(sides: [&Side<'_>; 2], diff: &Diff, style: &Style) -> String {
    let mut out = String::new();
    for (side, which) in sides.into_iter().zip([Which::Before, Which::After]) {
        out.push_str(&profile(side, which, style));
    }
    for doubt in &diff.doubts {
        let text = doubtful(doubt, sides, diff);
        let tag = style.paint(Ink::Warm, &format!("{:<NAME$}", "note"));
        let _ = write!(out, "{tag}{}", wrap(&text, style.width, NAME).trim_start());
    }
    out
}

fn profile(side: &Side<'_>, which: Which, style: &Style) -> String {
    let analysis = side.analysis;
    let header = &analysis.profile.header;
    let room = style.width - NAME;
    let words: Vec<String> = header.command.iter().map(|a| shell_word(a)).collect();
    let mut out = format!(
        "{}{}\n",
        style.paint(Ink::Faint, &format!("{:<NAME$}", which.name())),
        style.paint(Ink::Strong, &fit(&words.join(" "), room, style))
    );
    let totals = analysis.totals();
    let mut facts = vec![side.file.clone(), words::date(header.start_unix_s)];
    facts.push(match &analysis.profile.footer {
        Some(footer) => format!("{} wall", seconds(footer.wall_s)),
        None => "no end recorded".to_owned(),
    });
    let about = if header.full { "" } else { "about " };
    facts.push(format!(
        "{about}{} accesses",
        count(totals.accesses_estimated.value)
    ));
    facts.push(format!(
        "{} in {}{}",
        plural(totals.samples, "sample"),
        plural(totals.windows, "window"),
        if header.full { ", all observed" } else { "" }
    ));
    let processes = side.whole.others.len() + 1;
    if processes > 1 {
        facts.push(format!("process {}, one of {processes}", header.pid));
    }
    let warnings = analysis.profile.warnings().count() as u64;
    if warnings > 0 {
        facts.push(format!("{} (see its report)", plural(warnings, "warning")));
    }
    for line in notes(&facts, room, style) {
        let line = format!("{}{line}", " ".repeat(NAME));
        let _ = writeln!(out, "{}", style.paint(Ink::Faint, &line));
    }
    out
}

/// What is doubtful, and what follows from it.
fn doubtful(doubt: &Doubt, sides: [&Side<'_>; 2], diff: &Diff) -> String {
    let other = |which: &Which| match which {
        Which::Before => Which::After.name(),
        Which::After => Which::Before.name(),
    };
    let sizes = |bytes: &[u64]| match bytes {
        [] => "unknown caches".to_owned(),
        bytes => {
            let sizes: Vec<String> = bytes.iter().map(|&b| format_size(b)).collect();
            format!("caches of {}", words::listed(&sizes))
        }
    };
    match doubt {
        Doubt::Empty(which) => {
            let side = sides[usize::from(*which == Which::After)];
            format!(
                "nothing can be compared, as {} has no samples: {}",
                which.name(),
                without_windows(side.analysis).1
            )
        }
        Doubt::Incomplete(which) => format!(
            "{} is not complete: only what is in it is compared",
            which.name()
        ),
        Doubt::Live(which) => format!("{} is still recorded", which.name()),
        Doubt::Programs(a, b) => format!(
            "different programs, {a} and {b}: a change may have nothing to do with an edit, and lines and functions are matched by their names"
        ),
        Doubt::Arguments => {
            "the program had different arguments: a change may come from its input".to_owned()
        }
        Doubt::Engines(a, b) => format!(
            "different engines, {a} and {b}: their errors differ, and a change may come from that"
        ),
        Doubt::Whole(which) => format!(
            "{} was observed as a whole, {} in windows: their errors differ, and what no window of {} saw is in one only",
            which.name(),
            other(which),
            other(which)
        ),
        Doubt::Attached(which) => format!(
            "{} was attached to, {} was not: they are of different parts of a run",
            which.name(),
            other(which)
        ),
        Doubt::Threads(which) => format!(
            "windows of {} saw several threads together, those of {} one at a time",
            which.name(),
            other(which)
        ),
        Doubt::Hosts(a, b) => {
            let taken = match diff.options.caches {
                None => "; sizes below are those of the latter",
                Some(_) => "",
            };
            format!(
                "recorded on different hosts, before with {}, after with {}{taken}",
                sizes(a),
                sizes(b)
            )
        }
    }
}

//! What the change comes from.

use std::fmt::Write;

use super::sizes::caches;
use super::words::{ink, points, points_interval, verdict};
use crate::analysis::sizes::label;
use crate::diff::change::Verdict;
use crate::diff::{Changed, Diff, Presence};
use crate::profile::types::Header;
use crate::report::ranking::{name_of, plural_of, singular_of};
use crate::report::style::{Ink, Style, fit, fit_end, wrap};

/// Width from which on changes have their intervals.
const INTERVALS: usize = 76;
/// Columns of a figure, of an interval, of a verdict.
const FIGURE: usize = 7;
const SPAN: usize = 15;
const VERDICT: usize = 7;

pub(super) fn table(diff: &Diff, header: &Header, top: usize, style: &Style) -> String {
    let by = diff.options.by;
    let cache = label(header, diff.sizes[diff.primary].cache_bytes());
    let title = format!("What changed most in {cache}");
    let note = format!("points of the miss ratio, {}", caches(diff));
    let mut out = style.heading(&title, &note);
    let wide = style.width >= INTERVALS;
    let span = if wide { SPAN + 1 } else { 0 };
    let head = format!(
        "{:>FIGURE$} {:>FIGURE$} {:>FIGURE$}{:span$} {:VERDICT$}{}",
        "before",
        "after",
        "change",
        "",
        "",
        singular_of(by)
    );
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, &head));
    let shown = &diff.subjects[..top.min(diff.subjects.len())];
    let used = 3 * FIGURE + 3 + span + VERDICT;
    for changed in shown {
        let _ = writeln!(out, "{}", row(changed, wide, used, style));
    }
    let mut notes = Vec::new();
    let rest = &diff.subjects[shown.len()..];
    if !rest.is_empty() {
        let seen = rest
            .iter()
            .filter(|c| c.verdict != Verdict::NotSeen)
            .count();
        let what = match rest.len() {
            1 => singular_of(by),
            _ => plural_of(by),
        };
        notes.push(format!(
            "{} more {what}, {}; --top N shows more",
            rest.len(),
            match seen {
                0 => "none of them surely changed".to_owned(),
                n => format!("{n} of them surely changed"),
            }
        ));
    }
    if shown.is_empty() {
        notes.push("nothing misses here".to_owned());
    } else if shown.iter().all(|c| c.verdict == Verdict::NotSeen) {
        notes.push("no difference is seen in any of them".to_owned());
    }
    if shown.iter().any(|c| c.weak) {
        notes.push("~ weak: too few samples, or all but unknown".to_owned());
    }
    for note in notes {
        for line in wrap(&note, style.width, 2).lines() {
            let _ = writeln!(out, "{}", style.paint(Ink::Faint, line));
        }
    }
    out
}

fn row(changed: &Changed, wide: bool, used: usize, style: &Style) -> String {
    let is_seen = changed.verdict != Verdict::NotSeen;
    let plain = if is_seen { Ink::Plain } else { Ink::Faint };
    let ratio = |x: f64| match x {
        0.0 => "-".to_owned(),
        x if x < 0.000_05 => "<0.01".to_owned(),
        x if x < 0.099_95 => format!("{:.2}", x * 100.0),
        x => format!("{:.1}", x * 100.0),
    };
    let mark = if changed.weak { "~" } else { "" };
    let figures = format!(
        "{:>FIGURE$} {:>FIGURE$}",
        ratio(changed.before.value),
        ratio(changed.after.value)
    );
    let change = format!(
        "{:>FIGURE$}",
        format!("{mark}{}", points(changed.change.value))
    );
    let mut line = format!(
        "{} {}",
        style.paint(plain, &figures),
        style.paint(ink(changed.verdict), &change)
    );
    if wide {
        let span = format!("{:<SPAN$}", points_interval(&changed.change));
        let _ = write!(line, " {}", style.paint(Ink::Faint, &span));
    }
    // That it is new or gone says more than that this is worse or better.
    let word = match changed.presence {
        // Where it is not sure it may be chance that windows met it in one run only.
        Presence::New if is_seen => "new",
        Presence::Gone if is_seen => "gone",
        _ => verdict(changed.verdict),
    };
    let _ = write!(
        line,
        " {}",
        style.paint(ink(changed.verdict), &format!("{word:<VERDICT$}"))
    );
    let room = style.width.saturating_sub(used);
    let subject = &changed.subject;
    let (name, context) = name_of(subject, room);
    let is_place = subject.line > 0 && subject.data.is_none();
    let name = match changed.line_before {
        Some(line) if is_place => format!("{name} (was {line})"),
        _ => name,
    };
    let cut = if is_place { fit_end } else { fit };
    let name = cut(&name, room, style);
    let _ = write!(
        line,
        "{}",
        style.paint(if is_seen { Ink::Strong } else { Ink::Plain }, &name)
    );
    let left = room.saturating_sub(name.chars().count() + 1);
    if !context.is_empty() && left >= 8 {
        let _ = write!(
            line,
            " {}",
            style.paint(Ink::Faint, &fit(&context, left, style))
        );
    }
    line.trim_end().to_owned()
}

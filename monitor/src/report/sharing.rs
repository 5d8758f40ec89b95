//! What threads take from each other, and what to do about it.

use std::fmt::Write;

use statcache_model::Sharing;

use super::format::{interval, percent};
use super::ranking::{heat, name_of};
use super::run::cure;
use super::style::{Ink, Style, fit, notes, wrap};
use crate::analysis::{Pair, SharingFigures, Subject};
use crate::profile::Profile;

/// Pairs shown at most.
const PAIRS: usize = 5;
/// Share of the coherence misses from which on a pair is shown.
const SHARE: f64 = 0.01;
/// Coherence misses per reference below which they are not worth a change (guessed: with a hundred
/// cycles for a line from another core, a twentieth of a cycle a reference).
pub(crate) const MATTERS: f64 = 0.000_5;

/// The name of a verdict; `None` where there is none.
pub(crate) fn verdict(sharing: Sharing) -> Option<&'static str> {
    match sharing {
        Sharing::NoVerdict => None,
        Sharing::True => Some("true sharing"),
        Sharing::False => Some("false sharing"),
        Sharing::Mixed => Some("true and false sharing"),
    }
}

/// A line for the summary of a run.
pub(super) fn in_short(figures: &SharingFigures) -> String {
    let c = &figures.at_64;
    let mut text = format!(
        "{}{} of the references miss because another thread wrote to their line",
        if c.weak.is_some() { "~" } else { "" },
        percent(c.miss_ratio)
    );
    if let Some(pair) = shown(figures).first()
        && let Some(verdict) = verdict(pair.verdict)
    {
        let _ = write!(
            text,
            "; most of it {verdict} in {}",
            place(figures, pair.first)
        );
    }
    text
}

/// Processors that a program was on at once, on the mean, where its threads hardly ever run beside each other: of one that is on fewer
/// nobody knows, as all of them may run at once and sleep at once.
const APART: std::ops::Range<f64> = 0.6..1.1;

/// What to say where lines are lost to threads that hardly ran at the same time.
pub(crate) fn caveat(profile: &Profile) -> Option<String> {
    let header = &profile.header;
    // Of a run that is observed as a whole the times say nothing: threads have turns all the time.
    let in_turns = header.engine == "translate" && !header.full;
    let footer = profile.footer.as_ref().filter(|_| in_turns)?;
    seldom_at_once(footer.cpu_s / footer.wall_s.max(1e-9))
}

fn seldom_at_once(busy: f64) -> Option<String> {
    APART.contains(&busy).then(|| {
        format!(
            "The program was on {busy:.2} processors on the mean: its threads hardly ran at once, and lost lines where one came to run after \
             the other. In windows they have turns as if they ran at once, so this may be far too much, and so may the accesses."
        )
    })
}

/// The section of a report.
pub(super) fn section(figures: &SharingFigures, profile: &Profile, style: &Style) -> String {
    let header = &profile.header;
    let note = "64-byte lines, private caches of any size";
    let mut out = style.heading("Sharing between threads", note);
    out.push_str(&wrap(&overall(figures, header.full, style), style.width, 0));
    let shown = shown(figures);
    if shown.is_empty() {
        return out;
    }
    if let Some(text) = caveat(profile) {
        out.push_str(&wrap(&text, style.width, 0));
    }
    if let Some(text) = by_line(figures) {
        out.push_str(&wrap(&text, style.width, 0));
    }
    let head = format!(
        "\n{:>7}  {:<22}  who takes lines from whom",
        "share", "verdict"
    );
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, &head));
    for pair in &shown {
        out.push_str(&row(figures, pair, style));
    }
    let rest = figures.pairs.len() - shown.len();
    if rest > 0 {
        let share: f64 = figures.pairs[shown.len()..].iter().map(|p| p.share).sum();
        let what = if rest == 1 { "pair" } else { "pairs" };
        let text = format!(
            "         {rest} more {what} with {} of what is lost",
            percent(share)
        );
        let _ = writeln!(out, "{}", style.paint(Ink::Faint, &text));
    }
    if shown.iter().any(|p| p.verdict == Sharing::NoVerdict) {
        let text = format!(
            "  ~ weak: too few samples for a verdict; cure: {}",
            cure(header)
        );
        let _ = writeln!(
            out,
            "{}",
            style.paint(Ink::Faint, &fit(&text, style.width, style))
        );
    }
    for text in advice(figures, &shown) {
        out.push_str(&wrap(&text, style.width, 0));
    }
    out
}

/// Those worth showing.
fn shown(figures: &SharingFigures) -> Vec<&Pair> {
    if figures.at_64.miss_ratio < MATTERS {
        return Vec::new();
    }
    let pairs = figures.pairs.iter().take(PAIRS);
    pairs.take_while(|p| p.share >= SHARE).collect()
}

pub(crate) fn overall(figures: &SharingFigures, whole: bool, style: &Style) -> String {
    let c = &figures.at_64;
    let dash = style.glyph("–", "-");
    let mut text = format!(
        "of the reuses{} {} had their line to themselves, {} shared it with readers, {}{} lost it to \
         another thread's write",
        // What threads hand over more slowly than that has its end outside.
        if whole { "" } else { " within windows" },
        percent(c.private),
        percent(c.shared),
        if c.weak.is_some() { "~" } else { "" },
        percent(c.coherence)
    );
    let (low, high) = c.miss_interval;
    if c.lost == 0 {
        let _ = match percent(high).strip_prefix('<') {
            Some(bound) => write!(text, " (less than {bound})"),
            None => write!(text, " (at most {})", percent(high)),
        };
    } else {
        let _ = write!(
            text,
            ": {} of all references ({}) are coherence misses",
            percent(c.miss_ratio),
            interval(low, high, dash)
        );
    }
    if c.miss_ratio < MATTERS {
        text.push_str("; too few to matter");
        if !whole {
            text.push_str(" (of what threads hand over more slowly --full tells)");
        }
    }
    text
}

/// How much is lost at other line sizes.
pub(crate) fn by_line(figures: &SharingFigures) -> Option<String> {
    let sizes: Vec<String> = figures
        .by_line
        .iter()
        .map(|(line, c)| {
            let mark = if c.weak.is_some() { "~" } else { "" };
            format!("{line} B {mark}{}", percent(c.miss_ratio))
        })
        .collect();
    (sizes.len() > 1).then(|| format!("by line size: {}", sizes.join(", ")))
}

fn row(figures: &SharingFigures, pair: &Pair, style: &Style) -> String {
    let (mark, ink) = match pair.verdict {
        Sharing::NoVerdict => ("~", Ink::Faint),
        _ => ("", heat(pair.miss_ratio)),
    };
    let share = format!("{:>7}", format!("{mark}{}", percent(pair.share)));
    let said = format!("{:<22}", verdict(pair.verdict).unwrap_or("no verdict"));
    let arrow = match pair.first_share {
        // One side writes and does not mind.
        share if share > 0.95 && pair.second != Some(pair.first) => style.glyph("←", "<-"),
        _ => style.glyph("↔", "<->"),
    };
    let second = match pair.second {
        Some(second) => place(figures, second),
        None => "a writer not seen".to_owned(),
    };
    let first = place(figures, pair.first);
    let names = format!("{first} {arrow} {second}");
    let room = style.width.saturating_sub(33).max(20);
    let mut out = String::new();
    let fits = names.chars().count() <= room;
    let said = if fits {
        said
    } else {
        said.trim_end().to_owned()
    };
    let _ = write!(
        out,
        "{}  {}",
        style.paint(ink, &share),
        style.paint(ink, &said)
    );
    if fits {
        let names = fit(&names, room, style);
        let _ = writeln!(out, "  {}", style.paint(Ink::Strong, &names));
    } else {
        let room = style.width - 9;
        let lines = match names.chars().count() <= room {
            true => vec![names],
            false => vec![first, format!("{arrow} {second}")],
        };
        out.push('\n');
        for line in lines {
            let line = fit(&line, room, style);
            let _ = writeln!(out, "         {}", style.paint(Ink::Strong, &line));
        }
    }
    let mut why = vec![
        data(&pair.data),
        format!("{} of all references", percent(pair.miss_ratio)),
    ];
    if pair.verdict == Sharing::Mixed {
        why.push(format!(
            "other bytes of the line in {}",
            percent(pair.disjoint)
        ));
    }
    for text in notes(&why, style.width - 9, style) {
        let _ = writeln!(out, "         {}", style.paint(Ink::Faint, &text));
    }
    out
}

fn place(figures: &SharingFigures, subject: u32) -> String {
    let subject = &figures.subjects.list[subject as usize];
    let (name, context) = name_of(subject, 48);
    match context.is_empty() {
        true => name,
        false => format!("{name} {context}"),
    }
}

fn data(subject: &Subject) -> String {
    let (name, context) = name_of(subject, 48);
    match context.is_empty() {
        true => name,
        false => format!("{name}, {context}"),
    }
}

/// What would cure what is shown.
pub(crate) fn advice(figures: &SharingFigures, shown: &[&Pair]) -> Vec<String> {
    let has = |wanted: &[Sharing]| shown.iter().any(|p| wanted.contains(&p.verdict));
    let mut list = Vec::new();
    if has(&[Sharing::False, Sharing::Mixed]) {
        let mut text =
            "false sharing: threads write to different bytes of one line. Pad or align what each \
                        of them writes to lines of its own (64 bytes)"
                .to_owned();
        let at = |line: u32| figures.by_line.iter().find(|l| l.0 == line).map(|l| l.1);
        if let (Some(at_64), Some(at_128)) = (at(64), at(128))
            && at_128.interval.0 > at_64.interval.1
        {
            text.push_str("; to 128 where the processor fetches lines in pairs");
        }
        list.push(text);
    }
    if has(&[Sharing::True, Sharing::Mixed]) {
        list.push(
            "true sharing: threads write and use the same bytes. Padding does not help: write less often, or let \
             each thread keep its own copy and merge them"
                .to_owned(),
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use super::seldom_at_once;

    #[test]
    fn threads_that_take_turns_natively_are_told_of() {
        let text = seldom_at_once(0.92).expect("a caveat");
        assert!(text.contains("0.92 processors"), "{text}");
        assert_eq!([0.1, 1.9].map(seldom_at_once), [None, None]);
    }
}

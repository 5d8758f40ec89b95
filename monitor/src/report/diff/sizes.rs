//! What changed at cache sizes: ratios, counts, and the sentence that says it all.

use std::fmt::Write;

use statcache_model::{CurvePoint, Policy};

use super::words::{
    by_percent, by_points, judged, listed, marked, points, points_interval, relative,
    relative_interval,
};
use crate::analysis::sizes::label;
use crate::diff::change::Verdict;
use crate::diff::{AtSize, Counts, Diff};
use crate::profile::types::Header;
use crate::report::format::{count, interval, percent};
use crate::report::style::{Ink, Style, wrap};
use crate::report::table::of_weak;

/// Width from which on both ratios have their intervals.
const INTERVALS: usize = 96;
/// Differences below this, as a part of 1, need not be seen. (Chosen.)
const UNSEEN: f64 = 0.005;
/// Columns of the name of a cache.
const CACHE: usize = 9;
/// Columns of the change, and of its interval.
const CHANGE: usize = 7;
const SPAN: usize = 15;
/// Columns of the interval of a factor.
const FACTOR: usize = 17;

/// Replacement and line size, as headings note them.
pub(super) fn caches(diff: &Diff) -> String {
    let policy = match diff.options.policy {
        Policy::Random { .. } => "random",
        Policy::Lru { .. } => "LRU",
    };
    format!(
        "{policy} replacement, {}-byte lines",
        diff.options.line_bytes
    )
}

/// The miss ratio at the sizes asked for, and where else a difference is seen.
pub(super) fn ratios(diff: &Diff, header: &Header, style: &Style) -> String {
    let mut out = style.heading("Miss ratio by cache size", &caches(diff));
    let wide = style.width >= INTERVALS;
    let column = |name: &str| match wide {
        true => format!("{name:>9} {:<10}", ""),
        false => format!("{name:>9}"),
    };
    let head = format!(
        "{:>CACHE$} {} {}  change in points",
        "cache",
        column("before"),
        column("after")
    );
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, &head));
    let mut shown: Vec<&AtSize> = diff.sizes.iter().filter(|at| is_shown(diff, at)).collect();
    shown.sort_by_key(|at| at.cache_bytes());
    for at in &shown {
        let ratio = |point: &CurvePoint| {
            let text = format!("{:>9}", marked(point.is_weak(), point.miss_ratio));
            let ink = if point.is_weak() {
                Ink::Faint
            } else {
                Ink::Plain
            };
            let text = style.paint(ink, &text);
            if !wide {
                return text;
            }
            let span = interval(point.low, point.high, style.glyph("–", "-"));
            format!("{text} {}", style.paint(Ink::Faint, &format!("{span:<10}")))
        };
        let ink = if at.asked { Ink::Strong } else { Ink::Plain };
        let change = &at.ratio;
        let mut line = format!(
            "{} {} {}  {:>CHANGE$} {} ",
            style.paint(ink, &format!("{:>CACHE$}", label(header, at.cache_bytes()))),
            ratio(&at.before),
            ratio(&at.after),
            points(change.value),
            style.paint(Ink::Faint, &format!("{:<SPAN$}", points_interval(change)))
        );
        let used = CACHE + 2 * (10 + if wide { 11 } else { 0 }) + 2 + CHANGE + SPAN + 2;
        let room = style.width.saturating_sub(used);
        line.push_str(&judged(change.verdict(), room, style));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if shown.iter().any(|at| at.is_weak()) {
        out.push_str(&of_weak(style));
    }
    let others = diff.sizes.len() - shown.len();
    if others > 0 {
        let text = match others {
            1 => "at one other power of two from 8K to 64M no difference is seen".to_owned(),
            n => format!("at {n} other powers of two from 8K to 64M no difference is seen"),
        };
        for line in wrap(&text, style.width, 2).lines() {
            let _ = writeln!(out, "{}", style.paint(Ink::Faint, line));
        }
    }
    out
}

/// Of sizes that nobody asked for those with a difference.
fn is_shown(diff: &Diff, at: &AtSize) -> bool {
    let named = at.asked || diff.options.besides.contains(&at.cache_bytes());
    named || at.ratio.verdict() != Verdict::NotSeen
}

/// Accesses, and misses at the sizes asked for: fewer accesses at the same ratio miss less, too.
pub(super) fn counts(diff: &Diff, header: &Header, of_what: &str, style: &Style) -> String {
    let mut out = style.heading("Accesses and misses", &format!("{of_what}, estimated"));
    let head = format!("{:>14} {:>9} {:>9}  change", "", "before", "after");
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, &head));
    let mut row = |name: &str, counts: &Counts| {
        let mut line = format!(
            "{} {:>9} {:>9}  ",
            style.paint(Ink::Strong, &format!("{name:>14}")),
            count(counts.before.value),
            count(counts.after.value)
        );
        match &counts.change {
            // Nothing to be sure of, below or above.
            Some(change) if change.low <= -1.0 && change.high.is_infinite() => {
                line.push_str("unknown");
            }
            Some(change) => {
                let span = format!("{:<FACTOR$}", relative_interval(change));
                let _ = write!(
                    line,
                    "{:>CHANGE$} {} {}",
                    relative(change),
                    style.paint(Ink::Faint, &span),
                    judged(change.verdict(), style.width.saturating_sub(63), style)
                );
            }
            None => line.push_str("unknown"),
        }
        let _ = writeln!(out, "{}", line.trim_end());
    };
    row("accesses", &diff.accesses);
    for at in diff.sizes.iter().filter(|at| at.asked) {
        row(
            &format!("in {}", label(header, at.cache_bytes())),
            &at.misses,
        );
    }
    out
}

/// What changed, in a sentence or two; where nothing is seen, how little would not be.
pub(super) fn summary(diff: &Diff, header: &Header) -> String {
    let asked: Vec<&AtSize> = diff.sizes.iter().filter(|at| at.asked).collect();
    let is_seen = |at: &&AtSize| at.ratio.verdict() != Verdict::NotSeen;
    let primary = asked.get(diff.primary).copied().filter(is_seen);
    let largest = || {
        let seen = asked.iter().copied().filter(is_seen);
        seen.max_by(|a, b| a.ratio.value.abs().total_cmp(&b.ratio.value.abs()))
    };
    let mut sentences = Vec::new();
    let first = primary.or_else(largest);
    if let Some(at) = first {
        sentences.push(format!(
            "At {} the miss ratio {} by {}: from {} to {}.",
            label(header, at.cache_bytes()),
            verb(at.ratio.verdict()),
            by_points(&at.ratio),
            percent(at.before.miss_ratio),
            percent(at.after.miss_ratio)
        ));
    }
    let others = |verdict: Verdict| {
        let others = asked.iter().filter(|at| at.ratio.verdict() == verdict);
        let others = others.filter(|at| first.is_none_or(|f| f.cache_bytes() != at.cache_bytes()));
        let names: Vec<String> = others.map(|at| label(header, at.cache_bytes())).collect();
        (!names.is_empty()).then(|| listed(&names))
    };
    for verdict in [Verdict::Better, Verdict::Worse] {
        if let Some(names) = others(verdict) {
            sentences.push(format!("It {} at {names}, too.", verb(verdict)));
        }
    }
    if let Some(names) = others(Verdict::NotSeen) {
        sentences.push(match first {
            Some(_) => format!("No difference was seen at {names}."),
            None => format!("No difference in the miss ratio was seen at {names}."),
        });
    }
    if first.is_none()
        && let Some(at) = asked.get(diff.primary)
    {
        let half = (at.ratio.high - at.ratio.low) / 2.0;
        if half >= UNSEEN {
            let decimals = usize::from(half < 0.1);
            sentences.push(format!(
                "One of less than about {:.decimals$} points at {} would not have been seen: --full or longer runs tell more.",
                half * 100.0,
                label(header, at.cache_bytes())
            ));
        }
    }
    let accesses = diff
        .accesses
        .change
        .filter(|c| c.verdict() != Verdict::NotSeen);
    if let Some(change) = accesses {
        sentences.push(format!(
            "Accesses {} by {}.",
            verb(change.verdict()),
            by_percent(&change)
        ));
    }
    sentences.join(" ")
}

fn verb(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "fell",
        Verdict::Worse => "rose",
        Verdict::NotSeen => "stayed",
    }
}

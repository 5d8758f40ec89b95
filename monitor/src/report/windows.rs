//! Miss ratios over the time of the run.

use std::collections::HashMap;
use std::fmt::Write;

use super::format::{count, interval, percent, seconds};
use super::style::{Ink, Style};
use crate::analysis::sizes::label;
use crate::analysis::{Analysis, Ranking, Row};

/// A strip of the whole run, then its `top` worst windows in the order of time.
pub(super) fn render(
    analysis: &Analysis<'_>,
    ranking: &Ranking,
    primary: usize,
    top: usize,
    style: &Style,
) -> String {
    let header = &analysis.profile.header;
    let windows = &analysis.profile.windows;
    let rows: HashMap<u32, &Row> = ranking.rows.iter().map(|r| (r.subject, r)).collect();
    let mut out = String::new();
    let sizes: Vec<u64> = ranking
        .rows
        .first()
        .map(|r| r.miss.iter().map(|m| m.cache_bytes).collect())
        .unwrap_or_default();
    let end = windows
        .iter()
        .map(|w| w.start_s + w.wall_s)
        .fold(0.0, f64::max);
    for (i, &bytes) in sizes.iter().enumerate() {
        let points = windows.iter().enumerate().filter_map(|(w, window)| {
            let row = rows.get(&(w as u32))?;
            Some((window.start_s, row.miss[i].miss_ratio))
        });
        let room = style.width.saturating_sub(30).min(100);
        let (strip, highest) = strip(points, end, room, style);
        let _ = writeln!(
            out,
            "{:>10}  {} {}",
            label(header, bytes),
            style.paint(Ink::Area, &strip),
            style.paint(Ink::Faint, &format!("up to {}", percent(highest)))
        );
    }
    let _ = writeln!(
        out,
        "{}",
        style.paint(
            Ink::Faint,
            &format!("{:>10}  0 s to {}\n", "", seconds(end))
        )
    );
    let mut heads = format!(
        "{:>7} {:>10} {:>9} {:>8}",
        "window", "start", "accesses", "samples"
    );
    for (i, &bytes) in sizes.iter().enumerate().take(fitting(style)) {
        let width = if i == primary { 22 } else { 10 };
        let _ = write!(heads, "{:>width$}", label(header, bytes));
    }
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, &heads));
    let mut worst: Vec<&Row> = ranking.rows.iter().take(top).collect();
    worst.sort_by_key(|r| r.subject);
    let mut weak = false;
    for row in worst {
        let w = &windows[row.subject as usize];
        let mut line = format!(
            "{:>7} {:>10} {:>9} {:>8}",
            w.index,
            seconds(w.start_s),
            count(w.accesses as f64),
            count(row.samples as f64)
        );
        for (i, m) in row.miss.iter().enumerate().take(fitting(style)) {
            weak |= m.weak.is_some();
            let value = if m.weak.is_some() {
                format!("~{}", percent(m.miss_ratio))
            } else {
                percent(m.miss_ratio)
            };
            let ink = if m.weak.is_some() {
                Ink::Faint
            } else {
                Ink::Plain
            };
            let text = if i == primary {
                let span = format!("({})", interval(m.low, m.high, style.glyph("–", "-")));
                format!("{value:>9} {span:>12}")
            } else {
                format!("{value:>10}")
            };
            line.push_str(&style.paint(ink, &text));
        }
        let _ = writeln!(out, "{line}");
    }
    if ranking.rows.len() > top {
        let text = format!(
            "        {} more windows: --top {}",
            ranking.rows.len() - top,
            ranking.rows.len()
        );
        let _ = writeln!(out, "{}", style.paint(Ink::Faint, &text));
    }
    if weak {
        let _ = writeln!(
            out,
            "{}",
            style.paint(Ink::Faint, "  ~ weak: too few samples to lean on")
        );
    }
    out
}

fn fitting(style: &Style) -> usize {
    style.width.saturating_sub(37 + 12) / 10
}

/// One character a time slice, its height the mean ratio of the windows that began in it.
fn strip(
    points: impl Iterator<Item = (f64, f64)>,
    end: f64,
    room: usize,
    style: &Style,
) -> (String, f64) {
    const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', '-', ':', '=', '+', '*', '#'];
    let mut slices = vec![(0.0, 0u32); room];
    for (t, ratio) in points {
        let at = if end > 0.0 {
            (t / end * room as f64) as usize
        } else {
            0
        };
        let slice = &mut slices[at.min(room - 1)];
        slice.0 += ratio;
        slice.1 += 1;
    }
    let means: Vec<Option<f64>> = slices
        .iter()
        .map(|&(sum, n)| (n > 0).then(|| sum / f64::from(n)))
        .collect();
    let highest = means.iter().flatten().copied().fold(0.0, f64::max);
    let levels = if style.unicode { UNICODE } else { ASCII };
    let text = means
        .iter()
        .map(|m| match m {
            None => ' ',
            Some(_) if highest == 0.0 => levels[0],
            Some(m) => levels[((m / highest * 8.0).ceil() as usize).clamp(1, 8) - 1],
        })
        .collect();
    (text, highest)
}

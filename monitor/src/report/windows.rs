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
    let end = run_end(analysis);
    for (i, &bytes) in sizes.iter().enumerate() {
        let points: Vec<(f64, f64)> = windows
            .iter()
            .enumerate()
            .filter_map(|(w, window)| {
                Some((window.start_s, rows.get(&(w as u32))?.miss[i].miss_ratio))
            })
            .collect();
        let room = style.width.saturating_sub(30).min(100);
        let (strip, highest) = strip(&points, end, room, style);
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
    if ranking.rows.len() > top
        && let Some(&bytes) = sizes.get(primary)
    {
        let name = label(header, bytes);
        let which = match top {
            1 => "window".to_owned(),
            _ => format!("{top} windows"),
        };
        let text = format!("the {which} with most misses in {name}, in the order of time");
        let _ = writeln!(out, "{}", style.paint(Ink::Faint, &text));
    }
    let mut heads = format!(
        "{:>7} {:>10} {:>9} {:>8}",
        "window", "start", "accesses", "samples"
    );
    let shown = columns(sizes.len(), primary, style);
    for &i in &shown {
        let bytes = sizes[i];
        let name = label(header, bytes);
        // Over the ratio, not over the interval behind it.
        let _ = match i == primary {
            true => write!(heads, "{name:>9} {:>12}", ""),
            false => write!(heads, "{name:>10}"),
        };
    }
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, heads.trim_end()));
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
        for &i in &shown {
            let m = &row.miss[i];
            weak |= m.weak;
            let value = if m.weak {
                format!("~{}", percent(m.miss_ratio))
            } else {
                percent(m.miss_ratio)
            };
            let ink = if m.weak { Ink::Faint } else { Ink::Plain };
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
            "        {} more window{}: --top {}",
            ranking.rows.len() - top,
            if ranking.rows.len() - top == 1 {
                ""
            } else {
                "s"
            },
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

/// The caches that fit into a row, in order: the one that is ranked by in any case.
fn columns(n: usize, primary: usize, style: &Style) -> Vec<usize> {
    let room = (style.width.saturating_sub(37 + 12) / 10).max(1);
    let mut shown = vec![primary];
    shown.extend((0..n).filter(|&i| i != primary).take(room - 1));
    shown.sort_unstable();
    shown
}

/// Seconds from the start of the run to its end, or to that of its last window.
pub(crate) fn run_end(analysis: &Analysis<'_>) -> f64 {
    let windows = analysis
        .profile
        .windows
        .iter()
        .map(|w| w.start_s + w.wall_s);
    let footer = analysis.profile.footer.iter().map(|f| f.wall_s);
    windows.chain(footer).fold(0.0, f64::max)
}

/// One character a time slice: the ratio of the windows that began in it, else of the last before.
/// `points` are start and ratio in the order of time.
fn strip(points: &[(f64, f64)], end: f64, room: usize, style: &Style) -> (String, f64) {
    const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', '-', ':', '=', '+', '*', '#'];
    let highest = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let levels = if style.unicode { UNICODE } else { ASCII };
    let mut text = String::new();
    let mut before = None;
    let mut next = 0;
    for slice in 1..=room {
        let until = end * slice as f64 / room as f64;
        let (mut sum, mut n) = (0.0, 0);
        while next < points.len() && (points[next].0 < until || slice == room) {
            sum += points[next].1;
            n += 1;
            next += 1;
        }
        if n > 0 {
            before = Some(sum / f64::from(n));
        }
        text.push(match before {
            None => ' ',
            Some(_) if highest == 0.0 => levels[0],
            Some(ratio) => levels[((ratio / highest * 8.0).ceil() as usize).clamp(1, 8) - 1],
        });
    }
    (text, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_that_windows_are_ranked_by_is_shown_however_narrow() {
        let shown = |width| {
            let style = Style {
                width,
                colour: false,
                unicode: false,
            };
            columns(3, 1, &style)
        };
        assert_eq!([shown(40), shown(60)], [[1], [1]]);
        assert_eq!((shown(70), shown(80)), (vec![0, 1], vec![0, 1, 2]));
    }

    #[test]
    fn a_strip_holds_what_was_seen_last_until_something_newer() {
        let style = Style {
            width: 80,
            colour: false,
            unicode: false,
        };
        let points = [(2.0, 0.1), (4.0, 0.2), (5.0, 0.4), (8.0, 0.05)];
        assert_eq!(
            strip(&points, 10.0, 10, &style),
            ("  ..:###__".to_owned(), 0.4)
        );
        assert_eq!(
            strip(&[(0.0, 0.0)], 1.0, 3, &style),
            ("___".to_owned(), 0.0)
        );
    }
}

//! The miss-ratio curve as a plot and as a table.
//!
//! The plot fills the area under the chosen policy up to the lower end of its interval, shades the
//! interval, and marks the other policy, so that it reads the same with and without colour.

use std::fmt::Write;

use statcache_model::CurvePoint;

use super::format::percent;
use super::style::{Ink, Style};
use crate::analysis::sizes::label;
use crate::profile::types::Header;
use crate::sizes::format_size;

/// Rows of the plot.
const ROWS: usize = 12;
/// Columns left of the plot: the axis's figures.
const AXIS: usize = 8;
/// Tops of the axis, in points; a quarter of each is a round figure.
const TOPS: [f64; 19] = [
    0.04, 0.08, 0.2, 0.4, 0.8, 1.2, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 32.0, 40.0, 48.0, 60.0,
    80.0, 100.0,
];

/// The two curves, at the same sizes.
pub(super) struct Curves<'a> {
    /// The chosen policy.
    pub(super) main: &'a [CurvePoint],
    /// Its name.
    pub(super) main_name: &'a str,
    /// The other policy.
    pub(super) other: &'a [CurvePoint],
    /// Its name.
    pub(super) other_name: &'a str,
    /// Line bytes times line references a CPU second: what a ratio of 1 would fetch.
    pub(super) bytes_per_second: Option<f64>,
}

pub(super) fn plot(curves: &Curves<'_>, marks: &[u64], header: &Header, style: &Style) -> String {
    let n = curves.main.len();
    if n == 0 {
        return String::new();
    }
    let wide = ((style.width - AXIS - 1) / n).clamp(1, 4);
    let highest = curves
        .main
        .iter()
        .map(|p| p.high)
        .chain(curves.other.iter().map(|p| p.miss_ratio))
        .fold(0.0, f64::max);
    let top = TOPS
        .into_iter()
        .find(|t| t / 100.0 >= highest)
        .unwrap_or(100.0)
        / 100.0;
    let step = top / ROWS as f64;
    let marked = |i: usize| marks.iter().any(|&m| column(curves.main, m) == Some(i));
    let mut out = legend(curves, style);
    for row in (0..ROWS).rev() {
        let floor = step * row as f64;
        let axis = if (row + 1) % 3 == 0 {
            tick(top, row + 1)
        } else {
            String::new()
        };
        let _ = write!(
            out,
            "{axis:>6} {}",
            style.paint(Ink::Faint, style.glyph("┤", "|"))
        );
        for (i, (p, o)) in curves.main.iter().zip(curves.other).enumerate() {
            let cell = cell(p, floor, step, style);
            // The mark of a host cache stands in the empty part of its column only.
            let mut text = match cell {
                (_, " ") if marked(i) => {
                    let line = style.paint(Ink::Faint, style.glyph("┊", ":"));
                    format!("{line}{}", " ".repeat(wide - 1))
                }
                (ink, glyph) => style.paint(ink, &glyph.repeat(wide)),
            };
            // A mark an octave shows the course; one at every point would hide the area.
            let here = p.cache_bytes.is_power_of_two()
                && o.miss_ratio >= floor
                && (o.miss_ratio < floor + step || row + 1 == ROWS);
            if here {
                let rest = match cell {
                    (_, " ") => " ".repeat(wide - 1),
                    (ink, glyph) => style.paint(ink, &glyph.repeat(wide - 1)),
                };
                text = format!("{}{rest}", style.paint(Ink::Mark, style.glyph("●", "o")));
            }
            out.push_str(&text);
        }
        trim_end(&mut out);
        out.push('\n');
    }
    out.push_str(&x_axis(curves.main, wide, style));
    out.push_str(&host_marks(curves.main, marks, wide, header, style));
    out
}

fn legend(curves: &Curves<'_>, style: &Style) -> String {
    const GAP: usize = 3;
    let entries = [
        (Ink::Area, style.glyph("██", "##"), curves.main_name),
        (Ink::Haze, style.glyph("░░", "::"), "its interval"),
        (Ink::Mark, style.glyph("●", "o"), curves.other_name),
    ];
    let mut out = " ".repeat(AXIS);
    let mut used = AXIS;
    for (ink, glyph, name) in entries {
        let wide = glyph.chars().count() + 1 + name.chars().count();
        if used > AXIS && used + GAP + wide > style.width {
            let _ = write!(out, "\n{}", " ".repeat(AXIS));
            used = AXIS;
        } else if used > AXIS {
            out.push_str(&" ".repeat(GAP));
            used += GAP;
        }
        let _ = write!(out, "{} {name}", style.paint(ink, glyph));
        used += wide;
    }
    out.push('\n');
    out
}

fn tick(top: f64, row: usize) -> String {
    let p = top * 100.0 * row as f64 / ROWS as f64;
    if top >= 0.04 {
        format!("{p:.0} %")
    } else {
        format!("{p:.2} %")
    }
}

/// What one cell of the area shows.
fn cell(p: &CurvePoint, floor: f64, step: f64, style: &Style) -> (Ink, &'static str) {
    const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let full = style.glyph("█", "#");
    let haze = style.glyph("░", ":");
    let middle = floor + step / 2.0;
    if p.low >= floor + step {
        (Ink::Area, full)
    } else if p.high <= floor {
        (Ink::Plain, " ")
    } else if p.high - p.low < step * 0.75 {
        // Narrower than a row: the height itself, as fine as the characters allow.
        let part = ((p.miss_ratio - floor) / step).clamp(0.0, 1.0);
        if style.unicode {
            (Ink::Area, EIGHTHS[(part * 8.0).round() as usize])
        } else {
            (Ink::Area, if part >= 0.5 { full } else { " " })
        }
    } else if middle <= p.low {
        (Ink::Area, full)
    } else if middle <= p.high {
        (Ink::Haze, haze)
    } else {
        (Ink::Plain, " ")
    }
}

/// The plotted column nearest to a size, by ratio.
fn column(points: &[CurvePoint], bytes: u64) -> Option<usize> {
    let off = |p: &CurvePoint| (p.cache_bytes as f64 / bytes as f64).ln().abs();
    let (i, p) = points
        .iter()
        .enumerate()
        .min_by(|a, b| off(a.1).total_cmp(&off(b.1)))?;
    (off(p) < 0.5).then_some(i)
}

fn x_axis(points: &[CurvePoint], wide: usize, style: &Style) -> String {
    let mut axis = String::new();
    let mut labels = " ".repeat(AXIS);
    for (i, p) in points.iter().enumerate() {
        let power = p.cache_bytes.is_power_of_two();
        // Every octave where there is room for `512K`, else every second.
        let named = power && (wide > 2 || p.cache_bytes.trailing_zeros() % 2 == 1);
        axis.push_str(if named {
            style.glyph("┴", "+")
        } else {
            style.glyph("─", "-")
        });
        axis.push_str(&style.glyph("─", "-").repeat(wide - 1));
        let at = AXIS + i * wide;
        // A blank between two.
        let free = i == 0 || labels.chars().count() < at;
        if named && free {
            labels.push_str(&" ".repeat(at - labels.chars().count()));
            labels.push_str(&format_size(p.cache_bytes));
        }
    }
    let corner = style.glyph("└", "+");
    format!(
        "{:>6} {}\n{}\n",
        "0",
        style.paint(Ink::Faint, &format!("{corner}{axis}")),
        style.paint(Ink::Faint, &labels)
    )
}

/// The host's caches under the axis.
fn host_marks(
    points: &[CurvePoint],
    marks: &[u64],
    wide: usize,
    header: &Header,
    style: &Style,
) -> String {
    let arrow = style.glyph("▲", "^");
    let mut line = String::new();
    for &bytes in marks {
        let Some(i) = column(points, bytes) else {
            continue;
        };
        let at = AXIS + i * wide;
        let text = label(header, bytes);
        let used = line.chars().count();
        // Right of its arrow, or left of it at the right margin.
        let (start, piece) = if at + 2 + text.chars().count() <= style.width {
            (at, format!("{arrow} {text}"))
        } else {
            (
                at.saturating_sub(text.chars().count() + 1),
                format!("{text} {arrow}"),
            )
        };
        if start >= used + usize::from(used > 0) {
            line.push_str(&" ".repeat(start - used));
            line.push_str(&piece);
        }
    }
    if line.is_empty() {
        line
    } else {
        format!("{}\n", style.paint(Ink::Strong, &line))
    }
}

/// The octave of cache that helps most: where the chosen curve falls farthest.
pub(crate) fn steepest(curve: &[CurvePoint], style: &Style) -> Option<String> {
    let points: Vec<&CurvePoint> = curve
        .iter()
        .filter(|p| p.cache_bytes.is_power_of_two())
        .collect();
    let drop = |w: &[&CurvePoint]| w[0].miss_ratio - w[1].miss_ratio;
    let w = points
        .windows(2)
        .max_by(|a, b| drop(a).total_cmp(&drop(b)))?;
    // A fall within the uncertainty is no finding.
    if w[1].high >= w[0].low || drop(w) < 0.002 {
        return None;
    }
    Some(format!(
        "steepest fall: {} {} {} takes the ratio from {} to {}",
        format_size(w[0].cache_bytes),
        style.glyph("→", "->"),
        format_size(w[1].cache_bytes),
        percent(w[0].miss_ratio),
        percent(w[1].miss_ratio)
    ))
}

fn trim_end(text: &mut String) {
    text.truncate(text.trim_end_matches(' ').len());
}

#[cfg(test)]
mod tests {
    use super::super::table::table;
    use super::*;

    fn point(cache_bytes: u64, miss_ratio: f64, half: f64) -> CurvePoint {
        CurvePoint {
            cache_bytes,
            miss_ratio,
            low: (miss_ratio - half).max(0.0),
            high: miss_ratio + half,
            sampling_half_width: half,
            model_half_width: 0.0,
            undecided: None,
            weak: None,
        }
    }

    #[test]
    fn a_fall_is_only_told_where_it_is_sure() {
        let style = Style {
            width: 80,
            colour: false,
            unicode: false,
        };
        let told = |half| {
            let main = [
                point(8 << 10, 0.3, half),
                point(16 << 10, 0.1, half),
                point(32 << 10, 0.09, half),
            ];
            steepest(&main, &style)
        };
        assert_eq!(
            told(0.01).unwrap(),
            "steepest fall: 8K -> 16K takes the ratio from 30.0 % to 10.0 %"
        );
        assert_eq!(told(0.15), None);
    }

    #[test]
    fn the_axis_ends_above_the_curve_and_its_quarters_are_round() {
        for top in TOPS {
            let quarter = top * 25.0;
            assert!((quarter - quarter.round()).abs() < 1e-9, "{top}");
        }
    }

    /// A curve with a step, an undecided tail and a weak end.
    fn example() -> (Vec<CurvePoint>, Vec<CurvePoint>) {
        let mut header = Header::example(&["x"]);
        header.host_caches[2].bytes = 260 << 20;
        let sizes = crate::analysis::sizes::curve_sizes(&header);
        let main = sizes.iter().enumerate().map(|(i, &bytes)| {
            let ratio = 0.02 + 0.25 / (1.0 + (i as f64 / 6.0).powi(4));
            let mut p = point(bytes, ratio, 0.002);
            if i > 20 {
                p.low -= 0.01;
                p.high += 0.03;
            }
            if i > 28 {
                p.weak = Some(statcache_model::Weak {
                    samples: 90,
                    needed: 1000,
                });
            }
            p
        });
        let other = sizes
            .iter()
            .map(|&bytes| point(bytes, if bytes < 1 << 20 { 0.28 } else { 0.02 }, 0.003));
        (main.collect(), other.collect())
    }

    #[test]
    fn a_legend_breaks_at_the_margin() {
        let style = Style {
            width: 60,
            colour: false,
            unicode: false,
        };
        let curves = Curves {
            main: &[],
            main_name: "one cache a thread, without coherence misses",
            other: &[],
            other_name: "one cache for all threads",
            bytes_per_second: None,
        };
        assert_eq!(
            legend(&curves, &style),
            "        ## one cache a thread, without coherence misses\n        \
             :: its interval   o one cache for all threads\n"
        );
    }

    #[test]
    fn a_narrow_table_leaves_the_traffic_out() {
        let told = |width| drawn(width, false).contains("fetched");
        assert_eq!([60, 66, 67].map(told), [false, false, true]);
        let table = drawn(60, false);
        assert!(table.lines().all(|l| l.chars().count() <= 60), "{table}");
    }

    fn drawn(width: usize, unicode: bool) -> String {
        let (main, other) = example();
        let curves = Curves {
            main: &main,
            main_name: "random",
            other: &other,
            other_name: "LRU",
            bytes_per_second: Some(40e9),
        };
        let mut header = Header::example(&["x"]);
        header.host_caches[2].bytes = 260 << 20;
        let style = Style {
            width,
            colour: false,
            unicode,
        };
        let marks = [48 << 10, 2 << 20, 260 << 20];
        format!(
            "{}\n{}",
            plot(&curves, &marks, &header, &style),
            table(&curves, &marks, &header, &style)
        )
    }

    #[test]
    fn a_plot_of_80_columns() {
        insta::assert_snapshot!(drawn(80, true));
    }

    #[test]
    fn a_plot_of_120_columns() {
        insta::assert_snapshot!(drawn(120, true));
    }

    #[test]
    fn a_plot_in_ascii() {
        insta::assert_snapshot!(drawn(80, false));
    }
}

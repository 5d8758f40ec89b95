//! The figures behind the plot of a curve.

use std::fmt::Write;

use statcache_model::CurvePoint;

use super::curve::Curves;
use super::format::{bytes_per_second, interval, percent};
use super::style::{Ink, Style};
use crate::analysis::sizes::label;
use crate::profile::types::Header;

/// Ratios nearer than this are the same in the table.
pub(super) const SAME: f64 = 0.000_2;
/// Width from which on there is room for the traffic.
const FETCHED: usize = 67;

/// The figures behind the plot, at the powers of two and at every size that was asked for; beside
/// them what the misses fetch from beyond the cache.
pub(super) fn table(curves: &Curves<'_>, named: &[u64], header: &Header, style: &Style) -> String {
    let scale = curves.bytes_per_second.filter(|_| style.width >= FETCHED);
    let fetched = if scale.is_some() { "fetched" } else { "" };
    let head = format!(
        "{:>9}  {:>8} {:<13} {:>8} {:<13} {fetched:>10}",
        "cache", curves.main_name, "", curves.other_name, ""
    );
    let mut out = format!("{}\n", style.paint(Ink::Faint, head.trim_end()));
    let mut any_weak = false;
    let mut before: Option<(f64, f64)> = None;
    for (i, (p, o)) in curves.main.iter().zip(curves.other).enumerate() {
        let marked = named.contains(&p.cache_bytes) || i + 1 == curves.main.len();
        // A row that says what the row above says is left out.
        let same = before
            .is_some_and(|(m, l)| (m - p.miss_ratio).abs().max((l - o.miss_ratio).abs()) < SAME);
        if !marked && (!p.cache_bytes.is_power_of_two() || same) {
            continue;
        }
        before = Some((p.miss_ratio, o.miss_ratio));
        any_weak |= p.is_weak() || o.is_weak();
        let ink = if marked { Ink::Strong } else { Ink::Plain };
        let mut line = format!(
            "{} {} {}",
            style.paint(ink, &format!("{:>9} ", label(header, p.cache_bytes))),
            figure(p, style),
            figure(o, style)
        );
        if let Some(scale) = scale {
            let _ = write!(line, " {:>10}", bytes_per_second(p.miss_ratio * scale));
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if any_weak {
        out.push_str(&of_weak(style));
    }
    if scale.is_some() {
        out.push_str(&of_traffic(curves.main_name, style));
    }
    out
}

/// What `~` stands for.
pub(super) fn of_weak(style: &Style) -> String {
    let text = "  ~ weak: too few samples to lean on, or undecided";
    format!("{}\n", style.paint(Ink::Faint, text))
}

/// What the column of the traffic holds: a reader cannot tell CPU time from wall time by its unit.
pub(super) fn of_traffic(policy: &str, style: &Style) -> String {
    let text = format!("  fetched: {policy} misses times line size, per second of CPU time");
    format!("{}\n", style.paint(Ink::Faint, &text))
}

fn figure(p: &CurvePoint, style: &Style) -> String {
    let mark = if p.is_weak() { "~" } else { "" };
    let value = format!("{:>8}", format!("{mark}{}", percent(p.miss_ratio)));
    let span = interval(p.low, p.high, style.glyph("–", "-"));
    let ink = if p.is_weak() { Ink::Faint } else { Ink::Plain };
    format!(
        "{} {}",
        style.paint(ink, &value),
        style.paint(Ink::Faint, &format!("{span:<13}"))
    )
}

//! The curve as SVG.

use super::curve;
use crate::report::{MachineReport, bytes};
use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 60.0;

/// Draws latency over footprint, both axes logarithmic, with a labelled line at each level's capacity.
pub fn render_svg(report: &MachineReport) -> String {
    let points = curve(report);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"20\">{}: latency of a load in random order over footprint</text>\n",
        escape(&report.host.cpu)
    );
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        out.push_str("<text x=\"60\" y=\"60\">no footprint was measured</text>\n</svg>\n");
        return out;
    };
    let low = points
        .iter()
        .map(|p| p.1)
        .fold(f64::INFINITY, f64::min)
        .max(0.05)
        * 0.8;
    let high = points
        .iter()
        .map(|p| p.1)
        .fold(0.0, f64::max)
        .max(low * 2.0);
    let x = |b: u64| {
        MARGIN
            + (b as f64 / first.0 as f64).ln() / (last.0 as f64 / first.0 as f64).ln().max(1e-9)
                * (WIDTH - 2.0 * MARGIN)
    };
    let y =
        |ns: f64| HEIGHT - MARGIN - (ns / low).ln() / (high / low).ln() * (HEIGHT - 2.0 * MARGIN);
    let (bottom, right) = (HEIGHT - MARGIN, WIDTH - MARGIN);
    let _ = writeln!(
        out,
        "<path d=\"M{MARGIN} {MARGIN} V{bottom} H{right}\" fill=\"none\" stroke=\"black\"/>"
    );
    let mut b = first.0.next_power_of_two();
    while b <= last.0 {
        let at = x(b);
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
            bottom + 15.0,
            bytes(b)
        );
        b *= 4;
    }
    let steps = (0..4).flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
    for ns in steps.filter(|ns| (low..=high).contains(ns)) {
        let _ = writeln!(
            out,
            "<path d=\"M{MARGIN} {at:.1} H{right}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ns} ns</text>",
            MARGIN - 6.0,
            y(ns) + 4.0,
            at = y(ns),
        );
    }
    // What is at hand of a shared level moves: its range as a band behind the curve.
    for l in report.hierarchy.levels.iter().filter(|l| l.level > 2) {
        if let Some((a, b)) = l.range.filter(|r| r.1 > first.0 && r.0 < last.0) {
            let (a, b) = (x(a.max(first.0)), x(b.min(last.0)));
            let _ = writeln!(
                out,
                "<rect x=\"{a:.1}\" y=\"{MARGIN}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#b04040\" fill-opacity=\"0.1\"/>",
                b - a,
                bottom - MARGIN
            );
        }
    }
    for (i, l) in report.levels().iter().enumerate() {
        if l.bytes < first.0 || l.bytes > last.0 {
            continue;
        }
        let at = x(l.bytes);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{MARGIN}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#b04040\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#b04040\">L{} {}</text>",
            MARGIN - 6.0 - 13.0 * (i % 2) as f64,
            l.level,
            bytes(l.bytes)
        );
    }
    let path: Vec<String> = points
        .iter()
        .map(|(b, ns)| format!("{:.1},{:.1}", x(*b), y(*ns)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#2050a0\" stroke-width=\"2\"/>",
        path.join(" ")
    );
    out.push_str("</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

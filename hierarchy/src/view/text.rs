//! The table and a terminal plot.

use super::curve;
use crate::report::{MachineReport, Row, bytes};
use std::fmt::Write;

/// Renders the report for a terminal: header, table, plot, warnings.
pub fn render_text(report: &MachineReport) -> String {
    let mut out = String::new();
    let vm = match report.declared.virtual_machine {
        Some(true) => ", virtual machine",
        Some(false) => "",
        None => ", CPUID not asked",
    };
    let _ = writeln!(
        out,
        "{}{vm}; kernel {}; {} in {:.1} s",
        report.host.cpu,
        report.host.kernel,
        report.mode,
        report.raw.elapsed_ns as f64 / 1e9
    );
    // A refused parameter that the host declares stays beside the others; the rest is told below the table.
    let shown = |r: &&Row| !r.measured.is_empty() || !r.declared.is_empty();
    let rows: Vec<[String; 6]> = report
        .rows
        .iter()
        .filter(shown)
        .map(|r| {
            let declared = r
                .declared
                .iter()
                .fold(
                    Vec::<(&str, Vec<&str>)>::new(),
                    |mut all, (source, value)| {
                        // Sources that say the same share one figure.
                        match all.iter_mut().find(|x| x.0 == value.as_str()) {
                            Some(x) => x.1.push(source),
                            None => all.push((value, vec![source])),
                        }
                        all
                    },
                )
                .iter()
                .map(|(value, sources)| format!("{value} [{}]", sources.join(", ")))
                .collect::<Vec<_>>()
                .join(", ");
            let votes = if r.votes.1 > 1 {
                format!(" {}/{}", r.votes.0, r.votes.1)
            } else {
                String::new()
            };
            [
                r.what.clone(),
                if declared.is_empty() {
                    "-".into()
                } else {
                    declared
                },
                if r.measured.is_empty() {
                    "-".into()
                } else {
                    r.measured.clone()
                },
                r.verdict.word().into(),
                format!("{}{votes}", r.confidence.word()),
                r.reason.clone(),
            ]
        })
        .collect();
    let head = [
        "parameter",
        "declared",
        "measured",
        "verdict",
        "confidence",
        "note",
    ]
    .map(String::from);
    let mut widths = head.each_ref().map(String::len);
    for r in &rows {
        for (w, cell) in widths.iter_mut().zip(r) {
            *w = (*w).max(cell.chars().count()).min(46);
        }
    }
    for r in std::iter::once(&head).chain(&rows) {
        let line: Vec<String> = r
            .iter()
            .zip(widths)
            .take(5)
            .map(|(c, w)| format!("{c:<w$}"))
            .collect();
        let _ = writeln!(
            out,
            "{}",
            format!("{}  {}", line.join("  "), r[5]).trim_end()
        );
    }
    let missing: Vec<&Row> = report.rows.iter().filter(|r| !shown(r)).collect();
    if !missing.is_empty() {
        out.push_str("\nnot decided:\n");
    }
    for r in missing {
        let _ = writeln!(out, "  {}: {}", r.what, r.reason);
    }
    out.push('\n');
    out.push_str(&plot(report));
    for w in &report.warnings {
        let _ = writeln!(out, "warning: {w}");
    }
    out
}

/// Latency over footprint, both logarithmic, with a bar under each level's capacity.
fn plot(report: &MachineReport) -> String {
    const ROWS: usize = 14;
    const COLUMNS: usize = 72;
    let points = curve(report);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return "no footprint was measured\n".into();
    };
    let low = points
        .iter()
        .map(|p| p.1)
        .fold(f64::INFINITY, f64::min)
        .max(0.05);
    let high = points
        .iter()
        .map(|p| p.1)
        .fold(0.0, f64::max)
        .max(low * 2.0);
    let span = (last.0 as f64 / first.0 as f64).ln().max(1e-9);
    let column = |b: u64| {
        ((b as f64 / first.0 as f64).ln() / span * (COLUMNS - 1) as f64)
            .round()
            .clamp(0.0, (COLUMNS - 1) as f64) as usize
    };
    let mut grid = vec![[' '; COLUMNS]; ROWS];
    for l in report.levels() {
        if l.bytes >= first.0 && l.bytes <= last.0 {
            grid.iter_mut().for_each(|r| r[column(l.bytes)] = '|');
        }
    }
    for (b, ns) in &points {
        let y = (ns / low).ln() / (high / low).ln() * (ROWS - 1) as f64;
        grid[ROWS - 1 - (y.round() as usize).min(ROWS - 1)][column(*b)] = '*';
    }
    let mut out = String::from("latency (ns, logarithmic) over footprint\n");
    for (i, row) in grid.iter().enumerate() {
        let value = low * (high / low).powf((ROWS - 1 - i) as f64 / (ROWS - 1) as f64);
        let _ = writeln!(
            out,
            "{value:>8.1} {}",
            row.iter().collect::<String>().trim_end()
        );
    }
    let _ = writeln!(
        out,
        "{:>8} {:<width$}{}",
        "",
        bytes(first.0),
        bytes(last.0),
        width = COLUMNS - 8
    );
    let marks: Vec<String> = report
        .levels()
        .iter()
        .map(|l| format!("L{} {}", l.level, bytes(l.bytes)))
        .collect();
    let _ = writeln!(out, "{:>8} levels marked: {}", "", marks.join(", "));
    out
}

//! The table and a terminal plot.

use super::curve;
use crate::finding::Confidence;
use crate::report::{MachineReport, Row, Verdict, bytes};
use std::fmt::Write;

/// Sections of the table and the parameters in them: a prefix up to a point, or whole names.
const SECTIONS: [(&str, &[&str]); 7] = [
    (
        "core",
        &[
            "core clock",
            "timer step",
            "registers",
            "registers for a compiler",
            "counters",
        ],
    ),
    ("L1 data cache", &["L1d."]),
    ("L2 cache", &["L2."]),
    ("L3 cache", &["L3."]),
    (
        "memory",
        &[
            "memory.",
            "memory parallelism",
            "prefetched strides",
            "write-allocate",
            "write-back",
        ],
    ),
    (
        "data translation",
        &["DTLB1.", "DTLB2.", "page walk", "page size", "huge pages"],
    ),
    (
        "instruction side",
        &["L1i.", "op cache", "ITLB1.", "ITLB2."],
    ),
];

/// Where a parameter is shown: (section, name within it).
fn place(what: &str) -> (usize, &str) {
    for (i, (_, members)) in SECTIONS.iter().enumerate() {
        for m in *members {
            if what == *m {
                return (i, what);
            }
            if m.ends_with('.')
                && let Some(rest) = what.strip_prefix(m)
            {
                // The two translation levels share a section and keep their names.
                return (i, if m.contains("TLB") { what } else { rest });
            }
        }
    }
    (0, what)
}

/// What the host declares, sources that say the same sharing one figure. The leaves of CPUID are told apart where they
/// contradict each other; else they are one source.
fn declared(row: &Row) -> String {
    let leaves = row.declared.iter().filter(|d| d.0.starts_with("cpuid"));
    let mut figures = leaves.map(|d| &d.1);
    let first = figures.next();
    let one = figures.all(|f| Some(f) == first);
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for (source, value) in &row.declared {
        let source = match source.strip_prefix("cpuid 0x") {
            Some(_) if one => "cpuid".into(),
            Some(leaf) => format!("cpuid {leaf}"),
            None => source.clone(),
        };
        match all.iter_mut().find(|x| x.0 == value.as_str()) {
            Some(x) if x.1.contains(&source) => {}
            Some(x) => x.1.push(source),
            None => all.push((value, vec![source])),
        }
    }
    let of = all
        .iter()
        .map(|(value, sources)| format!("{value} ({})", sources.join(", ")));
    of.collect::<Vec<_>>().join("; ")
}

fn confidence(row: &Row) -> String {
    match row.confidence {
        Confidence::Refused => String::new(),
        // Of a distribution every window counts, which is no vote.
        c if row.votes.1 > 1 && row.votes.1 < 1000 && row.votes.0 < row.votes.1 => {
            format!("{} ({} of {})", c.word(), row.votes.0, row.votes.1)
        }
        c => c.word().into(),
    }
}

/// Renders the report for a terminal: header, table, what was refused, plot, warnings.
pub fn render_text(report: &MachineReport) -> String {
    let mut out = String::new();
    let vm = match report.declared.virtual_machine {
        Some(true) => " in a virtual machine",
        Some(false) => "",
        None => " (CPUID not asked)",
    };
    let _ = writeln!(
        out,
        "{}{vm}, kernel {}; {} run of {:.1} s\n",
        report.host.cpu,
        report.host.kernel,
        report.mode,
        report.raw.elapsed_ns as f64 / 1e9
    );
    // A refused parameter that the host declares stays beside the others; the reason is told below the table.
    let mut shown: Vec<(usize, &Row, [String; 5])> = Vec::new();
    for r in &report.rows {
        if r.measured.is_empty() && r.declared.is_empty() {
            continue;
        }
        let (section, name) = place(&r.what);
        let cells = [
            format!("  {name}"),
            if r.measured.is_empty() {
                "refused".into()
            } else {
                r.measured.clone()
            },
            declared(r),
            match r.verdict {
                Verdict::NotDeclared | Verdict::Refused => String::new(),
                v => v.word().into(),
            },
            confidence(r),
        ];
        shown.push((section, r, cells));
    }
    shown.sort_by_key(|s| s.0);
    let head = ["", "measured", "declared", "verdict", "confidence"].map(String::from);
    let mut widths = head.each_ref().map(String::len);
    for (_, _, cells) in &shown {
        for (w, cell) in widths.iter_mut().zip(cells) {
            // One long figure must not push the others apart.
            let n = cell.chars().count();
            if n <= 44 {
                *w = (*w).max(n);
            }
        }
    }
    let line = |cells: &[String; 5]| {
        let cells = cells.iter().zip(widths).map(|(c, w)| format!("{c:<w$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let _ = writeln!(out, "{}", line(&head));
    let mut last = usize::MAX;
    for (section, _, cells) in &shown {
        if *section != last {
            let _ = writeln!(out, "{}", SECTIONS[*section].0);
            last = *section;
        }
        let _ = writeln!(out, "{}", line(cells));
    }
    let notes: Vec<&Row> = (report.rows.iter())
        .filter(|r| {
            !r.measured.is_empty()
                && !r.reason.is_empty()
                && (r.confidence < Confidence::High
                    || r.what == "prefetched strides"
                    || matches!(r.verdict, Verdict::DeclaredWrong | Verdict::SmallerShare))
        })
        .collect();
    list(&mut out, "notes", &notes);
    let refused: Vec<&Row> = (report.rows.iter())
        .filter(|r| r.measured.is_empty())
        .collect();
    list(&mut out, "refused", &refused);
    out.push('\n');
    out.push_str(&plot(report));
    for w in &report.warnings {
        let _ = writeln!(out, "warning: {w}");
    }
    out
}

/// Parameters with their reasons; those that share one stand in one line.
fn list(out: &mut String, title: &str, rows: &[&Row]) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for r in rows {
        match reasons.iter_mut().find(|x| x.0 == r.reason) {
            Some(x) => x.1.push(&r.what),
            None => reasons.push((&r.reason, vec![&r.what])),
        }
    }
    if !reasons.is_empty() {
        let _ = writeln!(out, "\n{title}:");
    }
    for (reason, names) in reasons {
        let _ = writeln!(out, "  {}: {reason}", names.join(", "));
    }
}

/// Latency over footprint, both logarithmic, with a bar at each level's capacity.
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
    let height = |ns: f64| {
        let y = (ns / low).ln() / (high / low).ln() * (ROWS - 1) as f64;
        ROWS - 1 - (y.round() as usize).min(ROWS - 1)
    };
    let mut grid = vec![[' '; COLUMNS]; ROWS];
    let levels = report.levels();
    for l in &levels {
        if l.bytes >= first.0 && l.bytes <= last.0 {
            grid.iter_mut().for_each(|r| r[column(l.bytes)] = '|');
        }
    }
    for pair in points.windows(2) {
        let (a, b) = (column(pair[0].0), column(pair[1].0));
        (a..b).for_each(|x| {
            let share = (x - a) as f64 / (b - a) as f64;
            let ns = (pair[0].1.ln() * (1.0 - share) + pair[1].1.ln() * share).exp();
            grid[height(ns)][x] = '*';
        });
    }
    grid[height(last.1)][column(last.0)] = '*';
    let mut out = String::from("latency over footprint, both scales logarithmic\n");
    for (i, row) in grid.iter().enumerate() {
        let value = low * (high / low).powf((ROWS - 1 - i) as f64 / (ROWS - 1) as f64);
        let value = match value {
            _ if i % 2 == 1 && i != ROWS - 1 => String::new(),
            v if v < 10.0 => format!("{v:.1} ns"),
            v => format!("{v:.0} ns"),
        };
        let _ = writeln!(
            out,
            "{value:>8} {}",
            row.iter().collect::<String>().trim_end()
        );
    }
    let mut axis = vec![' '; COLUMNS + 8];
    let mut b = first.0.next_power_of_two();
    while b <= last.0 {
        for (i, c) in bytes(b)
            .replace("iB", "")
            .replace(' ', "")
            .chars()
            .enumerate()
        {
            axis[column(b) + i] = c;
        }
        b *= 4;
    }
    let _ = writeln!(
        out,
        "{:>8} {}",
        "",
        axis.iter().collect::<String>().trim_end()
    );
    let marks: Vec<String> = levels
        .iter()
        .map(|l| format!("L{} {}", l.level, bytes(l.bytes)))
        .collect();
    let _ = writeln!(
        out,
        "{:>8} levels marked: {}",
        "",
        if marks.is_empty() {
            "none decided".into()
        } else {
            marks.join(", ")
        }
    );
    out
}

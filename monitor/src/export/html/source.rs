//! The source with the figures of its lines: files with most misses, as far as there is room.
//!
//! Lines without figures are written many at once, as text: a page holds thousands of them.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::gathered::Gathered;
use super::names::Places;
use super::text::{figure, shown};
use crate::analysis::sizes::label;
use crate::analysis::{Ranking, Row};
use crate::report::format::{base_name, percent, plural};
use crate::report::ranking::misses;
use crate::report::source::Figures;
use crate::report::{Source, Sources};

/// Files shown.
const FILES: usize = 20;
/// Files looked for: those of libraries are often not there.
const TRIED: usize = 80;
/// Lines up to which a file is shown as a whole.
const WHOLE: usize = 2000;
/// Lines of context around one with figures, in longer files: where there is room, and where there is little.
const CONTEXT: [u32; 2] = [10, 3];
/// Bytes of text in a page; half of what is left is as much as a whole file may take.
pub(super) const ROOM: usize = 700 << 10;
/// Characters of a line; longer ones were not written by hand.
const LINE: usize = 400;
/// Worst lines named over a file.
const WORST: usize = 12;

/// A file.
pub(super) struct Sheet<'a> {
    pub(super) file: &'a str,
    id: String,
    /// Of the misses in the cache that ranks.
    share: f64,
    source: Source,
    rows: Rows<'a>,
    /// Numbers of the lines that are shown.
    shown: BTreeSet<u32>,
    /// What libraries do in its lines is counted to them.
    own: bool,
}

type Rows<'a> = BTreeMap<u32, Vec<&'a Row>>;

/// The files of a process.
#[derive(Default)]
pub(super) struct Sheets<'a> {
    pub(super) list: Vec<Sheet<'a>>,
    /// Files that are not to be had, with their shares.
    missing: Vec<(&'a str, f64)>,
    /// Files for which there was no room.
    left_out: usize,
}

/// Lines that have figures, by file.
fn by_file<'a>(ranking: &'a Ranking) -> BTreeMap<&'a str, Rows<'a>> {
    let mut files: BTreeMap<&str, Rows<'a>> = BTreeMap::new();
    for row in &ranking.rows {
        let s = &ranking.subjects.list[row.subject as usize];
        if s.line > 0 && !s.file.is_empty() {
            let lines = files.entry(&s.file).or_default();
            lines.entry(s.line).or_default().push(row);
        }
    }
    files
}

fn share_of(rows: &Rows<'_>, primary: usize) -> f64 {
    let rows = rows.values().flatten();
    rows.map(|r| r.miss[primary].miss_share).sum()
}

/// The files that have figures, most misses first. What libraries do in a line of the program is that line's, and their own, in their
/// files, as well: a file is shown by the reckoning that gives it more.
fn candidates<'a>(of: &'a Gathered<'_>) -> Vec<(&'a str, Rows<'a>, f64, bool)> {
    let primary = of.primary();
    let (Some(lines), Some(own)) = (of.lists.first(), &of.own_lines) else {
        return Vec::new();
    };
    let (mut lines, own) = (by_file(lines), by_file(own));
    let mut files = Vec::new();
    for (file, rows) in own {
        let share = share_of(&rows, primary);
        let inner = lines.remove(file);
        match inner.filter(|inner| share_of(inner, primary) >= share) {
            Some(inner) => {
                let share = share_of(&inner, primary);
                files.push((file, inner, share, false));
            }
            None => files.push((file, rows, share, true)),
        }
    }
    let rest = lines.into_iter();
    files.extend(rest.map(|(file, rows)| {
        let share = share_of(&rows, primary);
        (file, rows, share, false)
    }));
    let any = |rows: &Rows<'_>| rows.values().flatten().any(|r| misses(r));
    if files.iter().any(|(_, rows, ..)| any(rows)) {
        files.retain(|(_, rows, ..)| any(rows));
    }
    files.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(b.0)));
    files
}

/// Reads them, as long as there is room.
pub(super) fn read<'a>(
    of: &'a Gathered<'_>,
    sources: &dyn Sources,
    room: &mut usize,
) -> Sheets<'a> {
    let mut sheets = Sheets::default();
    for (tried, (file, rows, share, own)) in candidates(of).into_iter().enumerate() {
        if sheets.list.len() == FILES || tried >= TRIED {
            sheets.left_out += 1;
            continue;
        }
        let Some(source) = sources.read(file) else {
            sheets.missing.push((file, share));
            continue;
        };
        let Some((shown, bytes)) = fitting(&rows, &source.text, *room) else {
            sheets.left_out += 1;
            continue;
        };
        *room -= bytes;
        sheets.list.push(Sheet {
            file,
            id: of.id(&format!("f{}", sheets.list.len())),
            share,
            source,
            rows,
            shown,
            own,
        });
    }
    sheets
}

/// The lines that are shown, and their bytes; `None` where there is no room.
fn fitting(rows: &Rows<'_>, text: &str, room: usize) -> Option<(BTreeSet<u32>, usize)> {
    let lengths: Vec<usize> = text.lines().map(|l| l.len().min(4 * LINE) + 6).collect();
    let count = lengths.len() as u32;
    let bytes = |lines: &BTreeSet<u32>| -> usize {
        let length = |&n: &u32| lengths.get(n as usize - 1).unwrap_or(&6);
        lines.iter().map(length).sum()
    };
    let marked = || rows.keys().copied();
    if lengths.len() <= WHOLE {
        let all: BTreeSet<u32> = (1..=count).chain(marked()).collect();
        let bytes = bytes(&all);
        if bytes <= room / 2 {
            return Some((all, bytes));
        }
    }
    CONTEXT.into_iter().find_map(|context| {
        let around = |n: u32| {
            // Where a file has become shorter there is nothing around a line that it had.
            let context = if n > count { 0 } else { context };
            n.saturating_sub(context).max(1)..=n.saturating_add(context).min(count.max(n))
        };
        let lines: BTreeSet<u32> = marked().flat_map(around).collect();
        let bytes = bytes(&lines);
        (bytes <= room).then_some((lines, bytes))
    })
}

impl<'a> Sheet<'a> {
    /// The text of a line, without its indentation; none of a file that has changed, as lines may have moved.
    pub(super) fn line(&self, number: u32) -> Option<&str> {
        let before = (number as usize).checked_sub(1)?;
        let line = self.source.text.lines().nth(before)?.trim();
        (!line.is_empty() && !self.source.newer).then(|| cut(line))
    }

    fn line_id(&self, number: u32) -> String {
        format!("{}-{number}", self.id)
    }

    pub(super) fn add_to(&self, places: &mut Places<'a>) {
        for &number in self.rows.keys() {
            places.add(self.file, number, self.line_id(number));
        }
        // A file without a line, as that of a function.
        places.add(self.file, 0, self.id.clone());
    }
}

fn cut(line: &str) -> &str {
    match line.char_indices().nth(LINE) {
        Some((at, _)) => &line[..at],
        None => line,
    }
}

/// The section.
pub(super) fn section(of: &Gathered<'_>, sheets: &Sheets<'_>) -> Markup {
    let primary = of.primary();
    let cache = label(&of.analysis.profile.header, of.caches.sizes[primary]);
    let id = of.id("source");
    html! {
        section id=(id) {
            h2 { "Source " small { "shares of all misses in " (cache) "; ratios at each cache" } }
            @if sheets.list.is_empty() && sheets.missing.is_empty() {
                p.faint { "No code with misses has line numbers." }
            }
            @for (n, sheet) in sheets.list.iter().enumerate() {
                (page_of(of, sheet, n == 0 && of.number == 0))
            }
            @if sheets.left_out > 0 {
                p.faint { (plural(sheets.left_out as u64, "more file")) " with fewer misses: statcache report --source FILE" }
            }
            @if !sheets.missing.is_empty() {
                p.faint {
                    "Not found here, and so not shown (export where the sources are): "
                    @for (n, (file, share)) in sheets.missing.iter().take(FILES).enumerate() {
                        @if n > 0 { ", " }
                        span title=(shown(file)) { (shown(base_name(file))) } " " (percent(*share))
                    }
                    @if sheets.missing.len() > FILES { " and " (sheets.missing.len() - FILES) " more" }
                }
            }
        }
    }
}

fn page_of(of: &Gathered<'_>, sheet: &Sheet<'_>, open: bool) -> Markup {
    let header = &of.analysis.profile.header;
    let text: Vec<&str> = sheet.source.text.lines().collect();
    html! {
        details.sheet id=(sheet.id) open[open] {
            summary {
                b { (shown(base_name(sheet.file))) } " " (percent(sheet.share))
                " " span.faint { (shown(sheet.file)) }
            }
            @if sheet.source.newer {
                p.warning { b { "changed since the run" } " lines may have moved: figures may stand beside the wrong ones" }
            }
            @if sheet.own {
                p.faint { "With what code of libraries does that was inlined into its lines." }
            }
            (worst(of, sheet))
            div.scroll {
                table.code {
                    thead {
                        tr {
                            th { "misses" }
                            th { "access" }
                            @for &size in &of.caches.sizes { th { (label(header, size)) } }
                            th { "line" }
                            th.name { "text" }
                        }
                    }
                    tbody { (lines(of, sheet, &text)) }
                }
            }
        }
    }
}

/// Links to the lines with most misses.
fn worst(of: &Gathered<'_>, sheet: &Sheet<'_>) -> Markup {
    let share = |rows: &[&Row]| -> f64 {
        let shares = rows.iter().map(|r| r.miss[of.primary()].miss_share);
        shares.sum()
    };
    let mut worst: Vec<(u32, f64)> = sheet.rows.iter().map(|(&n, r)| (n, share(r))).collect();
    worst.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let more = worst.len().saturating_sub(WORST);
    html! {
        p.worst {
            @for (number, share) in worst.into_iter().take(WORST) {
                a href={ "#" (sheet.line_id(number)) } { (number) " " small { (percent(share)) } } " "
            }
            @if more > 0 { span.faint { (plural(more as u64, "more line")) " with figures" } }
        }
    }
}

/// What stands in a row of the listing.
enum Piece {
    Marked(u32),
    /// From, to.
    Plain(u32, u32),
    Gap,
}

/// The lines in pieces: each that has figures, and all in between at once.
fn pieces(sheet: &Sheet<'_>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut before = 0;
    for &number in &sheet.shown {
        if number != before + 1 {
            pieces.push(Piece::Gap);
        }
        match pieces.last_mut() {
            _ if sheet.rows.contains_key(&number) => pieces.push(Piece::Marked(number)),
            Some(Piece::Plain(_, to)) => *to = number,
            _ => pieces.push(Piece::Plain(number, number)),
        }
        before = number;
    }
    pieces
}

fn lines(of: &Gathered<'_>, sheet: &Sheet<'_>, text: &[&str]) -> Markup {
    let columns = 2 + of.caches.sizes.len();
    let line = |number: u32| {
        let line = text.get(number as usize - 1).copied().unwrap_or_default();
        shown(cut(line))
    };
    html! {
        @for piece in pieces(sheet) {
            @match piece {
                Piece::Marked(number) => {
                    @let figures = Figures::of(&sheet.rows[&number], of.primary());
                    @let weak = figures.miss[of.primary()].1;
                    tr.marked id=(sheet.line_id(number)) {
                        td.share.weak[weak] style={ "--w:" (format!("{:.1}", 100.0 * figures.share.clamp(0.0, 1.0))) "%" } {
                            (figure(figures.share, weak))
                        }
                        td { (percent(figures.access)) }
                        @for &(ratio, weak) in &figures.miss { td.weak[weak] { (figure(ratio, weak)) } }
                        td.n { (number) }
                        td.text { (line(number)) }
                    }
                },
                Piece::Plain(from, to) => {
                    tr {
                        td colspan=(columns) {}
                        td.n { @for n in from..=to { (n) "\n" } }
                        td.text { @for n in from..=to { (line(n)) "\n" } }
                    }
                },
                Piece::Gap => {
                    tr.gap { td colspan=(columns) {} td.n { "⋮" } td.text {} }
                },
            }
        }
    }
}

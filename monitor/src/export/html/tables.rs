//! Lists of what misses most, each in a panel of its own.

use std::collections::HashMap;

use maud::{Markup, html};
use statcache_model::Stream;

use super::gathered::Gathered;
use super::names::{Places, why};
use super::source::Sheet;
use super::text::{figure, number, shown, span};
use crate::analysis::sizes::label;
use crate::analysis::{By, Miss, Ranking, Row};
use crate::report::format::{count, percent, whole_percent};
use crate::report::ranking::{
    OF_HEAP, caller, has_lines, is_whole_heap, lines_missing, misses, of_weak, plural_of, rest,
    singular_of,
};

/// Rows of a list. What is behind them has next to no misses.
const ROWS: usize = 200;
/// Caches up to which each has its shares of misses beside its ratios; of more, the one that ranks.
const SHARES: usize = 4;

/// The section: a panel for each list.
pub(super) fn section(of: &Gathered<'_>, places: &Places<'_>, sheets: &[Sheet<'_>]) -> Markup {
    let texts: HashMap<&str, &Sheet<'_>> = sheets.iter().map(|s| (s.file, s)).collect();
    let size = of.caches.sizes[of.primary()];
    let id = of.id("where");
    let first = first(of);
    html! {
        section id=(id) {
            h2 {
                "Where it misses "
                small {
                    "by misses in " (label(&of.analysis.profile.header, size))
                    ", random replacement, " (of.caches.line_bytes) "-byte lines" (whose(of, size))
                }
            }
            div.tabs {
                @for list in &of.lists {
                    a.tab href={ "#" (panel(of, list)) } { (title(list.subjects.by)) " " small { (list.rows.len()) } }
                }
                input.filter type="search" placeholder="filter: words of names" aria-label="filter the rows";
            }
            @for list in &of.lists {
                (table(of, list, list.subjects.by == first, places, &texts))
            }
        }
    }
}

/// The list that is seen first: without line numbers one by line would be the one by function, twice.
fn first(of: &Gathered<'_>) -> By {
    let by = |list: &Ranking| list.subjects.by;
    let lines = of.lists.iter().find(|list| by(list) == By::Line);
    match lines {
        Some(lines) if !has_lines(lines, of.primary()) => By::Function,
        _ => By::Line,
    }
}

/// What a cache of a size is of, where threads were seen together.
fn whose(of: &Gathered<'_>, size: u64) -> &'static str {
    match of.analysis.stream_at(size) {
        _ if !of.analysis.has_threads() => "",
        Stream::Own => ", own distances",
        Stream::Private => ", private caches",
        Stream::All => ", a cache of all threads",
    }
}

fn panel(of: &Gathered<'_>, list: &Ranking) -> String {
    of.id(plural_of(list.subjects.by))
}

fn title(by: By) -> String {
    let plural = plural_of(by);
    plural[..1].to_uppercase() + &plural[1..]
}

fn table(
    of: &Gathered<'_>,
    list: &Ranking,
    first: bool,
    places: &Places<'_>,
    texts: &HashMap<&str, &Sheet<'_>>,
) -> Markup {
    let by = list.subjects.by;
    // What misses nowhere has no place in a list of misses, unless nothing misses.
    let any = list.rows.iter().any(misses);
    let rows = list.rows.iter().take(ROWS).filter(|r| !any || misses(r));
    let rows: Vec<&Row> = rows.collect();
    let weak = rows.iter().any(|r| r.miss.iter().any(|m| m.weak));
    let spatial = rows.iter().any(|r| r.spatial_use.is_some());
    let subject = |row: &Row| &list.subjects.list[row.subject as usize];
    let heap = rows.iter().any(|r| is_whole_heap(subject(r)) && misses(r));
    let header = &of.analysis.profile.header;
    html! {
        div.panel.on[first] id=(panel(of, list)) {
            h3 { (title(by)) }
            table.list data-primary=(of.primary()) {
                (head(of, by, spatial))
                tbody {
                    @for row in &rows { (line(of, list, row, spatial, places, texts)) }
                }
            }
            p.none hidden { "No " (singular_of(by)) " has these words in its row." }
            @if let Some(text) = rest(list, rows.len(), of.primary()) { p.faint { (shown(&text)) } }
            @if weak { p.faint { (of_weak(list, header)) } }
            @if heap { p.faint { (OF_HEAP) } }
            @if by == By::Line {
                @if let Some(text) = lines_missing(list, of.primary()) { p.faint { (shown(&text)) } }
            }
        }
    }
}

/// Whether the column of a cache's shares is there.
fn has_share(of: &Gathered<'_>, size: usize) -> bool {
    of.caches.sizes.len() <= SHARES || size == of.primary()
}

fn head(of: &Gathered<'_>, by: By, spatial: bool) -> Markup {
    let header = &of.analysis.profile.header;
    let sizes = &of.caches.sizes;
    html! {
        thead {
            tr.of {
                @for (i, &size) in sizes.iter().enumerate() {
                    th.rank[i == of.primary()] colspan=(1 + usize::from(has_share(of, i))) title=[note(of, size)] { (label(header, size)) }
                }
                th colspan=(3 + usize::from(spatial)) {}
            }
            tr {
                @for i in 0..sizes.len() {
                    @if has_share(of, i) {
                        th data-sort="n" aria-sort=[(i == of.primary()).then_some("descending")] title="share of all misses in this cache" { "misses" }
                    }
                    th data-sort="n" title="misses per reference here, with its interval (95 %)" { "ratio" }
                }
                th data-sort="n" title="share of all references" { "access" }
                th data-sort="n" title="samples behind the figures" { "samples" }
                @if spatial { th data-sort="n" title="share of what longer lines could save that they do save" { "spatial" } }
                th.name data-sort="t" { (singular_of(by)) }
            }
        }
    }
}

fn note(of: &Gathered<'_>, size: u64) -> Option<String> {
    let text = whose(of, size).strip_prefix(", ")?;
    Some(text.to_owned())
}

fn line(
    of: &Gathered<'_>,
    list: &Ranking,
    row: &Row,
    spatial: bool,
    places: &Places<'_>,
    texts: &HashMap<&str, &Sheet<'_>>,
) -> Markup {
    let subject = &list.subjects.list[row.subject as usize];
    let sizes = || row.miss.iter().enumerate();
    let mut keys = Vec::new();
    for (i, m) in sizes() {
        if has_share(of, i) {
            keys.push(number(m.miss_share));
        }
        keys.push(number(m.miss_ratio));
    }
    keys.push(number(row.access_share));
    keys.push(row.samples.to_string());
    if spatial {
        keys.push(row.spatial_use.map_or_else(|| "-1".to_owned(), number));
    }
    let code = match list.subjects.by {
        By::Line => {
            // The program's own line says more than a library's.
            let own = caller(list, row);
            let text = |s: &crate::analysis::Subject| texts.get(s.file.as_str())?.line(s.line);
            own.and_then(text).or_else(|| text(subject))
        }
        _ => None,
    };
    // In sampled windows it rests on few long ones.
    let mark = if of.analysis.profile.header.full {
        ""
    } else {
        "~"
    };
    html! {
        tr data-k=(keys.join(" ")) {
            @for (i, m) in sizes() {
                @if has_share(of, i) { (share(m)) }
                td.weak[m.weak] { (figure(m.miss_ratio, m.weak)) small { (span(m.low, m.high)) } }
            }
            td { (percent(row.access_share)) }
            td { (count(row.samples as f64)) }
            @if spatial {
                td { @if let Some(used) = row.spatial_use { (mark) (whole_percent(used)) } }
            }
            td.name {
                (places.name(subject))
                @if let Some(code) = code { div.code { (shown(code)) } }
                @if let Some(why) = why(of, list, row, places) { div.why { (why) } }
            }
        }
    }
}

/// A share of the misses, with a bar behind it.
fn share(m: &Miss) -> Markup {
    let width = format!("--w:{:.1}%", 100.0 * m.miss_share.clamp(0.0, 1.0));
    html! {
        @if m.miss_share >= 0.0005 {
            td.share.weak[m.weak] style=(width) { (figure(m.miss_share, m.weak)) }
        } @else {
            td.share.weak[m.weak] { (figure(m.miss_share, m.weak)) }
        }
    }
}

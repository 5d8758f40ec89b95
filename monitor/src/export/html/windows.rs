//! Miss ratios over the time of the run: a strip for each cache, and the windows with most misses.

use std::collections::HashMap;

use maud::{Markup, html};

use super::axis::{Scale, percent_of_tick};
use super::gathered::Gathered;
use super::text::{coordinate, figure, span};
use crate::analysis::sizes::label;
use crate::analysis::{Ranking, Row};
use crate::profile::types::WindowRecord;
use crate::report::format::{count, plural, seconds};
use crate::report::windows::run_end;

/// The drawing's own units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const HEIGHT: f64 = 84.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 6.0;
/// A bar is at least so wide.
const BAR: f64 = 2.0;
/// Bars of a strip at most: of more windows, those that begin in the same slice of time are one.
const BARS: usize = 300;
/// Windows in the table.
const ROWS: usize = 100;

/// The section.
pub(super) fn section(of: &Gathered<'_>, ranking: &Ranking) -> Markup {
    let end = run_end(of.analysis).max(1e-9);
    let rows: HashMap<u32, &Row> = ranking.rows.iter().map(|r| (r.subject, r)).collect();
    let header = &of.analysis.profile.header;
    let id = of.id("time");
    html! {
        section id=(id) {
            h2 { "Over the run " small { "miss ratio of each window, at its place in time; the line is the interval" } }
            @for (i, &size) in of.caches.sizes.iter().enumerate() {
                (strip(&label(header, size), &bars(of, &rows, i, end), i == of.primary()))
            }
            (time_axis(end))
            (table(of, ranking))
        }
    }
}

/// A window, or several that begin close to each other.
struct Bar {
    from: f64,
    to: f64,
    ratio: f64,
    low: f64,
    high: f64,
    weak: bool,
    windows: usize,
}

/// Bars at one size, in the order of time; places are parts of the run.
fn bars(of: &Gathered<'_>, rows: &HashMap<u32, &Row>, size: usize, end: f64) -> Vec<Bar> {
    let windows = &of.analysis.profile.windows;
    let mut bars: Vec<Bar> = Vec::new();
    let mut slice = usize::MAX;
    for (n, window) in windows.iter().enumerate() {
        let Some(row) = u32::try_from(n).ok().and_then(|n| rows.get(&n)) else {
            continue;
        };
        let miss = &row.miss[size];
        let (from, to) = place(window, end);
        let here = (from * BARS as f64) as usize;
        match bars.last_mut() {
            Some(bar) if windows.len() > BARS && here == slice => {
                let n = bar.windows as f64;
                let mean = |of: f64, with: f64| (of * n + with) / (n + 1.0);
                bar.to = to.max(bar.to);
                bar.ratio = mean(bar.ratio, miss.miss_ratio);
                bar.low = bar.low.min(miss.low);
                bar.high = bar.high.max(miss.high);
                bar.weak &= miss.weak;
                bar.windows += 1;
            }
            _ => bars.push(Bar {
                from,
                to,
                ratio: miss.miss_ratio,
                low: miss.low,
                high: miss.high,
                weak: miss.weak,
                windows: 1,
            }),
        }
        slice = here;
    }
    bars
}

fn place(window: &WindowRecord, end: f64) -> (f64, f64) {
    // Also where a damaged profile has no number.
    let inside = |part: f64| if part > 0.0 { part.min(1.0) } else { 0.0 };
    let from = inside(window.start_s / end);
    (
        from,
        inside((window.start_s + window.wall_s) / end).max(from),
    )
}

fn strip(name: &str, bars: &[Bar], ranks: bool) -> Markup {
    let highest = bars.iter().map(|b| b.ratio).fold(0.0, f64::max);
    let scale = Scale::up_to(highest);
    let floor = HEIGHT - BOTTOM;
    let y = |ratio: f64| floor - scale.part(ratio) * (floor - TOP);
    let room = WIDTH - LEFT - RIGHT;
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    let said = format!("Miss ratio over the run in {name}");
    html! {
        svg.strip.rank[ranks] viewBox=(view) role="img" aria-label=(said) {
            path.grid d={ "M" (LEFT) " " (TOP) "H" (WIDTH - RIGHT) } {}
            text.tick x=(LEFT - 7.0) y=(TOP + 4.0) text-anchor="end" { (percent_of_tick(scale.top)) }
            text.tick x=(LEFT - 7.0) y=(floor) text-anchor="end" { "0" }
            text.host x=(LEFT) y=(TOP - 7.0) { (name) }
            @for bar in bars {
                @let left = LEFT + bar.from * room;
                @let wide = ((bar.to - bar.from) * room).max(BAR);
                g.bar.weak[bar.weak] {
                    rect x=(coordinate(left)) y=(coordinate(y(bar.ratio))) width=(coordinate(wide)) height=(coordinate(floor - y(bar.ratio))) {}
                    path d={ "M" (coordinate(left + wide / 2.0)) " " (coordinate(y(bar.low))) "V" (coordinate(y(bar.high))) } {}
                    title { (figure(bar.ratio, bar.weak)) " (" (span(bar.low, bar.high)) ")" @if bar.windows > 1 { ", mean of " (bar.windows) " windows" } }
                }
            }
            path.base d={ "M" (LEFT) " " (floor) "H" (WIDTH - RIGHT) } {}
        }
    }
}

fn time_axis(end: f64) -> Markup {
    let view = format!("0 0 {WIDTH} 22");
    let parts = [0.0, 0.25, 0.5, 0.75, 1.0];
    html! {
        svg.strip viewBox=(view) aria-hidden="true" {
            @for part in parts {
                @let at = LEFT + part * (WIDTH - LEFT - RIGHT);
                @let anchor = if part == 1.0 { "end" } else if part == 0.0 { "start" } else { "middle" };
                text.tick x=(at) y="14" text-anchor=(anchor) { @if part == 0.0 { "0 s" } @else { (seconds(part * end)) } }
            }
        }
    }
}

/// The windows with most misses in the cache that ranks, in the order of time.
fn table(of: &Gathered<'_>, ranking: &Ranking) -> Markup {
    let header = &of.analysis.profile.header;
    let windows = &of.analysis.profile.windows;
    let mut rows: Vec<&Row> = ranking.rows.iter().take(ROWS).collect();
    rows.sort_by_key(|r| r.subject);
    let more = ranking.rows.len() - rows.len();
    html! {
        details.all {
            summary { "The windows" @if more > 0 { " with most misses" } }
            table.figures {
                thead {
                    tr {
                        th { "window" } th { "start" } th { "thread" } th { "accesses" } th { "samples" }
                        @for &size in &of.caches.sizes { th { (label(header, size)) } }
                    }
                }
                tbody {
                    @for row in rows {
                        @let w = &windows[row.subject as usize];
                        tr {
                            th scope="row" { (w.index) }
                            td { (seconds(w.start_s)) }
                            td { @if w.threads.len() > 1 { (plural(w.threads.len() as u64, "thread")) } @else { (w.tid) } }
                            td { (count(w.accesses as f64)) }
                            td { (count(row.samples as f64)) }
                            @for m in &row.miss {
                                td.weak[m.weak] { (figure(m.miss_ratio, m.weak)) small { (span(m.low, m.high)) } }
                            }
                        }
                    }
                }
            }
            @if more > 0 { p.faint { (plural(more as u64, "more window")) " with fewer misses" } }
        }
    }
}

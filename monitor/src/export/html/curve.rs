//! The miss-ratio curves: a drawing, choosers for what it shows, and the figures behind it.
//!
//! All line sizes and streams are drawn beforehand, on both axes; the script only chooses among them. Both policies share an axis.

use maud::{Markup, html};
use serde_json::{Value, json};
use statcache_model::{CurvePoint, Stream};

use super::STYLE;
use super::axis::{Scale, Sizes, percent_of_tick};
use super::gathered::{Curves, Gathered, stream_key};
use super::text::{coordinate, figure, round, span};
use crate::analysis::sizes::label;
use crate::profile::types::LINE_SIZES;
use crate::report::curve::steepest;
use crate::report::format::bytes_per_second;
use crate::sizes::format_size;

/// The drawing's own units, and the room around its field.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// Names of caches nearer than this are put one above the other.
const NAME: f64 = 58.0;

/// The section.
pub(super) fn section(of: &Gathered<'_>) -> Markup {
    let id = of.id("curve");
    let threads = of.analysis.has_threads();
    html! {
        section id=(id) {
            h2 { "Miss ratio by cache size " small { "fully associative; intervals are meant to hold the truth 94 times in 100" } }
            div.beside {
                div.chart {
                    (choosers(of, threads))
                    (drawing(of))
                    div.tip hidden {}
                    @if let Some(text) = of.first().and_then(|c| steepest(&on_grid(&c.random), &STYLE)) {
                        p.faint { (text) }
                    }
                }
                div.levels { (levels(of)) }
            }
            (tables(of))
        }
    }
}

/// The powers of two: what a report looks for the steepest fall in.
fn on_grid(points: &[CurvePoint]) -> Vec<CurvePoint> {
    let grid = points.iter().filter(|p| p.cache_bytes.is_power_of_two());
    grid.copied().collect()
}

/// Which curves are shown; for the script, and hidden without it.
fn choosers(of: &Gathered<'_>, threads: bool) -> Markup {
    let line_name = of.id("line");
    let stream_name = of.id("stream");
    html! {
        div.choose {
            fieldset {
                legend { "line size" }
                @for line in LINE_SIZES {
                    label {
                        input type="radio" name=(line_name) value=(line) data-set="line" checked[line == of.caches.line_bytes];
                        (line) " B"
                    }
                }
            }
            @if threads {
                fieldset {
                    legend { "whose" }
                    @for (stream, name) in [(Stream::Private, "one cache a thread"), (Stream::All, "one for all threads")] {
                        label {
                            input type="radio" name=(stream_name) value=(stream_key(stream)) data-set="stream" checked[stream != Stream::All];
                            (name)
                        }
                    }
                }
            }
            fieldset {
                label { input type="checkbox" data-set="log"; "log axis" }
                label { input type="checkbox" data-set="bands" checked; "intervals" }
                label { input type="checkbox" data-set="lru" checked; "LRU" }
            }
        }
    }
}

fn x(sizes: &Sizes, size: u64) -> f64 {
    LEFT + sizes.part(size) * (WIDTH - LEFT - RIGHT)
}

fn y(scale: &Scale, ratio: f64) -> f64 {
    HEIGHT - BOTTOM - scale.part(ratio) * (HEIGHT - TOP - BOTTOM)
}

fn drawing(of: &Gathered<'_>) -> Markup {
    let sizes = Sizes::of(&of.sizes);
    let floor = HEIGHT - BOTTOM;
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    let said = of.first().map_or_else(String::new, in_words);
    html! {
        svg.curve viewBox=(view) role="img" tabindex="0" aria-label=(said)
            data-left=(LEFT) data-right=(WIDTH - RIGHT) data-top=(TOP) data-floor=(floor) {
            @for size in sizes.ticks() {
                @let at = coordinate(x(&sizes, size));
                path.grid d={ "M" (at) " " (TOP) "V" (floor) } {}
                text.tick x=(at) y=(floor + 17.0) text-anchor="middle" { (format_size(size)) }
            }
            text.axis x=(WIDTH - RIGHT) y=(HEIGHT - 6.0) text-anchor="end" { "cache size, bytes" }
            (host(of, &sizes))
            @for curves in &of.curves {
                @for log in [false, true] {
                    (variant(curves, &sizes, log))
                }
            }
            path.base d={ "M" (LEFT) " " (TOP) "V" (floor) "H" (WIDTH - RIGHT) } {}
            g.cross visibility="hidden" {
                path.wire d={ "M0 " (TOP) "V" (floor) } {}
                circle.lru r="4" {}
                circle.random r="4" {}
            }
            (legend())
        }
    }
}

/// Under the field, where no curve can be.
fn legend() -> Markup {
    let y = HEIGHT - 10.0;
    let swatch = |at: f64| format!("M{at} {y}h22");
    let [random, lru, weak] = [LEFT, LEFT + 88.0, LEFT + 150.0];
    html! {
        g.legend {
            rect.band.random x=(random) y=(y - 5.0) width="22" height="10" {}
            path.line.random d=(swatch(random)) {}
            text x=(random + 28.0) y=(y + 4.0) { "random" }
            g.of-lru {
                rect.band.lru x=(lru) y=(y - 5.0) width="22" height="10" {}
                path.line.lru d=(swatch(lru)) {}
                text x=(lru + 28.0) y=(y + 4.0) { "LRU" }
            }
            circle.weak.random cx=(weak) cy=(y) r="3" {}
            text x=(weak + 9.0) y=(y + 4.0) { "weak figure" }
        }
    }
}

/// What the drawing shows, for who does not see it.
fn in_words(curves: &Curves) -> String {
    let ends = curves.random.first().zip(curves.random.last());
    let Some((first, last)) = ends else {
        return String::new();
    };
    format!(
        "Miss ratio by cache size, {}-byte lines, random replacement: {} at {}, {} at {}; the table below has all figures",
        curves.line_bytes,
        figure(first.miss_ratio, first.is_weak()),
        format_size(first.cache_bytes),
        figure(last.miss_ratio, last.is_weak()),
        format_size(last.cache_bytes)
    )
}

/// The caches that the host has, and those that were asked for.
fn host(of: &Gathered<'_>, sizes: &Sizes) -> Markup {
    let header = &of.analysis.profile.header;
    let mut before = f64::NEG_INFINITY;
    let mut raised = false;
    let marks: Vec<(f64, f64, String)> = of
        .marks()
        .into_iter()
        .map(|size| {
            let at = x(sizes, size);
            raised = at - before < NAME && !raised;
            before = at;
            let height = TOP - if raised { 19.0 } else { 5.0 };
            (at, height, label(header, size))
        })
        .collect();
    html! {
        @for (at, height, name) in marks {
            path.host d={ "M" (coordinate(at)) " " (height + 2.0) "V" (HEIGHT - BOTTOM) } {}
            text.host x=(coordinate(at)) y=(height) text-anchor="middle" { (name) }
        }
    }
}

/// Both policies of one line size and stream on one axis.
fn variant(curves: &Curves, sizes: &Sizes, log: bool) -> Markup {
    let points: Vec<&CurvePoint> = curves.random.iter().chain(&curves.lru).collect();
    let scale = match log {
        true => Scale::logarithmic(&points),
        false => Scale::linear(&points),
    };
    let key = format!("{}-{}", curves.key(), if log { "log" } else { "lin" });
    let first = curves.is_first() && !log;
    let policies = [("lru", &curves.lru), ("random", &curves.random)];
    html! {
        g.variant.on[first] data-v=(key) data-bottom=(scale.bottom) data-top=(scale.top) {
            @for ratio in scale.ticks() {
                @let at = y(&scale, ratio);
                path.grid d={ "M" (LEFT) " " (coordinate(at)) "H" (WIDTH - RIGHT) } {}
                text.tick x=(LEFT - 7.0) y=(coordinate(at + 4.0)) text-anchor="end" { (percent_of_tick(ratio)) }
            }
            @for (name, points) in policies {
                g.(name) {
                    path.band d=(band(points, sizes, &scale)) {}
                    path.line d=(line(points, sizes, &scale)) {}
                    @for p in points.iter().filter(|p| p.is_weak()) {
                        circle.weak r="3" cx=(coordinate(x(sizes, p.cache_bytes))) cy=(coordinate(y(&scale, p.miss_ratio))) {}
                    }
                }
            }
        }
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points = points.map(|(x, y)| format!("{} {}", coordinate(x), coordinate(y)));
    format!("M{}", points.collect::<Vec<_>>().join("L"))
}

fn line(points: &[CurvePoint], sizes: &Sizes, scale: &Scale) -> String {
    let at = |p: &CurvePoint| (x(sizes, p.cache_bytes), y(scale, p.miss_ratio));
    path(points.iter().map(at))
}

/// Along the upper ends of the intervals and back along the lower ones.
fn band(points: &[CurvePoint], sizes: &Sizes, scale: &Scale) -> String {
    let at = |p: &CurvePoint, ratio| (x(sizes, p.cache_bytes), y(scale, ratio));
    let there = points.iter().map(|p| at(p, p.high));
    let back = points.iter().rev().map(|p| at(p, p.low));
    path(there.chain(back)) + "Z"
}

/// The host's levels, or the sizes asked for, each as a cache of that size sees the program.
fn levels(of: &Gathered<'_>) -> Markup {
    let header = &of.analysis.profile.header;
    let rate = of.analysis.bytes_per_second(of.caches.line_bytes);
    let found = of
        .caches
        .sizes
        .iter()
        .enumerate()
        .filter_map(|(at, &size)| {
            let stream = of.analysis.stream_at(size);
            let curves = of.curves.iter().find(|c| {
                c.line_bytes == of.caches.line_bytes && stream_key(c.stream) == stream_key(stream)
            })?;
            let index = of.sizes.iter().position(|&s| s == size)?;
            Some((at, size, stream, curves, index))
        });
    html! {
        table.figures {
            caption { "At these caches " small { (of.caches.line_bytes) "-byte lines" } }
            thead { tr { th { "cache" } th { "random" } th { "LRU" } @if rate.is_some() { th { "fetched" } } } }
            tbody {
                @for (at, size, stream, curves, index) in found {
                    tr.rank[at == of.primary()] {
                        th scope="row" {
                            (label(header, size))
                            @if of.analysis.has_threads() {
                                small { @if stream == Stream::All { "all threads" } @else { "a thread" } }
                            }
                        }
                        (cell(&curves.random[index]))
                        (cell(&curves.lru[index]))
                        @if let Some(rate) = rate { td { (bytes_per_second(curves.random[index].miss_ratio * rate)) } }
                    }
                }
            }
        }
        p.faint {
            "Lists are in the order of misses in the marked cache."
            @if rate.is_some() { " Fetched: random misses times line size, per second of CPU time." }
        }
    }
}

/// Of a point of a curve.
fn cell(p: &CurvePoint) -> Markup {
    html! {
        td.weak[p.is_weak()] { (figure(p.miss_ratio, p.is_weak())) small { (span(p.low, p.high)) } }
    }
}

/// The figures behind the drawing, at powers of two and at named sizes.
fn tables(of: &Gathered<'_>) -> Markup {
    let header = &of.analysis.profile.header;
    let marks = of.marks();
    let listed: Vec<usize> = (0..of.sizes.len())
        .filter(|&i| of.sizes[i].is_power_of_two() || marks.contains(&of.sizes[i]))
        .collect();
    html! {
        details.all {
            summary { "All figures of the curve" }
            @for curves in &of.curves {
                @let rate = of.analysis.bytes_per_second(curves.line_bytes);
                table.figures.variant.on[curves.is_first()] data-v=(curves.key()) {
                    caption {
                        (curves.line_bytes) "-byte lines"
                        @if of.analysis.has_threads() {
                            @if curves.stream == Stream::All { ", one cache for all threads" } @else { ", one cache a thread" }
                        }
                    }
                    thead { tr { th { "cache" } th { "random" } th { "LRU" } @if rate.is_some() { th { "fetched" } } } }
                    tbody {
                        @for &i in &listed {
                            tr.rank[marks.contains(&of.sizes[i])] {
                                th scope="row" { (label(header, of.sizes[i])) }
                                (cell(&curves.random[i]))
                                (cell(&curves.lru[i]))
                                @if let Some(rate) = rate { td { (bytes_per_second(curves.random[i].miss_ratio * rate)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// For the script: where sizes lie, their names, and all points as ratio, interval, and whether it is weak.
pub(super) fn data(of: &Gathered<'_>) -> Value {
    let axis = Sizes::of(&of.sizes);
    let header = &of.analysis.profile.header;
    let of_point = |p: &CurvePoint| {
        json!([
            round(p.miss_ratio),
            round(p.low),
            round(p.high),
            u8::from(p.is_weak())
        ])
    };
    let of_points =
        |points: &[CurvePoint]| -> Value { points.iter().map(of_point).collect::<Vec<_>>().into() };
    let curves = of.curves.iter().map(|c| {
        let both = json!({ "random": of_points(&c.random), "lru": of_points(&c.lru) });
        (c.key(), both)
    });
    let sizes = of.sizes.iter();
    json!({
        "sizes": of.sizes,
        "names": sizes.clone().map(|&s| label(header, s)).collect::<Vec<_>>(),
        "x": sizes.map(|&s| (x(&axis, s) * 10.0).round() / 10.0).collect::<Vec<_>>(),
        "curves": curves.collect::<serde_json::Map<String, Value>>(),
    })
}

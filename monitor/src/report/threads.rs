//! The curve's figures where several threads were seen together: a cache for each thread, and one
//! for all of them.

use std::fmt::Write;

use statcache_model::{CurvePoint, Stream};

use super::format::{bytes_per_second, interval, percent};
use super::style::{Ink, Style, wrap};
use super::table::{SAME, of_traffic, of_weak};
use crate::analysis::Analysis;
use crate::analysis::sizes::label;
use crate::profile::types::Header;

/// Width from which on there is room for the traffic.
const FETCHED: usize = 90;
/// Width from which on there is room for the other policy.
const OTHER: usize = 76;

/// The curves at the same sizes: by the chosen policy and by the other.
pub(super) struct ByStream {
    /// What `own` counts: [`Stream::Private`], or [`Stream::Own`] as if no other thread wrote.
    pub(super) stream: Stream,
    /// A cache for each thread.
    pub(super) own: Vec<CurvePoint>,
    pub(super) own_other: Vec<CurvePoint>,
    /// One cache for all.
    pub(super) all: Vec<CurvePoint>,
    pub(super) all_other: Vec<CurvePoint>,
}

/// What the table is made from.
pub(super) struct Table<'a> {
    pub(super) curves: &'a ByStream,
    /// Names of the policies.
    pub(super) main: &'a str,
    pub(super) other: &'a str,
    pub(super) bytes_per_second: Option<f64>,
    /// Sizes to name.
    pub(super) named: &'a [u64],
    pub(super) header: &'a Header,
}

impl Table<'_> {
    pub(super) fn render(&self, analysis: &Analysis<'_>, style: &Style) -> String {
        let scale = self.bytes_per_second.filter(|_| style.width >= FETCHED);
        let mut out = wrap(&self.meaning(analysis), style.width, 0);
        let fetched = if scale.is_some() { "fetched" } else { "" };
        let both = style.width >= OTHER;
        let other = match both {
            true => format!(" {:>8}", self.other),
            false => String::new(),
        };
        let head = format!(
            "{:>9}  {:>19}{other} {:>20}{other}  use  {fetched:>9}",
            "cache",
            format!("own {}", self.main),
            format!("all {}", self.main),
        );
        let _ = writeln!(out, "{}", style.paint(Ink::Faint, head.trim_end()));
        let c = self.curves;
        let mut weak = false;
        let mut before: Option<[f64; 4]> = None;
        for (i, own) in c.own.iter().enumerate() {
            let points = [own, &c.own_other[i], &c.all[i], &c.all_other[i]];
            let ratios = points.map(|p| p.miss_ratio);
            let marked = self.named.contains(&own.cache_bytes) || i + 1 == c.own.len();
            // A row that says what the row above says is left out.
            let same =
                before.is_some_and(|b| b.iter().zip(ratios).all(|(b, r)| (b - r).abs() < SAME));
            if !marked && (!own.cache_bytes.is_power_of_two() || same) {
                continue;
            }
            before = Some(ratios);
            weak |= points.iter().any(|p| p.is_weak());
            let stream = analysis.stream_at(own.cache_bytes);
            let here = if stream == Stream::All {
                &c.all[i]
            } else {
                own
            };
            let of_host = self.header.host_caches.iter();
            let of_host = of_host.map(|h| h.bytes).any(|b| b == own.cache_bytes);
            let uses = match stream {
                _ if !of_host => "",
                Stream::All => "all",
                _ => "own",
            };
            let ink = if marked { Ink::Strong } else { Ink::Plain };
            let other = |p| match both {
                true => format!(" {}", value(p, style)),
                false => String::new(),
            };
            let mut line = format!(
                "{} {}{}  {}{}  {}",
                style.paint(ink, &format!("{:>9} ", label(self.header, own.cache_bytes))),
                figure(own, style),
                other(&c.own_other[i]),
                figure(&c.all[i], style),
                other(&c.all_other[i]),
                style.paint(Ink::Strong, &format!("{uses:<3}")),
            );
            if let Some(scale) = scale {
                let _ = write!(line, "  {:>9}", bytes_per_second(here.miss_ratio * scale));
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        if weak {
            out.push_str(&of_weak(style));
        }
        if scale.is_some() {
            out.push_str(&of_traffic(self.main, style));
        }
        out
    }

    /// What each column is for.
    fn meaning(&self, analysis: &Analysis<'_>) -> String {
        let levels = |shared: bool| {
            let names: Vec<String> = self
                .header
                .host_caches
                .iter()
                .filter(|c| (analysis.stream_at(c.bytes) == Stream::All) == shared)
                .map(|c| format!("L{}", c.level))
                .collect();
            match names.is_empty() {
                true => String::new(),
                false => format!(" ({} here)", names.join(", ")),
            }
        };
        let lost = match self.curves.stream {
            Stream::Own => "without coherence misses (lines lost to other threads' writes)",
            _ => "lines lost to other threads' writes included",
        };
        format!(
            "own: a cache for each of {} threads, {lost}: for private levels{}; all: one cache for all of them: for shared levels{}",
            analysis.threads(),
            levels(false),
            levels(true)
        )
    }
}

fn figure(p: &CurvePoint, style: &Style) -> String {
    let span = interval(p.low, p.high, style.glyph("–", "-"));
    let span = style.paint(Ink::Faint, &format!("{span:<11}"));
    format!("{} {span}", value(p, style))
}

fn value(p: &CurvePoint, style: &Style) -> String {
    let (mark, ink) = match p.is_weak() {
        true => ("~", Ink::Faint),
        false => ("", Ink::Plain),
    };
    style.paint(
        ink,
        &format!("{:>8}", format!("{mark}{}", percent(p.miss_ratio))),
    )
}

//! The page: its head, a section for each process, its script.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::gathered::Gathered;
use super::names::Places;
use super::text::{embedded, shown};
use super::{STYLE, curve, sharing, source, tables, windows};
use crate::profile::Profile;
use crate::profile::types::Warning;
use crate::report::format::{count, percent};
use crate::report::run::{command, ending, facts, without_windows};
use crate::report::{Sources, processes};

const CSS: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Nothing is fetched, whatever is in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Processes without figures that are named.
const NAMED: usize = 100;

/// `others` are processes that are named alone.
pub(super) fn page(
    profile: &Profile,
    shown_ones: &[Gathered<'_>],
    others: &[&Profile],
    sources: &dyn Sources,
) -> Markup {
    let mut room = source::ROOM;
    let data: Value = shown_ones.iter().map(curve::data).collect();
    let first = shown_ones.first().map_or(profile, |of| of.analysis.profile);
    let title = first.header.program();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (shown(title)) " – cache misses" }
                style { (PreEscaped(CSS)) }
            }
            body {
                (of_run(profile, shown_ones, others))
                main {
                    @for of in shown_ones { (process(of, sources, &mut room)) }
                }
                footer {
                    p.faint {
                        "statcache " (shown(&profile.header.statcache_version))
                        ". Figures marked ~ rest on too few samples, or are all but unknown. Caches are modelled fully associative and without prefetchers; loads and stores count alike."
                    }
                }
                script type="application/json" id="data" { (PreEscaped(embedded(&data))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// The processes of a run of several, and what is to be known of the run, which is written down with the first.
fn of_run(profile: &Profile, shown_ones: &[Gathered<'_>], others: &[&Profile]) -> Markup {
    let all = processes::busiest_first(profile);
    let total: f64 = all.iter().map(|p| processes::weight(p)).sum();
    let share = |p: &Profile| percent(processes::weight(p) / total.max(1e-12));
    let is_first = |of: &Gathered<'_>| std::ptr::eq(of.analysis.profile, profile);
    html! {
        @if all.len() > 1 {
            header.run {
                nav.processes aria-label="processes" {
                    @for of in shown_ones {
                        @let p = of.analysis.profile;
                        a href={ "#" (of.id("process")) } title=(shown(&command(&p.header))) {
                            b { (shown(p.header.program())) } " " small { (p.header.pid) " · " (share(p)) " CPU" }
                        }
                    }
                }
                @if !others.is_empty() {
                    details {
                        summary { (others.len()) @if others.len() == 1 { " process" } @else { " processes" } " without figures here" }
                        p.faint { "Not seen in windows, or less busy: statcache report --process PID" }
                        table.figures {
                            thead { tr { th { "pid" } th { "CPU" } th { "accesses seen" } th.name { "command" } } }
                            tbody {
                                @for p in others.iter().take(NAMED) {
                                    tr {
                                        td { (p.header.pid) }
                                        td { (share(p)) }
                                        td { (count(p.windows.iter().map(|w| w.accesses as f64).sum())) }
                                        td.name { (shown(&command(&p.header))) }
                                    }
                                }
                            }
                        }
                        @if others.len() > NAMED { p.faint { "and " (others.len() - NAMED) " more" } }
                    }
                }
                @if !shown_ones.first().is_some_and(is_first) {
                    (warnings(profile.warnings(), &format!("of the run, or of process {}: ", profile.header.pid)))
                }
            }
        }
    }
}

fn warnings<'a>(list: impl Iterator<Item = &'a Warning>, of: &str) -> Markup {
    html! {
        @for w in list {
            p.warning { b { "warning" } " " (of) (shown(&w.what)) ": " (shown(&w.remedy)) }
        }
    }
}

fn process(of: &Gathered<'_>, sources: &dyn Sources, room: &mut usize) -> Markup {
    let profile = of.analysis.profile;
    let sheets = source::read(of, sources, room);
    let mut places = Places::default();
    for sheet in &sheets.list {
        sheet.add_to(&mut places);
    }
    let curve = of.first().map_or(&[][..], |c| &c.random);
    let mut parts = vec![("curve", "Curve"), ("where", "Where"), ("source", "Source")];
    if of.sharing.is_some() {
        parts.push(("sharing", "Sharing"));
    }
    parts.push(("time", "Over the run"));
    let id = of.id("process");
    html! {
        article.process id=(id) data-number=(of.number) {
            div.head {
                h1 { (shown(&command(&profile.header))) }
                p.facts { @for (n, fact) in ending(profile).iter().enumerate() { @if n > 0 { " · " } (shown(fact)) } }
                dl {
                    @for (name, text) in facts(of.analysis, curve, &STYLE) {
                        dt { (name) }
                        dd { (shown(&text)) }
                    }
                }
                (warnings(profile.warnings(), ""))
            }
            @if of.curves.is_empty() {
                p.nothing { b { "Nothing was measured: " } (without_windows(of.analysis).1) }
            } @else {
                nav.parts { @for (part, name) in parts { a href={ "#" (of.id(part)) } { (name) } } }
                (curve::section(of))
                (tables::section(of, &places, &sheets.list))
                (source::section(of, &sheets))
                @if let Some(figures) = &of.sharing { (sharing::section(of, figures, &places)) }
                @if let Some(ranking) = &of.windows { (windows::section(of, ranking)) }
            }
        }
    }
}

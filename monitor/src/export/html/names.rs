//! What a subject is called, and why it misses: with links to the source where the page has it.

use std::collections::HashMap;

use maud::{Markup, html};

use super::gathered::Gathered;
use super::text::shown;
use crate::analysis::{DataKind, Edge, Ranking, Row, Subject};
use crate::report::format::{base_name, short_function, whole_percent};
use crate::report::ranking::{ALL, ALL_EDGES, Why, edge_name, name_of};

/// Characters of a function's name from which on arguments of templates and the like are left out.
const FUNCTION: usize = 96;
/// Reuse edges, memory objects, and lines that one was inlined into, named for one subject.
const EDGES: usize = 4;
const DATA: usize = 3;
const SITES: usize = 3;
/// Functions that a line was inlined into, named at most.
const INTO: usize = 3;

/// Lines of sources that are in the page, and their identifiers in it.
#[derive(Default)]
pub(super) struct Places<'a> {
    ids: HashMap<(&'a str, u32), String>,
}

impl<'a> Places<'a> {
    pub(super) fn add(&mut self, file: &'a str, line: u32, id: String) {
        self.ids.insert((file, line), id);
    }

    /// A text that leads to a line where the page has it.
    pub(super) fn link(&self, file: &str, line: u32, text: &str) -> Markup {
        let title = match line {
            0 => file.to_owned(),
            line => format!("{file}:{line}"),
        };
        html! {
            @match self.ids.get(&(file, line)) {
                Some(id) => a.place href={ "#" (id) } title=(shown(&title)) { (shown(text)) },
                None if file.is_empty() => span.place { (shown(text)) },
                None => span.place title=(shown(&title)) { (shown(text)) },
            }
        }
    }

    /// `file:line` of a subject; nothing where the file is not known.
    fn place(&self, of: &Subject) -> Markup {
        html! {
            @if !of.file.is_empty() {
                (self.link(&of.file, of.line, &place_name(of)))
            }
        }
    }

    /// A subject by the name it has in a report.
    pub(super) fn name(&self, of: &Subject) -> Markup {
        html! {
            @if of.data.is_some() {
                (self.datum(of))
            } @else if of.offset.is_some() {
                span.place { (shown(&name_of(of, FUNCTION).0)) } " "
                (function(&of.function)) " "
                (self.place(of))
            } @else if of.line > 0 {
                (self.place(of)) " "
                (function(&of.function))
            } @else if !of.function.is_empty() {
                (function(&of.function)) " "
                @if of.file.is_empty() {
                    // `app+0x1130` has said its object already.
                    @if !of.function.starts_with(&of.object) { span.faint { (shown(&of.object)) } }
                } @else {
                    (self.place(of))
                }
            } @else {
                span.place { (shown(&name_of(of, FUNCTION).0)) }
            }
        }
    }

    /// A piece of memory.
    pub(super) fn datum(&self, of: &Subject) -> Markup {
        html! {
            @if of.data == Some(DataKind::Heap) && of.line > 0 {
                span.place { "heap of " } (function(&of.function)) " " (self.place(of))
            } @else {
                @let (name, context) = name_of(of, FUNCTION);
                span.place { (shown(&name)) } " "
                span.faint { (shown(&context)) }
            }
        }
    }
}

fn place_name(of: &Subject) -> String {
    match of.line {
        0 => base_name(&of.file).to_owned(),
        line => format!("{}:{line}", base_name(&of.file)),
    }
}

fn function(name: &str) -> Markup {
    let short = short_function(name, FUNCTION);
    html! {
        @if short == name {
            span.fn { (shown(name)) }
        } @else {
            span.fn title=(shown(name)) { (shown(&short)) }
        }
    }
}

/// The compiled functions that hold a line.
fn into(functions: &[String]) -> Markup {
    html! {
        "in "
        @for (n, into) in functions.iter().take(INTO).enumerate() {
            @if n > 0 { ", " }
            (function(into))
        }
        @if functions.len() > INTO {
            " and " (functions.len() - INTO) " more"
        }
    }
}

/// A share behind a name, on the same line; left out where it is all.
fn of_all(share: f64, all: f64) -> String {
    match share > all {
        true => String::new(),
        false => format!(" {}", whole_percent(share)).replace(' ', "\u{a0}"),
    }
}

/// Parts of an explanation, with something between them.
fn joined(parts: Vec<Markup>, between: &str) -> Markup {
    html! {
        @for (n, part) in parts.into_iter().enumerate() {
            @if n > 0 { (between) }
            (part)
        }
    }
}

/// Why a row misses: what it was inlined into, whose memory, what other threads do to it, what touched it last.
pub(super) fn why(
    of: &Gathered<'_>,
    ranking: &Ranking,
    row: &Row,
    places: &Places<'_>,
) -> Option<Markup> {
    let subject = &ranking.subjects.list[row.subject as usize];
    let why = Why::of(of.analysis, ranking, row);
    let mut parts = Vec::new();
    if !subject.inlined_into.is_empty() {
        parts.push(into(&subject.inlined_into));
    }
    let sites = why.sites.iter().take(SITES).map(|&(site, share)| {
        html! { (places.place(site)) " " (function(&site.function)) (of_all(share, ALL)) }
    });
    let sites: Vec<Markup> = sites.collect();
    if !sites.is_empty() {
        parts.push(html! { "inlined into " (joined(sites, ", ")) });
    }
    if !subject.callers.is_empty() {
        let callers = subject.callers.iter().map(|name| function(name)).collect();
        parts.push(html! { "called by " (joined(callers, ", by ")) });
    }
    let data = why.data.iter().take(DATA);
    let data: Vec<Markup> = data
        .map(|&(name, share)| html! { (shown(name)) (of_all(share, ALL)) })
        .collect();
    if !data.is_empty() {
        parts.push(joined(data, ", "));
    }
    parts.extend(why.lost.map(|lost| html! { (lost) }));
    let edges = why.edges.iter().take(EDGES);
    let edges: Vec<Markup> = edges.map(|e| edge(ranking, row, e, places)).collect();
    if !edges.is_empty() {
        let mark = if why.edges_known { "" } else { "~" };
        parts.push(html! { "last touched by " (mark) (joined(edges, ", ")) });
    }
    (!parts.is_empty()).then(|| joined(parts, " · "))
}

fn edge(ranking: &Ranking, row: &Row, e: &Edge, places: &Places<'_>) -> Markup {
    let to = &ranking.subjects.list[row.subject as usize];
    let from = &ranking.subjects.list[e.from as usize];
    html! {
        @if e.from == row.subject {
            "itself"
        } @else {
            (places.link(&from.file, from.line, &edge_name(from, to)))
        }
        (of_all(e.share, ALL_EDGES))
    }
}

//! What threads take from each other, in the report's words.

use maud::{Markup, html};
use statcache_model::Sharing;

use super::STYLE;
use super::gathered::Gathered;
use super::names::Places;
use super::text::{figure, shown, span};
use crate::analysis::{Pair, SharingFigures};
use crate::report::format::{count, percent};
use crate::report::run::cure;
use crate::report::sharing::{MATTERS, advice, by_line, caveat, overall, verdict};

/// Pairs listed.
const PAIRS: usize = 50;

/// The section.
pub(super) fn section(of: &Gathered<'_>, figures: &SharingFigures, places: &Places<'_>) -> Markup {
    let profile = of.analysis.profile;
    let header = &profile.header;
    let listed: Vec<&Pair> = match figures.at_64.miss_ratio < MATTERS {
        true => Vec::new(),
        false => figures.pairs.iter().take(PAIRS).collect(),
    };
    let rest = &figures.pairs[listed.len()..];
    let id = of.id("sharing");
    html! {
        section id=(id) {
            h2 { "Sharing between threads " small { "64-byte lines, private caches of any size" } }
            p { (sentence(&overall(figures, header.full, &STYLE))) }
            @if !listed.is_empty() {
                @if let Some(text) = caveat(profile) { p.warning { (text) } }
                @if let Some(text) = by_line(figures) { p.faint { (sentence(&format!("misses by other threads' writes {text}"))) } }
                table.list {
                    thead {
                        tr {
                            th title="share of all coherence misses" { "share" }
                            th title="coherence misses per reference of the run" { "of all references" }
                            th title="share whose remote writes were all to other bytes of the line" { "other bytes" }
                            th { "lost" }
                            th.left { "verdict" }
                            th.name { "who takes lines from whom" }
                        }
                    }
                    tbody { @for pair in &listed { (row(figures, pair, places)) } }
                }
                @if !rest.is_empty() {
                    p.faint { (rest.len()) " more with " (percent(rest.iter().map(|p| p.share).sum())) " of what is lost" }
                }
                @if listed.iter().any(|p| p.verdict == Sharing::NoVerdict) {
                    p.faint { "~ weak: too few samples for a verdict; cure: " (cure(header)) }
                }
                @for text in advice(figures, &listed) { p { (sentence(&text)) } }
            }
        }
    }
}

fn row(figures: &SharingFigures, pair: &Pair, places: &Places<'_>) -> Markup {
    let list = &figures.subjects.list;
    let weak = pair.verdict == Sharing::NoVerdict;
    let width = format!("--w:{:.1}%", 100.0 * pair.share.clamp(0.0, 1.0));
    // One side writes and does not mind.
    let one_sided = pair.first_share > 0.95 && pair.second != Some(pair.first);
    html! {
        tr {
            td.share.weak[weak] style=(width) { (figure(pair.share, weak)) small { (span(pair.low, pair.high)) } }
            td.weak[weak] { (figure(pair.miss_ratio, weak)) }
            td.weak[weak] { (figure(pair.disjoint, weak)) }
            td { (count(pair.lost as f64)) }
            td.left { (verdict(pair.verdict).unwrap_or("no verdict")) }
            td.name {
                (places.name(&list[pair.first as usize]))
                " " (if one_sided { "←" } else { "↔" }) " "
                @match pair.second {
                    Some(second) => (places.name(&list[second as usize])),
                    None => "a writer not seen",
                }
                div.why { (places.datum(&pair.data)) }
            }
        }
    }
}

/// Text of a report as a sentence of its own.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut out = String::new();
    let mut chars = text.chars();
    out.extend(chars.next().into_iter().flat_map(char::to_uppercase));
    out.push_str(chars.as_str());
    if !out.ends_with('.') {
        out.push('.');
    }
    shown(&out).into_owned()
}

//! Source text with the figures of its lines beside it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::ReportError;
use super::format::{base_name, elide, percent};
use super::ranking::heat;
use super::style::{Ink, Style, fit};
use crate::analysis::sizes::label;
use crate::analysis::{Ranking, Row, Subject};
use crate::profile::types::Header;

/// Lines of context around a line that has figures.
const CONTEXT: u32 = 3;

/// Where source text comes from.
pub trait Sources {
    /// The text of a file as the debug information names it, and whether it changed since the run.
    fn read(&self, path: &str) -> Option<Source>;
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its text.
    pub text: String,
    /// It was modified after the profile was made.
    pub newer: bool,
}

/// Annotates every file or function that `wanted` names. `ranking` is by one of both kinds of line, `primary` the index
/// of its ranking cache.
pub(super) fn render(
    ranking: &Ranking,
    primary: usize,
    wanted: &str,
    sources: &dyn Sources,
    header: &Header,
    style: &Style,
) -> Result<String, ReportError> {
    let files = select(ranking, wanted);
    if files.is_empty() {
        return Err(ReportError::NoSuchSource {
            wanted: wanted.to_owned(),
            known: known(ranking),
        });
    }
    let mut out = String::new();
    for (file, lines) in files {
        let share: f64 = lines
            .values()
            .flatten()
            .map(|r| r.miss[primary].miss_share)
            .sum();
        let cache = lines
            .values()
            .flatten()
            .next()
            .map_or(0, |r| r.miss[primary].cache_bytes);
        let note = format!(
            "{} of all misses in {}",
            percent(share),
            label(header, cache)
        );
        out.push_str(&style.heading(base_name(file), &note));
        let source = sources.read(file);
        let _ = writeln!(
            out,
            "{}",
            style.paint(Ink::Faint, &fit(file, style.width, style))
        );
        match &source {
            None => {
                let text =
                    "  (source not found here: figures only; run `report` where the sources are)";
                let _ = writeln!(
                    out,
                    "{}",
                    style.paint(Ink::Faint, &fit(text, style.width, style))
                );
            }
            Some(s) if s.newer => {
                let text = "  (changed since the run: lines may have moved)";
                let _ = writeln!(out, "{}", style.paint(Ink::Warm, text));
            }
            Some(_) => {}
        }
        let text: Vec<&str> = source.iter().flat_map(|s| s.text.lines()).collect();
        listing(&lines, &text, primary, header, style, &mut out);
        out.push('\n');
    }
    Ok(out)
}

type Lines<'a> = BTreeMap<u32, Vec<&'a Row>>;

/// Files, each with the rows of its lines: all lines of a file, or those of a function.
fn select<'a>(ranking: &'a Ranking, wanted: &str) -> BTreeMap<&'a str, Lines<'a>> {
    let subject = |row: &Row| &ranking.subjects.list[row.subject as usize];
    let gather = |accept: &dyn Fn(&Subject) -> bool| {
        let mut files: BTreeMap<&str, Lines<'_>> = BTreeMap::new();
        for row in &ranking.rows {
            let s = subject(row);
            if s.line > 0 && accept(s) {
                files
                    .entry(&s.file)
                    .or_default()
                    .entry(s.line)
                    .or_default()
                    .push(row);
            }
        }
        files
    };
    let by_file = gather(&|s| s.file == wanted || s.file.ends_with(&format!("/{wanted}")));
    if !by_file.is_empty() {
        return by_file;
    }
    let of = |named: &dyn Fn(&str) -> bool| {
        gather(&|s| named(&s.function) || s.inlined_into.iter().any(|into| named(into)))
    };
    let inside = format!("::{wanted}");
    let by_name = of(&|function| {
        let name = function.split('(').next().unwrap_or(function);
        [function, name].contains(&wanted) || name.ends_with(&inside)
    });
    if !by_name.is_empty() {
        return by_name;
    }
    // As a list has it, its template arguments and parameters left out, or without them.
    let wanted = bare(wanted);
    let inside = format!("::{wanted}");
    of(&|function| {
        let function = bare(function);
        function == wanted || function.ends_with(&inside)
    })
}

/// A function's name without template arguments, parameters, and what it returns.
fn bare(function: &str) -> String {
    const CALL: &str = "operator()";
    let name = elide(&elide(function, '(', ')'), '<', '>').replace("<..>", "");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut calls = name.match_indices(CALL);
    let call = calls.find(|(at, _)| !name[..*at].ends_with(is_part));
    let from = call.map_or(0, |(at, _)| at + CALL.len());
    let parameters = name[from..].find('(').map_or(name.len(), |at| from + at);
    let name = name[..parameters].trim_end();
    let start = match name.contains("operator") {
        true => 0,
        false => name.rfind(' ').map_or(0, |at| at + 1),
    };
    name[start..].to_owned()
}

/// The files with most misses, for the message when nothing fits.
fn known(ranking: &Ranking) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in &ranking.rows {
        let s = &ranking.subjects.list[row.subject as usize];
        let name = base_name(&s.file);
        if s.line > 0 && !names.contains(&name) {
            names.push(name);
        }
        if names.len() == 5 {
            break;
        }
    }
    if names.is_empty() {
        "none (no line numbers: compile with -g)".to_owned()
    } else {
        names.join(", ")
    }
}

fn listing(
    lines: &Lines<'_>,
    text: &[&str],
    primary: usize,
    header: &Header,
    style: &Style,
    out: &mut String,
) {
    let sizes: Vec<u64> = lines
        .values()
        .flatten()
        .next()
        .map(|r| r.miss.iter().map(|m| m.cache_bytes).collect())
        .unwrap_or_default();
    let bar = style.glyph("│", "|");
    let shown: Vec<usize> = columns(sizes.len(), primary, style);
    let mut heads = format!("{:>7} {:>7}", "misses", "access");
    for &i in &shown {
        let _ = write!(heads, " {:>8}", label(header, sizes[i]));
    }
    let _ = writeln!(out, "{}", style.paint(Ink::Faint, &heads));
    let empty = " ".repeat(heads.chars().count());
    let mut before = 0;
    for number in printed(lines, text.len() as u32) {
        if before != 0 && number != before + 1 {
            let _ = writeln!(
                out,
                "{empty} {}",
                style.paint(Ink::Faint, style.glyph("⋮", ":"))
            );
        }
        before = number;
        let code = text
            .get(number as usize - 1)
            .unwrap_or(&"")
            .replace('\t', "    ");
        let rows = lines.get(&number);
        let figures = rows.map_or_else(
            || empty.clone(),
            |rows| figures(rows, &shown, primary, style),
        );
        let used = empty.len() + 10;
        let code = fit(&code, style.width.saturating_sub(used), style);
        let ink = if rows.is_some() {
            Ink::Plain
        } else {
            Ink::Faint
        };
        let line = format!(
            "{figures} {} {} {}",
            style.paint(Ink::Faint, &format!("{number:>5}")),
            style.paint(Ink::Faint, bar),
            style.paint(ink, &code)
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// The ranking cache and as many others as leave room for code.
fn columns(n: usize, primary: usize, style: &Style) -> Vec<usize> {
    let room = (style.width.saturating_sub(15 + 10 + 40) / 9).max(1);
    let mut shown = vec![primary];
    shown.extend((0..n).filter(|&i| i != primary).take(room - 1));
    shown.sort_unstable();
    shown
}

/// A line's figures: of all rows there.
pub(crate) struct Figures {
    /// Of the misses in the cache that ranks.
    pub(crate) share: f64,
    /// Of the accesses.
    pub(crate) access: f64,
    /// At each size the ratio, and whether it is weak.
    pub(crate) miss: Vec<(f64, bool)>,
}

impl Figures {
    /// Of one row at least.
    pub(crate) fn of(rows: &[&Row], primary: usize) -> Self {
        let access: f64 = rows.iter().map(|r| r.access_share).sum();
        let miss = |i: usize| {
            // Several functions may share a line of a header: their ratio is that of all together.
            let missed = rows.iter().map(|r| r.miss[i].miss_ratio * r.access_share);
            let missed: f64 = missed.sum();
            let ratio = if access > 0.0 { missed / access } else { 0.0 };
            (ratio, rows.iter().all(|r| r.miss[i].weak))
        };
        Self {
            share: rows.iter().map(|r| r.miss[primary].miss_share).sum(),
            access,
            miss: (0..rows[0].miss.len()).map(miss).collect(),
        }
    }
}

fn figures(rows: &[&Row], shown: &[usize], primary: usize, style: &Style) -> String {
    let all = Figures::of(rows, primary);
    let (share, weak) = (all.share, all.miss[primary].1);
    let ink = if weak { Ink::Faint } else { heat(share) };
    let mark = if weak { "~" } else { "" };
    let mut out = style.paint(ink, &format!("{:>7}", format!("{mark}{}", percent(share))));
    let _ = write!(out, " {:>7}", percent(all.access));
    for &i in shown {
        let (ratio, weak) = all.miss[i];
        let text = if weak {
            format!("~{}", percent(ratio))
        } else {
            percent(ratio)
        };
        let ink = if weak { Ink::Faint } else { Ink::Plain };
        let _ = write!(out, " {}", style.paint(ink, &format!("{text:>8}")));
    }
    out
}

/// Line numbers to print: those with figures and, where there is text, some around them.
fn printed(lines: &Lines<'_>, count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = Vec::new();
    for &n in lines.keys() {
        if count == 0 {
            numbers.push(n);
            continue;
        }
        let from = n.saturating_sub(CONTEXT).max(1);
        let to = n.saturating_add(CONTEXT).min(count.max(n));
        numbers.extend(from..=to);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn names_without_what_changes() {
        for (function, name) in [
            ("naive", "naive"),
            ("ns::lookup<std::map<int, int> >(int)", "ns::lookup"),
            ("lookup<..>()", "lookup"),
            ("void sort_all<int*>(int*, int*)", "sort_all"),
            ("Foo::method(int) const", "Foo::method"),
            ("Foo<int>::operator()(int) const", "Foo::operator()"),
            (
                "std::operator==<char, std::less<char> >(int)",
                "std::operator==",
            ),
            ("std::operator<< <char>(int)", "std::operator<<"),
            ("my_operator<int>(int)", "my_operator"),
        ] {
            assert_eq!(bare(function), name, "{function}");
        }
    }
}

//! A table of the worst subjects of one kind.
//!
//! Two lines a subject: its figures and name; then, fainter, why: what memory its misses are in, how much
//! of what lines bring along saves misses, where what missed was touched last.

use std::collections::HashMap;
use std::fmt::Write;

use super::format::{base_name, count, interval, percent, short_function, whole_percent};
use super::run::cure;
use super::source::Sources;
use super::style::{Ink, Style, fit, fit_end, notes, wrap};
use crate::analysis::sizes::label;
use crate::analysis::{Analysis, By, DataKind, Edge, Miss, Ranking, Row, Subject};
use crate::profile::types::Header;

/// Reuse edges named for one subject.
const EDGES: usize = 3;
/// Own lines named for one of a library.
const SITES: usize = 3;
/// Share of its misses from which on the text of one of them stands for it.
const MOST: f64 = 0.5;
/// Columns the name of a subject has at least.
const NAME: usize = 24;
/// Width of a column of another cache.
const OTHER: usize = 10;

/// What a table is made from.
pub(super) struct Table<'a> {
    pub(super) ranking: &'a Ranking,
    pub(super) analysis: &'a Analysis<'a>,
    /// Index of the cache that ranks.
    pub(super) primary: usize,
    /// Subjects shown at most.
    pub(super) top: usize,
    pub(super) header: &'a Header,
    /// Source text by file, for rankings by line.
    pub(super) text: &'a Texts,
}

/// Source files that were asked for.
#[derive(Default)]
pub(super) struct Texts {
    /// As lines; none where a file is not to be had.
    lines: HashMap<String, Vec<String>>,
    /// Those that are not as they were when the program ran.
    changed: Vec<String>,
}

/// Reads the sources of the first `top` lines of a ranking.
pub(super) fn texts(ranking: &Ranking, top: usize, sources: &dyn Sources) -> Texts {
    let mut texts = Texts::default();
    for row in ranking.rows.iter().take(top) {
        let own = &ranking.subjects.list[row.subject as usize];
        for s in [own].into_iter().chain(caller(ranking, row)) {
            if s.line == 0 || texts.lines.contains_key(&s.file) {
                continue;
            }
            // What changed since the run would put the wrong line beside a figure.
            let mut source = sources.read(&s.file);
            if source.take_if(|source| source.newer).is_some() {
                texts.changed.push(base_name(&s.file).to_owned());
            }
            let lines = source
                .iter()
                .flat_map(|s| s.text.lines())
                .map(str::to_owned);
            texts.lines.insert(s.file.clone(), lines.collect());
        }
    }
    texts
}

/// The program's own line that most of what a line of a library misses is inlined into.
fn caller<'a>(ranking: &'a Ranking, row: &Row) -> Option<&'a Subject> {
    let &(site, share) = row.called_at.first()?;
    (share >= MOST).then(|| &ranking.callers.list[site as usize])
}

pub(super) fn plural_of(by: By) -> &'static str {
    match by {
        By::Line | By::OwnLine => "lines",
        By::Function => "functions",
        By::Instruction => "instructions",
        By::Object => "objects",
        By::Data => "data",
        By::Window => "windows",
    }
}

pub(super) fn singular_of(by: By) -> &'static str {
    match by {
        By::Line | By::OwnLine => "line",
        By::Function => "function",
        By::Instruction => "instruction",
        By::Object => "object",
        By::Data => "data",
        By::Window => "window",
    }
}

/// Of a ranking by line: the share of the misses whose code has no line numbers, and the object
/// most of those are in.
pub(super) fn without_lines(ranking: &Ranking, primary: usize) -> (f64, &str) {
    let mut by_object: HashMap<&str, f64> = HashMap::new();
    for row in &ranking.rows {
        let s = &ranking.subjects.list[row.subject as usize];
        if s.line == 0 {
            *by_object.entry(&s.object).or_default() += row.miss[primary].miss_share;
        }
    }
    let worst = by_object
        .iter()
        .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
    (by_object.values().sum(), worst.map_or("", |w| w.0))
}

/// Share of the misses that a row must have at some size to be listed: 0.01 % as it is printed.
const LEAST_SHARE: f64 = 0.5e-4;

impl Table<'_> {
    pub(super) fn render(&self, style: &Style) -> String {
        let others = self.others(style);
        let samples = self.show_samples(style);
        let mut out = self.column_heads(&others, style);
        let shown = self.ranking.rows.iter().take(self.top);
        // What misses nowhere has no place in a list of misses, unless nothing misses.
        let misses = |r: &Row| r.miss.iter().any(|m| m.miss_share >= LEAST_SHARE);
        let any = self.ranking.rows.iter().any(misses);
        let (mut weak, mut heap) = (false, false);
        let mut listed = 0;
        for row in shown.filter(|r| !any || misses(r)) {
            weak |= row.miss.iter().any(|m| m.weak);
            let subject = &self.ranking.subjects.list[row.subject as usize];
            heap |= is_whole_heap(subject) && misses(row);
            listed += 1;
            self.row(row, &others, samples, style, &mut out);
        }
        self.rest(listed, style, &mut out);
        let mut notes = Vec::new();
        if weak {
            notes.push(match self.ranking.rough {
                true => "~ rough at this line size: misses may be another one's, whatever the interval; cure: --full".to_owned(),
                false => format!("~ weak: too few samples, or all but unknown; cure: {}", cure(self.header)),
            });
        }
        if heap {
            notes.push(
                "heap: 'statcache run --heap-sites' tells which call allocated it".to_owned(),
            );
        }
        if !self.text.changed.is_empty() {
            let files = self.text.changed.join(", ");
            notes.push(format!(
                "not shown, as it has changed since the run: the text of {files}"
            ));
        }
        let sizes = self.ranking.rows.first().map_or(0, |r| r.miss.len());
        let left_out: Vec<String> = (0..sizes)
            .filter(|i| *i != self.primary && !others.contains(i))
            .map(|i| self.cache(i))
            .collect();
        if !left_out.is_empty() {
            let sizes = left_out.join(", ");
            notes.push(format!("no room for {sizes}: a wider terminal, or export"));
        }
        for text in notes {
            for line in wrap(&text, style.width, 2).lines() {
                let _ = writeln!(out, "{}", style.paint(Ink::Faint, line));
            }
        }
        out
    }

    /// Indices of the other caches that fit.
    fn others(&self, style: &Style) -> Vec<usize> {
        let n = self.ranking.rows.first().map_or(0, |r| r.miss.len());
        let fixed = FIXED + if self.show_samples(style) { SAMPLES } else { 0 } + NAME;
        let room = style.width.saturating_sub(fixed) / OTHER;
        (0..n).filter(|&i| i != self.primary).take(room).collect()
    }

    fn show_samples(&self, style: &Style) -> bool {
        style.width >= 90
    }

    fn cache(&self, i: usize) -> String {
        let miss = self.ranking.rows.first().and_then(|r| r.miss.get(i));
        miss.map_or_else(String::new, |m| label(self.header, m.cache_bytes))
    }

    fn column_heads(&self, others: &[usize], style: &Style) -> String {
        let mut line = format!(
            "{:>7}  {:<21}",
            "misses",
            format!("ratio {}", self.cache(self.primary))
        );
        for &i in others {
            let _ = write!(line, "{:>OTHER$}", self.cache(i));
        }
        if self.show_samples(style) {
            let _ = write!(line, "{:>SAMPLES$}", "samples");
        }
        let what = singular_of(self.ranking.subjects.by);
        let _ = write!(line, "  {what}");
        format!("{}\n", style.paint(Ink::Faint, &line))
    }

    fn row(&self, row: &Row, others: &[usize], samples: bool, style: &Style, out: &mut String) {
        let subject = &self.ranking.subjects.list[row.subject as usize];
        let main = &row.miss[self.primary];
        let faint = main.weak;
        let ink = if faint {
            Ink::Faint
        } else {
            heat(main.miss_share)
        };
        let share = format!("{:>7}", mark(main, percent(main.miss_share)));
        let ratio = format!("{:>8}", mark(main, percent(main.miss_ratio)));
        let dash = style.glyph("–", "-");
        // `~<0.01 %` is wider than the column of the shares.
        let room = FIXED - 4 - share.chars().count() - ratio.chars().count();
        let span = format!("{:<room$}", interval(main.low, main.high, dash));
        let plain = if faint { Ink::Faint } else { Ink::Plain };
        let mut line = format!(
            "{} {} {}",
            style.paint(ink, &share),
            style.paint(plain, &ratio),
            style.paint(Ink::Faint, &span)
        );
        for &i in others {
            let m = &row.miss[i];
            let ink = if m.weak { Ink::Faint } else { Ink::Plain };
            line.push_str(
                &style.paint(ink, &format!("{:>OTHER$}", mark(m, percent(m.miss_ratio)))),
            );
        }
        if samples {
            let _ = write!(line, "{:>SAMPLES$}", count(row.samples as f64));
        }
        let used = FIXED + others.len() * OTHER + if samples { SAMPLES } else { 0 };
        let room = style.width.saturating_sub(used);
        let (name, context) = name_of(subject, room);
        let is_place = subject.line > 0 && subject.offset.is_none() && subject.data.is_none();
        let cut = if is_place { fit_end } else { fit };
        let name = cut(&name, room, style);
        let _ = write!(line, "  {}", style.paint(Ink::Strong, &name));
        let left = room.saturating_sub(name.chars().count() + 1);
        if !context.is_empty() && left >= 8 {
            let _ = write!(
                line,
                " {}",
                style.paint(Ink::Faint, &fit(&context, left, style))
            );
        }
        let _ = writeln!(out, "{}", line.trim_end());
        let bar = style.paint(Ink::Faint, style.glyph("│", "|"));
        let own = caller(self.ranking, row).and_then(|caller| self.code(caller));
        if let Some(code) = own.or_else(|| self.code(subject)) {
            let _ = writeln!(out, "         {bar} {}", fit(code, style.width - 11, style));
        }
        let mut why = self.why(row, subject);
        if !context.is_empty() && left < 8 {
            why.insert(0, context);
        }
        for text in notes(&why, style.width - 9, style) {
            let _ = writeln!(out, "         {}", style.paint(Ink::Faint, &text));
        }
    }

    fn why(&self, row: &Row, subject: &Subject) -> Vec<String> {
        let mut parts = Vec::new();
        let site = |&(site, share): &(u32, f64)| {
            let site = &self.ranking.callers.list[site as usize];
            let place = format!("{}:{}", base_name(&site.file), site.line);
            let function = short_function(&site.function, NAME);
            match share > 0.95 {
                true => format!("{place} {function}"),
                false => format!("{place} {function} {}", whole_percent(share)),
            }
        };
        let sites = row.called_at.iter().filter(|(_, share)| *share >= 0.05);
        let sites: Vec<String> = sites.take(SITES).map(site).collect();
        if !sites.is_empty() {
            parts.push(format!("inlined into {}", sites.join(", ")));
        }
        if !subject.callers.is_empty() {
            let callers = subject.callers.iter();
            let callers: Vec<String> = callers.map(|f| short_function(f, NAME)).collect();
            parts.push(format!("called by {}", callers.join(", by ")));
        }
        let data = row.data.iter().filter(|(_, share)| *share >= 0.05);
        let name = |&(datum, share): &(u32, f64)| {
            let name = &self.analysis.datum(datum).name;
            match share > 0.95 {
                true => name.clone(),
                false => format!("{name} {}", whole_percent(share)),
            }
        };
        let names: Vec<String> = data.take(2).map(name).collect();
        if !names.is_empty() {
            parts.push(names.join(", "));
        }
        if let Some(s) = &row.sharing
            && let Some(verdict) = super::sharing::verdict(s.verdict)
        {
            let lost = whole_percent(s.coherence);
            parts.push(format!("{lost} lost to other threads' writes ({verdict})"));
        }
        if let Some(used) = row.spatial_use {
            // In sampled windows it rests on few long ones.
            let mark = if self.header.full { "" } else { "~" };
            parts.push(format!("spatial use {mark}{}", whole_percent(used)));
        }
        // Data are touched last by themselves; only code has something to say here.
        if self.ranking.subjects.by != By::Data {
            let edges: Vec<String> = of_misses(&row.reuse_from)
                .iter()
                .filter(|e| e.share >= 0.01)
                .take(EDGES)
                .map(|e| self.edge(e, row, subject))
                .collect();
            if !edges.is_empty() {
                // What most of its misses were last touched by may be something else.
                let mark = if row.from_known > 0.5 { "" } else { "~" };
                parts.push(format!("last touched by {mark}{}", edges.join(", ")));
            }
        }
        parts
    }

    /// The text of a subject's line.
    fn code(&self, subject: &Subject) -> Option<&str> {
        let lines = self.text.lines.get(&subject.file)?;
        let line = lines.get((subject.line as usize).checked_sub(1)?)?.trim();
        (!line.is_empty() && self.ranking.subjects.by == By::Line).then_some(line)
    }

    /// The near end is left out where it is the far end too; a share where there is but one edge.
    fn edge(&self, e: &Edge, row: &Row, subject: &Subject) -> String {
        let name = if e.from == row.subject {
            "itself".to_owned()
        } else {
            edge_name(&self.ranking.subjects.list[e.from as usize], subject)
        };
        if e.share >= 0.995 {
            name
        } else {
            format!("{name} {}", whole_percent(e.share))
        }
    }

    /// What is not listed.
    fn rest(&self, listed: usize, style: &Style, out: &mut String) {
        let rows = &self.ranking.rows;
        let rest: f64 = rows
            .iter()
            .skip(listed)
            .map(|r| r.miss[self.primary].miss_share)
            .sum();
        let mut parts = Vec::new();
        if rows.len() > listed {
            let by = self.ranking.subjects.by;
            let more = rows.len() - listed;
            let what = if more == 1 {
                singular_of(by)
            } else {
                plural_of(by)
            };
            parts.push(format!(
                "{more} more {what} with {} of the misses",
                percent(rest)
            ));
        }
        let lost = self
            .ranking
            .unattributed
            .get(self.primary)
            .copied()
            .unwrap_or(0.0);
        if lost >= 0.0005 {
            parts.push(format!(
                "{} of the misses could not be placed",
                percent(lost)
            ));
        }
        if !parts.is_empty() {
            let text = format!("         {}", parts.join("; "));
            let _ = writeln!(
                out,
                "{}",
                style.paint(Ink::Faint, &fit(&text, style.width, style))
            );
        }
    }
}

/// Whether this is all of the heap, as no allocation sites were looked for.
fn is_whole_heap(subject: &Subject) -> bool {
    subject.data == Some(DataKind::Heap) && subject.name == "heap"
}

/// Columns before the other caches, and the two spaces before the name.
const FIXED: usize = 7 + 2 + 7 + 1 + 13 + 2;
const SAMPLES: usize = 10;

fn mark(m: &Miss, text: String) -> String {
    if m.weak { format!("~{text}") } else { text }
}

pub(super) fn heat(share: f64) -> Ink {
    if share >= 0.2 {
        Ink::Hot
    } else if share >= 0.05 {
        Ink::Warm
    } else {
        Ink::Plain
    }
}

/// A subject's name, and what is said behind it where there is room.
pub(super) fn name_of(s: &Subject, room: usize) -> (String, String) {
    if let Some(kind) = s.data {
        let context = match kind {
            DataKind::Static => format!("static in {}", s.object),
            DataKind::Heap if s.line > 0 => {
                let function = short_function(&s.function, room.saturating_sub(8));
                let place = format!("{}:{}", base_name(&s.file), s.line);
                return (format!("heap of {function}"), place);
            }
            DataKind::Heap | DataKind::Stack | DataKind::Mapping => String::new(),
        };
        return (s.name.clone(), context);
    }
    let place = match (s.file.is_empty(), s.line) {
        (true, _) => String::new(),
        (false, 0) => base_name(&s.file).to_owned(),
        (false, line) => format!("{}:{line}", base_name(&s.file)),
    };
    if let Some(offset) = s.offset {
        let address = if s.object.is_empty() {
            format!("{offset:#x}")
        } else {
            format!("{}+{offset:#x}", s.object)
        };
        return (
            address,
            join(&short_function(&s.function, room / 2), &place),
        );
    }
    if s.line > 0 {
        let function = short_function(&s.function, room.saturating_sub(place.len() + 1));
        let context = match s.inlined_into.as_slice() {
            [] => function,
            [into] => format!("{function} in {}", short_function(into, room / 2)),
            several => format!("{function} in {} functions", several.len()),
        };
        return (place, context);
    }
    if !s.function.is_empty() {
        let within = match place.is_empty() {
            // `app+0x1130` has said its object already.
            true if s.function.starts_with(&s.object) => String::new(),
            true => s.object.clone(),
            false => place,
        };
        return (short_function(&s.function, room), within);
    }
    let object = if s.object.is_empty() {
        "[generated code]".to_owned()
    } else {
        s.object.clone()
    };
    (object, String::new())
}

fn join(a: &str, b: &str) -> String {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b.to_owned(),
        (_, true) => a.to_owned(),
        _ => format!("{a} {b}"),
    }
}

/// The far end of a reuse edge: as short as tells it from the near end.
fn edge_name(from: &Subject, to: &Subject) -> String {
    if from.line > 0 && from.offset.is_none() {
        if from.file == to.file {
            return format!("line {}", from.line);
        }
        return format!("{}:{}", base_name(&from.file), from.line);
    }
    let name = name_of(from, 40).0;
    match name.strip_prefix(from.object.as_str()) {
        Some(rest) if from.object == to.object && rest.starts_with('+') => rest.to_owned(),
        _ => name,
    }
}

/// Reuse edges by their share of the misses, largest first: what hits is last touched close by as a rule, and says nothing of why
/// the rest misses. By their share of the reuses where none misses.
fn of_misses(edges: &[Edge]) -> Vec<Edge> {
    let misses: f64 = edges.iter().map(|e| e.share * e.miss_ratio).sum();
    let of_misses = |e: &Edge| Edge {
        share: e.share * e.miss_ratio / misses,
        ..*e
    };
    let mut edges: Vec<Edge> = match misses > 0.0 {
        true => edges.iter().map(of_misses).collect(),
        false => edges.to_vec(),
    };
    // Of equal ones in the order given.
    edges.sort_by(|a, b| b.share.total_cmp(&a.share));
    edges
}

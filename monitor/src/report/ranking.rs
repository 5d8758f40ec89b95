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
/// Memory objects named in a row.
const DATA: usize = 2;
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
pub(crate) fn caller<'a>(ranking: &'a Ranking, row: &Row) -> Option<&'a Subject> {
    let &(site, share) = row.called_at.first()?;
    (share >= MOST).then(|| &ranking.callers.list[site as usize])
}

/// What there are several of, of a kind.
#[must_use]
pub fn plural_of(by: By) -> &'static str {
    match by {
        By::Line | By::OwnLine => "lines",
        By::Function => "functions",
        By::Instruction => "instructions",
        By::Object => "objects",
        By::Data => "data",
        By::Window => "windows",
    }
}

/// What one of a kind is called.
#[must_use]
pub fn singular_of(by: By) -> &'static str {
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

/// Share of a row's misses from which on a part of them is named.
const NOTED: f64 = 0.05;
/// The same of its reuses.
const NOTED_EDGE: f64 = 0.01;
/// Share that is as good as all, and has no figure.
pub(crate) const ALL: f64 = 0.95;
/// The same of reuses.
pub(crate) const ALL_EDGES: f64 = 0.995;

/// Why a row misses, as far as it is known: each part of it with its share, largest first.
pub(crate) struct Why<'a> {
    /// The program's own lines that a line of a library was inlined into.
    pub(crate) sites: Vec<(&'a Subject, f64)>,
    /// The memory that it misses in.
    pub(crate) data: Vec<(&'a str, f64)>,
    /// What other threads do to it.
    pub(crate) lost: Option<String>,
    /// What touched it last.
    pub(crate) edges: Vec<Edge>,
    /// Whether that was seen of most of its misses: else most may have been touched last by something else.
    pub(crate) edges_known: bool,
}

impl<'a> Why<'a> {
    pub(crate) fn of(analysis: &'a Analysis<'_>, ranking: &'a Ranking, row: &Row) -> Self {
        let noted = |parts: &[(u32, f64)]| -> Vec<(u32, f64)> {
            let parts = parts.iter().copied();
            parts.filter(|(_, share)| *share >= NOTED).collect()
        };
        let sites = noted(&row.called_at).into_iter();
        let data = noted(&row.data).into_iter();
        let lost = row.sharing.as_ref().and_then(|s| {
            let verdict = super::sharing::verdict(s.verdict)?;
            let lost = whole_percent(s.coherence);
            Some(format!("{lost} lost to other threads' writes ({verdict})"))
        });
        // Data are touched last by themselves; only code has something to say here.
        let mut edges = match ranking.subjects.by {
            By::Data => Vec::new(),
            _ => of_misses(&row.reuse_from),
        };
        edges.retain(|e| e.share >= NOTED_EDGE);
        Self {
            sites: sites
                .map(|(site, share)| (&ranking.callers.list[site as usize], share))
                .collect(),
            data: data
                .map(|(datum, share)| (analysis.datum(datum).name.as_str(), share))
                .collect(),
            lost,
            edges,
            edges_known: row.from_known > 0.5,
        }
    }
}

/// What a table says of each row below its figures, for other views: the text of its line, and why it misses.
#[must_use]
pub fn explained(
    analysis: &Analysis<'_>,
    ranking: &Ranking,
    primary: usize,
    top: usize,
    sources: &dyn Sources,
) -> Vec<(Option<String>, Vec<String>)> {
    let text = match ranking.subjects.by {
        By::Line => texts(ranking, top, sources),
        _ => Texts::default(),
    };
    let table = Table {
        ranking,
        analysis,
        primary,
        top,
        header: &analysis.profile.header,
        text: &text,
    };
    let rows = ranking.rows.iter().take(top);
    rows.map(|row| {
        let subject = &ranking.subjects.list[row.subject as usize];
        let code = table.text_of(row, subject).map(str::to_owned);
        (code, table.why(row, subject))
    })
    .collect()
}

/// Whether a list by line says more than the one by function.
pub(crate) fn has_lines(lines: &Ranking, primary: usize) -> bool {
    without_lines(lines, primary).0 < 0.9
}

/// What to do where misses have no line numbers; `None` where nearly all have.
pub(crate) fn lines_missing(lines: &Ranking, primary: usize) -> Option<String> {
    let (share, object) = without_lines(lines, primary);
    (share >= 0.1 && !object.is_empty()).then(|| {
        format!(
            "{} of the misses are in code without line numbers, most of it in {object}: compile it \
             with -g, or install or fetch (debuginfod-find) its debug symbols, and profile \
             again",
            percent(share)
        )
    })
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
            notes.push(of_weak(self.ranking, self.header));
        }
        if heap {
            notes.push(OF_HEAP.to_owned());
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
        if let Some(code) = self.text_of(row, subject) {
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
        let why = Why::of(self.analysis, self.ranking, row);
        let share = |text: String, share: f64, all: f64| match share > all {
            true => text,
            false => format!("{text} {}", whole_percent(share)),
        };
        let mut parts = Vec::new();
        let sites = why.sites.iter().take(SITES).map(|&(site, part)| {
            let function = short_function(&site.function, NAME);
            let place = format!("{}:{} {function}", base_name(&site.file), site.line);
            share(place, part, ALL)
        });
        let sites: Vec<String> = sites.collect();
        if !sites.is_empty() {
            parts.push(format!("inlined into {}", sites.join(", ")));
        }
        if !subject.callers.is_empty() {
            let callers = subject.callers.iter();
            let callers: Vec<String> = callers.map(|f| short_function(f, NAME)).collect();
            parts.push(format!("called by {}", callers.join(", by ")));
        }
        let data = why.data.iter().take(DATA);
        let data = data.map(|&(name, part)| share(name.to_owned(), part, ALL));
        let names: Vec<String> = data.collect();
        if !names.is_empty() {
            parts.push(names.join(", "));
        }
        parts.extend(why.lost);
        if let Some(used) = row.spatial_use {
            // In sampled windows it rests on few long ones.
            let mark = if self.header.full { "" } else { "~" };
            parts.push(format!("spatial use {mark}{}", whole_percent(used)));
        }
        let edges = why.edges.iter().take(EDGES).map(|e| {
            // The near end is left out where it is the far end too.
            let name = match e.from == row.subject {
                true => "itself".to_owned(),
                false => edge_name(&self.ranking.subjects.list[e.from as usize], subject),
            };
            share(name, e.share, ALL_EDGES)
        });
        let edges: Vec<String> = edges.collect();
        if !edges.is_empty() {
            let mark = if why.edges_known { "" } else { "~" };
            parts.push(format!("last touched by {mark}{}", edges.join(", ")));
        }
        parts
    }

    /// The text of a row's line: of a library's that of the program's own line that it was inlined into.
    fn text_of(&self, row: &Row, subject: &Subject) -> Option<&str> {
        let own = caller(self.ranking, row).and_then(|caller| self.code(caller));
        own.or_else(|| self.code(subject))
    }

    /// The text of a subject's line.
    fn code(&self, subject: &Subject) -> Option<&str> {
        let lines = self.text.lines.get(&subject.file)?;
        let line = lines.get((subject.line as usize).checked_sub(1)?)?.trim();
        (!line.is_empty() && self.ranking.subjects.by == By::Line).then_some(line)
    }

    /// What is not listed.
    fn rest(&self, listed: usize, style: &Style, out: &mut String) {
        if let Some(text) = rest(self.ranking, listed, self.primary) {
            let text = format!("         {text}");
            let _ = writeln!(
                out,
                "{}",
                style.paint(Ink::Faint, &fit(&text, style.width, style))
            );
        }
    }
}

/// What is not among the first `listed` rows; `None` where all is.
pub(crate) fn rest(ranking: &Ranking, listed: usize, primary: usize) -> Option<String> {
    let rows = &ranking.rows;
    let rest: f64 = rows
        .iter()
        .skip(listed)
        .map(|r| r.miss[primary].miss_share)
        .sum();
    let mut parts = Vec::new();
    if rows.len() > listed {
        let by = ranking.subjects.by;
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
    let lost = ranking.unattributed.get(primary).copied().unwrap_or(0.0);
    if lost >= 0.0005 {
        parts.push(format!(
            "{} of the misses could not be placed",
            percent(lost)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Whether a row misses so much at any size that it is listed.
pub(crate) fn misses(row: &Row) -> bool {
    row.miss.iter().any(|m| m.miss_share >= LEAST_SHARE)
}

/// What `~` stands for in a ranking.
pub(crate) fn of_weak(ranking: &Ranking, header: &Header) -> String {
    match ranking.rough {
        true => "~ rough at this line size: misses may be another one's, whatever the interval; cure: --full".to_owned(),
        false => format!("~ weak: too few samples, or all but unknown; cure: {}", cure(header)),
    }
}

/// What to do where the heap is one row.
pub(crate) const OF_HEAP: &str = "heap: 'statcache run --heap-sites' tells which call allocated it";

/// Whether this is all of the heap, as no allocation sites were looked for.
pub(crate) fn is_whole_heap(subject: &Subject) -> bool {
    subject.data == Some(DataKind::Heap) && subject.name == "heap"
}

/// Columns before the other caches, and the two spaces before the name.
const FIXED: usize = 7 + 2 + 7 + 1 + 13 + 2;
const SAMPLES: usize = 10;

pub(crate) fn mark(m: &Miss, text: String) -> String {
    if m.weak { format!("~{text}") } else { text }
}

/// Shares from which on something is hot, and warm.
pub const HOT: f64 = 0.2;
/// See [`HOT`].
pub const WARM: f64 = 0.05;

pub(super) fn heat(share: f64) -> Ink {
    if share >= HOT {
        Ink::Hot
    } else if share >= WARM {
        Ink::Warm
    } else {
        Ink::Plain
    }
}

/// A subject's name, and what is said behind it where there is room.
#[must_use]
pub fn name_of(s: &Subject, room: usize) -> (String, String) {
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
pub(crate) fn edge_name(from: &Subject, to: &Subject) -> String {
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

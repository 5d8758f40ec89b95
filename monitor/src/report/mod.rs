//! The text report: what was run, how it misses, and where.
//!
//! Pure text from an [`Analysis`]: reads no environment and no file but through [`Sources`].

pub(crate) mod curve;
pub mod diff;
mod drawn;
pub(crate) mod format;
pub mod processes;
pub(crate) mod ranking;
pub(crate) mod run;
pub(crate) mod sharing;
pub(crate) mod source;
mod style;
mod table;
mod threads;
pub(crate) mod windows;

use std::fmt::Write;

use statcache_model::{CurvePoint, ModelError, Policy, Stream};

use crate::analysis::sizes::{curve_sizes, host_sizes, label};
use crate::analysis::{Analysis, By, Caches, DEFAULT_LINE_BYTES, Ranking};

pub use format::{count, percent, plural};
pub use ranking::{HOT, WARM, explained, name_of, plural_of as kinds, singular_of as kind};
pub use run::shell_file;
pub use source::{Source, Sources};
pub use style::{Style, Terminal, fit, notes};

/// What a report is to show. Nothing of it was fixed when the profile was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Cache sizes in bytes, the ranking one first; `None`: the host's.
    pub caches: Option<Vec<u64>>,
    /// Line size in bytes, one of [`crate::profile::types::LINE_SIZES`].
    pub line_bytes: u32,
    /// Replacement policy of the rankings.
    pub policy: Policy,
    /// Whose references a cache sees, where threads were seen together; `None`: as at the levels of
    /// the profile's host.
    pub stream: Option<Stream>,
    /// One ranking alone; `None`: lines, functions and data.
    pub by: Option<By>,
    /// Rows of a ranking; `None`: as many as suit the report.
    pub top: Option<usize>,
    /// A file or function to annotate instead.
    pub source: Option<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The model refuses a value.
    #[error("no figures: {0}")]
    Model(#[from] ModelError),
    /// Nothing of that name has figures.
    #[error(
        "no file or function `{wanted}` has samples in lines with numbers; files with most misses: {known}"
    )]
    NoSuchSource {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
}

/// The whole report as text.
///
/// # Errors
/// [`ReportError`]: a cache the model refuses, a source nobody sampled.
pub fn render(
    analysis: &Analysis<'_>,
    options: &Options,
    sources: &dyn Sources,
    style: &Style,
) -> Result<String, ReportError> {
    let caches = caches(analysis, options)?;
    Report {
        analysis,
        options,
        style,
        sources,
        caches,
    }
    .render()
}

/// What was run and how sure it is, and the curves: the report without its rankings.
///
/// # Errors
/// A cache the model refuses.
pub fn working_set(
    analysis: &Analysis<'_>,
    options: &Options,
    sources: &dyn Sources,
    style: &Style,
) -> Result<String, ReportError> {
    let report = Report {
        analysis,
        options,
        style,
        sources,
        caches: caches(analysis, options)?,
    };
    let curves = report.curves()?;
    let mut out = run::block(analysis, &curves.main, style);
    out.push('\n');
    match analysis.is_empty() {
        true => out.push_str(&report.nothing()),
        false => out.push_str(&report.working_set(&curves)?),
    }
    out.push_str(&report.warnings());
    Ok(out)
}

/// What `run` says when the program has ended: a few lines that stand on their own.
///
/// # Errors
/// A value of the profile that the model refuses.
pub fn summary(analysis: &Analysis<'_>, style: &Style) -> Result<String, ModelError> {
    let header = &analysis.profile.header;
    let sizes = host_sizes(header);
    let curve = analysis.curve_of_host(DEFAULT_LINE_BYTES, Policy::RANDOM, &sizes)?;
    let mut out = run::observation(analysis, &curve, style);
    if !curve.is_empty() {
        let ratios: Vec<String> = curve
            .iter()
            .map(|p| {
                let mark = if p.is_weak() { "~" } else { "" };
                format!(
                    "{mark}{} in {}",
                    format::percent(p.miss_ratio),
                    label(header, p.cache_bytes)
                )
            })
            .collect();
        out.push_str(&run::fact("misses", &ratios.join(", "), style));
    }
    if let Some(figures) = analysis.sharing()? {
        out.push_str(&run::fact("sharing", &sharing::in_short(&figures), style));
    }
    Ok(out)
}

struct Report<'a> {
    analysis: &'a Analysis<'a>,
    options: &'a Options,
    style: &'a Style,
    sources: &'a dyn Sources,
    caches: Caches,
}

/// The sizes asked for, the first ranking; else the host's.
fn caches(analysis: &Analysis<'_>, options: &Options) -> Result<Caches, ModelError> {
    let asked = options.caches.as_deref();
    let (sizes, primary) = analysis.sizes_shown(asked, options.line_bytes, options.policy)?;
    Ok(Caches {
        sizes,
        line_bytes: options.line_bytes,
        policy: options.policy,
        stream: options.stream,
        primary: Some(primary),
    })
}

impl Report<'_> {
    fn annotated(&self, by: By, wanted: &str) -> Result<String, ReportError> {
        let ranking = self.analysis.ranking(by, &self.caches)?;
        let (header, primary) = (&self.analysis.profile.header, self.primary());
        source::render(&ranking, primary, wanted, self.sources, header, self.style)
    }

    fn render(&self) -> Result<String, ReportError> {
        if let Some(wanted) = &self.options.source {
            // What libraries do in a line is the line's, but where their own is asked for.
            return match self.annotated(By::OwnLine, wanted) {
                Err(ReportError::NoSuchSource { .. }) => self.annotated(By::Line, wanted),
                other => other,
            };
        }
        if let Some(by) = self.options.by {
            let mut out = String::new();
            if self.analysis.is_empty() {
                out.push_str(&self.nothing());
            } else {
                out.push_str(&self.table(by, self.options.top.unwrap_or(20))?);
            }
            out.push_str(&self.warnings());
            return Ok(out);
        }
        self.overview()
    }

    fn overview(&self) -> Result<String, ReportError> {
        let curves = self.curves()?;
        let mut out = run::block(self.analysis, &curves.main, self.style);
        out.push('\n');
        if self.analysis.is_empty() {
            out.push_str(&self.nothing());
            out.push_str(&self.warnings());
            return Ok(out);
        }
        out.push_str(&self.working_set(&curves)?);
        let lines = self.analysis.ranking(By::Line, &self.caches)?;
        // Without line numbers a list by line would be the one by function, twice.
        let has_lines = ranking::has_lines(&lines, self.primary());
        let mut functions = 10;
        if has_lines {
            functions = 5;
            out.push('\n');
            out.push_str(&self.ranked(&lines, self.options.top.unwrap_or(10)));
        }
        for (by, top) in [(By::Function, functions), (By::Data, 5)] {
            out.push('\n');
            out.push_str(&self.table(by, self.options.top.unwrap_or(top))?);
        }
        out.push_str(&self.lines_missing(&lines));
        out.push_str(&self.warnings());
        out.push('\n');
        out.push_str(&self.more());
        Ok(out)
    }

    /// Plot and table of the curves, and what threads do to each other's lines.
    fn working_set(&self, curves: &drawn::Drawn) -> Result<String, ReportError> {
        let drawn::Drawn {
            main,
            other,
            by_stream,
        } = curves;
        let mut out = String::new();
        let (policy, other_policy) = self.policy_names();
        let (main_name, other_name) = match by_stream {
            Some(_) => self.stream_names(),
            None => (policy, other_policy),
        };
        let curves = curve::Curves {
            main,
            main_name,
            other,
            other_name,
            bytes_per_second: self.analysis.bytes_per_second(self.options.line_bytes),
        };
        let header = &self.analysis.profile.header;
        let note = match by_stream {
            Some(_) => format!(
                "{policy} replacement, {}-byte lines, fully associative",
                self.options.line_bytes
            ),
            None => format!("{}-byte lines, fully associative", self.options.line_bytes),
        };
        out.push_str(&self.style.heading("Miss ratio by cache size", &note));
        let grid = curve_sizes(header);
        let on_grid = |points: &[CurvePoint]| {
            points
                .iter()
                .filter(|p| grid.contains(&p.cache_bytes))
                .copied()
                .collect::<Vec<_>>()
        };
        let (main_grid, other_grid) = (on_grid(main), on_grid(other));
        let plotted = curve::Curves {
            main: &main_grid,
            main_name,
            other: &other_grid,
            other_name,
            bytes_per_second: self.analysis.bytes_per_second(self.options.line_bytes),
        };
        out.push_str(&curve::plot(&plotted, &self.marks(), header, self.style));
        if let Some(text) = curve::steepest(&main_grid, self.style) {
            out.push('\n');
            out.push_str(&style::wrap(&text, self.style.width, 0));
        }
        out.push('\n');
        match by_stream {
            Some(by_stream) => {
                let table = threads::Table {
                    curves: by_stream,
                    main: policy,
                    other: other_policy,
                    bytes_per_second: curves.bytes_per_second,
                    named: &self.marks(),
                    header,
                };
                out.push_str(&table.render(self.analysis, self.style));
            }
            None => out.push_str(&table::table(&curves, &self.marks(), header, self.style)),
        }
        if let Some(figures) = self.analysis.sharing()? {
            out.push('\n');
            out.push_str(&sharing::section(
                &figures,
                self.analysis.profile,
                self.style,
            ));
        }
        Ok(out)
    }

    fn primary(&self) -> usize {
        self.caches.primary.unwrap_or(0)
    }

    fn policy_names(&self) -> (&'static str, &'static str) {
        match self.options.policy {
            Policy::Random { .. } => ("random", "LRU"),
            Policy::Lru { .. } => ("LRU", "random"),
        }
    }

    /// The sizes named in plot and table: the host's and those asked for.
    fn marks(&self) -> Vec<u64> {
        let mut marks: Vec<u64> = self
            .analysis
            .profile
            .header
            .host_caches
            .iter()
            .map(|c| c.bytes)
            .collect();
        marks.extend(&self.caches.sizes);
        marks.sort_unstable();
        marks.dedup();
        marks
    }

    fn table(&self, by: By, top: usize) -> Result<String, ReportError> {
        let ranking = self.analysis.ranking(by, &self.caches)?;
        let mut out = self.ranked(&ranking, top);
        if by == By::Line {
            out.push_str(&self.lines_missing(&ranking));
        }
        Ok(out)
    }

    fn ranked(&self, ranking: &Ranking, top: usize) -> String {
        let header = &self.analysis.profile.header;
        let primary = self.primary();
        let by = ranking.subjects.by;
        let title = match by {
            By::Window => "Windows over the run".to_owned(),
            by => format!(
                "Top {} by misses in {}",
                ranking::plural_of(by),
                label(header, self.caches.sizes[primary])
            ),
        };
        let policy = self.policy_names().0;
        let bytes = self.caches.sizes[primary];
        let stream = self.caches.stream.unwrap_or(self.analysis.stream_at(bytes));
        let whose = match stream {
            _ if !self.analysis.has_threads() => "",
            Stream::Own => ", own distances",
            Stream::Private => ", private caches",
            Stream::All => ", a cache of all threads",
        };
        let note = format!(
            "{policy} replacement, {}-byte lines{whose}",
            self.options.line_bytes
        );
        let mut out = self.style.heading(&title, &note);
        if by == By::Window {
            out.push_str(&windows::render(
                self.analysis,
                ranking,
                primary,
                top,
                self.style,
            ));
            return out;
        }
        let text = match by {
            By::Line => ranking::texts(ranking, top, self.sources),
            _ => ranking::Texts::default(),
        };
        let table = ranking::Table {
            text: &text,
            ranking,
            analysis: self.analysis,
            primary,
            top,
            header,
        };
        out.push_str(&table.render(self.style));
        out
    }

    /// What to do where misses have no line numbers.
    fn lines_missing(&self, lines: &Ranking) -> String {
        match ranking::lines_missing(lines, self.primary()) {
            Some(text) => format!("\n{}", style::wrap(&text, self.style.width, 0)),
            None => String::new(),
        }
    }

    fn nothing(&self) -> String {
        let text = format!(
            "Nothing was measured: {}",
            run::without_windows(self.analysis).1
        );
        style::wrap(&text, self.style.width, 0)
    }

    fn warnings(&self) -> String {
        let mut out = String::new();
        for w in self.analysis.profile.warnings() {
            let text = format!("{}: {}", w.what, w.remedy);
            let _ = write!(out, "\n{}", processes::warning_lines(&text, self.style));
        }
        out
    }

    /// Where to look next.
    fn more(&self) -> String {
        let text = "more: --by line|function|instruction|data|object|window, --source FILE or FUNCTION, \
                    --cache 32K,1M,32M, --line-size 16..256, --policy random|lru; `statcache export` for other tools";
        self.style
            .paint(style::Ink::Faint, &style::wrap(text, self.style.width, 0))
    }
}

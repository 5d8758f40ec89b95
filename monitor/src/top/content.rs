//! What the screen shows of a profile: worked out from an analysis for a request.

use statcache_model::Policy;
use std::path::PathBuf;

use crate::analysis::sizes::{host_sizes, label};
use crate::analysis::{Analysis, By, Caches, Miss, Row, Subject};
use crate::control::Status;
use crate::profile::Profile;
use crate::profile::types::LINE_SIZES;
use crate::report::{self, Options, ReportError, Sources, Style, count, percent, plural};

/// Most rows of a table.
const ROWS: usize = 500;

/// The views there are, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The processes of the profile, and other live profiles.
    Processes,
    /// The miss-ratio curve.
    WorkingSet,
    /// What misses: lines, functions, data.
    Misses,
    /// The source with figures.
    Source,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Processes,
        Self::WorkingSet,
        Self::Misses,
        Self::Source,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Processes => "Processes",
            Self::WorkingSet => "Working set",
            Self::Misses => "Misses",
            Self::Source => "Source",
        }
    }
}

/// What the worker is to work out.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Which profile: a file, or the id of a process with a live one.
    pub profile: PathBuf,
    /// Which of its processes; `None`: the one that reports show.
    pub process: Option<i32>,
    /// The view.
    pub view: View,
    /// What misses are listed by.
    pub by: By,
    /// Which of the host's caches ranks, counted from the nearest; `None`: as reports do.
    pub cache: Option<usize>,
    /// Line size, bytes.
    pub line_bytes: u32,
    /// Replacement policy.
    pub policy: Policy,
    /// File or function of the source view.
    pub source: Option<String>,
    /// How text is laid out.
    pub style: Style,
}

impl Request {
    /// The first of a session.
    #[must_use]
    pub fn new(profile: PathBuf, style: Style) -> Self {
        Self {
            profile,
            process: None,
            view: View::Misses,
            by: By::Line,
            cache: None,
            line_bytes: LINE_SIZES[2],
            policy: Policy::RANDOM,
            source: None,
            style,
        }
    }
}

/// Where a row leads.
#[derive(Clone, Debug, PartialEq)]
pub enum Leads {
    /// To nothing.
    Nowhere,
    /// To the source of this file or function, at this line.
    Source(String, u32),
    /// To this process of the profile.
    Process(i32),
    /// To another profile.
    Profile(PathBuf),
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its cells, as many as the table has heads.
    pub cells: Vec<String>,
    /// Its share of what ranks, 0 to 1, by which it is coloured.
    pub share: f64,
    /// Not to be leaned on.
    pub weak: bool,
    /// Where it leads.
    pub leads: Leads,
    /// The text of its line of source.
    pub code: Option<String>,
    /// What else there is to say of it, in notes.
    pub why: Vec<String>,
}

/// What fills the screen below its head.
#[derive(Clone, Debug, PartialEq)]
pub enum Page {
    /// Text with ANSI colours.
    Text(String),
    /// Rows of which one is selected. The last column takes what room there is; all others hold figures.
    Table {
        /// What it lists.
        title: String,
        /// Heads of the columns.
        heads: Vec<String>,
        /// Its rows.
        rows: Vec<Line>,
    },
}

/// The screen's content.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// What it answers.
    pub request: Request,
    /// The program that is shown.
    pub command: String,
    /// What is known of its profile, in short.
    pub facts: String,
    /// Whether the profile is being written.
    pub is_live: bool,
    /// The caches there are to rank by, and the one that does.
    pub caches: Vec<String>,
    /// See `caches`.
    pub ranking: usize,
    /// The page.
    pub page: Page,
}

/// Works out what `request` asks for of the process that `analysis` is of. `others`: live profiles.
///
/// # Errors
/// A cache that the model refuses.
pub fn content(
    root: &Profile,
    analysis: &Analysis<'_>,
    others: &[Status],
    request: &Request,
    sources: &dyn Sources,
) -> Result<Content, ReportError> {
    let header = &analysis.profile.header;
    let sizes = host_sizes(header);
    let ranking = match request.cache {
        Some(at) => at.min(sizes.len() - 1),
        None if analysis.is_empty() => 0,
        None => analysis.level_that_ranks(request.line_bytes, request.policy, &sizes)?,
    };
    // Where nothing else is asked for they stay in their order.
    let caches = request.cache.map(|_| {
        let mut caches = sizes.clone();
        caches[..=ranking].rotate_right(1);
        caches
    });
    let options = Options {
        caches,
        line_bytes: request.line_bytes,
        policy: request.policy,
        stream: None,
        by: None,
        top: None,
        source: request.source.clone(),
    };
    let page = match request.view {
        View::Processes => processes(root, &sizes, others)?,
        // Where nothing was measured that says why.
        View::Misses if !analysis.is_empty() => {
            misses(analysis, request, (&sizes, ranking), sources)?
        }
        View::WorkingSet | View::Misses => Page::Text(report::working_set(
            analysis,
            &options,
            sources,
            &request.style,
        )?),
        View::Source if request.source.is_none() => Page::Text(
            "Choose a line or a function under Misses and press Enter to see its source.\n".into(),
        ),
        View::Source => match report::render(analysis, &options, sources, &request.style) {
            Ok(text) => Page::Text(text),
            Err(error @ ReportError::NoSuchSource { .. }) => Page::Text(format!("{error}\n")),
            Err(error) => return Err(error),
        },
    };
    let totals = analysis.totals();
    Ok(Content {
        request: request.clone(),
        command: header.command.join(" ").replace(char::is_control, " "),
        facts: format!(
            "pid {} · {} in {} · {}{} accesses",
            header.pid,
            plural(totals.samples, "sample"),
            plural(totals.windows, "window"),
            if header.full { "" } else { "about " },
            count(totals.accesses_estimated.value),
        ),
        is_live: root.is_live,
        caches: sizes.iter().map(|&b| label(header, b)).collect(),
        ranking,
        page,
    })
}

/// The profile's processes, busiest first, and behind them other profiles.
fn processes(root: &Profile, sizes: &[u64], others: &[Status]) -> Result<Page, ReportError> {
    let all = report::processes::busiest_first(root);
    let weight = report::processes::weight;
    let total: f64 = all.iter().map(|p| weight(p)).sum();
    let mut heads: Vec<String> = ["pid", "CPU s", "windows", "samples", "accesses"]
        .map(str::to_owned)
        .into();
    heads.extend(sizes.iter().map(|&b| label(&root.header, b)));
    heads.push("command".to_owned());
    let mut rows = Vec::new();
    for process in all.into_iter().take(ROWS) {
        let analysis = Analysis::new(process)?;
        let curve = analysis.curve_of_host(LINE_SIZES[2], Policy::RANDOM, sizes)?;
        let totals = analysis.totals();
        let cpu_s = process.footer.as_ref().map(|f| f.cpu_s);
        let mut cells = vec![
            process.header.pid.to_string(),
            cpu_s.map_or_else(String::new, |s| format!("{s:.2}")),
            totals.windows.to_string(),
            count(totals.samples as f64),
            count(totals.accesses_estimated.value),
        ];
        cells.extend(sizes.iter().enumerate().map(|(i, _)| {
            curve.get(i).map_or_else(String::new, |p| {
                let mark = if p.is_weak() { "~" } else { "" };
                format!("{mark}{}", percent(p.miss_ratio))
            })
        }));
        cells.push(
            process
                .header
                .command
                .join(" ")
                .replace(char::is_control, " "),
        );
        rows.push(Line {
            cells,
            share: weight(process) / total.max(1e-12),
            weak: totals.samples == 0,
            leads: Leads::Process(process.header.pid),
            code: None,
            why: Vec::new(),
        });
    }
    for status in others.iter().filter(|s| s.pid != root.header.pid) {
        let mut cells = vec![
            status.pid.to_string(),
            String::new(),
            status.windows.to_string(),
            count(status.samples as f64),
            String::new(),
        ];
        cells.extend(sizes.iter().map(|_| String::new()));
        cells.push(format!(
            "{} (another live profile)",
            status.command.join(" ")
        ));
        rows.push(Line {
            cells,
            share: 0.0,
            weak: true,
            leads: Leads::Profile(status.pid.to_string().into()),
            code: None,
            why: Vec::new(),
        });
    }
    Ok(Page::Table {
        title: "Processes, and their miss ratios".to_owned(),
        heads,
        rows,
    })
}

/// One of the rankings.
fn misses(
    analysis: &Analysis<'_>,
    request: &Request,
    (sizes, primary): (&[u64], usize),
    sources: &dyn Sources,
) -> Result<Page, ReportError> {
    let header = &analysis.profile.header;
    let caches = Caches {
        sizes: sizes.to_vec(),
        line_bytes: request.line_bytes,
        policy: request.policy,
        stream: None,
        primary: Some(primary),
    };
    let ranking = analysis.ranking(request.by, &caches)?;
    let mut heads = vec!["misses".to_owned()];
    heads.extend(sizes.iter().map(|&b| label(header, b)));
    heads.push("samples".to_owned());
    heads.push(report::kind(request.by).to_owned());
    let said = report::explained(analysis, &ranking, primary, ROWS, sources);
    let line = |(row, (code, why)): (&Row, (Option<String>, Vec<String>))| {
        let subject = &ranking.subjects.list[row.subject as usize];
        let at = &row.miss[primary];
        let told = |m: &Miss, text: String| format!("{}{text}", if m.weak { "~" } else { "" });
        let mut cells = vec![told(at, percent(at.miss_share))];
        cells.extend(row.miss.iter().map(|m| told(m, percent(m.miss_ratio))));
        cells.push(count(row.samples as f64));
        let (name, context) = report::name_of(subject, 80);
        cells.push(match context.is_empty() {
            true => name,
            false => format!("{name}  {context}"),
        });
        Line {
            cells,
            share: at.miss_share,
            weak: at.weak,
            leads: source_of(subject),
            code,
            why,
        }
    };
    let rows: Vec<Line> = ranking.rows.iter().zip(said).map(line).collect();
    Ok(Page::Table {
        title: format!(
            "{} by misses in {}, of {}",
            report::kinds(request.by),
            label(header, sizes[primary]),
            plural(ranking.rows.len() as u64, report::kind(request.by)),
        ),
        heads,
        rows,
    })
}

/// The source that a subject is in.
fn source_of(subject: &Subject) -> Leads {
    if subject.line > 0 && !subject.file.is_empty() {
        Leads::Source(subject.file.clone(), subject.line)
    } else if !subject.function.is_empty() {
        Leads::Source(subject.function.clone(), 0)
    } else {
        Leads::Nowhere
    }
}

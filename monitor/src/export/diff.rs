//! The document of two profiles compared.
//!
//! Keys are a contract, as those of `dto.rs`: more may be added, none renamed or taken away. An end of an interval that is nowhere is `null`.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::{Analysis, Subject};
use crate::diff::change::{Change, Figure, Verdict};
use crate::diff::limit::{Judged, Limit, Outcome};
use crate::diff::{AtSize, Changed, Counts, Diff, Doubt, Presence};

/// Version of the documents of comparisons.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct Document {
    schema_version: u32,
    before: Run,
    after: Run,
    /// What makes both hard to compare.
    doubts: Vec<DoubtOut>,
    line_size: u32,
    policy: &'static str,
    accesses: CountsOut,
    /// Each cache size; empty where one of the profiles has no samples.
    sizes: Vec<Size>,
    /// The size whose misses `subjects` have and are in order of.
    ranked_by: Option<u64>,
    /// Those that surely changed first, then by how much they changed.
    subjects: Vec<SubjectOut>,
    /// What `--fail-if` asked, at each size that it is for.
    limits: Vec<LimitOut>,
}

/// One of both runs.
#[derive(Debug, Serialize)]
struct Run {
    file: String,
    pid: i32,
    command: Vec<String>,
    start_unix_s: f64,
    wall_s: Option<f64>,
    engine: String,
    seed: u64,
    full: bool,
    complete: bool,
    windows: u64,
    samples: u64,
}

#[derive(Debug, Serialize)]
struct DoubtOut {
    kind: &'static str,
    /// The run that it is of, where it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct FigureOut {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// A change with its verdict: `better`, `worse` or `none`, where no difference is seen.
#[derive(Debug, Serialize)]
struct ChangeOut {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
    verdict: &'static str,
}

#[derive(Debug, Serialize)]
struct CountsOut {
    before: FigureOut,
    after: FigureOut,
    /// The factor less 1; `null` where one of them is none or unknown.
    change: Option<ChangeOut>,
}

#[derive(Debug, Serialize)]
struct Size {
    cache_bytes: u64,
    /// Whether it was asked for or is one of the host.
    asked: bool,
    /// Miss ratios, and their difference.
    before: FigureOut,
    after: FigureOut,
    change: ChangeOut,
    weak: bool,
    misses: CountsOut,
}

#[derive(Debug, Serialize)]
struct SubjectOut {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    file: String,
    line: u32,
    /// Its line in the first profile, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_before: Option<u32>,
    function: String,
    object: String,
    /// `both`, `new` or `gone`.
    presence: &'static str,
    /// Its misses per line reference of the whole run, and their difference.
    before: FigureOut,
    after: FigureOut,
    change: ChangeOut,
    weak: bool,
}

#[derive(Debug, Serialize)]
struct LimitOut {
    limit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bytes: Option<u64>,
    /// `met`, `not met`, `not sure`, or `unknown`.
    outcome: &'static str,
}

/// Writes a comparison of the profiles of these files; `top` subjects at most.
///
/// # Errors
/// What the output says.
pub fn write(
    files: [&str; 2],
    runs: [&Analysis<'_>; 2],
    diff: &Diff,
    limits: &[(Limit, Vec<Judged>)],
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let [before, after] = [0, 1].map(|i| run(files[i], runs[i]));
    let judged = limits
        .iter()
        .flat_map(|(limit, judged)| judged.iter().map(move |judged| limit_out(limit, judged)));
    let document = Document {
        schema_version: SCHEMA_VERSION,
        before,
        after,
        doubts: diff.doubts.iter().map(doubt).collect(),
        line_size: diff.options.line_bytes,
        policy: match diff.options.policy {
            statcache_model::Policy::Random { .. } => "random",
            statcache_model::Policy::Lru { .. } => "lru",
        },
        accesses: counts(&diff.accesses),
        sizes: diff.sizes.iter().map(size).collect(),
        ranked_by: diff.sizes.get(diff.primary).map(AtSize::cache_bytes),
        subjects: diff.subjects.iter().take(top).map(subject).collect(),
        limits: judged.collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn run(file: &str, analysis: &Analysis<'_>) -> Run {
    let (header, footer) = (&analysis.profile.header, &analysis.profile.footer);
    let totals = analysis.totals();
    Run {
        file: file.to_owned(),
        pid: header.pid,
        command: header.command.clone(),
        start_unix_s: header.start_unix_s,
        wall_s: footer.as_ref().map(|footer| footer.wall_s),
        engine: header.engine.clone(),
        seed: header.seed,
        full: header.full,
        complete: footer.is_some(),
        windows: totals.windows,
        samples: totals.samples,
    }
}

fn doubt(doubt: &Doubt) -> DoubtOut {
    let (kind, run) = match doubt {
        Doubt::Empty(which) => ("empty", Some(which)),
        Doubt::Incomplete(which) => ("incomplete", Some(which)),
        Doubt::Live(which) => ("live", Some(which)),
        Doubt::Programs(..) => ("programs", None),
        Doubt::Arguments => ("arguments", None),
        Doubt::Engines(..) => ("engines", None),
        Doubt::Whole(which) => ("full", Some(which)),
        Doubt::Attached(which) => ("attached", Some(which)),
        Doubt::Threads(which) => ("threads", Some(which)),
        Doubt::Hosts(..) => ("host_caches", None),
    };
    DoubtOut {
        kind,
        run: run.map(|which| which.name()),
    }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

fn figure(of: &Figure) -> FigureOut {
    FigureOut {
        value: of.value,
        low: finite(of.low),
        high: finite(of.high),
    }
}

fn change(of: &Change) -> ChangeOut {
    ChangeOut {
        value: of.value,
        low: finite(of.low),
        high: finite(of.high),
        verdict: match of.verdict() {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NotSeen => "none",
        },
    }
}

fn counts(of: &Counts) -> CountsOut {
    CountsOut {
        before: figure(&of.before),
        after: figure(&of.after),
        change: of.change.as_ref().map(change),
    }
}

fn size(at: &AtSize) -> Size {
    Size {
        cache_bytes: at.cache_bytes(),
        asked: at.asked,
        before: figure(&Figure::from(&at.before)),
        after: figure(&Figure::from(&at.after)),
        change: change(&at.ratio),
        weak: at.is_weak(),
        misses: counts(&at.misses),
    }
}

fn subject(changed: &Changed) -> SubjectOut {
    let Subject {
        name,
        file,
        line,
        function,
        object,
        ..
    } = changed.subject.clone();
    SubjectOut {
        name,
        file,
        line,
        line_before: changed.line_before,
        function,
        object,
        presence: match changed.presence {
            Presence::Both => "both",
            Presence::New => "new",
            Presence::Gone => "gone",
        },
        before: figure(&changed.before),
        after: figure(&changed.after),
        change: change(&changed.change),
        weak: changed.weak,
    }
}

fn limit_out(limit: &Limit, judged: &Judged) -> LimitOut {
    LimitOut {
        limit: limit.text.clone(),
        cache_bytes: judged.cache_bytes,
        outcome: match judged.outcome {
            Outcome::Met => "met",
            Outcome::NotSure => "not sure",
            Outcome::NotMet => "not met",
            Outcome::Unknown => "unknown",
        },
    }
}

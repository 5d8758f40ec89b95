//! Fills the exported document from an [`Analysis`].

use std::collections::HashMap;

use rayon::prelude::*;
use statcache_model::{CurvePoint, ModelError, Policy, Stream};

use super::Options;
use super::dto::{
    Allocated, CacheOut, Curve, Datum, Document, EdgeOut, Figures, Function, Host, Instruction,
    Line, MissOut, Named, Point, PrivatePoint, Process, SCHEMA_VERSION, ThreadOut, Time, Totals,
    WarningOut, Window,
};
use crate::analysis::sizes::{EXPORT_SIZES, curve_sizes, host_sizes};
use crate::analysis::{
    Analysis, By, Caches, DEFAULT_LINE_BYTES, DataKind, Miss, Ranking, Row, Subject,
};
use crate::profile::types::{HostCache, LINE_SIZES, Warning};

/// At most so many instructions are listed.
const INSTRUCTIONS: usize = 1000;
/// Cache whose misses the reuse edges and spatial use are given for, bytes.
const EDGES_AT: u64 = 1 << 20;

pub(super) fn document(
    analysis: &Analysis<'_>,
    options: &Options<'_>,
) -> Result<Document, ModelError> {
    let first = process(analysis, options)?;
    let others = &analysis.profile.others;
    let others: Result<Vec<Process>, ModelError> = others
        .par_iter()
        .filter(|_| !options.alone)
        .map(|other| process(&Analysis::new(other)?, options))
        .collect();
    let mut processes = vec![first.clone()];
    processes.extend(others?);
    Ok(Document {
        schema_version: SCHEMA_VERSION,
        processes,
        first,
    })
}

fn process(analysis: &Analysis<'_>, options: &Options<'_>) -> Result<Process, ModelError> {
    let profile = analysis.profile;
    let header = &profile.header;
    let footer = profile.footer.clone().unwrap_or_default();
    let totals = analysis.totals();
    let mut sizes = EXPORT_SIZES.to_vec();
    sizes.extend(host_sizes(header));
    sizes.extend(options.caches.iter().flatten());
    sizes.sort_unstable();
    sizes.dedup();
    let (curves, listed) = rayon::join(
        || curves(analysis, &sizes),
        || Listed::new(analysis, sizes.clone()),
    );
    let sharing = analysis.sharing()?;
    let listed = listed?;
    Ok(Process {
        pid: header.pid,
        ppid: header.ppid,
        statcache_version: header.statcache_version.clone(),
        engine: header.engine.clone(),
        command: header.command.clone(),
        exit_status: footer.exit_status,
        complete: profile.footer.is_some(),
        seed: header.seed,
        full: header.full,
        overhead_percent: header.overhead_percent,
        host: Host {
            cpu: header.host_cpu.clone(),
            caches: header.host_caches.iter().map(cache_out).collect(),
        },
        totals: Totals {
            accesses_observed: totals.accesses_observed,
            accesses_estimated: totals.accesses_estimated.value.round() as u64,
            accesses_estimated_low: finite(totals.accesses_estimated.low),
            accesses_estimated_high: finite(totals.accesses_estimated.high),
            windows: totals.windows,
            samples: totals.samples,
            reused: totals.reused,
            censored: totals.censored,
            never_reused: totals.never_reused,
            declined: totals.declined,
        },
        time: Time {
            start_unix_s: header.start_unix_s,
            wall_s: footer.wall_s,
            cpu_s: footer.cpu_s,
            window_wall_s: footer.window_wall_s,
        },
        curves: curves?,
        lines: listed.lines,
        functions: listed.functions,
        instructions: listed.instructions,
        data: listed.data,
        windows: listed.windows,
        sharing: sharing.as_ref().map(super::sharing::document),
        warnings: profile.warnings().map(warning_out).collect(),
    })
}

/// One curve for each line size, policy and stream.
fn curves(analysis: &Analysis<'_>, asked: &[u64]) -> Result<Vec<Curve>, ModelError> {
    let mut sizes = curve_sizes(&analysis.profile.header);
    sizes.extend(asked);
    sizes.sort_unstable();
    sizes.dedup();
    // All threads' is the own curve again where no window saw several.
    let streams: &[(&'static str, Stream)] = match analysis.has_threads() {
        true => &[("own", Stream::Own), ("all", Stream::All)],
        false => &[("own", Stream::Own)],
    };
    let policies = [("random", Policy::RANDOM), ("lru", Policy::LRU)];
    let mut kinds = Vec::new();
    for stream in streams {
        for &line in &LINE_SIZES {
            kinds.extend(policies.map(|policy| (line, policy, *stream)));
        }
    }
    kinds
        .into_par_iter()
        .map(|(line_size, (name, policy), (stream_name, stream))| {
            let points = analysis.curve(line_size, policy, stream, &sizes)?;
            let private = match (stream, analysis.has_threads()) {
                (Stream::Own, true) => {
                    analysis.curve(line_size, policy, Stream::Private, &sizes)?
                }
                _ => Vec::new(),
            };
            let points = points.iter().enumerate();
            Ok(Curve {
                line_size,
                policy: name,
                stream: stream_name,
                points: points.map(|(i, p)| point(p, private.get(i))).collect(),
            })
        })
        .collect()
}

fn point(p: &CurvePoint, private: Option<&CurvePoint>) -> Point {
    Point {
        cache_bytes: p.cache_bytes,
        miss_ratio: p.miss_ratio,
        low: p.low,
        high: p.high,
        private: private.map(|p| PrivatePoint {
            private_miss_ratio: p.miss_ratio,
            private_low: p.low,
            private_high: p.high,
        }),
        sampling_half_width: p.sampling_half_width,
        model_half_width: p.model_half_width,
        weak: p.is_weak(),
    }
}

/// The lists, worst first: by most misses in the level of the host that ranks ([`Analysis::level_that_ranks`]).
struct Listed {
    lines: Vec<Line>,
    functions: Vec<Function>,
    instructions: Vec<Instruction>,
    data: Vec<Datum>,
    windows: Vec<Window>,
}

impl Listed {
    fn new(analysis: &Analysis<'_>, sizes: Vec<u64>) -> Result<Self, ModelError> {
        let caches = Caches {
            // So that no size's worst are left out; those that are listed come in the order of a report.
            primary: None,
            sizes,
            line_bytes: DEFAULT_LINE_BYTES,
            policy: Policy::RANDOM,
            stream: Some(Stream::Private),
        };
        let order = match analysis.is_empty() {
            true => EDGES_AT,
            false => {
                let host = host_sizes(&analysis.profile.header);
                host[analysis.level_that_ranks(caches.line_bytes, caches.policy, &host)?]
            }
        };
        let kinds = [
            By::Line,
            By::Function,
            By::Instruction,
            By::Data,
            By::Window,
        ];
        let mut lists = kinds
            .into_par_iter()
            .map(|by| List::new(analysis, by, &caches, order))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter();
        let mut next = || lists.next().unwrap_or(List(None, HashMap::new()));
        let (line, function, instruction, data, window) = (next(), next(), next(), next(), next());
        Ok(Self {
            lines: line.map(|s, figures, reuse_from| Line {
                file: s.file.clone(),
                line: s.line,
                function: s.function.clone(),
                inlined_into: match s.inlined_into.as_slice() {
                    [into] => into.clone(),
                    _ => String::new(),
                },
                object: s.object.clone(),
                figures,
                reuse_from,
            }),
            functions: function.map(|s, figures, reuse_from| Function {
                function: s.function.clone(),
                file: s.file.clone(),
                object: s.object.clone(),
                figures,
                reuse_from,
            }),
            instructions: instruction.map(|s, figures, reuse_from| Instruction {
                object: s.object.clone(),
                offset: s.offset.unwrap_or(0),
                file: s.file.clone(),
                line: s.line,
                function: s.function.clone(),
                figures,
                reuse_from,
            }),
            data: data.map(|s, figures, _| Datum {
                kind: s.data.map_or("mapping", |k| k.name()),
                name: s.name.clone(),
                object: s.object.clone(),
                allocated: allocated(s),
                figures: Figures {
                    reuse_from_known: None,
                    ..figures
                },
            }),
            windows: window.windows(analysis),
        })
    }
}

/// One ranking; none of an empty profile. Beside it, of a run of several threads, each subject's
/// misses in one cache of all.
struct List(Option<Ranking>, HashMap<u32, Vec<MissOut>>);

impl List {
    /// `order`: the cache whose misses order it.
    fn new(
        analysis: &Analysis<'_>,
        by: By,
        caches: &Caches,
        order: u64,
    ) -> Result<Self, ModelError> {
        if analysis.is_empty() {
            return Ok(Self(None, HashMap::new()));
        }
        // Edges and spatial use are given for the first size, whatever ranks.
        let mut caches = caches.clone();
        let at = caches
            .sizes
            .iter()
            .position(|&s| s == EDGES_AT)
            .unwrap_or(0);
        caches.sizes.swap(0, at);
        let ranking = |stream| -> Result<Ranking, ModelError> {
            let caches = Caches {
                stream: Some(stream),
                ..caches.clone()
            };
            let mut ranking = analysis.ranking(by, &caches)?;
            for row in &mut ranking.rows {
                row.miss.sort_by_key(|m| m.cache_bytes);
            }
            Ok(ranking)
        };
        let mut of_all = HashMap::new();
        if analysis.has_threads() {
            let rows = ranking(Stream::All)?.rows;
            of_all.extend(rows.iter().map(|row| (row.subject, misses(row))));
        }
        let mut private = ranking(Stream::Private)?;
        if by == By::Instruction {
            private.rows.truncate(INSTRUCTIONS);
        }
        let share = |row: &Row| {
            let level = row.miss.iter().find(|m| m.cache_bytes == order);
            level.map_or(0.0, |m| m.miss_share)
        };
        private.rows.sort_by(|a, b| share(b).total_cmp(&share(a)));
        Ok(Self(Some(private), of_all))
    }

    /// The figures of a row.
    fn figures(&self, row: &Row) -> Figures {
        Figures {
            miss_all: self.1.get(&row.subject).cloned().unwrap_or_default(),
            ..figures(row)
        }
    }

    fn map<T>(&self, make: impl Fn(&Subject, Figures, Vec<EdgeOut>) -> T) -> Vec<T> {
        let Some(ranking) = &self.0 else {
            return Vec::new();
        };
        let list = &ranking.subjects.list;
        ranking
            .rows
            .iter()
            .map(|row| {
                let figures = self.figures(row);
                let edges = row
                    .reuse_from
                    .iter()
                    .map(|e| EdgeOut {
                        from: named(&list[e.from as usize]),
                        share: e.share,
                        miss_ratio: e.miss_ratio,
                    })
                    .collect();
                make(&list[row.subject as usize], figures, edges)
            })
            .collect()
    }

    /// Every window in the order of time, also one without a sample.
    fn windows(&self, analysis: &Analysis<'_>) -> Vec<Window> {
        let rows: HashMap<u32, &Row> = self
            .0
            .iter()
            .flat_map(|r| &r.rows)
            .map(|row| (row.subject, row))
            .collect();
        let mut taken: HashMap<u32, u64> = HashMap::new();
        for sample in analysis.profile.windows.iter().flat_map(|w| &w.samples) {
            *taken.entry(sample.taken_in).or_default() += 1;
        }
        let windows = analysis.profile.windows.iter().enumerate();
        windows
            .map(|(at, w)| Window {
                start_s: w.start_s,
                cpu_start_s: w.cpu_start_s,
                wall_s: w.wall_s,
                tid: w.tid,
                accesses: w.accesses,
                stands_for: finite(w.stands_for.value),
                contiguous: w.contiguous_with_previous,
                declined: w.declined,
                threads: w
                    .threads
                    .iter()
                    .map(|t| ThreadOut {
                        tid: t.tid,
                        accesses: t.accesses,
                    })
                    .collect(),
                figures: Figures {
                    samples: taken.get(&w.index).copied().unwrap_or(0),
                    reuse_from_known: None,
                    ..rows
                        .get(&(at as u32))
                        .map_or_else(Figures::none, |row| self.figures(row))
                },
            })
            .collect()
    }
}

impl Figures {
    fn none() -> Self {
        Self {
            samples: 0,
            access_share: 0.0,
            miss: Vec::new(),
            miss_all: Vec::new(),
            sharing: None,
            spatial_use: None,
            reuse_from_known: None,
        }
    }
}

fn figures(row: &Row) -> Figures {
    Figures {
        samples: row.samples,
        access_share: row.access_share,
        miss: misses(row),
        miss_all: Vec::new(),
        sharing: row.sharing.as_ref().map(super::sharing::of_row),
        spatial_use: row.spatial_use,
        reuse_from_known: (!row.reuse_from.is_empty()).then_some(row.from_known),
    }
}

fn misses(row: &Row) -> Vec<MissOut> {
    let out = |m: &Miss| MissOut {
        cache_bytes: m.cache_bytes,
        miss_ratio: m.miss_ratio,
        low: m.low,
        high: m.high,
        miss_share: m.miss_share,
        weak: m.weak,
    };
    row.miss.iter().map(out).collect()
}

fn allocated(s: &Subject) -> Option<Allocated> {
    (s.data == Some(DataKind::Heap) && !s.function.is_empty()).then(|| Allocated {
        file: s.file.clone(),
        line: s.line,
        function: s.function.clone(),
        callers: s.callers.clone(),
    })
}

pub(super) fn named(subject: &Subject) -> Named {
    Named {
        file: subject.file.clone(),
        line: subject.line,
        function: subject.function.clone(),
        object: subject.object.clone(),
        offset: subject.offset,
    }
}

fn cache_out(c: &HostCache) -> CacheOut {
    CacheOut {
        level: c.level,
        cache_bytes: c.bytes,
        line_size: c.line_bytes,
        ways: c.ways,
    }
}

fn warning_out(w: &Warning) -> WarningOut {
    WarningOut {
        what: w.what.clone(),
        remedy: w.remedy.clone(),
    }
}

/// JSON has no infinities; an unbounded estimate is its largest number.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::MAX }
}

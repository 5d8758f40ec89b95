//! The rows of the table and the warnings under it.

use super::words::{cpu_list, cpus, list, plain, strides, two_digits};
use super::{HostKey, Row, Verdict, bytes};
use crate::declared::Declared;
use crate::finding::{Confidence, Finding};
use crate::infer::{Hierarchy, Level, Translation};
use crate::raw::RawSamples;

pub(super) struct Table<'a> {
    pub(super) declared: &'a Declared,
    pub(super) rows: Vec<Row>,
}

impl Table<'_> {
    pub(super) fn row<T>(&mut self, what: &str, f: &Finding<T>, show: impl Fn(&T) -> String) {
        self.push(what, f, show, |_| None, |n| n.to_string());
    }

    /// A row with declared figures; `span` gives the measured range they are compared with.
    pub(super) fn push<T>(
        &mut self,
        what: &str,
        f: &Finding<T>,
        show: impl Fn(&T) -> String,
        span: impl Fn(&T) -> Option<(u64, u64)>,
        unit: impl Fn(u64) -> String,
    ) {
        let claims: Vec<_> = self.declared.about(what).collect();
        let verdict = match (&f.value, claims.is_empty()) {
            (None, _) => Verdict::Refused,
            (Some(_), true) => Verdict::NotDeclared,
            (Some(v), false) => match span(v) {
                None => Verdict::NotDeclared,
                Some((low, high)) if claims.iter().all(|c| (low..=high).contains(&c.value)) => {
                    Verdict::Agrees
                }
                Some(_) if f.confidence >= Confidence::Medium => Verdict::DeclaredWrong,
                Some(_) => Verdict::Differs,
            },
        };
        self.rows.push(Row {
            what: what.into(),
            declared: claims
                .iter()
                .map(|c| (c.source.clone(), unit(c.value)))
                .collect(),
            measured: f.value.as_ref().map(show).unwrap_or_default(),
            verdict,
            confidence: f.confidence,
            votes: (f.agree, f.votes),
            reason: f.reason.clone(),
        });
    }
}

/// Every parameter's row, in the order of the table.
pub(super) fn rows(h: &Hierarchy, declared: &Declared, key: &HostKey) -> Vec<Row> {
    let mut t = Table {
        declared,
        rows: Vec::new(),
    };
    t.row("core clock", &h.clock_ghz, |g| format!("{g:.2} GHz"));
    t.row(
        "timer step",
        &Finding::new(h.timer_step_ns, Confidence::High, ""),
        |n| format!("{n:.1} ns"),
    );
    for l in &h.levels {
        level(&mut t, l, key);
    }
    absent(&mut t, h);
    memory(&mut t, h);
    data_translation(&mut t, &h.translation);
    code(&mut t, h);
    not_measured(&mut t);
    registers(&mut t, h);
    t.row("prefetched strides", &h.prefetch, |s| strides(s));
    t.row("counters", &h.counters, |a| {
        if *a { "agree" } else { "CONTRADICT the timing" }.to_string()
    });
    t.row("memory parallelism", &h.parallelism, |p| {
        format!("{p:.0} times one chain")
    });
    t.rows
}

/// A figure that is declared as it stands.
fn exact(n: &u64) -> Option<(u64, u64)> {
    Some((*n, *n))
}

/// From so many bytes to so many.
fn extent(r: &(u64, u64)) -> String {
    format!("{} to {}", bytes(r.0), bytes(r.1))
}

/// Bytes that so many pages reach over.
fn reach(pages: &Finding<(u64, u64)>, page: Option<u64>) -> Finding<(u64, u64)> {
    match page {
        Some(p) => pages.clone().map(|n| (n.0 * p, n.1 * p)),
        None => Finding::refused("the page size is not known"),
    }
}

fn level(t: &mut Table<'_>, l: &Level, key: &HostKey) {
    let name = if l.level == 1 {
        "L1d".to_string()
    } else {
        format!("L{}", l.level)
    };
    let last = l.level > 2;
    let range = l.range;
    t.push(
        &format!("{name}.capacity"),
        &l.capacity,
        |b| match range {
            Some((low, high)) if last => {
                format!("{} to {}, mostly {}", bytes(low), bytes(high), bytes(*b))
            }
            _ => bytes(*b),
        },
        |b| match range {
            Some((low, high)) if l.capacity.confidence < Confidence::High => {
                Some((low.min(*b) * 85 / 100, high.max(*b) * 115 / 100))
            }
            _ => Some((*b, *b)),
        },
        bytes,
    );
    // Less than declared, beyond the first level: other guests and siblings take their part.
    if let Some(row) = t.rows.last_mut()
        && matches!(row.verdict, Verdict::DeclaredWrong | Verdict::Differs)
        && (last || l.capacity.confidence < Confidence::High)
        && let Some(b) = l.capacity.value
        && t.declared.about(&row.what).all(|c| c.value > b)
    {
        row.verdict = Verdict::SmallerShare;
    }
    t.push(
        &format!("{name}.ways"),
        &l.ways,
        |w| w.to_string(),
        |w| Some((u64::from(*w), u64::from(*w))),
        plain,
    );
    t.push(
        &format!("{name}.line"),
        &l.line,
        |b| format!("{b} B"),
        exact,
        bytes,
    );
    t.row(&format!("{name}.latency"), &l.latency, |x| {
        format!("{:.1} cycles, {:.2} ns", x.cycles, x.ns)
    });
    t.row(&format!("{name}.replacement"), &l.policy, |p| {
        p.name.clone()
    });
    t.row(&format!("{name}.index"), &l.linear_index, |x| {
        if *x { "page offset kept" } else { "hashed" }.to_string()
    });
    if l.level > 1 {
        t.row(&format!("{name}.inclusion"), &l.inclusion, |x| {
            if *x {
                "includes the first level"
            } else {
                "does not include the first level"
            }
            .to_string()
        });
    }
    t.row(&format!("{name}.shared with"), &l.shared_with, |c| cpus(c));
    // The measured CPU is the last allowed one; only allowed ones can be asked.
    if let Some(row) = t.rows.last_mut()
        && let Some((_, text)) = t.declared.shared.iter().find(|s| s.0 == l.level)
    {
        let others: Vec<usize> = cpu_list(text)
            .into_iter()
            .filter(|c| Some(c) != key.allowed.last())
            .collect();
        row.declared.push(("sysfs".into(), cpus(&others)));
        if let Some(found) = &l.shared_with.value {
            let asked = others.iter().filter(|c| key.allowed.contains(c));
            row.verdict = if asked.eq(found.iter()) {
                Verdict::Agrees
            } else {
                Verdict::Differs
            };
        }
    }
    t.row(&format!("{name}.unified"), &l.unified, |x| {
        if *x { "code and data" } else { "data only" }.to_string()
    });
}

fn memory(t: &mut Table<'_>, h: &Hierarchy) {
    let spread = |m: &crate::probe::latency::Spread| {
        format!(
            "{:.0} ns (p50 {:.0}, p90 {:.0}), {:.0} cycles",
            m.ns_p10, m.ns_p50, m.ns_p90, m.cycles_p10
        )
    };
    t.row("memory.latency", &h.memory, spread);
    t.row("memory.latency with walks", &h.memory_walk, spread);
    t.row("write-allocate", &h.write_allocate, |w| {
        if *w { "yes" } else { "no" }.to_string()
    });
    t.row("write-back", &h.write_back, |w| {
        if *w {
            "yes"
        } else {
            "no: stores go through to memory"
        }
        .to_string()
    });
}

fn data_translation(t: &mut Table<'_>, x: &Translation) {
    t.push("DTLB1.entries", &x.entries, |n| n.to_string(), exact, plain);
    t.row("DTLB1.reach", &x.reach, |n| bytes(*n));
    let entries = x.entries.value;
    t.row("DTLB1.ways", &x.ways, |n| match entries {
        Some(e) if e == u64::from(*n) => format!("{n} (fully associative)"),
        _ => n.to_string(),
    });
    t.row("DTLB1.miss cost", &x.miss_cycles, |c| {
        format!("{c:.1} cycles")
    });
    t.push(
        "DTLB2.entries",
        &x.second,
        |s| format!("{} to {}", two_digits(s.0), two_digits(s.1)),
        |s| Some((s.0 * 85 / 100, s.1 * 115 / 100)),
        plain,
    );
    // A walk over so many pages was fast, which is proof however soft the curve's knee is.
    let held = x.second.value.map(|s| s.0);
    if let (Some(held), Some(row)) = (held, t.rows.last_mut())
        && row.verdict == Verdict::Differs
        && t.declared.about(&row.what).all(|c| 2 * c.value < held)
    {
        row.verdict = Verdict::DeclaredWrong;
    }
    let second = x.second.clone().map(|s| (two_digits(s.0), two_digits(s.1)));
    t.row("DTLB2.reach", &reach(&second, x.page.value), extent);
    t.row("page walk", &x.second, |s| format!("{:.0} cycles", s.2));
    t.row("page size", &x.page, |b| bytes(*b));
    t.row("huge pages", &x.huge_effective, |e| {
        if *e {
            "translated whole"
        } else {
            "split by the host: no gain"
        }
        .to_string()
    });
}

/// Caches and translations of code.
fn code(t: &mut Table<'_>, h: &Hierarchy) {
    let c = &h.code;
    t.push("L1i.capacity", &c.capacity, |b| bytes(*b), exact, bytes);
    t.push(
        "L1i.ways",
        &c.ways,
        |w| w.to_string(),
        |w| Some((u64::from(*w), u64::from(*w))),
        plain,
    );
    t.push("L1i.line", &c.line, |b| format!("{b} B"), exact, bytes);
    t.row("op cache", &c.op_cache, |n| {
        format!("about {} of straight code", bytes(*n))
    });
    t.push(
        "ITLB1.entries",
        &c.translations,
        |r| format!("{} to {}", r.0, r.1),
        |r| Some((r.0 * 85 / 100, r.1 * 115 / 100)),
        plain,
    );
    t.row(
        "ITLB1.reach",
        &reach(&c.translations, h.translation.page.value),
        extent,
    );
}

/// What timing cannot tell, and why.
fn not_measured(t: &mut Table<'_>) {
    for (what, why) in [
        (
            "DTLB2.ways",
            "pages that share its sets crowd those of the page tables in the caches too, which looks the same",
        ),
        (
            "ITLB1.miss cost",
            "jumps are fetched ahead of their execution: what a miss takes is hidden behind others",
        ),
        (
            "ITLB2.entries",
            "code over so many pages leaves the caches and the branch predictor first",
        ),
        ("L1i.replacement", "only random orders show misses"),
        (
            "ITLB1.ways",
            "jumps at page strides crowd the branch predictor's sets too, which looks the same",
        ),
        (
            "ITLB1.page",
            "code lies in pages like the data's: see there",
        ),
    ] {
        t.row(what, &Finding::<u64>::refused(why), u64::to_string);
    }
}

fn registers(t: &mut Table<'_>, h: &Hierarchy) {
    t.row("registers", &h.registers, |r| {
        // Classes of one size share it.
        let mut sizes: Vec<(u32, Vec<&str>)> = Vec::new();
        for (name, n) in r.iter().filter(|c| c.1 > 0) {
            match sizes.iter_mut().find(|s| s.0 == *n) {
                Some(s) => s.1.push(name),
                None => sizes.push((*n, vec![name])),
            }
        }
        let of = sizes
            .iter()
            .map(|(n, names)| format!("{n} {}", names.join("/")));
        of.collect::<Vec<_>>().join(", ")
    });
    let usable = h.registers.clone().map(|r| {
        r.iter()
            .filter(|c| c.0.starts_with("general"))
            .map(|c| c.1)
            .sum::<u32>()
            .saturating_sub(1)
    });
    t.row(
        "registers for a compiler",
        &usable.at_most(Confidence::Medium, "general ones less the stack pointer"),
        |n| n.to_string(),
    );
}

/// Rows of the levels that were not seen, so that every parameter has its row.
pub(super) fn absent(t: &mut Table<'_>, h: &Hierarchy) {
    let seen = h.levels.len() as u32;
    for level in seen + 1..=3 {
        let why = match (level, h.memory.value.is_some()) {
            (2, _) => "needs the first level's geometry, which is not known",
            (_, false) => "needs the latency of memory, which is not known",
            _ if seen < 2 => "needs the second level, which is not known",
            _ => "none seen: what misses the second level takes as long as memory",
        };
        let nothing = Finding::<u64>::refused(why);
        for field in [
            "capacity",
            "ways",
            "line",
            "latency",
            "replacement",
            "index",
            "inclusion",
            "shared with",
            "unified",
        ] {
            let unit = if field == "ways" { plain } else { bytes };
            let what = format!("L{level}.{field}");
            t.push(&what, &nothing, |n| n.to_string(), |_| None, unit);
        }
    }
}

pub(super) fn warnings(h: &Hierarchy, d: &Declared, raw: &RawSamples) -> Vec<String> {
    let mut w: Vec<String> = d
        .silent
        .iter()
        .map(|s| format!("not declared: {s}"))
        .collect();
    w.extend(
        raw.failures
            .iter()
            // That there are no counters is the usual case, and has its row.
            .filter(|f| f.0 != "counters")
            .map(|(what, why)| format!("{what}: {why}")),
    );
    if raw.facts.memory_bytes < 64 << 20 {
        w.push(format!(
            "only {} may be used for measuring: large footprints are left out; raise the memory limit to see the last level",
            bytes(raw.facts.memory_bytes)
        ));
    }
    if h.levels.first().and_then(|l| l.capacity.value).is_none() {
        w.push("the first level could not be decided, and most of the rest builds on it: run again when the machine is less busy, or with --full".into());
    }
    if h.counters.value == Some(false) {
        w.push(format!(
            "the host's counters contradict the timing ({}): run again with --full when the machine is less busy",
            h.counters.reason
        ));
    }
    for l in &h.levels {
        if let Some(with) = &l.shared_with.value
            && l.level == 1
            && !with.is_empty()
        {
            w.push(format!("CPU {} shares the first level with the measured one: they are threads of one core, whatever is declared", list(with)));
        }
    }
    w
}

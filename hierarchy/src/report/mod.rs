//! The report: every parameter as declared, as measured, and the verdict, with the raw samples below it.

mod rows;
mod words;

use crate::declared::Declared;
use crate::finding::Confidence;
use crate::infer::{Hierarchy, infer};
use crate::raw::RawSamples;
use rows::{rows, warnings};
use serde::{Deserialize, Serialize};

/// Version of the report's schema.
pub const SCHEMA_VERSION: u32 = 5;

/// What a stored report is valid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKey {
    /// CPU model.
    pub cpu: String,
    /// Kernel release.
    pub kernel: String,
    /// CPUs the process may use.
    pub allowed: Vec<usize>,
}

/// How a declared figure stands to the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All sources agree with the measurement.
    Agrees,
    /// A source differs from a measurement that is sure.
    DeclaredWrong,
    /// A source differs from a measurement that is not sure.
    Differs,
    /// Less is at hand than declared: shared, partitioned or disturbed.
    SmallerShare,
    /// Nothing is declared.
    NotDeclared,
    /// Nothing could be measured.
    Refused,
}

impl Verdict {
    /// The word printed in tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::DeclaredWrong => "DECLARED WRONG",
            Verdict::Differs => "differs",
            Verdict::SmallerShare => "smaller share",
            Verdict::NotDeclared => "-",
            Verdict::Refused => "refused",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The parameter.
    pub what: String,
    /// (source, figure) as declared.
    pub declared: Vec<(String, String)>,
    /// The measured figure in words; empty when refused.
    pub measured: String,
    /// Declared against measured.
    pub verdict: Verdict,
    /// How sure the measurement is.
    pub confidence: Confidence,
    /// Votes for the value and votes taken.
    pub votes: (u32, u32),
    /// Why refused, or what limits the confidence.
    pub reason: String,
}

/// A level as other views need it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LevelSummary {
    /// 1 for the level next to the core.
    pub level: u32,
    /// Effective capacity, bytes; the middle of the range where no value was decided.
    pub bytes: u64,
    /// Whether it was.
    pub decided: bool,
    /// Line size, bytes.
    pub line: u64,
    /// Ways, where decided.
    pub ways: Option<u32>,
    /// Latency of a hit, nanoseconds, where decided.
    pub latency_ns: Option<f64>,
}

/// A finished session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Schema of this structure.
    pub schema_version: u32,
    /// What the report is valid for.
    pub host: HostKey,
    /// Seconds since 1970 when it was measured.
    pub measured_at: u64,
    /// `quick`, `standard` or `full`.
    pub mode: String,
    /// The table.
    pub rows: Vec<Row>,
    /// What the host declares.
    pub declared: Declared,
    /// Everything inferred.
    pub hierarchy: Hierarchy,
    /// Things that make the result less sure, with what to do about them.
    pub warnings: Vec<String>,
    /// Everything measured.
    pub raw: RawSamples,
}

impl MachineReport {
    /// Infers and tabulates.
    pub fn new(
        host: HostKey,
        measured_at: u64,
        mode: &str,
        declared: Declared,
        raw: RawSamples,
    ) -> Self {
        let hierarchy = infer(&raw);
        let rows = rows(&hierarchy, &declared, &host);
        let warnings = warnings(&hierarchy, &declared, &raw);
        MachineReport {
            schema_version: SCHEMA_VERSION,
            host,
            measured_at,
            mode: mode.into(),
            rows,
            declared,
            hierarchy,
            warnings,
            raw,
        }
    }

    /// The levels whose capacity is known, for labelling a curve. A line size that could not be told is
    /// taken from the first level.
    pub fn levels(&self) -> Vec<LevelSummary> {
        let first = self
            .hierarchy
            .levels
            .first()
            .and_then(|l| l.line.value)
            .unwrap_or(64);
        self.hierarchy
            .levels
            .iter()
            .filter_map(|l| {
                Some(LevelSummary {
                    level: l.level,
                    bytes: l
                        .capacity
                        .value
                        .or_else(|| l.range.map(|(a, b)| (a as f64 * b as f64).sqrt() as u64))?,
                    decided: l.capacity.value.is_some(),
                    line: l.line.value.unwrap_or(first),
                    ways: l.ways.value,
                    latency_ns: l.latency.value.map(|x| x.ns),
                })
            })
            .collect()
    }
}

/// A byte count with its unit: `48 KiB`.
pub fn bytes(n: u64) -> String {
    let (unit, scale) = match n {
        n if n >= 1 << 30 => ("GiB", 1u64 << 30),
        n if n >= 1 << 20 => ("MiB", 1 << 20),
        n if n >= 1 << 10 => ("KiB", 1 << 10),
        _ => ("B", 1),
    };
    let x = n as f64 / scale as f64;
    if (x - x.round()).abs() < 0.005 {
        format!("{x:.0} {unit}")
    } else {
        format!("{x:.1} {unit}")
    }
}

//! The exported document; [`super::fill`] makes it.
//!
//! Keys are a contract with outside readers: more may be added, none renamed or taken away.

use serde::Serialize;

/// Version of the exported documents.
pub const SCHEMA_VERSION: u32 = 1;

/// The document: the first process's figures, and all processes.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) schema_version: u32,
    #[serde(flatten)]
    pub(super) first: Process,
    pub(super) processes: Vec<Process>,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) ppid: i32,
    pub(super) statcache_version: String,
    pub(super) engine: String,
    pub(super) command: Vec<String>,
    pub(super) exit_status: Option<i32>,
    /// Whether the profile has its end; false for a run that broke off or goes on.
    pub(super) complete: bool,
    pub(super) seed: u64,
    pub(super) full: bool,
    pub(super) overhead_percent: f64,
    pub(super) host: Host,
    pub(super) totals: Totals,
    pub(super) time: Time,
    pub(super) curves: Vec<Curve>,
    pub(super) lines: Vec<Line>,
    pub(super) functions: Vec<Function>,
    pub(super) instructions: Vec<Instruction>,
    pub(super) data: Vec<Datum>,
    pub(super) windows: Vec<Window>,
    /// What threads take from each other; only where windows saw several together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sharing: Option<SharingOut>,
    pub(super) warnings: Vec<WarningOut>,
}

/// Coherence misses of private caches at 64-byte lines.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SharingOut {
    /// Threads that windows saw.
    pub(super) threads: usize,
    /// Reuses with thread information, and of those lost to a remote write.
    pub(super) reuses: u64,
    pub(super) lost: u64,
    /// Shares of those reuses: no remote access in between, reads only, a write.
    pub(super) private: f64,
    pub(super) shared: f64,
    pub(super) coherence: f64,
    pub(super) coherence_low: f64,
    pub(super) coherence_high: f64,
    /// Coherence misses per line reference.
    pub(super) coherence_miss_ratio: f64,
    pub(super) coherence_miss_low: f64,
    pub(super) coherence_miss_high: f64,
    /// Share of the coherence misses whose remote writes were all to other bytes of the line.
    pub(super) disjoint: f64,
    pub(super) weak: bool,
    /// Coherence misses per line reference at each line size.
    pub(super) by_line_size: Vec<LineSizeOut>,
    /// Most coherence misses first.
    pub(super) pairs: Vec<PairOut>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LineSizeOut {
    pub(super) line_size: u32,
    pub(super) coherence_miss_ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) weak: bool,
}

/// Two source lines that take a line of memory from each other.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PairOut {
    /// Where it was lost; where both lose, the one that loses more.
    pub(super) line: Named,
    /// Who wrote; `null` where that is not known.
    pub(super) writer: Option<Named>,
    /// `false`, `true`, `mixed`, or `none` where the samples do not say.
    pub(super) verdict: &'static str,
    pub(super) lost: u64,
    /// Share of all coherence misses.
    pub(super) share: f64,
    pub(super) share_low: f64,
    pub(super) share_high: f64,
    /// Share of the pair's coherence misses that `line` has; the others are the writer's.
    pub(super) line_share: f64,
    /// Coherence misses of the pair per line reference of the run.
    pub(super) coherence_miss_ratio: f64,
    pub(super) disjoint: f64,
    pub(super) data: DataName,
    pub(super) weak: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct DataName {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) object: String,
}

/// What other threads did to a subject's lines: shares of the reuses it triggered.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RowSharingOut {
    pub(super) reuses: u64,
    pub(super) private: f64,
    pub(super) shared: f64,
    pub(super) coherence: f64,
    pub(super) coherence_low: f64,
    pub(super) coherence_high: f64,
    /// As in [`PairOut`].
    pub(super) verdict: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Host {
    pub(super) cpu: String,
    pub(super) caches: Vec<CacheOut>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CacheOut {
    pub(super) level: u8,
    pub(super) cache_bytes: u64,
    pub(super) line_size: u32,
    pub(super) ways: u32,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Totals {
    pub(super) accesses_observed: u64,
    pub(super) accesses_estimated: u64,
    pub(super) accesses_estimated_low: f64,
    pub(super) accesses_estimated_high: f64,
    pub(super) windows: u64,
    pub(super) samples: u64,
    pub(super) reused: u64,
    pub(super) censored: u64,
    pub(super) never_reused: u64,
    pub(super) declined: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Time {
    pub(super) start_unix_s: f64,
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    pub(super) window_wall_s: f64,
}

/// A miss-ratio curve.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Curve {
    pub(super) line_size: u32,
    pub(super) policy: &'static str,
    pub(super) stream: &'static str,
    pub(super) points: Vec<Point>,
}

/// A point of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) cache_bytes: u64,
    pub(super) miss_ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Stream `own` of a run of several threads: the same with coherence misses, as in private caches.
    #[serde(flatten)]
    pub(super) private: Option<PrivatePoint>,
    /// Half width of the sampling part of the interval.
    pub(super) sampling_half_width: f64,
    /// Half width of the model part.
    pub(super) model_half_width: f64,
    /// The sample base is too thin for this figure.
    pub(super) weak: bool,
}

/// A point with the misses that remote writes make.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PrivatePoint {
    pub(super) private_miss_ratio: f64,
    pub(super) private_low: f64,
    pub(super) private_high: f64,
}

/// What every listed subject has.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) samples: u64,
    pub(super) access_share: f64,
    /// In a run of several threads: in private caches, coherence misses included.
    pub(super) miss: Vec<MissOut>,
    /// In one cache of all threads; only in a run of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) miss_all: Vec<MissOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sharing: Option<RowSharingOut>,
    /// Share of the misses that longer lines could save which they do save, where there are samples enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spatial_use: Option<f64>,
    /// Of code: for which part of its misses in 1 MiB `reuse_from` was seen, 0 to 1. Below a half it may be another place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reuse_from_known: Option<f64>,
}

/// A subject's misses at one cache.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MissOut {
    pub(super) cache_bytes: u64,
    pub(super) miss_ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) miss_share: f64,
    pub(super) weak: bool,
}

/// A reuse edge.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EdgeOut {
    #[serde(flatten)]
    pub(super) from: Named,
    pub(super) share: f64,
    pub(super) miss_ratio: f64,
}

/// The end of a reuse edge, by the fields its kind has.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Named {
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) function: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) function: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) inlined_into: String,
    pub(super) object: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
    pub(super) reuse_from: Vec<EdgeOut>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Function {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) object: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
    pub(super) reuse_from: Vec<EdgeOut>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Instruction {
    pub(super) object: String,
    pub(super) offset: u64,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) function: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
    pub(super) reuse_from: Vec<EdgeOut>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Datum {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allocated: Option<Allocated>,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// The call that allocated blocks of the heap, and who called that, nearest first, as far as all have it in common.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Allocated {
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) function: String,
    pub(super) callers: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Window {
    pub(super) start_s: f64,
    pub(super) cpu_start_s: f64,
    pub(super) wall_s: f64,
    pub(super) tid: i32,
    pub(super) accesses: u64,
    pub(super) stands_for: f64,
    pub(super) contiguous: bool,
    pub(super) declined: u32,
    /// Its threads, where it saw several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) threads: Vec<ThreadOut>,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// One thread's part of a window.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ThreadOut {
    pub(super) tid: i32,
    pub(super) accesses: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct WarningOut {
    pub(super) what: String,
    pub(super) remedy: String,
}
